//! The classes that are attempted again after capacity was freed, a few at a time.

use std::collections::BTreeSet;

use crate::queue::class::{Covered, Status};
use crate::types::ids::ClassId;

/// The classes for which no condition settles whether they can start, by the generation of their last attempt.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    /// Classes in the backlog.
    backlog: BTreeSet<(u64, ClassId)>,
    /// Classes that may preempt: those that the guarantee of their own team covers (`false`) first.
    may_preempt: BTreeSet<(bool, u64, ClassId)>,
}

impl Retry {
    /// Adds a class with this status, or removes it.
    pub fn set(&mut self, class: ClassId, status: &Status, member: bool) {
        match status {
            Status::Active | Status::Blocked { .. } => {}
            Status::Backlog { since } => set(&mut self.backlog, (*since, class), member),
            Status::MayPreempt { covered, since, .. } => {
                set(&mut self.may_preempt, (*covered == Covered::Beyond, *since, class), member);
            }
        }
    }

    /// The backlog classes with their last attempt before a generation, the oldest attempt first.
    pub fn backlog(&self, generation: u64) -> impl Iterator<Item = ClassId> + '_ {
        self.backlog.range(..(generation, ClassId::MIN)).map(|(_, class)| *class)
    }

    /// The classes that may preempt, with their last attempt before a generation: those that the guarantee of their own
    /// team covers first, then the oldest attempt.
    pub fn may_preempt(&self, generation: u64) -> impl Iterator<Item = ClassId> + '_ {
        let stale = move |borrowing: bool| {
            let before = (borrowing, 0, ClassId::MIN)..(borrowing, generation, ClassId::MIN);
            self.may_preempt.range(before).map(|(_, _, class)| *class)
        };
        stale(false).chain(stale(true))
    }
}

fn set<T: Ord>(items: &mut BTreeSet<T>, item: T, member: bool) {
    if member {
        items.insert(item);
    } else {
        items.remove(&item);
    }
}
