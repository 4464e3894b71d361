//! Kueue's set-up as Teams and NodePools.
//!
//! | Kueue | Sluice |
//! |---|---|
//! | ClusterQueue, Cohort | Team; the Cohort is the parent |
//! | `nominalQuota` | `guaranteed`; a Cohort's is that of all below it and its own |
//! | `borrowingLimit` | `limit` = nominal + borrowing; without a cohort, and for a cohort without a parent, `limit` = `guaranteed` |
//! | `lendingLimit` | `lendable` |
//! | ResourceFlavor, Topology | NodePool, its `topology` |
//! | LocalQueue | the label of its namespace, and a queue of the Team where it has several |
//! | WorkloadPriorityClass | PriorityClass that preempts nothing |

mod jobs;
mod objects;
mod pools;
mod queues;
mod quotas;
mod team_names;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use super::note::{ImportError, Notes};
use super::plan::Plan;
use super::source::Source;

pub use objects::{GROUP, KINDS, VERSIONS};
pub use queues::Options;

/// The highest value of a PriorityClass of users.
const HIGHEST: i64 = 1_000_000_000;

/// How names of PriorityClasses begin that only Kubernetes may make.
const RESERVED: &str = "system-";

/// Plans the Teams and NodePools of a set-up of Kueue; objects of other kinds are not read, except Namespaces and Jobs.
///
/// # Errors
/// When an object cannot be read, or has a name that no Team can have.
pub fn plan(sources: &[Source], options: Options) -> Result<Plan, ImportError> {
    let mut notes = Notes::default();
    let setup = objects::Setup::read(sources, &mut notes)?;
    let pools = pools::pools(&setup, &mut notes)?;
    let mut tree = quotas::tree(&setup, &pools, &mut notes)?;
    for (name, node) in &mut tree.queues {
        let spec = &setup.queues[name];
        if node.inactive.is_none() && spec.resource_groups.is_empty() {
            node.inactive = Some("it has no quota".to_owned());
        }
    }
    let mut plan = Plan { objects: classes(&setup, &mut notes), ..Plan::default() };
    plan.objects.extend(pools.objects);
    let scale = scale(&tree);
    let alone = tree.roots() < 2;
    for node in tree.cohorts_down() {
        if let Some(why) = &node.inactive {
            notes.lost(&node.object, "spec.resourceGroups", format!("{why}; its quota is left out"));
        }
        plan.objects.push(team(node, &tree, scale, alone, Vec::new()));
    }
    for (name, node) in &tree.queues {
        let queues = queues::queues(name, node, &setup, options, &mut notes)?;
        plan.objects.push(team(node, &tree, scale, alone, queues));
    }
    if !options.fair_sharing
        && tree.queues.values().chain(tree.cohorts.values()).any(|node| node.weight.is_some())
    {
        let text = "Kueue reads weights only if its configuration turns fair sharing on; if it does, add --fair-sharing";
        notes.by_hand("all", "spec.fairSharing", text);
    }
    if !tree.queues.is_empty() {
        let text = "a resource that none of these queues covers is not limited; Kueue admits no workload that requests it. \
                    Give it the limit 0 where that matters";
        notes.differs("all", "coveredResources", text);
    }
    plan.namespaces = queues::namespaces(&setup, &tree, &mut notes)?;
    (plan.pending, plan.running) = jobs::jobs(&setup, &tree, &plan.namespaces, &mut notes)?;
    plan.notes = notes.sorted();
    Ok(plan)
}

/// PriorityClasses with the values of WorkloadPriorityClasses.
fn classes(setup: &objects::Setup, notes: &mut Notes) -> Vec<Value> {
    let mut objects = Vec::new();
    for (name, (value, description)) in &setup.classes {
        let object = format!("WorkloadPriorityClass {name}");
        if name.starts_with(RESERVED) {
            notes.lost(&object, "metadata.name", format!("no PriorityClass of users begins with {RESERVED}"));
            continue;
        }
        if *value > HIGHEST {
            notes.lost(&object, "value", format!("a PriorityClass has at most {HIGHEST}"));
            continue;
        }
        let text = "workloads name it in `priorityClassName` of their pods instead of a label; Jobs that wait at the switch \
                    keep their order by the annotation sluice.dev/team-order";
        notes.by_hand(&object, "", text);
        let mut class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": value, "preemptionPolicy": "Never"});
        if !description.is_empty() {
            class["description"] = json!(description);
        }
        objects.push(class);
    }
    objects
}

/// The factor by which all weights become whole numbers, from thousandths.
fn scale(tree: &quotas::Tree) -> i64 {
    let weights = tree.queues.values().chain(tree.cohorts.values()).filter_map(|node| node.weight);
    let whole = |divisor: i64| weights.clone().all(|weight| weight % divisor == 0);
    [1000, 100, 10].into_iter().find(|divisor| whole(*divisor)).unwrap_or(1)
}

fn team(node: &quotas::Node, tree: &quotas::Tree, scale: i64, alone: bool, queues: Vec<Value>) -> Value {
    let mut spec = Map::new();
    if let Some(parent) = tree.parent(node) {
        spec.insert("parent".to_owned(), json!(parent));
    }
    let quotas = node.quotas(alone);
    if !quotas.is_empty() {
        spec.insert("quotas".to_owned(), json!(quotas));
    }
    let weight = node.weight.unwrap_or(1000) / scale;
    if weight != 1 {
        spec.insert("weight".to_owned(), json!(weight));
    }
    if !queues.is_empty() {
        spec.insert("queues".to_owned(), json!(queues));
    }
    json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team", "metadata": {"name": node.team}, "spec": spec})
}
