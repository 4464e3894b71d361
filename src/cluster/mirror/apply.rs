//! Engine events of changed Jobs, custom objects and pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::replicas;
use super::super::table::{Step, Table};
use super::super::target::pod::PodSeen;
use super::super::target::{JobSeen, Managed};
use super::fill::{complete, confirm_stop, keep_counted};
use super::unadmitted::leave_deleted;
use super::{Mirror, OwnerTable, group_of, workload_event};
use crate::engine::types::{Event, Name, Observed, Pod, PodId, WorkloadId};

impl Mirror {
    fn makers(&self, which: OwnerTable) -> Option<&Table<JobSeen>> {
        match which {
            OwnerTable::Jobs => Some(&self.jobs),
            OwnerTable::Custom(place) => self.ownership.tables.get(place),
        }
    }

    pub(super) fn job_steps(&mut self, which: OwnerTable, steps: Vec<Step<JobSeen>>) {
        for step in steps {
            match step {
                Step::Put(uid, before) => {
                    let before = before.and_then(|seen| seen.managed);
                    let table = match which {
                        OwnerTable::Jobs => Some(&mut self.jobs),
                        OwnerTable::Custom(place) => self.ownership.tables.get_mut(place),
                    };
                    let now = table.and_then(|table| table.get_mut(&uid));
                    let claimed = now.as_ref().and_then(|seen| seen.managed.as_ref()?.claims.as_deref());
                    let claimed_before = before.as_deref().and_then(|before| before.claims.as_deref());
                    self.dra.note(&uid, claimed_before, claimed);
                    let pods = self.pods_of.get(&WorkloadId(uid.clone())).map_or(0, BTreeSet::len);
                    if let Some(seen) = now {
                        seen.uid = uid.clone();
                        if let Some(now) = seen.managed.as_deref_mut() {
                            self.alike.share_job(&uid, now);
                            confirm_stop(now, before.as_deref(), pods);
                            keep_counted(now.claims.as_deref_mut(), claimed_before);
                            complete(
                                &self.namespaces,
                                &self.classes,
                                self.unlabelled_default,
                                &self.dra,
                                now,
                            );
                            // The engine has this copy.
                            let same = before.as_deref().filter(|before| before.workload == now.workload);
                            if let Some(same) = same {
                                now.workload = Arc::clone(&same.workload);
                            }
                        }
                    }
                    let seen = self.makers(which).and_then(|table| table.get(&uid));
                    let parent = seen.and_then(|seen| seen.controller.as_ref());
                    let parent = parent.map(|owner| Name::from(owner.uid.as_str()));
                    // Its pods may be cached already.
                    let new = matches!(which, OwnerTable::Custom(_)) && before.is_none();
                    let deleted = |managed: Option<&Managed>| managed.is_some_and(|one| one.facts.deleting);
                    let deleted_now = deleted(seen.and_then(|seen| seen.managed.as_deref()));
                    let deleted_now = deleted_now && !deleted(before.as_deref());
                    if self.ownership.link(&uid, parent.as_ref()) || new || deleted_now {
                        self.attribute_again(&uid);
                    }
                    let now = self.makers(which).and_then(|table| table.get(&uid));
                    let now = now.and_then(|seen| seen.managed.as_deref());
                    let leaves =
                        now.is_some_and(|now| matches!(now.workload.state, Observed::Leaving { .. }));
                    let cannot_end = now.is_some_and(|now| now.cannot_end() && !now.workload.team.is_empty());
                    self.places.put(&uid, now.and_then(Managed::seats));
                    match now.and_then(Managed::gang) {
                        Some(gang) if gang.thinned => self.places.thin(&uid, true),
                        // A cached pod may have succeeded already.
                        Some(_) => {}
                        None => self.places.thin(&uid, false),
                    }
                    let changed = before.as_deref().map(|b| &b.workload) != now.map(|n| &n.workload);
                    let team = before.as_deref().map(|managed| &managed.workload.team);
                    let id = WorkloadId(uid.clone());
                    let event = changed.then(|| workload_event(&id, team, now)).flatten();
                    self.dirty_jobs.insert(id.clone());
                    if leaves {
                        self.leaving.insert(id.clone());
                    } else {
                        self.leaving.remove(&id);
                    }
                    if cannot_end {
                        self.cannot_end.insert(id.clone());
                    } else {
                        self.cannot_end.remove(&id);
                    }
                    self.note_vacant(&id);
                    self.events.extend(event);
                }
                Step::Gone(uid, before) => {
                    self.ownership.forget(&uid);
                    if matches!(which, OwnerTable::Custom(_)) {
                        self.ownership.unlink(&uid);
                    }
                    let claimed = before.managed.as_deref().and_then(|managed| managed.claims.as_deref());
                    self.dra.note(&uid, claimed, None);
                    self.places.put(&uid, None);
                    self.places.thin(&uid, false);
                    let id = WorkloadId(uid);
                    self.ready_pods.remove(&id);
                    self.leaving.remove(&id);
                    self.vacant.remove(&id);
                    self.cannot_end.remove(&id);
                    self.dirty_jobs.insert(id);
                    let team = before.managed.as_deref().map(|managed| &managed.workload.team);
                    if let (Some(before), Some(team)) = (before.managed.as_deref(), team)
                        && !team.is_empty()
                    {
                        self.events.push(Event::WorkloadRemoved(before.workload.id.clone()));
                    }
                }
            }
        }
    }

    pub(super) fn pod_steps(&mut self, steps: Vec<Step<PodSeen>>) {
        for step in steps {
            let (uid, before) = match step {
                Step::Put(uid, before) => (uid, before),
                Step::Gone(uid, before) => (uid, Some(before)),
            };
            let group_before = before.as_ref().and_then(group_of);
            let replica_before = before.as_ref().and_then(replicas::key);
            self.count_pod(&uid, before.as_ref());
            let was_ready = before.as_ref().is_some_and(|before| before.ready);
            let (held_before, belonged, managed_before) =
                before.map_or((None, None, None), |before| (before.holds, before.belongs, before.managed));
            if let Some(now) = self.pods.get_mut(&uid) {
                self.ownership.attribute(now);
                leave_deleted(&self.jobs, &self.ownership, now);
                self.alike.share_pod(now);
                if let Some(managed) = now.managed.as_deref_mut() {
                    complete(&self.namespaces, &self.classes, self.unlabelled_default, &self.dra, managed);
                }
            }
            let now = self.pods.get(&uid);
            let owner = now.and_then(|seen| seen.holds.as_ref()).or(held_before.as_ref());
            self.dirty_jobs.extend(owner.and_then(|pod| pod.workload.clone()));
            let group = now.and_then(group_of);
            self.groups.note(&uid, group_before.as_ref(), group.as_ref());
            self.replicas.note(&uid, replica_before.as_ref(), now.and_then(replicas::key).as_ref());
            // A pod of a group is reported through its group.
            let managed = now.and_then(|seen| seen.managed.as_deref()).filter(|_| group.is_none());
            let managed_before = managed_before.filter(|_| group_before.is_none());
            if managed_before.as_deref().map(|b| &b.workload) != managed.map(|n| &n.workload) {
                let team = managed_before.as_deref().map(|before| &before.workload.team);
                self.events.extend(workload_event(&WorkloadId(uid.clone()), team, managed));
            }
            for key in BTreeSet::from([group_before, group]).into_iter().flatten() {
                self.update_group(&key);
            }
            self.pod_changed(uid, held_before.as_ref(), belonged.as_ref(), was_ready);
        }
    }

    /// Updates the indexes and events of a pod with a changed usage or owner.
    fn pod_changed(
        &mut self,
        uid: Name,
        held_before: Option<&Pod>,
        belonged: Option<&WorkloadId>,
        was_ready: bool,
    ) {
        self.charge_to_team(&uid);
        let now = self.pods.get(&uid);
        if now.is_some_and(|seen| seen.stretched.is_some() && seen.holds.is_some()) {
            self.stretched.insert(uid.clone());
        } else {
            self.stretched.remove(&uid);
        }
        let (holds, belongs) =
            (now.and_then(|seen| seen.holds.as_ref()), now.and_then(|seen| seen.belongs.as_ref()));
        let owner_before = held_before.and_then(|pod| pod.workload.as_ref());
        let owner = holds.and_then(|pod| pod.workload.as_ref());
        let ready = now.is_some_and(|seen| seen.ready);
        self.ready_pods.ready(owner_before.filter(|_| was_ready), owner.filter(|_| ready));
        let moved = if belonged == belongs { [None, None] } else { [belonged.cloned(), belongs.cloned()] };
        if belonged != belongs {
            if let Some(workload) = belonged
                && let Some(pods) = self.pods_of.get_mut(workload)
            {
                pods.remove(&uid);
                if pods.is_empty() {
                    self.pods_of.remove(workload);
                }
            }
            if let Some(workload) = belongs {
                self.pods_of.entry(workload.clone()).or_default().insert(uid.clone());
            }
        }
        if held_before != holds {
            self.events.push(match holds {
                Some(pod) => Event::PodApplied(pod.clone()),
                None => Event::PodRemoved(PodId(uid)),
            });
        }
        moved.iter().flatten().for_each(|workload| self.note_vacant(workload));
    }

    /// Follows whether a workload that is being stopped still has pods, here or by its own count.
    fn note_vacant(&mut self, id: &WorkloadId) {
        let counts_pods = |(managed, _): (&Managed, u64)| managed.counts_pods();
        if self.leaving.contains(id)
            && !self.pods_of.contains_key(id)
            && !self.workload(id).is_some_and(counts_pods)
        {
            self.vacant.insert(id.clone());
        } else {
            self.vacant.remove(id);
        }
    }

    /// Assigns the pods of an object again after its owner changed.
    fn attribute_again(&mut self, uid: &Name) {
        let pods = self.pods_of.get(&WorkloadId(uid.clone())).cloned().unwrap_or_default();
        for pod in pods {
            let Some(seen) = self.pods.get_mut(&pod) else { continue };
            let (held, belonged, ready) = (seen.holds.clone(), seen.belongs.clone(), seen.ready);
            self.ownership.attribute(seen);
            leave_deleted(&self.jobs, &self.ownership, seen);
            self.pod_changed(pod, held.as_ref(), belonged.as_ref(), ready);
        }
    }
}
