//! One pass of decisions: first those for whom room is being freed, then everybody who waits.
//!
//! Between teams, whoever is owed goes before whoever lives off the surplus, then the smallest
//! share of the surplus goes first, then the older workload. Within a team the order is the one of
//! [`super::pending`]; who cannot start does not hold up those behind.

use std::cmp::Reverse;

use super::Engine;
use super::candidate::{Eligible, first_pool};
use super::claims;
use super::decision::Plan;
use super::forest::Imagined;
use super::grow;
use super::loss;
use super::model::{Time, WorkloadId};
use super::start::try_start;

/// Runs one pass.
pub fn run(engine: &mut Engine, now: Time) -> Plan {
    let mut plan = Plan::default();
    let mut eligible = Eligible::default();
    loss::run(engine, &mut eligible, now, &mut plan);
    claims::progress(engine, &mut eligible, now, &mut plan);
    while let Some(id) = next(engine) {
        let verdict = try_start(engine, &mut eligible, &id, now, &mut plan);
        if let Some(verdict) = verdict {
            let epoch = engine.epoch;
            engine.pending.block(&id, epoch, verdict);
        }
    }
    grow::run(engine, &mut eligible, now, &mut plan);
    plan
}

/// The workload to look at next.
fn next(engine: &Engine) -> Option<WorkloadId> {
    let books = &engine.books;
    let heads = engine.pending.teams().filter_map(|team| {
        let rank = engine.pending.head(team, engine.epoch)?;
        let entry = books.get(rank.id())?;
        let pool = first_pool(books, entry);
        let owed = pool.is_some_and(|p| books.forest.owed(p, team, &entry.least_total(), &Imagined::new()));
        let share = |p| if owed { books.forest.share(p, team) } else { books.forest.standing(p, team) };
        let share = pool.map(share).unwrap_or_default();
        Some(((Reverse(owed), share, rank.submitted(), &books.forest.team(team).name), rank.id()))
    });
    heads.min_by(|left, right| left.0.cmp(&right.0)).map(|(_, id)| id.clone())
}
