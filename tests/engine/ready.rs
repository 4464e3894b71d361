//! Gangs that do not get all their pods ready within their queue's time.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::types::{Action, EvictReason, Reason, State};
use sluice_engine::types::{Event, Observed, PodsReady, Queue, Team, Time, WorkloadId};

use super::reservations::seconds;
use super::world::{Job, Phase, World, team};

/// A team with a queue `gang` that allows all pods of a workload `timeout` seconds to become ready.
fn patient(timeout: i64) -> Team {
    let mut team = team("a", None, 12, None);
    team.queues.push(Queue {
        name: "gang".into(),
        ready_timeout: Some(seconds(timeout)),
        ..Queue::fallback()
    });
    team
}

/// Reports how many pods of a workload are ready and how many have succeeded.
fn report(world: &mut World, id: &WorkloadId, ready: u32, succeeded: u32) {
    let reported = PodsReady { workload: id.clone(), ready, succeeded };
    world.engine.apply(Event::PodsReady(reported), world.now);
}

/// Submits a workload of that queue with so many pods, which is admitted at once.
fn gang(world: &mut World, queue: &str, pods: u32) -> WorkloadId {
    let id = world.submit(&"a".into(), queue, 0, pods, 1);
    start(world, &id);
    id
}

/// Admits the workload and creates its pods.
pub fn start(world: &mut World, id: &WorkloadId) {
    let actions = world.plan();
    assert!(matches!(&actions[..], [Action::Admit { workload, .. }] if workload == id), "{actions:?}");
    world.deliver(0, true);
    assert_eq!(world.plan(), []);
}

/// Plans at the next deadline, which is `after` seconds from now.
fn plan_at_deadline(world: &mut World, after: i64) -> Vec<Action> {
    let due = world.engine.next_deadline().expect("a deadline");
    assert_eq!(due.since(world.now), seconds(after));
    world.now = due;
    world.plan()
}

/// Carries out the eviction of a gang that is not ready; returns its message.
fn evict_unready(world: &mut World, id: &WorkloadId, actions: &[Action]) -> String {
    let [Action::Evict { workload, reason: EvictReason::NotReady, preemptor: None, message }] = actions
    else {
        panic!("not evicted: {actions:?}")
    };
    assert_eq!(workload, id);
    world.deliver(0, true);
    world.end(id, Phase::Queued);
    message.clone()
}

#[test]
fn a_gang_that_is_not_ready_in_time_is_evicted_whole_and_pauses() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 3);
    report(&mut world, &id, 2, 0);
    assert_eq!(world.plan(), []);
    let message = world.engine.verdict(&id).expect("a verdict").message;
    assert!(message.ends_with(" 2 of 3 pods are ready; all must be soon."), "{message}");
    let actions = plan_at_deadline(&mut world, 60);
    let message = evict_unready(&mut world, &id, &actions);
    assert_eq!(
        message,
        "2 of 3 pods were ready 1m after its admission; queue gang allows 1m for all of them"
    );
    assert_eq!(world.plan(), [], "the gang fits, but pauses");
    let verdict = world.engine.verdict(&id).expect("a verdict");
    assert_eq!((verdict.state, verdict.reason), (State::Pending, Reason::NotReady));
    assert_eq!(verdict.message, format!("{message}. Tried again after a pause of 30s."));
    assert!(matches!(&plan_at_deadline(&mut world, 30)[..], [Action::Admit { .. }]));
}

#[test]
fn a_run_with_all_pods_ready_once_has_no_timeout() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 3);
    report(&mut world, &id, 3, 0);
    report(&mut world, &id, 1, 0);
    assert_eq!(world.engine.next_deadline(), None);
    world.now = Time(3_600_000);
    assert_eq!(world.plan(), []);
    let message = world.engine.verdict(&id).expect("a verdict").message;
    assert!(!message.contains("ready"), "{message}");
}

#[test]
fn each_pause_is_longer_until_a_run_has_been_ready() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 2);
    for pause in [30, 60, 120] {
        let actions = plan_at_deadline(&mut world, 60);
        evict_unready(&mut world, &id, &actions);
        assert_eq!(world.plan(), []);
        assert!(
            matches!(&plan_at_deadline(&mut world, pause)[..], [Action::Admit { .. }]),
            "after {pause} s"
        );
        world.deliver(0, true);
        assert_eq!(world.plan(), []);
    }
    report(&mut world, &id, 2, 0);
    // Both pods are lost with their node. The next run that is not ready counts as the first again.
    let admission = world.items[&id].phase.clone();
    world.engine.apply(Event::NodeRemoved("n0".into()), world.now);
    assert!(
        matches!(&world.plan()[..], [Action::Evict { reason: EvictReason::NodeLost, .. }]),
        "{admission:?}"
    );
    world.deliver(0, true);
    world.end(&id, Phase::Queued);
    world.engine.apply(Event::NodeApplied(world.node(&"n0".into())), world.now);
    start(&mut world, &id);
    let actions = plan_at_deadline(&mut world, 60);
    evict_unready(&mut world, &id, &actions);
    assert_eq!(world.plan(), []);
    assert!(matches!(&plan_at_deadline(&mut world, 30)[..], [Action::Admit { .. }]));
}

#[test]
fn a_change_of_the_object_ends_the_pause() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 2);
    let actions = plan_at_deadline(&mut world, 60);
    evict_unready(&mut world, &id, &actions);
    assert_eq!(world.plan(), []);
    let mut workload = world.items[&id].workload.clone();
    world.engine.apply(Event::workload(workload.clone()), world.now);
    assert_eq!(world.plan(), [], "nothing has changed");
    workload.pods = 3;
    world.engine.apply(Event::workload(workload), world.now);
    assert!(matches!(&world.plan()[..], [Action::Admit { .. }]));
}

#[test]
fn a_refused_eviction_is_tried_again_and_counts_once() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 2);
    for _ in 0..2 {
        assert!(matches!(&plan_at_deadline(&mut world, 60)[..], [Action::Evict { .. }]));
        world.deliver(0, false);
        assert_eq!(world.plan(), [], "no second attempt at once");
        world.now = world.engine.next_deadline().expect("a second attempt is due");
        let actions = world.plan();
        evict_unready(&mut world, &id, &actions);
        assert_eq!(world.plan(), []);
        let message = world.engine.verdict(&id).expect("a verdict").message;
        assert!(message.ends_with("a pause of 30s."), "{message}");
        report(&mut world, &id, 0, 0);
        let workload = world.items[&id].workload.clone();
        world.delete(&id);
        world.engine.apply(Event::workload(workload.clone()), world.now);
        let job = Job { gpus_per_pod: 1, phase: Phase::Queued, workload };
        world.items.insert(id.clone(), job);
        start(&mut world, &id);
    }
}

#[test]
fn a_restart_enforces_the_timeout_only_while_it_has_not_passed() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 2);
    world.now = Time(50_000);
    world.rebuild();
    assert_eq!(world.plan(), []);
    assert!(matches!(
        &plan_at_deadline(&mut world, 10)[..],
        [Action::Evict { reason: EvictReason::NotReady, .. }]
    ));
    world.now = Time(60_000);
    world.rebuild();
    assert_eq!(world.plan(), [], "the engine before the restart would have evicted it");
    assert_eq!(world.engine.next_deadline(), None);
    assert_eq!(world.reason(&id).0, State::Running);
}

#[test]
fn pods_that_succeeded_in_this_run_count_as_ready() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 3);
    report(&mut world, &id, 1, 1);
    let mut fewer = world.items[&id].workload.clone();
    let Phase::Running(admission) = &world.items[&id].phase else { panic!("not running") };
    (fewer.pods, fewer.state) = (2, Observed::Admitted(admission.clone()));
    world.engine.apply(Event::workload(fewer), world.now);
    let message = world.engine.verdict(&id).expect("a verdict").message;
    assert!(message.contains(" 2 of 3 pods"), "one of the two remaining pods is ready: {message}");
    let actions = plan_at_deadline(&mut world, 60);
    let message = evict_unready(&mut world, &id, &actions);
    assert!(message.starts_with("2 of 3 pods"), "{message}");
    report(&mut world, &id, 0, 1);
    assert_eq!(world.plan(), []);
    plan_at_deadline(&mut world, 30);
    world.deliver(0, true);
    report(&mut world, &id, 2, 1);
    let actions = plan_at_deadline(&mut world, 60);
    assert!(
        evict_unready(&mut world, &id, &actions).starts_with("2 of 3 pods"),
        "a success of the run before does not count"
    );
    assert_eq!(world.plan(), []);
    plan_at_deadline(&mut world, 60);
    world.deliver(0, true);
    report(&mut world, &id, 2, 2);
    assert_eq!(world.plan(), []);
    assert_eq!(world.engine.next_deadline(), None);
}

#[test]
fn single_pods_other_queues_and_workloads_without_requeue_have_no_timeout() {
    let mut world = World::new(&[4], vec![patient(60)]);
    gang(&mut world, "gang", 1);
    gang(&mut world, "train", 2);
    assert_eq!(world.engine.next_deadline(), None);

    for (expendable, has_timeout) in [(false, false), (true, true)] {
        let mut world = World::new(&[4], vec![patient(60)]);
        let id = world.submit(&"a".into(), "gang", 0, 2, 1);
        let job = world.items.get_mut(&id).expect("the submitted workload");
        (job.workload.resumable, job.workload.expendable) = (false, expendable);
        let workload = job.workload.clone();
        world.engine.apply(Event::workload(workload), world.now);
        start(&mut world, &id);
        assert_eq!(world.engine.next_deadline().is_some(), has_timeout);
    }
}

#[test]
fn a_changed_timeout_of_the_queue_counts_for_running_workloads() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 2);
    world.now = Time(20_000);
    world.engine.apply(Event::TeamApplied(patient(15)), world.now);
    let actions = world.plan();
    assert!(evict_unready(&mut world, &id, &actions).ends_with("queue gang allows 15s for all of them"));
}

/// The largest number of evictions within that time of a gang that is never ready: pauses double from 30 s to
/// 1800 s.
fn most_evictions(within: Duration) -> usize {
    let pauses = (0..).map(|times: u32| seconds(30 * 2_i64.pow(times.min(6))).min(seconds(1800)));
    let mut paused = Duration::ZERO;
    1 + pauses
        .take_while(|pause| {
            paused += *pause;
            paused <= within
        })
        .count()
}

/// Writes an action. An admitted workload has `ready` ready pods, an evicted one is queued again.
fn carry_out(world: &mut World, action: &Action, ready: u32) {
    let id = action.workload();
    world.deliver(0, true);
    if matches!(action, Action::Admit { .. }) {
        report(world, id, ready, 0);
    } else {
        report(world, id, 0, 0);
        world.end(id, Phase::Queued);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn law_8_gangs_that_are_never_ready_are_evicted_after_growing_pauses_and_others_stay(
        gangs in prop::collection::vec((2..4_u32, 1..3_i64, 0..4_u32, 0..3_i32), 1..8),
        timeout in 1..300_i64,
        nodes in prop::collection::vec(2..5_i64, 1..4),
    ) {
        let mut world = World::new(&nodes, vec![patient(timeout)]);
        let mut ready: BTreeMap<WorkloadId, (u32, u32)> = BTreeMap::new();
        for (pods, gpus, becoming_ready, priority) in gangs {
            let id = world.submit(&"a".into(), "gang", priority, pods, gpus);
            ready.insert(id, (becoming_ready.min(pods), pods));
        }
        let mut evictions: BTreeMap<WorkloadId, usize> = BTreeMap::new();
        let end = Time(8 * 3_600_000);
        let mut rounds = 0;
        loop {
            let actions = world.plan();
            rounds = if actions.is_empty() { 0 } else { rounds + 1 };
            prop_assert!(rounds < 50, "decisions never end: {actions:?}");
            for action in &actions {
                let id = action.workload();
                if let Action::Evict { reason: EvictReason::NotReady, .. } = action {
                    prop_assert!(ready[id].0 < ready[id].1, "all pods of {id} were ready");
                    *evictions.entry(id.clone()).or_default() += 1;
                }
                carry_out(&mut world, action, ready[id].0);
            }
            if actions.is_empty() {
                match world.engine.next_deadline().filter(|next| *next <= end) {
                    Some(next) => world.now = next.max(world.now),
                    None => break,
                }
            }
        }
        for (id, times) in evictions {
            prop_assert!(times <= most_evictions(end.since(Time(0))), "{id} was evicted {times} times");
        }
    }
}
