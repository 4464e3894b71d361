//! Gangs that lose a pod and restart as a whole, and crash loops.

use sluice_engine::types::{
    Action, Event, EvictReason, Observed, OnPodLoss, Queue, Reason, State, Team, Time, Workload, WorkloadId,
};

use super::ready::start;
use super::reservations::seconds;
use super::world::{Phase, World, team};

/// A team with a queue `gang` that restarts workloads which lose a pod.
fn restarting() -> Team {
    let mut team = team("a", None, 12, None);
    team.queues.push(Queue { name: "gang".into(), on_pod_loss: OnPodLoss::Restart, ..Queue::fallback() });
    team
}

/// A pod of a running workload fails after so many seconds; returns the actions that follow.
fn lose(world: &mut World, id: &WorkloadId, after: i64) -> Vec<Action> {
    world.now = Time(world.now.0 + after * 1000);
    let job = world.items[id].clone();
    let Phase::Running(admission) = &job.phase else { panic!("{id} does not run") };
    let workload =
        Workload { failed_pods: 1, state: Observed::Admitted(admission.clone()), ..job.workload.clone() };
    world.engine.apply(Event::workload(workload), world.now);
    world.plan()
}

/// A gang loses a pod after so many seconds and is evicted; returns the message.
fn crash(world: &mut World, id: &WorkloadId, after: i64) -> String {
    let actions = lose(world, id, after);
    let [Action::Evict { workload, reason: EvictReason::PodLost, preemptor: None, message }] = &actions[..]
    else {
        panic!("not evicted: {actions:?}")
    };
    assert_eq!(workload, id);
    world.deliver(0, true);
    world.end(id, Phase::Queued);
    message.clone()
}

#[test]
fn a_gang_that_loses_a_pod_restarts_as_a_whole_and_at_once() {
    let mut world = World::new(&[4], vec![restarting()]);
    let id = world.submit(&"a".into(), "gang", 0, 3, 1);
    start(&mut world, &id);
    let message = crash(&mut world, &id, 40);
    assert_eq!(message, "A pod failed or went away 40s after the start; all its pods restart together.");
    start(&mut world, &id);
}

#[test]
fn a_crash_loop_pauses_longer_each_time_and_does_not_block_others() {
    let mut world = World::new(&[4], vec![restarting()]);
    let id = world.submit(&"a".into(), "gang", 0, 3, 1);
    start(&mut world, &id);
    crash(&mut world, &id, 5);
    for (seconds_of_pause, pause) in [(30, "30s"), (60, "1m"), (120, "2m")] {
        start(&mut world, &id);
        crash(&mut world, &id, 5);
        assert_eq!(world.plan(), [], "it fits, but pauses");
        let verdict = world.engine.verdict(&id).expect("a verdict");
        assert_eq!((verdict.state, verdict.reason), (State::Pending, Reason::PodLost));
        let expected =
            format!("A pod failed or went away 5s after the start. Tried again after a pause of {pause}.");
        assert_eq!(verdict.message, expected);
        let due = world.engine.next_deadline().expect("the end of the pause");
        assert_eq!(due.since(world.now), seconds(seconds_of_pause));
        world.now = due;
    }
    start(&mut world, &id);
    crash(&mut world, &id, 5);
    let other = world.submit(&"a".into(), "train", 0, 4, 1);
    start(&mut world, &other);
}

#[test]
fn a_long_run_ends_a_crash_loop() {
    let mut world = World::new(&[4], vec![restarting()]);
    let id = world.submit(&"a".into(), "gang", 0, 3, 1);
    for after in [5, 600] {
        start(&mut world, &id);
        crash(&mut world, &id, after);
    }
    start(&mut world, &id);
}

#[test]
fn elsewhere_the_controller_replaces_the_pod() {
    let mut world = World::new(&[4], vec![restarting()]);
    let gang = world.submit(&"a".into(), "train", 0, 2, 1);
    start(&mut world, &gang);
    assert_eq!(lose(&mut world, &gang, 5), []);
    let single = world.submit(&"a".into(), "gang", 0, 1, 1);
    start(&mut world, &single);
    assert_eq!(lose(&mut world, &single, 5), [], "one pod is no gang");
}
