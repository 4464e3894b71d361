//! The rows of the outcome, filled in as things happen.

use std::collections::BTreeMap;
use std::time::Duration;

use super::outcome::{AdmissionRow, Clock, Decision, EvictionRow, State, Summary, WorkloadRow};
use super::strangers;
use crate::api::sizes::written;
use crate::engine::replay::{Happening, Run};
use crate::engine::types::State as Phase;
use crate::engine::types::amount::Amount;
use crate::engine::types::{Admission, Name, Time, Workload, WorkloadId};
use crate::view::gpus;

/// One workload's row, with what figures need besides.
#[derive(Clone, Debug)]
struct Entry {
    row: WorkloadRow,
    /// What each of its pods has.
    gpus: f64,
    /// The same at each of its sizes.
    sizes: Vec<(Option<Amount>, f64)>,
    managed: bool,
    resumable: bool,
}

/// Pods that are one workload; each has a row of its own.
#[derive(Debug)]
struct Group {
    team: String,
    members: Vec<WorkloadId>,
}

/// What becomes of a group.
#[derive(Debug)]
pub enum Turn {
    /// Its pods have started.
    Started(Admission),
    /// None of them runs any more.
    Ended,
}

/// All rows.
#[derive(Debug)]
pub struct Ledger {
    began: Time,
    entries: Vec<Entry>,
    /// The latest of that identity: what was deleted can be made anew.
    index: BTreeMap<WorkloadId, usize>,
    groups: BTreeMap<WorkloadId, Group>,
    /// What has become of groups and has not been passed on.
    turns: Vec<(WorkloadId, Turn)>,
    decisions: Option<Vec<Decision>>,
    evictions: u64,
    wasted: f64,
}

/// What a row begins with.
#[derive(Clone, Debug)]
pub struct Birth {
    /// `Job` or `Pod`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// When it was submitted.
    pub at: Time,
}

impl Ledger {
    /// An empty one; decisions are written down where they are asked for.
    #[must_use]
    pub fn new(began: Time, decisions: bool) -> Self {
        Self {
            began,
            entries: Vec::new(),
            index: BTreeMap::new(),
            groups: BTreeMap::new(),
            turns: Vec::new(),
            decisions: decisions.then(Vec::new),
            evictions: 0,
            wasted: 0.0,
        }
    }

    /// A time as it is told.
    #[must_use]
    pub fn clock(&self, at: Time) -> Clock {
        Clock(at.since(self.began))
    }

    /// A workload was submitted or changed; one that is over and comes again as it was is nothing new.
    pub fn submitted(&mut self, birth: Birth, workload: &Workload, queue: &str) {
        let at = self.clock(birth.at);
        let entry = self.open(birth, workload.id.clone(), at);
        entry.managed = true;
        entry.resumable = workload.resumable;
        entry.gpus = gpus(workload.requests());
        let sizes = workload.sizes.iter().map(|size| (Some(size.share), gpus(&size.requests)));
        entry.sizes = std::iter::once((None, gpus(&workload.shape.requests))).chain(sizes).collect();
        entry.row.team = workload.team.to_string();
        entry.row.queue = queue.to_owned();
    }

    /// These pods, which have their rows, are one workload.
    pub fn group(&mut self, workload: &Workload, members: Vec<WorkloadId>) {
        let team = workload.team.to_string();
        self.groups.insert(workload.id.clone(), Group { team, members });
    }

    /// What has become of groups since this was last asked.
    pub fn turns(&mut self) -> Vec<(WorkloadId, Turn)> {
        std::mem::take(&mut self.turns)
    }

    /// Something that Sluice does not manage was submitted.
    pub fn stranger(&mut self, birth: Birth, stranger: &strangers::Stranger) {
        let at = self.clock(birth.at);
        let entry = self.open(birth, stranger.id.clone(), at);
        entry.gpus = gpus(&stranger.shape.requests);
        entry.row.state = if stranger.held { State::Held } else { State::Pending };
    }

    fn open(&mut self, birth: Birth, id: WorkloadId, at: Clock) -> &mut Entry {
        let index = *self.index.entry(id).or_insert(self.entries.len());
        if index == self.entries.len() {
            let row = WorkloadRow {
                kind: birth.kind,
                namespace: birth.namespace,
                name: birth.name,
                submitted: at,
                ..WorkloadRow::default()
            };
            self.entries.push(Entry { row, gpus: 0.0, sizes: Vec::new(), managed: false, resumable: false });
        }
        &mut self.entries[index]
    }

    /// Whether a workload has ended.
    #[must_use]
    pub fn is_over(&self, id: &WorkloadId) -> bool {
        self.index.get(id).is_some_and(|index| self.entries[*index].row.state.is_over())
    }

    /// A workload runs since before the beginning.
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
            if !entry.row.state.is_over() {
                entry.over(State::Failed, at, "Deleted", "was deleted".to_owned());
            }
        }
    }

    /// Something happened to one that Sluice does not manage.
    pub fn changed(&mut self, id: &WorkloadId, at: Time, change: strangers::Change) {
        let at = self.clock(at);
        let Some(entry) = self.entry(id) else { return };
        match change {
            strangers::Change::Runs(nodes) => {
                let pods = nodes.values().sum();
                entry.row.admissions.push(AdmissionRow { at, nodes, pods, borrowed: false, share: None });
            }
            strangers::Change::Succeeded => entry.succeeded(at),
            strangers::Change::Lost => entry.node_lost(at),
        }
    }

    fn entry(&mut self, id: &WorkloadId) -> Option<&mut Entry> {
        self.index.get(id).map(|index| &mut self.entries[*index])
    }

    fn label(&self, id: &WorkloadId) -> String {
        // A group has no row of its own: it goes by the name of its first pod.
        let first = self.groups.get(id).and_then(|group| group.members.first());
        let row = self.index.get(first.unwrap_or(id));
        row.map_or_else(|| id.to_string(), |index| self.entries[*index].row.label())
    }

    /// The rows of a group's pods that have not ended, in order.
    fn rows_of(&self, id: &WorkloadId) -> Vec<usize> {
        let members = self.groups.get(id).into_iter().flat_map(|group| &group.members);
        let rows = members.filter_map(|member| self.index.get(member).copied());
        rows.filter(|row| !self.entries[*row].row.state.is_over()).collect()
    }

    /// Takes note of something that the run tells of a group.
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
                self.turns.push((id, Turn::Started(admission.clone())));
            }
            Happening::Evicted { reason, lost, message, .. } => {
                for row in rows {
                    self.evict(row, at, preemptor, reason.code(), message);
                }
                self.wasted += lost.as_secs_f64() * gpus;
                self.turns.push((id, Turn::Ended));
            }
            Happening::PodsLost { node, lost, .. } => {
                for row in rows {
                    let there = self.entries[row].row.admissions.last();
                    if there.is_some_and(|admission| admission.nodes.contains_key(&**node)) {
                        self.evict(row, at, "", "NodeLost", "its node was lost, and nothing makes it anew");
                    }
                }
                self.wasted += lost.as_secs_f64() * gpus;
            }
            Happening::Failed { code, message, .. } => {
                for row in rows {
                    self.entries[row].over(State::Failed, at, code, message.clone());
                }
                self.turns.push((id, Turn::Ended));
            }
            Happening::Finished { .. } => {
                for row in rows {
                    self.entries[row].succeeded(at);
                }
                self.turns.push((id, Turn::Ended));
            }
            Happening::Resized { .. } | Happening::PodsGone { .. } => {}
        }
    }

    /// A pod that does not come back is evicted.
    fn evict(&mut self, row: usize, at: Clock, preemptor: &str, reason: &str, message: &str) {
        let entry = &mut self.entries[row];
        let (preemptor, reason) = (preemptor.to_owned(), reason.to_owned());
        entry.row.evictions.push(EvictionRow { at, preemptor, reason: reason.clone() });
        entry.over(State::Failed, at, &reason, message.to_owned());
        self.evictions += 1;
    }

    /// Takes note of something that the run tells.
    pub fn note(&mut self, time: Time, happening: &Happening) {
        let at = self.clock(time);
        self.decide(at, happening);
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
                entry.gpus = entry.of_size(admission);
                entry.row.admissions.push(admission_row(at, admission));
            }
            Happening::Resized { admission, lost, .. } => {
                entry.row.admissions.push(admission_row(at, admission));
                self.wasted += lost.as_secs_f64() * entry.gpus;
            }
            Happening::Evicted { reason, lost, message, .. } => {
                entry.row.evictions.push(EvictionRow { at, preemptor, reason: reason.code().to_owned() });
                if !entry.resumable {
                    entry.over(State::Failed, at, reason.code(), message.clone());
                }
                self.wasted += lost.as_secs_f64() * entry.gpus;
                self.evictions += 1;
            }
            Happening::PodsLost { lost, .. } => self.wasted += lost.as_secs_f64() * entry.gpus,
            Happening::PodsGone { .. } => {}
            Happening::Failed { code, message, .. } => {
                entry.over(State::Failed, at, code, message.clone());
                if *code == "NodeLost" {
                    let eviction = EvictionRow { at, preemptor: String::new(), reason: (*code).to_owned() };
                    entry.row.evictions.push(eviction);
                    self.evictions += 1;
                }
            }
            Happening::Finished { .. } => entry.succeeded(at),
        }
    }

    fn decide(&mut self, at: Clock, happening: &Happening) {
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

    /// The rows, with where everything stands now, and the figures that follow from them.
    pub fn close(
        mut self,
        run: &Run,
        strangers: &strangers::Strangers,
        etas: &BTreeMap<WorkloadId, Time>,
    ) -> (Vec<WorkloadRow>, Summary, Option<Vec<Decision>>) {
        let with = self.groups.iter().flat_map(|(id, group)| group.members.iter().map(move |pod| (pod, id)));
        let with: BTreeMap<&WorkloadId, &WorkloadId> = with.collect();
        for (id, index) in &self.index {
            let id = *with.get(id).unwrap_or(&id);
            let entry = &mut self.entries[*index];
            if entry.row.state.is_over() {
                continue;
            }
            if !entry.managed {
                entry.stands_alone(strangers.runs(id) == Some(true));
            } else if let Some(verdict) = run.engine().verdict(id) {
                entry.row.state = match verdict.state {
                    Phase::Held => State::Held,
                    Phase::Pending | Phase::Evicting => State::Pending,
                    Phase::Running => State::Running,
                    Phase::Finished => State::Succeeded,
                };
                entry.row.reason = verdict.reason.code().to_owned();
                entry.row.message = verdict.message;
                entry.row.eta = etas.get(id).map(|at| Clock(at.since(self.began)));
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
        (self.entries.into_iter().map(|entry| entry.row).collect(), summary, self.decisions)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of workloads, for a mean shown to people")]
fn count(number: usize) -> f64 {
    number as f64
}

impl Entry {
    /// The GPUs of each of its pods by an admission.
    fn of_size(&self, admission: &Admission) -> f64 {
        let size = self.sizes.iter().find(|(share, _)| *share == admission.share);
        size.map_or(self.gpus, |(_, gpus)| *gpus)
    }

    fn over(&mut self, state: State, at: Clock, reason: &str, message: String) {
        self.row.state = state;
        self.row.finished = Some(at);
        self.row.reason = reason.to_owned();
        self.row.message = message;
    }

    fn succeeded(&mut self, at: Clock) {
        let since = self.row.admissions.last().map(|admission| admission.at).unwrap_or_default();
        let message = format!("all its pods have succeeded; it last started at {since}");
        self.over(State::Succeeded, at, "Finished", message);
    }

    fn node_lost(&mut self, at: Clock) {
        let message = "its node was lost, and nothing makes it anew".to_owned();
        self.over(State::Failed, at, "NodeLost", message);
    }

    fn stands_alone(&mut self, runs: bool) {
        let (state, message) = match (self.row.state, runs) {
            (State::Held, _) => (State::Held, "suspended by its user"),
            (_, true) => (
                State::Running,
                "runs without Sluice: its namespace belongs to no team, or it names its node",
            ),
            (_, false) => (
                State::Pending,
                "no node has room; its namespace belongs to no team, so Sluice does not queue it",
            ),
        };
        self.row.state = state;
        self.row.reason = "Unmanaged".to_owned();
        self.row.message = message.to_owned();
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
