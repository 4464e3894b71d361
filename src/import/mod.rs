//! Reads the set-up of another queue and plans the same with Teams and NodePools.
//!
//! An import never guesses in favour of a workload: what cannot be carried over is noted, and where Kueue would admit
//! nothing, nothing starts here either.

pub mod kueue;
mod note;
mod plan;
pub mod resource_quota;
mod source;

pub use note::{ImportError, Note, Verdict};
pub use plan::{Pending, Plan};
pub use source::{Source, read, source};
