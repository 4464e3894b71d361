//! Capacity nominated to preemptors and to workloads that move.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::placement::Placement;
use crate::placement::waiting::WaitingWorkload;
use crate::preemption::{Nominated, Take};
use crate::scheduler::watch::{Room, Watch};
use crate::state::cluster::ClusterState;
use crate::state::quotas::Account;
use crate::state::rules::oversize_in;
use crate::state::users::UserOf;
use crate::state::workload::{Phase, WorkloadInfo, queue_name};
use crate::types::ids::{PoolId, TeamId, WorkloadIndex};
use crate::types::vector::Vector;
use crate::types::{Admission, Name, PodId, PodShape, Profile, Time, Topology, WorkloadId};

/// Capacity nominated to a workload, which starts once the capacity is free.
#[derive(Clone, Debug)]
pub struct Nomination {
    /// The workload.
    pub id: WorkloadId,
    /// Its index in the state.
    pub index: WorkloadIndex,
    /// Its team.
    pub team: TeamId,
    /// Whether it runs elsewhere until then.
    pub moves: bool,
    /// Whether it is within guarantee by its plan, perhaps only in exchange for victims under the same team above it.
    pub within_guarantee: bool,
    /// Whether it is never preempted.
    pub fixed: bool,
    /// The levels of its team's path with guarantees that are smaller than the workload.
    pub oversize: Vec<TeamId>,
    /// The queue that counts it against its cap.
    pub queue: Name,
    /// Its user, where users of the team take turns.
    pub user: Option<UserOf>,
    /// The pool in which it starts.
    pub pool: PoolId,
    /// The shape of its pods.
    pub shape: Arc<PodShape>,
    /// The topology domains for which it asks.
    pub topology: Topology,
    /// The labels of its pods, and their constraints on other pods.
    pub profile: Arc<Profile>,
    /// The number of pods with which it starts.
    pub pods: u32,
    /// The need of one pod.
    pub need: Vector,
    /// The need of all pods.
    pub total: Vector,
    /// What it may use of budgets by its time limit.
    pub commitment: i128,
    /// The nominated nodes, with the number of pods on each.
    pub placement: Placement,
    /// The victims of its preemption; none where the capacity was being freed already.
    pub victims: Vec<Victim>,
    /// The reason for waiting, for the verdict.
    pub message: String,
}

/// A workload that is evicted, shrunk or moved for a preemptor.
#[derive(Clone, Debug)]
pub struct Victim {
    /// The decision.
    pub take: Take,
    /// Its index in the state.
    pub index: WorkloadIndex,
    /// Its admission before the decision.
    pub before: Admission,
}

impl Victim {
    /// Whether it runs on as before, because the decision about it was not written.
    #[must_use]
    pub fn still_runs(&self, state: &ClusterState) -> bool {
        let info = self.at_its_index(state).or_else(|| state.get(self.take.id()));
        info.is_some_and(|info| matches!(&info.phase, Phase::Running(admission) if *admission == self.before))
    }

    /// Whether it gives up its place, or some of it, and its pods there still end.
    #[must_use]
    pub fn still_ends(&self, state: &ClusterState) -> bool {
        let gives = matches!(self.take, Take::Whole(_) | Take::Shrink(..));
        let ends = |info: &WorkloadInfo| {
            info.usage.terminating_pods > 0
                && matches!(info.phase, Phase::Stopping(_) | Phase::Leaving { .. } | Phase::Resizing { .. })
        };
        gives && self.at_its_index(state).is_some_and(ends)
    }

    /// The victim at its index; `None` once it is gone, even if it has come back at another index.
    #[must_use]
    pub fn at_its_index<'a>(&self, state: &'a ClusterState) -> Option<&'a WorkloadInfo> {
        state.at(self.index).filter(|info| info.workload.id == *self.take.id())
    }
}

impl Nomination {
    /// Nominates the capacity of a placement to a workload; [`Self::nominate`] charges it.
    pub fn new(
        state: &ClusterState,
        waiting: &WaitingWorkload,
        pool: PoolId,
        placement: Placement,
        victims: Vec<Victim>,
        message: String,
    ) -> Self {
        Self {
            id: waiting.id.clone(),
            index: waiting.index,
            team: waiting.team,
            moves: false,
            within_guarantee: false,
            fixed: !waiting.preemptible,
            oversize: state.at(waiting.index).map(|info| oversize_in(state, info, pool)).unwrap_or_default(),
            queue: state
                .at(waiting.index)
                .map(|info| queue_name(&state.quotas, info))
                .unwrap_or_else(|| "".into()),
            user: waiting.user.clone(),
            pool,
            shape: Arc::clone(&waiting.shape),
            topology: waiting.topology.clone(),
            profile: Arc::clone(&waiting.profile),
            pods: waiting.pods,
            need: waiting.need.clone(),
            total: waiting.total.clone(),
            commitment: state
                .at(waiting.index)
                .and_then(|info| state.budget_need(info, pool, &waiting.total).1)
                .unwrap_or(0),
            placement,
            victims,
            message,
        }
    }

    /// Finds again what it is charged to, after a change of guarantees or queues.
    fn find_account(&mut self, state: &ClusterState) {
        if let Some(found) = self.account_in(state) {
            (self.fixed, self.oversize, self.queue) = found;
        }
    }

    /// Charges the nominated capacity again if it is charged to something else, after a change of guarantees.
    fn charge_again(&mut self, state: &mut ClusterState) {
        let known = (self.fixed, self.oversize.clone(), self.queue.clone());
        if let Some(found) = self.account_in(state).filter(|found| *found != known) {
            self.nominate(state, -1);
            (self.fixed, self.oversize, self.queue) = found;
            self.nominate(state, 1);
        }
    }

    fn account_in(&self, state: &ClusterState) -> Option<(bool, Vec<TeamId>, Name)> {
        let info = self.info(state)?;
        let queue = queue_name(&state.quotas, info);
        Some((!state.preemptible(info), oversize_in(state, info, self.pool), queue))
    }

    /// The workload, if it is still known.
    #[must_use]
    pub fn info<'a>(&self, state: &'a ClusterState) -> Option<&'a WorkloadInfo> {
        state.at(self.index).filter(|info| info.workload.id == self.id)
    }

    /// What the nominated capacity is charged to.
    #[must_use]
    pub fn account(&self) -> Account<'_> {
        Account { team: self.team, oversize: &self.oversize }
    }

    /// Charges the nominated capacity to quota tree, user and nodes `times` times; -1 releases it.
    pub fn nominate(&self, state: &mut ClusterState, times: i64) {
        state.quotas.nominate(self.pool, self.account(), &self.total, times, self.moves);
        state.quotas.commit(self.team, self.commitment, times);
        // What moves is in its queue already.
        if !self.moves {
            state.quotas.hold_queue(self.team, &self.queue, &self.total, times);
        }
        if self.fixed {
            state.quotas.hold_fixed(self.pool, self.team, &self.total, times);
        }
        if let Some(user) = &self.user {
            state.quotas.users.hold(user, self.pool, &self.total, times);
        }
        for (node, pods) in &self.placement {
            state.nodes.expect(*node, &self.profile, times * i64::from(*pods));
            state.nodes.nominate(*node, &self.need, times * i64::from(*pods));
        }
    }

    /// The workload as preemption searches see it.
    #[must_use]
    pub fn nominated(&self) -> Nominated<'_> {
        Nominated { id: &self.id, index: self.index, team: self.team }
    }

    /// The workloads that are evicted, shrunk or moved for it.
    pub fn victims(&self) -> impl Iterator<Item = &WorkloadId> {
        self.victims.iter().map(|victim| victim.take.id())
    }

    /// Whether it is still the capacity that the workload asks for.
    #[must_use]
    pub fn is_for(&self, info: &WorkloadInfo) -> bool {
        let same = |left: &Vector, right: &Vector| left.plus(right, -1).nonzero().next().is_none();
        let wanted = matches!(info.phase, Phase::Pending | Phase::Stopping(_) | Phase::Leaving { .. });
        // A workload that moves may have capacity for more pods than its minimum.
        let pods = self.pods.clamp(info.least_pods(), info.workload.pods);
        wanted
            && !info.workload.hold
            && info.team == self.team
            && same(&info.need, &self.need)
            && same(&Vector::default().plus(&info.need, i64::from(pods)), &self.total)
    }
}

/// A nomination, and what it waits for if it was looked at since it was made.
#[derive(Clone, Debug)]
struct Made {
    nomination: Nomination,
    watch: Option<Watch>,
}

impl Made {
    /// Whether it still waits for what it waited for when it was looked at.
    fn still_waits(&self, state: &ClusterState, room: &mut Room) -> bool {
        let Nomination { pool, shape, need, .. } = &self.nomination;
        let mut room = || room.of(state, *pool, shape, need);
        self.watch.as_ref().is_some_and(|watch| watch.holds(state, &mut room))
    }
}

/// All nominations.
#[derive(Clone, Debug, Default)]
pub struct Nominations {
    /// In the order in which they were made.
    made: BTreeMap<u64, Made>,
    /// The place of each workload's nomination in that order.
    places: BTreeMap<WorkloadId, u64>,
    /// The number of nominations with victims.
    preemptors: usize,
    /// The place of the next nomination.
    next: u64,
    /// The preemptions that each borrowing workload has caused.
    pub borrowing: BTreeMap<WorkloadId, BorrowingPreemptions>,
    /// When the plan of the preemptions under way was complete.
    pub plan: Option<PlanComplete>,
    /// Why the last plan for a preemptor did not hold; its next evictions name it (law 8).
    pub broken: BTreeMap<WorkloadId, BrokenPlan>,
}

/// A plan for a preemptor that did not hold.
#[derive(Clone, Debug)]
pub struct BrokenPlan {
    /// Why it does not.
    pub why: Broken,
    /// Its victims.
    pub victims: Vec<Victim>,
}

/// Why the plan of a preemption does not hold any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A workload within guarantee took over the capacity.
    TakenOver(WorkloadId),
    /// The capacity does not come free after this change.
    After(Change),
}

/// The subject of an event of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A workload came, changed or ended, or a write about it failed.
    Workload(WorkloadId),
    /// A pod came or went.
    Pod(PodId),
    /// A node came, changed or went.
    Node(Name),
    /// A team came, changed or went.
    Team(Name),
    /// A pool came, changed or went.
    Pool(Name),
}

/// The instant at which everything was decided that follows from the events until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanComplete {
    /// The number of events of the environment until then.
    pub environment: u64,
    /// The deadline that was to come next.
    pub until: Option<Time>,
}

impl PlanComplete {
    /// Whether neither an event of the environment has come since, nor the deadline.
    #[must_use]
    pub fn lasts(&self, environment: u64, now: Time) -> bool {
        self.environment == environment && self.until.is_none_or(|until| now < until)
    }
}

impl Nominations {
    /// All of them, in the order in which they were made.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Nomination> {
        self.made.values().map(|made| &made.nomination)
    }

    /// The nomination of a workload.
    #[must_use]
    pub fn of(&self, id: &WorkloadId) -> Option<&Nomination> {
        self.at(*self.places.get(id)?)
    }

    /// Whether capacity is nominated to a workload.
    #[must_use]
    pub fn contains(&self, id: &WorkloadId) -> bool {
        self.places.contains_key(id)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.made.is_empty()
    }

    /// Adds the nomination of a workload that has none, after all others.
    pub fn push(&mut self, nomination: Nomination) {
        let place = self.next;
        self.next += 1;
        self.put(place, nomination);
    }

    /// Takes the nomination of a workload out; what it charges stays charged.
    pub fn remove(&mut self, id: &WorkloadId) -> Option<Nomination> {
        self.take(*self.places.get(id)?)
    }

    /// Takes the nomination of a workload out, with its place; what it charges stays charged.
    pub fn take_of(&mut self, id: &WorkloadId) -> Option<(u64, Nomination)> {
        let place = *self.places.get(id)?;
        self.take(place).map(|nomination| (place, nomination))
    }

    /// The places of those for which `which` is true, in order.
    pub fn places(&self, which: impl Fn(&Nomination) -> bool) -> Vec<u64> {
        let found = self.made.iter().filter(|(_, made)| which(&made.nomination));
        found.map(|(place, _)| *place).collect()
    }

    /// The place after the last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.next
    }

    /// The first place after `last` and before `end` with a nomination that waits for something else than when it was looked at,
    /// or that was not looked at.
    #[must_use]
    pub fn next_due(&self, state: &ClusterState, last: Option<u64>, end: u64) -> Option<u64> {
        let mut room = Room::default();
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut made = self.made.range((after, Bound::Excluded(end)));
        made.find(|(_, made)| !made.still_waits(state, &mut room)).map(|(place, _)| *place)
    }

    /// The nominations between two places, without them.
    pub fn between(&self, last: Option<u64>, end: u64) -> impl Iterator<Item = &Nomination> {
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.made.range((after, Bound::Excluded(end))).map(|(_, made)| &made.nomination)
    }

    /// The nomination at a place.
    #[must_use]
    pub fn at(&self, place: u64) -> Option<&Nomination> {
        self.made.get(&place).map(|made| &made.nomination)
    }

    /// Notes what the nomination at a place waits for.
    pub fn watch(&mut self, place: u64, watch: Option<Watch>) {
        if let Some(made) = self.made.get_mut(&place) {
            made.watch = watch;
        }
    }

    /// Takes the nomination at a place out; what it charges stays charged.
    pub fn take(&mut self, place: u64) -> Option<Nomination> {
        let Made { nomination, .. } = self.made.remove(&place)?;
        self.places.remove(&nomination.id);
        self.preemptors -= usize::from(!nomination.victims.is_empty());
        Some(nomination)
    }

    /// Puts a nomination at the place from which it was taken.
    pub fn put(&mut self, place: u64, nomination: Nomination) {
        self.preemptors += usize::from(!nomination.victims.is_empty());
        let before = self.places.insert(nomination.id.clone(), place);
        debug_assert!(before.is_none(), "a workload has one nomination");
        self.made.insert(place, Made { nomination, watch: None });
    }

    /// Finds again what each is charged to, after a change of guarantees or queues.
    pub fn find_accounts(&mut self, state: &ClusterState) {
        self.made.values_mut().for_each(|made| made.nomination.find_account(state));
    }

    /// Charges each again that is charged to something else, after a change of guarantees.
    pub fn charge_again(&mut self, state: &mut ClusterState) {
        self.made.values_mut().for_each(|made| made.nomination.charge_again(state));
    }

    /// Charges all of them `times` times; -1 releases them.
    pub fn nominate(&self, state: &mut ClusterState, times: i64) {
        self.iter().for_each(|nomination| nomination.nominate(state, times));
    }

    /// The victims of the plan for a workload that did not hold, as far as they still end.
    #[must_use]
    pub fn still_ending(&self, state: &ClusterState, id: &WorkloadId) -> Vec<WorkloadIndex> {
        let victims = self.broken.get(id).into_iter().flat_map(|broken| &broken.victims);
        victims.filter(|victim| victim.still_ends(state)).map(|victim| victim.index).collect()
    }

    /// Whether a preemptor waits for its victims.
    #[must_use]
    pub fn preempts(&self) -> bool {
        self.preemptors > 0
    }

    /// The preemptions that a borrowing workload has caused since the last external change.
    #[must_use]
    pub fn borrowing_preemptions(
        &self,
        id: &WorkloadId,
        external_changes: u64,
    ) -> Option<&BorrowingPreemptions> {
        self.borrowing.get(id).filter(|preemptions| preemptions.at == external_changes)
    }

    /// Counts one more preemption by a borrowing workload, with the workloads that it evicts.
    pub fn note_borrowing_preemption(
        &mut self,
        id: &WorkloadId,
        external_changes: u64,
        evicted: impl Iterator<Item = WorkloadId>,
    ) {
        let preemptions = self.borrowing.entry(id.clone()).or_default();
        if preemptions.at != external_changes {
            *preemptions = BorrowingPreemptions { at: external_changes, ..BorrowingPreemptions::default() };
        }
        preemptions.count += 1;
        preemptions.victims.extend(evicted);
    }
}

/// The preemptions that one borrowing workload has caused without an external change: their number is limited
/// and no victim is taken twice, so that borrowers cannot evict each other for ever (laws 4 and 8).
#[derive(Clone, Debug, Default)]
pub struct BorrowingPreemptions {
    /// The number of external changes so far.
    pub at: u64,
    /// The number of preemptions.
    pub count: u32,
    /// The workloads that they evicted.
    pub victims: BTreeSet<WorkloadId>,
}
