//! When the classes that could not start are attempted again.

use crate::queue::class::Status;
use crate::queue::pace::Pace;
use crate::queue::pending::Pending;
use crate::types::ids::{ClassId, TeamId};
use crate::types::{Time, WorkloadId};

/// Whether a borrower searches for victims now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchTurn {
    /// Its class has not searched before, or it is in none.
    First,
    /// It is the turn of its class to search again.
    Again,
    /// Its turn comes later.
    PutOff,
}

impl Pending {
    /// Makes a class active, so that it is attempted.
    pub fn requeue(&mut self, class: ClassId) {
        if self.classes.get(&class).is_some_and(|class| !matches!(class.status, Status::Active)) {
            self.update(class, |class| class.status = Status::Active);
        }
    }

    /// Requeues every class.
    pub fn requeue_all(&mut self) {
        let classes: Vec<ClassId> = self.classes.keys().copied().collect();
        for class in classes {
            self.requeue(class);
        }
    }

    /// Requeues the classes of a team that wait for quota.
    pub fn requeue_limited(&mut self, team: TeamId) {
        for class in self.conditions.limited(team) {
            self.requeue(class);
        }
    }

    /// Forgets the conditions that a class is blocked on: from the next generation on, any freed capacity lets it be attempted again.
    /// An attempt that is due already stays due.
    pub fn unblock(&mut self, class: ClassId, generation: u64) {
        let since = match self.classes.get(&class).map(|class| &class.status) {
            Some(Status::Blocked { .. }) => generation,
            Some(Status::MayPreempt { since, .. }) => *since,
            _ => return,
        };
        self.update(class, |class| class.status = Status::Backlog { since });
    }

    /// Requeues at most `most` backlog classes with their last attempt before the generation. Returns how many.
    pub fn requeue_backlog(&mut self, generation: u64, most: usize) -> usize {
        let classes: Vec<ClassId> = self.retry.backlog(generation).take(most).collect();
        for class in &classes {
            self.requeue(*class);
        }
        classes.len()
    }

    /// Requeues at most `most` classes that may preempt, with their last attempt before the generation: those that are not paced first,
    /// then borrowers, if they may search again now. Returns whether there were any.
    pub fn requeue_may_preempt(&mut self, generation: u64, most: usize, now: Time) -> bool {
        let paced = self.due_searches(generation).take(self.pace.left(now));
        let classes: Vec<ClassId> = self.retry.may_preempt(generation).chain(paced).take(most).collect();
        for class in &classes {
            self.requeue(*class);
        }
        !classes.is_empty()
    }

    /// The borrowers that are to search again, the oldest search first.
    fn due_searches(&self, generation: u64) -> impl Iterator<Item = ClassId> + '_ {
        self.retry.searches(generation).filter(|class| !self.is_active(*class))
    }

    /// Whether [`Self::requeue_backlog`] or [`Self::requeue_may_preempt`] has a class left to requeue now.
    #[must_use]
    pub fn has_backlog(&self, generation: u64, now: Time) -> bool {
        self.retry.may_preempt(generation).next().is_some()
            || self.retry.backlog(generation).next().is_some()
            || self.pace.left(now) > 0 && self.due_searches(generation).next().is_some()
    }

    /// Whether victims are searched now for a workload that can only borrow: they are at once for a class for which they never were,
    /// else as [`Pace`] allows, those first that have not searched for the longest time. Where they are not, the search is put off.
    pub fn turn_to_search(&mut self, id: &WorkloadId, generation: u64, now: Time) -> SearchTurn {
        let known = self.class_of(id).and_then(|class| Some((class, self.classes.get(&class)?)));
        let Some((class, known)) = known else { return SearchTurn::First };
        let place = known.put_off.unwrap_or_else(|| known.search_before(generation));
        let (again, left) = (known.searched.is_some(), self.pace.left(now));
        let may = !again || self.retry.searches_before(place, class, left) < left;
        self.pace.note(usize::from(again && may), now);
        self.update(class, |class| {
            class.put_off_now = !may;
            if may {
                (class.searched, class.put_off) = (Some(generation), None);
            }
        });
        match (may, again) {
            (false, _) => SearchTurn::PutOff,
            (true, false) => SearchTurn::First,
            (true, true) => SearchTurn::Again,
        }
    }

    /// Notes that a borrower which has searched again has tried so many sets of victims.
    pub fn note_sets(&mut self, tried: u64) {
        self.pace.note_sets(tried);
    }

    /// When more borrowers may search again, if some are to and none may now.
    #[must_use]
    pub fn next_search(&self, generation: u64, now: Time) -> Option<Time> {
        self.pace.next(now).filter(|_| self.due_searches(generation).next().is_some())
    }

    /// Lets that many borrowers search again in a second.
    pub fn set_pace(&mut self, searches: usize) {
        self.pace = Pace::of(searches);
    }
}
