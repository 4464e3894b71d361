//! Records events: the cheap part of a decision, done as each event comes in.

use crate::cycle::{misplaced, pods_ready, requeue, reserve};
use crate::prediction::Prediction;
use crate::prediction::run_times::Manner;
use crate::scheduler::Scheduler;
use crate::scheduler::nominations::{Broken, BrokenPlan, Change};
use crate::state::cluster::Effect;
use crate::state::workload::{Phase, WorkloadInfo, next_phase};
use crate::types::{
    BudgetUsed, Event, MisplacedPods, Node, Observed, PastUsage, Pod, PodsReady, Pool, RunLengths, Team,
    Time, Workload, WorkloadId,
};

/// Records one change; the next cycle decides about it.
pub fn apply(scheduler: &mut Scheduler, event: Event, now: Time) {
    accrue(scheduler, now);
    pass_budgets(scheduler, now);
    // The ends by level depend on the tree of teams too, which has no revision.
    scheduler.level_ends.clear();
    if !is_echo(scheduler, &event) {
        scheduler.cursor.note_event(change(&event));
    }
    match event {
        Event::WriteFailed { workload, message } => write_failed(scheduler, &workload, message, now),
        Event::AdmissionRefused(id) => admission_refused(scheduler, id),
        Event::ObjectChanged(id) => object_changed(scheduler, &id),
        Event::PodsMisplaced(pods) => misplaced::note(scheduler, pods),
        Event::PodsReady(pods) => pods_ready::note(scheduler, &pods),
        Event::PodNotEnded(pod) => scheduler.retries.ended.failed(&pod, now),
        Event::PastUsage(past) => note_past_usage(scheduler, &past, now),
        Event::BudgetUsed(used) => note_budget_used(scheduler, used),
        Event::RunLengths(lengths) => note_run_lengths(scheduler, &lengths),
        Event::TeamApplied(_) | Event::TeamRemoved(_) => change_teams(scheduler, event, now),
        Event::WorkloadApplied(_)
        | Event::WorkloadRemoved(_)
        | Event::PodApplied(_)
        | Event::PodRemoved(_)
        | Event::PoolApplied(_)
        | Event::PoolRemoved(_)
        | Event::NodeApplied(_)
        | Event::NodeRemoved(_) => change_cluster(scheduler, event, now),
    }
}

/// Records a change of a workload, pod, pool or node, and ends what waited for that change.
fn change_cluster(scheduler: &mut Scheduler, event: Event, now: Time) {
    let subject = match &event {
        Event::WorkloadApplied(workload) => Some(workload.id.clone()),
        Event::WorkloadRemoved(id) => Some(id.clone()),
        _ => None,
    };
    let external = is_external(scheduler, &event);
    if external {
        scheduler.cursor.note_external_change();
        // A change that takes reserved capacity may move the reservation, and so free capacity elsewhere.
        let moves_reservations = subject.is_none() && !scheduler.reservations.is_empty();
        if moves_reservations {
            scheduler.cursor.note_looser();
        }
    }
    match &event {
        Event::WorkloadApplied(workload) => {
            pods_ready::clear_changed(scheduler, workload);
            if external {
                scheduler.retries.refused.remove(&workload.id);
            }
        }
        Event::NodeApplied(node) => misplaced::clear(scheduler, &node.name),
        Event::PodRemoved(pod) => scheduler.retries.ended.gone(pod),
        _ => {}
    }
    let before = subject.as_ref().and_then(|id| scheduler.state.get(id)).map(|info| info.phase.clone());
    let submitted = before.is_none() && matches!(event, Event::WorkloadApplied(_));
    // What such an event makes possible, it does by what comes free; a change of a pool or a node may do more.
    let only_frees = matches!(
        event,
        Event::WorkloadApplied(_) | Event::WorkloadRemoved(_) | Event::PodApplied(_) | Event::PodRemoved(_)
    );
    let team = |scheduler: &Scheduler| Some(scheduler.state.get(subject.as_ref()?)?.team);
    let team_before = team(scheduler);
    let effect = scheduler.state.apply(event);
    if effect == Effect::Looser && only_frees {
        let teams = team_before.into_iter().chain(team(scheduler));
        let roots = teams.map(|team| scheduler.state.quotas.root_of(team));
        scheduler.cursor.note_looser_below(roots);
    } else {
        note(scheduler, effect);
    }
    if let Some(id) = subject {
        if let Some(info) = scheduler.state.get(&id).filter(|_| submitted) {
            let manner = Manner::of(&scheduler.state, info);
            scheduler.prediction.arrivals.note(&info.workload, manner, now);
        }
        workload_changed(scheduler, &id, before.as_ref(), now);
    }
}

/// Lets time pass at the start of a cycle.
pub fn advance(scheduler: &mut Scheduler, now: Time) {
    scheduler.cursor.planned = now;
    scheduler.cursor.has_planned = true;
    accrue(scheduler, now);
    pass_budgets(scheduler, now);
    scheduler.state.quotas.budgets.begin();
    if scheduler.state.settle(now) {
        scheduler.cursor.note_looser();
    }
    if scheduler.cursor.wake.is_some_and(|wake| wake <= now) {
        scheduler.cursor.wake = None;
        scheduler.cursor.note_looser();
    }
}

/// Brings everything that follows a workload's phase in line with it; `before` is its phase until now.
fn workload_changed(scheduler: &mut Scheduler, id: &WorkloadId, before: Option<&Phase>, now: Time) {
    let after = scheduler.state.get(id).map(|info| &info.phase);
    if matches!(after, Some(Phase::Running(_) | Phase::Leaving { .. })) && before != after {
        scheduler.retries.failures.remove(id);
        scheduler.retries.refused.remove(id);
        if std::mem::take(&mut scheduler.cursor.awaits_start) {
            scheduler.cursor.note_looser();
        }
    }
    if matches!(after, None | Some(Phase::Finished)) {
        scheduler.nominations.borrowing.remove(id);
        scheduler.nominations.broken.remove(id);
        scheduler.retries.refused.remove(id);
    }
    scheduler.deadlines.note(&mut scheduler.state, id, before, now);
    scheduler.retries.gangs.note(&scheduler.state, id, before, now);
    let prediction = &mut scheduler.prediction;
    if let Some(info) = scheduler.state.get(id).filter(|info| info.phase == Phase::Finished)
        && !info.removed
        && before != Some(&Phase::Finished)
    {
        let rebuilding = !scheduler.cursor.has_planned;
        prediction.run_times.record(&scheduler.state, info, before, (now, rebuilding));
    }
    if let Some(Phase::Running(admission)) = scheduler.state.get(id).map(|info| &info.phase)
        && matches!(before, None | Some(Phase::Pending | Phase::Starting(_)))
    {
        prediction.starts.note(id, admission.at);
    }
    drop_stale_nomination(scheduler, id);
    let prediction = &mut scheduler.prediction;
    prediction.timeline.update(&scheduler.state, &prediction.run_times, id);
    reserve::drop_stale(scheduler, id, before);
    requeue::queue_up(scheduler, id);
}

/// Decays past usage up to `now`, where it counts in fair shares.
fn accrue(scheduler: &mut Scheduler, now: Time) {
    if let Some(half_life) = scheduler.settings.usage_half_life {
        let since = std::mem::replace(&mut scheduler.cursor.accrued, now);
        scheduler.state.quotas.accrue(since, now, half_life);
        scheduler.queue.order.mark_all_stale();
    }
}

/// Lets time pass for budgets; at the start of a period more may start.
fn pass_budgets(scheduler: &mut Scheduler, now: Time) {
    if scheduler.state.pass_budgets(now) {
        scheduler.cursor.note_looser();
    }
}

/// Takes note of the past usage in the status of a team: fair shares count what was last written, whoever wrote it. An
/// engine that has not planned yet also goes on from it; later, its own value is the more precise one.
fn note_past_usage(scheduler: &mut Scheduler, past: &PastUsage, now: Time) {
    let Some(half_life) = scheduler.settings.usage_half_life else { return };
    let adopt = !scheduler.cursor.has_planned;
    scheduler.state.note_past_usage(past, now, half_life, adopt);
    scheduler.queue.order.mark_all_stale();
    // Another order may let a blocked workload start.
    scheduler.cursor.note_looser();
}

/// Takes note of what was used of a budget: more or less may be left than was counted so far.
fn note_budget_used(scheduler: &mut Scheduler, used: BudgetUsed) {
    scheduler.state.note_budget_used(used);
    scheduler.cursor.note_looser();
}

/// Takes note of the run lengths in the status of a team: backfill and reservations rest on what was last written, whoever
/// wrote it. An engine that has not planned yet also goes on from it.
fn note_run_lengths(scheduler: &mut Scheduler, lengths: &RunLengths) {
    let adopt = !scheduler.cursor.has_planned;
    let Prediction { run_times, timeline, .. } = &mut scheduler.prediction;
    if run_times.note_written(lengths, adopt) {
        timeline.predict_again(&scheduler.state, run_times, &lengths.team);
        // Another workload may backfill now.
        scheduler.cursor.note_looser();
    }
}

/// Whether an event reports more than the engine's own decisions.
fn is_external(scheduler: &Scheduler, event: &Event) -> bool {
    match event {
        Event::WorkloadApplied(workload) => {
            let known = scheduler.state.get(&workload.id).map(|info| &info.workload);
            matches!(workload.state, Observed::Finished | Observed::OnHold | Observed::Unready(_))
                || known.is_none_or(|known| {
                    matches!(known.state, Observed::OnHold | Observed::Unready(_))
                        || Workload {
                            state: known.state.clone(),
                            // They change with an eviction, which is the engine's own decision.
                            evicted_for_fair_share: known.evicted_for_fair_share,
                            evicted: known.evicted,
                            ..Workload::clone(workload)
                        } != **known
                })
        }
        Event::PodApplied(pod) => {
            pod.workload.as_ref().is_none_or(|owner| scheduler.state.get(owner).is_none())
        }
        Event::PodRemoved(_)
        | Event::PodNotEnded(_)
        | Event::WriteFailed { .. }
        | Event::AdmissionRefused(_)
        | Event::PodsReady(_)
        | Event::PastUsage(_)
        | Event::BudgetUsed(_)
        | Event::RunLengths(_) => false,
        Event::WorkloadRemoved(_)
        | Event::ObjectChanged(_)
        | Event::PodsMisplaced(_)
        | Event::TeamApplied(_)
        | Event::TeamRemoved(_)
        | Event::PoolApplied(_)
        | Event::PoolRemoved(_)
        | Event::NodeApplied(_)
        | Event::NodeRemoved(_) => true,
    }
}

/// Whether an event only shows what follows from the engine's own decisions.
fn is_echo(scheduler: &Scheduler, event: &Event) -> bool {
    match event {
        Event::PodRemoved(pod) => scheduler.state.is_ending(pod),
        Event::PodsReady(_) | Event::PastUsage(_) | Event::BudgetUsed(_) | Event::RunLengths(_) => true,
        Event::WriteFailed { .. } | Event::AdmissionRefused(_) | Event::PodNotEnded(_) => false,
        _ => !is_external(scheduler, event),
    }
}

/// The subject of an event.
fn change(event: &Event) -> Change {
    match event {
        Event::TeamApplied(Team { name, .. })
        | Event::TeamRemoved(name)
        | Event::PastUsage(PastUsage { team: name, .. })
        | Event::BudgetUsed(BudgetUsed { team: name, .. })
        | Event::RunLengths(RunLengths { team: name, .. }) => Change::Team(name.clone()),
        Event::PoolApplied(Pool { name, .. }) | Event::PoolRemoved(name) => Change::Pool(name.clone()),
        Event::NodeApplied(Node { name, .. }) | Event::NodeRemoved(name) => Change::Node(name.clone()),
        Event::WorkloadApplied(workload) => Change::Workload(workload.id.clone()),
        Event::WorkloadRemoved(id)
        | Event::PodsMisplaced(MisplacedPods { workload: id, .. })
        | Event::PodsReady(PodsReady { workload: id, .. })
        | Event::WriteFailed { workload: id, .. }
        | Event::AdmissionRefused(id)
        | Event::ObjectChanged(id) => Change::Workload(id.clone()),
        Event::PodApplied(Pod { id, .. }) | Event::PodRemoved(id) | Event::PodNotEnded(id) => {
            Change::Pod(id.clone())
        }
    }
}

/// Takes back a decision after its write failed; it is made again after a pause.
fn write_failed(scheduler: &mut Scheduler, id: &WorkloadId, message: String, now: Time) {
    let Some(info) = scheduler.state.get(id) else { return };
    let phase = match &info.phase {
        Phase::Starting(_) | Phase::Failing(None) => next_phase(&Phase::Pending, &info.workload),
        Phase::Stopping(admission)
        | Phase::Failing(Some(admission))
        | Phase::Resizing { from: admission, .. } => Phase::Running(admission.clone()),
        _ => return,
    };
    scheduler.state.set_phase(id, phase);
    scheduler.cursor.note_looser();
    // Its eviction did not happen.
    scheduler.nominations.borrowing.values_mut().for_each(|preemptions| _ = preemptions.victims.remove(id));
    scheduler.retries.failed(id, message, now);
}

/// Notes that an admission is refused until its object changes: until then its workload takes free capacity only.
fn admission_refused(scheduler: &mut Scheduler, id: WorkloadId) {
    if scheduler.state.get(&id).is_some_and(|info| info.phase == Phase::Pending) {
        scheduler.retries.refused.insert(id.clone());
        requeue::queue_again(scheduler, &id);
    }
}

/// Lets a workload with a refused admission preempt again.
fn object_changed(scheduler: &mut Scheduler, id: &WorkloadId) {
    if scheduler.retries.refused.remove(id) {
        requeue::queue_again(scheduler, id);
    }
}

/// Notes whether a change may let blocked workloads start.
fn note(scheduler: &mut Scheduler, effect: Effect) {
    match effect {
        Effect::Tighter => {}
        Effect::Looser => scheduler.cursor.note_looser(),
        Effect::RequeueAll => scheduler.cursor.note_requeue_all(),
    }
}

/// Records a change of teams. A change of numbers alone, such as an edit of a quota, moves no workload: only what is charged
/// otherwise then is charged again.
fn change_teams(scheduler: &mut Scheduler, event: Event, now: Time) {
    scheduler.cursor.note_external_change();
    if scheduler.state.moves_workloads(&event) {
        return move_workloads(scheduler, event, now);
    }
    let changed = match &event {
        Event::TeamApplied(Team { name, .. }) => Some(name.clone()),
        _ => None,
    };
    let effect = scheduler.state.apply(event);
    scheduler.nominations.charge_again(&mut scheduler.state);
    note(scheduler, effect);
    // With other limits and guarantees, what still lacks quota may own a reservation that it could not own before.
    let Scheduler { state, queue, .. } = scheduler;
    let at = changed.and_then(|name| state.quotas.find_team(&name)?.path.first().copied());
    let below = at.into_iter().flat_map(|at| state.quotas.at_or_below(at));
    below.for_each(|team| queue.pending.requeue_limited(team));
}

/// Records a change of teams that may move paths and queues: nominated capacity is taken off the quota tree before and added
/// again afterwards, and every workload is requeued.
fn move_workloads(scheduler: &mut Scheduler, event: Event, now: Time) {
    let paused: Vec<WorkloadId> = paused(scheduler);
    let effect = scheduler.without_charges(|scheduler| scheduler.state.apply(event));
    note(scheduler, effect);
    if effect == Effect::RequeueAll {
        let quotas = &scheduler.state.quotas;
        scheduler.reservations.set_roots(|team| quotas.root_of(team));
        // The wait of what was kept back begins now, so that no workload fails for a pause of its queue.
        for id in paused {
            if scheduler.state.get(&id).is_some_and(|info| !scheduler.state.is_paused(info)) {
                scheduler.deadlines.restart_wait(id, now);
            }
        }
        let ids: Vec<WorkloadId> = scheduler.state.iter().map(|info| info.workload.id.clone()).collect();
        for id in ids {
            if scheduler.state.get(&id).is_some_and(|info| scheduler.state.is_paused(info)) {
                drop_stale_nomination(scheduler, &id);
                reserve::drop_stale(scheduler, &id, Some(&Phase::Pending));
            }
            requeue::queue_up(scheduler, &id);
        }
    }
}

/// The waiting workloads of paused queues.
fn paused(scheduler: &Scheduler) -> Vec<WorkloadId> {
    let state = &scheduler.state;
    let paused = state.iter().filter(|info| info.phase == Phase::Pending && state.is_paused(info));
    paused.map(|info| info.workload.id.clone()).collect()
}

/// Releases capacity nominated to a workload that does not wait for it any more. If it still waits, it was edited: the
/// records of further victims name that edit.
fn drop_stale_nomination(scheduler: &mut Scheduler, id: &WorkloadId) {
    let Some(nomination) = scheduler.nominations.of(id) else { return };
    let state = &scheduler.state;
    let stands = |info: &WorkloadInfo| nomination.is_for(info) && !state.is_paused(info);
    let waits = |info: &WorkloadInfo| {
        let wants = matches!(info.phase, Phase::Pending | Phase::Stopping(_) | Phase::Leaving { .. });
        wants && !info.removed && !info.workload.hold && !state.is_paused(info)
    };
    let edited = state.get(id).is_some_and(waits);
    if !state.get(id).is_some_and(stands) && scheduler.end_nomination(id).is_some() {
        let change = scheduler.cursor.latest_change().cloned().filter(|_| edited);
        let broken = change.map(|change| BrokenPlan { why: Broken::After(change), victims: Vec::new() });
        scheduler.nominations.broken.extend(broken.map(|broken| (id.clone(), broken)));
        scheduler.cursor.note_looser();
    }
}
