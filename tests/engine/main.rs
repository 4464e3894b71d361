//! The laws of the engine, each as a property over random clusters and sequences of events, and
//! known cases with one right answer.

mod astray;
mod cases;
mod currency;
mod defragment;
mod forecasts;
mod golden;
mod incremental;
mod judge;
mod laws;
mod ops;
mod order;
mod placement;
mod pods;
mod purity;
mod ready;
mod shares;
mod sizes;
mod time;
mod turns;
mod users;
mod world;
