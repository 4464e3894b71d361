//! The store: the facts in a database, SQLite or PostgreSQL.
//!
//! Every row has a key, and what replaces a row that is there follows from the two rows alone. So facts may be written again,
//! by several processes, in any order.

mod database;
mod location;
mod postgres;
pub mod schema;
mod sqlite;
pub mod sums;
mod upgrade;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::database::Database;
pub use self::database::StoreError;
pub use self::location::{Location, Server};
use self::postgres::Postgres;
use self::schema::{MIGRATIONS, RUNS, SAMPLES, SEGMENTS, SIGHTINGS, TRANSITIONS, Table};
use self::sqlite::Sqlite;
use self::sums::{BY_QUEUE, BY_USER, Rows};
pub use self::value::{Row, Value};
use super::merge::merge;
use super::record::{Fact, Run, RunKey, Sample, Sighting, Transition};

/// The most rows of one statement.
const ROWS: usize = 100;
/// What is deleted in one transaction: this much of the past, in milliseconds.
const PART: i64 = 24 * 3_600_000;
/// How long after its end a run takes further sightings.
const OPEN: Duration = Duration::from_secs(2 * 24 * 3600);

/// An open store. Its calls block.
pub struct Store(Box<dyn Database>);

impl Store {
    /// Opens a store to read.
    ///
    /// # Errors
    /// When it is not reachable, or its schema is not the present one.
    pub fn read(location: &Location) -> Result<Self, StoreError> {
        let mut store = Self::connect(location, true)?;
        let version = store.version().unwrap_or(0);
        if version != MIGRATIONS.len() {
            let present = MIGRATIONS.len();
            let problem = format!("no history of this version of Sluice: schema {version}, not {present}");
            return Err(StoreError::Refused(problem));
        }
        Ok(store)
    }

    fn connect(location: &Location, reads: bool) -> Result<Self, StoreError> {
        Ok(Self(match location {
            Location::File(path) => Box::new(Sqlite::open(path, reads)?),
            Location::Server(server) => Box::new(Postgres::connect(server, reads)?),
        }))
    }

    fn version(&mut self) -> Result<usize, StoreError> {
        let rows =
            self.0.rows("SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM schema_version", &[])?;
        let version = rows.first().and_then(|row| row.first()?.int());
        Ok(version.and_then(|version| usize::try_from(version).ok()).unwrap_or(0))
    }

    /// Adds rows to the sums, or takes them away.
    fn add_up(&mut self, sign: i64, rows: &Rows) -> Result<(), StoreError> {
        for sums in [&BY_QUEUE, &BY_USER] {
            self.0.run(&sums.count(rows, sign), &rows.values)?;
        }
        Ok(())
    }

    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.begin()?;
        match work(self) {
            Ok(done) => self.0.script("COMMIT").map(|()| done),
            Err(error) => {
                // Of a lost connection the server takes everything back by itself.
                let _ = self.0.script("ROLLBACK");
                Err(error)
            }
        }
    }

    /// The rows of a query in the SQL that both databases share, with parameters `?1`, `?2` and so on. Sums are cast to
    /// `BIGINT` or `DOUBLE PRECISION`.
    ///
    /// # Errors
    /// When it cannot be carried out.
    pub fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, StoreError> {
        self.0.rows(sql, values)
    }

    /// The same for many rows: each is given to `found` as it comes.
    ///
    /// # Errors
    /// When it cannot be carried out; some rows may have been given by then.
    pub fn each(
        &mut self,
        sql: &str,
        values: &[Value],
        found: &mut dyn FnMut(Row),
    ) -> Result<(), StoreError> {
        self.0.each(sql, values, found)
    }

    /// Writes facts, all or none.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&mut self, facts: &[Fact]) -> Result<(), StoreError> {
        let mut sightings: BTreeMap<RunKey, Vec<&Sighting>> = BTreeMap::new();
        let (mut transitions, mut samples) = (Vec::new(), Vec::new());
        for fact in facts {
            match fact {
                Fact::Sighting(key, sighting) => sightings.entry(key.clone()).or_default().push(sighting),
                Fact::Transition(transition) => transitions.push(transition_row(transition)),
                Fact::Sample(sample) => samples.push(sample_row(sample)),
            }
        }
        self.in_transaction(|store| {
            store.upsert(&TRANSITIONS, transitions)?;
            store.upsert(&SAMPLES, samples)?;
            store.write_sightings(sightings)
        })
    }

    fn write_sightings(&mut self, sightings: BTreeMap<RunKey, Vec<&Sighting>>) -> Result<(), StoreError> {
        let known = self.known(sightings.keys())?;
        let open = sightings.into_iter().filter(|(key, _)| known.get(key) != Some(&Known::Settled));
        let open: Vec<(RunKey, Vec<&Sighting>)> = open.collect();
        let rows = open.iter().flat_map(|(key, seen)| seen.iter().map(|seen| sighting_row(key, seen)));
        self.upsert(&SIGHTINGS, rows.collect())?;
        let keys: Vec<&RunKey> = open.iter().map(|(key, _)| key).collect();
        let (mut runs, mut segments) = (Vec::new(), Vec::new());
        for chunk in keys.chunks(ROWS) {
            let mut seen: BTreeMap<RunKey, Vec<Sighting>> = BTreeMap::new();
            let sql = of_keys("t.uid, t.admitted_at, t.body", "sightings", chunk.len());
            for row in self.0.rows(&sql, &key_values(chunk))? {
                let (Some(key), Some(body)) = (key_of(&row), row.get(2)) else { continue };
                // A body that cannot be read is of a later version; this one goes without it.
                if let Ok(body) = serde_json::from_str(body.text()) {
                    seen.entry(key).or_default().push(body);
                }
            }
            for (key, seen) in seen {
                let Some(run) = merge(&key, &seen) else { continue };
                runs.push(run_row(&run));
                segments.extend(segment_rows(&run));
            }
        }
        let before: Vec<&RunKey> = keys.iter().copied().filter(|key| known.contains_key(key)).collect();
        for chunk in before.chunks(ROWS) {
            self.add_up(-1, &rows_of_keys(chunk))?;
            let (pairs, values) = (pairs(chunk.len()), key_values(chunk));
            let sql = format!("DELETE FROM segments WHERE (uid, admitted_at) IN (VALUES {pairs})");
            self.0.run(&sql, &values)?;
        }
        self.upsert(&RUNS, runs)?;
        self.upsert(&SEGMENTS, segments)?;
        keys.chunks(ROWS).try_for_each(|chunk| self.add_up(1, &rows_of_keys(chunk)))
    }

    /// Of these runs those that the store has.
    fn known<'a>(
        &mut self,
        keys: impl Iterator<Item = &'a RunKey>,
    ) -> Result<BTreeMap<RunKey, Known>, StoreError> {
        let keys: Vec<&RunKey> = keys.collect();
        let mut known = BTreeMap::new();
        for chunk in keys.chunks(ROWS) {
            let columns = "t.uid, t.admitted_at, \
                 EXISTS (SELECT 1 FROM sightings s WHERE s.uid = t.uid AND s.admitted_at = t.admitted_at)";
            for row in self.0.rows(&of_keys(columns, "runs", chunk.len()), &key_values(chunk))? {
                let open = row.get(2).and_then(Value::int) != Some(0);
                known.extend(key_of(&row).map(|key| (key, if open { Known::Open } else { Known::Settled })));
            }
        }
        Ok(known)
    }

    /// Inserts rows, or replaces those that are there as the table says.
    fn upsert(&mut self, table: &Table, rows: Vec<Row>) -> Result<(), StoreError> {
        for chunk in rows.chunks(ROWS) {
            // One statement must not change a row twice.
            let mut keys = BTreeSet::new();
            let mut later = Vec::new();
            let mut values = Vec::with_capacity(chunk.len() * table.columns.len());
            let mut count = 0;
            for row in chunk {
                if keys.insert(format!("{:?}", &row[..table.key])) {
                    values.extend(row.iter().cloned());
                    count += 1;
                } else {
                    later.push(row.clone());
                }
            }
            self.0.run(&insert(table, count), &values)?;
            if !later.is_empty() {
                self.upsert(table, later)?;
            }
        }
        Ok(())
    }

    /// Frees capacity in a file that is full: deletes the oldest tenth of the time that it covers.
    ///
    /// # Errors
    /// When it cannot.
    pub fn make_room(&mut self, now: i64) -> Result<(), StoreError> {
        let oldest = self.oldest_tenth(now)?;
        self.forget(oldest, now)
    }

    /// The time before which a tenth of the time lies that the store covers.
    fn oldest_tenth(&mut self, now: i64) -> Result<i64, StoreError> {
        let oldest = self.0.rows("SELECT MIN(until_at) FROM runs", &[])?;
        let oldest = oldest.first().and_then(|row| row.first()?.int()).unwrap_or(now);
        let tenth = now.saturating_sub(oldest) / 10;
        Ok(oldest.saturating_add(tenth.max(1)))
    }

    /// Deletes what ended before `oldest`, and the sightings of runs that ended long before `now`.
    ///
    /// # Errors
    /// When it cannot.
    pub fn forget(&mut self, oldest: i64, now: i64) -> Result<(), StoreError> {
        // A day after the other, so that no statement takes long where months go at once.
        let sql = "SELECT (SELECT MIN(until_at) FROM runs), (SELECT MIN(to_at) FROM segments), \
                   (SELECT MIN(at) FROM transitions), (SELECT MIN(at) FROM samples)";
        let first = self.0.rows(sql, &[])?.iter().flatten().filter_map(Value::int).min();
        let mut until = first.unwrap_or(oldest).saturating_add(PART);
        while until < oldest {
            self.in_transaction(|store| store.delete(until, now, true))?;
            until = until.saturating_add(PART);
        }
        self.in_transaction(|store| {
            store.delete(oldest, now, true)?;
            [&BY_QUEUE, &BY_USER].iter().try_for_each(|sums| store.0.run(&sums.prune(), &[]).map(drop))
        })
    }

    fn delete(&mut self, oldest: i64, now: i64, from_sums: bool) -> Result<(), StoreError> {
        let open = now.saturating_sub(i64::try_from(OPEN.as_millis()).unwrap_or(i64::MAX));
        for (table, condition, time) in [
            ("segments", "t.to_at < ?1", oldest),
            ("transitions", "t.at < ?1", oldest),
            ("samples", "t.at < ?1", oldest),
            (
                "sightings",
                "EXISTS (SELECT 1 FROM runs r WHERE r.uid = t.uid AND r.admitted_at = t.admitted_at AND r.ended_at < ?1)",
                open.max(oldest),
            ),
            ("runs", "t.ended_at < ?1", oldest),
            // Of these no process has seen the end, and no object is left.
            (
                "sightings",
                "EXISTS (SELECT 1 FROM runs r WHERE r.uid = t.uid AND r.admitted_at = t.admitted_at AND r.until_at < ?1)",
                oldest,
            ),
            ("runs", "t.until_at < ?1", oldest),
        ] {
            let rows = |of: &str| (table == of).then(|| format!("{table} t WHERE {condition}"));
            let (segments, runs) = (rows("segments"), rows("runs"));
            if from_sums && (segments.is_some() || runs.is_some()) {
                self.add_up(-1, &Rows { with: String::new(), segments, runs, values: vec![time.into()] })?;
            }
            self.0.run(&format!("DELETE FROM {table} AS t WHERE {condition}"), &[time.into()])?;
        }
        Ok(())
    }
}

/// What the store has of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It takes further sightings.
    Open,
    /// It ended so long ago that its sightings are gone.
    Settled,
}

/// The rows of these runs, and of their segments.
fn rows_of_keys(keys: &[&RunKey]) -> Rows {
    // In this order SQLite looks each key up.
    let of = |table: &str| format!("k CROSS JOIN {table} t WHERE t.uid = k.uid AND t.admitted_at = k.since");
    Rows {
        with: format!("WITH k (uid, since) AS (VALUES {}) ", pairs(keys.len())),
        segments: Some(of("segments")),
        runs: Some(of("runs")),
        values: key_values(keys),
    }
}

fn insert(table: &Table, rows: usize) -> String {
    let width = table.columns.len();
    let one = |row: usize| {
        let values: Vec<String> = (0..width).map(|column| format!("?{}", row * width + column + 1)).collect();
        format!("({})", values.join(", "))
    };
    let values: Vec<String> = (0..rows).map(one).collect();
    let key = table.columns[..table.key].join(", ");
    let then = match table.replace {
        None => "DO NOTHING".to_owned(),
        Some(condition) => {
            let set = table.columns[table.key..].iter().map(|column| format!("{column} = excluded.{column}"));
            format!("DO UPDATE SET {} WHERE {condition}", set.collect::<Vec<_>>().join(", "))
        }
    };
    let (name, columns) = (table.name, table.columns.join(", "));
    format!("INSERT INTO {name} ({columns}) VALUES {} ON CONFLICT ({key}) {then}", values.join(", "))
}

/// The places of so many keys in a statement.
fn pairs(keys: usize) -> String {
    let pair = |at: usize| format!("(CAST(?{} AS TEXT), CAST(?{} AS BIGINT))", at * 2 + 1, at * 2 + 2);
    (0..keys).map(pair).collect::<Vec<_>>().join(", ")
}

/// A query for the rows of so many runs.
fn of_keys(columns: &str, table: &str, keys: usize) -> String {
    let pairs = pairs(keys);
    // In this order SQLite looks each key up.
    format!(
        "WITH k (uid, at) AS (VALUES {pairs}) SELECT {columns} FROM k CROSS JOIN {table} t \
         WHERE t.uid = k.uid AND t.admitted_at = k.at"
    )
}

fn key_values(keys: &[&RunKey]) -> Vec<Value> {
    keys.iter().flat_map(|key| [key.uid.as_str().into(), key.admitted_at.into()]).collect()
}

fn key_of(row: &[Value]) -> Option<RunKey> {
    Some(RunKey { uid: row.first()?.text().to_owned(), admitted_at: row.get(1)?.int()? })
}

fn sighting_row(key: &RunKey, seen: &Sighting) -> Row {
    // What a process saw later includes what it saw before, and an end is seen last.
    let grade = seen.seen_until.saturating_mul(2).saturating_add(i64::from(seen.end.is_some()));
    let body = serde_json::to_string(seen).unwrap_or_default();
    vec![
        key.uid.as_str().into(),
        key.admitted_at.into(),
        seen.session.into(),
        grade.into(),
        body.as_str().into(),
    ]
}

fn run_row(run: &Run) -> Row {
    let (head, end) = (&run.head, run.end.as_ref());
    vec![
        run.key.uid.as_str().into(),
        run.key.admitted_at.into(),
        head.namespace.as_str().into(),
        head.name.as_str().into(),
        head.kind.as_str().into(),
        head.team.as_str().into(),
        head.queue.as_str().into(),
        head.pool.as_str().into(),
        head.username.as_str().into(),
        head.submitted_at.into(),
        head.queued_at.into(),
        run.until.into(),
        end.map(|end| end.at).into(),
        end.map_or("", |end| end.how.name()).into(),
        end.map_or("", |end| &end.reason).into(),
        end.map_or("", |end| &end.for_workload).into(),
        end.and_then(|end| end.stopped_at).into(),
        end.and_then(|end| end.saved_at).into(),
        head.pods.into(),
        head.nodes.as_str().into(),
        head.devices.into(),
        head.borrowed.into(),
        run.used.into(),
        run.lost.into(),
    ]
}

fn segment_rows(run: &Run) -> impl Iterator<Item = Row> {
    let head = &run.head;
    run.segments.iter().flat_map(move |segment| {
        segment.amounts.iter().filter(|(_, amount)| **amount != 0).map(move |(resource, amount)| {
            vec![
                run.key.uid.as_str().into(),
                run.key.admitted_at.into(),
                resource.as_str().into(),
                segment.from.into(),
                segment.to.into(),
                (*amount).into(),
                head.team.as_str().into(),
                head.queue.as_str().into(),
                head.pool.as_str().into(),
                head.username.as_str().into(),
                head.borrowed.into(),
            ]
        })
    })
}

fn transition_row(what: &Transition) -> Row {
    vec![
        what.uid.as_str().into(),
        what.admitted_at.into(),
        what.transition.as_str().into(),
        what.occasion.into(),
        what.at.into(),
        what.namespace.as_str().into(),
        what.name.as_str().into(),
        what.team.as_str().into(),
        what.reason.as_str().into(),
        what.for_workload.as_str().into(),
        what.message.as_str().into(),
        what.grade.into(),
    ]
}

fn sample_row(sample: &Sample) -> Row {
    vec![
        sample.at.into(),
        sample.team.as_str().into(),
        sample.pool.as_str().into(),
        sample.resource.as_str().into(),
        sample.guaranteed.into(),
        sample.used.into(),
        sample.borrowed.into(),
        sample.lent.into(),
        sample.waiting.into(),
        sample.capacity.into(),
    ]
}

#[cfg(test)]
mod tests;
