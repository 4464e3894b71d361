//! Metrics and Kubernetes Events of decisions.

use super::super::decisions::{Decision, places};
use super::Session;
use crate::cluster::clock::now;
use crate::cluster::events::Notice;
use crate::engine::types::{Action, ResizeCause};
use crate::engine::types::{Observed, WorkloadId, WorkloadKind};

impl Session {
    /// Counts a decision that has taken effect and publishes its event.
    pub(super) fn report(&mut self, decided: &Decision) {
        let workload = &decided.about;
        let team = &*workload.team;
        let queue = self.mirror.queue_of(workload);
        let about = self.mirror.references(workload);
        match &decided.action {
            Action::Admit { admission, message, .. } => {
                let kind = if admission.borrowed { "borrowed" } else { "guaranteed" };
                self.metrics.admitted.with_label_values(&[team, &*queue, kind]).inc();
                if decided.first {
                    let waited = now().since(workload.submitted).as_secs_f64();
                    self.metrics.time_to_start.with_label_values(&[team, &*queue]).observe(waited);
                }
                let places = places(admission);
                let note = format!("Started {places} in pool {} on {kind} quota: {message}", admission.pool);
                self.notices.publish_each(about, |about| Notice {
                    about,
                    warning: false,
                    reason: "Admitted",
                    action: "Admit",
                    occasion: format!("{:x}", admission.at.0),
                    note: note.clone(),
                });
            }
            Action::Resize { admission, cause, message, .. } => {
                if *cause == ResizeCause::Moved {
                    self.placing.moves(&workload.id);
                }
                self.metrics.resized.with_label_values(&[team, cause.code()]).inc();
                self.notices.publish_each(about, |about| Notice {
                    about,
                    warning: *cause == ResizeCause::Shrunk,
                    reason: cause.code(),
                    action: "Resize",
                    occasion: format!("{:x}", now().0),
                    note: format!("{}: {message}", places(admission)),
                });
            }
            // Reported when the pod is gone.
            Action::EndPod { .. } => {}
            Action::Fail { reason, message, .. } => {
                self.metrics.failed.with_label_values(&[team, reason.code()]).inc();
                if workload.kind == WorkloadKind::Job {
                    // The Job controller publishes an event with the same message.
                    return;
                }
                self.notices.publish_each(about, |about| Notice {
                    about,
                    warning: true,
                    reason: reason.code(),
                    action: "Fail",
                    occasion: String::new(),
                    note: message.clone(),
                });
            }
            Action::Evict { reason, message, .. } => {
                self.metrics.evicted.with_label_values(&[team, reason.code()]).inc();
                let mut occasion = String::new();
                if let Observed::Admitted(admission) = &workload.state {
                    let ran = now().since(admission.at).as_secs_f64();
                    self.metrics.evicted_after.with_label_values(&[team]).observe(ran);
                    occasion = format!("{:x}", admission.at.0);
                }
                let note = format!("{}: {message}", reason.code());
                self.notices.publish_each(about, |about| Notice {
                    about,
                    warning: true,
                    reason: "Evicted",
                    action: "Evict",
                    occasion: occasion.clone(),
                    note: note.clone(),
                });
            }
        }
    }

    /// Publishes an event for an eviction that the API server refused, once per run of the workload.
    pub(super) fn report_blocked_eviction(&self, id: &WorkloadId, message: &str) {
        let Some(decided) = self.decisions.get(id) else { return };
        let (Observed::Admitted(admission), Action::Evict { message: why, .. }) =
            (&decided.about.state, &decided.action)
        else {
            return;
        };
        self.notices.publish_each(self.mirror.references(&decided.about), |about| Notice {
            about,
            warning: true,
            reason: "EvictionBlocked",
            action: "Evict",
            occasion: format!("{:x}", admission.at.0),
            note: format!(
                "The API server refused to evict the pod ({message}). Sluice retries. Cause: {why}"
            ),
        });
    }
}
