//! The value of free capacity to the pods that are likely to come, and the cost of a placement.
//!
//! The value of a node is a sum over the typical kinds of pods seen so far: the free devices that the kind
//! can use, weighted by the frequency of the kind and by the scarcity of capacity for it. A pod is placed
//! where it takes the least value.
//!
//! This is fragmentation gradient descent (Weng et al., USENIX ATC 2023: idle devices that a typical pod
//! cannot use are lost) with two changes. Usable devices are also counted over all pods of a kind that would
//! fill the node, so a shortage of CPU is seen ahead. And capacity that few nodes offer to a kind weighs more
//! than capacity that many offer.

mod mix;
mod pricing;
mod scale;
mod states;

pub use crate::capacity::packing::pricing::{Ask, Cost, Packing};
pub use crate::capacity::packing::states::PackingState;
