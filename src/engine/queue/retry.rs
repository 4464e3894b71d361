//! The classes that are attempted again after capacity was freed, a few at a time.

use std::collections::BTreeSet;

use crate::queue::class::{Class, Covered, Status};
use crate::types::ids::ClassId;

/// The classes for which no condition settles whether they can start, by the generation of their last attempt.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    /// Classes in the backlog.
    backlog: BTreeSet<(u64, ClassId)>,
    /// Classes that may preempt: those that the guarantee of their own team covers (`false`) first, then the borrowers. A class with
    /// a search that was put off, because it would borrow in some pool, is among these in any case.
    may_preempt: BTreeSet<(bool, u64, ClassId)>,
}

impl Retry {
    /// Adds a class by its status, or removes it.
    pub(super) fn set(&mut self, id: ClassId, class: &Class, member: bool) {
        let mut may_preempt = |borrowing: bool, since: u64| {
            set(&mut self.may_preempt, (borrowing, since, id), member);
        };
        let (since, borrows) = match class.status {
            Status::Active | Status::Blocked { .. } => return,
            Status::Backlog { since } => {
                set(&mut self.backlog, (since, id), member);
                (since, false)
            }
            Status::MayPreempt { covered, since, .. } => {
                let borrows = covered == Covered::Beyond;
                may_preempt(borrows, since);
                (since, borrows)
            }
        };
        if class.put_off && !borrows {
            may_preempt(true, class.search_before(since));
        }
    }

    /// The backlog classes with their last attempt before a generation, the oldest attempt first.
    pub fn backlog(&self, generation: u64) -> impl Iterator<Item = ClassId> + '_ {
        self.backlog.range(..(generation, ClassId::MIN)).map(|(_, class)| *class)
    }

    /// The classes that may preempt, with their last attempt before a generation, the oldest attempt first: those that the
    /// guarantee of their own team covers, or those that are `borrowing`.
    pub fn may_preempt(&self, generation: u64, borrowing: bool) -> impl Iterator<Item = ClassId> + '_ {
        let before = (borrowing, 0, ClassId::MIN)..(borrowing, generation, ClassId::MIN);
        self.may_preempt.range(before).map(|(_, _, class)| *class)
    }
}

fn set<T: Ord>(items: &mut BTreeSet<T>, item: T, member: bool) {
    if member {
        items.insert(item);
    } else {
        items.remove(&item);
    }
}
