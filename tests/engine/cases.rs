//! Known cases with one right answer, the four stories among them.
//!
//! A case names nodes and teams, what runs, what arrives, and then who must go and who must run.

use std::collections::BTreeSet;

use sluice_engine::types::Reason;
use sluice_engine::types::{Name, Time, WorkloadId};

use super::world::{Stage, World, team};

/// A cluster in the making; jobs are `team/name:gpus` with one pod each.
struct Case {
    world: World,
    names: Vec<(String, WorkloadId)>,
}

impl Case {
    fn new(nodes: &[i64], teams: &[(&str, i64)]) -> Self {
        let teams = teams.iter().map(|(name, guaranteed)| team(name, None, *guaranteed, None)).collect();
        Self { world: World::new(nodes, teams), names: Vec::new() }
    }

    fn job(mut self, label: &str, team: &str, gpus: i64, priority: i32) -> Self {
        self.world.now = Time(self.world.now.0 + 1_000);
        let id = self.world.submit(&team.into(), "train", priority, 1, gpus);
        self.names.push((label.to_owned(), id));
        self.world.settle();
        self
    }

    fn fixed(mut self, label: &str, team: &str, gpus: i64) -> Self {
        self.world.now = Time(self.world.now.0 + 1_000);
        let id = self.world.submit(&team.into(), "fixed", 0, 1, gpus);
        self.names.push((label.to_owned(), id));
        self.world.settle();
        self
    }

    /// A job of several pods, all or none.
    fn gang(mut self, label: &str, team: &str, pods: u32, gpus: i64) -> Self {
        self.world.now = Time(self.world.now.0 + 1_000);
        let id = self.world.submit(&team.into(), "train", 0, pods, gpus);
        self.names.push((label.to_owned(), id));
        self.world.settle();
        self
    }

    fn running(&self) -> BTreeSet<&str> {
        let runs = |id: &WorkloadId| matches!(self.world.items[id].stage, Stage::Running(_));
        self.names.iter().filter(|(_, id)| runs(id)).map(|(label, _)| label.as_str()).collect()
    }

    fn check(&self, case: &str, expected: &[&str]) {
        assert_eq!(self.running(), expected.iter().copied().collect(), "{case}: who runs");
    }

    fn reason(&self, label: &str) -> Reason {
        let (_, id) = self.names.iter().find(|(name, _)| name == label).expect("a job of that name");
        self.world.reason(id).1
    }
}

#[test]
fn within_a_team_lower_priority_yields_and_equal_never() {
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
fn one_mate_goes_where_the_claimant_may_borrow_the_rest() {
    // Within its team's guarantee there would be room for high only with low gone too. Whoever goes would be owed
    // its room without high, but cannot take it back from a mate of higher priority.
    let case = Case::new(&[5, 1], &[("a", 5)])
        .job("low", "a", 1, -1)
        .job("mid1", "a", 2, 0)
        .job("mid2", "a", 2, 0)
        .job("high", "a", 3, 1);
    case.check("the newest", &["low", "mid1", "high"]);
    assert_eq!(case.world.evicted_for.values().map(BTreeSet::len).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_mate_who_could_start_again_at_once_does_not_go() {
    // With both mates gone high would be within its team's guarantee, but the first of them starts again beside it
    // at once: nothing is won over the set of the other alone. In both the other, queued again, evicts long as soon
    // as that has run for its minimum time; so they differ in the work lost only, and the newest goes.
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
    case.check("one mate goes", &["long", "mate1", "high"]);
}

#[test]
fn no_mate_goes_where_it_would_have_a_straddling_one_evicted_at_once() {
    // One GPU is missing. If the mate went for it, it would be owed its room again; young has yet to run for its
    // minimum time, so it would take the straddling one's. That one goes, and nobody in vain.
    let mut case = Case::new(&[6, 4, 7], &[("a", 1), ("b", 1), ("c", 7)])
        .gang("greedy", "b", 3, 3)
        .job("mate", "c", 1, 0)
        .gang("straddling", "a", 3, 1);
    let young = case.world.submit(&"c".into(), "slow", -1, 1, 2);
    case.world.settle_now();
    let high = case.world.submit(&"c".into(), "train", 1, 3, 1);
    case.names.extend([("young".to_owned(), young), ("high".to_owned(), high)]);
    case.world.settle_now();
    case.check("the straddling one goes", &["greedy", "mate", "young", "high"]);
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
        .check("the borrower goes before the owner's own", &["low", "high", "x"]);
    Case::new(&[12], &teams)
        .job("four", "c1", 4, 0)
        .job("high", "c1", 4, 1)
        .job("two", "c2", 2, 0)
        .job("x", "c2", 4, 0)
        .check("equal priority is enough for an owner, and the lower goes", &["high", "two", "x"]);
    Case::new(&[12], &teams)
        .job("low1", "c1", 3, -1)
        .job("mid1", "c1", 2, 0)
        .job("low2", "c2", 3, -1)
        .job("mid2", "c2", 4, 0)
        .job("x", "c1", 4, 0)
        .check("own lower priority and a borrower", &["mid1", "mid2", "x"]);
}

#[test]
fn a_team_within_its_guarantee_is_left_alone() {
    let case = Case::new(&[8], &[("c1", 4), ("c2", 4)])
        .job("high", "c1", 4, 1)
        .job("low", "c2", 4, 0)
        .job("x", "c1", 4, 1);
    case.check("nobody goes", &["high", "low"]);
    assert_eq!(case.reason("x"), Reason::NoRoom);
}

#[test]
fn the_order_of_arrival_between_teams_does_not_beat_what_is_owed() {
    let mut case = Case::new(&[10], &[("beta", 5), ("alpha", 5)]).job("held", "beta", 5, 0);
    case.world.submit(&"beta".into(), "train", 0, 1, 1);
    let id = case.world.submit(&"alpha".into(), "train", 0, 1, 5);
    case.names.push(("new".to_owned(), id));
    case.world.settle();
    case.check("owed goes first", &["held", "new"]);
}

#[test]
fn what_cannot_be_evicted_must_fit_the_guarantee() {
    let case =
        Case::new(&[2], &[("a", 0), ("b", 1)]).job("a2", "a", 2, 0).fixed("two", "b", 2).fixed("one", "b", 1);
    case.check("only what fits the guarantee reclaims", &["one"]);
    assert_eq!(case.reason("two"), Reason::NotPreemptibleOverGuarantee);
}

#[test]
fn a_straddling_job_goes_only_when_no_other_set_works() {
    Case::new(&[8], &[("a", 6), ("b", 5)])
        .job("eight", "a", 8, 0)
        .job("five", "b", 5, 0)
        .check("the only one there is", &["five"]);
    Case::new(&[8], &[("a", 4), ("b", 2)])
        .job("big", "a", 5, 0)
        .job("one", "a", 1, 0)
        .job("uno", "a", 1, 0)
        .job("three", "b", 2, 0)
        .check("small ones spare the guarantee", &["big", "one", "three"]);
}

#[test]
fn of_those_who_started_at_once_the_last_in_the_queue_goes() {
    // Told of in the order of their names, submitted in that order, in the opposite one, or all at once.
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
        let went: BTreeSet<&str> = world.evicted_for[&owner].iter().map(|id| &id.0[2..]).collect();
        assert_eq!(went, last.into(), "submitted {step} ms after one another");
    }
}

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    let case = Case::new(&[4, 4], &[("a", 0), ("b", 8)]).job("a1", "a", 3, 0).gang("gang", "b", 3, 2);
    case.check("the borrower makes room for all three", &["gang"]);
    let case = Case::new(&[4, 3], &[("b", 8)]).gang("gang", "b", 4, 2);
    case.check("three of four is nothing", &[]);
    assert_eq!(case.reason("gang"), Reason::NoNodeFits);
}

#[test]
fn free_but_scattered_room_is_told_as_such() {
    let mut case = Case::new(&[4, 4], &[("a", 8)]).job("x", "a", 3, 0).job("y", "a", 3, 0);
    case = case.job("z", "a", 2, 0);
    case.check("two GPUs are free, one on each node", &["x", "y"]);
    assert_eq!(case.reason("z"), Reason::Fragmented);
}

#[test]
fn a_parent_counts_for_its_children() {
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
        .check("the newest of what borrows goes", &["a1", "b1"]);
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
        .check("a sibling's borrowing is taken back", &["a3", "b2", "c1"]);
}

#[test]
fn story_the_greedy_team() {
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
    assert_eq!(evicted.len(), 10, "exactly ten of A's go");
    let b: Vec<WorkloadId> = world
        .running()
        .iter()
        .filter(|item| &*item.workload.team == "b")
        .map(|item| item.workload.id.clone())
        .collect();
    for id in b {
        world.end(&id, Stage::Finished);
    }
    world.settle();
    assert_eq!(world.used(&"a".into()), 30, "A's ten resume by themselves");
}

#[test]
fn story_fragmentation() {
    let mut world = World::new(&[10; 4], vec![team("a", None, 20, None), team("b", None, 20, None)]);
    for _ in 0..6 {
        world.submit(&"a".into(), "train", 0, 1, 3);
    }
    world.settle();
    let mut free: Vec<i64> = world.nodes.keys().map(|node: &Name| world.free(node)).collect();
    free.sort_unstable();
    assert_eq!(free, [1, 1, 10, 10], "they lie 9 + 9 + 0 + 0");
    let id = world.submit(&"b".into(), "train", 0, 1, 8);
    world.settle();
    assert!(matches!(world.items[&id].stage, Stage::Running(_)));
    assert!(world.evicted_for.is_empty());
}

#[test]
fn story_idle_quota() {
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
    assert_eq!(evicted.len(), 8, "as many as free one node's eight GPUs");
    let oldest = evicted.iter().map(|id| world.items[id].workload.submitted).min();
    assert!(oldest >= Some(Time(30_000)), "those that lose least are on the node filled last");
    world.settle();
    assert!(matches!(world.items[&id].stage, Stage::Running(_)));
}

#[test]
fn story_priority() {
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
    while let Some(running) = world.running().first().map(|item| item.workload.id.clone()) {
        order.push(ids.iter().position(|id| *id == running));
        world.end(&running, Stage::Finished);
        world.settle();
    }
    assert_eq!(order, [Some(3), Some(0), Some(1), Some(2)]);
}

#[test]
fn who_waits_within_the_guarantee_is_owed_and_who_waits_for_the_surplus_is_not() {
    // Twice as much is promised as there is, so that an owner has to wait.
    let case = Case::new(&[8], &[("first", 8), ("second", 8)])
        .job("all", "first", 8, 0)
        .job("more", "first", 2, 0)
        .job("owed", "second", 4, 0)
        .job("later", "second", 1, 0);
    case.check("nobody borrows, so nobody goes", &["all"]);
    let (_, id) = case.names.iter().find(|(name, _)| name == "owed").expect("a job of that name");
    let submitted = case.world.items[id].workload.submitted;
    let owed: Vec<(Name, Time)> = case.world.engine.oldest_within_guarantee().into_iter().collect();
    assert_eq!(owed, [("second".into(), submitted)]);
}

#[test]
fn one_that_its_guarantee_covers_is_not_taken_together_with_a_smaller_one_either() {
    // On its own, high could go without its team falling below its guarantee; beside small it could not,
    // and with low out of the way it would be owed its room back.
    Case::new(&[4, 2], &[("owner", 4), ("t", 3)])
        .job("low", "t", 2, 0)
        .job("small", "t", 1, 0)
        .job("high", "t", 2, 1)
        .job("x", "owner", 4, 0)
        .check("x waits", &["low", "small", "high"]);
}
