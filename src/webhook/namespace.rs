//! Warnings about the labels of a namespace, from memory. None is refused here: the Team may be applied next, and a namespace must
//! stay editable.

use serde_json::Value;

use super::object::label;
use super::requests::unknown_keys;
use super::review::{Request, Verdict};
use super::view::View;
use crate::api::names;
use crate::faults::meant;

/// Answers a review of a namespace.
#[must_use]
pub fn validate(view: &View<'_>, request: &Request) -> Verdict {
    let (old, new) = (&request.old_object, &request.object);
    if !old.is_null() && of_sluice(old) == of_sluice(new) {
        return Verdict::pass();
    }
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let membership = view.complete().then(|| membership(view, name, new)).flatten();
    Verdict::warn(membership.into_iter().chain(without_effect(new)))
}

/// The labels and annotations for Sluice that a namespace does not have.
pub(super) fn without_effect(namespace: &Value) -> Vec<String> {
    unknown_keys(namespace, " of a namespace", &names::NAMESPACE_LABELS, &[])
}

/// The labels and annotations that are for Sluice.
fn of_sluice(namespace: &Value) -> Vec<(&str, &Value)> {
    let fields = ["labels", "annotations"].map(|field| namespace["metadata"][field].as_object());
    let all = fields.into_iter().flatten().flatten().map(|(key, value)| (key.as_str(), value));
    all.filter(|(key, _)| key.starts_with(names::PREFIX)).collect()
}

/// What of the team and the default queue does not exist.
fn membership(view: &View<'_>, namespace: &str, object: &Value) -> Option<String> {
    let team = label(object, names::TEAM)?;
    let known = view.directory();
    // What the spec of such a Team says is not known here.
    if known.unreadable_teams.contains(team) {
        return None;
    }
    let Some(found) = view.team(team) else {
        return Some(format!(
            "Team {team} does not exist.{} Until it does, namespace {namespace} takes no new Jobs and pods, what waits there does \
             not start, and what runs has no guarantee.",
            meant(team, known.teams.keys())
        ));
    };
    let queue = label(object, names::QUEUE)?;
    if view.queue(found, queue).is_some() {
        return None;
    }
    let queues: Vec<&str> = found.queues.iter().map(|queue| &*queue.name).collect();
    Some(format!(
        "Team {team} has no queue {queue}; it has {}. Until it has that one, namespace {namespace} takes no new Jobs and pods that \
         name no queue.",
        queues.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use serde_json::json;

    use super::*;
    use crate::webhook::test_client::{app, directory, post};

    async fn warned(old: Value, labels: Value) -> Vec<String> {
        let object = json!({"kind": "Namespace", "metadata": {"name": "lab", "labels": labels}});
        let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
        let review = json!({"request": {"uid": "1", "operation": operation, "name": "lab",
            "kind": {"group": "", "version": "v1", "kind": "Namespace"}, "object": object, "oldObject": old}});
        let (status, answer) = post(app(directory()), "/validate", review.to_string().into_bytes()).await;
        assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)), "{answer}");
        serde_json::from_value(answer["response"]["warnings"].clone()).unwrap_or_default()
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_with_a_misspelt_team_or_queue_is_warned_of() {
        for (labels, warning) in [
            (
                json!({"sluice.dev/team": "visoin", "sluice.dev/queue": "training"}),
                "sluice: Team visoin does not exist. Is vision meant? Until it does, namespace lab takes no new Jobs and pods, what waits there does not start, and what runs has no guarantee.",
            ),
            (
                json!({"sluice.dev/team": "nlp"}),
                "sluice: Team nlp does not exist. Until it does, namespace lab takes no new Jobs and pods, what waits there does not start, and what runs has no guarantee.",
            ),
            (
                json!({"sluice.dev/team": "vision", "sluice.dev/queue": "trainnig"}),
                "sluice: Team vision has no queue trainnig; it has training, serving. Until it has that one, namespace lab takes no new Jobs and pods that name no queue.",
            ),
            (
                json!({"sluice.dev/taem": "vision"}),
                "sluice: label sluice.dev/taem has no effect: there is no such label of a namespace",
            ),
            // A label of Jobs and pods.
            (
                json!({"sluice.dev/team": "vision", "sluice.dev/group": "x"}),
                "sluice: label sluice.dev/group has no effect: there is no such label of a namespace",
            ),
        ] {
            assert_eq!(warned(Value::Null, labels.clone()).await, [warning]);
            let before = json!({"kind": "Namespace", "metadata": {"name": "lab", "labels": {"other": "x"}}});
            assert_eq!(warned(before, labels).await, [warning], "on update");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_is_right_or_unchanged_has_no_warning() {
        let right = json!({"sluice.dev/team": "vision", "sluice.dev/queue": "serving", "sluice.dev/verdict": "off", "app": "x"});
        assert!(warned(Value::Null, right).await.is_empty());
        assert!(warned(Value::Null, json!({"team": "visoin"})).await.is_empty());
        assert!(warned(Value::Null, Value::Null).await.is_empty());
        let wrong = json!({"sluice.dev/team": "visoin"});
        let before = json!({"kind": "Namespace", "metadata": {"name": "lab", "labels": wrong}});
        let also = json!({"sluice.dev/team": "visoin", "app": "x"});
        assert!(warned(before, also).await.is_empty(), "it was there before");
    }

    #[test]
    fn an_annotation_in_place_of_the_label_is_warned_of() {
        let object = json!({"metadata": {"name": "lab", "annotations": {"sluice.dev/team": "vision", "sluice.dev/x": "y"}}});
        assert_eq!(
            without_effect(&object),
            [
                "annotation sluice.dev/team has no effect: it must be a label",
                "annotation sluice.dev/x has no effect: there is no such annotation of a namespace",
            ]
        );
    }
}
