//! The cluster: its workloads and pods, and the usage of each of them.
//!
//! A workload is charged for its admission until its last pod is gone, not until it is evicted (law 1).
//! Every change of a workload or of one of its pods removes its old usage from nodes and quotas and adds the
//! new one, so totals are exact at any time.

mod apply;
mod budgets;
mod charge;
mod phases;
mod pods;
mod pools;
mod register;
mod state;
mod unadmitted;
mod unoffered;
mod unreachable;

pub use crate::state::cluster::state::{ClusterState, Effect};

#[cfg(test)]
mod tests;
