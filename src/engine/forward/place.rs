//! What runs without the engine having decided it.

use std::collections::BTreeMap;

use super::super::fit::admits;
use super::super::forest::Imagined;
use super::super::model::{Admission, Name, Observed, PodShape, Time, WorkloadId};
use super::super::vector::{PODS, Vector};
use super::Run;

impl Run {
    /// Lets a workload that waits run on these nodes since `at`, as one that was admitted before the
    /// run began; the pool is that of its nodes, and whether it borrows follows from what its team holds.
    ///
    /// Gives nothing, and changes nothing, when it does not wait or no such node exists.
    pub fn place(
        &mut self,
        id: &WorkloadId,
        nodes: BTreeMap<Name, u32>,
        pods: u32,
        at: Time,
    ) -> Option<Admission> {
        let books = &self.engine.books;
        let index = nodes.keys().find_map(|node| books.nodes.find(node))?;
        let pool = books.nodes.get(index).pool;
        let entry = books.get(id)?;
        let amount = Vector::default().plus(&entry.need, i64::from(pods));
        let borrowed = !books.forest.owed(pool, entry.team, &amount, &Imagined::new());
        let admission =
            Admission { pool: books.forest.pool_name(pool).clone(), nodes, pods, borrowed, share: None, at };
        let item = self.items.get_mut(id).filter(|item| item.workload.state == Observed::Queued)?;
        item.workload.state = Observed::Admitted(admission.clone());
        self.dirty = true;
        self.show(id);
        self.settle_in(id);
        Some(admission)
    }

    /// The first node by name on which a pod of nobody's concern would start: one that admits it and has
    /// room, whatever the engine means to do with that room.
    #[must_use]
    pub fn room_for(&self, shape: &PodShape) -> Option<Name> {
        let books = &self.engine.books;
        let mut need = Vector::default();
        for (resource, amount) in &shape.requests {
            // What no node was ever heard to offer has no number.
            need.set(books.resources.find(resource)?, amount.as_milli());
        }
        let slots = books.resources.find(PODS)?;
        need.set(slots, need.get(slots) + 1000);
        let demand = books.nodes.demand(&need);
        let mut nodes = books.nodes.alive();
        nodes
            .find(|(_, entry, node)| entry.open() && admits(node, shape) && entry.unheld().fits(&demand) > 0)
            .map(|(_, _, node)| node.name.clone())
    }
}
