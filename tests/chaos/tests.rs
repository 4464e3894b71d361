//! The judge sees each breach in snapshots made by hand, and none in those that obey the laws.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;
use sluice::api::record::Eviction;
use sluice_harness::{JobView, NodeView, PodView, View};

use crate::books::{Books, Claim, Node, Team};
use crate::ending::unfinished;
use crate::judge::Judge;
use crate::kubelet::lost;

fn team(guarantee: i64, limit: Option<i64>) -> Team {
    Team { guarantee, limit, ..Team::default() }
}

/// Team a with this usage, guarantee 2 and limit 4.
fn using(gpus: i64) -> Books {
    Books {
        teams: [("a".to_owned(), team(2, Some(4))), ("b".to_owned(), team(4, None))].into(),
        admitted: [("a".to_owned(), gpus)].into(),
        ..Books::default()
    }
}

fn breaches(snapshots: impl IntoIterator<Item = Books>) -> Vec<String> {
    let mut judge = Judge::default();
    snapshots.into_iter().flat_map(|books| judge.judge(books)).collect()
}

#[test]
fn a_team_above_its_limit_is_a_breach_only_if_it_came_there_by_admission() {
    assert!(breaches([4; 9].map(using)).is_empty());
    assert_eq!(breaches([4, 5, 5, 5, 5, 5].map(using)).len(), 1);
    // The limit was lowered under it.
    let lowered = |gpus| Books { teams: [("a".to_owned(), team(2, Some(3)))].into(), ..using(gpus) };
    assert!(breaches([using(4), lowered(4), lowered(4), lowered(4), lowered(4), lowered(4)]).is_empty());
    // One snapshot alone is two instants.
    assert!(breaches([4, 5, 4, 4, 4, 4].map(using)).is_empty());
}

/// A node of 4 GPUs with these claims: GPUs, seconds and whether they were admitted.
fn node(claims: &[(i64, i64, bool)]) -> Books {
    let claim = |(gpus, at, admitted): &(i64, i64, bool)| Claim {
        who: "a/x".into(),
        gpus: *gpus,
        since: at * 1_000,
        admitted: *admitted,
    };
    let node = Node { gpus: 4, claims: claims.iter().map(claim).collect(), open: true };
    Books { nodes: [("n".to_owned(), node)].into(), ..Books::default() }
}

#[test]
fn a_node_that_was_promised_more_than_it_has_is_a_breach() {
    let seen = |claims: &[(i64, i64, bool)]| breaches((0..6).map(|_| node(claims))).len();
    assert_eq!(seen(&[(2, 0, true), (2, 9, true)]), 0);
    assert_eq!(seen(&[(3, 0, true), (2, 9, true)]), 1);
    // A pod of others that stood there long before the admission, and one that came after it.
    assert_eq!(seen(&[(3, 0, false), (2, 60, true)]), 1);
    assert_eq!(seen(&[(3, 60, false), (2, 0, true)]), 0);
    // Pods of others alone are not Sluice's.
    assert_eq!(seen(&[(3, 0, false), (2, 60, false)]), 0);
}

fn evicted(team_uses: i64, preemptor: &str, reason: &str, at: i64) -> Books {
    let taken = at;
    let at = Timestamp::from_millisecond(at).expect("a time");
    let eviction = Eviction { preemptor: preemptor.into(), ..Eviction::new(at, reason) };
    Books {
        evictions: BTreeMap::from([("a/x".to_owned(), ("a".to_owned(), eviction))]),
        taken,
        ..using(team_uses)
    }
}

#[test]
fn an_owner_within_its_guarantee_loses_nothing_to_another_team() {
    // Job a/x was seen to run.
    let using = |gpus| Books { admissions: BTreeMap::from([("a/x".to_owned(), 0)]), ..using(gpus) };
    assert!(breaches([using(3), evicted(1, "b/y", "Reclaimed", 0)]).is_empty());
    assert_eq!(breaches([using(2), evicted(0, "b/y", "Reclaimed", 0)]).len(), 1);
    assert!(breaches([using(2), evicted(0, "a/y", "Preempted", 0)]).is_empty());
    // Another Job of its team started on borrowed capacity in the same instant, or only after it.
    let started = |at: i64| {
        let mut after = evicted(1, "b/y", "Reclaimed", 5);
        after.admissions.insert("a/more".to_owned(), at);
        after.sizes.insert("a/more".to_owned(), 1);
        breaches([using(2), after]).len()
    };
    assert_eq!((started(5), started(6)), (0, 1));
    // Its team was deleted, and made again later.
    let deleted = Books { teams: BTreeMap::new(), ..evicted(0, "b/y", "Reclaimed", 0) };
    assert!(breaches([using(2), deleted, evicted(0, "b/y", "Reclaimed", 0)]).is_empty());
    // Its guarantee was raised a moment before, or long before.
    let later = |after: i64| {
        let mut low = using(2);
        low.teams.get_mut("a").expect("team a").guarantee = 1;
        let then = (0..4).map(|_| Books { taken: 1, ..using(2) });
        let went = Books { taken: after, ..evicted(0, "b/y", "Reclaimed", after) };
        breaches([low].into_iter().chain(then).chain([went])).len()
    };
    assert_eq!((later(9_000), later(30_000)), (0, 1));
    // No guarantee protects what is larger from work within guarantee.
    let large = |books: Books| Books { sizes: BTreeMap::from([("a/x".to_owned(), 3)]), ..books };
    let went = |reason| breaches([large(using(0)), large(evicted(0, "b/y", reason, 0))]).len();
    assert_eq!(went("Reclaimed"), 0);
    let left = |reason| {
        let mut after = large(evicted(2, "b/y", reason, 0));
        after.admissions.insert("a/x".to_owned(), 0);
        breaches([large(using(2)), after]).len()
    };
    assert_eq!((left("Reclaimed"), left("FairShare")), (0, 1));
    // Room is kept for other work of its team, for which a Job of team b goes.
    let kept = |mut books: Books| {
        let at = Timestamp::from_millisecond(0).expect("a time");
        let for_own = Eviction { preemptor: "a/waits".into(), ..Eviction::new(at, "Reclaimed") };
        books.evictions.insert("b/z".to_owned(), ("b".to_owned(), for_own));
        books.sizes.insert("a/waits".to_owned(), 2);
        books
    };
    assert!(breaches([kept(using(1)), kept(evicted(1, "b/y", "FairShare", 0))]).is_empty());
    // It made its team borrow, between two snapshots.
    let sizes = || BTreeMap::from([("a/x".to_owned(), 2)]);
    let before = Books { admissions: BTreeMap::new(), sizes: sizes(), ..using(1) };
    let short = [before, Books { sizes: sizes(), ..evicted(1, "b/y", "Reclaimed", 0) }];
    assert!(breaches(short).is_empty());
}

#[test]
fn no_workload_goes_twice_for_the_same_one() {
    let first = || [using(4), evicted(4, "b/y", "Reclaimed", 0)];
    let then = |at| breaches(first().into_iter().chain([evicted(4, "b/y", "Reclaimed", at)]));
    assert_eq!(then(1_000).len(), 1);
    assert!(then(9_000).is_empty());
}

#[test]
fn a_status_that_stays_wrong_is_a_breach() {
    let said = |gpus| Books { said: [("a".to_owned(), gpus)].into(), ..using(3) };
    assert!(breaches((0..90).map(|_| said(3))).is_empty());
    assert!(breaches((0..60).map(|_| said(2))).is_empty());
    assert_eq!(breaches((0..90).map(|_| said(2))).len(), 1);
}

#[test]
fn what_comes_with_a_namespace_is_no_admission() {
    let moved = || Books { homes: [("n".to_owned(), "a".to_owned())].into(), ..using(5) };
    assert!(breaches([using(4)].into_iter().chain((0..6).map(|_| moved()))).is_empty());
}

#[test]
fn marks_outside_of_teams_and_doubled_pods_are_breaches() {
    let touched = || Books { touched: ["job free/x".to_owned()].into(), ..Books::default() };
    assert_eq!(breaches((0..6).map(|_| touched())).len(), 1);
    let doubled = || Books { doubled: ["a/x runs 2 pods of 1".to_owned()].into(), ..Books::default() };
    assert_eq!(breaches((0..6).map(|_| doubled())).len(), 1);
}

#[test]
fn a_workload_that_goes_again_and_again_flaps() {
    let each = (1..12).map(|times| evicted(4, &format!("b/y{times}"), "Reclaimed", times * 60_000));
    let found = breaches([using(4)].into_iter().chain(each));
    assert_eq!(found, ["law 8: a/x was evicted 10 times"]);
}

fn job(namespace: &str, name: &str, gpus: i64, node: Option<&str>) -> JobView {
    let record = |node: &str| {
        let record = json!({"pool": "default", "nodes": {node: 1}, "pods": 1, "borrowed": true,
            "at": "2026-01-01T00:00:00Z"});
        serde_json::from_value(record).expect("a record")
    };
    JobView {
        namespace: namespace.into(),
        name: name.into(),
        held: node.is_none(),
        suspended: node.is_none(),
        admission: node.map(record),
        gpus,
        parallelism: 1,
        ..JobView::default()
    }
}

/// Team a may have 2 GPUs, team b runs with 4 of 3 on the node.
fn owner_waits(edit: impl FnOnce(&mut View, &mut BTreeMap<String, Team>)) -> Books {
    let mut teams = BTreeMap::from([("a".to_owned(), team(2, None)), ("b".to_owned(), team(3, None))]);
    let node = NodeView { gpus: 4, ready: true, ..NodeView::default() };
    let jobs = vec![job("a", "x", 2, None), job("b", "y", 2, Some("n")), job("b", "z", 2, Some("n"))];
    let mut view = View { jobs, pods: Vec::new(), nodes: [("n".to_owned(), node)].into() };
    edit(&mut view, &mut teams);
    Books::of(&view, teams)
}

#[test]
fn an_owner_that_waits_while_borrowers_run_is_a_breach() {
    let seen =
        |edit: fn(&mut View, &mut BTreeMap<String, Team>)| breaches((0..90).map(|_| owner_waits(edit))).len();
    assert_eq!(seen(|_, _| ()), 1);
    assert_eq!(seen(|_, teams| teams.extend([("b".to_owned(), team(4, None))])), 0, "no team borrows");
    assert_eq!(seen(|_, teams| teams.extend([("a".to_owned(), team(1, None))])), 0, "not within guarantee");
    assert_eq!(seen(|view, _| view.nodes.iter_mut().for_each(|(_, node)| node.cordoned = true)), 0);
    assert_eq!(seen(|view, _| view.jobs.iter_mut().for_each(|job| job.elastic = true)), 0);
    let older = |view: &mut View, _: &mut BTreeMap<String, Team>| view.jobs.push(job("a", "older", 8, None));
    assert_eq!(seen(older), 0, "it may wait behind a reservation");
    assert_eq!(
        seen(|view, _| {
            view.jobs.push(JobView { created: Some(Timestamp::MAX), ..job("a", "younger", 8, None) });
        }),
        1,
        "what stands behind it reserves nothing before it"
    );
}

#[test]
fn the_books_are_the_records_and_the_pods_beyond_them() {
    let books = owner_waits(|view, _| {
        let pod = |name: &str, namespace: &str, gpus| PodView {
            name: name.into(),
            uid: name.into(),
            namespace: namespace.into(),
            node: Some("n".into()),
            phase: "Running".into(),
            gpus,
            ..PodView::default()
        };
        view.pods = vec![pod("orphan", "b", 1), pod("other", "free", 1)];
        view.pods.push(PodView { job: Some("y".into()), ..pod("first", "b", 2) });
        view.pods.push(PodView { job: Some("y".into()), ..pod("second", "b", 2) });
    });
    // Two records of 2 GPUs, the second pod of y, and the orphan.
    assert_eq!((books.used("b"), books.charged("b")), (6, 7));
    assert_eq!(books.doubled.len(), 1, "{:?}", books.doubled);
    assert_eq!(books.nodes["n"].claims.iter().map(|claim| claim.gpus).sum::<i64>(), 8);
}

#[test]
fn a_reason_counts_only_if_the_objects_show_it() {
    let held = |edit: fn(&mut JobView)| {
        let mut one = job("a", "x", 2, None);
        edit(&mut one);
        let view = View { jobs: vec![one], ..View::default() };
        let books = Books::of(&view, BTreeMap::from([("a".to_owned(), team(2, None))]));
        unfinished(&view)[0].explained("HeldByUser", &view, &books)
    };
    assert!(!held(|_| ()), "it is queued");
    assert!(held(|job| job.held = false));
    assert!(held(|job| job.parallelism = 0));
    let admitted = |job: &mut JobView| *job = self::job("a", "x", 2, Some("n"));
    assert!(!held(admitted), "it runs");
    assert!(held(|job| *job = JobView { parallelism: 0, ..self::job("a", "x", 2, Some("n")) }));
    let group = |reason: &str, size, gpus| {
        let pod = PodView {
            namespace: "a".into(),
            group: Some(("g".into(), size)),
            gated: true,
            gpus,
            ..PodView::default()
        };
        let view = View { pods: vec![pod], ..View::default() };
        let books = Books::of(&view, BTreeMap::from([("a".to_owned(), team(2, None))]));
        unfinished(&view)[0].explained(reason, &view, &books)
    };
    assert!(group("Incomplete", 2, 1) && !group("Incomplete", 1, 1));
    assert!(group("NotPreemptibleOverGuarantee", 1, 3) && !group("NotPreemptibleOverGuarantee", 1, 2));
    assert!(!group("NoRoom", 1, 3));
}

#[test]
fn the_kubelet_has_lost_only_what_is_overdue_on_its_node() {
    let at = |seconds: i64| Timestamp::from_second(seconds).ok();
    let found = |edit: fn(&mut PodView)| {
        let mut pod = PodView {
            node: Some("n".into()),
            phase: "Running".into(),
            bound_at: at(0),
            ends_by: at(20),
            ..PodView::default()
        };
        edit(&mut pod);
        let view = View {
            pods: vec![pod],
            nodes: [("n".to_owned(), NodeView::default())].into(),
            ..View::default()
        };
        [25, 35].map(|now| lost(&view, at(now).unwrap_or_default()).len())
    };
    assert_eq!(found(|_| ()), [0, 1], "it runs longer than it should");
    assert_eq!(found(|pod| pod.deleting = true), [0, 1], "it outlives its grace period");
    assert_eq!(found(|pod| pod.ends_by = None), [0, 0], "it runs for ever");
    assert_eq!(found(|pod| pod.phase = "Pending".into()), [1, 1], "it does not start");
    assert_eq!(found(|pod| pod.phase = "Succeeded".into()), [0, 0]);
    assert_eq!(found(|pod| pod.node = Some("gone".into())), [0, 0]);
    let unbound = |pod: &mut PodView| (pod.node, pod.phase) = (None, "Pending".into());
    assert_eq!(found(unbound), [0, 0], "Sluice and kube-scheduler owe it a node");
}
