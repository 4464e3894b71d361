//! Law 7: the first that finds no room gets its turn, and nobody who passes pushes it back.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::Engine;
use sluice_engine::replay::{Happening, Life, Run};
use sluice_engine::types::Reason;
use sluice_engine::types::{Event, Name, Node, Observed, PodShape, Queue, Team, Time, Workload, WorkloadId};

use super::world::{GPU, gpus, team};

pub fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).expect("no negative duration"))
}

/// What is asked for, and how long it runs in truth and at most.
#[derive(Clone, Debug)]
pub struct Wish {
    pub pause: i64,
    pub pods: u32,
    pub gpus: i64,
    pub run: i64,
    pub limit: Option<i64>,
}

/// What is known of a workload that was submitted.
struct Known {
    wish: Wish,
    started: Option<(Time, BTreeMap<Name, u32>)>,
    ended: bool,
}

/// A cluster on its way through time, with teams that live off the surplus.
pub struct Course {
    pub run: Run,
    teams: Vec<Name>,
    nodes: BTreeMap<Name, i64>,
    known: BTreeMap<WorkloadId, Known>,
    /// When each workload that ever had its turn was to start, in the order in which that was said.
    promised: BTreeMap<WorkloadId, Vec<Time>>,
}

impl Course {
    pub fn new(nodes: &[i64], queue: Queue) -> Self {
        Self::shared(nodes, queue, 1)
    }

    /// The same with so many teams.
    fn shared(nodes: &[i64], queue: Queue, teams: usize) -> Self {
        Self::guaranteed(nodes, queue, teams, 0)
    }

    /// The same, of which each is guaranteed so many GPUs.
    fn guaranteed(nodes: &[i64], queue: Queue, teams: usize, gpus_each: i64) -> Self {
        let teams: Vec<Name> = ["a", "b", "c"][..teams].iter().map(|name| (*name).into()).collect();
        let mut engine = Engine::new();
        let nodes: BTreeMap<Name, i64> =
            nodes.iter().enumerate().map(|(i, gpus)| (format!("n{i}").into(), *gpus)).collect();
        for name in &teams {
            let team = Team { queues: vec![queue.clone()], ..team(name, None, gpus_each, None) };
            engine.apply(Event::TeamApplied(team), Time(0));
        }
        for (name, count) in &nodes {
            let node = Node {
                name: name.clone(),
                labels: BTreeMap::new(),
                allocatable: gpus(*count),
                taints: Vec::new(),
                schedulable: true,
            };
            engine.apply(Event::NodeApplied(node), Time(0));
        }
        let run = Run::new(engine, Time(0));
        Self { run, teams, nodes, known: BTreeMap::new(), promised: BTreeMap::new() }
    }

    /// The next workload that asks for this, as it is submitted. How long it runs says whose it is.
    pub fn next(&self, wish: &Wish) -> Workload {
        let team = &self.teams[usize::try_from(wish.run).expect("no negative run") % self.teams.len()];
        let name = format!("w{}", self.known.len());
        let shape = PodShape { requests: gpus(wish.gpus), ..PodShape::default() };
        Workload {
            time_limit: wish.limit.map(seconds),
            ..Workload::job(team, &name.into(), wish.pods, shape, self.run.now())
        }
    }

    pub fn submit(&mut self, wish: &Wish) -> WorkloadId {
        let workload = self.next(wish);
        let id = workload.id.clone();
        let life = Life { run: Some(seconds(wish.run)), ..Life::default() };
        self.run.submit(workload, life);
        self.known.insert(id.clone(), Known { wish: wish.clone(), started: None, ended: false });
        id
    }

    /// When a workload started, if it did.
    pub fn started(&self, id: &WorkloadId) -> Option<Time> {
        self.known[id].started.as_ref().map(|(at, _)| *at)
    }

    /// Goes on to `to`, step by step, and notes what happens and what is promised on the way.
    pub fn advance(&mut self, to: Time) -> Result<(), TestCaseError> {
        loop {
            let next = self.run.next().map_or(to, |next| next.min(to));
            let (known, promised) = (&mut self.known, &self.promised);
            let mut late = None;
            let mut note = |at: Time, happening: &Happening| match happening {
                Happening::Admitted { id, admission, .. } => {
                    known.get_mut(id).expect("a known workload").started =
                        Some((at, admission.nodes.clone()));
                    if promised.get(id).is_some_and(|times| times.iter().any(|promise| at > *promise)) {
                        late = Some(format!("{id} starts at {at:?}, promised {:?}", promised[id]));
                    }
                }
                Happening::Finished { id, .. } => {
                    known.get_mut(id).expect("a known workload").ended = true;
                }
                other => panic!("nobody is evicted here: {other:?}"),
            };
            self.run.advance(next, &mut note).expect("decisions come to rest");
            prop_assert!(late.is_none(), "{}", late.unwrap_or_default());
            self.promises_are_kept()?;
            self.nobody_waits_for_nothing()?;
            if next >= to && self.run.next().is_none_or(|next| next > to) {
                return Ok(());
            }
        }
    }

    /// A team's turn stays with its holder until that one starts, and its time is never put off.
    fn promises_are_kept(&mut self) -> Result<(), TestCaseError> {
        let team = |id: &WorkloadId| self.run.engine().workload(id).map(|workload| workload.team.clone());
        for reservation in self.run.engine().reservations() {
            let holder = &reservation.owner;
            let others = self.promised.keys().filter(|other| *other != holder && team(other) == team(holder));
            for other in others {
                prop_assert!(
                    self.known[other].started.is_some(),
                    "the turn of {other} went to {}",
                    reservation.owner
                );
            }
            let Some(start) = reservation.start else { continue };
            let times = self.promised.entry(reservation.owner.clone()).or_default();
            prop_assert!(
                times.last().is_none_or(|last| start <= *last),
                "{} is put off to {start:?}: {times:?}",
                reservation.owner
            );
            if times.last() != Some(&start) {
                times.push(start);
            }
        }
        Ok(())
    }

    /// Lets these come one after the other, and all end that fit at all.
    fn play(&mut self, wishes: &[Wish]) -> Result<(), TestCaseError> {
        for wish in wishes {
            let to = Time(self.run.now().0 + wish.pause * 1_000);
            self.advance(to)?;
            self.submit(wish);
        }
        self.advance(Time(100_000_000))?;
        let slots = |each: i64| self.nodes.values().map(|offers| offers / each).sum::<i64>();
        for (id, known) in &self.known {
            let fits = slots(known.wish.gpus) >= i64::from(known.wish.pods);
            prop_assert_eq!(known.ended, fits, "{}", id);
        }
        Ok(())
    }

    /// Who runs on a node, with how many GPUs and until when at the latest.
    fn on(&self, node: &Name) -> impl Iterator<Item = (i64, Option<Time>)> + '_ {
        let node = node.clone();
        self.known.values().filter(|known| !known.ended).filter_map(move |known| {
            let (at, nodes) = known.started.as_ref()?;
            let held = known.wish.gpus * i64::from(*nodes.get(&node)?);
            Some((held, known.wish.limit.map(|limit| at.after(seconds(limit)))))
        })
    }

    /// Law 6 with reservations: who waits though it fits is told for whom, and would delay that one. Knows of
    /// one reservation only.
    fn nobody_waits_for_nothing(&self) -> Result<(), TestCaseError> {
        if self.teams.len() > 1 {
            return Ok(());
        }
        let now = self.run.now();
        let reservations = self.run.engine().reservations();
        let reservation = reservations.first();
        for (id, known) in self.known.iter().filter(|(_, known)| known.started.is_none()) {
            if reservation.is_some_and(|reservation| reservation.owner == *id) {
                continue;
            }
            let wish = &known.wish;
            let start = reservation.and_then(|reservation| reservation.start);
            let passes =
                wish.limit.is_some_and(|limit| start.is_some_and(|start| now.after(seconds(limit)) <= start));
            let (mut slots, mut all) = (0, 0);
            for (node, offers) in &self.nodes {
                let free = offers - self.on(node).map(|(held, _)| held).sum::<i64>();
                let kept = reservation.and_then(|reservation| {
                    let holder = &self.known[&reservation.owner].wish;
                    reservation.nodes.get(node).map(|pods| holder.gpus * i64::from(*pods))
                });
                let staying = self
                    .on(node)
                    .filter(|(_, end)| start.is_none_or(|start| end.is_none_or(|end| end > start)));
                let later = offers - staying.map(|(held, _)| held).sum::<i64>() - kept.unwrap_or(0);
                let usable = if kept.is_some() && !passes { free.min(later) } else { free };
                slots += usable.max(0) / wish.gpus;
                all += free / wish.gpus;
            }
            let wanted = i64::from(wish.pods);
            prop_assert!(slots < wanted, "{id} at {now:?} would delay nobody: {reservation:?}");
            if all >= wanted {
                let verdict = self.run.engine().verdict(id).expect("a verdict");
                prop_assert_eq!(verdict.reason, Reason::Reserved, "{}: {}", id, verdict.message);
            }
        }
        Ok(())
    }
}

fn wish(limits: bool) -> impl Strategy<Value = Wish> {
    let limit = if limits { (0..40_i64).prop_map(Some).boxed() } else { Just(None).boxed() };
    (0..30_i64, 1..4_u32, 1..5_i64, 1..60_i64, limit).prop_map(|(pause, pods, gpus, run, slack)| Wish {
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
    fn law_7_a_promised_start_is_kept_when_limits_are_true(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        wishes in prop::collection::vec(wish(true), 1..25),
    ) {
        let mut course = Course::new(&nodes, Queue::fallback());
        course.play(&wishes)?;
    }

    #[test]
    fn law_7_every_team_has_its_turn_and_what_is_promised_to_each_is_kept(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        wishes in prop::collection::vec(wish(true), 1..25),
        teams in 2..4_usize,
    ) {
        // Nobody is evicted for the sake of shares: that would break any promise made by limits.
        let queue = Queue { min_runtime: seconds(1_000_000), ..Queue::fallback() };
        let mut course = Course::shared(&nodes, queue, teams);
        course.play(&wishes)?;
    }

    #[test]
    fn law_7_reservations_keep_nobody_waiting_for_ever(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        wishes in prop::collection::vec(prop_oneof![wish(true), wish(false)], 1..25),
        reserve_after in 0..60_i64,
    ) {
        let queue = Queue { reserve_after: seconds(reserve_after), ..Queue::fallback() };
        let mut course = Course::new(&nodes, queue);
        for wish in &wishes {
            let to = Time(course.run.now().0 + wish.pause * 1_000);
            // What is learned on the way changes what may pass whom, which this judge does not know.
            course.run.advance(to, &mut |_, _| {}).expect("decisions come to rest");
            course.submit(wish);
        }
        course.run.advance(Time(100_000_000), &mut |_, _| {}).expect("decisions come to rest");
        let waiting = course.run.engine().workloads().filter(|w| w.state == Observed::Queued);
        for workload in waiting {
            let verdict = course.run.engine().verdict(&workload.id).expect("a verdict");
            prop_assert_eq!(verdict.reason, Reason::NoNodeFits, "{} starves", workload.id);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn law_7_a_gang_starts_under_an_endless_stream(
        nodes in 1..4_u32, run in 5..60_i64, reserve_after in 0..90_i64, limits in any::<bool>(),
    ) {
        let queue = Queue { reserve_after: seconds(reserve_after), ..Queue::fallback() };
        let mut course = Course::new(&vec![4; nodes as usize], queue);
        let small = |pause: i64| Wish {
            pause, pods: 1, gpus: 1, run: run + pause % 3, limit: limits.then_some(run + 3),
        };
        let capacity = i64::from(nodes) * 4;
        for i in 0..capacity {
            course.submit(&small(i));
        }
        let id = course.submit(&Wish { pause: 0, pods: nodes, gpus: 4, run: 10, limit: Some(10) });
        let submitted = course.run.now();
        // From now on more come every second than can run.
        for second in 0..(2 * run + reserve_after + 20) {
            for i in 0..=capacity / run {
                course.submit(&small(second + i));
            }
            let to = Time(course.run.now().0 + 1_000);
            course.run.advance(to, &mut |_, _| {}).expect("decisions come to rest");
        }
        let to = course.run.now();
        let by = submitted.after(seconds(if limits { run + 3 } else { reserve_after + run + 3 }));
        let ran = course.run.workload(&id).map(|workload| workload.state.clone());
        let in_time = match ran {
            None => true,
            Some(Observed::Admitted(admission)) => admission.at <= by,
            Some(_) => false,
        };
        prop_assert!(in_time, "submitted at {submitted:?}, now {to:?}: {:?}", course.run.engine().verdict(&id));
    }

    #[test]
    fn law_7_what_two_teams_wait_for_does_not_keep_them_from_each_other_for_ever(
        each in 1..4_i64, run in 5..30_i64, reserve_after in 0..60_i64, first in 0..2_i64,
    ) {
        let mut stream = Stream::of_two_teams(each, run, reserve_after, first);
        for _ in 0..(reserve_after + 12 * (run + 7) + 60) {
            stream.second();
        }
        for id in &stream.gangs {
            let engine = stream.course.run.engine();
            let waits = engine.workload(id).is_some_and(|workload| workload.state == Observed::Queued);
            prop_assert!(!waits, "{id}: {:?} {:?}", engine.verdict(id), engine.reservations());
        }
    }

    #[test]
    fn law_7_mates_behind_it_do_not_keep_what_fits_its_teams_guarantee_waiting_for_ever(
        pods in 1..3_u32, teams in 1..4_i64, more in 0..4_i64, run in 5..30_i64, reserve_after in 0..60_i64,
        limits in any::<bool>(),
    ) {
        let mut crowd = Crowd::new(pods, teams, more, run, reserve_after, limits);
        for _ in 0..(reserve_after + 12 * (run + 7) * crowd.teams + 60) {
            crowd.second();
        }
        let engine = crowd.course.run.engine();
        let waits = engine.workload(&crowd.gang).is_some_and(|workload| workload.state == Observed::Queued);
        prop_assert!(!waits, "{}: {:?} {:?}", crowd.gang, engine.verdict(&crowd.gang), engine.reservations());
    }
}

/// Teams that are guaranteed as much as a gang of the first asks for, on so many nodes more than those guarantees make
/// up; more small ones of each come than can run.
struct Crowd {
    course: Course,
    nodes: i64,
    teams: i64,
    run: i64,
    limits: bool,
    gang: WorkloadId,
}

impl Crowd {
    fn new(pods: u32, teams: i64, more: i64, run: i64, reserve_after: i64, limits: bool) -> Self {
        let nodes = i64::from(pods) * teams + more;
        let queue = Queue { reserve_after: seconds(reserve_after), ..Queue::fallback() };
        let capacity = vec![4; usize::try_from(nodes).expect("a few nodes")];
        let count = usize::try_from(teams).expect("a few teams");
        let course = Course::guaranteed(&capacity, queue, count, 4 * i64::from(pods));
        let gang = WorkloadId("none yet".into());
        let mut crowd = Self { course, nodes, teams, run, limits, gang };
        (0..4).for_each(|i| crowd.submit(i));
        crowd.course.run.advance(Time(0), &mut |_, _| {}).expect("decisions come to rest");
        crowd.gang = crowd.course.submit(&Wish { pods, gpus: 4, ..crowd.small(0, 0) });
        crowd
    }

    /// How long something runs says whose it is.
    fn small(&self, team: i64, longer: i64) -> Wish {
        let run = (self.run + longer) * self.teams + team;
        Wish { pause: 0, pods: 1, gpus: 1, run, limit: self.limits.then_some(run + self.teams) }
    }

    /// One of a team for each node.
    fn submit(&mut self, round: i64) {
        for i in 0..self.nodes {
            self.course.submit(&self.small(i % self.teams, (round + i) % 7));
        }
    }

    fn second(&mut self) {
        self.submit(self.course.run.now().0 / 1_000);
        let to = Time(self.course.run.now().0 + 1_000);
        self.course.run.advance(to, &mut |_, _| {}).expect("decisions come to rest");
    }
}

#[test]
fn who_leaves_the_guarantee_to_a_mate_is_told() {
    let mut crowd = Crowd::new(2, 3, 0, 14, 0, false);
    let told =
        format!("what its team is guaranteed is left to {}, for which room is reserved on n", crowd.gang);
    let is_told = |crowd: &Crowd| {
        let verdict = |id: &WorkloadId| crowd.course.run.engine().verdict(id);
        crowd.course.known.keys().any(|id| verdict(id).is_some_and(|verdict| verdict.message.contains(&told)))
    };
    while !is_told(&crowd) {
        assert!(crowd.course.run.now() < Time(100_000), "nobody is told");
        crowd.second();
    }
}

#[test]
fn nobody_leaves_for_who_has_room_that_is_kept_free_for_a_mate_before_it() {
    let queue = Queue { reserve_after: seconds(10), ..Queue::fallback() };
    let mut course = Course::guaranteed(&[4, 4], queue, 2, 2);
    // Even means the first team. Both borrow 2 beyond what they are guaranteed.
    let wish = |gpus, run| Wish { pause: 0, pods: 1, gpus, run, limit: None };
    for run in [20, 20, 20, 200] {
        course.submit(&wish(1, run));
    }
    course.advance(Time(0)).expect("no law is broken");
    for run in [301, 301] {
        course.submit(&wish(2, run));
    }
    let large = course.submit(&wish(4, 50));
    course.advance(Time(25_000)).expect("no law is broken");
    let small = course.submit(&wish(1, 40));
    course.advance(Time(30_000)).expect("nobody is evicted");
    assert_eq!(course.run.engine().reservations()[0].owner, large);
    let verdict = course.run.engine().verdict(&small).expect("a verdict");
    assert_eq!(verdict.reason, Reason::Reserved, "{}", verdict.message);
    course.advance(Time(400_000)).expect("nobody is evicted");
    assert_eq!((course.started(&large), course.started(&small)), (Some(Time(200_000)), Some(Time(250_000))));
}

/// Two nodes and two teams, each guaranteed a quarter of what is there: more small ones of both come than can run, and of
/// each waits one that asks for a whole node.
struct Stream {
    course: Course,
    each: i64,
    run: i64,
    gangs: [WorkloadId; 2],
}

impl Stream {
    fn of_two_teams(each: i64, run: i64, reserve_after: i64, first: i64) -> Self {
        // Nobody claims of the other team's surplus, of which the large ones have to live.
        let min_runtime = seconds(1_000_000);
        let queue = Queue { reserve_after: seconds(reserve_after), min_runtime, ..Queue::fallback() };
        let mut course = Course::guaranteed(&[2 * each, 2 * each], queue, 2, each);
        for team in (0..4 * each).map(|place| place % 2) {
            course.submit(&Self::wish(1, run, team));
            course.run.advance(course.run.now(), &mut |_, _| {}).expect("decisions come to rest");
        }
        let gangs = [first, 1 - first].map(|team| course.submit(&Self::wish(2 * each, 5, team)));
        Self { course, each, run, gangs }
    }

    /// How long something runs says whose it is.
    fn wish(gpus: i64, run: i64, team: i64) -> Wish {
        Wish { pause: 0, pods: 1, gpus, run: 2 * run + team, limit: None }
    }

    fn second(&mut self) {
        for team in (0..2 * self.each).map(|place| place % 2) {
            // Not all end at once.
            let longer = i64::try_from(self.course.known.len()).expect("not so many") % 7;
            self.course.submit(&Self::wish(1, self.run + longer, team));
        }
        let to = Time(self.course.run.now().0 + 1_000);
        self.course.run.advance(to, &mut |_, _| {}).expect("decisions come to rest");
    }
}

#[test]
fn who_gives_way_is_told_for_whom() {
    let mut stream = Stream::of_two_teams(2, 6, 20, 0);
    let [older, younger] = stream.gangs.clone();
    let told = format!("room is reserved for it once {older} has started");
    let mut seconds = 0;
    while !stream.course.run.engine().verdict(&younger).is_some_and(|verdict| verdict.message.contains(&told))
    {
        stream.second();
        seconds += 1;
        assert!(seconds < 100, "{:?}", stream.course.run.engine().verdict(&younger));
    }
    assert!(stream.course.run.engine().reservations().iter().all(|reservation| reservation.owner != younger));
}

#[test]
fn the_first_of_every_team_is_promised_room_of_its_own() {
    let queue = Queue { min_runtime: seconds(1_000_000), ..Queue::fallback() };
    let mut course = Course::shared(&[4, 4, 4], queue, 2);
    // How long they run says whose they are: an even number means the first team.
    let wish = |pods, gpus, run| Wish { pause: 0, pods, gpus, run, limit: Some(run) };
    for run in [100, 200, 300] {
        course.submit(&wish(1, 3, run));
        course.advance(Time(0)).expect("no law is broken");
    }
    let first = course.submit(&wish(1, 4, 50));
    let second = course.submit(&wish(1, 4, 51));
    course.advance(Time(0)).expect("no law is broken");
    let small = course.submit(&wish(1, 1, 301));
    course.advance(Time(0)).expect("no law is broken");
    let reservations = course.run.engine().reservations();
    let promised: Vec<_> = reservations.iter().map(|r| (&r.owner, r.start)).collect();
    // The second team holds nothing, so it goes first.
    assert_eq!(promised, [(&first, Some(Time(200_000))), (&second, Some(Time(100_000)))]);
    assert_eq!(course.started(&small), Some(Time(0)), "one node is nobody's");
    let place = course.run.engine().workload(&small).map(|workload| workload.state.clone());
    let Some(Observed::Admitted(admission)) = place else { panic!("{place:?}") };
    assert!(reservations.iter().all(|r| r.nodes.keys().all(|node| !admission.nodes.contains_key(node))));
}

#[test]
fn a_reservation_says_what_it_keeps_and_from_whom() {
    let mut course = Course::new(&[4], Queue::fallback());
    let wish = |gpus, run| Wish { pause: 0, pods: 1, gpus, run, limit: Some(run) };
    course.submit(&wish(2, 100));
    let big = course.submit(&wish(4, 50));
    let short = course.submit(&wish(1, 100));
    let long = course.submit(&wish(1, 101));
    course.advance(Time(0)).expect("no law is broken");
    let reservations = course.run.engine().reservations();
    assert_eq!(reservations.len(), 1);
    assert_eq!(reservations[0].owner, big);
    assert_eq!(reservations[0].start, Some(Time(100_000)));
    let verdict = |id: &WorkloadId| course.run.engine().verdict(id).expect("a verdict");
    assert_eq!(verdict(&big).reason, Reason::NoRoom);
    assert!(verdict(&big).message.contains("expected to start within 100 s"), "{}", verdict(&big).message);
    assert_eq!(verdict(&short).reason, Reason::Guaranteed.max(Reason::Borrowed));
    assert_eq!(verdict(&long).reason, Reason::Reserved);
    assert!(verdict(&long).message.contains("a/w1"), "{}", verdict(&long).message);
    let free = course.run.engine().nodes()[0].free[GPU];
    assert_eq!(free.as_milli(), 1_000);
}
