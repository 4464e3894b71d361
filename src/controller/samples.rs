//! The figures of every team at one time, for the history.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::Engine;
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{CURRENCY, DEFAULT_POOL, Name, Observed, TeamView};
use crate::history::record::{DEVICES, Sample};
use crate::view::Accelerators;

/// A sample of each team, pool and resource, and of its devices together.
pub fn samples(engine: &Engine, accelerators: &Accelerators, at: i64) -> Vec<Sample> {
    let mut capacity: BTreeMap<Name, ResourceList> = BTreeMap::new();
    for node in engine.nodes() {
        let pool = capacity.entry(node.pool).or_default();
        for (resource, amount) in node.allocatable {
            let sum = pool.entry(resource).or_default();
            *sum = *sum + amount;
        }
    }
    let teams = engine.teams();
    let waiting = waiting(engine, &teams);
    let mut all = Vec::new();
    for view in &teams {
        let listed = [&view.guaranteed, &view.limit, &view.used].into_iter().flat_map(|list| list.keys());
        let wanted = waiting.get(&view.team).and_then(|pools| pools.get(&view.pool));
        let devices = wanted.into_iter().flat_map(|list| list.keys()).filter(|name| name.contains('/'));
        let mut add = |resource: &str, of: &dyn Fn(&ResourceList) -> i64| {
            all.push(Sample {
                at,
                team: view.team.to_string(),
                pool: view.pool.to_string(),
                resource: resource.to_owned(),
                guaranteed: of(&view.guaranteed),
                used: of(&view.used),
                borrowed: of(&view.borrowed),
                lent: of(&view.lent),
                waiting: wanted.map_or(0, of),
                capacity: capacity.get(&view.pool).map_or(0, of),
            });
        };
        for resource in listed.chain(devices).collect::<BTreeSet<_>>() {
            add(resource, &|list| list.get(resource).map_or(0, |amount| amount.as_milli()));
        }
        // In the unit of what runs are charged: the currency of the pool, or else GPUs.
        add(DEVICES, &|list| {
            let counted = list.get(CURRENCY).copied().or_else(|| engine.in_currency(&view.pool, list));
            counted.unwrap_or_else(|| accelerators.amount(list)).as_milli()
        });
    }
    all
}

/// What waits, by team and pool; with each team also for those above it.
fn waiting(engine: &Engine, teams: &[TeamView]) -> BTreeMap<Name, BTreeMap<Name, ResourceList>> {
    let parents: BTreeMap<&Name, &Name> =
        teams.iter().filter_map(|view| Some((&view.team, view.parent.as_ref()?))).collect();
    let mut waiting: BTreeMap<Name, BTreeMap<Name, ResourceList>> = BTreeMap::new();
    for workload in engine.workloads().filter(|workload| workload.state == Observed::Queued && !workload.hold)
    {
        let pool = workload.pools.first().cloned().unwrap_or_else(|| DEFAULT_POOL.into());
        let mut team = Some(&workload.team);
        // The quota tree has no circles, and its depth is bounded.
        for _ in 0..64 {
            let Some(at) = team else { break };
            let sum = waiting.entry(at.clone()).or_default().entry(pool.clone()).or_default();
            for (resource, each) in workload.requests() {
                let all = each.as_milli().saturating_mul(i64::from(workload.pods));
                let of = sum.entry(resource.clone()).or_default();
                *of = Amount::milli(of.as_milli().saturating_add(all));
            }
            team = parents.get(at).copied();
        }
    }
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::types::{Event, Node, Pool, Quota, Team, Time};

    /// Eight GPUs, half of them guaranteed to team `a`; as what the samples count them.
    fn sampled(device: &str, weights: ResourceList, quota_in: &str) -> (i64, i64) {
        let list = |name: &str, units: i64| ResourceList::from([(name.into(), Amount::units(units))]);
        let guaranteed = list(quota_in, 4);
        let quota = Quota { guaranteed, limit: ResourceList::new(), lendable: ResourceList::new() };
        let pool = || BTreeMap::from([("pool".into(), "p".into())]);
        let mut engine = Engine::new();
        let node = Node {
            name: "n".into(),
            labels: pool(),
            allocatable: list(device, 8),
            taints: Vec::new(),
            schedulable: true,
            unreachable: None,
        };
        let team = Team {
            name: "a".into(),
            parent: None,
            quotas: [("p".into(), quota)].into(),
            weight: 1,
            queues: Vec::new(),
            fair_users: false,
            budget: None,
        };
        for event in [
            Event::PoolApplied(Pool {
                name: "p".into(),
                node_selector: pool(),
                topology: Vec::new(),
                weights,
            }),
            Event::TeamApplied(team),
            Event::NodeApplied(node),
        ] {
            engine.apply(event, Time(0));
        }
        let listed = engine.resources_in_quotas();
        let accelerators = Accelerators::default().with_quotas(listed.iter().map(|resource| &**resource));
        let all = samples(&engine, &accelerators, 0);
        let devices = all.iter().find(|sample| sample.resource == DEVICES).expect("a sample of the devices");
        (devices.guaranteed / 1_000, devices.capacity / 1_000)
    }

    #[test]
    fn devices_are_sampled_in_the_unit_of_what_runs_are_charged() {
        let gpu = "nvidia.com/gpu";
        let double = ResourceList::from([(gpu.into(), Amount::units(2))]);
        assert_eq!(sampled(gpu, ResourceList::new(), gpu), (4, 8));
        assert_eq!(sampled("google.com/tpu", ResourceList::new(), "google.com/tpu"), (4, 8));
        assert_eq!(sampled(gpu, double.clone(), CURRENCY), (4, 16), "the quota is in the currency");
        assert_eq!(sampled(gpu, double, gpu), (8, 16), "the quota is in GPUs of weight two");
        let slice = "nvidia.com/mig-1g.10gb";
        let shares = ResourceList::from([(slice.into(), Amount::milli(125))]);
        assert_eq!(sampled(slice, shares, CURRENCY), (4, 1));
    }
}
