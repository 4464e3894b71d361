//! A workload above a cap: what is kept of it, and why it waits.

use std::sync::Arc;

use serde_json::Value;

use super::{Managed, Pin, Target};
use crate::api::caps::{Caps, MOST_WRITTEN_TERMS};
use crate::engine::types::{Observed, Unready};

/// The most bytes of affinity that an admission writes; the API server accepts 3 MiB, and stores less.
const MOST_WRITTEN_BYTES: u64 = 1 << 20;

impl Managed {
    /// Why its affinity cannot be narrowed to that many nodes: its terms are repeated for each of them.
    #[must_use]
    pub fn too_many_terms(&self, nodes: usize, pin: Pin) -> Option<String> {
        let (terms, bytes, nodes) = (self.counts.terms, self.counts.affinity_bytes, nodes as u64);
        if pin == Pin::OneByOne || terms == 0 {
            return None;
        }
        let templates = self.counts.templates.max(1);
        let written = terms.saturating_mul(nodes).saturating_mul(templates);
        let (most, text) = (MOST_WRITTEN_TERMS as u64, bytes.saturating_mul(nodes).saturating_mul(templates));
        if written > most {
            return Some(format!(
                "its {terms} node affinity terms on {nodes} nodes make {written}, more than the {most} that an \
                 admission may write"
            ));
        }
        (text > MOST_WRITTEN_BYTES).then(|| {
            format!(
                "its {bytes} bytes of affinity on {nodes} nodes make {text}, more than the {MOST_WRITTEN_BYTES} that \
                 an admission may write"
            )
        })
    }

    /// Reduces a waiting workload above a cap to its name and reason. One that was admitted is left whole: it is
    /// charged, and its patches need all of it. What an admission has written bounds its size.
    pub fn keep_within(&mut self, caps: &Caps) {
        let waits = matches!(self.workload.state, Observed::Queued | Observed::OnHold);
        let Some(why) = caps.exceeded(&self.counts).filter(|_| waits && self.facts.record.is_none()) else {
            return;
        };
        let workload = Arc::make_mut(&mut self.workload);
        if workload.state == Observed::Queued {
            workload.state = Observed::Unready(Unready::Uncounted(why.into()));
        }
        workload.shape = Arc::default();
        workload.profile = Arc::default();
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
            Target::PodGroup | Target::Unadmitted => {}
        }
    }
}

#[cfg(test)]
mod tests;
