//! The dashboards and the rules, against a real Prometheus that scrapes a real Sluice.

mod boards;
mod files;
mod live;
mod tools;
