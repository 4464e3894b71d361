//! The user's order (law 9): workloads of one user that are of equal priority in one queue exchange their places, so that
//! the one with the highest `sluice.dev/order` has the first place among them.
//!
//! The places are those that the workloads have by submission. No user gets another or an earlier one by it, and no workload
//! of another user is passed by more of them than before. A workload that runs keeps the place it has started from: with an
//! order above the one that is not given, or before one with an order below, that is the earliest place of the others that
//! still wait. Otherwise an early workload that never starts would give its place to one later workload after the other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{Priority, TeamId};
use crate::types::submission::SubmissionOrder;
use crate::types::{Name, WorkloadId};

/// Workloads that exchange places: those of a user, of equal priority and order in the team, in one queue of a team.
type Group = (TeamId, Name, Priority, i32, bool, Name);

/// The groups in which a workload has an order, and the places that it moves.
#[derive(Clone, Debug, Default)]
pub struct UserOrder {
    /// The workloads with an order.
    ordered: BTreeMap<Group, BTreeSet<WorkloadId>>,
    /// The group of each workload of these groups.
    groups: BTreeMap<WorkloadId, Group>,
    /// Groups of which a workload has changed.
    stale: BTreeSet<Group>,
    /// The waiting workloads that have another place than by submission.
    places: BTreeMap<WorkloadId, SubmissionOrder>,
}

/// A workload of a group.
struct Member {
    order: i32,
    by_submission: SubmissionOrder,
    id: WorkloadId,
}

impl UserOrder {
    /// Takes note of a change of a workload.
    pub fn note(&mut self, state: &ClusterState, id: &WorkloadId) {
        let info = state.get(id).filter(|info| !info.removed);
        let now = info.and_then(|info| group_of(state, info));
        if let Some(before) = self.groups.get(id).filter(|before| now.as_ref() != Some(before)).cloned() {
            self.groups.remove(id);
            self.places.remove(id);
            self.set_ordered(&before, id, false);
            self.stale.insert(before);
        }
        let Some(now) = now else { return };
        let was_ordered = self.ordered.contains_key(&now);
        self.set_ordered(&now, id, info.is_some_and(|info| info.workload.order != 0));
        if was_ordered || self.ordered.contains_key(&now) {
            self.groups.insert(id.clone(), now.clone());
            self.stale.insert(now);
        }
    }

    fn set_ordered(&mut self, group: &Group, id: &WorkloadId, ordered: bool) {
        if ordered {
            self.ordered.entry(group.clone()).or_default().insert(id.clone());
        } else if let Some(members) = self.ordered.get_mut(group) {
            members.remove(id);
            if members.is_empty() {
                self.ordered.remove(group);
            }
        }
    }

    /// The place of a workload, if it is another than by submission.
    #[must_use]
    pub fn place(&self, id: &WorkloadId) -> Option<&SubmissionOrder> {
        self.places.get(id)
    }

    /// Divides the places of the changed groups again; returns the workloads with another place than before.
    pub fn divide(&mut self, state: &ClusterState) -> Vec<WorkloadId> {
        let stale = std::mem::take(&mut self.stale);
        if stale.is_empty() {
            return Vec::new();
        }
        let mut groups: BTreeMap<Group, (Vec<Member>, Vec<Member>)> = BTreeMap::new();
        for info in state.iter().filter(|info| !info.removed) {
            let Some(group) = group_of(state, info).filter(|group| stale.contains(group)) else { continue };
            let id = &info.workload.id;
            match self.ordered.contains_key(&group) {
                true => _ = self.groups.insert(id.clone(), group.clone()),
                false => _ = self.groups.remove(id),
            }
            let (order, by_submission) = (info.workload.order, SubmissionOrder::of(&info.workload));
            let member = Member { order, by_submission, id: id.clone() };
            let (waiting, running) = groups.entry(group).or_default();
            if info.phase == Phase::Pending {
                waiting.push(member);
            } else {
                self.places.remove(id);
                running.push(member);
            }
        }
        let mut changed = Vec::new();
        for (waiting, running) in groups.into_values() {
            for (id, place, moved) in divided(waiting, running) {
                let before = self.places.get(&id);
                if before == Some(&place) || before.is_none() && !moved {
                    continue;
                }
                changed.push(id.clone());
                match moved {
                    true => _ = self.places.insert(id, place),
                    false => _ = self.places.remove(&id),
                }
            }
        }
        changed
    }

    /// Forgets which groups have changed.
    pub fn settled(&mut self) {
        self.stale.clear();
    }
}

/// The group of a workload that waits or runs; none without a user, or while it is held.
fn group_of(state: &ClusterState, info: &WorkloadInfo) -> Option<Group> {
    if matches!(info.phase, Phase::Hold | Phase::Finished | Phase::Failing(_)) {
        return None;
    }
    let queue = state.queue_of(info).ok()?.name.clone();
    let user = info.workload.user.clone()?;
    Some((info.team, queue, state.priority_of(info), info.workload.team_order, info.raised, user))
}

/// The place of each waiting workload, and whether it is another than by submission.
fn divided(
    mut waiting: Vec<Member>,
    mut running: Vec<Member>,
) -> impl Iterator<Item = (WorkloadId, SubmissionOrder, bool)> {
    let first = |member: &Member| (Reverse(member.order), member.by_submission.clone());
    waiting.sort_by_cached_key(first);
    running.sort_by_cached_key(first);
    // The places that are left, each with the order of the waiting workload that has it by submission.
    let mut places: BTreeMap<SubmissionOrder, Option<i32>> =
        waiting.iter().map(|member| (member.by_submission.clone(), Some(member.order))).collect();
    for runs in running {
        let passed =
            |order: Option<i32>| order.is_some_and(|order| runs.order > 0 || order < runs.order.min(0));
        let taken = places.range(..&runs.by_submission).find(|(_, order)| passed(**order));
        if let Some(taken) = taken.map(|(place, _)| place.clone()) {
            places.remove(&taken);
            places.insert(runs.by_submission, None);
        }
    }
    waiting.into_iter().zip(places.into_keys()).map(|(member, place)| {
        let moved = place != member.by_submission;
        (member.id, place, moved)
    })
}
