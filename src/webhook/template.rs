//! The rules for pod templates of Jobs and custom kinds: their pods start without a review of their own.

use serde_json::Value;

use super::object::annotation;
use crate::api::{names, priority};

/// The prefix of the priority classes that the API server makes by itself.
const SYSTEM: &str = "system-";

/// Checks a pod template, which messages call `field`.
///
/// # Errors
/// One sentence with the field and the problem.
pub fn check(template: &Value, field: &str) -> Result<(), String> {
    let of_object = [names::GROUP_SIZE, names::HOLD, names::ORDER, names::TEAM_ORDER, names::REQUEUE];
    let own = names::OWN_ANNOTATIONS.into_iter().chain(of_object);
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
