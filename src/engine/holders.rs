//! Who holds room where: the ways to those who run that do not lead past everybody else.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::Entry;
use super::forest::{PoolIx, TeamIx};
use super::model::WorkloadId;
use super::nodes::{NodeIx, NodeTable};

/// Workloads by the account that pays for them and by node; always in the order of their identities.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    by_team: BTreeMap<(PoolIx, TeamIx), BTreeSet<WorkloadId>>,
    /// Those that hold room on a node or were admitted to it, be it there or not.
    by_node: BTreeMap<NodeIx, BTreeSet<WorkloadId>>,
}

impl Holders {
    /// Takes in what a workload holds now, as long as it holds something.
    pub fn add(&mut self, entry: &Entry, nodes: &mut NodeTable) {
        let id = &entry.workload.id;
        if entry.charge.pods > 0 {
            self.by_team.entry((entry.charge.pool, entry.team)).or_default().insert(id.clone());
        }
        for node in nodes_of(entry, nodes) {
            self.by_node.entry(node).or_default().insert(id.clone());
        }
    }

    /// Forgets what a workload held; to be called before its charge, phase or team changes.
    pub fn remove(&mut self, entry: &Entry, nodes: &mut NodeTable) {
        let id = &entry.workload.id;
        take_out(&mut self.by_team, &(entry.charge.pool, entry.team), id);
        for node in nodes_of(entry, nodes) {
            take_out(&mut self.by_node, &node, id);
        }
    }

    /// Those for whom a team's own account in a pool pays.
    pub fn of_team(&self, pool: PoolIx, team: TeamIx) -> impl Iterator<Item = &WorkloadId> {
        self.by_team.get(&(pool, team)).into_iter().flatten()
    }

    /// The teams whose own accounts in a pool pay for somebody.
    pub fn teams_in(&self, pool: PoolIx) -> impl Iterator<Item = TeamIx> {
        self.by_team.range((pool, 0)..(pool + 1, 0)).map(|((_, team), _)| *team)
    }

    /// Those that hold room on a node or were admitted to it.
    pub fn on_node(&self, node: NodeIx) -> impl Iterator<Item = &WorkloadId> {
        self.by_node.get(&node).into_iter().flatten()
    }
}

fn nodes_of(entry: &Entry, nodes: &mut NodeTable) -> BTreeSet<NodeIx> {
    let admitted = entry.phase.admission().into_iter().flat_map(|admission| admission.nodes.keys());
    let admitted = admitted.map(|name| nodes.intern(name));
    entry.charge.nodes.keys().copied().chain(admitted).collect()
}

fn take_out<K: Ord>(index: &mut BTreeMap<K, BTreeSet<WorkloadId>>, key: &K, id: &WorkloadId) {
    if let Some(ids) = index.get_mut(key) {
        ids.remove(id);
        if ids.is_empty() {
            index.remove(key);
        }
    }
}
