//! Metrics and Kubernetes Events of decisions.

use std::time::Duration;

use super::super::allowance::Allowance;
use super::super::decisions::{Decision, places};
use super::super::news::{Fact, send, shown};
use super::Session;
use crate::api::notify::{Endpoint, Transition};
use crate::cluster::clock::now;
use crate::cluster::events::Notice;
use crate::engine::types::{Action, EvictReason, ResizeCause};
use crate::engine::types::{Observed, Reason, Workload, WorkloadId, WorkloadKind, runs_on};

/// The most Events at once that say that a workload has started, and the time in which one more is allowed. When many start
/// at once the objects say so themselves, by their records; the Events of all would be as many writes again.
const STARTS: u32 = 100;
const START_EVERY: Duration = Duration::from_millis(100);

/// The allowance of Events about starts.
pub fn starts() -> Allowance {
    Allowance::new(STARTS, START_EVERY)
}

impl Session {
    /// Counts a decision that has taken effect and publishes its event.
    pub(super) fn report(&mut self, decided: &Decision) {
        self.recorder().decided(decided, &self.mirror, now());
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
                let on = runs_on(self.engine.is_outside_quotas(&workload.id), admission.borrowed);
                let note = format!("Started {places} in pool {} {on}: {message}", admission.pool);
                self.notify(
                    workload,
                    (Transition::Started, admission.at.0),
                    if admission.borrowed { Reason::Borrowed } else { Reason::Guaranteed }.code(),
                    &note,
                );
                self.starts.refill(now());
                if self.starts.is_spent() {
                    return;
                }
                self.starts.spend(about.len());
                let note = shown(&self.mirror, workload, &note);
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
                let message = shown(&self.mirror, workload, message);
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
                let occasion = workload.submitted.0;
                self.notify(workload, (Transition::Failed, occasion), reason.code(), message);
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
                let mut run = workload.submitted.0;
                if let Observed::Admitted(admission) = &workload.state {
                    let ran = now().since(admission.at).as_secs_f64();
                    self.metrics.evicted_after.with_label_values(&[team]).observe(ran);
                    occasion = format!("{:x}", admission.at.0);
                    run = admission.at.0;
                }
                self.notify(workload, (Transition::Evicted, run), reason.code(), message);
                if *reason == EvictReason::NotReady {
                    // Also a failure by a rule, for endpoints that do not get it as an eviction.
                    let fact = Fact {
                        transition: Transition::Failed,
                        occasion: run,
                        reason: reason.code(),
                        message,
                    };
                    let chosen = |endpoint: &Endpoint| !endpoint.transitions.contains(&Transition::Evicted);
                    send(&self.notifier, &self.mirror, workload, &fact, chosen);
                }
                let note = format!("{}: {}", reason.code(), shown(&self.mirror, workload, message));
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

    /// Sends a transition to the endpoints of the team.
    fn notify(
        &self,
        workload: &Workload,
        (transition, occasion): (Transition, i64),
        reason: &str,
        message: &str,
    ) {
        let fact = Fact { transition, occasion, reason, message };
        send(&self.notifier, &self.mirror, workload, &fact, |_| true);
    }

    /// Publishes an event for an eviction that the API server refused, once per run of the workload.
    pub(super) fn report_blocked_eviction(&self, id: &WorkloadId, message: &str) {
        let Some(decided) = self.decisions.get(id) else { return };
        let (Observed::Admitted(admission), Action::Evict { message: why, .. }) =
            (&decided.about.state, &decided.action)
        else {
            return;
        };
        let why = shown(&self.mirror, &decided.about, why);
        let evicted = match &decided.about.kind {
            kind if kind.is_pods() => "the pod".to_owned(),
            kind => format!("the {kind}"),
        };
        self.notices.publish_each(self.mirror.references(&decided.about), |about| Notice {
            about,
            warning: true,
            reason: "EvictionBlocked",
            action: "Evict",
            occasion: format!("{:x}", admission.at.0),
            note: format!(
                "The API server refused to evict {evicted} ({message}). Sluice retries. Cause: {why}"
            ),
        });
    }
}
