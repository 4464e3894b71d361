//! Finds the next waiting workload that may own a reservation of its team (law 7).

use std::collections::BTreeSet;

use crate::cycle::reserve;
use crate::queue::order::{First, first_in_order};
use crate::scheduler::Scheduler;
use crate::types::ids::{ClassId, HeadroomId, PoolId, TeamId};
use crate::types::{DEFAULT_POOL, Name, WorkloadId};

/// The classes that were considered as owners of a reservation since the last change.
pub struct Considered(pub BTreeSet<ClassId>);

/// The result of looking for an owner.
pub enum NextOwner {
    /// This workload is attempted next; if it finds no capacity, it may own a reservation.
    Attempt(WorkloadId),
    /// Only workloads behind the first startable one are left.
    BehindStartable,
    /// Every class was considered; none is again until capacity comes free.
    None,
}

impl Considered {
    /// The first workload in order that lacks headroom or quota in a pool in which its team has no reservation, as long as
    /// it does not stand behind `before`.
    pub fn next(&mut self, scheduler: &mut Scheduler, before: Option<&First>) -> NextOwner {
        let pools: Vec<PoolId> = scheduler.state.quotas.pools().map(|(_, pool)| pool).collect();
        let mut next = NextOwner::None;
        for pool in pools {
            let firsts = self.firsts(scheduler, pool);
            let Some((first, class)) = first_in_order(&firsts) else { continue };
            if before.is_some_and(|before| before.precedes(first)) {
                next = NextOwner::BehindStartable;
                continue;
            }
            self.0.insert(*class);
            return NextOwner::Attempt(first.rank.id().clone());
        }
        next
    }

    /// The first class that was not considered yet of each team that lacks headroom or quota in a pool and has no
    /// reservation there. Teams without one are left out until the next generation. In a pool with as many reservations
    /// of nodes as it may have, only quota counts.
    fn firsts(&self, scheduler: &mut Scheduler, pool: PoolId) -> Vec<(First, ClassId)> {
        let full = reserve::is_full(scheduler, pool);
        let (pending, headroom) = (&scheduler.queue.pending, &scheduler.queue.headroom);
        let name = scheduler.state.quotas.pool_name(pool);
        let may_use = |pools: &[Name]| match pools.is_empty() {
            true => **name == *DEFAULT_POOL,
            false => pools.contains(name),
        };
        let (reservations, generation) = (&mut scheduler.reservations, scheduler.cursor.generation);
        let in_pool = |fit: HeadroomId| !full && headroom.pool(fit) == Some(pool);
        let fits = headroom.iter().filter(|(_, at)| !full && *at == pool).map(|(fit, _)| fit);
        let mut teams: BTreeSet<TeamId> = fits.flat_map(|fit| pending.teams_at(fit)).collect();
        teams.extend(pending.limited_teams());
        teams.retain(|team| {
            let place = (pool, *team);
            !reservations.by_team.contains_key(&place)
                && reservations.unowned_since.get(&place) != Some(&generation)
        });
        let mut firsts: Vec<(First, ClassId)> = Vec::new();
        for team in teams {
            let without_room = pending.first_waiting(team, in_pool, &self.0);
            let limited = pending.first_limited(team, may_use, &self.0);
            let waiting = without_room.into_iter().chain(limited).min();
            let first =
                waiting.and_then(|(rank, class)| Some((First::of(&scheduler.state, rank.clone())?, *class)));
            match first {
                Some(first) => firsts.push(first),
                None => _ = reservations.unowned_since.insert((pool, team), generation),
            }
        }
        firsts
    }
}
