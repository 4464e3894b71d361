//! The history: every submission, admission, resize, eviction and end, who was charged what for how long, and what teams used.
//!
//! It is for people, never for decisions. Each replica puts what it sees into a bounded queue and goes on; a thread of its own
//! writes it. Facts have keys, so both replicas may write the same. What a store that is down has missed is taken from the
//! objects that still exist.

pub mod generate;
mod merge;
pub mod query;
pub mod record;
pub mod store;

pub use merge::merge;
