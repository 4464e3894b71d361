//! The bounds of queues on waiting and running.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_engine::types::{Action, Reason};
use sluice_engine::types::{OnMaxWait, Queue, Team, Time, WorkloadId};

use super::ops::ids;
use super::reservations::seconds;
use super::world::{Job, Phase, World, team};

/// A team that is guaranteed all GPUs, with these queues.
fn owner(gpus: i64, queues: Vec<Queue>) -> Team {
    Team { queues, ..team("a", None, gpus, None) }
}

fn queue(name: &str) -> Queue {
    Queue { name: name.into(), ..Queue::fallback() }
}

/// Lets time pass up to `to`, deadline by deadline. Each action is written if `written` says so. Returns the
/// workloads that failed, with the time.
fn advance(world: &mut World, to: Time, written: &mut dyn FnMut(&Action) -> bool) -> Vec<(WorkloadId, Time)> {
    let mut failed = Vec::new();
    loop {
        let actions = world.plan();
        for action in &actions {
            if let Action::Fail { workload, .. } = action {
                failed.push((workload.clone(), world.now));
            }
            let success = written(action);
            world.deliver(0, success);
        }
        if actions.is_empty() {
            match world.engine.next_deadline().filter(|next| *next <= to) {
                Some(next) => world.now = next.max(world.now),
                None => break,
            }
        }
    }
    world.now = to;
    failed
}

fn always(_: &Action) -> bool {
    true
}

/// Ends the workloads that have run for their time in seconds.
fn finish_due(world: &mut World, runs: &BTreeMap<WorkloadId, i64>) {
    let is_due = |job: &&Job| match &job.phase {
        Phase::Running(admission) => world.now.since(admission.at) >= seconds(runs[&job.workload.id]),
        _ => false,
    };
    for id in ids(world.running().into_iter().filter(is_due).collect()) {
        world.end(&id, Phase::Finished);
    }
}

/// The start of each workload in milliseconds, by the log.
fn starts(world: &World) -> BTreeMap<String, i64> {
    let start = |line: &String| {
        let id = line.strip_prefix("Admit ")?.split(' ').next()?;
        let at = line.split(" at ").nth(1)?.split(' ').next()?;
        Some((id.to_owned(), at.parse().ok()?))
    };
    world.log.iter().filter_map(start).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_workload_that_waits_too_long_fails_once_and_on_time(
        jobs in prop::collection::vec((0..3_usize, 0..50_i64), 1..12),
        limits in [1..200_i64, 1..200_i64, 1..200_i64],
        busy in 50..300_i64,
    ) {
        let queues = (0..3).map(|i| Queue {
            max_wait: Some(seconds(limits[i])), on_max_wait: OnMaxWait::Fail, ..queue(&format!("q{i}"))
        });
        let mut world = World::new(&[4], vec![owner(4, queues.chain([queue("free")]).collect())]);
        let blocker = world.submit(&"a".into(), "free", 9, 1, 4);
        advance(&mut world, Time(0), &mut always);
        let (mut failed, mut deadlines) = (Vec::new(), BTreeMap::new());
        for (which, pause) in jobs {
            let to = Time(world.now.0 + pause * 1_000);
            failed.extend(advance(&mut world, to, &mut always));
            let id = world.submit(&"a".into(), &format!("q{which}"), 0, 1, 1);
            deadlines.insert(id, world.now.after(seconds(limits[which])));
        }
        let end = world.now.after(seconds(busy));
        failed.extend(advance(&mut world, end, &mut always));
        world.end(&blocker, Phase::Finished);
        world.settle();
        let expected: BTreeMap<_, _> = deadlines.into_iter().filter(|(_, at)| *at <= end).collect();
        prop_assert_eq!(failed.len(), expected.len(), "a workload failed twice");
        prop_assert_eq!(failed.into_iter().collect::<BTreeMap<_, _>>(), expected);
    }

    #[test]
    fn a_workload_that_runs_too_long_fails_once_and_on_time(
        jobs in prop::collection::vec((0..60_i64, 1..100_i64), 1..10), limit in 1..60_i64,
    ) {
        let queues = vec![Queue { max_runtime: Some(seconds(limit)), ..queue("q") }];
        let mut world = World::new(&[2], vec![owner(2, queues)]);
        let mut failed = Vec::new();
        let mut runs: BTreeMap<WorkloadId, i64> = BTreeMap::new();
        for (pause, run) in jobs {
            for _ in 0..pause {
                let to = Time(world.now.0 + 1_000);
                failed.extend(advance(&mut world, to, &mut always));
                finish_due(&mut world, &runs);
            }
            runs.insert(world.submit(&"a".into(), "q", 0, 1, 1), run);
        }
        let to = Time(world.now.0 + 1_000_000);
        failed.extend(advance(&mut world, to, &mut always));

        let started = starts(&world);
        for (id, at) in &failed {
            prop_assert_eq!(at.0, started[&*id.0] + limit * 1_000, "{} failed at another time", id);
        }
        let mut once: Vec<_> = failed.iter().map(|(id, _)| id).collect();
        once.sort();
        once.dedup();
        prop_assert_eq!(once.len(), failed.len(), "a workload failed twice");
        prop_assert!(world.running().is_empty(), "a workload runs for longer than its queue allows");
    }

    #[test]
    fn a_refused_end_is_tried_again_until_it_is_written(refusals in 0..6_usize, runs in any::<bool>()) {
        let limits = Queue {
            max_wait: Some(seconds(30)),
            on_max_wait: OnMaxWait::Fail,
            max_runtime: Some(seconds(60)),
            ..queue("q")
        };
        let mut world = World::new(&[1], vec![owner(1, vec![limits, queue("free")])]);
        if !runs {
            world.submit(&"a".into(), "free", 9, 1, 1);
            advance(&mut world, Time(0), &mut always);
        }
        let id = world.submit(&"a".into(), "q", 0, 1, 1);
        let mut left = refusals;
        let failed = advance(&mut world, Time(600_000), &mut |action| {
            let refused = matches!(action, Action::Fail { .. }) && left > 0;
            left -= usize::from(refused);
            !refused
        });
        prop_assert_eq!(failed.len(), refusals + 1);
        prop_assert!(failed.windows(2).all(|pair| pair[0].1 < pair[1].1), "no pause: {:?}", failed);
        prop_assert_eq!(&world.items[&id].phase, &Phase::Finished);
    }

    #[test]
    fn law_9_an_overdue_workload_is_served_first_where_its_queue_raises_priority(
        jobs in prop::collection::vec((-1..3_i32, 0..40_i64), 2..10), patience in 1..120_i64,
    ) {
        let raising = Queue {
            max_wait: Some(seconds(patience)), on_max_wait: OnMaxWait::RaisePriority, ..queue("q")
        };
        let mut world = World::new(&[1], vec![owner(1, vec![raising, queue("free")])]);
        let mut running = world.submit(&"a".into(), "free", 9, 1, 1);
        for (priority, pause) in jobs {
            let to = Time(world.now.0 + pause * 1_000);
            advance(&mut world, to, &mut always);
            world.submit(&"a".into(), "q", priority, 1, 1);
        }
        loop {
            let to = Time(world.now.0 + 20_000);
            advance(&mut world, to, &mut always);
            let rank = |id: &WorkloadId| {
                let workload = &world.items[id].workload;
                let overdue = world.now >= workload.submitted.after(seconds(patience));
                let number: u32 = workload.name[1..].parse().expect("names are w and a number");
                (!overdue, -workload.priority, workload.submitted, number)
            };
            let waiting = world.queued().into_iter().map(|job| job.workload.id.clone());
            let Some(first) = waiting.min_by_key(rank) else { break };
            world.end(&running, Phase::Finished);
            let now = world.now;
            advance(&mut world, now, &mut always);
            running = world.running()[0].workload.id.clone();
            prop_assert_eq!(&running, &first);
        }
    }
}

#[test]
fn the_wait_of_an_evicted_workload_counts_from_its_eviction() {
    let impatient = Queue { max_wait: Some(seconds(100)), on_max_wait: OnMaxWait::Fail, ..queue("q") };
    let borrower = Team { queues: vec![impatient], ..team("b", None, 0, None) };
    let mut world = World::new(&[1], vec![owner(1, vec![queue("free")]), borrower]);
    let id = world.submit(&"b".into(), "q", 0, 1, 1);
    advance(&mut world, Time(500_000), &mut always);
    world.submit(&"a".into(), "free", 0, 1, 1);
    advance(&mut world, Time(510_000), &mut always);
    world.end(&id, Phase::Queued);
    let failed = advance(&mut world, Time(900_000), &mut always);
    // Evicted at 500 s; its pods were gone at 510 s.
    assert_eq!(failed, [(id, Time(600_000))]);
}

#[test]
fn a_preemptor_that_waits_for_its_victims_does_not_fail() {
    let impatient = Queue { max_wait: Some(seconds(10)), on_max_wait: OnMaxWait::Fail, ..queue("q") };
    let mut world = World::new(&[1], vec![owner(1, vec![impatient]), team("b", None, 0, None)]);
    let borrower = world.submit(&"b".into(), "train", 0, 1, 1);
    advance(&mut world, Time(0), &mut always);
    let id = world.submit(&"a".into(), "q", 0, 1, 1);
    assert!(advance(&mut world, Time(60_000), &mut always).is_empty());
    world.end(&borrower, Phase::Queued);
    assert!(advance(&mut world, Time(61_000), &mut always).is_empty());
    assert!(matches!(world.items[&id].phase, Phase::Running(_)));
}

#[test]
fn room_that_comes_at_the_end_of_the_longest_wait_is_used() {
    let impatient = Queue { max_wait: Some(seconds(60)), on_max_wait: OnMaxWait::Fail, ..queue("q") };
    let mut world = World::new(&[2], vec![owner(2, vec![impatient, queue("free")])]);
    let blocker = world.submit(&"a".into(), "free", 9, 1, 2);
    advance(&mut world, Time(0), &mut always);
    let large = world.submit(&"a".into(), "q", 0, 1, 2);
    let small = world.submit(&"a".into(), "free", 0, 1, 1);
    let equal = world.submit(&"a".into(), "q", 0, 1, 2);
    assert!(advance(&mut world, Time(59_999), &mut always).is_empty());
    world.now = Time(60_000);
    world.end(&blocker, Phase::Finished);
    let failed = advance(&mut world, Time(60_000), &mut always);
    assert_eq!(failed, [(equal, Time(60_000))], "the first starts, and the other has no room");
    assert!(matches!(world.items[&large].phase, Phase::Running(_)));
    world.end(&large, Phase::Finished);
    world.settle_now();
    assert!(matches!(world.items[&small].phase, Phase::Running(_)));
}

#[test]
fn what_waits_behind_a_workload_that_fails_starts_at_once() {
    let impatient = Queue {
        max_wait: Some(seconds(60)),
        on_max_wait: OnMaxWait::Fail,
        reserve_after: seconds(0),
        ..queue("q")
    };
    let mut world = World::new(&[2], vec![owner(2, vec![impatient, queue("free")])]);
    world.submit(&"a".into(), "free", 9, 1, 1);
    advance(&mut world, Time(0), &mut always);
    let large = world.submit(&"a".into(), "q", 0, 1, 2);
    let small = world.submit(&"a".into(), "free", 0, 1, 1);
    assert!(advance(&mut world, Time(59_999), &mut always).is_empty());
    assert_eq!(world.reason(&small).1, Reason::Reserved);
    let failed = advance(&mut world, Time(60_000), &mut always);
    assert_eq!(failed, [(large, Time(60_000))]);
    assert!(matches!(world.items[&small].phase, Phase::Running(_)), "what it reserved is free");
}

#[test]
fn the_verdict_reports_a_wait_beyond_the_bound_of_a_notifying_queue() {
    let notifying = Queue { max_wait: Some(seconds(60)), ..queue("q") };
    let mut world = World::new(&[1], vec![owner(1, vec![notifying, queue("free")])]);
    world.submit(&"a".into(), "free", 9, 1, 1);
    let id = world.submit(&"a".into(), "q", 0, 1, 1);
    advance(&mut world, Time(59_999), &mut always);
    assert_eq!(world.reason(&id).1, Reason::NoRoom);
    advance(&mut world, Time(60_000), &mut always);
    assert_eq!(world.reason(&id).1, Reason::WaitedTooLong);
    let next = world.engine.next_deadline();
    assert!(next.is_none_or(|next| next > world.now), "the deadline has passed, but {next:?} is due");
}
