//! Where an elastic workload starts with pods that must share a domain: where it can have the most of them.
//!
//! An elastic workload starts with its fewest pods and grows from there, but only within the domain of its first pods. So the
//! domain is chosen for the most pods that it may have now, and among domains with so many it is the tightest. A domain with
//! fewer is chosen only where none has more. The workload takes its fewest pods there, and `grow` adds the others once
//! each waiting workload had a chance to start.
//!
//! The domain is chosen for a workload that can start anyway, so no workload is evicted for more pods. Limits, budgets and
//! reservations bound the number as they bound growth: it stands behind every owner of its team, and it spares the reservations
//! of other teams that the fewest pods might take.

use std::borrow::Cow;

use crate::cycle::refusal::{self, Funded};
use crate::cycle::reserve;
use crate::cycle::reserve::admissible::Beside;
use crate::placement;
use crate::placement::waiting::{Attempt, WaitingWorkload, may_start_now};
use crate::placement::{Capacity, Placement};
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::types::ids::PoolId;

/// Settles the start of a workload that may start beside reservations: for an elastic one with first pods that decide where the
/// others may go, where it can have the most pods.
pub fn settle(scheduler: &mut Scheduler, attempt: Attempt<'_>, beside: Beside) -> Placement {
    match for_most_pods(scheduler, attempt) {
        Some(start) => start,
        None => reserve::settle(scheduler, attempt, beside),
    }
}

/// Where the fewest pods of a workload start so that it can grow to the most pods; `None` where they start as those of any
/// workload, because their domain does not matter or none holds more.
fn for_most_pods(scheduler: &mut Scheduler, attempt: Attempt<'_>) -> Option<Placement> {
    let Attempt { waiting, pool, nodes, .. } = attempt;
    let (mut holds, mut beyond) = (waiting.pods, most_pods(&scheduler.state, attempt)?.saturating_add(1));
    let (mut pods, mut largest) = (beyond - 1, None);
    // Mostly free capacity alone bounds the number, so the most pods are tried first. Where a limit or a reservation bounds it,
    // halving finds it in few searches.
    while holds < pods {
        match placed(scheduler, attempt, &waiting.clone().growing_to(pods)) {
            Some(placement) => (holds, largest) = (pods, Some(placement)),
            None => beyond = pods,
        }
        pods = u32::midpoint(holds, beyond);
    }
    let domains = placement::in_the_domains_of(&scheduler.state, nodes, &waiting.request(pool), &largest?);
    placed(scheduler, Attempt { nodes: &domains, ..attempt }, waiting)
}

/// The most pods for which capacity is free that the first pods of an elastic workload do not keep the others from; `None`
/// where the domain of its first pods does not matter, or no domain holds more than the fewest pods.
fn most_pods(state: &ClusterState, attempt: Attempt<'_>) -> Option<u32> {
    let Attempt { waiting, pool, nodes, .. } = attempt;
    let wanted = state.at(waiting.index)?.workload.pods;
    if wanted <= waiting.pods || !placement::bind_the_rest(&waiting.request(pool)) {
        return None;
    }
    let all = waiting.clone().with_pods(wanted);
    let most = placement::most(state, nodes, &all.request(pool), Capacity::Now).min(wanted);
    (most > waiting.pods).then_some(most)
}

/// Where the pods of a workload could start now and leave all reservations whole.
fn placed(scheduler: &mut Scheduler, attempt: Attempt<'_>, waiting: &WaitingWorkload) -> Option<Placement> {
    let Attempt { pool, nodes, .. } = attempt;
    if !may_have(&scheduler.state, waiting, pool) {
        return None;
    }
    let found = may_start_now(&scheduler.state, waiting, pool, nodes)?;
    reserve::sparing_all(scheduler, Attempt { waiting, ..attempt }, found)
}

/// Whether its queue and the budgets allow a workload its pods. Beyond a budget it may have them where it starts beyond one.
fn may_have(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> bool {
    let queue = state.at(waiting.index).and_then(|info| state.queue_of(info).ok());
    let over = |queue| state.quotas.over_queue_limit(waiting.team, queue, &waiting.total, &state.resources);
    let is_funded = || matches!(refusal::funded(state, Cow::Borrowed(waiting), pool), Funded::Fully(_));
    queue.is_some_and(|queue| over(queue).is_none()) && (waiting.unfunded || is_funded())
}
