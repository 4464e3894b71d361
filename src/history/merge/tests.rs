use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::record::{Ending, Head};
use super::*;

fn key() -> RunKey {
    RunKey { uid: "u".into(), admitted_at: 1_000 }
}

fn amounts(devices: i64) -> BTreeMap<String, i64> {
    [(DEVICES.to_owned(), devices * 1000)].into()
}

fn segment(from: i64, to: i64, devices: i64) -> Segment {
    Segment { from, to, amounts: amounts(devices) }
}

fn end(at: i64) -> End {
    End {
        at,
        how: Ending::Completed,
        reason: String::new(),
        for_workload: String::new(),
        stopped_at: None,
        saved_at: None,
    }
}

fn sighting(
    session: i64,
    seen: Option<i64>,
    until: i64,
    segments: Vec<Segment>,
    end: Option<End>,
) -> Sighting {
    Sighting { session, head: Head::default(), seen_from: seen, seen_until: until, end, segments }
}

#[test]
fn two_replicas_that_saw_the_same_run_count_it_once() {
    let first = sighting(1, Some(1_000), 5_000, vec![segment(1_000, 5_000, 8)], Some(end(5_000)));
    let second = sighting(2, Some(1_000), 5_003, vec![segment(1_000, 5_003, 8)], Some(end(5_003)));
    let run = merge(&key(), &[first.clone(), second.clone()]).expect("a run");
    assert_eq!((run.used, run.until), (8 * 4_000, 5_000));
    assert_eq!(merge(&key(), &[second, first.clone(), first]), Some(run));
}

#[test]
fn what_one_process_missed_another_fills() {
    // The leader is killed at 3,000; the other replica watched all the time but saw the resize 5 ms later.
    let killed =
        sighting(1, Some(1_000), 3_000, vec![segment(1_000, 2_000, 8), segment(2_000, 3_000, 4)], None);
    let other = sighting(
        2,
        Some(1_000),
        9_000,
        vec![segment(1_000, 2_005, 8), segment(2_005, 9_000, 4)],
        Some(end(9_000)),
    );
    let run = merge(&key(), &[killed.clone(), other]).expect("a run");
    assert_eq!(run.used, 8 * 1_000 + 4 * 7_000, "no time counts twice");
    // Without the other: it is started again at 6,000 and sees 4 devices until the end.
    let again = sighting(3, Some(6_000), 9_000, vec![segment(6_000, 9_000, 4)], Some(end(9_000)));
    let run = merge(&key(), &[again, killed.clone()]).expect("a run");
    assert_eq!(run.used, 8 * 1_000 + 4 * 7_000, "what no process watched counts as the record says");
    // It ended while no process ran: only its object shows that.
    let filled = sighting(4, None, 8_000, vec![segment(1_000, 8_000, 4)], Some(end(8_000)));
    let run = merge(&key(), &[killed, filled]).expect("a run");
    assert_eq!((run.used, run.until), (8 * 1_000 + 4 * 6_000, 8_000));
}

#[test]
fn an_end_that_was_watched_counts_more_than_what_the_object_says_in_whole_seconds() {
    let filled = sighting(1, None, 5_000, vec![segment(1_000, 5_000, 2)], Some(end(5_000)));
    let watched = sighting(2, Some(1_000), 5_432, vec![segment(1_000, 5_432, 2)], Some(end(5_432)));
    assert_eq!(merge(&key(), &[filled, watched]).expect("a run").used, 2 * 4_432);
}

#[test]
fn what_was_lost_is_what_was_used_since_the_work_was_saved() {
    let evicted = End { how: Ending::Evicted, stopped_at: Some(4_000), saved_at: Some(3_000), ..end(4_500) };
    let seen = sighting(1, Some(1_000), 4_500, vec![segment(1_000, 4_500, 2)], Some(evicted));
    assert_eq!(merge(&key(), &[seen]).expect("a run").lost, 2 * 1_500);
}

fn sightings() -> impl Strategy<Value = Vec<Sighting>> {
    let one = (
        1_i64..4,
        prop::option::of(1_000_i64..4_000),
        prop::collection::vec((1_i64..3_000, 0_i64..9), 1..4),
        any::<bool>(),
    );
    let one = one.prop_map(|(session, seen_from, parts, ended)| {
        let mut at = seen_from.unwrap_or(1_000);
        let mut segments = Vec::new();
        for (lasts, devices) in parts {
            segments.push(segment(at, at + lasts, devices));
            at += lasts;
        }
        sighting(session, seen_from, at, segments, ended.then(|| end(at)))
    });
    prop::collection::vec(one, 1..5)
}

proptest! {
    /// However often each was written, and in which order.
    #[test]
    fn a_run_is_a_function_of_the_set_of_its_sightings(seen in sightings(), order in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let once = merge(&key(), &seen);
        let mut again: Vec<Sighting> = order.iter().map(|index| index.get(&seen).clone()).collect();
        again.extend(seen.iter().rev().cloned());
        prop_assert_eq!(merge(&key(), &again), once);
    }

    /// No time is charged twice, and none after the end.
    #[test]
    fn segments_do_not_overlap(seen in sightings()) {
        let run = merge(&key(), &seen).expect("a run");
        let mut last = run.key.admitted_at;
        for segment in &run.segments {
            prop_assert!(segment.from >= last && segment.to > segment.from && segment.to <= run.until);
            last = segment.to;
        }
        let most = run.segments.iter().filter_map(|segment| segment.amounts.get(DEVICES)).max().copied().unwrap_or(0);
        prop_assert!(run.used <= most / 1000 * (run.until - run.key.admitted_at));
    }
}
