//! The quota that a workload needs to start: when it comes free, and which workloads leave it whole (law 7).
//!
//! Quota is reserved level by level: the limit of the owner's team, of each team above it and of its queue, and for work
//! that is never preempted the guarantees. A level binds its members only, and only those behind the owner.

use std::time::Duration;

use crate::cycle::reserve::binding::{backfills, ends_by, is_before, waits};
use crate::explain;
use crate::placement::waiting::WaitingWorkload;
use crate::prediction::timeline::running_admission;
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{Level, QuotaStart, Reservation, ReservedCapacity};
use crate::state::cluster::ClusterState;
use crate::state::lending;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{PoolId, TeamId};
use crate::types::{Time, Verdict};

/// One resource at one level of a workload's path.
struct Cap {
    level: Level,
    resource: usize,
    /// The most that the level allows, in thousandths.
    most: i64,
    /// What it holds of that.
    used: i64,
    /// What the workload asks for.
    asked: i64,
}

/// What caps a workload in a pool: every limited resource that it asks for, at every level.
fn caps(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> Vec<Cap> {
    let quotas = &state.quotas;
    let mut caps = Vec::new();
    let asks = |resource: &usize| waiting.total.get(*resource) > 0;
    for at in &quotas.team(waiting.team).path {
        let usage = quotas.quota_usage(pool, *at);
        for (resource, most) in usage.limit.iter().filter(|(resource, _)| asks(resource)) {
            caps.push((Level::Limit(*at), *resource, *most, usage.settled(*resource)));
        }
        for (resource, most) in
            usage.governed().filter(|(resource, _)| !waiting.preemptible && asks(resource))
        {
            caps.push((Level::Guarantee(*at), resource, most, usage.fixed(resource)));
        }
    }
    let queue = state.get(&waiting.id).and_then(|info| state.queue_of(info).ok());
    for (name, most) in queue.into_iter().flat_map(|queue| &queue.limit) {
        let Some(resource) = state.resources.find(name).filter(asks) else { continue };
        let level = Level::Queue(waiting.team, queue.map_or_else(|| "".into(), |queue| queue.name.clone()));
        let used = queue.map_or(0, |queue| quotas.used_of_queue(waiting.team, &queue.name, resource));
        caps.push((level, resource, most.as_milli(), used));
    }
    let cap = |(level, resource, most, used)| {
        let asked = waiting.total.get(resource);
        Cap { level, resource, most, used, asked }
    };
    caps.into_iter().map(cap).collect()
}

/// What a workload holds of that level's resource.
fn held_of(state: &ClusterState, info: &WorkloadInfo, pool: PoolId, level: &Level, resource: usize) -> i64 {
    let below = |at: &TeamId| info.usage.pool == pool && state.quotas.team(info.team).path.contains(at);
    let pods = match level {
        Level::Limit(at) if below(at) => info.usage.staying_pods(),
        Level::Guarantee(at) if info.charged_fixed && below(at) => info.usage.staying_pods(),
        Level::Queue(team, queue) if info.team == *team && info.charged_queue == *queue => info.usage.pods,
        _ => return 0,
    };
    info.need.get(resource).saturating_mul(i64::from(pods))
}

/// The workloads that hold a resource at a level, with the amounts.
fn holders<'a>(
    state: &'a ClusterState,
    pool: PoolId,
    level: &'a Level,
    resource: usize,
) -> impl Iterator<Item = (&'a WorkloadInfo, i64)> {
    let pools: Vec<PoolId> = match level {
        Level::Queue(..) => state.quotas.pools().map(|(_, pool)| pool).collect(),
        _ => vec![pool],
    };
    let at = level.team();
    let below = move |pool| state.quotas.at_or_below(at).flat_map(move |team| state.holders(pool, team));
    let infos = pools.into_iter().flat_map(below);
    infos.filter_map(move |info| {
        let held = held_of(state, info, pool, level, resource);
        (held > 0).then_some((info, held))
    })
}

/// When a workload has ended by its time limit or by the runs like it; `None` when nothing tells.
fn end(scheduler: &Scheduler, info: &WorkloadInfo, now: Time) -> Option<Time> {
    match running_admission(info) {
        Some(_) => scheduler.prediction.timeline.end(&info.workload.id),
        None => Some(now),
    }
}

/// The reservations that keep quota and bind a workload: those of other owners that it does not stand before.
fn before<'a>(
    scheduler: &'a Scheduler,
    waiting: &'a WaitingWorkload,
) -> impl Iterator<Item = (PoolId, &'a Reservation, WaitingWorkload)> {
    // A level binds only the teams below it.
    let root = scheduler.state.quotas.root_of(waiting.team);
    scheduler.reservations.below(root).filter_map(move |(pool, reservation)| {
        let keeps = reservation.keeps_quota()
            && reservation.owner != waiting.id
            && waits(scheduler, &reservation.owner)
            && !is_before(scheduler, waiting, pool, reservation);
        let owner = keeps.then(|| WaitingWorkload::of(&scheduler.state, &reservation.owner))??;
        Some((pool, reservation, owner.in_pool(&scheduler.state, pool).into_owned()))
    })
}

/// What earlier owners keep of a level's resource for themselves.
fn kept_by_earlier(scheduler: &Scheduler, waiting: &WaitingWorkload, pool: PoolId, cap: &Cap) -> i64 {
    let asked = |(in_pool, _, owner): (PoolId, &Reservation, WaitingWorkload)| -> i64 {
        let same = in_pool == pool || matches!(cap.level, Level::Queue(..));
        let caps = if same { caps(&scheduler.state, &owner, in_pool) } else { Vec::new() };
        let here = caps.iter().find(|other| (&other.level, other.resource) == (&cap.level, cap.resource));
        here.map_or(0, |other| other.asked)
    };
    before(scheduler, waiting).map(asked).fold(0, i64::saturating_add)
}

/// When the quota on a workload's whole path is free for it, beside what earlier owners keep; `None` when its limits, or other
/// teams as they lend, do not allow it at all.
pub fn quota_start(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    now: Time,
) -> Option<QuotaStart> {
    let quotas = &scheduler.state.quotas;
    if !waiting.preemptible && !quotas.may_hold_fixed(pool, waiting.team, &waiting.total) {
        return None;
    }
    if lending::never_lent(&scheduler.state, waiting.loan(pool)).is_some() {
        return None;
    }
    let mut start = QuotaStart::Now;
    for cap in caps(&scheduler.state, waiting, pool) {
        if cap.asked > cap.most {
            return None;
        }
        let wanted = cap
            .used
            .saturating_add(cap.asked)
            .saturating_add(kept_by_earlier(scheduler, waiting, pool, &cap));
        let mut short = wanted.saturating_sub(cap.most);
        if short <= 0 {
            continue;
        }
        let holders = holders(&scheduler.state, pool, &cap.level, cap.resource);
        let mut ends: Vec<(Time, i64)> =
            holders.filter_map(|(info, held)| Some((end(scheduler, info, now)?, held))).collect();
        ends.sort_unstable();
        let enough = ends.into_iter().find(|(_, held)| {
            short = short.saturating_sub(*held);
            short <= 0
        });
        start = start.max(enough.map_or(QuotaStart::Unpredictable, |(at, _)| QuotaStart::At(at.max(now))));
    }
    Some(start)
}

/// Checks that a workload leaves whole the quota that owners before it will need, or has ended by then.
///
/// # Errors
/// The verdict on the workload, which names the owner that it must wait for.
pub fn leave_quota(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    now: Time,
) -> Result<(), Verdict> {
    let root = scheduler.state.quotas.root_of(waiting.team);
    if !scheduler.reservations.below(root).any(|(_, reservation)| reservation.keeps_quota()) {
        return Ok(());
    }
    let own = caps(&scheduler.state, waiting, pool);
    if own.is_empty() {
        return Ok(());
    }
    let prediction = &mut scheduler.prediction;
    prediction.timeline.catch_up(&scheduler.state, &prediction.run_times, pool, now);
    for (in_pool, reservation, owner) in before(scheduler, waiting) {
        if ends_in_time(scheduler, waiting, reservation, now) {
            continue;
        }
        for cap in caps(&scheduler.state, &owner, in_pool) {
            let same = in_pool == pool || matches!(cap.level, Level::Queue(..));
            let shared =
                own.iter().find(|own| same && (&own.level, own.resource) == (&cap.level, cap.resource));
            let Some(shared) = shared else { continue };
            if is_left(scheduler, (&owner, in_pool, reservation), &cap, shared.asked, now)
                || may_fill(scheduler, waiting, (in_pool, reservation), &cap, now)
            {
                continue;
            }
            return Err(explain::quota_kept(
                &scheduler.state,
                reservation,
                &cap.level,
                cap.resource,
                cap.asked,
            ));
        }
    }
    Ok(())
}

/// Whether a workload that starts now has ended when an owner is to start.
fn ends_in_time(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    reservation: &Reservation,
    now: Time,
) -> bool {
    match (reservation.slot(), reservation.start()) {
        (Some(slot), _) => backfills(scheduler, waiting, now, (reservation, slot)),
        (None, Some(start)) => ends_by(scheduler, waiting, now, start),
        (None, None) => false,
    }
}

/// Whether a level has the quota of an owner, and of those before it, at the reserved time if `more` is used until then.
fn is_left(
    scheduler: &Scheduler,
    (owner, pool, reservation): (&WaitingWorkload, PoolId, &Reservation),
    cap: &Cap,
    more: i64,
    now: Time,
) -> bool {
    let kept = cap.asked.saturating_add(kept_by_earlier(scheduler, owner, pool, cap));
    let mut over = cap.used.saturating_add(kept).saturating_add(more).saturating_sub(cap.most);
    if over <= 0 {
        return true;
    }
    let Some(at) = reservation.start() else { return false };
    for (info, held) in holders(&scheduler.state, pool, &cap.level, cap.resource) {
        if end(scheduler, info, now).is_some_and(|end| end <= at) {
            over = over.saturating_sub(held);
        }
    }
    over <= 0
}

/// Whether a workload may use reserved quota for which no time is predicted: nine of ten runs like it end before the last
/// workload in the way is expected to, by the median of runs like that one.
fn may_fill(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    (pool, reservation): (PoolId, &Reservation),
    cap: &Cap,
    now: Time,
) -> bool {
    if !matches!(reservation.capacity, ReservedCapacity::Quota) || reservation.start().is_some() {
        return false;
    }
    let (state, run_times) = (&scheduler.state, &scheduler.prediction.run_times);
    let length = state.get(&waiting.id).and_then(|info| run_times.length(state, info, Duration::ZERO));
    let Some(length) = length else { return false };
    let mut likely: Vec<(Time, i64)> = holders(state, pool, &cap.level, cap.resource)
        .filter_map(|(info, held)| {
            let Some(admission) = running_admission(info) else { return Some((now, held)) };
            let length = run_times.length(state, info, now.since(admission.at))?;
            Some((admission.at.after(length.likely), held))
        })
        .collect();
    likely.sort_unstable();
    let mut short = cap.used.saturating_add(cap.asked).saturating_sub(cap.most);
    let last = likely.into_iter().find(|(_, held)| {
        short = short.saturating_sub(*held);
        short <= 0
    });
    last.is_some_and(|(last, _)| now.after(length.late) <= last)
}
