//! Where pods go: nodes are never overfilled, devices neither; shares stay where they are.

use std::collections::{BTreeMap, BTreeSet};

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
struct Yard {
    engine: Engine,
    now: Time,
    running: BTreeMap<WorkloadId, (Workload, Admission)>,
    waiting: BTreeMap<WorkloadId, Workload>,
}

fn amounts(list: &[(&str, i64)]) -> ResourceList {
    list.iter().map(|(name, milli)| ((*name).into(), Amount::milli(*milli))).collect()
}

fn node(name: &str, labels: &[(&str, &str)], offers: &[(&str, i64)]) -> Node {
    Node {
        name: name.into(),
        labels: labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        allocatable: amounts(offers),
        taints: Vec::new(),
        schedulable: true,
    }
}

/// A Job of team `t` with so many pods that request so much each.
fn job(name: &str, pods: u32, requests: &[(&str, i64)]) -> Workload {
    let shape = PodShape { requests: amounts(requests), ..PodShape::default() };
    Workload {
        id: WorkloadId(name.into()),
        resizable: true,
        ..Workload::job(&"t".into(), &name.into(), pods, shape, Time(0))
    }
}

impl Yard {
    fn new(nodes: Vec<Node>) -> Self {
        let mut yard =
            Self { engine: Engine::new(), now: Time(0), running: BTreeMap::new(), waiting: BTreeMap::new() };
        yard.tell(Event::TeamApplied(team("t", None, 1_000, None)));
        for node in nodes {
            yard.tell(Event::NodeApplied(node));
        }
        yard
    }

    fn tell(&mut self, event: Event) {
        self.engine.apply(event, self.now);
    }

    /// Submits a workload and lets everything happen that follows.
    fn submit(&mut self, mut workload: Workload) -> Option<BTreeMap<String, u32>> {
        self.now = Time(self.now.0 + 1_000);
        workload.submitted = self.now;
        let id = workload.id.clone();
        self.waiting.insert(id.clone(), workload.clone());
        self.tell(Event::WorkloadApplied(workload));
        self.settle();
        self.nodes_of(&id)
    }

    /// Where a workload runs, if it does.
    fn nodes_of(&self, id: &WorkloadId) -> Option<BTreeMap<String, u32>> {
        let (_, admission) = self.running.get(id)?;
        Some(admission.nodes.iter().map(|(node, pods)| (node.to_string(), *pods)).collect())
    }

    fn settle(&mut self) {
        loop {
            let actions = self.engine.plan(self.now).actions;
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Admit { workload, admission, .. } => self.start(&workload, admission),
                    Action::Evict { workload, .. } => {
                        let queued = self.stop(&workload);
                        self.waiting.insert(workload, queued.clone());
                        self.tell(Event::WorkloadApplied(queued));
                    }
                    other => panic!("not expected here: {other:?}"),
                }
            }
        }
    }

    fn start(&mut self, id: &WorkloadId, admission: Admission) {
        let workload = self.waiting.remove(id).expect("only who waits is admitted");
        let workload = Workload { state: Observed::Admitted(admission.clone()), ..workload };
        self.tell(Event::WorkloadApplied(workload.clone()));
        for (node, pods) in &admission.nodes {
            for pod in 0..*pods {
                self.tell(Event::PodApplied(Pod {
                    id: PodId(format!("{id}/{node}/{pod}").into()),
                    workload: Some(id.clone()),
                    node: Some(node.clone()),
                    requests: workload.shape.requests.clone(),
                }));
            }
        }
        self.running.insert(id.clone(), (workload, admission));
    }

    /// Ends all pods of a workload.
    fn stop(&mut self, id: &WorkloadId) -> Workload {
        let (workload, admission) = self.running.remove(id).expect("only who runs stops");
        for (node, pods) in &admission.nodes {
            for pod in 0..*pods {
                self.tell(Event::PodRemoved(PodId(format!("{id}/{node}/{pod}").into())));
            }
        }
        Workload { state: Observed::Queued, ..workload }
    }

    fn finish(&mut self, name: &str) {
        let id = WorkloadId(name.into());
        self.stop(&id);
        self.tell(Event::WorkloadRemoved(id));
        self.settle();
    }

    /// The shared devices of every node: whose shares lie on them, in thousandths.
    fn shared(&self) -> BTreeMap<Name, Vec<Vec<(String, i64)>>> {
        let nodes = self.engine.nodes().into_iter();
        let devices = nodes.map(|node| {
            let devices = node.shared.iter().map(|device| {
                device.shares.iter().map(|(who, share)| (who.to_string(), share.as_milli())).collect()
            });
            (node.name.clone(), devices.collect())
        });
        devices.collect()
    }
}

fn gpu(milli: i64) -> [(&'static str, i64); 1] {
    [(GPU, milli)]
}

fn on(node: &str, pods: u32) -> Option<BTreeMap<String, u32>> {
    Some(BTreeMap::from([(node.to_owned(), pods)]))
}

/// A node in a rack of a zone, with so many GPUs.
fn racked(name: &str, zone: &str, rack: &str, gpus: i64) -> Node {
    node(name, &[("zone", zone), ("rack", rack)], &gpu(gpus * 1_000))
}

/// A yard whose pool knows zones and racks.
fn racks(nodes: Vec<Node>) -> Yard {
    let mut yard = Yard::new(nodes);
    yard.tell(Event::PoolApplied(Pool {
        name: "default".into(),
        node_selector: BTreeMap::new(),
        topology: vec!["zone".into(), "rack".into()],
        weights: ResourceList::new(),
    }));
    yard
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
    // As many GPUs of the first rack as said are in use before.
    let racks = |used: u32| {
        let one = |name, rack| racked(name, "z", rack, 1);
        let first = [one("a0", "r1"), one("a1", "r1"), one("a2", "r1")];
        let mut yard = racks([first, [one("b0", "r2"), one("b1", "r2"), one("b2", "r2")]].concat());
        for i in 0..used {
            let mut job = job(&format!("used{i}"), 1, &gpu(1_000));
            job.shape.node_selector.insert("rack".into(), "r1".into());
            assert!(yard.submit(job).is_some());
        }
        yard
    };
    let gang = |pods| job("gang", pods, &gpu(1_000));
    assert_eq!(racks(1).submit(required("rack", gang(2))), spread(&[("a1", 1), ("a2", 1)]));
    assert_eq!(racks(3).submit(required("rack", gang(2))), spread(&[("b0", 1), ("b1", 1)]));
    assert_eq!(racks(1).submit(required("rack", gang(4))), None);
    assert_eq!(racks(1).submit(required("zone", gang(5))).map(|nodes| nodes.len()), Some(5));
    assert_eq!(racks(0).submit(required("room", gang(1))), None, "no node lies in a room");
    assert_eq!(
        racks(1).submit(preferred("rack", gang(4))),
        spread(&[("a1", 1), ("b0", 1), ("b1", 1), ("b2", 1)]),
        "the roomiest rack, and the rest"
    );
    assert_eq!(racks(1).submit(gang(2)), spread(&[("a1", 1), ("a2", 1)]), "together without any wish");
}

#[test]
fn a_gang_without_a_wish_takes_fewest_nodes_and_then_one_rack() {
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
    let wish = required("kubernetes.io/hostname", gang(2));
    assert_eq!(racks(nodes()).submit(wish).map(|nodes| nodes.len()), Some(1));
    assert_eq!(racks(nodes()).submit(required("kubernetes.io/hostname", gang(3))), None);
}

#[test]
fn shares_fill_the_tightest_device_before_a_new_one() {
    let mut yard = Yard::new(vec![node("n0", &[], &gpu(2_000))]);
    assert_eq!(yard.submit(job("first", 1, &gpu(500))), on("n0", 1));
    assert_eq!(yard.submit(job("six", 1, &gpu(600))), on("n0", 1));
    assert_eq!(yard.submit(job("half", 1, &gpu(500))), on("n0", 1));
    assert_eq!(yard.submit(job("other-half", 1, &gpu(500))), None, "only .4 is left of the second device");
    assert_eq!(yard.submit(job("third", 1, &gpu(300))), on("n0", 1));
    let expected = [
        vec![("first".to_owned(), 500), ("half".to_owned(), 500)],
        vec![("six".to_owned(), 600), ("third".to_owned(), 300)],
    ];
    assert_eq!(yard.shared()["n0"], expected);
    yard.finish("first");
    assert!(yard.running.contains_key(&WorkloadId("other-half".into())), "the first device has room again");
}

#[test]
fn a_device_is_whole_again_when_its_last_share_goes() {
    let mut yard = Yard::new(vec![node("n0", &[], &gpu(2_000))]);
    for name in ["a", "b"] {
        assert_eq!(yard.submit(job(name, 1, &gpu(500))), on("n0", 1));
    }
    assert_eq!(yard.submit(job("pair", 1, &gpu(2_000))), None);
    assert_eq!(yard.submit(job("whole", 1, &gpu(1_000))), on("n0", 1), "the shares take one device only");
    yard.finish("a");
    assert_eq!(yard.submit(job("next", 1, &gpu(1_000))), None, "half a device is no device");
    yard.finish("b");
    assert!(yard.running.contains_key(&WorkloadId("next".into())));
}

#[test]
fn room_for_a_share_is_made_on_one_device() {
    let arrange = || {
        let mut yard = Yard::new(vec![node("n0", &[], &gpu(2_000))]);
        yard.tell(Event::TeamApplied(team("t", None, 1, None)));
        yard.tell(Event::TeamApplied(team("b", None, 1, None)));
        for (name, milli) in [("one", 1_000), ("x", 500), ("y", 500)] {
            assert_eq!(yard.submit(job(name, 1, &gpu(milli))), on("n0", 1));
        }
        yard
    };
    let names = |yard: &Yard| yard.running.keys().map(ToString::to_string).collect::<Vec<_>>();
    let of_b = |name, milli| Workload { team: "b".into(), ..job(name, 1, &gpu(milli)) };
    let mut yard = arrange();
    yard.submit(of_b("small", 400));
    assert_eq!(names(&yard), ["one", "small", "x"], "the newest share goes");
    yard.submit(of_b("more", 800));
    assert_eq!(names(&yard), ["one", "small", "x"], "1.2 are more than the guarantee");
    let mut yard = arrange();
    yard.submit(of_b("large", 800));
    assert_eq!(names(&yard), ["large", "one"], "both shares of the one device go");
}

/// Whose shares lie together, by node; of those only who is in `stayed`.
fn together(yard: &Yard, stayed: &BTreeSet<WorkloadId>) -> Vec<(Name, Vec<(String, i64)>)> {
    let mut groups = Vec::new();
    for (node, devices) in yard.shared() {
        for mut device in devices {
            device.retain(|(who, _)| stayed.contains(&WorkloadId(who.as_str().into())));
            device.sort();
            if !device.is_empty() {
                groups.push((node.clone(), device));
            }
        }
    }
    groups.sort();
    groups
}

/// Devices of a node that hold whole pods, judged by the admissions.
fn whole_devices(yard: &Yard, node: &Name) -> i64 {
    let held = yard.running.values().map(|(workload, admission)| {
        let need = workload.shape.requests.get(GPU).map_or(0, |amount| amount.as_milli());
        let whole = if need % 1_000 == 0 { need / 1_000 } else { 0 };
        whole * i64::from(admission.nodes.get(node).copied().unwrap_or(0))
    });
    held.sum()
}

/// A node drawn at random, with what pods of others leave free of it.
#[derive(Clone, Debug)]
struct Drawn {
    rack: Option<u8>,
    kind: bool,
    tainted: bool,
    free: i64,
}

impl Drawn {
    fn node(&self, index: usize) -> Node {
        let name = format!("n{index}");
        let mut node = node(&name, &[("kind", if self.kind { "a" } else { "b" })], &gpu(8_000));
        node.labels.extend(self.rack.map(|rack| ("rack".into(), format!("r{rack}").into())));
        if self.tainted {
            node.taints.push(Taint { key: "own".into(), value: "".into(), effect: "NoSchedule".into() });
        }
        node
    }

    /// The domain of the label, as a test knows it.
    fn domain(&self, label: &str, index: usize) -> Option<String> {
        match label {
            "rack" => self.rack.map(|rack| format!("r{rack}")),
            _ => Some(format!("n{index}")),
        }
    }
}

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let node = (prop::option::weighted(0.85, 0..3_u8), any::<bool>(), prop::bool::weighted(0.2), 0..9_i64);
    let node = node.prop_map(|(rack, kind, tainted, free)| Drawn { rack, kind, tainted, free });
    prop::collection::vec(node, 1..7)
}

/// Every set of so many things, as numbers of bits.
fn subsets(count: usize) -> impl Iterator<Item = Vec<usize>> {
    (0_u32..1 << count).map(move |set| (0..count).filter(|i| set & (1 << i) != 0).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn a_gang_lies_where_it_asks_and_starts_if_it_can(
        nodes in drawn(),
        pods in 1..6_u32,
        size in 1..4_i64,
        wish in 0..5_u8,
        picky in any::<bool>(),
        tolerant in any::<bool>(),
    ) {
        let mut yard = racks(nodes.iter().enumerate().map(|(i, node)| node.node(i)).collect());
        for (i, node) in nodes.iter().enumerate().filter(|(_, node)| node.free < 8) {
            yard.tell(Event::PodApplied(Pod {
                id: PodId(format!("other{i}").into()),
                workload: None,
                node: Some(format!("n{i}").into()),
                requests: amounts(&gpu((8 - node.free) * 1_000)),
            }));
        }
        let mut gang = job("gang", pods, &gpu(size * 1_000));
        if picky {
            gang.shape.node_selector.insert("kind".into(), "a".into());
        }
        if tolerant {
            gang.shape.tolerations.push(Toleration { key: Some("own".into()), ..Toleration::default() });
        }
        let host = "kubernetes.io/hostname";
        let (demanded, liked) =
            [(None, None), (Some("rack"), None), (Some(host), None), (None, Some("rack")), (None, Some(host))]
                [usize::from(wish)];
        gang.topology = Topology { required: demanded.map(Into::into), preferred: liked.map(Into::into) };
        let placed = yard.submit(gang);

        let room = |i: usize| {
            let admitted = (!picky || nodes[i].kind) && (tolerant || !nodes[i].tainted);
            if admitted { nodes[i].free / size } else { 0 }
        };
        let open = |i: usize| (!picky || nodes[i].kind) && (tolerant || !nodes[i].tainted);
        let all: Vec<usize> = (0..nodes.len()).collect();
        let holds = |set: &[usize]| set.iter().map(|i| room(*i)).sum::<i64>() >= i64::from(pods);
        let domains = |label: &str| -> Vec<Vec<usize>> {
            let names: BTreeSet<String> = all.iter().filter_map(|i| nodes[*i].domain(label, *i)).collect();
            let of = |name: &String| {
                all.iter().copied().filter(|i| nodes[*i].domain(label, *i).as_ref() == Some(name)).collect()
            };
            names.iter().map(of).collect()
        };
        let possible = match demanded {
            Some(label) => domains(label).iter().any(|set| holds(set)),
            None => holds(&all),
        };
        prop_assert_eq!(placed.is_some(), possible);
        let Some(placed) = placed else { return Ok(()) };
        let used: Vec<usize> = placed.keys().map(|name| name[1..].parse().expect("n and a number")).collect();
        prop_assert_eq!(placed.values().sum::<u32>(), pods);
        for (i, pods) in used.iter().zip(placed.values()) {
            prop_assert!(i64::from(*pods) <= room(*i), "n{i} holds {} and got {pods}", room(*i));
        }
        let within = |set: &[usize]| used.iter().all(|i| set.contains(i));
        if let Some(label) = demanded.or(liked) {
            let free = |set: &[usize]| set.iter().filter(|i| open(**i)).map(|i| nodes[*i].free).sum::<i64>();
            let fitting: Vec<Vec<usize>> = domains(label).into_iter().filter(|set| holds(set)).collect();
            match fitting.iter().map(|set| free(set)).min() {
                Some(least) => {
                    let home = fitting.iter().find(|set| within(set));
                    prop_assert_eq!(home.map(|set| free(set)), Some(least), "{:?} of {:?}", placed, fitting);
                }
                None => {
                    // A node outside of all domains is one of its own.
                    let mut sets = domains(label);
                    let apart = |i: &&usize| nodes[**i].domain(label, **i).is_none();
                    let outside: Vec<Vec<usize>> = all.iter().filter(apart).map(|i| vec![*i]).collect();
                    let named = sets.len();
                    sets.extend(outside);
                    let touched = sets.iter().filter(|set| used.iter().any(|i| set.contains(i))).count();
                    let enough = |chosen: &Vec<usize>| {
                        holds(&chosen.iter().flat_map(|d| sets[*d].clone()).collect::<Vec<_>>())
                    };
                    let labelled = subsets(named).filter(enough).map(|set| set.len()).min();
                    if let Some(fewest) = labelled {
                        prop_assert_eq!(touched, fewest, "{:?} of {:?}", placed, sets);
                    }
                }
            }
        } else {
            let fewest = subsets(nodes.len()).filter(|set| holds(set)).map(|set| set.len()).min();
            prop_assert_eq!(Some(used.len()), fewest, "more nodes than needed: {:?}", placed);
            let alone = |set: &Vec<usize>| {
                let inner = subsets(set.len()).map(|pick| pick.iter().map(|i| set[*i]).collect::<Vec<_>>());
                inner.filter(|nodes| holds(nodes)).map(|nodes| nodes.len()).min() == fewest
            };
            let racks: Vec<Vec<usize>> = domains("rack").into_iter().filter(alone).collect();
            let together = used.len() == 1 || racks.is_empty() || racks.iter().any(|set| within(set));
            prop_assert!(together, "{placed:?} though one of {racks:?} would do");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_device_is_overfilled_and_no_share_moves(
        offers in prop::collection::vec(1..4_i64, 1..4),
        steps in prop::collection::vec((0..3_u8, 1..4_u32, 0..7_usize), 1..40),
    ) {
        let nodes = offers.iter().enumerate();
        let mut yard = Yard::new(nodes.map(|(i, n)| node(&format!("n{i}"), &[], &gpu(n * 1_000))).collect());
        for (step, (kind, pods, pick)) in steps.iter().enumerate() {
            let before: BTreeSet<WorkloadId> = yard.running.keys().cloned().collect();
            let earlier = together(&yard, &before);
            if *kind == 0 && !before.is_empty() {
                let gone = before.iter().nth(pick % before.len()).expect("one of them");
                yard.finish(&gone.0.clone());
            } else {
                let size = [200, 250, 400, 500, 700, 1_000, 2_000][*pick];
                // Nobody can be stopped, so that everybody stays where it was first placed.
                let workload = job(&format!("w{step}"), *pods, &gpu(size));
                yard.submit(Workload { resumable: false, ..workload });
            }
            let stayed: BTreeSet<WorkloadId> =
                before.iter().filter(|id| yard.running.contains_key(id)).cloned().collect();
            let staying = |groups: Vec<(Name, Vec<(String, i64)>)>| {
                let mut groups = groups;
                for (_, device) in &mut groups {
                    device.retain(|(who, _)| stayed.contains(&WorkloadId(who.as_str().into())));
                }
                groups.retain(|(_, device)| !device.is_empty());
                groups.sort();
                groups
            };
            prop_assert_eq!(staying(earlier), together(&yard, &stayed), "shares moved");
            let shared = yard.shared();
            for (i, offered) in offers.iter().enumerate() {
                let name: Name = format!("n{i}").into();
                for device in &shared[&name] {
                    prop_assert!(device.iter().map(|(_, share)| share).sum::<i64>() <= 1_000, "{device:?}");
                }
                let in_use = whole_devices(&yard, &name) + i64::try_from(shared[&name].len()).expect("few");
                prop_assert!(in_use <= *offered, "{in_use} of {offered} devices of {name} are in use");
            }
            for waiting in yard.waiting.values().filter(|workload| workload.pods == 1) {
                let need = waiting.shape.requests[GPU].as_milli();
                for (i, offered) in offers.iter().enumerate() {
                    let name: Name = format!("n{i}").into();
                    let devices = &shared[&name];
                    let untouched = offered - whole_devices(&yard, &name) - devices.len() as i64;
                    let on_shared = need < 1_000
                        && devices.iter().any(|d| d.iter().map(|(_, s)| s).sum::<i64>() + need <= 1_000);
                    let fits = on_shared || untouched * 1_000 >= need;
                    prop_assert!(!fits, "{} waits for {need} though {name} has room", waiting.id);
                }
            }
        }
    }
}
