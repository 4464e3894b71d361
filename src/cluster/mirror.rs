//! What the watches leave in memory, and what each change means to the engine.

mod devices;
mod fill;
mod known;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use self::fill::{complete, thinned};
use super::dra::{Dra, News};
use super::groups::{self, Groups};
use super::kin::Kin;
use super::reduce::team::{ClassSeen, NamespaceSeen, PoolSeen, TeamSeen};
use super::replicas::Replicas;
use super::table::{Seen, Step, Table, Versioned};
use super::target::JobSeen;
use super::target::Managed;
use super::target::pod::PodSeen;
use super::up::Up;
use crate::directory::Places;
use crate::engine::types::{Event, Name, Node, Observed, WorkloadId};
use crate::kinds::{Kind, Kinds};

/// A message of one of the watches.
#[derive(Clone, Debug)]
pub enum Change {
    /// Of a namespace.
    Namespace(Seen<NamespaceSeen>),
    /// Of a team.
    Team(Seen<TeamSeen>),
    /// Of a node pool.
    Pool(Seen<PoolSeen>),
    /// Of a node.
    Node(Seen<Node>),
    /// Of a PriorityClass.
    Class(Seen<ClassSeen>),
    /// Of a Job.
    Job(Seen<JobSeen>),
    /// Of an object of another kind, by the place of that among the watched ones.
    Other(usize, Seen<JobSeen>),
    /// Of a pod.
    Pod(Seen<PodSeen>),
    /// Whether PodGroups can be made.
    PodGroups(bool),
    /// Of what there is of claimed devices.
    Devices(News),
}

/// The cluster as far as decisions and patches need it.
#[derive(Debug, Default)]
pub struct Mirror {
    namespaces: Table<NamespaceSeen>,
    teams: Table<TeamSeen>,
    pools: Table<PoolSeen>,
    nodes: Table<Node>,
    classes: Table<ClassSeen>,
    jobs: Table<JobSeen>,
    pods: Table<PodSeen>,
    kin: Kin,
    dra: Dra,
    pods_of: BTreeMap<WorkloadId, BTreeSet<Name>>,
    leaving: BTreeSet<WorkloadId>,
    groups: Groups,
    replicas: Replicas,
    /// How many pods of each workload are up.
    up: Up,
    /// Jobs of which something has changed that may concern the places of their pods.
    stirred: BTreeSet<WorkloadId>,
    /// What the webhook knows of the places of pods.
    places: Places,
    /// Whether PodGroups can be made, once that is known.
    pod_groups: Option<bool>,
    unlabelled_default: i32,
    directory_changed: bool,
    events: Vec<Event>,
}

/// Which objects are meant of those that make pods.
#[derive(Clone, Copy)]
enum Makers {
    Jobs,
    Others(usize),
}

impl Mirror {
    /// Nothing yet, with objects of these kinds as workloads too.
    #[must_use]
    pub fn new(kinds: Kinds, places: Places) -> Self {
        Self { kin: Kin::new(kinds), places, ..Self::default() }
    }

    /// Takes note of one message; gives what it means to the engine.
    pub fn take(&mut self, change: Change) -> Vec<Event> {
        match change {
            Change::Namespace(seen) => self.take_namespace(seen),
            Change::Team(seen) => {
                self.directory_changed |= matches!(seen, Seen::ListEnds);
                for step in self.teams.take(seen) {
                    self.directory_changed = true;
                    self.events.extend(match step {
                        Step::Put(name, _) => {
                            self.teams.get(&name).map(|seen| Event::TeamApplied(seen.team.clone()))
                        }
                        Step::Gone(name, _) => Some(Event::TeamRemoved(name)),
                    });
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
                let seen = self.with_devices(seen);
                for step in self.nodes.take(seen) {
                    let (closed, event) = match step {
                        // A kubelet's heartbeat changes nothing that matters here.
                        Step::Put(name, before) => {
                            let now = self.nodes.get(&name);
                            let open = |node: Option<&Node>| node.is_some_and(|node| node.schedulable);
                            let closed = open(before.as_ref()) && !open(now);
                            let changed = now.filter(|node| before.as_ref() != Some(node));
                            (closed, changed.map(|node| Event::NodeApplied(node.clone())))
                        }
                        Step::Gone(name, _) => {
                            self.dra.forget(&name);
                            (true, Some(Event::NodeRemoved(name)))
                        }
                    };
                    self.events.extend(event);
                    if closed {
                        self.stir_the_unbound();
                    }
                }
            }
            Change::Class(seen) => {
                if !self.classes.take(seen).is_empty() {
                    let default = self.classes.iter().find(|(_, class)| class.global_default);
                    self.unlabelled_default = default.map_or(0, |(_, class)| class.value);
                    self.complete_again(|_| true);
                }
            }
            Change::Job(seen) => {
                let ends = matches!(seen, Seen::ListEnds);
                let steps = self.jobs.take(self.kin.sorted_message(seen));
                self.job_steps(Makers::Jobs, steps);
                if ends {
                    // The book is older than this mirror.
                    self.places.keep(|uid| self.jobs.get(uid).is_some());
                }
            }
            Change::Other(place, seen) => {
                let seen = self.kin.sorted_message(seen);
                let steps = self.kin.tables.get_mut(place).map(|table| table.take(seen));
                self.job_steps(Makers::Others(place), steps.unwrap_or_default());
            }
            Change::Pod(seen) => {
                // A pod that has ended is not kept, so this is seen here or never.
                if let Seen::Object(uid, now) = &seen
                    && let Some(pod) = self.pods.get(uid).and_then(|before| before.holds.as_ref())
                    && let Some(owner) = pod.workload.as_ref().filter(|_| now.succeeded)
                {
                    self.up.succeeded(owner);
                    // Its Job may say so only after another has been made anew.
                    let job = self.jobs.get(&owner.0).and_then(|seen| seen.managed.as_deref());
                    if job.and_then(thinned).is_some() {
                        self.places.thin(&owner.0, true);
                    }
                }
                let steps = self.pods.take(seen);
                self.pod_steps(steps);
            }
            Change::PodGroups(can_be_made) => {
                self.directory_changed = true;
                self.pod_groups = Some(can_be_made);
            }
            Change::Devices(news) => self.take_devices(news),
        }
        self.told()
    }

    /// Takes the answer to a write on a Job as if the watch had brought it.
    pub fn take_own_job(&mut self, seen: JobSeen) -> Vec<Event> {
        let steps = self.jobs.take_own(seen.uid.clone(), self.kin.sorted(seen));
        self.job_steps(Makers::Jobs, steps);
        self.told()
    }

    /// Takes the answer to a write on an object of another kind as if the watch had brought it.
    pub fn take_own_other(&mut self, kind: &Kind, seen: JobSeen) -> Vec<Event> {
        let watched = self.kin.kinds().watched().iter();
        let place = watched.map(|watched| watched.entry.as_deref()).position(|entry| entry == Some(kind));
        let Some(place) = place else { return Vec::new() };
        let seen = self.kin.sorted(seen);
        let steps = self.kin.tables.get_mut(place).map(|table| table.take_own(seen.uid.clone(), seen));
        self.job_steps(Makers::Others(place), steps.unwrap_or_default());
        self.told()
    }

    /// Takes the answer to a write on a pod as if the watch had brought it.
    pub fn take_own_pod(&mut self, seen: PodSeen) -> Vec<Event> {
        let steps = self.pods.take_own(seen.uid.clone(), seen);
        self.pod_steps(steps);
        self.told()
    }

    /// What the engine is to be told, how many pods of gangs are up after what is said of these.
    fn told(&mut self) -> Vec<Event> {
        let mut events = take(&mut self.events);
        let mut gangs = self.up.take_changed();
        gangs.extend(events.iter().filter_map(|event| match event {
            Event::WorkloadApplied(workload) => Some(workload.id.clone()),
            _ => None,
        }));
        for id in gangs {
            let state = self.workload(&id).map(|(managed, _)| &managed.workload.state);
            if matches!(state, Some(Observed::Admitted(admission)) if admission.pods > 1) {
                events.push(Event::PodsReady(self.up.of(&id)));
            }
        }
        events
    }

    /// Has everybody looked at who has pods on their way: it may lead to a node that is closed now.
    fn stir_the_unbound(&mut self) {
        let unbound =
            |seen: &PodSeen| seen.way.is_some() && seen.holds.as_ref().is_some_and(|p| p.node.is_none());
        let pods = self.pods.iter().map(|(_, seen)| seen).filter(|seen| unbound(seen));
        let owners = pods.filter_map(|seen| seen.holds.as_ref()?.workload.clone());
        self.stirred.extend(owners.collect::<Vec<_>>());
    }

    fn take_namespace(&mut self, seen: Seen<NamespaceSeen>) {
        self.directory_changed |= matches!(seen, Seen::ListEnds);
        let mut moved = BTreeSet::new();
        for step in self.namespaces.take(seen) {
            let (name, before) = match step {
                Step::Put(name, before) => (name, before),
                Step::Gone(name, before) => (name, Some(before)),
            };
            let membership = self.namespaces.get(&name).and_then(|seen| seen.membership.as_ref());
            if before.as_ref().and_then(|seen| seen.membership.as_ref()) != membership {
                moved.insert(name);
            }
        }
        if !moved.is_empty() {
            self.directory_changed = true;
            self.complete_again(|managed| moved.contains(&managed.workload.namespace));
        }
    }

    /// Fills in again what namespaces and classes say of the workloads that `which` selects.
    fn complete_again(&mut self, which: impl Fn(&Managed) -> bool) {
        let jobs = self.jobs.values_mut().filter_map(|seen| seen.managed.as_deref_mut());
        let jobs = jobs.chain(self.kin.managed_mut()).map(|managed| (managed, false));
        let pods = self.pods.values_mut().filter_map(|seen| {
            let grouped = seen.group.is_some();
            seen.managed.as_deref_mut().map(|managed| (managed, grouped))
        });
        for (managed, grouped) in jobs.chain(pods).filter(|(managed, _)| which(managed)) {
            let before = managed.workload.clone();
            complete(&self.namespaces, &self.classes, self.unlabelled_default, &self.dra, managed);
            if before != managed.workload && !grouped {
                self.events.extend(told(Some(&before.team), Some(managed)));
            }
        }
        for key in self.groups.keys(|_| true) {
            self.look_at_group(&key);
        }
    }

    /// Tells what has become of the workloads that the pods of a group are.
    fn look_at_group(&mut self, key: &groups::Key) {
        for change in self.groups.look(key, &self.pods) {
            match change {
                groups::Change::Put(id, team) => {
                    let now = self.workload(&id).map(|(managed, _)| managed);
                    self.events.extend(told(team.as_ref(), now));
                }
                groups::Change::Gone(id, team) => {
                    self.up.forget(&id);
                    if !team.is_empty() {
                        self.events.push(Event::WorkloadRemoved(id));
                    }
                }
            }
        }
    }
}

/// The group a pod belongs to.
fn group_of(seen: &PodSeen) -> Option<groups::Key> {
    let namespace = &seen.managed.as_deref()?.workload.namespace;
    Some((namespace.clone(), seen.group.as_ref()?.name.clone()))
}

/// What the engine must be told of a workload whose team was `before`; one without a team is none.
fn told(before: Option<&Name>, now: Option<&Managed>) -> Option<Event> {
    let now = now?;
    if !now.workload.team.is_empty() {
        Some(Event::WorkloadApplied(now.workload.clone()))
    } else {
        before.filter(|team| !team.is_empty()).map(|_| Event::WorkloadRemoved(now.workload.id.clone()))
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

/// Kinds that Sluice does not write: what the watch says comes in order.
macro_rules! in_order {
    ($($kind:ty),*) => {$(impl Versioned for $kind {
        fn version(&self) -> u64 {
            0
        }
    })*};
}
in_order!(NamespaceSeen, TeamSeen, PoolSeen, Node, ClassSeen);

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
