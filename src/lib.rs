//! Sluice lets teams share a GPU cluster with ordinary Jobs. It suspends submitted Jobs, admits them when guaranteed or
//! borrowed capacity is free, and preempts borrowers when a team needs its guarantee.

pub mod api;
pub mod ask;
pub mod background;
pub mod certs;
pub mod chart;
pub mod cli;
pub mod client;
pub mod cluster;
pub mod controller;
pub mod crds;
pub mod dates;
pub mod directory;
pub mod faults;
pub mod forecast;
pub mod history;
pub mod http;
pub mod import;
pub mod kinds;
pub mod listener;
pub mod metrics;
pub mod notify;
pub mod options;
pub mod reference;
pub mod scenario;
pub mod sentences;
pub mod serve;
pub mod simulate;
pub mod version;
pub mod view;
pub mod web;
pub mod webhook;
pub mod yaml;

pub use sluice_engine as engine;
