//! Guarantees beyond their cover are those of the teams at fault, and of no other.

use sluice_engine::Engine;
use sluice_engine::types::{Event, Time};

use super::world::{node, team};

/// The teams at fault, and the sentences, with 40 GPUs and these teams: name, parent and guarantee.
fn found(teams: &[(&str, Option<&str>, i64)]) -> (Vec<String>, String) {
    let mut engine = Engine::new();
    engine.apply(Event::NodeApplied(node("n", 40)), Time(0));
    for (name, parent, guaranteed) in teams {
        engine.apply(Event::TeamApplied(team(name, *parent, *guaranteed, None)), Time(0));
    }
    let all = engine.overcommitments();
    let at = all.iter().flat_map(|over| over.at.iter().map(ToString::to_string)).collect();
    (at, all.into_iter().map(|over| over.message).collect::<Vec<_>>().join("\n"))
}

#[test]
fn a_guarantee_that_is_too_large_alone_is_the_only_fault() {
    assert_eq!(found(&[("a", None, 20), ("b", None, 20)]).0, [""; 0]);
    let (at, message) = found(&[("a", None, 20), ("b", None, 20), ("typo", None, 100)]);
    assert_eq!(at, ["typo"]);
    assert!(message.contains("140 of 40 nvidia.com/gpu (typo 100, a 20, b 20)"), "{message}");
}

#[test]
fn without_one_that_is_too_large_alone_the_fewest_and_largest_are_at_fault() {
    assert_eq!(found(&[("a", None, 20), ("b", None, 16), ("c", None, 5)]).0, ["a"]);
    assert_eq!(found(&[("a", None, 30), ("b", None, 30), ("c", None, 30)]).0, ["a", "b"]);
}

#[test]
fn below_a_parent_without_a_guarantee_the_nodes_must_cover_it() {
    let mut engine = Engine::new();
    engine.apply(Event::NodeApplied(node("n", 40)), Time(0));
    for (name, parent, guaranteed) in [("a", None, 20), ("b", None, 20), ("k", Some("p"), 10)] {
        engine.apply(Event::TeamApplied(team(name, parent, guaranteed, None)), Time(0));
    }
    let mut above = team("p", None, 0, None);
    above.quotas.clear();
    engine.apply(Event::TeamApplied(above), Time(0));
    let messages: Vec<String> = engine.overcommitments().into_iter().map(|over| over.message).collect();
    assert!(
        messages.len() == 1 && messages[0].contains("50 of 40 nvidia.com/gpu (a 20, b 20, k 10)"),
        "{messages:?}"
    );
}

#[test]
fn below_a_parent_it_is_the_child_or_the_parent() {
    let top = ("top", None, 20);
    assert_eq!(found(&[top, ("x", Some("top"), 30), ("y", Some("top"), 4)]).0, ["x"]);
    let below_unknown = ("top", Some("gone"), 20);
    assert_eq!(found(&[below_unknown, ("x", Some("top"), 30), ("y", Some("top"), 4)]).0, ["x"]);
    let (at, message) = found(&[top, ("x", Some("top"), 12), ("y", Some("top"), 12)]);
    assert_eq!(at, ["top"]);
    assert!(message.contains("24 of 20 nvidia.com/gpu (x 12, y 12)"), "{message}");
}
