//! When the classes that could not start are attempted again.

use crate::queue::class::Status;
use crate::queue::pending::Pending;
use crate::types::ids::{ClassId, TeamId};
use crate::types::{Time, WorkloadId};

impl Pending {
    /// Makes a class active, so that it is attempted.
    pub fn requeue(&mut self, class: ClassId) {
        if self.classes.get(&class).is_some_and(|class| !matches!(class.status, Status::Active)) {
            self.update(class, |class| (class.status, class.put_off) = (Status::Active, false));
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
    pub fn unblock(&mut self, class: ClassId, generation: u64) {
        if self.classes.get(&class).is_some_and(|class| !class.status.conditions().is_empty()) {
            self.update(class, |class| class.status = Status::Backlog { since: generation });
        }
    }

    /// Requeues at most `most` backlog classes with their last attempt before the generation. Returns how many.
    pub fn requeue_backlog(&mut self, generation: u64, most: usize) -> usize {
        let classes: Vec<ClassId> = self.retry.backlog(generation).take(most).collect();
        for class in &classes {
            self.requeue(*class);
        }
        classes.len()
    }

    /// Requeues at most `most` classes that may preempt, with their last attempt before the generation: those that the guarantee of
    /// their own team covers first, then borrowers, if they may search again now. Returns whether there were any.
    pub fn requeue_may_preempt(&mut self, generation: u64, most: usize, now: Time) -> bool {
        let borrowers = self.retry.may_preempt(generation, true).take(self.pace.left(now));
        let classes = self.retry.may_preempt(generation, false).chain(borrowers).take(most);
        let classes: Vec<ClassId> = classes.collect();
        for class in &classes {
            self.requeue(*class);
        }
        !classes.is_empty()
    }

    /// Whether [`Self::requeue_backlog`] or [`Self::requeue_may_preempt`] has a class left to requeue now.
    #[must_use]
    pub fn has_backlog(&self, generation: u64, now: Time) -> bool {
        let waits = |borrowing| self.retry.may_preempt(generation, borrowing).next().is_some();
        waits(false)
            || self.retry.backlog(generation).next().is_some()
            || self.pace.left(now) > 0 && waits(true)
    }

    /// Whether victims are searched now for a workload that borrows: they are at once for a class for which they never were, else as
    /// [`Pace`](crate::queue::pace::Pace) allows. Where they are not, the search is put off.
    pub fn may_search(&mut self, id: &WorkloadId, generation: u64, now: Time) -> bool {
        let Some(class) = self.class_of(id) else { return true };
        let again = self.classes.get(&class).is_some_and(|class| class.searched.is_some());
        let may = !again || self.pace.left(now) > 0;
        self.pace.note(usize::from(again && may), now);
        self.update(class, |class| {
            class.put_off = !may;
            if may {
                class.searched = Some(generation);
            }
        });
        may
    }

    /// When more borrowers may search again, if some are to and none may now.
    #[must_use]
    pub fn next_search(&self, generation: u64, now: Time) -> Option<Time> {
        self.pace.next(now).filter(|_| self.retry.may_preempt(generation, true).next().is_some())
    }
}
