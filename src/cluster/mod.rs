//! The adapters to the API server: watches, caches and writes.

pub mod actuator;
pub mod call;
pub mod clock;
mod custom_kinds;
mod devices;
pub mod dra;
pub mod events;
pub mod fault;
pub mod groups;
pub mod guarded;
pub mod heartbeat;
pub mod leader;
pub mod mirror;
pub mod ownership;
pub mod patch;
pub mod place;
pub mod pod_groups;
mod ready_pods;
pub mod reduce;
pub mod replicas;
pub mod status;
pub mod table;
pub mod target;
pub mod twins;
pub mod watch;
mod watch_stream;
pub mod wire;
