//! SQLite: a file of this process.

use std::path::Path;
use std::time::Duration;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, params_from_iter};

use super::database::{Database, StoreError};
use super::value::{Row, Value};

/// How long a statement waits for another writer.
const BUSY: Duration = Duration::from_secs(10);
/// The most pages of a file, of 4 KiB each: 1 GiB.
const PAGES: u32 = 1 << 18;
/// Prepared statements that are kept.
const STATEMENTS: usize = 64;

/// An open file.
pub struct Sqlite {
    connection: Connection,
    /// The directory of the file.
    directory: String,
}

impl Sqlite {
    /// Opens a file; made if it is not there, unless it is only to be read.
    pub fn open(path: &Path, reads: bool) -> Result<Self, StoreError> {
        let how = if reads {
            OpenFlags::SQLITE_OPEN_READ_ONLY
        } else {
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
        };
        let connection =
            Connection::open_with_flags(path, how | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(told)?;
        connection.busy_timeout(BUSY).map_err(told)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        if !reads {
            // Readers never wait for the writer; a power cut loses the last seconds, and no more.
            let settings = "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; \
                 PRAGMA journal_size_limit = 67108864;";
            connection.execute_batch(settings).map_err(told)?;
            connection.execute_batch(&format!("PRAGMA max_page_count = {PAGES};")).map_err(told)?;
        }
        connection.execute_batch("PRAGMA cache_size = -4096; PRAGMA temp_store = MEMORY;").map_err(told)?;
        let directory =
            path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = directory.to_string_lossy().into_owned();
        Ok(Self { connection, directory })
    }
}

impl Database for Sqlite {
    fn unhurried(&mut self, begins: bool) -> Result<(), StoreError> {
        // What a new index sorts would need hundreds of megabytes of memory, and there may be no other directory to write to.
        let settings = match begins {
            true => {
                let directory = self.directory.replace('\'', "''");
                format!("PRAGMA temp_store_directory = '{directory}'; PRAGMA temp_store = FILE;")
            }
            false => "PRAGMA temp_store = MEMORY;".to_owned(),
        };
        self.connection.execute_batch(&settings).map_err(told)
    }

    fn begin(&mut self) -> Result<(), StoreError> {
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(told)
    }

    fn script(&mut self, sql: &str) -> Result<(), StoreError> {
        self.connection.execute_batch(sql).map_err(told)
    }

    fn run(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let rows = statement.execute(params_from_iter(values)).map_err(told)?;
        Ok(rows as u64)
    }

    fn each(&mut self, sql: &str, values: &[Value], found: &mut dyn FnMut(Row)) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(told)?;
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(values)).map_err(told)?;
        while let Some(row) = rows.next().map_err(told)? {
            let value = |at: usize| {
                Ok(match row.get_ref(at).map_err(told)? {
                    ValueRef::Null => Value::Null,
                    ValueRef::Integer(number) => Value::Int(number),
                    ValueRef::Real(number) => Value::Real(number),
                    ValueRef::Text(text) | ValueRef::Blob(text) => {
                        Value::Text(String::from_utf8_lossy(text).into_owned())
                    }
                })
            };
            found((0..columns).map(value).collect::<Result<Row, StoreError>>()?);
        }
        Ok(())
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Int(number) => ToSqlOutput::Borrowed(ValueRef::Integer(*number)),
            Self::Real(number) => ToSqlOutput::Borrowed(ValueRef::Real(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}

fn told(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
            StoreError::Refused(error.to_string())
        }
        Some(ErrorCode::DiskFull) => StoreError::Full,
        _ => StoreError::Unavailable(error.to_string()),
    }
}
