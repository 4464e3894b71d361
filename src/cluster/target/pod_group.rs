//! Several pods as the one workload they are together.

use std::sync::Arc;

use super::pod::PodSeen;
use super::{Managed, Target};
use crate::engine::types::{Name, Observed, Profile, Unready, Workload, WorkloadId, WorkloadKind};

/// Pods that wait to start together, the oldest first, as one workload; `running` counts the other pods of the
/// group, which run by themselves. `None` without any pod.
#[must_use]
pub fn gathering(id: &WorkloadId, name: &Name, pods: &[&PodSeen], running: u32) -> Option<Managed> {
    let first = pods.first()?.managed.as_deref()?;
    let size = pods.iter().filter_map(|seen| seen.group.as_ref()).map(|group| group.size).max()?;
    let members = || pods.iter().filter_map(|seen| seen.managed.as_deref());
    let there = count(pods.len()).saturating_add(running);
    let state = if there < size {
        Observed::Unready(Unready::Missing { there, of: size })
    } else if let Some(why) = members().find_map(|member| member.claims.as_ref()?.uncounted.clone()) {
        Observed::Unready(Unready::Uncounted(why))
    } else if members().any(|member| !alike(member, first)) {
        Observed::Unready(Unready::Unlike)
    } else {
        Observed::Queued
    };
    // The group is submitted when it is complete, by the pod that completes it.
    let needed = size.saturating_sub(running).max(1) as usize;
    let submitted = members().map(|member| member.workload.submitted).take(needed).max()?;
    let mut together = together(id, name, first, members());
    let workload = Arc::make_mut(&mut together.workload);
    (workload.submitted, workload.state) = (submitted, state);
    Some(together)
}

/// Pods that were admitted together, the oldest first, with the pods among them that are still gated, as one
/// workload; `None` without any pod.
#[must_use]
pub fn admitted(id: &WorkloadId, name: &Name, pods: &[&PodSeen]) -> Option<Managed> {
    let all = || pods.iter().filter_map(|seen| seen.managed.as_deref());
    let living = || all().filter(|member| member.workload.state != Observed::Finished);
    let Some(first) = living().next() else {
        // One that is about to end still holds its requests.
        let last = all().rfind(|member| member.facts.deleting).or_else(|| all().next_back())?;
        return Some(together(id, name, last, all()));
    };
    let runs = |member: &&Managed| matches!(member.workload.state, Observed::Admitted(_));
    let leads =
        living().find(runs).or_else(|| living().find(|member| member.workload.state != Observed::Queued));
    let lead = leads.unwrap_or(first);
    let mut together = together(id, name, lead, living());
    Arc::make_mut(&mut together.workload).submitted =
        living().map(|member| member.workload.submitted).max()?;
    together.facts.held = living().any(|member| member.facts.held);
    Some(together)
}

/// The workload that `members` are together, in all else like `like`.
fn together<'a>(
    id: &WorkloadId,
    name: &Name,
    like: &Managed,
    members: impl Iterator<Item = &'a Managed> + Clone,
) -> Managed {
    let lives = |member: &&Managed| member.workload.state != Observed::Finished;
    let limits: Option<Vec<_>> = members.clone().map(|member| member.workload.time_limit).collect();
    let workload = Workload {
        id: id.clone(),
        kind: WorkloadKind::PodGroup,
        name: name.clone(),
        pods: count(members.clone().filter(lives).count()),
        profile: common(&like.workload.profile, members.clone()),
        hold: members.clone().any(|member| member.workload.hold),
        grace: members.clone().map(|member| member.workload.grace).max().unwrap_or_default(),
        expendable: members.into_iter().all(|member| member.workload.expendable),
        time_limit: limits.and_then(|limits| limits.into_iter().max()),
        ..Workload::clone(&like.workload)
    };
    Managed { workload: workload.into(), target: Target::PodGroup, ..like.clone() }
}

/// The profile of the pods of a group, with the labels that all of them have.
fn common<'a>(first: &Arc<Profile>, members: impl Iterator<Item = &'a Managed>) -> Arc<Profile> {
    let mut profile = Arc::clone(first);
    for member in members.filter(|member| member.workload.state != Observed::Finished) {
        let theirs = &member.workload.profile.labels;
        if profile.labels != *theirs {
            let labels = profile.labels.only(|key, value| theirs.get(key) == Some(value));
            Arc::make_mut(&mut profile).labels = labels;
        }
    }
    profile
}

/// Whether two pods can be placed as pods of one shape.
fn alike(one: &Managed, other: &Managed) -> bool {
    let (left, right) = (&one.workload, &other.workload);
    left.shape == right.shape
        && left.queue == right.queue
        && left.priority == right.priority
        && left.pools == right.pools
        && left.topology == right.topology
        && constraints(left) == constraints(right)
}

/// The constraints of pods on each other. They are the same for all pods of a group; labels may differ.
fn constraints(workload: &Workload) -> impl PartialEq {
    let Profile { apart, together, spread, .. } = &*workload.profile;
    (apart.clone(), together.clone(), spread.clone())
}

fn count(pods: usize) -> u32 {
    u32::try_from(pods).unwrap_or(u32::MAX)
}
