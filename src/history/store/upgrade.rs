//! Brings a store from an older version up to date, and makes its sums.

use std::time::Instant;

use super::schema::{MIGRATIONS, SUMS_SINCE, VERSIONS};
use super::sums::{BY_QUEUE, BY_USER, Rows};
use super::{Location, Store, StoreError, Value};

/// The runs of one statement that makes sums.
const AT_ONCE: i64 = 100_000;
/// How often the oldest tenth of a full file goes so that it can be brought up to date.
const TRIES_WHEN_FULL: usize = 5;

impl Store {
    /// Opens a store to write, and brings its schema up to date.
    ///
    /// # Errors
    /// When it is not reachable, or a newer version of Sluice has written it.
    pub fn open(location: &Location) -> Result<Self, StoreError> {
        let mut store = Self::connect(location, false)?;
        let present = MIGRATIONS.len();
        let Ok(version) = store.version() else {
            // It is empty. Two replicas that make the same table at once would be in each other's way.
            store.in_transaction(|store| store.0.script(VERSIONS))?;
            return store.upgrade().map(|()| store);
        };
        if version == present {
            return Ok(store);
        }
        if version == 0 || version > present {
            return store.upgrade().map(|()| store);
        }
        let began = Instant::now();
        tracing::info!(
            store = %location, from = version, to = present,
            "the history is brought up to date, which may take minutes; what happens meanwhile is written afterwards"
        );
        store.0.unhurried(true)?;
        store.upgrade()?;
        store.0.unhurried(false)?;
        tracing::info!(store = %location, seconds = began.elapsed().as_secs(), "the history is up to date");
        Ok(store)
    }

    fn upgrade(&mut self) -> Result<(), StoreError> {
        for _ in 0..TRIES_WHEN_FULL {
            match self.in_transaction(Self::migrate) {
                Err(StoreError::Full) => self.shorten()?,
                done => return done,
            }
        }
        Err(StoreError::Full)
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
        if version < SUMS_SINCE { self.sum_up() } else { Ok(()) }
    }

    /// Makes the sums again from the runs, as after writing these by other means.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn recount(&mut self) -> Result<(), StoreError> {
        self.in_transaction(Self::sum_up)
    }

    fn sum_up(&mut self) -> Result<(), StoreError> {
        for sums in [&BY_QUEUE, &BY_USER] {
            self.0.run(&format!("DELETE FROM {}", sums.table), &[])?;
        }
        let sql = "SELECT COUNT(*), MIN(until_at), MAX(until_at), (SELECT MIN(to_at) FROM segments), \
                   (SELECT MAX(to_at) FROM segments) FROM runs";
        let rows = self.0.rows(sql, &[])?;
        let numbers: Vec<i64> = rows.iter().flatten().skip(1).filter_map(Value::int).collect();
        let runs = rows.first().and_then(|row| row.first()?.int()).unwrap_or_default();
        let (Some(first), Some(last)) = (numbers.iter().min(), numbers.iter().max()) else { return Ok(()) };
        // In parts, so that no statement takes long.
        let step = (last - first) / (runs / AT_ONCE + 1) + 1;
        let mut from = *first;
        while from <= *last {
            let within =
                |column: &str| format!("t.{column} >= {from} AND t.{column} < {}", from.saturating_add(step));
            self.add_up(
                1,
                &Rows {
                    with: String::new(),
                    segments: Some(format!("segments t WHERE {}", within("to_at"))),
                    runs: Some(format!("runs t WHERE {}", within("until_at"))),
                    values: Vec::new(),
                },
            )?;
            from = from.saturating_add(step);
        }
        Ok(())
    }

    /// Frees capacity in a file of an older version. Where it has no sums yet, they are made afterwards.
    pub(super) fn shorten(&mut self) -> Result<(), StoreError> {
        let last = self.0.rows("SELECT COALESCE(MAX(until_at), 0) FROM runs", &[])?;
        let last = last.first().and_then(|row| row.first()?.int()).unwrap_or_default();
        let oldest = self.oldest_tenth(last)?;
        let has_sums = self.version()? >= SUMS_SINCE;
        self.in_transaction(|store| store.delete(oldest, last, has_sums))
    }
}
