//! Records the rows of the outcome during the simulation.

use std::collections::BTreeMap;
use std::time::Duration;

use super::outcome::{AdmissionRow, Clock, Decision, EvictionRow, State, Summary, WorkloadRow};
use super::unmanaged::{self, UnmanagedWorkload, UnmanagedWorkloads};
use crate::api::sizes::written;
use crate::chart::units::count;
use crate::engine::replay::{Happening, Run};
use crate::engine::types::State as Phase;
use crate::engine::types::amount::Amount;
use crate::engine::types::{Admission, Name, Time, Workload, WorkloadId};
use crate::view::Accelerators;

/// The row of a workload, with its GPUs for the summary.
#[derive(Clone, Debug)]
struct Entry {
    row: WorkloadRow,
    /// GPUs of each pod.
    gpus: f64,
    /// GPUs of each pod, by GPU fraction.
    sizes: Vec<(Option<Amount>, f64)>,
    managed: bool,
    resumable: bool,
}

/// Pods that are one workload; each pod has its own row.
#[derive(Debug)]
struct Group {
    team: String,
    members: Vec<WorkloadId>,
}

/// A change of a group.
#[derive(Debug)]
pub enum GroupChange {
    /// Its pods have started.
    Started(Admission),
    /// All its pods have ended.
    Ended,
}

/// Records rows, decisions and the summary.
#[derive(Debug)]
pub struct Recorder {
    accelerators: Accelerators,
    began: Time,
    entries: Vec<Entry>,
    /// The newest row by identity: a deleted workload can be created again.
    index: BTreeMap<WorkloadId, usize>,
    groups: BTreeMap<WorkloadId, Group>,
    /// Changes of groups that the cluster has not seen yet.
    group_changes: Vec<(WorkloadId, GroupChange)>,
    decisions: Option<Vec<Decision>>,
    evictions: u64,
    wasted: f64,
}

/// The submission of a workload.
#[derive(Clone, Debug)]
pub struct Submission {
    /// `Job` or `Pod`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Submission time.
    pub at: Time,
}

impl Recorder {
    /// An empty recorder; it records decisions if requested.
    #[must_use]
    pub fn new(began: Time, decisions: bool, accelerators: Accelerators) -> Self {
        Self {
            accelerators,
            began,
            entries: Vec::new(),
            index: BTreeMap::new(),
            groups: BTreeMap::new(),
            group_changes: Vec::new(),
            decisions: decisions.then(Vec::new),
            evictions: 0,
            wasted: 0.0,
        }
    }

    /// Sets the resources that count as GPUs from now on.
    pub fn count(&mut self, accelerators: Accelerators) {
        self.accelerators = accelerators;
    }

    /// The time since the start of the simulation.
    #[must_use]
    pub fn clock(&self, at: Time) -> Clock {
        Clock(at.since(self.began))
    }

    /// A workload was submitted or changed.
    pub fn submitted(&mut self, submission: Submission, workload: &Workload, queue: &str) {
        let gpus = |requests| self.accelerators.count(requests);
        let requested = gpus(workload.requests());
        let all = self.accelerators.amount(workload.requests()) * workload.pods;
        let sizes = workload.sizes.iter().map(|size| (Some(size.share), gpus(&size.requests)));
        let sizes = std::iter::once((None, gpus(&workload.shape.requests))).chain(sizes).collect();
        let entry = self.open(submission, workload.id.clone());
        entry.managed = true;
        entry.resumable = workload.resumable;
        entry.gpus = requested;
        entry.sizes = sizes;
        entry.row.team = workload.team.to_string();
        entry.row.queue = queue.to_owned();
        entry.row.gpus = all.into();
    }

    /// Pods with rows of their own form a workload.
    pub fn group(&mut self, workload: &Workload, members: Vec<WorkloadId>) {
        let team = workload.team.to_string();
        self.groups.insert(workload.id.clone(), Group { team, members });
    }

    /// The changes of groups since the last call.
    pub fn take_group_changes(&mut self) -> Vec<(WorkloadId, GroupChange)> {
        std::mem::take(&mut self.group_changes)
    }

    /// An unmanaged workload was submitted.
    pub fn submitted_unmanaged(&mut self, submission: Submission, workload: &UnmanagedWorkload) {
        let gpus = self.accelerators.count(&workload.shape.requests);
        let entry = self.open(submission, workload.id.clone());
        entry.gpus = gpus;
        entry.row.state = if workload.held { State::Held } else { State::Pending };
    }

    /// A workload has left its team.
    pub fn left(&mut self, id: &WorkloadId, held: bool) {
        if let Some(entry) = self.entry(id) {
            (entry.row.team, entry.row.queue) = (String::new(), String::new());
            entry.managed = false;
            entry.row.state = if held { State::Held } else { State::Pending };
            if held {
                entry.row.message = "suspended in the queue of a team that its namespace has left".to_owned();
            }
        }
    }

    /// The entry of an identity, a new one if there is none.
    fn open(&mut self, submission: Submission, id: WorkloadId) -> &mut Entry {
        let submitted = self.clock(submission.at);
        let index = *self.index.entry(id).or_insert(self.entries.len());
        if index == self.entries.len() {
            let row = WorkloadRow {
                kind: submission.kind,
                namespace: submission.namespace,
                name: submission.name,
                submitted,
                ..WorkloadRow::default()
            };
            self.entries.push(Entry { row, gpus: 0.0, sizes: Vec::new(), managed: false, resumable: false });
        }
        &mut self.entries[index]
    }

    /// Whether a workload has ended.
    #[must_use]
    pub fn has_ended(&self, id: &WorkloadId) -> bool {
        self.index.get(id).is_some_and(|index| self.entries[*index].row.state.has_ended())
    }

    /// A workload has been running since before the start.
    pub fn placed(&mut self, id: &WorkloadId, admission: &Admission) {
        let at = self.clock(self.began);
        if let Some(entry) = self.entry(id) {
            entry.row.admissions.push(admission_row(at, admission));
        }
    }

    /// A workload was deleted.
    pub fn deleted(&mut self, id: &WorkloadId, at: Time) {
        let at = self.clock(at);
        if let Some(index) = self.index.remove(id) {
            let entry = &mut self.entries[index];
            if !entry.row.state.has_ended() {
                entry.end(State::Failed, at, "Deleted", "was deleted".to_owned());
            }
        }
    }

    /// An unmanaged workload has changed.
    pub fn changed(&mut self, id: &WorkloadId, at: Time, change: unmanaged::Change) {
        let at = self.clock(at);
        let Some(entry) = self.entry(id) else { return };
        match change {
            unmanaged::Change::Runs(nodes) => {
                let pods = nodes.values().sum();
                entry.row.admissions.push(AdmissionRow { at, nodes, pods, borrowed: false, share: None });
            }
            unmanaged::Change::Succeeded => entry.succeeded(at),
            unmanaged::Change::Lost => entry.node_lost(at),
        }
    }

    fn entry(&mut self, id: &WorkloadId) -> Option<&mut Entry> {
        self.index.get(id).map(|index| &mut self.entries[*index])
    }

    fn label(&self, id: &WorkloadId) -> String {
        // A group has no row: it takes the name of its first pod.
        let first = self.groups.get(id).and_then(|group| group.members.first());
        let row = self.index.get(first.unwrap_or(id));
        row.map_or_else(|| id.to_string(), |index| self.entries[*index].row.label())
    }

    /// The rows of a group's pods that have not ended, in order.
    fn rows_of(&self, id: &WorkloadId) -> Vec<usize> {
        let members = self.groups.get(id).into_iter().flat_map(|group| &group.members);
        let rows = members.filter_map(|member| self.index.get(member).copied());
        rows.filter(|row| !self.entries[*row].row.state.has_ended()).collect()
    }

    /// Records an event of a group.
    fn note_group(&mut self, at: Clock, preemptor: &str, happening: &Happening) {
        let id = happening.workload().clone();
        let rows = self.rows_of(&id);
        let gpus = rows.first().map_or(0.0, |row| self.entries[*row].gpus);
        match happening {
            Happening::Admitted { admission, .. } => {
                let each =
                    |(node, pods): (&Name, &u32)| std::iter::repeat_n(node.to_string(), *pods as usize);
                for (row, node) in rows.into_iter().zip(admission.nodes.iter().flat_map(each)) {
                    let nodes = [(node, 1)].into();
                    let row = &mut self.entries[row].row;
                    row.admissions.push(AdmissionRow {
                        at,
                        nodes,
                        pods: 1,
                        borrowed: admission.borrowed,
                        share: None,
                    });
                }
                self.group_changes.push((id, GroupChange::Started(admission.clone())));
            }
            Happening::Evicted { reason, lost, message, .. } => {
                for row in rows {
                    self.evict(row, at, preemptor, reason.code(), message);
                }
                self.wasted += lost.as_secs_f64() * gpus;
                self.group_changes.push((id, GroupChange::Ended));
            }
            Happening::PodsLost { node, lost, .. } => {
                for row in rows {
                    let there = self.entries[row].row.admissions.last();
                    if there.is_some_and(|admission| admission.nodes.contains_key(&**node)) {
                        self.evict(row, at, "", "NodeLost", NODE_LOST);
                    }
                }
                self.wasted += lost.as_secs_f64() * gpus;
            }
            Happening::Failed { code, message, .. } => {
                for row in rows {
                    self.entries[row].end(State::Failed, at, code, message.clone());
                }
                self.group_changes.push((id, GroupChange::Ended));
            }
            Happening::Finished { .. } => {
                for row in rows {
                    self.entries[row].succeeded(at);
                }
                self.group_changes.push((id, GroupChange::Ended));
            }
            Happening::Resized { .. } | Happening::PodsGone { .. } => {}
        }
    }

    /// Evicts a pod that cannot be queued again.
    fn evict(&mut self, row: usize, at: Clock, preemptor: &str, reason: &str, message: &str) {
        let entry = &mut self.entries[row];
        let (preemptor, reason) = (preemptor.to_owned(), reason.to_owned());
        entry.row.evictions.push(EvictionRow { at, preemptor, reason: reason.clone() });
        entry.end(State::Failed, at, &reason, message.to_owned());
        self.evictions += 1;
    }

    /// Records an event of the simulated cluster.
    pub fn note(&mut self, time: Time, happening: &Happening) {
        let at = self.clock(time);
        self.record_decision(at, happening);
        let preemptor = match happening {
            Happening::Evicted { preemptor: Some(preemptor), .. } => self.label(preemptor),
            _ => String::new(),
        };
        if self.groups.contains_key(happening.workload()) {
            self.note_group(at, &preemptor, happening);
            return;
        }
        let Some(index) = self.index.get(happening.workload()).copied() else { return };
        let entry = &mut self.entries[index];
        match happening {
            Happening::Admitted { admission, .. } => {
                entry.gpus = entry.gpus_of(admission);
                entry.row.admissions.push(admission_row(at, admission));
            }
            Happening::Resized { admission, lost, .. } => {
                entry.row.admissions.push(admission_row(at, admission));
                self.wasted += lost.as_secs_f64() * entry.gpus;
            }
            Happening::Evicted { reason, lost, message, .. } => {
                entry.row.evictions.push(EvictionRow { at, preemptor, reason: reason.code().to_owned() });
                if !entry.resumable {
                    entry.end(State::Failed, at, reason.code(), message.clone());
                }
                self.wasted += lost.as_secs_f64() * entry.gpus;
                self.evictions += 1;
            }
            Happening::PodsLost { lost, .. } => self.wasted += lost.as_secs_f64() * entry.gpus,
            Happening::PodsGone { .. } => {}
            Happening::Failed { code, message, .. } => {
                entry.end(State::Failed, at, code, message.clone());
                if *code == "NodeLost" {
                    let eviction = EvictionRow { at, preemptor: String::new(), reason: (*code).to_owned() };
                    entry.row.evictions.push(eviction);
                    self.evictions += 1;
                }
            }
            Happening::Finished { .. } => entry.succeeded(at),
        }
    }

    /// Records a decision, if requested.
    fn record_decision(&mut self, at: Clock, happening: &Happening) {
        if self.decisions.is_none() {
            return;
        }
        let nodes = |admission: &Admission| {
            admission.nodes.iter().map(|(node, pods)| (node.to_string(), *pods)).collect()
        };
        let (action, rule, preemptor, nodes, message) = match happening {
            Happening::Admitted { admission, message, .. } => {
                let rule = if admission.borrowed { "Borrowed" } else { "Guaranteed" };
                ("Admitted", rule, None, nodes(admission), message)
            }
            Happening::Resized { admission, cause, preemptor, message, .. } => {
                ("Resized", cause.code(), preemptor.as_ref(), nodes(admission), message)
            }
            Happening::Evicted { preemptor, reason, message, .. } => {
                ("Evicted", reason.code(), preemptor.as_ref(), BTreeMap::new(), message)
            }
            Happening::Failed { code, message, .. } => ("Failed", *code, None, BTreeMap::new(), message),
            Happening::PodsGone { .. } | Happening::PodsLost { .. } | Happening::Finished { .. } => return,
        };
        let id = happening.workload();
        let decision = Decision {
            at,
            action,
            rule,
            workload: self.label(id),
            team: match (self.index.get(id), self.groups.get(id)) {
                (Some(index), _) => self.entries[*index].row.team.clone(),
                (None, group) => group.map(|group| group.team.clone()).unwrap_or_default(),
            },
            preemptor: preemptor.map(|preemptor| self.label(preemptor)),
            nodes,
            message: message.clone(),
        };
        self.decisions.get_or_insert_default().push(decision);
    }

    /// The rows in their final state, the summary and the decisions.
    pub fn close(
        mut self,
        run: &Run,
        unmanaged: &UnmanagedWorkloads,
        expected_starts: &BTreeMap<WorkloadId, Time>,
    ) -> (Vec<WorkloadRow>, Summary, Option<Vec<Decision>>) {
        let groups =
            self.groups.iter().flat_map(|(id, group)| group.members.iter().map(move |pod| (pod, id)));
        let group_of: BTreeMap<&WorkloadId, &WorkloadId> = groups.collect();
        for (id, index) in &self.index {
            let id = *group_of.get(id).unwrap_or(&id);
            let entry = &mut self.entries[*index];
            if entry.row.state.has_ended() {
                continue;
            }
            if !entry.managed {
                entry.close_unmanaged(unmanaged.runs(id) == Some(true));
            } else if let Some(verdict) = run.engine().verdict(id) {
                entry.row.state = match verdict.state {
                    Phase::Held => State::Held,
                    Phase::Pending | Phase::Evicting => State::Pending,
                    Phase::Running => State::Running,
                    Phase::Finished => State::Succeeded,
                };
                entry.row.reason = verdict.reason.code().to_owned();
                entry.row.message = verdict.message;
                entry.row.eta = expected_starts.get(id).map(|at| Clock(at.since(self.began)));
            }
        }
        let managed = self.entries.iter().filter(|entry| entry.managed);
        let waits: Vec<Duration> = managed
            .filter_map(|entry| {
                Some(entry.row.admissions.first()?.at.0.saturating_sub(entry.row.submitted.0))
            })
            .collect();
        let total: f64 = waits.iter().map(Duration::as_secs_f64).sum();
        let summary = Summary {
            utilization: 0.0,
            mean_wait_seconds: if waits.is_empty() { 0.0 } else { total / count(waits.len()) },
            evictions: self.evictions,
            wasted_gpu_seconds: self.wasted,
        };
        let rows =
            self.entries.into_iter().map(|entry| WorkloadRow { gpus_per_pod: entry.gpus, ..entry.row });
        (rows.collect(), summary, self.decisions)
    }
}

/// The message of a pod that has no controller to replace it.
const NODE_LOST: &str = "its node was lost and no controller replaces it";

impl Entry {
    /// GPUs of each pod at the size of an admission.
    fn gpus_of(&self, admission: &Admission) -> f64 {
        let size = self.sizes.iter().find(|(share, _)| *share == admission.share);
        size.map_or(self.gpus, |(_, gpus)| *gpus)
    }

    fn end(&mut self, state: State, at: Clock, reason: &str, message: String) {
        self.row.state = state;
        self.row.finished = Some(at);
        self.row.reason = reason.to_owned();
        self.row.message = message;
    }

    fn succeeded(&mut self, at: Clock) {
        let since = self.row.admissions.last().map(|admission| admission.at).unwrap_or_default();
        let message = format!("all pods have succeeded; last start at {}", since.span());
        self.end(State::Succeeded, at, "Finished", message);
    }

    fn node_lost(&mut self, at: Clock) {
        self.end(State::Failed, at, "NodeLost", NODE_LOST.to_owned());
    }

    /// Sets the final state of an unmanaged workload.
    fn close_unmanaged(&mut self, runs: bool) {
        let (state, message) = match (self.row.state, runs) {
            (State::Held, _) => (State::Held, "on hold: suspended by its user"),
            (_, true) => (
                State::Running,
                "runs unmanaged: its namespace belongs to no team or has joined one later, or it names its node",
            ),
            (_, false) => (
                State::Pending,
                "no node has capacity; its namespace belongs to no team, so Sluice does not queue it",
            ),
        };
        self.row.reason = "Unmanaged".to_owned();
        if state != State::Held || self.row.message.is_empty() {
            self.row.message = message.to_owned();
        }
        self.row.state = state;
    }
}

fn admission_row(at: Clock, admission: &Admission) -> AdmissionRow {
    AdmissionRow {
        at,
        nodes: admission.nodes.iter().map(|(node, pods)| (node.to_string(), *pods)).collect(),
        pods: admission.pods,
        borrowed: admission.borrowed,
        share: admission.share.map(written),
    }
}
