//! How workloads, amounts and quotas are named in sentences.

use crate::state::cluster::ClusterState;
use crate::types::WorkloadId;
use crate::types::amount::Amount;
use crate::types::ids::{PoolId, TeamId};
use crate::types::units::{self, digits, together, unit_of, with_unit};
use crate::types::vector::{PODS, Vector};

/// Amounts by resource, such as `16 GPUs, 8 CPUs`. Pod slots are left out: no workload asks for them by name.
pub fn amounts(state: &ClusterState, amount: &Vector) -> String {
    amounts_of(state, amount, amount)
}

/// The amounts of `amount` for the resources of `wanted`, zeros included.
pub fn amounts_of(state: &ClusterState, amount: &Vector, wanted: &Vector) -> String {
    let wanted: Vec<usize> = wanted.nonzero().map(|(index, _)| index).collect();
    let listed =
        wanted.iter().map(|index| (&**state.resources.name(*index), Amount::milli(amount.get(*index))));
    let parts = together(listed.filter(|(resource, _)| *resource != PODS));
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// An amount with its unit.
pub fn named(state: &ClusterState, index: usize, milli: i64) -> String {
    with_unit(state.resources.name(index), Amount::milli(milli))
}

/// The unit of an amount of a resource.
pub fn unit(state: &ClusterState, index: usize, milli: i64) -> String {
    unit_of(state.resources.name(index), Amount::milli(milli))
}

/// An amount of a resource without its name.
pub fn quantity(state: &ClusterState, index: usize, milli: i64) -> String {
    digits(state.resources.name(index), Amount::milli(milli))
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
    let asked: Vec<(usize, i64)> = quota.governed().filter(|(index, _)| total.get(*index) > 0).collect();
    let alike = units::has_kinds_of_gpu(asked.iter().map(|(index, _)| &**state.resources.name(*index)));
    let parts: Vec<String> = (asked.into_iter())
        .map(|(index, guaranteed)| {
            let used = quantity(state, index, quota.counted(index, 0, 0));
            let resource = state.resources.name(index);
            let unit = match alike && units::is_gpu(resource) {
                true => resource.to_string(),
                false => unit(state, index, guaranteed),
            };
            let guaranteed = quantity(state, index, guaranteed);
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
