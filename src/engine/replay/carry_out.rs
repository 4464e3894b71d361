//! The engine's actions, carried out at once as a cluster would.

use std::time::Duration;

use crate::replay::Run;
use crate::replay::life::Happening;
use crate::replay::timers::{Due, Timer};
use crate::types::{Action, Event, EvictReason, Name, Observed, PodId, WorkloadId};

impl Run {
    /// Makes the write that an action asks for; it succeeds.
    pub(super) fn carry_out(&mut self, action: Action) {
        let id = action.workload().clone();
        if let Some(pod) = id.unadmitted_pod() {
            return self.end_unadmitted(id, pod, action);
        }
        let life = self.lives.remove(&id).unwrap_or_default();
        self.take_up(&id, life);
        let Some(item) = self.items.get_mut(&id) else { return };
        match action {
            Action::Admit { admission, message, .. } => {
                item.set_state(Observed::Admitted(admission.clone()));
                self.show(&id);
                self.settle_in(&id);
                self.note(Happening::Admitted { id, admission, message });
            }
            Action::Resize { admission, cause, preemptor, message, .. } => {
                item.set_state(Observed::Admitted(admission.clone()));
                self.show(&id);
                let lost = self.shrink(&id);
                self.settle_in(&id);
                self.note(Happening::Resized { id, admission, cause, preemptor, lost, message });
            }
            Action::Evict { preemptor, reason, message, .. } => {
                let ran = item.ran(self.now);
                let lost = item.work_lost(self.now);
                item.set_state(item.evicted(self.now));
                item.object().evicted_for_fair_share = reason == EvictReason::FairShare;
                self.show(&id);
                self.set_places(&id, &[]);
                self.note(Happening::Evicted { id: id.clone(), preemptor, reason, ran, lost, message });
                self.stop_pods(&id, None);
            }
            // A forecast knows no kubelet: the pod ends as Sluice ends it.
            Action::EndPod { pod, .. } => self.apply(Event::PodRemoved(pod)),
            Action::Fail { reason, message, .. } => {
                let ran = item.ran(self.now);
                item.set_state(Observed::Finished);
                self.show(&id);
                self.set_places(&id, &[]);
                self.note(Happening::Failed { id: id.clone(), code: reason.code(), ran, message });
                self.stop_pods(&id, None);
            }
        }
    }

    /// Ends a pod that was never admitted, unless the caller does.
    fn end_unadmitted(&mut self, id: WorkloadId, pod: PodId, action: Action) {
        let Action::Evict { preemptor, reason, message, .. } = action else { return };
        let admitted = self.engine.scheduler.state.get(&id).and_then(|info| info.phase.admission());
        let ran = admitted.map_or(Duration::ZERO, |admission| self.now.since(admission.at));
        if !self.strays {
            self.apply(Event::PodRemoved(pod));
        }
        self.note(Happening::Evicted { id, preemptor, reason, ran, lost: Duration::ZERO, message });
    }

    /// Keeps in mind to which nodes a workload is admitted, and by when it must have ended.
    pub(super) fn set_places(&mut self, id: &WorkloadId, nodes: &[Name]) {
        let Some(item) = self.items.get_mut(id) else { return };
        let runs = !nodes.is_empty();
        if let Some(key) = item.expiry.take_if(|_| !runs) {
            self.timers.clear(key);
        }
        if let Some(deadline) = item.deadline.filter(|_| runs && item.expiry.is_none()) {
            let timer = Timer { id: id.clone(), due: Due::Expired, pods: Vec::new() };
            item.expiry = Some(self.timers.set(self.now.after(deadline), timer));
        }
        for node in std::mem::replace(&mut item.places, nodes.to_vec()) {
            if let Some(ids) = self.places.get_mut(&node) {
                ids.remove(id);
                if ids.is_empty() {
                    self.places.remove(&node);
                }
            }
        }
        for node in nodes {
            self.places.entry(node.clone()).or_default().insert(id.clone());
        }
    }
}
