//! Indexes of the workloads that hold capacity, by team and by node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::state::nodes::NodeTable;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, PoolId, TeamId, WorkloadIndex};
use crate::types::submission::SubmissionOrder;
use crate::types::{Time, WorkloadId};

/// Workloads by the team and pool they are charged to, the newest first, and by node.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    by_team: BTreeMap<(PoolId, TeamId), BTreeSet<Newest>>,
    /// Workloads that hold capacity on a node or are admitted to it, whether the node exists or not.
    by_node: BTreeMap<NodeId, BTreeSet<(WorkloadId, WorkloadIndex)>>,
}

/// Sort key of a workload: the latest admission first; of equal ones, the latest in submission order first.
/// Workloads without an admission come last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Newest {
    admitted: Reverse<Option<Time>>,
    submission_order: Reverse<SubmissionOrder>,
    /// The workload.
    pub id: WorkloadId,
    /// Its index in the register.
    pub index: WorkloadIndex,
}

impl Newest {
    /// The sort key of a workload.
    #[must_use]
    pub fn of(info: &WorkloadInfo) -> Self {
        let admitted = info.phase.admission().map(|admission| admission.at);
        Self {
            admitted: Reverse(admitted),
            submission_order: Reverse(SubmissionOrder::of(&info.workload)),
            id: info.workload.id.clone(),
            index: info.index,
        }
    }
}

impl Holders {
    /// Adds a workload with usage.
    pub fn add(&mut self, info: &WorkloadInfo, nodes: &mut NodeTable) {
        if info.usage.pods > 0 {
            self.by_team.entry((info.usage.pool, info.team)).or_default().insert(Newest::of(info));
        }
        for node in nodes_of(info, nodes) {
            self.by_node.entry(node).or_default().insert((info.workload.id.clone(), info.index));
        }
    }

    /// Removes a workload. Call it before its usage, phase or team changes.
    pub fn remove(&mut self, info: &WorkloadInfo, nodes: &mut NodeTable) {
        let item = (info.workload.id.clone(), info.index);
        remove_item(&mut self.by_team, &(info.usage.pool, info.team), &Newest::of(info));
        for node in nodes_of(info, nodes) {
            remove_item(&mut self.by_node, &node, &item);
        }
    }

    /// The workloads charged to a team in a pool, the newest first.
    pub fn of_team(&self, pool: PoolId, team: TeamId) -> impl DoubleEndedIterator<Item = WorkloadIndex> {
        self.by_team.get(&(pool, team)).into_iter().flatten().map(|newest| newest.index)
    }

    /// The teams with usage of their own workloads in a pool.
    pub fn teams_in(&self, pool: PoolId) -> impl Iterator<Item = TeamId> {
        self.by_team.range((pool, TeamId::MIN)..=(pool, TeamId::MAX)).map(|((_, team), _)| *team)
    }

    /// The workloads that hold capacity on a node or are admitted to it.
    pub fn on_node(&self, node: NodeId) -> impl Iterator<Item = (&WorkloadId, WorkloadIndex)> {
        self.by_node.get(&node).into_iter().flatten().map(|(id, index)| (id, *index))
    }
}

fn nodes_of(info: &WorkloadInfo, nodes: &mut NodeTable) -> BTreeSet<NodeId> {
    let admitted = info.phase.admission().into_iter().flat_map(|admission| admission.nodes.keys());
    let admitted = admitted.map(|name| nodes.intern(name));
    info.usage.nodes.keys().copied().chain(admitted).collect()
}

fn remove_item<K: Ord, T: Ord>(index: &mut BTreeMap<K, BTreeSet<T>>, key: &K, item: &T) {
    if let Some(items) = index.get_mut(key) {
        items.remove(item);
        if items.is_empty() {
            index.remove(key);
        }
    }
}
