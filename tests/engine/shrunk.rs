//! Law 1: a place on the record of a shrunk workload is not free while the pod that gives up another place still ends.

use std::collections::BTreeMap;

use sluice_engine::Engine;
use sluice_engine::types::{
    Action, Admission, DEFAULT_POOL, Event, Observed, Pod, PodId, PodShape, Time, Workload,
};

use super::world::{gpus, node, team};

fn job(name: &str) -> Workload {
    let shape = PodShape { requests: gpus(1), ..PodShape::default() };
    Workload::job(&"a".into(), &name.into(), 1, shape, Time(0))
}

/// An elastic workload that was shrunk to its place on n0, where one pod has just succeeded. With `ending`, its pod on n1
/// still ends.
fn engine(ending: bool) -> (Engine, Pod) {
    let mut engine = Engine::new();
    let admission = Admission {
        pool: DEFAULT_POOL.into(),
        nodes: BTreeMap::from([("n0".into(), 1)]),
        pods: 1,
        borrowed: false,
        share: None,
        spared: false,
        unfunded: false,
        at: Time(0),
    };
    let state = Observed::Admitted(admission);
    let elastic = Workload { pods: 2, min_pods: Some(1), resizable: true, state, ..job("elastic") };
    let pod = Pod {
        id: PodId("elastic-1".into()),
        workload: Some(elastic.id.clone()),
        node: Some("n1".into()),
        requests: gpus(1),
        profile: None,
        unadmitted: None,
    };
    engine.apply(Event::NodeApplied(node("n0", 1)), Time(0));
    engine.apply(Event::NodeApplied(node("n1", 1)), Time(0));
    engine.apply(Event::TeamApplied(team("a", None, 2, None)), Time(0));
    engine.apply(Event::workload(elastic), Time(0));
    if ending {
        engine.apply(Event::PodApplied(pod.clone()), Time(0));
    }
    (engine, pod)
}

fn starts(engine: &mut Engine) -> Vec<Action> {
    let mut actions = engine.plan(Time(2_000)).actions;
    actions.retain(|action| matches!(action, Action::Admit { .. }));
    actions
}

#[test]
fn law_1_the_place_of_a_shrunk_workload_is_kept_while_another_pod_of_it_ends() {
    let (mut engine, pod) = engine(true);
    engine.apply(Event::workload(job("next")), Time(1_000));
    assert_eq!(starts(&mut engine), []);
    // The ending pod is gone: n1 is free, and n0 waits for the next pod of the elastic workload.
    engine.apply(Event::PodRemoved(pod.id), Time(1_500));
    let started = starts(&mut engine);
    let [Action::Admit { admission, .. }] = &started[..] else { panic!("{started:?}") };
    assert_eq!(admission.nodes, BTreeMap::from([("n1".into(), 1)]));
}

#[test]
fn without_an_ending_pod_the_other_node_is_free() {
    let (mut engine, _) = engine(false);
    engine.apply(Event::workload(job("next")), Time(1_000));
    assert_eq!(starts(&mut engine).len(), 1);
}
