//! Sluice as a policy: the engine that runs clusters receives one pod after another.
//!
//! It learns the mix of pods from those that have arrived; it knows nothing of later ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use sluice_engine::Engine;
use sluice_engine::types::Action;
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{
    Event, Name, Node, NodeTerm, Observed, Operator, PodShape, Queue, Quota, Requirement, Team, Time,
    Workload, WorkloadId,
};

use crate::cluster::{Cluster, Spot};
use crate::trace::{DEVICE, Pod, Trace};

const GPU: &str = "nvidia.com/gpu";
const MODEL: &str = "nvidia.com/gpu.product";
const TEAM: &str = "cluster";
const MIB: i64 = 1 << 20;
/// Milliseconds between two arrivals.
const PACE: i64 = 1000;

/// The engine, and its last request.
pub struct Sluice {
    engine: Engine,
    models: Vec<Name>,
    /// Nodes by name.
    index: BTreeMap<Name, usize>,
    arrived: i64,
    asked: Option<Workload>,
    /// Whether the last pod was admitted, with its admission.
    answer: Option<Observed>,
}

impl Sluice {
    /// An engine that knows the nodes and one team, which owns the whole cluster.
    pub fn new(trace: &Trace, cluster: &Cluster) -> Self {
        let mut engine = Engine::new();
        let models: Vec<Name> = trace.models.iter().map(|model| Arc::from(model.as_str())).collect();
        let mut index = BTreeMap::new();
        let mut everything = ResourceList::new();
        for (number, machine) in trace.machines.iter().enumerate() {
            // The node at this place in the order lends its name.
            let name: Name = Arc::from(trace.machines[cluster.rank[number]].name.as_str());
            let allocatable =
                resources(machine.cpu, machine.memory, machine.devices as i64 * i64::from(DEVICE));
            for (resource, amount) in &allocatable {
                let total = everything.entry(resource.clone()).or_insert(Amount::ZERO);
                *total = Amount::milli(total.as_milli() + amount.as_milli());
            }
            let node = Node {
                name: name.clone(),
                labels: BTreeMap::from([(MODEL.into(), models[usize::from(machine.model)].clone())]),
                allocatable,
                taints: Vec::new(),
                schedulable: true,
                unreachable: None,
            };
            engine.apply(Event::NodeApplied(node), Time(0));
            index.insert(name, number);
        }
        let quota = Quota { guaranteed: everything, ..Quota::default() };
        let team = Team {
            name: TEAM.into(),
            parent: None,
            quotas: BTreeMap::from([(sluice_engine::types::DEFAULT_POOL.into(), quota)]),
            weight: 1,
            // Running pods are not moved, as with all compared policies.
            queues: vec![Queue { preemptible: false, ..Queue::fallback() }],
            fair_users: false,
            budget: None,
        };
        engine.apply(Event::TeamApplied(team), Time(0));
        engine.plan(Time(0));
        Self { engine, models, index, arrived: 0, asked: None, answer: None }
    }

    fn now(&self) -> Time {
        Time(self.arrived * PACE)
    }

    fn workload(&self, pod: &Pod) -> Workload {
        let name: Name = format!("pod-{}", self.arrived).into();
        Workload {
            id: WorkloadId(name.clone()),
            ..Workload::job(&TEAM.into(), &name, 1, self.shape(pod), self.now())
        }
    }

    fn shape(&self, pod: &Pod) -> PodShape {
        let accepted = self.models.iter().enumerate().filter(|(model, _)| pod.models & 1 << model != 0);
        let affinity = (pod.models != u16::MAX).then(|| NodeTerm {
            labels: vec![Requirement {
                key: MODEL.into(),
                operator: Operator::In,
                values: accepted.map(|(_, name)| name.clone()).collect(),
            }],
            fields: Vec::new(),
        });
        PodShape {
            requests: resources(pod.cpu, pod.memory, pod.request()),
            node_terms: affinity.into_iter().collect(),
            ..PodShape::default()
        }
    }
}

impl crate::policy::Policy for Sluice {
    fn place(&mut self, cluster: &Cluster, pod: &Pod) -> Result<Option<Spot>> {
        self.arrived += 1;
        let workload = self.workload(pod);
        self.engine.apply(Event::workload(workload.clone()), self.now());
        let plan = self.engine.plan(self.now());
        let mut spot = None;
        for action in plan.actions {
            let Action::Admit { workload: admitted, admission, .. } = action else {
                anyhow::bail!("expected only admissions, not {action:?}");
            };
            ensure!(admitted == workload.id, "{admitted} was admitted after its end");
            let name = admission.nodes.keys().next().context("an admission without nodes")?;
            let node = *self.index.get(name).with_context(|| format!("unknown node {name}"))?;
            // The engine chooses the device of a GPU fraction; its allocations are compared at the end.
            spot = Some(Spot { node, devices: cluster.nodes[node].tightest(pod) });
            self.answer = Some(Observed::Admitted(admission));
        }
        self.asked = Some(workload);
        Ok(spot)
    }

    fn confirm(&mut self) {
        let Some(mut workload) = self.asked.take() else { return };
        let event = match self.answer.take() {
            Some(state) => {
                workload.state = state;
                Event::workload(workload)
            }
            None => Event::WorkloadRemoved(workload.id),
        };
        self.engine.apply(event, self.now());
    }

    fn audit(&self, cluster: &Cluster) -> Result<()> {
        for view in self.engine.nodes() {
            let node = &cluster.nodes[self.index[&view.name]];
            let expected = resources(node.cpu, node.memory, i64::from(node.left()));
            let free = |list: &ResourceList, name: &str| list.get(name).map_or(0, |amount| amount.as_milli());
            for name in ["cpu", "memory", GPU] {
                ensure!(
                    free(&view.free, name) == free(&expected, name),
                    "{}: the engine's usage of {name} differs: {:?}, not {:?}",
                    view.name,
                    view.free,
                    expected
                );
            }
            let mut shared: Vec<i64> = view
                .shared
                .iter()
                .map(|device| 1000 - device.shares.iter().map(|(_, share)| share.as_milli()).sum::<i64>())
                .collect();
            let mut left: Vec<i64> = node.free[..node.devices]
                .iter()
                .filter(|free| **free > 0 && **free < DEVICE)
                .map(|free| i64::from(*free))
                .collect();
            shared.retain(|free| *free > 0);
            shared.sort_unstable();
            left.sort_unstable();
            ensure!(
                shared == left,
                "{}: the engine's GPU fractions differ: {shared:?}, not {left:?}",
                view.name
            );
        }
        Ok(())
    }
}

/// Processors and devices in thousandths, memory in MiB.
fn resources(cpu: i32, memory: i32, devices: i64) -> ResourceList {
    let amounts = [
        ("cpu", Amount::milli(i64::from(cpu))),
        ("memory", Amount::units(i64::from(memory) * MIB)),
        (GPU, Amount::milli(devices)),
    ];
    amounts
        .into_iter()
        .filter(|(_, amount)| *amount != Amount::ZERO)
        .map(|(name, a)| (name.into(), a))
        .collect()
}
