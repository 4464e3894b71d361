//! Law 7 for quota: a workload that waits for a limit gets it after finitely many workloads, however many stand behind it.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::Engine;
use sluice_engine::replay::{Happening, Life, Run};
use sluice_engine::types::{Event, Name, PodShape, Queue, Reason, Team, Time, Workload, WorkloadId};

use super::reservations::seconds;
use super::world::{Phase, World, gpus, node, team};

/// A cluster with a stream of work, and the start of each workload.
struct Cluster {
    run: Run,
    started: BTreeMap<WorkloadId, Time>,
    submitted: usize,
}

/// Work of one kind: its team, queue and user, the GPUs of its only pod, its run time and whether it has a limit of that
/// many seconds.
#[derive(Clone, Debug)]
struct Spec {
    team: &'static str,
    queue: &'static str,
    user: u8,
    gpus: i64,
    run: i64,
    limited: bool,
}

impl Cluster {
    fn new(nodes: &[i64], teams: Vec<Team>) -> Self {
        let mut engine = Engine::new();
        for team in teams {
            engine.apply(Event::TeamApplied(team), Time(0));
        }
        for (index, count) in nodes.iter().enumerate() {
            let node = node(&format!("n{index}"), *count);
            engine.apply(Event::NodeApplied(node), Time(0));
        }
        Self { run: Run::new(engine, Time(0)), started: BTreeMap::new(), submitted: 0 }
    }

    fn submit(&mut self, spec: &Spec) -> WorkloadId {
        let name: Name = format!("w{}", self.submitted).into();
        self.submitted += 1;
        let shape = PodShape { requests: gpus(spec.gpus), ..PodShape::default() };
        let workload = Workload {
            queue: Some(spec.queue.into()),
            user: Some(format!("u{}", spec.user).into()),
            time_limit: spec.limited.then(|| seconds(spec.run)),
            ..Workload::job(&spec.team.into(), &name, 1, shape, self.run.now())
        };
        let id = workload.id.clone();
        self.run.submit(workload, Life { run: Some(seconds(spec.run)), ..Life::default() });
        id
    }

    fn advance(&mut self, by: Duration) {
        let (to, started) = (self.run.now().after(by), &mut self.started);
        let mut note = |at: Time, happening: &Happening| {
            if let Happening::Admitted { id, .. } = happening {
                started.insert(id.clone(), at);
            }
        };
        self.run.advance(to, &mut note).expect("decisions come to rest");
    }

    /// Submits a workload and then, second by second, the stream; until the workload starts or the time has passed.
    fn behind(&mut self, owner: &Spec, stream: &[Spec], most: Duration) -> (WorkloadId, Option<Time>) {
        let (id, from) = (self.submit(owner), self.run.now());
        while !self.started.contains_key(&id) && self.run.now() < from.after(most) {
            self.advance(seconds(1));
            for spec in stream {
                self.submit(spec);
            }
        }
        self.advance(seconds(1));
        (id.clone(), self.started.get(&id).copied())
    }
}

/// A queue that reserves after 20 s. Its workloads are never preempted for fair shares.
fn queue(name: &str, most: Option<i64>) -> Queue {
    Queue {
        name: name.into(),
        reserve_after: seconds(20),
        min_runtime: seconds(1_000_000),
        limit: most.map(gpus).unwrap_or_default(),
        ..Queue::fallback()
    }
}

fn with_queues(team: Team, queues: Vec<Queue>) -> Team {
    Team { queues, ..team }
}

fn job(gpus: i64) -> Spec {
    Spec { team: "a", queue: "train", user: 0, gpus, run: 30, limited: false }
}

/// The start of a workload of four GPUs behind which one-GPU workloads of the same team are submitted without end, in
/// seconds. Four of them run when it is submitted, and all take 30 s.
fn start_of_four(nodes: &[i64], teams: Vec<Team>, owner: &Spec, stream: &[Spec]) -> Option<i64> {
    let mut cluster = Cluster::new(nodes, teams);
    for _ in 0..4 {
        cluster.submit(&stream[0]);
        cluster.advance(seconds(3));
    }
    let (_, start) = cluster.behind(owner, stream, seconds(300));
    start.map(|start| start.0 / 1_000)
}

/// It reserves 20 s after it was submitted at 12 s; the last of those that run then has ended 30 s later.
const BY: i64 = 12 + 20 + 30 + 1;

#[test]
fn a_workload_starts_at_its_teams_limit_though_smaller_ones_come_without_end() {
    let teams = || vec![with_queues(team("a", None, 4, Some(4)), vec![queue("train", None)])];
    let start = start_of_four(&[8], teams(), &job(4), &[job(1)]);
    assert!(start.is_some_and(|start| start <= BY), "{start:?}");
    // With time limits the start is foretold at once.
    let limited = Spec { limited: true, ..job(1) };
    let start = start_of_four(&[8], teams(), &Spec { limited: true, ..job(4) }, &[limited]);
    assert_eq!(start, Some(9 + 30));
}

#[test]
fn a_workload_starts_at_the_limit_of_a_team_above_though_siblings_come_without_end() {
    let teams = vec![
        with_queues(team("p", None, 0, Some(4)), vec![queue("train", None)]),
        with_queues(team("a", Some("p"), 0, None), vec![queue("train", None)]),
        with_queues(team("b", Some("p"), 0, None), vec![queue("train", None)]),
    ];
    let stream = [job(1), Spec { team: "b", ..job(1) }];
    let start = start_of_four(&[8], teams, &job(4), &stream);
    assert!(start.is_some_and(|start| start <= BY + 30), "{start:?}");
}

#[test]
fn a_workload_starts_at_the_limit_of_its_queue() {
    let queues = || vec![queue("train", Some(4)), queue("other", None)];
    let teams = || vec![with_queues(team("a", None, 0, None), queues())];
    let start = start_of_four(&[8], teams(), &job(4), &[job(1)]);
    assert!(start.is_some_and(|start| start <= BY), "{start:?}");
    // Another queue of the team is not bound by it: it fills the rest of the node all along.
    let mut cluster = Cluster::new(&[8], teams());
    for _ in 0..4 {
        cluster.submit(&job(1));
    }
    cluster.advance(seconds(1));
    cluster.submit(&job(4));
    cluster.advance(seconds(25));
    let other = cluster.submit(&Spec { queue: "other", ..job(1) });
    cluster.advance(seconds(1));
    assert!(cluster.started.contains_key(&other), "{:?}", cluster.run.engine().verdict(&other));
}

#[test]
fn work_that_is_never_preempted_gets_its_guarantee_though_smaller_work_comes_without_end() {
    let fixed = Queue { preemptible: false, ..queue("train", None) };
    let teams = vec![with_queues(team("a", None, 4, None), vec![fixed])];
    let start = start_of_four(&[8], teams, &job(4), &[job(1)]);
    assert!(start.is_some_and(|start| start <= BY), "{start:?}");
}

#[test]
fn the_borrowed_part_of_a_limit_is_reserved_too() {
    let teams = vec![with_queues(team("a", None, 2, Some(4)), vec![queue("train", None)])];
    let start = start_of_four(&[4, 4, 4], teams, &job(4), &[job(1)]);
    assert!(start.is_some_and(|start| start <= BY), "{start:?}");
}

#[test]
fn quota_that_is_not_foretold_keeps_no_node_from_other_teams() {
    let teams = vec![
        with_queues(team("a", None, 0, Some(4)), vec![queue("train", None)]),
        with_queues(team("b", None, 0, None), vec![queue("train", None)]),
    ];
    let mut cluster = Cluster::new(&[8], teams);
    for _ in 0..4 {
        cluster.submit(&Spec { run: 1_000, ..job(1) });
    }
    cluster.advance(seconds(1));
    let owner = cluster.submit(&job(4));
    cluster.advance(seconds(25));
    let reservations = cluster.run.engine().reservations();
    assert_eq!(reservations.len(), 1, "{reservations:?}");
    assert!(reservations[0].nodes.is_empty() && reservations[0].start.is_none(), "{reservations:?}");
    let verdict = cluster.run.engine().verdict(&owner).expect("a verdict");
    assert_eq!(verdict.reason, Reason::TeamLimit);
    assert!(verdict.message.contains("reservation of the quota"), "{}", verdict.message);
    let other = cluster.submit(&Spec { team: "b", ..job(4) });
    cluster.advance(seconds(1));
    assert!(cluster.started.contains_key(&other), "{:?}", cluster.run.engine().verdict(&other));
}

#[test]
fn what_is_behind_says_for_which_workload_it_leaves_the_quota() {
    let teams = vec![with_queues(team("a", None, 0, Some(4)), vec![queue("train", None)])];
    let mut cluster = Cluster::new(&[8], teams);
    for _ in 0..3 {
        cluster.submit(&Spec { run: 1_000, ..job(1) });
    }
    cluster.advance(seconds(1));
    cluster.submit(&job(4));
    cluster.advance(seconds(25));
    let behind = cluster.submit(&job(1));
    cluster.advance(seconds(1));
    let verdict = cluster.run.engine().verdict(&behind).expect("a verdict");
    assert_eq!(verdict.reason, Reason::Reserved, "{}", verdict.message);
    assert!(verdict.message.contains("Leaves 4 GPUs of the limit of team a"), "{}", verdict.message);
}

#[test]
fn what_the_limits_never_allow_gets_no_reservation() {
    let teams = vec![with_queues(team("a", None, 0, Some(4)), vec![queue("train", None)])];
    let mut cluster = Cluster::new(&[8], teams);
    cluster.submit(&Spec { run: 1_000, ..job(1) });
    cluster.submit(&job(5));
    cluster.advance(seconds(25));
    assert!(cluster.run.engine().reservations().is_empty());
    let behind = cluster.submit(&job(1));
    cluster.advance(seconds(1));
    assert!(cluster.started.contains_key(&behind));
}

#[test]
fn what_other_teams_never_lend_gets_no_reservation() {
    let mut keeps = team("c", None, 1, None);
    for quota in keeps.quotas.values_mut() {
        quota.lendable = gpus(0);
    }
    let borrows = with_queues(team("a", None, 0, None), vec![queue("train", None)]);
    for limited in [true, false] {
        let mut cluster =
            Cluster::new(&[4], vec![with_queues(keeps.clone(), vec![queue("train", None)]), borrows.clone()]);
        // The end of the lender's own work frees its GPU, and what it keeps of its guarantee takes it again.
        cluster.submit(&Spec { team: "c", run: 100, limited, ..job(1) });
        cluster.submit(&Spec { run: 100, limited, ..job(3) });
        cluster.advance(seconds(1));
        let large = cluster.submit(&Spec { limited, ..job(4) });
        let largest = cluster.submit(&Spec { limited, ..job(3) });
        cluster.advance(seconds(30));
        let verdict = cluster.run.engine().verdict(&large).expect("a verdict");
        assert_eq!(
            verdict.message,
            "Can never start in pool default as other teams lend: it needs 4 GPUs, and they do not lend 1 of the 4 GPUs there."
        );
        assert_eq!(verdict.reason, Reason::LendingLimit);
        let owners: Vec<_> =
            cluster.run.engine().reservations().into_iter().map(|reservation| reservation.owner).collect();
        assert_eq!(owners, std::slice::from_ref(&largest), "the most that can be lent");
        cluster.advance(seconds(100));
        assert!(cluster.started.contains_key(&largest) && !cluster.started.contains_key(&large));
    }
}

/// User u0 holds one of three GPUs and waits for two, and u1 holds the other two and waits with a stream of the same size.
/// When they come free u1 holds nothing, so the order of users alone would let one of u1 start after the other.
#[test]
fn the_turn_of_a_user_is_kept_against_all_that_was_submitted_later() {
    let teams = vec![Team {
        fair_users: true,
        ..with_queues(team("a", None, 0, Some(3)), vec![queue("train", None)])
    }];
    let mut cluster = Cluster::new(&[3], teams);
    cluster.submit(&Spec { run: 1_000, ..job(1) });
    let other = Spec { user: 1, run: 40, ..job(2) };
    cluster.submit(&other);
    cluster.advance(seconds(1));
    // It reserves after 20 s.
    let (_, start) = cluster.behind(&job(2), &[other], seconds(300));
    assert_eq!(start, Some(Time(40_000)));
}

/// Each workload of team b has a true time limit, so the next one has a predicted start on the only node at once, and the reservation of
/// team a's, which needs all of it and has no predicted start, finds no nodes beside that.
#[test]
fn an_older_reservation_without_nodes_gets_those_that_come_free_before_a_younger_one() {
    let queues = vec![queue("train", None)];
    let teams = vec![
        with_queues(team("a", None, 0, Some(5)), queues.clone()),
        with_queues(team("b", None, 0, None), queues),
    ];
    let mut cluster = Cluster::new(&[3], teams);
    cluster.submit(&Spec { run: 5, ..job(1) });
    cluster.advance(seconds(2));
    let own = Spec { run: 21, ..job(1) };
    let other = Spec { team: "b", run: 16, limited: true, ..job(1) };
    let (_, start) = cluster.behind(&job(3), &[own.clone(), other, own], seconds(150));
    // It reserves at 22 s. One of b starts at 35 s by a reservation that is older, and ends at 51 s.
    assert_eq!(start, Some(Time(51_000)));
}

/// A limit that stands in the way of the workload.
#[derive(Clone, Copy, Debug)]
enum Cap {
    Team,
    Parent,
    Queue,
}

fn spec() -> impl Strategy<Value = Spec> {
    (prop::sample::select(vec!["a", "a", "b"]), 0..3_u8, 1..3_i64, 5..30_i64, any::<bool>())
        .prop_map(|(team, user, gpus, run, limited)| Spec { team, queue: "train", user, gpus, run, limited })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 300, ..ProptestConfig::default() })]

    /// A workload that fits an empty cluster and an empty team starts soon after it reserved, although work behind it
    /// comes without end; with true time limits, no later than foretold.
    #[test]
    fn law_7_a_workload_starts_after_finitely_many_others(
        nodes in prop::collection::vec(3..7_i64, 1..4),
        caps in prop::collection::vec(prop::sample::select(vec![Cap::Team, Cap::Parent, Cap::Queue]), 1..4),
        most in 3..7_i64,
        wanted in 2..7_i64,
        (ranks_users, limited) in (any::<bool>(), any::<bool>()),
        first in prop::collection::vec(spec(), 0..6),
        stream in prop::collection::vec(spec(), 1..4),
    ) {
        let has = |wanted: fn(&Cap) -> bool| caps.iter().any(wanted).then_some(most);
        let queues = vec![queue("train", has(|cap| matches!(cap, Cap::Queue)))];
        let one_team = first.iter().chain(&stream).all(|spec| spec.team == "a");
        let ranks_users = ranks_users && one_team;
        let ranked = |team: Team| Team { fair_users: ranks_users, ..team };
        let limit_of_parent = has(|cap| matches!(cap, Cap::Parent));
        let teams = vec![
            with_queues(team("p", None, 0, limit_of_parent), queues.clone()),
            ranked(with_queues(team("a", Some("p"), 0, has(|cap| matches!(cap, Cap::Team))), queues.clone())),
            ranked(with_queues(team("b", Some("p"), 0, None), queues)),
        ];
        let wanted = wanted.min(most).min(nodes.iter().copied().max().unwrap_or(0));
        let mut cluster = Cluster::new(&nodes, teams);
        let with_limits = |spec: &Spec| Spec { limited: limited || spec.limited, ..spec.clone() };
        for spec in &first {
            cluster.submit(&with_limits(spec));
            cluster.advance(seconds(2));
        }
        let owner = Spec { limited, ..job(wanted) };
        let (mut stream, before): (Vec<Spec>, usize) = (stream.iter().map(with_limits).collect(), cluster.submitted);
        stream.push(Spec { team: "a", ..stream[0].clone() });
        let id = cluster.submit(&owner);
        let (from, mut foretold): (Time, Option<Time>) = (cluster.run.now(), None);
        // Those before it have ended after as many longest runs; then it reserves, and those that run end once more.
        let most = 20 + 30 * (i64::try_from(before).unwrap_or(0) + 3);
        while !cluster.started.contains_key(&id) && cluster.run.now() < from.after(seconds(most)) {
            cluster.advance(seconds(1));
            let reservations = cluster.run.engine().reservations();
            let own = reservations.iter().find(|reservation| reservation.owner == id);
            foretold = foretold.or(own.and_then(|own| own.start));
            stream.iter().for_each(|spec| _ = cluster.submit(spec));
        }
        let start = cluster.started.get(&id).copied();
        let verdict = cluster.run.engine().verdict(&id);
        prop_assert!(start.is_some(), "{verdict:?} {:?}", cluster.run.engine().reservations());
        // Owners of another team and users with less usage may stand before it and put it off.
        if let Some((start, foretold)) = start.zip(foretold.filter(|_| limited && one_team && !ranks_users)) {
            prop_assert!(start <= foretold, "starts at {start:?}, foretold for {foretold:?}");
        }
    }
}

/// A pool has sixteen reservations of nodes. The owner of a seventeenth waits for a place among them, which comes free below any root.
#[test]
fn the_nodes_of_a_reservation_that_ends_are_reserved_for_a_team_under_another_root() {
    const TEAMS: [&str; 17] =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q"];
    let limited =
        |team: &'static str, run| Spec { team, queue: "train", user: 0, gpus: 4, run, limited: true };
    let teams = TEAMS.map(|name| with_queues(team(name, None, 0, Some(4)), vec![queue("train", None)]));
    let mut cluster = Cluster::new(&[4; 17], teams.into());
    let run = |at: usize| if at == 0 { 30 } else { 100 };
    for (at, team) in TEAMS.into_iter().enumerate() {
        cluster.submit(&limited(team, run(at)));
    }
    cluster.advance(seconds(1));
    let owners = TEAMS.map(|team| cluster.submit(&limited(team, 50)));
    cluster.advance(seconds(1));
    let reserved = |cluster: &Cluster| {
        let reservations = cluster.run.engine().reservations();
        let with_nodes = reservations.into_iter().filter(|reservation| !reservation.nodes.is_empty());
        with_nodes.map(|reservation| reservation.owner).collect::<Vec<_>>()
    };
    assert_eq!(reserved(&cluster).len(), 16);
    assert!(!reserved(&cluster).contains(&owners[16]));
    cluster.advance(seconds(30));
    assert!(cluster.started.contains_key(&owners[0]));
    assert!(reserved(&cluster).contains(&owners[16]), "{:?}", reserved(&cluster));
}

/// What tells when quota comes free may be an edit that frees nothing. The next change, under whatever root, brings it to the
/// owner.
#[test]
fn a_time_limit_that_a_running_workload_gets_foretells_the_start_of_its_teams_owner() {
    let mut world = World::new(&[4, 4], vec![team("a", None, 0, Some(4)), team("b", None, 0, None)]);
    let runs = world.run_on("n0", "a", 0, 4);
    let other = world.run_on("n1", "b", 0, 1);
    world.rebuild();
    world.settle();
    let owner = world.submit(&"a".into(), "train", 0, 1, 4);
    world.settle();
    assert!(world.engine.reservations().iter().all(|reservation| reservation.start.is_none()));
    world.edit(&runs, |workload| workload.time_limit = Some(seconds(1_000)));
    world.plan();
    world.end(&other, Phase::Finished);
    world.settle();
    let reservations = world.engine.reservations();
    let own = reservations.iter().find(|reservation| reservation.owner == owner);
    assert!(own.is_some_and(|own| own.start.is_some()), "{reservations:?}");
}

/// Short runs end in pairs. Once the first of a pair has ended, the other has run for longer than any like it: it seems to be one
/// of the long runs, and two more short ones would end before it.
#[test]
fn short_runs_that_look_long_fill_reserved_quota_only_until_what_was_in_the_way_ends() {
    let queues = vec![queue("train", Some(6))];
    let teams = ["a", "b"].map(|name| with_queues(team(name, None, 0, None), queues.clone()));
    let mut cluster = Cluster::new(&[4, 6], teams.into());
    cluster.submit(&Spec { run: 5, ..job(1) });
    cluster.advance(seconds(2));
    let short = Spec { run: 8, ..job(2) };
    let long = Spec { run: 19, ..job(1) };
    let others = Spec { team: "b", ..long.clone() };
    let (_, start) = cluster.behind(&job(6), &[others, short, long], seconds(100));
    // It reserves at 22 s; the last of those that run then ends 19 s later, and the node is empty soon after.
    assert!(start.is_some_and(|start| start <= Time(60_000)), "{start:?}");
}

/// The seventeenth owner gets no nodes and waits for the limit of its queue, which an evicted workload holds until its last pod has
/// gone. Until then the start of the owner is foreseen for the present time, again and again.
#[test]
fn law_8_a_workload_that_is_about_to_end_lets_decisions_come_to_rest() {
    let names: Vec<String> = (0..17).map(|number| format!("t{number}")).collect();
    let limited = |name: &String| with_queues(team(name, None, 0, None), vec![queue("train", Some(4))]);
    let mut world = World::new(&[4; 17], names.iter().map(limited).collect());
    let running: Vec<WorkloadId> =
        (0..17_usize).map(|number| world.run_on(&format!("n{number}"), &names[number], 0, 4)).collect();
    world.rebuild();
    for id in &running {
        world.edit(id, |workload| workload.time_limit = Some(seconds(10_000)));
    }
    for name in &names {
        world.submit(&name.as_str().into(), "train", 0, 1, 4);
    }
    world.decide();
    let reservations = world.engine.reservations();
    let last = reservations.iter().find(|one| one.nodes.is_empty()).expect("one without nodes").owner.clone();
    let holder = running.iter().find(|id| world.items[*id].workload.team == world.items[&last].workload.team);
    let holder = holder.expect("a workload of its team").clone();
    world.now = world.now.after(seconds(1));
    let job = world.items.get_mut(&holder).expect("it was submitted");
    let Phase::Running(admission) = job.phase.clone() else { panic!("it does not run: {:?}", job.phase) };
    job.phase = Phase::Stopping(admission, world.now);
    world.edit(&holder, |_| ());
    let mut deadlines = 0;
    loop {
        world.decide();
        let Some(next) = world.engine.next_deadline().filter(|next| *next < Time(10_000)) else { break };
        (world.now, deadlines) = (next.max(world.now), deadlines + 1);
        assert!(deadlines < 50, "decisions never come to rest");
    }
}

/// Each workload of the other team becomes an owner in turn, with a start on another node that its run times tell. That start
/// gives it no claim to the node that was reserved before.
#[test]
fn owners_with_a_predicted_start_elsewhere_leave_the_nodes_of_an_older_reservation() {
    let queues = vec![queue("train", None)];
    let teams = vec![
        with_queues(team("a", None, 0, Some(6)), queues.clone()),
        with_queues(team("b", None, 0, None), queues),
    ];
    let mut cluster = Cluster::new(&[5, 3, 3], teams);
    for run in [15, 12, 10, 14] {
        cluster.submit(&Spec { run, ..job(1) });
        cluster.advance(seconds(2));
    }
    let short = Spec { run: 7, ..job(1) };
    let stream = [Spec { team: "b", ..short.clone() }, Spec { run: 25, ..job(1) }, short];
    let (_, start) = cluster.behind(&job(5), &stream, seconds(200));
    assert!(start.is_some_and(|start| start <= Time(60_000)), "{start:?}");
}
