//! What a look at a workload leaves open, filled in from what is known besides.

use super::super::dra::Dra;
use super::super::reduce::claims::Claims;
use super::super::reduce::team::{ClassSeen, NamespaceSeen};
use super::super::table::Table;
use super::super::target::Managed;
use crate::directory::Membership;
use crate::engine::types::Observed;

/// Fills in the team and the default queue of the namespace, and the value of the class.
pub(super) fn complete(
    namespaces: &Table<NamespaceSeen>,
    classes: &Table<ClassSeen>,
    unlabelled_default: i32,
    dra: &Dra,
    managed: &mut Managed,
) {
    let membership = namespaces.get(&managed.workload.namespace).and_then(|seen| seen.membership.as_ref());
    let Membership { team, queue } =
        membership.cloned().unwrap_or_else(|| Membership { team: "".into(), queue: None });
    if let Some(claims) = managed.claims.as_deref() {
        managed.workload.shape.requests.clone_from(&claims.plain);
        managed.workload.sizes.clone_from(&claims.sizes);
    }
    // Where kube-scheduler counts whole devices, so must Sluice, or it would admit more than there is.
    if let Some((device, amount)) = &managed.facts.whole_device {
        managed.workload.shape.requests.insert(device.clone(), *amount);
    }
    if let Some(claims) = managed.claims.as_deref_mut() {
        dra.count(claims, &mut managed.workload);
    }
    managed.workload.team = team;
    managed.workload.queue = managed.own_queue.clone().or(queue);
    if let Some(class) = &managed.class {
        managed.workload.priority = classes.get(class).map_or(0, |class| class.value);
    } else if !managed.workload.kind.is_pods() {
        managed.workload.priority = unlabelled_default;
    }
}

/// Whether a gang that is admitted says that fewer pods are left to succeed than were; nothing if it is none.
pub(super) fn thinned(managed: &Managed) -> Option<bool> {
    let Observed::Admitted(admission) = &managed.workload.state else { return None };
    managed.gang().map(|_| managed.workload.pods < admission.pods)
}

/// A Job suspended by its user carries no time of that; the first look at it stands.
pub(super) fn keep_since(now: &mut Managed, before: Option<&Managed>) {
    if let (Observed::Leaving { since, .. }, Some(Observed::Leaving { since: first, .. })) =
        (&mut now.workload.state, before.map(|managed| &managed.workload.state))
        && now.facts.eviction.is_none()
    {
        *since = *first;
    }
}

/// What the same claims came to when that was last known is remembered.
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
