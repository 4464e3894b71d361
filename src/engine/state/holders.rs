//! Who holds room where: the ways to those who run that do not lead past everybody else.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::state::nodes::NodeTable;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, PoolId, TeamId, WorkloadIndex};
use crate::types::submission::SubmissionOrder;
use crate::types::{Time, WorkloadId};

/// Workloads by the account that pays for them, the newest first, and by node, by identity.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    by_team: BTreeMap<(PoolId, TeamId), BTreeSet<Newest>>,
    /// Those that hold room on a node or were admitted to it, be it there or not.
    by_node: BTreeMap<NodeId, BTreeSet<(WorkloadId, WorkloadIndex)>>,
}

/// A workload, after those that were admitted later and, of those admitted at once, after those behind it in the
/// queue. Those that were not admitted come last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Newest {
    admitted: Reverse<Option<Time>>,
    submission_order: Reverse<SubmissionOrder>,
    /// Whose this is.
    pub id: WorkloadId,
    /// Where its entry is kept.
    pub place: WorkloadIndex,
}

impl Newest {
    /// The place of a workload among those that hold something.
    #[must_use]
    pub fn of(info: &WorkloadInfo) -> Self {
        let admitted = info.phase.admission().map(|admission| admission.at);
        Self {
            admitted: Reverse(admitted),
            submission_order: Reverse(SubmissionOrder::of(&info.workload)),
            id: info.workload.id.clone(),
            place: info.place,
        }
    }
}

impl Holders {
    /// Takes in what a workload holds now, as long as it holds something.
    pub fn add(&mut self, info: &WorkloadInfo, nodes: &mut NodeTable) {
        if info.usage.pods > 0 {
            self.by_team.entry((info.usage.pool, info.team)).or_default().insert(Newest::of(info));
        }
        for node in nodes_of(info, nodes) {
            self.by_node.entry(node).or_default().insert((info.workload.id.clone(), info.place));
        }
    }

    /// Forgets what a workload held; to be called before its charge, phase or team changes.
    pub fn remove(&mut self, info: &WorkloadInfo, nodes: &mut NodeTable) {
        let item = (info.workload.id.clone(), info.place);
        take_out(&mut self.by_team, &(info.usage.pool, info.team), &Newest::of(info));
        for node in nodes_of(info, nodes) {
            take_out(&mut self.by_node, &node, &item);
        }
    }

    /// Those for whom a team's own account in a pool pays, the newest first.
    pub fn of_team(&self, pool: PoolId, team: TeamId) -> impl DoubleEndedIterator<Item = WorkloadIndex> {
        self.by_team.get(&(pool, team)).into_iter().flatten().map(|newest| newest.place)
    }

    /// The teams whose own accounts in a pool pay for somebody.
    pub fn teams_in(&self, pool: PoolId) -> impl Iterator<Item = TeamId> {
        self.by_team.range((pool, TeamId::MIN)..=(pool, TeamId::MAX)).map(|((_, team), _)| *team)
    }

    /// Those that hold room on a node or were admitted to it.
    pub fn on_node(&self, node: NodeId) -> impl Iterator<Item = (&WorkloadId, WorkloadIndex)> {
        self.by_node.get(&node).into_iter().flatten().map(|(id, place)| (id, *place))
    }
}

fn nodes_of(info: &WorkloadInfo, nodes: &mut NodeTable) -> BTreeSet<NodeId> {
    let admitted = info.phase.admission().into_iter().flat_map(|admission| admission.nodes.keys());
    let admitted = admitted.map(|name| nodes.intern(name));
    info.usage.nodes.keys().copied().chain(admitted).collect()
}

fn take_out<K: Ord, T: Ord>(index: &mut BTreeMap<K, BTreeSet<T>>, key: &K, item: &T) {
    if let Some(items) = index.get_mut(key) {
        items.remove(item);
        if items.is_empty() {
            index.remove(key);
        }
    }
}
