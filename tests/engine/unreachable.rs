//! Nodes that do not answer and are never deleted: their pods are held nowhere after a while, and their workloads go on
//! elsewhere (law 1). The judge keeps books of its own, from what the test's cluster does.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use sluice_engine::Engine;
use sluice_engine::types::{
    Action, Event, EvictReason, MisplacedPods, Name, Node, Observed, OnUnreachable, Pod, PodId, PodShape,
    Queue, Settings, State, Team, Time, Workload, WorkloadId, WorkloadKind,
};

use super::world::{gpus, team};

/// How long a node may give no answer.
const AFTER: i64 = 60_000;
const GUARANTEE: i64 = 6;

/// A workload of the test's cluster.
#[derive(Clone, Debug)]
struct Item {
    workload: Workload,
    /// Its pods by identity, with their node.
    pods: BTreeMap<PodId, Name>,
    made: u32,
}

/// A cluster with kubelets and a Job controller, as far as the engine sees them.
struct Cluster {
    engine: Engine,
    now: Time,
    /// Since when each node has not answered.
    nodes: BTreeMap<Name, Option<Time>>,
    gpus: i64,
    items: BTreeMap<WorkloadId, Item>,
    submitted: u32,
    /// Whether the API server refuses to end pods.
    refuses: bool,
}

fn teams() -> Team {
    let mut team = team("a", None, GUARANTEE, Some(GUARANTEE));
    team.queues.push(Queue { name: "once".into(), on_unreachable: OnUnreachable::Wait, ..Queue::fallback() });
    team
}

impl Cluster {
    fn new(nodes: usize, gpus: i64) -> Self {
        let nodes = (0..nodes).map(|index| (format!("n{index}").into(), None)).collect();
        let engine = Engine::new();
        let mut cluster = Self {
            engine,
            now: Time(1_000),
            nodes,
            gpus,
            items: BTreeMap::new(),
            submitted: 0,
            refuses: false,
        };
        cluster.rebuild();
        cluster
    }

    /// Starts a new engine from the objects.
    fn rebuild(&mut self) {
        let unreachable_after = Duration::from_millis(AFTER.unsigned_abs());
        self.engine = Engine::with_settings(Settings { unreachable_after, ..Settings::default() });
        self.tell(Event::TeamApplied(teams()));
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            self.tell_node(&name);
        }
        for item in self.items.values().cloned().collect::<Vec<_>>() {
            self.tell(Event::workload(item.workload.clone()));
            for (pod, node) in &item.pods {
                self.tell_pod(&item.workload.id, pod, node);
            }
        }
    }

    fn tell(&mut self, event: Event) {
        self.engine.apply(event, self.now);
    }

    fn tell_pod(&mut self, id: &WorkloadId, pod: &PodId, node: &Name) {
        self.tell(Event::PodApplied(Pod {
            id: pod.clone(),
            workload: Some(id.clone()),
            node: Some(node.clone()),
            requests: gpus(1),
            profile: None,
            unadmitted: None,
        }));
    }

    fn tell_node(&mut self, name: &Name) {
        let unreachable = self.nodes[name];
        let (schedulable, allocatable) = (unreachable.is_none(), gpus(self.gpus));
        let (labels, taints) = ([].into(), Vec::new());
        let node = Node { name: name.clone(), labels, allocatable, taints, schedulable, unreachable };
        self.tell(Event::NodeApplied(node));
    }

    fn tell_workload(&mut self, id: &WorkloadId) {
        if let Some(workload) = self.items.get(id).map(|item| item.workload.clone()) {
            self.tell(Event::workload(workload));
        }
    }

    fn submit(&mut self, pods: u32, queue: &str, kind: WorkloadKind, resizable: bool) -> WorkloadId {
        self.submitted += 1;
        let name: Name = format!("w{}", self.submitted).into();
        let shape = PodShape { requests: gpus(1), ..PodShape::default() };
        let is_pod = kind == WorkloadKind::Pod;
        let workload = Workload {
            queue: Some(queue.into()),
            kind,
            resumable: !is_pod,
            resizable: resizable && !is_pod,
            ..Workload::job(&"a".into(), &name, if is_pod { 1 } else { pods }, shape, self.now)
        };
        let id = workload.id.clone();
        self.items.insert(id.clone(), Item { workload, pods: BTreeMap::new(), made: 0 });
        self.tell_workload(&id);
        id
    }

    fn answers(&self, node: &Name) -> bool {
        self.nodes.get(node).is_some_and(Option::is_none)
    }

    /// Whether a node has not answered for too long.
    fn is_lost(&self, node: &Name) -> bool {
        let since = self.nodes.get(node).copied().flatten();
        since.is_some_and(|since| since.0 + AFTER <= self.now.0)
    }

    fn remove_pod(&mut self, id: &WorkloadId, pod: &PodId) {
        if self.items.get_mut(id).is_some_and(|item| item.pods.remove(pod).is_some()) {
            self.tell(Event::PodRemoved(pod.clone()));
        }
    }

    /// What controllers and kubelets do: planned pods are made, pods of stopped workloads end where a kubelet answers.
    fn follow(&mut self, id: &WorkloadId) {
        let Some(item) = self.items.get(id).cloned() else { return };
        match &item.workload.state {
            Observed::Admitted(admission) => {
                let mut missing = admission.pods.saturating_sub(u32::try_from(item.pods.len()).expect("few"));
                let up: Vec<(&Name, &u32)> =
                    admission.nodes.iter().filter(|(node, _)| self.answers(node)).collect();
                for (node, planned) in up {
                    let there = item.pods.values().filter(|at| *at == node).count();
                    for _ in there..(*planned as usize) {
                        if missing == 0 || item.workload.kind == WorkloadKind::Pod && item.made > 0 {
                            break;
                        }
                        missing -= 1;
                        let known = self.items.get_mut(id).expect("known");
                        known.made += 1;
                        let pod = PodId(format!("{id}-{}", known.made).into());
                        known.pods.insert(pod.clone(), node.clone());
                        self.tell_pod(id, &pod, node);
                    }
                }
            }
            Observed::Leaving { .. } => {
                let up: Vec<_> = item.pods.iter().filter(|(_, node)| self.answers(node)).collect();
                for (pod, _) in up {
                    self.remove_pod(id, pod);
                }
                if self.items[id].pods.is_empty() {
                    self.items.get_mut(id).expect("known").workload.state = Observed::Queued;
                    self.tell_workload(id);
                }
            }
            _ => {}
        }
    }

    fn carry_out(&mut self, action: Action) -> Result<(), TestCaseError> {
        let id = action.workload().clone();
        let now = self.now;
        let item = self.items.get_mut(&id).expect("a known workload");
        match action {
            Action::Admit { admission, .. } | Action::Resize { admission, .. } => {
                item.workload.state = Observed::Admitted(admission);
                self.tell_workload(&id);
            }
            Action::Evict { reason, .. } => {
                prop_assert_eq!(reason, EvictReason::NodeLost);
                prop_assert!(item.workload.queue != Some("once".into()), "{id} must never run twice");
                let Observed::Admitted(admission) = item.workload.state.clone() else {
                    return Err(TestCaseError::fail(format!("{id} does not run")));
                };
                item.workload.state = Observed::Leaving { admission, since: now, stopped: true };
                self.tell_workload(&id);
            }
            Action::EndPod { pod, message, .. } => {
                let node = item.pods.get(&pod).cloned();
                let workload = item.workload.clone();
                let node = node.ok_or_else(|| TestCaseError::fail("the pod is gone"))?;
                prop_assert!(self.is_lost(&node), "{node} answers: {message}");
                prop_assert!(message.contains(&*node), "{message}");
                prop_assert!(workload.queue != Some("once".into()), "{id} must never run twice");
                if let (true, Observed::Admitted(admission)) = (workload.resumable, &workload.state) {
                    prop_assert!(!admission.nodes.contains_key(&node), "{id} still counts on the pod");
                }
                if self.refuses {
                    self.tell(Event::PodNotEnded(pod));
                    return Ok(());
                }
                self.remove_pod(&id, &pod);
                if !workload.resumable {
                    self.items.remove(&id);
                    self.tell(Event::WorkloadRemoved(id));
                    return Ok(());
                }
            }
            Action::Fail { .. } => return Err(TestCaseError::fail("no limit is set")),
        }
        self.follow(&id);
        Ok(())
    }

    /// Carries out plans until there is nothing more to decide.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..100 {
            let actions = self.engine.plan(self.now).actions;
            if actions.is_empty() && !self.engine.has_more() {
                return Ok(());
            }
            for action in actions {
                self.carry_out(action)?;
            }
        }
        Err(TestCaseError::fail("the decisions reach no fixed point"))
    }

    fn silence(&mut self, index: usize) {
        let Some(name) = self.nodes.keys().nth(index).cloned() else { return };
        let since = self.nodes[&name].unwrap_or(self.now);
        self.nodes.insert(name.clone(), Some(since));
        self.tell_node(&name);
    }

    /// A node answers again; its kubelet ends the pods that are to end.
    fn answer(&mut self, index: usize) {
        let Some(name) = self.nodes.keys().nth(index).cloned() else { return };
        self.nodes.insert(name.clone(), None);
        self.tell_node(&name);
        for id in self.items.keys().cloned().collect::<Vec<_>>() {
            self.follow(&id);
            self.report_misplaced(&id);
        }
    }

    /// Reports the pods of a running workload that are not where its record plans them: those that could not be ended
    /// while their node gave no answer, and run on.
    fn report_misplaced(&mut self, id: &WorkloadId) {
        let item = &self.items[id];
        let Observed::Admitted(admission) = &item.workload.state else { return };
        let mut there: BTreeMap<Name, u32> = BTreeMap::new();
        for node in item.pods.values() {
            *there.entry(node.clone()).or_default() += 1;
        }
        if there.iter().any(|(node, pods)| admission.nodes.get(node).is_none_or(|planned| planned < pods)) {
            let (workload, stuck, message) = (id.clone(), BTreeMap::new(), String::new());
            self.tell(Event::PodsMisplaced(MisplacedPods { workload, there, stuck, message }));
        }
    }

    /// The team is charged each record, or the pods that are held somewhere if they are more; no node and no team has more
    /// than it may; no workload waits for a pod that no kubelet will end.
    fn check(&self) -> Result<(), TestCaseError> {
        let held = |item: &Item| item.pods.values().filter(|node| !self.is_lost(node)).count();
        let charged = |item: &Item| match &item.workload.state {
            Observed::Admitted(admission) => (admission.pods as usize).max(held(item)),
            _ => held(item),
        };
        let total: usize = self.items.values().map(charged).sum();
        let used = self.engine.teams()[0].used.get("nvidia.com/gpu").map_or(0, |used| used.as_milli() / 1000);
        prop_assert_eq!(used, i64::try_from(total).expect("few"), "charged");
        prop_assert!(used <= GUARANTEE);
        let mut on_node: BTreeMap<&Name, i64> = BTreeMap::new();
        for item in self.items.values() {
            let once = item.workload.queue == Some("once".into());
            match &item.workload.state {
                Observed::Admitted(admission) => {
                    for (node, pods) in &admission.nodes {
                        // A bare pod is its own record, until it is ended.
                        let spared = once || self.refuses && !item.workload.resumable;
                        prop_assert!(
                            spared || !self.is_lost(node),
                            "{:?} counts on {node}",
                            item.workload.id
                        );
                        *on_node.entry(node).or_default() += i64::from(*pods);
                    }
                }
                Observed::Leaving { .. } => {
                    let lost = item.pods.values().any(|node| self.is_lost(node));
                    prop_assert!(
                        !lost || self.refuses,
                        "{:?} waits for a pod that no kubelet ends",
                        item.workload.id
                    );
                }
                _ => {}
            }
        }
        for (node, pods) in on_node {
            prop_assert!(pods <= self.gpus, "{node} has {pods} pods");
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Op {
    Submit { pods: u32, once: bool, pod: bool, resizable: bool },
    Silence(usize),
    Answer(usize),
    Pass(i64),
    Refuse(bool),
    Rebuild,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1..4_u32, proptest::bool::weighted(0.2), proptest::bool::weighted(0.2), any::<bool>())
            .prop_map(|(pods, once, pod, resizable)| Op::Submit { pods, once, pod, resizable }),
        3 => (0..4_usize).prop_map(Op::Silence),
        2 => (0..4_usize).prop_map(Op::Answer),
        3 => (1..100_i64).prop_map(Op::Pass),
        2 => any::<bool>().prop_map(Op::Refuse),
        1 => Just(Op::Rebuild),
    ]
}

proptest! {
    #[test]
    fn law_1_pods_on_dead_nodes_are_held_nowhere(
        nodes in 1..4_usize,
        gpus in 1..4_i64,
        ops in proptest::collection::vec(op(), 1..40),
    ) {
        let mut cluster = Cluster::new(nodes, gpus);
        for op in ops {
            match op {
                Op::Submit { pods, once, pod, resizable } => {
                    let kind = if pod { WorkloadKind::Pod } else { WorkloadKind::Job };
                    cluster.submit(pods, if once { "once" } else { "train" }, kind, resizable);
                }
                Op::Silence(index) => cluster.silence(index),
                Op::Answer(index) => cluster.answer(index),
                Op::Pass(seconds) => {
                    // Every deadline on the way is kept, as on a cluster.
                    let end = cluster.now.0 + seconds * 1000;
                    while let Some(due) = cluster.engine.next_deadline().filter(|due| due.0 < end && due.0 > cluster.now.0) {
                        cluster.now = due;
                        cluster.settle()?;
                    }
                    cluster.now = Time(end);
                }
                Op::Refuse(refuses) => {
                    cluster.refuses = refuses;
                    // The longest pause after a refusal.
                    cluster.now = Time(cluster.now.0 + 60_000);
                }
                Op::Rebuild => cluster.rebuild(),
            }
            cluster.settle()?;
            cluster.check()?;
        }
    }
}

fn evicted(actions: &[Action]) -> BTreeSet<&WorkloadId> {
    let evicted = |action: &&Action| matches!(action, Action::Evict { .. });
    actions.iter().filter(evicted).map(Action::workload).collect()
}

#[test]
fn a_gang_on_a_dead_node_goes_on_elsewhere() {
    let mut cluster = Cluster::new(3, 2);
    let id = cluster.submit(4, "train", WorkloadKind::Job, false);
    cluster.settle().expect("it starts");
    cluster.silence(0);
    cluster.settle().expect("nothing to do yet");
    assert!(matches!(cluster.items[&id].workload.state, Observed::Admitted(_)), "the node may come back");
    let due = cluster.engine.next_deadline().expect("the time at which it is lost");
    assert_eq!(due, Time(1_000 + AFTER));
    cluster.now = due;
    let plan = cluster.engine.plan(due);
    assert_eq!(evicted(&plan.actions), [&id].into());
    let Action::Evict { message, .. } = &plan.actions[0] else { panic!("{plan:?}") };
    assert!(message.starts_with("Lost pods with node n0, which has not answered for 1m."), "{message}");
    for action in plan.actions {
        cluster.carry_out(action).expect("the eviction");
    }
    assert!(
        matches!(cluster.items[&id].workload.state, Observed::Leaving { .. }),
        "its pods on n0 do not end"
    );
    cluster.settle().expect("they are ended, and it starts again");
    let Observed::Admitted(admission) = &cluster.items[&id].workload.state else {
        panic!("it runs elsewhere")
    };
    assert_eq!(admission.nodes.keys().map(|node| &**node).collect::<Vec<_>>(), ["n1", "n2"]);
}

#[test]
fn work_that_must_never_run_twice_waits_for_its_node() {
    let mut cluster = Cluster::new(2, 2);
    let id = cluster.submit(2, "once", WorkloadKind::Job, false);
    cluster.settle().expect("it starts");
    cluster.silence(0);
    cluster.now = Time(10 * AFTER);
    cluster.settle().expect("nothing happens");
    assert!(matches!(cluster.items[&id].workload.state, Observed::Admitted(_)));
    assert_eq!(cluster.engine.verdict(&id).expect("a verdict").state, State::Running);
    cluster.answer(0);
    cluster.settle().expect("it goes on");
    assert_eq!(cluster.items[&id].pods.len(), 2);
}
