//! How many pods that a constraint looks at are on each node.
//!
//! Counts are kept for the constraints that placements ask about. Only the nodes that have changed since the last request
//! are counted again. Where no pod has a constraint, nothing is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::state::nodes::constraints::{COUNTS, Count, There, Wanted};
use crate::state::nodes::table::NodeTable;
use crate::types::Profile;
use crate::types::ids::NodeId;

impl NodeTable {
    /// Expects pods for which capacity on a node is nominated, `times` of them; fewer if that is negative. The nomination
    /// of the capacity follows.
    pub fn expect(&mut self, index: NodeId, profile: &Arc<Profile>, times: i64) {
        let expected = &mut self.info_mut(index).expected;
        let pods = u32::try_from(times.unsigned_abs()).unwrap_or(u32::MAX);
        if times > 0 {
            expected.push((Arc::clone(profile), pods));
        } else if let Some(at) = expected.iter().position(|(known, count)| known == profile && *count == pods)
        {
            expected.swap_remove(at);
        }
        self.constraints.expect(profile, times > 0);
    }

    /// Calls `work` with the pods that a constraint looks at, by node; nodes without any are left out.
    pub fn count<T>(&self, wanted: &Wanted, work: impl FnOnce(&BTreeMap<NodeId, There>) -> T) -> T {
        let mut cache = self.counts.borrow_mut();
        cache.asked += 1;
        let asked = cache.asked;
        if !cache.counts.contains_key(wanted) {
            let oldest =
                cache.counts.iter().min_by_key(|(_, count)| count.asked).map(|(wanted, _)| wanted.clone());
            if let Some(oldest) = oldest.filter(|_| cache.counts.len() >= COUNTS) {
                cache.counts.remove(&oldest);
            }
            cache.counts.insert(wanted.clone(), Count::default());
        }
        match cache.counts.get_mut(wanted) {
            Some(count) => {
                count.asked = asked;
                count.catch_up(self, wanted);
                work(&count.by_node)
            }
            None => work(&BTreeMap::new()),
        }
    }
}

impl Count {
    /// Includes all changes of nodes since the last request.
    fn catch_up(&mut self, table: &NodeTable, wanted: &Wanted) {
        let known = self.known.replace(table.version());
        let missed = known.and_then(|known| known.checked_sub(table.dropped));
        let changed = missed.and_then(|known| table.changes.get(usize::try_from(known).ok()?..));
        match changed.filter(|changed| changed.len() <= table.infos.len()) {
            Some(changed) => {
                let changed: BTreeSet<NodeId> = changed.iter().copied().collect();
                changed.into_iter().for_each(|node| self.update(table, wanted, node));
            }
            None => table.indices().for_each(|node| self.update(table, wanted, node)),
        }
    }

    fn update(&mut self, table: &NodeTable, wanted: &Wanted, node: NodeId) {
        let there = wanted.count(table.get(node));
        if there != There::default() {
            self.by_node.insert(node, there);
        } else {
            self.by_node.remove(&node);
        }
    }
}
