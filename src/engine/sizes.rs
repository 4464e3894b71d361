//! Less than asked for, under load: of several sizes that a workload would accept, the first that fits.
//!
//! The sizes are tried from the most wanted to the least. A smaller one is taken only where none that is larger
//! can start at once; nobody is evicted for it, for others make room only for what is wanted most, and once it
//! runs it stays as it is. When it has been evicted and waits again, the size is chosen anew.
//!
//! High classes keep the full size: who may not be evicted, and who goes before the team's ordinary work (its
//! queue's priority, then its PriorityClass, is above that of the team's first queue with no class), waits for it.

use std::sync::Arc;

use super::Engine;
use super::admit::admit;
use super::books::Books;
use super::candidate::{Candidate, find_pool, fits_now, pool_names};
use super::decision::Plan;
use super::entry::Entry;
use super::model::{Admission, PodShape, Time, Workload, WorkloadId};
use super::placement;
use super::reserve;
use super::rules;
use super::vector::Vector;

/// A pod of a workload at one of its sizes.
#[derive(Clone, Debug)]
pub struct Sizing {
    /// What it demands of a node.
    pub shape: Arc<PodShape>,
    /// What it takes there, its slot included.
    pub need: Vector,
}

/// Which size an admission grants, by its place among those of the workload.
#[must_use]
pub fn granted(workload: &Workload, admission: Option<&Admission>) -> usize {
    let share = admission.and_then(|admission| admission.share);
    share.and_then(|share| workload.sizes.iter().position(|size| size.share == share)).unwrap_or(0)
}

/// Whether a workload that waits may start with less than it wants most.
#[must_use]
pub fn may_shrink(books: &Books, entry: &Entry) -> bool {
    if entry.sizes.len() < 2 || !rules::preemptible(books, entry) {
        return false;
    }
    let ordinary = books.forest.team(entry.team).queue(None).map_or(0, |queue| queue.priority);
    rules::priority_of(books, entry) <= (ordinary, 0)
}

/// Admits a workload that cannot start at its full size at the first smaller one for which there is room now;
/// false if there is none, or it may not.
pub fn try_smaller(engine: &mut Engine, id: &WorkloadId, now: Time, plan: &mut Plan) -> bool {
    let Some(entry) = engine.books.get(id).filter(|entry| may_shrink(&engine.books, entry)) else {
        return false;
    };
    let (pools, sizes, team) = (pool_names(entry), entry.sizes.clone(), entry.team);
    let shares: Vec<_> = entry.workload.sizes.iter().map(|size| size.share).collect();
    let queue = engine.books.queue_of(entry).ok().cloned();
    let Some(full) = Candidate::of(&engine.books, id) else { return false };
    for (sizing, share) in sizes.iter().zip(shares).skip(1) {
        let candidate = full.at_size(sizing, share);
        let books = &engine.books;
        let over = |queue| books.forest.over_queue_limit(team, queue, &candidate.total, &books.resources);
        if queue.as_ref().is_none_or(|queue| over(queue).is_some()) {
            continue;
        }
        for name in &pools {
            let Some(pool) = find_pool(&engine.books, name) else { continue };
            let candidate = candidate.in_pool(&engine.books, pool);
            let nodes = placement::eligible(&engine.books, &candidate.request(pool));
            let Some(start) = fits_now(&engine.books, &candidate, pool, &nodes, true) else { continue };
            if let Ok(start) = reserve::admissible(engine, &candidate, pool, &nodes, start, now) {
                admit(engine, &candidate, pool, start, now, plan);
                return true;
            }
        }
    }
    false
}
