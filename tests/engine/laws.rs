//! The laws of the engine as properties: a random world is built, the engine acts, and a judge in
//! [`super::judge`] decides from the world's own state whether the law holds. `docs/design/laws.md` has the
//! laws in full.
//!
//! 1. Never over-admit: no decision takes usage beyond a node's capacity or a limit on the team's path.
//! 2. Guarantee: a workload within guarantee starts as soon as preempting borrowers frees its capacity.
//! 3. Owners keep what is theirs: a team within its guarantee loses nothing to another team.
//! 4. An eviction pays: its preemptor starts, no victim is superfluous, and the cheapest set is chosen.
//! 5. Fair surplus: a borrowing preemptor evicts other teams' borrowers only if shares get fairer.
//! 6. Work conserving: no workload waits for free capacity that is neither nominated nor reserved.
//! 7. No starvation: the first workload of each team has a reservation; workloads behind it do not delay it.
//! 8. No flapping: without new events decisions come to rest; forecasts decide as the cluster does.
//! 9. Order: priority, then submission within a team; guarantee, then smallest fair share between teams.
//! 10. Deterministic: the same events in the same order give the same decisions.
//! 11. Rebuildable: a new engine that reads the objects loses no workload and admits none twice.
//! 12. One write: a decision is made once, and its admission is one patch.
//! 13. Harmless: namespaces without the label are never touched; with Sluice down, held work stays held.
//! 14. Explained: every verdict has a reason code, numbers and the workloads involved.
//! 15. Everything that runs is charged: unadmitted pods are usage of their namespace's team.
//! 16. The record is the charge: no user's edit takes usage below the admission record or the live pods.
//! 17. Bounded: no object costs unbounded memory or time or stops decisions about other objects.
//!
//! A property's name starts with its law. Law 4's order of costs is in [`super::eviction_cost`], law 7 in
//! [`super::reservations`], forecasts (law 8) in [`super::forecasts`]. Laws 13 and 15 to 17 have no property
//! here.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sluice_engine::types::{Action, Reason, State};
use sluice_engine::types::{Team, Time, WorkloadId};

use super::judge::{
    costs, could_start, every_victim_is_needed, never_over_admitted, no_division_is_fairer, preemption_sets,
    preemptions_due, preemptors_have_started, the_chosen_set_is_minimal, victims_are_evicted_once,
};
use super::ops::{Op, Setup, TEAMS, apply, build, ids, ops, setup, submissions, submit};
use super::plan_judge::{nominations_kept, owners_keep_theirs};
use super::usage::{nominated, settled_usage};
use super::world::{Job, Phase, World, team};

/// A world of these teams and nodes in which every operation is carried out to its end.
fn settled(setup: &Setup, ops: &[Op]) -> World {
    let mut world = build(setup);
    for op in ops {
        apply(&mut world, op);
        world.settle();
    }
    world
}

/// A world in which every operation is applied, and the last decisions are carried out to their end.
fn settled_at_the_end(setup: &Setup, ops: &[Op]) -> World {
    let mut world = build(setup);
    for op in ops {
        apply(&mut world, op);
    }
    world.settle();
    world
}

/// Three teams without a guarantee on one node.
fn borrowers(weights: &[u32; 3], capacity: i64) -> World {
    let teams =
        TEAMS.iter().zip(weights).map(|(name, weight)| Team { weight: *weight, ..team(name, None, 0, None) });
    World::new(&[capacity], teams.collect())
}

/// Every team submits as many jobs of one GPU as the node has GPUs.
fn request_all_by_every_team(world: &mut World, queue: &str, capacity: i64) {
    for _ in 0..capacity {
        for name in TEAMS {
            world.submit(&name.into(), queue, 0, 1, 1);
        }
    }
}

/// Team `a` borrows for jobs of (GPUs, seconds since the job before). All GPUs are the guarantee of team `b`,
/// which is idle. The last job has run for a minute.
fn borrowed_by_one_team(nodes: &[i64], jobs: &[(i64, i64)]) -> World {
    let total: i64 = nodes.iter().sum();
    let mut world = World::new(nodes, vec![team("a", None, 0, None), team("b", None, total, None)]);
    for (gpus, pause) in jobs {
        world.now = Time(world.now.0 + pause * 1_000);
        world.submit(&"a".into(), "train", 0, 1, *gpus);
        world.settle();
    }
    world.now = Time(world.now.0 + 60_000);
    world
}

/// Makes every node schedulable and removes all unmanaged pods.
fn clear_nodes(world: &mut World) {
    for name in world.nodes.keys().cloned().collect::<Vec<_>>() {
        world.cordon(&name, true);
    }
    while !world.unmanaged.is_empty() {
        world.remove_unmanaged_pod(0);
    }
}

/// Lets all workloads that start run to their end.
fn run_to_the_end(world: &mut World) {
    loop {
        world.settle();
        let running = ids(world.running());
        if running.is_empty() {
            return;
        }
        for id in running {
            world.end(&id, Phase::Finished);
        }
    }
}

/// Law 3 after each operation.
fn each_plan_leaves_owners_theirs(setup: &Setup, ops: &[Op]) -> Result<(), TestCaseError> {
    let mut world = build(setup);
    for op in ops {
        apply(&mut world, op);
        // Workloads that are about to continue elsewhere keep their usage.
        let usage = settled_usage(&world, &world.moving);
        let nominated_before = nominated(&world);

        let actions = world.plan();

        let nominated = nominations_kept(&world, nominated_before, &actions);
        owners_keep_theirs(&world, &actions, usage, &nominated)?;
    }
    Ok(())
}

/// Capacity was nominated to a workload that was larger than its team's guarantee. It counts once the guarantee is raised.
#[test]
fn law_3_a_raised_guarantee_counts_what_is_nominated() -> Result<(), TestCaseError> {
    let submit = |team, queue, priority, pods, gpus| Op::Submit { team, queue, priority, pods, gpus };
    let ops = [
        submit(0, "train", 0, 1, 1),
        Op::Deliver { which: 0, success: false },
        submit(1, "train", -1, 2, 3),
        submit(0, "train", 0, 1, 2),
        submit(2, "slow", 0, 1, 4),
        submit(1, "train", 0, 3, 1),
        Op::Restart { written: true },
        submit(1, "train", 0, 2, 3),
        Op::Quota { team: 1, guaranteed: 6 },
    ];
    let setup = Setup {
        nodes: vec![5, 7, 2],
        guarantees: [2, 0, 1],
        limits: [None; 3],
        weights: [1; 3],
        parent: None,
    };
    each_plan_leaves_owners_theirs(&setup, &ops)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn law_1_no_decision_over_admits(setup in setup(), ops in ops()) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
            world.plan();
            never_over_admitted(&world)?;
        }
    }

    #[test]
    fn law_2_a_workload_within_guarantee_starts_once_borrowers_can_be_evicted(
        setup in setup(), ops in submissions(12)
    ) {
        let world = settled(&setup, &ops);
        for job in world.queued() {
            let sets = preemptions_due(&world, job);
            prop_assert!(
                sets.is_empty(),
                "{} waits within its guarantee though one of these may be evicted: {sets:?}", job.workload.id
            );
        }
    }

    #[test]
    fn law_3_owners_keep_what_is_theirs(setup in setup(), ops in ops()) {
        each_plan_leaves_owners_theirs(&setup, &ops)?;
    }

    #[test]
    fn law_4_every_eviction_pays_and_none_is_needless(
        setup in setup(), ops in submissions(10), last in submit()
    ) {
        let mut world = settled(&setup, &ops);
        world.evicted_for.clear();
        world.now = Time(world.now.0 + 1_000);
        apply(&mut world, &last);
        let log_from = world.log.len();
        let newest = world.queued().into_iter().cloned().max_by_key(|job| job.workload.submitted);
        let Some(preemptor) = newest else { return Ok(()) };
        let sets = preemption_sets(&world, &preemptor);

        world.plan();

        let chosen = world.evicted_for.get(&preemptor.workload.id).cloned();
        // Victims that continue elsewhere are chosen by other rules.
        let moves = chosen.iter().flatten().any(|victim| world.moving.contains(victim));
        if let (Some(chosen), Some(sets), false) = (&chosen, &sets, moves) {
            the_chosen_set_is_minimal(&world, &preemptor, chosen, sets)?;
        }
        world.settle();
        preemptors_have_started(&world, log_from)?;
        victims_are_evicted_once(&world, log_from)?;
    }

    #[test]
    fn law_4_the_set_that_costs_the_least_is_chosen(
        nodes in prop::collection::vec(4..9_i64, 1..3),
        jobs in prop::collection::vec((1..4_i64, 1..50_i64), 2..9),
        wanted in 1..6_i64,
    ) {
        let mut world = borrowed_by_one_team(&nodes, &jobs);
        let id = world.submit(&"b".into(), "train", 0, 1, wanted);
        let sets = preemption_sets(&world, &world.items[&id]).unwrap_or_default();

        world.plan();

        // All victims are of one team and priority, so the sets differ in their cost alone.
        match world.evicted_for.get(&id) {
            Some(chosen) => {
                let least = sets.iter().map(|set| costs(&world, set)).min();
                prop_assert_eq!(Some(costs(&world, chosen)), least, "{:?} of {:?}", chosen, sets);
            }
            None => prop_assert!(
                sets.is_empty() || sets.contains(&Vec::new()),
                "no workload is evicted, but one of {sets:?} would do"
            ),
        }
    }

    #[test]
    fn law_4_no_victim_is_superfluous_among_many_candidates(
        nodes in prop::collection::vec(4..9_i64, 2..6),
        jobs in prop::collection::vec((1..4_i64, 1..30_i64), 12..40),
        pods in 1..4_u32,
        wanted in 1..7_i64,
    ) {
        let mut world = borrowed_by_one_team(&nodes, &jobs);
        let id = world.submit(&"b".into(), "train", 0, pods, wanted);

        world.plan();

        let preemptor = world.items[&id].clone();
        let chosen = world.evicted_for.get(&id).cloned().unwrap_or_default();
        every_victim_is_needed(&world, &preemptor, &chosen)?;
        world.settle();
        let fits = nodes.iter().map(|gpus| gpus / wanted).sum::<i64>() >= i64::from(pods);
        prop_assert_eq!(matches!(world.items[&id].phase, Phase::Running(_)), fits);
    }

    #[test]
    fn law_5_no_other_division_of_borrowed_capacity_is_fairer(
        weights in [1..4_u32, 1..4_u32, 1..4_u32], capacity in 3..20_i64
    ) {
        let mut world = borrowers(&weights, capacity);
        request_all_by_every_team(&mut world, "train", capacity);

        world.settle();

        let used = TEAMS.map(|name| world.used(&name.into()));
        prop_assert_eq!(used.iter().sum::<i64>(), capacity);
        no_division_is_fairer(&used, &weights)?;
    }

    #[test]
    fn law_6_no_workload_waits_while_it_could_start(setup in setup(), ops in ops()) {
        let world = settled_at_the_end(&setup, &ops);
        for job in world.queued() {
            let id = &job.workload.id;
            prop_assert!(
                !could_start(&world, job),
                "{id} waits though it could start: {:?}", world.engine.verdict(id)
            );
        }
    }

    #[test]
    fn law_8_decisions_come_to_rest(setup in setup(), ops in ops()) {
        let mut world = settled_at_the_end(&setup, &ops);
        for _ in 0..5 {
            world.now = Time(world.now.0 + 1_000);
            prop_assert!(world.plan().is_empty(), "actions without an event:\n{}", world.log.join("\n"));
        }
    }

    #[test]
    fn law_9_a_team_is_served_by_priority_then_submission(
        jobs in prop::collection::vec((-1..2_i32, 0..3_i64), 2..12)
    ) {
        let mut world = World::new(&[1], vec![team("a", None, 1, None)]);
        world.submit(&"a".into(), "fixed", 9, 1, 1);
        world.settle();
        for (priority, pause) in &jobs {
            world.now = Time(world.now.0 + pause * 1_000);
            world.submit(&"a".into(), "fixed", *priority, 1, 1);
        }
        let mut expected: Vec<_> = world.queued().into_iter().map(World::queue_position).collect();
        expected.sort_unstable();

        let mut served = Vec::new();
        while let Some(running) = ids(world.running()).first().cloned() {
            world.end(&running, Phase::Finished);
            world.settle();
            served.extend(world.running().into_iter().map(World::queue_position));
        }

        prop_assert_eq!(served, expected);
    }

    #[test]
    fn law_9_the_team_with_the_smallest_fair_share_is_served_first(
        weights in [1..4_u32, 1..4_u32, 1..4_u32], capacity in 3..20_i64
    ) {
        let mut world = borrowers(&weights, capacity);
        // Minimum run times rule out preemption between borrowers, so the order of admissions decides alone.
        request_all_by_every_team(&mut world, "slow", capacity);

        world.plan();

        for (left, left_weight) in TEAMS.iter().zip(weights) {
            for (right, right_weight) in TEAMS.iter().zip(weights) {
                let (left_used, right_used) = (world.used(&(*left).into()), world.used(&(*right).into()));
                // No share exceeds another team's share with one more GPU.
                let fair = left_used * i64::from(right_weight) <= (right_used + 1) * i64::from(left_weight);
                prop_assert!(fair, "{left} uses {left_used}, {right} {right_used}, weights {weights:?}");
            }
        }
    }

    #[test]
    fn law_9_within_guarantee_is_served_before_borrowing(capacity in 1..8_i64, owner_first in any::<bool>()) {
        let teams = vec![team("a", None, 0, None), team("b", None, capacity, None)];
        let mut world = World::new(&[capacity], teams);
        for i in 0..2 * capacity {
            let name = if (i % 2 == 0) == owner_first { "b" } else { "a" };
            world.submit(&name.into(), "train", 0, 1, 1);
        }

        world.plan();

        prop_assert_eq!(world.used(&"b".into()), capacity);
    }

    #[test]
    fn law_10_the_same_events_give_the_same_decisions(setup in setup(), ops in ops()) {
        let decisions = || {
            let mut world = build(&setup);
            for op in &ops {
                apply(&mut world, op);
                world.plan();
            }
            world.log
        };
        prop_assert_eq!(decisions(), decisions());
    }

    #[test]
    fn law_11_no_workload_is_lost_or_admitted_twice_over_restarts(setup in setup(), ops in ops()) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
            world.rebuild();
            for action in world.plan() {
                if let Action::Admit { workload, .. } = action {
                    prop_assert_eq!(&world.items[&workload].phase, &Phase::Queued);
                }
            }
            never_over_admitted(&world)?;
        }

        clear_nodes(&mut world);
        run_to_the_end(&mut world);

        for job in world.queued() {
            prop_assert!(!could_start(&world, job), "{} was lost", job.workload.id);
        }
    }

    #[test]
    fn law_12_a_decision_is_made_once(setup in setup(), ops in ops()) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
            let decided: BTreeSet<WorkloadId> =
                world.in_flight.iter().map(|action| action.workload().clone()).collect();
            for action in world.plan() {
                prop_assert!(!decided.contains(action.workload()), "decided again: {action:?}");
            }
        }
    }

    #[test]
    fn law_14_every_verdict_has_its_state_and_reason(setup in setup(), ops in ops()) {
        let world = settled_at_the_end(&setup, &ops);
        for job in world.items.values() {
            let (state, reason) = world.reason(&job.workload.id);
            prop_assert_eq!(state, expected_state(job));
            prop_assert_ne!(reason, Reason::NotYetConsidered);
        }
    }
}

fn expected_state(job: &Job) -> State {
    match job.phase {
        Phase::Queued => State::Pending,
        Phase::Running(_) => State::Running,
        Phase::Stopping(..) => State::Evicting,
        Phase::Finished => State::Finished,
    }
}
