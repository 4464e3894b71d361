//! When running workloads are expected to end, and so when capacity becomes free.
//!
//! Time limits are certain. Run times of earlier workloads are estimates. Decisions rest on the bounded summary in the
//! status of each team, what people are shown also on finer classes.

pub mod arrivals;
pub mod class;
pub mod run_times;
mod sample;
pub mod starts;
mod summary;
pub mod timeline;

use arrivals::Arrivals;
use run_times::RunTimes;
use starts::Starts;
use timeline::Timeline;

/// The run times of ended workloads, and the expected ends of running ones.
#[derive(Clone, Debug, Default)]
pub struct Prediction {
    /// The run times of ended workloads.
    pub run_times: RunTimes,
    /// The expected ends of running workloads.
    pub timeline: Timeline,
    /// The submissions of the last day. No decision reads them.
    pub arrivals: Arrivals,
    /// The latest starts. No decision reads them.
    pub starts: Starts,
}
