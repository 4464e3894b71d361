//! Pods without a Job, single and in groups. They cannot be queued again: an eviction ends them.

use sluice_engine::Engine;
use sluice_engine::replay::{Happening, Life, Run};
use sluice_engine::types::amount::Amount;
use sluice_engine::types::{Action, Reason, State};
use sluice_engine::types::{
    Admission, Event, Node, Observed, Pod, PodId, PodShape, Settings, Time, Topology, Unready, Workload,
    WorkloadId, WorkloadKind,
};

use super::world::{GPU, gpus, team};

fn node(name: &str, count: i64) -> Node {
    let mut allocatable = gpus(count);
    allocatable.insert("pods".into(), Amount::units(110));
    Node {
        name: name.into(),
        labels: [].into(),
        allocatable,
        taints: Vec::new(),
        schedulable: true,
        unreachable: None,
    }
}

/// A cluster of one pool: the GPUs of each node, and the guarantee of each team.
fn engine(nodes: &[i64], teams: &[(&str, i64)]) -> Engine {
    let mut engine = Engine::new();
    for (index, count) in nodes.iter().enumerate() {
        engine.apply(Event::NodeApplied(node(&format!("n{index}"), *count)), Time(0));
    }
    for (name, guaranteed) in teams {
        engine.apply(Event::TeamApplied(team(name, None, *guaranteed, None)), Time(0));
    }
    engine
}

fn pod(team: &str, name: &str, count: i64) -> Workload {
    Workload {
        id: id(&format!("{team}/{name}")),
        kind: WorkloadKind::Pod,
        namespace: team.into(),
        name: name.into(),
        team: team.into(),
        queue: Some("train".into()),
        priority: 0,
        submitted: Time(0),
        pods: 1,
        min_pods: None,
        shape: PodShape { requests: gpus(count), ..PodShape::default() }.into(),
        sizes: Vec::new(),
        profile: std::sync::Arc::default(),
        topology: Topology::default(),
        user: None,
        pools: Vec::new(),
        resumable: false,
        expendable: false,
        resizable: false,
        time_limit: None,
        last_checkpoint: None,
        checkpoint_interval: None,
        grace: std::time::Duration::ZERO,
        ran: None,
        failed_pods: 0,
        evicted_for_fair_share: false,
        evicted: None,
        hold: false,
        order: 0,
        team_order: 0,
        requeue: None,
        state: Observed::Queued,
    }
}

fn group(team: &str, name: &str, pods: u32) -> Workload {
    Workload { kind: WorkloadKind::PodGroup, pods, ..pod(team, name, 1) }
}

fn id(text: &str) -> WorkloadId {
    WorkloadId(text.into())
}

/// Runs a scheduling cycle and reports every admitted workload as running.
fn carry_out(engine: &mut Engine, known: &[&Workload], now: Time) -> Vec<Action> {
    let actions = engine.plan(now).actions;
    for action in &actions {
        if let Action::Admit { workload, admission, .. } = action {
            let admitted = known.iter().find(|known| known.id == *workload).expect("a submitted workload");
            let state = Observed::Admitted(admission.clone());
            engine.apply(Event::workload(Workload { state, ..(*admitted).clone() }), now);
        }
    }
    actions
}

#[test]
fn a_pod_is_evicted_only_if_its_user_lets_it() {
    for expendable in [true, false] {
        let mut engine = engine(&[2], &[("a", 0), ("b", 2)]);
        let borrower = Workload { expendable, ..pod("a", "borrower", 2) };
        engine.apply(Event::workload(borrower.clone()), Time(0));
        let started = carry_out(&mut engine, &[&borrower], Time(0));
        assert_eq!(
            started.len(),
            usize::from(expendable),
            "a pod that may not be evicted must fit the guarantee"
        );
        if expendable {
            let owner = pod("b", "owner", 2);
            engine.apply(Event::workload(owner), Time(1000));
            let actions = carry_out(&mut engine, &[], Time(1000));
            assert!(
                matches!(&actions[..], [Action::Evict { workload, .. }] if *workload == borrower.id),
                "{actions:?}"
            );
        } else {
            let reason = engine.verdict(&borrower.id).expect("a verdict").reason;
            assert_eq!(reason, Reason::NotPreemptibleOverGuarantee);
        }
    }
}

#[test]
fn a_job_of_no_pods_waits_for_its_user_to_scale_it_up() {
    let mut engine = engine(&[2], &[("a", 2)]);
    let job = |pods, state| Workload { kind: WorkloadKind::Job, pods, state, ..pod("a", "j", 1) };
    let mut says = |job: &Workload| {
        engine.apply(Event::workload(job.clone()), Time(0));
        let verdict = engine.verdict(&job.id).expect("a verdict");
        (verdict.reason, verdict.message)
    };
    let (suspended, scaled) = (says(&job(2, Observed::OnHold)), says(&job(0, Observed::OnHold)));
    assert_eq!(suspended, (Reason::HeldByUser, "On hold: suspended by its user.".to_owned()));
    let sentence = "On hold: asks for no pods and waits for its user to scale it up.";
    assert_eq!(scaled, (Reason::HeldByUser, sentence.to_owned()));
    let admission = Admission {
        pool: "default".into(),
        nodes: [("n0".into(), 2)].into(),
        pods: 2,
        borrowed: false,
        share: None,
        spared: false,
        unfunded: false,
        at: Time(0),
    };
    let none = Admission { nodes: [].into(), pods: 0, ..admission.clone() };
    let runs = |nodes: &str| format!("within the guarantee of pool default ({nodes}).");
    for (pods, admission, message) in [
        (2, &admission, format!("Runs {}", runs("pods by node: n0: 2"))),
        (
            0,
            &admission,
            format!(
                "Runs no pods: its user scaled it to none. It stays admitted {}",
                runs("charged pods by node: n0: 2")
            ),
        ),
        (
            0,
            &none,
            format!(
                "Runs no pods: its user scaled it to none. It stays admitted {}",
                runs("charged pods by node: none")
            ),
        ),
    ] {
        let said = says(&job(pods, Observed::Admitted(admission.clone())));
        assert_eq!(said, (Reason::Guaranteed, message));
    }
    let (job, node) = (WorkloadId("a/j".into()), Some("n0".into()));
    let live = Pod {
        id: PodId("p".into()),
        workload: Some(job.clone()),
        node,
        requests: gpus(1),
        profile: None,
        unadmitted: None,
    };
    engine.apply(Event::PodApplied(live), Time(0));
    let message = engine.verdict(&job).expect("a verdict").message;
    assert!(message.starts_with("Its user scaled it to none; 1 of its pods still run or end."), "{message}");
}

#[test]
fn a_refused_eviction_is_in_the_verdict_of_its_preemptor() {
    let mut engine = engine(&[2], &[("a", 0), ("b", 2)]);
    let borrower = Workload { expendable: true, ..pod("a", "borrower", 2) };
    engine.apply(Event::workload(borrower.clone()), Time(0));
    carry_out(&mut engine, &[&borrower], Time(0));
    engine.apply(Event::workload(pod("b", "owner", 2)), Time(1000));
    carry_out(&mut engine, &[], Time(1000));
    let message = "a budget allows no disruption".to_owned();
    engine.apply(Event::WriteFailed { workload: borrower.id.clone(), message }, Time(1001));
    assert!(engine.plan(Time(1001)).actions.is_empty(), "the eviction pauses");
    let sentence = "The API server refused the eviction of a/borrower; it is tried again.";
    let reports_refusal = |engine: &Engine| {
        let verdict = engine.verdict(&id("b/owner")).expect("a verdict");
        assert_eq!(verdict.reason, Reason::WaitingForEviction);
        assert!(verdict.message.ends_with(sentence), "{}", verdict.message);
    };
    reports_refusal(&engine);
    let again = engine.next_deadline().expect("a second attempt is due");
    let actions = engine.plan(again).actions;
    assert!(matches!(&actions[..], [Action::Evict { .. }]), "{actions:?}");
    // The sentence stays while the second attempt is under way.
    reports_refusal(&engine);
}

#[test]
fn a_workload_with_unknown_requests_is_not_in_the_queue() {
    let mut engine = engine(&[4], &[("a", 4)]);
    let unready = Observed::Unready(Unready::Uncounted("there is no such template".into()));
    let open = Workload { state: unready, ..group("a", "g", 1) };
    engine.apply(Event::workload(open.clone()), Time(0));
    assert!(engine.plan(Time(0)).actions.is_empty());
    let verdict = engine.verdict(&open.id).expect("a verdict");
    assert_eq!((verdict.state, verdict.reason), (State::Pending, Reason::Uncounted));
    assert_eq!(verdict.message, "Its requests cannot be counted: there is no such template");
    engine.apply(Event::workload(group("a", "g", 1)), Time(1));
    assert!(matches!(&engine.plan(Time(1)).actions[..], [Action::Admit { .. }]));
}

#[test]
fn a_group_waits_until_all_of_its_pods_are_there() {
    let mut engine = engine(&[4], &[("a", 4)]);
    let missing = |there| Observed::Unready(Unready::Missing { there, of: 3 });
    let partly = Workload { state: missing(2), ..group("a", "g", 2) };
    engine.apply(Event::workload(partly.clone()), Time(0));
    assert!(engine.plan(Time(0)).actions.is_empty());
    let verdict = engine.verdict(&partly.id).expect("a verdict");
    assert_eq!((verdict.state, verdict.reason), (State::Pending, Reason::Incomplete));
    assert_eq!(verdict.message, "2 of 3 pods exist; they start all or none.");
    let whole = group("a", "g", 3);
    engine.apply(Event::workload(whole.clone()), Time(1));
    let actions = engine.plan(Time(1)).actions;
    assert!(matches!(&actions[..], [Action::Admit { admission, .. }] if admission.pods == 3), "{actions:?}");
    // One pod disappears while the admission is written. The admission stands and is not decided twice.
    engine.apply(Event::workload(partly.clone()), Time(2));
    assert!(engine.plan(Time(2)).actions.is_empty());
    assert_eq!(engine.teams()[0].used[GPU].to_string(), "2");
    let refused = Event::WriteFailed { workload: partly.id.clone(), message: "no".to_owned() };
    engine.apply(refused, Time(3));
    assert_eq!(engine.verdict(&partly.id).expect("a verdict").reason, Reason::Incomplete);
    assert!(engine.plan(Time(100_000)).actions.is_empty(), "an incomplete group is not in the queue");
}

#[test]
fn the_rest_of_a_group_runs_on_without_its_lost_pods() {
    let mut run = Run::new(Engine::with_settings(Settings::default()), Time(0));
    for (name, count) in [("n0", 2), ("n1", 2)] {
        run.apply(Event::NodeApplied(node(name, count)));
    }
    run.apply(Event::TeamApplied(team("a", None, 4, None)));
    let life = Life { run: Some(std::time::Duration::from_secs(60)), ..Life::default() };
    run.submit(group("a", "g", 4), life);
    run.advance(Time(5_000), &mut |_, _| ()).expect("decisions come to rest");
    assert_eq!(run.engine().nodes().iter().map(|node| node.workloads.len()).sum::<usize>(), 2);
    run.apply(Event::NodeRemoved("n1".into()));
    run.forgo(&id("a/g"), 0);
    run.advance(Time(6_000), &mut |_, _| ()).expect("decisions come to rest");
    // A new node does not bring back the pods of the lost one.
    run.apply(Event::NodeApplied(node("n1", 2)));
    run.advance(Time(7_000), &mut |_, _| ()).expect("decisions come to rest");
    let left: Vec<u32> =
        run.engine().nodes().iter().flat_map(|node| &node.workloads).map(|(_, pods)| *pods).collect();
    assert_eq!(left, [1]);
    let mut ends = Vec::new();
    run.advance(Time(100_000), &mut |at, happening| ends.push((at.0, format!("{happening:?}"))))
        .expect("decisions come to rest");
    assert!(matches!(&ends[..], [(60_000, happening)] if happening.starts_with("Finished")), "{ends:?}");
    assert!(run.workload(&id("a/g")).is_none());
}

#[test]
fn a_group_ends_with_its_last_pod() {
    let mut run = Run::new(engine(&[4], &[("a", 4)]), Time(0));
    run.submit(group("a", "g", 2), Life::default());
    run.advance(Time(1), &mut |_, _| ()).expect("decisions come to rest");
    run.forgo(&id("a/g"), 0);
    run.forgo(&id("a/g"), 1);
    let mut gone = 0;
    run.advance(Time(2), &mut |_, happening| {
        gone += u32::from(matches!(happening, Happening::PodsGone { .. }));
    })
    .expect("decisions come to rest");
    assert_eq!(gone, 1);
    assert!(run.workload(&id("a/g")).is_none());
    assert_eq!(run.engine().nodes()[0].free[GPU].to_string(), "4");
}
