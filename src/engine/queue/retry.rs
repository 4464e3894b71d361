//! The classes that are attempted again after capacity was freed, a few at a time.

use std::collections::BTreeSet;

use crate::queue::class::{Class, Status};
use crate::types::ids::ClassId;

/// The classes for which no condition settles whether they can start.
#[derive(Clone, Debug, Default)]
pub struct Retry {
    /// Classes in the backlog, by the generation of their last attempt.
    backlog: BTreeSet<(u64, ClassId)>,
    /// Classes that may preempt and are not paced, by the generation of their last attempt.
    may_preempt: BTreeSet<(u64, ClassId)>,
    /// Classes for which victims are searched at a pace, by their places.
    searches: BTreeSet<(u64, ClassId)>,
}

impl Retry {
    /// Adds a class by its status, or removes it.
    pub(super) fn set(&mut self, id: ClassId, class: &Class, member: bool) {
        match class.status {
            Status::Backlog { since } => set(&mut self.backlog, (since, id), member),
            Status::MayPreempt { paced: false, since, .. } => set(&mut self.may_preempt, (since, id), member),
            _ => {}
        }
        if let Some(place) = class.search_place() {
            set(&mut self.searches, (place, id), member);
        }
    }

    /// The backlog classes with their last attempt before a generation, the oldest attempt first.
    pub fn backlog(&self, generation: u64) -> impl Iterator<Item = ClassId> + '_ {
        self.backlog.range(..(generation, ClassId::MIN)).map(|(_, class)| *class)
    }

    /// The classes that may preempt and are not paced, with their last attempt before a generation, the oldest attempt first.
    pub fn may_preempt(&self, generation: u64) -> impl Iterator<Item = ClassId> + '_ {
        self.may_preempt.range(..(generation, ClassId::MIN)).map(|(_, class)| *class)
    }

    /// The classes with a search that is due in a generation, the oldest search first.
    pub fn searches(&self, generation: u64) -> impl Iterator<Item = ClassId> + '_ {
        self.searches.range(..(generation, ClassId::MIN)).map(|(_, class)| *class)
    }

    /// How many searches come before that of a class with a place; at most `most`.
    pub fn searches_before(&self, place: u64, class: ClassId, most: usize) -> usize {
        self.searches.range(..(place, class)).take(most).count()
    }
}

fn set<T: Ord>(items: &mut BTreeSet<T>, item: T, member: bool) {
    if member {
        items.insert(item);
    } else {
        items.remove(&item);
    }
}
