//! Room promised: to those for whom others leave, and to those who move.

use std::sync::Arc;

use super::Engine;
use super::admit::admit;
use super::books::{Books, Place};
use super::candidate::{Candidate, fits_now};
use super::decision::Plan;
use super::entry::{Entry, Phase};
use super::explain;
use super::forest::{PoolIx, TeamIx};
use super::model::{Admission, PodShape, Time, Topology, WorkloadId};
use super::placement::{self, Freed, Placement, Request, Room};
use super::reclaim::{Promised, Take};
use super::reserve;
use super::rules;
use super::users::UserOf;
use super::vector::Vector;

/// Room promised to a workload.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Who waits for it.
    pub id: WorkloadId,
    place: Place,
    team: TeamIx,
    user: Option<UserOf>,
    pool: PoolIx,
    shape: Arc<PodShape>,
    topology: Topology,
    pods: u32,
    need: Vector,
    total: Vector,
    placement: Placement,
    /// Who leaves, of those this claim told to.
    victims: Vec<Victim>,
    /// For the verdict.
    pub message: String,
}

/// Somebody who was told to make room.
#[derive(Clone, Debug)]
pub struct Victim {
    /// What was decided.
    pub take: Take,
    /// Where its entry is kept.
    pub place: Place,
    /// What it ran by before.
    pub before: Admission,
}

impl Claim {
    /// A promise of that place.
    pub fn new(
        candidate: &Candidate,
        pool: PoolIx,
        placement: Placement,
        victims: Vec<Victim>,
        message: String,
    ) -> Self {
        Self {
            id: candidate.id.clone(),
            place: candidate.place,
            team: candidate.team,
            user: candidate.user.clone(),
            pool,
            shape: Arc::clone(&candidate.shape),
            topology: candidate.topology.clone(),
            pods: candidate.pods,
            need: candidate.need.clone(),
            total: candidate.total.clone(),
            placement,
            victims,
            message,
        }
    }

    /// Whose promise it is, if that is still known.
    #[must_use]
    pub fn entry<'a>(&self, books: &'a Books) -> Option<&'a Entry> {
        books.at(self.place).filter(|entry| entry.workload.id == self.id)
    }

    /// Whether its room is not there yet, and will be once those who were told to leave are gone. False also
    /// where that would take a closer look.
    fn is_on_its_way(&self, engine: &Engine) -> bool {
        let request = Request {
            pool: self.pool,
            shape: &self.shape,
            topology: &self.topology,
            need: &self.need,
            pods: self.pods,
            beside: None,
        };
        let same = |entry: &Entry| entry.shape == self.shape && entry.workload.topology == self.topology;
        self.entry(&engine.books).is_some_and(same)
            && !self.victims.iter().any(|victim| stays(engine, victim))
            && placement::is_on_its_way(&engine.books, &request, &self.placement)
    }

    /// Puts the promised room on the books, or with -1 takes it off.
    pub fn nominate(&self, books: &mut Books, times: i64) {
        books.forest.nominate(self.pool, self.team, &self.total, times);
        if let Some(user) = &self.user {
            books.forest.users.hold(user, self.pool, &self.total, times);
        }
        for (node, pods) in &self.placement {
            books.nodes.nominate(*node, &self.need, times * i64::from(*pods));
        }
    }

    /// Whose promise it is, as far as others need to know.
    #[must_use]
    pub fn promised(&self, books: &Books) -> Option<Promised> {
        self.entry(books).map(|entry| Promised {
            id: self.id.clone(),
            team: self.team,
            priority: rules::priority_of(books, entry),
        })
    }

    /// Those who were told to leave for it.
    pub fn victims(&self) -> impl Iterator<Item = &WorkloadId> {
        self.victims.iter().map(|victim| victim.take.id())
    }

    /// Whether the promise is still what the workload asks for.
    #[must_use]
    pub fn is_for(&self, entry: &Entry) -> bool {
        let same = |left: &Vector, right: &Vector| left.plus(right, -1).nonzero().next().is_none();
        let wanted = matches!(entry.phase, Phase::Pending | Phase::Stopping(_) | Phase::Leaving { .. });
        // Who moves may be promised room for more than it must have.
        let pods = self.pods.clamp(entry.least_pods(), entry.workload.pods);
        wanted
            && entry.team == self.team
            && same(&entry.need, &self.need)
            && same(&Vector::default().plus(&entry.need, i64::from(pods)), &self.total)
    }
}

/// Lets those start whose room has become free; gives up on room that will not come.
pub fn progress(engine: &mut Engine, now: Time, plan: &mut Plan) {
    for claim in std::mem::take(&mut engine.claims) {
        match claim.entry(&engine.books).map(|entry| &entry.phase) {
            Some(Phase::Pending) => {}
            // It moves, and has not stopped yet.
            Some(Phase::Stopping(_) | Phase::Leaving { .. }) => {
                engine.claims.push(claim);
                continue;
            }
            _ => {
                claim.nominate(&mut engine.books, -1);
                continue;
            }
        }
        if claim.is_on_its_way(engine) {
            engine.claims.push(claim);
            continue;
        }
        let Some(candidate) = Candidate::of(&engine.books, &claim.id) else {
            claim.nominate(&mut engine.books, -1);
            continue;
        };
        let candidate = candidate.with_pods(claim.pods);
        let candidate = candidate.in_pool(&engine.books, claim.pool);
        claim.nominate(&mut engine.books, -1);
        let nodes = placement::eligible(&engine.books, &candidate.request(claim.pool));
        if let Some(start) = fits_now(&engine.books, &candidate, claim.pool, &nodes, false) {
            admit(engine, &candidate, claim.pool, start, now, plan);
            continue;
        }
        // The room may come elsewhere than planned, but it must come from those who leave for it.
        let staying: Vec<&Victim> = claim.victims.iter().filter(|victim| stays(engine, victim)).collect();
        let mut freed = Freed::new();
        for victim in &staying {
            let Some(entry) = engine.books.get(victim.take.id()) else { continue };
            match &victim.take {
                Take::Whole(_) | Take::Move(..) => rules::free(&mut freed, entry),
                Take::Shrink(_, pods) | Take::Shift(_, pods, _) => {
                    rules::free_pods(&mut freed, entry, pods);
                }
            }
        }
        // Whose eviction failed to be written is kept in view while its pause lasts; then the search is
        // made anew, for by now it may be wrong to take it.
        let pausing = staying.iter().all(|victim| engine.pauses(victim.take.id()));
        let settled = Room::Settled(&freed).place(engine, &candidate, claim.pool, &nodes);
        match settled.filter(|_| pausing) {
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

/// Whether a victim runs on as before, because what was decided about it could not be written.
fn stays(engine: &Engine, victim: &Victim) -> bool {
    let id = victim.take.id();
    let entry = engine.books.at(victim.place).filter(|entry| entry.workload.id == *id);
    entry
        .or_else(|| engine.books.get(id))
        .is_some_and(|entry| matches!(&entry.phase, Phase::Running(admission) if *admission == victim.before))
}

/// Holds the room that a placement needs until it has become free.
pub fn promise(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    placement: Placement,
    victims: Vec<Victim>,
) {
    let names: Vec<WorkloadId> = victims.iter().map(|victim| victim.take.id().clone()).collect();
    let message = explain::waiting(&engine.books, &placement, &names);
    let claim = Claim::new(candidate, pool, placement, victims, message);
    claim.nominate(&mut engine.books, 1);
    engine.claims.push(claim);
    engine.pending.remove(&candidate.id);
    reserve::give_up(engine, &candidate.id);
}
