//! Whether a fairer state stays so: who waits takes the room that a claim leaves over.

use std::cmp::Reverse;

use super::super::entry::Entry;
use super::super::forest::Imagined;
use super::super::model::WorkloadId;
use super::super::placement::{self, Freed, Placement, Request, Room};
use super::super::rules::{free, lending_allows, occupy, preemptible, priority_of};
use super::super::seniority::Seniority;
use super::super::vector::Vector;
use super::outcome::{Outcome, request_of};
use super::{Ground, Hidden, Search};

/// So many starts into left-over room are thought through; by then nothing worth mentioning is left.
const STARTS: usize = 8;
/// So many pods more are thought through.
const GROWTH: usize = 32;
/// Of so many kinds of waiting workloads the first is considered.
const KINDS: usize = 16;

impl Search<'_> {
    /// Whether a set makes the shares of the surplus fairer, if it takes from other teams for a claim
    /// that lives off the surplus. Asked is the state in which things come to rest: if those who wait
    /// used what is left over to become the greedy ones themselves, the victims would come back for it.
    pub fn is_fair(&self, outcome: &Outcome) -> bool {
        if self.ground == Ground::Owed || self.takes_own_only(outcome) {
            return true;
        }
        let (forest, claimant) = (&self.books.forest, &self.claimant);
        let mut with = outcome.imagined.clone();
        forest.imagine(&mut with, claimant.team, claimant.total, 1);
        !forest.is_weightless(claimant.pool, claimant.team, &with)
            && forest.fairer_than(claimant.pool, &self.state.imagined, &with)
            && !self.yields_to_a_mate(outcome)
            && {
                self.refill(outcome, &mut with);
                forest.fairer_than(claimant.pool, &self.state.imagined, &with)
            }
    }

    /// Whether a waiting mate of higher priority would take the room from the claimant: it could not
    /// have taken it from the victims itself, so they would come back for it.
    fn yields_to_a_mate(&self, outcome: &Outcome) -> bool {
        let (books, claimant) = (self.books, &self.claimant);
        let mut above = self
            .pending
            .firsts_of(claimant.team)
            .filter(|id| *id != claimant.id && !self.state.started.contains(id))
            .filter_map(|id| books.get(id))
            .filter(|mate| priority_of(books, mate) > claimant.priority)
            .peekable();
        if above.peek().is_none() {
            return false;
        }
        let gone: Vec<&WorkloadId> =
            outcome.parts.iter().map(|part| &self.candidates[part.candidate].entry.workload.id).collect();
        above.any(|mate| {
            let mut freed = self.unhidden(&outcome.unfilled);
            for other in books.holders(claimant.pool, claimant.team) {
                let lower = self.evictable(other) && priority_of(books, other) < priority_of(books, mate);
                if lower && !gone.contains(&&other.workload.id) {
                    free(&mut freed, other);
                }
            }
            self.would_fit(mate, &freed, std::iter::empty())
        })
    }

    /// Such room with the room that is kept for somebody: others than the claimant may start in it.
    pub fn unhidden(&self, freed: &Freed) -> Freed {
        let mut freed = freed.clone();
        for Hidden { holder, need, placement } in self.hidden {
            for (node, pods) in placement {
                freed.give(*node, holder, need, *pods);
            }
        }
        freed
    }

    /// Whose turn it is among teams that ask for so much, by the order of the queue: less goes first.
    pub fn turn(&self, entry: &Entry, more: &Vector, imagined: &Imagined) -> impl Ord + use<> {
        let (forest, pool) = (&self.books.forest, self.claimant.pool);
        let owed = forest.owed(pool, entry.team, more, imagined);
        let share = forest.level_share(pool, entry.team, imagined.get(&entry.team));
        (Reverse(owed), share, Seniority::of(&entry.workload), entry.workload.id.clone())
    }

    /// Lets those who wait start in the room that is left over, and then those grow who have started.
    fn refill(&self, outcome: &Outcome, imagined: &mut Imagined) {
        let (forest, pool) = (&self.books.forest, self.claimant.pool);
        let mut freed = self.unhidden(&outcome.freed);
        let victims = outcome.parts.iter().filter(|part| part.whole);
        let mut waiting: Vec<(&Entry, usize)> =
            victims.map(|part| (self.candidates[part.candidate].entry, 1)).collect();
        // Whoever leaves for somebody else will wait as well.
        let promised = |entry: &Entry| self.promised.iter().any(|other| other.id == entry.workload.id);
        let going = self.books.going().filter(|entry| entry.charge.pool == pool && !promised(entry));
        waiting.extend(going.take(KINDS).map(|entry| (entry, 1)));
        waiting.extend(self.waiting().take(KINDS));
        let claimant = self.books.get(self.claimant.id);
        let mut started: Vec<(&Entry, Placement)> =
            claimant.map(|entry| (entry, outcome.placement.clone())).into_iter().collect();
        for _ in 0..STARTS {
            let mut order: Vec<usize> = (0..waiting.len()).filter(|place| waiting[*place].1 > 0).collect();
            order.sort_by_cached_key(|place| {
                let entry = waiting[*place].0;
                self.turn(entry, &entry.least_total(), imagined)
            });
            let mut room = None;
            for place in order {
                let (entry, count) = &mut waiting[place];
                room = self.starts(entry, imagined, &freed).map(|room| (*entry, room));
                // Who cannot start now cannot when there is less room either.
                *count = if room.is_some() { *count - 1 } else { 0 };
                if room.is_some() {
                    break;
                }
            }
            let Some((entry, room)) = room else { break };
            occupy(&mut freed, &entry.need, &room);
            forest.imagine(imagined, entry.team, &entry.least_total(), 1);
            started.push((entry, room));
        }
        self.grow(started, freed, imagined);
    }

    /// Lets those take more pods who have started with fewer than they want, one pod at a time.
    fn grow(&self, mut started: Vec<(&Entry, Placement)>, mut freed: Freed, imagined: &mut Imagined) {
        let forest = &self.books.forest;
        started.retain(|(entry, _)| entry.workload.pods > entry.least_pods());
        for _ in 0..GROWTH {
            let next = (0..started.len()).min_by_key(|place| {
                let entry = started[*place].0;
                self.turn(entry, &entry.need, imagined)
            });
            let Some(next) = next else { return };
            let (entry, there) = &mut started[next];
            match self.one_more(entry, there, imagined, &freed) {
                Some(room) => {
                    occupy(&mut freed, &entry.need, &room);
                    forest.imagine(imagined, entry.team, &entry.need, 1);
                    room.into_iter().for_each(|(node, pods)| *there.entry(node).or_default() += pods);
                }
                None => _ = started.swap_remove(next),
            }
        }
    }

    /// Where one more pod of somebody finds room beside those that are there; `None` if it has all it wants.
    fn one_more(
        &self,
        entry: &Entry,
        there: &Placement,
        imagined: &Imagined,
        freed: &Freed,
    ) -> Option<Placement> {
        let (books, pool) = (self.books, self.claimant.pool);
        let allowed = there.values().sum::<u32>() < entry.workload.pods
            && self.may_hold(entry, &entry.need, imagined, freed);
        let request = Request { beside: Some(there), ..request_of(entry, pool, 1) };
        let nodes = || placement::eligible(books, &request);
        allowed.then(|| placement::place(books, &nodes(), &request, Room::Settled(freed))).flatten()
    }

    /// Where somebody who waits could start in what is imagined.
    fn starts(&self, entry: &Entry, imagined: &Imagined, freed: &Freed) -> Option<Placement> {
        let allowed = self.may_hold(entry, &entry.least_total(), imagined, freed);
        allowed.then(|| self.find_room(entry, entry.least_pods(), freed)).flatten()
    }

    /// Whether limits and lenders let somebody hold so much more in what is imagined.
    fn may_hold(&self, entry: &Entry, more: &Vector, imagined: &Imagined, freed: &Freed) -> bool {
        let (books, forest, pool) = (self.books, &self.books.forest, self.claimant.pool);
        let owed = forest.owed(pool, entry.team, more, imagined);
        forest.over_limit(pool, entry.team, more, imagined, true).is_none()
            && (owed || preemptible(books, entry) && lending_allows(books, entry.team, pool, more, freed))
    }
}
