//! Pods coming and going.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::replay::Run;
use crate::replay::item::{Item, Place};
use crate::replay::life::Happening;
use crate::replay::timers::{Due, Timer};
use crate::types::{Event, Name, Observed, Pod, PodId, PodsReady, Time, WorkloadId, span};

impl Run {
    /// After an admission or a change of it: the pods that are not there yet start.
    pub(super) fn settle_in(&mut self, id: &WorkloadId) {
        let Some(admission) = self.items.get(id).and_then(Item::admission) else { return };
        let nodes: Vec<Name> = admission.nodes.keys().cloned().collect();
        self.set_places(id, &nodes);
        self.fill(id);
        // Nothing keeps a pod of a run from becoming ready at once.
        if let Some(item) = self.items.get(id).filter(|item| item.pods.len() > 1) {
            let ready = u32::try_from(item.running().count()).unwrap_or(u32::MAX);
            let report = PodsReady { workload: id.clone(), ready, succeeded: item.done };
            self.engine.apply(Event::PodsReady(report), self.now);
        }
        self.time_adopted(id);
    }

    /// Starts the pods that an admitted workload has still to run and has places for.
    pub(super) fn fill(&mut self, id: &WorkloadId) {
        let Some(item) = self.items.get_mut(id) else { return };
        let Some(admission) = item.admission().cloned() else { return };
        let running = u32::try_from(item.running().count()).unwrap_or(u32::MAX);
        let mut needed = item.missing().min(admission.pods).saturating_sub(running);
        let mut started = Vec::new();
        let nodes = &self.engine.scheduler.state.nodes;
        let exists = |name: &Name| nodes.present(name).is_some();
        for (node, places) in admission.nodes.iter().filter(|(node, _)| exists(node)) {
            let more = places.saturating_sub(item.running_on(node)).min(needed);
            needed -= more;
            for _ in 0..more {
                let pod = PodId(format!("{id}/{}", item.made).into());
                let place =
                    Place { pod, node: Some(node.clone()), started: self.now, timer: None, going: false };
                started.push(item.made);
                item.pods.insert(item.made, place);
                item.made += 1;
            }
        }
        if started.is_empty() {
            return;
        }
        item.share = admission.share;
        let requests = item.requests();
        self.busy.change(requests, i64::try_from(started.len()).unwrap_or(i64::MAX));
        for place in started.iter().filter_map(|number| item.pods.get(number)) {
            let pod = Pod {
                id: place.pod.clone(),
                workload: Some(id.clone()),
                node: place.node.clone(),
                requests: requests.clone(),
                profile: None,
                unadmitted: None,
            };
            self.engine.apply(Event::PodApplied(pod), self.now);
        }
        if let Some(run) = item.life.run {
            let timer = Timer { id: id.clone(), due: Due::End, pods: started.clone() };
            let key = self.timers.set(self.now.after(run), timer);
            for number in started {
                if let Some(place) = item.pods.get_mut(&number) {
                    place.timer = Some(key);
                }
            }
        }
    }

    /// A workload has run for as long as its deadline allows: it fails, as a Job controller has it.
    fn expire(&mut self, id: &WorkloadId) {
        let Some(item) = self.items.get_mut(id).filter(|item| item.admission().is_some()) else { return };
        let ran = item.ran(self.now);
        let message = format!("was still running at its deadline, {} after its start", span(ran));
        item.set_state(Observed::Finished);
        self.show(id);
        self.set_places(id, &[]);
        self.note(Happening::Failed { id: id.clone(), code: "DeadlineExceeded", ran, message });
        self.stop_pods(id, None);
    }

    /// Sets the ends of pods that were running before the run began.
    fn time_adopted(&mut self, id: &WorkloadId) {
        let Some(item) = self.items.get_mut(id) else { return };
        let Some(run) = item.life.run else { return };
        for (number, place) in item.pods.iter_mut().filter(|(_, place)| place.timer.is_none() && !place.going)
        {
            let at = place.started.after(run).max(self.now);
            let timer = Timer { id: id.clone(), due: Due::End, pods: vec![*number] };
            place.timer = Some(self.timers.set(at, timer));
        }
    }

    /// Tells all pods of a workload to end, at the present or as of `since`; they are gone after its grace.
    pub(super) fn stop_pods(&mut self, id: &WorkloadId, since: Option<Time>) {
        let Some(item) = self.items.get(id) else { return };
        let running: Vec<u32> = item.running().map(|(number, _)| number).collect();
        self.stop(id, running, since.unwrap_or(self.now));
    }

    fn stop(&mut self, id: &WorkloadId, pods: Vec<u32>, since: Time) {
        let Some(item) = self.items.get_mut(id) else { return };
        // Without pods, as after the loss of their node, nothing takes time to end.
        let grace = if pods.is_empty() { Duration::ZERO } else { item.life.grace };
        let at = since.after(grace).max(self.now);
        let timer = Timer { id: id.clone(), due: Due::Gone, pods: pods.clone() };
        let key = self.timers.set(at, timer);
        for number in pods {
            if let Some(place) = item.pods.get_mut(&number) {
                place.going = true;
                if let Some(end) = place.timer.replace(key) {
                    self.timers.drop_pod(end, number);
                }
            }
        }
    }

    /// Tells the pods to end for which a changed admission has no place, the newest first; the work
    /// that is lost with them.
    pub(super) fn shrink(&mut self, id: &WorkloadId) -> Duration {
        let Some(item) = self.items.get(id) else { return Duration::ZERO };
        let Some(admission) = item.admission() else { return Duration::ZERO };
        let mut left = admission.nodes.clone();
        let mut leaving = Vec::new();
        let mut lost = Duration::ZERO;
        for (number, place) in item.running() {
            match place.node.as_ref().and_then(|node| left.get_mut(node)) {
                Some(places) if *places > 0 => *places -= 1,
                _ => {
                    leaving.push(number);
                    lost += item.work_of(place, self.now);
                }
            }
        }
        if !leaving.is_empty() {
            self.stop(id, leaving, self.now);
        }
        lost
    }

    /// Lets everything happen that is due by itself.
    pub(super) fn fire(&mut self) {
        while let Some(timer) = self.timers.take_due(self.now) {
            self.dirty = true;
            if let Some(item) = self.items.get_mut(&timer.id) {
                for place in timer.pods.iter().filter_map(|number| item.pods.remove(number)) {
                    self.busy.change(item.workload.requests_at(item.share), -1);
                    self.engine.apply(Event::PodRemoved(place.pod), self.now);
                }
            }
            match timer.due {
                Due::End => self.succeed(&timer.id, timer.pods.len()),
                Due::Expired => self.expire(&timer.id),
                Due::Gone => self.after_the_last(&timer.id, !timer.pods.is_empty()),
            }
        }
    }

    /// Pods of a workload have succeeded: it is done, or the next ones start in their places.
    fn succeed(&mut self, id: &WorkloadId, pods: usize) {
        let Some(item) = self.items.get_mut(id) else { return };
        item.done = item.done.saturating_add(u32::try_from(pods).unwrap_or(u32::MAX));
        if item.missing() > 0 {
            if item.want() {
                self.show(id);
            }
            self.fill(id);
            return;
        }
        let ran = item.ran(self.now);
        item.set_state(Observed::Finished);
        item.object().ran = Some(ran);
        self.show(id);
        self.set_places(id, &[]);
        self.note(Happening::Finished { id: id.clone(), ran });
        self.forget_if_over(id);
    }

    /// Ending pods are gone: once none is left, an evicted workload waits again.
    fn after_the_last(&mut self, id: &WorkloadId, had_pods: bool) {
        let Some(item) = self.items.get_mut(id).filter(|item| item.pods.is_empty()) else { return };
        let (deleted, over) = (item.deleted, item.workload.state == Observed::Finished);
        if matches!(item.workload.state, Observed::Leaving { .. }) && !deleted {
            item.set_state(Observed::Queued);
            self.show(id);
        } else if !deleted && !over {
            return;
        }
        if had_pods {
            self.note(Happening::PodsGone { id: id.clone() });
        }
        self.forget_if_over(id);
    }

    /// Drops a workload that has ended or was deleted once its last pod is gone.
    fn forget_if_over(&mut self, id: &WorkloadId) {
        let over = |item: &&Item| {
            item.pods.is_empty() && (item.deleted || item.workload.state == Observed::Finished)
        };
        if self.items.get(id).filter(over).is_some() {
            self.items.remove(id);
            self.engine.apply(Event::WorkloadRemoved(id.clone()), self.now);
        }
    }

    /// A node is gone, and all that ran on it.
    pub(super) fn lose_node(&mut self, node: &Name) {
        for pod in self.foreign.remove(node).unwrap_or_default() {
            self.busy.foreign_gone(&pod);
            self.engine.apply(Event::PodRemoved(pod), self.now);
        }
        let admitted = self.places.get(node).cloned().unwrap_or_default();
        let ending = self.ending_on(node);
        for id in admitted.union(&ending) {
            let Some(item) = self.items.get_mut(id) else { continue };
            let there = |place: &Place| place.node.as_ref() == Some(node);
            let numbers: Vec<u32> =
                item.pods.iter().filter(|(_, place)| there(place)).map(|(number, _)| *number).collect();
            let (mut pods, mut lost, had_pods) = (0, Duration::ZERO, !numbers.is_empty());
            for number in numbers {
                let Some(place) = item.pods.remove(&number) else { continue };
                if !place.going {
                    pods += 1;
                    lost += item.work_of(&place, self.now);
                }
                self.busy.change(item.requests(), -1);
                if let Some(key) = place.timer {
                    self.timers.drop_pod(key, number);
                }
                self.engine.apply(Event::PodRemoved(place.pod), self.now);
            }
            if pods > 0 {
                if !item.workload.resumable {
                    item.forgo(pods);
                }
                let (id, node) = (id.clone(), node.clone());
                self.note(Happening::PodsLost { id, node, pods, lost });
            }
            self.after_loss(id, had_pods);
        }
    }

    /// Workloads with pods that are ending on a node: few, and only asked for when a node is lost.
    fn ending_on(&self, node: &Name) -> BTreeSet<WorkloadId> {
        let there = |item: &Item| item.pods.values().any(|place| place.node.as_ref() == Some(node));
        self.items.iter().filter(|(_, item)| there(item)).map(|(id, _)| id.clone()).collect()
    }

    /// A pod of its own that is lost with its node has failed; it is not replaced.
    fn after_loss(&mut self, id: &WorkloadId, had_pods: bool) {
        let Some(item) = self.items.get_mut(id) else { return };
        if item.admission().is_some() && !item.workload.resumable && item.pods.is_empty() {
            let ran = item.ran(self.now);
            item.set_state(Observed::Finished);
            self.show(id);
            self.set_places(id, &[]);
            let message = "Its node was lost, and a bare pod is not replaced.".to_owned();
            self.note(Happening::Failed { id: id.clone(), code: "NodeLost", ran, message });
            self.forget_if_over(id);
        } else {
            let goes_on = item.admission().is_some() && !item.workload.resumable;
            if goes_on {
                self.show(id);
            }
            self.after_the_last(id, had_pods);
        }
    }

    /// One pod of a workload is deleted, by its number in the order in which they were made, and not made
    /// replaced; it is gone after its grace period.
    pub fn forgo(&mut self, id: &WorkloadId, number: u32) {
        let runs = |item: &&mut Item| item.pods.get(&number).is_some_and(|place| !place.going);
        let Some(item) = self.items.get_mut(id).filter(runs) else { return };
        self.dirty = true;
        item.forgo(1);
        let over = item.missing() == 0;
        if over {
            item.set_state(Observed::Finished);
        }
        self.show(id);
        if over {
            self.set_places(id, &[]);
        }
        self.stop(id, vec![number], self.now);
    }

    /// Takes a workload out of the run that is not managed any more. Its running pods are the caller's from now on;
    /// those that are ending end as they would have.
    pub fn leave(&mut self, id: &WorkloadId) -> Left {
        let life = self.lives.remove(id).unwrap_or_default();
        self.take_up(id, life);
        self.dirty = true;
        self.engine.apply(Event::WorkloadRemoved(id.clone()), self.now);
        self.set_places(id, &[]);
        let Some(item) = self.items.get_mut(id) else { return Left::default() };
        item.deleted = true;
        let mut left = Left { pods: Vec::new(), succeeded: item.done, made: item.made };
        let running: Vec<u32> = item.running().map(|(number, _)| number).collect();
        for number in running {
            let Some(place) = item.pods.remove(&number) else { continue };
            if let Some(key) = place.timer {
                self.timers.drop_pod(key, number);
            }
            self.busy.change(item.requests(), -1);
            self.engine.apply(Event::PodRemoved(place.pod), self.now);
            let end = place.timer.map(|(at, _)| at);
            left.pods.extend(place.node.map(|node| (node, end)));
        }
        self.forget_if_over(id);
        left
    }
}

/// What a workload leaves that is not managed any more.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// The node of each of its running pods, and when it ends by itself.
    pub pods: Vec<(Name, Option<Time>)>,
    /// How many of its pods have succeeded.
    pub succeeded: u32,
    /// How many pods were ever made.
    pub made: u32,
}
