//! Reports and lists of random runs, from SQLite and from a real PostgreSQL, against a computation that looks at every run in
//! every period.

mod sums;
mod world;

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;

use sluice::api::accounts::{HistoryFilter, ReportKind, RunState};
use sluice::history::query::{Choice, Place, Reader, Unread, report, runs};
use sluice::history::record::{Ending, Run};
use sluice::history::store::{Location, Store};
use sluice::view::accounts::{GpuTime, HistoryRow, ReportRow};
use sluice_harness::Postgres;

use self::sums::{empty, sums_hold};
use self::world::{
    BEGIN, GPU, HALF, HOUR, KINDS, World, choice, evictions_of, expected, filled, time, used, waits_of, world,
};

/// The teams and namespaces that reports are about.
const OF: [(Option<&str>, Option<&str>); 3] = [(None, None), (Some("team-1"), None), (None, Some("ns-2"))];

/// Holds every report of a world against the plain computation.
fn holds(world: &mut World, from: i64, hours: i64, cuts: &[i64]) {
    for kind in KINDS {
        for (team, namespace) in OF {
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
    for (team, namespace) in OF {
        let choice = |kind| Choice {
            team: team.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
            ..choice(kind, from, hours, cuts)
        };
        let waits = choice(ReportKind::Waits);
        let rows: Vec<ReportRow> = waits_of(world, &waits).into_iter().map(ReportRow::from).collect();
        assert_eq!(report(&mut world.store, &waits).expect("a report"), rows, "{team:?} {namespace:?}");
        let evictions = choice(ReportKind::Evictions);
        let rows: Vec<ReportRow> = evictions_of(world, &evictions).into_iter().map(ReportRow::from).collect();
        assert_eq!(report(&mut world.store, &evictions).expect("a report"), rows, "{team:?} {namespace:?}");
    }
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
            let newest = world.runs.iter().map(|run| run.until).max().unwrap_or(0);
            let unseen = |run: &Run| run.end.is_none() && run.until < newest - 20 * 60 * 1_000;
            let is = |run: &&Run| {
                let ended = run.end.as_ref().map(|end| end.how.name()).or_else(|| unseen(run).then_some("Ended"));
                filter.namespace.as_ref().is_none_or(|namespace| *namespace == run.head.namespace)
                    && filter.team.as_ref().is_none_or(|team| *team == run.head.team)
                    && filter.from.is_none_or(|from| ended.is_none() || run.until > from.as_millisecond())
                    && filter.to.is_none_or(|to| run.key.admitted_at < to.as_millisecond())
                    && (filter.states.is_empty() || ended.unwrap_or("Running") == state.code())
            };
            let mut wanted: Vec<&Run> = world.runs.iter().filter(is).collect();
            wanted.sort_by(|one, other| (other.key.admitted_at, &other.key.uid).cmp(&(one.key.admitted_at, &one.key.uid)));
            prop_assert_eq!(listed.len(), wanted.len());
            for (row, run) in listed.iter().zip(wanted) {
                prop_assert_eq!((&row.uid, &row.name, &row.pool), (&run.key.uid, &run.head.name, &run.head.pool));
                prop_assert_eq!(row.gpu_seconds.as_micro(), run.used * 1_000);
                let ended = run.end.as_ref().map(|end| end.at).or_else(|| unseen(run).then_some(run.until));
                prop_assert_eq!(row.ended.map(Timestamp::as_millisecond), ended);
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
            let newest = world.runs.iter().map(|run| run.until).max().unwrap_or(0);
            let is = |run: &&Run| match &run.end {
                Some(end) => end.how == Ending::Evicted,
                None => run.until >= newest - 20 * 60 * 1_000,
            };
            assert_eq!(listed.len(), world.runs.iter().filter(is).count());
            drop(world);
            sums_hold(&location, seed);
        }
    })
    .await
    .expect("no panic");
}
