//! The nodes for the pods of a workload: all pods find a node, or none does.
//!
//! A single pod goes to the cheapest node (see [`crate::capacity::packing`]): the node where the remaining capacity
//! loses least for the pods seen so far, then the best fit, so that whole nodes stay whole. Several pods go to
//! as few nodes as possible, and among these choices to nodes that are close together. A required topology
//! domain takes the tightest domain that fits. A preferred one falls back to as few domains as possible. Pods
//! without devices avoid nodes with devices. Required constraints between pods (`constraints/`) come before all of
//! this.

mod capacity;
mod constraints;
mod domains;
mod fit_counts;
mod obstacle;
mod request;
mod search;
mod spread;
pub mod waiting;

pub use crate::state::nodes::Placement;
pub use capacity::{Capacity, capacity_for, fits_on};
pub use domains::{bind_the_rest, in_the_domains_of};
pub use fit_counts::{Closed, capacity, closed, eligible, most, nodes_that_fit, starts_before_settled};
pub use obstacle::{Constraint, Obstacle, obstacle};
pub use request::Request;
pub use search::place;
