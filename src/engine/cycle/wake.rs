//! Wakes the blocked classes that a change since the last attempt may let start.

use std::collections::{BTreeMap, BTreeSet};

use crate::cycle::blocked::blocked_on;
use crate::cycle::{requeue, reserve};
use crate::queue::WaitQueue;
use crate::scheduler::Scheduler;
use crate::scheduler::cursor::Looser;
use crate::state::nodes::selects;
use crate::types::ids::{ClassId, TeamId};
use crate::types::{PodSelector, Profile};

/// The most classes of the backlog that are woken at once.
pub const BACKLOG_AT_ONCE: usize = 256;

/// Wakes the classes that a change may let start, and brings the order between teams up to date.
pub fn wake(scheduler: &mut Scheduler) {
    if std::mem::take(&mut scheduler.cursor.requeue_all) {
        requeue_all(scheduler);
    }
    let looser = if scheduler.cursor.goes_on() { None } else { scheduler.cursor.take_new_generation() };
    requeue::note_repelled(scheduler);
    wake_followers(scheduler);
    reorder_users(scheduler);
    let mut woken = note_headroom(scheduler);
    let (blocked, changed_roots) = blocked_on_changed_usage(scheduler);
    match looser {
        Some(looser) => start_generation(scheduler, &looser, &changed_roots),
        None => scheduler.cursor.note_changed(changed_roots),
    }
    for class in blocked {
        if scheduler.queue.pending.is_active(class) {
            continue;
        }
        let Some((team, first)) = scheduler.queue.pending.first_of(class) else { continue };
        let id = first.id().clone();
        let blocked = blocked_on(scheduler, &id);
        let generation = scheduler.cursor.generation();
        woken.extend(scheduler.queue.pending.reconsider(class, blocked, generation).then_some(team));
    }
    // Else what stands behind the owner of a reservation would take what an eviction has just left of quota and nodes.
    if !woken.is_empty() {
        wake_owners(scheduler, &woken);
    }
    let newly_active = scheduler.queue.pending.take_newly_active();
    scheduler.queue.order.stale.extend(newly_active);
}

/// Wakes every class.
fn requeue_all(scheduler: &mut Scheduler) {
    scheduler.queue.reclaimable.rebuild(&scheduler.state);
    scheduler.state.quotas.users.mark_all_dirty();
    scheduler.queue.pending.requeue_all();
    scheduler.queue.order.mark_all_stale();
}

/// Wakes the owners of reservations that a new generation may let start, and a part of the backlog, which any change may.
fn start_generation(scheduler: &mut Scheduler, looser: &Looser, changed_roots: &BTreeSet<TeamId>) {
    let (now, mut full) = (scheduler.cursor.planned, BTreeMap::new());
    for pool in scheduler.state.quotas.pools().map(|(_, pool)| pool) {
        full.insert(pool, reserve::is_full(scheduler, pool));
    }
    let pending = &mut scheduler.queue.pending;
    for ((pool, _), reservation) in scheduler.reservations.iter() {
        let root = &reservation.root;
        let concerned = looser.anywhere
            || looser.below.contains(root)
            || changed_roots.contains(root)
            || !reservation.awaits_its_root(full.get(pool).is_some_and(|full| *full), now);
        // Where conditions alone keep an owner back, a change of these wakes it.
        if let Some(class) = pending.class_of(&reservation.owner)
            && (concerned || !pending.is_blocked(class))
        {
            pending.requeue(class);
        }
    }
    pending.requeue_backlog(scheduler.cursor.generation(), BACKLOG_AT_ONCE);
}

/// Wakes the owners of reservations of teams.
fn wake_owners(scheduler: &mut Scheduler, teams: &BTreeSet<TeamId>) {
    let pending = &mut scheduler.queue.pending;
    for (_, reservation) in scheduler.reservations.iter().filter(|((_, team), _)| teams.contains(team)) {
        if let Some(class) = pending.class_of(&reservation.owner) {
            pending.requeue(class);
        }
    }
}

/// Wakes the classes with an affinity or a spread that looks at pods which have come to a node: they may start now.
fn wake_followers(scheduler: &mut Scheduler) {
    let pending = &mut scheduler.queue.pending;
    let come = scheduler.state.nodes.constraints.take_come(pending.has_followers());
    if come.is_empty() {
        return;
    }
    let follows = |follower: &Profile| {
        let looks = |pods: &PodSelector| come.iter().any(|profile| selects(pods, profile));
        follower.together.iter().any(|term| looks(&term.pods))
            || follower.spread.iter().any(|term| looks(&term.pods))
    };
    for class in pending.followers(follows) {
        pending.requeue(class);
    }
}

/// Brings the order within a team up to date for users with changed usage. A class that stands before the owner
/// of a reservation now may take the reserved capacity, so it is woken.
fn reorder_users(scheduler: &mut Scheduler) {
    let WaitQueue { order, pending, .. } = &mut scheduler.queue;
    let mut reordered: BTreeSet<TeamId> = BTreeSet::new();
    for (team, user) in scheduler.state.quotas.users.take_dirty() {
        let state = &scheduler.state;
        pending.set_user_usage(team, &user, |pools| state.user_share(team, Some(&user), pools));
        order.stale.insert(team);
        reordered.insert(team);
    }
    if reordered.is_empty() {
        return;
    }
    let reservations = scheduler.reservations.iter().filter(|((_, team), _)| reordered.contains(team));
    let before_owners: Vec<ClassId> =
        reservations.flat_map(|(_, reservation)| pending.before(&reservation.owner)).collect();
    before_owners.into_iter().for_each(|class| pending.requeue(class));
}

/// Marks the teams of which a workload has enough headroom now and had too little before, and returns them.
fn note_headroom(scheduler: &mut Scheduler) -> BTreeSet<TeamId> {
    let WaitQueue { order, pending, headroom, .. } = &mut scheduler.queue;
    let mut woken: BTreeSet<TeamId> = BTreeSet::new();
    for change in headroom.catch_up(&scheduler.state) {
        woken.extend(pending.teams_waiting_for(change.shape, change.before, change.total));
    }
    order.stale.extend(woken.iter().copied());
    woken
}

/// The classes blocked on a quota, fair share or queue of which the usage changed, or on a budget of which more may be left; and the
/// uppermost teams below which usage changed.
fn blocked_on_changed_usage(scheduler: &mut Scheduler) -> (BTreeSet<ClassId>, BTreeSet<TeamId>) {
    let WaitQueue { order, pending, reclaimable, .. } = &mut scheduler.queue;
    let (mut classes, mut roots): (BTreeSet<ClassId>, BTreeSet<TeamId>) = Default::default();
    for team in scheduler.state.quotas.budgets.take_eased() {
        classes.extend(pending.blocked_on_budget(team));
        roots.insert(scheduler.state.quotas.root_of(team));
    }
    let changed = scheduler.state.quotas.take_dirty();
    reclaimable.reorder(&scheduler.state, &changed);
    for (pool, team) in changed {
        let state = &scheduler.state;
        let share = reclaimable.refresh(state, pool, team);
        let path = &state.quotas.team(team).path;
        classes.extend(path.iter().flat_map(|at| pending.blocked_on_quota(pool, *at)));
        classes.extend(path.iter().flat_map(|at| pending.blocked_on_budget(*at)));
        // What lacks the guarantee of a team above is not looked at before some of that is idle, which it rarely is for long.
        let idle = path[1..].iter().filter(|at| state.quotas.has_idle_guarantee(pool, **at));
        classes.extend(idle.flat_map(|at| pending.blocked_on_guarantee(pool, *at)));
        classes.extend(share.into_iter().flat_map(|share| pending.blocked_on_share(pool, share)));
        roots.insert(state.quotas.root_of(team));
    }
    order.mark_roots_stale(&scheduler.state, &roots);
    for (team, queue) in scheduler.state.quotas.take_dirty_queues() {
        classes.extend(pending.blocked_on_queue(team, &queue));
        roots.insert(scheduler.state.quotas.root_of(team));
    }
    (classes, roots)
}
