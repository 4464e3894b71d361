//! Growth: capacity that nobody who waits can use goes to elastic workloads that run with fewer pods
//! than they want.
//!
//! Pods are given out one at a time, in the order in which workloads start: owed before surplus, then
//! the smallest share, then the older. What is grown is given up again before anybody is evicted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::candidate::{Candidate, fits_now};
use super::decision::{Action, Plan, ResizeCause};
use super::entry::Phase;
use super::explain;
use super::forest::PoolIx;
use super::model::{Admission, Time, WorkloadId};
use super::placement;
use super::reserve;
use super::victims::resize;

/// Lets those grow for whom there is room, after everybody who waits had a chance to start.
pub fn run(engine: &mut Engine, now: Time, plan: &mut Plan) {
    if engine.grown == engine.epoch && plan.actions.is_empty() || engine.books.short().next().is_none() {
        return;
    }
    let admitted: BTreeMap<WorkloadId, usize> = plan
        .actions
        .iter()
        .enumerate()
        .filter(|(_, action)| matches!(action, Action::Admit { .. }))
        .map(|(position, action)| (action.workload().clone(), position))
        .collect();
    // Whoever starts by a decision that is already being written grows once it runs.
    let mut open: BTreeMap<WorkloadId, Admission> = BTreeMap::new();
    for id in engine.books.short() {
        match engine.books.get(id).map(|entry| &entry.phase) {
            Some(Phase::Running(admission)) if !engine.pauses(id) => {
                open.insert(id.clone(), admission.clone());
            }
            Some(Phase::Starting(admission)) if admitted.contains_key(id) => {
                open.insert(id.clone(), admission.clone());
            }
            _ => {}
        }
    }
    let before = open.clone();
    let mut grown: BTreeSet<WorkloadId> = BTreeSet::new();
    while let Some(id) = next(engine, &open) {
        let Some(admission) = open.get_mut(&id) else { break };
        if !grow(engine, &id, admission, now) {
            open.remove(&id);
            continue;
        }
        grown.insert(id.clone());
        let wanted = engine.books.get(&id).map_or(0, |entry| entry.workload.pods);
        if admission.pods >= wanted {
            open.remove(&id);
        }
    }
    for id in grown {
        let (Some(entry), Some(from)) = (engine.books.get(&id), before.get(&id)) else { continue };
        let Some(to) = entry.phase.admission().cloned() else { continue };
        match admitted.get(&id).and_then(|position| plan.actions.get_mut(*position)) {
            Some(Action::Admit { admission, .. }) => *admission = to,
            _ => {
                let message = explain::grown(entry, from.pods, to.pods);
                resize(engine, &id, from.clone(), to, ResizeCause::Grown, None, message, plan);
            }
        }
    }
    engine.grown = engine.epoch;
}

/// Whose turn it is to have one more pod.
fn next(engine: &Engine, open: &BTreeMap<WorkloadId, Admission>) -> Option<WorkloadId> {
    let books = &engine.books;
    let key = |id: &WorkloadId, admission: &Admission| {
        let entry = books.get(id)?;
        let pool = books.forest.pool(&admission.pool)?;
        let owed = Candidate::of(books, id)?.and_more(books, admission, 1).owed(books, pool);
        let share = books.forest.share(pool, entry.team);
        Some((Reverse(owed), share, entry.workload.submitted, id.clone()))
    };
    open.iter().filter_map(|(id, admission)| key(id, admission)).min().map(|(_, _, _, id)| id)
}

/// Gives one pod more; false if there is no room for it.
fn grow(engine: &mut Engine, id: &WorkloadId, admission: &mut Admission, now: Time) -> bool {
    let Some((candidate, pool)) = candidate_of(engine, id, admission) else { return false };
    let nodes = placement::eligible(&engine.books, &candidate.request(pool));
    let Some(found) = fits_now(&engine.books, &candidate, pool, &nodes, true) else { return false };
    let Ok(found) = reserve::admissible(engine, &candidate, pool, &nodes, found, now) else { return false };
    let from = admission.clone();
    for (node, pods) in found {
        *admission.nodes.entry(engine.books.nodes.name(node).clone()).or_default() += pods;
        admission.pods += pods;
    }
    let phase = match engine.books.get(id).map(|entry| entry.phase.clone()) {
        Some(Phase::Starting(_)) => Phase::Starting(admission.clone()),
        Some(Phase::Resizing { from, .. }) => Phase::Resizing { from, to: admission.clone() },
        _ => Phase::Resizing { from, to: admission.clone() },
    };
    engine.books.set_phase(id, phase);
    true
}

/// The workload as one that asks for one pod beside those it has; `None` at its queue's limit.
fn candidate_of(engine: &Engine, id: &WorkloadId, admission: &Admission) -> Option<(Candidate, PoolIx)> {
    let books = &engine.books;
    let entry = books.get(id)?;
    let queue = books.queue_of(entry).ok()?;
    let candidate = Candidate::of(books, id)?.and_more(books, admission, 1);
    let over = books.forest.over_queue_limit(entry.team, queue, &candidate.total, &books.resources);
    if over.is_some() {
        return None;
    }
    let pool = books.forest.pool(&admission.pool)?;
    Some((candidate.in_pool(books, pool).into_owned(), pool))
}
