//! The commands that put a question to a running Sluice.

use anyhow::Context;
use axum::http::{StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;

use super::{Invalid, print, table};
use crate::view::{NodeRow, Teams, WorkloadRow};

/// Where to ask and how to print.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Sluice's HTTP address, e.g. after `kubectl -n sluice-system port-forward svc/sluice 8080`.
    #[arg(long, env = "SLUICE_SERVER", default_value = "http://127.0.0.1:8080", value_name = "URL")]
    server: String,
    /// How to print the answer.
    #[arg(long, short, value_enum, default_value_t = print::Output::Table)]
    output: print::Output,
}

/// `sluice teams`.
pub fn teams(options: &Options) -> anyhow::Result<()> {
    let teams: Teams = ask(options, "/api/v1/teams")?;
    print::answer(options.output, &teams, table::teams)
}

/// `sluice nodes`.
pub fn nodes(options: &Options) -> anyhow::Result<()> {
    let nodes: Vec<NodeRow> = ask(options, "/api/v1/nodes")?;
    print::answer(options.output, &nodes, |nodes| table::nodes(nodes))
}

/// `sluice queue`.
pub fn queue(options: &Options, team: Option<&str>, all: bool) -> anyhow::Result<()> {
    let mut workloads: Vec<WorkloadRow> = ask(options, "/api/v1/workloads")?;
    workloads.retain(|w| team.is_none_or(|team| team == w.team) && (all || w.state != "Finished"));
    print::answer(options.output, &workloads, |workloads| table::queue(workloads))
}

/// `sluice explain`.
pub fn explain(options: &Options, namespace: &str, name: &str) -> anyhow::Result<()> {
    let found: Vec<WorkloadRow> = ask(options, &format!("/api/v1/workloads/{namespace}/{name}"))?;
    print::answer(options.output, &found, |found| table::explain(found))
}

fn ask<T: DeserializeOwned>(options: &Options, path: &str) -> anyhow::Result<T> {
    let base = options.server.trim_end_matches('/');
    let uri: Uri = format!("{base}{path}")
        .parse()
        .map_err(|error| Invalid(format!("--server {}: {error}", options.server)))?;
    if uri.scheme_str() != Some("http") {
        return Err(Invalid(format!("--server {}: expected http://HOST:PORT", options.server)).into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (status, body) = runtime.block_on(get(uri)).with_context(|| format!("{base} does not answer"))?;
    if status == StatusCode::NOT_FOUND {
        let answer: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let error = answer["error"].as_str().unwrap_or("not found");
        return Err(Invalid(error.to_owned()).into());
    }
    anyhow::ensure!(status.is_success(), "{base}{path} answers {status}");
    serde_json::from_slice(&body)
        .with_context(|| format!("{base}{path} answers something else than expected"))
}

async fn get(uri: Uri) -> anyhow::Result<(StatusCode, Vec<u8>)> {
    let client: Client<_, Full<axum::body::Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.get(uri).await?;
    let status = answer.status();
    Ok((status, answer.into_body().collect().await?.to_bytes().to_vec()))
}
