//! The history in a real PostgreSQL server, and its size.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use prometheus::Registry;
use sluice::history::generate::{Past, facts};
use sluice::history::record::{Fact, Sighting};
use sluice::history::store::schema::PUBLISHED;
use sluice::history::store::{Location, Row, Store};
use sluice::history::{counts, start};
use sluice_harness::{Postgres, eventually};

/// Everything that people read.
fn contents(store: &mut Store) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for table in PUBLISHED {
        let key = table.columns[..table.key].iter().map(|column| match *column {
            // Databases order texts in different ways.
            text if ["uid", "team", "pool", "resource", "transition"].contains(&text) => {
                format!("REPLACE({text}, '-', '')")
            }
            number => number.to_owned(),
        });
        let key: Vec<String> = key.collect();
        let (name, columns) = (table.name, table.columns.join(", "));
        rows.extend(store.query(&format!("SELECT {columns} FROM {name} ORDER BY {}", key.join(", ")), &[])?);
    }
    Ok(rows)
}

/// What another replica saw of the same: every run ends some milliseconds later.
fn of_another(all: &[Fact]) -> Vec<Fact> {
    let late = |fact: &Fact| match fact {
        Fact::Sighting(key, seen) => {
            let mut seen: Sighting = seen.clone();
            seen.session = 2;
            seen.seen_until += 3;
            if let Some(end) = &mut seen.end {
                end.at += 3;
            }
            if let Some(last) = seen.segments.last_mut() {
                last.to += 3;
            }
            Fact::Sighting(key.clone(), seen)
        }
        other => other.clone(),
    };
    all.iter().rev().map(late).collect()
}

fn write(location: &Location, facts: &[Fact], batch: usize) -> Result<()> {
    let mut store = Store::open(location)?;
    for batch in facts.chunks(batch) {
        store.write(batch)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_write_the_same_to_one_server_and_it_counts_once() -> Result<()> {
    let server = Postgres::start("replicas").await?;
    let location = Location::parse(&server.url()).map_err(anyhow::Error::msg)?;
    let first: Vec<Fact> = facts(Past { seed: 7, runs: 600, from: 0, millis: 86_400_000 }).collect();
    let second = of_another(&first);
    let folder = std::env::temp_dir().join(format!("sluice-history-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = Location::File(folder.join("h.db"));
    let both: Vec<Fact> = first.iter().chain(&second).cloned().collect();
    write(&file, &both, 1000)?;
    // Both at once, from an empty database, and the first twice.
    let writers = [(first.clone(), 70), (second, 110), (first, 500)].map(|(facts, batch)| {
        let location = location.clone();
        tokio::task::spawn_blocking(move || write(&location, &facts, batch))
    });
    for writer in writers {
        writer.await??;
    }
    let (there, here) = tokio::task::spawn_blocking(move || -> Result<_> {
        Ok((contents(&mut Store::read(&location)?)?, contents(&mut Store::read(&file)?)?))
    })
    .await??;
    std::fs::remove_dir_all(folder)?;
    ensure!(there.len() == here.len(), "{} rows in PostgreSQL, {} in SQLite", there.len(), here.len());
    for (one, other) in there.iter().zip(&here) {
        ensure!(one == other, "PostgreSQL has {one:?}, SQLite {other:?}");
    }
    Ok(())
}

/// The limits of the server and of Sluice for one statement are for daily work.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_may_take_longer_than_a_statement() -> Result<()> {
    /// Longer than any limit.
    const LONG: Duration = Duration::from_secs(33);
    let server = Postgres::start("upgrade").await?;
    let location = Location::parse(&server.url()).map_err(anyhow::Error::msg)?;
    let here = location.clone();
    tokio::task::spawn_blocking(move || -> Result<()> {
        let mut store = Store::open(&here)?;
        store.write(&facts(Past { seed: 3, runs: 50, from: 0, millis: 86_400_000 }).collect::<Vec<_>>())?;
        for sql in [
            "DROP INDEX runs_by_namespace",
            "DROP INDEX runs_by_eviction",
            "DELETE FROM schema_version WHERE version > 2",
            "ALTER ROLE sluice SET statement_timeout = '5s'",
        ] {
            store.query(sql, &[])?;
        }
        Ok(())
    })
    .await??;
    let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await?;
    let connection = tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE runs IN SHARE UPDATE EXCLUSIVE MODE").await?;
    let began = Instant::now();
    // The second waits for the first.
    let upgrades = [location.clone(), location.clone()]
        .map(|location| tokio::task::spawn_blocking(move || Store::open(&location).map(|_| began.elapsed())));
    tokio::time::sleep(LONG).await;
    client.batch_execute("COMMIT").await?;
    for upgrade in upgrades {
        ensure!(upgrade.await?? >= LONG, "it did not wait for the table");
    }
    ensure!(tokio::task::spawn_blocking(move || Store::read(&location).is_ok()).await?);
    drop(client);
    connection.await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_queued_while_the_server_is_down_is_written_once_it_is_back() -> Result<()> {
    let mut server = Postgres::start("outage").await?;
    let location = Location::parse(&server.url()).map_err(anyhow::Error::msg)?;
    let registry = Registry::new();
    let keep = Duration::from_secs(365 * 86_400);
    let (historian, recording) = start(Some(location.clone()), keep, counts(&registry)?)?;
    let now = jiff::Timestamp::now().as_millisecond();
    let all: Vec<Fact> =
        facts(Past { seed: 9, runs: 2_000, from: now - 86_400_000, millis: 80_000_000 }).collect();
    let (before, after) = all.split_at(all.len() / 2);
    before.iter().for_each(|fact| historian.send(fact.clone()));
    let metric = |name: &str| {
        let families = registry.gather();
        let family = families.iter().find(|family| family.name() == name);
        family.map_or(0.0, |family| {
            let metric = &family.get_metric()[0];
            metric.get_counter().get_value() + metric.get_gauge().get_value()
        })
    };
    let written = async |count: usize| {
        eventually("the facts are written", Duration::from_secs(120), async || {
            let written = metric("sluice_history_written_total");
            if written as usize == count { Ok(()) } else { Err(format!("{written} of {count}")) }
        })
        .await
    };
    written(before.len()).await?;
    server.stop().await?;
    let began = Instant::now();
    after.iter().for_each(|fact| historian.send(fact.clone()));
    ensure!(began.elapsed() < Duration::from_secs(1), "the loop waits: {:?}", began.elapsed());
    eventually("the store is known to be down", Duration::from_secs(60), async || {
        if metric("sluice_history_up") == 0.0 { Ok(()) } else { Err("up".to_owned()) }
    })
    .await?;
    server.resume().await?;
    written(all.len()).await?;
    drop(historian);
    tokio::task::spawn_blocking(|| recording.finish()).await?;
    let runs = tokio::task::spawn_blocking(move || -> Result<_> {
        let rows = Store::read(&location)?.query("SELECT COUNT(*) FROM runs WHERE ended_at > 0", &[])?;
        Ok(rows[0][0].int())
    });
    ensure!(runs.await?? == Some(2_000));
    ensure!(metric("sluice_history_dropped_total") == 0.0);
    Ok(())
}

/// Reports as people ask for them: by team over the whole time, and by pool and day.
const REPORTS: [&str; 3] = [
    "SELECT team, COUNT(*), CAST(SUM(used) AS BIGINT), CAST(SUM(lost) AS BIGINT) FROM runs GROUP BY team",
    "SELECT username, CAST(SUM(used) AS BIGINT) FROM runs WHERE until_at >= ?1 AND admitted_at < ?2 GROUP BY username",
    "SELECT pool, to_at / 86400000, CAST(SUM(amount * (to_at - from_at) / 1000) AS BIGINT) FROM segments \
     WHERE resource = 'devices' AND to_at >= ?1 AND from_at < ?2 GROUP BY pool, to_at / 86400000",
];

/// With HISTORY_RUNS=1000000 the reports are held to their limits.
#[tokio::test(flavor = "multi_thread")]
async fn reports_over_many_runs_are_fast() -> Result<()> {
    let runs: usize = std::env::var("HISTORY_RUNS").map_or(Ok(10_000), |runs| runs.parse())?;
    let server = Postgres::start("reports").await?;
    let folder = std::env::temp_dir().join(format!("sluice-reports-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = Location::File(folder.join("h.db"));
    let there = Location::parse(&server.url()).map_err(anyhow::Error::msg)?;
    let month = 30 * 86_400_000_i64;
    tokio::task::spawn_blocking(move || -> Result<()> {
        for (name, location, limit) in [("SQLite", &file, 3.0), ("PostgreSQL", &there, 1.0)] {
            let mut store = Store::open(location)?;
            let began = Instant::now();
            let mut facts = facts(Past { seed: 1, runs, from: 0, millis: 3 * month });
            loop {
                let batch: Vec<Fact> = facts.by_ref().take(4_000).collect();
                if batch.is_empty() {
                    break;
                }
                store.write(&batch)?;
            }
            println!("{name}: {runs} runs written in {:.1} s", began.elapsed().as_secs_f64());
            if name == "PostgreSQL" {
                store.query("SELECT CAST(NULL AS BIGINT) FROM runs LIMIT 1", &[])?;
            }
            for sql in REPORTS {
                let values: &[_] = if sql.contains("?1") { &[0.into(), (3 * month).into()] } else { &[] };
                let began = Instant::now();
                let rows = store.query(sql, values)?;
                let took = began.elapsed().as_secs_f64();
                println!("{name}: {took:.2} s, {} rows: {}", rows.len(), &sql[..40]);
                ensure!(!rows.is_empty() && (runs < 1_000_000 || took < limit), "{name}: {took:.2} s: {sql}");
            }
        }
        Ok(())
    })
    .await
    .context("a panic")??;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

#[test]
fn an_export_ends_quietly_where_its_reader_has_seen_enough() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("h.db");
    let past = Past { seed: 7, runs: 5_000, from: 0, millis: 86_400_000 };
    write(&Location::File(path.clone()), &facts(past).collect::<Vec<_>>(), 5_000)?;
    for format in ["csv", "parquet"] {
        let mut export = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["export", "runs", "--format", format, "--history"])
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut output = export.stdout.take().context("no output")?;
        output.read_exact(&mut [0; 4])?;
        drop(output);
        let ended = export.wait_with_output()?;
        let said = String::from_utf8(ended.stderr)?;
        ensure!(ended.status.success() && said.is_empty(), "{format}: {} {said}", ended.status);
    }
    Ok(())
}
