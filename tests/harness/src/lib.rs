//! Runs Sluice on a real control plane with simulated nodes, for tests, benchmarks and the demo.
//!
//! A [`Cluster`] is the control plane, a [`Sluice`] is one replica of the real program, a [`World`] is both
//! with everything installed. [`Play`] plays a scenario file on it, [`View`] is a snapshot of the API
//! server's objects, and [`eventually`] waits for a condition.

mod ask;
mod audit;
mod cluster;
pub mod fidelity;
mod hang;
mod helm;
mod kubectl;
mod people;
mod play;
mod postgres;
mod service;
mod sluice;
pub mod stories;
mod view;
mod wait;
mod world;

pub use audit::{Audit, Write};
pub use cluster::{Cluster, Kubernetes, User};
pub use hang::end_if_this_test_hangs;
pub use helm::{Helm, kustomize};
pub use kubectl::{Kubectl, Outcome};
pub use people::Authority;
pub use play::Play;
pub use postgres::Postgres;
pub use service::Service;
pub use sluice::{Options, Sluice, end_leftovers};
pub use view::{JobView, NodeView, PodView, View};
pub use wait::{eventually, patience};
pub use world::{World, install, running_uids, stays, until, webhook_answers};
