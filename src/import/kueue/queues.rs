//! What a ClusterQueue does besides its quotas, and its LocalQueues, become queues of a Team and labels of namespaces.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value, json};

use super::super::note::{ImportError, Notes};
use super::objects::{ClusterQueueSpec, LocalQueue, Setup};
use super::quotas::{Node, Tree};
use super::team_names::label;
use crate::api::names;

/// The label that every namespace has, with its name.
const NAME: &str = "kubernetes.io/metadata.name";

/// How Kueue is configured, as far as its objects do not say it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether its fair sharing is on.
    pub fair_sharing: bool,
}

/// The queues of a Team; empty where the default one does.
pub fn queues(
    name: &str,
    node: &Node,
    setup: &Setup,
    options: Options,
    notes: &mut Notes,
) -> Result<Vec<Value>, ImportError> {
    let Some(spec) = setup.queues.get(name) else { return Ok(Vec::new()) };
    let mut fields = Map::new();
    let fifo = spec.queueing_strategy.as_deref() == Some("StrictFIFO");
    if fifo {
        fields.insert("reserveAfter".to_owned(), json!("0s"));
        let text = "the first in the queue gets its reservation at once, and what does not delay it may start before it";
        notes.differs(&node.object, "spec.queueingStrategy", text);
    }
    policies(node, spec, options, &mut fields, notes);
    if let Some(why) = &node.inactive {
        let text = format!("Kueue admits nothing here ({why}), so the queues are paused");
        notes.differs(&node.object, "", text);
        fields.insert("paused".to_owned(), json!("Hold"));
    }
    if let Some(paused) = paused(spec.stop_policy.as_deref()) {
        fields.insert("paused".to_owned(), json!(paused));
    }
    let locals: Vec<&LocalQueue> =
        setup.locals.iter().filter(|local| local.spec.cluster_queue == name).collect();
    let mut by_name: BTreeMap<&str, Vec<&LocalQueue>> = BTreeMap::new();
    for local in &locals {
        by_name.entry(&local.name).or_default().push(local);
        if local.spec.fair_sharing.is_some() {
            let text = "queues of a team have no weight; `fairUsers` gives its users turns";
            notes.lost(&local.label(), "spec.fairSharing", text);
        }
    }
    let stopped = locals.iter().any(|local| paused(local.spec.stop_policy.as_deref()).is_some());
    if by_name.len() < 2 && fields.is_empty() && !stopped {
        return Ok(Vec::new());
    }
    if by_name.is_empty() {
        fields.insert("name".to_owned(), json!("default"));
        return Ok(vec![Value::Object(fields)]);
    }
    let mut queues: Vec<Value> = Vec::new();
    for (name, locals) in by_name {
        let mut fields = fields.clone();
        let queue = label(name, "LocalQueue", &|_| false)?;
        if queues.iter().any(|other| other["name"] == queue) {
            let problem =
                format!("another queue of its ClusterQueue would be {queue} too; rename one of them first");
            return Err(ImportError::new(locals[0].label(), "metadata.name", problem));
        }
        fields.insert("name".to_owned(), json!(queue));
        let each: BTreeSet<Option<&str>> =
            locals.iter().map(|local| paused(local.spec.stop_policy.as_deref())).collect();
        match (each.len(), each.first().copied().flatten()) {
            (1, Some(paused)) => _ = fields.entry("paused").or_insert_with(|| json!(paused)),
            (1, None) => {}
            _ => {
                let text = "LocalQueues of this name are one queue of the team, and not all of them are stopped alike";
                notes.lost(&locals[0].label(), "spec.stopPolicy", text);
            }
        }
        queues.push(Value::Object(fields));
    }
    Ok(queues)
}

fn paused(policy: Option<&str>) -> Option<&'static str> {
    match policy {
        Some("Hold") => Some("Hold"),
        Some("HoldAndDrain") => Some("Drain"),
        _ => None,
    }
}

/// Preemption and the rest of a ClusterQueue.
fn policies(
    node: &Node,
    spec: &ClusterQueueSpec,
    options: Options,
    fields: &mut Map<String, Value>,
    notes: &mut Notes,
) {
    let object = &node.object;
    let within = spec.preemption.within_cluster_queue.as_deref().unwrap_or("Never");
    let reclaim = spec.preemption.reclaim_within_cohort.as_deref().unwrap_or("Never");
    match (within, node.in_cohort) {
        ("Never", false) => _ = fields.insert("preemptible".to_owned(), json!(false)),
        ("Never", true) => {
            let text = "a higher priority preempts a lower one of its team; give all work one PriorityClass to avoid it";
            notes.differs(object, "spec.preemption.withinClusterQueue", text);
        }
        ("LowerPriority", _) => {}
        _ => {
            let text = "only a lower priority is preempted in a team, not a newer workload of the same";
            notes.differs(object, "spec.preemption.withinClusterQueue", text);
        }
    }
    if node.in_cohort {
        match reclaim {
            "Any" => {}
            "LowerPriority" => {
                let text = "a guarantee is taken back from borrowers of any priority";
                notes.differs(object, "spec.preemption.reclaimWithinCohort", text);
            }
            _ => {
                let text = "a guarantee is always taken back from borrowers; Kueue waits for them to end";
                notes.differs(object, "spec.preemption.reclaimWithinCohort", text);
            }
        }
        let borrow = spec.preemption.borrow_within_cohort.as_ref();
        let borrow = borrow.filter(|borrow| borrow.policy.as_deref() == Some("LowerPriority"));
        if let Some(borrow) = borrow {
            let text = "between borrowers the fair share decides, not the priority";
            notes.differs(object, "spec.preemption.borrowWithinCohort", text);
            if borrow.max_priority_threshold.is_some() {
                notes.lost(object, "spec.preemption.borrowWithinCohort.maxPriorityThreshold", "left out");
            }
        } else if !options.fair_sharing {
            fields.insert("fairShareWindow".to_owned(), json!("Never"));
        }
    }
    let fungible = &spec.flavor_fungibility;
    if fungible.when_can_borrow.as_deref() == Some("TryNextFlavor")
        || matches!(fungible.when_can_preempt.as_deref(), Some("MayStopSearch" | "Preempt"))
        || fungible.preference.as_deref() == Some("PreemptionOverBorrowing")
    {
        let text = "a workload starts in the first of its pools with free capacity, borrowed or not, before anything is \
                    preempted";
        notes.differs(object, "spec.flavorFungibility", text);
    }
    let checks = spec.admission_checks_strategy.iter().flat_map(|strategy| &strategy.admission_checks);
    let checks: Vec<&str> = checks
        .map(|check| check.name.as_str())
        .chain(spec.admission_checks.iter().map(String::as_str))
        .collect();
    if !checks.is_empty() {
        let text = format!("workloads start without the admission checks {}", checks.join(", "));
        notes.lost(object, "spec.admissionChecksStrategy", text);
    }
    if spec.admission_scope.is_some() {
        let text = "past usage does not order LocalQueues; `fairUsers` orders users by present usage, and \
                    --usage-half-life counts past borrowing of teams";
        notes.lost(object, "spec.admissionScope", text);
    }
    if spec.concurrent_admission_policy.is_some() {
        notes.lost(object, "spec.concurrentAdmissionPolicy", "an admitted workload stays in its pool");
    }
}

/// The labels of the namespaces with LocalQueues.
pub fn namespaces(
    setup: &Setup,
    tree: &Tree,
    notes: &mut Notes,
) -> Result<BTreeMap<String, BTreeMap<String, String>>, ImportError> {
    let mut labelled = BTreeMap::new();
    let mut by_namespace: BTreeMap<&str, Vec<&LocalQueue>> = BTreeMap::new();
    for local in &setup.locals {
        by_namespace.entry(&local.namespace).or_default().push(local);
    }
    for (namespace, locals) in by_namespace {
        if ["kube-system", names::NAMESPACE].contains(&namespace) {
            notes.lost(&format!("Namespace {namespace}"), "", "this namespace is never under a team");
            continue;
        }
        let mut open: Vec<(&LocalQueue, &Node)> = Vec::new();
        for local in locals {
            let queue = &local.spec.cluster_queue;
            match (setup.queues.get(queue), tree.queues.get(queue)) {
                (Some(spec), Some(node)) if admits(local, queue, spec, setup, notes) => {
                    open.push((local, node))
                }
                (Some(_), Some(_)) => {}
                _ => notes.lost(
                    &local.label(),
                    "spec.clusterQueue",
                    format!("there is no ClusterQueue {queue}"),
                ),
            }
        }
        // Kueue takes the LocalQueue of this name for work that names none.
        open.sort_by_key(|(local, _)| local.name != "default");
        let Some((first, node)) = open.first().copied() else { continue };
        let mut labels = BTreeMap::from([(names::TEAM.to_owned(), node.team.clone())]);
        let teams_queues: BTreeSet<&str> = setup
            .locals
            .iter()
            .filter(|local| local.spec.cluster_queue == first.spec.cluster_queue)
            .map(|local| local.name.as_str())
            .collect();
        if teams_queues.len() > 1 {
            labels.insert(names::QUEUE.to_owned(), label(&first.name, "LocalQueue", &|_| false)?);
        }
        for (local, other) in open.iter().skip(1) {
            if other.team != node.team {
                let text =
                    format!("a namespace has one team, and {namespace} is {}'s; move its work", node.team);
                notes.lost(&local.label(), "", text);
            } else {
                let text = format!("workloads of it take the label {}: {}", names::QUEUE, local.name);
                notes.by_hand(&local.label(), "", text);
            }
        }
        labelled.insert(namespace.to_owned(), labels);
    }
    Ok(labelled)
}

/// Whether the ClusterQueue takes work from the namespace of this LocalQueue.
fn admits(
    local: &LocalQueue,
    queue: &str,
    spec: &ClusterQueueSpec,
    setup: &Setup,
    notes: &mut Notes,
) -> bool {
    let object = format!("ClusterQueue {queue}");
    let field = "spec.namespaceSelector";
    let Some(selector) = &spec.namespace_selector else {
        notes.differs(
            &local.label(),
            "",
            format!("{object} has no namespaceSelector and takes no work; not labelled"),
        );
        return false;
    };
    let known = setup.namespaces.get(&local.namespace);
    let mut labels = known.cloned().unwrap_or_default();
    labels.insert(NAME.to_owned(), local.namespace.clone());
    let text = "which namespaces a team has is a label, and the verb `use` on the Team says which accounts may set it";
    notes.by_hand(&object, field, text);
    if selects(selector, &labels) {
        return true;
    }
    if known.is_none() && !only_by_name(selector) {
        let text = format!("whether it selects {} is not known; labelled, check it", local.namespace);
        notes.by_hand(&object, field, text);
        return true;
    }
    notes.differs(&local.label(), "", format!("{object} does not select this namespace; not labelled"));
    false
}

fn only_by_name(selector: &LabelSelector) -> bool {
    let labels = selector.match_labels.iter().flatten().map(|(key, _)| key.as_str());
    let expressions = selector.match_expressions.iter().flatten().map(|term| term.key.as_str());
    labels.chain(expressions).all(|key| key == NAME)
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal
        && selector.match_expressions.iter().flatten().all(|term| {
            let value = labels.get(&term.key);
            let listed = value.is_some_and(|value| term.values.iter().flatten().any(|other| other == value));
            match term.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
