//! The simulator: plays a scenario with the engine that also runs clusters, without a cluster.
//!
//! [`world`] is the API server: what is applied goes through the webhook and the reductions of the edge.
//! [`crate::engine::replay`] is the rest of the cluster: it carries decisions out and lets pods run and
//! end. [`play`] moves time along; `ledger` and `meter` write down what is told in the end.

mod check;
mod eta;
mod groups;
mod ledger;
mod meter;
mod news;
mod outcome;
mod play;
mod read;
pub mod report;
mod snapshot;
mod strangers;
#[cfg(test)]
mod tests;
mod world;

use std::time::Duration;

pub use outcome::{
    AdmissionRow, Clock, Decision, EvictionRow, Held, NodeRow, Outcome, Point, State, Summary, TeamRow,
    Timeline, WorkloadRow,
};

pub use snapshot::Snapshot;

use crate::engine::replay::NeverSettles;
use crate::engine::types::Settings;
use crate::scenario::{Scenario, ScenarioError};

/// How a scenario is played.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// When to stop; without it, when nothing more can happen.
    pub until: Option<Duration>,
    /// Whether the decisions are written down.
    pub events: bool,
    /// Whether looks at the teams over time are kept, for a picture.
    pub timeline: bool,
    /// What the owner of the cluster has decided.
    pub settings: Settings,
}

/// Why a simulation has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something in the files is wrong.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// The engine's decisions do not come to rest: a fault of the engine.
    #[error(transparent)]
    NeverSettles(#[from] NeverSettles),
}

/// How far a simulation has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many of the scenario's steps have been taken.
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

/// Plays a scenario, on top of what runs and waits in a cluster if there is a snapshot of one, and tells
/// how far it has come.
///
/// # Errors
/// [`Error`].
pub fn run_with(
    snapshot: Option<&Snapshot>,
    scenario: &Scenario,
    options: &Options,
    on: &mut dyn FnMut(Progress),
) -> Result<Outcome, Error> {
    let play = match snapshot {
        Some(snapshot) => play::Play::of(snapshot, options)?,
        None => play::Play::new(options),
    };
    play.run(&scenario.steps, on)
}
