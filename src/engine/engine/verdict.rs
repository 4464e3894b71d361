//! The state of each workload and its reason, as reported to users.

use crate::cycle::{refusal, reserve};
use crate::explain;
use crate::scheduler::Scheduler;
use crate::scheduler::nominations::Nomination;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{Observed, OnMaxWait, Reason, State, Unready, Verdict, WorkloadId};

/// Where a workload stands and why.
pub fn verdict(scheduler: &Scheduler, id: &WorkloadId) -> Option<Verdict> {
    let info = scheduler.state.get(id)?;
    let at = |state, reason, message: String| Some(Verdict { state, reason, message });
    match &info.phase {
        Phase::Hold => Some(held(&info.workload.state)),
        Phase::Finished => at(State::Finished, Reason::Finished, "has ended".to_owned()),
        Phase::Stopping(_) | Phase::Leaving { .. } => at(
            State::Evicting,
            Reason::Evicted,
            format!("was told to stop; {} of its pods still hold their room", info.usage.pods),
        ),
        Phase::Starting(admission) | Phase::Running(admission) | Phase::Resizing { to: admission, .. } => {
            let nodes: Vec<String> = admission.nodes.iter().map(|(n, pods)| format!("{n}: {pods}")).collect();
            let (reason, how) = if admission.borrowed {
                (Reason::Borrowed, "on borrowed capacity")
            } else {
                (Reason::Guaranteed, "within the guarantee")
            };
            let nodes = nodes.join(", ");
            let less = explain::less(info, admission.share);
            let ready = match scheduler.retries.gangs.awaited(info, admission) {
                Some((there, of)) => format!("; {there} of {of} pods are ready, and all have to be soon"),
                None => String::new(),
            };
            at(
                State::Running,
                reason,
                format!("runs {how} of pool {} (pods by node: {nodes}){less}{ready}", admission.pool),
            )
        }
        Phase::Failing(Some(_)) => at(
            State::Evicting,
            Reason::Failing,
            "has run for longer than its queue allows and is being ended".to_owned(),
        ),
        Phase::Failing(None) => at(
            State::Pending,
            Reason::Failing,
            "has waited for longer than its queue allows and is being ended".to_owned(),
        ),
        Phase::Pending => {
            let verdict = waits(scheduler, info).map(|verdict| promised(scheduler, id, verdict))?;
            Some(remind(scheduler, info, recall(info, verdict)))
        }
    }
}

/// Why a workload is not in the queue.
fn held(state: &Observed) -> Verdict {
    match state {
        Observed::Unready(Unready::Missing { there, of }) => explain::pending(
            Reason::Incomplete,
            format!("{there} of {of} pods are there; they start all or none"),
        ),
        Observed::Unready(Unready::Unlike) => explain::pending(
            Reason::UnlikePods,
            "its pods differ in what they ask for, and so cannot be placed as one: give all the same \
             requests, node selector, affinity, tolerations, queue, pools, topology and priority"
                .to_owned(),
        ),
        Observed::Unready(Unready::Uncounted(why)) => {
            explain::pending(Reason::Uncounted, format!("what it asks for cannot be counted: {why}"))
        }
        _ => Verdict {
            state: State::Held,
            reason: Reason::HeldByUser,
            message: "suspended by its user".to_owned(),
        },
    }
}

/// Why a workload waits.
fn waits(scheduler: &Scheduler, info: &WorkloadInfo) -> Option<Verdict> {
    let id = &info.workload.id;
    scheduler
        .nominations
        .all
        .iter()
        .find(|nomination| nomination.id == *id)
        .map(|nomination| explain::pending(Reason::WaitingForEviction, refused(scheduler, nomination)))
        .or_else(|| waiting_in_queue(scheduler, id))
        .or_else(|| {
            let rest = scheduler.retries.gangs.rest(id)?;
            let told = format!("{}; tried again after a pause of {} s", rest.message, rest.pause.as_secs());
            Some(explain::pending(Reason::NotReady, told))
        })
        .or_else(|| {
            let failure = scheduler.retries.failures.get(id)?;
            Some(explain::pending(
                Reason::WriteRefused,
                format!("writing what was decided failed {} times: {}", failure.times, failure.message),
            ))
        })
        .or_else(|| Some(explain::pending(Reason::NotYetConsidered, "asks for no pods".to_owned())))
}

/// What a claim waits for, and which of its evictions the API server has refused.
fn refused(scheduler: &Scheduler, nomination: &Nomination) -> String {
    let told = nomination.victims().filter_map(|id| {
        let failure = scheduler.retries.failures.get(id)?;
        Some(format!(
            "; making {} leave was refused: {}",
            explain::label(&scheduler.state, id),
            failure.message
        ))
    });
    std::iter::once(nomination.message.clone()).chain(told).collect()
}

/// Says besides why a workload waits that it has done so for too long, if it has.
fn remind(scheduler: &Scheduler, info: &WorkloadInfo, verdict: Verdict) -> Verdict {
    let overdue = scheduler.deadlines.overdue(&info.workload.id);
    let queue = scheduler.state.queue_of(info).ok().filter(|_| overdue);
    let Some((queue, most)) = queue.and_then(|queue| queue.max_wait.map(|most| (queue, most))) else {
        return verdict;
    };
    let (name, most) = (&queue.name, most.as_secs());
    let said = format!("has waited for longer than the {most} s that queue {name} sets");
    match (queue.on_max_wait, verdict.reason) {
        (_, Reason::WaitingForEviction) => verdict,
        (OnMaxWait::RaisePriority, _) => {
            let message = format!("{}; {said} and so goes first in its team", verdict.message);
            Verdict { message, ..verdict }
        }
        _ => explain::pending(Reason::WaitedTooLong, format!("{said}: {}", verdict.message)),
    }
}

/// Says besides why a workload waits where room is reserved for it, if it is.
fn promised(scheduler: &Scheduler, id: &WorkloadId, verdict: Verdict) -> Verdict {
    let reservation = scheduler.reservations.by_team.iter().find(|(_, reservation)| reservation.owner == *id);
    let Some(((pool, _), reservation)) = reservation else { return verdict };
    let message = match (reservation.slot(), &reservation.deferred_behind) {
        (Some(slot), _) => {
            let reserved = explain::expected(&scheduler.state, reservation, slot);
            format!("{}; room is reserved for it on {reserved}", verdict.message)
        }
        (None, Some(older)) if reserve::is_deferred(scheduler, *pool, reservation) => {
            let older = explain::label(&scheduler.state, older);
            format!("{}; room is reserved for it once {older} has started", verdict.message)
        }
        _ => return verdict,
    };
    Verdict { message, ..verdict }
}

/// Why somebody in the queue waits, by how things are now.
fn waiting_in_queue(scheduler: &Scheduler, id: &WorkloadId) -> Option<Verdict> {
    scheduler.queue.pending.class_of(id)?;
    match scheduler.queue.pending.refusal(id) {
        Some((verdict, true)) => Some(verdict.clone()),
        Some((_, false)) => refusal::why_not(&scheduler.state, id),
        None => Some(explain::pending(Reason::NotYetConsidered, "has not been considered yet".to_owned())),
    }
}

/// Says besides why a workload waits where its pods could not be started before, if it is so.
fn recall(info: &WorkloadInfo, verdict: Verdict) -> Verdict {
    let Some(avoided_nodes) =
        info.avoided_nodes.as_deref().filter(|avoided_nodes| !avoided_nodes.nodes.is_empty())
    else {
        return verdict;
    };
    let message = format!("{}; {}, left out for now", verdict.message, explain::stuck(avoided_nodes));
    let reason = if verdict.reason == Reason::NoNodeFits { Reason::NotPlaced } else { verdict.reason };
    Verdict { reason, message, ..verdict }
}
