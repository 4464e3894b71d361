//! The quota that a workload needs to start: when it comes free, and which workloads leave it whole (law 7).
//!
//! Quota is reserved level by level: the limit of the owner's team, of each team above it and of its queue, and for work
//! that is never preempted the guarantees. A level binds its members only, and only those behind the owner.

use std::cell::LazyCell;
use std::time::Duration;

use crate::cycle::reserve::binding::{backfills, ends_by, likely_end_in_the_way, quota_binds, waits};
use crate::explain;
use crate::placement::waiting::WaitingWorkload;
use crate::prediction::timeline::running_admission;
use crate::scheduler::reservations::{Level, QuotaStart, Reservation, ReservedCapacity};
use crate::scheduler::{Scheduler, level_ends};
use crate::state::cluster::ClusterState;
use crate::state::lending;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{PoolId, TeamId};
use crate::types::{Time, Verdict};

/// What caps a workload: one resource at one level of its path in a pool.
struct Cap {
    pool: PoolId,
    level: Level,
    resource: usize,
    /// The most that the level allows, in thousandths.
    most: i64,
    /// What it holds of that.
    used: i64,
    /// What the workload asks for.
    asked: i64,
}

impl Cap {
    /// Whether it caps what workloads hold in a pool: its own, or any for the limit of a queue.
    fn counts(&self, pool: PoolId) -> bool {
        self.pool == pool || matches!(self.level, Level::Queue(..))
    }

    /// The resource at its level, in its pool or in all of them.
    fn level_resource(&self) -> level_ends::LevelResource {
        let pool = if matches!(self.level, Level::Queue(..)) { None } else { Some(self.pool) };
        (pool, self.level.clone(), self.resource)
    }

    /// Whether a cap on another workload is the same.
    fn is_same(&self, other: &Self) -> bool {
        self.counts(other.pool) && self.level == other.level && self.resource == other.resource
    }
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
        Cap { pool, level, resource, most, used, asked }
    };
    caps.into_iter().map(cap).collect()
}

/// What a workload holds of what is capped.
fn held_of(state: &ClusterState, info: &WorkloadInfo, cap: &Cap) -> i64 {
    let below = |at: &TeamId| info.usage.pool == cap.pool && state.quotas.team(info.team).path.contains(at);
    let pods = match &cap.level {
        Level::Limit(at) if below(at) => info.usage.staying_pods(),
        Level::Guarantee(at) if info.charged_fixed && below(at) => info.usage.staying_pods(),
        Level::Queue(team, queue) if info.team == *team && info.charged_queue == *queue => info.usage.pods,
        _ => return 0,
    };
    info.need.get(cap.resource).saturating_mul(i64::from(pods))
}

/// The workloads that hold something of what is capped, with the amounts.
fn holders<'a>(state: &'a ClusterState, cap: &'a Cap) -> impl Iterator<Item = (&'a WorkloadInfo, i64)> {
    let pools = state.quotas.pools().map(|(_, pool)| pool).filter(|pool| cap.counts(*pool));
    let teams = move |pool| state.quotas.at_or_below(cap.level.team()).map(move |team| (pool, team));
    let infos = pools.flat_map(teams).flat_map(|(pool, team)| state.holders(pool, team));
    infos.filter_map(move |info| {
        let held = held_of(state, info, cap);
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

/// A reservation that keeps quota.
struct QuotaKept<'a> {
    pool: PoolId,
    reservation: &'a Reservation,
    /// Its owner, as it asks for capacity in the pool.
    owner: WaitingWorkload,
}

/// The reservations that keep quota and bind a workload.
fn binding_quota<'a>(
    scheduler: &'a Scheduler,
    waiting: &'a WaitingWorkload,
) -> impl Iterator<Item = QuotaKept<'a>> {
    // A level binds only the teams below it.
    let root = scheduler.state.quotas.root_of(waiting.team);
    scheduler.reservations.below(root).filter_map(move |(pool, reservation)| {
        let binds = reservation.keeps_quota()
            && reservation.owner != waiting.id
            && waits(scheduler, &reservation.owner)
            && quota_binds(scheduler, waiting, pool, reservation);
        let owner = binds.then(|| WaitingWorkload::of(&scheduler.state, &reservation.owner))??;
        let owner = owner.in_pool(&scheduler.state, pool).into_owned();
        Some(QuotaKept { pool, reservation, owner })
    })
}

/// What owners before a workload keep for themselves of what caps it.
fn kept_before(scheduler: &Scheduler, waiting: &WaitingWorkload, cap: &Cap) -> i64 {
    let asked = |QuotaKept { pool, owner, .. }: QuotaKept<'_>| -> i64 {
        // Most reservations are in pools in which they cannot matter.
        let caps = if cap.counts(pool) { caps(&scheduler.state, &owner, pool) } else { Vec::new() };
        caps.iter().find(|other| cap.is_same(other)).map_or(0, |other| other.asked)
    };
    binding_quota(scheduler, waiting).map(asked).fold(0, i64::saturating_add)
}

/// When the quota on a workload's whole path is free for it, beside what owners before it keep; `None` when its limits, or other
/// teams as they lend, do not allow it at all.
pub fn quota_start(
    scheduler: &mut Scheduler,
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
        start = start.max(cap_start(scheduler, waiting, &cap, now));
    }
    Some(start)
}

/// When a cap leaves enough for a workload beside what owners before it keep.
fn cap_start(scheduler: &mut Scheduler, waiting: &WaitingWorkload, cap: &Cap, now: Time) -> QuotaStart {
    // What is kept for others costs more to count, and never makes a start predictable that is not.
    let short = cap.used.saturating_add(cap.asked).saturating_sub(cap.most);
    match freed_start(scheduler, cap, short, now) {
        QuotaStart::Unpredictable => QuotaStart::Unpredictable,
        _ => {
            let short = short.saturating_add(kept_before(scheduler, waiting, cap));
            freed_start(scheduler, cap, short, now)
        }
    }
}

/// When that much of what a cap counts has ended.
fn freed_start(scheduler: &mut Scheduler, cap: &Cap, short: i64, now: Time) -> QuotaStart {
    if short <= 0 {
        return QuotaStart::Now;
    }
    let mut known = std::mem::take(&mut scheduler.level_ends);
    let seen = (scheduler.state.last_revision(), scheduler.prediction.timeline.revision(), now);
    let ends = known.at(cap.level_resource(), seen, || {
        let holders = holders(&scheduler.state, cap);
        in_order(holders.filter_map(|(info, held)| Some((end(scheduler, info, now)?, held))))
    });
    let start = when_ended(ends, short).map_or(QuotaStart::Unpredictable, |at| QuotaStart::At(at.max(now)));
    scheduler.level_ends = known;
    start
}

/// Ends of holders in order, with what each holds.
fn in_order(ends: impl Iterator<Item = (Time, i64)>) -> Vec<(Time, i64)> {
    let mut ends: Vec<(Time, i64)> = ends.collect();
    ends.sort_unstable();
    ends
}

/// When that much is free of what is held, by the ends of its holders in order with what each holds; `None` if all of it is not
/// enough.
fn when_ended(ends: &[(Time, i64)], mut short: i64) -> Option<Time> {
    let enough = ends.iter().find(|(_, held)| {
        short = short.saturating_sub(*held);
        short <= 0
    });
    enough.map(|(at, _)| *at)
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
    for kept in binding_quota(scheduler, waiting) {
        if ends_in_time(scheduler, waiting, kept.reservation, now) {
            continue;
        }
        let fills = LazyCell::new(|| may_fill(scheduler, waiting, &kept, now));
        for cap in caps(&scheduler.state, &kept.owner, kept.pool) {
            let Some(shared) = own.iter().find(|own| own.is_same(&cap)) else { continue };
            if is_left(scheduler, &kept, &cap, shared.asked, now) || *fills {
                continue;
            }
            let Cap { level, resource, asked, .. } = &cap;
            return Err(explain::quota_kept(&scheduler.state, kept.reservation, level, *resource, *asked));
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
    QuotaKept { reservation, owner, .. }: &QuotaKept<'_>,
    cap: &Cap,
    more: i64,
    now: Time,
) -> bool {
    let kept = cap.asked.saturating_add(kept_before(scheduler, owner, cap));
    let mut over = cap.used.saturating_add(kept).saturating_add(more).saturating_sub(cap.most);
    if over <= 0 {
        return true;
    }
    let Some(at) = reservation.start() else { return false };
    for (info, held) in holders(&scheduler.state, cap) {
        if end(scheduler, info, now).is_some_and(|end| end <= at) {
            over = over.saturating_sub(held);
        }
    }
    over <= 0
}

/// Whether a workload may use reserved quota for which no time is predicted: nine of ten runs like it end before the last
/// workload in the way is expected to, by the median of runs like that one. That may be in the way at any level.
fn may_fill(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    QuotaKept { pool, reservation, owner }: &QuotaKept<'_>,
    now: Time,
) -> bool {
    if !matches!(reservation.capacity, ReservedCapacity::Quota) || reservation.start().is_some() {
        return false;
    }
    let (state, run_times) = (&scheduler.state, &scheduler.prediction.run_times);
    let length = state.get(&waiting.id).and_then(|info| run_times.length(state, info, Duration::ZERO));
    let Some(end) = length.map(|length| now.after(length.late)) else { return false };
    let lasts = |cap: &Cap| last_in_the_way(scheduler, reservation, cap, now).is_some_and(|last| end <= last);
    caps(state, owner, *pool).iter().any(lasts)
}

/// When the last workload that is in an owner's way at a level is expected to have ended; `None` if there is none, or nothing
/// tells. What has no expected end may end at once, and what has started since the reservation counts as gone.
fn last_in_the_way(scheduler: &Scheduler, reservation: &Reservation, cap: &Cap, now: Time) -> Option<Time> {
    let (mut short, mut ends) = (cap.used.saturating_add(cap.asked).saturating_sub(cap.most), Vec::new());
    for (info, held) in holders(&scheduler.state, cap) {
        match likely_end_in_the_way(scheduler, reservation, info, now) {
            Some(end) => ends.push((end, held)),
            None => short = short.saturating_sub(held),
        }
    }
    if short > 0 { when_ended(&in_order(ends.into_iter()), short) } else { None }
}
