//! One workload on its way through a run: its object, its pods and how far it has come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::replay::life::Life;
use crate::replay::timers::{Due, Key, Timer, Timers};
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::amount::{Amount, ResourceList};
use crate::types::{Admission, Name, Observed, PodId, Time, Workload};

/// A pod that runs or is ending.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its identity.
    pub pod: PodId,
    /// Its node; `None` for one that the engine knew without a node.
    pub node: Option<Name>,
    /// When it started.
    pub started: Time,
    /// When it ends by itself or is gone, if that is known.
    pub timer: Option<Key>,
    /// Whether it is ending.
    pub going: bool,
}

/// A workload of a run.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its object now.
    pub workload: Arc<Workload>,
    /// How it behaves.
    pub life: Life,
    /// How many pods it wants at once as long as so many are missing.
    wish: u32,
    /// The fewest it asks for.
    least: Option<u32>,
    /// How many pods must succeed in all.
    total: u32,
    /// How many have.
    pub done: u32,
    /// How many of them are gone for good without having succeeded.
    forgone: u32,
    /// Its pods by number; numbers go up and are not given twice.
    pub pods: BTreeMap<u32, Place>,
    /// How many pods were ever made.
    pub made: u32,
    /// Which of its sizes its pods have, where that is not the most wanted one.
    pub share: Option<Amount>,
    /// The nodes it is admitted to.
    pub places: Vec<Name>,
    /// Its object is gone; only pods are left.
    pub deleted: bool,
    /// How long each of its runs may take, and the timer of the present one.
    pub deadline: Option<Duration>,
    pub expiry: Option<Key>,
}

impl Item {
    /// A workload as it is submitted.
    pub fn new(workload: Arc<Workload>, life: Life) -> Self {
        let total = life.completions.unwrap_or(workload.pods);
        let (wish, least) = (workload.pods, workload.min_pods);
        let mut item = Self {
            workload,
            life,
            wish,
            least,
            total,
            done: 0,
            forgone: 0,
            pods: BTreeMap::new(),
            made: 0,
            share: None,
            places: Vec::new(),
            deleted: false,
            deadline: None,
            expiry: None,
        };
        item.want();
        item
    }

    /// A workload that the engine knows at `now`, and since when its pods are ending if they are.
    pub fn adopted(
        info: &WorkloadInfo,
        life: Life,
        pods: Vec<(PodId, Option<Name>)>,
        now: Time,
    ) -> (Self, Option<Time>) {
        let mut item = Self::new(info.workload.clone(), life);
        let mut since = None;
        let state = match &info.phase {
            Phase::Hold => info.workload.state.clone(),
            Phase::Pending => Observed::Queued,
            Phase::Starting(admission)
            | Phase::Running(admission)
            | Phase::Resizing { to: admission, .. } => Observed::Admitted(admission.clone()),
            Phase::Stopping(admission) => {
                since = Some(now);
                item.set_state(Observed::Admitted(admission.clone()));
                item.evicted(now)
            }
            Phase::Leaving { admission, since: reported, .. } => {
                since = Some(*reported);
                Observed::Leaving { admission: admission.clone(), since: *reported, stopped: true }
            }
            Phase::Failing(_) | Phase::Finished => {
                since = Some(now);
                Observed::Finished
            }
        };
        item.set_state(state);
        item.share = info.phase.admission().and_then(|admission| admission.share);
        let started = info.phase.admission().map_or(info.workload.submitted, |admission| admission.at);
        for (pod, node) in pods {
            item.pods.insert(item.made, Place { pod, node, started, timer: None, going: false });
            item.made += 1;
        }
        (item, since)
    }

    /// Its object, to be changed. Until then the engine has the same copy.
    pub fn object(&mut self) -> &mut Workload {
        Arc::make_mut(&mut self.workload)
    }

    /// Sets the state of its object.
    pub fn set_state(&mut self, state: Observed) {
        if self.workload.state != state {
            self.object().state = state;
        }
    }

    /// Takes over the request of a changed object.
    pub fn change(&mut self, workload: Arc<Workload>, life: Life) {
        let state = match (&workload.state, &self.workload.state) {
            (Observed::OnHold, state) if *state != Observed::Finished => Observed::OnHold,
            (Observed::Unready(why), Observed::Queued | Observed::Unready(_)) => {
                Observed::Unready(why.clone())
            }
            (Observed::Queued, Observed::OnHold | Observed::Unready(_)) => Observed::Queued,
            (_, state) => state.clone(),
        };
        self.total = life.completions.unwrap_or(workload.pods);
        (self.wish, self.least) = (workload.pods, workload.min_pods);
        self.life = life;
        let submitted = self.workload.submitted;
        self.workload = workload;
        self.set_state(state);
        self.object().submitted = submitted;
        self.want();
    }

    /// Lets its pods run as long as its time limit, if all of them run at once: the limit is one of the whole workload. Pods that
    /// have run longer already end as before.
    pub fn run_until(&mut self, limit: Duration, now: Time, timers: &mut Timers) {
        if self.total > self.wish {
            return;
        }
        self.life.run = Some(limit);
        let id = &self.workload.id;
        for (number, place) in self.pods.iter_mut().filter(|(_, place)| !place.going) {
            let at = place.started.after(limit);
            if at <= now {
                continue;
            }
            if let Some(key) = place.timer.take() {
                timers.drop_pod(key, *number);
            }
            let timer = Timer { id: id.clone(), due: Due::End, pods: vec![*number] };
            place.timer = Some(timers.set(at, timer));
        }
    }

    /// The requests of each of its pods.
    pub fn requests(&self) -> &ResourceList {
        self.workload.requests_at(self.share)
    }

    /// How many pods have still to succeed.
    pub fn missing(&self) -> u32 {
        self.total.saturating_sub(self.done).saturating_sub(self.forgone)
    }

    /// Goes on without that many pods, which are not replaced.
    pub fn forgo(&mut self, pods: u32) {
        self.forgone = self.forgone.saturating_add(pods);
        self.want();
    }

    /// Adjusts the number of wanted pods to the missing ones; true if that changed it.
    pub fn want(&mut self) -> bool {
        let pods = self.wish.min(self.missing());
        let changed = self.workload.pods != pods;
        let min_pods = self.least.map(|least| least.min(pods));
        if changed || self.workload.min_pods != min_pods {
            let object = self.object();
            (object.pods, object.min_pods) = (pods, min_pods);
        }
        changed
    }

    /// Its admission, while it runs.
    pub fn admission(&self) -> Option<&Admission> {
        match &self.workload.state {
            Observed::Admitted(admission) => Some(admission),
            _ => None,
        }
    }

    /// The state of its object after an eviction at `now`.
    pub fn evicted(&self, now: Time) -> Observed {
        match &self.workload.state {
            Observed::Admitted(admission) if self.workload.resumable => {
                Observed::Leaving { admission: admission.clone(), since: now, stopped: true }
            }
            _ => Observed::Finished,
        }
    }

    /// The running pods that are not ending.
    pub fn running(&self) -> impl Iterator<Item = (u32, &Place)> {
        self.pods.iter().filter(|(_, place)| !place.going).map(|(number, place)| (*number, place))
    }

    /// How many of them are on a node.
    pub fn running_on(&self, node: &Name) -> u32 {
        let on = |place: &Place| place.node.as_ref() == Some(node);
        self.running().map(|(_, place)| u32::from(on(place))).sum()
    }

    /// How long it has been running.
    pub fn ran(&self, now: Time) -> Duration {
        self.admission().map(|admission| now.since(admission.at)).unwrap_or_default()
    }

    /// The work that would be lost if all its pods ended at `now`, summed over pods.
    pub fn work_lost(&self, now: Time) -> Duration {
        self.running().map(|(_, place)| self.work_of(place, now)).sum()
    }

    /// The work of one pod since it started or last saved it.
    pub fn work_of(&self, place: &Place, now: Time) -> Duration {
        let saved = self.workload.last_checkpoint.unwrap_or(place.started).max(place.started);
        let elapsed = now.since(saved);
        match self.workload.checkpoint_interval {
            Some(interval) if interval > Duration::ZERO && self.workload.last_checkpoint.is_none() => {
                let rest = elapsed.as_millis() % interval.as_millis().max(1);
                Duration::from_millis(u64::try_from(rest).unwrap_or(u64::MAX))
            }
            _ => elapsed,
        }
    }
}
