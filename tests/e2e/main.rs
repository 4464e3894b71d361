//! Sluice on a real control plane, as its users meet it. Each test has a cluster of its own.

mod boundaries;
mod certificates;
mod deletion;
mod dra;
mod elastic;
mod gangs;
mod groups;
mod kinds;
mod limits;
mod objects;
mod outage;
mod parity;
mod placement;
mod pods;
mod pools;
mod replicas;
mod shares;
mod stories;
mod support;
mod takeover;
mod writes;
