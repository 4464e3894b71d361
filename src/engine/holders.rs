//! Who holds room where: the ways to those who run that do not lead past everybody else.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::books::Place;
use super::entry::Entry;
use super::forest::{PoolIx, TeamIx};
use super::model::{Time, WorkloadId};
use super::nodes::{NodeIx, NodeTable};
use super::seniority::Seniority;

/// Workloads by the account that pays for them, the newest first, and by node, by identity.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    by_team: BTreeMap<(PoolIx, TeamIx), BTreeSet<Newest>>,
    /// Those that hold room on a node or were admitted to it, be it there or not.
    by_node: BTreeMap<NodeIx, BTreeSet<(WorkloadId, Place)>>,
}

/// A workload, after those that were admitted later and, of those admitted at once, after those behind it in the
/// queue. Those that were not admitted come last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Newest {
    admitted: Reverse<Option<Time>>,
    seniority: Reverse<Seniority>,
    /// Whose this is.
    pub id: WorkloadId,
    /// Where its entry is kept.
    pub place: Place,
}

impl Newest {
    /// The place of a workload among those that hold something.
    #[must_use]
    pub fn of(entry: &Entry) -> Self {
        let admitted = entry.phase.admission().map(|admission| admission.at);
        Self {
            admitted: Reverse(admitted),
            seniority: Reverse(Seniority::of(&entry.workload)),
            id: entry.workload.id.clone(),
            place: entry.place,
        }
    }
}

impl Holders {
    /// Takes in what a workload holds now, as long as it holds something.
    pub fn add(&mut self, entry: &Entry, nodes: &mut NodeTable) {
        if entry.charge.pods > 0 {
            self.by_team.entry((entry.charge.pool, entry.team)).or_default().insert(Newest::of(entry));
        }
        for node in nodes_of(entry, nodes) {
            self.by_node.entry(node).or_default().insert((entry.workload.id.clone(), entry.place));
        }
    }

    /// Forgets what a workload held; to be called before its charge, phase or team changes.
    pub fn remove(&mut self, entry: &Entry, nodes: &mut NodeTable) {
        let item = (entry.workload.id.clone(), entry.place);
        take_out(&mut self.by_team, &(entry.charge.pool, entry.team), &Newest::of(entry));
        for node in nodes_of(entry, nodes) {
            take_out(&mut self.by_node, &node, &item);
        }
    }

    /// Those for whom a team's own account in a pool pays, the newest first.
    pub fn of_team(&self, pool: PoolIx, team: TeamIx) -> impl DoubleEndedIterator<Item = Place> {
        self.by_team.get(&(pool, team)).into_iter().flatten().map(|newest| newest.place)
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
