//! Pods that are not where they were to go.

use std::collections::BTreeMap;

use sluice_engine::types::{Action, EvictReason, Reason, ResizeCause, State};
use sluice_engine::types::{Admission, Event, MisplacedPods, Name, Pod, PodId, WorkloadId};

use super::world::{Stage, World, gpus, team};

/// A Job of two pods that fill most of a node each, on the first two of so many nodes; its second pod has
/// no node yet.
fn half_started(nodes: &[i64], resizable: bool) -> (World, WorkloadId, Admission) {
    let mut world = World::new(nodes, vec![team("a", None, 12, None)]);
    let id = world.submit(&"a".into(), "train", 0, 2, 3);
    world.plan();
    world.deliver(0, true);
    let item = world.items.get_mut(&id).expect("it was submitted");
    item.workload.resizable = resizable;
    let Stage::Running(admission) = item.stage.clone() else { panic!("there is room: {:?}", item.stage) };
    assert_eq!(admission.nodes, places(&[("n0", 1), ("n1", 1)]));
    let mut workload = item.workload.clone();
    workload.state = sluice_engine::types::Observed::Admitted(admission.clone());
    world.engine.apply(Event::WorkloadApplied(workload), world.now);
    let second = PodId(format!("{id}/n1/0").into());
    let unbound = Pod { id: second, workload: Some(id.clone()), node: None, requests: gpus(3) };
    world.engine.apply(Event::PodApplied(unbound), world.now);
    assert_eq!(world.plan(), [], "everything is as it was decided");
    (world, id, admission)
}

fn places(of: &[(&str, u32)]) -> BTreeMap<Name, u32> {
    of.iter().map(|(node, pods)| ((*node).into(), *pods)).collect()
}

fn strays(world: &mut World, id: &WorkloadId, there: &[(&str, u32)], stuck: &[(&str, u32)]) -> Vec<Action> {
    let astray = MisplacedPods {
        workload: id.clone(),
        there: places(there),
        stuck: places(stuck),
        message: "no free ports".to_owned(),
    };
    world.engine.apply(Event::PodsMisplaced(astray), world.now);
    world.plan()
}

#[test]
fn a_pod_that_cannot_start_is_made_anew_on_another_node() {
    let (mut world, id, before) = half_started(&[4, 4, 4], true);
    let actions = strays(&mut world, &id, &[("n0", 1)], &[("n1", 1)]);
    let [Action::Resize { admission, cause: ResizeCause::Replaced, message, .. }] = &actions[..] else {
        panic!("not made anew: {actions:?}")
    };
    assert_eq!(admission.nodes, places(&[("n0", 1), ("n2", 1)]), "although n1 has room by the books");
    assert_eq!((admission.pods, admission.at), (before.pods, before.at));
    assert!(message.contains("n1 (no free ports)"), "{message}");
}

#[test]
fn without_another_place_the_whole_workload_goes_back_and_keeps_off_the_node_for_a_while() {
    let (mut world, id, _) = half_started(&[4, 4], true);
    let actions = strays(&mut world, &id, &[("n0", 1)], &[("n1", 1)]);
    let [Action::Evict { reason: EvictReason::NotPlaced, preemptor: None, message, .. }] = &actions[..]
    else {
        panic!("not put back: {actions:?}")
    };
    assert!(message.contains("n1 (no free ports)"), "{message}");
    world.deliver(0, true);
    world.end(&id, Stage::Queued);
    assert_eq!(world.plan(), [], "the one node left is too small for both pods");
    let verdict = world.engine.verdict(&id).expect("it is known");
    assert_eq!(verdict.state, State::Pending);
    assert!(verdict.message.contains("n1 (no free ports)"), "{}", verdict.message);
    let due = world.engine.next_deadline().expect("it may go back");
    world.now = due;
    let actions = world.plan();
    assert!(matches!(&actions[..], [Action::Admit { .. }]), "after the pause it is tried again: {actions:?}");
    let verdict = world.engine.verdict(&id).expect("it is known");
    assert!(!verdict.message.contains("no free ports"), "{}", verdict.message);
}

#[test]
fn each_time_the_pause_is_longer_and_a_change_of_the_node_ends_it() {
    let (mut world, id, _) = half_started(&[4, 4], true);
    let mut pauses = Vec::new();
    for _ in 0..3 {
        strays(&mut world, &id, &[("n0", 1)], &[("n1", 1)]);
        world.deliver(0, true);
        world.end(&id, Stage::Queued);
        assert_eq!(world.plan(), []);
        let due = world.engine.next_deadline().expect("it may go back");
        pauses.push(due.since(world.now).as_secs());
        world.now = due;
        world.plan();
        world.deliver(0, true);
        world.plan();
    }
    assert_eq!(pauses, [30, 60, 120]);
    strays(&mut world, &id, &[("n0", 1)], &[("n1", 1)]);
    world.deliver(0, true);
    world.end(&id, Stage::Queued);
    assert_eq!(world.plan(), []);
    world.cordon(&"n1".into(), false);
    assert_eq!(world.plan(), [], "closed, it is no place either");
    // No more than of any other workload: that it has strayed there is of no interest now.
    assert_eq!(world.reason(&id), (State::Pending, Reason::NoNodeFits));
    world.cordon(&"n1".into(), true);
    assert!(matches!(world.plan()[..], [Action::Admit { .. }]), "it is another node now");
}

#[test]
fn where_only_shunned_nodes_fit_the_reason_says_so() {
    let mut world = World::new(&[4], vec![team("a", None, 4, None)]);
    let id = world.submit(&"a".into(), "train", 0, 1, 3);
    world.plan();
    world.deliver(0, true);
    strays(&mut world, &id, &[], &[("n0", 1)]);
    world.deliver(0, true);
    world.end(&id, Stage::Queued);
    assert_eq!(world.plan(), []);
    assert_eq!(world.reason(&id), (State::Pending, Reason::NotPlaced));
}

#[test]
fn a_workload_whose_pods_cannot_be_made_anew_one_by_one_goes_back() {
    let (mut world, id, _) = half_started(&[4, 4, 4], false);
    let actions = strays(&mut world, &id, &[("n0", 1)], &[("n1", 1)]);
    assert!(matches!(&actions[..], [Action::Evict { reason: EvictReason::NotPlaced, .. }]), "{actions:?}");
}

#[test]
fn the_admission_follows_pods_that_run_elsewhere() {
    let (mut world, id, before) = half_started(&[4, 4, 4], false);
    let actions = strays(&mut world, &id, &[("n0", 1), ("n2", 1)], &[]);
    let [Action::Resize { admission, cause: ResizeCause::Replaced, .. }] = &actions[..] else {
        panic!("not followed: {actions:?}")
    };
    assert_eq!(admission.nodes, places(&[("n0", 1), ("n2", 1)]));
    assert_eq!(admission.pods, before.pods);
}

#[test]
fn what_is_as_decided_or_about_to_end_is_left_alone() {
    let (mut world, id, _) = half_started(&[4, 4, 4], true);
    assert_eq!(strays(&mut world, &id, &[("n0", 1)], &[]), [], "the second may still come");
    assert_eq!(strays(&mut world, &id, &[("n0", 1), ("n1", 1), ("n2", 1)], &[]), [], "one more than granted");
    assert_eq!(strays(&mut world, &WorkloadId("a/none".into()), &[], &[("n0", 1)]), [], "nobody's");
}
