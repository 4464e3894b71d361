//! Where each waiting workload stands: its position among the workloads of its team that wait for the same pool.

use std::collections::BTreeMap;

use crate::queue::WaitQueue;
use crate::queue::order;
use crate::queue::rank::Rank;
use crate::state::cluster::ClusterState;
use crate::types::ids::TeamId;
use crate::types::{DEFAULT_POOL, Name, PlaceView, WorkloadId};

/// The most workloads in front that a place names.
const MOST_NAMED: usize = 5;

impl WaitQueue {
    /// The place of every workload in the queue, in the pool that it asks for first.
    #[must_use]
    pub fn places(&self, state: &ClusterState) -> BTreeMap<WorkloadId, PlaceView> {
        let mut lines: BTreeMap<(Name, TeamId), Vec<Rank>> = BTreeMap::new();
        for (team, pools, rank) in self.pending.ranks() {
            let pool = pools.first().cloned().unwrap_or_else(|| DEFAULT_POOL.into());
            lines.entry((pool, team)).or_default().push(rank);
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
            let others = firsts.get(pool).map(Vec::as_slice).unwrap_or_default();
            let own = line.first().and_then(position);
            for (before, rank) in line.iter().enumerate() {
                let here = position(rank);
                let in_front = here.as_ref().map_or(0, |here| others.partition_point(|other| other < here));
                // The first workload of its own team is not another team's.
                let own = usize::from(own.as_ref().zip(here.as_ref()).is_some_and(|(own, here)| own < here));
                let named = line.iter().take(before.min(MOST_NAMED));
                let place = PlaceView {
                    pool: pool.clone(),
                    position: before + 1,
                    waiting: line.len(),
                    in_front: named.map(|rank| rank.id().clone()).collect(),
                    teams_in_front: in_front - own,
                };
                places.insert(rank.id().clone(), place);
            }
        }
        places
    }
}
