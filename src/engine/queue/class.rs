//! Classes of waiting workloads, and the status of a class.
//!
//! Two workloads of a class differ only in their queue position. If the first cannot start, none can.
//! In a team that orders its users by usage, a class belongs to one user, so a change of the user's usage
//! moves whole classes.
//!
//! A blocked class is requeued when one of its conditions changes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::queue::rank::Rank;
use crate::state::users::UserShare;
use crate::types::ids::{ClassId, HeadroomId, PoolId, TeamId};
use crate::types::ratio::Ratio;
use crate::types::{Name, PodShape, Profile, Size, Topology, Verdict};

/// The properties that decisions about a workload depend on, except its queue position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassKey {
    /// The name of its queue.
    pub queue: Option<Name>,
    /// Its PriorityClass value.
    pub priority: i32,
    /// How many pods it asks for.
    pub pods: u32,
    /// The smallest number of pods with which it can start.
    pub least_pods: u32,
    /// The requirements of each pod.
    pub shape: Arc<PodShape>,
    /// The smaller sizes that it accepts.
    pub sizes: Vec<Size>,
    /// The topology domains that its pods must share.
    pub topology: Topology,
    /// The labels and constraints of its pods, where they matter to a placement; only the labels that a constraint looks
    /// at.
    pub profile: Option<Arc<Profile>>,
    /// The pools that it may use.
    pub pools: Vec<Name>,
    /// Whether it can be evicted.
    pub evictable: bool,
    /// Whether its admission is refused until its object changes, so that it preempts no other.
    pub refused: bool,
    /// Its longest possible run, which decides where it may backfill.
    pub time_limit: Option<Duration>,
    /// Its user, in a team that orders its users by usage.
    pub user: Option<Name>,
}

/// A condition that must change before a class can start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Capacity for this many pods of a shape must become free.
    Headroom(HeadroomId, u64),
    /// The usage of a team in a pool must change.
    Quota(PoolId, TeamId),
    /// More of the guarantee of a team must be idle.
    Guarantee(PoolId, TeamId),
    /// A team with at least this share must have usage that preemption can take.
    Share(PoolId, Ratio),
    /// The usage of a queue must change.
    Queue(TeamId, Name),
    /// More must be left of the budget of a team.
    Budget(TeamId),
}

/// Why a waiting workload cannot start now.
pub enum Blocked {
    /// It cannot start before one of these conditions changes.
    Until(Vec<Condition>),
    /// It cannot start before one of these conditions changes, unless preemption frees capacity for it.
    MayPreempt {
        /// The conditions that keep it from starting.
        conditions: Vec<Condition>,
        /// The guarantees that cover it.
        covered: Covered,
        /// Whether it can only borrow, so that its searches are made at a [pace](crate::queue::pace::Pace).
        paced: bool,
    },
    /// No condition is known that keeps it from starting.
    Unknown,
}

impl Blocked {
    /// Whether preemption may let a workload start that can only borrow.
    pub(super) fn is_paced(&self) -> bool {
        matches!(self, Self::MayPreempt { paced: true, .. })
    }

    /// Whether a workload is within guarantee that preemption may let start.
    pub(super) fn is_within_guarantee(&self) -> bool {
        matches!(self, Self::MayPreempt { covered: Covered::ByPath, .. })
    }
}

/// The guarantees that cover one more workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Covered {
    /// Not that of its own team.
    Beyond,
    /// That of its own team, but not all of those above it.
    ByTeam,
    /// All on its path: it is within guarantee (law 2).
    ByPath,
}

/// Whether a class is attempted.
#[derive(Clone, Debug, Default)]
pub(super) enum Status {
    /// It may be able to start.
    #[default]
    Active,
    /// It could not start in generation `since`. Any freed capacity may change that.
    Backlog { since: u64 },
    /// It cannot start before one of these conditions changes.
    Blocked { until: Vec<Condition> },
    /// It cannot start before one of these conditions changes, unless preemption frees capacity for it. No
    /// preemption was possible in generation `since`.
    MayPreempt { until: Vec<Condition>, covered: Covered, paced: bool, since: u64 },
}

impl Status {
    /// The status of a class that was found blocked in a generation.
    pub(super) fn blocked(found: Blocked, since: u64) -> Self {
        match found {
            Blocked::Until(until) => Self::Blocked { until },
            Blocked::MayPreempt { conditions: until, covered, paced } => {
                Self::MayPreempt { until, covered, paced, since }
            }
            Blocked::Unknown => Self::Backlog { since },
        }
    }

    /// The conditions that the class is blocked on.
    pub(super) fn conditions(&self) -> &[Condition] {
        match self {
            Self::Blocked { until } | Self::MayPreempt { until, .. } => until,
            Self::Active | Self::Backlog { .. } => &[],
        }
    }

    /// Whether the class waits for quota, and not for headroom or a budget.
    pub(super) fn lacks_quota(&self) -> bool {
        let until = self.conditions();
        let other =
            |condition: &Condition| matches!(condition, Condition::Headroom(..) | Condition::Budget(_));
        !until.is_empty() && !until.iter().any(other)
    }

    /// Whether the class was within guarantee when it was looked at last, and preemption may let it start.
    pub(super) fn is_within_guarantee(&self) -> bool {
        matches!(self, Self::MayPreempt { covered: Covered::ByPath, .. })
    }

    /// Whether the class may turn out to be within guarantee. A blocked class is known not to be.
    pub(super) fn may_be_within_guarantee(&self) -> bool {
        !matches!(self, Self::Blocked { .. } | Self::MayPreempt { covered: Covered::Beyond, .. })
    }
}

/// Waiting workloads of one team that no decision can tell apart.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) team: TeamId,
    pub(super) key: ClassKey,
    pub(super) waiting: BTreeSet<Rank>,
    /// The usage of their user, in a team that orders its users by usage.
    pub(super) user_usage: UserShare,
    pub(super) status: Status,
    /// The generation in which victims were searched last for it as a borrower, if they were.
    pub(super) searched: Option<u64>,
    /// If such a search was put off, its place among those to be made: see [`Class::search_before`].
    pub(super) put_off: Option<u64>,
    /// Whether it was put off in the attempt that is under way.
    pub(super) put_off_now: bool,
    /// Why the first workload could not start at its last attempt.
    pub(super) refusal: Option<Verdict>,
}

impl Class {
    /// The first workload of the class, with its rank in the team.
    pub(super) fn first(&self) -> Option<Rank> {
        self.waiting.first().map(|first| first.clone().with_user_usage(self.user_usage))
    }

    /// The generation of its last search as a borrower, or the one before a generation if that is earlier: so it is due in this
    /// generation, after those that have not searched for longer.
    pub(super) fn search_before(&self, generation: u64) -> u64 {
        self.searched.unwrap_or(0).min(generation.saturating_sub(1))
    }

    /// Its place among the searches of borrowers that are due, or will be in a later generation; `None` if none is to be made.
    pub(super) fn search_place(&self) -> Option<u64> {
        self.put_off.or(match self.status {
            Status::MayPreempt { paced: true, since, .. } => Some(since),
            _ => None,
        })
    }

    /// The demand of its workloads.
    pub(super) fn demand(&self) -> Demand {
        let ClassKey { least_pods, shape, topology, profile, pools, .. } = &self.key;
        (*least_pods, Arc::clone(shape), topology.clone(), profile.clone(), pools.clone())
    }
}

/// The first workload of a class, in the order of its team.
pub type First = (Rank, ClassId);

/// The demand of a class: the number of pods it must have, their shape, topology, profile and allowed pools.
pub type Demand = (u32, Arc<PodShape>, Topology, Option<Arc<Profile>>, Vec<Name>);
