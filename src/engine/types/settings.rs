//! Cluster-wide scheduling options.

use std::time::Duration;

use crate::types::time::Time;

/// Cluster-wide scheduling options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The half-life of past borrowed usage in fair shares. `None`: only current usage counts.
    pub usage_half_life: Option<Duration>,
    /// Moves running workloads now and then to reduce fragmentation. `None`: workloads move only for a
    /// workload within guarantee.
    pub defragmentation: Option<Defragmentation>,
    /// How long a node may give no answer until it offers nothing and its pods are held nowhere.
    pub unreachable_after: Duration,
    /// The time of the calendar at the time 0 of the engine, for the periods of budgets: 0 in a cluster, the date of the start in a
    /// simulation.
    pub calendar: Time,
    /// How many classes of borrowers may search for victims again in one second, fewer where they try many sets of victims.
    pub searches_a_second: usize,
}

/// A search takes a millisecond, so these take a tenth of a processor; where one takes longer, fewer search.
pub const SEARCHES_A_SECOND: usize = 100;

/// The time after which Kubernetes itself ends the pods of a node that does not answer, unless they tolerate that for
/// longer: the default of its flag `--default-unreachable-toleration-seconds`.
pub const UNREACHABLE_AFTER: Duration = Duration::from_secs(300);

impl Default for Settings {
    fn default() -> Self {
        Self {
            usage_half_life: None,
            defragmentation: None,
            unreachable_after: UNREACHABLE_AFTER,
            calendar: Time(0),
            searches_a_second: SEARCHES_A_SECOND,
        }
    }
}

/// The budget of defragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defragmentation {
    /// The least time between two moves.
    pub every: Duration,
    /// The most run time that a move may lose, since the last checkpoint or the start.
    pub most_lost: Duration,
}
