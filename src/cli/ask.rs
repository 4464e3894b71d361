//! The commands that query a running Sluice.

use std::path::Path;

use anyhow::Context;
use axum::http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::target::Target;
use super::{Invalid, print, table};
use crate::options::AcceleratorOptions;
use crate::view::{Accelerators, NodeRow, Teams, WhatIfRow, WorkloadRow};

/// Server and output of a query.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Address of Sluice's API, e.g. after `kubectl -n sluice-system port-forward deployment/sluice 8081`.
    #[arg(long, env = "SLUICE_SERVER", default_value = "http://127.0.0.1:8081", value_name = "URL")]
    server: String,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = print::Output::Table)]
    output: print::Output,
    /// Resources that count as GPUs.
    #[command(flatten)]
    accelerators: AcceleratorOptions,
}

/// `sluice teams`.
pub fn teams(options: &Options) -> anyhow::Result<()> {
    let teams: Teams = ask(options, "/api/v1/teams")?;
    let accelerators = in_quotas(options, &teams);
    print::answer(options.output, &teams, |teams| table::teams(teams, &accelerators))
}

/// `sluice nodes`.
pub fn nodes(options: &Options) -> anyhow::Result<()> {
    let nodes: Vec<NodeRow> = ask(options, "/api/v1/nodes")?;
    print::answer(options.output, &nodes, |nodes| table::nodes(nodes))
}

/// `sluice queue`.
pub fn queue(options: &Options, team: Option<&str>, all: bool) -> anyhow::Result<()> {
    let mut workloads: Vec<WorkloadRow> = ask(options, "/api/v1/workloads")?;
    workloads.retain(|w| team.is_none_or(|team| team == w.head.team) && (all || w.head.state != "Finished"));
    let mut accelerators = options.accelerators.accelerators();
    if options.output == print::Output::Table && accelerators.depend_on_quotas() {
        accelerators = in_quotas(options, &ask(options, "/api/v1/teams")?);
    }
    print::answer(options.output, &workloads, |workloads| table::queue(workloads, &accelerators))
}

/// `sluice explain`.
pub fn explain(options: &Options, target: &Target) -> anyhow::Result<()> {
    let Target { namespace, name, .. } = target;
    let mut found: Vec<WorkloadRow> = ask(options, &format!("/api/v1/workloads/{namespace}/{name}"))?;
    let kinds: Vec<String> = found.iter().map(|row| row.kind.clone()).collect();
    found.retain(|row| target.may_be(&row.kind));
    if found.is_empty() {
        let kinds = kinds.join(" and ");
        return Err(Invalid(format!("there is no {}, but a {kinds} of that name", target.label())).into());
    }
    print::answer(options.output, &found, |found| table::explain(found))
}

/// `sluice what-if`.
pub fn what_if(options: &Options, file: &Path, namespace: Option<&str>) -> anyhow::Result<()> {
    let object = read_job(file, namespace)?;
    let row: WhatIfRow = call(options, "/api/v1/what-if", Some(&object))?;
    print::answer(options.output, &row, table::what_if)
}

/// The resources that count as GPUs, with the device resources in these teams' quotas.
fn in_quotas(options: &Options, teams: &Teams) -> Accelerators {
    let listed = teams.teams.iter().flat_map(|team| team.guaranteed.keys().chain(team.limit.keys()));
    options.accelerators.accelerators().with_quotas(listed.map(String::as_str))
}

/// Reads the one Job of a file; `namespace` applies if the file has none.
fn read_job(file: &Path, namespace: Option<&str>) -> anyhow::Result<Value> {
    let wrong = |problem: String| Invalid(format!("{}: {problem}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let mut documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .map_err(|error| wrong(error.to_string().lines().next().unwrap_or("it is not YAML").to_owned()))?;
    documents.retain(|document| !document.is_null());
    let (Some(mut object), true) = (documents.pop(), documents.is_empty()) else {
        return Err(wrong("expected exactly one Job".to_owned()).into());
    };
    if !object.is_object() {
        return Err(wrong("expected a Job".to_owned()).into());
    }
    let own = object.pointer("/metadata/namespace").and_then(Value::as_str).map(ToOwned::to_owned);
    match (own, namespace) {
        (Some(own), Some(given)) if own != given => {
            Err(wrong(format!("metadata.namespace is {own:?}, but --namespace is {given:?}")).into())
        }
        (own, given) => {
            let namespace = own.as_deref().or(given).unwrap_or("default");
            json_patch::merge(&mut object, &serde_json::json!({"metadata": {"namespace": namespace}}));
            Ok(object)
        }
    }
}

fn ask<T: DeserializeOwned>(options: &Options, path: &str) -> anyhow::Result<T> {
    call(options, path, None)
}

/// Sends a query; a body is sent by POST.
fn call<T: DeserializeOwned>(options: &Options, path: &str, body: Option<&Value>) -> anyhow::Result<T> {
    let base = options.server.trim_end_matches('/');
    let uri: Uri = format!("{base}{path}")
        .parse()
        .map_err(|error| Invalid(format!("--server {}: {error}", options.server)))?;
    if uri.scheme_str() != Some("http") {
        return Err(Invalid(format!("--server {}: expected http://HOST:PORT", options.server)).into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (status, body) = runtime.block_on(answer(uri, body)).with_context(|| {
        format!(
            "cannot reach Sluice at {base}; run `kubectl -n sluice-system port-forward deployment/sluice \
                 8081`, or set --server or SLUICE_SERVER"
        )
    })?;
    if matches!(status, StatusCode::NOT_FOUND | StatusCode::UNPROCESSABLE_ENTITY) {
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let error = answer["error"].as_str().unwrap_or("not found");
        return Err(Invalid(error.to_owned()).into());
    }
    if !status.is_success() {
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        anyhow::bail!("{base}{path}: {}", answer["error"].as_str().unwrap_or(&status.to_string()));
    }
    serde_json::from_slice(&body).with_context(|| format!("unexpected answer from {base}{path}"))
}

async fn answer(uri: Uri, body: Option<&Value>) -> anyhow::Result<(StatusCode, Vec<u8>)> {
    let client: Client<_, Full<axum::body::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = match body {
        Some(body) => Request::post(uri)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(serde_json::to_vec(body)?))?,
        None => Request::get(uri).body(Full::default())?,
    };
    let answer = client.request(request).await?;
    let status = answer.status();
    Ok((status, answer.into_body().collect().await?.to_bytes().to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, namespace: Option<&str>) -> Result<Value, String> {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        std::fs::write(file.path(), text).expect("it can be written");
        read_job(file.path(), namespace).map_err(|error| {
            let text = error.to_string();
            text.split_once(": ").map_or(text.clone(), |(_, problem)| problem.to_owned())
        })
    }

    #[test]
    fn a_file_has_exactly_one_job_in_one_namespace() {
        let job = "kind: Job\nmetadata: {name: x}\n---\n";
        let namespace = |given| read(job, given).map(|job| job["metadata"]["namespace"].clone());
        assert_eq!(namespace(Some("a")), Ok("a".into()));
        assert_eq!(namespace(None), Ok("default".into()));
        let own = "kind: Job\nmetadata: {name: x, namespace: b}\n";
        assert_eq!(read(own, None).map(|job| job["metadata"]["namespace"].clone()), Ok("b".into()));
        assert!(read(own, Some("a")).is_err_and(|error| error.contains("--namespace is \"a\"")));
        for text in ["", "kind: Job\n---\nkind: Job\n", "- 1\n", "{"] {
            assert!(read(text, None).is_err(), "{text:?}");
        }
    }
}
