//! What fits on one node: free amounts, shared devices, selectors and taints, and what a placement there
//! costs.

pub mod devices;
pub mod fit;
pub mod packing;
pub mod space;
