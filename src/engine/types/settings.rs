//! Cluster-wide scheduling options.

use std::time::Duration;

/// Cluster-wide scheduling options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The half-life of past borrowed usage in fair shares. `None`: only current usage counts.
    pub usage_half_life: Option<Duration>,
    /// Moves running workloads now and then to reduce fragmentation. `None`: workloads move only for a
    /// workload within guarantee.
    pub defragmentation: Option<Defragmentation>,
}

/// The budget of defragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defragmentation {
    /// The least time between two moves.
    pub every: Duration,
    /// The most run time that a move may lose, since the last checkpoint or the start.
    pub most_lost: Duration,
}
