//! The classes that are attempted again after capacity was freed, a few at a time.

use std::collections::BTreeSet;

use crate::queue::class::{Class, Status};
use crate::types::ids::ClassId;

/// The classes for which no condition settles whether they can start.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    /// Classes in the backlog, by the generation of their last attempt.
    backlog: BTreeSet<(u64, ClassId)>,
    /// Classes that may preempt, by the generation of their last attempt: those that are not paced (`false`) first.
    may_preempt: BTreeSet<(bool, u64, ClassId)>,
    /// Classes with a search that was put off, by the generation of their last search.
    put_off: BTreeSet<(Option<u64>, ClassId)>,
}

impl Retry {
    /// Adds a class by its status, or removes it.
    pub(super) fn set(&mut self, id: ClassId, class: &Class, member: bool) {
        match class.status {
            Status::Active | Status::Blocked { .. } => {}
            Status::Backlog { since } => set(&mut self.backlog, (since, id), member),
            Status::MayPreempt { paced, since, .. } => {
                set(&mut self.may_preempt, (paced, since, id), member);
            }
        }
        if class.put_off {
            set(&mut self.put_off, (class.searched, id), member);
        }
    }

    /// The backlog classes with their last attempt before a generation, the oldest attempt first.
    pub fn backlog(&self, generation: u64) -> impl Iterator<Item = ClassId> + '_ {
        self.backlog.range(..(generation, ClassId::MIN)).map(|(_, class)| *class)
    }

    /// The classes that may preempt and are paced or not, with their last attempt before a generation, the oldest attempt first.
    pub fn may_preempt(&self, generation: u64, paced: bool) -> impl Iterator<Item = ClassId> + '_ {
        let before = (paced, 0, ClassId::MIN)..(paced, generation, ClassId::MIN);
        self.may_preempt.range(before).map(|(_, _, class)| *class)
    }

    /// The classes with a search that was put off, the oldest search first.
    pub fn put_off(&self) -> impl Iterator<Item = ClassId> + '_ {
        self.put_off.iter().map(|(_, class)| *class)
    }

    /// How many classes with a search that was put off come before a class that searched last in that generation; at most `most`.
    pub fn put_off_before(&self, searched: Option<u64>, class: ClassId, most: usize) -> usize {
        self.put_off.range(..(searched, class)).take(most).count()
    }
}

fn set<T: Ord>(items: &mut BTreeSet<T>, item: T, member: bool) {
    if member {
        items.insert(item);
    } else {
        items.remove(&item);
    }
}
