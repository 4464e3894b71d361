//! Sentences of verdicts: why a workload waits or where it runs.

use std::time::Duration;

use crate::explain::names::{amounts, label, named, quantity, unit, usage};
use crate::placement::Placement;
use crate::placement::waiting::WaitingWorkload;
use crate::prediction::timeline::Slot;
use crate::scheduler::reservations::{Level, QuotaStart, Reservation};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::lending::{self, Loan};
use crate::state::quotas::Hypothetical;
use crate::state::rules;
use crate::state::workload::WorkloadInfo;
use crate::types::amount::Amount;
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::vector::Vector;
use crate::types::{FailReason, Name, Queue, Reason, State, Time, Verdict, WorkloadId, span, span_at_most};

pub fn pending(reason: Reason, message: String) -> Verdict {
    Verdict { state: State::Pending, reason, message, never: false }
}

/// A workload can never start, as nodes, quotas and queues are.
pub fn never(reason: Reason, message: String) -> Verdict {
    Verdict { never: true, ..pending(reason, message) }
}

/// A workload could start, but would delay the owner of a reservation.
pub fn reserved(state: &ClusterState, reservation: &Reservation, slot: &Slot) -> Verdict {
    let owner = label(state, &reservation.owner);
    let expected = expected(state, reservation, slot);
    pending(Reason::Reserved, format!("Waits for {owner}, which has a reservation on {expected}."))
}

/// A workload could start, but would use up the guarantee that the owner of its team's reservation needs.
pub fn guarantee_left(state: &ClusterState, reservation: &Reservation, slot: &Slot) -> Verdict {
    let owner = label(state, &reservation.owner);
    let expected = expected(state, reservation, slot);
    let message =
        format!("Leaves the guarantee of its team to {owner}, which has a reservation on {expected}.");
    pending(Reason::Reserved, message)
}

/// A workload could start, but would use quota that the owner of a reservation needs.
pub fn quota_kept(
    state: &ClusterState,
    reservation: &Reservation,
    level: &Level,
    resource: usize,
    amount: i64,
) -> Verdict {
    let team = |team: &TeamId| state.quotas.team(*team).name.clone();
    let of = match level {
        Level::Limit(at) => format!("limit of team {}", team(at)),
        Level::Guarantee(at) => format!("guarantee of team {}", team(at)),
        Level::Queue(at, queue) => format!("limit of queue {queue} of team {}", team(at)),
    };
    let (amount, owner) = (named(state, resource, amount), label(state, &reservation.owner));
    let message = format!("Leaves {amount} of the {of} to {owner}, which {}.", starts(reservation));
    pending(Reason::Reserved, message)
}

/// When the owner of a reservation is expected to start, as a clause.
fn starts(reservation: &Reservation) -> String {
    match reservation.start() {
        Some(at) => by(reservation, at),
        None => "waits until enough workloads have ended; nothing tells when".to_owned(),
    }
}

/// When the owner of a reservation is expected to start: as a length of its wait, which stays true while a verdict stands.
fn by(reservation: &Reservation, at: Time) -> String {
    format!(
        "is expected to start by the time it has waited {}",
        span_at_most(at.since(reservation.waits_since))
    )
}

/// What a reservation without nodes keeps, or waits for where it lacks no quota.
pub fn quota_reserved(reservation: &Reservation) -> String {
    match reservation.start() {
        _ if reservation.quota == QuotaStart::Now => {
            "It gets a reservation of nodes once a workload of another team that has one has started."
                .to_owned()
        }
        Some(_) => "It has a reservation of the quota it needs.".to_owned(),
        None => {
            "It has a reservation of the quota it needs; nothing tells when the workloads that use it end."
                .to_owned()
        }
    }
}

/// The nodes that a reservation keeps, for its owner. A forecast tells when that one is expected to start, which may be
/// another time: the forecast also counts what goes first.
pub fn nodes_reserved(state: &ClusterState, slot: &Slot) -> String {
    let nodes = node_names(state, slot.placement.keys());
    match slot.at {
        Some(_) => format!("It has a reservation on {nodes}."),
        None => format!("It has a reservation on {nodes}; {UNTOLD}."),
    }
}

/// What is said of nodes that come free at an unknown time.
const UNTOLD: &str = "no time limit tells when enough workloads have ended";

/// The nodes of a reservation, and when its owner is expected to start; for other workloads.
fn expected(state: &ClusterState, reservation: &Reservation, slot: &Slot) -> String {
    let nodes = node_names(state, slot.placement.keys());
    match slot.at {
        Some(at) => format!("{nodes} and {}", by(reservation, at)),
        None => format!("{nodes}; {UNTOLD}"),
    }
}

/// The names of nodes, in a row.
pub fn node_names<'a>(state: &ClusterState, nodes: impl Iterator<Item = &'a NodeId>) -> String {
    nodes.map(|node| state.nodes.name(*node).to_string()).collect::<Vec<String>>().join(", ")
}

/// Why a workload fails by a rule.
pub fn failed(queue: &Queue, reason: FailReason, after: Duration) -> String {
    let (verb, most) = match reason {
        FailReason::MaxWait => ("Waited", queue.max_wait),
        FailReason::MaxRuntime => ("Ran", queue.max_runtime),
    };
    let most = span(most.unwrap_or_default());
    format!("{verb} for {}; queue {} allows {most}.", span(after), queue.name)
}

/// The team or queue of a workload does not exist.
pub fn unknown(info: &WorkloadInfo, reason: Reason) -> Verdict {
    let workload = &info.workload;
    let message = match (&workload.queue, reason) {
        (Some(queue), Reason::UnknownQueue) => format!("Team {} has no queue {queue}.", workload.team),
        _ => format!("Team {} does not exist.", workload.team),
    };
    pending(reason, message)
}

/// None of a workload's pools has a node.
pub fn no_pool(pools: &[Name]) -> Verdict {
    never(Reason::NoNodeFits, format!("Can never start: no node is in pool {}.", pools.join(", ")))
}

/// The limit of a queue of a resource.
fn limit_of(state: &ClusterState, queue: &Queue, index: usize) -> Option<i64> {
    queue.limit.get(state.resources.name(index)).map(|limit| limit.as_milli())
}

/// A workload alone needs more than a limit of its queue; `None` where it does not, or may start at a smaller size.
pub fn above_queue_limit(state: &ClusterState, info: &WorkloadInfo, queue: &Queue) -> Option<Verdict> {
    if rules::may_shrink(state, info) {
        return None;
    }
    let (index, need, limit) = info.least_total().nonzero().find_map(|(index, need)| {
        let limit = limit_of(state, queue, index).filter(|limit| need > *limit)?;
        Some((index, need, limit))
    })?;
    let (need, limit) = (named(state, index, need), named(state, index, limit));
    let message = format!(
        "Can never start as the limit stands: it needs {need}, and queue {} has a limit of {limit}.",
        queue.name
    );
    Some(never(Reason::QueueLimit, message))
}

/// The queue of a workload is at its limit of a resource.
pub fn queue_limit(state: &ClusterState, info: &WorkloadInfo, queue: &Queue, index: usize) -> Verdict {
    let message = format!(
        "Needs {}; queue {} uses {} of its limit of {}.",
        named(state, index, info.least_total().get(index)),
        queue.name,
        quantity(state, index, state.quotas.used_of_queue(info.team, &queue.name, index)),
        named(state, index, limit_of(state, queue, index).unwrap_or(0)),
    );
    pending(Reason::QueueLimit, message)
}

/// The queue of a workload is paused.
pub fn queue_paused(state: &ClusterState, info: &WorkloadInfo, queue: &Queue) -> Verdict {
    let team = &state.quotas.team(info.team).name;
    let message = format!(
        "Queue {} of team {team} is paused, so none of its workloads starts; it keeps its place until the queue is open again.",
        queue.name
    );
    pending(Reason::QueuePaused, message)
}

/// The team `at` on the path of a workload is at its limit of a resource, or the workload alone needs more than a limit.
pub fn team_limit(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    pool: PoolId,
    (at, index): (TeamId, usize),
) -> Verdict {
    if let Some(never) = above_limit(state, waiting, pool) {
        return never;
    }
    let quota = state.quotas.quota_usage(pool, at);
    let limit = quota.limit.get(&index).copied().unwrap_or(0);
    let kept = match quota.incoming(index) {
        0 => String::new(),
        kept => format!(", and {} of it are kept for preemptors", named(state, index, kept)),
    };
    let message = format!(
        "Needs {}; team {} uses {} of its limit of {} in pool {}{kept}.",
        named(state, index, waiting.total.get(index)),
        state.quotas.team(at).name,
        quantity(state, index, quota.held.get(index)),
        named(state, index, limit),
        state.quotas.pool_name(pool),
    );
    pending(Reason::TeamLimit, message)
}

/// A workload alone needs more than the limit of a team on its path; `None` where it does not, or may start at a smaller
/// size.
pub fn above_limit(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> Option<Verdict> {
    let (at, index, limit) = state.quotas.team(waiting.team).path.iter().find_map(|at| {
        let mut limits = state.quotas.quota_usage(pool, *at).limit.iter();
        let (index, limit) = limits.find(|(index, limit)| waiting.total.get(**index) > **limit)?;
        Some((*at, *index, *limit))
    })?;
    if state.at(waiting.index).is_some_and(|info| rules::may_shrink(state, info)) {
        return None;
    }
    let message = format!(
        "Can never start in pool {} as the limit stands: it needs {}, and team {} has a limit of {}.",
        state.quotas.pool_name(pool),
        named(state, index, waiting.total.get(index)),
        state.quotas.team(at).name,
        named(state, index, limit),
    );
    Some(never(Reason::TeamLimit, message))
}

/// The first level and resource of a guarantee that does not hold a workload that is not preemptible, beside other such work or
/// alone, with the guaranteed amount.
fn too_small(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    pool: PoolId,
    beside: bool,
) -> Option<(TeamId, usize, i64)> {
    state.quotas.team(waiting.team).path.iter().find_map(|at| {
        let quota = state.quotas.quota_usage(pool, *at);
        let (index, guaranteed) = quota.governed().find(|(index, guaranteed)| {
            let (more, used) = (waiting.total.get(*index), if beside { quota.fixed_now(*index) } else { 0 });
            more > 0 && used.saturating_add(more) > *guaranteed
        })?;
        Some((*at, index, guaranteed))
    })
}

/// A workload that is not preemptible alone needs more than a guarantee on its path; `None` where it does not, or where its team
/// has no guarantee of what it needs.
pub fn never_guaranteed(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> Option<Verdict> {
    let is_covered = state.quotas.quota_usage(pool, waiting.team).covers_any(&waiting.total);
    if waiting.preemptible || !is_covered {
        return None;
    }
    let (at, index, guaranteed) = too_small(state, waiting, pool, false)?;
    let message = format!(
        "Can never start in pool {} as the guarantee stands: it is not preemptible and needs {}, and team {} is guaranteed {}.",
        state.quotas.pool_name(pool),
        named(state, index, waiting.total.get(index)),
        state.quotas.team(at).name,
        named(state, index, guaranteed),
    );
    Some(never(Reason::NotPreemptibleOverGuarantee, message))
}

/// A workload that is not preemptible does not fit a guarantee on its path. The sentence names the first level and resource
/// that do not hold it.
pub fn must_fit_guarantee(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> Verdict {
    if let Some(never) = never_guaranteed(state, waiting, pool) {
        return never;
    }
    let (team, total, pool_name) = (waiting.team, &waiting.total, state.quotas.pool_name(pool));
    let is_covered = state.quotas.quota_usage(pool, team).covers_any(total);
    let needs = amounts(state, total);
    let message = if !is_covered {
        format!(
            "Not preemptible, so its {needs} must fit the guarantee beside the team's other work that is not. {}",
            usage(state, team, pool, total),
        )
    } else if let Some((at, index, guaranteed)) = too_small(state, waiting, pool, true) {
        format!(
            "Not preemptible, so its {needs} must fit the guarantee beside other work that is not. Team {} uses {} of {} \
             guaranteed {} for such work in pool {pool_name}.",
            state.quotas.team(at).name,
            quantity(state, index, state.quotas.quota_usage(pool, at).fixed_now(index)),
            quantity(state, index, guaranteed),
            unit(state, index, guaranteed),
        )
    } else {
        format!(
            "Not preemptible, so its {needs} must fit the guarantee, and none counts for it while a budget is spent."
        )
    };
    pending(Reason::NotPreemptibleOverGuarantee, message)
}

/// Other teams do not lend as much as a workload would borrow.
pub fn lending_refusal(state: &ClusterState, team: TeamId, pool: PoolId, total: &Vector) -> Option<Verdict> {
    let same = Hypothetical::new();
    (!lending::allows(state, Loan { pool, team, total }, &Freed::new(), &same)).then(|| {
        let kept = state.quotas.reserve_after(pool, team, total, &same);
        let borrowed = borrowed(state, team, pool, total);
        let borrows = if borrowed.equals(total) || borrowed.nonzero().next().is_none() {
            format!("Would borrow {}", amounts(state, total))
        } else {
            format!("Needs {} and would borrow {}", amounts(state, total), amounts(state, &borrowed))
        };
        let message = format!(
            "{borrows}, but other teams do not lend {} of pool {}.",
            amounts(state, &kept),
            state.quotas.pool_name(pool),
        );
        pending(Reason::LendingLimit, message)
    })
}

/// Other teams never lend as much as a workload would borrow, as they lend now; `None` where they may, or where it may start at
/// a smaller size.
pub fn never_lent(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> Option<Verdict> {
    let (index, most, kept) = lending::never_lent(state, waiting.loan(pool))?;
    if state.at(waiting.index).is_some_and(|info| rules::may_shrink(state, info)) {
        return None;
    }
    let message = format!(
        "Can never start in pool {} as other teams lend: it needs {}, and they do not lend {} of the {} there.",
        state.quotas.pool_name(pool),
        named(state, index, waiting.total.get(index)),
        quantity(state, index, kept),
        named(state, index, most),
    );
    Some(never(Reason::LendingLimit, message))
}

/// The part of `total` that a team, or one above it, would borrow.
fn borrowed(state: &ClusterState, team: TeamId, pool: PoolId, total: &Vector) -> Vector {
    let mut borrowed = Vector::default();
    for (index, more) in total.nonzero() {
        let at_level = |at: &TeamId| {
            let quota = state.quotas.quota_usage(pool, *at);
            let before = quota.borrowed(index, quota.settled(index));
            quota.borrowed(index, quota.after(index, 0, more)).saturating_sub(before)
        };
        let most = state.quotas.team(team).path.iter().map(at_level).max();
        borrowed.set(index, most.unwrap_or(0));
    }
    borrowed
}

/// Whether no quota of a pool lists anything of an amount. The team's own quota mostly lists some of it.
pub fn outside_quotas(state: &ClusterState, (team, pool): (TeamId, PoolId), amount: &Vector) -> bool {
    let lists = |at: TeamId| state.quotas.quota_usage(pool, at).listed().any(|index| amount.get(index) > 0);
    !lists(team) && !state.quotas.teams().any(|(at, _)| lists(at))
}

/// Why a workload starts.
pub fn admitted(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId, beyond: bool) -> String {
    let WaitingWorkload { team, total, preemptible, .. } = waiting;
    let (needs, usage) = (amounts(state, total), usage(state, *team, pool, total));
    let pool_name = state.quotas.pool_name(pool);
    // Beyond the guarantee is also what no guarantee covers.
    let outside = || match &*needs {
        "nothing" => format!("nothing that a quota of pool {pool_name} lists"),
        needs => format!("{needs}, which no quota of pool {pool_name} lists"),
    };
    match (beyond, preemptible) {
        (true, true) if outside_quotas(state, (*team, pool), total) => {
            format!("{}, so it can be preempted while its team borrows.", outside())
        }
        (true, false) if outside_quotas(state, (*team, pool), total) => format!("{}.", outside()),
        (false, _) => format!("{needs} within the guarantee. Before: {usage}"),
        (true, true) => format!("{needs} beyond the guarantee, so it can be preempted. Before: {usage}"),
        (true, false) if !state.quotas.quota_usage(pool, *team).covers_any(total) => {
            format!("{needs}, of which the team has no guarantee in pool {pool_name}.")
        }
        (true, false) => {
            format!(
                "{needs} within the guarantee, beyond which preemptible work of its team runs. Before: {usage}"
            )
        }
    }
}

/// The GPU fraction of a workload, if it is smaller than the preferred one.
pub fn less(info: &WorkloadInfo, fraction: Option<Amount>) -> String {
    match (fraction, info.workload.sizes.first()) {
        (Some(fraction), Some(full)) => {
            let (fraction, full) = (fraction.as_units_lossy(), full.share.as_units_lossy());
            format!(" Runs with {fraction} of a GPU instead of {full}.")
        }
        _ => String::new(),
    }
}

/// The nodes that a preemptor waits for, and its victims.
pub fn waiting(state: &ClusterState, placement: &Placement, victims: &[WorkloadId]) -> String {
    let nodes = node_names(state, placement.keys());
    if victims.is_empty() {
        return format!("Starts on {nodes} once the pods that are ending there are gone.");
    }
    let names: Vec<String> = victims.iter().map(|id| label(state, id)).collect();
    let have = if names.len() == 1 { "has" } else { "have" };
    format!("Starts on {nodes} once {} {have} stopped.", names.join(", "))
}
