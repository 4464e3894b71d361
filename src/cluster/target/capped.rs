//! A workload above a cap: what is kept of it, and why it waits.

use serde_json::Value;

use super::{Managed, Target};
use crate::api::caps::Caps;
use crate::engine::types::{Observed, PodShape, Unready};

impl Managed {
    /// Reduces a waiting workload above a cap to its name and reason. One that was admitted is left whole: it is
    /// charged, and its patches need all of it. What an admission has written bounds its size.
    pub fn keep_within(&mut self, caps: &Caps) {
        let waits = matches!(self.workload.state, Observed::Queued | Observed::OnHold);
        let Some(why) = caps.exceeded(&self.counts).filter(|_| waits && self.facts.record.is_none()) else {
            return;
        };
        let workload = &mut self.workload;
        if workload.state == Observed::Queued {
            workload.state = Observed::Unready(Unready::Uncounted(why.into()));
        }
        workload.shape = PodShape::default();
        workload.sizes = Vec::new();
        workload.pools = Vec::new();
        workload.pods = workload.pods.min(caps.pods);
        workload.min_pods = None;
        self.claims = None;
        self.facts.whole_device = None;
        match &mut self.target {
            Target::Job(job) => {
                (job.user_affinity, job.gates, job.sizes, job.gang) = (None, Vec::new(), None, None);
            }
            Target::Pod(pod) => (pod.user_affinity, pod.gates) = (None, Vec::new()),
            Target::Custom(custom) => {
                custom.object = Value::Null;
                custom.templates = Vec::new();
                custom.kept.clear();
            }
            Target::PodGroup => {}
        }
    }
}

#[cfg(test)]
mod tests;
