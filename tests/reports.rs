//! Reports and lists of random runs, from SQLite and from a real PostgreSQL, against a computation that looks at every run in
//! every period.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;

use sluice::api::accounts::{HistoryFilter, ReportFilter, ReportKind, RunState};
use sluice::history::generate::{Past, facts};
use sluice::history::merge;
use sluice::history::query::{Choice, Periods, Place, Reader, Unread, report, report_of_runs, runs};
use sluice::history::record::{DEVICES, Ending, Fact, Run, Sample};
use sluice::history::store::sums::{BY_QUEUE, BY_USER, SUMS};
use sluice::history::store::{Location, Store, Value};
use sluice::view::Accelerators;
use sluice::view::accounts::{EvictionsRow, GpuTime, HistoryRow, ReportRow, UsageRow, WaitsRow};
use sluice_harness::Postgres;

const HOUR: i64 = 3_600_000;
const HALF: i64 = HOUR / 2;
/// 2026-11-01 00:00 UTC.
const BEGIN: i64 = 1_793_491_200_000;
const GPU: &str = "nvidia.com/gpu";

/// Runs with their store: some still run, of some nothing says since when they waited.
struct World {
    runs: Vec<Run>,
    samples: Vec<Sample>,
    store: Store,
}

/// A world in a file, which goes with the folder.
fn world(seed: u64, count: usize) -> (World, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let location = Location::File(folder.path().join("history.db"));
    (filled(seed, count, Store::open(&location).expect("a store")), folder)
}

fn filled(seed: u64, count: usize, mut store: Store) -> World {
    let past = Past { seed, runs: count, from: BEGIN, millis: 72 * HOUR };
    let (mut all, mut runs) = (Vec::new(), Vec::new());
    for (at, mut fact) in facts(past).enumerate() {
        if let Fact::Sighting(key, sighting) = &mut fact {
            if at % 7 == 0 {
                sighting.end = None;
            }
            if at % 5 == 0 {
                sighting.head.queued_at = None;
            }
            sighting.head.team = format!("team-{}", at % 3);
            sighting.head.namespace = format!("ns-{}", at % 4);
            if let Some(end) = sighting.end.as_mut().filter(|end| !end.for_workload.is_empty()) {
                end.for_workload = format!("ns-{}/other", at % 4);
            }
            runs.extend(merge(key, std::slice::from_ref(sighting)));
        }
        all.push(fact);
    }
    let samples: Vec<Sample> = (0..40)
        .flat_map(|at| ["team-0", "team-1"].map(|team| (at, team)))
        .map(|(at, team)| Sample {
            at: BEGIN + at * 2 * HOUR,
            team: team.to_owned(),
            pool: "default".to_owned(),
            resource: if at % 9 == 0 { "cpu" } else { GPU }.to_owned(),
            guaranteed: 4_000 + at * 500,
            lent: at * 250,
            capacity: 64_000,
            ..Sample::default()
        })
        .collect();
    all.extend(samples.iter().cloned().map(Fact::Sample));
    store.write(&all).expect("facts are written");
    World { runs, samples, store }
}

fn time(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(millis).expect("a time")
}

fn overlap(from: i64, to: i64, (begin, end): (i64, i64)) -> i64 {
    (to.min(end) - from.max(begin)).max(0)
}

/// The name of the group of a run.
fn group(kind: ReportKind, run: &Run) -> UsageRow {
    let head = &run.head;
    let mut row = UsageRow::default();
    match kind {
        ReportKind::Users => {
            row.user.clone_from(&head.username);
            row.team.clone_from(&head.team);
        }
        ReportKind::Pools => row.pool.clone_from(&head.pool),
        ReportKind::Queues => {
            row.queue.clone_from(&head.queue);
            row.team.clone_from(&head.team);
        }
        _ => row.team.clone_from(&head.team),
    }
    row
}

fn key(row: &UsageRow) -> (i64, String, String, String, String) {
    (row.from.as_millisecond(), row.user.clone(), row.team.clone(), row.pool.clone(), row.queue.clone())
}

fn plus(time: &mut GpuTime, micro: i64) {
    *time = time.plus(GpuTime::of_micro(micro.into()));
}

/// The report about usage, the plain way.
fn expected(world: &World, choice: &Choice) -> BTreeMap<(i64, String, String, String, String), UsageRow> {
    let mut rows = BTreeMap::new();
    for period in choice.periods.each() {
        for run in &world.runs {
            let head = &run.head;
            let others = choice.namespace.as_ref().is_some_and(|own| *own != head.namespace);
            if others || choice.team.as_ref().is_some_and(|team| *team != head.team) {
                continue;
            }
            let mut row = UsageRow { from: time(period.0), to: time(period.1), ..group(choice.kind, run) };
            for segment in &run.segments {
                let used = segment.amounts[DEVICES] * overlap(segment.from, segment.to, period);
                plus(&mut row.used_gpu_seconds, used);
                let part = if head.borrowed {
                    &mut row.borrowed_gpu_seconds
                } else {
                    &mut row.guaranteed_gpu_seconds
                };
                plus(part, used);
            }
            let admitted = run.key.admitted_at;
            let began = period.0 <= admitted && admitted < period.1;
            row.runs = u64::from(began || overlap(admitted, run.until, period) > 0);
            let queued = head.queued_at.unwrap_or(admitted);
            plus(&mut row.waited_gpu_seconds, head.devices * overlap(queued, admitted, period));
            let stopped = run.end.as_ref().map_or(0, |end| end.stopped_at.unwrap_or(end.at));
            if (period.0..period.1).contains(&stopped) {
                plus(&mut row.lost_gpu_seconds, run.lost * 1_000);
            }
            if row.runs
                + u64::from(row.waited_gpu_seconds > GpuTime::ZERO || row.lost_gpu_seconds > GpuTime::ZERO)
                == 0
            {
                continue;
            }
            let sum: &mut UsageRow = rows.entry(key(&row)).or_insert_with(|| UsageRow {
                from: row.from,
                to: row.to,
                ..group(choice.kind, run)
            });
            sum.runs += row.runs;
            for (sum, part) in [
                (&mut sum.used_gpu_seconds, row.used_gpu_seconds),
                (&mut sum.guaranteed_gpu_seconds, row.guaranteed_gpu_seconds),
                (&mut sum.borrowed_gpu_seconds, row.borrowed_gpu_seconds),
                (&mut sum.waited_gpu_seconds, row.waited_gpu_seconds),
                (&mut sum.lost_gpu_seconds, row.lost_gpu_seconds),
            ] {
                *sum = sum.plus(part);
            }
        }
        if choice.kind == ReportKind::Teams && choice.namespace.is_none() {
            for sample in world.samples.iter().filter(|sample| sample.resource == GPU) {
                let others = choice.team.as_ref().is_some_and(|team| *team != sample.team);
                if others || !(period.0..period.1).contains(&sample.at) {
                    continue;
                }
                let row = UsageRow {
                    from: time(period.0),
                    to: time(period.1),
                    team: sample.team.clone(),
                    ..UsageRow::default()
                };
                let row = rows.entry(key(&row)).or_insert(row);
                plus(row.lent_gpu_seconds.get_or_insert_default(), sample.lent * 300_000);
                plus(row.available_gpu_seconds.get_or_insert_default(), sample.guaranteed * 300_000);
            }
        }
    }
    rows
}

fn used(rows: &[ReportRow]) -> BTreeMap<(i64, String, String, String, String), UsageRow> {
    let usage =
        |row: &ReportRow| if let ReportRow::Usage(row) = row { Some((key(row), row.clone())) } else { None };
    rows.iter().filter_map(usage).collect()
}

fn choice(kind: ReportKind, from: i64, hours: i64, cuts: &[i64]) -> Choice {
    choice_until(kind, from, hours * HOUR, cuts)
}

fn choice_until(kind: ReportKind, from: i64, millis: i64, cuts: &[i64]) -> Choice {
    let filter = ReportFilter {
        kind,
        from: time(from),
        to: Some(time(from + millis)),
        by: None,
        cuts: cuts.iter().map(|cut| time(from + cut)).collect::<BTreeSet<_>>().into_iter().collect(),
        team: None,
        prices: BTreeMap::new(),
    };
    let periods = Periods::of(&filter, time(BEGIN)).expect("periods");
    Choice {
        kind,
        periods,
        namespace: None,
        team: None,
        prices: BTreeMap::new(),
        accelerators: Accelerators::default(),
    }
}

fn waits_of(world: &World, choice: &Choice) -> Vec<WaitsRow> {
    let mut rows = Vec::new();
    for period in choice.periods.each() {
        let mut groups: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
        for run in &world.runs {
            let admitted = run.key.admitted_at;
            let Some(queued) = run.head.queued_at.filter(|_| (period.0..period.1).contains(&admitted)) else {
                continue;
            };
            let waits = groups.entry((&run.head.team, &run.head.queue)).or_default();
            waits.push(u64::try_from((admitted - queued).max(0) / 1_000).expect("a wait"));
        }
        for ((team, queue), mut waits) in groups {
            waits.sort_unstable();
            let at = |part: usize| waits[(waits.len() * part).div_ceil(10) - 1];
            rows.push(WaitsRow {
                from: time(period.0),
                to: time(period.1),
                team: team.to_owned(),
                queue: queue.to_owned(),
                started: waits.len() as u64,
                median_seconds: at(5),
                p90_seconds: at(9),
                max_seconds: at(10),
            });
        }
    }
    rows
}

fn evictions_of(world: &World, choice: &Choice) -> Vec<EvictionsRow> {
    let mut latest: BTreeMap<&str, (i64, &str)> = BTreeMap::new();
    for run in &world.runs {
        let team = latest.entry(&run.head.namespace).or_default();
        *team = (*team).max((run.key.admitted_at, &run.head.team));
    }
    let mut rows = Vec::new();
    for period in choice.periods.each() {
        let mut groups: BTreeMap<(&str, &str), EvictionsRow> = BTreeMap::new();
        for end in world.runs.iter().filter_map(|run| run.end.as_ref().map(|end| (run, end))) {
            let (run, end) = end;
            if end.how != Ending::Evicted || !(period.0..period.1).contains(&end.stopped_at.unwrap_or(end.at))
            {
                continue;
            }
            let namespace = end.for_workload.split_once('/').map_or("", |(namespace, _)| namespace);
            let team = latest.get(namespace).map_or("", |(_, team)| team);
            let row = groups.entry((&end.reason, team)).or_default();
            (row.from, row.to) = (time(period.0), time(period.1));
            (row.rule, row.for_team) = (end.reason.clone(), team.to_owned());
            row.evictions += 1;
            plus(&mut row.lost_gpu_seconds, run.lost * 1_000);
        }
        rows.extend(groups.into_values());
    }
    rows
}

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

const KINDS: [ReportKind; 4] = [ReportKind::Teams, ReportKind::Users, ReportKind::Pools, ReportKind::Queues];

/// Holds every report of a world against the plain computation.
fn holds(world: &mut World, from: i64, hours: i64, cuts: &[i64]) {
    for kind in KINDS {
        for (team, namespace) in [(None, None), (Some("team-1"), None), (None, Some("ns-2"))] {
            let mut choice = choice(kind, from, hours, cuts);
            (choice.team, choice.namespace) = (team.map(str::to_owned), namespace.map(str::to_owned));
            let mut rows = used(&report(&mut world.store, &choice).expect("a report"));
            if kind == ReportKind::Pools {
                rows.retain(|_, row| {
                    row.runs > 0
                        || row.waited_gpu_seconds > GpuTime::ZERO
                        || row.lost_gpu_seconds > GpuTime::ZERO
                });
                for row in rows.values_mut() {
                    (row.lent_gpu_seconds, row.available_gpu_seconds) = (None, None);
                }
            }
            assert_eq!(rows, expected(world, &choice), "{kind:?} {team:?} {namespace:?}");
        }
    }
    let waits = choice(ReportKind::Waits, from, hours, cuts);
    let rows: Vec<ReportRow> = waits_of(world, &waits).into_iter().map(ReportRow::from).collect();
    assert_eq!(report(&mut world.store, &waits).expect("a report"), rows);
    let evictions = choice(ReportKind::Evictions, from, hours, cuts);
    let rows: Vec<ReportRow> = evictions_of(world, &evictions).into_iter().map(ReportRow::from).collect();
    assert_eq!(report(&mut world.store, &evictions).expect("a report"), rows);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn reports_are_those_of_a_plain_computation(
        seed in any::<u64>(), count in 0_usize..80, begin in -10_i64..70, hours in 1_i64..90,
        cuts in proptest::collection::vec(1_i64..90 * HOUR, 0..12), even in any::<bool>(),
    ) {
        let (mut world, _folder) = world(seed, count);
        let cuts: Vec<i64> = cuts.iter().map(|cut| if even { cut - cut % HALF + HALF } else { *cut }).collect();
        holds(&mut world, BEGIN + begin * HOUR + if even { HALF } else { 1_234 }, hours, &cuts);
    }

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
        let before = sums_of(&mut store);
        store.recount().expect("recounted");
        prop_assert_eq!(before, sums_of(&mut store));
    }

    #[test]
    fn days_add_up_to_their_month(seed in any::<u64>(), cuts in proptest::collection::vec(1_i64..90 * HOUR, 1..40)) {
        let (mut world, _folder) = world(seed, 60);
        for kind in KINDS {
            let mut sums: BTreeMap<[String; 4], [GpuTime; 6]> = BTreeMap::new();
            let mut whole = sums.clone();
            for (sums, cuts) in [(&mut sums, &cuts[..]), (&mut whole, &[])] {
                let rows = report(&mut world.store, &choice(kind, BEGIN, 90, cuts)).expect("a report");
                for (_, row) in used(&rows) {
                    let all = [row.used_gpu_seconds, row.guaranteed_gpu_seconds, row.borrowed_gpu_seconds,
                        row.lost_gpu_seconds, row.waited_gpu_seconds, row.lent_gpu_seconds.unwrap_or_default()];
                    let sum = sums.entry([row.user, row.team, row.pool, row.queue]).or_default();
                    sum.iter_mut().zip(all).for_each(|(sum, part)| *sum = sum.plus(part));
                }
            }
            prop_assert_eq!(sums, whole);
        }
    }

    #[test]
    fn runs_are_listed_once_the_newest_first(seed in any::<u64>(), most in 1_usize..30, from in 0_i64..72, state in 0_usize..7) {
        let (mut world, _folder) = world(seed, 60);
        let state = RunState::ALL[state];
        for filter in [
            HistoryFilter::default(),
            HistoryFilter { namespace: Some("ns-1".to_owned()), from: Some(time(BEGIN + from * HOUR)), ..HistoryFilter::default() },
            HistoryFilter { team: Some("team-2".to_owned()), to: Some(time(BEGIN + from * HOUR)), states: vec![state], ..HistoryFilter::default() },
        ] {
            let mut listed: Vec<HistoryRow> = Vec::new();
            loop {
                let after = listed.last().map(Place::of);
                let page = runs(&mut world.store, &filter, after.as_ref(), most).expect("runs");
                prop_assert!(page.len() <= most);
                if page.is_empty() {
                    break;
                }
                listed.extend(page);
            }
            let is = |run: &&Run| {
                let ended = run.end.as_ref().map(|end| end.how.name());
                filter.namespace.as_ref().is_none_or(|namespace| *namespace == run.head.namespace)
                    && filter.team.as_ref().is_none_or(|team| *team == run.head.team)
                    && filter.from.is_none_or(|from| run.end.is_none() || run.until > from.as_millisecond())
                    && filter.to.is_none_or(|to| run.key.admitted_at < to.as_millisecond())
                    && (filter.states.is_empty() || ended.unwrap_or("Running") == state.code())
            };
            let mut wanted: Vec<&Run> = world.runs.iter().filter(is).collect();
            wanted.sort_by(|one, other| (other.key.admitted_at, &other.key.uid).cmp(&(one.key.admitted_at, &one.key.uid)));
            prop_assert_eq!(listed.len(), wanted.len());
            for (row, run) in listed.iter().zip(wanted) {
                prop_assert_eq!((&row.uid, &row.name, &row.pool), (&run.key.uid, &run.head.name, &run.head.pool));
                prop_assert_eq!(row.gpu_seconds.as_micro(), run.used * 1_000);
                prop_assert_eq!(row.ended.map(Timestamp::as_millisecond), run.end.as_ref().map(|end| end.at));
                prop_assert_eq!(row.nodes.len(), 1);
            }
        }
    }
}

#[test]
fn a_price_is_that_of_the_hours_that_were_used() {
    let (mut world, _folder) = world(1, 50);
    let mut choice = choice(ReportKind::Teams, BEGIN, 90, &[24 * HOUR, 48 * HOUR]);
    choice.prices = [(GPU.to_owned(), "2.50".to_owned()), ("cpu".to_owned(), "1".to_owned())].into();
    for row in used(&report(&mut world.store, &choice).expect("a report")).values() {
        let hours = row.used_gpu_seconds.hours();
        let cost = row.cost.expect("a cost");
        assert!((cost - hours * 2.5).abs() < 1e-6, "{cost} for {hours} h");
    }
}

#[tokio::test]
async fn a_history_that_is_off_or_gone_is_a_sentence() {
    let asked = |reader: Reader| async move { reader.runs(HistoryFilter::default(), None, 10).await };
    assert_eq!(asked(Reader::new(None)).await, Err(Unread::Off));
    let gone = Reader::new(Some(Location::File("/nowhere/history.db".into())));
    for _ in 0..2 {
        let said = asked(gone.clone()).await.expect_err("there is no such file").to_string();
        assert_eq!(said, "the history cannot be read: its store does not answer");
    }
    let (_, folder) = world(3, 20);
    let reader = Reader::new(Some(Location::File(folder.path().join("history.db"))));
    assert_eq!(asked(reader).await.map(|rows| rows.len()), Ok(10));
}

fn empty(store: &mut Store) {
    for table in ["runs", "segments", "transitions", "samples", "sightings", "sums_by_queue", "sums_by_user"]
    {
        store.query(&format!("DELETE FROM {table}"), &[]).expect("an empty table");
    }
}

/// In an empty store the sums are those of the runs after many writes of the same.
fn sums_hold(store: &mut Store, seed: u64) {
    empty(store);
    let past = Past { seed, runs: 60, from: BEGIN, millis: 60 * HOUR };
    let all: Vec<Fact> = facts(past).filter(|fact| matches!(fact, Fact::Sighting(..))).collect();
    for how in [1, 4, 0, 3, 2, 1] {
        let facts: Vec<Fact> = all.iter().rev().step_by(how + 1).map(|fact| again(fact, how)).collect();
        facts.chunks(17).for_each(|facts| store.write(facts).expect("written"));
        store.forget(BEGIN + 10 * HOUR, BEGIN + 60 * HOUR).expect("deleted");
    }
    for kind in KINDS {
        let choice = choice_until(kind, BEGIN - HALF, 50 * HOUR + 4_321, &[5 * HOUR, 29 * HALF, 48 * HOUR]);
        let [sums, plain] = [report, report_of_runs].map(|from| from(store, &choice).expect("a report"));
        assert!(sums.len() > 5);
        assert_eq!(sums, plain, "{kind:?}");
    }
    let before = sums_of(store);
    store.recount().expect("recounted");
    assert_eq!(before, sums_of(store));
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_answers_as_a_plain_computation() {
    let server = Postgres::start("reports").await.expect("a server");
    let location = Location::parse(&server.url()).expect("a URL");
    tokio::task::spawn_blocking(move || {
        for seed in 0..6 {
            let mut store = Store::open(&location).expect("a store");
            empty(&mut store);
            let mut world = filled(seed, 70, store);
            let begin = i64::try_from(seed).expect("a small number") * 7;
            holds(&mut world, BEGIN + begin * HOUR + 77, 50, &[HOUR, 24 * HOUR, 25 * HOUR + 1, 49 * HOUR]);
            holds(&mut world, BEGIN - 10 * HOUR, 200, &[]);
            holds(&mut world, BEGIN + HALF, 50, &[HALF, 24 * HOUR, 49 * HOUR]);
            let mut priced = choice(ReportKind::Users, BEGIN, 90, &[24 * HOUR]);
            priced.prices = [(GPU.to_owned(), "2.50".to_owned())].into();
            for row in used(&report(&mut world.store, &priced).expect("a report")).values() {
                let cost = row.cost.expect("a cost");
                assert!((cost - row.used_gpu_seconds.hours() * 2.5).abs() < 1e-6, "{cost}");
            }
            let filter = HistoryFilter {
                states: vec![RunState::Running, RunState::Evicted],
                ..HistoryFilter::default()
            };
            let listed = runs(&mut world.store, &filter, None, 1_000).expect("runs");
            let is = |run: &&Run| run.end.as_ref().is_none_or(|end| end.how == Ending::Evicted);
            assert_eq!(listed.len(), world.runs.iter().filter(is).count());
            sums_hold(&mut world.store, seed);
        }
    })
    .await
    .expect("no panic");
}
