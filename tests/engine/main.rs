//! Properties of the engine over random clusters and sequences of events, one or more for each law it answers
//! for (see [`laws`]), and known cases with one right answer.

mod asked;
mod backfill;
mod cases;
mod constraints;
mod currency;
mod defragment;
mod echoes;
mod elastic;
mod eviction_cost;
mod fair_share;
mod fair_share_window;
mod forecasts;
mod golden;
mod incremental;
mod judge;
mod laws;
mod misplaced;
mod one_plan;
mod ops;
mod overcommitted;
mod placement;
mod pod_loss;
mod pods;
mod purity;
mod quota_reservations;
mod ready;
mod reservations;
mod shrunk;
mod sizes;
mod time;
mod unadmitted;
mod unreachable;
mod users;
mod wait;
mod world;
