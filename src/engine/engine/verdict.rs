//! The state of each workload and its reason, as reported to users.

use crate::cycle::{kept, refusal, reserve};
use crate::explain;
use crate::scheduler::Scheduler;
use crate::scheduler::nomination::Nomination;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::PoolId;
use crate::types::{
    Admission, Observed, OnMaxWait, Reason, State, Unready, Verdict, Workload, WorkloadId, runs_on, span,
};

/// The state of a workload and its reason.
pub fn verdict(scheduler: &Scheduler, id: &WorkloadId) -> Option<Verdict> {
    let info = scheduler.state.get(id)?;
    let at = |state, reason, message: String| Some(Verdict { state, reason, message, never: false });
    match &info.phase {
        Phase::Hold => Some(held(&info.workload)),
        Phase::Finished => at(State::Finished, Reason::Finished, "Has ended.".to_owned()),
        Phase::Leaving { .. } if info.workload.hold => {
            at(State::Held, Reason::HeldByUser, format!("On hold by its user; {}.", stopping(info)))
        }
        Phase::Stopping(_) | Phase::Leaving { .. } => at(State::Evicting, Reason::Evicted, stops(info)),
        Phase::Starting(admission) | Phase::Running(admission) | Phase::Resizing { to: admission, .. } => {
            Some(running(scheduler, info, admission))
        }
        Phase::Failing(Some(_)) => at(
            State::Evicting,
            Reason::Failing,
            "Ran longer than its queue allows and is being failed.".to_owned(),
        ),
        Phase::Failing(None) => at(
            State::Pending,
            Reason::Failing,
            "Waited longer than its queue allows and is being failed.".to_owned(),
        ),
        Phase::Pending => {
            if scheduler.state.is_paused(info) {
                let queue = scheduler.state.queue_of(info).ok()?;
                return Some(explain::queue_paused(&scheduler.state, info, queue));
            }
            let verdict = waits(scheduler, info).map(|verdict| with_reservation(scheduler, id, verdict))?;
            Some(with_overdue(scheduler, info, with_avoided_nodes(info, verdict)))
        }
    }
}

/// Where a workload runs.
fn running(scheduler: &Scheduler, info: &WorkloadInfo, admission: &Admission) -> Verdict {
    let nodes: Vec<String> = admission.nodes.iter().map(|(node, pods)| format!("{node}: {pods}")).collect();
    let nodes = if nodes.is_empty() { "none".to_owned() } else { nodes.join(", ") };
    let reason = if admission.borrowed { Reason::Borrowed } else { Reason::Guaranteed };
    let outside_quotas = is_outside_quotas(scheduler, info);
    let how = runs_on(outside_quotas, admission.borrowed);
    let standing = match (outside_quotas, admission.borrowed) {
        (true, true) => " It asks for nothing that they list, so it can be preempted while its team borrows.",
        (true, false) => " It asks for nothing that they list.",
        (false, _) => "",
    };
    let ready = match scheduler.retries.gangs.awaited(info, admission) {
        Some((ready, of)) => format!(" {ready} of {of} pods are ready; all must be soon."),
        None => String::new(),
    };
    let pool = &admission.pool;
    let message = match info.pods() {
        _ if info.workload.pods > 0 || info.workload.kind.is_pods() => format!(
            "Runs {how} of pool {pool} (pods by node: {nodes}).{standing}{}{ready}",
            explain::less(info, admission.share),
        ),
        0 => format!(
            "Runs no pods: its user scaled it to none. It stays admitted {how} of pool {pool} (charged pods by \
             node: {nodes})."
        ),
        left => format!(
            "Its user scaled it to none; {left} of its pods still run or end. It stays admitted {how} of pool \
             {pool} (charged pods by node: {nodes})."
        ),
    };
    Verdict { state: State::Running, reason, message, never: false }
}

/// Whether no quota of the pool of an admitted workload lists anything that it asks for.
pub fn is_outside_quotas(scheduler: &Scheduler, info: &WorkloadInfo) -> bool {
    is_outside_quotas_of(scheduler, info, info.usage.pool)
}

/// Whether a workload asks for nothing that any quota of a pool lists.
pub fn is_outside_quotas_of(scheduler: &Scheduler, info: &WorkloadInfo, pool: PoolId) -> bool {
    explain::outside_quotas(&scheduler.state, (info.team, pool), &info.need)
}

/// Why a workload is not in the queue.
fn held(workload: &Workload) -> Verdict {
    match &workload.state {
        Observed::Unready(Unready::Missing { there, of }) => {
            explain::pending(Reason::Incomplete, format!("{there} of {of} pods exist; they start all or none."))
        }
        Observed::Unready(Unready::Unlike) => explain::pending(
            Reason::UnlikePods,
            "Its pods differ, so they cannot be placed as one workload. Give all of them the same requests, node \
             selector, affinity, tolerations, queue, pools, topology and priority."
                .to_owned(),
        ),
        Observed::Unready(Unready::Uncounted(why)) => {
            explain::pending(Reason::Uncounted, format!("Its requests cannot be counted: {why}"))
        }
        Observed::Queued => Verdict {
            state: State::Held,
            reason: Reason::OnHold,
            message: "On hold by its annotation sluice.dev/hold, and keeps its place in the queue. Remove the annotation to \
                      release it."
                .to_owned(),
            never: false,
        },
        _ => {
            let why = match workload.pods {
                0 => "asks for no pods and waits for its user to scale it up",
                _ => "suspended by its user",
            };
            let message = format!("On hold: {why}.");
            Verdict { state: State::Held, reason: Reason::HeldByUser, message, never: false }
        }
    }
}

/// How far a run that ends has come.
fn stops(info: &WorkloadInfo) -> String {
    match info.usage.pods {
        0 => "Has stopped: its pods have gone.".to_owned(),
        _ => format!("Stopping: {}.", stopping(info)),
    }
}

/// What is left of a run that ends.
fn stopping(info: &WorkloadInfo) -> String {
    match info.usage.pods {
        0 => "its pods have gone".to_owned(),
        1 => "1 of its pods still holds its capacity".to_owned(),
        pods => format!("{pods} of its pods still hold their capacity"),
    }
}

/// Why a workload waits.
fn waits(scheduler: &Scheduler, info: &WorkloadInfo) -> Option<Verdict> {
    let id = &info.workload.id;
    let nomination = scheduler.nominations.of(id);
    let verdict = nomination
        .map(|nomination| {
            explain::pending(Reason::WaitingForEviction, nominated(scheduler, info, nomination))
        })
        .or_else(|| waits_in_queue(scheduler, id))
        .or_else(|| {
            let rest = scheduler.retries.gangs.rest(id)?;
            let message = format!("{}. Tried again after a pause of {}.", rest.message, span(rest.pause));
            Some(explain::pending(rest.reason, message))
        })
        .or_else(|| {
            let failure = scheduler.retries.failures.get(id)?;
            let message = format!("The write failed {} times: {}", failure.times, failure.message);
            Some(explain::pending(Reason::WriteRefused, message))
        })
        .or_else(|| Some(explain::pending(Reason::NotYetConsidered, "Asks for no pods.".to_owned())));
    verdict.map(|verdict| with_refusal(scheduler, id, verdict))
}

/// The verdict, with the refusal because of which no other is preempted for the workload.
fn with_refusal(scheduler: &Scheduler, id: &WorkloadId, verdict: Verdict) -> Verdict {
    let refused = scheduler.retries.refused.contains(id) && verdict.reason != Reason::WriteRefused;
    let Some(failure) = scheduler.retries.failures.get(id).filter(|_| refused) else { return verdict };
    let message = format!(
        "{} Until its object changes it takes free capacity only, because the API server refused its admission: {}",
        verdict.message, failure.message
    );
    Verdict { message, ..verdict }
}

/// The capacity that a workload waits for, and the evictions for it that the API server refused. What the API server says
/// may name objects of the victim's namespace, so it is given in that namespace only.
fn nominated(scheduler: &Scheduler, info: &WorkloadInfo, nomination: &Nomination) -> String {
    let refused = nomination.victims().filter_map(|id| {
        let failure = scheduler.retries.failures.get(id)?;
        let victim = explain::label(&scheduler.state, id);
        let namespace = scheduler.state.get(id).map(|victim| &victim.workload.namespace);
        Some(if namespace == Some(&info.workload.namespace) {
            format!(" The eviction of {victim} was refused: {}", failure.message)
        } else {
            format!(" The API server refused the eviction of {victim}; it is tried again.")
        })
    });
    std::iter::once(nomination.message.clone()).chain(refused).collect()
}

/// The verdict, with the maximum wait of the queue if the workload has waited that long.
fn with_overdue(scheduler: &Scheduler, info: &WorkloadInfo, verdict: Verdict) -> Verdict {
    let overdue = scheduler.deadlines.is_overdue(&info.workload.id);
    let queue = scheduler.state.queue_of(info).ok().filter(|_| overdue);
    let Some((queue, most)) = queue.and_then(|queue| queue.max_wait.map(|most| (queue, most))) else {
        return verdict;
    };
    let waited = format!("Has waited longer than the {} that queue {} sets", span(most), queue.name);
    match (queue.on_max_wait, verdict.reason) {
        (_, Reason::WaitingForEviction) => verdict,
        (OnMaxWait::RaisePriority, _) => {
            let message = format!("{} {waited}, so it comes first in its team.", verdict.message);
            Verdict { message, ..verdict }
        }
        _ => {
            let message = format!("{waited}. {}", verdict.message);
            Verdict { reason: Reason::WaitedTooLong, message, ..verdict }
        }
    }
}

/// The verdict, with the reservation of the workload if it owns one.
fn with_reservation(scheduler: &Scheduler, id: &WorkloadId, verdict: Verdict) -> Verdict {
    let Some(((pool, _), reservation)) = scheduler.reservations.owned_by(id) else { return verdict };
    let message = match (reservation.slot(), &reservation.deferred_behind) {
        (Some(slot), _) => {
            format!("{} {}", verdict.message, explain::nodes_reserved(&scheduler.state, slot))
        }
        (None, _)
            if reservation.awaits_quota() && reservation.keeps_quota() || reservation.is_infeasible() =>
        {
            format!("{} {}", verdict.message, explain::quota_reserved(reservation))
        }
        (None, Some(older)) if reserve::is_deferred(scheduler, pool, reservation) => {
            let older = explain::label(&scheduler.state, older);
            format!("{} It gets a reservation once {older} has started.", verdict.message)
        }
        _ => return verdict,
    };
    Verdict { message, ..verdict }
}

/// Why a workload in the queue waits, as things are now.
fn waits_in_queue(scheduler: &Scheduler, id: &WorkloadId) -> Option<Verdict> {
    let class = scheduler.queue.pending.class_of(id)?;
    // Time alone may have spent a budget.
    if let Some(verdict) = refusal::unfunded(&scheduler.state, id)
        && refusal::barred(&scheduler.state, scheduler.state.get(id)?).is_none()
    {
        return Some(verdict);
    }
    let info = scheduler.state.get(id)?;
    match scheduler.queue.pending.refusal(class) {
        // What is kept for preemptors changes while a refusal stands.
        Some((verdict, true)) => match kept::preemptors(scheduler, info, verdict.reason)[..] {
            [] => Some(verdict.clone()),
            _ => refusal::why_not(&scheduler.state, id).map(|now| kept::named(scheduler, info, now)),
        },
        Some((_, false)) => {
            refusal::why_not(&scheduler.state, id).map(|now| kept::named(scheduler, info, now))
        }
        None => Some(under_way(scheduler).unwrap_or_else(|| {
            explain::pending(Reason::NotYetConsidered, "Has not been considered yet.".to_owned())
        })),
    }
}

/// Why nothing is decided while a preemption is carried out.
fn under_way(scheduler: &Scheduler) -> Option<Verdict> {
    let mut preemptors = scheduler.nominations.iter().filter(|nomination| !nomination.victims.is_empty());
    let first = preemptors.next().filter(|_| scheduler.keeps_to_plan(scheduler.cursor.planned))?;
    let preemptor = explain::label(&scheduler.state, &first.id);
    let message = format!("Is considered once {preemptor} has started, for which capacity is being cleared.");
    Some(explain::pending(Reason::RoomHeld, message))
}

/// The verdict, with the nodes that the workload avoids because its pods could not start there.
fn with_avoided_nodes(info: &WorkloadInfo, verdict: Verdict) -> Verdict {
    let Some(avoided) = info.avoided_nodes.as_deref().filter(|avoided| !avoided.nodes.is_empty()) else {
        return verdict;
    };
    let message = format!("{} {}; avoided for now.", verdict.message, explain::stuck(avoided));
    // What these nodes would hold starts once they are not avoided any more.
    match verdict.reason {
        Reason::NoNodeFits => Verdict { reason: Reason::NotPlaced, message, never: false, ..verdict },
        _ => Verdict { message, ..verdict },
    }
}
