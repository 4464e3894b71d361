//! Settled places: a workload takes the place of lower priorities of its own team.
//!
//! For the other teams nothing changes by that. If the workload could be evicted for their fair shares like any other that has
//! just started, a team would lose a place that was safe from them, and a workload that was past its `fairShareWindow` would
//! have gone for a run of no time (laws 4 and 5). So the place stays as safe as it was.

use crate::placement::waiting::WaitingWorkload;
use crate::preemption::Take;
use crate::state::cluster::ClusterState;
use crate::state::quotas::{Account, Hypothetical};
use crate::state::rules::{in_fair_share_window, oversize_in};
use crate::state::workload::WorkloadInfo;
use crate::types::Time;
use crate::types::ids::{PoolId, TeamId};

/// Whether these victims are of the preemptor's own team and safe from the fair shares of other teams, and the preemptor with all
/// the pods that it wants makes no fair share on its path larger than they did.
pub fn leave_places(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    pool: PoolId,
    takes: &[Take],
    now: Time,
) -> bool {
    let Some(preemptor) = state.at(waiting.index) else { return false };
    let mut with = Hypothetical::new();
    for take in takes {
        let Some(victim) = settled_sibling(state, waiting.team, take, now) else { return false };
        state.quotas.assume(&mut with, victim.account(), &victim.staying_total(), -1);
    }
    let oversize = oversize_in(state, preemptor, pool);
    let account = Account { team: waiting.team, oversize: &oversize };
    state.quotas.assume(&mut with, account, &waiting.need.times(preemptor.workload.pods), 1);
    let share = |at: &TeamId, with: &Hypothetical| state.quotas.level_share(pool, *at, with.get(at));
    let none = Hypothetical::new();
    let path = &state.quotas.team(waiting.team).path;
    !takes.is_empty() && path.iter().all(|at| share(at, &with) <= share(at, &none))
}

/// The victim, if it is evicted whole, is of this team, and is safe from the fair shares of other teams.
fn settled_sibling<'a>(
    state: &'a ClusterState,
    team: TeamId,
    take: &Take,
    now: Time,
) -> Option<&'a WorkloadInfo> {
    let Take::Whole(id) = take else { return None };
    let info = state.get(id).filter(|info| info.team == team)?;
    let admission = info.phase.admission()?;
    (!in_fair_share_window(state, info, admission, now)).then_some(info)
}
