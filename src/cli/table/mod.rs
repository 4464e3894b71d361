//! Answers as text.

mod explain;
mod nodes;
mod outcome;
pub mod rows;
mod teams;
mod what_if;

pub use explain::explain;
pub use nodes::COLUMNS as NODES;
pub use outcome::outcome;
pub use teams::{columns as quota_columns, lines as quota_lines, teams};
pub use what_if::{COLUMNS as WHAT_IF, what_if};
