//! Misplaced pods: pods that do not run on the nodes of their admission.

use std::collections::BTreeMap;

use sluice_engine::types::{Action, EvictReason, Reason, ResizeCause, State};
use sluice_engine::types::{Admission, Event, MisplacedPods, Name, Observed, Pod, PodId, WorkloadId};

use super::world::{Phase, World, gpus, team};

/// A workload of two pods that fill most of a node each, admitted to `n0` and `n1`. Its second pod is not
/// bound.
fn half_started(nodes: &[i64], resizable: bool) -> (World, WorkloadId, Admission) {
    let mut world = World::new(nodes, vec![team("a", None, 12, None)]);
    let id = world.submit(&"a".into(), "train", 0, 2, 3);
    world.plan();
    world.deliver(0, true);
    let job = world.items.get_mut(&id).expect("the submitted workload");
    job.workload.resizable = resizable;
    let Phase::Running(admission) = job.phase.clone() else { panic!("not admitted: {:?}", job.phase) };
    assert_eq!(admission.nodes, places(&[("n0", 1), ("n1", 1)]));
    let mut workload = job.workload.clone();
    workload.state = Observed::Admitted(admission.clone());
    world.engine.apply(Event::workload(workload), world.now);
    let second = PodId(format!("{id}/n1/0").into());
    let unbound = Pod {
        id: second,
        workload: Some(id.clone()),
        node: None,
        requests: gpus(3),
        profile: None,
        unadmitted: None,
    };
    world.engine.apply(Event::PodApplied(unbound), world.now);
    assert_eq!(world.plan(), [], "the pods are where they were admitted to");
    (world, id, admission)
}

fn places(of: &[(&str, u32)]) -> BTreeMap<Name, u32> {
    of.iter().map(|(node, pods)| ((*node).into(), *pods)).collect()
}

/// Reports the running pods of a workload by node, and those that cannot start; returns the actions.
fn report(world: &mut World, id: &WorkloadId, there: &[(&str, u32)], stuck: &[(&str, u32)]) -> Vec<Action> {
    let misplaced = MisplacedPods {
        workload: id.clone(),
        there: places(there),
        stuck: places(stuck),
        message: "no free ports".to_owned(),
    };
    world.engine.apply(Event::PodsMisplaced(misplaced), world.now);
    world.plan()
}

#[test]
fn a_pod_that_cannot_start_is_replaced_on_another_node() {
    let (mut world, id, before) = half_started(&[4, 4, 4], true);
    let actions = report(&mut world, &id, &[("n0", 1)], &[("n1", 1)]);
    let [Action::Resize { admission, cause: ResizeCause::Replaced, message, .. }] = &actions[..] else {
        panic!("not replaced: {actions:?}")
    };
    assert_eq!(
        admission.nodes,
        places(&[("n0", 1), ("n2", 1)]),
        "not n1, though its free capacity fits the pod"
    );
    assert_eq!((admission.pods, admission.at), (before.pods, before.at));
    assert!(message.contains("n1 (no free ports)"), "{message}");
}

#[test]
fn without_another_node_the_workload_is_queued_again_and_avoids_the_node_for_a_while() {
    let (mut world, id, _) = half_started(&[4, 4], true);
    let actions = report(&mut world, &id, &[("n0", 1)], &[("n1", 1)]);
    let [Action::Evict { reason: EvictReason::NotPlaced, preemptor: None, message, .. }] = &actions[..]
    else {
        panic!("not evicted: {actions:?}")
    };
    assert!(message.contains("n1 (no free ports)"), "{message}");
    world.deliver(0, true);
    world.end(&id, Phase::Queued);
    assert_eq!(world.plan(), [], "the one node left is too small for both pods");
    let verdict = world.engine.verdict(&id).expect("a verdict");
    assert_eq!(verdict.state, State::Pending);
    assert!(verdict.message.contains("n1 (no free ports)"), "{}", verdict.message);
    let due = world.engine.next_deadline().expect("the pause ends");
    world.now = due;
    let actions = world.plan();
    assert!(
        matches!(&actions[..], [Action::Admit { .. }]),
        "the node is tried again after the pause: {actions:?}"
    );
    let verdict = world.engine.verdict(&id).expect("a verdict");
    assert!(!verdict.message.contains("no free ports"), "{}", verdict.message);
}

#[test]
fn each_pause_is_longer_and_a_change_of_the_node_ends_it() {
    let (mut world, id, _) = half_started(&[4, 4], true);
    let mut pauses = Vec::new();
    for _ in 0..3 {
        report(&mut world, &id, &[("n0", 1)], &[("n1", 1)]);
        world.deliver(0, true);
        world.end(&id, Phase::Queued);
        assert_eq!(world.plan(), []);
        let due = world.engine.next_deadline().expect("the pause ends");
        pauses.push(due.since(world.now).as_secs());
        world.now = due;
        world.plan();
        world.deliver(0, true);
        world.plan();
    }
    assert_eq!(pauses, [30, 60, 120]);
    report(&mut world, &id, &[("n0", 1)], &[("n1", 1)]);
    world.deliver(0, true);
    world.end(&id, Phase::Queued);
    assert_eq!(world.plan(), []);
    world.cordon(&"n1".into(), false);
    assert_eq!(world.plan(), [], "the node is not schedulable");
    // The verdict is that of any workload; the avoided node does not matter now.
    assert_eq!(world.reason(&id), (State::Pending, Reason::NodesClosed));
    world.cordon(&"n1".into(), true);
    assert!(matches!(world.plan()[..], [Action::Admit { .. }]), "the changed node is no longer avoided");
}

#[test]
fn where_only_avoided_nodes_fit_the_reason_says_so() {
    let mut world = World::new(&[4], vec![team("a", None, 4, None)]);
    let id = world.submit(&"a".into(), "train", 0, 1, 3);
    world.plan();
    world.deliver(0, true);
    report(&mut world, &id, &[], &[("n0", 1)]);
    world.deliver(0, true);
    world.end(&id, Phase::Queued);
    assert_eq!(world.plan(), []);
    assert_eq!(world.reason(&id), (State::Pending, Reason::NotPlaced));
}

#[test]
fn a_workload_without_replaceable_pods_is_evicted_whole() {
    let (mut world, id, _) = half_started(&[4, 4, 4], false);
    let actions = report(&mut world, &id, &[("n0", 1)], &[("n1", 1)]);
    let [Action::Evict { reason: EvictReason::NotPlaced, message, .. }] = &actions[..] else {
        panic!("not evicted: {actions:?}")
    };
    let said =
        "n1 (no free ports). Returns to the queue and avoids that node until it changes or a pause is over.";
    assert!(message.contains(said), "n2 has capacity: {message}");
}

#[test]
fn the_admission_follows_pods_that_run_elsewhere() {
    let (mut world, id, before) = half_started(&[4, 4, 4], false);
    let actions = report(&mut world, &id, &[("n0", 1), ("n2", 1)], &[]);
    let [Action::Resize { admission, cause: ResizeCause::Replaced, .. }] = &actions[..] else {
        panic!("not followed: {actions:?}")
    };
    assert_eq!(admission.nodes, places(&[("n0", 1), ("n2", 1)]));
    assert_eq!(admission.pods, before.pods);
}

#[test]
fn pods_on_their_nodes_and_unknown_workloads_cause_no_action() {
    let (mut world, id, _) = half_started(&[4, 4, 4], true);
    assert_eq!(report(&mut world, &id, &[("n0", 1)], &[]), [], "the second pod may still start");
    assert_eq!(
        report(&mut world, &id, &[("n0", 1), ("n1", 1), ("n2", 1)], &[]),
        [],
        "one pod more than admitted"
    );
    assert_eq!(
        report(&mut world, &WorkloadId("a/none".into()), &[], &[("n0", 1)]),
        [],
        "an unknown workload"
    );
}
