//! The state of the cluster that decisions read: workloads, nodes and quotas, and the usage of each workload.

pub mod avoided_nodes;
pub mod charges;
pub mod cluster;
pub mod fair_share;
pub mod freed;
pub mod holders;
pub mod lending;
pub mod nodes;
pub mod quotas;
pub mod rules;
pub mod sizes;
pub mod totals;
pub mod users;
pub mod workload;
