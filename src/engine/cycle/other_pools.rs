//! The pools in which a workload may start besides the one where capacity is nominated to it.

use crate::placement::waiting::{WaitingWorkload, find_pool, pool_names};
use crate::placement::{self, Capacity};
use crate::scheduler::nomination::Nomination;
use crate::state::cluster::ClusterState;
use crate::state::workload::Phase;
use crate::types::Name;

/// The pools of a workload before the one of its nomination, in its order, and those after it.
pub fn around(state: &ClusterState, nomination: &Nomination) -> (Vec<Name>, Vec<Name>) {
    let names = nomination.info(state).map(pool_names).unwrap_or_default();
    let is_own = |name: &Name| find_pool(state, name) == Some(nomination.pool);
    let before = names.iter().position(is_own).unwrap_or(names.len());
    let after = names.get(before + 1..).unwrap_or_default().to_vec();
    (names.into_iter().take(before).collect(), after)
}

/// Whether one of its other pools has capacity for as many pods as the workload of a nomination asks for. It spares most
/// nominations a search.
pub fn have_capacity(state: &ClusterState, nomination: &Nomination) -> bool {
    may_use_others(state, nomination) && {
        let (before, after) = around(state, nomination);
        has_capacity(state, nomination, before.iter().chain(&after))
    }
}

/// The same for the pools that it prefers to the one of its nomination.
pub fn preferred_have_capacity(state: &ClusterState, nomination: &Nomination) -> bool {
    may_use_others(state, nomination) && has_capacity(state, nomination, around(state, nomination).0.iter())
}

/// Whether the workload of a nomination waits, and does not run until it moves.
pub fn waits(state: &ClusterState, nomination: &Nomination) -> bool {
    !nomination.moves && nomination.info(state).is_some_and(|info| info.phase == Phase::Pending)
}

fn may_use_others(state: &ClusterState, nomination: &Nomination) -> bool {
    let has_others = nomination.info(state).is_some_and(|info| info.workload.pools.len() > 1);
    has_others && waits(state, nomination)
}

fn has_capacity<'a>(
    state: &ClusterState,
    nomination: &Nomination,
    mut names: impl Iterator<Item = &'a Name>,
) -> bool {
    let Some(waiting) = WaitingWorkload::of(state, &nomination.id) else { return false };
    names.any(|name| {
        find_pool(state, name).is_some_and(|pool| {
            let waiting = waiting.in_pool(state, pool);
            placement::capacity(state, &waiting.request(pool), Capacity::Now) >= u64::from(waiting.pods)
        })
    })
}
