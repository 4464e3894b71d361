//! How much of everything that is capped a pod template has. Counting copies nothing.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::super::wire::{PodSpec, Resources};
use super::profile::{constraints, rules};
use crate::api::affinity::REQUIRED_TERMS;
use crate::api::caps::Counts;
use crate::api::names;

/// The counts of a pod of this spec, with `affinity` as its user wrote it.
#[must_use]
pub fn counts(spec: &PodSpec, affinity: Option<&Value>) -> Counts {
    let terms = affinity.and_then(|affinity| affinity.pointer(REQUIRED_TERMS)).and_then(Value::as_array);
    let terms = terms.map(Vec::as_slice).unwrap_or_default();
    let requirements: usize = terms.iter().map(requirements).sum();
    let selectors = spec.node_selector.as_ref().map_or(0, BTreeMap::len);
    let tolerations = spec.tolerations.as_ref().map_or(0, Vec::len);
    let between: Vec<&Value> = constraints(spec, affinity).collect();
    let pod_rules: usize = between.iter().map(|term| rules(term)).sum();
    let gates = spec.scheduling_gates.iter().flatten();
    Counts {
        terms: terms.len() as u64,
        rules: (requirements + selectors + tolerations) as u64,
        pod_terms: between.len() as u64,
        pod_rules: pod_rules as u64,
        affinity_bytes: affinity.map_or(0, bytes),
        names: resources(spec),
        gates: gates.filter(|gate| !gate.name.starts_with(names::PREFIX)).count() as u64,
        grace: spec.termination_grace_period_seconds.map_or(0, |seconds| u64::try_from(seconds).unwrap_or(0)),
        ..Counts::default()
    }
}

/// The number of JSON values in a value, itself included.
#[must_use]
pub fn values(value: &Value) -> u64 {
    match value {
        Value::Object(map) => map.values().fold(1, |sum, one| sum + values(one)),
        Value::Array(list) => list.iter().fold(1, |sum, one| sum + values(one)),
        _ => 1,
    }
}

/// The requirements of a term, and their values.
fn requirements(term: &Value) -> usize {
    let lists = ["matchExpressions", "matchFields"].map(|key| term[key].as_array());
    let each = lists.into_iter().flatten().flatten();
    each.map(|requirement| 1 + requirement["values"].as_array().map_or(0, Vec::len)).sum()
}

/// The different resources that a pod requests, and its claims.
fn resources(spec: &PodSpec) -> u64 {
    fn of(resources: &Resources) -> impl Iterator<Item = &String> {
        [&resources.requests, &resources.limits].into_iter().flatten().flat_map(|list| list.keys())
    }
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let whole = spec.resources.iter().flat_map(of);
    let overhead = spec.overhead.iter().flat_map(|list| list.keys());
    let names: BTreeSet<&String> =
        containers.flat_map(|container| of(&container.resources)).chain(whole).chain(overhead).collect();
    (names.len() + spec.resource_claims.as_ref().map_or(0, Vec::len)) as u64
}

/// The bytes of annotations that are not records of Sluice. The user's affinity that an admission keeps is none of them: it
/// is counted where it is written.
#[must_use]
pub fn notes<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> u64 {
    let records = [names::ADMISSION, names::EVICTION, names::USER_AFFINITY];
    let own = annotations.into_iter().filter(|(key, _)| !records.contains(key));
    own.map(|(key, value)| (key.len() + value.len()) as u64).sum()
}

/// The counts of a stored object's metadata. `affinity` is the length of what an admission keeps in an annotation.
#[must_use]
pub fn with_metadata(counts: Counts, metadata: &ObjectMeta, affinity: u64) -> Counts {
    let annotations = metadata.annotations.iter().flatten();
    Counts {
        notes: affinity + notes(annotations.map(|(key, value)| (key.as_str(), value.as_str()))),
        labels: metadata.labels.as_ref().map_or(0, BTreeMap::len) as u64,
        ..counts
    }
}

/// The length of a value as text.
#[must_use]
pub fn bytes(value: &Value) -> u64 {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Neither this writer nor a JSON value can fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_is_counted_once() {
        let spec: PodSpec = serde_json::from_value(json!({
            "terminationGracePeriodSeconds": 40,
            "schedulingGates": [{"name": "a"}, {"name": "sluice.dev/admission"}, {"name": "b"}],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "gpu"}],
            "topologySpreadConstraints": [
                {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["rev"],
                 "labelSelector": {"matchLabels": {"app": "x"}}},
                {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
            ],
            "resourceClaims": [{"name": "c", "resourceClaimName": "c"}],
            "containers": [
                {"resources": {"requests": {"cpu": "1", "x/y": "1"}, "limits": {"cpu": "2"}}},
                {"resources": {"limits": {"x/z": "1"}}},
            ],
            "initContainers": [{"resources": {"limits": {"x/z": "1"}}}],
        }))
        .expect("a spec");
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
        ]}}, "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "namespaces": ["a", "b"],
             "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "y"]}]}},
        ]}});
        let expected = Counts {
            pod_terms: 2,
            pod_rules: 1 + 2 + 2 + 3,
            terms: 2,
            rules: 3 + 2 + 1 + 1,
            affinity_bytes: affinity.to_string().len() as u64,
            names: 3 + 1,
            gates: 2,
            grace: 40,
            ..Counts::default()
        };
        assert_eq!(counts(&spec, Some(&affinity)), expected);
        assert_eq!(counts(&PodSpec::default(), None), Counts::default());
        assert_eq!(values(&json!({"a": [1, {"b": null}], "c": "x"})), 6);
    }
}
