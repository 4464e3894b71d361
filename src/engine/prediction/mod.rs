//! When running workloads are expected to end, and so when capacity becomes free.
//!
//! Time limits are certain. Run times of earlier workloads are estimates.

pub mod run_times;
pub mod timeline;

use run_times::RunTimes;
use timeline::Timeline;

/// The run times of ended workloads, and the expected ends of running ones.
#[derive(Clone, Debug, Default)]
pub struct Prediction {
    /// The run times of ended workloads.
    pub run_times: RunTimes,
    /// The expected ends of running workloads.
    pub timeline: Timeline,
}
