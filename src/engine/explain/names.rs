//! How workloads, amounts and quotas are named in sentences.

use crate::state::cluster::ClusterState;
use crate::types::WorkloadId;
use crate::types::amount::Amount;
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::{PODS, Vector};

/// Amounts by resource, such as `16 GPUs, 8 CPUs`. Pod slots are left out: no workload asks for them by name.
pub fn amounts(state: &ClusterState, amount: &Vector) -> String {
    let listed = amount.nonzero().filter(|(index, _)| &**state.resources.name(*index) != PODS);
    let parts: Vec<String> = listed.map(|(index, milli)| named(state, index, milli)).collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// The amounts of `amount` for the resources of `wanted`, zeros included.
pub fn amounts_of(state: &ClusterState, amount: &Vector, wanted: &Vector) -> String {
    let listed = wanted.nonzero().filter(|(index, _)| &**state.resources.name(*index) != PODS);
    let parts: Vec<String> = listed.map(|(index, _)| named(state, index, amount.get(index))).collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// An amount with its unit: `1 GPU`, `16 GPUs`, `2 CPUs`, `64Gi memory`, `4 google.com/tpu`.
pub fn named(state: &ClusterState, index: usize, milli: i64) -> String {
    with_unit(state.resources.name(index), Amount::milli(milli))
}

/// An amount of the resource of this name with its unit.
pub fn with_unit(resource: &str, amount: Amount) -> String {
    format!("{} {}", amount.quantity(resource), unit_of(resource, amount))
}

/// The unit of an amount of a resource.
fn unit(state: &ClusterState, index: usize, milli: i64) -> String {
    unit_of(state.resources.name(index), Amount::milli(milli))
}

fn unit_of(resource: &str, amount: Amount) -> String {
    let unit = match resource {
        "cpu" => "CPU",
        gpu if gpu.ends_with("/gpu") => "GPU",
        other => return other.to_owned(),
    };
    if amount == Amount::units(1) { unit.to_owned() } else { format!("{unit}s") }
}

/// An amount of a resource without its name.
pub fn quantity(state: &ClusterState, index: usize, milli: i64) -> String {
    Amount::milli(milli).quantity(state.resources.name(index))
}

/// `namespace/name` of a workload.
pub fn label(state: &ClusterState, id: &WorkloadId) -> String {
    state
        .get(id)
        .map_or_else(|| id.to_string(), |info| format!("{}/{}", info.workload.namespace, info.workload.name))
}

/// The usage of a team against its guarantee, for the resources that a workload asks for:
/// `Team a uses 15 of 20 guaranteed GPUs.`
pub fn usage(state: &ClusterState, team: TeamId, pool: PoolId, total: &Vector) -> String {
    let quota = state.quotas.quota_usage(pool, team);
    let asked = quota.governed().filter(|(index, _)| total.get(*index) > 0);
    let parts: Vec<String> = asked
        .map(|(index, guaranteed)| {
            let used = quantity(state, index, quota.counted(index, 0, 0));
            let (guaranteed, unit) = (quantity(state, index, guaranteed), unit(state, index, guaranteed));
            let beside = match quota.oversize(index) {
                0 => String::new(),
                larger => format!(" and {} in larger workloads", quantity(state, index, larger)),
            };
            format!("{used} of {guaranteed} guaranteed {unit}{beside}")
        })
        .collect();
    let name = &state.quotas.team(team).name;
    let pool = state.quotas.pool_name(pool);
    if parts.is_empty() {
        return format!("Team {name} has no guarantee for it in pool {pool}.");
    }
    format!("Team {name} uses {} in pool {pool}.", parts.join(", "))
}
