//! Advances time: at each instant first ends of pods, then steps of the scenario, then decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::applied_again::{self, Standing};
use super::cluster::Cluster;
use super::effect::Effect;
use super::expected_start::expected_starts;
use super::from_start::FromStart;
use super::objects::{RUNNING_ON, life_in_snapshot};
use super::outcome::{Clock, NodeRow, Outcome, TeamRow};
use super::recorder::{GroupChange, Recorder, Submission};
use super::snapshot::Snapshot;
use super::unmanaged::{self, UnmanagedWorkload, UnmanagedWorkloads};
use super::utilization::UtilizationMeter;
use super::{Error, Options, Progress};
use crate::engine::Engine;
use crate::engine::replay::{Happening, Run};
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{Event, Name, Observed, PodId, Time, Workload, WorkloadId};
use crate::scenario::{Change, Kind, Object, RunningOn, ScenarioError, Step};
use crate::view::{Accelerators, amounts};

/// Workloads submitted at one instant get submission times within this span, in the order of the documents. The
/// engine's deadlines are checked at this resolution.
const GRAIN: Duration = Duration::from_millis(100);

/// How many instants with only engine deadlines may follow the last step and pod end: teams that alternate would do
/// so for ever.
const MOST_IDLE: u32 = 1000;

/// A simulation in progress.
pub struct Simulation {
    options: Options,
    began: Time,
    run: Run,
    cluster: Cluster,
    recorder: Recorder,
    unmanaged: UnmanagedWorkloads,
    /// What the scenario lets run from the start, until it is checked.
    from_start: FromStart,
    meter: UtilizationMeter,
    /// Time of the last event.
    end: Duration,
}

impl Simulation {
    /// A simulation of an empty cluster.
    pub fn new(options: &Options) -> Self {
        let engine = Engine::with_settings(options.settings);
        Self {
            options: options.clone(),
            began: Time(0),
            run: Run::new(engine, Time(0)).with_grain(GRAIN).with_strays(true),
            cluster: Cluster::new(options.caps),
            recorder: Recorder::new(Time(0), options.events, options.accelerators.clone()),
            unmanaged: UnmanagedWorkloads::default(),
            from_start: FromStart::default(),
            meter: UtilizationMeter::new(options.timeline, options.accelerators.clone()),
            end: Duration::ZERO,
        }
    }

    /// A simulation that starts with a cluster's snapshot. Running workloads end at their time limit, and run for
    /// ever without one.
    pub fn of(snapshot: &Snapshot, options: &Options) -> Result<Self, ScenarioError> {
        let began = snapshot.taken;
        let mut engine = Engine::with_settings(options.settings);
        let mut cluster = Cluster::new(options.caps);
        for event in cluster.restore(snapshot)? {
            engine.apply(event, began);
        }
        let workloads: Vec<Arc<Workload>> = engine.workloads().cloned().collect();
        let mut simulation = Self {
            began,
            run: Run::new(engine, began).with_grain(GRAIN).with_strays(true),
            cluster,
            recorder: Recorder::new(began, options.events, options.accelerators.clone()),
            ..Self::new(options)
        };
        simulation.learn_accelerators();
        for workload in workloads.iter().filter(|workload| workload.state != Observed::Finished) {
            simulation.run.adopt(&workload.id, life_in_snapshot(workload));
            let submission = Submission {
                kind: workload.kind.to_string(),
                namespace: workload.namespace.to_string(),
                name: workload.name.to_string(),
                at: workload.submitted,
            };
            let queue = simulation.cluster.queue_of(workload);
            simulation.recorder.submitted(submission, workload, &queue);
            if let Observed::Admitted(admission) = &workload.state {
                simulation.recorder.placed(&workload.id, admission);
            }
        }
        simulation.meter.read_capacity(&simulation.run);
        simulation.meter.read_usage(Duration::ZERO, &simulation.run);
        Ok(simulation)
    }

    /// Plays all steps and their consequences.
    pub fn run(mut self, steps: &[Step], on: &mut dyn FnMut(Progress)) -> Result<Outcome, Error> {
        let mut taken = 0;
        let mut idle = 0;
        while let Some(now) = self.next(steps.get(taken)) {
            if self.options.until.is_some_and(|until| now > until) {
                break;
            }
            let due = steps[taken..].iter().take_while(|step| step.at <= now).count();
            let happened = self.instant(now, &steps[taken..taken + due])?;
            taken += due;
            on(Progress { steps: taken, now: Clock(now) });
            if happened {
                self.end = now;
            }
            let quiet = taken == steps.len() && !self.run.is_moving() && self.unmanaged.next().is_none();
            idle = if quiet { idle + 1 } else { 0 };
            if idle > MOST_IDLE && self.options.until.is_none() {
                break;
            }
        }
        if let Some(until) = self.options.until {
            self.end = until;
        }
        Ok(self.outcome())
    }

    /// The time of the next event.
    fn next(&self, step: Option<&Step>) -> Option<Duration> {
        let ends = [self.run.next(), self.unmanaged.next()];
        let ends = ends.into_iter().flatten().map(|at| at.since(self.began));
        ends.chain(step.map(|step| step.at)).min()
    }

    /// Plays one instant; true if anything happened.
    fn instant(&mut self, now: Duration, steps: &[Step]) -> Result<bool, Error> {
        let at = self.began.after(now);
        let mut happened = !steps.is_empty() || self.unmanaged.next().is_some_and(|end| end <= at);
        let mut notes =
            Notes { recorder: &mut self.recorder, unmanaged: &self.unmanaged, evicted: Vec::new() };
        self.run.reach(at, &mut |time, happening| notes.take(time, happening, &mut happened))?;
        let evicted = notes.evicted;
        self.update_groups();
        self.evict_unadmitted(&evicted, at);
        self.unmanaged.end_due(&mut self.run, &mut |id, change| self.recorder.changed(id, at, change));
        self.take(now, steps)?;
        loop {
            self.unmanaged.start_pods(&mut self.run, &mut |id, change| self.recorder.changed(id, at, change));
            let mut notes =
                Notes { recorder: &mut self.recorder, unmanaged: &self.unmanaged, evicted: Vec::new() };
            self.run.settle(&mut |time, happening| notes.take(time, happening, &mut happened))?;
            let evicted = notes.evicted;
            self.update_groups();
            if evicted.is_empty() {
                break;
            }
            self.evict_unadmitted(&evicted, at);
        }
        if happened {
            self.meter.advance(now);
            if steps.iter().any(|step| !step.change.object().kind.is_workload()) {
                self.meter.read_capacity(&self.run);
            }
            self.meter.read_usage(now, &self.run);
        }
        Ok(happened)
    }

    /// Ends pods that were never admitted and are evicted; those without a grace at once.
    fn evict_unadmitted(&mut self, pods: &[PodId], at: Time) {
        for pod in pods {
            // A pod of the snapshot has no entry.
            if self.unmanaged.owner(pod).is_none() {
                self.run.apply(Event::PodRemoved(pod.clone()));
            }
            self.unmanaged.evict(&mut self.run, pod);
        }
        self.unmanaged.end_due(&mut self.run, &mut |id, change| self.recorder.changed(id, at, change));
    }

    /// Updates the pods of groups that have started or ended.
    fn update_groups(&mut self) {
        for (group, change) in self.recorder.take_group_changes() {
            match change {
                GroupChange::Started(admission) => self.cluster.started(&group, &admission),
                GroupChange::Ended => self.cluster.ended(&group),
            }
        }
    }

    /// Takes the steps of one instant: objects that workloads depend on first, then the rest, each in order.
    fn take(&mut self, now: Duration, steps: &[Step]) -> Result<(), Error> {
        let first =
            |step: &&Step| matches!(&step.change, Change::Apply(object) if !object.kind.is_workload());
        let submitted =
            |step: &&Step| matches!(&step.change, Change::Apply(object) if object.kind.is_workload());
        let all = steps.iter().filter(submitted).count();
        for step in steps.iter().filter(first) {
            self.step(step, self.began.after(now))?;
        }
        if steps.iter().any(|step| step.change.object().kind == Kind::Team) {
            self.learn_accelerators();
        }
        let mut before = 0;
        for step in steps.iter().filter(|step| !first(step)) {
            let age = age(before, all);
            before += usize::from(submitted(&step));
            self.step(step, Time(self.began.after(now).0 - age))?;
        }
        if !self.from_start.is_empty() {
            std::mem::take(&mut self.from_start).check(&self.run.engine().nodes())?;
        }
        Ok(())
    }

    /// Counts the device resources in the teams' quotas as GPUs.
    fn learn_accelerators(&mut self) {
        let accelerators = self.accelerators();
        self.recorder.count(accelerators.clone());
        self.meter.count(accelerators);
    }

    fn accelerators(&self) -> Accelerators {
        let listed = self.run.engine().resources_in_quotas();
        self.options.accelerators.with_quotas(listed.iter().map(|resource| &**resource))
    }

    fn step(&mut self, step: &Step, submitted: Time) -> Result<(), ScenarioError> {
        let now = self.run.now();
        match &step.change {
            Change::Apply(object) => {
                let id = Cluster::id(object);
                if object.kind.is_workload() && self.recorder.has_ended(&id) {
                    return Ok(());
                }
                let standing = self.standing(&id);
                let effects = self.cluster.apply(object, submitted, &standing)?;
                self.handle(effects, Some(object));
                if object.kind == Kind::Namespace {
                    let team = self.cluster.team_of(&object.name);
                    self.unmanaged.set_team(&mut self.run, &object.name, team.as_ref());
                }
                if let Some(running) = &object.running_on {
                    self.place(object, &id, running, submitted)?;
                }
            }
            Change::Delete(object) => {
                let effects = self.cluster.delete(object);
                self.handle(effects, None);
                match object.kind {
                    Kind::Job | Kind::Pod => self.recorder.deleted(&Cluster::id(object), now),
                    Kind::Node => self.lose_node(&object.name),
                    _ => {}
                }
            }
            Change::Cordon(object) => {
                let effects = self.cluster.cordon(object)?;
                self.handle(effects, None);
            }
            Change::Fail(object) => {
                let effects = self.cluster.delete(object);
                self.handle(effects, None);
                self.lose_node(&object.name);
            }
        }
        Ok(())
    }

    /// How far a workload has come.
    fn standing(&self, id: &WorkloadId) -> Standing {
        if self.unmanaged.runs(id) == Some(true) {
            return Standing::Runs(applied_again::Run::default());
        }
        match self.run.workload(id) {
            Some(Workload { state: Observed::Admitted(admission), pods, .. }) => {
                let part = admission.pods < *pods;
                Standing::Runs(applied_again::Run { admission: Some(admission.clone()), part })
            }
            Some(_) if self.run.has_pods(id) => Standing::Stops,
            _ => Standing::Waits,
        }
    }

    fn lose_node(&mut self, node: &str) {
        let (recorder, now) = (&mut self.recorder, self.run.now());
        self.unmanaged.lose_node(node, &mut |id, change| recorder.changed(id, now, change));
    }

    /// Applies the effects of a step.
    fn handle(&mut self, effects: Vec<Effect>, object: Option<&Arc<Object>>) {
        let now = self.run.now();
        let submission = |namespace: &Name, name: &Name, kind: String| Submission {
            kind,
            namespace: namespace.to_string(),
            name: name.to_string(),
            at: now,
        };
        for effect in effects {
            match effect {
                Effect::Event(event) => self.run.apply(event),
                Effect::Member(pod, queue) => {
                    let submission = submission(&pod.namespace, &pod.name, pod.kind.to_string());
                    self.recorder.submitted(submission, &pod, &queue);
                }
                Effect::MemberDeleted { group, number } => self.run.forgo(&group, number),
                Effect::Submitted { workload, life, deadline, queue, members } => {
                    // What runs unmanaged runs on like that.
                    if self.recorder.has_ended(&workload.id)
                        || self.unmanaged.runs(&workload.id) == Some(true)
                    {
                        continue;
                    }
                    self.unmanaged.forget(&workload.id);
                    let submission =
                        submission(&workload.namespace, &workload.name, workload.kind.to_string());
                    if members.is_empty() {
                        self.recorder.submitted(submission, &workload, &queue);
                    } else {
                        self.recorder.group(&workload, members);
                    }
                    let id = workload.id.clone();
                    self.run.submit(workload, life);
                    self.run.set_deadline(&id, deadline);
                }
                Effect::Deleted(id) => {
                    self.recorder.deleted(&id, now);
                    self.run.delete(&id);
                }
                Effect::Left(workload) => self.leave(workload),
                Effect::Unmanaged(workload) => {
                    let Some(object) = object else { continue };
                    let submission = Submission {
                        kind: object.kind.to_string(),
                        namespace: object.namespace.clone().unwrap_or_default(),
                        name: object.name.clone(),
                        at: now,
                    };
                    self.recorder.submitted_unmanaged(submission, &workload);
                    let nodes = nodes_of(object.running_on.as_ref(), workload.pods);
                    if !nodes.is_empty() {
                        self.from_start.add(object, nodes.clone(), &workload.shape.requests);
                    }
                    let id = workload.id.clone();
                    self.unmanaged.add(&mut self.run, workload, &nodes);
                    if !nodes.is_empty() {
                        self.recorder.changed(&id, now, unmanaged::Change::Runs(nodes));
                    }
                }
                Effect::UnmanagedDeleted(id) => {
                    self.recorder.deleted(&id, now);
                    self.unmanaged.delete(now, &id);
                }
            }
        }
    }

    /// A workload has left its team: what runs of it runs on, and what waits stays suspended.
    fn leave(&mut self, workload: UnmanagedWorkload) {
        let id = workload.id.clone();
        let granted = match self.run.workload(&id).map(|workload| &workload.state) {
            Some(Observed::Admitted(admission)) => Some(admission.pods),
            _ => None,
        };
        let left = self.run.leave(&id);
        let pods = granted.unwrap_or(workload.pods);
        let workload = UnmanagedWorkload { pods, held: granted.is_none(), ..workload };
        self.recorder.left(&id, workload.held);
        self.unmanaged.take_over(&mut self.run, workload, left);
    }

    /// Places a workload that has been running since before the start.
    fn place(
        &mut self,
        object: &Arc<Object>,
        id: &WorkloadId,
        running: &RunningOn,
        since: Time,
    ) -> Result<(), ScenarioError> {
        let wrong = |message: String| object.invalid(RUNNING_ON, message);
        let Some(workload) = self.run.workload(id) else { return Ok(()) };
        let (wanted, least) = (workload.pods, workload.min_pods.unwrap_or(workload.pods));
        let requests = workload.requests().clone();
        let on = nodes_of(Some(running), wanted);
        let pods: u32 = on.values().sum();
        if pods > wanted {
            return Err(wrong(format!("names {pods} pods, but it runs {wanted} at once")));
        }
        // Fewer pods than its minimum: it has lost some of the pods it was granted.
        let granted = if pods < least { wanted } else { pods };
        let nodes: BTreeMap<Name, u32> =
            on.iter().map(|(node, pods)| (node.as_str().into(), *pods)).collect();
        match self.run.place(id, nodes, granted, since) {
            Some(admission) => {
                self.recorder.placed(id, &admission);
                self.from_start.add(object, on, &requests);
                Ok(())
            }
            None => Err(wrong("the workload is suspended".to_owned())),
        }
    }

    fn outcome(mut self) -> Outcome {
        self.meter.advance(self.end);
        let accelerators = self.accelerators();
        let expected_starts = expected_starts(&self.run, self.run.now().max(self.began.after(self.end)));
        let engine = self.run.engine();
        let teams = engine.teams().into_iter().map(|view| {
            let listed: Vec<&Name> = view.guaranteed.keys().chain(view.limit.keys()).collect();
            let full = |list: &ResourceList| {
                let mut full = list.clone();
                for resource in &listed {
                    full.entry((*resource).clone()).or_default();
                }
                amounts(&full)
            };
            TeamRow {
                name: view.team.to_string(),
                pool: view.pool.to_string(),
                guaranteed: amounts(&view.guaranteed),
                used: full(&view.used),
                borrowed: full(&view.borrowed),
                fair_share: amounts(&view.fair_share),
            }
        });
        let nodes = engine.nodes().into_iter().map(|view| {
            let mut free = view.free.clone();
            for resource in view.allocatable.keys() {
                free.entry(resource.clone()).or_default();
            }
            let gpus = accelerators.count(&view.allocatable);
            NodeRow { name: view.name.to_string(), free: amounts(&free), gpus }
        });
        let (teams, nodes) = (teams.collect(), nodes.collect());
        let (workloads, mut summary, events) =
            self.recorder.close(&self.run, &self.unmanaged, &expected_starts);
        summary.utilization = self.meter.utilization();
        Outcome {
            end: Clock(self.end),
            workloads,
            teams,
            nodes,
            summary,
            events,
            timeline: self.meter.timeline(),
            warnings: self.cluster.warnings(),
            accelerators,
        }
    }
}

/// Takes note of what happens in an instant.
struct Notes<'a> {
    recorder: &'a mut Recorder,
    unmanaged: &'a UnmanagedWorkloads,
    /// The pods that were never admitted and are evicted.
    evicted: Vec<PodId>,
}

impl Notes<'_> {
    fn take(&mut self, time: Time, happening: &Happening, happened: &mut bool) {
        *happened = true;
        let Some(pod) = happening.workload().unadmitted_pod() else {
            return self.recorder.note(time, happening);
        };
        // The row is that of the object.
        let mut happening = happening.clone();
        if let (Happening::Evicted { id, .. }, Some(owner)) = (&mut happening, self.unmanaged.owner(&pod)) {
            *id = owner.clone();
        }
        self.recorder.note(time, &happening);
        self.evicted.push(pod);
    }
}

/// Milliseconds by which the submission with this number of earlier ones is older than the last of `all`.
fn age(before: usize, all: usize) -> i64 {
    let most = GRAIN.as_millis().saturating_sub(1);
    let (after, span) = (all.saturating_sub(before + 1) as u128, all.saturating_sub(1) as u128);
    let age = if span <= most { after } else { after * most / span };
    i64::try_from(age).unwrap_or(0)
}

fn nodes_of(running: Option<&RunningOn>, pods: u32) -> BTreeMap<String, u32> {
    match running {
        None => BTreeMap::new(),
        Some(RunningOn::Node(node)) => [(node.clone(), pods)].into(),
        Some(RunningOn::Pods(nodes)) => nodes.clone(),
    }
}
