//! The simulator: plays a scenario with the production engine, without a Kubernetes cluster.
//!
//! [`cluster`] is the simulated API server: objects pass through the webhook and the production conversion to engine
//! values. [`crate::engine::replay`] is the rest of the cluster: it carries decisions out and lets pods run and end.
//! [`simulation`] advances time; `recorder` and `utilization` collect the outcome. `check` judges single objects as an API
//! server does, `schema` those of Sluice's own kinds, `immutable` their changes, `references` and `from_start` what only the whole scenario shows to be a mistake.

mod applied_again;
mod check;
mod cluster;
mod effect;
mod expected_start;
mod from_start;
mod groups;
mod immutable;
mod objects;
mod outcome;
mod recorder;
mod references;
pub mod report;
mod schema;
mod simulation;
mod snapshot;
#[cfg(test)]
mod tests;
mod unmanaged;
mod unmanaged_object;
mod utilization;

use std::time::Duration;

pub use crate::chart::units::{gpu_time, span};
pub use outcome::{
    AdmissionRow, Clock, Decision, EvictionRow, NodeRow, Outcome, Sample, State, Summary, TeamRow, Timeline,
    Usage, Waits, WorkloadRow,
};

pub use schema::Schemas;
pub use snapshot::Snapshot;

use crate::api::caps::Caps;
use crate::engine::replay::NeverSettles;
use crate::engine::types::Settings;
use crate::scenario::{Scenario, ScenarioError};
use crate::view::Accelerators;

/// Options of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Simulated time at which to stop; without it, when nothing more can happen.
    pub until: Option<Duration>,
    /// Whether to record the decisions.
    pub events: bool,
    /// Whether to record usage over time, for charts.
    pub timeline: bool,
    /// Scheduling options.
    pub settings: Settings,
    /// What one workload may consist of.
    pub caps: Caps,
    /// Resources that count as GPUs, besides those in quotas.
    pub accelerators: Accelerators,
}

/// Why a simulation has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error in the files.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// Decisions at one instant do not reach a fixed point: a fault of the engine.
    #[error(transparent)]
    NeverSettles(#[from] NeverSettles),
}

/// Progress of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of scenario steps done.
    pub steps: usize,
    /// The simulated time.
    pub now: Clock,
}

/// Plays a scenario.
///
/// # Errors
/// [`Error`].
pub fn run(scenario: &Scenario, options: &Options) -> Result<Outcome, Error> {
    run_with(None, scenario, options, &mut |_| ())
}

/// Plays a scenario on top of a cluster snapshot, if there is one, and reports progress.
///
/// # Errors
/// [`Error`].
pub fn run_with(
    snapshot: Option<&Snapshot>,
    scenario: &Scenario,
    options: &Options,
    on: &mut dyn FnMut(Progress),
) -> Result<Outcome, Error> {
    references::check(snapshot, scenario)?;
    let simulation = match snapshot {
        Some(snapshot) => simulation::Simulation::of(snapshot, options)?,
        None => simulation::Simulation::new(options),
    };
    simulation.run(&scenario.steps, on)
}
