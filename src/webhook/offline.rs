//! The webhook without an API server, for the simulator and for what-if questions.

use serde_json::{Value, json};

use super::mutate::mutate;
use super::namespace;
use super::review::{GroupKind, Request, UserInfo, Verdict};
use super::validate::validate;
use super::view::View;
use crate::directory::Directory;

/// The object as it would be stored when `user` creates it or updates `before`, and the warnings.
///
/// # Errors
/// The refusal of the webhook.
pub fn stored(
    directory: &Directory,
    user: &str,
    before: Option<&Value>,
    object: Value,
) -> Result<(Value, Vec<String>), String> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    let mut request = Request {
        kind: GroupKind { group, kind },
        name: text("name"),
        namespace: text("namespace"),
        operation: if before.is_some() { "UPDATE" } else { "CREATE" }.to_owned(),
        user_info: UserInfo { username: user.to_owned(), groups: Vec::new() },
        old_object: before.cloned().unwrap_or_default(),
        options: json!({}),
        object,
        ..Request::default()
    };
    let view = View::new(directory);
    let warnings = match mutate(&view, &request) {
        Verdict::Deny(problem) => return Err(problem),
        Verdict::Allow { patch, warnings } => {
            json_patch::patch(&mut request.object, &patch).map_err(|error| error.to_string())?;
            warnings
        }
    };
    match validate(&view, &request) {
        Verdict::Deny(problem) => Err(problem),
        Verdict::Allow { .. } => Ok((request.object, warnings)),
    }
}

/// The warnings about the labels and annotations of a namespace that need no other object.
#[must_use]
pub fn warnings_of_namespace(object: &Value) -> Vec<String> {
    namespace::without_effect(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names;
    use crate::directory::Membership;
    use crate::engine::types::{Queue, Team};

    fn directory() -> Directory {
        let team = Team {
            name: "vision".into(),
            parent: None,
            quotas: [].into(),
            weight: 1,
            queues: vec![Queue::fallback()],
            fair_users: false,
            budget: None,
        };
        Directory {
            complete: true,
            namespaces: [("v".into(), Membership { team: "vision".into(), queue: None })].into(),
            teams: [("vision".into(), team)].into(),
            ..Directory::default()
        }
    }

    fn job(spec: Value) -> Value {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "namespace": "v"}, "spec": spec})
    }

    #[test]
    fn a_job_is_stored_as_the_webhook_leaves_it() {
        let (stored, warnings) = stored(&directory(), "alice", None, job(json!({}))).expect("it is accepted");
        assert!(warnings.is_empty(), "{warnings:?}");
        assert_eq!(stored["spec"]["suspend"], true);
        assert_eq!(stored["metadata"]["annotations"][names::HELD], "true");
        assert_eq!(stored["metadata"]["labels"][names::TEAM], "vision");
    }

    #[test]
    fn a_job_that_its_user_releases_is_queued() {
        let (held, _) =
            stored(&directory(), "alice", None, job(json!({"suspend": true}))).expect("it is accepted");
        assert!(held["metadata"]["annotations"][names::HELD].is_null());
        let mut free = held.clone();
        free["spec"]["suspend"] = false.into();
        let (queued, _) = stored(&directory(), "alice", Some(&held), free).expect("it is accepted");
        assert_eq!(queued["spec"]["suspend"], true);
        assert_eq!(queued["metadata"]["annotations"][names::HELD], "true");
    }

    #[test]
    fn a_refusal_of_the_webhook_is_an_error() {
        let mut wrong = job(json!({}));
        wrong["metadata"]["labels"] = json!({names::QUEUE: "fast"});
        let error = stored(&directory(), "alice", None, wrong).expect_err("there is no such queue");
        assert!(error.starts_with("Job v/x: team \"vision\" has no queue \"fast\""), "{error}");
    }
}
