//! Pods that are not where their workload was admitted to: bound elsewhere, or kept from starting.
//!
//! Where pods already are, the admission follows them. Where some cannot be started, they are made anew
//! beside the rest, if there is room, else the whole workload goes back to the queue. For reasons that
//! the books may not know (a port, a volume) the node would be chosen again, so the workload keeps off it
//! until the node changes or a pause is over, twice as long each time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Engine;
use super::decision::{EvictReason, Plan, ResizeCause};
use super::entry::{Entry, Phase};
use super::explain;
use super::loss::replaced;
use super::model::{
    Admission, Astray, Name, NodeTerm, OnPodLoss, Operator, PodShape, Requirement, Time, WorkloadId, backoff,
};
use super::victims::{evict, resize};

/// How long a workload keeps off a node the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// How long at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(1800);

/// Where pods of a workload could not be started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strayed {
    /// The nodes it keeps off.
    pub nodes: BTreeSet<Name>,
    /// What was said about it.
    pub message: String,
    /// How often it has happened.
    times: u32,
}

impl Strayed {
    /// What a pod demands of a node if it is to keep off these; nothing else than before if there are none.
    #[must_use]
    pub fn narrowed(&self, shape: &PodShape) -> Option<PodShape> {
        if self.nodes.is_empty() {
            return None;
        }
        let off = Requirement {
            key: "metadata.name".into(),
            operator: Operator::NotIn,
            values: self.nodes.iter().cloned().collect(),
        };
        let mut shape = shape.clone();
        if shape.node_terms.is_empty() {
            shape.node_terms.push(NodeTerm::default());
            shape.node_terms[0].fields.push(off);
            return Some(shape);
        }
        // A term without requirements matches no node, and is to go on doing so.
        let written = |term: &&mut NodeTerm| !(term.labels.is_empty() && term.fields.is_empty());
        for term in shape.node_terms.iter_mut().filter(written) {
            term.fields.push(off.clone());
        }
        Some(shape)
    }
}

/// Who has strayed, and until when nodes are avoided.
#[derive(Clone, Debug, Default)]
pub struct Astrays {
    /// Told and not decided on yet.
    told: BTreeMap<WorkloadId, Astray>,
    /// When who may go back to the nodes it keeps off; may be out of date.
    until: BTreeSet<(Time, WorkloadId)>,
}

impl Astrays {
    /// When the next may go back.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.until.first().map(|(until, _)| *until)
    }
}

/// Takes note of pods that have strayed; what follows is decided by the next plan.
pub fn note(engine: &mut Engine, astray: Astray) {
    let runs = |entry: &&Entry| matches!(entry.phase, Phase::Running(_)) && !entry.removed;
    if engine.books.get(&astray.workload).filter(runs).is_some() {
        engine.outside += 1;
        engine.astrays.told.insert(astray.workload.clone(), astray);
    }
}

/// Lets workloads go back to a node that has changed.
pub fn forgive(engine: &mut Engine, node: &Name) {
    let avoid = |entry: &&Entry| entry.strayed.as_ref().is_some_and(|s| s.nodes.contains(node));
    let ids = engine.astrays.until.iter().map(|(_, id)| id);
    let ids: Vec<WorkloadId> =
        ids.filter(|id| engine.books.get(id).filter(avoid).is_some()).cloned().collect();
    for id in ids {
        let Some(strayed) = engine.books.get(&id).and_then(|entry| entry.strayed.as_deref()) else {
            continue;
        };
        let mut strayed = strayed.clone();
        strayed.nodes.remove(node);
        set(engine, &id, strayed);
    }
}

/// Lets those go back to the nodes they keep off whose pause is over.
pub fn lift(engine: &mut Engine, now: Time) {
    while let Some((until, id)) = engine.astrays.until.first().cloned().filter(|(until, _)| *until <= now) {
        engine.astrays.until.remove(&(until, id.clone()));
        let Some(strayed) = engine.books.get(&id).and_then(|entry| entry.strayed.as_deref()) else {
            continue;
        };
        let strayed = Strayed { nodes: BTreeSet::new(), ..strayed.clone() };
        set(engine, &id, strayed);
    }
}

/// Has a workload keep off these nodes, and asks it anew.
fn set(engine: &mut Engine, id: &WorkloadId, strayed: Strayed) {
    engine.books.set_strayed(id, strayed);
    engine.epoch += 1;
    engine.outside += 1;
    engine.queue_up(id);
}

/// Puts right whose pods have strayed.
pub fn run(engine: &mut Engine, now: Time, plan: &mut Plan) {
    for (id, astray) in std::mem::take(&mut engine.astrays.told) {
        let Some(entry) = engine.books.get(&id) else { continue };
        let Phase::Running(admission) = entry.phase.clone() else { continue };
        // It is told again as long as it lasts.
        if engine.pauses(&id) || !entry.workload.resumable {
            continue;
        }
        let Some(kept) = kept(engine, &admission, &astray) else { continue };
        if kept == admission {
            continue;
        }
        keep_off(engine, &id, &astray, now);
        let missing = admission.pods - kept.pods;
        match onward(engine, &id, &admission, kept) {
            Some((to, cause)) => {
                let strayed = engine.books.get(&id).and_then(|entry| entry.strayed.as_deref());
                let strayed = strayed.filter(|_| !astray.stuck.is_empty());
                let message = explain::astray(strayed, admission.pods, to.pods, missing);
                resize(engine, &id, admission, to, cause, None, message, plan);
            }
            None => evict(engine, &id, None, EvictReason::NotPlaced, now, plan),
        }
    }
}

/// Has a workload keep off the nodes where its pods could not be started.
fn keep_off(engine: &mut Engine, id: &WorkloadId, astray: &Astray, now: Time) {
    if astray.stuck.is_empty() {
        return;
    }
    let before = engine.books.get(id).and_then(|entry| entry.strayed.as_deref()).cloned();
    let mut strayed = before.unwrap_or_default();
    strayed.nodes.extend(astray.stuck.keys().cloned());
    strayed.message.clone_from(&astray.message);
    let pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, strayed.times);
    strayed.times += 1;
    engine.astrays.until.retain(|(_, other)| other != id);
    engine.astrays.until.insert((now.after(pause), id.clone()));
    set(engine, id, strayed);
}

/// What of an admission is as it should be: the pods that are somewhere, and the places of those that
/// can still get there. Nothing when there are more pods than it grants: some are about to end.
fn kept(engine: &Engine, admission: &Admission, astray: &Astray) -> Option<Admission> {
    let there: u32 = astray.there.values().sum();
    let mut left = admission.pods.checked_sub(there)?;
    let mut nodes = astray.there.clone();
    for (name, planned) in &admission.nodes {
        if engine.books.nodes.find(name).is_none_or(|node| engine.books.nodes.get(node).node.is_none()) {
            continue;
        }
        let count = |of: &BTreeMap<Name, u32>| of.get(name).copied().unwrap_or(0);
        let open = planned.saturating_sub(count(&astray.there) + count(&astray.stuck)).min(left);
        if open > 0 {
            *nodes.entry(name.clone()).or_default() += open;
            left -= open;
        }
    }
    nodes.retain(|_, pods| *pods > 0);
    Some(Admission { pods: nodes.values().sum(), nodes, ..admission.clone() })
}

/// With which pods a workload can go on; nothing if it cannot.
fn onward(
    engine: &Engine,
    id: &WorkloadId,
    admission: &Admission,
    kept: Admission,
) -> Option<(Admission, ResizeCause)> {
    let entry = engine.books.get(id)?;
    if kept.pods == admission.pods {
        return Some((kept, ResizeCause::Replaced));
    }
    let queue = engine.books.queue_of(entry);
    let on_loss = queue.map_or_else(|_| OnPodLoss::default(), |queue| queue.on_pod_loss);
    if kept.pods == 0 || !entry.workload.resizable || on_loss != OnPodLoss::Replace {
        return None;
    }
    match replaced(engine, id, admission, &kept) {
        Some(to) => Some((to, ResizeCause::Replaced)),
        None => (kept.pods >= entry.least_pods()).then_some((kept, ResizeCause::Shrunk)),
    }
}
