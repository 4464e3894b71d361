//! Who holds room where: the ways to those who run that do not lead past everybody else.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::books::Place;
use super::entry::Entry;
use super::forest::{PoolIx, TeamIx};
use super::model::{Time, WorkloadId};
use super::nodes::{NodeIx, NodeTable};

/// Workloads by the account that pays for them, the newest first, and by node, by identity.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    by_team: BTreeMap<(PoolIx, TeamIx), BTreeSet<Holding>>,
    /// Those that hold room on a node or were admitted to it, be it there or not.
    by_node: BTreeMap<NodeIx, BTreeSet<(WorkloadId, Place)>>,
}

/// When a workload was admitted, the latest first; those that were not come last.
type Newest = Reverse<Option<Time>>;

/// A workload that holds something, after those that were admitted later.
type Holding = (Newest, WorkloadId, Place);

fn newest(entry: &Entry) -> Holding {
    let admitted = entry.phase.admission().map(|admission| admission.at);
    (Reverse(admitted), entry.workload.id.clone(), entry.place)
}

impl Holders {
    /// Takes in what a workload holds now, as long as it holds something.
    pub fn add(&mut self, entry: &Entry, nodes: &mut NodeTable) {
        if entry.charge.pods > 0 {
            self.by_team.entry((entry.charge.pool, entry.team)).or_default().insert(newest(entry));
        }
        for node in nodes_of(entry, nodes) {
            self.by_node.entry(node).or_default().insert((entry.workload.id.clone(), entry.place));
        }
    }

    /// Forgets what a workload held; to be called before its charge, phase or team changes.
    pub fn remove(&mut self, entry: &Entry, nodes: &mut NodeTable) {
        let item = (entry.workload.id.clone(), entry.place);
        take_out(&mut self.by_team, &(entry.charge.pool, entry.team), &newest(entry));
        for node in nodes_of(entry, nodes) {
            take_out(&mut self.by_node, &node, &item);
        }
    }

    /// Those for whom a team's own account in a pool pays, the newest first.
    pub fn of_team(&self, pool: PoolIx, team: TeamIx) -> impl DoubleEndedIterator<Item = Place> {
        self.by_team.get(&(pool, team)).into_iter().flatten().map(|(_, _, place)| *place)
    }

    /// The teams whose own accounts in a pool pay for somebody.
    pub fn teams_in(&self, pool: PoolIx) -> impl Iterator<Item = TeamIx> {
        self.by_team.range((pool, 0)..(pool + 1, 0)).map(|((_, team), _)| *team)
    }

    /// Those that hold room on a node or were admitted to it.
    pub fn on_node(&self, node: NodeIx) -> impl Iterator<Item = (&WorkloadId, Place)> {
        self.by_node.get(&node).into_iter().flatten().map(|(id, place)| (id, *place))
    }
}

fn nodes_of(entry: &Entry, nodes: &mut NodeTable) -> BTreeSet<NodeIx> {
    let admitted = entry.phase.admission().into_iter().flat_map(|admission| admission.nodes.keys());
    let admitted = admitted.map(|name| nodes.intern(name));
    entry.charge.nodes.keys().copied().chain(admitted).collect()
}

fn take_out<K: Ord, T: Ord>(index: &mut BTreeMap<K, BTreeSet<T>>, key: &K, item: &T) {
    if let Some(items) = index.get_mut(key) {
        items.remove(item);
        if items.is_empty() {
            index.remove(key);
        }
    }
}
