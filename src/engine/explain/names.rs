//! How workloads, amounts and quotas are named in sentences.

use crate::state::cluster::ClusterState;
use crate::types::amount::Amount;
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::{PODS, Vector};
use crate::types::{CURRENCY, WorkloadId};

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

/// An amount with its unit: `1 GPU`, `0.5 GPU`, `16 GPUs`, `2 CPUs`, `64Gi memory`, `4 google.com/tpu`.
pub fn named(state: &ClusterState, index: usize, milli: i64) -> String {
    with_unit(state.resources.name(index), Amount::milli(milli))
}

/// An amount of the resource of this name with its unit.
pub fn with_unit(resource: &str, amount: Amount) -> String {
    format!("{} {}", digits(resource, amount), unit_of(resource, amount))
}

/// The unit of an amount of a resource.
pub fn unit(state: &ClusterState, index: usize, milli: i64) -> String {
    unit_of(state.resources.name(index), Amount::milli(milli))
}

/// The currency keeps the name that quotas give it: it is not a number of GPUs.
fn unit_of(resource: &str, amount: Amount) -> String {
    let one = Amount::units(1);
    let (unit, is_one) = match resource {
        "cpu" => ("CPU", amount == one),
        CURRENCY => return CURRENCY.to_owned(),
        gpu if gpu.ends_with("/gpu") => ("GPU", Amount::ZERO < amount && amount <= one),
        other => return other.to_owned(),
    };
    if is_one { unit.to_owned() } else { format!("{unit}s") }
}

/// An amount of a resource without its name.
pub fn quantity(state: &ClusterState, index: usize, milli: i64) -> String {
    digits(state.resources.name(index), Amount::milli(milli))
}

/// An amount without its unit: parts of devices as decimals, all else as Kubernetes writes it.
fn digits(resource: &str, amount: Amount) -> String {
    let milli = amount.as_milli();
    if !resource.contains('/') || milli % 1_000 == 0 {
        return amount.quantity(resource);
    }
    let (sign, size) = (if milli < 0 { "-" } else { "" }, milli.unsigned_abs());
    let text = format!("{sign}{}.{:03}", size / 1_000, size % 1_000);
    text.trim_end_matches('0').to_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_devices_are_decimals_and_the_currency_is_no_number_of_gpus() {
        for (resource, milli, text) in [
            ("nvidia.com/gpu", 0, "0 GPUs"),
            ("nvidia.com/gpu", 100, "0.1 GPU"),
            ("nvidia.com/gpu", 1_000, "1 GPU"),
            ("nvidia.com/gpu", 1_900, "1.9 GPUs"),
            ("nvidia.com/gpu", -50, "-0.05 GPUs"),
            ("google.com/tpu", 2_500, "2.5 google.com/tpu"),
            (CURRENCY, 1_000, "1 sluice.dev/gpu"),
            (CURRENCY, 4_250, "4.25 sluice.dev/gpu"),
            ("cpu", 1_500, "1500m CPUs"),
            ("cpu", 1_000, "1 CPU"),
            ("memory", 65_536_000, "65536 memory"),
        ] {
            assert_eq!(with_unit(resource, Amount::milli(milli)), text);
        }
    }
}
