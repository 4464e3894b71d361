//! Teams, their quotas and their queues.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::types::amount::{Amount, ResourceList};
use crate::types::calendar::Period;
use crate::types::name::Name;

/// A team: its quotas and its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// Its name.
    pub name: Name,
    /// The team above it, if any.
    pub parent: Option<Name>,
    /// Its quota in each pool it names; a pool it does not name guarantees nothing.
    pub quotas: BTreeMap<Name, Quota>,
    /// Its weight in fair shares; a team of weight zero borrows only what no other team asks for.
    pub weight: u32,
    /// Its queues, the default first; never empty.
    pub queues: Vec<Queue>,
    /// Whether its users take turns: at equal priority, the user with the least usage comes first.
    pub fair_users: bool,
    /// What it and the teams below it may use in a period, if that is bounded.
    pub budget: Option<Budget>,
}

/// What a team and the teams below it may use in a period: devices × time, in the currency of each pool where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// GPU-hours.
    pub amount: Amount,
    /// When it is full again.
    pub period: Period,
    /// What follows once it is spent. Running work goes on in every case.
    pub on_exhausted: OnExhausted,
}

/// What follows once a budget does not cover a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnExhausted {
    /// It is said, nothing else changes.
    #[default]
    Notify,
    /// The workload starts only on idle capacity, after every other borrower, and no guarantee protects it.
    BorrowOnly,
    /// The workload does not start, and no running one is given more pods.
    Hold,
}

impl OnExhausted {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Notify => "Notify",
            Self::BorrowOnly => "BorrowOnly",
            Self::Hold => "Hold",
        }
    }
}

/// The quota of a team in one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The amounts that the team can always reclaim. A resource in no list is not limited.
    pub guaranteed: ResourceList,
    /// The most usage, own and borrowed. A resource that is not listed has no cap.
    pub limit: ResourceList,
    /// The most that it lends while idle. Not listed: its whole guarantee.
    pub lendable: ResourceList,
}

/// A class of service inside a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name, unique in the team.
    pub name: Name,
    /// A higher priority comes first inside the team.
    pub priority: i32,
    /// Whether its workloads may be evicted. Workloads that may not must fit the guarantee.
    pub preemptible: bool,
    /// The most usage of the queue. A resource that is not listed has no cap.
    pub limit: ResourceList,
    /// The run time during which borrowing preemptors do not evict a workload.
    pub min_runtime: Duration,
    /// How long after that it may be evicted for the fair share of another team.
    pub fair_share_window: FairShareWindow,
    /// The wait after which a workload gets a reservation even if its start cannot be predicted.
    pub reserve_after: Duration,
    /// The time limit of workloads that state none.
    pub default_time_limit: Option<Duration>,
    /// The longest a workload may wait, if bounded.
    pub max_wait: Option<Duration>,
    /// The action after `max_wait`.
    pub on_max_wait: OnMaxWait,
    /// The longest a workload may run, if bounded; then it fails.
    pub max_runtime: Option<Duration>,
    /// What happens when a workload loses a pod: with its node, by deletion or eviction, or because it failed for good.
    pub on_pod_loss: OnPodLoss,
    /// What happens to pods on a node that does not answer.
    pub on_unreachable: OnUnreachable,
    /// The time after admission within which all pods of a workload with several must be ready, if bounded;
    /// otherwise the whole workload is queued again.
    pub ready_timeout: Option<Duration>,
    /// Whether its workloads are kept from starting.
    pub paused: Paused,
}

impl Queue {
    /// The queue of a team that defines none: preemptible, no minimum run time.
    #[must_use]
    pub fn fallback() -> Self {
        Self {
            name: "default".into(),
            priority: 0,
            preemptible: true,
            limit: ResourceList::new(),
            min_runtime: Duration::ZERO,
            fair_share_window: FairShareWindow::default(),
            reserve_after: Duration::from_secs(600),
            default_time_limit: None,
            max_wait: None,
            on_max_wait: OnMaxWait::Notify,
            max_runtime: None,
            on_pod_loss: OnPodLoss::Replace,
            on_unreachable: OnUnreachable::End,
            ready_timeout: None,
            paused: Paused::No,
        }
    }
}

/// How long a running workload may be evicted for the fair share of another team, once its minimum run time is over
/// (law 5). After that it gives way to workloads within guarantee only: fair shares are settled among the new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairShareWindow {
    /// For this long.
    For(Duration),
    /// As long as it runs.
    Always,
    /// Not at all.
    Never,
}

impl Default for FairShareWindow {
    fn default() -> Self {
        Self::For(Duration::from_secs(600))
    }
}

/// The action when a workload has waited for its queue's `max_wait`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMaxWait {
    /// The verdict says so; nothing else changes.
    #[default]
    Notify,
    /// The workload comes before all workloads of its team that have not waited that long.
    RaisePriority,
    /// The workload fails.
    Fail,
}

/// Whether the workloads of a queue are kept from starting. They keep their places meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paused {
    /// They start as usual.
    #[default]
    No,
    /// None starts, and none is given more pods; what runs goes on.
    Hold,
    /// None starts, and what runs returns to the queue where it may be evicted and can be queued again.
    Drain,
}

impl Paused {
    /// Its name; empty for a queue that is not paused.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::No => "",
            Self::Hold => "Hold",
            Self::Drain => "Drain",
        }
    }
}

/// What happens when a workload loses a pod: with its node, by deletion or eviction, or because it failed for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPodLoss {
    /// The lost pods are replaced within the same topology domain; without capacity there, the whole
    /// workload is queued again.
    #[default]
    Replace,
    /// The whole workload is queued again.
    Restart,
}

/// What happens to pods on a node that has not answered for too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnUnreachable {
    /// They are ended without their kubelet, and the workload goes on elsewhere. A pod may still run on its node.
    #[default]
    End,
    /// The workload waits until the node answers or is deleted: its work must never run twice.
    Wait,
}
