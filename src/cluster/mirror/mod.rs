//! The cache of watched objects, and the engine events of each change.

mod alike;
mod apply;
mod capped;
mod devices;
mod fill;
mod queries;
mod replay;
mod unadmitted;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;

use self::alike::Alike;
use self::fill::complete;
use super::dra::{Dra, News};
use super::groups::{self, Groups};
use super::ownership::Ownership;
use super::ready_pods::ReadyPods;
use super::reduce::team::{NamespaceSeen, PoolSeen, TeamSeen};
use super::replicas::Replicas;
use super::table::{Seen, Step, Table, Versioned};
use super::target::pod::PodSeen;
use super::target::{JobSeen, Managed};
use crate::api::caps::Caps;
use crate::api::priority::Class;
use crate::directory::Places;
use crate::engine::types::{Event, Name, Node, Observed, WorkloadId};
use crate::kinds::{Kind, Kinds};

pub use self::written::Written;

/// A message of a watch.
#[derive(Clone, Debug)]
pub enum Change {
    /// A namespace.
    Namespace(Seen<NamespaceSeen>),
    /// A Team.
    Team(Seen<TeamSeen>),
    /// A NodePool.
    Pool(Seen<PoolSeen>),
    /// A node.
    Node(Seen<Node>),
    /// A PriorityClass.
    Class(Seen<Class>),
    /// A Job.
    Job(Seen<JobSeen>),
    /// An object of a custom kind, with the index of the kind in the kinds table.
    Custom(usize, Seen<JobSeen>),
    /// A pod.
    Pod(Seen<PodSeen>),
    /// Whether the API server serves PodGroups.
    PodGroups(bool),
    /// An object of dynamic resource allocation.
    Devices(News),
}

/// The cluster as decisions and patches need it.
#[derive(Debug, Default)]
pub struct Mirror {
    namespaces: Table<NamespaceSeen>,
    teams: Table<TeamSeen>,
    pools: Table<PoolSeen>,
    nodes: Table<Node>,
    classes: Table<Class>,
    jobs: Table<JobSeen>,
    pods: Table<PodSeen>,
    ownership: Ownership,
    dra: Dra,
    pods_of: BTreeMap<WorkloadId, BTreeSet<Name>>,
    leaving: BTreeSet<WorkloadId>,
    /// Those of them without pods, here and by their own count.
    vacant: BTreeSet<WorkloadId>,
    /// The Jobs that their controller cannot end.
    cannot_end: BTreeSet<WorkloadId>,
    groups: Groups,
    alike: Alike,
    replicas: Replicas,
    /// The pods that were deleted with a longer grace period than their own.
    stretched: BTreeSet<Name>,
    /// The numbers of ready and succeeded pods of each workload.
    ready_pods: ReadyPods,
    /// Jobs with a change that may affect the places of their pods.
    dirty_jobs: BTreeSet<WorkloadId>,
    /// The places of pods, shared with the webhook.
    places: Places,
    /// Whether the API server serves PodGroups, once known.
    pod_groups: Option<bool>,
    unlabelled_default: i32,
    /// What a waiting workload may consist of.
    caps: Caps,
    directory_changed: bool,
    /// Whether a PriorityClass has changed since the twins were last compared.
    classes_changed: bool,
    events: Vec<Event>,
}

/// A table of objects that own pods.
#[derive(Clone, Copy)]
enum OwnerTable {
    Jobs,
    Custom(usize),
}

impl Mirror {
    /// An empty cache with these custom kinds.
    #[must_use]
    pub fn new(kinds: Kinds, places: Places) -> Self {
        Self { ownership: Ownership::new(kinds), places, ..Self::default() }
    }

    /// Applies one message; returns the engine events it causes.
    pub fn take(&mut self, change: Change) -> Vec<Event> {
        match change {
            Change::Namespace(seen) => self.take_namespace(seen),
            Change::Team(seen) => {
                self.directory_changed |= matches!(seen, Seen::ListEnds);
                for step in self.teams.take(seen) {
                    match step {
                        Step::Put(name, before) => self.team_put(&name, before),
                        Step::Gone(name, _) => {
                            self.directory_changed = true;
                            self.events.push(Event::TeamRemoved(name));
                        }
                    }
                }
            }
            Change::Pool(seen) => {
                self.directory_changed |= matches!(seen, Seen::ListEnds);
                for step in self.pools.take(seen) {
                    self.directory_changed = true;
                    self.events.extend(match step {
                        Step::Put(name, _) => {
                            self.pools.get(&name).map(|seen| Event::PoolApplied(seen.pool.clone()))
                        }
                        Step::Gone(name, _) => Some(Event::PoolRemoved(name)),
                    });
                }
            }
            Change::Node(seen) => {
                self.directory_changed |= matches!(seen, Seen::ListEnds);
                let seen = self.with_devices(seen);
                for step in self.nodes.take(seen) {
                    let (closed, event) = match step {
                        // A kubelet's heartbeat changes nothing that is cached.
                        Step::Put(name, before) => {
                            let now = self.nodes.get(&name);
                            let open = |node: Option<&Node>| node.is_some_and(|node| node.schedulable);
                            let closed = open(before.as_ref()) && !open(now);
                            let changed = now.filter(|node| before.as_ref() != Some(node));
                            let same = |before: &Node, now: &Node| {
                                before.labels == now.labels && before.allocatable == now.allocatable
                            };
                            self.directory_changed |= self.nodes.complete()
                                && match (before.as_ref(), now) {
                                    (Some(before), Some(now)) => !same(before, now),
                                    _ => true,
                                };
                            (closed, changed.map(|node| Event::NodeApplied(node.clone())))
                        }
                        Step::Gone(name, _) => {
                            self.directory_changed = true;
                            self.dra.remove_node(&name);
                            (true, Some(Event::NodeRemoved(name)))
                        }
                    };
                    self.events.extend(event);
                    if closed {
                        self.mark_unbound_dirty();
                    }
                }
            }
            Change::Class(seen) => {
                self.directory_changed |= matches!(seen, Seen::ListEnds);
                if !self.classes.take(seen).is_empty() {
                    self.directory_changed = true;
                    self.classes_changed = true;
                    let default = self.classes.iter().find(|(_, class)| class.global_default);
                    self.unlabelled_default = default.map_or(0, |(_, class)| class.value);
                    self.complete_again(|_| true);
                }
            }
            Change::Job(seen) => {
                let ends = matches!(seen, Seen::ListEnds);
                let seen = self.message_within(self.ownership.sorted_message(seen));
                let steps = self.jobs.take(seen);
                self.job_steps(OwnerTable::Jobs, steps);
                if ends {
                    // The places may outlive deleted Jobs: they are older than this cache.
                    self.places.keep(|uid| self.jobs.get(uid).is_some());
                }
            }
            Change::Custom(place, seen) => {
                let seen = self.message_within(self.ownership.sorted_message(seen));
                let steps = self.ownership.tables.get_mut(place).map(|table| table.take(seen));
                self.job_steps(OwnerTable::Custom(place), steps.unwrap_or_default());
            }
            Change::Pod(seen) => {
                // An ended pod leaves the cache, so its success is counted here.
                if let Seen::Object(uid, now) = &seen
                    && let Some(pod) = self.pods.get(uid).and_then(|before| before.holds.as_ref())
                    && let Some(owner) = pod.workload.as_ref().filter(|_| now.succeeded)
                {
                    self.ready_pods.succeeded(owner);
                    // The Job's status may show the success only after a replacement pod is created. It never shows that of a pod
                    // that is deleted with the others at an eviction and ends with exit code 0.
                    let job = self.jobs.get(&owner.0).and_then(|seen| seen.managed.as_deref());
                    if !now.ending && job.and_then(Managed::gang).is_some() {
                        self.places.thin(&owner.0, true);
                    }
                }
                let steps = self.pods.take(self.message_within(seen));
                self.pod_steps(steps);
            }
            Change::PodGroups(can_be_made) => {
                self.directory_changed = true;
                self.pod_groups = Some(can_be_made);
            }
            Change::Devices(news) => self.take_devices(news),
        }
        self.drain_events()
    }

    /// Adds the events of a new or changed team. The leader writes its status often; of that only past usage, what was used of
    /// the budget and run lengths are news.
    fn team_put(&mut self, name: &Name, before: Option<TeamSeen>) {
        let Some(now) = self.teams.get(name) else { return };
        let past = now.past.clone().filter(|_| before.as_ref().is_none_or(|before| before.past != now.past));
        let used =
            now.budget.clone().filter(|_| before.as_ref().is_none_or(|before| before.budget != now.budget));
        let lengths = now.run_lengths.clone();
        let lengths =
            lengths.filter(|_| before.as_ref().is_none_or(|before| before.run_lengths != now.run_lengths));
        let spec = |seen: &TeamSeen| TeamSeen {
            past: None,
            budget: None,
            run_lengths: None,
            version: 0,
            ..seen.clone()
        };
        if before.as_ref().map(spec) != Some(spec(now)) {
            self.directory_changed = true;
            self.events.push(Event::TeamApplied(now.team.clone()));
        }
        self.events.extend(past.map(Event::PastUsage));
        self.events.extend(used.map(Event::BudgetUsed));
        self.events.extend(lengths.map(Event::RunLengths));
    }

    /// Caches the answer to a write on a Job, as if the watch had sent it.
    pub fn take_own_job(&mut self, seen: JobSeen) -> Vec<Event> {
        let seen = self.within(self.ownership.sorted(seen));
        let steps = self.jobs.take_own(seen.uid.clone(), seen);
        self.job_steps(OwnerTable::Jobs, steps);
        self.drain_events()
    }

    /// Caches the answer to a write on an object of a custom kind, as if the watch had sent it.
    pub fn take_own_custom(&mut self, kind: &Kind, seen: JobSeen) -> Vec<Event> {
        let watched = self.ownership.kinds().watched().iter();
        let place = watched.map(|watched| watched.entry.as_deref()).position(|entry| entry == Some(kind));
        let Some(place) = place else { return Vec::new() };
        let seen = self.within(self.ownership.sorted(seen));
        let steps = self.ownership.tables.get_mut(place).map(|table| table.take_own(seen.uid.clone(), seen));
        self.job_steps(OwnerTable::Custom(place), steps.unwrap_or_default());
        self.drain_events()
    }

    /// Caches the answer to a write on a pod, as if the watch had sent it.
    pub fn take_own_pod(&mut self, seen: PodSeen) -> Vec<Event> {
        let seen = self.within(seen);
        let steps = self.pods.take_own(seen.uid.clone(), seen);
        self.pod_steps(steps);
        self.drain_events()
    }

    /// Takes the events for the engine. The numbers of ready pods of gangs come after the events of the workloads.
    fn drain_events(&mut self) -> Vec<Event> {
        let mut events = take(&mut self.events);
        let mut gangs = self.ready_pods.take_changed();
        gangs.extend(events.iter().filter_map(|event| match event {
            Event::WorkloadApplied(workload) => Some(workload.id.clone()),
            _ => None,
        }));
        for id in gangs {
            let state = self.workload(&id).map(|(managed, _)| &managed.workload.state);
            if matches!(state, Some(Observed::Admitted(admission)) if admission.pods > 1) {
                events.push(Event::PodsReady(self.ready_pods.of(&id)));
            }
        }
        events
    }

    /// Marks the Jobs with pods that are placed but not bound: their node may be cordoned now.
    fn mark_unbound_dirty(&mut self) {
        let unbound =
            |seen: &PodSeen| seen.way.is_some() && seen.holds.as_ref().is_some_and(|p| p.node.is_none());
        let pods = self.pods.iter().map(|(_, seen)| seen).filter(|seen| unbound(seen));
        let owners = pods.filter_map(|seen| seen.holds.as_ref()?.workload.clone());
        self.dirty_jobs.extend(owners.collect::<Vec<_>>());
    }

    fn take_namespace(&mut self, seen: Seen<NamespaceSeen>) {
        self.directory_changed |= matches!(seen, Seen::ListEnds);
        let mut moved = BTreeSet::new();
        for step in self.namespaces.take(seen) {
            let (name, before) = match step {
                Step::Put(name, before) => (name, before),
                Step::Gone(name, before) => (name, Some(before)),
            };
            let state = |seen: Option<&NamespaceSeen>| seen.map(|seen| (seen.membership.clone(), seen.since));
            if state(before.as_ref()) != state(self.namespaces.get(&name)) {
                moved.insert(name);
            }
        }
        if !moved.is_empty() {
            self.directory_changed = true;
            self.complete_again(|managed| moved.contains(&managed.workload.namespace));
            self.charge_again(&moved);
        }
    }

    /// Completes the workloads that `which` selects from their namespaces and PriorityClasses again.
    fn complete_again(&mut self, which: impl Fn(&Managed) -> bool) {
        let jobs = self.jobs.values_mut().filter_map(|seen| seen.managed.as_deref_mut());
        let jobs = jobs.chain(self.ownership.managed_mut()).map(|managed| (managed, false));
        let pods = self.pods.values_mut().filter_map(|seen| {
            let grouped = seen.group.is_some();
            seen.managed.as_deref_mut().map(|managed| (managed, grouped))
        });
        for (managed, grouped) in jobs.chain(pods).filter(|(managed, _)| which(managed)) {
            let before = Arc::clone(&managed.workload);
            complete(&self.namespaces, &self.classes, self.unlabelled_default, &self.dra, managed);
            if before == managed.workload {
                managed.workload = before;
            } else if !grouped {
                self.events.extend(workload_event(&before.id, Some(&before.team), Some(managed)));
            }
        }
        for key in self.groups.keys(|_| true) {
            self.update_group(&key);
        }
    }

    /// Adds the events of a group's workloads.
    fn update_group(&mut self, key: &groups::Key) {
        for change in self.groups.update(key, &self.pods) {
            match change {
                groups::Change::Put(id, team) => {
                    let now = self.workload(&id).map(|(managed, _)| managed);
                    let event = workload_event(&id, team.as_ref(), now);
                    self.events.extend(event);
                }
                groups::Change::Gone(id, team) => {
                    self.ready_pods.remove(&id);
                    if !team.is_empty() {
                        self.events.push(Event::WorkloadRemoved(id));
                    }
                }
            }
        }
    }
}

/// The group of a pod.
fn group_of(seen: &PodSeen) -> Option<groups::Key> {
    let namespace = &seen.managed.as_deref()?.workload.namespace;
    Some((namespace.clone(), seen.group.as_ref()?.name.clone()))
}

/// The engine event of a changed workload; `before` is its former team. A workload without a team is unmanaged.
/// An object that is no workload any more has left its team as well.
fn workload_event(id: &WorkloadId, before: Option<&Name>, now: Option<&Managed>) -> Option<Event> {
    match now.filter(|now| !now.workload.team.is_empty()) {
        Some(now) => Some(Event::WorkloadApplied(Arc::clone(&now.workload))),
        None => before.filter(|team| !team.is_empty()).map(|_| Event::WorkloadRemoved(id.clone())),
    }
}

impl Versioned for JobSeen {
    fn version(&self) -> u64 {
        self.version
    }
    fn worth_keeping(&self) -> bool {
        self.managed.is_some() || self.controller.is_some()
    }
}

impl Versioned for PodSeen {
    fn version(&self) -> u64 {
        self.version
    }
    fn worth_keeping(&self) -> bool {
        self.managed.is_some() || self.belongs.is_some() || self.holds.is_some()
    }
}

/// Only the statuses of Teams are written, and the answers are not cached.
impl Versioned for TeamSeen {
    const OVERTAKEN: bool = false;
    fn version(&self) -> u64 {
        self.version
    }
}

/// Kinds that Sluice does not write need no version: their watch messages arrive in order.
macro_rules! in_order {
    ($($kind:ty),*) => {$(impl Versioned for $kind {
        fn version(&self) -> u64 {
            0
        }
    })*};
}
in_order!(NamespaceSeen, PoolSeen, Node, Class);

#[cfg(test)]
mod tests;
