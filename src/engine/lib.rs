//! The decision-maker: a deterministic state machine without I/O.
//!
//! Events go in through [`Engine::apply`], decisions come out of [`Engine::plan`]; time is an
//! argument. Cluster, simulator and tests drive the same engine.
//!
//! ```text
//!   Event ─▶ books ─────────────▶ pass ─▶ Plan
//!            nodes, forest          │ placement: which nodes
//!            (who holds what)       │ reclaim:   who must go for it
//!            pending (who waits) ◀──┘ explain:   why not
//! ```

mod admit;
pub mod amount;
mod astray;
mod books;
mod candidate;
mod claims;
pub mod decision;
mod defragment;
mod devices;
mod entry;
mod explain;
mod fair;
mod fit;
pub mod forecast;
mod forest;
pub mod forward;
mod grow;
mod history;
mod holders;
mod loss;
pub mod model;
mod nodes;
mod outlook;
mod packing;
mod pass;
mod pending;
mod placement;
mod ready;
mod reclaim;
mod reserve;
mod rooms;
mod rules;
mod seniority;
mod share;
mod sizes;
mod space;
mod stakes;
mod start;
mod timeline;
mod timers;
mod users;
mod vector;
mod victims;
mod views;
mod yielding;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use astray::Astrays;
use books::{Books, Effect};
use claims::Claim;
use decision::{Effort, NodeView, Overcommitment, Plan, QueueView, ReservationView, TeamView, Verdict};
use defragment::Watch;
use entry::{Phase, next_phase};
use forecast::{Bounds, Forecast, Prospect};
use forest::{PoolIx, TeamIx};
use history::History;
use model::{Event, Name, Observed, Settings, Time, Workload, WorkloadId, backoff};
use pass::Order;
use pending::{ClassIx, ClassKey, Pending, Rank};
use ready::Gangs;
use reserve::Turns;
use rooms::Rooms;
use timeline::Timeline;
use timers::Timers;
use yielding::Yielding;

/// The first pause after a write that failed; it doubles with every further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The state of the cluster as decisions see it, and the decisions not yet confirmed.
#[derive(Clone, Debug, Default)]
pub struct Engine {
    settings: Settings,
    /// Until when the past has been counted.
    accrued: Time,
    books: Books,
    pending: Pending,
    timers: Timers,
    history: History,
    timeline: Timeline,
    /// Who has its turn to start next.
    turns: Turns,
    /// A turn has ended, and who is next has not been asked yet.
    vacated: bool,
    /// Workloads for which room is being freed, in the order in which it was promised.
    claims: Vec<Claim>,
    /// Workloads whose last write failed.
    failures: BTreeMap<WorkloadId, Failure>,
    /// Whose pods are not where they were to go.
    astrays: Astrays,
    /// Whose pods are to be ready by when.
    gangs: Gangs,
    /// How many pods of which shape find room.
    rooms: Rooms,
    /// Of which teams somebody has to be looked at next.
    order: Order,
    /// What those who run might yield.
    yielding: Yielding,
    /// Goes up whenever somebody who could not start may be able to now.
    epoch: u64,
    /// The epoch in which elastic workloads last got what there was.
    grown: u64,
    /// The epoch that the last pass has seen.
    seen_epoch: u64,
    /// In which epoch nobody of a team was found in a pool whose turn it could be.
    turnless: BTreeMap<(PoolIx, TeamIx), u64>,
    /// Who was asked in which epoch whether it is their turn.
    asked: (u64, BTreeSet<ClassIx>),
    /// Everybody is to be looked at again.
    anew: bool,
    /// When something becomes possible by the passing of time alone.
    wake: Option<Time>,
    /// Goes up whenever something changes that is not the engine's own doing.
    outside: u64,
    /// Who made claims on the surplus.
    spent: BTreeMap<WorkloadId, Spent>,
    /// How much searching was done.
    effort: Effort,
    /// How much may still be tried in vain in this plan before the rest is left for the next.
    fuel: usize,
    /// The last plan has not looked at everybody who might start.
    cut_short: bool,
    /// When to look for somebody to move so that what is free lies together.
    defragment: Watch,
    /// When the last plan was made.
    planned: Time,
    /// Somebody's eviction could not be considered because its start was not confirmed.
    awaits_start: bool,
}

/// The claims on the surplus that somebody made without a change from outside: nobody makes many, and nobody
/// takes the same victim twice, so that claims cannot chase each other for ever (Laws 4 and 8).
#[derive(Clone, Debug, Default)]
struct Spent {
    /// What `outside` was then.
    at: u64,
    /// How many.
    claims: u32,
    /// Who had to go for them.
    victims: BTreeSet<WorkloadId>,
}

#[derive(Clone, Debug)]
struct Failure {
    /// How many writes failed in a row.
    times: u32,
    /// When to try again; none once that time has come.
    until: Option<Time>,
    /// What the API server said last.
    message: String,
}

impl Engine {
    /// An engine that knows of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An engine with other settings than the usual ones.
    #[must_use]
    pub fn with_settings(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// Takes note of one change at time `now`. Cheap: what it means is worked out by the next plan.
    pub fn apply(&mut self, event: Event, now: Time) {
        self.accrue(now);
        let subject = match &event {
            Event::WriteFailed { workload, message } => {
                self.write_failed(&workload.clone(), message.clone(), now);
                return;
            }
            Event::PodsAstray(astray) => {
                astray::note(self, astray.clone());
                return;
            }
            Event::PodsReady(told) => {
                ready::tell(self, told);
                return;
            }
            Event::WorkloadApplied(workload) => {
                ready::forgive_changed(self, workload);
                Some(workload.id.clone())
            }
            Event::WorkloadRemoved(id) => Some(id.clone()),
            Event::PodApplied(_) | Event::PodRemoved(_) => None,
            Event::TeamApplied(_) | Event::TeamRemoved(_) => {
                self.change_teams(event);
                return;
            }
            Event::PoolApplied(_) | Event::PoolRemoved(_) | Event::NodeApplied(_) | Event::NodeRemoved(_) => {
                None
            }
        };
        if self.comes_from_outside(&event) {
            self.outside += 1;
            // What takes room from a reservation may move it, and so make room elsewhere.
            self.epoch += u64::from(subject.is_none() && !self.turns.is_empty());
        }
        if let Event::NodeApplied(node) = &event {
            astray::forgive(self, &node.name.clone());
        }
        let before = subject.as_ref().and_then(|id| self.books.get(id)).map(|e| e.phase.clone());
        let effect = self.books.apply(event);
        self.note(effect);
        if let Some(id) = subject {
            let after = self.books.get(&id).map(|entry| &entry.phase);
            if matches!(after, Some(Phase::Running(_) | Phase::Leaving { .. })) && before.as_ref() != after {
                self.failures.remove(&id);
                if self.awaits_start {
                    self.awaits_start = false;
                    self.epoch += 1;
                }
            }
            if matches!(after, None | Some(Phase::Finished)) {
                self.spent.remove(&id);
            }
            self.timers.note(&mut self.books, &id, before.as_ref(), now);
            self.gangs.note(&self.books, &id, before.as_ref(), now);
            if let Some(entry) = self.books.get(&id).filter(|entry| entry.phase == Phase::Finished)
                && !entry.removed
                && before != Some(Phase::Finished)
            {
                self.history.learn(&self.books, entry, before.as_ref(), now);
            }
            self.drop_stale_claim(&id);
            self.timeline.note(&self.books, &self.history, &id);
            reserve::drop_stale(self, &id, before.as_ref());
            self.queue_up(&id);
        }
    }

    /// Decides everything that can be decided at time `now`. Planning twice without an event in
    /// between gives nothing the second time, unless a deadline has passed.
    ///
    /// What would take long is left for the next plan, which [`Engine::next_deadline`] then asks for at
    /// once: whatever has happened by then is decided first.
    pub fn plan(&mut self, now: Time) -> Plan {
        self.planned = now;
        self.accrue(now);
        if self.books.settle(now) {
            self.epoch += 1;
        }
        if self.wake.is_some_and(|wake| wake <= now) {
            self.wake = None;
            self.epoch += 1;
        }
        self.end_pauses(now);
        astray::lift(self, now);
        ready::lift(self, now);
        let mut actions = timers::fire(self, now);
        reserve::fire(self, now);
        let mut plan = pass::run(self, now);
        defragment::run(self, now, &mut plan);
        actions.append(&mut plan.actions);
        Plan { actions }
    }

    /// When `plan` should be called again even if no event comes; `None` when only events matter.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        if self.has_more() {
            return Some(self.planned);
        }
        let retry = self.failures.values().filter_map(|failure| failure.until).min();
        [
            self.wake,
            self.books.next_settle(),
            retry,
            timers::next(self),
            reserve::next(self),
            defragment::next(self),
            self.astrays.next(),
            ready::next(self),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether the last plan has left something for the next one, which may be made at once.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.cut_short || self.pending.has_doubts(self.epoch)
    }

    /// Where a workload stands and why; `None` when it is unknown.
    #[must_use]
    pub fn verdict(&self, id: &WorkloadId) -> Option<Verdict> {
        explain::verdict(self, id)
    }

    /// Every workload known, by identity.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.books.iter().filter(|entry| !entry.removed).map(|entry| &entry.workload)
    }

    /// A workload as last seen; `None` when it is unknown.
    #[must_use]
    pub fn workload(&self, id: &WorkloadId) -> Option<&Workload> {
        self.books.get(id).filter(|entry| !entry.removed).map(|entry| &entry.workload)
    }

    /// Every team in every pool in which it has a quota or holds something.
    #[must_use]
    pub fn teams(&self) -> Vec<TeamView> {
        views::teams(&self.books)
    }

    /// Every queue of every team.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueView> {
        views::queues(&self.books)
    }

    /// Room that is kept for those that cannot start yet, by pool.
    #[must_use]
    pub fn reservations(&self) -> Vec<ReservationView> {
        reserve::views(self)
    }

    /// When everybody who waits is expected to start, if nobody else comes. Plays a copy of the engine
    /// forward: nothing that decisions wait for.
    #[must_use]
    pub fn forecast(&self, now: Time, bounds: Bounds) -> Forecast {
        forecast::forecast(self, now, bounds)
    }

    /// What would become of a workload if it were submitted now: when and where it would start, who would
    /// go for it, and what it would be told. Costs as much as a forecast.
    #[must_use]
    pub fn what_if(&self, workload: Workload, now: Time, bounds: Bounds) -> Prospect {
        forecast::what_if(self, workload, now, bounds)
    }

    /// Every node.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeView> {
        views::nodes(&self.books)
    }

    /// When the oldest waiting workload was submitted that its team's guarantee covers, by team.
    #[must_use]
    pub fn oldest_owed(&self) -> BTreeMap<Name, Time> {
        views::oldest_owed(&self.books)
    }

    /// Promises that the nodes, or a parent's promise, do not cover.
    #[must_use]
    pub fn overcommitments(&self) -> Vec<Overcommitment> {
        views::overcommitments(&self.books)
    }

    /// Lets time pass over what teams held in the past, where that counts.
    fn accrue(&mut self, now: Time) {
        if let Some(half_life) = self.settings.usage_half_life {
            let since = std::mem::replace(&mut self.accrued, now);
            self.books.forest.accrue(now.since(since), half_life);
            self.order.renew();
        }
    }

    /// Whether an event tells of more than what the engine itself had decided.
    fn comes_from_outside(&self, event: &Event) -> bool {
        match event {
            Event::WorkloadApplied(workload) => {
                let known = self.books.get(&workload.id).map(|entry| &entry.workload);
                matches!(workload.state, Observed::Finished | Observed::OnHold | Observed::Unready(_))
                    || known.is_none_or(|known| {
                        matches!(known.state, Observed::OnHold | Observed::Unready(_))
                            || Workload { state: known.state.clone(), ..workload.clone() } != *known
                    })
            }
            Event::PodApplied(pod) => {
                pod.workload.as_ref().is_none_or(|owner| self.books.get(owner).is_none())
            }
            Event::PodRemoved(_) | Event::WriteFailed { .. } | Event::PodsReady(_) => false,
            Event::WorkloadRemoved(_)
            | Event::PodsAstray(_)
            | Event::TeamApplied(_)
            | Event::TeamRemoved(_)
            | Event::PoolApplied(_)
            | Event::PoolRemoved(_)
            | Event::NodeApplied(_)
            | Event::NodeRemoved(_) => true,
        }
    }

    /// How much searching for victims was done so far.
    #[must_use]
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Takes back a decision whose write failed; it may be taken again after a pause.
    fn write_failed(&mut self, id: &WorkloadId, message: String, now: Time) {
        let Some(entry) = self.books.get(id) else { return };
        let phase = match &entry.phase {
            Phase::Starting(_) | Phase::Failing(None) => next_phase(&Phase::Pending, &entry.workload.state),
            Phase::Stopping(admission)
            | Phase::Failing(Some(admission))
            | Phase::Resizing { from: admission, .. } => Phase::Running(admission.clone()),
            _ => return,
        };
        self.books.set_phase(id, phase);
        self.epoch += 1;
        // It did not go.
        self.spent.values_mut().for_each(|spent| _ = spent.victims.remove(id));
        let times = self.failures.get(id).map_or(0, |failure| failure.times);
        let pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, times);
        let failure = Failure { times: times + 1, until: Some(now.after(pause)), message };
        self.failures.insert(id.clone(), failure);
    }

    /// Takes note of what a change can mean for those who wait.
    fn note(&mut self, effect: Effect) {
        match effect {
            Effect::Tighter => {}
            Effect::Looser => self.epoch += 1,
            Effect::Anew => {
                self.epoch += 1;
                self.anew = true;
            }
        }
    }

    /// A change of teams may move paths and queues, so promises of room are taken off the accounts
    /// before and put on again after; if it does, everybody is queued up anew.
    fn change_teams(&mut self, event: Event) {
        self.outside += 1;
        let claims = std::mem::take(&mut self.claims);
        for claim in &claims {
            claim.nominate(&mut self.books, -1);
        }
        let effect = self.books.apply(event);
        for claim in &claims {
            claim.nominate(&mut self.books, 1);
        }
        self.claims = claims;
        self.note(effect);
        if effect == Effect::Anew {
            let ids: Vec<WorkloadId> = self.books.iter().map(|entry| entry.workload.id.clone()).collect();
            for id in ids {
                self.queue_up(&id);
            }
        }
    }

    /// Lets go of the room held for a workload that does not wait for it any more.
    fn drop_stale_claim(&mut self, id: &WorkloadId) {
        let Some(position) = self.claims.iter().position(|claim| claim.id == *id) else { return };
        let still_wanted = self.books.get(id).is_some_and(|entry| self.claims[position].is_for(entry));
        if !still_wanted {
            let claim = self.claims.remove(position);
            claim.nominate(&mut self.books, -1);
            self.epoch += 1;
        }
    }

    /// Lets those be tried again whose pause after a failed write is over.
    fn end_pauses(&mut self, now: Time) {
        let over = |failure: &Failure| failure.until.is_some_and(|until| until <= now);
        let due: Vec<WorkloadId> =
            self.failures.iter().filter(|(_, failure)| over(failure)).map(|(id, _)| id.clone()).collect();
        for id in due {
            if self.books.get(&id).is_none() {
                self.failures.remove(&id);
                continue;
            }
            if let Some(failure) = self.failures.get_mut(&id) {
                failure.until = None;
            }
            self.epoch += 1;
            self.queue_up(&id);
        }
    }

    /// Whether a workload's last write failed so recently that nothing is to be tried with it.
    fn pauses(&self, id: &WorkloadId) -> bool {
        self.failures.get(id).is_some_and(|failure| failure.until.is_some())
    }

    /// Puts a workload where it belongs: among those that wait, or not.
    fn queue_up(&mut self, id: &WorkloadId) {
        self.timers.arm(&mut self.books, id);
        self.gangs.arm(&self.books, id);
        let waits = self.books.get(id).filter(|entry| {
            let wants = entry.phase == Phase::Pending && !entry.removed && entry.workload.pods > 0;
            wants && !self.pauses(id) && self.gangs.rest(id).is_none()
        });
        match waits {
            Some(entry) if !self.claims.iter().any(|claim| claim.id == *id) => {
                let workload = &entry.workload;
                let key = ClassKey {
                    queue: workload.queue.clone(),
                    priority: workload.priority,
                    pods: workload.pods,
                    least_pods: entry.least_pods(),
                    shape: Arc::clone(&entry.shape),
                    sizes: workload.sizes.clone(),
                    topology: workload.topology.clone(),
                    pools: workload.pools.clone(),
                    evictable: workload.resumable || workload.expendable,
                    time_limit: workload.time_limit,
                    user: self.books.forest.user_of(entry.team, workload.user.as_ref()).map(|(_, user)| user),
                };
                let priority = rules::priority_of(&self.books, entry);
                let rank = Rank::new(priority, workload, entry.place).raised(entry.raised);
                let team = entry.team;
                let held = self.books.part_of(team, key.user.as_ref(), &key.pools);
                self.pending.insert(team, key, rank, held);
            }
            _ => self.pending.remove(id),
        }
    }
}
