//! Background defragmentation: within a budget, what runs is moved so that what is free lies together.
//!
//! Off unless the owner of the cluster gives a budget ([`Defragmentation`]). One workload moves at a time, and
//! only while nobody makes room for anybody. Who may be evicted may be moved: of those, one that loses no more
//! than the budget allows, is past its minimum run time, and finds another place that disturbs no reservation.
//!
//! A move pays if it makes the sum of the squares of what is free on each node greater: as much is free as
//! before, in larger pieces. What every move makes greater can be made so only so often, so moves come to an
//! end while nothing else happens (Law 8).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::Engine;
use super::books::Books;
use super::candidate::Candidate;
use super::decision::{EvictReason, Plan};
use super::entry::{Entry, Phase};
use super::forest::PoolIx;
use super::model::{Defragmentation, Name, Time, WorkloadId};
use super::nodes::NodeIx;
use super::placement::{self, Freed, Placement, Room};
use super::rules;
use super::vector::Vector;
use super::victims::{evict, hold_for_mover};

/// So many workloads are looked at before a move is chosen, those on the emptiest nodes first.
const LOOKED_AT: usize = 64;

/// When to look next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    /// From when on the budget allows the next move; none before the first plan.
    due: Option<Time>,
    /// The state of things in which no move was found that pays, and when somebody who could not move then has
    /// run for long enough.
    quiet: Option<(State, Option<Time>)>,
}

/// By what it is seen that nothing has changed: the version of the nodes, and how often something came from
/// outside.
type State = (u64, u64);

fn state(engine: &Engine) -> State {
    (engine.books.nodes.version(), engine.outside)
}

/// When it is time to look for a move.
#[must_use]
pub fn next(engine: &Engine) -> Option<Time> {
    engine.settings.defragmentation.filter(|_| is_at_rest(engine))?;
    let due = engine.defragment.due?;
    match engine.defragment.quiet {
        Some((seen, later)) if seen == state(engine) => later.map(|later| later.max(due)),
        _ => Some(due),
    }
}

/// Decides on a move, if the budget allows one and one pays.
pub fn run(engine: &mut Engine, now: Time, plan: &mut Plan) {
    let Some(budget) = engine.settings.defragmentation else { return };
    if engine.defragment.due.is_none() {
        // Whether another moved something just before is not known.
        engine.defragment.due = Some(now.after(budget.every));
    }
    if next(engine).is_none_or(|next| next > now) {
        return;
    }
    let Look { best, later } = look(engine, budget, now);
    let Some(best) = best else {
        engine.defragment.quiet = Some((state(engine), later));
        return;
    };
    engine.defragment = Watch { due: Some(now.after(budget.every)), quiet: None };
    let Some(entry) = engine.books.get(&best.id) else { return };
    let Phase::Running(admission) = entry.phase.clone() else { return };
    evict(engine, &best.id, None, EvictReason::Moved, now, plan);
    hold_for_mover(engine, &best.id, &admission, best.to);
}

/// Whether nobody leaves for anybody, and everybody has been looked at who might start.
fn is_at_rest(engine: &Engine) -> bool {
    engine.claims.is_empty() && !engine.has_more() && engine.books.going().next().is_none()
}

/// What a look at those who run brought to light.
struct Look {
    best: Option<Move>,
    /// When somebody has run for long enough to be moved who has not now.
    later: Option<Time>,
}

/// A move that pays.
struct Move {
    id: WorkloadId,
    to: Placement,
}

fn look(engine: &Engine, budget: Defragmentation, now: Time) -> Look {
    let books = &engine.books;
    let reserved: BTreeSet<Name> =
        engine.reservations().into_iter().flat_map(|reservation| reservation.nodes.into_keys()).collect();
    let mut emptiest: Vec<(Reverse<i64>, NodeIx)> = books
        .nodes
        .alive()
        .filter(|(_, node, _)| node.open() && !node.holds.is_empty())
        .map(|(index, node, _)| (Reverse(rules::devices(books, node.settled().amounts())), index))
        .filter(|(Reverse(free), _)| *free > 0)
        .collect();
    emptiest.sort_unstable();
    let (mut seen, mut later): (BTreeSet<&WorkloadId>, Option<Time>) = (BTreeSet::new(), None);
    let mut best: Option<(Reverse<i128>, i128, Move)> = None;
    let occupants = emptiest.iter().flat_map(|(_, node)| books.occupants(*node));
    for (entry, _) in occupants {
        let id = &entry.workload.id;
        if seen.len() == LOOKED_AT {
            break;
        }
        if !movable(engine, entry) || !seen.insert(id) {
            continue;
        }
        let Phase::Running(admission) = &entry.phase else { continue };
        let old_enough = rules::old_enough(books, entry, admission.at);
        if old_enough > now {
            later = [later, Some(old_enough)].into_iter().flatten().min();
            continue;
        }
        if rules::unsaved(entry, admission.at, now) > budget.most_lost {
            continue;
        }
        let Some((gain, to)) = elsewhere(books, entry, &reserved) else { continue };
        let key = (Reverse(gain), rules::work_lost(books, entry, admission.at, now), id);
        if best.as_ref().is_none_or(|(gain, lost, best)| key < (*gain, *lost, &best.id)) {
            best = Some((key.0, key.1, Move { id: id.clone(), to }));
        }
    }
    Look { best: best.map(|(_, _, best)| best), later }
}

/// Whether somebody may be moved at all.
fn movable(engine: &Engine, entry: &Entry) -> bool {
    matches!(entry.phase, Phase::Running(_))
        && entry.workload.resumable
        && rules::preemptible(&engine.books, entry)
        // One that has grown would have to shrink.
        && entry.charge.pods == entry.least_pods()
        // One that accepted less asks for more again.
        && !entry.is_cut()
        && !engine.pauses(&entry.workload.id)
}

/// Where a workload would lie better, and how much better that is.
fn elsewhere(books: &Books, entry: &Entry, reserved: &BTreeSet<Name>) -> Option<(i128, Placement)> {
    let pool: PoolIx = entry.charge.pool;
    let candidate = Candidate::of(books, &entry.workload.id)?;
    let candidate = candidate.in_pool(books, pool);
    let request = candidate.request(pool);
    let nodes = placement::eligible(books, &request);
    let mut freed = Freed::new();
    rules::free(&mut freed, entry);
    let to = placement::place(books, &nodes, &request, Room::Settled(&freed))?;
    let there = |node: &NodeIx| entry.charge.nodes.get(node).copied().unwrap_or(0);
    if to.iter().any(|(node, pods)| *pods > there(node) && reserved.contains(books.nodes.name(*node))) {
        return None;
    }
    let touched: BTreeSet<NodeIx> = entry.charge.nodes.keys().chain(to.keys()).copied().collect();
    let square = |amounts: &Vector| i128::from(rules::devices(books, amounts).max(0)).pow(2);
    let gain = touched.into_iter().map(|node| {
        let before = books.nodes.get(node).settled().amounts().clone();
        let less = i64::from(there(&node)) - i64::from(to.get(&node).copied().unwrap_or(0));
        square(&before.plus(&entry.need, less)) - square(&before)
    });
    let gain: i128 = gain.sum();
    (gain > 0).then_some((gain, to))
}
