//! Nodes that go away with pods on them: the lost pods are made anew, or the whole workload goes back.

use super::Engine;
use super::astray;
use super::candidate::Candidate;
use super::decision::{EvictReason, Plan, ResizeCause};
use super::entry::{Entry, Phase};
use super::explain;
use super::model::{Admission, OnPodLoss, Time, WorkloadId};
use super::placement::{self, Room};
use super::ready;
use super::victims::{evict, resize};

/// Puts right whoever runs by an admission to nodes that are no more.
pub fn run(engine: &mut Engine, now: Time, plan: &mut Plan) {
    astray::run(engine, now, plan);
    ready::run(engine, now, plan);
    let lost: Vec<WorkloadId> = engine.books.bereft().cloned().collect();
    for id in lost {
        if engine.pauses(&id) {
            continue;
        }
        let Some(entry) = engine.books.get(&id) else { continue };
        let Phase::Running(admission) = entry.phase.clone() else { continue };
        // A pod of its own that is lost is gone for good; its object says so.
        if !entry.workload.resumable {
            continue;
        }
        let least = entry.least_pods();
        match remaining(engine, entry, &admission) {
            Some(kept) => match replaced(engine, &id, &admission, &kept) {
                Some(to) => {
                    let message = explain::replaced(to.pods - kept.pods);
                    resize(engine, &id, admission, to, ResizeCause::Replaced, None, message, plan);
                }
                None if kept.pods >= least => {
                    let message = explain::bereft(admission.pods.saturating_sub(kept.pods), kept.pods);
                    resize(engine, &id, admission, kept, ResizeCause::Shrunk, None, message, plan);
                }
                None => evict(engine, &id, None, EvictReason::NodeLost, now, plan),
            },
            None => evict(engine, &id, None, EvictReason::NodeLost, now, plan),
        }
    }
}

/// What is left of an admission; `None` if nothing is, or if the workload cannot go on without the rest.
fn remaining(engine: &Engine, entry: &Entry, admission: &Admission) -> Option<Admission> {
    let books = &engine.books;
    let on_loss = books.queue_of(entry).map_or_else(|_| OnPodLoss::default(), |queue| queue.on_pod_loss);
    let mut kept = admission.clone();
    kept.nodes
        .retain(|name, _| books.nodes.find(name).is_some_and(|node| books.nodes.get(node).node.is_some()));
    kept.pods = kept.nodes.values().sum();
    (kept.pods > 0 && entry.workload.resizable && on_loss == OnPodLoss::Replace).then_some(kept)
}

/// The admission with the lost pods made anew, if there is room for them. They hold their quota still.
pub fn replaced(
    engine: &Engine,
    id: &WorkloadId,
    admission: &Admission,
    kept: &Admission,
) -> Option<Admission> {
    let books = &engine.books;
    let pool = books.forest.pool(&admission.pool)?;
    let lost = admission.pods.max(books.get(id)?.least_pods()).saturating_sub(kept.pods);
    let candidate = Candidate::of(books, id)?.and_more(books, kept, lost);
    let nodes = placement::eligible(books, &candidate.request(pool));
    let placement = Room::Now.place(engine, &candidate, pool, &nodes)?;
    let mut to = kept.clone();
    for (node, pods) in placement {
        *to.nodes.entry(books.nodes.name(node).clone()).or_default() += pods;
        to.pods += pods;
    }
    Some(to)
}
