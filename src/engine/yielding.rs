//! What those who run might yield to a claimant, team by team: bounds that tell without a search when
//! none can find anything.

use std::collections::{BTreeMap, BTreeSet};

use super::books::Books;
use super::forest::{Imagined, PoolIx, TeamIx};
use super::share::Ratio;

/// The bounds for every team in every pool.
#[derive(Clone, Debug, Default)]
pub struct Yielding {
    teams: BTreeMap<(PoolIx, TeamIx), Team>,
    /// The shares of teams of which something can be taken, and of those above them.
    shares: BTreeMap<PoolIx, BTreeSet<(Ratio, TeamIx)>>,
}

/// What is known of one team in one pool.
#[derive(Clone, Debug, Default)]
struct Team {
    /// The lowest priority of those that run and may be evicted.
    lowest: Option<(i32, i32)>,
    /// Whether one of them may be taken whole without leaving the team below its guarantee.
    lends: bool,
    /// How many teams on or below it lend.
    lenders: usize,
    /// Its share as it stands in the list, if it does.
    listed: Option<Ratio>,
}

impl Yielding {
    /// The lowest priority of those of the team that run and may be evicted.
    #[must_use]
    pub fn lowest(&self, pool: PoolIx, team: TeamIx) -> Option<(i32, i32)> {
        self.teams.get(&(pool, team)).and_then(|team| team.lowest)
    }

    /// The largest share of a team of which something can be taken, those of a path aside.
    #[must_use]
    pub fn largest(&self, pool: PoolIx, path: &[TeamIx]) -> Option<Ratio> {
        let shares = self.shares.get(&pool)?;
        shares.iter().rev().find(|(_, team)| !path.contains(team)).map(|(share, _)| *share)
    }

    /// Looks at a team anew; the share up to which claims may have become possible.
    pub fn refresh(&mut self, books: &Books, pool: PoolIx, team: TeamIx) -> Option<Ratio> {
        let lowest = books.stakes.lowest(pool, team);
        let nothing = Imagined::new();
        let own = [team];
        let lends = books.stakes.parts(pool, team).any(|least| {
            books.forest.beyond_guarantee(pool, &own, least, &nothing)
                && !books.forest.straddles(pool, &own, least, &nothing)
        });
        let known = self.teams.entry((pool, team)).or_default();
        known.lowest = lowest;
        let before = std::mem::replace(&mut known.lends, lends);
        let mut largest = None;
        for at in books.forest.team(team).path.clone() {
            let known = self.teams.entry((pool, at)).or_default();
            match (before, lends) {
                (false, true) => known.lenders += 1,
                (true, false) => known.lenders -= 1,
                _ => {}
            }
            let share = (known.lenders > 0).then(|| books.forest.level_share(pool, at, None));
            let shares = self.shares.entry(pool).or_default();
            if let Some(old) = known.listed {
                shares.remove(&(old, at));
            }
            known.listed = share;
            shares.extend(share.map(|share| (share, at)));
            largest = largest.max(share);
        }
        largest
    }

    /// Forgets everything, and looks at every team that holds something anew.
    pub fn rebuild(&mut self, books: &Books) {
        *self = Self::default();
        let pools: Vec<PoolIx> = books.forest.pools().map(|(_, pool)| pool).collect();
        for pool in pools {
            for team in books.teams_holding(pool) {
                self.refresh(books, pool, team);
            }
        }
    }
}
