//! What is counted and told of decisions that have been carried out, or cannot be.

use super::super::decided::{Decided, places};
use super::Session;
use crate::cluster::clock::now;
use crate::cluster::events::Notice;
use crate::engine::types::{Action, ResizeCause};
use crate::engine::types::{Observed, WorkloadId, WorkloadKind};

impl Session {
    /// Counts and tells a decision that has been carried out.
    pub(super) fn done(&mut self, decided: &Decided) {
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
                let note = format!("{} in pool {} ({kind}): {message}", places(admission), admission.pool);
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
            Action::Fail { reason, message, .. } => {
                self.metrics.failed.with_label_values(&[team, reason.code()]).inc();
                if workload.kind == WorkloadKind::Job {
                    // Its controller tells it with the same words when it has ended the Job.
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

    /// Tells the owner of a pod that it was to leave and may not, once for each of its runs.
    pub(super) fn tell_blocked(&self, id: &WorkloadId, message: &str) {
        let Some(decided) = self.decided.get(id) else { return };
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
            note: format!("the API server refused the eviction ({message}); it is asked again: {why}"),
        });
    }
}
