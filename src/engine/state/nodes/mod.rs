//! The nodes: the capacity of each, its usage, and its free capacity now and once evictions end.

mod best;
mod constraints;
mod counts;
mod fitting;
mod masks;
mod node;
mod table;

pub use crate::state::nodes::constraints::{There, Wanted, selects};
pub use crate::state::nodes::fitting::Fitting;
pub use crate::state::nodes::node::{Hold, NodeInfo};
pub use crate::state::nodes::table::{NodeTable, Placement};

#[cfg(test)]
mod tests;
