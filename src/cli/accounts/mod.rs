//! The commands about the past: `sluice history` and `sluice report`.

mod history;
mod report;

pub use self::history::{Filter as HistoryFilter, run as history};
pub use self::report::{Options as ReportOptions, run as report};
