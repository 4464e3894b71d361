//! The cluster that commands talk to, as the user of the kubeconfig.

use std::error::Error;
use std::mem::take;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use serde::de::DeserializeOwned;

use super::Invalid;
use crate::api::question::QuestionSpec;
use crate::client::{self, Scope, Unanswered};

/// The longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// The longest wait for an answer; the API server itself gives up earlier.
const ANSWER: Duration = Duration::from_secs(40);

/// How many pages of one answer are asked for at once.
const AT_ONCE: usize = 4;

/// What is said of an answer that this version cannot read.
const UNEXPECTED: &str = "unexpected answer of Sluice";

/// What to do without a kubeconfig.
const SET: &str = "set KUBECONFIG or --kubeconfig";

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
    /// The options in a line that a shell completes, as far as it is written.
    #[must_use]
    pub fn of_line(mut words: impl Iterator<Item = String>) -> Self {
        let mut options = Self::default();
        while let Some(word) = words.next() {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
                _ => (word, None),
            };
            let field = match name.as_str() {
                "--namespace" | "-n" => &mut options.namespace,
                "--context" => &mut options.context,
                "--kubeconfig" => {
                    options.kubeconfig = value.or_else(|| words.next()).map(PathBuf::from);
                    continue;
                }
                "--all-namespaces" | "-A" => {
                    options.all_namespaces = true;
                    continue;
                }
                _ => continue,
            };
            *field = value.or_else(|| words.next());
        }
        options
    }

    /// The namespace on the command line.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// Whether all namespaces are asked about.
    #[must_use]
    pub fn all(&self) -> bool {
        self.all_namespaces
    }

    /// The name of the context that is used, if a kubeconfig says so.
    #[must_use]
    pub fn context_name(&self) -> Option<String> {
        let read = || match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path).ok(),
            None => Kubeconfig::read().ok(),
        };
        self.context.clone().or_else(|| read()?.current_context)
    }
}

/// A connection that gives up in time.
#[must_use]
pub fn bounded(mut config: Config) -> Config {
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(ANSWER);
    config.default_retry = false;
    config
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
    /// Where the pages after the next one begin, as far as that is known.
    pub cursors: Vec<String>,
    /// When it was given, by the clock of Sluice.
    pub at: Option<Timestamp>,
    /// Why it has no rows, where Sluice does not manage the namespace or a name in the question is none.
    pub note: Option<String>,
    /// The user that asked, in an answer about the queue.
    pub caller: Option<String>,
}

/// The cluster that is asked.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    /// The address of the API server, for messages.
    server: String,
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
        Self::of(config(options.kubeconfig.as_deref(), options.context.as_deref()).await?, options)
    }

    fn of(config: Config, options: &Options) -> anyhow::Result<Self> {
        let config = bounded(config);
        let namespace = options.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config).context("cannot set up the connection to the cluster")?;
        Ok(Self { client, server, namespace, all: options.all_namespaces })
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
    pub async fn ask<T: DeserializeOwned + Send + 'static>(
        &self,
        spec: QuestionSpec,
    ) -> anyhow::Result<Vec<T>> {
        let first = self.page(&spec).await?.context(UNEXPECTED)?;
        Ok(self.rest(spec, first).await?.rows)
    }

    /// The page with the rows of all further pages. Several are asked for at once, as far as it is known where they begin.
    ///
    /// # Errors
    /// As of [`Self::ask`].
    pub async fn rest<T: DeserializeOwned + Send + 'static>(
        &self,
        mut spec: QuestionSpec,
        mut page: Page<T>,
    ) -> anyhow::Result<Page<T>> {
        spec.since = None;
        let mut cursor = page.cursor.take();
        let starts: Vec<String> = cursor.clone().into_iter().chain(take(&mut page.cursors)).collect();
        let after = |start: String| async {
            let next = self.after(QuestionSpec { cursor: Some(start.clone()), ..spec.clone() }).await;
            next.map(|next| (start, next))
        };
        let mut ahead = Some(stream::iter(starts).map(after).buffered(AT_ONCE));
        while let Some(start) = cursor {
            // The rows may change meanwhile. What was asked for ahead is of use while it begins where the last page ended.
            let known = match &mut ahead {
                Some(ahead) => ahead.next().await.transpose()?.filter(|(begun, _)| *begun == start),
                None => None,
            };
            let (rows, end) = match known {
                Some((_, next)) => next,
                None => {
                    ahead = None;
                    self.after(QuestionSpec { cursor: Some(start), ..spec.clone() }).await?
                }
            };
            page.rows.extend(rows);
            cursor = end;
        }
        Ok(page)
    }

    /// The rows of a further page, and where the next one begins.
    async fn after<T: DeserializeOwned + Send + 'static>(
        &self,
        spec: QuestionSpec,
    ) -> anyhow::Result<(Vec<T>, Option<String>)> {
        let mut answer = self.answer(&spec).await?;
        let cursor = answer.cursor.take();
        Ok((tokio::task::spawn_blocking(|| rows_of(answer)).await??, cursor))
    }

    /// One page of an answer; `None` if its rows are still those of the version `since`.
    ///
    /// # Errors
    /// As of [`Self::ask`].
    pub async fn page<T: DeserializeOwned>(&self, spec: &QuestionSpec) -> anyhow::Result<Option<Page<T>>> {
        let answer = self.answer(spec).await?;
        if answer.unchanged {
            return Ok(None);
        }
        let (cursor, at, total) = (answer.cursor.clone(), answer.at, answer.total);
        let cursors = answer.cursors.clone();
        let (note, caller) = (answer.note.clone(), answer.caller.clone());
        let version = answer.version.clone().context(UNEXPECTED)?;
        let rows: Vec<T> = rows_of(answer)?;
        Ok(Some(Page {
            total: total.unwrap_or(rows.len()),
            rows,
            version,
            cursor,
            cursors,
            at,
            note,
            caller,
        }))
    }

    async fn answer(&self, spec: &QuestionSpec) -> anyhow::Result<client::Answer> {
        let scope = match self.all {
            true => Scope::Cluster,
            false => Scope::Namespace(self.namespace.clone()),
        };
        client::ask(&self.client, None, &scope, spec).await.map_err(|unanswered| match unanswered {
            Unanswered::OfUser { message, .. } | Unanswered::OfSluice { message, .. } => {
                anyhow::anyhow!(message)
            }
            Unanswered::Unreachable(error) => self.unreachable(&error),
        })
    }

    /// A refusal of the API server as one line, about the object or kind of the label.
    pub fn refused(&self, label: &str, error: kube::Error) -> anyhow::Error {
        match error {
            kube::Error::Api(status) => anyhow::anyhow!("{label}: {}", status.message),
            other => self.unreachable(&other),
        }
    }

    fn unreachable(&self, error: &kube::Error) -> anyhow::Error {
        anyhow::anyhow!("cannot reach the cluster at {}: {}", self.server, cause(error))
    }
}

/// The connection that a kubeconfig describes: the named one, that of the environment, or the account of the Pod.
///
/// # Errors
/// When there is none, or it cannot be used.
pub async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, Invalid> {
    let chosen =
        KubeConfigOptions { context: context.map(ToOwned::to_owned), ..KubeConfigOptions::default() };
    match kubeconfig {
        Some(path) => {
            let wrong = |error: &KubeconfigError| Invalid(format!("{}: {}", path.display(), unusable(error)));
            let file = Kubeconfig::read_from(path).map_err(|error| wrong(&error))?;
            Config::from_custom_kubeconfig(file, &chosen).await.map_err(|error| wrong(&error))
        }
        None if context.is_some() => {
            Config::from_kubeconfig(&chosen).await.map_err(|error| Invalid(error.to_string()))
        }
        None => Config::infer().await.map_err(|error| Invalid(no_cluster(&error))),
    }
}

/// Why there is no cluster to ask, as one line. Outside of a cluster only the kubeconfig matters.
fn no_cluster(error: &InferConfigError) -> String {
    let Some(kubeconfig) = error.source().and_then(|source| source.downcast_ref::<KubeconfigError>()) else {
        return format!("no kubeconfig: {SET}");
    };
    match kubeconfig {
        KubeconfigError::FindPath => format!("no kubeconfig: {SET}"),
        KubeconfigError::ReadConfig(problem, path) => {
            format!("no kubeconfig: {}: {problem}; {SET}", path.display())
        }
        wrong => format!("the kubeconfig cannot be used: {}", first_line(wrong)),
    }
}

/// Why a kubeconfig that is named on the command line cannot be used; the caller names the file.
fn unusable(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(problem, _) => problem.to_string(),
        wrong => first_line(wrong),
    }
}

/// The first line of an error: those about YAML go on with the text around it.
fn first_line(error: &dyn Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

/// The innermost cause of an error, which says what happened; those around it only repeat where.
pub fn cause(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn rows_of<T: DeserializeOwned>(answer: client::Answer) -> anyhow::Result<Vec<T>> {
    serde_json::from_str(&answer.rows().context(UNEXPECTED)?).context(UNEXPECTED)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// A cluster that answers with pages of three of these rows, and the cursors that were asked for. Its first page names where five
    /// others begin. From `grown` questions on there is a row more, after the tenth.
    fn paged(rows: usize, grown: usize) -> (Cluster, Arc<Mutex<Vec<usize>>>) {
        const PAGE: usize = 3;
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let seen = Arc::clone(&seen);
            async move {
                let body = request.into_body().collect_bytes().await?;
                let question: Value = serde_json::from_slice(&body)?;
                // The key of row n is 10 n, and a cursor is a key.
                let cursor =
                    question["spec"]["cursor"].as_str().map_or(0, |cursor| cursor.parse().expect("a key"));
                let mut seen = seen.lock().expect("no test panics with it");
                seen.push(cursor);
                let mut keys: Vec<usize> = (1..=rows).map(|row| 10 * row).collect();
                if seen.len() > grown {
                    keys.insert(10, 101);
                }
                let rest: Vec<usize> = keys.into_iter().filter(|key| *key > cursor).collect();
                let page: Vec<usize> = rest.iter().copied().take(PAGE).collect();
                let mut answer = json!({"version": "1", "total": rows, "rows": page});
                if rest.len() > PAGE {
                    answer["cursor"] = json!(page[PAGE - 1].to_string());
                }
                if cursor == 0 {
                    let ends = (2 * PAGE..rest.len()).step_by(PAGE).take(4);
                    answer["cursors"] = ends.map(|end| rest[end - 1].to_string()).collect();
                }
                let text = json!({"answer": answer}).to_string();
                Ok::<_, tower::BoxError>(Response::builder().status(201).body(Body::from(text.into_bytes()))?)
            }
        });
        let client = Client::new(service, "default");
        (Cluster { client, server: String::new(), namespace: "a".to_owned(), all: true }, asked)
    }

    #[tokio::test]
    async fn all_pages_follow_each_other_also_when_rows_come_meanwhile() {
        for rows in [0, 1, 3, 4, 6, 7, 30] {
            let (cluster, asked) = paged(rows, usize::MAX);
            let found: Vec<usize> = cluster.ask(QuestionSpec::default()).await.expect("it answers");
            assert_eq!(found, (1..=rows).map(|row| 10 * row).collect::<Vec<_>>(), "{rows} rows");
            assert_eq!(
                asked.lock().expect("no test panics with it").len(),
                rows.div_ceil(3).max(1),
                "{rows} rows"
            );
        }
        for grown in 0..8 {
            let (cluster, _) = paged(20, grown);
            let found: Vec<usize> = cluster.ask(QuestionSpec::default()).await.expect("it answers");
            assert!(found.is_sorted_by(|one, other| one < other), "no row twice: {found:?}");
            let old: Vec<usize> = found.into_iter().filter(|key| *key != 101).collect();
            assert_eq!(old, (1..=20).map(|row| 10 * row).collect::<Vec<_>>(), "no row is left out");
        }
    }

    #[tokio::test]
    async fn a_cluster_that_is_not_reached_is_named_once_with_the_cause() {
        // No test and no service listens on this port.
        let address = "http://127.0.0.1:1";
        let config = Config::new(address.parse().expect("an address"));
        let cluster = Cluster::of(config, &Options::default()).expect("a client");
        let error =
            cluster.page::<serde_json::Value>(&QuestionSpec::default()).await.expect_err("nothing there");
        let line = format!("{error:#}");
        assert!(
            line.starts_with(&format!("cannot reach the cluster at {address}: Connection refused")),
            "{line}"
        );
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_missing_or_wrong_is_one_line() {
        let line = async |text: Option<&str>| {
            let folder = tempfile::tempdir().expect("a scratch folder");
            let path = folder.path().join("config");
            if let Some(text) = text {
                std::fs::write(&path, text).expect("it can be written");
            }
            let options = Options { kubeconfig: Some(path.clone()), ..Options::default() };
            let error = Cluster::connect(&options).await.err().expect("it cannot be used");
            assert!(error.is::<Invalid>());
            format!("{error:#}").replace(&path.display().to_string(), "FILE")
        };
        assert_eq!(line(None).await, "FILE: No such file or directory (os error 2)");
        for text in ["{", "current-context: x\n", "clusters: none\n"] {
            let line = line(Some(text)).await;
            assert!(line.starts_with("FILE: ") && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn a_line_that_is_completed_names_its_cluster() {
        let line = |text: &str| Options::of_line(text.split(' ').map(ToOwned::to_owned));
        let options = line("sluice explain --context far --kubeconfig=/tmp/k -n vision tra");
        assert_eq!((options.context.as_deref(), options.namespace()), (Some("far"), Some("vision")));
        assert_eq!(options.kubeconfig, Some(PathBuf::from("/tmp/k")));
        assert!(!options.all_namespaces && line("sluice queue -A --team").all_namespaces);
        assert_eq!(line("sluice queue --context").context, None);
    }
}
