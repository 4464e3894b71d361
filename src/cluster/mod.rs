//! The API server's side: what is read from it, and everything that is written to it.

pub mod mirror;
pub mod reduce;
pub mod table;
pub mod watch;
pub mod wire;
