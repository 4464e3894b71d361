use std::time::Instant;

use prometheus::Registry;

use super::generate::{Past, facts};
use super::record::Fact;
use super::store::Store;
use super::*;

fn metrics() -> Counts {
    counts(&Registry::new()).expect("distinct names")
}

fn past(runs: usize) -> Vec<Fact> {
    let now = jiff::Timestamp::now().as_millisecond();
    facts(Past { seed: 3, runs, from: now - 86_400_000, millis: 80_000_000 }).collect()
}

fn until(what: impl Fn() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < limit, "it takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_queue_is_bounded_and_what_it_drops_is_counted() {
    let counts = metrics();
    let (historian, receiver) = queue(10, counts.clone(), Arc::default());
    for fact in past(10) {
        historian.send(fact);
    }
    assert_eq!((counts.waiting.get(), counts.dropped.get()), (10, 30));
    assert_eq!(receiver.try_iter().count(), 10);
}

#[test]
fn a_store_that_was_down_is_written_once_it_is_back_and_asks_for_what_was_dropped() {
    let directory = tempfile::tempdir().expect("a directory");
    let (hidden, file) = (directory.path().join("hidden"), directory.path().join("there/h.db"));
    std::fs::create_dir(&hidden).expect("made");
    let counts = metrics();
    let signals = Arc::<Signals>::default();
    let (historian, receiver) = queue(50, counts.clone(), Arc::clone(&signals));
    let location = Location::File(file.clone());
    let day = Duration::from_secs(9 * 86_400);
    let writer = Writer::new(location.clone(), day, counts.clone(), Arc::clone(&signals));
    let thread = std::thread::spawn(move || writer.run(&receiver));
    let all = past(100);
    // The writer gathers for a while before it finds the store down. Until then it may empty the queue as fast as it is filled.
    until(|| {
        all.iter().for_each(|fact| historian.send(fact.clone()));
        counts.dropped.get() > 0
    });
    assert_eq!((counts.written.get(), counts.up.get()), (0, 0));
    std::fs::rename(&hidden, directory.path().join("there")).expect("renamed");
    until(|| historian.take_refill());
    assert!(!historian.take_refill(), "once");
    until(|| counts.waiting.get() == 0);
    assert_eq!(counts.up.get(), 1);
    // The loop sends again what objects show.
    for fact in &all {
        until(|| counts.waiting.get() < 50);
        historian.send(fact.clone());
    }
    drop(historian);
    thread.join().expect("no panic");
    let mut store = Store::read(&location).expect("a store");
    let runs = store.query("SELECT COUNT(*) FROM runs", &[]).expect("rows");
    assert_eq!(runs[0][0].int(), Some(100));
}

#[test]
fn a_location_is_a_file_a_server_or_nothing() {
    let options = |text: &str| Options {
        history: Some(text.into()),
        history_keep: Duration::ZERO,
        history_password_file: None,
        history_ca: None,
    };
    assert!(options("off").location().expect("off").is_none());
    assert!(options("h.db").location().expect("a file").is_some());
    let missing = options("/no/such/h.db").location().expect_err("refused");
    assert_eq!(missing, "--history /no/such/h.db: there is no such directory");
    let wrong = options("postgres://u:s3cret@h:port/d").location().expect_err("refused");
    assert!(wrong.starts_with("--history: not a URL of PostgreSQL") && !wrong.contains("s3cret"), "{wrong}");
}

#[test]
fn sessions_differ_by_process_and_by_start() {
    let now = 1_800_000_000_000;
    let all = [session("sluice-0", now), session("sluice-1", now), session("sluice-0", now + 1)];
    assert!(all.iter().all(|one| *one > 0));
    assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2]);
}
