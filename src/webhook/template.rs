//! The rules for pod templates of Jobs and custom kinds: their pods start without a review of their own.

use serde_json::Value;

use super::object::annotation;
use crate::api::{names, priority};

/// The prefix of the priority classes that the API server makes by itself.
const SYSTEM: &str = "system-";

/// The annotations that a template may not have, beside those of Sluice.
const OF_OBJECT: [&str; 5] =
    [names::GROUP_SIZE, names::HOLD, names::ORDER, names::TEAM_ORDER, names::REQUEUE];
/// The keys that Sluice writes into templates.
const WRITTEN: [&str; 5] = [names::TEAM, names::PLACED, names::OWN_AFFINITY, names::TWIN, names::NODES];

/// Warnings about keys with Sluice's prefix that have no effect in a template, because Sluice reads them from the metadata of the
/// object, or because there are none of that name. Those that a template may not have are refused instead.
#[must_use]
pub fn without_effect(object: &Value, template: &Value, field: &str) -> Vec<String> {
    let kind = object["kind"].as_str().unwrap_or("workload");
    // The queue of an object is copied to its template.
    let is_copied = |key: &str| key == names::QUEUE && object["metadata"]["labels"].get(key).is_some();
    let is_refused = |key: &str| {
        names::OWN_ANNOTATIONS.contains(&key)
            || OF_OBJECT.contains(&key)
            || [names::GPU_FRACTION, names::GROUP].contains(&key)
    };
    let mut warnings = Vec::new();
    for (form, place) in [("label", "labels"), ("annotation", "annotations")] {
        let keys = template["metadata"][place].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
        let ours = keys.filter(|key| key.starts_with(names::PREFIX));
        for key in ours.filter(|key| !WRITTEN.contains(key) && !is_copied(key) && !is_refused(key)) {
            let why = if key == names::PREEMPTIBLE {
                format!("the queue of a {kind} decides whether it may be evicted")
            } else if names::LABELS.contains(&key) {
                format!("write it as a label of the {kind} itself")
            } else if names::ANNOTATIONS.contains(&key) {
                format!("write it as an annotation of the {kind} itself")
            } else {
                format!("there is no such {form}")
            };
            warnings.push(format!("sluice: {form} {key} in {field} has no effect: {why}"));
        }
    }
    warnings
}

/// Checks a pod template, which messages call `field`.
///
/// # Errors
/// One sentence with the field and the problem.
pub fn check(template: &Value, field: &str) -> Result<(), String> {
    let own = names::OWN_ANNOTATIONS.into_iter().chain(OF_OBJECT);
    if let Some(key) = own.into_iter().find(|key| annotation(template, key).is_some()) {
        return Err(format!("annotation {key} in {field} is not for pods of a workload; leave it out"));
    }
    if annotation(template, names::GPU_FRACTION).is_some() {
        return Err(format!(
            "annotation {} in {field} has no effect, so its pods would get no GPU; a Job has it in its own metadata",
            names::GPU_FRACTION
        ));
    }
    if template["metadata"]["labels"].get(names::GROUP).is_some() {
        return Err(format!(
            "label {} in {field} is for pods without a workload; leave it out",
            names::GROUP
        ));
    }
    let spec = &template["spec"];
    if let Some(node) = spec["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return Err(format!(
            "{field}.spec.nodeName {node:?} must not be set, because Sluice chooses the nodes; use node affinity"
        ));
    }
    let class = spec["priorityClassName"].as_str().filter(|class| class.starts_with(SYSTEM));
    if let Some(class) = class {
        return Err(format!(
            "{field}.spec.priorityClassName {class} is not for workloads of teams, because its pods evict others \
             past Sluice; use another class"
        ));
    }
    if spec["priority"].as_i64().is_some_and(|value| value > i64::from(priority::LARGEST)) {
        return Err(format!("{field}.spec.priority is the system's; name a class with a lower one"));
    }
    let named = |claim: &Value| {
        ["resourceClaimName", "resourceClaimTemplateName"].iter().any(|source| claim[source].is_string())
    };
    let claims = spec["resourceClaims"].as_array().into_iter().flatten();
    if let Some(claim) = claims.into_iter().find(|claim| !named(claim)) {
        let name = claim["name"].as_str().unwrap_or_default();
        return Err(format!(
            "resource claim {name:?} in {field} names neither a resourceClaimName nor a resourceClaimTemplateName, \
             so its devices cannot be counted"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_key_without_effect_in_a_template_is_warned_of() {
        let template = json!({"metadata": {
            "labels": {"sluice.dev/queue": "night", "sluice.dev/team": "vision", "app": "x"},
            "annotations": {
                "sluice.dev/time-limit": "1h", "sluice.dev/pool": "a100", "sluice.dev/time-limt": "1h",
                "sluice.dev/preemptible": "true", "sluice.dev/nodes": "n1", "example.com/x": "y",
                names::GPU_FRACTION: "0.5", names::HOLD: "true",
            },
        }});
        let job = json!({"kind": "Job"});
        let expected = [
            "label sluice.dev/queue in t has no effect: write it as a label of the Job itself",
            "annotation sluice.dev/pool in t has no effect: write it as an annotation of the Job itself",
            "annotation sluice.dev/preemptible in t has no effect: the queue of a Job decides whether it may be evicted",
            "annotation sluice.dev/time-limit in t has no effect: write it as an annotation of the Job itself",
            "annotation sluice.dev/time-limt in t has no effect: there is no such annotation",
        ];
        let found = without_effect(&job, &template, "t");
        assert_eq!(found, expected.map(|line| format!("sluice: {line}")));
        let labelled = json!({"kind": "Job", "metadata": {"labels": {"sluice.dev/queue": "night"}}});
        assert_eq!(without_effect(&labelled, &template, "t").len(), 4, "the queue is copied there");
        assert!(without_effect(&job, &Value::Null, "t").is_empty());
    }

    #[test]
    fn a_template_is_refused_with_its_field() {
        for (template, expected) in [
            (
                json!({"metadata": {"annotations": {names::ADMISSION: "{}"}}}),
                "annotation sluice.dev/admission in t",
            ),
            (
                json!({"metadata": {"annotations": {names::GROUP_SIZE: "2"}}}),
                "annotation sluice.dev/group-size in t",
            ),
            (json!({"metadata": {"annotations": {names::HOLD: "true"}}}), "annotation sluice.dev/hold in t"),
            (
                json!({"metadata": {"annotations": {names::GPU_FRACTION: "0.5"}}}),
                "annotation sluice.dev/gpu-fraction in t has no effect",
            ),
            (json!({"metadata": {"labels": {names::GROUP: "g"}}}), "label sluice.dev/group in t"),
            (json!({"spec": {"nodeName": "n4"}}), "t.spec.nodeName \"n4\" must not be set"),
            (
                json!({"spec": {"priorityClassName": "system-node-critical"}}),
                "t.spec.priorityClassName system-node-critical is not for workloads of teams",
            ),
            (json!({"spec": {"priority": 2_000_000_000}}), "t.spec.priority is the system's"),
            (
                json!({"spec": {"resourceClaims": [{"name": "c", "podGroupResourceClaim": "x"}]}}),
                "resource claim \"c\" in t names neither",
            ),
        ] {
            let problem = check(&template, "t").expect_err(expected);
            assert!(problem.starts_with(expected), "{problem}");
        }
        let labels =
            json!({"sluice.dev/team": "vision", "sluice.dev/queue": "training", "sluice.dev/placed": "true"});
        let plain = json!({
            "metadata": {"labels": labels, "annotations": {"sluice.dev/nodes": "n1"}},
            "spec": {"nodeName": "", "priorityClassName": "high", "priority": 1_000_000_000, "resourceClaims": [
                {"name": "c", "resourceClaimName": "x"}, {"name": "d", "resourceClaimTemplateName": "y"},
            ]},
        });
        assert_eq!(check(&plain, "t"), Ok(()));
        assert_eq!(check(&Value::Null, "t"), Ok(()));
    }
}
