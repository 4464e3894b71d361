//! Law 6 with incremental cycles: an engine considers only the waiting workloads that a change may have
//! unblocked. At rest this has found every start and eviction that a full requeue would find.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::Engine;
use sluice_engine::types::{Action, EvictReason};
use sluice_engine::types::{Event, Name, Pool, Reason, Time};

use super::ops::{Op, apply, build, ops, setup};
use super::world::{World, team};

/// The actions after a full requeue. A new pool without nodes causes one and changes nothing else.
fn after_full_requeue(engine: &Engine, now: Time) -> Vec<Action> {
    let mut engine = engine.clone();
    let selector: BTreeMap<Name, Name> = BTreeMap::from([("no-node".into(), "has-this".into())]);
    let (name, weights) = ("empty".into(), BTreeMap::new());
    let pool = Pool { name, node_selector: selector, topology: Vec::new(), weights };
    engine.apply(Event::PoolApplied(pool), now);
    engine.plan(now).actions
}

fn no_workload_is_missed(world: &World) -> Result<(), TestCaseError> {
    let mut missed = after_full_requeue(&world.engine, world.now);
    // After any event a borrowing workload may try a preemption once more, and the new pool is an event. What is decided after that
    // may follow from it.
    let exempt = |action: &Action| {
        matches!(action, Action::Evict { reason: EvictReason::FairShare | EvictReason::Preempted, .. })
    };
    missed.truncate(missed.iter().position(exempt).unwrap_or(missed.len()));
    prop_assert!(missed.is_empty(), "missed {missed:?}\nafter\n{}", world.log.join("\n"));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn law_6_a_full_requeue_at_rest_finds_nothing_to_do(
        setup in setup(), fair_users in any::<bool>(), searches in prop_oneof![Just(1), Just(100)], ops in ops()
    ) {
        let mut world = build(&setup);
        world.settings.searches_a_second = searches;
        for team in world.teams.values_mut() {
            team.fair_users = fair_users;
        }
        world.rebuild();
        for op in &ops {
            apply(&mut world, op);
            if matches!(op, Op::Finish(_) | Op::Delete(_) | Op::Quota { .. } | Op::Cordon { .. }) {
                world.settle();
                no_workload_is_missed(&world)?;
            }
        }
        world.settle();
        no_workload_is_missed(&world)?;
        for (id, place) in world.engine.places() {
            prop_assert_eq!(world.engine.place(&id), Some(place));
        }
    }
}

/// The node of a victim is cordoned before the eviction is carried out.
#[test]
fn a_preemptor_starts_although_a_node_of_its_victim_was_cordoned_meanwhile() {
    let submit = |team, pods, gpus| Op::Submit { team, queue: "train", priority: 0, pods, gpus };
    let mut world = World::new(
        &[6, 4],
        vec![team("a", None, 0, None), team("b", None, 2, None), team("c", None, 0, None)],
    );
    apply(&mut world, &Op::UnmanagedPod { node: 2, gpus: 3 });
    apply(&mut world, &submit(0, 1, 1));
    apply(&mut world, &submit(0, 2, 3));
    world.settle();
    apply(&mut world, &submit(1, 2, 1));
    world.plan();
    apply(&mut world, &Op::Cordon { node: 2, open: false });
    world.settle();
    no_workload_is_missed(&world).expect("none is missed");
}

/// While capacity is nominated to another workload, nothing tells when a/w8 may start, so a workload behind it owns the reservation of
/// its team. That passes to a/w8 once the other runs, which lets a third team start.
#[test]
fn what_could_not_own_a_reservation_may_once_a_workload_behind_it_does() {
    let submit = |team, queue, priority, pods, gpus| Op::Submit { team, queue, priority, pods, gpus };
    let mut world = World::new(
        &[4, 4],
        vec![team("a", None, 3, None), team("b", None, 0, None), team("c", None, 1, None)],
    );
    let ops = [
        submit(0, "train", 0, 1, 1),
        Op::Plan,
        Op::Deliver { which: 0, success: true },
        Op::Finish(0),
        submit(1, "train", 0, 3, 3),
        submit(1, "train", 1, 1, 2),
        submit(0, "train", -1, 3, 1),
        Op::Cordon { node: 0, open: true },
        submit(2, "slow", 0, 3, 1),
        Op::Wait(1),
        submit(1, "train", 0, 1, 1),
        submit(2, "train", 0, 2, 2),
        submit(0, "train", 0, 2, 3),
        submit(0, "train", 0, 1, 3),
        submit(1, "train", 0, 1, 1),
        Op::Wait(1),
        Op::Finish(1),
        Op::UnmanagedPod { node: 0, gpus: 1 },
        submit(0, "train", 1, 3, 1),
        submit(1, "slow", 0, 2, 1),
        Op::Delete(5),
        submit(2, "slow", 1, 3, 1),
        Op::Finish(7),
    ];
    for op in &ops {
        apply(&mut world, op);
        if matches!(op, Op::Finish(_) | Op::Delete(_) | Op::Cordon { .. }) {
            world.settle();
        }
    }
    no_workload_is_missed(&world).expect("none is missed");
    let third = world.log.iter().filter(|line| line.starts_with("Admit b/w12 "));
    assert_eq!(third.count(), 1, "{:?}", world.log);
}

/// Not preemptible, a/w3 is larger than the guarantee of its team, so it can own no reservation before that is raised.
#[test]
fn what_could_not_own_a_reservation_may_once_its_quota_is_raised() {
    let submit = |team, queue, pods, gpus| Op::Submit { team, queue, priority: 0, pods, gpus };
    let mut world = World::new(&[8], vec![team("a", None, 3, None), team("b", None, 5, None)]);
    let ops = [
        submit(0, "fixed", 3, 1),
        submit(1, "train", 1, 5),
        submit(0, "fixed", 3, 2),
        submit(0, "train", 1, 1),
    ];
    for op in &ops {
        apply(&mut world, op);
        world.settle();
    }
    let owner = |world: &World| Some(world.engine.reservations().first()?.owner.to_string());
    assert_eq!(owner(&world).as_deref(), Some("a/w4"));
    apply(&mut world, &Op::Quota { team: 0, guaranteed: 6 });
    world.settle();
    assert_eq!(owner(&world).as_deref(), Some("a/w3"));
}

/// The sentence of a preemptor names the nodes on which it is going to start (law 14).
#[test]
fn law_14_a_preemptor_that_gets_other_nodes_says_so() {
    let submit = |team, pods, gpus| Op::Submit { team, queue: "train", priority: 0, pods, gpus };
    let mut world = World::new(&[4, 4], vec![team("a", None, 0, None), team("b", None, 4, None)]);
    apply(&mut world, &submit(0, 2, 4));
    world.settle();
    apply(&mut world, &submit(1, 1, 4));
    world.plan();
    let message = |world: &World| {
        let waits = world.queued();
        let verdicts = waits.iter().filter_map(|job| world.engine.verdict(&job.workload.id));
        let mut verdicts = verdicts.filter(|verdict| verdict.reason == Reason::WaitingForEviction);
        verdicts.next().expect("the owner waits for its victim").message
    };
    let node = usize::from(message(&world).contains("n1"));
    assert_eq!(message(&world), format!("Starts on n{node} once a/w1 has stopped."));
    apply(&mut world, &Op::Cordon { node, open: false });
    world.plan();
    assert_eq!(message(&world), format!("Starts on n{} once a/w1 has stopped.", 1 - node));
}

/// Quota of a team above comes free by victims below it. A thousand teams may wait for such quota, and each search costs.
#[test]
fn no_victims_are_searched_under_other_roots_for_quota_of_a_team_above() {
    let searches = |top: Option<i64>| {
        let mut world = World::new(
            &[8],
            vec![
                team("a", Some("top"), 2, None),
                team("b", Some("top"), 2, None),
                team("c", None, 0, None),
                team("top", None, 4, top),
            ],
        );
        for (team, gpus) in [("a", 2), ("b", 2), ("c", 4)] {
            world.run_on("n0", team, 0, gpus);
        }
        world.rebuild();
        world.settle();
        let before = world.engine.effort().searches;
        apply(&mut world, &Op::Submit { team: 0, queue: "train", priority: 0, pods: 1, gpus: 1 });
        world.settle();
        world.engine.effort().searches - before
    };
    assert_eq!(searches(Some(4)), 0, "the borrower under another root has nothing of the limit of `top`");
    assert_ne!(searches(None), 0, "without that limit it may be preempted");
}

/// Events may come faster than a cycle can consider what waits. What comes last in order is considered all the same.
#[test]
fn what_is_last_in_order_starts_although_something_changes_before_every_cycle() {
    const TEAMS: usize = 17;
    let name = |at: usize| format!("t{at:02}");
    let limited = (0..TEAMS).map(|at| team(&name(at), None, 0, Some(4)));
    let mut nodes = vec![4; TEAMS];
    nodes.push(8);
    nodes.push(2);
    let mut world = World::new(&nodes, limited.chain([team("z", None, 0, None)]).collect());
    for at in 0..TEAMS {
        let id = world.run_on(&format!("n{at}"), &name(at), 0, 4);
        world.edit(&id, |workload| workload.time_limit = Some(Duration::from_secs(1_000)));
    }
    world.run_on(&format!("n{TEAMS}"), "z", 0, 8);
    world.rebuild();
    world.settle();
    // The owners of reservations, which every change wakes, are as many as a cycle considers.
    for at in 0..TEAMS {
        world.submit(&name(at).into(), "train", 0, 1, 4);
    }
    world.settle();
    let last = world.submit(&"z".into(), "train", 0, 1, 1);
    let starts = |action: &Action| matches!(action, Action::Admit { workload, .. } if *workload == last);
    let cycles = (1..200).find(|_| {
        world.add_unmanaged_pod(&format!("n{}", TEAMS + 1).into(), 1);
        world.remove_unmanaged_pod(0);
        world.plan().iter().any(starts)
    });
    assert!(cycles.is_some_and(|cycles| cycles <= 40), "{cycles:?}");
}
