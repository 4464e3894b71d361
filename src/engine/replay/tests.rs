use std::time::Duration;

use super::*;
use crate::types::Admission;
use crate::types::Node;
use crate::types::PodShape;
use crate::types::Queue;
use crate::types::Quota;
use crate::types::Settings;
use crate::types::Team;
use crate::types::WorkloadKind;
use crate::types::amount::Amount;
use crate::types::amount::ResourceList;

const GPU: &str = "nvidia.com/gpu";

fn gpus(count: i64) -> ResourceList {
    ResourceList::from([(GPU.into(), Amount::units(count))])
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn at(second: i64) -> Time {
    Time(second * 1000)
}

fn node(name: &str, count: i64) -> Event {
    Event::NodeApplied(Node {
        name: name.into(),
        labels: BTreeMap::new(),
        allocatable: gpus(count),
        taints: Vec::new(),
        schedulable: true,
        unreachable: None,
    })
}

fn team(name: &str, guaranteed: i64) -> Event {
    let quota = Quota { guaranteed: gpus(guaranteed), ..Quota::default() };
    Event::TeamApplied(Team {
        name: name.into(),
        parent: None,
        quotas: BTreeMap::from([("default".into(), quota)]),
        weight: 1,
        queues: vec![Queue::fallback()],
        fair_users: false,
        budget: None,
    })
}

fn workload(team: &str, name: &str, pods: u32, each: i64) -> Workload {
    let shape = PodShape { requests: gpus(each), ..PodShape::default() };
    Workload { resizable: true, ..Workload::job(&team.into(), &name.into(), pods, shape, Time(0)) }
}

fn life(run: u64) -> Life {
    Life { run: Some(seconds(run)), ..Life::default() }
}

/// Two teams with a guarantee of two GPUs each, and nodes with so many.
fn world(nodes: &[i64]) -> Run {
    let mut run = Run::new(Engine::with_settings(Settings::default()), Time(0));
    for (index, count) in nodes.iter().enumerate() {
        run.apply(node(&format!("n{index}"), *count));
    }
    run.apply(team("a", 2));
    run.apply(team("b", 2));
    run
}

/// All that happens up to a second, in short words.
fn told(run: &mut Run, to: i64) -> Vec<String> {
    let mut told = Vec::new();
    let mut on = |at: Time, happening: &Happening| {
        let what = match happening {
            Happening::Admitted { admission, .. } => format!("starts {}", spread(admission)),
            Happening::Resized { admission, .. } => format!("has {}", spread(admission)),
            Happening::Evicted { lost, .. } => format!("evicted, {} pod-seconds lost", lost.as_secs()),
            Happening::PodsGone { .. } => "gone".to_owned(),
            Happening::PodsLost { node, pods, .. } => format!("loses {pods} on {node}"),
            Happening::Failed { code, .. } => format!("failed {code}"),
            Happening::Finished { ran, .. } => format!("done after {}", ran.as_secs()),
        };
        told.push(format!("{} {} {what}", at.0 / 1000, happening.workload()));
    };
    run.advance(crate::replay::tests::at(to), &mut on).expect("the decisions come to rest");
    told
}

fn spread(admission: &Admission) -> String {
    let nodes: Vec<String> = admission.nodes.iter().map(|(node, pods)| format!("{node}={pods}")).collect();
    nodes.join(",")
}

#[test]
fn who_waits_starts_when_somebody_ends() {
    let mut run = world(&[2]);
    run.submit(workload("a", "x", 2, 1), life(60));
    run.submit(workload("a", "y", 1, 2), life(5));
    assert_eq!(
        told(&mut run, 1000),
        ["0 a/x starts n0=2", "60 a/x done after 60", "60 a/y starts n0=1", "65 a/y done after 5"]
    );
    assert_eq!(run.next(), None);
    assert_eq!(run.engine().nodes()[0].free, gpus(2));
}

#[test]
fn completions_beyond_the_pods_run_in_waves_on_the_same_places() {
    let mut run = world(&[2]);
    run.submit(workload("a", "x", 2, 1), Life { completions: Some(5), ..life(10) });
    run.submit(workload("a", "y", 1, 1), life(1));
    assert_eq!(
        told(&mut run, 1000),
        [
            "0 a/x starts n0=2",
            "22 a/x has n0=1",
            "22 a/y starts n0=1",
            "23 a/y done after 1",
            "30 a/x done after 30"
        ]
    );
}

#[test]
fn pods_that_have_succeeded_stay_done_and_leave_their_room() {
    let mut run = world(&[4]);
    run.submit(workload("a", "x", 4, 1), Life { completions: Some(6), ..life(10) });
    assert_eq!(told(&mut run, 14), ["0 a/x starts n0=4"]);
    // Four of six are done, so the two that are left use half of the node.
    run.submit(Workload { submitted: at(14), ..workload("b", "y", 2, 1) }, life(20));
    assert_eq!(told(&mut run, 14), ["14 a/x has n0=2", "14 b/y starts n0=2"]);
    assert_eq!(told(&mut run, 100), ["20 a/x done after 20", "34 b/y done after 20"]);
}

#[test]
fn completions_survive_an_eviction() {
    let mut run = world(&[4]);
    run.submit(workload("a", "x", 4, 1), Life { completions: Some(7), ..life(10) });
    assert_eq!(told(&mut run, 12), ["0 a/x starts n0=4"]);
    run.submit(Workload { submitted: at(12), ..workload("b", "z", 1, 2) }, life(8));
    assert_eq!(
        told(&mut run, 100),
        [
            "12 a/x has n0=3",
            "12 a/x evicted, 6 pod-seconds lost",
            "12 a/x gone",
            "12 b/z starts n0=1",
            "20 b/z done after 8",
            "20 a/x starts n0=3",
            "30 a/x done after 10",
        ]
    );
}

#[test]
fn an_evicted_workload_starts_anew_from_its_queue() {
    let mut run = world(&[4]);
    run.submit(workload("a", "x", 1, 4), Life { grace: seconds(3), ..life(10) });
    assert_eq!(told(&mut run, 4), ["0 a/x starts n0=1"]);
    run.submit(Workload { submitted: at(4), ..workload("b", "y", 1, 2) }, life(20));
    assert_eq!(
        told(&mut run, 100),
        [
            "4 a/x evicted, 4 pod-seconds lost",
            "7 a/x gone",
            "7 b/y starts n0=1",
            "27 b/y done after 20",
            "27 a/x starts n0=1",
            "37 a/x done after 10",
        ]
    );
}

#[test]
fn what_was_saved_is_not_lost() {
    let mut run = world(&[4]);
    let saving = Workload { checkpoint_interval: Some(seconds(3)), ..workload("a", "x", 2, 2) };
    run.submit(saving, life(100));
    assert_eq!(told(&mut run, 4), ["0 a/x starts n0=2"]);
    run.submit(Workload { submitted: at(4), ..workload("b", "y", 1, 2) }, Life::default());
    assert_eq!(told(&mut run, 4)[0], "4 a/x evicted, 2 pod-seconds lost");
}

#[test]
fn a_pod_of_its_own_is_gone_with_its_node() {
    let mut run = world(&[2]);
    let pod = Workload { kind: WorkloadKind::Pod, resumable: false, ..workload("a", "p", 1, 1) };
    run.submit(pod, life(60));
    assert_eq!(told(&mut run, 5), ["0 a/p starts n0=1"]);
    run.apply(Event::NodeRemoved("n0".into()));
    assert_eq!(told(&mut run, 100), ["5 a/p loses 1 on n0", "5 a/p failed NodeLost"]);
    assert!(run.workload(&WorkloadId("a/p".into())).is_none());
}

#[test]
fn each_run_has_a_deadline_of_its_own() {
    let mut run = world(&[4]);
    let id = WorkloadId("a/x".into());
    run.submit(workload("a", "x", 1, 4), life(60));
    run.set_deadline(&id, Some(seconds(30)));
    assert_eq!(told(&mut run, 20), ["0 a/x starts n0=1"]);
    run.submit(Workload { submitted: at(20), ..workload("b", "y", 1, 2) }, life(5));
    assert_eq!(
        told(&mut run, 100),
        [
            "20 a/x evicted, 20 pod-seconds lost",
            "20 a/x gone",
            "20 b/y starts n0=1",
            "25 b/y done after 5",
            "25 a/x starts n0=1",
            "55 a/x failed DeadlineExceeded",
            "55 a/x gone",
        ]
    );
    assert_eq!(run.next(), None);
}

#[test]
fn what_is_deleted_holds_its_room_for_its_grace() {
    let mut run = world(&[2]);
    run.submit(workload("a", "x", 1, 2), Life { grace: seconds(5), ..Life::default() });
    run.submit(workload("a", "y", 1, 2), Life::default());
    assert_eq!(told(&mut run, 1), ["0 a/x starts n0=1"]);
    run.delete(&WorkloadId("a/x".into()));
    assert_eq!(told(&mut run, 100), ["6 a/x gone", "6 a/y starts n0=1"]);
}

#[test]
fn what_its_user_holds_back_stops_and_starts_again_when_let_go() {
    let mut run = world(&[2]);
    run.submit(workload("a", "x", 1, 1), life(10));
    assert_eq!(told(&mut run, 5), ["0 a/x starts n0=1"]);
    run.submit(Workload { state: Observed::OnHold, ..workload("a", "x", 1, 1) }, life(10));
    assert_eq!(told(&mut run, 20), [""; 0]);
    assert_eq!(run.engine().nodes()[0].free, gpus(2));
    run.submit(workload("a", "x", 1, 1), life(10));
    assert_eq!(told(&mut run, 100), ["20 a/x starts n0=1", "30 a/x done after 10"]);
}

#[test]
fn changes_of_one_instant_are_decided_on_together() {
    let mut run = world(&[2]);
    run.submit(workload("a", "x", 1, 2), life(10));
    run.submit(Workload { priority: -1, ..workload("a", "late", 1, 2) }, life(10));
    let mut admitted = Vec::new();
    run.reach(at(10), &mut |_, _| ()).expect("rest");
    run.submit(Workload { submitted: at(10), ..workload("a", "first", 1, 2) }, life(10));
    run.settle(&mut |_, happening| admitted.push(happening.workload().to_string())).expect("rest");
    assert_eq!(admitted, ["a/first"]);
}

#[test]
fn a_copy_of_a_running_engine_plays_on_and_leaves_the_original_alone() {
    let mut run = world(&[2]);
    run.submit(workload("a", "x", 2, 1), Life::default());
    run.submit(workload("a", "y", 1, 2), Life::default());
    assert_eq!(told(&mut run, 30), ["0 a/x starts n0=2"]);
    let mut forecast = Run::new(run.engine().clone(), run.now());
    for (id, seconds) in [("a/x", 90), ("a/y", 7)] {
        forecast.adopt(&WorkloadId(id.into()), life(seconds));
    }
    assert_eq!(
        told(&mut forecast, 1000),
        ["90 a/x done after 90", "90 a/y starts n0=1", "97 a/y done after 7"]
    );
    assert_eq!(told(&mut run, 1000), [""; 0]);
}

#[test]
fn a_forecast_puts_off_what_only_the_age_of_a_victim_calls_for() {
    let mut run = world(&[2]);
    let Event::TeamApplied(lender) = team("c", 0) else { panic!("a team") };
    let queues = vec![Queue { min_runtime: seconds(1000), ..Queue::fallback() }];
    run.apply(Event::TeamApplied(Team { queues, ..lender }));
    run.apply(team("d", 0));
    run.submit(workload("c", "x", 1, 1), Life::default());
    run.submit(workload("c", "y", 1, 1), Life::default());
    assert_eq!(told(&mut run, 7), ["0 c/x starts n0=1", "0 c/y starts n0=1"]);
    run.submit(Workload { submitted: at(7), ..workload("d", "z", 1, 1) }, life(10));
    assert_eq!(told(&mut run, 40), [""; 0]);
    let mut forecast = Run::new(run.engine().clone(), at(40)).with_rough_ages();
    assert_eq!((told(&mut run, 999), told(&mut forecast, 1000)), (vec![], vec![]));
    assert_eq!(told(&mut run, 1000)[2], "1000 d/z starts n0=1");
    assert_eq!(told(&mut forecast, 1060)[2], "1023 d/z starts n0=1");
}
