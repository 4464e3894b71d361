//! What the store needs of a database.

use super::value::{Row, Value};

/// Why a statement was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It may be, later.
    #[error("{0}")]
    Unavailable(String),
    /// It never will.
    #[error("{0}")]
    Refused(String),
    /// The file has reached its size.
    #[error("the file has reached its size")]
    Full,
}

/// What a database can do. Parameters are written `?1`, `?2`.
pub trait Database: Send {
    /// Begins or ends a time in which statements may take as long and as much disk as they need: an index over tens of millions
    /// of rows takes minutes. Outside of transactions only.
    fn unhurried(&mut self, begins: bool) -> Result<(), StoreError>;
    /// Begins a transaction; other writers wait until it ends.
    fn begin(&mut self) -> Result<(), StoreError>;
    /// Carries out statements without parameters.
    fn script(&mut self, sql: &str) -> Result<(), StoreError>;
    /// Carries out a statement; the number of changed rows.
    fn run(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError>;
    /// Gives each row of a query to `found` as it comes, so that they need not be in memory together.
    fn each(&mut self, sql: &str, values: &[Value], found: &mut dyn FnMut(Row)) -> Result<(), StoreError>;
    /// The rows of a query.
    fn rows(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, StoreError> {
        let mut rows = Vec::new();
        self.each(sql, values, &mut |row| rows.push(row))?;
        Ok(rows)
    }
}
