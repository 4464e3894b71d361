//! A cluster that answers late: writes, confirmations, ends of pods and bindings reach the engine after random delays. Events
//! of one kind of object come in order, as a watch delivers them; those of different kinds overtake each other.

use std::collections::{BTreeMap, BTreeSet};

use sluice_engine::Engine;
use sluice_engine::types::{
    Action, Admission, Event, EvictReason, Name, Node, Observed, Pod, PodId, PodShape, Settings, Team, Time,
    Workload, WorkloadId,
};

use super::world::{gpus, node};

/// A pod: its GPUs, the node it is planned on, whether it is bound there, and whether it is ending.
#[derive(Clone, Debug)]
struct Placed {
    owner: WorkloadId,
    gpus: i64,
    node: Name,
    bound: bool,
    ending: bool,
}

/// What happens next in the cluster.
#[derive(Clone, Debug)]
enum Step {
    /// An action is written.
    Write(Action),
    /// The controller of a workload brings its pods in line with its object.
    Control(WorkloadId),
    /// A pod is bound to its node, if there is room.
    Bind(PodId),
    /// A pod has ended.
    Ended(PodId),
    /// An evicted workload is queued again once its pods are known to be gone.
    Requeue(WorkloadId),
    /// The engine learns of a change.
    Deliver(Box<Event>),
}

/// The kinds of objects of which the events stay in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stream {
    Workloads,
    Pods,
}

pub struct Cluster {
    pub engine: Engine,
    pub now: Time,
    /// Every action so far.
    pub log: Vec<Action>,
    /// The length of the log before each instant at which the engine planned.
    instants: Vec<usize>,
    /// The workloads as their objects are.
    pub objects: BTreeMap<WorkloadId, Workload>,
    capacity: BTreeMap<Name, i64>,
    pods: BTreeMap<PodId, Placed>,
    agenda: BTreeMap<(Time, u64), Step>,
    delivered: BTreeMap<Stream, Time>,
    /// The pods that the engine knows, and the workloads that it knows to have stopped.
    known: BTreeSet<PodId>,
    stopped: BTreeSet<WorkloadId>,
    made: u64,
    random: u64,
}

impl Cluster {
    /// A cluster of nodes with so many GPUs; `seed` draws the delays.
    pub fn new(nodes: &[i64], teams: Vec<Team>, settings: Settings, seed: u64) -> Self {
        let named = |(i, count): (usize, &i64)| (Name::from(format!("n{i}")), *count);
        let mut cluster = Self {
            engine: Engine::with_settings(settings),
            now: Time(0),
            log: Vec::new(),
            instants: Vec::new(),
            objects: BTreeMap::new(),
            capacity: nodes.iter().enumerate().map(named).collect(),
            pods: BTreeMap::new(),
            agenda: BTreeMap::new(),
            delivered: BTreeMap::new(),
            known: BTreeSet::new(),
            stopped: BTreeSet::new(),
            made: 0,
            random: seed | 1,
        };
        for team in teams {
            cluster.engine.apply(Event::TeamApplied(team), Time(0));
        }
        for (name, count) in cluster.capacity.clone() {
            cluster.engine.apply(Event::NodeApplied(node(&name, count)), Time(0));
        }
        cluster
    }

    /// Submits a workload; the engine learns of it at once, and plans.
    pub fn submit(&mut self, workload: Workload) -> WorkloadId {
        let id = workload.id.clone();
        self.objects.insert(id.clone(), workload.clone());
        self.engine.apply(Event::workload(workload), self.now);
        self.plan();
        id
    }

    /// A node closes for new pods, or opens again; the engine learns of it at once, and plans.
    pub fn cordon(&mut self, number: usize, closed: bool) {
        let Some((name, count)) = self.capacity.iter().nth(number % self.capacity.len().max(1)) else {
            return;
        };
        let node = Node { schedulable: !closed, ..node(name, *count) };
        self.engine.apply(Event::NodeApplied(node), self.now);
        self.plan();
    }

    /// A team is edited; the engine learns of it at once, and plans.
    pub fn edit(&mut self, team: Team) {
        self.engine.apply(Event::TeamApplied(team), self.now);
        self.plan();
    }

    /// A workload of pods with so many GPUs each, submitted now.
    pub fn job(&self, team: &str, name: &str, pods: u32, gpus_per_pod: i64) -> Workload {
        let shape = PodShape { requests: gpus(gpus_per_pod), ..PodShape::default() };
        Workload { resizable: true, ..Workload::job(&team.into(), &name.into(), pods, shape, self.now) }
    }

    /// Lets the next thing happen; false if there is nothing left.
    pub fn step(&mut self) -> bool {
        let Some(((at, _), step)) = self.agenda.pop_first() else { return false };
        self.now = self.now.max(at);
        match step {
            Step::Write(action) => self.write(action),
            Step::Control(id) => self.control(&id),
            Step::Bind(id) => self.bind(&id),
            Step::Ended(id) => self.ended(&id),
            Step::Requeue(id) => self.requeue(&id),
            Step::Deliver(event) => {
                self.note(&event);
                self.engine.apply(*event, self.now);
                self.plan();
            }
        }
        true
    }

    /// Lets everything happen that follows from what has happened.
    pub fn settle(&mut self) {
        let mut steps = 0;
        while self.step() {
            steps += 1;
            assert!(steps < 20_000, "the cluster does not come to rest: {:?}", self.log.last());
        }
    }

    /// The actions by the instant of their decision.
    pub fn plans(&self) -> impl Iterator<Item = &[Action]> {
        let ends = self.instants.iter().skip(1).chain(std::iter::once(&usize::MAX));
        self.instants.iter().zip(ends).map(|(from, to)| &self.log[*from..(*to).min(self.log.len())])
    }

    /// A running workload ends by itself.
    pub fn finish(&mut self, id: &WorkloadId) {
        let Some(object) = self.objects.get_mut(id) else { return };
        object.state = Observed::Finished;
        self.changed(id);
        for pod in self.pods_of(id, |_| true) {
            self.pods.remove(&pod);
            self.tell(Stream::Pods, Event::PodRemoved(pod));
        }
    }

    fn plan(&mut self) {
        self.instants.push(self.log.len());
        for _ in 0..1_000 {
            let actions = self.engine.plan(self.now).actions;
            let rest = actions.is_empty();
            for action in actions {
                self.log.push(action.clone());
                let after = self.delay(60);
                self.after(after, Step::Write(action));
            }
            if rest && !self.engine.has_more() {
                return;
            }
        }
        panic!("the engine does not come to rest: {:?}", self.log.last());
    }

    fn write(&mut self, action: Action) {
        let id = action.workload().clone();
        let Some(object) = self.objects.get_mut(&id) else { return };
        object.state = match (&action, object.state.clone()) {
            (Action::Admit { admission, .. }, Observed::Queued)
            | (Action::Resize { admission, .. }, Observed::Admitted(_)) => {
                Observed::Admitted(admission.clone())
            }
            (Action::Evict { .. }, Observed::Admitted(admission)) => {
                Observed::Leaving { admission, since: self.now, stopped: false }
            }
            (_, state) => state,
        };
        if let Action::Evict { reason, .. } = &action {
            object.evicted_for_fair_share = *reason == EvictReason::FairShare;
        }
        self.changed(&id);
        let after = self.delay(40);
        self.after(after, Step::Control(id));
    }

    fn control(&mut self, id: &WorkloadId) {
        let Some(object) = self.objects.get(id).cloned() else { return };
        match object.state {
            Observed::Admitted(admission) => self.control_pods(id, &admission),
            Observed::Leaving { admission, since, .. } => {
                for pod in self.pods_of(id, |pod| !pod.ending) {
                    self.end(pod);
                }
                if let Some(object) = self.objects.get_mut(id) {
                    object.state = Observed::Leaving { admission, since, stopped: true };
                }
                self.changed(id);
            }
            _ => {}
        }
    }

    /// Ends the pods beyond the record of each node, and creates those that are missing.
    fn control_pods(&mut self, id: &WorkloadId, admission: &Admission) {
        let object = self.objects[id].clone();
        let Some(per_pod) = (0..=64).find(|count| gpus(*count) == object.shape.requests) else { return };
        let here = |pods: &BTreeMap<PodId, Placed>, node: &Name| -> Vec<PodId> {
            let on = |pod: &&Placed| pod.owner == *id && pod.node == *node && !pod.ending;
            pods.iter().filter(|(_, pod)| on(pod)).map(|(id, _)| id.clone()).collect()
        };
        for node in self.capacity.keys().cloned().collect::<Vec<_>>() {
            let planned = admission.nodes.get(&node).copied().unwrap_or(0) as usize;
            let there = here(&self.pods, &node);
            for pod in there.iter().skip(planned) {
                self.end(pod.clone());
            }
            for _ in there.len()..planned {
                self.made += 1;
                let pod = PodId(format!("{id}/{}", self.made).into());
                let placed = Placed {
                    owner: id.clone(),
                    gpus: per_pod,
                    node: node.clone(),
                    bound: false,
                    ending: false,
                };
                self.pods.insert(pod.clone(), placed);
                self.tell_pod(&pod);
                let after = self.delay(40);
                self.after(after, Step::Bind(pod));
            }
        }
    }

    fn end(&mut self, pod: PodId) {
        if let Some(placed) = self.pods.get_mut(&pod) {
            placed.ending = true;
            let after = self.delay(1_500);
            self.after(after, Step::Ended(pod));
        }
    }

    /// Notes what has been delivered. A workload is queued again once it is known to have stopped and to have no pods left, nor its
    /// controller counts any: a watch of pods may be behind.
    fn note(&mut self, event: &Event) {
        let id = match event {
            Event::WorkloadApplied(workload) => {
                let stopped = matches!(workload.state, Observed::Leaving { stopped: true, .. });
                if !stopped {
                    self.stopped.remove(&workload.id);
                    return;
                }
                self.stopped.insert(workload.id.clone());
                workload.id.clone()
            }
            Event::PodApplied(pod) => {
                self.known.insert(pod.id.clone());
                return;
            }
            Event::PodRemoved(pod) => {
                self.known.remove(pod);
                let Some((owner, _)) = pod.0.rsplit_once('/') else { return };
                WorkloadId(owner.into())
            }
            _ => return,
        };
        let left =
            self.known.iter().any(|pod| pod.0.rsplit_once('/').is_some_and(|(owner, _)| *owner == *id.0));
        if !left && self.stopped.contains(&id) && self.pods_of(&id, |_| true).is_empty() {
            let after = self.delay(60);
            self.after(after, Step::Requeue(id));
        }
    }

    fn requeue(&mut self, id: &WorkloadId) {
        if let Some(object) = self.objects.get_mut(id)
            && matches!(object.state, Observed::Leaving { .. })
        {
            object.state = Observed::Queued;
            self.changed(id);
        }
    }

    fn bind(&mut self, id: &PodId) {
        let Some(pod) = self.pods.get(id).cloned().filter(|pod| !pod.ending) else { return };
        let bound = |other: &&Placed| other.bound && other.node == pod.node;
        let held: i64 = self.pods.values().filter(bound).map(|other| other.gpus).sum();
        if held + pod.gpus > self.capacity[&pod.node] {
            self.after(20, Step::Bind(id.clone()));
            return;
        }
        if let Some(pod) = self.pods.get_mut(id) {
            pod.bound = true;
        }
        self.tell_pod(id);
    }

    fn ended(&mut self, id: &PodId) {
        let Some(pod) = self.pods.remove(id) else { return };
        self.tell(Stream::Pods, Event::PodRemoved(id.clone()));
        let after = self.delay(40);
        self.after(after, Step::Control(pod.owner));
    }

    fn pods_of(&self, id: &WorkloadId, which: impl Fn(&Placed) -> bool) -> Vec<PodId> {
        let of = |pod: &&Placed| pod.owner == *id && which(pod);
        self.pods.iter().filter(|(_, pod)| of(pod)).map(|(id, _)| id.clone()).collect()
    }

    fn tell_pod(&mut self, id: &PodId) {
        let Some(pod) = self.pods.get(id) else { return };
        let event = Event::PodApplied(Pod {
            id: id.clone(),
            workload: Some(pod.owner.clone()),
            node: pod.bound.then(|| pod.node.clone()),
            requests: gpus(pod.gpus),
            profile: None,
            unadmitted: None,
        });
        self.tell(Stream::Pods, event);
    }

    fn changed(&mut self, id: &WorkloadId) {
        if let Some(object) = self.objects.get(id).cloned() {
            self.tell(Stream::Workloads, Event::workload(object));
        }
    }

    /// Delivers an event after a delay, not before those of its stream that came earlier.
    fn tell(&mut self, stream: Stream, event: Event) {
        let delay = self.delay(120);
        let last = self.delivered.get(&stream).copied().unwrap_or(Time(0));
        let at = Time(self.now.0 + delay).max(last);
        self.delivered.insert(stream, at);
        self.made += 1;
        self.agenda.insert((at, self.made), Step::Deliver(Box::new(event)));
    }

    fn after(&mut self, milliseconds: i64, step: Step) {
        self.made += 1;
        self.agenda.insert((Time(self.now.0 + milliseconds), self.made), step);
    }

    /// A random delay below `most` milliseconds.
    fn delay(&mut self, most: i64) -> i64 {
        // xorshift64 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        i64::try_from(self.random % most.unsigned_abs()).unwrap_or(0)
    }
}
