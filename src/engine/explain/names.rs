//! How workloads, amounts and quotas are named in sentences.

use crate::state::cluster::ClusterState;
use crate::types::WorkloadId;
use crate::types::amount::{Amount, describe};
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::Vector;

/// A list without the pod slots, which nobody asked for by name.
pub fn asked(state: &ClusterState, amount: &Vector) -> String {
    let mut list = state.resources.list(amount);
    list.remove(crate::types::vector::PODS);
    describe(&list)
}

pub fn named(state: &ClusterState, index: usize, milli: i64) -> String {
    format!("{} {}", quantity(state, index, milli), state.resources.name(index))
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

/// `5 of 20 nvidia.com/gpu in use` for what the team is promised and the workload asks for.
pub fn usage(state: &ClusterState, team: TeamId, pool: PoolId, total: &Vector) -> String {
    let quota_usage = state.quotas.quota_usage(pool, team);
    let parts: Vec<String> = quota_usage
        .governed()
        .filter(|(index, _)| total.get(*index) > 0)
        .map(|(index, guaranteed)| {
            let used = quantity(state, index, quota_usage.settled(index));
            format!("{used} of {} in use", named(state, index, guaranteed))
        })
        .collect();
    if parts.is_empty() { "none of it is guaranteed".to_owned() } else { parts.join(", ") }
}
