//! Room promised to those for whom others leave.

use super::Engine;
use super::books::Books;
use super::candidate::{Candidate, Eligible};
use super::decision::Plan;
use super::entry::{Entry, Phase};
use super::explain;
use super::forest::{PoolIx, TeamIx};
use super::model::{Time, WorkloadId};
use super::placement::{Freed, Placement, Room};
use super::reserve;
use super::rules;
use super::start::{admit, fits_now};
use super::vector::Vector;

/// Room promised to a workload that others are leaving for.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Who waits for it.
    pub id: WorkloadId,
    team: TeamIx,
    pool: PoolIx,
    need: Vector,
    total: Vector,
    placement: Placement,
    /// Who leaves, of those this claim told to.
    victims: Vec<WorkloadId>,
    /// For the verdict.
    pub message: String,
}

impl Claim {
    /// Puts the promised room on the books, or with -1 takes it off.
    pub fn nominate(&self, books: &mut Books, times: i64) {
        books.forest.nominate(self.pool, self.team, &self.total, times);
        for (node, pods) in &self.placement {
            books.nodes.nominate(*node, &self.need, times * i64::from(*pods));
        }
    }

    /// Whether the promise is still what the workload asks for.
    #[must_use]
    pub fn is_for(&self, entry: &Entry) -> bool {
        let same = |left: &Vector, right: &Vector| left.plus(right, -1).nonzero().next().is_none();
        entry.team == self.team && same(&entry.need, &self.need) && same(&entry.total(), &self.total)
    }
}

/// Lets those start whose room has become free; gives up on room that will not come.
pub fn progress(engine: &mut Engine, eligible: &mut Eligible, now: Time, plan: &mut Plan) {
    for claim in std::mem::take(&mut engine.claims) {
        claim.nominate(&mut engine.books, -1);
        let Some(candidate) = Candidate::of(&engine.books, &claim.id) else { continue };
        let nodes = eligible.of(&engine.books, &candidate, claim.pool);
        if let Some(start) = fits_now(&engine.books, &candidate, claim.pool, &nodes, false) {
            admit(engine, &candidate, claim.pool, start, now, plan);
            continue;
        }
        // The room may come elsewhere than planned, but it must come from those who leave for it.
        let staying: Vec<WorkloadId> = claim.victims.iter().filter(|id| runs(engine, id)).cloned().collect();
        let mut freed = Freed::new();
        for entry in staying.iter().filter_map(|id| engine.books.get(id)) {
            rules::free(&mut freed, entry);
        }
        // Whose eviction failed to be written is kept in view while its pause lasts; then the search is
        // made anew, for by now it may be wrong to take it.
        let settled = Room::Settled(&freed).place(engine, &candidate, claim.pool, &nodes);
        match settled.filter(|_| staying.iter().all(|id| engine.pauses(id))) {
            Some(placement) => {
                let claim = Claim { placement, ..claim };
                claim.nominate(&mut engine.books, 1);
                engine.claims.push(claim);
            }
            None => {
                engine.epoch += 1;
                engine.queue_up(&claim.id);
            }
        }
    }
}

fn runs(engine: &Engine, id: &WorkloadId) -> bool {
    engine.books.get(id).is_some_and(|entry| matches!(entry.phase, Phase::Running(_)))
}

/// Holds the room that a placement needs until it has become free.
pub fn promise(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    placement: Placement,
    victims: Vec<WorkloadId>,
) {
    let message = explain::waiting(&engine.books, &placement, &victims);
    let claim = Claim {
        id: candidate.id.clone(),
        team: candidate.team,
        pool,
        need: candidate.need.clone(),
        total: candidate.total.clone(),
        placement,
        victims,
        message,
    };
    claim.nominate(&mut engine.books, 1);
    engine.claims.push(claim);
    engine.pending.remove(&candidate.id);
    reserve::give_up(engine, &candidate.id);
}
