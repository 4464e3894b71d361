//! Who may be taken for a claimant at all, and what is known of each.

use std::cmp::Reverse;
use std::time::Duration;

use super::super::entry::{Entry, Phase};
use super::super::forest::TeamIx;
use super::super::model::{Admission, Time, WorkloadId};
use super::super::rules::{preemptible, priority_of, work_lost, would_be_owed_again};
use super::super::share::Ratio;
use super::super::vector::Vector;
use super::{Ground, Search};

/// More candidates than this are not looked at; those that look cheapest are.
const MOST: usize = 512;

/// One that may be taken.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// The workload.
    pub entry: &'a Entry,
    /// Whether it is of the claimant's own team.
    pub own: bool,
    /// Whether it may be evicted or shrunk; if not, it may only be moved.
    pub takeable: bool,
    /// The levels of its team's path that a claimant from elsewhere must respect.
    pub levels: Vec<TeamIx>,
    /// What all of it holds.
    pub amount: Vector,
    /// Its priority: the queue's, then its own.
    pub priority: (i32, i32),
    /// When it was admitted.
    pub started: Time,
    /// Whether it is within its minimum run time.
    pub young: bool,
    /// What work would be lost with all of it, in device-milliseconds (thousandths of a device).
    pub lost: i128,
    /// Its team's guarantee holds it once lower priorities of the team yield: they borrow, not it.
    pub covered: bool,
    /// How many pods it can lose without going.
    pub extra: u32,
}

/// What gathering brought to light besides candidates.
#[derive(Debug, Default)]
pub struct Gathered {
    /// When somebody too young to be taken now will be old enough.
    pub retry_at: Option<Time>,
    /// Whether somebody could not be considered because its start is not confirmed yet.
    pub skipped: bool,
}

impl<'a> Search<'a> {
    /// Collects the candidates, the cheapest to lose first as far as each can be judged by itself.
    pub fn gather(&mut self, barred: &dyn Fn(&WorkloadId) -> bool) -> Gathered {
        let mut gathered = Gathered::default();
        let (books, claimant) = (self.books, self.claimant);
        let mut candidates = Vec::new();
        let teams: Vec<TeamIx> = books.teams_holding(claimant.pool).collect();
        let others = self.ground == Ground::Owed || self.may_become_fairer(&teams);
        for team in teams {
            let own = team == claimant.team;
            let levels: Vec<TeamIx> = books.forest.levels_below_common(team, claimant.team).collect();
            let takeable = own
                || others && books.forest.any_beyond_guarantee(claimant.pool, &levels, &self.state.imagined);
            if !takeable && !self.moves {
                continue;
            }
            for entry in books.holders(claimant.pool, team) {
                if !preemptible(books, entry)
                    || barred(&entry.workload.id)
                    || self.state.gone.contains(&entry.workload.id)
                {
                    continue;
                }
                let admission = match &entry.phase {
                    Phase::Running(admission) => admission,
                    Phase::Starting(_) | Phase::Resizing { .. } => {
                        gathered.skipped = true;
                        continue;
                    }
                    _ => continue,
                };
                candidates.extend(self.candidate(entry, admission, takeable, &levels, &mut gathered));
            }
        }
        self.candidates = candidates;
        self.put_in_order();
        if self.candidates.len() > MOST {
            self.candidates.truncate(MOST);
            self.bounded = true;
        }
        gathered
    }

    fn candidate(
        &self,
        entry: &'a Entry,
        admission: &Admission,
        takeable: bool,
        levels: &[TeamIx],
        gathered: &mut Gathered,
    ) -> Option<Candidate<'a>> {
        let (books, claimant) = (self.books, &self.claimant);
        let started = admission.at;
        let own = entry.team == claimant.team;
        let priority = priority_of(books, entry);
        let amount = entry.held();
        let mut takeable = takeable
            && if own {
                priority < claimant.priority
            } else {
                books.forest.beyond_guarantee(claimant.pool, levels, &amount, &self.state.imagined)
            };
        let old_enough =
            started.after(books.queue_of(entry).map_or(Duration::ZERO, |queue| queue.min_runtime));
        let young = self.now < old_enough;
        // Within a team, and against a claim on the surplus, the minimum run time holds.
        if takeable && young && (own || self.ground == Ground::Surplus) {
            gathered.retry_at = [gathered.retry_at, Some(old_enough)].into_iter().flatten().min();
            takeable = false;
        }
        if !takeable && !self.moves {
            return None;
        }
        let straddles =
            !own && takeable && books.forest.straddles(claimant.pool, levels, &amount, &self.state.imagined);
        Some(Candidate {
            entry,
            own,
            takeable,
            levels: levels.to_vec(),
            amount,
            priority,
            started,
            young,
            lost: work_lost(books, entry, started, self.now),
            covered: straddles && would_be_owed_again(books, entry, priority),
            extra: entry.extra_pods(),
        })
    }

    /// Whether taking from some other team could make the shares of the surplus fairer: only if one
    /// of them has more than the claimant's team would have at best.
    fn may_become_fairer(&self, teams: &[TeamIx]) -> bool {
        let (books, claimant) = (self.books, &self.claimant);
        let forest = &books.forest;
        let mut imagined = self.state.imagined.clone();
        for mate in books.holders(claimant.pool, claimant.team) {
            if matches!(mate.phase, Phase::Running(_)) && priority_of(books, mate) < claimant.priority {
                forest.imagine(&mut imagined, mate.team, &mate.held(), -1);
            }
        }
        forest.imagine(&mut imagined, claimant.team, claimant.total, 1);
        let with = |at: &TeamIx| forest.level_share(claimant.pool, *at, imagined.get(at));
        teams.iter().filter(|team| **team != claimant.team).any(|team| {
            let theirs = forest
                .levels_below_common(*team, claimant.team)
                .map(|at| forest.level_share(claimant.pool, at, self.state.imagined.get(&at)))
                .max()
                .unwrap_or(Ratio::ZERO);
            let levels: Vec<TeamIx> = forest.levels_below_common(claimant.team, *team).collect();
            levels.iter().map(with).max().unwrap_or(Ratio::ZERO) <= theirs
        })
    }

    /// Sorts the candidates: the cheapest to lose first, judged one by one.
    fn put_in_order(&mut self) {
        let (books, claimant) = (self.books, self.claimant);
        let own_needed = self.ground == Ground::Owed
            && !books.forest.owed(claimant.pool, claimant.team, claimant.total, &self.state.imagined);
        let mut lowest: std::collections::BTreeMap<TeamIx, (i32, i32)> = std::collections::BTreeMap::new();
        let mut shares: std::collections::BTreeMap<TeamIx, Ratio> = std::collections::BTreeMap::new();
        for candidate in &self.candidates {
            let team = candidate.entry.team;
            let low = lowest.entry(team).or_insert(candidate.priority);
            *low = (*low).min(candidate.priority);
            shares.entry(team).or_insert_with(|| {
                books.forest.level_share(claimant.pool, team, self.state.imagined.get(&team))
            });
        }
        let state = &self.state;
        let straddles = |c: &Candidate<'_>| {
            !c.own && books.forest.straddles(claimant.pool, &c.levels, &c.amount, &state.imagined)
        };
        self.candidates.sort_by_cached_key(|c| {
            let lower = lowest.get(&c.entry.team).is_some_and(|low| *low < c.priority);
            let share = shares.get(&c.entry.team).copied().unwrap_or(Ratio::ZERO);
            (
                (!c.takeable, c.takeable && straddles(c), c.young, lower, c.own && !own_needed),
                (c.lost, Reverse(share), c.priority, c.entry.charge.pods, Reverse(c.started)),
                c.entry.workload.id.clone(),
            )
        });
    }
}
