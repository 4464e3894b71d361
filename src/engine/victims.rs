//! Carrying out what a search decided: who stops, shrinks or moves for a claimant.

use std::collections::BTreeMap;

use super::Engine;
use super::candidate::Candidate;
use super::claims::{Claim, Victim};
use super::decision::{Action, EvictReason, Plan, ResizeCause};
use super::entry::{Entry, Phase};
use super::explain;
use super::model::{Admission, Name, Time, WorkloadId};
use super::nodes::NodeIx;
use super::placement::Placement;
use super::reclaim::Take;

/// Decides what happens to one victim; `None` if it does not run (any more).
pub fn take(
    engine: &mut Engine,
    take: Take,
    claimant: &Candidate,
    owed: bool,
    now: Time,
    plan: &mut Plan,
) -> Option<Victim> {
    let entry = engine.books.get(take.id())?;
    let Phase::Running(admission) = entry.phase.clone() else { return None };
    let (place, before) = (entry.place, admission.clone());
    match &take {
        Take::Whole(id) => {
            let reason = if entry.team == claimant.team {
                EvictReason::Preempted
            } else if owed {
                EvictReason::Reclaimed
            } else {
                EvictReason::FairShare
            };
            evict(engine, id, Some(&claimant.id), reason, now, plan);
        }
        Take::Shrink(id, pods) => {
            let to = without(engine, entry, &admission, pods);
            let message = explain::shrunk(&engine.books, entry, &claimant.id, to.pods);
            resize(engine, id, admission, to, ResizeCause::Shrunk, Some(&claimant.id), message, plan);
        }
        Take::Shift(id, pods, places) => {
            let mut to = without(engine, entry, &admission, pods);
            for (node, pods) in places {
                *to.nodes.entry(engine.books.nodes.name(*node).clone()).or_default() += pods;
                to.pods += pods;
            }
            let message = explain::shifted(&engine.books, &claimant.id, places);
            resize(engine, id, admission, to, ResizeCause::Moved, Some(&claimant.id), message, plan);
        }
        Take::Move(id, to) => {
            evict(engine, id, Some(&claimant.id), EvictReason::Moved, now, plan);
            hold_for_mover(engine, id, &admission, to.clone());
        }
    }
    Some(Victim { take, place, before })
}

/// An admission without so many pods on these nodes.
fn without(engine: &Engine, entry: &Entry, admission: &Admission, pods: &BTreeMap<NodeIx, u32>) -> Admission {
    let left = |(node, there): (&NodeIx, &u32)| {
        let left = there.saturating_sub(pods.get(node).copied().unwrap_or(0));
        (left > 0).then(|| (engine.books.nodes.name(*node).clone(), left))
    };
    let nodes: BTreeMap<Name, u32> = entry.charge.staying().iter().filter_map(left).collect();
    Admission { pods: nodes.values().sum(), nodes, ..admission.clone() }
}

/// Decides that somebody who runs goes back to the queue.
pub fn evict(
    engine: &mut Engine,
    id: &WorkloadId,
    claimant: Option<&WorkloadId>,
    reason: EvictReason,
    now: Time,
    plan: &mut Plan,
) {
    let Some(entry) = engine.books.get(id) else { return };
    let Phase::Running(admission) = entry.phase.clone() else { return };
    let message = explain::evicted(engine, entry, claimant, reason, now);
    engine.books.set_phase(id, Phase::Stopping(admission));
    plan.actions.push(Action::Evict { workload: id.clone(), claimant: claimant.cloned(), reason, message });
}

/// Decides that somebody who runs goes on with other pods.
#[expect(clippy::too_many_arguments, reason = "a decision has as many parts")]
pub fn resize(
    engine: &mut Engine,
    id: &WorkloadId,
    from: Admission,
    to: Admission,
    cause: ResizeCause,
    claimant: Option<&WorkloadId>,
    message: String,
    plan: &mut Plan,
) {
    engine.books.set_phase(id, Phase::Resizing { from, to: to.clone() });
    plan.actions.push(Action::Resize {
        workload: id.clone(),
        admission: to,
        cause,
        claimant: claimant.cloned(),
        message,
    });
}

/// Holds the place to which a workload moves until it has stopped where it runs.
pub fn hold_for_mover(engine: &mut Engine, id: &WorkloadId, admission: &Admission, to: Placement) {
    let Some(mover) = Candidate::of(&engine.books, id) else { return };
    // It goes on with as many pods as run: else others would take the room that it gives up in passing.
    let mover = mover.with_pods(to.values().sum());
    let pool = engine.books.forest.intern_pool(&admission.pool);
    let message = explain::waiting(&engine.books, &to, &[]);
    let claim = Claim::new(&mover, pool, to, Vec::new(), message);
    claim.nominate(&mut engine.books, 1);
    engine.claims.push(claim);
}
