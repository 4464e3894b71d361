//! Masked capacity: it counts as nominated while other workloads are placed.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::packing::PackingState;
use crate::state::nodes::node::Nominated;
use crate::state::nodes::table::NodeTable;
use crate::types::ids::NodeId;
use crate::types::vector::Vector;

/// Masked capacity.
#[derive(Debug)]
pub struct Masks<'a> {
    capacity: Vec<(NodeId, &'a Vector, u32)>,
    /// Its nodes as they were before.
    before: BTreeMap<NodeId, Before>,
}

/// A node before capacity on it was masked.
#[derive(Debug)]
struct Before {
    nominated: Nominated,
    state: Option<PackingState>,
    revision: u64,
    /// Its revision right after it was masked.
    masked_revision: u64,
}

impl NodeTable {
    /// Masks capacity, a number of pods of a need on each node, until [`NodeTable::unmask`].
    pub fn mask<'a>(&mut self, capacity: impl Iterator<Item = (NodeId, &'a Vector, u32)>) -> Masks<'a> {
        let mut masked = Masks { capacity: capacity.collect(), before: BTreeMap::new() };
        for (index, need, pods) in &masked.capacity {
            masked.before.entry(*index).or_insert_with(|| self.before(*index));
            self.nominate(*index, need, i64::from(*pods));
        }
        for (index, before) in &mut masked.before {
            before.masked_revision = self.revisions[*index];
        }
        masked
    }

    /// A node as it is now, for [`NodeTable::restore`].
    fn before(&mut self, index: NodeId) -> Before {
        let (state, revision) = (self.states[index], self.revisions[index]);
        state.iter().for_each(|state| self.packing.retain(*state));
        Before { nominated: self.get(index).nominated(), state, revision, masked_revision: revision }
    }

    /// Shows masked capacity again. A node without another change since then is restored as it was.
    pub fn unmask(&mut self, masked: Masks<'_>) {
        let Masks { capacity, before } = masked;
        // Fractions may be on other devices now.
        let shared = capacity.iter().filter(|(_, need, _)| !self.demand(need).fractions().is_empty());
        let mut changed: BTreeSet<NodeId> = shared.map(|(index, ..)| *index).collect();
        for (index, before) in before {
            if self.revisions[index] == before.masked_revision && !changed.contains(&index) {
                self.restore(index, before);
            } else {
                before.state.iter().for_each(|state| self.packing.release(*state));
                changed.insert(index);
            }
        }
        for (index, need, pods) in capacity.iter().filter(|(index, ..)| changed.contains(index)) {
            self.nominate(*index, need, -i64::from(*pods));
        }
    }

    /// Restores a node. Its packing state is still known, because kinds of pods are recorded between plans
    /// only.
    fn restore(&mut self, index: NodeId, before: Before) {
        self.info_mut(index).restore(before.nominated);
        if let Some((now, state)) = self.states[index].zip(before.state) {
            self.packing.return_to(now, state);
        }
        self.states[index] = before.state;
        self.mark_changed(index);
        self.revisions[index] = before.revision;
    }
}
