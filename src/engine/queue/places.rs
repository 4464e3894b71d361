//! Where each waiting workload stands: its position among the workloads of its team that wait for the same pool.

use std::collections::BTreeMap;

use crate::queue::WaitQueue;
use crate::queue::order;
use crate::queue::pending::first_of;
use crate::queue::rank::Rank;
use crate::state::cluster::ClusterState;
use crate::types::ids::TeamId;
use crate::types::{Name, PlaceView, WorkloadId};

/// The most workloads in front that a place names.
const MOST_NAMED: usize = 5;

impl WaitQueue {
    /// The place of every workload in the queue, in the pool that it asks for first.
    #[must_use]
    pub fn places(&self, state: &ClusterState) -> BTreeMap<WorkloadId, PlaceView> {
        let mut lines: BTreeMap<(Name, TeamId), Vec<Rank>> = BTreeMap::new();
        for (team, pools, rank) in self.pending.ranks() {
            lines.entry((first_of(pools), team)).or_default().push(rank);
        }
        let position = |rank: &Rank| order::queue_position(state, &self.pending, rank.id());
        let mut firsts: BTreeMap<Name, Vec<_>> = BTreeMap::new();
        for ((pool, _), line) in &mut lines {
            line.sort_unstable();
            firsts.entry(pool.clone()).or_default().extend(line.first().and_then(position));
        }
        firsts.values_mut().for_each(|firsts| firsts.sort());
        let mut places = BTreeMap::new();
        for ((pool, _), line) in &lines {
            let firsts = firsts.get(pool).map(Vec::as_slice).unwrap_or_default();
            let own = line.first().and_then(position);
            for (before, rank) in line.iter().enumerate() {
                let place = place(pool, line, before, (firsts, own.as_ref(), position(rank)));
                places.insert(rank.id().clone(), place);
            }
        }
        places
    }

    /// The place of one workload, as [`Self::places`] has it, without those of the others.
    #[must_use]
    pub fn place(&self, state: &ClusterState, id: &WorkloadId) -> Option<PlaceView> {
        let info = state.get(id)?;
        let (pool, own_team) = (first_of(&info.workload.pools), info.team);
        let (mut line, mut others) = (Vec::new(), BTreeMap::new());
        for (team, _, rank) in self.pending.ranks().filter(|(_, pools, _)| first_of(pools) == pool) {
            if team == own_team {
                line.push(rank);
            } else if others.get(&team).is_none_or(|first| rank < *first) {
                others.insert(team, rank);
            }
        }
        line.sort_unstable();
        let before = line.iter().position(|rank| rank.id() == id)?;
        let position = |rank: &Rank| order::queue_position(state, &self.pending, rank.id());
        let mut firsts: Vec<_> = others.values().chain(line.first()).filter_map(position).collect();
        firsts.sort();
        let own = line.first().and_then(position);
        Some(place(&pool, &line, before, (&firsts, own.as_ref(), position(&line[before]))))
    }
}

/// The place of the workload behind `before` others of its line. The positions are those of the first workload of each
/// team, in order, of its own team's first, and its own.
fn place<P: Ord>(
    pool: &Name,
    line: &[Rank],
    before: usize,
    (firsts, own, here): (&[P], Option<&P>, Option<P>),
) -> PlaceView {
    let in_front = here.as_ref().map_or(0, |here| firsts.partition_point(|other| other < here));
    // The first workload of its own team is not another team's.
    let own = usize::from(own.zip(here.as_ref()).is_some_and(|(own, here)| own < here));
    let named = line.iter().take(before.min(MOST_NAMED));
    PlaceView {
        pool: pool.clone(),
        position: before + 1,
        waiting: line.len(),
        in_front: named.map(|rank| rank.id().clone()).collect(),
        teams_in_front: in_front - own,
    }
}
