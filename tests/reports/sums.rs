//! The sums that a store keeps, against its runs.

use proptest::prelude::*;

use sluice::history::generate::{Past, facts};
use sluice::history::query::{report, report_of_runs};
use sluice::history::record::Fact;
use sluice::history::store::sums::{BY_QUEUE, BY_USER, SUMS};
use sluice::history::store::{Location, Store, Value};

use crate::world::{BEGIN, HALF, HOUR, KINDS, choice_until};

/// What another process says of a run, or the same one later.
fn again(fact: &Fact, how: usize) -> Fact {
    let mut fact = fact.clone();
    let Fact::Sighting(key, seen) = &mut fact else { return fact };
    match how {
        1 => {
            // It goes on before the eyes of this one.
            seen.end = None;
            seen.seen_until = key.admitted_at + (seen.seen_until - key.admitted_at) / 2;
            seen.segments = vec![seen.segments[0].clone()];
            seen.segments[0].to = seen.seen_until;
        }
        2 => {
            // A better witness, which saw other amounts.
            seen.session = 0;
            for segment in &mut seen.segments {
                segment.amounts.values_mut().for_each(|amount| *amount *= 2);
            }
        }
        3 => {
            seen.session = -1;
            (seen.head.team, seen.head.queue) = ("team-1".to_owned(), "other".to_owned());
            seen.head.borrowed = !seen.head.borrowed;
        }
        4 => {
            // What a restart found.
            seen.session = 2;
            (seen.seen_from, seen.head.queued_at) = (None, None);
        }
        _ => {}
    }
    fact
}

/// Writes facts again and again, and deletes what is old in between.
fn muddle(store: &mut Store, seed: u64, steps: &[(prop::sample::Index, usize)], batch: usize, kept: i64) {
    let past = Past { seed, runs: 40, from: BEGIN, millis: 60 * HOUR };
    let all: Vec<Fact> = facts(past).filter(|fact| matches!(fact, Fact::Sighting(..))).collect();
    let written: Vec<Fact> = steps.iter().map(|(index, how)| again(index.get(&all), *how)).collect();
    for (number, facts) in written.chunks(batch).enumerate() {
        store.write(facts).expect("written");
        if number == 1 {
            store.forget(BEGIN + kept * HOUR, BEGIN + 60 * HOUR).expect("deleted");
        }
    }
}

/// All sums but those of nothing.
fn sums_of(store: &mut Store) -> Vec<Vec<Value>> {
    let sums = SUMS.join(", ");
    let mut all: Vec<Vec<Value>> = Vec::new();
    for table in [BY_QUEUE, BY_USER] {
        let groups = table.groups.join(", ");
        let rows =
            store.query(&format!("SELECT at, {groups}, {sums} FROM {}", table.table), &[]).expect("sums");
        let first = 1 + table.groups.len();
        all.extend(rows.into_iter().filter(|row| row[first..].iter().any(|sum| sum.int() != Some(0))));
    }
    all.sort_by_key(|row| format!("{row:?}"));
    all
}

pub fn empty(store: &mut Store) {
    for table in ["runs", "segments", "transitions", "samples", "sightings", "sums_by_queue", "sums_by_user"]
    {
        store.query(&format!("DELETE FROM {table}"), &[]).expect("an empty table");
    }
}

/// Holds the sums that a store keeps against those made again from its runs.
fn sums_are_those_of_the_runs(store: &mut Store) {
    let before = sums_of(store);
    store.recount().expect("recounted");
    assert_eq!(before, sums_of(store));
}

/// In an empty store the sums are those of the runs: after many writes of the same, by two replicas at once, after a write that
/// fails half-way, and after an upgrade from the schema without sums.
pub fn sums_hold(location: &Location, seed: u64) {
    let mut store = Store::open(location).expect("a store");
    empty(&mut store);
    let past = Past { seed, runs: 60, from: BEGIN, millis: 60 * HOUR };
    let all: Vec<Fact> = facts(past).filter(|fact| matches!(fact, Fact::Sighting(..))).collect();
    for how in [1, 4, 0, 3, 2, 1] {
        let facts: Vec<Fact> = all.iter().rev().step_by(how + 1).map(|fact| again(fact, how)).collect();
        facts.chunks(17).for_each(|facts| store.write(facts).expect("written"));
        store.forget(BEGIN + 10 * HOUR, BEGIN + 60 * HOUR).expect("deleted");
    }
    for kind in KINDS {
        let choice = choice_until(kind, BEGIN - HALF, 50 * HOUR + 4_321, &[5 * HOUR, 29 * HALF, 48 * HOUR]);
        let [sums, plain] = [report, report_of_runs].map(|from| from(&mut store, &choice).expect("a report"));
        assert!(sums.len() > 5);
        assert_eq!(sums, plain, "{kind:?}");
    }
    sums_are_those_of_the_runs(&mut store);

    empty(&mut store);
    std::thread::scope(|scope| {
        for how in [0, 4] {
            let facts: Vec<Fact> = all.iter().map(|fact| again(fact, how)).collect();
            scope.spawn(move || {
                let mut store = Store::open(location).expect("a store");
                facts.chunks(7).for_each(|facts| store.write(facts).expect("written"));
            });
        }
    });
    sums_are_those_of_the_runs(&mut store);

    let before = sums_of(&mut store);
    assert!(before.len() > 50);
    store.query("ALTER TABLE sums_by_user RENAME TO elsewhere", &[]).expect("renamed");
    let other: Vec<Fact> = all.iter().map(|fact| again(fact, 3)).collect();
    assert!(store.write(&other).is_err(), "a statement after others fails");
    store.query("ALTER TABLE elsewhere RENAME TO sums_by_user", &[]).expect("renamed");
    assert_eq!(before, sums_of(&mut store));
    sums_are_those_of_the_runs(&mut store);

    for version in [2, 1] {
        for (_, sql) in LATER.iter().filter(|(since, _)| *since > version) {
            store.query(sql, &[]).expect("an older store");
        }
        store.query("DELETE FROM schema_version WHERE version > ?1", &[version.into()]).expect("older");
        assert!(Store::read(location).is_err(), "an older schema");
        drop(store);
        store = Store::open(location).expect("an upgraded store");
        assert_eq!(before, sums_of(&mut store));
    }
}

/// What later versions of the schema have added.
const LATER: [(i64, &str); 5] = [
    (3, "DROP INDEX runs_by_namespace"),
    (3, "DROP INDEX runs_by_eviction"),
    (2, "DROP TABLE sums_by_queue"),
    (2, "DROP TABLE sums_by_user"),
    (2, "DROP INDEX runs_by_start"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The sums that the store keeps are those of its runs: written in any order, several times, by several replicas, corrected
    /// later, and deleted from the oldest on.
    #[test]
    fn reports_from_the_sums_are_those_from_the_runs(
        seed in any::<u64>(), steps in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..6), 1..160),
        batch in 1_usize..60, kept in 0_i64..90, begin in -4_i64..90,
        cuts in proptest::collection::vec(1_i64..200, 0..8), rest in 0_i64..3 * HALF,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut store = Store::open(&Location::File(folder.path().join("history.db"))).expect("a store");
        muddle(&mut store, seed, &steps, batch, kept);
        for kind in KINDS {
            for team in [None, Some("team-1".to_owned())] {
                let mut choice = choice_until(kind, BEGIN + begin * HALF, 60 * HOUR + rest, &cuts.iter().map(|cut| cut * HALF).collect::<Vec<_>>());
                choice.team = team;
                let [sums, plain] = [report, report_of_runs].map(|from| from(&mut store, &choice).expect("a report"));
                prop_assert_eq!(sums, plain);
            }
        }
        sums_are_those_of_the_runs(&mut store);
    }
}

#[test]
fn sums_hold_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("the cluster's");
    std::fs::create_dir(&own).expect("a folder in it");
    (0..3).for_each(|seed| sums_hold(&Location::File(own.join("history.db")), seed));
}
