//! Sluice lets teams share a GPU cluster with ordinary Jobs: it holds what is submitted, admits it
//! as guaranteed and borrowed capacity frees, and takes borrowed capacity back for its owners.

pub mod api;
pub mod certs;
pub mod crds;
pub mod directory;
pub mod engine;
pub mod scenario;
pub mod webhook;
