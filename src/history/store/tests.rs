use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::history::generate::{Past, facts};
use crate::history::record::{Ending, Segment};

fn store() -> (TempDir, Store) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = Store::open(&Location::File(directory.path().join("h.db"))).expect("a store");
    (directory, store)
}

/// Everything that people read.
fn contents(store: &mut Store) -> Vec<Row> {
    let tables = schema::PUBLISHED.iter().flat_map(|table| {
        let key: Vec<String> = (1..=table.key).map(|column| column.to_string()).collect();
        let columns = table.columns.join(", ");
        store
            .query(&format!("SELECT {columns} FROM {} ORDER BY {}", table.name, key.join(", ")), &[])
            .expect("rows")
    });
    tables.collect()
}

#[test]
fn a_store_is_opened_again_as_it_was() {
    let (directory, mut store) = store();
    let past: Vec<Fact> = facts(Past { seed: 1, runs: 250, from: 0, millis: 86_400_000 }).collect();
    store.write(&past).expect("written");
    let before = contents(&mut store);
    assert!(before.len() > 4 * 250);
    drop(store);
    let location = Location::File(directory.path().join("h.db"));
    assert_eq!(contents(&mut Store::open(&location).expect("a store")), before);
    assert_eq!(contents(&mut Store::read(&location).expect("a store")), before);
    let none = Location::File(directory.path().join("none.db"));
    assert!(Store::read(&none).is_err(), "nothing is made by reading");
}

#[test]
fn what_is_older_than_it_is_kept_is_deleted_and_late_sightings_of_what_has_ended_change_nothing() {
    let (_directory, mut store) = store();
    let day = 86_400_000;
    let past: Vec<Fact> = facts(Past { seed: 1, runs: 400, from: 0, millis: 10 * day }).collect();
    store.write(&past).expect("written");
    let count = |store: &mut Store, sql: &str| store.query(sql, &[]).expect("rows")[0][0].int();
    store.forget(5 * day, 10 * day).expect("deleted");
    let left = count(&mut store, "SELECT COUNT(*) FROM runs").expect("a number");
    assert!((100..300).contains(&left), "{left}");
    assert_eq!(count(&mut store, "SELECT COUNT(*) FROM runs WHERE ended_at < 432000000"), Some(0));
    let before = contents(&mut store);
    let late = past.iter().filter_map(|fact| match fact {
        Fact::Sighting(key, seen) if (5 * day..8 * day).contains(&seen.seen_until) => {
            let segments: Vec<Segment> = Vec::new();
            Some(Fact::Sighting(
                key.clone(),
                Sighting { session: 9, seen_from: None, segments, ..seen.clone() },
            ))
        }
        _ => None,
    });
    store.write(&late.collect::<Vec<_>>()).expect("written");
    assert_eq!(contents(&mut store), before);
}

#[test]
fn room_is_made_from_the_oldest_on() {
    let (_directory, mut store) = store();
    let day = 86_400_000;
    let past: Vec<Fact> = facts(Past { seed: 1, runs: 400, from: 0, millis: 10 * day }).collect();
    store.write(&past).expect("written");
    let oldest = |store: &mut Store| {
        store.query("SELECT MIN(until_at), COUNT(*) FROM runs", &[]).expect("rows")[0].clone()
    };
    let before = oldest(&mut store);
    store.make_room(10 * day).expect("room");
    let after = oldest(&mut store);
    assert!(after[0].int() > before[0].int() && after[1].int() < before[1].int(), "{before:?} {after:?}");
    assert!(after[1].int() > Some(300), "{after:?}");
}

#[test]
fn a_full_file_that_has_sums_is_shortened_with_them() {
    let (_directory, mut store) = store();
    let past: Vec<Fact> = facts(Past { seed: 1, runs: 400, from: 0, millis: 864_000_000 }).collect();
    store.write(&past).expect("written");
    let started = |store: &mut Store| {
        let sql = "SELECT CAST(SUM(started) AS BIGINT), (SELECT COUNT(*) FROM runs) FROM sums_by_queue";
        store.query(sql, &[]).expect("rows")[0].clone()
    };
    store.shorten().expect("shortened");
    let after = started(&mut store);
    assert!(after[0] == after[1] && after[0].int() < Some(400), "{after:?}");
}

#[test]
fn a_location_shows_no_password() {
    let location =
        Location::parse("postgres://sluice:s3cret@db.example:5432/history?sslmode=require").expect("a URL");
    assert_eq!(location.to_string(), "postgres://db.example:5432/history");
    assert!(!format!("{location:?}").contains("s3cret"));
    for wrong in ["postgres://u:s3cret@h:port/x", "mysql://u:s3cret@h/x"] {
        let message = Location::parse(wrong).expect_err("refused");
        assert!(!message.contains("s3cret"), "{message}");
    }
}

fn case() -> impl Strategy<Value = (Vec<Fact>, Vec<prop::sample::Index>)> {
    let run = (0_usize..3, 1_i64..3, 1_i64..6, any::<bool>(), any::<bool>(), 1_i64..5);
    let run = run.prop_map(|(which, session, lasts, ended, whole, devices)| {
        let key = RunKey { uid: format!("u{which}"), admitted_at: 1_000 };
        let from = if whole { 1_000 } else { 1_500 };
        let until = from + lasts * 1_000;
        // What one process saw later includes the earlier.
        let amounts = [(DEVICES.to_owned(), devices * 1000)].into();
        let end = ended.then(|| crate::history::record::End {
            at: until,
            how: Ending::Completed,
            reason: String::new(),
            for_workload: String::new(),
            stopped_at: None,
            saved_at: None,
        });
        let seen = Sighting {
            session,
            head: Default::default(),
            seen_from: Some(from),
            seen_until: until,
            end,
            segments: vec![Segment { from, to: until, amounts }],
        };
        Fact::Sighting(key, seen)
    });
    let transition = (0_usize..3, 0_usize..3, 0_i64..3, 1_i64..4, 0_usize..2);
    let transition = transition.prop_map(|(which, kind, grade, at, message)| {
        Fact::Transition(Transition {
            uid: format!("u{which}"),
            admitted_at: 1_000,
            transition: ["Admitted", "Evicted", "Ended"][kind].into(),
            at,
            grade,
            message: ["", "why"][message].into(),
            ..Transition::default()
        })
    });
    let facts = prop::collection::vec(prop_oneof![run, transition], 1..12);
    (facts, prop::collection::vec(any::<prop::sample::Index>(), 0..12))
}

use crate::history::record::DEVICES;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// By two replicas, several times, in any order and in any batches.
    #[test]
    fn a_fact_that_is_written_again_counts_once((facts, again) in case()) {
        let (_one, mut once) = store();
        once.write(&facts).expect("written");
        let (_two, mut often) = store();
        for index in &again {
            often.write(std::slice::from_ref(index.get(&facts))).expect("written");
        }
        often.write(&facts).expect("written");
        for fact in facts.iter().rev() {
            often.write(std::slice::from_ref(fact)).expect("written");
        }
        prop_assert_eq!(contents(&mut once), contents(&mut often));
    }
}
