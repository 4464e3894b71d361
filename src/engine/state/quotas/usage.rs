//! One team's books in one pool.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use crate::types::ratio::Ratio;
use crate::types::vector::Vector;

/// A team's books in one pool.
#[derive(Clone, Debug, Default)]
pub struct QuotaUsage {
    /// The resources the guarantee speaks of.
    pub(super) governed: BTreeSet<usize>,
    /// The guarantee.
    pub guaranteed: Vector,
    /// The caps.
    pub limit: BTreeMap<usize, i64>,
    /// The most of the guarantee that may be lent; what is not listed is lent in full.
    pub(super) lendable: BTreeMap<usize, i64>,
    /// What the teams below one that promises nothing itself are promised in sum, by resource.
    pub(super) below: BTreeMap<usize, i64>,
    /// What the team and those below it hold.
    pub held: Vector,
    pub(super) leaving: Vector,
    pub(super) nominated: Vector,
    /// What was held of the surplus in the past, the older the less ([`Forest::accrue`]).
    pub(super) past: Vector,
    /// What was worked out of all this since it last changed.
    pub(super) share: Cell<Option<Ratio>>,
    pub(super) beyond: Cell<Option<bool>>,
}

impl QuotaUsage {
    /// What it will hold once all who were told to stop are gone and all claimants have started.
    #[must_use]
    pub fn settled(&self, index: usize) -> i64 {
        self.held.get(index) - self.leaving.get(index) + self.nominated.get(index)
    }

    /// Whether the account promises anything.
    #[must_use]
    pub fn promises(&self) -> bool {
        !self.governed.is_empty()
    }

    /// The resources the guarantee speaks of, with the guaranteed amount.
    pub fn governed(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        self.governed.iter().map(|index| (*index, self.guaranteed.get(*index)))
    }

    /// What is guaranteed of resource `index`, below it if it promises nothing itself.
    #[must_use]
    pub fn promised(&self, index: usize) -> i64 {
        if self.promises() {
            self.guaranteed.get(index)
        } else {
            self.below.get(&index).copied().unwrap_or(0)
        }
    }

    /// What is held beyond the guarantee of resource `index` out of `usage`. A team that promises
    /// nothing itself is looked through: the promises of the teams below it count.
    #[must_use]
    pub fn surplus(&self, index: usize, usage: i64) -> i64 {
        if self.promises() {
            if self.governed.contains(&index) { (usage - self.guaranteed.get(index)).max(0) } else { 0 }
        } else if self.below.is_empty() {
            usage.max(0)
        } else {
            self.below.get(&index).map_or(0, |promised| (usage - promised).max(0))
        }
    }

    /// Forgets what was worked out, after any change.
    pub(super) fn forget(&mut self) {
        self.share.set(None);
        self.beyond.set(None);
    }

    /// The account's own share as it stands, worked out at most once between two changes.
    pub(super) fn share_or(&self, work_out: impl FnOnce() -> Ratio) -> Ratio {
        self.share.get().unwrap_or_else(|| {
            let share = work_out();
            self.share.set(Some(share));
            share
        })
    }

    /// Whether more of something is held than is promised; always where nothing is.
    #[must_use]
    pub fn is_beyond_guarantee(&self) -> bool {
        self.beyond.get().unwrap_or_else(|| {
            let beyond = self.would_be_beyond_guarantee(&Vector::default());
            self.beyond.set(Some(beyond));
            beyond
        })
    }

    /// The same after an imagined change.
    #[must_use]
    pub fn would_be_beyond_guarantee(&self, change: &Vector) -> bool {
        !self.promises()
            || self.governed().any(|(index, guaranteed)| self.settled(index) + change.get(index) > guaranteed)
    }
}
