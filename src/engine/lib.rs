//! The scheduling engine: a deterministic state machine without I/O.
//!
//! Events go in through [`Engine::apply`], decisions come out of [`Engine::plan`]; time is an
//! argument. Cluster, simulator and tests drive the same engine.

mod capacity;
mod cycle;
mod engine;
mod explain;
mod placement;
mod prediction;
mod preemption;
mod queue;
pub mod replay;
mod scheduler;
mod state;
pub mod types;

pub use engine::Engine;
pub use explain::Ceilings;
