//! The verdicts on waiting workloads (law 14).

use sluice_engine::Engine;
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{
    Action, DEFAULT_POOL, Event, Name, Node, PodShape, Pool, Quota, Reason, State, Team, Time, Topology,
    Workload, WorkloadKind,
};

use super::world::{World, gpus, node, team};

#[test]
fn what_fits_once_closed_nodes_are_open_again_is_not_told_that_it_can_never_start() {
    let mut world = World::new(&[4, 4], vec![team("t", None, 8, None)]);
    let mut said = |pods: u32, gpus: i64, open: bool| {
        world.cordon(&"n1".into(), open);
        let id = world.submit(&"t".into(), "train", 0, pods, gpus);
        world.settle_now();
        let said = world.engine.verdict(&id).expect("a verdict");
        let is_never = said.message.starts_with("Can never start: ");
        assert_eq!(is_never, said.reason == Reason::NoNodeFits, "{said:?}");
        world.delete(&id);
        said.message
    };
    assert_eq!(
        said(2, 4, false),
        "Cannot start before closed nodes of pool default are open again: the matching open nodes of pool \
         default hold at most 1 of its 2 pods."
    );
    assert_eq!(
        said(3, 4, false),
        "Can never start: the matching nodes of pool default hold at most 1 of its 3 pods."
    );
    assert_eq!(
        said(1, 5, false),
        "Can never start: a pod needs 5 GPUs, more than the matching node of pool default has."
    );
    assert!(said(2, 4, true).starts_with("Runs within the guarantee"), "both nodes are open");
    world.cordon(&"n0".into(), false);
    world.cordon(&"n1".into(), false);
    let id = world.submit(&"t".into(), "train", 0, 1, 4);
    world.settle_now();
    assert_eq!(
        world.engine.verdict(&id).expect("a verdict").message,
        "Cannot start before closed nodes of pool default are open again: no open node matches its node \
         selector, affinity and tolerations."
    );
}

#[test]
fn a_verdict_names_the_level_that_does_not_hold_and_says_what_can_never_start() {
    let teams =
        vec![team("p", None, 4, Some(10)), team("a", Some("p"), 4, None), team("b", Some("p"), 4, None)];
    let mut world = World::new(&[16], teams);
    for _ in 0..3 {
        world.submit(&"a".into(), "fixed", 0, 1, 1);
    }
    world.settle_now();
    let mut said = |queue: &str, gpus: i64| {
        let id = world.submit(&"b".into(), queue, 0, 1, gpus);
        world.settle_now();
        let said = world.engine.verdict(&id).expect("a verdict").message;
        world.delete(&id);
        said
    };
    for (queue, gpus, sentence) in [
        (
            "fixed",
            2,
            "Not preemptible, so its 2 GPUs must fit the guarantee beside other work that is not. Team p uses 3 of 4 \
             guaranteed GPUs for such work in pool default.",
        ),
        (
            "fixed",
            5,
            "Can never start in pool default as the guarantee stands: it is not preemptible and needs 5 GPUs, and team b \
             is guaranteed 4 GPUs.",
        ),
        ("train", 8, "Needs 8 GPUs; team p uses 3 of its limit of 10 GPUs in pool default."),
        (
            "train",
            11,
            "Can never start in pool default as the limit stands: it needs 11 GPUs, and team p has a limit of 10 GPUs.",
        ),
    ] {
        let said = said(queue, gpus);
        assert!(said.starts_with(sentence), "{said}");
    }
}

#[test]
fn what_can_start_in_one_of_its_pools_is_not_said_to_start_never() {
    let mut engine = Engine::new();
    let quota = |limit: Option<i64>| Quota { limit: limit.map(gpus).unwrap_or_default(), ..Quota::default() };
    let quotas = [("a100".into(), quota(None)), (DEFAULT_POOL.into(), quota(Some(2)))].into();
    engine.apply(Event::TeamApplied(Team { quotas, ..team("t", None, 0, None) }), Time(0));
    let pool = Pool {
        name: "a100".into(),
        node_selector: [("gpu".into(), "a100".into())].into(),
        topology: Vec::new(),
        weights: ResourceList::new(),
    };
    engine.apply(Event::PoolApplied(pool), Time(0));
    engine.apply(Event::NodeApplied(node("n", 8)), Time(0));
    let labels = [("gpu".into(), "a100".into())].into();
    engine.apply(Event::NodeApplied(Node { labels, ..node("a", 4) }), Time(0));
    let mut verdict = |name: &str, pools: &[&str]| {
        let shape = PodShape { requests: gpus(4), ..PodShape::default() };
        let job = Workload::job(&"t".into(), &name.into(), 1, shape, Time(0));
        let pools = pools.iter().map(|pool| (*pool).into()).collect();
        let id = job.id.clone();
        engine.apply(Event::workload(Workload { pools, ..job }), Time(0));
        engine.plan(Time(0));
        engine.verdict(&id).expect("a verdict")
    };
    let runs = verdict("first", &["a100"]);
    assert_eq!(runs.state, State::Running);
    let waits = verdict("second", &["a100", DEFAULT_POOL]);
    assert!(!waits.never && waits.reason == Reason::NoRoom, "{waits:?}");
    let never = verdict("third", &[DEFAULT_POOL]);
    assert!(never.never && never.reason == Reason::TeamLimit, "{never:?}");
}

#[test]
fn closed_nodes_count_for_a_topology_by_the_value_of_its_label() {
    let mut engine = Engine::new();
    engine.apply(Event::TeamApplied(team("t", None, 16, None)), Time(0));
    let rack = |number: i64| Name::from(format!("r{}", number / 2));
    for number in 0..4 {
        let node = node(&format!("n{number}"), 4);
        // The nodes of the second rack are closed, and one of the first.
        let labels = [("rack".into(), rack(number))].into();
        engine.apply(Event::NodeApplied(Node { labels, schedulable: number == 0, ..node }), Time(0));
    }
    let mut said = |pods: u32| {
        let shape = PodShape { requests: gpus(4), ..PodShape::default() };
        let workload = Workload::job(&"t".into(), &"gang".into(), pods, shape, Time(0));
        let topology = Topology { required: Some("rack".into()), ..Topology::default() };
        let id = workload.id.clone();
        engine.apply(Event::workload(Workload { topology, ..workload }), Time(0));
        engine.plan(Time(0));
        let said = engine.verdict(&id).expect("a verdict").message;
        engine.apply(Event::WorkloadRemoved(id), Time(0));
        said
    };
    assert_eq!(
        said(2),
        "Cannot start before closed nodes of pool default are open again: the matching open nodes of pool \
         default with one value of rack hold at most 1 of its 2 pods."
    );
    assert_eq!(
        said(3),
        "Can never start: the matching nodes of pool default with one value of rack hold at most 1 of its 3 pods."
    );
}

#[test]
fn what_asks_for_nothing_that_quotas_list_neither_borrows_nor_uses_a_guarantee() {
    // Like a pod without the annotation that allows its eviction.
    let bare_pod = |workload: &mut Workload| {
        (workload.kind, workload.resumable, workload.expendable) = (WorkloadKind::Pod, false, false);
    };
    let as_it_is = |_: &mut Workload| {};
    let asks_cpu = |workload: &mut Workload| {
        let requests = [("cpu".into(), Amount::units(2))].into();
        workload.shape = PodShape { requests, ..PodShape::default() }.into();
    };
    /// What a workload asks for, what is said of its start, and what while it runs.
    type Case = (fn(&mut Workload), &'static str, &'static str);
    let changes: [Case; 3] = [
        (
            as_it_is,
            "nothing that a quota of pool default lists, so it can be preempted while its team borrows.",
            "It asks for nothing that they list, so it can be preempted while its team borrows.",
        ),
        (bare_pod, "nothing that a quota of pool default lists.", "It asks for nothing that they list."),
        (
            asks_cpu,
            "2 CPUs, which no quota of pool default lists, so it can be preempted while its team borrows.",
            "It asks for nothing that they list, so it can be preempted while its team borrows.",
        ),
    ];
    for (change, started, runs) in changes {
        let mut world = World::new(&[4], vec![team("t", None, 2, None)]);
        let cpu = node("n0", 4);
        let allocatable = cpu.allocatable.into_iter().chain([("cpu".into(), Amount::units(8))]).collect();
        world.engine.apply(Event::NodeApplied(Node { allocatable, ..node("n0", 4) }), world.now);
        let id = world.submit(&"t".into(), "train", 0, 1, 0);
        world.edit(&id, change);
        let actions = world.plan();
        let [Action::Admit { message, .. }] = &actions[..] else { panic!("not admitted: {actions:?}") };
        assert_eq!(message, started);
        world.deliver(0, true);
        let verdict = world.engine.verdict(&id).expect("a verdict");
        assert_eq!(
            verdict.message,
            format!("Runs outside all quotas of pool default (pods by node: n0: 1). {runs}")
        );
        assert!(world.engine.is_outside_quotas(&id));
    }
    // A team without a guarantee of what others have one of borrows.
    let mut world = World::new(&[4], vec![team("t", None, 2, None), team("u", None, 0, None)]);
    let id = world.submit(&"u".into(), "train", 0, 1, 1);
    world.settle_now();
    let verdict = world.engine.verdict(&id).expect("a verdict");
    assert!(verdict.message.starts_with("Runs on borrowed capacity"), "{}", verdict.message);
    assert!(!world.engine.is_outside_quotas(&id));
}
