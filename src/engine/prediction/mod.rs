//! When running workloads are expected to end, and so when capacity comes free.

pub mod run_times;
pub mod timeline;

use run_times::RunTimes;
use timeline::Timeline;

/// How long runs took, and what follows for the workloads that run.
#[derive(Clone, Debug, Default)]
pub struct Prediction {
    /// How long ended workloads ran.
    pub run_times: RunTimes,
    /// The expected ends of running workloads.
    pub timeline: Timeline,
}
