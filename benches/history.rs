//! What a report over a long history costs: `sluice report` and `sluice history` on SQLite and PostgreSQL, filled with random
//! runs.

mod readme;

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use comfy_table::{Table, presets};
use futures::SinkExt as _;
use jiff::Timestamp;
use sluice::api::accounts::{HistoryFilter, Period, ReportFilter, ReportKind};
use sluice::history::generate::{Past, facts};
use sluice::history::merge;
use sluice::history::query::{Choice, Periods, report, runs};
use sluice::history::record::{Fact, Run};
use sluice::history::store::schema::{RUNS, SEGMENTS};
use sluice::history::store::{Location, Store, Value};
use sluice_harness::Postgres;
use tokio_postgres::NoTls;

/// Measures reports over random runs of 30 days.
#[derive(Parser)]
struct Arguments {
    /// Number of runs.
    #[arg(long, default_value_t = 1_000_000)]
    runs: usize,
    /// How often each is measured; the median counts.
    #[arg(long, default_value_t = 3)]
    times: usize,
    /// Write the table into benches/README.md.
    #[arg(long)]
    write: bool,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// 2026-11-01 00:00 UTC.
const BEGIN: i64 = 1_793_491_200_000;
const DAYS: i64 = 30;
const DAY: i64 = 24 * 3_600_000;
/// The runs of one batch of lines or of one transaction.
const BATCH: usize = 10_000;

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let folder = tempfile::tempdir()?;
    let file = Location::File(folder.path().join("history.db"));
    let past = Past { seed: 1, runs: arguments.runs, from: BEGIN, millis: DAYS * DAY };
    let began = Instant::now();
    fill_sqlite(&file, &folder.path().join("history.db"), past)?;
    eprintln!("SQLite filled in {:.0} s", began.elapsed().as_secs_f64());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let server = runtime.block_on(Postgres::start("bench"))?;
    let location = Location::parse(&server.url()).map_err(anyhow::Error::msg)?;
    let began = Instant::now();
    fill_postgres(&location, &server.url(), past)?;
    eprintln!("PostgreSQL filled in {:.0} s", began.elapsed().as_secs_f64());

    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["question", "SQLite", "PostgreSQL", "rows"]);
    let mut stores = [Store::read(&file)?, Store::read(&location)?];
    let day = Some(Period::Day);
    let whole = (BEGIN, BEGIN + DAYS * DAY);
    let week = (BEGIN + DAY + 1_234_567, BEGIN + 8 * DAY + 1_234_567);
    let all = [
        ("report teams", choice(ReportKind::Teams, None, whole)?),
        ("report teams --by day", choice(ReportKind::Teams, day, whole)?),
        ("report users --by day", choice(ReportKind::Users, day, whole)?),
        ("report pools --by day", choice(ReportKind::Pools, day, whole)?),
        ("report waits --by day", choice(ReportKind::Waits, day, whole)?),
        ("report evictions --by day", choice(ReportKind::Evictions, day, whole)?),
        ("report evictions, a week from within a half hour", choice(ReportKind::Evictions, None, week)?),
        ("report teams, a week from within a half hour", choice(ReportKind::Teams, None, week)?),
        (
            "report users --by day, one namespace",
            Choice { namespace: Some("team-7".to_owned()), ..choice(ReportKind::Users, day, whole)? },
        ),
    ];
    for (name, choice) in all {
        let measure =
            |store: &mut Store| measured(arguments.times, || report(store, &choice).map(|rows| rows.len()));
        let [sqlite, postgres] = each(&mut stores, measure)?;
        eprintln!("{name}: {} and {} s", sqlite.0.as_secs_f64(), postgres.0.as_secs_f64());
        table.add_row([name.to_owned(), seconds(sqlite.0), seconds(postgres.0), sqlite.1.to_string()]);
    }
    let workload = one_of(past)?;
    for (name, filter) in [
        (
            "history of one workload",
            HistoryFilter { namespace: Some(workload.0), name: Some(workload.1), ..HistoryFilter::default() },
        ),
        (
            "history of a namespace, newest 1,000",
            HistoryFilter { namespace: Some("team-7".to_owned()), ..HistoryFilter::default() },
        ),
        ("history -A, newest 1,000", HistoryFilter::default()),
    ] {
        let measure = |store: &mut Store| {
            measured(arguments.times, || runs(store, &filter, None, 1_000).map(|rows| rows.len()))
        };
        let [sqlite, postgres] = each(&mut stores, measure)?;
        eprintln!("{name}: {} and {} s", sqlite.0.as_secs_f64(), postgres.0.as_secs_f64());
        table.add_row([name.to_owned(), seconds(sqlite.0), seconds(postgres.0), sqlite.1.to_string()]);
    }
    println!("{table}");
    if arguments.write {
        readme::write("bench-history", &table.to_string()).map_err(anyhow::Error::msg)?;
    }
    Ok(())
}

/// Namespace and name of a workload in the middle of a past.
fn one_of(past: Past) -> Result<(String, String)> {
    let head = |fact: Fact| match fact {
        Fact::Sighting(_, seen) => Some((seen.head.namespace, seen.head.name)),
        _ => None,
    };
    facts(past).filter_map(head).nth(past.runs / 2).context("no runs")
}

fn each<T>(stores: &mut [Store; 2], measure: impl Fn(&mut Store) -> Result<T>) -> Result<[T; 2]> {
    let [sqlite, postgres] = stores;
    Ok([measure(sqlite)?, measure(postgres)?])
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn choice(kind: ReportKind, by: Option<Period>, (from, to): (i64, i64)) -> Result<Choice> {
    let time = |millis| Timestamp::from_millisecond(millis);
    let filter = ReportFilter {
        kind,
        from: time(from)?,
        to: Some(time(to)?),
        by,
        cuts: Vec::new(),
        team: None,
        prices: std::collections::BTreeMap::new(),
    };
    let periods = Periods::of(&filter, Timestamp::now()).map_err(anyhow::Error::msg)?;
    Ok(Choice { kind, periods, namespace: None, team: None, prices: filter.prices })
}

/// The median time of a question, and its number of rows.
fn measured<E: std::error::Error + Send + Sync + 'static>(
    times: usize,
    mut ask: impl FnMut() -> Result<usize, E>,
) -> Result<(Duration, usize)> {
    let mut taken = Vec::new();
    let mut rows = 0;
    for _ in 0..times.max(1) {
        let began = Instant::now();
        rows = ask()?;
        taken.push(began.elapsed());
    }
    taken.sort_unstable();
    Ok((taken[taken.len() / 2], rows))
}

/// Rows of `runs` and of `segments`, in the order of their columns.
type Batch = (Vec<Vec<Value>>, Vec<Vec<Value>>);

/// The runs of a past in batches.
fn batches(past: Past) -> impl Iterator<Item = Batch> {
    let merged = facts(past).filter_map(|fact| match fact {
        Fact::Sighting(key, sighting) => merge(&key, std::slice::from_ref(&sighting)),
        _ => None,
    });
    let mut merged = merged.peekable();
    std::iter::from_fn(move || {
        merged.peek()?;
        let mut batch = Batch::default();
        for run in merged.by_ref().take(BATCH) {
            batch.1.extend(segments_of(&run));
            batch.0.push(row_of(&run));
        }
        Some(batch)
    })
}

fn row_of(run: &Run) -> Vec<Value> {
    let (head, end) = (&run.head, run.end.as_ref());
    let value = |column: &&str| match *column {
        "uid" => run.key.uid.as_str().into(),
        "admitted_at" => run.key.admitted_at.into(),
        "namespace" => head.namespace.as_str().into(),
        "name" => head.name.as_str().into(),
        "kind" => head.kind.as_str().into(),
        "team" => head.team.as_str().into(),
        "queue" => head.queue.as_str().into(),
        "pool" => head.pool.as_str().into(),
        "username" => head.username.as_str().into(),
        "submitted_at" => head.submitted_at.into(),
        "queued_at" => head.queued_at.into(),
        "until_at" => run.until.into(),
        "ended_at" => end.map(|end| end.at).into(),
        "ending" => end.map_or("", |end| end.how.name()).into(),
        "reason" => end.map_or("", |end| &end.reason).into(),
        "for_workload" => end.map_or("", |end| &end.for_workload).into(),
        "stopped_at" => end.and_then(|end| end.stopped_at).into(),
        "saved_at" => end.and_then(|end| end.saved_at).into(),
        "pods" => head.pods.into(),
        "nodes" => head.nodes.as_str().into(),
        "devices" => head.devices.into(),
        "borrowed" => head.borrowed.into(),
        "used" => run.used.into(),
        "lost" => run.lost.into(),
        _ => Value::Null,
    };
    RUNS.columns.iter().map(value).collect()
}

fn segments_of(run: &Run) -> Vec<Vec<Value>> {
    let head = &run.head;
    let rows =
        run.segments.iter().flat_map(|segment| segment.amounts.iter().map(move |amount| (segment, amount)));
    let row = |(segment, (resource, amount)): (&sluice::history::record::Segment, (&String, &i64))| {
        let value = |column: &&str| match *column {
            "uid" => run.key.uid.as_str().into(),
            "admitted_at" => run.key.admitted_at.into(),
            "resource" => resource.as_str().into(),
            "from_at" => segment.from.into(),
            "to_at" => segment.to.into(),
            "amount" => (*amount).into(),
            "team" => head.team.as_str().into(),
            "queue" => head.queue.as_str().into(),
            "pool" => head.pool.as_str().into(),
            "username" => head.username.as_str().into(),
            "borrowed" => head.borrowed.into(),
            _ => Value::Null,
        };
        SEGMENTS.columns.iter().map(value).collect()
    };
    rows.map(row).collect()
}

fn fill_sqlite(location: &Location, file: &Path, past: Past) -> Result<()> {
    drop(Store::open(location)?);
    let mut connection = rusqlite::Connection::open(file)?;
    let tables = [&RUNS, &SEGMENTS].map(|table| {
        let places: Vec<String> = (1..=table.columns.len()).map(|at| format!("?{at}")).collect();
        format!("INSERT INTO {} ({}) VALUES ({})", table.name, table.columns.join(", "), places.join(", "))
    });
    for (runs, segments) in batches(past) {
        let transaction = connection.transaction()?;
        for (sql, rows) in tables.iter().zip([runs, segments]) {
            let mut statement = transaction.prepare_cached(sql)?;
            for row in rows {
                statement.execute(rusqlite::params_from_iter(row))?;
            }
        }
        transaction.commit()?;
    }
    Ok(Store::open(location)?.recount()?)
}

fn fill_postgres(location: &Location, url: &str, past: Past) -> Result<()> {
    drop(Store::open(location)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        let connection = tokio::spawn(connection);
        for batch in batches(past) {
            for (table, rows) in [&RUNS, &SEGMENTS].into_iter().zip([batch.0, batch.1]) {
                let sql = format!("COPY {} ({}) FROM STDIN", table.name, table.columns.join(", "));
                let sink = client.copy_in::<_, axum::body::Bytes>(&sql).await?;
                let mut sink = std::pin::pin!(sink);
                sink.send(lines(&rows).into()).await?;
                sink.as_mut().finish().await?;
            }
        }
        drop(client);
        connection.await.context("the connection ended in a panic")??;
        anyhow::Ok(())
    })?;
    let mut store = Store::open(location)?;
    store.recount()?;
    // As the server itself does it after a while.
    store.query("VACUUM ANALYZE", &[])?;
    Ok(())
}

/// Rows as `COPY` reads them; none of the values has a character that it would have to escape.
fn lines(rows: &[Vec<Value>]) -> Vec<u8> {
    let mut text = String::new();
    for row in rows {
        for (at, value) in row.iter().enumerate() {
            if at > 0 {
                text.push('\t');
            }
            // Writing to a String does not fail.
            let _ = match value {
                Value::Null => write!(text, "\\N"),
                Value::Int(number) => write!(text, "{number}"),
                Value::Real(number) => write!(text, "{number}"),
                Value::Text(value) => write!(text, "{value}"),
            };
        }
        text.push('\n');
    }
    text.into_bytes()
}
