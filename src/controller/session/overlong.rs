//! Pods that were deleted with a longer grace period than their queue allows: they would keep capacity from its owner.

use std::collections::BTreeMap;

use super::Session;
use crate::cluster::actuator::{End, Purpose, Task, Write};
use crate::cluster::clock::now;
use crate::cluster::target::{Operation, Resource};
use crate::engine::types::{Name, Time, WorkloadId};

impl Session {
    /// Deletes such pods again, with the longest grace period that they may have.
    pub(super) fn shorten(&mut self, now: Time) {
        let overlong: BTreeMap<WorkloadId, u32> = self
            .mirror
            .overlong()
            // Without any grace the API server would forget a pod that still runs.
            .map(|(seen, most)| {
                (WorkloadId(seen.uid.clone()), u32::try_from(most.as_secs()).unwrap_or(u32::MAX).max(1))
            })
            .collect();
        let wanted = overlong.keys().collect();
        for id in self.shortenings.due(&wanted, now) {
            let (Some(seen), Some(seconds)) = (self.mirror.pod(&id.0), overlong.get(&id)) else { continue };
            tracing::info!(pod = %seen.name, namespace = %seen.namespace, seconds, "the grace period of a deleted pod is shortened");
            self.actuator.start(Write {
                id: id.clone(),
                resource: Resource::Pod,
                namespace: seen.namespace.clone(),
                name: seen.name.clone(),
                purpose: Purpose::Shorten { seconds: *seconds },
                decision: 0,
                task: Task::Single(Operation::Delete),
                smaller: Vec::new(),
                disrupted: Vec::new(),
                message: String::new(),
                group: None,
            });
            self.shortenings.started(id);
        }
    }

    /// Handles the outcome of such a write. The watch shows the shorter period; until then it is made again after a pause.
    pub(super) fn finish_shortening(&mut self, pod: &Name, end: End) {
        match end {
            End::Refused(message) | End::NotNow(message) => {
                tracing::warn!(%pod, message, "the grace period of a pod could not be shortened");
            }
            End::Abandoned => self.lost_track = true,
            End::Done(_) | End::Moved(_) | End::Gone => {}
        }
        self.shortenings.failed(&WorkloadId(pod.clone()), now());
    }
}
