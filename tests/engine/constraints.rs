//! Constraints between pods: required affinity, anti-affinity and spread. The judge of the property binds the pods one
//! after another as kube-scheduler would, in a state of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use sluice_engine::Engine;
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{
    Action, Admission, Event, Name, Node, Observed, Operator, Pod, PodId, PodSelector, PodShape, PodTerm,
    Profile, Reason, Requirement, SpreadTerm, Time, Workload, WorkloadId,
};

use super::world::{GPU, team};

const HOST: &str = "kubernetes.io/hostname";
const ZONE: &str = "zone";

fn gpus(count: i64) -> ResourceList {
    [(GPU.into(), Amount::units(count))].into()
}

fn node(number: usize, zone: Option<usize>, gpus_there: i64) -> Node {
    let name: Name = format!("n{number:02}").into();
    let mut labels = BTreeMap::from([(Name::from(HOST), name.clone())]);
    labels.extend(zone.map(|zone| (Name::from(ZONE), Name::from(format!("z{zone}")))));
    Node {
        name,
        labels,
        allocatable: gpus(gpus_there),
        taints: Vec::new(),
        schedulable: true,
        unreachable: None,
    }
}

/// Selects the pods of namespace `t` with this value of the label `app`.
fn app(value: &str) -> PodSelector {
    let requirement = Requirement { key: "app".into(), operator: Operator::In, values: vec![value.into()] };
    PodSelector { namespaces: BTreeSet::from(["t".into()]), labels: vec![requirement] }
}

fn term(key: &str, value: &str) -> PodTerm {
    PodTerm { topology_key: key.into(), pods: app(value) }
}

fn skew(key: &str, value: &str, max_skew: u32) -> SpreadTerm {
    SpreadTerm {
        topology_key: key.into(),
        max_skew,
        min_domains: 1,
        pods: app(value),
        ..SpreadTerm::default()
    }
}

fn profile(value: &str) -> Profile {
    Profile {
        namespace: "t".into(),
        labels: [("app".into(), value.into())].into_iter().collect(),
        ..Profile::default()
    }
}

fn apart(key: &str, value: &str) -> Profile {
    Profile { apart: vec![Arc::new(term(key, value))], ..profile(value) }
}

/// An engine with running workloads, in which every decision is carried out at once.
struct Cluster {
    engine: Engine,
    now: Time,
    running: BTreeMap<WorkloadId, (Workload, Admission)>,
    waiting: BTreeMap<WorkloadId, Workload>,
    evicted: usize,
}

impl Cluster {
    fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        let mut engine = Engine::new();
        engine.apply(Event::TeamApplied(team("t", None, 1_000, None)), Time(0));
        engine.apply(Event::TeamApplied(team("u", None, 0, None)), Time(0));
        for node in nodes {
            engine.apply(Event::NodeApplied(node), Time(0));
        }
        Self { engine, now: Time(0), running: BTreeMap::new(), waiting: BTreeMap::new(), evicted: 0 }
    }

    fn job(&self, team: &str, name: &str, pods: u32, profile: Profile) -> Workload {
        let shape = PodShape { requests: gpus(1), ..PodShape::default() };
        let job = Workload::job(&team.into(), &name.into(), pods, shape, self.now);
        Workload { profile: Arc::new(profile), ..job }
    }

    /// Submits a workload and carries out every decision; returns its pods by node if it runs.
    fn submit(&mut self, name: &str, pods: u32, profile: Profile) -> Option<BTreeMap<String, u32>> {
        let job = self.job("t", name, pods, profile);
        self.submit_job(job)
    }

    fn submit_job(&mut self, job: Workload) -> Option<BTreeMap<String, u32>> {
        self.now = Time(self.now.0 + 1_000);
        let job = Workload { submitted: self.now, ..job };
        let id = job.id.clone();
        self.waiting.insert(id.clone(), job.clone());
        self.engine.apply(Event::workload(job), self.now);
        self.settle();
        self.nodes_of(&id)
    }

    fn nodes_of(&self, id: &WorkloadId) -> Option<BTreeMap<String, u32>> {
        let (_, admission) = self.running.get(id)?;
        Some(admission.nodes.iter().map(|(node, pods)| (node.to_string(), *pods)).collect())
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            let actions = self.engine.plan(self.now).actions;
            if actions.is_empty() && !self.engine.has_more() {
                return;
            }
            for action in actions {
                match action {
                    Action::Admit { workload: id, admission, .. } => {
                        let job = self.waiting.remove(&id).expect("only waiting workloads are admitted");
                        let job = Workload { state: Observed::Admitted(admission.clone()), ..job };
                        self.engine.apply(Event::workload(job.clone()), self.now);
                        self.running.insert(id, (job, admission));
                    }
                    Action::Evict { workload: id, .. } => {
                        self.evicted += 1;
                        let (job, _) = self.running.remove(&id).expect("only running workloads are evicted");
                        let job = Workload { state: Observed::Queued, ..job };
                        self.engine.apply(Event::workload(job.clone()), self.now);
                        self.waiting.insert(id, job);
                    }
                    other => panic!("not expected here: {other:?}"),
                }
            }
        }
        panic!("the decisions reach no end: {:?}", self.engine.plan(self.now).actions);
    }

    fn finish(&mut self, name: &str) {
        let id = WorkloadId(format!("t/{name}").into());
        self.running.remove(&id).expect("it runs");
        self.engine.apply(Event::WorkloadRemoved(id), self.now);
        self.settle();
    }

    fn why(&self, name: &str) -> (Reason, String) {
        let verdict = self.engine.verdict(&WorkloadId(format!("t/{name}").into())).expect("it is known");
        (verdict.reason, verdict.message)
    }
}

fn on(nodes: &[(&str, u32)]) -> Option<BTreeMap<String, u32>> {
    Some(nodes.iter().map(|(node, pods)| ((*node).to_owned(), *pods)).collect())
}

fn hosts(count: usize) -> Vec<Node> {
    (0..count).map(|number| node(number, Some(number / 2), 4)).collect()
}

#[test]
fn pods_apart_by_host_go_to_one_host_each() {
    let mut cluster = Cluster::new(hosts(4));
    assert_eq!(cluster.submit("pair", 2, apart(HOST, "x")), on(&[("n00", 1), ("n01", 1)]));
    assert_eq!(
        cluster.submit("next", 2, apart(HOST, "x")),
        on(&[("n02", 1), ("n03", 1)]),
        "of the same label"
    );
    assert_eq!(cluster.submit("third", 1, apart(HOST, "x")), None);
    let (reason, message) = cluster.why("third");
    assert_eq!(reason, Reason::Constrained);
    assert!(message.contains("its anti-affinity by kubernetes.io/hostname leaves 0 of 4 nodes"), "{message}");
    assert!(cluster.submit("other", 4, profile("y")).is_some(), "of another label");
    cluster.finish("pair");
    assert_eq!(cluster.running.len(), 3, "the third has started");
    assert_eq!(cluster.submit("many", 5, apart(HOST, "z")), None);
    let (reason, message) = cluster.why("many");
    assert_eq!(reason, Reason::NoNodeFits);
    assert!(message.contains("leaves 4 of 4 nodes, for 4 of its 5 pods"), "{message}");
    assert!(message.starts_with("Can never start: "), "{message}");
    let closed = Node { schedulable: false, ..node(4, Some(2), 4) };
    cluster.engine.apply(Event::NodeApplied(closed), cluster.now);
    assert_eq!(cluster.submit("more", 6, apart(HOST, "z")), None);
    let (_, message) = cluster.why("more");
    assert!(message.starts_with("Cannot start on the open nodes: "), "no promise: {message}");
    assert_eq!(cluster.evicted, 0);
}

#[test]
fn a_running_pod_repels_pods_without_constraints() {
    let mut cluster = Cluster::new(hosts(2));
    let lonely = Profile { apart: vec![Arc::new(term(ZONE, "noisy"))], ..profile("quiet") };
    // Both wait in one class until the pods that repel the second start.
    assert_eq!(cluster.submit("lonely", 1, lonely), on(&[("n00", 1)]));
    assert_eq!(cluster.submit("noisy", 1, profile("noisy")), None);
    let (reason, message) = cluster.why("noisy");
    assert_eq!(reason, Reason::Constrained);
    assert!(message.contains("the anti-affinity of other pods by zone leaves 0 of 2 nodes"), "{message}");
    assert!(cluster.submit("calm", 1, profile("calm")).is_some(), "behind it, not repelled");
    cluster.finish("lonely");
    assert!(cluster.nodes_of(&WorkloadId("t/noisy".into())).is_some());
}

#[test]
fn unmanaged_pods_count_by_their_labels() {
    let mut cluster = Cluster::new(hosts(2));
    let pod = |id: &str, profile: Profile| Pod {
        id: PodId(id.into()),
        workload: None,
        node: Some("n00".into()),
        requests: gpus(1),
        profile: Some(Arc::new(profile)),
        unadmitted: None,
    };
    cluster.engine.apply(Event::PodApplied(pod("p", profile("x"))), Time(0));
    assert_eq!(cluster.submit("apart", 1, apart(HOST, "x")), on(&[("n01", 1)]));
    let beside = Profile { together: vec![term(HOST, "x")], ..profile("y") };
    let foreign = Profile { namespace: "elsewhere".into(), ..apart(HOST, "y") };
    cluster.engine.apply(Event::PodApplied(pod("q", foreign)), Time(0));
    assert!(cluster.submit("beside", 1, beside).is_some(), "a term of another namespace selects none here");
}

#[test]
fn pods_with_affinity_follow_others_or_stay_together() {
    let mut cluster = Cluster::new(hosts(6));
    let behind = Profile { together: vec![term(ZONE, "lead")], ..profile("behind") };
    assert_eq!(cluster.submit("behind", 2, behind.clone()), None, "nothing to follow");
    assert_eq!(cluster.why("behind").0, Reason::Constrained);
    let mut lead = cluster.job("t", "lead", 1, profile("lead"));
    Arc::make_mut(&mut lead.shape).node_selector.insert(ZONE.into(), "z2".into());
    assert!(cluster.submit_job(lead).is_some());
    let nodes =
        cluster.nodes_of(&WorkloadId("t/behind".into())).expect("it starts beside the pod it follows");
    assert!(nodes.keys().all(|node| ["n04", "n05"].contains(&&**node)), "{nodes:?}");
    let family = Profile { together: vec![term(ZONE, "family")], ..profile("family") };
    let nodes = cluster.submit("family", 7, family.clone()).expect("the first goes anywhere");
    assert!(nodes.keys().all(|node| ["n00", "n01"].contains(&&**node)), "all in one zone: {nodes:?}");
    assert_eq!(cluster.submit("more", 2, family), None, "one is left in the zone of its family");
}

#[test]
fn pods_are_spread_over_hosts_and_zones() {
    let mut cluster = Cluster::new(hosts(2));
    let spread = |key, max| Profile { spread: vec![skew(key, "x", max)], ..profile("x") };
    assert_eq!(cluster.submit("pair", 2, spread(HOST, 1)), on(&[("n00", 1), ("n01", 1)]));
    assert_eq!(cluster.submit("four", 4, spread(HOST, 1)), on(&[("n00", 2), ("n01", 2)]));
    let mut cluster = Cluster::new(hosts(6));
    let both = Profile { spread: vec![skew(ZONE, "x", 1), skew(HOST, "x", 1)], ..profile("x") };
    let nodes = cluster.submit("six", 6, both).expect("one on each host");
    assert_eq!(nodes.len(), 6, "{nodes:?}");
    let mut cluster = Cluster::new([node(0, Some(0), 4), node(1, Some(1), 1)]);
    assert_eq!(cluster.submit("four", 4, spread(ZONE, 1)), None, "zone z1 takes one, so z0 takes two");
    let (_, message) = cluster.why("four");
    assert!(message.contains("its spread by zone leaves 2 of 2 nodes, for 3 of its 4 pods"), "{message}");
    assert_eq!(cluster.submit("three", 3, spread(ZONE, 1)), on(&[("n00", 2), ("n01", 1)]));
}

#[test]
fn a_pod_in_the_way_is_preempted_by_its_label() {
    let mut cluster = Cluster::new([node(0, None, 4)]);
    let borrower = Profile { labels: [("app".into(), "x".into())].into_iter().collect(), ..profile("x") };
    let borrower = Workload { team: "u".into(), ..cluster.job("u", "borrower", 1, borrower) };
    assert!(cluster.submit_job(borrower).is_some());
    assert_eq!(
        cluster.submit("owner", 1, apart(HOST, "x")),
        on(&[("n00", 1)]),
        "capacity is free, a label is not"
    );
    assert_eq!(cluster.evicted, 1);
}

#[test]
fn a_workload_moves_so_that_a_spread_pod_finds_its_domain() {
    let mut cluster =
        Cluster::new([node(0, Some(0), 3), node(1, None, 3), node(2, None, 3), node(3, None, 3)]);
    assert_eq!(cluster.submit("first", 3, profile("x")), on(&[("n00", 3)]));
    let spread = Profile { spread: vec![skew(ZONE, "x", 1)], ..profile("x") };
    assert_eq!(cluster.submit("second", 1, spread), on(&[("n00", 1)]), "the only node with a zone");
    assert_eq!(cluster.evicted, 1);
}

/// A random gang.
#[derive(Clone, Debug)]
struct Gang {
    label: usize,
    pods: u32,
    apart: Option<(bool, usize)>,
    together: Option<(bool, usize)>,
    spread: Vec<(bool, usize, u32)>,
}

fn key(host: bool) -> &'static str {
    if host { HOST } else { ZONE }
}

impl Gang {
    fn profile(&self) -> Profile {
        let label = |number: usize| format!("a{number}");
        Profile {
            apart: self.apart.iter().map(|(host, of)| Arc::new(term(key(*host), &label(*of)))).collect(),
            together: self.together.iter().map(|(host, of)| term(key(*host), &label(*of))).collect(),
            spread: self.spread.iter().map(|(host, of, max)| skew(key(*host), &label(*of), *max)).collect(),
            ..profile(&label(self.label))
        }
    }
}

fn gang() -> impl Strategy<Value = Gang> {
    let pods = 1..6_u32;
    let spread = prop::collection::vec((any::<bool>(), 0..3_usize, 1..3_u32), 0..2);
    let term = || prop::option::weighted(0.4, (any::<bool>(), 0..3_usize));
    (0..3_usize, pods, term(), prop::option::weighted(0.2, (any::<bool>(), 0..3_usize)), spread)
        .prop_map(|(label, pods, apart, together, spread)| Gang { label, pods, apart, together, spread })
}

/// The judge: pods that are bound, by node, in a state of its own.
#[derive(Clone, Default)]
struct Judge {
    nodes: Vec<Node>,
    bound: Vec<(usize, Profile)>,
}

impl Judge {
    fn value(&self, node: usize, key: &str) -> Option<&Name> {
        self.nodes[node].labels.get(key)
    }

    fn selects(pods: &PodSelector, profile: &Profile) -> bool {
        pods.namespaces.contains(&profile.namespace)
            && pods
                .labels
                .iter()
                .all(|one| one.values.iter().any(|value| profile.labels.get(&one.key) == Some(value)))
    }

    /// Whether kube-scheduler would bind a pod of this profile to a node beside those that are bound.
    fn allows(&self, node: usize, profile: &Profile) -> bool {
        let near = |other: usize, key: &str| {
            self.value(node, key).is_some_and(|value| self.value(other, key) == Some(value))
        };
        let repelled = self.bound.iter().any(|(other, bound)| {
            profile
                .apart
                .iter()
                .any(|term| Self::selects(&term.pods, bound) && near(*other, &term.topology_key))
                || bound
                    .apart
                    .iter()
                    .any(|term| Self::selects(&term.pods, profile) && near(*other, &term.topology_key))
        });
        let all = |bound: &Profile| profile.together.iter().all(|term| Self::selects(&term.pods, bound));
        let first = all(profile) && !self.bound.iter().any(|(_, bound)| all(bound));
        let followed = profile.together.iter().all(|term| {
            let beside =
                self.bound.iter().any(|(other, bound)| all(bound) && near(*other, &term.topology_key));
            self.value(node, &term.topology_key).is_some() && (first || beside)
        });
        !repelled && followed && profile.spread.iter().all(|term| self.is_even(node, profile, term))
    }

    fn is_even(&self, node: usize, profile: &Profile, term: &SpreadTerm) -> bool {
        let Some(domain) = self.value(node, &term.topology_key) else { return false };
        let mut counts: BTreeMap<&Name, u32> = BTreeMap::new();
        for other in 0..self.nodes.len() {
            if profile.spread.iter().all(|term| self.value(other, &term.topology_key).is_some())
                && let Some(value) = self.value(other, &term.topology_key)
            {
                let selected =
                    |(at, bound): &&(usize, Profile)| *at == other && Self::selects(&term.pods, bound);
                let there = self.bound.iter().filter(selected).count();
                *counts.entry(value).or_default() += u32::try_from(there).expect("few pods");
            }
        }
        let fewest = counts.values().min().copied().unwrap_or(0);
        let own = u32::from(Self::selects(&term.pods, profile));
        counts.get(domain).copied().unwrap_or(0) + own <= fewest + term.max_skew
    }

    /// Binds the pods of a placement one after another, in any order in which that works.
    fn bind(&mut self, profile: &Profile, placement: &BTreeMap<String, u32>) -> bool {
        let mut left: Vec<(usize, u32)> = placement
            .iter()
            .map(|(name, pods)| {
                (self.nodes.iter().position(|node| *node.name == **name).expect("a node"), *pods)
            })
            .collect();
        loop {
            left.retain(|(_, pods)| *pods > 0);
            if left.is_empty() {
                return true;
            }
            let Some(next) = left.iter().position(|(node, _)| self.allows(*node, profile)) else {
                return false;
            };
            left[next].1 -= 1;
            self.bound.push((left[next].0, profile.clone()));
        }
    }

    /// Whether so many pods can be bound, by trying every way.
    fn can_bind(&self, profile: &Profile, pods: u32, free: &[i64], seen: &mut BTreeSet<Vec<i64>>) -> bool {
        if pods == 0 {
            return true;
        }
        if !seen.insert(free.to_vec()) {
            return false;
        }
        (0..self.nodes.len()).any(|node| {
            free[node] > 0 && self.allows(node, profile) && {
                let (mut next, mut less) = (self.clone(), free.to_vec());
                next.bound.push((node, profile.clone()));
                less[node] -= 1;
                next.can_bind(profile, pods - 1, &less, seen)
            }
        })
    }
}

fn check(zones: &[Option<usize>], gangs: &[Gang], movable: bool) -> Result<(), TestCaseError> {
    const EACH: i64 = 3;
    let nodes: Vec<Node> = zones.iter().enumerate().map(|(number, zone)| node(number, *zone, EACH)).collect();
    let mut judge = Judge { nodes: nodes.clone(), ..Judge::default() };
    let mut cluster = Cluster::new(nodes);
    for (number, gang) in gangs.iter().enumerate() {
        let free: Vec<i64> = (0..zones.len())
            .map(|node| {
                EACH - i64::try_from(judge.bound.iter().filter(|(at, _)| *at == node).count()).expect("few")
            })
            .collect();
        let name = format!("g{number}");
        let job = cluster.job("t", &name, gang.pods, gang.profile());
        let placement = cluster.submit_job(Workload { resumable: movable, ..job });
        if movable && cluster.evicted > 0 {
            // The decisions have come to an end. The judge does not know which pods came first then.
            return Ok(());
        }
        match placement {
            Some(placement) => {
                prop_assert!(judge.bind(&gang.profile(), &placement), "{gang:?} on {placement:?}");
            }
            None => {
                let fits = judge.can_bind(&gang.profile(), gang.pods, &free, &mut BTreeSet::new());
                prop_assert!(!fits, "{gang:?} waits: {:?}", cluster.why(&name));
                cluster
                    .engine
                    .apply(Event::WorkloadRemoved(WorkloadId(format!("t/{name}").into())), cluster.now);
            }
        }
        prop_assert_eq!(cluster.evicted, 0);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// No placement breaks a required constraint, and whatever can be bound is started. Workloads that may be moved are
    /// moved to an end.
    #[test]
    fn placements_are_what_can_be_bound(
        zones in prop::collection::vec(prop::option::weighted(0.9, 0..3_usize), 1..6),
        gangs in prop::collection::vec(gang(), 1..6),
        movable in any::<bool>(),
    ) {
        check(&zones, &gangs, movable)?;
    }
}
