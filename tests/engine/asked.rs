//! What users ask of their own work: to hold it, to order it (law 9) and to have it back in the queue; and queues that
//! their owners pause.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::types::{Action, Event, EvictReason, OnMaxWait, Paused, Queue, Reason, State, Team, Time};
use sluice_engine::types::{PlaceView, WorkloadId};

use super::ops::ids;
use super::world::{Job, Phase, World, team};

fn cluster(gpus: i64) -> World {
    World::new(&[gpus], vec![team("t", None, gpus, None)])
}

/// Submits a Job of one pod a second later.
fn submit(world: &mut World, user: &str, gpus: i64) -> WorkloadId {
    world.now = Time(world.now.0 + 1_000);
    let id = world.submit(&"t".into(), "train", 0, 1, gpus);
    world.edit(&id, |workload| workload.user = Some(user.into()));
    id
}

fn set_queue(world: &mut World, change: impl Fn(&mut Queue)) {
    let name = "t".into();
    let mut changed: Team = world.teams[&name].clone();
    changed.queues.iter_mut().for_each(change);
    world.teams.insert(name, changed.clone());
    world.engine.apply(Event::TeamApplied(changed), world.now);
}

fn pause(world: &mut World, paused: Paused) {
    set_queue(world, |queue| queue.paused = paused);
}

fn reason(world: &World, id: &WorkloadId) -> (State, Reason) {
    let verdict = world.engine.verdict(id).expect("a verdict");
    assert!(verdict.message.ends_with('.'), "{}", verdict.message);
    (verdict.state, verdict.reason)
}

fn runs(world: &World, id: &WorkloadId) -> bool {
    matches!(world.items[id].phase, Phase::Running(_))
}

/// Plans until nothing changes; returns the evictions.
fn settle(world: &mut World) -> Vec<(WorkloadId, EvictReason)> {
    let mut evictions = Vec::new();
    for _ in 0..50 {
        let actions = world.plan();
        for action in &actions {
            if let Action::Evict { workload, reason, .. } = action {
                evictions.push((workload.clone(), *reason));
            }
        }
        while !world.in_flight.is_empty() {
            world.deliver(0, true);
        }
        let stopping: Vec<WorkloadId> = world
            .items
            .iter()
            .filter(|(_, job)| matches!(job.phase, Phase::Stopping(..)))
            .map(|(id, _)| id.clone())
            .collect();
        stopping.iter().for_each(|id| world.end(id, Phase::Queued));
        if actions.is_empty() && stopping.is_empty() && !world.engine.has_more() {
            return evictions;
        }
    }
    panic!("decisions do not come to rest");
}

#[test]
fn what_is_on_hold_is_not_considered_and_keeps_its_place() {
    let mut world = cluster(1);
    let first = submit(&mut world, "ann", 1);
    let (held, other) = (submit(&mut world, "ann", 1), submit(&mut world, "bob", 1));
    settle(&mut world);
    world.edit(&held, |workload| workload.hold = true);
    settle(&mut world);
    assert_eq!(reason(&world, &held), (State::Held, Reason::OnHold));
    assert!(!world.engine.places().contains_key(&held));
    world.end(&first, Phase::Finished);
    settle(&mut world);
    assert!(runs(&world, &other), "the next in the queue");
    world.rebuild();
    settle(&mut world);
    assert_eq!(reason(&world, &held), (State::Held, Reason::OnHold), "after a restart");
    let last = submit(&mut world, "bob", 1);
    world.edit(&held, |workload| workload.hold = false);
    settle(&mut world);
    assert_eq!(world.engine.places()[&held].position, 1);
    world.end(&other, Phase::Finished);
    settle(&mut world);
    assert!(runs(&world, &held) && !runs(&world, &last), "it is the older");
}

#[test]
fn a_hold_does_nothing_to_what_runs_and_keeps_it_in_the_queue_once_evicted() {
    let mut world = cluster(1);
    let job = submit(&mut world, "ann", 1);
    settle(&mut world);
    world.edit(&job, |workload| workload.hold = true);
    assert!(settle(&mut world).is_empty() && runs(&world, &job));
    let now = world.now;
    world.edit(&job, |workload| workload.requeue = Some(now));
    assert_eq!(settle(&mut world), []);
    world.now = Time(now.0 + 5_000);
    world.edit(&job, |workload| workload.requeue = Some(Time(now.0 + 1)));
    assert_eq!(settle(&mut world), [(job.clone(), EvictReason::Requeued)]);
    assert!(!runs(&world, &job));
    assert_eq!(reason(&world, &job), (State::Held, Reason::OnHold));
    world.edit(&job, |workload| workload.hold = false);
    settle(&mut world);
    assert!(runs(&world, &job));
}

#[test]
fn a_preemptor_that_is_held_gives_its_capacity_and_its_reservation_back() {
    let teams = vec![team("a", None, 0, None), team("b", None, 2, None)];
    let mut world = World::new(&[2], teams);
    let borrower = world.submit(&"a".into(), "train", 0, 1, 2);
    settle(&mut world);
    world.now = Time(10_000);
    let owner = world.submit(&"b".into(), "train", 0, 1, 2);
    world.plan();
    while !world.in_flight.is_empty() {
        world.deliver(0, true);
    }
    assert_eq!(reason(&world, &owner).1, Reason::WaitingForEviction);
    world.edit(&owner, |workload| workload.hold = true);
    world.end(&borrower, Phase::Queued);
    settle(&mut world);
    assert!(runs(&world, &borrower) && !runs(&world, &owner), "the borrower has its capacity again");

    let mut world = cluster(2);
    let small = submit(&mut world, "ann", 1);
    world.edit(&small, |workload| workload.time_limit = Some(Duration::from_secs(100)));
    settle(&mut world);
    let large = submit(&mut world, "ann", 2);
    let long = submit(&mut world, "ann", 1);
    settle(&mut world);
    assert!(!world.engine.reservations().is_empty() && !runs(&world, &long));
    world.edit(&large, |workload| workload.hold = true);
    settle(&mut world);
    assert!(world.engine.reservations().is_empty() && runs(&world, &long), "nothing is reserved any more");
}

#[test]
fn a_workload_is_requeued_once_whatever_restarts() {
    let mut world = cluster(1);
    let job = submit(&mut world, "ann", 1);
    world.edit(&job, |workload| workload.queue = Some("fixed".into()));
    settle(&mut world);
    let asked = Time(world.now.0 + 60_000);
    world.edit(&job, |workload| workload.requeue = Some(asked));
    assert!(settle(&mut world).is_empty(), "the time is not there yet");
    assert_eq!(world.engine.next_deadline(), Some(asked));
    world.now = asked;
    // The write of the eviction fails, and it is decided again.
    world.plan();
    world.deliver(0, false);
    world.now = world.engine.next_deadline().expect("a pause");
    assert_eq!(settle(&mut world), [(job.clone(), EvictReason::Requeued)]);
    assert!(runs(&world, &job), "it is the only one, so it starts again");
    for _ in 0..2 {
        world.rebuild();
        assert!(settle(&mut world).is_empty(), "the time is not later than its admission");
        world.now = Time(world.now.0 + 60_000);
    }
}

#[test]
fn a_requeued_workload_has_its_old_place() {
    let mut world = cluster(2);
    let job = submit(&mut world, "ann", 1);
    let wide = submit(&mut world, "bob", 2);
    settle(&mut world);
    world.now = Time(100_000);
    world.edit(&job, |workload| workload.requeue = Some(Time(100_000)));
    assert_eq!(settle(&mut world), [(job.clone(), EvictReason::Requeued)]);
    assert!(runs(&world, &job) && !runs(&world, &wide), "it is the older");
}

#[test]
fn a_pod_that_cannot_be_queued_again_is_not_requeued() {
    let mut world = cluster(1);
    let pod = submit(&mut world, "ann", 1);
    world.edit(&pod, |workload| (workload.resumable, workload.expendable) = (false, true));
    settle(&mut world);
    world.now = Time(100_000);
    world.edit(&pod, |workload| workload.requeue = Some(Time(100_000)));
    assert!(settle(&mut world).is_empty());
}

#[test]
fn nothing_of_a_paused_queue_starts_and_what_runs_goes_on() {
    let mut world = cluster(2);
    let first = submit(&mut world, "ann", 1);
    settle(&mut world);
    pause(&mut world, Paused::Hold);
    let (second, third) = (submit(&mut world, "ann", 1), submit(&mut world, "ann", 1));
    assert!(settle(&mut world).is_empty() && runs(&world, &first));
    assert_eq!(reason(&world, &second), (State::Pending, Reason::QueuePaused));
    assert_eq!(world.engine.next_deadline(), None, "nothing changes by time");
    world.rebuild();
    settle(&mut world);
    assert_eq!(reason(&world, &second), (State::Pending, Reason::QueuePaused));
    pause(&mut world, Paused::No);
    settle(&mut world);
    assert!(runs(&world, &second) && !runs(&world, &third));
}

#[test]
fn a_drained_queue_takes_back_what_may_be_evicted() {
    let mut world = cluster(2);
    let (job, fixed) = (submit(&mut world, "ann", 1), submit(&mut world, "ann", 1));
    world.edit(&fixed, |workload| workload.queue = Some("fixed".into()));
    settle(&mut world);
    world.now = Time(100_000);
    pause(&mut world, Paused::Drain);
    assert_eq!(settle(&mut world), [(job.clone(), EvictReason::QueueDrained)]);
    assert!(runs(&world, &fixed), "it is not preemptible");
    assert_eq!(reason(&world, &job), (State::Pending, Reason::QueuePaused));
    pause(&mut world, Paused::No);
    settle(&mut world);
    assert!(runs(&world, &job));
}

#[test]
fn no_wait_fails_while_it_is_on_hold_or_its_queue_is_paused() {
    for by_queue in [true, false] {
        let mut world = cluster(1);
        set_queue(&mut world, |queue| {
            (queue.max_wait, queue.on_max_wait) = (Some(Duration::from_secs(60)), OnMaxWait::Fail);
        });
        submit(&mut world, "ann", 1);
        let waits = submit(&mut world, "ann", 1);
        settle(&mut world);
        let keep_back = |world: &mut World, on: bool| match by_queue {
            true => pause(world, if on { Paused::Hold } else { Paused::No }),
            false => world.edit(&waits, |workload| workload.hold = on),
        };
        keep_back(&mut world, true);
        world.now = Time(1_000_000);
        settle(&mut world);
        assert_eq!(world.items[&waits].phase, Phase::Queued);
        keep_back(&mut world, false);
        settle(&mut world);
        assert_eq!(world.items[&waits].phase, Phase::Queued, "the wait begins again");
        world.now = Time(1_061_000);
        settle(&mut world);
        assert_eq!(world.items[&waits].phase, Phase::Finished);
    }
}

#[test]
fn the_order_of_the_managers_comes_before_users_and_submission() {
    let mut world = cluster(1);
    let blocker = submit(&mut world, "cem", 1);
    settle(&mut world);
    let (a1, bob, a2) =
        (submit(&mut world, "ann", 1), submit(&mut world, "bob", 1), submit(&mut world, "ann", 1));
    let line = |world: &World| -> Vec<WorkloadId> {
        let mut places: Vec<_> = world.engine.places().into_iter().collect();
        places.sort_by_key(|(_, place)| place.position);
        places.into_iter().map(|(id, _)| id).collect()
    };
    world.edit(&bob, |workload| workload.team_order = 1);
    settle(&mut world);
    assert_eq!(line(&world), [&bob, &a1, &a2].map(Clone::clone));
    // The order of a user exchanges no place with work that the managers have moved.
    world.edit(&a2, |workload| workload.team_order = 2);
    world.edit(&a1, |workload| workload.order = 9);
    settle(&mut world);
    assert_eq!(line(&world), [&a2, &bob, &a1].map(Clone::clone));
    assert!(runs(&world, &blocker), "nothing is preempted for it");
    world.end(&blocker, Phase::Finished);
    settle(&mut world);
    assert!(runs(&world, &a2));
}

#[test]
fn the_highest_order_has_the_first_place_of_its_user() {
    let mut world = cluster(1);
    let blocker = submit(&mut world, "cem", 1);
    settle(&mut world);
    let (a1, bob, a2, a3) = (
        submit(&mut world, "ann", 1),
        submit(&mut world, "bob", 1),
        submit(&mut world, "ann", 1),
        submit(&mut world, "ann", 1),
    );
    world.edit(&a3, |workload| workload.order = 1);
    settle(&mut world);
    let line = |world: &World| -> Vec<WorkloadId> {
        let mut places: Vec<_> = world.engine.places().into_iter().collect();
        places.sort_by_key(|(_, place)| place.position);
        places.into_iter().map(|(id, _)| id).collect()
    };
    assert_eq!(line(&world), [&a3, &bob, &a1, &a2].map(Clone::clone));
    world.end(&blocker, Phase::Finished);
    settle(&mut world);
    assert!(runs(&world, &a3));
    assert_eq!(line(&world), [&bob, &a1, &a2].map(Clone::clone), "it runs in the place of the first");
    world.edit(&a1, |workload| workload.order = -1);
    settle(&mut world);
    assert_eq!(line(&world), [&bob, &a2, &a1].map(Clone::clone));
    world.edit(&a1, |workload| workload.order = 0);
    world.end(&a3, Phase::Finished);
    settle(&mut world);
    assert!(runs(&world, &a1), "it has its own place again");
}

#[derive(Clone, Debug)]
enum Step {
    Submit { ann: bool, priority: i32 },
    Order { job: usize, order: i32 },
    Hold { job: usize, hold: bool },
    Finish(usize),
    Evict(usize),
    Rebuild,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (any::<bool>(), 0..2_i32).prop_map(|(ann, priority)| Step::Submit { ann, priority }),
        3 => (0..12_usize, -2..3_i32).prop_map(|(job, order)| Step::Order { job, order }),
        1 => (0..12_usize, any::<bool>()).prop_map(|(job, hold)| Step::Hold { job, hold }),
        2 => (0..4_usize).prop_map(Step::Finish),
        1 => (0..4_usize).prop_map(Step::Evict),
        1 => Just(Step::Rebuild),
    ]
}

/// The positions of a user's waiting work, in ascending order.
fn positions(world: &World, places: &BTreeMap<WorkloadId, PlaceView>, user: &str) -> Vec<usize> {
    let own = places.iter().filter(|(id, _)| world.items[*id].workload.user.as_deref() == Some(user));
    let mut positions: Vec<usize> = own.map(|(_, place)| place.position).collect();
    positions.sort_unstable();
    positions
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Ann orders her work, Bob does not. Whatever she writes, none of her places is earlier than without it, and none of
    /// his is later; while nothing of hers runs, both have the places they had. Her own work is in her order.
    #[test]
    fn law_9_an_order_never_passes_the_work_of_another_user(
        gpus in 0..4_i64, steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut world = cluster(gpus);
        for step in &steps {
            world.now = Time(world.now.0 + 1_000);
            match *step {
                Step::Submit { ann, priority } => {
                    let id = submit(&mut world, if ann { "ann" } else { "bob" }, 1);
                    world.edit(&id, |workload| workload.priority = priority);
                }
                Step::Order { job, order } => {
                    let queued = ids(world.queued());
                    let id = queued.get(job % queued.len().max(1)).cloned();
                    let of_ann = |id: &WorkloadId| world.items[id].workload.user.as_deref() == Some("ann");
                    if let Some(id) = id.filter(of_ann) {
                        world.edit(&id, |workload| workload.order = order);
                    }
                }
                Step::Hold { job, hold } => {
                    let queued = ids(world.queued());
                    if let Some(id) = queued.get(job % queued.len().max(1)).cloned() {
                        world.edit(&id, |workload| workload.hold = hold);
                    }
                }
                Step::Finish(n) | Step::Evict(n) => {
                    let running = ids(world.running());
                    if let Some(id) = running.get(n % running.len().max(1)).cloned() {
                        let phase =
                            if matches!(step, Step::Finish(_)) { Phase::Finished } else { Phase::Queued };
                        world.end(&id, phase);
                    }
                }
                Step::Rebuild => world.rebuild(),
            }
            settle(&mut world);
            // A cycle follows what the last one has started.
            world.plan();
            let places = world.engine.places();
            let mut plain = World::new(&[gpus], vec![team("t", None, gpus, None)]);
            plain.items = world.items.clone();
            plain.now = world.now;
            plain.items.values_mut().for_each(|job| job.workload.order = 0);
            plain.rebuild();
            plain.plan();
            let without = plain.engine.places();
            prop_assert_eq!(places.keys().collect::<Vec<_>>(), without.keys().collect::<Vec<_>>());
            let of_ann = |job: &&Job| job.workload.user.as_deref() == Some("ann");
            let idle = !world.running().into_iter().any(|job| of_ann(&job));
            for (user, may_be_earlier) in [("ann", false), ("bob", true)] {
                let now = positions(&world, &places, user);
                for (now, before) in now.into_iter().zip(positions(&world, &without, user)) {
                    let kept = if may_be_earlier { now <= before } else { now >= before };
                    prop_assert!(kept && (now == before || !idle), "{user}: {now} instead of {before}");
                }
            }
            let mut own: Vec<&WorkloadId> = places.keys().collect();
            own.retain(|id| world.items[*id].workload.user.as_deref() == Some("ann"));
            own.sort_by_key(|id| places[*id].position);
            let wanted = |id: &&WorkloadId| {
                let workload = &world.items[*id].workload;
                (Reverse(workload.priority), Reverse(workload.order), workload.submitted)
            };
            prop_assert!(own.is_sorted_by_key(wanted));
            for (id, place) in &places {
                prop_assert_eq!(world.engine.position(id), Some((place.position, place.waiting)));
                prop_assert_eq!(world.engine.place(id), Some(place.clone()));
            }
            // A replica that starts now knows the same places.
            let mut fresh = World::new(&[gpus], vec![team("t", None, gpus, None)]);
            fresh.items = world.items.clone();
            fresh.now = world.now;
            fresh.rebuild();
            fresh.plan();
            prop_assert_eq!(places, fresh.engine.places());
        }
    }
}
