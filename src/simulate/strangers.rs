//! What runs without Sluice: Jobs and pods of unlabelled namespaces, and pods that name their node.
//!
//! A scheduler that knows nothing of Sluice starts each pod on the first node by name that admits it and
//! has room for it. To the engine these pods are load on their nodes, nobody's concern.

use std::collections::BTreeMap;

use crate::engine::replay::{Life, Run};
use crate::engine::types::{Event, Name, Pod, PodId, PodShape, Time, WorkloadId};

/// A Job or pod that Sluice does not manage.
#[derive(Clone, Debug)]
pub struct Stranger {
    /// Its identity.
    pub id: WorkloadId,
    /// What each of its pods needs.
    pub shape: PodShape,
    /// How many run at once.
    pub pods: u32,
    /// How many must succeed.
    pub completions: u32,
    /// How its pods behave.
    pub life: Life,
    /// Whether its user holds it back.
    pub held: bool,
    /// The node it names.
    pub bound: Option<Name>,
}

/// One of them on its way.
#[derive(Debug)]
struct Entry {
    stranger: Stranger,
    pods: BTreeMap<PodId, Name>,
    made: u32,
    done: u32,
    gone: bool,
}

impl Entry {
    /// How many pods it has still to start now.
    fn needed(&self) -> u32 {
        if self.stranger.held || self.gone {
            return 0;
        }
        let running = u32::try_from(self.pods.len()).unwrap_or(u32::MAX);
        let missing = self.stranger.completions.saturating_sub(self.done);
        missing.min(self.stranger.pods).saturating_sub(running)
    }
}

/// What became of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Its pods are where they were not before.
    Runs(BTreeMap<String, u32>),
    /// All its pods have succeeded.
    Succeeded,
    /// A pod that nothing makes anew was lost with its node.
    Lost,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Strangers {
    entries: BTreeMap<WorkloadId, Entry>,
    ends: BTreeMap<(Time, u64), (WorkloadId, PodId)>,
    waiting: Vec<WorkloadId>,
    timers: u64,
}

impl Strangers {
    /// When the next of their pods ends.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.ends.first_key_value().map(|((at, _), _)| *at)
    }

    /// Adds one, or changes one that is there; `nodes` says where it runs already.
    pub fn add(&mut self, run: &mut Run, stranger: Stranger, nodes: &BTreeMap<String, u32>) {
        let id = stranger.id.clone();
        let entry = self.entries.entry(id.clone()).or_insert_with(|| Entry {
            stranger: stranger.clone(),
            pods: BTreeMap::new(),
            made: 0,
            done: 0,
            gone: false,
        });
        entry.stranger = stranger;
        for (node, pods) in nodes {
            for _ in 0..*pods {
                self.start(run, &id, node.as_str().into());
            }
        }
        if !self.waiting.contains(&id) {
            self.waiting.push(id);
        }
    }

    /// Deletes one; its pods end after their grace.
    pub fn delete(&mut self, now: Time, id: &WorkloadId) {
        let Some(entry) = self.entries.get_mut(id) else { return };
        entry.gone = true;
        let at = now.after(entry.stranger.life.grace);
        let pods: Vec<PodId> = entry.pods.keys().cloned().collect();
        self.ends.retain(|_, (other, _)| other != id);
        for pod in pods {
            self.timers += 1;
            self.ends.insert((at, self.timers), (id.clone(), pod));
        }
    }

    /// Lets pods end whose time has come.
    pub fn fire(&mut self, run: &mut Run, on: &mut dyn FnMut(&WorkloadId, Change)) {
        let now = run.now();
        while self.next().is_some_and(|at| at <= now) {
            let Some((_, (id, pod))) = self.ends.pop_first() else { return };
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.pods.remove(&pod);
            run.apply(Event::PodRemoved(pod));
            if entry.gone {
                if entry.pods.is_empty() {
                    self.entries.remove(&id);
                }
                continue;
            }
            entry.done += 1;
            if entry.done >= entry.stranger.completions && entry.pods.is_empty() {
                self.entries.remove(&id);
                on(&id, Change::Succeeded);
            } else if entry.needed() > 0 && !self.waiting.contains(&id) {
                self.waiting.push(id);
            }
        }
    }

    /// A node is gone with what ran on it; Jobs make their pods anew.
    pub fn lose(&mut self, node: &str, on: &mut dyn FnMut(&WorkloadId, Change)) {
        let there = |entry: &Entry| entry.pods.values().any(|other| &**other == node);
        let ids: Vec<WorkloadId> =
            self.entries.iter().filter(|(_, entry)| there(entry)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            let Some(entry) = self.entries.get_mut(&id) else { continue };
            entry.pods.retain(|_, other| &**other != node);
            let left: Vec<PodId> = entry.pods.keys().cloned().collect();
            self.ends.retain(|_, (other, pod)| *other != id || left.contains(pod));
            let is_pod = id.0.ends_with(" (Pod)");
            if is_pod || entry.gone {
                self.entries.remove(&id);
                if is_pod {
                    on(&id, Change::Lost);
                }
            } else if !self.waiting.contains(&id) {
                self.waiting.push(id);
            }
        }
    }

    /// Starts what can start.
    pub fn place(&mut self, run: &mut Run, on: &mut dyn FnMut(&WorkloadId, Change)) {
        let mut waiting = Vec::new();
        for id in std::mem::take(&mut self.waiting) {
            let Some(entry) = self.entries.get(&id) else { continue };
            let (mut needed, made) = (entry.needed(), entry.made);
            while needed > 0 {
                let Some(entry) = self.entries.get(&id) else { break };
                let bound = entry.stranger.bound.clone();
                let Some(node) = bound.or_else(|| run.room_for(&entry.stranger.shape)) else { break };
                self.start(run, &id, node);
                needed -= 1;
            }
            let Some(entry) = self.entries.get(&id) else { continue };
            if entry.made > made {
                let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
                for node in entry.pods.values() {
                    *nodes.entry(node.to_string()).or_default() += 1;
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
        let Some(entry) = self.entries.get_mut(id) else { return };
        let pod = PodId(format!("{id}/{}", entry.made).into());
        entry.made += 1;
        entry.pods.insert(pod.clone(), node.clone());
        if let Some(duration) = entry.stranger.life.run {
            self.timers += 1;
            self.ends.insert((run.now().after(duration), self.timers), (id.clone(), pod.clone()));
        }
        let requests = entry.stranger.shape.requests.clone();
        run.apply(Event::PodApplied(Pod { id: pod, workload: None, node: Some(node), requests }));
    }

    /// Whether one of them runs; `None` when there is none of that identity.
    #[must_use]
    pub fn runs(&self, id: &WorkloadId) -> Option<bool> {
        self.entries.get(id).map(|entry| !entry.pods.is_empty())
    }
}
