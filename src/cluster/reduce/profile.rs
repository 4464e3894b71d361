//! The profile of a pod: its labels, and its required affinity, anti-affinity and spread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::super::wire::PodSpec;
use super::name;
use super::shape::requirements;
use crate::api::caps::{MOST_POD_RULES, MOST_POD_TERMS};
use crate::engine::types::{
    Name, Operator, PodLabels, PodSelector, PodTerm, Profile, Requirement, SpreadTerm,
};

/// The label with the index of a pod of an Indexed Job. It differs between the pods of one workload.
pub const INDEX_LABEL: &str = "batch.kubernetes.io/job-completion-index";

/// The JSON pointers to the required terms between pods in an affinity.
const REQUIRED: [&str; 2] = [
    "/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution",
    "/podAffinity/requiredDuringSchedulingIgnoredDuringExecution",
];

/// Labels as they are written.
pub type Labels = BTreeMap<String, String>;

/// The profile of a pod of this spec in a namespace. What exceeds the caps is left out: the webhook refuses a workload
/// that does, and other pods can have no more.
#[must_use]
pub fn profile(
    namespace: Option<&String>,
    labels: Option<&Labels>,
    spec: &PodSpec,
    affinity: Option<&Value>,
) -> Arc<Profile> {
    let own = labels.into_iter().flatten().filter(|(key, _)| *key != INDEX_LABEL);
    let labels: PodLabels =
        own.take(MOST_POD_RULES).map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
    let namespace = name(namespace);
    let terms = |at: &str| -> BTreeSet<PodTerm> {
        required(affinity, at)
            .take(MOST_POD_TERMS)
            .filter(is_bounded)
            .filter_map(|one| term(one, &labels, &namespace))
            .collect()
    };
    let spread: BTreeSet<SpreadTerm> = strict(spec)
        .take(MOST_POD_TERMS)
        .filter(is_bounded)
        .filter_map(|one| spread(one, &labels, &namespace))
        .collect();
    Arc::new(Profile {
        apart: terms(REQUIRED[0]).into_iter().map(Arc::new).collect(),
        together: terms(REQUIRED[1]).into_iter().collect(),
        spread: spread.into_iter().collect(),
        namespace,
        labels,
    })
}

/// The required constraints between pods of a template.
pub fn constraints<'a>(spec: &'a PodSpec, affinity: Option<&'a Value>) -> impl Iterator<Item = &'a Value> {
    REQUIRED.into_iter().flat_map(move |at| required(affinity, at)).chain(strict(spec))
}

fn required<'a>(affinity: Option<&'a Value>, at: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    affinity.and_then(|affinity| affinity.pointer(at)).and_then(Value::as_array).into_iter().flatten()
}

/// Whether a constraint alone does not exceed the cap on all of them.
fn is_bounded(constraint: &&Value) -> bool {
    rules(constraint) <= MOST_POD_RULES
}

/// The spread constraints that are required.
fn strict(spec: &PodSpec) -> impl Iterator<Item = &Value> {
    let all = spec.topology_spread_constraints.iter().flatten();
    all.filter(|one| one["whenUnsatisfiable"] == "DoNotSchedule")
}

/// The requirements, values and namespaces of a constraint between pods.
#[must_use]
pub fn rules(constraint: &Value) -> usize {
    let lists = ["namespaces", "matchLabelKeys", "mismatchLabelKeys"].map(|key| constraint[key].as_array());
    let selector = &constraint["labelSelector"];
    let equal = selector["matchLabels"].as_object().map_or(0, serde_json::Map::len);
    let written = selector["matchExpressions"].as_array().into_iter().flatten();
    let written = written.map(|one| 1 + one["values"].as_array().map_or(0, Vec::len));
    lists.into_iter().flatten().map(Vec::len).sum::<usize>() + 2 * equal + written.sum::<usize>()
}

/// Whether namespaces are selected by their labels, which Sluice does not know.
#[must_use]
pub fn selects_namespaces(term: &Value) -> bool {
    term["namespaceSelector"].as_object().is_some_and(|selector| {
        selector.values().any(|part| match part {
            Value::Object(labels) => !labels.is_empty(),
            Value::Array(rules) => !rules.is_empty(),
            _ => false,
        })
    })
}

/// A term of an affinity or anti-affinity; `None` if it selects namespaces by their labels, or has no domains.
fn term(term: &Value, labels: &PodLabels, own: &Name) -> Option<PodTerm> {
    if selects_namespaces(term) {
        return None;
    }
    let listed = strings(&term["namespaces"]);
    let namespaces = match (listed.is_empty(), term["namespaceSelector"].is_object()) {
        // An empty selector selects every namespace.
        (_, true) => BTreeSet::new(),
        (true, false) => BTreeSet::from([own.clone()]),
        (false, false) => listed,
    };
    let mut wanted = selector(&term["labelSelector"]);
    wanted.extend(of_own_labels(term, "matchLabelKeys", Operator::In, labels));
    wanted.extend(of_own_labels(term, "mismatchLabelKeys", Operator::NotIn, labels));
    let pods = PodSelector { namespaces, labels: wanted };
    Some(PodTerm { topology_key: term["topologyKey"].as_str()?.into(), pods })
}

fn spread(constraint: &Value, labels: &PodLabels, own: &Name) -> Option<SpreadTerm> {
    let number =
        |key: &str| constraint[key].as_u64().map_or(1, |number| u32::try_from(number).unwrap_or(u32::MAX));
    let mut wanted = selector(&constraint["labelSelector"]);
    wanted.extend(of_own_labels(constraint, "matchLabelKeys", Operator::In, labels));
    Some(SpreadTerm {
        topology_key: constraint["topologyKey"].as_str()?.into(),
        max_skew: number("maxSkew"),
        min_domains: number("minDomains"),
        pods: PodSelector { namespaces: BTreeSet::from([own.clone()]), labels: wanted },
        all_nodes: constraint["nodeAffinityPolicy"] == "Ignore",
        untainted: constraint["nodeTaintsPolicy"] == "Honor",
    })
}

/// The requirements of a label selector. One that is missing selects no pod, an empty one every pod.
fn selector(selector: &Value) -> Vec<Requirement> {
    let Some(written) = selector.as_object() else {
        return vec![Requirement { key: "".into(), operator: Operator::In, values: Vec::new() }];
    };
    let equal = written.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let equal = equal.filter_map(|(key, value)| {
        let values = vec![value.as_str()?.into()];
        Some(Requirement { key: key.as_str().into(), operator: Operator::In, values })
    });
    equal.chain(requirements(&selector["matchExpressions"])).collect()
}

/// Requirements that follow from the values of the pod's own labels with the keys in a list.
fn of_own_labels(
    term: &Value,
    list: &str,
    operator: Operator,
    labels: &PodLabels,
) -> impl Iterator<Item = Requirement> {
    let keys = strings(&term[list]).into_iter();
    keys.filter_map(move |key| {
        let values = vec![labels.get(&key)?.clone()];
        Some(Requirement { key, operator, values })
    })
}

fn strings(list: &Value) -> BTreeSet<Name> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(Name::from).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: Value) -> Arc<Profile> {
        let spec: PodSpec = serde_json::from_value(spec).expect("a pod spec");
        let labels = [("app", "x"), ("rev", "7"), (INDEX_LABEL, "3")];
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        profile(Some(&"ns".to_owned()), Some(&labels), &spec, spec.affinity.as_ref())
    }

    fn rule(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        Requirement {
            key: key.into(),
            operator,
            values: values.iter().map(|value| (*value).into()).collect(),
        }
    }

    #[test]
    fn required_terms_are_read_and_others_are_not() {
        let term = |extra: Value| {
            let mut term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}});
            term.as_object_mut().expect("an object").extend(extra.as_object().expect("an object").clone());
            term
        };
        let profile = read(json!({
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        term(json!({"matchLabelKeys": ["rev", "missing"], "mismatchLabelKeys": ["app"]})),
                        term(json!({"namespaceSelector": {"matchLabels": {"a": "b"}}})),
                    ],
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term(json!({}))}],
                },
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone"}, term(json!({"namespaces": ["b", "a"]})), term(json!({"namespaceSelector": {}})),
                ]},
            },
            "topologySpreadConstraints": [
                {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3,
                 "labelSelector": {}, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
                {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"},
            ],
        }));
        assert_eq!(
            profile.labels.iter().map(|(key, _)| &**key).collect::<Vec<_>>(),
            ["app", "rev"],
            "no index"
        );
        assert_eq!(profile.apart.len(), 1, "a selector of namespaces is not read");
        let own = |labels| PodSelector { namespaces: BTreeSet::from(["ns".into()]), labels };
        let expected = own(vec![
            rule("app", Operator::In, &["x"]),
            rule("rev", Operator::In, &["7"]),
            rule("app", Operator::NotIn, &["x"]),
        ]);
        assert_eq!(profile.apart[0].pods, expected);
        let selectors: BTreeSet<&PodSelector> = profile.together.iter().map(|term| &term.pods).collect();
        let app = || vec![rule("app", Operator::In, &["x"])];
        assert!(selectors.contains(&own(vec![rule("", Operator::In, &[])])), "no selector selects no pod");
        let two = BTreeSet::from(["a".into(), "b".into()]);
        assert!(selectors.contains(&PodSelector { namespaces: two, labels: app() }));
        assert!(selectors.contains(&PodSelector { namespaces: BTreeSet::new(), labels: app() }));
        let expected = SpreadTerm {
            topology_key: "zone".into(),
            max_skew: 2,
            min_domains: 3,
            pods: own(Vec::new()),
            all_nodes: true,
            untainted: true,
        };
        assert_eq!(profile.spread, [expected]);
    }
}
