//! Since when a workload waits, on a replica that saw its eviction and on one that started later.

use std::collections::BTreeMap;

use sluice_engine::Engine;
use sluice_engine::types::{Admission, DEFAULT_POOL, Event, Observed, PodShape, Time, Workload};

use super::world::{gpus, node, team};

/// The one node is full with a run of unknown length, so that only the wait decides about the reservation.
fn full() -> Vec<Event> {
    let admission = admission(Time(0));
    let running = Workload { state: Observed::Admitted(admission), ..job("long", Time(0)) };
    let node = node("n0", 1);
    let team = team("a", None, 1, None);
    vec![Event::NodeApplied(node), Event::TeamApplied(team), Event::workload(running)]
}

fn job(name: &str, submitted: Time) -> Workload {
    let shape = PodShape { requests: gpus(1), ..PodShape::default() };
    Workload::job(&"a".into(), &name.into(), 1, shape, submitted)
}

fn admission(at: Time) -> Admission {
    Admission {
        pool: DEFAULT_POOL.into(),
        nodes: BTreeMap::from([("n0".into(), 1)]),
        pods: 1,
        borrowed: false,
        share: None,
        spared: false,
        unfunded: false,
        at,
    }
}

/// Whether anything is reserved at this time.
fn reserves(engine: &Engine, now: Time) -> bool {
    let mut engine = engine.clone();
    while !engine.plan(now).actions.is_empty() {}
    !engine.reservations().is_empty()
}

#[test]
fn the_wait_of_an_evicted_workload_counts_from_its_eviction_after_a_restart() {
    let (evicted, gone) = (Time(900_000), Time(930_000));
    let waiting = Workload { evicted: Some(evicted), ..job("x", Time(0)) };
    let admission = admission(Time(0));

    let mut old = Engine::new();
    let ran = Workload { state: Observed::Admitted(admission.clone()), ..job("x", Time(0)) };
    let leaving = Observed::Leaving { admission, since: evicted, stopped: false };
    let leaving = Workload { state: leaving, ..waiting.clone() };
    old.apply(Event::workload(ran), Time(0));
    old.apply(Event::workload(leaving), evicted);
    old.apply(Event::workload(waiting.clone()), gone);
    let mut new = Engine::new();
    new.apply(Event::workload(waiting), gone);
    // Submitted as long ago, never evicted: it has waited long enough.
    let mut never = Engine::new();
    never.apply(Event::workload(job("x", Time(0))), gone);
    for event in full() {
        for engine in [&mut old, &mut new, &mut never] {
            engine.apply(event.clone(), gone);
        }
    }

    let due = Time(evicted.0 + 600_000);
    let at = |engine: &Engine| [reserves(engine, Time(due.0 - 1)), reserves(engine, due)];
    assert_eq!(at(&old), [false, true], "the replica that saw the eviction");
    assert_eq!(at(&new), [false, true], "the replica that started after it");
    assert_eq!(at(&never), [true, true]);
}
