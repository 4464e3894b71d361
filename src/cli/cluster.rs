//! Asks Sluice by Questions, as the user of the kubeconfig: each is created as a dry-run, and comes back with its answer.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::{Client, Config};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Invalid;
use crate::api::names;
use crate::api::question::{CLUSTER_KIND, KIND, QuestionSpec};

/// The longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest wait for an answer; the API server itself gives up earlier.
const ANSWER: Duration = Duration::from_secs(40);
/// How often a question is asked while no replica answers, as while one takes over.
const ATTEMPTS: u32 = 5;
/// The pause before a question is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// What is said of an answer that this version cannot read.
const UNEXPECTED: &str = "unexpected answer of Sluice";

/// Cluster, user and namespace.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Namespace; by default that of the context.
    #[arg(long, short, value_name = "NAME", conflicts_with = "all_namespaces", help_heading = super::COMMON)]
    namespace: Option<String>,
    /// All namespaces, which needs the role sluice-manager.
    #[arg(long, short = 'A', help_heading = super::COMMON)]
    all_namespaces: bool,
    /// Context of the kubeconfig.
    #[arg(long, value_name = "NAME", help_heading = super::COMMON)]
    context: Option<String>,
    /// Kubeconfig; else $KUBECONFIG, ~/.kube/config, or the Pod's account.
    #[arg(long, value_name = "FILE", help_heading = super::COMMON)]
    kubeconfig: Option<PathBuf>,
}

impl Options {
    /// The namespace on the command line.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

/// One page of an answer.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// Its rows.
    pub rows: Vec<T>,
    /// The version of all rows of the answer.
    pub version: String,
    /// The number of all rows of the answer.
    pub total: usize,
    /// Where the next page begins.
    pub cursor: Option<String>,
    /// When it was given, by the clock of Sluice.
    pub at: Option<Timestamp>,
}

/// The cluster that is asked.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    /// The namespace to ask about.
    pub namespace: String,
    /// Whether all namespaces are asked about.
    pub all: bool,
}

/// Runs a conversation with the cluster.
///
/// # Errors
/// When there is no usable kubeconfig, and those of the conversation.
pub fn with<T>(options: &Options, talk: impl AsyncFnOnce(Cluster) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { talk(Cluster::connect(options).await?).await })
}

impl Cluster {
    /// Connects as the user of the kubeconfig.
    ///
    /// # Errors
    /// When there is no usable kubeconfig.
    pub async fn connect(options: &Options) -> anyhow::Result<Self> {
        let chosen = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
        let config = match &options.kubeconfig {
            Some(path) => {
                let wrong = |error: &dyn std::fmt::Display| Invalid(format!("{}: {error}", path.display()));
                let file = Kubeconfig::read_from(path).map_err(|error| wrong(&error))?;
                Config::from_custom_kubeconfig(file, &chosen).await.map_err(|error| wrong(&error))?
            }
            None if options.context.is_some() => {
                Config::from_kubeconfig(&chosen).await.map_err(|error| Invalid(error.to_string()))?
            }
            None => Config::infer().await.map_err(|error| {
                Invalid(format!("no kubeconfig: set KUBECONFIG or --kubeconfig ({error})"))
            })?,
        };
        Self::of(config, options)
    }

    fn of(mut config: Config, options: &Options) -> anyhow::Result<Self> {
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(ANSWER);
        config.default_retry = false;
        let namespace = options.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).context("cannot set up the connection to the cluster")?;
        Ok(Self { client, namespace, all: options.all_namespaces })
    }

    /// The connection, for writes of ordinary objects as the user of the kubeconfig.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The rows of all pages of an answer.
    ///
    /// # Errors
    /// When the question is wrong, not allowed or not answered.
    pub async fn ask<T: DeserializeOwned>(&self, spec: QuestionSpec) -> anyhow::Result<Vec<T>> {
        let first = self.page(&spec).await?.context(UNEXPECTED)?;
        Ok(self.rest(spec, first).await?.rows)
    }

    /// The page with the rows of all further pages.
    ///
    /// # Errors
    /// As of [`Self::ask`].
    pub async fn rest<T: DeserializeOwned>(
        &self,
        mut spec: QuestionSpec,
        mut page: Page<T>,
    ) -> anyhow::Result<Page<T>> {
        spec.since = None;
        while page.cursor.is_some() {
            spec.cursor.clone_from(&page.cursor);
            let next: Page<T> = self.page(&spec).await?.context(UNEXPECTED)?;
            page.rows.extend(next.rows);
            page.cursor = next.cursor;
        }
        Ok(page)
    }

    /// One page of an answer; `None` if its rows are still those of the version `since`.
    ///
    /// # Errors
    /// As of [`Self::ask`].
    pub async fn page<T: DeserializeOwned>(&self, spec: &QuestionSpec) -> anyhow::Result<Option<Page<T>>> {
        let mut answer = self.answer(spec).await?;
        if answer["unchanged"] == true {
            return Ok(None);
        }
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let version = text(&answer["version"]).context(UNEXPECTED)?;
        let (cursor, at) = (text(&answer["cursor"]), text(&answer["at"]));
        let total = answer["total"].as_u64().and_then(|total| usize::try_from(total).ok());
        let rows: Vec<T> = serde_json::from_value(answer["rows"].take()).context(UNEXPECTED)?;
        let total = total.unwrap_or(rows.len());
        Ok(Some(Page { total, rows, version, cursor, at: at.and_then(|at| at.parse().ok()) }))
    }

    async fn answer(&self, spec: &QuestionSpec) -> anyhow::Result<Value> {
        let (kind, plural) = if self.all { (CLUSTER_KIND, "clusterquestions") } else { (KIND, "questions") };
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("sluice.dev", "v1alpha1", kind), plural);
        let api: Api<DynamicObject> = if self.all {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        };
        // The name is free: nothing is stored.
        let question = DynamicObject::new("sluice", &resource).data(json!({"spec": spec}));
        let params = PostParams { dry_run: true, field_manager: Some(names::FIELD_MANAGER.to_owned()) };
        let mut attempt = 0;
        loop {
            attempt += 1;
            let error = match api.create(&params, &question).await {
                Ok(mut asked) => return Ok(asked.data["answer"].take()),
                Err(error) => error,
            };
            if attempt == ATTEMPTS || !is_passing(&error) {
                return Err(self.reported(error));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The error as one line that says what to do.
    fn reported(&self, error: kube::Error) -> anyhow::Error {
        let kube::Error::Api(status) = &error else {
            return anyhow::Error::new(error).context("cannot reach the cluster");
        };
        anyhow::anyhow!(problem(status, self.all, &self.namespace))
    }
}

/// Whether another replica, or the same one a moment later, may answer.
fn is_passing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if status.code == 503 || (status.code == 500 && status.message.contains("failed calling webhook")))
}

/// A problem as one line.
fn problem(status: &Status, all: bool, namespace: &str) -> String {
    let message = status.message.as_str();
    let by_webhook = message.split_once("sluice.dev\" denied the request: ");
    if let Some((_, said)) = by_webhook.or_else(|| message.split_once("'sluice-question' denied request: ")) {
        return said.to_owned();
    }
    match status.code {
        403 if message.contains("cannot create resource") => {
            let user = message.split('"').nth(1).unwrap_or("this account");
            if all {
                format!(
                    "{user} may not ask about all namespaces: that needs the role sluice-manager (kubectl create \
                     clusterrolebinding sluice-manager-{user} --clusterrole=sluice-manager --user={user})"
                )
            } else {
                format!(
                    "{user} may not ask about namespace {namespace}: that needs the role sluice-user there (kubectl -n \
                     {namespace} create rolebinding sluice-user-{user} --clusterrole=sluice-user --user={user})"
                )
            }
        }
        404 if message.starts_with("namespaces ") => {
            format!("there is no namespace {namespace}")
        }
        404 => "this cluster has no Questions: Sluice is not installed, or older".to_owned(),
        401 => "the cluster does not accept the credentials of the kubeconfig".to_owned(),
        _ if message.contains("failed calling webhook") => {
            "Sluice does not answer: see `kubectl -n sluice-system get pods`".to_owned()
        }
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(code: u16, message: &str, all: bool) -> String {
        let status = Status { code, message: message.to_owned(), ..Status::default() };
        problem(&status, all, "a")
    }

    #[test]
    fn a_problem_is_one_line_that_says_what_to_do() {
        let rbac = r#"questions.sluice.dev is forbidden: User "alice" cannot create resource "questions" in API group "sluice.dev" in the namespace "a""#;
        assert!(
            line(403, rbac, false)
                .starts_with("alice may not ask about namespace a: that needs the role sluice-user")
        );
        assert!(line(403, rbac, true).contains("sluice-manager"));
        let webhook = r#"admission webhook "questions.mutate.sluice.dev" denied the request: no Job"#;
        assert_eq!(line(422, webhook, false), "no Job");
        let away = r#"Internal error occurred: failed calling webhook "questions.mutate.sluice.dev": connection refused"#;
        assert!(line(500, away, false).starts_with("Sluice does not answer"));
        assert!(
            line(404, "the server could not find the requested resource", false).contains("not installed")
        );
    }
}
