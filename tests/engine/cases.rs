//! Known cases with one right answer. A case has nodes, teams, and jobs that arrive one after the other; it
//! says which jobs must run in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_engine::types::{Name, Reason, Time, WorkloadId};

use super::world::{Phase, World, team};

/// A cluster, and the labels of its jobs in the order of their arrival.
struct Case {
    world: World,
    names: Vec<(String, WorkloadId)>,
}

impl Case {
    fn new(nodes: &[i64], teams: &[(&str, i64)]) -> Self {
        let teams = teams.iter().map(|(name, guaranteed)| team(name, None, *guaranteed, None)).collect();
        Self { world: World::new(nodes, teams), names: Vec::new() }
    }

    /// Submits a preemptible job of one pod a second later and carries out every decision.
    fn job(mut self, label: &str, team: &str, gpus: i64, priority: i32) -> Self {
        self.world.now = Time(self.world.now.0 + 1_000);
        let id = self.world.submit(&team.into(), "train", priority, 1, gpus);
        self.names.push((label.to_owned(), id));
        self.world.settle();
        self
    }

    /// As [`Case::job`] for a job that is not preemptible.
    fn fixed(mut self, label: &str, team: &str, gpus: i64) -> Self {
        self.world.now = Time(self.world.now.0 + 1_000);
        let id = self.world.submit(&team.into(), "fixed", 0, 1, gpus);
        self.names.push((label.to_owned(), id));
        self.world.settle();
        self
    }

    /// As [`Case::job`] for a job of several pods that start all or none.
    fn gang(mut self, label: &str, team: &str, pods: u32, gpus: i64) -> Self {
        self.world.now = Time(self.world.now.0 + 1_000);
        let id = self.world.submit(&team.into(), "train", 0, pods, gpus);
        self.names.push((label.to_owned(), id));
        self.world.settle();
        self
    }

    fn running(&self) -> BTreeSet<&str> {
        let runs = |id: &WorkloadId| matches!(self.world.items[id].phase, Phase::Running(_));
        self.names.iter().filter(|(_, id)| runs(id)).map(|(label, _)| label.as_str()).collect()
    }

    fn check(&self, case: &str, expected: &[&str]) {
        assert_eq!(self.running(), expected.iter().copied().collect(), "{case}: the running jobs");
    }

    fn reason(&self, label: &str) -> Reason {
        let (_, id) = self.names.iter().find(|(name, _)| name == label).expect("a job of that name");
        self.world.reason(id).1
    }
}

#[test]
fn within_a_team_lower_priority_is_evicted_and_equal_never() {
    let base = || Case::new(&[6], &[("t", 6)]).job("low", "t", 2, -1).job("mid", "t", 2, 0);
    base().job("high", "t", 2, 1).job("x", "t", 2, 1).check("the lowest only", &["mid", "high", "x"]);
    Case::new(&[6], &[("t", 6)])
        .job("low", "t", 3, -1)
        .job("mid", "t", 3, 0)
        .job("x", "t", 1, -1)
        .check("equal priority waits", &["low", "mid"]);
    Case::new(&[6], &[("t", 6)])
        .job("low", "t", 1, -1)
        .job("mid", "t", 1, 0)
        .job("high", "t", 3, 1)
        .job("x", "t", 2, 1)
        .check("no more than needed", &["mid", "high", "x"]);
}

#[test]
fn one_sibling_is_evicted_where_the_preemptor_may_borrow_the_rest() {
    // Within the guarantee high would fit only if low were evicted too. Either victim would be within
    // guarantee without high, but cannot preempt a sibling of higher priority.
    let case = Case::new(&[5, 1], &[("a", 5)])
        .job("low", "a", 1, -1)
        .job("mid1", "a", 2, 0)
        .job("mid2", "a", 2, 0)
        .job("high", "a", 3, 1);
    case.check("the newest", &["low", "mid1", "high"]);
    assert_eq!(case.world.evicted_for.values().map(BTreeSet::len).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_sibling_that_could_start_again_at_once_is_not_evicted() {
    // Without both siblings high would be within guarantee, but the first would start again beside it at
    // once, so the set of the other alone does as well. Either sibling, queued again, evicts long once that
    // has run for its minimum time. The sets differ in lost work alone, so the newest is evicted.
    let mut case = Case::new(&[5, 4], &[("a", 4), ("b", 0)]);
    let long = case.world.submit(&"b".into(), "slow", 0, 1, 4);
    case.names.push(("long".to_owned(), long));
    case.world.settle_now();
    case = case.job("mate1", "a", 2, 0).job("mate2", "a", 2, 0);
    case.world.now = Time(case.world.now.0 + 1_000);
    let high = case.world.submit(&"a".into(), "train", 1, 1, 3);
    case.world.settle_now();
    let newest = case.names[2].1.clone();
    assert_eq!(case.world.evicted_for.get(&high), Some(&BTreeSet::from([newest])));
    case.names.push(("high".to_owned(), high));
    case.check("one sibling is evicted", &["long", "mate1", "high"]);
}

#[test]
fn no_sibling_is_evicted_that_would_take_another_team_below_its_guarantee_at_once() {
    // One GPU is missing. The sibling, once evicted, would be within guarantee again. Since young is within
    // its minimum run time, the sibling would evict the gang of a, which falls below its guarantee. So that
    // gang is evicted directly, and no other job.
    let mut case = Case::new(&[6, 4, 8], &[("a", 3), ("b", 9), ("c", 7)])
        .fixed("held", "a", 1)
        .gang("greedy", "b", 3, 3)
        .job("sibling", "c", 1, 0)
        .gang("below", "a", 3, 1);
    let young = case.world.submit(&"c".into(), "slow", -1, 1, 2);
    case.world.settle_now();
    let high = case.world.submit(&"c".into(), "train", 1, 3, 1);
    case.names.extend([("young".to_owned(), young), ("high".to_owned(), high)]);
    case.world.settle_now();
    case.check("the gang of a is evicted", &["held", "greedy", "sibling", "young", "high"]);
    assert_eq!(case.world.evicted_for.values().map(BTreeSet::len).collect::<Vec<_>>(), [1]);
}

#[test]
fn an_owner_takes_back_what_others_borrow() {
    let teams = [("c1", 6), ("c2", 6)];
    Case::new(&[12], &teams)
        .job("low", "c1", 3, -1)
        .job("mid", "c2", 3, 0)
        .job("high", "c2", 6, 0)
        .job("x", "c1", 3, 1)
        .check("the borrower is evicted before the owner's siblings", &["low", "high", "x"]);
    Case::new(&[12], &teams)
        .job("four", "c1", 4, 0)
        .job("high", "c1", 4, 1)
        .job("two", "c2", 2, 0)
        .job("x", "c2", 4, 0)
        .check("for an owner equal priority is enough, and the lower is evicted", &["high", "two", "x"]);
    Case::new(&[12], &teams)
        .job("low1", "c1", 3, -1)
        .job("mid1", "c1", 2, 0)
        .job("low2", "c2", 3, -1)
        .job("mid2", "c2", 4, 0)
        .job("x", "c1", 4, 0)
        .check("a sibling of lower priority and a borrower are evicted", &["mid1", "mid2", "x"]);
}

#[test]
fn a_team_within_its_guarantee_loses_nothing() {
    let case = Case::new(&[8], &[("c1", 4), ("c2", 4)])
        .job("high", "c1", 4, 1)
        .job("low", "c2", 4, 0)
        .job("x", "c1", 4, 1);
    case.check("no job is evicted", &["high", "low"]);
    assert_eq!(case.reason("x"), Reason::NoRoom);
}

#[test]
fn a_workload_within_guarantee_starts_before_an_earlier_borrowing_one() {
    let mut case = Case::new(&[10], &[("beta", 5), ("alpha", 5)]).job("held", "beta", 5, 0);
    case.world.submit(&"beta".into(), "train", 0, 1, 1);
    let id = case.world.submit(&"alpha".into(), "train", 0, 1, 5);
    case.names.push(("new".to_owned(), id));
    case.world.settle();
    case.check("the guarantee comes first", &["held", "new"]);
}

#[test]
fn a_job_that_is_not_preemptible_must_fit_the_guarantee() {
    let case =
        Case::new(&[2], &[("a", 0), ("b", 1)]).job("a2", "a", 2, 0).fixed("two", "b", 2).fixed("one", "b", 1);
    case.check("only the job that fits the guarantee preempts", &["one"]);
    assert_eq!(case.reason("two"), Reason::NotPreemptibleOverGuarantee);
}

#[test]
fn a_job_that_falls_below_its_guarantee_is_evicted_only_when_no_other_set_works() {
    Case::new(&[8], &[("a", 6), ("b", 5)])
        .job("eight", "a", 8, 0)
        .job("five", "b", 5, 0)
        .check("the only set", &["five"]);
    Case::new(&[8], &[("a", 5), ("b", 2)])
        .job("big", "a", 5, 0)
        .job("one", "a", 1, 0)
        .job("uno", "a", 1, 0)
        .job("three", "b", 2, 0)
        .check("small ones spare the guarantee", &["big", "one", "three"]);
}

#[test]
fn a_job_larger_than_the_guarantee_leaves_it_to_the_others_of_its_team() {
    // The guarantee of a covers its small jobs as if big were not there.
    Case::new(&[8], &[("a", 4), ("b", 2)])
        .job("big", "a", 5, 0)
        .job("one", "a", 1, 0)
        .job("uno", "a", 1, 0)
        .job("two", "b", 2, 0)
        .check("the large one goes, although it is older and costs more", &["one", "uno", "two"]);
    // Its team takes room for small jobs from the borrowers of other teams.
    Case::new(&[8], &[("a", 2), ("b", 0)])
        .job("big", "a", 4, 0)
        .job("four", "b", 4, 0)
        .job("two", "a", 2, 0)
        .check("a small one of the same team is within guarantee", &["big", "two"]);
    // Where its siblings borrow too, it goes before them.
    Case::new(&[8], &[("a", 2), ("b", 2)])
        .job("one", "a", 1, 0)
        .job("uno", "a", 1, 0)
        .job("more", "a", 1, 0)
        .job("big", "a", 4, 0)
        .job("two", "b", 2, 0)
        .check("the large one goes before a sibling that borrows", &["one", "uno", "more", "two"]);
    // A job that is no larger than the guarantee is protected by it.
    Case::new(&[6], &[("a", 4), ("b", 3)])
        .job("four", "a", 4, 0)
        .job("two", "b", 2, 0)
        .job("one", "b", 1, 0)
        .check("a job as large as the guarantee is protected by it", &["four", "two"]);
}

#[test]
fn of_jobs_that_started_at_once_the_last_in_the_queue_is_evicted() {
    // Reported in the order of their names; submitted in that order, in the opposite one, or all at once.
    for (step, last) in
        [(1_000, ["w10", "w11", "w12"]), (-1_000, ["w1", "w2", "w3"]), (0, ["w10", "w11", "w12"])]
    {
        let mut world = World::new(&[12], vec![team("a", None, 0, None), team("b", None, 12, None)]);
        for place in 0..12 {
            world.now = Time(20_000 + place * step);
            world.submit(&"a".into(), "train", 0, 1, 1);
        }
        world.now = Time(40_000);
        world.settle();
        world.now = Time(60_000);
        let owner = world.submit(&"b".into(), "train", 0, 1, 3);
        world.settle();
        let evicted: BTreeSet<&str> = world.evicted_for[&owner].iter().map(|id| &id.0[2..]).collect();
        assert_eq!(evicted, last.into(), "submitted {step} ms after one another");
    }
}

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    let case = Case::new(&[4, 4], &[("a", 0), ("b", 8)]).job("a1", "a", 3, 0).gang("gang", "b", 3, 2);
    case.check("the borrower is evicted for all three pods", &["gang"]);
    let case = Case::new(&[4, 3], &[("b", 8)]).gang("gang", "b", 4, 2);
    case.check("three of four pods fit, so none starts", &[]);
    assert_eq!(case.reason("gang"), Reason::NoNodeFits);
}

#[test]
fn fragmented_capacity_is_the_reason_of_a_job_that_fits_its_sum() {
    let mut case = Case::new(&[4, 4], &[("a", 8)]).job("x", "a", 3, 0).job("y", "a", 3, 0);
    case = case.job("z", "a", 2, 0);
    case.check("two GPUs are free, one on each node", &["x", "y"]);
    assert_eq!(case.reason("z"), Reason::Fragmented);
}

#[test]
fn the_guarantee_of_a_parent_covers_its_children() {
    let teams = vec![
        team("d1", None, 1, None),
        team("d2", None, 1, None),
        team("a", Some("d1"), 1, None),
        team("b", Some("d2"), 1, None),
    ];
    let case = Case { world: World::new(&[2], teams), names: Vec::new() };
    case.job("a1", "a", 1, 0)
        .job("a2", "a", 1, 0)
        .job("b1", "b", 1, 0)
        .check("the newest borrower is evicted", &["a1", "b1"]);
    let siblings = vec![
        team("d1", None, 3, None),
        team("d2", None, 3, None),
        team("a", Some("d1"), 3, None),
        team("b", Some("d2"), 2, None),
        team("c", Some("d2"), 1, None),
    ];
    let case = Case { world: World::new(&[3, 3], siblings), names: Vec::new() };
    case.job("a3", "a", 3, 0)
        .job("b2", "b", 2, 0)
        .job("b1", "b", 1, 0)
        .job("c1", "c", 1, 0)
        .check("a sibling team's borrowed capacity is reclaimed", &["a3", "b2", "c1"]);
}

#[test]
fn a_greedy_team_returns_borrowed_capacity_and_gets_it_back() {
    let mut world = World::new(&[10; 4], vec![team("a", None, 20, None), team("b", None, 20, None)]);
    for _ in 0..30 {
        world.submit(&"a".into(), "train", 0, 1, 1);
    }
    world.settle();
    assert_eq!(world.used(&"a".into()), 30);
    world.now = Time(60_000);
    for _ in 0..20 {
        world.submit(&"b".into(), "train", 0, 1, 1);
    }
    world.settle();
    assert_eq!((world.used(&"a".into()), world.used(&"b".into())), (20, 20));
    let evicted: BTreeSet<_> = world.evicted_for.values().flatten().collect();
    assert_eq!(evicted.len(), 10, "exactly ten of A's jobs are evicted");
    let b: Vec<WorkloadId> = world
        .running()
        .iter()
        .filter(|job| &*job.workload.team == "b")
        .map(|job| job.workload.id.clone())
        .collect();
    for id in b {
        world.end(&id, Phase::Finished);
    }
    world.settle();
    assert_eq!(world.used(&"a".into()), 30, "A's ten jobs start again");
}

#[test]
fn small_jobs_are_packed_so_that_a_large_one_fits() {
    let mut world = World::new(&[10; 4], vec![team("a", None, 20, None), team("b", None, 20, None)]);
    for _ in 0..6 {
        world.submit(&"a".into(), "train", 0, 1, 3);
    }
    world.settle();
    let mut free: Vec<i64> = world.nodes.keys().map(|node: &Name| world.free(node)).collect();
    free.sort_unstable();
    assert_eq!(free, [1, 1, 10, 10], "the usage is 9 + 9 + 0 + 0");
    let id = world.submit(&"b".into(), "train", 0, 1, 8);
    world.settle();
    assert!(matches!(world.items[&id].phase, Phase::Running(_)));
    assert!(world.evicted_for.is_empty());
}

#[test]
fn idle_quota_is_lent_and_reclaimed_from_one_node() {
    let mut world = World::new(&[10; 4], vec![team("a", None, 20, None), team("b", None, 20, None)]);
    for i in 0..40 {
        world.now = Time(i * 1_000);
        world.submit(&"a".into(), "train", 0, 1, 1);
        world.settle();
    }
    assert_eq!(world.used(&"a".into()), 40);
    world.now = Time(100_000);
    let id = world.submit(&"b".into(), "train", 0, 1, 8);
    world.plan();
    let evicted = &world.evicted_for[&id];
    assert_eq!(evicted.len(), 8, "eight jobs free eight GPUs of one node");
    let oldest = evicted.iter().map(|id| world.items[id].workload.submitted).min();
    assert!(oldest >= Some(Time(30_000)), "the victims that lose least are on the node filled last");
    world.settle();
    assert!(matches!(world.items[&id].phase, Phase::Running(_)));
}

#[test]
fn the_highest_priority_runs_first_and_the_others_in_order() {
    let mut world = World::new(&[2], vec![team("t", None, 2, None)]);
    let mut ids: Vec<WorkloadId> = Vec::new();
    for i in 0..3 {
        world.now = Time(i * 1_000);
        ids.push(world.submit(&"t".into(), "train", 0, 1, 2));
        world.settle();
    }
    world.now = Time(5_000);
    ids.push(world.submit(&"t".into(), "train", 1_000_000, 1, 2));
    world.settle();
    let mut order = Vec::new();
    while let Some(running) = world.running().first().map(|job| job.workload.id.clone()) {
        order.push(ids.iter().position(|id| *id == running));
        world.end(&running, Phase::Finished);
        world.settle();
    }
    assert_eq!(order, [Some(3), Some(0), Some(1), Some(2)]);
}

#[test]
fn only_a_workload_that_waits_within_its_guarantee_is_counted_as_such() {
    // The guarantees are twice the capacity, so a workload within guarantee has to wait.
    let case = Case::new(&[8], &[("first", 8), ("second", 8)])
        .job("all", "first", 8, 0)
        .job("more", "first", 2, 0)
        .job("guaranteed", "second", 4, 0)
        .job("later", "second", 1, 0);
    case.check("no team borrows, so no job is evicted", &["all"]);
    let (_, id) = case.names.iter().find(|(name, _)| name == "guaranteed").expect("a job of that name");
    let submitted = case.world.items[id].workload.submitted;
    let waiting: Vec<(Name, Time)> = case.world.engine.oldest_within_guarantee().into_iter().collect();
    assert_eq!(waiting, [("second".into(), submitted)]);
}

#[test]
fn a_job_that_the_guarantee_covers_is_not_evicted_together_with_a_smaller_one_either() {
    // Without high alone, its team would not fall below its guarantee; without small as well it would. And
    // high would be within guarantee again once low is evicted.
    Case::new(&[4, 2], &[("owner", 4), ("t", 3)])
        .job("low", "t", 2, 0)
        .job("small", "t", 1, 0)
        .job("high", "t", 2, 1)
        .job("x", "owner", 4, 0)
        .check("x waits", &["low", "small", "high"]);
}

/// The small workload of b is within the guarantee of its team at all times; that of the parent covers it once the workload
/// of a has ended. Then it comes before the borrower that still waits, although it needs the node of another borrower.
#[test]
fn what_a_parents_guarantee_covers_again_comes_before_borrowers() {
    let teams = [("p", None, 4), ("a", Some("p"), 4), ("b", Some("p"), 4), ("c", None, 0), ("d", None, 4)];
    let teams =
        teams.iter().map(|(name, parent, guaranteed)| team(name, *parent, *guaranteed, None)).collect();
    let mut world = World::new(&[4, 4], teams);
    let submit = |world: &mut World, team: &str, pods: u32, gpus: i64| {
        let id = world.submit(&team.into(), "train", 0, pods, gpus);
        world.settle_now();
        id
    };
    let other = submit(&mut world, "d", 4, 1);
    let first = submit(&mut world, "a", 3, 1);
    let borrower = submit(&mut world, "c", 1, 1);
    submit(&mut world, "b", 2, 4);
    let covered = submit(&mut world, "b", 1, 4);
    submit(&mut world, "c", 1, 3);
    let running = |world: &World| -> Vec<WorkloadId> {
        world.running().into_iter().map(|job| job.workload.id.clone()).collect()
    };
    assert_eq!(
        running(&world),
        [first.clone(), borrower, other.clone()],
        "the parent's guarantee is used up"
    );
    world.end(&first, Phase::Finished);
    world.settle_now();
    assert_eq!(running(&world), [covered, other], "the parent's guarantee covers it");
    let evictions = world.log.iter().filter(|line| line.starts_with("Evict"));
    assert_eq!(evictions.count(), 1, "one borrower is evicted: {:?}", world.log);
}

/// An evicted workload joins others like it and stands before them, and before the owner of the team's reservation.
#[test]
fn an_evicted_workload_takes_over_the_reservation_of_its_team() {
    let mut world = World::new(&[10], vec![team("t", None, 10, None)]);
    let submit = |world: &mut World, priority: i32, pods: u32| {
        let id = world.submit(&"t".into(), "train", priority, pods, 1);
        world.edit(&id, |workload| workload.time_limit = Some(Duration::from_secs(1_000)));
        world.settle_now();
        world.now = Time(world.now.0 + 1_000);
        id
    };
    let owner = |world: &World| -> Vec<WorkloadId> {
        world.engine.reservations().into_iter().map(|reservation| reservation.owner).collect()
    };
    let oldest = submit(&mut world, 0, 8);
    let larger = submit(&mut world, 0, 9);
    submit(&mut world, 0, 8);
    assert_eq!(owner(&world), [larger], "the first that waits");
    submit(&mut world, 1, 10);
    assert_eq!(owner(&world), [oldest], "the first that waits after the eviction");
}

#[test]
fn the_owner_of_a_reservation_that_moves_back_gives_it_to_the_next_in_line() {
    let mut world = World::new(&[10], vec![team("t", None, 10, None)]);
    let submit = |world: &mut World, pods: u32| {
        let id = world.submit(&"t".into(), "train", 0, pods, 1);
        world.edit(&id, |workload| workload.time_limit = Some(Duration::from_secs(1_000)));
        world.settle_now();
        world.now = Time(world.now.0 + 1_000);
        id
    };
    let owner = |world: &World| -> Vec<WorkloadId> {
        world.engine.reservations().into_iter().map(|reservation| reservation.owner).collect()
    };
    submit(&mut world, 10);
    let (first, second) = (submit(&mut world, 9), submit(&mut world, 8));
    assert_eq!(owner(&world), std::slice::from_ref(&first));
    world.edit(&first, |workload| workload.team_order = -1);
    world.settle_now();
    assert_eq!(owner(&world), [second]);
}

/// The large workload that waits counts on the guarantee of its team once what started before it has ended. One GPU more
/// fits beside that, so a notebook starts on capacity that is not reserved; a second one would not leave enough.
#[test]
fn what_leaves_the_guarantee_that_an_owner_counts_on_starts_at_once() {
    let teams = [("a", 3), ("b", 5), ("c", 4)].map(|(name, guaranteed)| team(name, None, guaranteed, None));
    let mut world = World::new(&[6, 6], teams.into());
    let mut submit = |team: &str, gpus: i64| {
        let id = world.submit(&team.into(), "train", 0, 1, gpus);
        world.settle();
        world.engine.verdict(&id).expect("a verdict").reason
    };
    assert_eq!(submit("b", 3), Reason::Guaranteed);
    assert_eq!(submit("c", 4), Reason::Guaranteed);
    assert_eq!(submit("b", 4), Reason::Fragmented, "it gets a reservation");
    assert_eq!(submit("a", 3), Reason::Guaranteed, "on reserved capacity");
    assert_eq!(submit("b", 1), Reason::Guaranteed, "on free capacity");
    assert_eq!(submit("b", 1), Reason::Reserved, "it would not leave the guarantee to the large one");
}
