//! Law 5: fair shares between teams are settled among the new. A borrower that has run for longer than its window gives
//! way to workloads within guarantee only, and one that was evicted for a fair share is not in its next run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::types::{Action, Event, EvictReason, FairShareWindow, Queue, Team, Time, WorkloadId};

use super::world::{Phase, World, team};

/// Seconds after its start for which a workload is safe by its minimum run time, and for which it then may be evicted.
#[derive(Clone, Copy, Debug)]
struct Terms {
    least: u64,
    window: FairShareWindow,
}

impl Terms {
    /// Whether a run of so many milliseconds may be ended for the fair share of another team.
    fn allows(self, ran: i64) -> bool {
        let least = i64::try_from(self.least).unwrap_or(i64::MAX) * 1_000;
        let in_window = match self.window {
            FairShareWindow::Always => true,
            FairShareWindow::Never => false,
            FairShareWindow::For(window) => {
                ran <= least + i64::try_from(window.as_millis()).unwrap_or(i64::MAX)
            }
        };
        ran >= least && in_window
    }

    fn queue(self) -> Queue {
        let min_runtime = Duration::from_secs(self.least);
        Queue { name: "train".into(), min_runtime, fair_share_window: self.window, ..Queue::fallback() }
    }
}

fn terms() -> impl Strategy<Value = Terms> {
    let window = prop_oneof![
        4 => (0..900_u64).prop_map(|seconds| FairShareWindow::For(Duration::from_secs(seconds))),
        1 => Just(FairShareWindow::Always),
        1 => Just(FairShareWindow::Never),
    ];
    (prop_oneof![Just(0), 0..300_u64], window).prop_map(|(least, window)| Terms { least, window })
}

fn world_of(gpus: i64, guarantees: &[i64], terms: Terms) -> World {
    let named = |(index, guaranteed): (usize, &i64)| Team {
        queues: vec![terms.queue()],
        ..team(&format!("t{index}"), None, *guaranteed, None)
    };
    World::new(&[gpus], guarantees.iter().enumerate().map(named).collect())
}

/// Carries out every decision at the present time, and returns the actions. Evicted workloads are queued again.
fn settle(world: &mut World) -> Vec<Action> {
    let mut all = Vec::new();
    loop {
        let actions = world.plan();
        if actions.is_empty() && !world.engine.has_more() {
            return all;
        }
        all.extend(actions);
        while !world.in_flight.is_empty() {
            world.deliver(0, true);
        }
        let stopping = world.items.values().filter(|job| matches!(job.phase, Phase::Stopping(..)));
        let stopping: Vec<WorkloadId> = stopping.map(|job| job.workload.id.clone()).collect();
        for id in stopping {
            world.end(&id, Phase::Queued);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn law_5_fair_shares_are_settled_among_the_new_and_once(
        gpus in 2..8_i64,
        guarantees in prop::collection::vec(0..3_i64, 3),
        terms in terms(),
        steps in prop::collection::vec((0..3_usize, 1..4_i64, 0..600_u64, prop::bool::weighted(0.2)), 4..24),
    ) {
        let mut world = world_of(gpus, &guarantees, terms);
        let mut started: BTreeMap<WorkloadId, Time> = BTreeMap::new();
        // The workloads whose last eviction was for a fair share.
        let mut spared: BTreeSet<WorkloadId> = BTreeSet::new();
        for (team, size, pause, ends) in steps {
            world.now = world.now.after(Duration::from_secs(pause));
            let running: Vec<WorkloadId> = world.running().iter().map(|job| job.workload.id.clone()).collect();
            if let Some(id) = running.first().filter(|_| ends) {
                world.end(id, Phase::Finished);
            }
            world.submit(&format!("t{team}").as_str().into(), "train", 0, 1, size);
            for action in settle(&mut world) {
                match action {
                    Action::Admit { workload, admission, .. } => {
                        prop_assert_eq!(admission.spared, spared.contains(&workload), "{}", workload);
                        started.insert(workload, admission.at);
                    }
                    Action::Evict { workload, reason, .. } => {
                        let ran = world.now.0 - started[&workload].0;
                        if reason == EvictReason::FairShare {
                            prop_assert!(terms.allows(ran), "{workload} has run for {ran} ms: {terms:?}");
                            prop_assert!(spared.insert(workload), "evicted twice in a row for a fair share");
                        } else {
                            spared.remove(&workload);
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The victim, if an action is an eviction for this preemptor.
fn evicted_for<'a>(action: &'a Action, id: &WorkloadId) -> Option<&'a WorkloadId> {
    match action {
        Action::Evict { workload, preemptor: Some(preemptor), .. } if preemptor == id => Some(workload),
        _ => None,
    }
}

fn gpus_of(world: &World, id: &WorkloadId) -> i64 {
    world.items[id].workload.shape.requests.values().map(|each| each.as_milli() / 1_000).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn law_5_a_place_that_a_team_keeps_is_as_safe_as_it_was(
        guarantees in prop::collection::vec(0..3_i64, 2),
        running in prop::collection::vec(1..4_i64, 1..5),
        free in 0..3_i64,
        waiting in prop::collection::vec(1..5_i64, 1..4),
        higher in prop::collection::vec((1..4_i64, 1..3_i32), 1..4),
        past in 601..4_000_u64,
        pause in 0..900_u64,
    ) {
        let terms = Terms { least: 0, window: Queue::fallback().fair_share_window };
        let mut world = world_of(running.iter().sum::<i64>() + free, &guarantees, terms);
        // What no fair share of another team may evict.
        let first = running.iter().map(|size| world.submit(&"t0".into(), "train", 0, 1, *size));
        let mut safe: BTreeSet<WorkloadId> = first.collect();
        settle(&mut world);
        world.now = world.now.after(Duration::from_secs(past));
        for size in &waiting {
            world.submit(&"t1".into(), "train", 0, 1, *size);
        }
        for action in settle(&mut world) {
            safe.remove(action.workload());
        }
        for (size, priority) in higher {
            world.now = world.now.after(Duration::from_secs(pause));
            let id = world.submit(&"t0".into(), "train", priority, 1, size);
            let actions = settle(&mut world);
            let left: Vec<&WorkloadId> = actions.iter().filter_map(|action| evicted_for(action, &id)).collect();
            let freed: i64 = left.iter().map(|victim| gpus_of(&world, victim)).sum();
            if !left.is_empty() && freed >= size && left.iter().all(|victim| safe.contains(*victim)) {
                safe.insert(id);
            }
            for action in &actions {
                let Action::Evict { workload, reason, .. } = action else { continue };
                let was_safe = safe.remove(workload);
                let loses = was_safe && *reason == EvictReason::FairShare;
                prop_assert!(!loses, "{workload} had a safe place: {actions:#?}");
            }
        }
    }
}

/// Two teams without a guarantee; the first has filled both GPUs for so long when the second asks for one.
fn asked_after(seconds: u64, window: FairShareWindow) -> Vec<Action> {
    let mut world = world_of(2, &[0, 0], Terms { least: 0, window });
    for _ in 0..2 {
        world.submit(&"t0".into(), "train", 0, 1, 1);
    }
    settle(&mut world);
    world.now = world.now.after(Duration::from_secs(seconds));
    world.submit(&"t1".into(), "train", 0, 1, 1);
    settle(&mut world)
}

#[test]
fn the_default_window_is_ten_minutes() {
    let window = Queue::fallback().fair_share_window;
    let evicts = |seconds, window| {
        asked_after(seconds, window).iter().any(|action| matches!(action, Action::Evict { .. }))
    };
    assert!(evicts(600, window) && !evicts(601, window));
    assert!(evicts(1_000_000, FairShareWindow::Always) && !evicts(0, FairShareWindow::Never));
}

#[test]
fn an_owner_reclaims_at_any_time() {
    let mut world = world_of(2, &[0, 1], Terms { least: 0, window: FairShareWindow::Never });
    for _ in 0..2 {
        world.submit(&"t0".into(), "train", 0, 1, 1);
    }
    settle(&mut world);
    world.now = world.now.after(Duration::from_secs(100_000));
    world.submit(&"t1".into(), "train", 0, 1, 1);
    let evicted = settle(&mut world);
    assert!(
        evicted.iter().any(|action| matches!(action, Action::Evict { reason: EvictReason::Reclaimed, .. }))
    );
}

#[test]
fn what_runs_in_a_team_that_was_deleted_gives_way_to_workloads_within_guarantee_only() {
    let terms = Terms { least: 0, window: FairShareWindow::Always };
    let mut world = world_of(2, &[2, 0, 1], terms);
    for _ in 0..2 {
        world.submit(&"t0".into(), "train", 0, 1, 1);
    }
    settle(&mut world);
    let now = world.now;
    world.engine.apply(Event::TeamRemoved("t0".into()), now);
    world.submit(&"t1".into(), "train", 0, 1, 1);
    assert!(settle(&mut world).is_empty(), "t1 borrows");
    world.submit(&"t2".into(), "train", 0, 1, 1);
    let evicts = |action: &Action| matches!(action, Action::Evict { reason: EvictReason::Reclaimed, .. });
    assert!(settle(&mut world).iter().any(evicts), "t2 is within guarantee");
}
