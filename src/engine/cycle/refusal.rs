//! Why a waiting workload cannot start now: a verdict for every pool, of which the most promising is reported.

use std::borrow::Cow;

use crate::explain;
use crate::placement;
use crate::placement::waiting::{WaitingWorkload, find_pool, pool_names};
use crate::state::cluster::ClusterState;
use crate::state::quotas::Funding;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::vector::UNOFFERED;
use crate::types::{Name, Reason, Verdict, WorkloadId};

/// Why a waiting workload cannot start now, reservations and preemption aside; `None` when it is unknown.
#[must_use]
pub fn why_not(state: &ClusterState, id: &WorkloadId) -> Option<Verdict> {
    let info = state.get(id)?;
    if let Some(verdict) = barred(state, info) {
        return Some(verdict);
    }
    let waiting = WaitingWorkload::of(state, id)?;
    let names = pool_names(info);
    let verdicts = names.iter().filter_map(|name| find_pool(state, name)).map(|pool| {
        let waiting = match funded(state, waiting.in_pool(state, pool), pool) {
            Funded::Fully(waiting) => waiting,
            Funded::IdleOnly(_, verdict) | Funded::Not(verdict) => return verdict,
        };
        let nodes = placement::eligible(state, &waiting.request(pool));
        in_pool(state, &waiting, pool, &nodes)
    });
    Some(across_pools(verdicts, &names))
}

/// A workload as the budgets on its path let it start in a pool. A verdict names the budget that does not cover it, or says that it
/// can never start there.
pub enum Funded<'a> {
    /// They cover it, or do not hold it back.
    Fully(Cow<'a, WaitingWorkload>),
    /// One does not cover it. It may start on idle capacity all the same, and is marked `unfunded` for that.
    IdleOnly(Cow<'a, WaitingWorkload>, Verdict),
    /// One does not cover it, and it has to wait.
    Not(Verdict),
}

impl Funded<'_> {
    /// Why no budget covers it; `None` if they do.
    fn verdict(self) -> Option<Verdict> {
        match self {
            Self::Fully(_) => None,
            Self::IdleOnly(_, verdict) | Self::Not(verdict) => Some(verdict),
        }
    }
}

/// How the budgets on its path let a workload start in a pool.
pub fn funded<'a>(state: &ClusterState, mut waiting: Cow<'a, WaitingWorkload>, pool: PoolId) -> Funded<'a> {
    match waiting.funding(state, pool) {
        Funding::Funded => Funded::Fully(waiting),
        Funding::BorrowOnly(at) => {
            waiting.to_mut().unfunded = true;
            let verdict = beyond_budget(state, &waiting, pool, at, true);
            Funded::IdleOnly(waiting, verdict)
        }
        Funding::Held(at) => Funded::Not(beyond_budget(state, &waiting, pool, at, false)),
    }
}

/// Why the budget of a team does not cover a workload in a pool, after what keeps it from ever starting there.
fn beyond_budget(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    pool: PoolId,
    at: TeamId,
    may_borrow: bool,
) -> Verdict {
    if let Some(never) = never_fits(state, waiting, pool) {
        return never;
    }
    let spent = explain::budget_spent(state, waiting, pool, at, may_borrow);
    match never_by_quota(state, waiting, pool) {
        Some(never) => {
            Verdict { message: format!("{} {}", never.message, spent.message), never: true, ..spent }
        }
        None => spent,
    }
}

/// That the nodes of a pool can never hold a workload, which no budget changes.
fn never_fits(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> Option<Verdict> {
    let nodes = placement::eligible(state, &waiting.request(pool));
    no_node(state, waiting, pool, &nodes).filter(|verdict| verdict.reason == Reason::NoNodeFits)
}

/// Why the nodes of a pool could not hold a workload even if they were empty; `None` if they could.
fn no_node(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    pool: PoolId,
    nodes: &[NodeId],
) -> Option<Verdict> {
    if waiting.need.get(UNOFFERED) != 0 {
        return Some(explain::unoffered(state, &waiting.shape.requests));
    }
    explain::no_node(state, nodes, &waiting.request(pool))
}

/// Why no budget covers a waiting workload in any of its pools; `None` if the budgets cover it in one of them. A pool that can
/// never hold it counts only where all are so.
#[must_use]
pub fn unfunded(state: &ClusterState, id: &WorkloadId) -> Option<Verdict> {
    if state.quotas.budgets.is_empty() {
        return None;
    }
    let info = state.get(id)?;
    let waiting = WaitingWorkload::of(state, id)?;
    let pools: Vec<PoolId> = pool_names(info).iter().filter_map(|name| find_pool(state, name)).collect();
    let verdict = |pool: &PoolId| funded(state, waiting.in_pool(state, *pool), *pool).verdict();
    let verdicts: Option<Vec<Verdict>> = pools.iter().map(verdict).collect();
    // Of equal ones the first.
    verdicts?.into_iter().rev().max_by_key(nearness)
}

/// Why a workload cannot start in any pool, if its queue is unknown or its queue's limit is reached.
pub fn barred(state: &ClusterState, info: &WorkloadInfo) -> Option<Verdict> {
    let queue = match state.queue_of(info) {
        Ok(queue) => queue,
        Err(reason) => return Some(explain::unknown(info, reason)),
    };
    let over = state.quotas.over_queue_limit(info.team, queue, &info.least_total(), &state.resources);
    over.map(|index| {
        // A full queue is not full for ever; what can never hold the workload stays so.
        let never = explain::above_queue_limit(state, info, queue).or_else(|| never_anywhere(state, info));
        never.unwrap_or_else(|| explain::queue_limit(state, info, queue, index))
    })
}

/// Why a workload can never start in any of its pools, as quotas stand.
fn never_anywhere(state: &ClusterState, info: &WorkloadInfo) -> Option<Verdict> {
    let waiting = WaitingWorkload::of(state, &info.workload.id)?;
    let names = pool_names(info);
    let pools = names.iter().filter_map(|name| find_pool(state, name));
    let never: Option<Vec<Verdict>> =
        pools.map(|pool| never_by_quota(state, &waiting.in_pool(state, pool), pool)).collect();
    never?.into_iter().next()
}

/// Why a workload can never start in a pool as limits, guarantees and lending stand, whatever of them is in use.
#[must_use]
pub fn never_by_quota(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> Option<Verdict> {
    let limit = || explain::above_limit(state, waiting, pool);
    if waiting.preemptible {
        explain::never_lent(state, waiting, pool).or_else(limit)
    } else {
        limit().or_else(|| explain::never_guaranteed(state, waiting, pool))
    }
}

/// Why a workload cannot start in one of its pools.
pub fn in_pool(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId, nodes: &[NodeId]) -> Verdict {
    if let Some(verdict) = no_node(state, waiting, pool, nodes) {
        return verdict;
    }
    // Said although something else may be in its way at present: that will go, and this will not.
    if let Some(never) = never_by_quota(state, waiting, pool) {
        return never;
    }
    let over = state.quotas.over_limit_now(pool, waiting.team, &waiting.total);
    if let Some(over) = over {
        return explain::team_limit(state, waiting, pool, over);
    }
    if waiting.lacks_quota_now(state, pool) {
        return explain::must_fit_guarantee(state, waiting, pool);
    }
    may_not_borrow(state, waiting, pool)
        .unwrap_or_else(|| explain::no_room(state, nodes, &waiting.request(pool)))
}

/// Why a workload may not borrow, if it would have to.
fn may_not_borrow(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> Option<Verdict> {
    if waiting.within_guarantee(state, pool) {
        None
    } else if !waiting.may_exceed_guarantee(state, pool) {
        Some(explain::must_fit_guarantee(state, waiting, pool))
    } else {
        explain::lending_refusal(state, waiting.team, pool, &waiting.total)
    }
}

/// The verdict to report of those of the pools: the one that a start may follow soonest. `names` are the pools
/// that the workload asks for.
pub fn across_pools(verdicts: impl IntoIterator<Item = Verdict>, names: &[Name]) -> Verdict {
    let best = verdicts.into_iter().max_by_key(nearness);
    best.unwrap_or_else(|| explain::no_pool(names))
}

/// How near a start is with a verdict, compared with others: where it can never follow in one pool, it may in another.
fn nearness(verdict: &Verdict) -> (bool, u8) {
    let near = match verdict.reason {
        Reason::WaitingForEviction => 6,
        Reason::RoomHeld | Reason::Reserved => 5,
        Reason::Fragmented | Reason::Constrained => 4,
        Reason::NoRoom => 3,
        Reason::LendingLimit => 2,
        Reason::NoNodeFits => 0,
        _ => 1,
    };
    (!verdict.never, near)
}
