//! Where an elastic workload starts with pods that must share a domain. That it has the most pods that one domain holds is a property in
//! [`super::placement`]; here are the bounds on that number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::Engine;
use sluice_engine::replay::{Life, Run};
use sluice_engine::types::{
    Event, Name, Observed, Operator, PodSelector, PodShape, PodTerm, Profile, Queue, Requirement, Team, Time,
    Topology, Workload, WorkloadId,
};

use super::world::{gpus, node, team};

const RACK: &str = "rack";

/// Nodes `n0`, `n1` and so on, each in a rack of its own, with so many GPUs.
fn racks(sizes: &[i64], teams: impl IntoIterator<Item = Team>) -> Run {
    let mut run = Run::new(Engine::new(), Time(0));
    for (number, size) in sizes.iter().enumerate() {
        let mut node = node(&format!("n{number}"), *size);
        node.labels.insert(RACK.into(), format!("r{number}").into());
        run.apply(Event::NodeApplied(node));
    }
    teams.into_iter().for_each(|team| run.apply(Event::TeamApplied(team)));
    run
}

fn job(team: &str, name: &str, pods: u32) -> Workload {
    let shape = PodShape { requests: gpus(1), ..PodShape::default() };
    Workload::job(&team.into(), &name.into(), pods, shape, Time(0))
}

fn in_one_rack(workload: Workload) -> Workload {
    Workload { topology: Topology { required: Some(RACK.into()), preferred: None }, ..workload }
}

/// A job that runs with one pod or more, all in one rack.
fn elastic(team: &str, pods: u32) -> Workload {
    Workload { min_pods: Some(1), resizable: true, ..in_one_rack(job(team, "elastic", pods)) }
}

/// Submits a workload that runs until it is stopped, and returns its pods by node.
fn submit(run: &mut Run, workload: Workload) -> BTreeMap<Name, u32> {
    let id = workload.id.clone();
    run.submit(workload, Life::default());
    run.settle(&mut |_, _| {}).expect("decisions come to rest");
    nodes_of(run, &id)
}

fn nodes_of(run: &Run, id: &WorkloadId) -> BTreeMap<Name, u32> {
    match run.workload(id).map(|workload| &workload.state) {
        Some(Observed::Admitted(admission)) => admission.nodes.clone(),
        _ => BTreeMap::new(),
    }
}

fn on(node: &str, pods: u32) -> BTreeMap<Name, u32> {
    BTreeMap::from([(node.into(), pods)])
}

#[test]
fn a_larger_rack_is_taken_only_for_pods_that_the_quota_allows() {
    let limited = |limit| racks(&[4, 2], [team("t", None, 0, limit)]);
    assert_eq!(submit(&mut limited(None), elastic("t", 4)), on("n0", 4));
    assert_eq!(submit(&mut limited(Some(3)), elastic("t", 4)), on("n0", 3));
    assert_eq!(submit(&mut limited(Some(2)), elastic("t", 4)), on("n1", 2), "the tighter rack of two");
    let queue = Queue { limit: gpus(2), ..Queue::fallback() };
    let capped = Team { queues: vec![queue], ..team("t", None, 0, None) };
    assert_eq!(submit(&mut racks(&[4, 2], [capped]), elastic("t", 4)), on("n1", 2), "the queue allows two");
}

#[test]
fn an_affinity_to_its_own_pods_binds_like_a_required_topology() {
    let requirement = Requirement { key: "app".into(), operator: Operator::In, values: vec!["own".into()] };
    let pods = PodSelector { namespaces: BTreeSet::from(["t".into()]), labels: vec![requirement] };
    let profile = Profile {
        namespace: "t".into(),
        labels: [("app".into(), "own".into())].into_iter().collect(),
        together: vec![PodTerm { topology_key: RACK.into(), pods }],
        ..Profile::default()
    };
    let joined = Workload { profile: Arc::new(profile), topology: Topology::default(), ..elastic("t", 4) };
    assert_eq!(submit(&mut racks(&[4, 1], [team("t", None, 0, None)]), joined), on("n0", 4));
}

/// One GPU of the large rack is busy for an hour, and the owner of a reservation waits for all four.
fn with_a_reservation(owner: &str, teams: [Team; 2]) -> Run {
    let mut run = racks(&[4, 1], teams);
    let hour = Duration::from_secs(3_600);
    let mut busy = Workload { time_limit: Some(hour), ..job(owner, "busy", 1) };
    Arc::make_mut(&mut busy.shape).node_selector.insert(RACK.into(), "r0".into());
    run.submit(busy, Life { run: Some(hour), ..Life::default() });
    run.settle(&mut |_, _| {}).expect("decisions come to rest");
    assert_eq!(submit(&mut run, in_one_rack(job(owner, "owner", 4))), BTreeMap::new());
    run
}

#[test]
fn pods_are_not_counted_on_reserved_capacity() {
    let teams = || [team("t", None, 0, None), team("u", None, 0, None)];
    let mut run = with_a_reservation("t", teams());
    assert_eq!(submit(&mut run, elastic("t", 3)), on("n1", 1), "before the owner, and its growth behind it");
    let late = Workload { submitted: Time(1), ..elastic("t", 3) };
    assert_eq!(submit(&mut with_a_reservation("t", teams()), late), on("n1", 1), "behind the owner");
    let teams = || [team("t", None, 3, None), team("u", None, 0, None)];
    let mut run = with_a_reservation("u", teams());
    assert_eq!(submit(&mut run, elastic("t", 3)), on("n1", 1), "within guarantee, before a borrower's");
}

#[test]
fn no_workload_is_evicted_for_more_pods() {
    let mut run = racks(&[4, 1], [team("t", None, 4, None), team("u", None, 0, None)]);
    let borrows = in_one_rack(job("u", "borrows", 4));
    let id = borrows.id.clone();
    assert_eq!(submit(&mut run, borrows), on("n0", 4));
    assert_eq!(submit(&mut run, elastic("t", 4)), on("n1", 1));
    assert_eq!(nodes_of(&run, &id), on("n0", 4));
}
