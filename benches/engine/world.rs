//! A changing cluster. It keeps the objects' state in as little memory as possible, so that the process's
//! memory is the engine's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sluice_engine::Engine;
use sluice_engine::types::Action;
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{
    Admission, Event, Name, Node, Observed, Pod, PodId, PodShape, Queue, Quota, Team, Time, Workload,
    WorkloadId,
};

use crate::random::Random;

const GPU: &str = "nvidia.com/gpu";
const GPUS_PER_NODE: u32 = 8;
/// Number of teams with a common parent.
const SIBLINGS: usize = 10;

/// Size of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of nodes of eight GPUs.
    pub nodes: usize,
    /// Number of waiting workloads.
    pub pending: usize,
    /// Number of teams that submit, without their parents.
    pub teams: usize,
    /// Whether every team has a limit, and so many running workloads that it is at its limit.
    pub at_limits: bool,
}

/// The random request of a workload.
#[derive(Clone, Copy)]
struct Request {
    team: u16,
    queue: u8,
    priority: i32,
    pods: u32,
    gpus: u32,
    /// CPUs for each GPU.
    cpus: u32,
}

enum Stage {
    Waits,
    Runs(Admission),
    Stops(Admission, Time),
}

struct Item {
    request: Request,
    submitted: Time,
    stage: Stage,
}

/// A step; its name is its row in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A workload is submitted.
    Submit,
    /// A running workload ends and its pods are gone.
    Finish,
    /// A waiting workload is deleted.
    Delete,
    /// The write of an admission is seen, with its pods.
    Started,
    /// The write of an eviction is seen.
    Evicting,
    /// The last pod of an evicted workload is gone; it waits again.
    Gone,
    /// A node is closed, or opened again.
    Cordon,
    /// A team's guarantee changes.
    Quota,
}

/// The cluster, and the engine that decides for it.
pub struct World {
    pub engine: Engine,
    pub now: Time,
    random: Random,
    teams: Vec<Team>,
    /// The first of `teams`, up to this number, submit.
    submitters: usize,
    nodes: Vec<bool>,
    items: BTreeMap<u32, Item>,
    waiting: Picks,
    running: Picks,
    made: u32,
    started: VecDeque<(u32, Admission)>,
    evicting: VecDeque<u32>,
    stopping: VecDeque<u32>,
    closed: Vec<usize>,
}

/// A set from which a random item can be drawn in constant time.
#[derive(Default)]
struct Picks {
    list: Vec<u32>,
    places: BTreeMap<u32, usize>,
}

impl Picks {
    fn add(&mut self, item: u32) {
        if self.places.insert(item, self.list.len()).is_none() {
            self.list.push(item);
        }
    }

    fn remove(&mut self, item: u32) {
        if let Some(place) = self.places.remove(&item) {
            self.list.swap_remove(place);
            if let Some(moved) = self.list.get(place) {
                self.places.insert(*moved, place);
            }
        }
    }

    fn draw(&self, random: &mut Random) -> Option<u32> {
        (!self.list.is_empty()).then(|| self.list[random.below(self.list.len())])
    }
}

impl World {
    /// A full cluster without waiting workloads, as a new engine finds it.
    pub fn full(size: Size, seed: u64) -> Self {
        let mut world = Self {
            engine: Engine::new(),
            now: Time(3_600_000),
            random: Random::new(seed),
            teams: teams(size),
            submitters: size.teams,
            nodes: vec![true; size.nodes],
            items: BTreeMap::new(),
            waiting: Picks::default(),
            running: Picks::default(),
            made: 0,
            started: VecDeque::new(),
            evicting: VecDeque::new(),
            stopping: VecDeque::new(),
            closed: Vec::new(),
        };
        for team in world.teams.clone() {
            world.engine.apply(Event::TeamApplied(team), world.now);
        }
        for node in 0..size.nodes {
            world.engine.apply(Event::NodeApplied(world.node(node)), world.now);
        }
        let mut free: BTreeMap<u32, BTreeSet<usize>> =
            BTreeMap::from([(GPUS_PER_NODE, (0..size.nodes).collect())]);
        let (mut misses, mut used) = (0, vec![0; size.teams]);
        let most = if size.at_limits { 20 * size.teams } else { 50 };
        while misses < most && free.keys().any(|gpus| *gpus > 0) {
            let request = world.request();
            let held = &mut used[usize::from(request.team)];
            let total = request.pods * request.gpus;
            let within = !size.at_limits || *held + total <= fair_part(size);
            match within.then(|| fill(&mut free, request.pods, request.gpus)).flatten() {
                Some(nodes) => {
                    *held += total;
                    let age = 60_000 * i64::try_from(world.random.below(55)).unwrap_or(0);
                    world.preset(request, &nodes, Time(world.now.0 - age));
                }
                None => misses += 1,
            }
        }
        world
    }

    /// Adds a workload that already runs.
    fn preset(&mut self, request: Request, nodes: &BTreeMap<usize, u32>, at: Time) {
        let number = self.number();
        let admission = Admission {
            pool: "default".into(),
            nodes: nodes.iter().map(|(node, pods)| (node_name(*node), *pods)).collect(),
            pods: request.pods,
            borrowed: false,
            share: None,
            spared: false,
            unfunded: false,
            at,
        };
        self.items.insert(number, Item { request, submitted: at, stage: Stage::Runs(admission) });
        self.running.add(number);
        self.show(number);
        self.show_pods(number, true);
    }

    /// Submits a workload.
    pub fn submit(&mut self) {
        let request = self.request();
        let number = self.number();
        self.items.insert(number, Item { request, submitted: self.now, stage: Stage::Waits });
        self.waiting.add(number);
        self.show(number);
    }

    /// Number of waiting and of running workloads.
    pub fn counts(&self) -> (usize, usize) {
        (self.waiting.list.len(), self.running.list.len())
    }

    /// Plans, notes the writes that follow, and returns the number of decisions.
    pub fn plan(&mut self) -> usize {
        let plan = self.engine.plan(self.now);
        let decisions = plan.actions.len();
        for action in plan.actions {
            let number = number_of(action.workload());
            match action {
                Action::Admit { admission, .. } => {
                    self.waiting.remove(number);
                    self.started.push_back((number, admission));
                }
                Action::Evict { .. } => {
                    self.running.remove(number);
                    self.evicting.push_back(number);
                }
                Action::Resize { .. } | Action::EndPod { .. } | Action::Fail { .. } => {}
            }
        }
        decisions
    }

    /// Carries out the next step; the caller plans after it.
    pub fn step(&mut self) -> Step {
        self.now = Time(self.now.0 + 20 + i64::try_from(self.random.below(200)).unwrap_or(0));
        // Decisions are carried out soon, while other events happen.
        if self.random.below(3) < 2
            && let Some(step) = self.carry_out()
        {
            return step;
        }
        match self.random.below(1000) {
            0..=1 => self.change_quota(),
            2..=6 => self.cordon(),
            7..=39 => self.delete(),
            40..=519 => self.finish(),
            _ => {
                self.submit();
                Step::Submit
            }
        }
    }

    /// Carries out all decisions and their consequences until the cluster rests.
    pub fn settle(&mut self) {
        loop {
            while self.carry_out().is_some() {}
            self.now = Time(self.now.0 + 1_000);
            if self.plan() == 0 {
                return;
            }
        }
    }

    /// Completes the oldest write of one kind.
    fn carry_out(&mut self) -> Option<Step> {
        let idle = [self.started.is_empty(), self.evicting.is_empty(), self.stopping.is_empty()];
        let kinds: Vec<usize> = (0..3).filter(|kind| !idle[*kind]).collect();
        let kind = kinds.get(self.random.below(kinds.len()))?;
        match kind {
            0 => {
                let (number, admission) = self.started.pop_front()?;
                if let Some(item) = self.items.get_mut(&number) {
                    item.stage = Stage::Runs(admission);
                    self.running.add(number);
                    self.show(number);
                    self.show_pods(number, true);
                }
                Some(Step::Started)
            }
            1 => {
                let number = self.evicting.pop_front()?;
                if let Some(item) = self.items.get_mut(&number)
                    && let Stage::Runs(admission) = &item.stage
                {
                    item.stage = Stage::Stops(admission.clone(), self.now);
                    self.stopping.push_back(number);
                    self.show(number);
                }
                Some(Step::Evicting)
            }
            _ => {
                let number = self.stopping.pop_front()?;
                self.show_pods(number, false);
                if let Some(item) = self.items.get_mut(&number) {
                    item.stage = Stage::Waits;
                    self.waiting.add(number);
                    self.show(number);
                }
                Some(Step::Gone)
            }
        }
    }

    fn change_quota(&mut self) -> Step {
        let team = self.random.below(self.submitters);
        let quotas = self.teams[team].quotas.values_mut();
        for amount in quotas.flat_map(|quota| quota.guaranteed.values_mut()) {
            let step = if self.random.below(2) == 0 { 1000 } else { -1000 };
            *amount = Amount::milli((amount.as_milli() + step).max(0));
        }
        self.engine.apply(Event::TeamApplied(self.teams[team].clone()), self.now);
        Step::Quota
    }

    fn cordon(&mut self) -> Step {
        let node = match self.closed.pop() {
            Some(node) if self.closed.len() > 3 => node,
            popped => {
                self.closed.extend(popped);
                self.random.below(self.nodes.len())
            }
        };
        self.nodes[node] = !self.nodes[node];
        if !self.nodes[node] {
            self.closed.push(node);
        }
        self.engine.apply(Event::NodeApplied(self.node(node)), self.now);
        Step::Cordon
    }

    fn delete(&mut self) -> Step {
        if let Some(number) = self.waiting.draw(&mut self.random) {
            self.waiting.remove(number);
            self.items.remove(&number);
            self.engine.apply(Event::WorkloadRemoved(id(number)), self.now);
        }
        Step::Delete
    }

    fn finish(&mut self) -> Step {
        if let Some(number) = self.running.draw(&mut self.random) {
            self.running.remove(number);
            self.show_pods(number, false);
            self.items.remove(&number);
            self.engine.apply(Event::WorkloadRemoved(id(number)), self.now);
        }
        Step::Finish
    }

    fn number(&mut self) -> u32 {
        self.made += 1;
        self.made
    }

    /// Teams differ in size; most jobs are small, a few are gangs of whole nodes.
    fn request(&mut self) -> Request {
        let random = &mut self.random;
        let team = random.below(self.submitters).min(random.below(self.submitters));
        let (pods, gpus) = match random.below(100) {
            0..50 => (1, 1),
            50..65 => (1, 2),
            65..77 => (1, 4),
            77..92 => (1, 8),
            _ => (2 + u32::try_from(random.below(7)).unwrap_or(0), 8),
        };
        Request {
            team: u16::try_from(team).unwrap_or(0),
            queue: match random.below(20) {
                0 if pods == 1 => 1,
                1..=5 => 2,
                _ => 0,
            },
            priority: [0, 0, 0, 0, 0, 0, 10, 100][random.below(8)],
            pods,
            gpus,
            cpus: [8, 10, 12, 12][random.below(4)],
        }
    }

    fn node(&self, index: usize) -> Node {
        Node {
            name: node_name(index),
            labels: BTreeMap::from([
                ("kubernetes.io/hostname".into(), node_name(index)),
                ("topology.kubernetes.io/zone".into(), format!("zone-{}", index % 3).into()),
            ]),
            allocatable: list(96, 1024, GPUS_PER_NODE, Some(110)),
            taints: Vec::new(),
            schedulable: self.nodes[index],
            unreachable: None,
        }
    }

    /// Reports a workload's object to the engine.
    fn show(&mut self, number: u32) {
        let Some(item) = self.items.get(&number) else { return };
        let request = &item.request;
        let state = match &item.stage {
            Stage::Waits => Observed::Queued,
            Stage::Runs(admission) => Observed::Admitted(admission.clone()),
            Stage::Stops(admission, since) => {
                Observed::Leaving { admission: admission.clone(), since: *since, stopped: true }
            }
        };
        let team = &self.teams[usize::from(request.team)];
        let shape = PodShape { requests: requests(request), ..PodShape::default() };
        let name = format!("job-{number}").into();
        let workload = Workload {
            id: id(number),
            queue: Some(team.queues[usize::from(request.queue)].name.clone()),
            priority: request.priority,
            state,
            ..Workload::job(&team.name, &name, request.pods, shape, item.submitted)
        };
        self.engine.apply(Event::workload(workload), self.now);
    }

    /// Reports the pods of a workload to the engine, or their end.
    fn show_pods(&mut self, number: u32, there: bool) {
        let Some(item) = self.items.get(&number) else { return };
        let (Stage::Runs(admission) | Stage::Stops(admission, _)) = &item.stage else { return };
        let nodes = admission.nodes.iter().flat_map(|(node, pods)| (0..*pods).map(move |_| node));
        for (index, node) in nodes.enumerate() {
            let pod = PodId(format!("{}-{index}", id(number)).into());
            let event = if there {
                Event::PodApplied(Pod {
                    id: pod,
                    workload: Some(id(number)),
                    node: Some(node.clone()),
                    requests: requests(&item.request),
                    profile: None,
                    unadmitted: None,
                })
            } else {
                Event::PodRemoved(pod)
            };
            self.engine.apply(event, self.now);
        }
    }
}

/// Nodes for the pods, each on the fullest that fits it.
fn fill(free: &mut BTreeMap<u32, BTreeSet<usize>>, pods: u32, gpus: u32) -> Option<BTreeMap<usize, u32>> {
    let capacity: usize = free.range(gpus..).map(|(left, nodes)| nodes.len() * (left / gpus) as usize).sum();
    if capacity < pods as usize {
        return None;
    }
    let mut taken = BTreeMap::new();
    for _ in 0..pods {
        let (left, node) =
            free.range(gpus..).find_map(|(left, nodes)| nodes.first().map(|node| (*left, *node)))?;
        free.entry(left).or_default().remove(&node);
        free.entry(left - gpus).or_default().insert(node);
        *taken.entry(node).or_default() += 1;
    }
    free.retain(|_, nodes| !nodes.is_empty());
    Some(taken)
}

/// The guaranteed GPUs of a team that submits.
fn fair_part(size: Size) -> u32 {
    (size.nodes as u32 * GPUS_PER_NODE * 3 / 4 / size.teams as u32).max(1)
}

/// The teams that submit, then their parents. Guarantees cover three quarters of the pool.
fn teams(size: Size) -> Vec<Team> {
    let fair = fair_part(size);
    let parents = if size.teams > SIBLINGS { size.teams / SIBLINGS / 2 } else { 1 };
    let quota = |guaranteed: u32, limit: Option<u32>| {
        let gpus = |count: u32| ResourceList::from([(GPU.into(), Amount::units(i64::from(count)))]);
        Quota {
            guaranteed: gpus(guaranteed),
            limit: limit.map(gpus).unwrap_or_default(),
            lendable: ResourceList::new(),
        }
    };
    let team = |name: String, parent: Option<Name>, quota: Quota| Team {
        name: name.into(),
        parent,
        quotas: BTreeMap::from([("default".into(), quota)]),
        weight: 1,
        queues: vec![
            Queue { name: "training".into(), ..Queue::fallback() },
            Queue { name: "interactive".into(), priority: 100, preemptible: false, ..Queue::fallback() },
            Queue { name: "batch".into(), min_runtime: Duration::from_secs(600), ..Queue::fallback() },
        ],
        fair_users: false,
        budget: None,
    };
    let submitters = (0..size.teams).map(|index| {
        let group = index / SIBLINGS;
        let parent: Option<Name> = (group < parents).then(|| format!("division-{group}").into());
        let limit = if size.at_limits { Some(fair) } else { (index % 4 == 0).then_some(2 * fair) };
        team(format!("team-{index}"), parent, quota(fair, limit))
    });
    let divisions = (0..parents).map(|group| {
        let members = SIBLINGS.min(size.teams - group * SIBLINGS);
        team(format!("division-{group}"), None, quota(fair * members as u32, None))
    });
    submitters.chain(divisions).collect()
}

fn requests(request: &Request) -> ResourceList {
    list(request.gpus * request.cpus, request.gpus * request.cpus * 8, request.gpus, None)
}

fn list(cpus: u32, gibibytes: u32, gpus: u32, slots: Option<u32>) -> ResourceList {
    let memory = Amount::units(i64::from(gibibytes) << 30);
    let mut list = ResourceList::from([
        ("cpu".into(), Amount::units(i64::from(cpus))),
        ("memory".into(), memory),
        (GPU.into(), Amount::units(i64::from(gpus))),
    ]);
    list.extend(slots.map(|slots| ("pods".into(), Amount::units(i64::from(slots)))));
    list
}

fn node_name(index: usize) -> Name {
    format!("node-{index:05}").into()
}

fn id(number: u32) -> WorkloadId {
    WorkloadId(format!("00000000-0000-4000-8000-{number:012}").into())
}

fn number_of(id: &WorkloadId) -> u32 {
    id.0.rsplit('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}
