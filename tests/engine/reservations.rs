//! Law 7: the first workload of each team that cannot start gets a reservation, and no workload behind it
//! delays the reserved start. [`Simulation`] judges this, and law 6 beside it, at every event of a cluster's
//! course.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::Engine;
use sluice_engine::replay::{Happening, Life, Run};
use sluice_engine::types::{Event, Name, Observed, PodShape, Queue, Team, Time, Workload, WorkloadId};
use sluice_engine::types::{Reason, ReservationView};

use super::world::{GPU, gpus, node, team};

pub fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).expect("no negative duration"))
}

/// A job to submit. Times are in seconds.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Time since the job before it.
    pub pause: i64,
    pub pods: u32,
    pub gpus: i64,
    /// Its run time in truth.
    pub run: i64,
    /// Its time limit.
    pub limit: Option<i64>,
}

/// A submitted job, as the simulation has seen it.
struct TrackedJob {
    spec: JobSpec,
    started: Option<(Time, BTreeMap<Name, u32>)>,
    ended: bool,
}

/// A simulated cluster. The laws on reservations are checked as time passes.
pub struct Simulation {
    pub run: Run,
    teams: Vec<Name>,
    nodes: BTreeMap<Name, i64>,
    jobs: BTreeMap<WorkloadId, TrackedJob>,
    /// The reserved start times of each workload that ever had a reservation, in the order in which they were
    /// given.
    reserved_starts: BTreeMap<WorkloadId, Vec<Time>>,
}

impl Simulation {
    /// One team without a guarantee.
    pub fn new(nodes: &[i64], queue: Queue) -> Self {
        Self::with_teams(nodes, queue, 1)
    }

    /// Up to three teams without a guarantee.
    fn with_teams(nodes: &[i64], queue: Queue, teams: usize) -> Self {
        Self::with_guarantees(nodes, queue, teams, 0)
    }

    /// Up to three teams with `gpus_each` guaranteed GPUs.
    pub fn with_guarantees(nodes: &[i64], queue: Queue, teams: usize, gpus_each: i64) -> Self {
        let teams: Vec<Name> = ["a", "b", "c"][..teams].iter().map(|name| (*name).into()).collect();
        let mut engine = Engine::new();
        let nodes: BTreeMap<Name, i64> =
            nodes.iter().enumerate().map(|(i, gpus)| (format!("n{i}").into(), *gpus)).collect();
        for name in &teams {
            let team = Team { queues: vec![queue.clone()], ..team(name, None, gpus_each, None) };
            engine.apply(Event::TeamApplied(team), Time(0));
        }
        for (name, count) in &nodes {
            let node = node(name, *count);
            engine.apply(Event::NodeApplied(node), Time(0));
        }
        let run = Run::new(engine, Time(0));
        Self { run, teams, nodes, jobs: BTreeMap::new(), reserved_starts: BTreeMap::new() }
    }

    /// The workload that [`Simulation::submit`] would submit next for this job. Its run time selects its
    /// team: with two teams, jobs of an even number of seconds are the first team's.
    pub fn next(&self, spec: &JobSpec) -> Workload {
        let team = &self.teams[usize::try_from(spec.run).expect("no negative run") % self.teams.len()];
        let name = format!("w{}", self.jobs.len());
        let shape = PodShape { requests: gpus(spec.gpus), ..PodShape::default() };
        Workload {
            time_limit: spec.limit.map(seconds),
            ..Workload::job(team, &name.into(), spec.pods, shape, self.run.now())
        }
    }

    pub fn submit(&mut self, spec: &JobSpec) -> WorkloadId {
        let workload = self.next(spec);
        let id = workload.id.clone();
        let life = Life { run: Some(seconds(spec.run)), ..Life::default() };
        self.run.submit(workload, life);
        self.jobs.insert(id.clone(), TrackedJob { spec: spec.clone(), started: None, ended: false });
        id
    }

    /// The start time of a workload that has started.
    pub fn started(&self, id: &WorkloadId) -> Option<Time> {
        self.jobs[id].started.as_ref().map(|(at, _)| *at)
    }

    /// Lets time pass up to `to` without a judge.
    pub fn advance_unjudged(&mut self, to: Time) {
        self.run.advance(to, &mut |_, _| {}).expect("decisions come to rest");
    }

    /// Lets time pass up to `to`, event by event, and judges the reservations after each. No workload may be
    /// evicted.
    pub fn advance(&mut self, to: Time) -> Result<(), TestCaseError> {
        loop {
            let next = self.run.next().map_or(to, |next| next.min(to));
            let (jobs, reserved_starts) = (&mut self.jobs, &self.reserved_starts);
            let mut late = None;
            let mut track = |at: Time, happening: &Happening| match happening {
                Happening::Admitted { id, admission, .. } => {
                    jobs.get_mut(id).expect("a submitted job").started = Some((at, admission.nodes.clone()));
                    let reserved = reserved_starts.get(id);
                    if let Some(starts) = reserved.filter(|starts| starts.iter().any(|start| at > *start)) {
                        late = Some(format!("{id} starts at {at:?}, reserved for {starts:?}"));
                    }
                }
                Happening::Finished { id, .. } => {
                    jobs.get_mut(id).expect("a submitted job").ended = true;
                }
                other => panic!("no workload is evicted here: {other:?}"),
            };
            self.run.advance(next, &mut track).expect("decisions come to rest");
            prop_assert!(late.is_none(), "{}", late.unwrap_or_default());
            self.reservations_stand()?;
            self.no_workload_waits_needlessly()?;
            if next >= to && self.run.next().is_none_or(|next| next > to) {
                return Ok(());
            }
        }
    }

    /// Law 7: a team's reservation stays with its owner until that workload starts, and its start is never
    /// put off.
    fn reservations_stand(&mut self) -> Result<(), TestCaseError> {
        let team = |id: &WorkloadId| self.run.engine().workload(id).map(|workload| workload.team.clone());
        for reservation in self.run.engine().reservations() {
            let owner = &reservation.owner;
            let earlier = self.reserved_starts.keys();
            for other in earlier.filter(|other| *other != owner && team(other) == team(owner)) {
                let started = self.jobs[other].started.is_some();
                prop_assert!(started, "the reservation of {other} passed to {owner}");
            }
            let Some(start) = reservation.start else { continue };
            let starts = self.reserved_starts.entry(owner.clone()).or_default();
            let is_put_off = starts.last().is_some_and(|last| start > *last);
            prop_assert!(!is_put_off, "{owner} is put off to {start:?}: {starts:?}");
            if starts.last() != Some(&start) {
                starts.push(start);
            }
        }
        Ok(())
    }

    /// Law 6 beside one reservation: a workload that waits though the free nodes fit it would delay the
    /// reservation, and its verdict says so. Several teams may have several reservations, which this judge
    /// does not know.
    fn no_workload_waits_needlessly(&self) -> Result<(), TestCaseError> {
        if self.teams.len() > 1 {
            return Ok(());
        }
        let now = self.run.now();
        let reservations = self.run.engine().reservations();
        let reservation = reservations.first();
        let is_owner = |id: &WorkloadId| reservation.is_some_and(|reservation| reservation.owner == *id);
        let waiting = self.jobs.iter().filter(|(id, job)| job.started.is_none() && !is_owner(id));
        for (id, TrackedJob { spec, .. }) in waiting {
            let wanted = i64::from(spec.pods);
            prop_assert!(
                self.headroom_beside(reservation, spec) < wanted,
                "{id} at {now:?} would not delay the reservation: {reservation:?}"
            );
            if self.headroom(spec) >= wanted {
                let verdict = self.run.engine().verdict(id).expect("a verdict");
                prop_assert_eq!(verdict.reason, Reason::Reserved, "{}: {}", id, verdict.message);
            }
        }
        Ok(())
    }

    /// How many pods of a job fit the free capacity.
    fn headroom(&self, spec: &JobSpec) -> i64 {
        self.nodes.keys().map(|node| self.free(node) / spec.gpus).sum()
    }

    /// How many pods of a job may start without delaying the reservation. A job that ends before the reserved
    /// start may use all free capacity; any other leaves whole the capacity reserved at that time.
    fn headroom_beside(&self, reservation: Option<&ReservationView>, spec: &JobSpec) -> i64 {
        let start = reservation.and_then(|reservation| reservation.start);
        let ends_by = |start| spec.limit.is_some_and(|limit| self.run.now().after(seconds(limit)) <= start);
        let backfills = start.is_some_and(ends_by);
        let usable = |node: &Name| {
            let reserved = reservation.and_then(|reservation| {
                let owner = &self.jobs[&reservation.owner].spec;
                reservation.nodes.get(node).map(|pods| owner.gpus * i64::from(*pods))
            });
            match reserved {
                Some(reserved) if !backfills => self.free(node).min(self.free_at(node, start) - reserved),
                _ => self.free(node),
            }
        };
        self.nodes.keys().map(|node| usable(node).max(0) / spec.gpus).sum()
    }

    /// GPUs of a node that are free now.
    fn free(&self, node: &Name) -> i64 {
        self.nodes[node] - self.on(node).map(|(held, _)| held).sum::<i64>()
    }

    /// GPUs of a node that are free at `start` by the time limits of its jobs; now, if there is no start
    /// time.
    fn free_at(&self, node: &Name, start: Option<Time>) -> i64 {
        let stays = |end: Option<Time>| start.is_none_or(|start| end.is_none_or(|end| end > start));
        self.nodes[node] - self.on(node).filter(|(_, end)| stays(*end)).map(|(held, _)| held).sum::<i64>()
    }

    /// The running jobs of a node: GPUs held, and the latest end.
    fn on(&self, node: &Name) -> impl Iterator<Item = (i64, Option<Time>)> + '_ {
        let node = node.clone();
        self.jobs.values().filter(|job| !job.ended).filter_map(move |job| {
            let (at, nodes) = job.started.as_ref()?;
            let held = job.spec.gpus * i64::from(*nodes.get(&node)?);
            Some((held, job.spec.limit.map(|limit| at.after(seconds(limit)))))
        })
    }

    /// Submits these jobs one after the other; in the end every job has ended that fits the cluster at all.
    fn play(&mut self, specs: &[JobSpec]) -> Result<(), TestCaseError> {
        for spec in specs {
            let to = Time(self.run.now().0 + spec.pause * 1_000);
            self.advance(to)?;
            self.submit(spec);
        }
        self.advance(Time(100_000_000))?;
        let headroom = |gpus: i64| self.nodes.values().map(|offers| offers / gpus).sum::<i64>();
        for (id, job) in &self.jobs {
            let fits = headroom(job.spec.gpus) >= i64::from(job.spec.pods);
            prop_assert_eq!(job.ended, fits, "{}", id);
        }
        Ok(())
    }

    fn waits(&self, id: &WorkloadId) -> bool {
        self.run.engine().workload(id).is_some_and(|workload| workload.state == Observed::Queued)
    }

    /// The verdict on a workload and all reservations, for a failure's message.
    fn situation(&self, id: &WorkloadId) -> String {
        let engine = self.run.engine();
        format!("{id}: {:?} {:?}", engine.verdict(id), engine.reservations())
    }
}

fn job_spec(limits: bool) -> impl Strategy<Value = JobSpec> {
    let limit = if limits { (0..40_i64).prop_map(Some).boxed() } else { Just(None).boxed() };
    (0..30_i64, 1..4_u32, 1..5_i64, 1..60_i64, limit).prop_map(|(pause, pods, gpus, run, slack)| JobSpec {
        pause,
        pods,
        gpus,
        run,
        limit: slack.map(|slack| run + slack),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn law_7_a_reserved_start_is_kept_when_limits_are_true(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        specs in prop::collection::vec(job_spec(true), 1..25),
    ) {
        let mut simulation = Simulation::new(&nodes, Queue::fallback());
        simulation.play(&specs)?;
    }

    #[test]
    fn law_7_every_team_has_a_reservation_and_each_reserved_start_is_kept(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        specs in prop::collection::vec(job_spec(true), 1..25),
        teams in 2..4_usize,
    ) {
        // Preemption for fair shares would break any start predicted by limits; the minimum run time rules it
        // out.
        let queue = Queue { min_runtime: seconds(1_000_000), ..Queue::fallback() };
        let mut simulation = Simulation::with_teams(&nodes, queue, teams);
        simulation.play(&specs)?;
    }

    #[test]
    fn law_7_every_workload_that_fits_an_empty_cluster_starts(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        specs in prop::collection::vec(prop_oneof![job_spec(true), job_spec(false)], 1..25),
        reserve_after in 0..60_i64,
    ) {
        let queue = Queue { reserve_after: seconds(reserve_after), ..Queue::fallback() };
        let mut simulation = Simulation::new(&nodes, queue);
        for spec in &specs {
            let to = Time(simulation.run.now().0 + spec.pause * 1_000);
            // Learned run lengths change which jobs may backfill; the judge does not know them.
            simulation.advance_unjudged(to);
            simulation.submit(spec);
        }
        simulation.advance_unjudged(Time(100_000_000));
        for workload in simulation.run.engine().workloads().filter(|w| w.state == Observed::Queued) {
            let verdict = simulation.run.engine().verdict(&workload.id).expect("a verdict");
            prop_assert_eq!(verdict.reason, Reason::NoNodeFits, "{} starves", workload.id);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn law_7_a_gang_starts_in_time_under_an_endless_stream_of_small_jobs(
        nodes in 1..4_u32, run in 5..60_i64, reserve_after in 0..90_i64, limits in any::<bool>(),
    ) {
        let queue = Queue { reserve_after: seconds(reserve_after), ..Queue::fallback() };
        let mut simulation = Simulation::new(&vec![4; nodes as usize], queue);
        let small = |pause: i64| JobSpec {
            pause, pods: 1, gpus: 1, run: run + pause % 3, limit: limits.then_some(run + 3),
        };
        let capacity = i64::from(nodes) * 4;
        for i in 0..capacity {
            simulation.submit(&small(i));
        }
        let gang = simulation.submit(&JobSpec { pause: 0, pods: nodes, gpus: 4, run: 10, limit: Some(10) });
        let submitted = simulation.run.now();

        // Every second brings more small jobs than can run.
        for second in 0..(2 * run + reserve_after + 20) {
            for i in 0..=capacity / run {
                simulation.submit(&small(second + i));
            }
            let to = Time(simulation.run.now().0 + 1_000);
            simulation.advance_unjudged(to);
        }

        let by = submitted.after(seconds(if limits { run + 3 } else { reserve_after + run + 3 }));
        let state = simulation.run.workload(&gang).map(|workload| workload.state.clone());
        let in_time = match state {
            None => true,
            Some(Observed::Admitted(admission)) => admission.at <= by,
            Some(_) => false,
        };
        let now = simulation.run.now();
        prop_assert!(in_time, "submitted at {submitted:?}, now {now:?}: {}", simulation.situation(&gang));
    }

    #[test]
    fn law_7_reservations_of_two_teams_do_not_block_each_other_for_ever(
        each in 1..4_i64, run in 5..30_i64, reserve_after in 0..60_i64, first in 0..2_i64,
    ) {
        let mut stream = BorrowingGangs::new(each, run, reserve_after, first);
        for _ in 0..(reserve_after + 12 * (run + 7) + 60) {
            stream.pass_second();
        }
        for gang in &stream.gangs {
            prop_assert!(!stream.simulation.waits(gang), "{}", stream.simulation.situation(gang));
        }
    }

    #[test]
    fn law_7_siblings_behind_it_do_not_keep_a_gang_within_guarantee_waiting_for_ever(
        pods in 1..3_u32, teams in 1..4_i64, more in 0..4_i64, run in 5..30_i64, reserve_after in 0..60_i64,
        limits in any::<bool>(),
    ) {
        let mut stream = GuaranteedGang::new(pods, teams, more, run, reserve_after, limits);
        for _ in 0..(reserve_after + 12 * (run + 7) * stream.teams + 60) {
            stream.pass_second();
        }
        let gang = &stream.gang;
        prop_assert!(!stream.simulation.waits(gang), "{}", stream.simulation.situation(gang));
    }
}

/// A gang as large as its team's guarantee, among more small jobs of every team than can run. All teams have
/// the same guarantee; `more` nodes are beyond all guarantees.
struct GuaranteedGang {
    simulation: Simulation,
    nodes: i64,
    teams: i64,
    run: i64,
    limits: bool,
    gang: WorkloadId,
}

impl GuaranteedGang {
    fn new(pods: u32, teams: i64, more: i64, run: i64, reserve_after: i64, limits: bool) -> Self {
        let nodes = i64::from(pods) * teams + more;
        let queue = Queue { reserve_after: seconds(reserve_after), ..Queue::fallback() };
        let capacity = vec![4; usize::try_from(nodes).expect("a few nodes")];
        let count = usize::try_from(teams).expect("a few teams");
        let simulation = Simulation::with_guarantees(&capacity, queue, count, 4 * i64::from(pods));
        let gang = WorkloadId("none yet".into());
        let mut stream = Self { simulation, nodes, teams, run, limits, gang };
        (0..4).for_each(|round| stream.submit_one_a_node(round));
        stream.simulation.advance_unjudged(Time(0));
        stream.gang = stream.simulation.submit(&JobSpec { pods, gpus: 4, ..stream.small(0, 0) });
        stream
    }

    /// A job of that team; the run time selects it.
    fn small(&self, team: i64, longer: i64) -> JobSpec {
        let run = (self.run + longer) * self.teams + team;
        JobSpec { pause: 0, pods: 1, gpus: 1, run, limit: self.limits.then_some(run + self.teams) }
    }

    /// Submits as many small jobs as there are nodes, for one team after the other.
    fn submit_one_a_node(&mut self, round: i64) {
        for i in 0..self.nodes {
            self.simulation.submit(&self.small(i % self.teams, (round + i) % 7));
        }
    }

    fn pass_second(&mut self) {
        self.submit_one_a_node(self.simulation.run.now().0 / 1_000);
        let to = Time(self.simulation.run.now().0 + 1_000);
        self.simulation.advance_unjudged(to);
    }
}

#[test]
fn a_deferred_workload_names_the_sibling_that_its_guarantee_is_left_to() {
    let mut stream = GuaranteedGang::new(2, 3, 0, 14, 0, false);
    let sentence =
        format!("Leaves the guarantee of its team to {}, which has a reservation on n", stream.gang);
    let is_reported = |stream: &GuaranteedGang| {
        let verdict = |id: &WorkloadId| stream.simulation.run.engine().verdict(id);
        let mut ids = stream.simulation.jobs.keys();
        ids.any(|id| verdict(id).is_some_and(|verdict| verdict.message.contains(&sentence)))
    };
    while !is_reported(&stream) {
        assert!(stream.simulation.run.now() < Time(100_000), "no verdict names the gang");
        stream.pass_second();
    }
}

#[test]
fn no_workload_is_evicted_where_only_a_siblings_reservation_is_in_the_way() {
    let queue = Queue { reserve_after: seconds(10), ..Queue::fallback() };
    let mut simulation = Simulation::with_guarantees(&[4, 4], queue, 2, 3);
    let job = |gpus, run| JobSpec { pause: 0, pods: 1, gpus, run, limit: None };
    // Even run times are the first team's. Both teams borrow a GPU.
    for run in [20, 20, 200, 200] {
        simulation.submit(&job(1, run));
    }
    simulation.advance(Time(0)).expect("no law is broken");
    for run in [301, 301] {
        simulation.submit(&job(2, run));
    }
    let large = simulation.submit(&job(3, 50));
    simulation.advance(Time(25_000)).expect("no law is broken");

    let small = simulation.submit(&job(1, 40));
    simulation.advance(Time(30_000)).expect("no workload is evicted");

    assert_eq!(simulation.run.engine().reservations()[0].owner, large);
    let verdict = simulation.run.engine().verdict(&small).expect("a verdict");
    assert_eq!(verdict.reason, Reason::Reserved, "{}", verdict.message);
    simulation.advance(Time(400_000)).expect("no workload is evicted");
    let starts = (simulation.started(&large), simulation.started(&small));
    assert_eq!(starts, (Some(Time(200_000)), Some(Time(200_000))));
}

/// Two nodes, and two teams with a quarter of the GPUs guaranteed each. Each team has one job that needs a
/// whole node and so has to borrow, among more small jobs than can run.
struct BorrowingGangs {
    simulation: Simulation,
    each: i64,
    run: i64,
    gangs: [WorkloadId; 2],
}

impl BorrowingGangs {
    fn new(each: i64, run: i64, reserve_after: i64, first: i64) -> Self {
        // The minimum run time rules out preemption between the borrowing teams.
        let min_runtime = seconds(1_000_000);
        let queue = Queue { reserve_after: seconds(reserve_after), min_runtime, ..Queue::fallback() };
        let mut simulation = Simulation::with_guarantees(&[2 * each, 2 * each], queue, 2, each);
        for team in (0..4 * each).map(|place| place % 2) {
            simulation.submit(&Self::job(1, run, team));
            simulation.advance_unjudged(simulation.run.now());
        }
        let gangs = [first, 1 - first].map(|team| simulation.submit(&Self::job(2 * each, 5, team)));
        Self { simulation, each, run, gangs }
    }

    /// A job of that team; the run time selects it.
    fn job(gpus: i64, run: i64, team: i64) -> JobSpec {
        JobSpec { pause: 0, pods: 1, gpus, run: 2 * run + team, limit: None }
    }

    fn pass_second(&mut self) {
        for team in (0..2 * self.each).map(|place| place % 2) {
            // Run times differ, so that the jobs do not all end at once.
            let longer = i64::try_from(self.simulation.jobs.len()).expect("not so many") % 7;
            self.simulation.submit(&Self::job(1, self.run + longer, team));
        }
        let to = Time(self.simulation.run.now().0 + 1_000);
        self.simulation.advance_unjudged(to);
    }
}

#[test]
fn a_deferred_reservation_names_the_older_workload_it_waits_for() {
    let mut stream = BorrowingGangs::new(2, 6, 20, 0);
    let [older, younger] = stream.gangs.clone();
    let sentence = format!("It gets a reservation once {older} has started.");
    let verdict = |stream: &BorrowingGangs| stream.simulation.run.engine().verdict(&younger);
    let mut seconds = 0;
    while !verdict(&stream).is_some_and(|verdict| verdict.message.contains(&sentence)) {
        stream.pass_second();
        seconds += 1;
        assert!(seconds < 100, "{:?}", verdict(&stream));
    }
    let reservations = stream.simulation.run.engine().reservations();
    assert!(reservations.iter().all(|reservation| reservation.owner != younger));
}

#[test]
fn the_first_workload_of_every_team_has_a_reservation_of_its_own() {
    let queue = Queue { min_runtime: seconds(1_000_000), ..Queue::fallback() };
    let mut simulation = Simulation::with_teams(&[4, 4, 4], queue, 2);
    // Even run times are the first team's.
    let job = |pods, gpus, run| JobSpec { pause: 0, pods, gpus, run, limit: Some(run) };
    for run in [100, 200, 300] {
        simulation.submit(&job(1, 3, run));
        simulation.advance(Time(0)).expect("no law is broken");
    }

    let first = simulation.submit(&job(1, 4, 50));
    let second = simulation.submit(&job(1, 4, 51));
    simulation.advance(Time(0)).expect("no law is broken");
    let small = simulation.submit(&job(1, 1, 301));
    simulation.advance(Time(0)).expect("no law is broken");

    let reservations = simulation.run.engine().reservations();
    let starts: Vec<_> = reservations.iter().map(|r| (&r.owner, r.start)).collect();
    // The second team uses nothing, so its reservation is the earlier.
    assert_eq!(starts, [(&first, Some(Time(200_000))), (&second, Some(Time(100_000)))]);
    assert_eq!(simulation.started(&small), Some(Time(0)), "one node is not reserved");
    let state = simulation.run.engine().workload(&small).map(|workload| workload.state.clone());
    let Some(Observed::Admitted(admission)) = state else { panic!("{state:?}") };
    assert!(reservations.iter().all(|r| r.nodes.keys().all(|node| !admission.nodes.contains_key(node))));
}

#[test]
fn a_job_that_ends_before_the_reserved_start_backfills_and_a_longer_one_waits() {
    let mut simulation = Simulation::new(&[4], Queue::fallback());
    let job = |gpus, run| JobSpec { pause: 0, pods: 1, gpus, run, limit: Some(run) };
    simulation.submit(&job(2, 100));
    let big = simulation.submit(&job(4, 50));
    let short = simulation.submit(&job(1, 100));
    let long = simulation.submit(&job(1, 101));

    simulation.advance(Time(0)).expect("no law is broken");

    let reservations = simulation.run.engine().reservations();
    assert_eq!(reservations.len(), 1);
    assert_eq!(reservations[0].owner, big);
    assert_eq!(reservations[0].start, Some(Time(100_000)));
    let verdict = |id: &WorkloadId| simulation.run.engine().verdict(id).expect("a verdict");
    assert_eq!(verdict(&big).reason, Reason::NoRoom);
    // When that is a forecast says, so the sentence does not.
    assert!(verdict(&big).message.ends_with("It has a reservation on n0."), "{}", verdict(&big).message);
    assert_eq!(verdict(&short).reason, Reason::Borrowed);
    assert_eq!(verdict(&long).reason, Reason::Reserved);
    assert!(verdict(&long).message.contains("a/w1"), "{}", verdict(&long).message);
    let free = simulation.run.engine().nodes()[0].free[GPU];
    assert_eq!(free.as_milli(), 1_000);
}
