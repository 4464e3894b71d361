//! The ways in which nominations come, go and are set aside. A nomination in the table is charged, and one outside of it is not:
//! every way here keeps that, and no other code takes one out or charges it.
//!
//! Whether a workload could start without a nomination is found out by taking it out, looking and putting it back. Then no usage
//! has changed, so nothing that waits for a change of usage is woken.

use crate::scheduler::Scheduler;
use crate::scheduler::nomination::Nomination;
use crate::types::WorkloadId;

/// A nomination that is set aside.
#[derive(Debug)]
pub struct Aside {
    /// Its place in the table.
    place: u64,
    /// It. Nothing is charged for it.
    pub nomination: Nomination,
}

impl Scheduler {
    /// Adds the nomination of a workload that has none, after all others.
    pub fn nominate(&mut self, nomination: Nomination) {
        nomination.charge(&mut self.state, 1);
        self.nominations.push(nomination);
    }

    /// Ends the nomination of a workload: its capacity is for others.
    pub fn end_nomination(&mut self, id: &WorkloadId) -> Option<Nomination> {
        let nomination = self.nominations.take(self.nominations.place_of(id)?)?;
        nomination.charge(&mut self.state, -1);
        Some(nomination)
    }

    /// Does `work` with the nomination at a place set aside. What `work` returns goes back to that place, and no usage counts as
    /// changed then; without it the nomination has ended. `None` if there is no nomination at the place.
    pub fn without_nomination<T>(
        &mut self,
        place: u64,
        work: impl FnOnce(&mut Self, Nomination) -> (Option<Nomination>, T),
    ) -> Option<T> {
        let nomination = self.nominations.take(place)?;
        let changes = self.state.quotas.set_changes_aside();
        nomination.charge(&mut self.state, -1);
        let (lasting, result) = work(self, nomination);
        if let Some(nomination) = lasting {
            nomination.charge(&mut self.state, 1);
            self.nominations.put(place, nomination);
            self.state.quotas.drop_changes(changes);
        } else {
            self.state.quotas.add_changes(changes);
        }
        Some(result)
    }

    /// Does `work` with the nominations at these places set aside, and with the teams in the order in which victims are searched
    /// then. What `work` leaves of them goes back afterwards, and what it takes has ended. If `work` returns nothing, it must have
    /// changed nothing.
    pub fn without_nominations<T>(
        &mut self,
        places: Vec<u64>,
        work: impl FnOnce(&mut Self, &mut Vec<Aside>) -> Option<T>,
    ) -> Option<T> {
        let changes = self.state.quotas.set_changes_aside();
        let mut aside: Vec<Aside> = places.into_iter().filter_map(|place| self.set_aside(place)).collect();
        let result = work(self, &mut aside);
        aside.into_iter().for_each(|one| self.put_back(one));
        match result {
            Some(_) => self.state.quotas.add_changes(changes),
            None => self.state.quotas.drop_changes(changes),
        }
        result
    }

    /// Puts nominations back, and returns what `find` finds beside them.
    ///
    /// # Errors
    /// The nominations, set aside again, if it finds nothing.
    pub fn put_back_beside<T>(
        &mut self,
        aside: Vec<Aside>,
        find: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Result<T, Vec<Aside>> {
        let places: Vec<u64> = aside.iter().map(|one| one.place).collect();
        aside.into_iter().for_each(|one| self.put_back(one));
        let found = find(self);
        found.ok_or_else(|| places.into_iter().filter_map(|place| self.set_aside(place)).collect())
    }

    /// Does `work` while no nomination is charged. They are charged again to what they are charged to by then: `work` may move
    /// teams and queues.
    pub fn without_charges<T>(&mut self, work: impl FnOnce(&mut Self) -> T) -> T {
        self.nominations.charge(&mut self.state, -1);
        let result = work(self);
        self.nominations.find_accounts(&self.state);
        self.nominations.charge(&mut self.state, 1);
        result
    }

    fn set_aside(&mut self, place: u64) -> Option<Aside> {
        let nomination = self.nominations.take(place)?;
        nomination.charge(&mut self.state, -1);
        self.reorder(&nomination);
        Some(Aside { place, nomination })
    }

    fn put_back(&mut self, Aside { place, nomination }: Aside) {
        nomination.charge(&mut self.state, 1);
        self.reorder(&nomination);
        self.nominations.put(place, nomination);
    }

    /// Brings the order in which victims are searched up to date after a change of what is nominated.
    fn reorder(&mut self, nomination: &Nomination) {
        let changed = [(nomination.pool, nomination.team)].into();
        self.queue.reclaimable.reorder(&self.state, &changed);
    }
}
