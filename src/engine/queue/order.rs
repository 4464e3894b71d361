//! The order between teams: within guarantee before borrowing, then the smallest fair share, then the older (law 9).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::placement::waiting::first_pool;
use crate::queue::headroom::Headroom;
use crate::queue::pending::Pending;
use crate::queue::rank::Rank;
use crate::state::cluster::ClusterState;
use crate::state::quotas::{Hypothetical, Share};
use crate::types::ids::{PoolId, TeamId};
use crate::types::{Name, Time, WorkloadId};

/// Where the team of somebody who waits stands among others by it; less goes first.
#[must_use]
pub fn standing(state: &ClusterState, pending: &Pending, id: &WorkloadId) -> Option<impl Ord + use<>> {
    let team = state.get(id)?.team;
    Standing::of(state, team, &pending.rank(id)?).map(|standing| standing.key)
}

/// By what teams are compared: whether the first of the team is owed, its share, its age, its name.
type Key = (Reverse<bool>, Share, Time, Name);

/// The devices, or else whatever it is, that somebody asks for in a pool.
type Size = (PoolId, Vec<(usize, i64)>);

/// By what those are compared who ask for as much of the surplus: the share that the team would have, then
/// the larger one that it has, for that is what stays if another starts; its age, its name.
type After = (Share, Reverse<Share>, Time, Name);

/// Where a team stands by its first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    key: Key,
    peers: Option<(Size, After)>,
}

impl Standing {
    /// The standing of a team of which that is the first.
    fn of(state: &ClusterState, team: TeamId, first: &Rank) -> Option<Self> {
        let info = state.at(first.place())?;
        let (age, name) = (first.submitted(), state.quotas.team(team).name.clone());
        let Some(pool) = first_pool(state, info) else {
            return Some(Self { key: (Reverse(false), Share::new(), age, name), peers: None });
        };
        let total = info.least_total();
        if state.quotas.within_guarantee(pool, team, &total, &Hypothetical::new()) {
            return Some(Self {
                key: (Reverse(true), state.quotas.share(pool, team), age, name),
                peers: None,
            });
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

/// The teams of which somebody may be able to start, in their order. It is worked out as far as asked.
///
/// The smallest share goes first. But of those who ask for as much, who would end with the smaller share
/// takes that place: else it would evict at once whoever started before it (Law 5).
#[derive(Clone, Debug, Default)]
pub struct Order {
    teams: BTreeSet<(Key, TeamId)>,
    peers: BTreeMap<Size, BTreeSet<(After, TeamId)>>,
    standings: BTreeMap<TeamId, Standing>,
    /// Teams whose place has to be found anew.
    pub stale: BTreeSet<TeamId>,
}

impl Order {
    /// The workload to look at next.
    pub fn next(
        &mut self,
        state: &ClusterState,
        pending: &Pending,
        headroom: &Headroom,
    ) -> Option<WorkloadId> {
        for team in std::mem::take(&mut self.stale) {
            self.place(state, pending, headroom, team);
        }
        loop {
            let team = self.first()?;
            // Capacity may have gone for which the team's first was waiting: then another is its first now.
            match head(state, pending, headroom, team) {
                Some((now, rank)) if self.standings.get(&team) == Some(&now) => {
                    return Some(rank.id().clone());
                }
                _ => self.place(state, pending, headroom, team),
            }
        }
    }

    /// The team whose turn it is.
    fn first(&self) -> Option<TeamId> {
        let (_, team) = self.teams.first()?;
        let standing = self.standings.get(team)?;
        let peers = standing.peers.as_ref().and_then(|(size, _)| self.peers.get(size)?.first());
        Some(peers.map_or(*team, |(_, peer)| *peer))
    }

    /// Notes that all shares may have changed.
    pub fn renew(&mut self) {
        self.stale.extend(self.standings.keys());
    }

    /// Puts a team where it belongs now.
    fn place(&mut self, state: &ClusterState, pending: &Pending, headroom: &Headroom, team: TeamId) {
        if let Some(old) = self.standings.remove(&team) {
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
        if let Some((standing, _)) = head(state, pending, headroom, team) {
            self.teams.insert((standing.key.clone(), team));
            if let Some((size, after)) = standing.peers.clone() {
                self.peers.entry(size).or_default().insert((after, team));
            }
            self.standings.insert(team, standing);
        }
    }

    /// Notes that the shares below a team that stands under none have changed.
    pub fn stale_root(&mut self, state: &ClusterState, root: Option<TeamId>) {
        let quotas = &state.quotas;
        let below = self.standings.keys().filter(|team| quotas.team(**team).path.last().copied() == root);
        self.stale.extend(below);
    }
}

/// The first of the team that may be able to start, with where the team stands by it.
fn head<'a>(
    state: &ClusterState,
    pending: &'a Pending,
    headroom: &Headroom,
    team: TeamId,
) -> Option<(Standing, &'a Rank)> {
    let rank = pending.head(team, |room| headroom.total(room))?;
    Some((Standing::of(state, team, rank)?, rank))
}

/// The first of a team, with where the team stands by it.
pub struct First {
    team: TeamId,
    standing: Standing,
    /// Its rank among the workloads of its team.
    pub rank: Rank,
}

impl First {
    /// The one of that rank.
    pub fn of(state: &ClusterState, rank: Rank) -> Option<Self> {
        let team = state.at(rank.place())?.team;
        Some(Self { team, standing: Standing::of(state, team, &rank)?, rank })
    }

    /// Whether it goes before another one.
    pub fn goes_before(&self, other: &Self) -> bool {
        if self.team == other.team {
            return self.rank < other.rank;
        }
        match (&self.standing.peers, &other.standing.peers) {
            (Some((size, after)), Some((other_size, other_after))) if size == other_size => {
                after < other_after
            }
            _ => self.standing.key < other.standing.key,
        }
    }
}

/// The first in order of several teams' firsts: the smallest key, but among those that ask for as much as that one,
/// the one with the smallest share afterwards.
pub fn first_in_order<T>(firsts: &[(First, T)]) -> Option<&(First, T)> {
    let first = firsts.iter().min_by(|left, right| left.0.standing.key.cmp(&right.0.standing.key));
    let size = first.and_then(|(first, _)| first.standing.peers.as_ref()).map(|(size, _)| size);
    let peers = firsts.iter().filter_map(|first| Some((first.0.standing.peers.as_ref()?, first)));
    let peers = peers.filter(|((asked, _), _)| Some(asked) == size);
    let peer = peers.min_by(|left, right| left.0.1.cmp(&right.0.1)).map(|(_, first)| first);
    peer.or(first)
}
