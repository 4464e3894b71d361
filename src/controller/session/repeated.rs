//! Writes that need no decision: restored templates, pods of admitted groups that are let run, and Jobs that are let end.

use super::super::decisions::{record, write_on};
use super::super::pod_groups;
use super::Session;
use crate::cluster::actuator::{End, Purpose, Task};
use crate::cluster::clock::now;
use crate::cluster::target::Operation;
use crate::engine::types::{Time, WorkloadId};

impl Session {
    /// Restores the pod templates of stopped Jobs without pods.
    pub(super) fn restore(&mut self, now: Time) {
        let wanted = self.mirror.restorable(now).filter(|id| !self.decisions.contains_key(*id)).collect();
        for id in self.restores.due(&wanted, now) {
            let Some((managed, version)) = self.mirror.workload(&id) else { continue };
            let task = Task::Single(Operation::Patch(managed.restore(version)));
            let write = write_on(managed, Purpose::Restore, task, String::new());
            self.actuator.start(write);
            self.restores.started(id);
        }
    }

    /// Ungates the remaining pods of admitted groups: a write was refused, or the previous leader ended before its
    /// last write.
    pub(super) fn release(&mut self, now: Time) {
        let all = self.mirror.partly_admitted();
        let wanted = all.filter(|id| !self.decisions.contains_key(*id)).collect();
        for id in self.releases.due(&wanted, now) {
            let Some((managed, _)) = self.mirror.workload(&id) else { continue };
            let Some(record) = record(managed) else { continue };
            let still_gated: Vec<pod_groups::Member<'_>> = self.mirror.still_gated(&id).collect();
            self.actuator.start(pod_groups::release_of(managed, &still_gated, &record));
            self.releases.started(id);
        }
    }

    /// Writes the start times without which the controller of stopped Jobs cannot end them.
    pub(super) fn let_end(&mut self, now: Time) {
        let wanted = self.mirror.cannot_end().filter(|id| !self.decisions.contains_key(*id)).collect();
        for id in self.completions.due(&wanted, now) {
            let Some((managed, version)) = self.mirror.workload(&id) else { continue };
            let task = Task::Single(Operation::PatchStatus(managed.add_start_time(version)));
            self.actuator.start(write_on(managed, Purpose::Complete, task, String::new()));
            self.completions.started(id);
        }
    }

    /// Handles the outcome of a write without a decision. It is retried while it is wanted.
    pub(super) fn finish_retry(&mut self, id: WorkloadId, purpose: Purpose, end: End) {
        let mut ended = false;
        match end {
            End::Done(look) => {
                ended = true;
                self.observe(look);
            }
            End::Moved(look) => self.observe(look),
            End::Gone => ended = true,
            End::Refused(message) | End::NotNow(message) => {
                tracing::warn!(workload = %id, ?purpose, message, "the API server refused a write");
            }
            End::Abandoned => self.lost_track = true,
        }
        let retries = match purpose {
            Purpose::Restore => &mut self.restores,
            Purpose::Complete => &mut self.completions,
            _ => &mut self.releases,
        };
        // The write may have left out some pods of a group.
        if ended && self.mirror.still_gated(&id).next().is_none() {
            retries.ended(&id);
        } else {
            retries.failed(&id, now());
        }
    }
}
