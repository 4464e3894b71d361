//! Warnings about constraints of a pod template that Sluice does not honour, each with its field.

use serde_json::Value;

use crate::cluster::reduce::profile::{INDEX_LABEL, selects_namespaces};
use crate::kinds::Pointer;

const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Why the constraints between pods of an object with several templates are not honoured.
pub const SEVERAL_TEMPLATES: &str = "sluice: its templates differ in labels or in constraints on other pods, so Sluice \
     places their pods without these constraints; kube-scheduler may refuse the chosen nodes";

/// The constraints of the pod spec at `at` that have no effect, or that kube-scheduler alone knows.
#[must_use]
pub fn warnings(object: &Value, at: &Pointer) -> Vec<String> {
    let Some(spec) = at.read(object) else { return Vec::new() };
    let at = at.dotted();
    let (mut warnings, affinity) = (Vec::new(), &spec["affinity"]);
    let mut warn = |field: String, why: &str| warnings.push(format!("sluice: {at}.{field} {why}"));
    for kind in ["nodeAffinity", "podAffinity", "podAntiAffinity"] {
        if some(&affinity[kind][PREFERRED]).next().is_some() {
            let field = format!("affinity.{kind}.{PREFERRED}");
            warn(field, "has no effect: Sluice chooses the node of each pod, by required terms only");
        }
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        for (index, term) in some(&affinity[kind][REQUIRED]).enumerate() {
            let field = |name: &str| format!("affinity.{kind}.{REQUIRED}[{index}].{name}");
            if selects_namespaces(term) {
                warn(
                    field("namespaceSelector"),
                    "is left to kube-scheduler, which may refuse the chosen node; list namespaces",
                );
            }
            if mentions_index(term) {
                warn(field("labelSelector"), BY_INDEX);
            }
        }
    }
    for (index, term) in some(&spec["topologySpreadConstraints"]).enumerate() {
        let field = |name: &str| format!("topologySpreadConstraints[{index}].{name}");
        if term["whenUnsatisfiable"] == "ScheduleAnyway" {
            warn(
                field("whenUnsatisfiable"),
                "ScheduleAnyway has no effect: Sluice chooses the node of each pod, by DoNotSchedule only",
            );
            continue;
        }
        if term["minDomains"].as_u64().is_some_and(|fewest| fewest > 1)
            && term["nodeAffinityPolicy"] != "Ignore"
        {
            warn(
                field("minDomains"),
                "always counts as missed, because each pod is bound to one node: a domain takes maxSkew pods",
            );
        }
        if mentions_index(term) {
            warn(field("labelSelector"), BY_INDEX);
        }
    }
    warnings
}

const BY_INDEX: &str =
    "selects by the index of a pod, which Sluice does not compare; kube-scheduler may refuse the chosen node";

fn some(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Whether a term selects pods by their index in a Job.
fn mentions_index(term: &Value) -> bool {
    let selector = &term["labelSelector"];
    let keys = ["matchLabelKeys", "mismatchLabelKeys"];
    !selector["matchLabels"][INDEX_LABEL].is_null()
        || some(&selector["matchExpressions"]).any(|one| one["key"] == INDEX_LABEL)
        || keys.iter().any(|list| some(&term[*list]).any(|key| key == INDEX_LABEL))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_honoured_is_named_with_its_field() {
        let found = |spec: Value| warnings(&json!({"spec": spec}), &Pointer::to(["spec"]));
        let selector = json!({"matchLabels": {"app": "x"}});
        let honoured = json!({
            "affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": selector}]}},
            "topologySpreadConstraints": [
                {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1, "labelSelector": selector},
            ],
        });
        assert!(found(honoured).is_empty());
        assert!(warnings(&json!({}), &Pointer::to(["spec"])).is_empty());
        let all = found(json!({
            "affinity": {
                "nodeAffinity": {PREFERRED: [{"weight": 1}]},
                "podAffinity": {PREFERRED: [{"weight": 1}]},
                "podAntiAffinity": {
                    PREFERRED: [{"weight": 1}],
                    REQUIRED: [
                        {"topologyKey": "zone", "labelSelector": selector},
                        {"topologyKey": "zone", "namespaceSelector": {"matchLabels": {"a": "b"}}},
                        {"topologyKey": "zone", "labelSelector": {"matchLabels": {INDEX_LABEL: "0"}}},
                    ],
                },
            },
            "topologySpreadConstraints": [
                {"whenUnsatisfiable": "ScheduleAnyway"},
                {"whenUnsatisfiable": "DoNotSchedule", "minDomains": 2},
            ],
        }));
        let fields: Vec<&str> = all.iter().filter_map(|warning| warning.split(' ').nth(1)).collect();
        let expected = [
            "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution",
            "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution",
            "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution",
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].namespaceSelector",
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[2].labelSelector",
            "spec.topologySpreadConstraints[0].whenUnsatisfiable",
            "spec.topologySpreadConstraints[1].minDomains",
        ];
        assert_eq!(fields, expected);
    }
}
