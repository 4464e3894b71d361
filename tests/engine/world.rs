//! A small cluster for the engine to act on. It carries actions out and keeps its own state, so that a law is
//! judged by that state and not by the engine's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluice_engine::Engine;
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{Action, EvictReason, FairShareWindow};
use sluice_engine::types::{
    Admission, Event, Name, Node, Observed, Pod, PodId, PodShape, Queue, Quota, Settings, Team, Time,
    Workload, WorkloadId,
};

pub const GPU: &str = "nvidia.com/gpu";

/// The phase of a workload in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    Queued,
    Running(Admission),
    /// Evicted at that time; its pods still hold the admission's capacity.
    Stopping(Admission, Time),
    Finished,
}

/// A submitted workload and its phase.
#[derive(Clone, Debug)]
pub struct Job {
    pub workload: Workload,
    pub gpus_per_pod: i64,
    pub phase: Phase,
}

impl Job {
    /// GPUs of all its pods.
    pub fn total(&self) -> i64 {
        self.gpus_per_pod * i64::from(self.workload.pods)
    }

    pub fn preemptible(&self) -> bool {
        self.workload.queue.as_deref() != Some("fixed")
    }
}

pub struct World {
    pub engine: Engine,
    /// The settings of every engine that [`World::rebuild`] starts.
    pub settings: Settings,
    pub now: Time,
    /// GPUs of each node, and whether it is schedulable.
    pub nodes: BTreeMap<Name, (i64, bool)>,
    pub teams: BTreeMap<Name, Team>,
    pub items: BTreeMap<WorkloadId, Job>,
    /// Node and GPUs of each unmanaged pod.
    pub unmanaged: BTreeMap<PodId, (Name, i64)>,
    /// Actions that are decided and not yet written.
    pub in_flight: Vec<Action>,
    /// Every action so far, one line each.
    pub log: Vec<String>,
    /// The victims of each preemptor.
    pub evicted_for: BTreeMap<WorkloadId, BTreeSet<WorkloadId>>,
    /// Workloads that are evicted only to continue on other nodes.
    pub moving: BTreeSet<WorkloadId>,
    submitted: usize,
    unmanaged_created: usize,
}

/// An action as one line of the log. The golden file holds digests of these lines, so no byte of them may
/// change.
fn log_line(action: &Action) -> String {
    let nodes = |admission: &Admission| {
        let nodes: Vec<String> =
            admission.nodes.iter().map(|(node, pods)| format!("{node}:{pods}")).collect();
        nodes.join(",")
    };
    match action {
        Action::Admit { workload, admission, .. } => {
            format!(
                "Admit {workload} on {} at {} borrowed {}",
                nodes(admission),
                admission.at.0,
                admission.borrowed
            )
        }
        Action::Resize { workload, admission, cause, preemptor, .. } => {
            format!("Resize {workload} to {} {cause:?} for {preemptor:?}", nodes(admission))
        }
        Action::Evict { workload, preemptor, reason, .. } => {
            format!("Evict {workload} for {} {reason:?}", preemptor.as_ref().map_or("nobody", |id| &id.0))
        }
        Action::EndPod { workload, pod, .. } => format!("EndPod {workload} {pod:?}"),
        Action::Fail { workload, reason, .. } => format!("Fail {workload} {reason:?}"),
    }
}

/// A resource list of whole GPUs.
pub fn gpus(count: i64) -> ResourceList {
    ResourceList::from([(GPU.into(), Amount::units(count))])
}

/// An open node without labels that offers this many GPUs.
pub fn node(name: &str, count: i64) -> Node {
    Node {
        name: name.into(),
        labels: BTreeMap::new(),
        allocatable: gpus(count),
        taints: Vec::new(),
        schedulable: true,
        unreachable: None,
    }
}

/// A team with three queues: `train`, `fixed` (not preemptible) and `slow` (a minimum run time of 60 s). Their workloads
/// may be evicted for fair shares as long as they run, so that no clock hides what the other laws forbid.
pub fn team(name: &str, parent: Option<&str>, guaranteed: i64, limit: Option<i64>) -> Team {
    let quota = Quota {
        guaranteed: gpus(guaranteed),
        limit: limit.map(gpus).unwrap_or_default(),
        lendable: ResourceList::new(),
    };
    let always = Queue { fair_share_window: FairShareWindow::Always, ..Queue::fallback() };
    Team {
        name: name.into(),
        parent: parent.map(Into::into),
        quotas: BTreeMap::from([("default".into(), quota)]),
        weight: 1,
        fair_users: false,
        budget: None,
        queues: vec![
            Queue { name: "train".into(), ..always.clone() },
            Queue { name: "fixed".into(), preemptible: false, ..always.clone() },
            Queue { name: "slow".into(), min_runtime: Duration::from_secs(60), ..always },
        ],
    }
}

impl World {
    pub fn new(nodes: &[i64], teams: Vec<Team>) -> Self {
        let mut world = Self {
            engine: Engine::new(),
            settings: Settings::default(),
            now: Time(0),
            nodes: nodes.iter().enumerate().map(|(i, n)| (format!("n{i}").into(), (*n, true))).collect(),
            teams: teams.into_iter().map(|team| (team.name.clone(), team)).collect(),
            items: BTreeMap::new(),
            unmanaged: BTreeMap::new(),
            in_flight: Vec::new(),
            log: Vec::new(),
            evicted_for: BTreeMap::new(),
            moving: BTreeSet::new(),
            submitted: 0,
            unmanaged_created: 0,
        };
        world.rebuild();
        world
    }

    /// Starts a new engine from the objects alone. Decisions that are not written are lost.
    pub fn rebuild(&mut self) {
        self.engine = Engine::with_settings(self.settings);
        self.in_flight.clear();
        self.moving.clear();
        let mut events: Vec<Event> = self.teams.values().cloned().map(Event::TeamApplied).collect();
        events.extend(self.nodes.keys().map(|name| Event::NodeApplied(self.node(name))));
        events.extend(self.items.values().map(|job| Event::workload(self.observed(job))));
        events.extend(self.pods().into_iter().map(Event::PodApplied));
        for event in events {
            self.engine.apply(event, self.now);
        }
    }

    pub fn node(&self, name: &Name) -> Node {
        let (count, schedulable) = self.nodes[name];
        Node {
            name: name.clone(),
            labels: BTreeMap::new(),
            allocatable: gpus(count),
            taints: Vec::new(),
            schedulable,
            unreachable: None,
        }
    }

    /// The workload as its object shows it now.
    fn observed(&self, job: &Job) -> Workload {
        let state = match &job.phase {
            Phase::Queued => Observed::Queued,
            Phase::Running(admission) => Observed::Admitted(admission.clone()),
            Phase::Stopping(admission, since) => {
                Observed::Leaving { admission: admission.clone(), since: *since, stopped: true }
            }
            Phase::Finished => Observed::Finished,
        };
        Workload { state, ..job.workload.clone() }
    }

    fn pods_of(&self, job: &Job) -> Vec<Pod> {
        let (Phase::Running(admission) | Phase::Stopping(admission, _)) = &job.phase else {
            return Vec::new();
        };
        let mut pods = Vec::new();
        for (node, count) in admission.nodes.iter().filter(|(node, _)| self.nodes.contains_key(*node)) {
            for i in 0..*count {
                pods.push(Pod {
                    id: PodId(format!("{}/{node}/{i}", job.workload.id).into()),
                    workload: Some(job.workload.id.clone()),
                    node: Some(node.clone()),
                    requests: gpus(job.gpus_per_pod),
                    profile: None,
                    unadmitted: None,
                });
            }
        }
        pods
    }

    fn pods(&self) -> Vec<Pod> {
        let mut pods: Vec<Pod> = self.items.values().flat_map(|job| self.pods_of(job)).collect();
        pods.extend(self.unmanaged.iter().map(|(id, (node, count))| Pod {
            id: id.clone(),
            workload: None,
            node: Some(node.clone()),
            requests: gpus(*count),
            profile: None,
            unadmitted: None,
        }));
        pods
    }

    /// Submits a workload of `pods` pods with `gpus_per_pod` GPUs each.
    pub fn submit(
        &mut self,
        team: &Name,
        queue: &str,
        priority: i32,
        pods: u32,
        gpus_per_pod: i64,
    ) -> WorkloadId {
        self.submitted += 1;
        let name = format!("w{}", self.submitted);
        let shape = PodShape { requests: gpus(gpus_per_pod), ..PodShape::default() };
        let workload = Workload {
            queue: Some(queue.into()),
            priority,
            user: Some(format!("u{}", self.submitted % 3).into()),
            resizable: true,
            ..Workload::job(team, &name.into(), pods, shape, self.now)
        };
        let id = workload.id.clone();
        self.engine.apply(Event::workload(workload.clone()), self.now);
        self.items.insert(id.clone(), Job { workload, gpus_per_pod, phase: Phase::Queued });
        id
    }

    /// Runs a scheduling cycle and logs its actions.
    pub fn plan(&mut self) -> Vec<Action> {
        let actions = self.engine.plan(self.now).actions;
        for action in &actions {
            self.log.push(log_line(action));
            if let Action::Evict { workload, reason: EvictReason::Moved, .. } = action {
                self.moving.insert(workload.clone());
            }
            if let Action::Evict { workload, preemptor: Some(preemptor), .. } = action {
                self.evicted_for.entry(preemptor.clone()).or_default().insert(workload.clone());
            }
        }
        self.in_flight.extend(actions.clone());
        actions
    }

    /// Carries one decided action out, or reports that its write failed.
    pub fn deliver(&mut self, index: usize, success: bool) {
        let action = self.in_flight.remove(index);
        let id = action.workload().clone();
        let Some(job) = self.items.get(&id).cloned() else { return };
        if !success {
            let message = "the API server refused the write".to_owned();
            self.moving.remove(&id);
            self.engine.apply(Event::WriteFailed { workload: id, message }, self.now);
            return;
        }
        let mut job = job;
        if let Action::Evict { reason, .. } = &action {
            job.workload.evicted_for_fair_share = *reason == EvictReason::FairShare;
        }
        let phase = match (action, job.phase.clone()) {
            (Action::Admit { admission, .. }, Phase::Queued) => Phase::Running(admission),
            (Action::Evict { .. }, Phase::Running(admission)) => Phase::Stopping(admission, self.now),
            (Action::Fail { .. }, _) => {
                self.end(&id, Phase::Finished);
                return;
            }
            (_, phase) => phase,
        };
        let starts = matches!(phase, Phase::Running(_));
        let job = Job { phase, ..job };
        self.items.insert(id, job.clone());
        self.engine.apply(Event::workload(self.observed(&job)), self.now);
        if starts {
            for pod in self.pods_of(&job) {
                self.engine.apply(Event::PodApplied(pod), self.now);
            }
        }
    }

    /// Removes the workload's pods and puts it into `phase`: queued again after an eviction, or finished.
    pub fn end(&mut self, id: &WorkloadId, phase: Phase) {
        let Some(job) = self.items.get(id).cloned() else { return };
        self.moving.remove(id);
        for pod in self.pods_of(&job) {
            self.engine.apply(Event::PodRemoved(pod.id), self.now);
        }
        let job = Job { phase, ..job };
        self.items.insert(id.clone(), job.clone());
        self.engine.apply(Event::workload(self.observed(&job)), self.now);
    }

    /// Changes a workload as its user would.
    pub fn edit(&mut self, id: &WorkloadId, change: impl FnOnce(&mut Workload)) {
        let Some(job) = self.items.get_mut(id) else { return };
        change(&mut job.workload);
        let job = job.clone();
        self.engine.apply(Event::workload(self.observed(&job)), self.now);
    }

    /// Records a checkpoint of the workload at the present time.
    pub fn checkpoint(&mut self, id: &WorkloadId) {
        let Some(job) = self.items.get_mut(id) else { return };
        job.workload.last_checkpoint = Some(self.now);
        let job = job.clone();
        self.engine.apply(Event::workload(self.observed(&job)), self.now);
    }

    pub fn delete(&mut self, id: &WorkloadId) {
        let Some(job) = self.items.remove(id) else { return };
        self.engine.apply(Event::WorkloadRemoved(id.clone()), self.now);
        for pod in self.pods_of(&job) {
            self.engine.apply(Event::PodRemoved(pod.id), self.now);
        }
        self.in_flight.retain(|action| action.workload() != id);
    }

    pub fn add_unmanaged_pod(&mut self, node: &Name, count: i64) {
        if !self.nodes.contains_key(node) || self.free(node) < count {
            return;
        }
        self.unmanaged_created += 1;
        let id = PodId(format!("unmanaged-{}", self.unmanaged_created).into());
        self.unmanaged.insert(id.clone(), (node.clone(), count));
        let pod = Pod {
            id,
            workload: None,
            node: Some(node.clone()),
            requests: gpus(count),
            profile: None,
            unadmitted: None,
        };
        self.engine.apply(Event::PodApplied(pod), self.now);
    }

    pub fn remove_unmanaged_pod(&mut self, index: usize) {
        let Some(id) = self.unmanaged.keys().nth(index).cloned() else { return };
        self.unmanaged.remove(&id);
        self.engine.apply(Event::PodRemoved(id), self.now);
    }

    pub fn cordon(&mut self, name: &Name, schedulable: bool) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.1 = schedulable;
        }
        self.engine.apply(Event::NodeApplied(self.node(name)), self.now);
    }

    /// Carries out every decision, deadline by deadline, until none is left. Panics when decisions never end.
    pub fn settle(&mut self) {
        for _ in 0..200 {
            self.settle_now();
            let Some(next) = self.engine.next_deadline() else { return };
            self.now = next.max(self.now);
        }
        panic!("decisions never end:\n{}", self.log.join("\n"));
    }

    /// Carries out every decision at the present time, while evicted pods go on ending.
    pub fn decide(&mut self) -> Vec<Action> {
        let mut decided = Vec::new();
        loop {
            let actions = self.plan();
            if actions.is_empty() && !self.engine.has_more() {
                return decided;
            }
            decided.extend(actions);
            assert!(decided.len() < 200, "decisions never end:\n{}", self.log.join("\n"));
            while !self.in_flight.is_empty() {
                self.deliver(0, true);
            }
        }
    }

    /// Lets a workload of one pod run on a node; [`World::rebuild`] tells the engine.
    pub fn run_on(&mut self, node: &str, team: &str, priority: i32, gpus: i64) -> WorkloadId {
        let id = self.submit(&team.into(), "train", priority, 1, gpus);
        let admission = Admission {
            pool: "default".into(),
            nodes: BTreeMap::from([(node.into(), 1)]),
            pods: 1,
            borrowed: true,
            share: None,
            unfunded: false,
            spared: false,
            at: self.now,
        };
        if let Some(job) = self.items.get_mut(&id) {
            job.phase = Phase::Running(admission);
        }
        id
    }

    /// The nodes on which a workload runs; none unless it runs.
    pub fn nodes_of(&self, id: &WorkloadId) -> Vec<&str> {
        match &self.items[id].phase {
            Phase::Running(admission) => admission.nodes.keys().map(|name| &**name).collect(),
            _ => Vec::new(),
        }
    }

    /// Carries out every decision at the present time. Panics when decisions never end.
    pub fn settle_now(&mut self) {
        for _ in 0..200 {
            self.plan();
            if self.in_flight.is_empty() && !self.engine.has_more() {
                let ending: Vec<WorkloadId> = self
                    .items
                    .values()
                    .filter(|job| matches!(job.phase, Phase::Stopping(..)))
                    .map(|job| job.workload.id.clone())
                    .collect();
                if ending.is_empty() {
                    return;
                }
                for id in ending {
                    self.end(&id, Phase::Queued);
                }
            }
            while !self.in_flight.is_empty() {
                self.deliver(0, true);
            }
        }
        panic!("decisions never end:\n{}", self.log.join("\n"));
    }
}
