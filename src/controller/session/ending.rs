//! Pods that are ended on nodes that do not answer.

use super::Session;
use crate::cluster::actuator::{End, Purpose, Task, Write};
use crate::cluster::clock::now;
use crate::cluster::events::Notice;
use crate::cluster::target::{Operation, Resource};
use crate::engine::types::{Event, PodId, WorkloadId};

/// The decision to end a pod.
#[derive(Debug)]
pub struct Ending {
    workload: WorkloadId,
    message: String,
}

impl Session {
    /// Starts the write that ends a pod.
    pub(super) fn end_pod(&mut self, workload: WorkloadId, pod: PodId, message: String) {
        // A pod that is gone needs no write; its end is an event of its own.
        let Some(seen) = self.mirror.pod(&pod.0) else { return };
        self.actuator.start(Write {
            id: WorkloadId(pod.0.clone()),
            resource: Resource::Pod,
            namespace: seen.namespace.clone(),
            name: seen.name.clone(),
            purpose: Purpose::EndPod,
            decision: 0,
            task: Task::Single(Operation::Delete),
            smaller: Vec::new(),
            disrupted: Vec::new(),
            message: message.clone(),
            group: None,
        });
        self.ending.insert(pod, Ending { workload, message });
    }

    /// Handles the outcome of such a write. After a refusal the engine decides again.
    pub(super) fn finish_end(&mut self, pod: &PodId, end: End) {
        let Some(Ending { workload, message }) = self.ending.remove(pod) else { return };
        let problem = match end {
            End::Done(_) | End::Moved(_) | End::Gone => {
                self.report_ended_pod(&workload, pod, &message);
                return;
            }
            End::Refused(problem) | End::NotNow(problem) => problem,
            End::Abandoned => {
                self.lost_track = true;
                "this replica is no longer the leader".to_owned()
            }
        };
        tracing::warn!(pod = %pod.0, problem, "a pod on a node that does not answer could not be ended");
        self.engine.apply(Event::PodNotEnded(pod.clone()), now());
    }

    /// Publishes the event of a pod that was ended.
    fn report_ended_pod(&self, workload: &WorkloadId, pod: &PodId, message: &str) {
        let Some((managed, _)) = self.mirror.subject(workload) else { return };
        self.recorder().ended_pod(&managed.workload, &self.mirror, message, now());
        self.notices.publish_each(self.mirror.references(&managed.workload), |about| Notice {
            about,
            warning: true,
            reason: "PodEnded",
            action: "EndPod",
            occasion: pod.0.to_string(),
            note: message.to_owned(),
        });
    }
}
