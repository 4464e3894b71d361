//! The shape of a pod: requests as the scheduler counts them, selectors, affinity, tolerations; and its grace period.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::super::wire::{PodSpec, Quantities, Resources};
use crate::api::affinity::REQUIRED_TERMS;
use crate::engine::types::amount::{Amount, AmountError, ResourceList, ResourceName, sum};
use crate::engine::types::{Name, NodeTerm, Operator, PodShape, Requirement, Toleration};

/// The shape of a pod of this spec, with `affinity` as its user wrote it.
#[must_use]
pub fn shape(spec: &PodSpec, affinity: Option<&Value>) -> PodShape {
    PodShape {
        requests: requests(spec),
        node_selector: names(spec.node_selector.as_ref()),
        node_terms: affinity.map(node_terms).unwrap_or_default(),
        tolerations: spec.tolerations.as_deref().unwrap_or_default().iter().map(toleration).collect(),
    }
}

/// The requests that kube-scheduler counts for a pod: the sum of its containers, or the largest sum during its
/// start if that is more. Requests of the pod as a whole override these. The overhead of the sandbox is added.
#[must_use]
pub fn requests(spec: &PodSpec) -> ResourceList {
    let mut running = ResourceList::new();
    for container in &spec.containers {
        add(&mut running, &asked(&container.resources));
    }
    let mut sidecars = ResourceList::new();
    let mut starting = ResourceList::new();
    for container in spec.init_containers.as_deref().unwrap_or_default() {
        let own = asked(&container.resources);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut running, &own);
            add(&mut sidecars, &own);
            raise(&mut starting, own.keys().map(|resource| (resource, amount(&sidecars, resource))));
        } else {
            let beside = |(resource, own): (&_, &Amount)| *own + amount(&sidecars, resource);
            let peak: ResourceList = own.iter().map(|one| (one.0.clone(), beside(one))).collect();
            raise(&mut starting, peak.iter().map(|(resource, amount)| (resource, *amount)));
        }
    }
    raise(&mut running, starting.iter().map(|(resource, amount)| (resource, *amount)));
    if let Some(whole) = &spec.resources {
        for (resource, amount) in requested(whole.limits.as_ref()).into_iter().filter(|(r, _)| pod_level(r)) {
            running.entry(resource).or_insert(amount);
        }
        for (resource, amount) in requested(whole.requests.as_ref()).into_iter().filter(|(r, _)| pod_level(r))
        {
            running.insert(resource, amount);
        }
    }
    let mut total = sum(&running, &requested(spec.overhead.as_ref()));
    total.retain(|_, amount| *amount > Amount::ZERO);
    total
}

/// The grace period of a pod that states none.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// How long a pod of this spec may take to end. What the pod states counts, also above a cap: caps are judged when an
/// object is written.
#[must_use]
pub fn grace(spec: &PodSpec) -> Duration {
    let stated = spec.termination_grace_period_seconds;
    stated.map_or(USUAL_GRACE, |seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Whether there are devices among the requests: resources with a vendor's name.
#[must_use]
pub fn has_device(requests: &ResourceList) -> bool {
    requests.keys().any(|resource| resource.contains('/'))
}

/// Whether a pod can request this resource as a whole.
fn pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// A container's requests; a limit stands for a missing request, as the API server fills it in when the pod is
/// made (but not in the template of a Job).
fn asked(resources: &Resources) -> ResourceList {
    let mut asked = requested(resources.limits.as_ref());
    asked.extend(requested(resources.requests.as_ref()));
    asked
}

/// Adds each amount in place, so that many containers with many resources cost no more than they are.
fn add(to: &mut ResourceList, more: &ResourceList) {
    for (resource, amount) in more {
        let entry = to.entry(resource.clone()).or_default();
        *entry = *entry + *amount;
    }
}

fn amount(list: &ResourceList, resource: &ResourceName) -> Amount {
    list.get(resource).copied().unwrap_or_default()
}

/// Raises each amount to at least the other.
fn raise<'a>(to: &mut ResourceList, at_least: impl Iterator<Item = (&'a ResourceName, Amount)>) {
    for (resource, amount) in at_least {
        let entry = to.entry(resource.clone()).or_default();
        *entry = (*entry).max(amount);
    }
}

/// More than a node has of any resource, and small enough that the requests of many pods add up exactly.
const LARGEST_REQUEST: Amount = Amount::units(1 << 46);

/// Requested amounts. A user may write any number; one that is too large to count becomes the largest request,
/// which no node can hold.
fn requested(quantities: Option<&Quantities>) -> ResourceList {
    read(quantities, |amount| match amount {
        Ok(amount) => Some(amount.min(LARGEST_REQUEST)),
        Err(AmountError::TooLarge(_)) => Some(LARGEST_REQUEST),
        Err(AmountError::Malformed(_)) => None,
    })
}

/// Offered amounts; an amount that cannot be counted is left out.
#[must_use]
pub fn offered(quantities: Option<&Quantities>) -> ResourceList {
    read(quantities, Result::ok)
}

fn read(
    quantities: Option<&Quantities>,
    take: fn(Result<Amount, AmountError>) -> Option<Amount>,
) -> ResourceList {
    let parse = |value: &Value| match value {
        Value::String(text) => take(Amount::parse(text)),
        Value::Number(number) => take(Amount::parse(&number.to_string())),
        _ => None,
    };
    quantities
        .into_iter()
        .flatten()
        .filter_map(|(resource, value)| Some((resource.as_str().into(), parse(value)?)))
        .collect()
}

/// Labels as the engine holds them.
#[must_use]
pub fn names(labels: Option<&BTreeMap<String, String>>) -> BTreeMap<Name, Name> {
    labels.into_iter().flatten().map(|(k, v)| (k.as_str().into(), v.as_str().into())).collect()
}

fn toleration(from: &k8s_openapi::api::core::v1::Toleration) -> Toleration {
    let stated = |text: Option<&String>| text.filter(|t| !t.is_empty()).map(|t| t.as_str().into());
    let any_value = from.operator.as_deref() == Some("Exists");
    Toleration {
        key: stated(from.key.as_ref()),
        value: (!any_value).then(|| from.value.as_deref().unwrap_or_default().into()),
        effect: stated(from.effect.as_ref()),
    }
}

/// The alternatives of the required node affinity in `affinity`.
///
/// A term without requirements matches no node. Where only such terms are left, one term that no node satisfies
/// stands for them, because an empty list of terms would match every node.
fn node_terms(affinity: &Value) -> Vec<NodeTerm> {
    let Some(terms) = affinity.pointer(REQUIRED_TERMS).and_then(Value::as_array) else {
        return Vec::new();
    };
    let mut read: Vec<NodeTerm> = terms
        .iter()
        .map(|term| NodeTerm {
            labels: requirements(&term["matchExpressions"]),
            fields: requirements(&term["matchFields"]),
        })
        .filter(|term| !term.labels.is_empty() || !term.fields.is_empty())
        .collect();
    if read.is_empty() {
        read.push(nowhere());
    }
    read
}

/// A term that no node satisfies.
#[must_use]
pub fn nowhere() -> NodeTerm {
    let never = Requirement { key: "metadata.name".into(), operator: Operator::In, values: Vec::new() };
    NodeTerm { labels: Vec::new(), fields: vec![never] }
}

/// The requirements in a list; what is malformed is left out.
pub(super) fn requirements(from: &Value) -> Vec<Requirement> {
    from.as_array().into_iter().flatten().filter_map(requirement).collect()
}

fn requirement(from: &Value) -> Option<Requirement> {
    let operator = match from["operator"].as_str()? {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::Gt,
        "Lt" => Operator::Lt,
        _ => return None,
    };
    let values = from["values"].as_array().into_iter().flatten();
    Some(Requirement {
        key: from["key"].as_str()?.into(),
        operator,
        values: values.filter_map(Value::as_str).map(Name::from).collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::engine::types::amount::describe;

    fn counted(spec: Value) -> String {
        describe(&requests(&serde_json::from_value(spec).expect("a pod spec")))
    }

    #[test]
    fn requests_count_as_the_scheduler_counts_them() {
        let needs = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        for (why, spec, expected) in [
            ("containers add up", json!({"containers": [needs("1"), needs("500m")]}), "cpu 1500m"),
            (
                "a limit stands for a missing request",
                json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "4"}, "requests": {"cpu": "1"}}}]}),
                "cpu 1, nvidia.com/gpu 2",
            ),
            (
                "the largest init container counts if it is more",
                json!({"containers": [needs("1")], "initContainers": [needs("3"), needs("2")]}),
                "cpu 3",
            ),
            (
                "a small init container does not count",
                json!({"containers": [needs("2")], "initContainers": [needs("1")]}),
                "cpu 2",
            ),
            (
                "sidecars run beside the containers",
                json!({"containers": [needs("2")], "initContainers": [sidecar("1")]}),
                "cpu 3",
            ),
            (
                "an init container runs beside the sidecars before it",
                json!({"containers": [needs("1")], "initContainers": [sidecar("1"), needs("5"), sidecar("1")]}),
                "cpu 6",
            ),
            (
                "overhead comes on top",
                json!({"containers": [needs("1")], "overhead": {"cpu": "250m"}}),
                "cpu 1250m",
            ),
            (
                "the pod's own statement overrides",
                json!({"containers": [needs("1")], "resources": {"requests": {"cpu": "3", "nvidia.com/gpu": "9"}}}),
                "cpu 3",
            ),
            (
                "the pod's own limit only fills in",
                json!({"containers": [needs("1")], "resources": {"limits": {"cpu": "3", "memory": "1Gi"}}}),
                "cpu 1, memory 1Gi",
            ),
            ("zero is nothing", json!({"containers": [needs("0")]}), "nothing"),
            (
                "an absurd amount is more than any node has",
                json!({"containers": [needs("100E"), needs("1")]}),
                "cpu 70368744177665",
            ),
            ("the very large too", json!({"containers": [needs("9P")]}), "cpu 70368744177664"),
        ] {
            assert_eq!(counted(spec), expected, "{why}");
        }
    }

    #[test]
    fn a_pod_that_states_no_grace_period_has_30_seconds() {
        let read = |spec: Value| grace(&serde_json::from_value(spec).expect("a pod spec")).as_secs();
        assert_eq!(read(json!({})), 30);
        assert_eq!(read(json!({"terminationGracePeriodSeconds": 0})), 0);
        assert_eq!(read(json!({"terminationGracePeriodSeconds": 120})), 120);
        assert_eq!(read(json!({"terminationGracePeriodSeconds": -1})), 0);
    }

    #[test]
    fn tolerations_keep_the_meaning_of_missing_fields() {
        let read = |value: Value| toleration(&serde_json::from_value(value).expect("a toleration"));
        let expected = |key: Option<&str>, value: Option<&str>, effect: Option<&str>| Toleration {
            key: key.map(Name::from),
            value: value.map(Name::from),
            effect: effect.map(Name::from),
        };
        assert_eq!(read(json!({"operator": "Exists"})), expected(None, None, None));
        assert_eq!(read(json!({"key": "gpu"})), expected(Some("gpu"), Some(""), None));
        assert_eq!(
            read(json!({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"})),
            expected(Some("gpu"), None, Some("NoSchedule"))
        );
        assert_eq!(
            read(json!({"key": "gpu", "operator": "Equal", "value": "a"})),
            expected(Some("gpu"), Some("a"), None)
        );
    }

    #[test]
    fn node_terms_are_alternatives_and_an_empty_one_matches_nothing() {
        let affinity = |terms: Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
        assert!(node_terms(&json!({"podAffinity": {}})).is_empty());
        let terms = node_terms(&affinity(json!([
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
            {},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        ])));
        assert_eq!(terms.len(), 2);
        assert_eq!(terms[0].labels[0].values, ["a".into(), "b".into()]);
        assert_eq!(&*terms[1].fields[0].key, "metadata.name");
        let nothing = node_terms(&affinity(json!([{}])));
        assert_eq!(nothing.len(), 1);
        assert!(nothing[0].fields[0].values.is_empty());
    }
}
