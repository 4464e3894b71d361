//! The order between teams (law 9): within guarantee before borrowing, then the smallest fair share, then age.
//!
//! A team is ordered by its first workload. The order is computed only as far as it is asked for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::placement::waiting::first_pool;
use crate::queue::headroom::Headroom;
use crate::queue::pending::Pending;
use crate::queue::rank::Rank;
use crate::state::cluster::ClusterState;
use crate::state::quotas::{Funding, Hypothetical, Share};
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{ClassId, PoolId, TeamId};
use crate::types::ratio::Ratio;
use crate::types::vector::Vector;
use crate::types::{Name, Time, WorkloadId};

/// The position between teams of a waiting workload. The smaller position comes first.
#[must_use]
pub fn queue_position(state: &ClusterState, pending: &Pending, id: &WorkloadId) -> Option<impl Ord + use<>> {
    let team = state.get(id)?.team;
    Position::of(state, team, &pending.rank(id)?).map(|position| position.key)
}

/// The sort key of a team: whether its first workload is within guarantee, fair share, submission time, name.
type Key = (Reverse<bool>, Share, Time, Name);

/// The devices that a workload asks for in a pool, or all its resources if it asks for no device.
type Size = (PoolId, Vec<(usize, i64)>);

/// The tie-break between teams that ask to borrow the same amount: the smaller share after admission, then the
/// larger current share, submission time, name. The current share is the one that stays if another team starts.
type After = (Share, Reverse<Share>, Time, Name);

/// The position of a team by its first workload.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Position {
    key: Key,
    /// The size of a borrower, and its position among teams that ask for the same size.
    peers: Option<(Size, After)>,
}

impl Position {
    /// The position of a team with that first workload.
    fn of(state: &ClusterState, team: TeamId, first: &Rank) -> Option<Self> {
        let info = state.at(first.index())?;
        let (age, name) = (first.submitted(), state.quotas.team(team).name.clone());
        let Some(pool) = first_pool(state, info) else {
            return Some(Self { key: (Reverse(false), Share::new(), age, name), peers: None });
        };
        let total = info.least_total();
        match standing(state, info, pool, &total) {
            Standing::BeyondBudget => {
                return Some(Self { key: (Reverse(false), vec![Ratio::INFINITE], age, name), peers: None });
            }
            Standing::WithinGuarantee => {
                let share = state.quotas.share(pool, team);
                return Some(Self { key: (Reverse(true), share, age, name), peers: None });
            }
            Standing::Borrows => {}
        }
        let before = state.quotas.queue_share(pool, team, None);
        let after = state.quotas.queue_share(pool, team, Some(&total));
        let mut size: Vec<(usize, i64)> =
            total.nonzero().filter(|(index, _)| state.resources.is_device(*index)).collect();
        if size.is_empty() {
            size = total.nonzero().collect();
        }
        let peers = ((pool, size), (after, Reverse(before.clone()), age, name.clone()));
        Some(Self { key: (Reverse(false), before, age, name), peers: Some(peers) })
    }
}

/// What a workload asks of the quota of its team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    WithinGuarantee,
    Borrows,
    /// A budget does not cover it. It comes after every other.
    BeyondBudget,
}

/// The standing of a workload in a pool; `total` is what it asks for there.
fn standing(state: &ClusterState, info: &WorkloadInfo, pool: PoolId, total: &Vector) -> Standing {
    if matches!(state.funding(info, pool, total), Funding::BorrowOnly(_)) {
        Standing::BeyondBudget
    } else if state.quotas.within_guarantee(pool, info.team, total, &Hypothetical::new()) {
        Standing::WithinGuarantee
    } else {
        Standing::Borrows
    }
}

/// Teams in order, each by one of its workloads.
///
/// The smallest share comes first. Among teams that ask for the same size, the team with the smaller share after
/// admission takes that position. Otherwise it would at once evict the workload that started before it (law 5).
#[derive(Clone, Debug, Default)]
struct Line {
    teams: BTreeSet<(Key, TeamId)>,
    peers: BTreeMap<Size, BTreeSet<(After, TeamId)>>,
    positions: BTreeMap<TeamId, Position>,
}

impl Line {
    /// The first team of those for which `which` is true.
    fn first(&self, which: impl Fn(TeamId) -> bool) -> Option<TeamId> {
        let (_, team) = self.teams.iter().find(|(_, team)| which(*team))?;
        let position = self.positions.get(team)?;
        let peers = position.peers.as_ref().and_then(|(size, _)| self.peers.get(size));
        let peer = peers.and_then(|peers| peers.iter().find(|(_, peer)| which(*peer)));
        Some(peer.map_or(*team, |(_, peer)| *peer))
    }

    /// Gives a team this position, or none.
    fn set(&mut self, team: TeamId, position: Option<Position>) {
        if let Some(old) = self.positions.remove(&team) {
            self.teams.remove(&(old.key, team));
            if let Some((size, after)) = old.peers
                && let Some(peers) = self.peers.get_mut(&size)
            {
                peers.remove(&(after, team));
                if peers.is_empty() {
                    self.peers.remove(&size);
                }
            }
        }
        if let Some(position) = position {
            self.teams.insert((position.key.clone(), team));
            if let Some((size, after)) = position.peers.clone() {
                self.peers.entry(size).or_default().insert((after, team));
            }
            self.positions.insert(team, position);
        }
    }
}

/// The teams with a workload that may be able to start, in order.
#[derive(Clone, Debug, Default)]
pub struct Order {
    line: Line,
    /// Teams of which the position must be computed again.
    pub stale: BTreeSet<TeamId>,
    /// The teams with a workload within guarantee that may be able to start, in order, each by the first of these.
    within_guarantee: Line,
    /// Teams of which the position there must be computed again.
    stale_within: BTreeSet<TeamId>,
    /// What may have changed the positions of teams in other orders since [`Self::take_moved`].
    moved: Moved,
}

/// Teams of which the positions may have changed.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// Those below these root teams.
    pub roots: BTreeSet<TeamId>,
    /// All of them.
    pub all: bool,
}

impl Order {
    /// The workload to attempt next.
    pub fn next(
        &mut self,
        state: &ClusterState,
        pending: &Pending,
        headroom: &Headroom,
    ) -> Option<WorkloadId> {
        for team in std::mem::take(&mut self.stale) {
            self.update(state, pending, headroom, team);
        }
        loop {
            let team = self.line.first(|_| true)?;
            // The capacity for the team's first workload may be used up. Then the team has another first workload.
            match head(state, pending, headroom, team) {
                Some((now, rank)) if self.line.positions.get(&team) == Some(&now) => {
                    return Some(rank.id().clone());
                }
                _ => self.update(state, pending, headroom, team),
            }
        }
    }

    /// The first workload within guarantee of another team than that of a borrower that is about to start. It would evict
    /// the borrower at once, so it comes first, also where it stands behind a borrower of its own team.
    pub fn first_within_guarantee(
        &mut self,
        state: &ClusterState,
        pending: &Pending,
        headroom: &Headroom,
        borrower: TeamId,
    ) -> Option<WorkloadId> {
        for team in std::mem::take(&mut self.stale_within) {
            let first = head_within_guarantee(state, pending, headroom, team);
            self.within_guarantee.set(team, first.map(|(position, _)| position));
        }
        loop {
            let team = self.within_guarantee.first(|team| team != borrower)?;
            match head_within_guarantee(state, pending, headroom, team) {
                Some((now, rank)) if self.within_guarantee.positions.get(&team) == Some(&now) => {
                    return Some(rank.id().clone());
                }
                now => self.within_guarantee.set(team, now.map(|(position, _)| position)),
            }
        }
    }

    /// Marks every team as stale, because all shares may have changed.
    pub fn mark_all_stale(&mut self) {
        self.stale.extend(self.line.positions.keys());
        self.moved.all = true;
    }

    /// The teams of which the positions may have changed since the last call.
    pub fn take_moved(&mut self) -> Moved {
        std::mem::take(&mut self.moved)
    }

    /// Computes the position of a team again.
    fn update(&mut self, state: &ClusterState, pending: &Pending, headroom: &Headroom, team: TeamId) {
        self.line.set(team, head(state, pending, headroom, team).map(|(position, _)| position));
        self.stale_within.insert(team);
    }

    /// Marks the teams below these root teams as stale, because their shares have changed.
    pub fn mark_roots_stale(&mut self, state: &ClusterState, roots: &BTreeSet<TeamId>) {
        let below = roots.iter().flat_map(|root| state.quotas.tree(*root)).copied();
        self.stale.extend(below.filter(|team| self.line.positions.contains_key(team)));
        self.moved.roots.extend(roots.iter().copied());
    }
}

/// The first workload of a team that may be able to start, with the position it gives the team.
fn head<'a>(
    state: &ClusterState,
    pending: &'a Pending,
    headroom: &Headroom,
    team: TeamId,
) -> Option<(Position, &'a Rank)> {
    let rank = pending.head(team, |shape| headroom.total(shape))?;
    Some((Position::of(state, team, rank)?, rank))
}

/// The first workload within guarantee of a team that may be able to start, with the position it gives the team.
fn head_within_guarantee<'a>(
    state: &ClusterState,
    pending: &'a Pending,
    headroom: &Headroom,
    team: TeamId,
) -> Option<(Position, &'a Rank)> {
    let quotas = &state.quotas;
    // Most teams that borrow have no guarantee left, which is quickly seen.
    if !quotas.pools().any(|(_, pool)| quotas.has_idle_guarantee(pool, team)) {
        return None;
    }
    let is_within_guarantee = |rank: &Rank| {
        let info = state.at(rank.index());
        info.zip(info.and_then(|info| first_pool(state, info))).is_some_and(|(info, pool)| {
            standing(state, info, pool, &info.least_total()) == Standing::WithinGuarantee
        })
    };
    let rank = pending.first_startable(team, |shape| headroom.total(shape), is_within_guarantee)?;
    Some((Position::of(state, team, rank)?, rank))
}

/// The first workload of a team, with the position it gives the team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct First {
    team: TeamId,
    position: Position,
    /// Its rank among the workloads of its team.
    pub rank: Rank,
}

impl First {
    /// The first workload with that rank.
    pub fn of(state: &ClusterState, rank: Rank) -> Option<Self> {
        let team = state.at(rank.index())?.team;
        Some(Self { team, position: Position::of(state, team, &rank)?, rank })
    }

    /// Its team.
    #[must_use]
    pub fn team(&self) -> TeamId {
        self.team
    }

    /// Whether it comes before another first workload.
    pub fn precedes(&self, other: &Self) -> bool {
        if self.team == other.team {
            return self.rank < other.rank;
        }
        match (&self.position.peers, &other.position.peers) {
            (Some((size, after)), Some((other_size, other_after))) if size == other_size => {
                after < other_after
            }
            _ => self.position.key < other.position.key,
        }
    }
}

/// Teams in order, each by the first of its classes of some kind. A team is looked at again only after a change of its
/// classes or of the usage that gives it its position.
#[derive(Clone, Debug, Default)]
pub struct ClassOrder {
    line: Line,
    firsts: BTreeMap<TeamId, (Rank, ClassId)>,
    stale: BTreeSet<TeamId>,
}

impl ClassOrder {
    /// Marks teams of which the first class, or the position, may have changed.
    pub fn mark_stale(&mut self, teams: impl IntoIterator<Item = TeamId>) {
        self.stale.extend(teams);
    }

    /// Brings the stale teams up to date; `first_of` tells the first class of a team.
    pub fn catch_up<'a>(
        &mut self,
        state: &ClusterState,
        first_of: impl Fn(TeamId) -> Option<&'a (Rank, ClassId)>,
    ) {
        for team in std::mem::take(&mut self.stale) {
            let first = first_of(team).cloned();
            let position = first.as_ref().and_then(|(rank, _)| Position::of(state, team, rank));
            match first.filter(|_| position.is_some()) {
                Some(first) => _ = self.firsts.insert(team, first),
                None => _ = self.firsts.remove(&team),
            }
            self.line.set(team, position);
        }
    }

    /// The first workload in order, and its class, of the teams for which `which` is true.
    pub fn first(&self, which: impl Fn(TeamId) -> bool) -> Option<(First, ClassId)> {
        let team = self.line.first(which)?;
        let (position, (rank, class)) = (self.line.positions.get(&team)?, self.firsts.get(&team)?);
        Some((First { team, position: position.clone(), rank: rank.clone() }, *class))
    }
}
