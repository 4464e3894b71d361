//! The API server's side: what is read from it, and everything that is written to it.

pub mod actuator;
pub mod call;
pub mod clock;
mod devices;
pub mod dra;
pub mod events;
pub mod fault;
mod follow;
pub mod groups;
pub mod kin;
pub mod leader;
pub mod mirror;
pub mod others;
pub mod patch;
pub mod place;
pub mod pod_groups;
pub mod reduce;
pub mod replicas;
pub mod status;
pub mod table;
pub mod target;
mod up;
pub mod watch;
pub mod wire;
