//! The face of the engine: events in, plans and answers out.

mod verdict;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cycle::events;
use crate::cycle::{self, deadlines};
use crate::scheduler::Scheduler;
use crate::state::workload::WorkloadInfo;
use crate::types::amount::{Amount, ResourceList};
use crate::types::{
    BudgetView, Effort, Event, Name, NodeView, Overcommitment, PlaceView, Plan, QueueView, ReservationView,
    RunLengths, Settings, TeamView, Time, UnadmittedView, Verdict, Workload, WorkloadId,
};

/// The scheduling engine: the state of the cluster as decisions see it, and the decisions not yet confirmed.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    pub(crate) scheduler: Scheduler,
    changes: u64,
}

impl Engine {
    /// An engine that knows no objects yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An engine with other settings than the default ones.
    #[must_use]
    pub fn with_settings(settings: Settings) -> Self {
        let mut scheduler = Scheduler { settings, ..Scheduler::default() };
        scheduler.state.quotas.budgets.set_calendar(settings.calendar);
        scheduler.queue.pending.set_pace(settings.searches_a_second);
        Self { scheduler, changes: 0 }
    }

    /// Records one change at time `now`. Cheap: the next plan works out what follows from it.
    pub fn apply(&mut self, event: Event, now: Time) {
        self.changes += 1;
        events::apply(&mut self.scheduler, event, now);
    }

    /// Decides everything that can be decided at time `now`. A second plan without an event in
    /// between is empty, unless a deadline has passed.
    ///
    /// Work beyond the search budget is left for the next plan, which [`Engine::next_deadline`] then asks
    /// for at once: events of the meantime are decided first.
    pub fn plan(&mut self, now: Time) -> Plan {
        let plan = cycle::run(&mut self.scheduler, now);
        self.changes += u64::from(!plan.actions.is_empty());
        plan
    }

    /// The number of events and of plans with actions so far: while it stays the same, so do the answers at one time.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// When `plan` should be called again even if no event comes; `None` when only events matter.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        deadlines::next(&self.scheduler)
    }

    /// When the age of a workload changes what it may do: a victim is no longer protected by its minimum run time, or a workload
    /// has waited long enough for a reservation.
    #[must_use]
    pub fn next_deadline_by_age(&self) -> Option<Time> {
        deadlines::next_by_age(&self.scheduler)
    }

    /// When time alone may change a decision for another reason than that.
    #[must_use]
    pub fn next_deadline_but_by_age(&self) -> Option<Time> {
        deadlines::next_but_by_age(&self.scheduler)
    }

    /// Whether the last plan has left work for the next one, which may be made at once.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.scheduler.has_more()
    }

    /// The state of a workload and its reason; `None` when the workload is unknown.
    #[must_use]
    pub fn verdict(&self, id: &WorkloadId) -> Option<Verdict> {
        verdict::verdict(&self.scheduler, id)
    }

    /// Whether an admitted workload asks for nothing that any quota of its pool lists.
    #[must_use]
    pub fn is_outside_quotas(&self, id: &WorkloadId) -> bool {
        let admitted = self.scheduler.state.get(id).filter(|info| info.phase.admission().is_some());
        admitted.is_some_and(|info| verdict::is_outside_quotas(&self.scheduler, info))
    }

    /// Whether a workload asks for nothing that any quota of a pool lists.
    #[must_use]
    pub fn is_outside_quotas_of(&self, id: &WorkloadId, pool: &str) -> bool {
        let state = &self.scheduler.state;
        let found = state.get(id).zip(state.quotas.pool(pool));
        found.is_some_and(|(info, pool)| verdict::is_outside_quotas_of(&self.scheduler, info, pool))
    }

    /// Every known workload, by identity.
    pub fn workloads(&self) -> impl Iterator<Item = &Arc<Workload>> {
        self.workloads_after(None)
    }

    /// Every known workload with an identity after this one, in their order.
    pub fn workloads_after(&self, id: Option<&WorkloadId>) -> impl Iterator<Item = &Arc<Workload>> {
        let managed = |info: &&WorkloadInfo| !info.removed && info.unadmitted.is_none();
        self.scheduler.state.iter_after(id).filter(managed).map(|info| &info.workload)
    }

    /// A workload as last seen; `None` when it is unknown.
    #[must_use]
    pub fn workload(&self, id: &WorkloadId) -> Option<&Workload> {
        self.scheduler.state.get(id).filter(|info| !info.removed).map(|info| &*info.workload)
    }

    /// The priority of a workload's queue, and whether the workload may be preempted while it runs; `None` when the
    /// workload or its queue is unknown.
    #[must_use]
    pub fn standing(&self, id: &WorkloadId) -> Option<(i32, bool)> {
        let state = &self.scheduler.state;
        let info = state.get(id).filter(|info| !info.removed)?;
        Some((state.queue_of(info).ok()?.priority, state.preemptible(info)))
    }

    /// Every team in every pool in which it has a quota or usage.
    #[must_use]
    pub fn teams(&self) -> Vec<TeamView> {
        views::teams(&self.scheduler.state)
    }

    /// Every team with a budget, with what is used of it at `now`.
    #[must_use]
    pub fn budgets(&self, now: Time) -> Vec<BudgetView> {
        views::budgets(&self.scheduler.state, now)
    }

    /// How long the runs of each team took, to be written in its status. That of a team without a new run is the same as at
    /// the last question, not an equal one.
    pub fn run_lengths(&self) -> impl Iterator<Item = Arc<RunLengths>> {
        self.scheduler.prediction.run_times.summaries()
    }

    /// The latest starts, the oldest first.
    pub fn latest_starts(&self) -> impl Iterator<Item = &(WorkloadId, Time)> {
        self.scheduler.prediction.starts.latest()
    }

    /// Notes from now on which workloads are charged again, for [`Engine::take_recharged`].
    pub fn note_charges(&mut self) {
        self.scheduler.state.recharged.get_or_insert_default();
    }

    /// Takes the workloads that were charged again since the last call. What they are charged may be the same.
    pub fn take_recharged(&mut self) -> BTreeSet<WorkloadId> {
        self.scheduler.state.recharged.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What a workload is charged now: its record or its pods, whichever is more (law 16). Empty when it is unknown.
    #[must_use]
    pub fn charge_of(&self, id: &WorkloadId) -> ResourceList {
        views::charge_of(&self.scheduler.state, id)
    }

    /// The resources that the teams' quotas list.
    #[must_use]
    pub fn resources_in_quotas(&self) -> BTreeSet<Name> {
        let teams = self.scheduler.state.quotas.teams().filter_map(|(_, info)| info.team.as_ref());
        let quotas = teams.flat_map(|team| team.quotas.values());
        quotas.flat_map(|quota| quota.guaranteed.keys().chain(quota.limit.keys())).cloned().collect()
    }

    /// What an amount is worth in the currency of a pool; nothing where the pool has none.
    #[must_use]
    pub fn in_currency(&self, pool: &str, list: &ResourceList) -> Option<Amount> {
        self.scheduler.state.in_currency(pool, list)
    }

    /// Pods that were never admitted and are charged to their team, by team, pool, namespace and owner.
    #[must_use]
    pub fn unadmitted(&self) -> Vec<UnadmittedView> {
        views::unadmitted(&self.scheduler.state)
    }

    /// Every queue of every team.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueView> {
        views::queues(&self.scheduler.state)
    }

    /// The reservations that keep nodes or quota, by pool.
    #[must_use]
    pub fn reservations(&self) -> Vec<ReservationView> {
        cycle::reserve::views(&self.scheduler)
    }

    /// The position of a workload among those of its team that wait for the same pool, and their number; `None` if it is
    /// not in the queue.
    #[must_use]
    pub fn position(&self, id: &WorkloadId) -> Option<(usize, usize)> {
        self.scheduler.queue.pending.position(id)
    }

    /// Where each workload stands in the queue.
    #[must_use]
    pub fn places(&self) -> BTreeMap<WorkloadId, PlaceView> {
        self.scheduler.queue.places(&self.scheduler.state)
    }

    /// Where one workload stands in the queue; `None` if it does not wait there.
    #[must_use]
    pub fn place(&self, id: &WorkloadId) -> Option<PlaceView> {
        self.scheduler.queue.place(&self.scheduler.state, id)
    }

    /// Every node.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeView> {
        views::nodes(&self.scheduler.state)
    }

    /// The submission time of the oldest waiting workload within guarantee, by team.
    #[must_use]
    pub fn oldest_within_guarantee(&self) -> BTreeMap<Name, Time> {
        views::oldest_within_guarantee(&self.scheduler.state)
    }

    /// Guarantees that the nodes, or a parent's guarantee, do not cover.
    #[must_use]
    pub fn overcommitments(&self) -> Vec<Overcommitment> {
        views::overcommitments(&self.scheduler.state)
    }

    /// How much was searched for victims so far.
    #[must_use]
    pub fn effort(&self) -> Effort {
        self.scheduler.cursor.effort
    }
}
