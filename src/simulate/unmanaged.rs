//! Unmanaged workloads: Jobs and pods of unlabelled namespaces, and pods that name their node.
//!
//! Each pod starts on the first node by name that admits it and has capacity. The engine sees these pods as usage of
//! their nodes, and those of a namespace that has joined a team as adopted pods of that team.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::replay::{Left, Life, Run};
use crate::engine::types::{
    Event, Name, Pod, PodId, PodShape, Profile, Replacement, Time, Unadmitted, WorkloadId,
};

/// The end of the identity of a pod.
const POD: &str = " (Pod)";

/// A Job or pod that Sluice does not manage.
#[derive(Clone, Debug)]
pub struct UnmanagedWorkload {
    /// Its identity.
    pub id: WorkloadId,
    /// Requests and constraints of each pod.
    pub shape: PodShape,
    /// Labels and constraints of each pod.
    pub profile: Arc<Profile>,
    /// Number of pods that run at once.
    pub pods: u32,
    /// Number of pods that must succeed.
    pub completions: u32,
    /// Run time and grace of its pods.
    pub life: Life,
    /// Whether its user suspends it.
    pub held: bool,
    /// The node it names.
    pub bound: Option<Name>,
    /// The team of its namespace, which is charged for its pods without an admission.
    pub team: Option<Name>,
    /// When its namespace has joined the team, if that was after its creation.
    pub joined: Option<Time>,
}

/// An unmanaged workload with its running pods by node.
#[derive(Debug)]
struct Entry {
    workload: UnmanagedWorkload,
    pods: BTreeMap<PodId, Place>,
    created: u32,
    succeeded: u32,
    deleted: bool,
}

/// Where a pod runs, and since when.
#[derive(Clone, Debug)]
struct Place {
    node: Name,
    since: Time,
    /// Whether it was evicted and is ending.
    ending: bool,
}

impl Entry {
    /// Whether no controller replaces its pod.
    fn is_pod(&self) -> bool {
        self.workload.id.0.ends_with(POD)
    }

    /// What the team of its namespace is charged for a pod (law 15). The Job controller makes pods without a gate; a pod of a
    /// team that names its node is a static pod, since a policy refuses every other.
    fn charge(&self, place: &Place) -> Option<Box<Unadmitted>> {
        let UnmanagedWorkload { id, team, joined, bound, .. } = &self.workload;
        let (namespace, name) = id.0.split_once('/').unwrap_or(("", &*id.0));
        let held = self.is_pod() && bound.is_none();
        team.clone().map(|team| {
            Box::new(Unadmitted {
                team,
                namespace: namespace.into(),
                name: name.trim_end_matches(POD).into(),
                created: place.since,
                owner: None,
                replacement: if held { Replacement::Held } else { Replacement::AtOnce },
                adopted: joined.is_some_and(|joined| place.since <= joined),
                ending: place.ending,
            })
        })
    }

    /// A pod as the engine sees it.
    fn pod(&self, id: &PodId, place: &Place) -> Pod {
        Pod {
            id: id.clone(),
            workload: None,
            node: Some(place.node.clone()),
            requests: self.workload.shape.requests.clone(),
            profile: Some(Arc::clone(&self.workload.profile)),
            unadmitted: self.charge(place),
        }
    }

    /// Number of pods still to start.
    fn needed(&self) -> u32 {
        if self.workload.held || self.deleted {
            return 0;
        }
        let running = u32::try_from(self.pods.len()).unwrap_or(u32::MAX);
        let missing = self.workload.completions.saturating_sub(self.succeeded);
        missing.min(self.workload.pods).saturating_sub(running)
    }
}

/// A change of an unmanaged workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Pods have started; all its pods by node.
    Runs(BTreeMap<String, u32>),
    /// All its pods have succeeded.
    Succeeded,
    /// A pod without a controller was lost with its node.
    Lost,
}

/// All unmanaged workloads.
#[derive(Debug, Default)]
pub struct UnmanagedWorkloads {
    entries: BTreeMap<WorkloadId, Entry>,
    ends: BTreeMap<(Time, u64), (WorkloadId, PodId)>,
    waiting: Vec<WorkloadId>,
    timers: u64,
}

impl UnmanagedWorkloads {
    /// When the next pod ends.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.ends.first_key_value().map(|((at, _), _)| *at)
    }

    /// Adds or changes a workload; `nodes` are the nodes on which it runs already.
    pub fn add(&mut self, run: &mut Run, workload: UnmanagedWorkload, nodes: &BTreeMap<String, u32>) {
        let id = workload.id.clone();
        let entry = self.entries.entry(id.clone()).or_insert_with(|| Entry {
            workload: workload.clone(),
            pods: BTreeMap::new(),
            created: 0,
            succeeded: 0,
            deleted: false,
        });
        // A manifest that is applied again changes nothing of its membership.
        let joined = entry.workload.joined;
        entry.workload = UnmanagedWorkload { joined, ..workload };
        for (node, pods) in nodes {
            for _ in 0..*pods {
                self.start(run, &id, node.as_str().into());
            }
        }
        if !self.waiting.contains(&id) {
            self.waiting.push(id);
        }
    }

    /// Takes over a workload that Sluice does not manage any more, with its running pods.
    pub fn take_over(&mut self, run: &mut Run, workload: UnmanagedWorkload, left: Left) {
        let id = workload.id.clone();
        self.add(run, workload, &BTreeMap::new());
        if let Some(entry) = self.entries.get_mut(&id) {
            (entry.succeeded, entry.created) = (left.succeeded, left.made);
        }
        for (node, end) in left.pods {
            self.start_until(run, &id, node, end);
        }
    }

    /// Forgets a workload without pods, which Sluice manages from now on.
    pub fn forget(&mut self, id: &WorkloadId) {
        self.entries.remove(id);
        self.waiting.retain(|other| other != id);
    }

    /// Deletes a workload; its pods end after their grace.
    pub fn delete(&mut self, now: Time, id: &WorkloadId) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.deleted = true;
        let at = now.after(entry.workload.life.grace);
        let pods: Vec<PodId> = entry.pods.keys().cloned().collect();
        self.ends.retain(|_, (other, _)| other != id);
        for pod in pods {
            self.timers += 1;
            self.ends.insert((at, self.timers), (id.clone(), pod));
        }
    }

    /// Ends the pods that are due.
    pub fn end_due(&mut self, run: &mut Run, on: &mut dyn FnMut(&WorkloadId, Change)) {
        let now = run.now();
        while self.next().is_some_and(|at| at <= now) {
            let Some((_, (id, pod))) = self.ends.pop_first() else { return };
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.pods.remove(&pod);
            run.apply(Event::PodRemoved(pod));
            if entry.deleted {
                if entry.pods.is_empty() {
                    self.entries.remove(&id);
                }
                continue;
            }
            entry.succeeded += 1;
            if entry.succeeded >= entry.workload.completions && entry.pods.is_empty() {
                self.entries.remove(&id);
                on(&id, Change::Succeeded);
            } else if entry.needed() > 0 && !self.waiting.contains(&id) {
                self.waiting.push(id);
            }
        }
    }

    /// Charges the pods of a namespace that has joined a team, left it or moved to another one (law 15).
    pub fn set_team(&mut self, run: &mut Run, namespace: &str, team: Option<&Name>) {
        let inside = |id: &WorkloadId| id.0.split_once('/').is_some_and(|(other, _)| other == namespace);
        for (_, entry) in self.entries.iter_mut().filter(|(id, _)| inside(id)) {
            if entry.workload.team.as_ref() == team {
                continue;
            }
            entry.workload.team = team.cloned();
            entry.workload.joined = team.map(|_| run.now());
            for (id, place) in &entry.pods {
                run.apply(Event::PodApplied(entry.pod(id, place)));
            }
        }
    }

    /// The workload of a pod.
    #[must_use]
    pub fn owner(&self, pod: &PodId) -> Option<&WorkloadId> {
        let (id, _) = pod.0.rsplit_once('/')?;
        self.entries.get_key_value(&WorkloadId(id.into())).map(|(id, _)| id)
    }

    /// Ends an evicted pod after its grace. No controller replaces it: the pods of Jobs are not evicted.
    pub fn evict(&mut self, run: &mut Run, pod: &PodId) {
        let Some(id) = self.owner(pod).cloned() else { return };
        self.delete(run.now(), &id);
        let Some(entry) = self.entries.get_mut(&id) else { return };
        if let Some(place) = entry.pods.get_mut(pod) {
            place.ending = true;
        }
        if let Some(place) = entry.pods.get(pod) {
            run.apply(Event::PodApplied(entry.pod(pod, place)));
        }
    }

    /// Removes a lost node's pods; Jobs replace theirs.
    pub fn lose_node(&mut self, node: &str, on: &mut dyn FnMut(&WorkloadId, Change)) {
        let there = |entry: &Entry| entry.pods.values().any(|place| &*place.node == node);
        let ids: Vec<WorkloadId> =
            self.entries.iter().filter(|(_, entry)| there(entry)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.pods.retain(|_, place| &*place.node != node);
            let left: Vec<PodId> = entry.pods.keys().cloned().collect();
            self.ends.retain(|_, (other, pod)| *other != id || left.contains(pod));
            let is_pod = entry.is_pod();
            if is_pod || entry.deleted {
                self.entries.remove(&id);
                if is_pod {
                    on(&id, Change::Lost);
                }
            } else if !self.waiting.contains(&id) {
                self.waiting.push(id);
            }
        }
    }

    /// Starts the pods that fit.
    pub fn start_pods(&mut self, run: &mut Run, on: &mut dyn FnMut(&WorkloadId, Change)) {
        let mut waiting = Vec::new();
        for id in std::mem::take(&mut self.waiting) {
            let Some(entry) = self.entries.get(&id) else { continue };
            let (mut needed, before) = (entry.needed(), entry.created);
            while needed > 0 {
                let Some(entry) = self.entries.get(&id) else { break };
                let bound = entry.workload.bound.clone();
                let Some(node) = bound.or_else(|| run.room_for(&entry.workload.shape)) else { break };
                self.start(run, &id, node);
                needed -= 1;
            }
            let Some(entry) = self.entries.get(&id) else { continue };
            if entry.created > before {
                let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
                for place in entry.pods.values() {
                    *nodes.entry(place.node.to_string()).or_default() += 1;
                }
                on(&id, Change::Runs(nodes));
            }
            if needed > 0 {
                waiting.push(id);
            }
        }
        self.waiting = waiting;
    }

    fn start(&mut self, run: &mut Run, id: &WorkloadId, node: Name) {
        let duration = self.entries.get(id).and_then(|entry| entry.workload.life.run);
        self.start_until(run, id, node, duration.map(|duration| run.now().after(duration)));
    }

    fn start_until(&mut self, run: &mut Run, id: &WorkloadId, node: Name, end: Option<Time>) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        let pod = PodId(format!("{id}/{}", entry.created).into());
        let place = Place { node, since: run.now(), ending: false };
        entry.created += 1;
        if let Some(end) = end {
            self.timers += 1;
            self.ends.insert((end, self.timers), (id.clone(), pod.clone()));
        }
        run.apply(Event::PodApplied(entry.pod(&pod, &place)));
        entry.pods.insert(pod, place);
    }

    /// Whether a workload runs; `None` for an unknown identity.
    #[must_use]
    pub fn runs(&self, id: &WorkloadId) -> Option<bool> {
        self.entries.get(id).map(|entry| !entry.pods.is_empty())
    }
}
