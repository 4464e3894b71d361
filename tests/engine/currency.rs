//! Quotas in one currency: a pool weighs its kind of device, and quota counts the weights.

use std::collections::BTreeMap;

use sluice_engine::Engine;
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{Action, Reason};
use sluice_engine::types::{CURRENCY, Event, Name, Node, Pool, Quota, Team, Time, Workload, WorkloadId};

use super::world::{World, gpus, team};

fn amounts(list: &[(&str, i64)]) -> ResourceList {
    list.iter().map(|(name, units)| ((*name).into(), Amount::units(*units))).collect()
}

fn pool(name: &str, weight: i64) -> Pool {
    Pool {
        name: name.into(),
        node_selector: BTreeMap::from([("kind".into(), name.into())]),
        topology: Vec::new(),
        weights: amounts(&[(super::world::GPU, weight)]),
    }
}

/// Eight GPUs of weight one in pool `a100` and eight of weight two in pool `h100`. The team has the same
/// limit and guarantee in both.
fn cluster(limit: i64, guaranteed: i64) -> Engine {
    let mut engine = Engine::new();
    let quota = Quota {
        guaranteed: amounts(&[(CURRENCY, guaranteed)]),
        limit: amounts(&[(CURRENCY, limit)]),
        lendable: ResourceList::new(),
    };
    let quotas = ["a100", "h100"].map(|name| (name.into(), quota.clone()));
    let events = [
        Event::PoolApplied(pool("a100", 1)),
        Event::PoolApplied(pool("h100", 2)),
        Event::TeamApplied(Team { quotas: quotas.into(), ..team("a", None, 0, None) }),
    ];
    let node = |kind: &str| Node {
        name: kind.into(),
        labels: BTreeMap::from([("kind".into(), kind.into())]),
        allocatable: gpus(8),
        taints: Vec::new(),
        schedulable: true,
        unreachable: None,
    };
    for event in events.into_iter().chain(["a100", "h100"].map(|kind| Event::NodeApplied(node(kind)))) {
        engine.apply(event, Time(0));
    }
    engine
}

/// Submits a job of one pod; returns the pool that it is admitted to.
fn submit(engine: &mut Engine, name: &str, pools: &[&str], gpus: i64) -> Option<Name> {
    let mut world = World::new(&[1], vec![team("a", None, 0, None)]);
    let id = world.submit(&"a".into(), "train", 0, 1, gpus);
    let workload = Workload {
        id: WorkloadId(name.into()),
        name: name.into(),
        pools: pools.iter().map(|pool| (*pool).into()).collect(),
        ..world.items[&id].workload.clone()
    };
    engine.apply(Event::workload(workload), Time(1));
    engine.plan(Time(1)).actions.into_iter().find_map(|action| match action {
        Action::Admit { admission, .. } => Some(admission.pool),
        _ => None,
    })
}

#[test]
fn a_limit_in_the_currency_allows_twice_as_many_devices_of_half_the_weight() {
    let mut engine = cluster(8, 0);
    assert_eq!(submit(&mut engine, "x", &["h100"], 3).as_deref(), Some("h100"));
    assert_eq!(
        submit(&mut engine, "y", &["h100"], 2),
        None,
        "six of eight units are in use, and four more are requested"
    );
    let verdict = engine.verdict(&WorkloadId("y".into())).expect("a verdict");
    assert_eq!(verdict.reason, Reason::TeamLimit, "{}", verdict.message);
    assert_eq!(submit(&mut engine, "z", &["a100"], 8).as_deref(), Some("a100"));
}

#[test]
fn a_workload_in_its_second_pool_is_charged_that_pools_weight() {
    let mut engine = cluster(8, 0);
    assert_eq!(submit(&mut engine, "x", &["a100", "h100"], 6).as_deref(), Some("a100"));
    assert_eq!(submit(&mut engine, "y", &["a100", "h100"], 3).as_deref(), Some("h100"));
    assert_eq!(submit(&mut engine, "z", &["a100", "h100"], 2).as_deref(), Some("a100"));
    assert_eq!(
        submit(&mut engine, "v", &["a100", "h100"], 2),
        None,
        "two devices would add four units to six"
    );
}

#[test]
fn a_guarantee_in_the_currency_determines_borrowed_units() {
    let mut engine = cluster(16, 4);
    let borrowed = |engine: &Engine, pool: &str| {
        let view = engine.teams().into_iter().find(|view| *view.pool == *pool).expect("a view");
        view.borrowed.get(CURRENCY).copied().unwrap_or_default()
    };
    submit(&mut engine, "x", &["h100"], 2);
    assert_eq!(borrowed(&engine, "h100"), Amount::ZERO);
    submit(&mut engine, "y", &["h100"], 1);
    assert_eq!(borrowed(&engine, "h100"), Amount::units(2));
    // A changed weight counts for present usage too.
    engine.apply(Event::PoolApplied(pool("h100", 1)), Time(2));
    assert_eq!(borrowed(&engine, "h100"), Amount::ZERO);
}
