//! Sluice on a real control plane, from its users' side. Each test has a cluster of its own.

mod asked;
mod attacks;
mod boundaries;
mod certificates;
mod command;
mod confinement;
mod constraints;
mod dead_nodes;
mod deletion;
mod dra;
mod elastic;
mod gangs;
mod gpu_fractions;
mod groups;
mod kinds;
mod limits;
mod objects;
mod older;
mod one_plan;
mod outage;
mod parity;
mod placement;
mod pods;
mod pools;
mod prevention;
mod priority;
mod questions;
mod replicas;

mod stories;
mod support;
mod takeover;
mod verbs;
mod verdicts;
mod writes;
