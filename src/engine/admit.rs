//! Deciding that a workload starts.

use super::Engine;
use super::candidate::Candidate;
use super::decision::{Action, Plan};
use super::entry::Phase;
use super::explain;
use super::forest::PoolIx;
use super::model::{Admission, Time};
use super::placement::Placement;
use super::reserve;

/// Decides the admission.
pub fn admit(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    placement: Placement,
    now: Time,
    plan: &mut Plan,
) {
    let borrowed = !candidate.owed(&engine.books, pool);
    let mut message = explain::admitted(&engine.books, candidate.team, pool, &candidate.total, borrowed);
    let less = engine.books.get(&candidate.id).map(|entry| explain::less(entry, candidate.share));
    message.push_str(&less.unwrap_or_default());
    let admission = Admission {
        pool: engine.books.forest.pool_name(pool).clone(),
        nodes: placement.iter().map(|(node, pods)| (engine.books.nodes.name(*node).clone(), *pods)).collect(),
        pods: placement.values().sum(),
        borrowed,
        share: candidate.share,
        at: now,
    };
    engine.books.set_phase(&candidate.id, Phase::Starting(admission.clone()));
    engine.pending.remove(&candidate.id);
    reserve::started(engine, &candidate.id);
    plan.actions.push(Action::Admit { workload: candidate.id.clone(), admission, message });
}
