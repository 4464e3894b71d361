//! The placement of pods on nodes and in topology domains. No node is overfilled. For devices see [`super::devices`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use sluice_engine::Engine;
use sluice_engine::types::Action;
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{
    Admission, Event, Name, Node, Observed, Pod, PodId, PodShape, Pool, Taint, Time, Toleration, Topology,
    Workload, WorkloadId,
};

use super::world::{GPU, team};

/// A cluster in which every decision is carried out at once.
pub struct Cluster {
    engine: Engine,
    now: Time,
    pub running: BTreeMap<WorkloadId, (Workload, Admission)>,
    pub waiting: BTreeMap<WorkloadId, Workload>,
}

fn amounts(list: &[(&str, i64)]) -> ResourceList {
    list.iter().map(|(name, milli)| ((*name).into(), Amount::milli(*milli))).collect()
}

pub fn node(name: &str, labels: &[(&str, &str)], offers: &[(&str, i64)]) -> Node {
    Node {
        name: name.into(),
        labels: labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        allocatable: amounts(offers),
        taints: Vec::new(),
        schedulable: true,
        unreachable: None,
    }
}

/// A workload of team `t` with so many pods; `requests` are those of one pod, in thousandths.
pub fn job(name: &str, pods: u32, requests: &[(&str, i64)]) -> Workload {
    let shape = PodShape { requests: amounts(requests), ..PodShape::default() };
    Workload {
        id: WorkloadId(name.into()),
        resizable: true,
        ..Workload::job(&"t".into(), &name.into(), pods, shape, Time(0))
    }
}

impl Cluster {
    pub fn new(nodes: Vec<Node>) -> Self {
        let mut cluster =
            Self { engine: Engine::new(), now: Time(0), running: BTreeMap::new(), waiting: BTreeMap::new() };
        cluster.report(Event::TeamApplied(team("t", None, 1_000, None)));
        for node in nodes {
            cluster.report(Event::NodeApplied(node));
        }
        cluster
    }

    pub fn report(&mut self, event: Event) {
        self.engine.apply(event, self.now);
    }

    /// Submits a workload a second later and carries out every decision; returns its pods by node if it runs.
    pub fn submit(&mut self, mut workload: Workload) -> Option<BTreeMap<String, u32>> {
        self.now = Time(self.now.0 + 1_000);
        workload.submitted = self.now;
        let id = workload.id.clone();
        self.waiting.insert(id.clone(), workload.clone());
        self.report(Event::workload(workload));
        self.settle();
        self.nodes_of(&id)
    }

    /// The pods of a running workload by node.
    fn nodes_of(&self, id: &WorkloadId) -> Option<BTreeMap<String, u32>> {
        let (_, admission) = self.running.get(id)?;
        Some(admission.nodes.iter().map(|(node, pods)| (node.to_string(), *pods)).collect())
    }

    fn settle(&mut self) {
        loop {
            let actions = self.engine.plan(self.now).actions;
            if actions.is_empty() && !self.engine.has_more() {
                return;
            }
            for action in actions {
                match action {
                    Action::Admit { workload, admission, .. } => self.start(&workload, admission),
                    Action::Evict { workload, .. } => {
                        let queued = self.stop(&workload);
                        self.waiting.insert(workload, queued.clone());
                        self.report(Event::workload(queued));
                    }
                    other => panic!("not expected here: {other:?}"),
                }
            }
        }
    }

    fn start(&mut self, id: &WorkloadId, admission: Admission) {
        let workload = self.waiting.remove(id).expect("only waiting workloads are admitted");
        let workload = Workload { state: Observed::Admitted(admission.clone()), ..workload };
        self.report(Event::workload(workload.clone()));
        for (node, pods) in &admission.nodes {
            for pod in 0..*pods {
                self.report(Event::PodApplied(Pod {
                    id: PodId(format!("{id}/{node}/{pod}").into()),
                    workload: Some(id.clone()),
                    node: Some(node.clone()),
                    requests: workload.shape.requests.clone(),
                    profile: None,
                    unadmitted: None,
                }));
            }
        }
        self.running.insert(id.clone(), (workload, admission));
    }

    /// Ends all pods of a workload.
    fn stop(&mut self, id: &WorkloadId) -> Workload {
        let (workload, admission) = self.running.remove(id).expect("only running workloads stop");
        for (node, pods) in &admission.nodes {
            for pod in 0..*pods {
                self.report(Event::PodRemoved(PodId(format!("{id}/{node}/{pod}").into())));
            }
        }
        Workload { state: Observed::Queued, ..workload }
    }

    pub fn finish(&mut self, name: &str) {
        let id = WorkloadId(name.into());
        self.stop(&id);
        self.report(Event::WorkloadRemoved(id));
        self.settle();
    }

    /// The shared devices of every node: the workloads on each and their GPU fractions in thousandths.
    pub fn shared(&self) -> BTreeMap<Name, Vec<Vec<(String, i64)>>> {
        let nodes = self.engine.nodes().into_iter();
        let devices = nodes.map(|node| {
            let devices = node.shared.iter().map(|device| {
                device.shares.iter().map(|(id, fraction)| (id.to_string(), fraction.as_milli())).collect()
            });
            (node.name.clone(), devices.collect())
        });
        devices.collect()
    }
}

pub fn gpu(milli: i64) -> [(&'static str, i64); 1] {
    [(GPU, milli)]
}

pub fn on(node: &str, pods: u32) -> Option<BTreeMap<String, u32>> {
    Some(BTreeMap::from([(node.to_owned(), pods)]))
}

/// A node in a rack of a zone, with so many GPUs.
fn racked(name: &str, zone: &str, rack: &str, gpus: i64) -> Node {
    node(name, &[("zone", zone), ("rack", rack)], &gpu(gpus * 1_000))
}

/// A cluster with a pool of zones and racks.
fn racks(nodes: Vec<Node>) -> Cluster {
    let mut cluster = Cluster::new(nodes);
    cluster.report(Event::PoolApplied(Pool {
        name: "default".into(),
        node_selector: BTreeMap::new(),
        topology: vec!["zone".into(), "rack".into()],
        weights: ResourceList::new(),
    }));
    cluster
}

fn required(label: &str, workload: Workload) -> Workload {
    Workload { topology: Topology { required: Some(label.into()), preferred: None }, ..workload }
}

fn preferred(label: &str, workload: Workload) -> Workload {
    Workload { topology: Topology { required: None, preferred: Some(label.into()) }, ..workload }
}

fn spread(nodes: &[(&str, u32)]) -> Option<BTreeMap<String, u32>> {
    Some(nodes.iter().map(|(node, pods)| ((*node).to_owned(), *pods)).collect())
}

#[test]
fn a_gang_takes_the_tightest_rack() {
    // So many GPUs of the first rack are in use.
    let racks = |used: u32| {
        let one = |name, rack| racked(name, "z", rack, 1);
        let first = [one("a0", "r1"), one("a1", "r1"), one("a2", "r1")];
        let mut cluster = racks([first, [one("b0", "r2"), one("b1", "r2"), one("b2", "r2")]].concat());
        for i in 0..used {
            let mut job = job(&format!("used{i}"), 1, &gpu(1_000));
            Arc::make_mut(&mut job.shape).node_selector.insert("rack".into(), "r1".into());
            assert!(cluster.submit(job).is_some());
        }
        cluster
    };
    let gang = |pods| job("gang", pods, &gpu(1_000));
    assert_eq!(racks(1).submit(required("rack", gang(2))), spread(&[("a1", 1), ("a2", 1)]));
    assert_eq!(racks(3).submit(required("rack", gang(2))), spread(&[("b0", 1), ("b1", 1)]));
    assert_eq!(racks(1).submit(required("rack", gang(4))), None);
    assert_eq!(racks(1).submit(required("zone", gang(5))).map(|nodes| nodes.len()), Some(5));
    assert_eq!(racks(0).submit(required("room", gang(1))), None, "no node has the label room");
    assert_eq!(
        racks(1).submit(preferred("rack", gang(4))),
        spread(&[("a1", 1), ("b0", 1), ("b1", 1), ("b2", 1)]),
        "the rack with the most free GPUs, and the rest"
    );
    assert_eq!(
        racks(1).submit(gang(2)),
        spread(&[("a1", 1), ("a2", 1)]),
        "in one rack without a request for it"
    );
}

#[test]
fn a_gang_without_topology_takes_fewest_nodes_and_then_one_rack() {
    let nodes = || {
        vec![
            racked("a0", "z", "r1", 2),
            racked("a1", "z", "r2", 2),
            racked("a2", "z", "r2", 2),
            racked("a3", "z", "r1", 1),
            racked("a4", "z", "r1", 1),
        ]
    };
    let gang = |pods| job("gang", pods, &gpu(1_000));
    assert_eq!(racks(nodes()).submit(gang(4)), spread(&[("a1", 2), ("a2", 2)]));
    assert_eq!(racks(nodes()).submit(gang(3)), spread(&[("a0", 2), ("a3", 1)]), "the tighter rack of two");
    let on_one_node = required("kubernetes.io/hostname", gang(2));
    assert_eq!(racks(nodes()).submit(on_one_node).map(|nodes| nodes.len()), Some(1));
    assert_eq!(racks(nodes()).submit(required("kubernetes.io/hostname", gang(3))), None);
}

/// A random node; `free` are the GPUs that unmanaged pods leave of its eight.
#[derive(Clone, Debug)]
struct RandomNode {
    rack: Option<u8>,
    kind: bool,
    tainted: bool,
    free: i64,
}

impl RandomNode {
    fn node(&self, index: usize) -> Node {
        let name = format!("n{index}");
        let mut node = node(&name, &[("kind", if self.kind { "a" } else { "b" })], &gpu(8_000));
        node.labels.extend(self.rack.map(|rack| ("rack".into(), format!("r{rack}").into())));
        if self.tainted {
            node.taints.push(Taint { key: "own".into(), value: "".into(), effect: "NoSchedule".into() });
        }
        node
    }

    /// The node's domain of that label.
    fn domain(&self, label: &str, index: usize) -> Option<String> {
        match label {
            "rack" => self.rack.map(|rack| format!("r{rack}")),
            _ => Some(format!("n{index}")),
        }
    }
}

fn random_nodes() -> impl Strategy<Value = Vec<RandomNode>> {
    let node = (prop::option::weighted(0.85, 0..3_u8), any::<bool>(), prop::bool::weighted(0.2), 0..9_i64);
    let node = node.prop_map(|(rack, kind, tainted, free)| RandomNode { rack, kind, tainted, free });
    prop::collection::vec(node, 1..7)
}

/// Every set of the numbers below `count`.
fn subsets(count: usize) -> impl Iterator<Item = Vec<usize>> {
    (0_u32..1 << count).map(move |set| (0..count).filter(|i| set & (1 << i) != 0).collect())
}

/// A gang and the random nodes it is submitted to. Sets are sets of node numbers.
struct Draw {
    nodes: Vec<RandomNode>,
    pods: u32,
    /// GPUs of a pod.
    size: i64,
    /// Whether it selects nodes of kind `a`.
    picky: bool,
    tolerant: bool,
}

impl Draw {
    fn cluster(&self) -> Cluster {
        let mut cluster = racks(self.nodes.iter().enumerate().map(|(i, node)| node.node(i)).collect());
        for (i, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.free < 8) {
            cluster.report(Event::PodApplied(Pod {
                id: PodId(format!("other{i}").into()),
                workload: None,
                node: Some(format!("n{i}").into()),
                requests: amounts(&gpu((8 - node.free) * 1_000)),
                profile: None,
                unadmitted: None,
            }));
        }
        cluster
    }

    fn gang(&self, required: Option<&str>, preferred: Option<&str>) -> Workload {
        let mut gang = job("gang", self.pods, &gpu(self.size * 1_000));
        if self.picky {
            Arc::make_mut(&mut gang.shape).node_selector.insert("kind".into(), "a".into());
        }
        if self.tolerant {
            Arc::make_mut(&mut gang.shape)
                .tolerations
                .push(Toleration { key: Some("own".into()), ..Toleration::default() });
        }
        gang.topology = Topology { required: required.map(Into::into), preferred: preferred.map(Into::into) };
        gang
    }

    fn all(&self) -> Vec<usize> {
        (0..self.nodes.len()).collect()
    }

    /// Whether selector and tolerations allow the node.
    fn allows(&self, i: usize) -> bool {
        (!self.picky || self.nodes[i].kind) && (self.tolerant || !self.nodes[i].tainted)
    }

    /// How many pods fit a node.
    fn headroom(&self, i: usize) -> i64 {
        if self.allows(i) { self.nodes[i].free / self.size } else { 0 }
    }

    /// Whether the gang fits these nodes.
    fn fits(&self, set: &[usize]) -> bool {
        set.iter().map(|i| self.headroom(*i)).sum::<i64>() >= i64::from(self.pods)
    }

    /// Free GPUs of those nodes of the set that the gang may use.
    fn free(&self, set: &[usize]) -> i64 {
        set.iter().filter(|i| self.allows(**i)).map(|i| self.nodes[*i].free).sum()
    }

    /// The domains of a label.
    fn domains(&self, label: &str) -> Vec<Vec<usize>> {
        let all = self.all();
        let domain = |i: usize| self.nodes[i].domain(label, i);
        let names: BTreeSet<String> = all.iter().filter_map(|i| domain(*i)).collect();
        let nodes =
            |name: &String| all.iter().copied().filter(|i| domain(*i).as_ref() == Some(name)).collect();
        names.iter().map(nodes).collect()
    }

    /// Whether the gang can start.
    fn is_possible(&self, required: Option<&str>) -> bool {
        match required {
            Some(label) => self.domains(label).iter().any(|domain| self.fits(domain)),
            None => self.fits(&self.all()),
        }
    }

    /// All pods are placed, and no node has more than fit it.
    fn no_node_is_overfilled(&self, placed: &BTreeMap<String, u32>) -> Result<(), TestCaseError> {
        prop_assert_eq!(placed.values().sum::<u32>(), self.pods);
        for (i, pods) in numbers(placed).into_iter().zip(placed.values()) {
            let headroom = self.headroom(i);
            prop_assert!(i64::from(*pods) <= headroom, "n{i} fits {headroom} and got {pods}");
        }
        Ok(())
    }

    /// The gang is in the domain with the least free GPUs that fits it. If none does, it is in as few domains
    /// as possible.
    fn lies_in_the_tightest_domain(&self, label: &str, used: &[usize]) -> Result<(), TestCaseError> {
        let fitting: Vec<Vec<usize>> =
            self.domains(label).into_iter().filter(|domain| self.fits(domain)).collect();
        let Some(least) = fitting.iter().map(|domain| self.free(domain)).min() else {
            return self.lies_in_the_fewest_domains(label, used);
        };
        let home = fitting.iter().find(|domain| is_within(used, domain));
        prop_assert_eq!(home.map(|domain| self.free(domain)), Some(least), "{:?} of {:?}", used, fitting);
        Ok(())
    }

    /// A node without the label is a domain of its own.
    fn lies_in_the_fewest_domains(&self, label: &str, used: &[usize]) -> Result<(), TestCaseError> {
        let labelled = self.domains(label);
        let fits_some = |chosen: &Vec<usize>| {
            self.fits(&chosen.iter().flat_map(|domain| labelled[*domain].clone()).collect::<Vec<_>>())
        };
        let fewest = subsets(labelled.len()).filter(fits_some).map(|chosen| chosen.len()).min();
        let unlabelled = self.all().into_iter().filter(|i| self.nodes[*i].domain(label, *i).is_none());
        let mut domains = labelled.clone();
        domains.extend(unlabelled.map(|i| vec![i]));
        let touched = domains.iter().filter(|domain| used.iter().any(|i| domain.contains(i))).count();
        if let Some(fewest) = fewest {
            prop_assert_eq!(touched, fewest, "{:?} of {:?}", used, domains);
        }
        Ok(())
    }

    /// The gang is on as few nodes as possible, and in one rack if one of them fits it on as few.
    fn lies_on_the_fewest_nodes(&self, used: &[usize]) -> Result<(), TestCaseError> {
        let fewest_of = |set: &[usize]| {
            let picks = subsets(set.len()).map(|pick| pick.iter().map(|i| set[*i]).collect::<Vec<_>>());
            picks.filter(|nodes| self.fits(nodes)).map(|nodes| nodes.len()).min()
        };
        let fewest = fewest_of(&self.all());
        prop_assert_eq!(Some(used.len()), fewest, "more nodes than needed: {:?}", used);
        let racks: Vec<Vec<usize>> =
            self.domains("rack").into_iter().filter(|rack| fewest_of(rack) == fewest).collect();
        let is_together =
            used.len() == 1 || racks.is_empty() || racks.iter().any(|rack| is_within(used, rack));
        prop_assert!(is_together, "{used:?} though one of {racks:?} would do");
        Ok(())
    }
}

/// The numbers of the nodes of a placement.
fn numbers(placed: &BTreeMap<String, u32>) -> Vec<usize> {
    placed.keys().map(|name| name[1..].parse().expect("n and a number")).collect()
}

fn is_within(used: &[usize], set: &[usize]) -> bool {
    used.iter().all(|i| set.contains(i))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn law_6_a_gang_starts_where_its_topology_fits_and_lies_as_close_as_possible(
        nodes in random_nodes(),
        pods in 1..6_u32,
        size in 1..4_i64,
        topology in 0..5_u8,
        picky in any::<bool>(),
        tolerant in any::<bool>(),
    ) {
        let draw = Draw { nodes, pods, size, picky, tolerant };
        let host = "kubernetes.io/hostname";
        let (required, preferred) =
            [(None, None), (Some("rack"), None), (Some(host), None), (None, Some("rack")), (None, Some(host))]
                [usize::from(topology)];

        let placed = draw.cluster().submit(draw.gang(required, preferred));

        prop_assert_eq!(placed.is_some(), draw.is_possible(required));
        let Some(placed) = placed else { return Ok(()) };
        draw.no_node_is_overfilled(&placed)?;
        match required.or(preferred) {
            Some(label) => draw.lies_in_the_tightest_domain(label, &numbers(&placed))?,
            None => draw.lies_on_the_fewest_nodes(&numbers(&placed))?,
        }
    }

    /// An elastic gang has as many of its pods as one domain holds, and of the domains that hold so many it is in the tightest.
    #[test]
    fn law_6_an_elastic_gang_has_the_most_pods_that_one_domain_holds(
        nodes in random_nodes(),
        pods in 1..12_u32,
        least in 1..6_u32,
        size in 1..4_i64,
        host in any::<bool>(),
        picky in any::<bool>(),
        tolerant in any::<bool>(),
    ) {
        let label = if host { "kubernetes.io/hostname" } else { "rack" };
        let draw = Draw { nodes, pods, size, picky, tolerant };
        let room = |domain: &Vec<usize>| domain.iter().map(|i| draw.headroom(*i)).sum::<i64>();
        let largest = draw.domains(label).iter().map(room).max().unwrap_or(0);
        let (granted, least) = (u32::try_from(largest).unwrap_or(0).min(pods), least.min(pods));

        let placed = draw.cluster().submit(Workload { min_pods: Some(least), ..draw.gang(Some(label), None) });

        prop_assert_eq!(placed.is_some(), granted >= least);
        let Some(placed) = placed else { return Ok(()) };
        let granted = Draw { pods: granted, ..draw };
        granted.no_node_is_overfilled(&placed)?;
        granted.lies_in_the_tightest_domain(label, &numbers(&placed))?;
    }
}
