//! Cached fits equal fits computed again, and offered capacity is free.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::capacity::devices::Holder;
use crate::types::amount::{Amount, ResourceList};
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::{PODS, Resources, Vector};
use crate::types::{Name, Node, PodShape, Taint, Toleration, WorkloadId};

/// A change of nodes or of their usage.
#[derive(Clone, Debug)]
enum Step {
    Node { node: usize, gpus: i64, open: bool, tainted: bool, kind: usize },
    Gone { node: usize },
    Pool { node: usize, pool: usize },
    Hold { node: usize, holder_number: usize, shape: usize, pods: u32, terminating: u32 },
    Nominate { node: usize, shape: usize },
    Withdraw,
    Note { shape: usize, pods: u32 },
    Ask { shape: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let node = || 0..6_usize;
    let shape = || 0..SHAPES.len();
    prop_oneof![
        3 => (node(), 0..5_i64, prop::bool::weighted(0.9), prop::bool::weighted(0.2), 0..2_usize)
            .prop_map(|(node, gpus, open, tainted, kind)| Step::Node { node, gpus, open, tainted, kind }),
        1 => node().prop_map(|node| Step::Gone { node }),
        1 => (node(), 0..2_usize).prop_map(|(node, pool)| Step::Pool { node, pool }),
        8 => (node(), 0..5_usize, shape(), 0..3_u32, 0..3_u32).prop_map(|(node, holder_number, shape, pods, terminating)| {
            Step::Hold { node, holder_number, shape, pods, terminating: terminating.min(pods) }
        }),
        2 => (node(), shape()).prop_map(|(node, shape)| Step::Nominate { node, shape }),
        1 => Just(Step::Withdraw),
        3 => (shape(), 1..4_u32).prop_map(|(shape, pods)| Step::Note { shape, pods }),
        4 => shape().prop_map(|shape| Step::Ask { shape }),
    ]
}

/// Thousandths of a device and of a CPU, the kind of node it selects, and whether it tolerates taints.
const SHAPES: [(i64, i64, Option<&str>, bool); 8] = [
    (1_000, 1_000, None, false),
    (2_000, 500, None, true),
    (500, 0, None, false),
    (300, 250, Some("k1"), true),
    (0, 2_000, None, false),
    (4_000, 0, Some("k0"), false),
    (700, 100, None, true),
    (0, 100, Some("k1"), true),
];
const GPU: &str = "example.com/gpu";

struct Fixture {
    table: NodeTable,
    resources: Resources,
    nominated: Vec<(NodeId, Vector)>,
}

impl Fixture {
    fn new() -> Self {
        let mut fixture =
            Self { table: NodeTable::default(), resources: Resources::default(), nominated: Vec::new() };
        fixture.resources.intern(&GPU.into());
        fixture.table.learn(&fixture.resources);
        fixture
    }

    fn shape(number: usize) -> PodShape {
        let (gpus, cpu, kind, tolerant) = SHAPES[number];
        let tolerations = if tolerant { vec![Toleration::default()] } else { Vec::new() };
        PodShape {
            requests: ResourceList::from([
                (GPU.into(), Amount::milli(gpus)),
                ("cpu".into(), Amount::milli(cpu)),
            ]),
            node_selector: kind.map(|kind| ("kind".into(), kind.into())).into_iter().collect(),
            node_terms: Vec::new(),
            tolerations,
        }
    }

    fn need(&mut self, shape: usize) -> Vector {
        let mut need = self.resources.vector(&Self::shape(shape).requests);
        need.set(crate::types::vector::SLOTS, 1_000);
        need
    }

    fn apply(&mut self, step: &Step) {
        match *step {
            Step::Node { node, gpus, open, tainted, kind } => {
                let name: Name = format!("n{node}").into();
                let index = self.table.intern(&name);
                let taint = Taint { key: "own".into(), value: "".into(), effect: "NoSchedule".into() };
                let allocatable = ResourceList::from([
                    (GPU.into(), Amount::units(gpus)),
                    ("cpu".into(), Amount::units(6)),
                    (PODS.into(), Amount::units(9)),
                ]);
                let node = Node {
                    name,
                    labels: BTreeMap::from([("kind".into(), format!("k{kind}").into())]),
                    allocatable,
                    taints: if tainted { vec![taint] } else { Vec::new() },
                    schedulable: open,
                    unreachable: None,
                };
                let offers = self.resources.vector(&node.allocatable);
                self.table.set(index, Some(node), offers, crate::types::vector::SLOTS);
                self.table.set_pool(index, self.table.get(index).pool, &"p".into());
            }
            Step::Gone { node } => {
                let index = self.table.intern(&format!("n{node}").into());
                self.table.set(index, None, Vector::default(), crate::types::vector::SLOTS);
            }
            Step::Pool { node, pool } => {
                let index = self.table.intern(&format!("n{node}").into());
                self.table.set_pool(index, PoolId(pool), &if pool == 0 { "p".into() } else { "q".into() });
            }
            Step::Hold { node, holder_number, shape, pods, terminating } => {
                let index = self.table.intern(&format!("n{node}").into());
                let holder = Holder::Workload(WorkloadId(format!("w{holder_number}").into()));
                let need = self.need(shape);
                self.table.hold(index, &holder, holding(&need, pods, terminating));
            }
            Step::Nominate { node, shape } => {
                let index = self.table.intern(&format!("n{node}").into());
                let need = self.need(shape);
                self.table.nominate(index, &need, 1);
                self.nominated.push((index, need));
            }
            Step::Withdraw => {
                if let Some((index, need)) = self.nominated.pop() {
                    self.table.nominate(index, &need, -1);
                }
            }
            Step::Note { shape, pods } => {
                let need = self.need(shape);
                self.table.record_pods(vec!["p".into()], &Self::shape(shape), &need, pods);
            }
            Step::Ask { shape } => {
                self.view(shape);
            }
        }
    }

    /// Everything that the cache reports about a kind of pods: nodes, fits, totals and the best node.
    fn view(&mut self, shape: usize) -> impl PartialEq + std::fmt::Debug + use<> {
        let need = self.need(shape);
        let table = &self.table;
        table.fitting(PoolId(0), &Self::shape(shape), &need, |fitting| {
            let each: Vec<(bool, u32, u32)> = NodeId::first(table.infos.len())
                .map(|node| (fitting.admits(node), fitting.now(node), fitting.settled(node)))
                .collect();
            let nodes: Vec<NodeId> = fitting.nodes(table).to_vec();
            let with_headroom: Vec<NodeId> = fitting.with_headroom().iter().copied().collect();
            (each, nodes, with_headroom, fitting.count(), *fitting.totals(), fitting.best(table))
        })
    }

    /// The node with the least cost, found by visiting every node.
    fn best(&mut self, shape: usize) -> Option<NodeId> {
        let need = self.need(shape);
        let (table, ask) = (&self.table, self.table.ask(&need));
        let nodes = table.alive().filter(|(_, info, node)| {
            let admits = crate::capacity::fit::admits(node, &Self::shape(shape));
            info.pool == PoolId(0) && info.open() && admits && info.now().fits(&ask.demand) > 0
        });
        let priced = nodes.map(|(index, info, _)| {
            let state = table.state(index).expect("an open node is in a state");
            ((table.packing.cost(state, info.now(), &ask, 1), table.name(index)), index)
        });
        priced.min_by(|left, right| left.0.cmp(&right.0)).map(|(_, index)| index)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn cached_fits_equal_fits_computed_again(steps in prop::collection::vec(step(), 1..80)) {
        let mut fixture = Fixture::new();
        for step in &steps {
            fixture.apply(step);
            let cached = fixture.table.packing.idle_and_usable();
            let (mut idle, mut usable) = (Vector::default(), Vec::new());
            for (index, info) in fixture.table.infos.iter().enumerate() {
                let Some(state) = fixture.table.states[index] else { continue };
                idle.add(info.now().amounts(), 1);
                let more = fixture.table.packing.usable(state, info.now());
                usable.resize(more.len(), 0);
                usable.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
            }
            for resource in crate::types::vector::SLOTS + 1..fixture.resources.count() {
                prop_assert_eq!(cached.0.get(resource), idle.get(resource));
            }
            let known = cached.1.iter().copied().chain(std::iter::repeat(0));
            prop_assert!(known.zip(&usable).all(|(cached, computed)| cached == *computed), "{:?} {usable:?}", cached.1);
        }
        for shape in 0..SHAPES.len() {
            let cached = fixture.view(shape);
            fixture.table.fittings = RefCell::default();
            prop_assert_eq!(cached, fixture.view(shape));
            let need = fixture.need(shape);
            let chosen = fixture.table.fitting(PoolId(0), &Fixture::shape(shape), &need, |f| f.best(&fixture.table));
            prop_assert_eq!(chosen, fixture.best(shape));
        }
    }
}

/// A decision of the engine about a single node; none may exceed the capacity on offer.
#[derive(Clone, Debug)]
enum Move {
    Start {
        shape: usize,
        pods: u32,
    },
    Stop {
        holder_number: usize,
        pods: u32,
    },
    End {
        holder_number: usize,
    },
    Nominate {
        shape: usize,
    },
    Withdraw {
        nomination: usize,
    },
    /// Capacity is reserved while another pod is placed, whether it exists or not.
    Reserve {
        shape: usize,
        start: usize,
    },
}

fn decision() -> impl Strategy<Value = Move> {
    let shape = || 0..SHAPES.len();
    prop_oneof![
        4 => (shape(), 1..4_u32).prop_map(|(shape, pods)| Move::Start { shape, pods }),
        2 => (0..8_usize, 1..4_u32).prop_map(|(holder_number, pods)| Move::Stop { holder_number, pods }),
        2 => (0..8_usize).prop_map(|holder_number| Move::End { holder_number }),
        4 => shape().prop_map(|shape| Move::Nominate { shape }),
        2 => (0..8_usize).prop_map(|nomination| Move::Withdraw { nomination }),
        2 => (shape(), shape()).prop_map(|(shape, start)| Move::Reserve { shape, start }),
    ]
}

/// The holders on the one node, with the need, number and terminating number of their pods.
fn holding(need: &Vector, pods: u32, terminating: u32) -> Hold {
    Hold { need: need.clone(), profile: None, pods, terminating }
}

type Running = Vec<(Holder, Vector, u32, u32)>;

/// Applies a step to the one node if its capacity allows it.
fn apply_move(fixture: &mut Fixture, running: &mut Running, names: &mut usize, step: &Move) {
    match *step {
        Move::Start { shape, pods } => {
            let need = fixture.need(shape);
            if fixture.table.get(NodeId(0)).now().fits(&fixture.table.demand(&need)) >= pods {
                let holder = Holder::Workload(WorkloadId(format!("w{names}").into()));
                *names += 1;
                fixture.table.hold(NodeId(0), &holder, holding(&need, pods, 0));
                running.push((holder, need, pods, 0));
            }
        }
        Move::Stop { holder_number, pods } => {
            if let Some((holder, need, all, terminating)) = running.get_mut(holder_number) {
                *terminating = (*terminating).max(pods.min(*all));
                fixture.table.hold(NodeId(0), holder, holding(need, *all, *terminating));
            }
        }
        Move::End { holder_number } => {
            if holder_number < running.len() {
                let (holder, ..) = running.remove(holder_number);
                fixture.table.hold(NodeId(0), &holder, Hold::default());
            }
        }
        Move::Nominate { shape } => {
            let need = fixture.need(shape);
            if fixture.table.get(NodeId(0)).settled().fits(&fixture.table.demand(&need)) > 0 {
                fixture.table.nominate(NodeId(0), &need, 1);
                fixture.nominated.push((NodeId(0), need));
            }
        }
        Move::Withdraw { nomination } => {
            if nomination < fixture.nominated.len() {
                let (_, need) = fixture.nominated.remove(nomination);
                fixture.table.nominate(NodeId(0), &need, -1);
            }
        }
        Move::Reserve { shape, start } => {
            let need = fixture.need(shape);
            fixture.table.nominate(NodeId(0), &need, 1);
            apply_move(fixture, running, names, &Move::Start { shape: start, pods: 1 });
            apply_move(fixture, running, names, &Move::Nominate { shape: start });
            fixture.table.nominate(NodeId(0), &need, -1);
        }
    }
}

/// Fractions and whole devices run on one node, and one pod is reserved that counts on the end of all of them. What starts or is
/// nominated beside it leaves its capacity whole.
fn check_reserved(running: &[usize], reserved: usize, then: usize) -> Result<(), TestCaseError> {
    let mut fixture = Fixture::new();
    fixture.apply(&Step::Node { node: 0, gpus: 3, open: true, tainted: false, kind: 0 });
    let gpu = fixture.resources.intern(&GPU.into());
    let (mut before, mut names) = (Running::new(), 0);
    for shape in running {
        apply_move(&mut fixture, &mut before, &mut names, &Move::Start { shape: *shape, pods: 1 });
    }
    let need = fixture.need(reserved);
    let empty = fixture.table.get(NodeId(0)).empty().fits(&fixture.table.demand(&need));
    if empty == 0 {
        return Ok(());
    }
    fixture.table.nominate(NodeId(0), &need, 1);
    let mut beside = Running::new();
    apply_move(&mut fixture, &mut beside, &mut names, &Move::Start { shape: then, pods: 1 });
    apply_move(&mut fixture, &mut beside, &mut names, &Move::Nominate { shape: then });
    while !before.is_empty() {
        apply_move(&mut fixture, &mut before, &mut names, &Move::End { holder_number: 0 });
    }
    let settled = fixture.table.get(NodeId(0)).settled();
    prop_assert!(settled.untouched(gpu) >= 0, "{settled:?}");
    Ok(())
}

/// A placement on offered capacity takes none that is held or nominated. Once all pods have ended, every
/// nomination fits.
fn check_offers(steps: &[Move]) -> Result<(), TestCaseError> {
    let mut fixture = Fixture::new();
    fixture.apply(&Step::Node { node: 0, gpus: 3, open: true, tainted: false, kind: 0 });
    let gpu = fixture.resources.intern(&GPU.into());
    let (mut running, mut names) = (Running::new(), 0);
    for step in steps {
        apply_move(&mut fixture, &mut running, &mut names, step);
        let node = fixture.table.get(NodeId(0));
        for (space, when) in [(node.unheld(), "now"), (node.settled(), "in the end")] {
            prop_assert!(space.untouched(gpu) >= 0, "{when}: {space:?}");
            prop_assert!(space.shared().iter().all(|device| device.left >= 0), "{when}: {space:?}");
        }
    }
    while !running.is_empty() {
        apply_move(&mut fixture, &mut running, &mut names, &Move::End { holder_number: 0 });
    }
    while let Some((_, need)) = fixture.nominated.pop() {
        fixture.table.nominate(NodeId(0), &need, -1);
        let demand = fixture.table.demand(&need);
        prop_assert!(
            fixture.table.get(NodeId(0)).now().fits(&demand) > 0,
            "{:?}",
            fixture.table.get(NodeId(0))
        );
        let holder = Holder::Workload(WorkloadId(format!("w{names}").into()));
        names += 1;
        fixture.table.hold(NodeId(0), &holder, holding(&need, 1, 0));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn offered_capacity_is_free_now_and_in_the_end(steps in prop::collection::vec(decision(), 1..40)) {
        check_offers(&steps)?;
    }

    #[test]
    fn what_a_reservation_counts_on_is_not_offered(
        running in prop::collection::vec(0..SHAPES.len(), 0..6),
        (reserved, then) in (0..SHAPES.len(), 0..SHAPES.len()),
    ) {
        check_reserved(&running, reserved, then)?;
    }
}

#[test]
fn a_fraction_is_nominated_on_an_existing_device_before_a_reserved_one() {
    let (half, third, most) = (2, 3, 6);
    let steps = [
        Move::Nominate { shape: half },
        Move::Start { shape: half, pods: 1 },
        Move::Reserve { shape: 0, start: half },
        Move::Reserve { shape: third, start: most },
        Move::Withdraw { nomination: 0 },
        // Beside this reservation a third would fit exactly, but on a fourth of three devices.
        Move::Reserve { shape: most, start: third },
    ];
    check_offers(&steps).expect("every nomination fits");
}
