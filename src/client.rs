//! Asks Sluice by Questions, as a user of the API server: each is created as a dry-run, and comes back with its answer.

use std::io::Read as _;
use std::time::Duration;

use anyhow::Context as _;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderValue, Request};
use flate2::read::GzDecoder;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::Client;
use kube::core::Status;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::names;
use crate::api::question::{API_VERSION, CLUSTER_KIND, Encoding, KIND, QuestionSpec};
use crate::yaml;

/// How often a question is asked while no replica answers, as while one takes over.
const ATTEMPTS: u32 = 5;
/// The pause before a question is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// What is asked about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// A namespace: its work by name, the rest as numbers.
    Namespace(String),
    /// All work by name.
    Cluster,
}

/// Why a question has no answer.
#[derive(Debug)]
pub enum Unanswered {
    /// It is wrong, or not allowed.
    OfUser {
        /// The status of HTTP.
        code: u16,
        /// One line that says what to do.
        message: String,
    },
    /// Sluice does not answer.
    OfSluice {
        /// The status of HTTP.
        code: u16,
        /// One line that says what to do.
        message: String,
    },
    /// The API server does not answer.
    Unreachable(kube::Error),
}

/// The most bytes of the rows of an answer.
const MOST_BYTES: u64 = 64 << 20;

/// An answer to a question.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The version of all rows of the answer.
    pub version: Option<String>,
    /// When it was given, by the clock of Sluice.
    pub at: Option<Timestamp>,
    /// The number of all rows of the answer.
    pub total: Option<usize>,
    /// Where the next page begins.
    pub cursor: Option<String>,
    /// Where the pages after the next one begin, as long as each has as many rows as fit; in a first page alone.
    pub cursors: Vec<String>,
    /// Why there are no rows, where Sluice does not manage the namespace or a name in the question is none.
    pub note: Option<String>,
    /// The user that asked, in an answer about the queue.
    pub caller: Option<String>,
    /// Whether the rows are still those of the version that the question named.
    pub unchanged: bool,
    rows: Option<Box<RawValue>>,
    gzip: Option<ByteString>,
}

impl Answer {
    /// The rows of this page, as a JSON list.
    ///
    /// # Errors
    /// When there are none, or they are broken.
    pub fn rows(self) -> anyhow::Result<String> {
        match (self.gzip, self.rows) {
            (Some(ByteString(bytes)), _) => {
                let mut rows = String::new();
                GzDecoder::new(&bytes[..]).take(MOST_BYTES).read_to_string(&mut rows)?;
                Ok(rows)
            }
            // Sluice is older than this program.
            (None, rows) => Ok(rows.context("the answer has no rows")?.get().to_owned()),
        }
    }
}

/// A Question that comes back.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Asked {
    answer: Answer,
}

/// Whether this may be the name of a namespace, so that a path with it leads nowhere else.
#[must_use]
pub fn is_namespace(name: &str) -> bool {
    let part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=63).contains(&name.len()) && name.chars().all(part)
}

/// The answer to a question. `bearer` is the `Authorization` of its caller, where it is not the client's own.
///
/// # Errors
/// [`Unanswered`].
pub async fn ask(
    client: &Client,
    bearer: Option<&HeaderValue>,
    scope: &Scope,
    spec: &QuestionSpec,
) -> Result<Answer, Unanswered> {
    let (kind, resource) = match scope {
        Scope::Namespace(namespace) if is_namespace(namespace) => {
            (KIND, format!("namespaces/{namespace}/questions"))
        }
        Scope::Namespace(namespace) => {
            let message = format!("{namespace:?} cannot be the name of a namespace");
            return Err(Unanswered::OfUser { code: 404, message });
        }
        Scope::Cluster => (CLUSTER_KIND, "clusterquestions".to_owned()),
    };
    let path = format!("/apis/{API_VERSION}/{resource}?dryRun=All&fieldManager={}", names::FIELD_MANAGER);
    let spec = QuestionSpec { encoding: Some(Encoding::Gzip), ..spec.clone() };
    // The name is free: nothing is stored.
    let question =
        json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "sluice"}, "spec": spec});
    let body = question.to_string().into_bytes();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut request = Request::post(&path).header(CONTENT_TYPE, "application/json");
        if let Some(bearer) = bearer {
            request = request.header(AUTHORIZATION, bearer);
        }
        let request = request.body(body.clone()).map_err(kube::Error::HttpError);
        let error = match request {
            Ok(request) => match client.request::<Asked>(request).await {
                Ok(Asked { answer }) => return Ok(answer),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if attempt == ATTEMPTS || !is_passing(&error) {
            return Err(match error {
                kube::Error::Api(status) => problem(&status, scope),
                error => Unanswered::Unreachable(error),
            });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The one object of a YAML text that came with a request.
///
/// # Errors
/// The problem as one line.
pub fn one_job(text: &str) -> Result<Value, String> {
    let mut documents = yaml::documents(text, yaml::Trust::Foreign).map_err(|problem| problem.to_string())?;
    documents.retain(|document| !document.is_null());
    let (Some(object), true) = (documents.pop(), documents.is_empty()) else {
        return Err("expected exactly one Job".to_owned());
    };
    if object.is_object() { Ok(object) } else { Err("expected a Job".to_owned()) }
}

/// Whether another replica, or the same one a moment later, may answer.
fn is_passing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status)
        if status.code == 503 || (status.code == 500 && status.message.contains("failed calling webhook")))
}

/// The problem as one line that says what to do.
fn problem(status: &Status, scope: &Scope) -> Unanswered {
    let (code, message) = (status.code, status.message.as_str());
    let of_user = |message| Unanswered::OfUser { code, message };
    let of_sluice = |message| Unanswered::OfSluice { code, message };
    let by_webhook = message.split_once("sluice.dev\" denied the request: ");
    if let Some((_, said)) = by_webhook.or_else(|| message.split_once("'sluice-question' denied request: ")) {
        return match status.code {
            429 | 503 => of_sluice(said.to_owned()),
            _ => of_user(said.to_owned()),
        };
    }
    match status.code {
        403 if message.contains("cannot create resource") => {
            let user = message.split('"').nth(1).unwrap_or("this account");
            let (name, subject) = match user.strip_prefix("system:serviceaccount:") {
                Some(account) => {
                    let name = account.split(':').next_back().unwrap_or_default();
                    (name, format!("--serviceaccount={account}"))
                }
                None => (user, format!("--user={user}")),
            };
            of_user(match scope {
                Scope::Cluster => format!(
                    "{user} may not ask about all namespaces: that needs the role sluice-manager (kubectl create \
                     clusterrolebinding sluice-manager-{name} --clusterrole=sluice-manager {subject})"
                ),
                Scope::Namespace(namespace) => format!(
                    "{user} may not ask about namespace {namespace}: that needs the role sluice-user there (kubectl -n \
                     {namespace} create rolebinding sluice-user-{name} --clusterrole=sluice-user {subject})"
                ),
            })
        }
        404 if message.starts_with("namespaces ") => of_user(match scope {
            Scope::Namespace(namespace) => format!("there is no namespace {namespace}"),
            Scope::Cluster => message.to_owned(),
        }),
        404 => of_sluice("this cluster has no Questions: Sluice is not installed, or older".to_owned()),
        401 => of_user("the cluster does not accept the credentials of this user".to_owned()),
        _ if message.contains("failed calling webhook") => {
            of_sluice("Sluice does not answer: see `kubectl -n sluice-system get pods`".to_owned())
        }
        _ => of_sluice(message.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(code: u16, message: &str, scope: &Scope) -> String {
        let status = Status { code, message: message.to_owned(), ..Status::default() };
        match problem(&status, scope) {
            Unanswered::OfUser { message, .. } | Unanswered::OfSluice { message, .. } => message,
            Unanswered::Unreachable(error) => error.to_string(),
        }
    }

    #[test]
    fn a_problem_is_one_line_that_says_what_to_do() {
        let a = Scope::Namespace("a".to_owned());
        let rbac = r#"questions.sluice.dev is forbidden: User "alice" cannot create resource "questions" in API group "sluice.dev" in the namespace "a""#;
        assert!(
            line(403, rbac, &a)
                .starts_with("alice may not ask about namespace a: that needs the role sluice-user")
        );
        assert!(line(403, rbac, &Scope::Cluster).contains("sluice-manager"));
        let webhook = r#"admission webhook "questions.mutate.sluice.dev" denied the request: no Job"#;
        assert_eq!(line(422, webhook, &a), "no Job");
        let away = r#"Internal error occurred: failed calling webhook "questions.mutate.sluice.dev": connection refused"#;
        assert!(line(500, away, &a).starts_with("Sluice does not answer"));
        assert!(line(404, "the server could not find the requested resource", &a).contains("not installed"));
    }

    #[test]
    fn the_one_job_of_a_text_is_read_as_it_is_written() {
        let job = one_job("kind: Job\nmetadata: {name: n, namespace: on}\n").expect("it is a Job");
        assert_eq!(job["metadata"], json!({"name": "n", "namespace": "on"}));
        for (text, said) in [
            ("kind: Job\nkind: Job\n", "line 2, column 1: the key kind is there twice"),
            ("kind: Job\n---\nkind: Job\n", "expected exactly one Job"),
            ("5", "expected a Job"),
        ] {
            assert_eq!(one_job(text), Err(said.to_owned()));
        }
    }

    #[test]
    fn no_name_of_a_namespace_leads_to_another_path() {
        for (name, is) in
            [("a", true), ("team-a-2", true), ("", false), ("a/b", false), ("..", false), ("a?x", false)]
        {
            assert_eq!(is_namespace(name), is, "{name}");
        }
        assert!(!is_namespace(&"a".repeat(64)));
    }
}
