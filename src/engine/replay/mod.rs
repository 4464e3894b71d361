//! Plays an engine forward in time without a cluster. Its decisions are carried out at once, pods run for
//! their given duration, and the engine gets the events that a cluster would send.
//!
//! The simulator, the benchmarks and forecasts (which play a copy of a running engine) share this driver. It
//! keeps the state that a cluster would keep: objects, pods and the clock.
//!
//! ```text
//!   submit, adopt, delete, apply ─▶ ┌─────┐ ──Event──▶ ┌────────┐
//!   reach, settle, advance ───────▶ │ Run │            │ Engine │
//!   Happening ◀──────────────────── └─────┘ ◀──Action─ └────────┘
//! ```
//!
//! At one instant, ends come first, then the caller's changes, then decisions until none is left. A caller
//! with changes at an instant calls [`Run::reach`], makes them, and calls [`Run::settle`]; a caller without
//! changes calls [`Run::advance`].

mod busy;
pub mod calibration;
mod carry_out;
pub mod forecast;
pub mod grounds;
mod item;
mod life;
mod opening;
mod place;
mod play;
mod settle;
mod stop;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::replay::busy::Busy;
use crate::replay::item::Item;
use crate::replay::timers::Timers;
use crate::state::rules;
use crate::state::workload::Phase;
use crate::types::amount::ResourceList;
use crate::types::{Action, Event, Name, Observed, PodId, Time, Workload, WorkloadId};

pub use crate::replay::life::{Happening, Life};
pub use crate::replay::settle::NeverSettles;
pub use crate::replay::stop::Left;

/// An engine that is played forward in time.
#[derive(Clone, Debug)]
pub struct Run {
    engine: Engine,
    now: Time,
    /// Something happened at `now` that has not been decided on.
    dirty: bool,
    /// The last instant at which decisions came to rest.
    rested: Option<Time>,
    items: BTreeMap<WorkloadId, Item>,
    /// How workloads behave that were taken over while they wait: most of them see no decision in a run, and need no item.
    lives: BTreeMap<WorkloadId, Life>,
    timers: Timers,
    /// Which workloads are admitted to a node.
    places: BTreeMap<Name, BTreeSet<WorkloadId>>,
    /// Pods that the engine knew before the run, by owner, with their nodes.
    found: BTreeMap<WorkloadId, Vec<(PodId, Option<Name>)>>,
    /// Pods without a managed workload, by node.
    foreign: BTreeMap<Name, BTreeSet<PodId>>,
    /// The requests of all pods.
    busy: Busy,
    /// Deadlines of the engine are looked at on multiples of this many milliseconds after `began`.
    grain: i64,
    began: Time,
    /// Whether decisions by age are put off, see [`Run::with_rough_ages`].
    rough_ages: bool,
    /// Whether the caller ends pods that were never admitted, see [`Run::with_strays`].
    strays: bool,
    /// Decisions that are carried out once the engine has nothing more to decide at present.
    decided: Vec<Action>,
    /// Changes that have not been reported yet.
    unreported: Vec<(Time, Happening)>,
}

impl Run {
    /// The requests of all pods, ending and unmanaged ones included.
    #[must_use]
    pub fn in_use(&self) -> &ResourceList {
        self.busy.total()
    }

    /// A replay that begins with this engine at `now`. Workloads that the engine knows already do not change until they
    /// are adopted.
    #[must_use]
    pub fn new(engine: Engine, now: Time) -> Self {
        let mut found: BTreeMap<WorkloadId, Vec<(PodId, Option<Name>)>> = BTreeMap::new();
        let mut foreign: BTreeMap<Name, BTreeSet<PodId>> = BTreeMap::new();
        let mut busy = Busy::default();
        for (pod, owner, node, need) in engine.scheduler.state.pods() {
            let owner = owner.filter(|owner| engine.scheduler.state.get(owner).is_some());
            busy.known(pod, &engine.scheduler.state.resources.list(need), owner.is_none());
            match (owner, node) {
                (Some(owner), _) => {
                    found.entry(owner.clone()).or_default().push((pod.clone(), node.cloned()))
                }
                (None, Some(node)) => {
                    foreign.entry(node.clone()).or_default().insert(pod.clone());
                }
                (None, None) => {}
            }
        }
        Self {
            engine,
            now,
            dirty: true,
            rested: None,
            items: BTreeMap::new(),
            lives: BTreeMap::new(),
            timers: Timers::default(),
            places: BTreeMap::new(),
            found,
            foreign,
            busy,
            grain: 1,
            began: now,
            rough_ages: false,
            strays: false,
            decided: Vec::new(),
            unreported: Vec::new(),
        }
    }

    /// Looks at the engine's own deadlines only at multiples of `grain` after the beginning. A caller
    /// that tells things of one instant apart by less than that gets round times all the same.
    #[must_use]
    pub fn with_grain(mut self, grain: Duration) -> Self {
        self.grain = i64::try_from(grain.as_millis()).unwrap_or(i64::MAX).max(1);
        self
    }

    /// Puts off decisions for which only the age of a workload calls: by at most a sixteenth of the time from the beginning until
    /// then, or by at most four seconds where that is more. Each such instant is an attempt of all that waits for it, and on a
    /// large cluster each of many workloads has its own; those close to each other become one.
    #[must_use]
    pub fn with_rough_ages(mut self) -> Self {
        self.rough_ages = true;
        self
    }

    /// Leaves it to the caller to end pods that were never admitted and are evicted. Their grace is not known here: without the
    /// caller they are gone at once.
    #[must_use]
    pub fn with_strays(mut self, strays: bool) -> Self {
        self.strays = strays;
        self
    }

    /// Lets every workload with a time limit run until it, as estimates have it.
    #[must_use]
    pub fn with_limits(mut self) -> Self {
        let state = &self.engine.scheduler.state;
        for (id, item) in &mut self.items {
            if let Some(limit) = state.get(id).and_then(|info| rules::time_limit(state, info)) {
                item.run_until(limit, self.now, &mut self.timers);
            }
        }
        self
    }

    /// The engine as it stands.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The present.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// A workload of the run as its object shows it now; `None` once it has ended or was deleted.
    #[must_use]
    pub fn workload(&self, id: &WorkloadId) -> Option<&Workload> {
        if self.lives.contains_key(id) {
            return self.engine.workload(id);
        }
        self.items.get(id).map(|item| &*item.workload)
    }

    /// Whether pods of a workload of the run are still there.
    #[must_use]
    pub fn has_pods(&self, id: &WorkloadId) -> bool {
        self.items.get(id).is_some_and(|item| !item.pods.is_empty())
    }

    /// Whether pods run that will end by themselves.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.timers.has_ends()
    }

    /// Takes note of a change from outside, at the present: teams, pools, nodes, and pods that no
    /// workload owns. A removed node loses its pods at once.
    pub fn apply(&mut self, event: Event) {
        self.dirty = true;
        match event {
            Event::NodeRemoved(node) => {
                self.engine.apply(Event::NodeRemoved(node.clone()), self.now);
                self.lose_node(&node);
            }
            Event::NodeApplied(node) => {
                let name = node.name.clone();
                self.engine.apply(Event::NodeApplied(node), self.now);
                for id in self.places.get(&name).cloned().unwrap_or_default() {
                    self.fill(&id);
                }
            }
            Event::PodApplied(pod) => {
                self.busy.known(&pod.id, &pod.requests, true);
                if let Some(node) = &pod.node {
                    self.foreign.entry(node.clone()).or_default().insert(pod.id.clone());
                }
                self.engine.apply(Event::PodApplied(pod), self.now);
            }
            Event::PodRemoved(id) => {
                self.busy.foreign_gone(&id);
                for pods in self.foreign.values_mut() {
                    pods.remove(&id);
                }
                self.engine.apply(Event::PodRemoved(id), self.now);
            }
            Event::WorkloadApplied(workload) => self.submit(workload, Life::default()),
            Event::WorkloadRemoved(id) => self.delete(&id),
            other => self.engine.apply(other, self.now),
        }
    }

    /// Adds a workload now, or changes a known one; where that one
    /// stands stays as it is, unless its user holds it back or lets it go.
    pub fn submit(&mut self, workload: impl Into<Arc<Workload>>, life: Life) {
        let workload = workload.into();
        self.dirty = true;
        let id = workload.id.clone();
        self.take_up_awaited(&id);
        if let Some(item) = self.items.get_mut(&id) {
            item.change(workload, life);
            if item.workload.state == Observed::OnHold {
                self.set_places(&id, &[]);
                self.stop_pods(&id, None);
            }
            self.show(&id);
            return;
        }
        let item = Item::new(workload, life);
        let runs = matches!(item.workload.state, Observed::Admitted(_));
        self.items.insert(id.clone(), item);
        self.show(&id);
        if runs {
            self.settle_in(&id);
        }
    }

    /// Lets a workload fail once one of its runs has taken so long; to be said before it runs.
    pub fn set_deadline(&mut self, id: &WorkloadId, deadline: Option<Duration>) {
        self.take_up_awaited(id);
        if let Some(item) = self.items.get_mut(id) {
            item.deadline = deadline;
        }
    }

    /// Takes over a workload that the engine knows: it runs since its admission with the pods that the
    /// engine knows, or waits. Completions of its life count from now.
    pub fn adopt(&mut self, id: &WorkloadId, life: Life) {
        if self.items.contains_key(id) || self.lives.contains_key(id) {
            return;
        }
        let Some(info) = self.engine.scheduler.state.get(id).filter(|info| !info.removed) else { return };
        if info.phase == Phase::Pending && !self.found.contains_key(id) {
            self.dirty = true;
            self.lives.insert(id.clone(), life);
        } else {
            self.take_up(id, life);
        }
    }

    /// The same for workloads that wait, at the beginning of a run.
    pub fn adopt_waiting(&mut self, lives: BTreeMap<WorkloadId, Life>) {
        self.dirty = true;
        self.lives = lives;
        let with_pods: Vec<WorkloadId> = self.found.keys().cloned().collect();
        for id in with_pods {
            self.take_up_awaited(&id);
        }
    }

    /// Takes up a workload that was adopted while it waits.
    pub(super) fn take_up_awaited(&mut self, id: &WorkloadId) {
        if let Some(life) = self.lives.remove(id) {
            self.take_up(id, life);
        }
    }

    /// Keeps the object and the pods of a workload that the engine knows from now on; one that was not adopted runs for ever.
    fn take_up(&mut self, id: &WorkloadId, life: Life) {
        if self.items.contains_key(id) {
            return;
        }
        let Some(info) = self.engine.scheduler.state.get(id).filter(|info| !info.removed) else { return };
        let changes = matches!(info.phase, Phase::Resizing { .. });
        let pods = self.found.remove(id).unwrap_or_default();
        let (item, stops) = Item::adopted(info, life, pods, self.now);
        let is_known = item.workload == info.workload;
        if item.workload.state == Observed::Finished && item.pods.is_empty() {
            return;
        }
        self.dirty = true;
        let runs = matches!(item.workload.state, Observed::Admitted(_));
        self.items.insert(id.clone(), item);
        if runs {
            // The engine would charge it again, and attempt all that waits for its team's quota.
            if !is_known {
                self.show(id);
            }
            if changes {
                self.shrink(id);
            }
            self.settle_in(id);
        }
        if let Some(since) = stops {
            self.show(id);
            self.stop_pods(id, Some(since));
        }
    }

    /// Deletes a workload at the present; its pods end after their grace.
    pub fn delete(&mut self, id: &WorkloadId) {
        let life = self.lives.remove(id).unwrap_or_default();
        self.take_up(id, life);
        self.dirty = true;
        self.engine.apply(Event::WorkloadRemoved(id.clone()), self.now);
        self.set_places(id, &[]);
        if let Some(item) = self.items.get_mut(id) {
            item.deleted = true;
            self.stop_pods(id, None);
        }
    }

    fn note(&mut self, happening: Happening) {
        self.unreported.push((self.now, happening));
    }

    /// Shows the engine a workload as its object now is.
    fn show(&mut self, id: &WorkloadId) {
        if let Some(item) = self.items.get(id).filter(|item| !item.deleted) {
            self.engine.apply(Event::WorkloadApplied(Arc::clone(&item.workload)), self.now);
        }
    }
}
