//! Completes a workload with the parts that its own object does not have.

use std::sync::Arc;

use super::super::dra::Dra;
use super::super::reduce::claims::Claims;
use super::super::reduce::team::NamespaceSeen;
use super::super::table::Table;
use super::super::target::{Managed, Suspension};
use crate::api::priority::{Class, twin_from};
use crate::api::record::time;
use crate::directory::Membership;
use crate::engine::types::{Observed, Time};

/// Sets the team and default queue of the namespace, the value of the PriorityClass, and claimed devices.
pub(super) fn complete(
    namespaces: &Table<NamespaceSeen>,
    classes: &Table<Class>,
    unlabelled_default: i32,
    dra: &Dra,
    managed: &mut Managed,
) {
    let workload = Arc::make_mut(&mut managed.workload);
    let membership = namespaces.get(&workload.namespace).and_then(|seen| seen.membership.as_ref());
    let Membership { team, queue } =
        membership.cloned().unwrap_or_else(|| Membership { team: "".into(), queue: None });
    if let Some(claims) = managed.claims.as_deref() {
        Arc::make_mut(&mut workload.shape).requests.clone_from(&claims.plain);
        workload.sizes.clone_from(&claims.sizes);
    }
    // kube-scheduler counts whole devices here. Sluice must too, or it would admit more than the nodes offer.
    if let Some((device, amount)) = &managed.facts.whole_device {
        Arc::make_mut(&mut workload.shape).requests.insert(device.clone(), *amount);
    }
    if let Some(claims) = managed.claims.as_deref_mut() {
        dra.count(claims, workload);
    }
    workload.team = team;
    workload.queue = managed.own_queue.clone().or(queue);
    if let Some(class) = &managed.class {
        // A twin that is not made yet counts as the class that it will stand for.
        let found = classes.get(class).or_else(|| classes.get(twin_from(class)?));
        workload.priority = found.map_or(0, |class| class.value);
    } else if !workload.kind.is_pods() {
        workload.priority = unlabelled_default;
    }
}

/// Whether a stop is confirmed, and since when it lasts.
///
/// A controller that reports an object as suspended confirms the stop only if it has reported otherwise since the
/// admission. Else it may not have seen the admission yet, and may make pods in the next moment. The times of conditions
/// cannot tell the two apart: they are whole seconds of another clock.
///
/// Nor does it confirm the stop while it counts more pods as terminating than were ever cached: the watch of Jobs may be ahead of
/// that of pods, and until those pods are cached, only the record charges them. `cached` is the number of its pods in the cache.
///
/// An unconfirmed stop, and a stop by the user, begins when it is first seen here. [`crate::engine::types::SETTLE`] is
/// counted by the clock of this replica, and the time in a note of an eviction may be from another one.
pub(super) fn confirm_stop(now: &mut Managed, before: Option<&Managed>, cached: usize) {
    let before = before.filter(|before| admitted_at(before) == admitted_at(now));
    let most_before = before.map_or(0, |before| before.facts.most_cached);
    now.facts.most_cached = most_before.max(u32::try_from(cached).unwrap_or(u32::MAX));
    let all_cached = now.job().is_none_or(|job| job.terminating <= now.facts.most_cached);
    let suspension = match (now.facts.suspension, before.map(|before| before.facts.suspension)) {
        (Suspension::Old, Some(Suspension::None | Suspension::New)) => Suspension::New,
        (read, _) => read,
    };
    now.facts.suspension = suspension;
    if !matches!(now.workload.state, Observed::Leaving { .. }) {
        return;
    }
    let state = &mut Arc::make_mut(&mut now.workload).state;
    let Observed::Leaving { since, stopped, .. } = state else { return };
    let before = before.map(|before| &before.workload.state);
    let was_stopped = matches!(before, Some(Observed::Leaving { stopped: true, .. }));
    *stopped &= suspension == Suspension::New && (all_cached || was_stopped);
    match (&now.facts.eviction, before) {
        (Some(note), _) if *stopped => *since = time(note.at),
        (_, Some(Observed::Leaving { since: first, .. })) => *since = *first,
        _ => {}
    }
}

/// When an object was admitted, while it is.
fn admitted_at(managed: &Managed) -> Option<Time> {
    match &managed.workload.state {
        Observed::Admitted(admission) | Observed::Leaving { admission, .. } => Some(admission.at),
        _ => None,
    }
}

/// Keeps the last known device counts while the claims are the same.
pub(super) fn keep_counted(now: Option<&mut Claims>, before: Option<&Claims>) {
    let (Some(now), Some(before)) = (now, before) else { return };
    let asked = |claims: &Claims| -> Vec<_> {
        let each = claims.roles.iter().flatten();
        each.map(|claim| (claim.template.clone(), claim.shared.clone())).collect()
    };
    if asked(now) == asked(before) {
        now.counted.clone_from(&before.counted);
    }
}
