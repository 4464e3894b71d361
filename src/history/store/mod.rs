//! The store: the facts in a database, SQLite or PostgreSQL.
//!
//! Every row has a key, and what replaces a row that is there follows from the two rows alone. So facts may be written again,
//! by several processes, in any order.

mod database;
mod location;
mod postgres;
pub mod schema;
mod sqlite;
mod value;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::database::Database;
pub use self::database::StoreError;
pub use self::location::{Location, Server};
use self::postgres::Postgres;
use self::schema::{MIGRATIONS, RUNS, SAMPLES, SEGMENTS, SIGHTINGS, TRANSITIONS, Table, VERSIONS};
use self::sqlite::Sqlite;
pub use self::value::{Row, Value};
use super::merge::merge;
use super::record::{Fact, Run, RunKey, Sample, Sighting, Transition};

/// The most rows of one statement.
const ROWS: usize = 100;
/// How long after its end a run takes further sightings.
const OPEN: Duration = Duration::from_secs(2 * 24 * 3600);

/// An open store. Its calls block.
pub struct Store(Box<dyn Database>);

impl Store {
    /// Opens a store to write, and brings its schema up to date.
    ///
    /// # Errors
    /// When it is not reachable, or a newer version of Sluice has written it.
    pub fn open(location: &Location) -> Result<Self, StoreError> {
        let mut store = Self::connect(location, false)?;
        store.0.script(VERSIONS)?;
        store.in_transaction(Self::migrate)?;
        Ok(store)
    }

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
            Location::Server(server) => Box::new(Postgres::connect(server)?),
        }))
    }

    fn version(&mut self) -> Result<usize, StoreError> {
        let rows =
            self.0.rows("SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) FROM schema_version", &[])?;
        let version = rows.first().and_then(|row| row.first()?.int());
        Ok(version.and_then(|version| usize::try_from(version).ok()).unwrap_or(0))
    }

    fn migrate(&mut self) -> Result<(), StoreError> {
        let version = self.version()?;
        if version > MIGRATIONS.len() {
            return Err(StoreError::Unavailable(format!(
                "a newer version of Sluice has written it (schema {version})"
            )));
        }
        for (step, sql) in MIGRATIONS.iter().enumerate().skip(version) {
            self.0.script(sql)?;
            let number = i64::try_from(step).unwrap_or(i64::MAX).saturating_add(1);
            self.0.run("INSERT INTO schema_version (version) VALUES (?1)", &[number.into()])?;
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
        let settled = self.settled(sightings.keys())?;
        let open = sightings.into_iter().filter(|(key, _)| !settled.contains(key));
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
            let (pairs, values) = (pairs(chunk.len()), key_values(chunk));
            self.0.run(
                &format!("DELETE FROM segments WHERE (uid, admitted_at) IN (VALUES {pairs})"),
                &values,
            )?;
        }
        self.upsert(&RUNS, runs)?;
        self.upsert(&SEGMENTS, segments)
    }

    /// Of these runs those that have ended so long ago that their sightings are gone.
    fn settled<'a>(
        &mut self,
        keys: impl Iterator<Item = &'a RunKey>,
    ) -> Result<BTreeSet<RunKey>, StoreError> {
        let keys: Vec<&RunKey> = keys.collect();
        let mut settled = BTreeSet::new();
        for chunk in keys.chunks(ROWS) {
            let sql = of_keys("t.uid, t.admitted_at", "runs", chunk.len())
                + " AND NOT EXISTS (SELECT 1 FROM sightings s WHERE s.uid = t.uid AND s.admitted_at = t.admitted_at)";
            settled.extend(self.0.rows(&sql, &key_values(chunk))?.iter().filter_map(|row| key_of(row)));
        }
        Ok(settled)
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
        let oldest = self.0.rows("SELECT MIN(until_at) FROM runs", &[])?;
        let oldest = oldest.first().and_then(|row| row.first()?.int()).unwrap_or(now);
        let tenth = now.saturating_sub(oldest) / 10;
        self.forget(oldest.saturating_add(tenth.max(1)), now)
    }

    /// Deletes what ended before `oldest`, and the sightings of runs that ended long before `now`.
    ///
    /// # Errors
    /// When it cannot.
    pub fn forget(&mut self, oldest: i64, now: i64) -> Result<(), StoreError> {
        let open = now.saturating_sub(i64::try_from(OPEN.as_millis()).unwrap_or(i64::MAX));
        self.in_transaction(|store| {
            for (sql, time) in [
                ("DELETE FROM segments WHERE to_at < ?1", oldest),
                ("DELETE FROM transitions WHERE at < ?1", oldest),
                ("DELETE FROM samples WHERE at < ?1", oldest),
                (
                    "DELETE FROM sightings WHERE EXISTS (SELECT 1 FROM runs r WHERE r.uid = sightings.uid \
                     AND r.admitted_at = sightings.admitted_at AND r.ended_at < ?1)",
                    open.max(oldest),
                ),
                ("DELETE FROM runs WHERE ended_at < ?1", oldest),
                // Of these no process has seen the end, and no object is left.
                (
                    "DELETE FROM sightings WHERE EXISTS (SELECT 1 FROM runs r WHERE r.uid = sightings.uid \
                     AND r.admitted_at = sightings.admitted_at AND r.until_at < ?1)",
                    oldest,
                ),
                ("DELETE FROM runs WHERE until_at < ?1", oldest),
            ] {
                store.0.run(sql, &[time.into()])?;
            }
            Ok(())
        })
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
