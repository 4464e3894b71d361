//! Moves time along: at each instant first what ends, then what the scenario does, then decisions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::ledger::{Birth, Ledger, Turn};
use super::meter::Meter;
use super::news::News;
use super::outcome::{Clock, NodeRow, Outcome, TeamRow};
use super::read::invalid;
use super::snapshot::Snapshot;
use super::strangers::{self, Strangers};
use super::world::World;
use super::{Error, Options, Progress, eta};
use crate::engine::Engine;
use crate::engine::replay::{Life, Run};
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{Name, Observed, Time, Workload, WorkloadId};
use crate::scenario::{Change, Kind, Object, RunningOn, ScenarioError, Step};
use crate::view::amounts;

/// What is submitted at one instant is told apart by milliseconds within this span, so that the order of
/// the documents is the order of age; the engine's deadlines are looked at no finer.
const GRAIN: Duration = Duration::from_millis(100);

/// How many instants may pass on which only the engine's own deadlines were met, once nothing else is to
/// come: teams that take turns would do so for ever.
const MOST_IDLE: u32 = 1000;

/// How long the pods of a cluster take to end, where nothing else is known.
const USUAL_GRACE: Duration = Duration::from_secs(30);

/// A simulation under way.
pub struct Play {
    options: Options,
    began: Time,
    run: Run,
    world: World,
    ledger: Ledger,
    strangers: Strangers,
    meter: Meter,
    /// When something last happened.
    end: Duration,
}

impl Play {
    /// One that begins with an empty cluster.
    pub fn new(options: &Options) -> Self {
        let engine = Engine::with_settings(options.settings);
        Self {
            options: *options,
            began: Time(0),
            run: Run::new(engine, Time(0)).with_grain(GRAIN),
            world: World::new(),
            ledger: Ledger::new(Time(0), options.events),
            strangers: Strangers::default(),
            meter: Meter::new(options.timeline),
            end: Duration::ZERO,
        }
    }

    /// One that begins with what runs and waits in a cluster. What says how long it runs at most ends then,
    /// the rest runs for ever.
    pub fn of(snapshot: &Snapshot, options: &Options) -> Result<Self, ScenarioError> {
        let began = snapshot.taken;
        let mut engine = Engine::with_settings(options.settings);
        let mut world = World::new();
        for event in world.restore(snapshot)? {
            engine.apply(event, began);
        }
        let there: Vec<Workload> = engine.workloads().cloned().collect();
        let mut play = Self {
            began,
            run: Run::new(engine, began).with_grain(GRAIN),
            world,
            ledger: Ledger::new(began, options.events),
            ..Self::new(options)
        };
        for workload in there.iter().filter(|workload| workload.state != Observed::Finished) {
            let life = Life { run: workload.time_limit, completions: None, grace: USUAL_GRACE };
            play.run.adopt(&workload.id, life);
            let birth = Birth {
                kind: workload.kind.to_string(),
                namespace: workload.namespace.to_string(),
                name: workload.name.to_string(),
                at: workload.submitted,
            };
            play.ledger.submitted(birth, workload, &play.world.queue_of(workload));
            if let Observed::Admitted(admission) = &workload.state {
                play.ledger.placed(&workload.id, admission);
            }
        }
        play.meter.offers(&play.run);
        play.meter.look(Duration::ZERO, &play.run);
        Ok(play)
    }

    /// Plays all steps and what follows from them.
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
            let quiet = taken == steps.len() && !self.run.is_moving() && self.strangers.next().is_none();
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

    /// When something happens next.
    fn next(&self, step: Option<&Step>) -> Option<Duration> {
        let ends = [self.run.next(), self.strangers.next()];
        let ends = ends.into_iter().flatten().map(|at| at.since(self.began));
        ends.chain(step.map(|step| step.at)).min()
    }

    /// Lets everything happen that happens at one instant; true if anything did.
    fn instant(&mut self, now: Duration, steps: &[Step]) -> Result<bool, Error> {
        let at = self.began.after(now);
        let mut happened = !steps.is_empty() || self.strangers.next().is_some_and(|end| end <= at);
        let ledger = &mut self.ledger;
        let mut note = |time: Time, happening: &_| {
            happened = true;
            ledger.note(time, happening);
        };
        self.run.reach(at, &mut note)?;
        self.tell_world();
        self.strangers.fire(&mut self.run, &mut |id, change| self.ledger.changed(id, at, change));
        self.take(now, steps)?;
        self.strangers.place(&mut self.run, &mut |id, change| self.ledger.changed(id, at, change));
        let ledger = &mut self.ledger;
        let mut note = |time: Time, happening: &_| {
            happened = true;
            ledger.note(time, happening);
        };
        self.run.settle(&mut note)?;
        self.tell_world();
        if happened {
            self.meter.pass(now);
            let offers = |step: &Step| !step.change.object().kind.is_workload();
            if steps.iter().any(offers) {
                self.meter.offers(&self.run);
            }
            self.meter.look(now, &self.run);
        }
        Ok(happened)
    }

    /// Shows the world which groups have started or ended.
    fn tell_world(&mut self) {
        for (group, turn) in self.ledger.turns() {
            match turn {
                Turn::Started(admission) => self.world.started(&group, &admission),
                Turn::Ended => self.world.ended(&group),
            }
        }
    }

    /// Takes the steps of one instant: what workloads need first, then the rest, each in order.
    fn take(&mut self, now: Duration, steps: &[Step]) -> Result<(), Error> {
        let first =
            |step: &&Step| matches!(&step.change, Change::Apply(object) if !object.kind.is_workload());
        let submitted =
            |step: &&Step| matches!(&step.change, Change::Apply(object) if object.kind.is_workload());
        let all = steps.iter().filter(submitted).count();
        for step in steps.iter().filter(first) {
            self.step(step, self.began.after(now))?;
        }
        let mut before = 0;
        for step in steps.iter().filter(|step| !first(step)) {
            let place = age(before, all);
            before += usize::from(submitted(&step));
            self.step(step, Time(self.began.after(now).0 - place))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, submitted: Time) -> Result<(), ScenarioError> {
        let now = self.run.now();
        match &step.change {
            Change::Apply(object) => {
                let id = World::id(object);
                if object.kind.is_workload() && self.ledger.is_over(&id) {
                    return Ok(());
                }
                let news = self.world.apply(object, submitted)?;
                self.learn(news, Some(object));
                if let Some(running) = &object.running_on {
                    self.place(object, &id, running, submitted)?;
                }
            }
            Change::Delete(object) => {
                let news = self.world.delete(object);
                self.learn(news, None);
                match object.kind {
                    Kind::Job | Kind::Pod => self.ledger.deleted(&World::id(object), now),
                    Kind::Node => self.lose(&object.name),
                    _ => {}
                }
            }
            Change::Cordon(object) => {
                let news = self.world.cordon(object)?;
                self.learn(news, None);
            }
            Change::Fail(object) => {
                let news = self.world.delete(object);
                self.learn(news, None);
                self.lose(&object.name);
            }
        }
        Ok(())
    }

    fn lose(&mut self, node: &str) {
        let (ledger, now) = (&mut self.ledger, self.run.now());
        self.strangers.lose(node, &mut |id, change| ledger.changed(id, now, change));
    }

    /// Passes on what the world made of a step.
    fn learn(&mut self, news: Vec<News>, object: Option<&Arc<Object>>) {
        let now = self.run.now();
        let birth = |namespace: &Name, name: &Name, kind: String| Birth {
            kind,
            namespace: namespace.to_string(),
            name: name.to_string(),
            at: now,
        };
        for piece in news {
            match piece {
                News::Event(event) => self.run.apply(event),
                News::Member(pod, queue) => {
                    let birth = birth(&pod.namespace, &pod.name, pod.kind.to_string());
                    self.ledger.submitted(birth, &pod, &queue);
                }
                News::MemberGone { group, number } => self.run.forgo(&group, number),
                News::Submitted { workload, life, deadline, queue, members } => {
                    if self.ledger.is_over(&workload.id) {
                        continue;
                    }
                    let birth = birth(&workload.namespace, &workload.name, workload.kind.to_string());
                    if members.is_empty() {
                        self.ledger.submitted(birth, &workload, &queue);
                    } else {
                        self.ledger.group(&workload, members);
                    }
                    let id = workload.id.clone();
                    self.run.submit(workload, life);
                    self.run.set_deadline(&id, deadline);
                }
                News::Deleted(id) => {
                    self.ledger.deleted(&id, now);
                    self.run.delete(&id);
                }
                News::Stranger(stranger) => {
                    let Some(object) = object else { continue };
                    let birth = Birth {
                        kind: object.kind.to_string(),
                        namespace: object.namespace.clone().unwrap_or_default(),
                        name: object.name.clone(),
                        at: now,
                    };
                    self.ledger.stranger(birth, &stranger);
                    let nodes = nodes_of(object.running_on.as_ref(), stranger.pods);
                    let id = stranger.id.clone();
                    self.strangers.add(&mut self.run, stranger, &nodes);
                    if !nodes.is_empty() {
                        self.ledger.changed(&id, now, strangers::Change::Runs(nodes));
                    }
                }
                News::StrangerGone(id) => {
                    self.ledger.deleted(&id, now);
                    self.strangers.delete(now, &id);
                }
            }
        }
    }

    /// Lets a workload run that ran before the beginning.
    fn place(
        &mut self,
        object: &Object,
        id: &WorkloadId,
        running: &RunningOn,
        since: Time,
    ) -> Result<(), ScenarioError> {
        let wrong = |message: String| {
            invalid(object, "metadata.annotations[simulate.sluice.dev/running-on]", message)
        };
        let Some(workload) = self.run.workload(id) else { return Ok(()) };
        let (wanted, least) = (workload.pods, workload.min_pods.unwrap_or(workload.pods));
        let nodes = nodes_of(Some(running), wanted);
        let pods: u32 = nodes.values().sum();
        if pods > wanted {
            return Err(wrong(format!("names {pods} pods, but it runs {wanted} at once")));
        }
        // With fewer than it can do with, it has lost some of those it was granted.
        let granted = if pods < least { wanted } else { pods };
        let nodes: BTreeMap<Name, u32> =
            nodes.into_iter().map(|(node, pods)| (node.as_str().into(), pods)).collect();
        match self.run.place(id, nodes, granted, since) {
            Some(admission) => {
                self.ledger.placed(id, &admission);
                Ok(())
            }
            None => Err(wrong("what its user holds back does not run".to_owned())),
        }
    }

    fn outcome(mut self) -> Outcome {
        self.meter.pass(self.end);
        let etas = eta::etas(&self.run, self.run.now().max(self.began.after(self.end)));
        let engine = self.run.engine();
        let teams = engine.teams().into_iter().map(|view| {
            let promised: Vec<&Name> = view.guaranteed.keys().chain(view.limit.keys()).collect();
            let full = |list: &ResourceList| {
                let mut full = list.clone();
                for resource in &promised {
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
            NodeRow { name: view.name.to_string(), free: amounts(&free) }
        });
        let (teams, nodes) = (teams.collect(), nodes.collect());
        let (workloads, mut summary, events) = self.ledger.close(&self.run, &self.strangers, &etas);
        summary.utilization = self.meter.utilization();
        Outcome {
            end: Clock(self.end),
            workloads,
            teams,
            nodes,
            summary,
            events,
            timeline: self.meter.timeline(),
            warnings: self.world.warnings(),
        }
    }
}

/// By how many milliseconds the one with `before` others before it is older than the last of `all`.
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
