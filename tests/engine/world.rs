//! A small world for the engine to act on: it carries actions out, keeps its own books, and knows
//! from them, not from the engine, what every law allows.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sluice_engine::Engine;
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{Action, EvictReason, Reason, State};
use sluice_engine::types::{
    Admission, Event, Name, Node, Observed, Pod, PodId, PodShape, Queue, Quota, Settings, Team, Time,
    Workload, WorkloadId,
};

pub const GPU: &str = "nvidia.com/gpu";

/// Where a workload stands in the world.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    Queued,
    Running(Admission),
    /// Told to stop at that time; its pods still hold what the admission says.
    Ending(Admission, Time),
    Finished,
}

#[derive(Clone, Debug)]
pub struct Item {
    pub workload: Workload,
    pub gpus: i64,
    pub stage: Stage,
}

impl Item {
    pub fn total(&self) -> i64 {
        self.gpus * i64::from(self.workload.pods)
    }

    pub fn preemptible(&self) -> bool {
        self.workload.queue.as_deref() != Some("fixed")
    }
}

pub struct World {
    pub engine: Engine,
    /// With which an engine is made.
    pub settings: Settings,
    pub now: Time,
    pub nodes: BTreeMap<Name, (i64, bool)>,
    pub teams: BTreeMap<Name, Team>,
    pub items: BTreeMap<WorkloadId, Item>,
    /// GPUs that pods of others hold, by pod.
    pub foreign: BTreeMap<PodId, (Name, i64)>,
    /// Decided, not yet written.
    pub in_flight: Vec<Action>,
    /// Every action ever decided.
    pub log: Vec<String>,
    pub evicted_for: BTreeMap<WorkloadId, BTreeSet<WorkloadId>>,
    /// Who was told to stop where it runs because it goes on elsewhere.
    pub moving: BTreeSet<WorkloadId>,
    submitted: usize,
    foreign_made: usize,
}

/// A decision in one line.
fn told(action: &Action) -> String {
    let nodes = |admission: &Admission| {
        let nodes: Vec<String> =
            admission.nodes.iter().map(|(node, pods)| format!("{node}:{pods}")).collect();
        nodes.join(",")
    };
    match action {
        Action::Admit { workload, admission, .. } => {
            format!(
                "Admit {workload} on {} at {} borrowed {}",
                nodes(admission),
                admission.at.0,
                admission.borrowed
            )
        }
        Action::Resize { workload, admission, cause, preemptor, .. } => {
            format!("Resize {workload} to {} {cause:?} for {preemptor:?}", nodes(admission))
        }
        Action::Evict { workload, preemptor, reason, .. } => {
            format!("Evict {workload} for {} {reason:?}", preemptor.as_ref().map_or("nobody", |id| &id.0))
        }
        Action::Fail { workload, reason, .. } => format!("Fail {workload} {reason:?}"),
    }
}

pub fn gpus(count: i64) -> ResourceList {
    ResourceList::from([(GPU.into(), Amount::units(count))])
}

pub fn team(name: &str, parent: Option<&str>, guaranteed: i64, limit: Option<i64>) -> Team {
    let quota = Quota {
        guaranteed: gpus(guaranteed),
        limit: limit.map(gpus).unwrap_or_default(),
        lendable: ResourceList::new(),
    };
    Team {
        name: name.into(),
        parent: parent.map(Into::into),
        quotas: BTreeMap::from([("default".into(), quota)]),
        weight: 1,
        fair_users: false,
        queues: vec![
            Queue { name: "train".into(), ..Queue::fallback() },
            Queue { name: "fixed".into(), preemptible: false, ..Queue::fallback() },
            Queue { name: "slow".into(), min_runtime: Duration::from_secs(60), ..Queue::fallback() },
        ],
    }
}

impl World {
    pub fn new(nodes: &[i64], teams: Vec<Team>) -> Self {
        let mut world = Self {
            engine: Engine::new(),
            settings: Settings::default(),
            now: Time(0),
            nodes: nodes.iter().enumerate().map(|(i, n)| (format!("n{i}").into(), (*n, true))).collect(),
            teams: teams.into_iter().map(|team| (team.name.clone(), team)).collect(),
            items: BTreeMap::new(),
            foreign: BTreeMap::new(),
            in_flight: Vec::new(),
            log: Vec::new(),
            evicted_for: BTreeMap::new(),
            moving: BTreeSet::new(),
            submitted: 0,
            foreign_made: 0,
        };
        world.rebuild();
        world
    }

    /// Starts a new engine from the objects alone. What was decided and not written is lost.
    pub fn rebuild(&mut self) {
        self.engine = Engine::with_settings(self.settings);
        self.in_flight.clear();
        self.moving.clear();
        let mut events: Vec<Event> = self.teams.values().cloned().map(Event::TeamApplied).collect();
        events.extend(self.nodes.keys().map(|name| Event::NodeApplied(self.node(name))));
        events.extend(self.items.values().map(|item| Event::WorkloadApplied(self.seen(item))));
        events.extend(self.pods().into_iter().map(Event::PodApplied));
        for event in events {
            self.engine.apply(event, self.now);
        }
    }

    pub fn node(&self, name: &Name) -> Node {
        let (count, schedulable) = self.nodes[name];
        Node {
            name: name.clone(),
            labels: BTreeMap::new(),
            allocatable: gpus(count),
            taints: Vec::new(),
            schedulable,
        }
    }

    /// The workload as its object shows it now.
    fn seen(&self, item: &Item) -> Workload {
        let state = match &item.stage {
            Stage::Queued => Observed::Queued,
            Stage::Running(admission) => Observed::Admitted(admission.clone()),
            Stage::Ending(admission, since) => {
                Observed::Leaving { admission: admission.clone(), since: *since, stopped: true }
            }
            Stage::Finished => Observed::Finished,
        };
        Workload { state, ..item.workload.clone() }
    }

    fn pods_of(&self, item: &Item) -> Vec<Pod> {
        let (Stage::Running(admission) | Stage::Ending(admission, _)) = &item.stage else {
            return Vec::new();
        };
        let mut pods = Vec::new();
        for (node, count) in admission.nodes.iter().filter(|(node, _)| self.nodes.contains_key(*node)) {
            for i in 0..*count {
                pods.push(Pod {
                    id: PodId(format!("{}/{node}/{i}", item.workload.id).into()),
                    workload: Some(item.workload.id.clone()),
                    node: Some(node.clone()),
                    requests: gpus(item.gpus),
                });
            }
        }
        pods
    }

    fn pods(&self) -> Vec<Pod> {
        let mut pods: Vec<Pod> = self.items.values().flat_map(|item| self.pods_of(item)).collect();
        pods.extend(self.foreign.iter().map(|(id, (node, count))| Pod {
            id: id.clone(),
            workload: None,
            node: Some(node.clone()),
            requests: gpus(*count),
        }));
        pods
    }

    pub fn submit(
        &mut self,
        team: &Name,
        queue: &str,
        priority: i32,
        pods: u32,
        gpus_each: i64,
    ) -> WorkloadId {
        self.submitted += 1;
        let name = format!("w{}", self.submitted);
        let shape = PodShape { requests: gpus(gpus_each), ..PodShape::default() };
        let workload = Workload {
            queue: Some(queue.into()),
            priority,
            user: Some(format!("u{}", self.submitted % 3).into()),
            resizable: true,
            ..Workload::job(team, &name.into(), pods, shape, self.now)
        };
        let id = workload.id.clone();
        self.engine.apply(Event::WorkloadApplied(workload.clone()), self.now);
        self.items.insert(id.clone(), Item { workload, gpus: gpus_each, stage: Stage::Queued });
        id
    }

    /// Plans and notes what was decided.
    pub fn plan(&mut self) -> Vec<Action> {
        let actions = self.engine.plan(self.now).actions;
        for action in &actions {
            self.log.push(told(action));
            if let Action::Evict { workload, reason: EvictReason::Moved, .. } = action {
                self.moving.insert(workload.clone());
            }
            if let Action::Evict { workload, preemptor: Some(preemptor), .. } = action {
                self.evicted_for.entry(preemptor.clone()).or_default().insert(workload.clone());
            }
        }
        self.in_flight.extend(actions.clone());
        actions
    }

    /// Carries one decided action out, or reports that its write failed.
    pub fn deliver(&mut self, index: usize, success: bool) {
        let action = self.in_flight.remove(index);
        let id = action.workload().clone();
        let Some(item) = self.items.get(&id).cloned() else { return };
        if !success {
            let message = "the API server said no".to_owned();
            self.moving.remove(&id);
            self.engine.apply(Event::WriteFailed { workload: id, message }, self.now);
            return;
        }
        let stage = match (action, item.stage.clone()) {
            (Action::Admit { admission, .. }, Stage::Queued) => Stage::Running(admission),
            (Action::Evict { .. }, Stage::Running(admission)) => Stage::Ending(admission, self.now),
            (Action::Fail { .. }, _) => {
                self.end(&id, Stage::Finished);
                return;
            }
            (_, stage) => stage,
        };
        let starts = matches!(stage, Stage::Running(_));
        let item = Item { stage, ..item };
        self.items.insert(id, item.clone());
        self.engine.apply(Event::WorkloadApplied(self.seen(&item)), self.now);
        if starts {
            for pod in self.pods_of(&item) {
                self.engine.apply(Event::PodApplied(pod), self.now);
            }
        }
    }

    /// The last pod of an evicted workload is gone; it is in the queue again.
    pub fn end(&mut self, id: &WorkloadId, stage: Stage) {
        let Some(item) = self.items.get(id).cloned() else { return };
        self.moving.remove(id);
        for pod in self.pods_of(&item) {
            self.engine.apply(Event::PodRemoved(pod.id), self.now);
        }
        let item = Item { stage, ..item };
        self.items.insert(id.clone(), item.clone());
        self.engine.apply(Event::WorkloadApplied(self.seen(&item)), self.now);
    }

    /// The workload has saved its work now.
    pub fn save(&mut self, id: &WorkloadId) {
        let Some(item) = self.items.get_mut(id) else { return };
        item.workload.last_checkpoint = Some(self.now);
        let item = item.clone();
        self.engine.apply(Event::WorkloadApplied(self.seen(&item)), self.now);
    }

    pub fn delete(&mut self, id: &WorkloadId) {
        let Some(item) = self.items.remove(id) else { return };
        self.engine.apply(Event::WorkloadRemoved(id.clone()), self.now);
        for pod in self.pods_of(&item) {
            self.engine.apply(Event::PodRemoved(pod.id), self.now);
        }
        self.in_flight.retain(|action| action.workload() != id);
    }

    pub fn add_foreign(&mut self, node: &Name, count: i64) {
        if !self.nodes.contains_key(node) || self.free(node) < count {
            return;
        }
        self.foreign_made += 1;
        let id = PodId(format!("foreign-{}", self.foreign_made).into());
        self.foreign.insert(id.clone(), (node.clone(), count));
        let pod = Pod { id, workload: None, node: Some(node.clone()), requests: gpus(count) };
        self.engine.apply(Event::PodApplied(pod), self.now);
    }

    pub fn remove_foreign(&mut self, index: usize) {
        let Some(id) = self.foreign.keys().nth(index).cloned() else { return };
        self.foreign.remove(&id);
        self.engine.apply(Event::PodRemoved(id), self.now);
    }

    pub fn cordon(&mut self, name: &Name, schedulable: bool) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.1 = schedulable;
        }
        self.engine.apply(Event::NodeApplied(self.node(name)), self.now);
    }

    /// Everybody who holds room, with where; those decided to start included.
    pub fn holders(&self) -> Vec<(&Item, Admission)> {
        let running = self.items.values().filter_map(|item| match &item.stage {
            Stage::Running(admission) | Stage::Ending(admission, _) => Some((item, admission.clone())),
            _ => None,
        });
        let starting = self.in_flight.iter().filter_map(|action| match action {
            Action::Admit { workload, admission, .. } => {
                self.items.get(workload).map(|item| (item, admission.clone()))
            }
            Action::Evict { .. } | Action::Resize { .. } | Action::Fail { .. } => None,
        });
        running.chain(starting).collect()
    }

    /// GPUs on a node that nobody holds.
    pub fn free(&self, node: &Name) -> i64 {
        let foreign: i64 = self.foreign.values().filter(|(at, _)| at == node).map(|(_, count)| count).sum();
        let held: i64 = self
            .holders()
            .iter()
            .map(|(item, admission)| item.gpus * i64::from(admission.nodes.get(node).copied().unwrap_or(0)))
            .sum();
        self.nodes[node].0 - foreign - held
    }

    /// GPUs that a team and those below it hold.
    pub fn used(&self, team: &Name) -> i64 {
        let under = |item: &Item| self.path(&item.workload.team).contains(team);
        self.holders().iter().filter(|(item, _)| under(item)).map(|(item, _)| item.total()).sum()
    }

    pub fn path(&self, team: &Name) -> Vec<Name> {
        let mut path = vec![team.clone()];
        while let Some(parent) = self.teams.get(&path[path.len() - 1]).and_then(|team| team.parent.clone()) {
            path.push(parent);
        }
        path
    }

    pub fn guaranteed(&self, team: &Name) -> i64 {
        let quota = &self.teams[team].quotas["default"];
        quota.guaranteed.get(GPU).map_or(0, |amount| amount.as_milli() / 1000)
    }

    pub fn limit(&self, team: &Name) -> Option<i64> {
        self.teams[team].quotas["default"].limit.get(GPU).map(|amount| amount.as_milli() / 1000)
    }

    /// How many GPUs would be left over the guarantee, or missing from it, on every level of a path.
    pub fn owed(&self, item: &Item, less: &BTreeMap<Name, i64>) -> bool {
        self.path(&item.workload.team).iter().all(|team| {
            let used = self.used(team) - less.get(team).copied().unwrap_or(0);
            used + item.total() <= self.guaranteed(team)
        })
    }

    pub fn within_limits(&self, item: &Item, less: &BTreeMap<Name, i64>) -> bool {
        self.path(&item.workload.team).iter().all(|team| {
            let used = self.used(team) - less.get(team).copied().unwrap_or(0);
            self.limit(team).is_none_or(|limit| used + item.total() <= limit)
        })
    }

    /// By what those of one priority stand in the queue: less goes first.
    pub fn age(item: &Item) -> (Time, u32) {
        let number = item.workload.name[1..].parse().expect("names are w and a number");
        (item.workload.submitted, number)
    }

    /// Where it stands in its team.
    fn rank(item: &Item) -> (i32, Time, u32) {
        let (submitted, number) = Self::age(item);
        (-item.workload.priority, submitted, number)
    }

    fn within_own_guarantee(&self, item: &Item) -> bool {
        let team = &item.workload.team;
        self.used(team) + item.total() <= self.guaranteed(team)
    }

    /// GPUs by node that are reserved for somebody whom `item` must not delay: one before it in its team, or
    /// one of another team, unless only `item` is within its team's guarantee.
    pub fn kept_from(&self, item: &Item) -> BTreeMap<Name, i64> {
        let mut kept = BTreeMap::new();
        for reservation in self.engine.reservations() {
            let holder = &self.items[&reservation.owner];
            let goes_before = if holder.workload.team == item.workload.team {
                Self::rank(item) <= Self::rank(holder)
            } else {
                self.within_own_guarantee(item) && !self.within_own_guarantee(holder)
            };
            if !goes_before {
                for (node, pods) in &reservation.nodes {
                    *kept.entry(node.clone()).or_default() += holder.gpus * i64::from(*pods);
                }
            }
        }
        kept
    }

    /// Whether `item` would have room and its team's guarantee already, were it not for what is kept free for a mate
    /// before it that would live off the surplus.
    pub fn has_kept_room(&self, item: &Item) -> bool {
        let reservations = self.engine.reservations();
        let mates = reservations.iter().filter_map(|reservation| {
            let holder = &self.items[&reservation.owner];
            let before = holder.workload.team == item.workload.team && Self::rank(holder) < Self::rank(item);
            (before && !self.within_own_guarantee(holder)).then_some((holder, reservation))
        });
        let mut kept: BTreeMap<&Name, i64> = BTreeMap::new();
        for (holder, reservation) in mates {
            let room = reservation.nodes.iter().map(|(node, pods)| (node, holder.gpus * i64::from(*pods)));
            room.for_each(|(node, gpus)| *kept.entry(node).or_default() += gpus);
        }
        let barred = self.kept_from(item);
        let open = self.nodes.iter().filter(|(_, (_, open))| *open);
        let room = open.map(|(node, _)| {
            let others = barred.get(node).map_or(0, |barred| barred - kept.get(node).copied().unwrap_or(0));
            (self.free(node) - others).max(0) / item.gpus
        });
        let free: i64 = kept.iter().map(|(node, kept)| self.free(node).min(*kept)).sum();
        let team = &item.workload.team;
        room.sum::<i64>() >= i64::from(item.workload.pods)
            && self.used(team) + free + item.total() > self.guaranteed(team)
    }

    /// Whether all pods of `item` fit the open nodes once `gone` are gone.
    pub fn fits_without(&self, item: &Item, gone: &[&Item]) -> bool {
        let kept = self.kept_from(item);
        let slots: i64 = self
            .nodes
            .iter()
            .filter(|(_, (_, open))| *open)
            .map(|(node, _)| {
                let freed: i64 = gone
                    .iter()
                    .filter_map(|victim| match &victim.stage {
                        Stage::Running(admission) => {
                            Some(victim.gpus * i64::from(admission.nodes.get(node).copied().unwrap_or(0)))
                        }
                        _ => None,
                    })
                    .sum();
                (self.free(node) + freed - kept.get(node).copied().unwrap_or(0)).max(0) / item.gpus
            })
            .sum();
        slots >= i64::from(item.workload.pods)
    }

    pub fn running(&self) -> Vec<&Item> {
        self.items.values().filter(|item| matches!(item.stage, Stage::Running(_))).collect()
    }

    pub fn queued(&self) -> Vec<&Item> {
        self.items.values().filter(|item| item.stage == Stage::Queued).collect()
    }

    pub fn reason(&self, id: &WorkloadId) -> (State, Reason) {
        let verdict = self.engine.verdict(id).expect("every workload has a verdict");
        assert!(!verdict.message.is_empty(), "a verdict without words");
        (verdict.state, verdict.reason)
    }

    /// Carries everything out until nothing moves any more. Panics when it never comes to rest.
    pub fn settle(&mut self) {
        for _ in 0..200 {
            self.settle_now();
            let Some(next) = self.engine.next_deadline() else { return };
            self.now = next.max(self.now);
        }
        panic!("the decisions never come to rest:\n{}", self.log.join("\n"));
    }

    /// Carries out what is decided at this time. Panics when it never comes to rest.
    pub fn settle_now(&mut self) {
        for _ in 0..200 {
            self.plan();
            if self.in_flight.is_empty() && !self.engine.has_more() {
                let ending: Vec<WorkloadId> = self
                    .items
                    .values()
                    .filter(|item| matches!(item.stage, Stage::Ending(..)))
                    .map(|item| item.workload.id.clone())
                    .collect();
                if ending.is_empty() {
                    return;
                }
                for id in ending {
                    self.end(&id, Stage::Queued);
                }
            }
            while !self.in_flight.is_empty() {
                self.deliver(0, true);
            }
        }
        panic!("the decisions never come to rest:\n{}", self.log.join("\n"));
    }
}
