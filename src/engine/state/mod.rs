//! The state of the cluster as decisions see it: workloads, nodes and quotas, and what each workload holds.

pub mod avoided_nodes;
pub mod cluster;
pub mod fair_share;
pub mod freed;
pub mod holders;
pub mod nodes;
pub mod quotas;
pub mod rules;
pub mod sizes;
pub mod totals;
pub mod users;
pub mod workload;
