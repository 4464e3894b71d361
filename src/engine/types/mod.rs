//! The nouns of scheduling: what goes into the engine, what comes out of it, and the numbers both are made of.

pub mod amount;
mod decision;
pub(crate) mod ids;
mod model;
pub mod ratio;
pub mod submission;
pub mod vector;

pub use decision::*;
pub use model::*;
