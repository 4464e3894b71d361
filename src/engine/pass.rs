//! One pass of decisions: first those for whom room is being freed, then everybody who waits.
//!
//! Between teams, whoever is owed goes before whoever lives off the surplus, then the smallest
//! share of the surplus goes first, then the older workload. Within a team the order is the one of
//! [`super::pending`]; who cannot start does not hold up those behind.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::Engine;
use super::books::Books;
use super::decision::{Action, EvictReason, Plan, Reason, Verdict};
use super::entry::{Entry, Phase};
use super::explain;
use super::forest::{Imagined, PoolIx, TeamIx};
use super::model::{Admission, DEFAULT_POOL, Name, PodShape, Time, WorkloadId};
use super::nodes::NodeIx;
use super::placement::{self, Freed, Placement, Request, Room};
use super::reclaim::{self, Claimant};
use super::rules;
use super::vector::Vector;

/// Room promised to a workload that others are leaving for.
#[derive(Debug)]
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

/// A workload that waits, with everything a decision about it needs.
struct Candidate {
    id: WorkloadId,
    team: TeamIx,
    shape: PodShape,
    need: Vector,
    total: Vector,
    pods: u32,
    priority: (i32, i32),
    preemptible: bool,
}

impl Candidate {
    fn of(books: &Books, id: &WorkloadId) -> Option<Self> {
        let entry = books.get(id)?;
        Some(Self {
            id: id.clone(),
            team: entry.team,
            shape: entry.workload.shape.clone(),
            need: entry.need.clone(),
            total: entry.total(),
            pods: entry.workload.pods,
            priority: rules::priority_of(books, entry),
            preemptible: rules::preemptible(books, entry),
        })
    }

    fn request(&self, pool: PoolIx) -> Request<'_> {
        Request { pool, shape: &self.shape, need: &self.need, pods: self.pods }
    }

    fn claimant<'a>(&'a self, pool: PoolIx, nodes: &'a [NodeIx], others: &'a [WorkloadId]) -> Claimant<'a> {
        Claimant {
            team: self.team,
            pool,
            shape: &self.shape,
            need: &self.need,
            total: &self.total,
            pods: self.pods,
            priority: self.priority,
            preemptible: self.preemptible,
            nodes,
            others,
        }
    }

    fn owed(&self, books: &Books, pool: PoolIx) -> bool {
        books.forest.owed(pool, self.team, &self.total, &Imagined::new())
    }
}

/// The nodes that may hold pods of a shape; no node changes while a pass runs.
#[derive(Default)]
struct Eligible(BTreeMap<(PoolIx, PodShape), Rc<[NodeIx]>>);

impl Eligible {
    fn of(&mut self, books: &Books, candidate: &Candidate, pool: PoolIx) -> Rc<[NodeIx]> {
        let nodes = self.0.entry((pool, candidate.shape.clone()));
        Rc::clone(nodes.or_insert_with(|| placement::eligible(books, &candidate.request(pool)).collect()))
    }
}

/// Runs one pass.
pub fn run(engine: &mut Engine, now: Time) -> Plan {
    let mut plan = Plan::default();
    let mut eligible = Eligible::default();
    progress_claims(engine, &mut eligible, now, &mut plan);
    while let Some(id) = next(engine) {
        let verdict = try_start(engine, &mut eligible, &id, now, &mut plan);
        if let Some(verdict) = verdict {
            let epoch = engine.epoch;
            engine.pending.block(&id, epoch, verdict);
        }
    }
    plan
}

/// The workload to look at next.
fn next(engine: &Engine) -> Option<WorkloadId> {
    let books = &engine.books;
    let heads = engine.pending.teams().filter_map(|team| {
        let rank = engine.pending.head(team, engine.epoch)?;
        let entry = books.get(rank.id())?;
        let pool = first_pool(books, entry);
        let owed = pool.is_some_and(|p| books.forest.owed(p, team, &entry.total(), &Imagined::new()));
        let share = pool.map(|p| books.forest.share(p, team)).unwrap_or_default();
        Some(((Reverse(owed), share, rank.submitted(), &books.forest.team(team).name), rank.id()))
    });
    heads.min_by(|left, right| left.0.cmp(&right.0)).map(|(_, id)| id.clone())
}

fn first_pool(books: &Books, entry: &Entry) -> Option<PoolIx> {
    pool_names(entry).first().and_then(|name| find_pool(books, name))
}

fn pool_names(entry: &Entry) -> Vec<Name> {
    if entry.workload.pools.is_empty() { vec![DEFAULT_POOL.into()] } else { entry.workload.pools.clone() }
}

fn find_pool(books: &Books, name: &Name) -> Option<PoolIx> {
    books.forest.pools().find(|(known, _)| *known == name).map(|(_, pool)| pool)
}

/// Lets those start whose room has become free; gives up on room that will not come.
fn progress_claims(engine: &mut Engine, eligible: &mut Eligible, now: Time, plan: &mut Plan) {
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

/// Decides the eviction of somebody who runs.
fn evict(engine: &mut Engine, id: &WorkloadId, claimant: &Candidate, now: Time, plan: &mut Plan) -> bool {
    let Some(entry) = engine.books.get(id) else { return false };
    let Phase::Running(admission) = entry.phase.clone() else { return false };
    let reason = if entry.team == claimant.team { EvictReason::Preempted } else { EvictReason::Reclaimed };
    let message = explain::evicted(&engine.books, entry, &claimant.id, reason, now);
    engine.books.set_phase(id, Phase::Stopping(admission));
    plan.actions.push(Action::Evict {
        workload: id.clone(),
        claimant: Some(claimant.id.clone()),
        reason,
        message,
    });
    true
}

impl Room<'_> {
    fn place(
        self,
        engine: &Engine,
        candidate: &Candidate,
        pool: PoolIx,
        nodes: &[NodeIx],
    ) -> Option<Placement> {
        placement::place(&engine.books, nodes, &candidate.request(pool), self)
    }
}

/// Admits the workload, or has room freed for it, or says why neither can be.
fn try_start(
    engine: &mut Engine,
    eligible: &mut Eligible,
    id: &WorkloadId,
    now: Time,
    plan: &mut Plan,
) -> Option<Verdict> {
    let entry = engine.books.get(id)?;
    let queue = match engine.books.queue_of(entry) {
        Ok(queue) => queue.clone(),
        Err(reason) => return Some(explain::unknown(entry, reason)),
    };
    let pools = pool_names(entry);
    let candidate = Candidate::of(&engine.books, id)?;
    if let Some(index) = engine.books.forest.over_queue_limit(
        candidate.team,
        &queue,
        &candidate.total,
        &engine.books.resources,
    ) {
        return Some(explain::queue_limit(&engine.books, &queue, index));
    }
    let mut options: Vec<(PoolIx, Rc<[NodeIx]>)> = Vec::new();
    for name in &pools {
        let Some(pool) = find_pool(&engine.books, name) else { continue };
        let nodes = eligible.of(&engine.books, &candidate, pool);
        if let Some(start) = fits_now(&engine.books, &candidate, pool, &nodes, true) {
            admit(engine, &candidate, pool, start, now, plan);
            return None;
        }
        options.push((pool, nodes));
    }
    for (pool, nodes) in &options {
        if make_room(engine, &candidate, *pool, nodes, now, plan) {
            return None;
        }
    }
    let refusals = options.iter().map(|(pool, nodes)| refusal(engine, &candidate, *pool, nodes));
    // The most hopeful of the pools' reasons speaks for all.
    let verdict = refusals.max_by_key(|verdict| hope(verdict.reason));
    Some(verdict.unwrap_or_else(|| explain::no_pool(&pools)))
}

/// Where the workload can start at once by every rule, if anywhere.
fn fits_now(
    books: &Books,
    candidate: &Candidate,
    pool: PoolIx,
    nodes: &[NodeIx],
    check_surplus: bool,
) -> Option<Placement> {
    let over =
        books.forest.over_limit(pool, candidate.team, &candidate.total, &Imagined::new(), false).is_some();
    if over || check_surplus && surplus_refusal(books, candidate, pool).is_some() {
        return None;
    }
    placement::place(books, nodes, &candidate.request(pool), Room::Now)
}

/// Why the workload may not live off the surplus, if it would have to.
fn surplus_refusal(books: &Books, candidate: &Candidate, pool: PoolIx) -> Option<Verdict> {
    if candidate.owed(books, pool) {
        None
    } else if !candidate.preemptible {
        Some(explain::must_fit_guarantee(books, candidate.team, pool, &candidate.total))
    } else {
        explain::lending_refusal(books, candidate.team, pool, &candidate.total)
    }
}

fn admit(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    placement: Placement,
    now: Time,
    plan: &mut Plan,
) {
    let borrowed = !candidate.owed(&engine.books, pool);
    let message = explain::admitted(&engine.books, candidate.team, pool, &candidate.total, borrowed);
    let admission = Admission {
        pool: engine.books.forest.pool_name(pool).clone(),
        nodes: placement.iter().map(|(node, pods)| (engine.books.nodes.name(*node).clone(), *pods)).collect(),
        pods: candidate.pods,
        borrowed,
        at: now,
    };
    engine.books.set_phase(&candidate.id, Phase::Starting(admission.clone()));
    engine.pending.remove(&candidate.id);
    plan.actions.push(Action::Admit { workload: candidate.id.clone(), admission, message });
}

/// Promises the workload room that is being freed already, or has it freed; false if it may not.
fn make_room(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    nodes: &[NodeIx],
    now: Time,
    plan: &mut Plan,
) -> bool {
    let books = &engine.books;
    let allowed =
        books.forest.over_limit(pool, candidate.team, &candidate.total, &Imagined::new(), true).is_none();
    if allowed && candidate.owed(books, pool) {
        let settled = Room::Settled(&Freed::new()).place(engine, candidate, pool, nodes);
        if let Some(placement) = settled {
            promise(engine, candidate, pool, placement, Vec::new());
            return true;
        }
    }
    let barred = |id: &WorkloadId| engine.pauses(id);
    let others: Vec<WorkloadId> = engine.pending.firsts_of_others(candidate.team).cloned().collect();
    let found = reclaim::search(books, &candidate.claimant(pool, nodes, &others), &barred, now);
    engine.awaits_start |= found.skipped;
    engine.wake = [engine.wake, found.retry_at].into_iter().flatten().min();
    let Some(victims) = found.victims else { return false };
    let gone: Vec<WorkloadId> =
        victims.ids.into_iter().filter(|id| evict(engine, id, candidate, now, plan)).collect();
    promise(engine, candidate, pool, victims.placement, gone);
    true
}

fn promise(
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
}

/// Why the workload cannot start in one of its pools.
fn refusal(engine: &Engine, candidate: &Candidate, pool: PoolIx, nodes: &[NodeIx]) -> Verdict {
    let books = &engine.books;
    if let Some(verdict) = explain::no_node(books, pool, nodes, &candidate.need, candidate.pods) {
        return verdict;
    }
    let over = books.forest.over_limit(pool, candidate.team, &candidate.total, &Imagined::new(), false);
    if let Some((team, index)) = over {
        return explain::team_limit(books, team, pool, index, &candidate.total);
    }
    surplus_refusal(books, candidate, pool)
        .unwrap_or_else(|| explain::no_room(books, pool, nodes, &candidate.need, candidate.pods))
}

/// How soon a workload with this reason may start, compared with other reasons.
fn hope(reason: Reason) -> u8 {
    match reason {
        Reason::WaitingForEviction => 6,
        Reason::RoomHeld => 5,
        Reason::Fragmented => 4,
        Reason::NoRoom => 3,
        Reason::LendingLimit => 2,
        Reason::NoNodeFits => 0,
        _ => 1,
    }
}
