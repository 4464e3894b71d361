//! The nouns of scheduling: what goes into the engine, what comes out of it, and the numbers both are made of.

mod action;
pub mod amount;
mod calendar;
mod event;
pub(crate) mod ids;
mod name;
mod node;
mod profile;
pub(crate) mod ratio;
mod settings;
pub(crate) mod submission;
mod team;
#[cfg(test)]
mod tests;
mod time;
pub mod units;
pub(crate) mod vector;
mod verdict;
mod view;
mod workload;

pub use action::*;
pub use calendar::*;
pub use event::*;
pub use name::*;
pub use node::*;
pub use profile::*;
pub use settings::*;
pub use team::*;
pub use time::*;
pub use verdict::*;
pub use view::*;
pub use workload::*;
