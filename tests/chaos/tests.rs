//! The judge sees each breach in snapshots made by hand, and none in those that obey the laws.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice::api::record::Eviction;

use crate::books::{Books, Claim, Judge, Node, Team};

fn team(guarantee: i64, limit: Option<i64>) -> Team {
    Team { parent: None, guarantee, limit }
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
    let node = Node { gpus: 4, claims: claims.iter().map(claim).collect() };
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
    let at = Timestamp::from_millisecond(at).expect("a time");
    let eviction = Eviction { at, preemptor: preemptor.into(), reason: reason.into() };
    Books { evictions: BTreeMap::from([("a/x".to_owned(), ("a".to_owned(), eviction))]), ..using(team_uses) }
}

#[test]
fn an_owner_within_its_guarantee_loses_nothing_to_another_team() {
    assert!(breaches([using(3), evicted(1, "b/y", "Reclaimed", 0)]).is_empty());
    assert_eq!(breaches([using(2), evicted(0, "b/y", "Reclaimed", 0)]).len(), 1);
    assert!(breaches([using(2), evicted(0, "a/y", "Preempted", 0)]).is_empty());
}

#[test]
fn no_workload_goes_twice_for_the_same_one() {
    let first = || [using(4), evicted(4, "b/y", "Reclaimed", 0)];
    let then = |at| breaches(first().into_iter().chain([evicted(4, "b/y", "Reclaimed", at)]));
    assert_eq!(then(1_000).len(), 1);
    assert!(then(9_000).is_empty());
}

#[test]
fn marks_outside_of_teams_and_doubled_pods_are_breaches() {
    let touched = || Books { touched: ["job free/x".to_owned()].into(), ..Books::default() };
    assert_eq!(breaches((0..6).map(|_| touched())).len(), 1);
    let doubled = || Books { doubled: ["a/x runs 2 pods of 1".to_owned()].into(), ..Books::default() };
    assert_eq!(breaches((0..6).map(|_| doubled())).len(), 1);
}
