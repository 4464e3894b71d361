//! Law 6 for a workload that waits for its victims in one pool while room comes free in another of its pools.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::Engine;
use sluice_engine::types::{
    Action, Event, Name, Node, Observed, Pod, PodId, PodShape, Pool, Quota, Reason, Settings, Team, Time,
    Workload, WorkloadId,
};

use super::echoes::Cluster;
use super::one_plan::carried_out_once;
use super::world::{gpus, node, team};

const NOW: Time = Time(0);
const POOLS: [&str; 2] = ["p1", "p2"];

fn pool(name: &str) -> Pool {
    let node_selector = BTreeMap::from([("pool".into(), name.into())]);
    Pool { name: name.into(), node_selector, topology: Vec::new(), weights: Default::default() }
}

fn node_of(pool: &str, name: &str, count: i64) -> Node {
    Node { labels: BTreeMap::from([("pool".into(), pool.into())]), ..node(name, count) }
}

/// A team with these GPUs guaranteed in each of the pools.
fn in_both(name: &str, guaranteed: i64, limit: Option<i64>) -> Team {
    let limit = limit.map(gpus).unwrap_or_default();
    let quota = Quota { guaranteed: gpus(guaranteed), limit, lendable: Default::default() };
    let quotas = POOLS.map(|pool| (pool.into(), quota.clone()));
    Team { quotas: quotas.into(), ..team(name, None, 0, None) }
}

/// Pools p1 and p2 with one node each, which confirm every decision at once. Evicted pods end when the test says so.
struct Pools {
    engine: Engine,
    objects: BTreeMap<WorkloadId, Workload>,
    submitted: i64,
}

impl Pools {
    fn new(teams: Vec<Team>, gpus_each: i64) -> Self {
        let mut engine = Engine::new();
        for name in POOLS {
            engine.apply(Event::PoolApplied(pool(name)), NOW);
            engine.apply(Event::NodeApplied(node_of(name, name, gpus_each)), NOW);
        }
        teams.into_iter().for_each(|team| engine.apply(Event::TeamApplied(team), NOW));
        Self { engine, objects: BTreeMap::new(), submitted: 0 }
    }

    /// A job of one pod with one GPU, submitted after all others.
    fn submit(&mut self, team: &str, name: &str, pools: &[&str], priority: i32) -> WorkloadId {
        self.submit_for(None, (team, name), pools, priority)
    }

    /// The same for a job with a time limit.
    fn submit_for(
        &mut self,
        time_limit: Option<Duration>,
        (team, name): (&str, &str),
        pools: &[&str],
        priority: i32,
    ) -> WorkloadId {
        self.submitted += 1;
        let shape = PodShape { requests: gpus(1), ..PodShape::default() };
        let job = Workload::job(&team.into(), &name.into(), 1, shape, Time(self.submitted));
        let pools = pools.iter().map(|name| Name::from(*name)).collect();
        let job = Workload { pools, priority, time_limit, ..job };
        let id = job.id.clone();
        self.objects.insert(id.clone(), job.clone());
        self.event(Event::workload(job));
        id
    }

    /// An event, and the decisions that follow, each confirmed at once.
    fn event(&mut self, event: Event) {
        self.engine.apply(event, NOW);
        loop {
            let actions = self.engine.plan(NOW).actions;
            if actions.is_empty() && !self.engine.has_more() {
                return;
            }
            for action in actions {
                self.confirm(&action);
            }
        }
    }

    fn confirm(&mut self, action: &Action) {
        let id = action.workload();
        let object = self.objects.get_mut(id).expect("a known workload");
        match action {
            Action::Admit { admission, .. } => {
                object.state = Observed::Admitted(admission.clone());
                let node = admission.nodes.keys().next().cloned();
                self.engine.apply(Event::workload(object.clone()), NOW);
                let pod = Pod {
                    id: PodId(id.0.clone()),
                    workload: Some(id.clone()),
                    node,
                    requests: gpus(1),
                    profile: None,
                    unadmitted: None,
                };
                self.engine.apply(Event::PodApplied(pod), NOW);
            }
            Action::Evict { .. } => {
                let Observed::Admitted(admission) = object.state.clone() else { panic!("{action:?}") };
                object.state = Observed::Leaving { admission, since: NOW, stopped: true };
                self.engine.apply(Event::workload(object.clone()), NOW);
            }
            _ => panic!("{action:?}"),
        }
    }

    /// A running workload ends by itself.
    fn finish(&mut self, id: &WorkloadId) {
        let object = self.objects.get_mut(id).expect("a known workload");
        object.state = Observed::Finished;
        let ended = object.clone();
        self.engine.apply(Event::PodRemoved(PodId(id.0.clone())), NOW);
        self.event(Event::workload(ended));
    }

    /// The pods of an evicted workload have gone, and the workload is queued again.
    fn gone(&mut self, id: &WorkloadId) {
        self.event(Event::PodRemoved(PodId(id.0.clone())));
        let object = self.objects.get_mut(id).expect("a known workload");
        object.state = Observed::Queued;
        let queued = object.clone();
        self.event(Event::workload(queued));
    }

    /// The pool in which a workload runs.
    fn runs_in(&self, id: &WorkloadId) -> Option<&str> {
        match &self.objects[id].state {
            Observed::Admitted(admission) => Some(&admission.pool),
            _ => None,
        }
    }

    fn waits_for_victims(&self, id: &WorkloadId) -> bool {
        self.engine.verdict(id).is_some_and(|verdict| verdict.reason == Reason::WaitingForEviction)
    }
}

/// Team x borrows both pools, and team o, with one GPU guaranteed in each, clears p1 for n. Returns the pools, with r in p1,
/// s in p2, and n.
fn cleared(teams: Vec<Team>) -> (Pools, [WorkloadId; 3]) {
    let mut pools = Pools::new([vec![in_both("o", 1, None), in_both("x", 0, None)], teams].concat(), 1);
    let r = pools.submit("x", "r", &["p1"], 0);
    let s = pools.submit("x", "s", &["p2"], 0);
    let n = pools.submit("o", "n", &["p1", "p2"], 5);
    assert!(pools.waits_for_victims(&n), "p1 is cleared for n");
    (pools, [r, s, n])
}

#[test]
fn law_6_a_preemptor_starts_in_another_pool_that_has_room() {
    let (mut pools, [r, s, n]) = cleared(Vec::new());
    pools.finish(&s);
    assert_eq!(pools.runs_in(&n), Some("p2"));
    // What was being cleared for it is for others.
    pools.gone(&r);
    assert_eq!(pools.runs_in(&r), Some("p1"), "the victim starts again");
}

#[test]
fn law_6_a_preemptor_starts_on_a_node_that_joins_another_pool() {
    let (mut pools, [_, _, n]) = cleared(Vec::new());
    pools.event(Event::NodeApplied(node_of("p2", "new", 1)));
    assert_eq!(pools.runs_in(&n), Some("p2"));
}

#[test]
fn law_8_a_preemptor_keeps_to_its_pool_without_an_event() {
    let (mut pools, [r, s, n]) = cleared(Vec::new());
    pools.gone(&r);
    assert_eq!((pools.runs_in(&n), pools.runs_in(&s)), (Some("p1"), Some("p2")));
}

#[test]
fn a_preemptor_prefers_the_pool_that_it_names_first() {
    let mut pools = Pools::new(vec![in_both("o", 1, None), in_both("x", 0, None)], 1);
    let held = pools.submit("o", "held", &["p1"], 0);
    let r = pools.submit("x", "r", &["p2"], 0);
    let n = pools.submit("o", "n", &["p1", "p2"], 0);
    assert!(pools.waits_for_victims(&n), "p2 is cleared for n");
    // Both pools have room in the same instant.
    pools.engine.apply(Event::PodRemoved(PodId(r.0.clone())), NOW);
    pools.finish(&held);
    assert_eq!(pools.runs_in(&n), Some("p1"));
}

#[test]
fn a_preemptor_starts_where_its_plan_says_if_the_pool_that_it_prefers_is_not_open_to_it() {
    let limited = Team {
        quotas: [
            ("p1".into(), Quota { guaranteed: gpus(1), limit: gpus(1), lendable: Default::default() }),
            ("p2".into(), Quota { guaranteed: gpus(1), ..Quota::default() }),
        ]
        .into(),
        ..team("o", None, 0, None)
    };
    let mut pools = Pools::new(vec![limited, in_both("x", 0, None)], 1);
    pools.submit("o", "held", &["p1"], 0);
    let r = pools.submit("x", "r", &["p2"], 0);
    let n = pools.submit("o", "n", &["p1", "p2"], 0);
    assert!(pools.waits_for_victims(&n), "p2 is cleared for n");
    pools.engine.apply(Event::PodRemoved(PodId(r.0.clone())), NOW);
    pools.event(Event::NodeApplied(node_of("p1", "new", 1)));
    assert_eq!(pools.runs_in(&n), Some("p2"), "the limit in p1 is used up");
}

#[test]
fn law_9_a_preemptor_comes_before_what_stands_behind_it_in_the_other_pool() {
    let (mut pools, [_, s, n]) = cleared(vec![in_both("y", 0, None)]);
    let borrower = pools.submit("y", "borrower", &["p2"], 0);
    let sibling = pools.submit("o", "sibling", &["p2"], 0);
    // The sibling is within guarantee, so p2 is cleared for it; the borrower waits.
    assert!(pools.waits_for_victims(&sibling));
    pools.finish(&s);
    assert_eq!(pools.runs_in(&sibling), Some("p2"), "p2 was cleared for the sibling");
    assert_eq!((pools.runs_in(&n), pools.runs_in(&borrower)), (None, None));

    // The borrower is older than n, but n is within guarantee.
    let mut pools = Pools::new(vec![in_both("o", 1, None), in_both("x", 0, None), in_both("y", 0, None)], 1);
    pools.submit("x", "r", &["p1"], 0);
    let s = pools.submit("x", "s", &["p2"], 0);
    let borrower = pools.submit("y", "borrower", &["p2"], 0);
    let n = pools.submit("o", "n", &["p1", "p2"], 0);
    assert!(pools.waits_for_victims(&n));
    pools.finish(&s);
    assert_eq!((pools.runs_in(&n), pools.runs_in(&borrower)), (Some("p2"), None));
}

/// Team o waits in p2 with a sibling of n too. If it is known when s ends, room there is reserved for the sibling.
fn with_sibling(priority: i32, time_limit: Option<Duration>) -> (Pools, WorkloadId, WorkloadId) {
    let teams = vec![in_both("o", 0, None), in_both("x", 0, None)];
    let mut pools = Pools::new(teams, 2);
    pools.submit("x", "r1", &["p1"], 0);
    pools.submit("x", "r2", &["p1"], 0);
    let s = pools.submit_for(time_limit, ("x", "s"), &["p2"], 0);
    let own = pools.submit("o", "own", &["p2"], 9);
    let n = pools.submit("o", "n", &["p1", "p2"], 5);
    assert!(pools.waits_for_victims(&n), "a borrower preempts one of two for its fair share");
    let sibling = pools.submit("o", "sibling", &["p2"], priority);
    assert_eq!((pools.waits_for_victims(&sibling), pools.runs_in(&own)), (false, Some("p2")));
    let reserved = pools.engine.reservations().iter().any(|reserved| reserved.owner == sibling);
    assert_eq!(reserved, time_limit.is_some());
    pools.finish(&s);
    (pools, n, sibling)
}

#[test]
fn law_9_the_order_in_a_team_decides_between_a_preemptor_and_a_sibling() {
    for time_limit in [None, Some(Duration::from_secs(60))] {
        let (pools, n, sibling) = with_sibling(0, time_limit);
        assert_eq!((pools.runs_in(&n), pools.runs_in(&sibling)), (Some("p2"), None), "{time_limit:?}");
        let (pools, n, sibling) = with_sibling(7, time_limit);
        assert_eq!((pools.runs_in(&n), pools.runs_in(&sibling)), (None, Some("p2")), "{time_limit:?}");
    }
}

#[test]
fn a_limit_in_the_other_pool_keeps_a_preemptor_out() {
    let mut teams = vec![in_both("o", 1, Some(1)), in_both("x", 0, None)];
    teams[0].quotas.insert("p2".into(), Quota { limit: gpus(0), ..Quota::default() });
    let mut pools = Pools::new(teams, 1);
    pools.submit("x", "r", &["p1"], 0);
    let s = pools.submit("x", "s", &["p2"], 0);
    let n = pools.submit("o", "n", &["p1", "p2"], 0);
    pools.finish(&s);
    assert!(pools.waits_for_victims(&n) && pools.runs_in(&n).is_none());
}

/// The pools of a job: one, the other, or both in either order.
fn pools_of() -> impl Strategy<Value = Vec<Name>> {
    let choices: [&[&str]; 4] = [&["p1"], &["p2"], &["p1", "p2"], &["p2", "p1"]];
    prop::sample::select(choices.map(|names| names.iter().map(|name| Name::from(*name)).collect()).to_vec())
}

/// A submission: team, pools, priority, GPUs, the steps that the cluster takes then, and the running workload that ends before it.
type Submission = (usize, Vec<Name>, i32, i64, usize, Option<usize>);

fn submission() -> impl Strategy<Value = Submission> {
    (0..3_usize, pools_of(), -1..2_i32, 1..4_i64, 0..12_usize, prop::option::of(0..8_usize))
}

/// Four nodes, of which each second one is in pool p2.
fn cluster(sizes: &[i64], guarantees: [i64; 3], seed: u64) -> Cluster {
    let teams = ["a", "b", "c"].iter().zip(guarantees).map(|(name, count)| in_both(name, count, None));
    let mut cluster = Cluster::new(sizes, teams.collect(), Settings::default(), seed);
    for name in POOLS {
        cluster.engine.apply(Event::PoolApplied(pool(name)), NOW);
    }
    for (i, count) in sizes.iter().enumerate() {
        cluster.engine.apply(Event::NodeApplied(node_of(POOLS[i % 2], &format!("n{i}"), *count)), NOW);
    }
    cluster
}

fn submit(cluster: &mut Cluster, name: &str, (team, pools, priority, gpus, ..): &Submission) {
    let job = cluster.job(["a", "b", "c"][*team], name, 1, *gpus);
    cluster.submit(Workload { pools: pools.clone(), priority: *priority, ..job });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Without an event of the environment a preemptor starts on the nodes of its plan, whatever other pools it may use.
    #[test]
    fn law_8_a_preemption_across_pools_is_carried_out_once(
        sizes in prop::collection::vec(1..5_i64, 2..5),
        guarantees in prop::array::uniform3(0..5_i64),
        submissions in prop::collection::vec(submission(), 1..14),
        seed in any::<u64>(),
    ) {
        let mut cluster = cluster(&sizes, guarantees, seed);
        for (i, submission) in submissions.iter().enumerate() {
            let began = cluster.log.len();
            submit(&mut cluster, &format!("w{i}"), submission);
            carried_out_once(&mut cluster, began)?;
            cluster.settle();
        }
    }

    /// Ends of workloads in one pool while another is being cleared neither lose a start nor let the cluster come to no rest.
    #[test]
    fn law_6_nothing_waits_for_victims_in_the_end(
        sizes in prop::collection::vec(1..5_i64, 2..5),
        guarantees in prop::array::uniform3(0..5_i64),
        submissions in prop::collection::vec(submission(), 1..14),
        seed in any::<u64>(),
    ) {
        let mut cluster = cluster(&sizes, guarantees, seed);
        for (i, submission) in submissions.iter().enumerate() {
            let running = |workload: &&Workload| matches!(workload.state, Observed::Admitted(_));
            let running: Vec<WorkloadId> =
                cluster.objects.values().filter(running).map(|workload| workload.id.clone()).collect();
            if let Some(id) = submission.5.and_then(|n| running.get(n)) {
                cluster.finish(id);
            }
            submit(&mut cluster, &format!("w{i}"), submission);
            (0..submission.4).for_each(|_| _ = cluster.step());
        }
        cluster.settle();
        for id in cluster.objects.keys() {
            let reason = cluster.engine.verdict(id).map(|verdict| verdict.reason);
            prop_assert_ne!(reason, Some(Reason::WaitingForEviction), "{}: {:?}", id, cluster.log);
        }
    }
}

/// A team with these GPUs guaranteed in one of the pools, and none in the other.
fn in_one(name: &str, pool: &str, guaranteed: i64) -> Team {
    let quota = Quota { guaranteed: gpus(guaranteed), ..Quota::default() };
    Team { quotas: [(pool.into(), quota)].into(), ..team(name, None, 0, None) }
}

/// Teams b and d borrow p1, and team x borrows as many GPUs of p2 as its jobs are, of which one is guaranteed to b. The job of b
/// may run in both pools, and has the lower priority. Then team o asks for a GPU of p1, which is guaranteed to it. Returns the
/// pools with the jobs of b, d and o.
fn victim_with_two_pools(borrowed: usize) -> (Pools, [WorkloadId; 3]) {
    let teams =
        vec![in_one("b", "p2", 1), in_one("o", "p1", 1), in_both("d", 0, None), in_both("x", 0, None)];
    let mut pools = Pools::new(teams, 2);
    let other = pools.submit("d", "other", &["p1"], 1);
    let both = pools.submit("b", "both", &["p1", "p2"], 0);
    for number in 0..borrowed {
        pools.submit("x", &format!("x{number}"), &["p2"], 0);
    }
    assert_eq!((pools.runs_in(&both), pools.runs_in(&other)), (Some("p1"), Some("p1")));
    let n = pools.submit("o", "n", &["p1"], 0);
    assert!(pools.waits_for_victims(&n), "p1 is cleared for n");
    (pools, [both, other, n])
}

#[test]
fn law_4_a_victim_that_would_preempt_in_another_of_its_pools_is_spared() {
    let (pools, [both, other, _]) = victim_with_two_pools(2);
    assert_eq!((pools.runs_in(&both), pools.runs_in(&other)), (Some("p1"), None), "it would preempt in p2");
    // Where the other pool has room for it, it preempts nothing.
    let (mut pools, [both, other, n]) = victim_with_two_pools(1);
    assert_eq!((pools.runs_in(&both), pools.runs_in(&other)), (None, Some("p1")));
    pools.gone(&both);
    assert_eq!((pools.runs_in(&both), pools.runs_in(&n)), (Some("p2"), Some("p1")));
}
