//! Gangs whose pods do not all come up.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::types::{Action, EvictReason, Reason, State};
use sluice_engine::types::{Event, Observed, PodsReady, Queue, Team, Time, WorkloadId};

use super::turns::seconds;
use super::world::{Stage, World, team};

/// A team whose queue `gang` gives all pods of a workload so many seconds to become ready.
fn patient(timeout: i64) -> Team {
    let mut team = team("a", None, 12, None);
    team.queues.push(Queue {
        name: "gang".into(),
        ready_timeout: Some(seconds(timeout)),
        ..Queue::fallback()
    });
    team
}

fn tell(world: &mut World, id: &WorkloadId, ready: u32, succeeded: u32) {
    let told = PodsReady { workload: id.clone(), ready, succeeded };
    world.engine.apply(Event::PodsReady(told), world.now);
}

/// A Job of that queue with so many pods, admitted at once.
fn gang(world: &mut World, queue: &str, pods: u32) -> WorkloadId {
    let id = world.submit(&"a".into(), queue, 0, pods, 1);
    start(world, &id);
    id
}

/// Plans; the workload is admitted, and all of its pods exist.
fn start(world: &mut World, id: &WorkloadId) {
    let actions = world.plan();
    assert!(matches!(&actions[..], [Action::Admit { workload, .. }] if workload == id), "{actions:?}");
    world.deliver(0, true);
    assert_eq!(world.plan(), []);
}

/// Lets the time pass up to the next deadline; it is one after so many seconds.
fn pass(world: &mut World, after: i64) -> Vec<Action> {
    let due = world.engine.next_deadline().expect("something is due");
    assert_eq!(due.since(world.now), seconds(after));
    world.now = due;
    world.plan()
}

/// It goes back to the queue; what was said.
fn put_back(world: &mut World, id: &WorkloadId, actions: &[Action]) -> String {
    let [Action::Evict { workload, reason: EvictReason::NotReady, preemptor: None, message }] = actions
    else {
        panic!("not put back: {actions:?}")
    };
    assert_eq!(workload, id);
    world.deliver(0, true);
    world.end(id, Stage::Queued);
    message.clone()
}

#[test]
fn a_gang_that_is_not_up_in_time_goes_back_whole_and_rests() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 3);
    tell(&mut world, &id, 2, 0);
    assert_eq!(world.plan(), []);
    let said = world.engine.verdict(&id).expect("it is known").message;
    assert!(said.ends_with("; 2 of 3 pods are ready, and all have to be soon"), "{said}");
    let actions = pass(&mut world, 60);
    let message = put_back(&mut world, &id, &actions);
    assert_eq!(
        message,
        "2 of 3 pods were ready 60 s after its admission; queue gang allows 60 s for all of them"
    );
    assert_eq!(world.plan(), [], "there is room, but it rests");
    let verdict = world.engine.verdict(&id).expect("it is known");
    assert_eq!((verdict.state, verdict.reason), (State::Pending, Reason::NotReady));
    assert_eq!(verdict.message, format!("{message}; tried again after a pause of 30 s"));
    assert!(matches!(&pass(&mut world, 30)[..], [Action::Admit { .. }]));
}

#[test]
fn once_all_pods_were_ready_the_run_is_left_alone() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 3);
    tell(&mut world, &id, 3, 0);
    tell(&mut world, &id, 1, 0);
    assert_eq!(world.engine.next_deadline(), None);
    world.now = Time(3_600_000);
    assert_eq!(world.plan(), []);
    let said = world.engine.verdict(&id).expect("it is known").message;
    assert!(!said.contains("ready"), "{said}");
}

#[test]
fn the_rest_is_longer_each_time_until_it_has_come_up() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 2);
    for rest in [30, 60, 120] {
        let actions = pass(&mut world, 60);
        put_back(&mut world, &id, &actions);
        assert_eq!(world.plan(), []);
        assert!(matches!(&pass(&mut world, rest)[..], [Action::Admit { .. }]), "after {rest} s");
        world.deliver(0, true);
        assert_eq!(world.plan(), []);
    }
    tell(&mut world, &id, 2, 0);
    // A node takes both; the next run does not come up, for the first time again.
    let admission = world.items[&id].stage.clone();
    world.engine.apply(Event::NodeRemoved("n0".into()), world.now);
    assert!(
        matches!(&world.plan()[..], [Action::Evict { reason: EvictReason::NodeLost, .. }]),
        "{admission:?}"
    );
    world.deliver(0, true);
    world.end(&id, Stage::Queued);
    world.engine.apply(Event::NodeApplied(world.node(&"n0".into())), world.now);
    start(&mut world, &id);
    let actions = pass(&mut world, 60);
    put_back(&mut world, &id, &actions);
    assert_eq!(world.plan(), []);
    assert!(matches!(&pass(&mut world, 30)[..], [Action::Admit { .. }]));
}

#[test]
fn a_change_of_its_object_ends_the_rest() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 2);
    let actions = pass(&mut world, 60);
    put_back(&mut world, &id, &actions);
    assert_eq!(world.plan(), []);
    let mut workload = world.items[&id].workload.clone();
    world.engine.apply(Event::WorkloadApplied(workload.clone()), world.now);
    assert_eq!(world.plan(), [], "nothing has changed");
    workload.pods = 3;
    world.engine.apply(Event::WorkloadApplied(workload), world.now);
    assert!(matches!(&world.plan()[..], [Action::Admit { .. }]));
}

#[test]
fn a_refused_eviction_is_tried_again_and_counts_once() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 2);
    for _ in 0..2 {
        assert!(matches!(&pass(&mut world, 60)[..], [Action::Evict { .. }]));
        world.deliver(0, false);
        assert_eq!(world.plan(), [], "not at once");
        world.now = world.engine.next_deadline().expect("it is tried again");
        let actions = world.plan();
        put_back(&mut world, &id, &actions);
        assert_eq!(world.plan(), []);
        let said = world.engine.verdict(&id).expect("it is known").message;
        assert!(said.ends_with("a pause of 30 s"), "{said}");
        tell(&mut world, &id, 0, 0);
        let workload = world.items[&id].workload.clone();
        world.delete(&id);
        world.engine.apply(Event::WorkloadApplied(workload.clone()), world.now);
        let item = super::world::Item { gpus: 1, stage: Stage::Queued, workload };
        world.items.insert(id.clone(), item);
        start(&mut world, &id);
    }
}

#[test]
fn who_is_found_running_is_asked_only_while_its_time_is_not_up() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 2);
    world.now = Time(50_000);
    world.rebuild();
    assert_eq!(world.plan(), []);
    assert!(matches!(&pass(&mut world, 10)[..], [Action::Evict { reason: EvictReason::NotReady, .. }]));
    world.now = Time(60_000);
    world.rebuild();
    assert_eq!(world.plan(), [], "whoever decided before would have put it back");
    assert_eq!(world.engine.next_deadline(), None);
    assert_eq!(world.reason(&id).0, State::Running);
}

#[test]
fn pods_that_have_done_their_work_in_this_run_count_as_up() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 3);
    tell(&mut world, &id, 1, 1);
    let mut fewer = world.items[&id].workload.clone();
    let Stage::Running(admission) = &world.items[&id].stage else { panic!("it does not run") };
    (fewer.pods, fewer.state) = (2, Observed::Admitted(admission.clone()));
    world.engine.apply(Event::WorkloadApplied(fewer), world.now);
    let said = world.engine.verdict(&id).expect("it is known").message;
    assert!(said.contains("; 2 of 3 pods"), "one is up of the two that are wanted still: {said}");
    let actions = pass(&mut world, 60);
    let message = put_back(&mut world, &id, &actions);
    assert!(message.starts_with("2 of 3 pods"), "{message}");
    tell(&mut world, &id, 0, 1);
    assert_eq!(world.plan(), []);
    pass(&mut world, 30);
    world.deliver(0, true);
    tell(&mut world, &id, 2, 1);
    let actions = pass(&mut world, 60);
    assert!(put_back(&mut world, &id, &actions).starts_with("2 of 3 pods"), "one of the run before does not");
    assert_eq!(world.plan(), []);
    pass(&mut world, 60);
    world.deliver(0, true);
    tell(&mut world, &id, 2, 2);
    assert_eq!(world.plan(), []);
    assert_eq!(world.engine.next_deadline(), None);
}

#[test]
fn single_pods_other_queues_and_what_cannot_go_back_are_left_alone() {
    let mut world = World::new(&[4], vec![patient(60)]);
    gang(&mut world, "gang", 1);
    gang(&mut world, "train", 2);
    assert_eq!(world.engine.next_deadline(), None);

    for (expendable, goes) in [(false, false), (true, true)] {
        let mut world = World::new(&[4], vec![patient(60)]);
        let id = world.submit(&"a".into(), "gang", 0, 2, 1);
        let item = world.items.get_mut(&id).expect("it was submitted");
        (item.workload.resumable, item.workload.expendable) = (false, expendable);
        let workload = item.workload.clone();
        world.engine.apply(Event::WorkloadApplied(workload), world.now);
        start(&mut world, &id);
        assert_eq!(world.engine.next_deadline().is_some(), goes);
    }
}

#[test]
fn a_change_of_the_queue_counts_for_those_who_run() {
    let mut world = World::new(&[4], vec![patient(60)]);
    let id = gang(&mut world, "gang", 2);
    world.now = Time(20_000);
    world.engine.apply(Event::TeamApplied(patient(15)), world.now);
    let actions = world.plan();
    assert!(put_back(&mut world, &id, &actions).ends_with("queue gang allows 15 s for all of them"));
}

/// How often a gang that never comes up can be put back within so long.
fn most(within: Duration) -> usize {
    let rests = (0..).map(|times: u32| seconds(30 * 2_i64.pow(times.min(6))).min(seconds(1800)));
    let mut rested = Duration::ZERO;
    1 + rests
        .take_while(|rest| {
            rested += *rest;
            rested <= within
        })
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn gangs_that_never_come_up_do_not_flap_and_the_others_stay(
        gangs in prop::collection::vec((2..4_u32, 1..3_i64, 0..4_u32, 0..3_i32), 1..8),
        timeout in 1..300_i64,
        nodes in prop::collection::vec(2..5_i64, 1..4),
    ) {
        let mut world = World::new(&nodes, vec![patient(timeout)]);
        let mut ready: BTreeMap<WorkloadId, (u32, u32)> = BTreeMap::new();
        for (pods, gpus, up, priority) in gangs {
            let id = world.submit(&"a".into(), "gang", priority, pods, gpus);
            ready.insert(id, (up.min(pods), pods));
        }
        let mut put_back: BTreeMap<WorkloadId, usize> = BTreeMap::new();
        let end = Time(8 * 3_600_000);
        let mut rounds = 0;
        loop {
            let actions = world.plan();
            rounds = if actions.is_empty() { 0 } else { rounds + 1 };
            prop_assert!(rounds < 50, "it does not come to rest: {actions:?}");
            for action in &actions {
                let id = action.workload().clone();
                if let Action::Evict { reason: EvictReason::NotReady, .. } = action {
                    prop_assert!(ready[&id].0 < ready[&id].1, "all of its pods were ready");
                    *put_back.entry(id.clone()).or_default() += 1;
                }
                world.deliver(0, true);
                if matches!(action, Action::Admit { .. }) {
                    tell(&mut world, &id, ready[&id].0, 0);
                } else {
                    tell(&mut world, &id, 0, 0);
                    world.end(&id, Stage::Queued);
                }
            }
            if actions.is_empty() {
                match world.engine.next_deadline().filter(|next| *next <= end) {
                    Some(next) => world.now = next.max(world.now),
                    None => break,
                }
            }
        }
        for (id, times) in put_back {
            prop_assert!(times <= most(end.since(Time(0))), "{id} was put back {times} times");
        }
    }
}
