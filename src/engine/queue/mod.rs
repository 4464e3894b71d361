//! The workloads that wait, in order, and the conditions that each class of them is blocked on.
//!
//! Workloads that no decision can tell apart form a class, and only the first of a class is attempted.
//! A class that cannot start is blocked on conditions: headroom, quota usage, fair shares. A blocked class
//! is requeued when one of its conditions changes.

pub mod again;
pub mod class;
mod conditions;
pub mod headroom;
pub mod order;
mod pace;
pub mod pending;
mod places;
mod preemptors;
pub mod rank;
pub mod reclaimable;
mod retry;
mod user_order;
pub mod victim_teams;

use crate::state::cluster::ClusterState;
use crate::state::workload::WorkloadInfo;
use headroom::Headroom;
use order::Order;
use pending::Pending;
use rank::Rank;
use reclaimable::Reclaimable;
use user_order::UserOrder;

/// The waiting workloads and the indexes that tell which of them may start.
#[derive(Clone, Debug, Default)]
pub struct WaitQueue {
    /// Waiting workloads by team and class.
    pub pending: Pending,
    /// The teams with a workload that may start, in order.
    pub order: Order,
    /// How many pods of each shape fit.
    pub headroom: Headroom,
    /// Usage of each team that preemption might take.
    pub reclaimable: Reclaimable,
    /// The places that users exchange among their own work.
    pub user_order: UserOrder,
}

impl WaitQueue {
    /// The rank that a workload has inside its class, or would have if it were queued.
    #[must_use]
    pub fn rank_in_class(&self, state: &ClusterState, info: &WorkloadInfo) -> Rank {
        let place = self.user_order.place(&info.workload.id);
        Rank::new(state.priority_of(info), &info.workload, info.index).raised(info.raised).in_place(place)
    }

    /// The rank among the waiting workloads of its team that a workload would have if it were queued.
    #[must_use]
    pub fn rank_if_queued(&self, state: &ClusterState, info: &WorkloadInfo) -> Rank {
        let user = state.quotas.user_of(info.team, info.workload.user.as_ref()).map(|(_, user)| user);
        let usage = state.user_share(info.team, user.as_ref(), &info.workload.pools);
        self.rank_in_class(state, info).with_user_usage(usage)
    }

    /// Drops the fit counts that no waiting workload is blocked on.
    pub fn forget_unused_headroom(&mut self) {
        let Self { pending, headroom, .. } = self;
        headroom.retain(|fit| pending.waits_for(fit));
    }
}
