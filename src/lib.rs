//! Sluice lets teams share a GPU cluster with ordinary Jobs: it holds what is submitted, admits it
//! as guaranteed and borrowed capacity frees, and takes borrowed capacity back for its owners.

pub mod api;
pub mod certs;
pub mod cli;
pub mod cluster;
pub mod controller;
pub mod crds;
pub mod directory;
pub mod foresight;
pub mod http;
pub mod kinds;
pub mod metrics;
pub mod policy;
pub mod reference;
pub mod scenario;
pub mod serve;
pub mod simulate;
pub mod view;
pub mod webhook;

pub use sluice_engine as engine;
