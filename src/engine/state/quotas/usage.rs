//! The usage of one team in one pool.

use std::cell::Cell;
use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::state::quotas::past::Past;
use crate::types::ratio::Ratio;
use crate::types::vector::Vector;

/// Guarantee, limit and usage of one team in one pool.
#[derive(Clone, Debug, Default)]
pub struct QuotaUsage {
    /// The resources that the guarantee covers, with the guaranteed amount: few, and every decision reads them.
    pub(super) governed: SmallVec<[(usize, i64); 2]>,
    /// The guarantee.
    pub guaranteed: Vector,
    /// The limit of each limited resource.
    pub limit: BTreeMap<usize, i64>,
    /// The part of the guarantee that may be lent; resources not listed are lent in full.
    pub(super) lendable: BTreeMap<usize, i64>,
    /// The sum of the guarantees of the teams below it, by resource.
    pub(super) below: BTreeMap<usize, i64>,
    /// The usage of the team and the teams below it.
    pub held: Vector,
    pub(super) terminating: Vector,
    pub(super) nominated: Vector,
    /// The part of the nominated capacity for workloads that do not run yet.
    pub(super) incoming: Vector,
    /// The part of that of workloads that are larger than the guarantee.
    pub(super) incoming_oversize: Vector,
    /// The part of the usage, once all preemptors have started, that is never preempted.
    pub(super) fixed: Vector,
    /// The ending part of the usage that is never preempted.
    pub(super) fixed_terminating: Vector,
    /// The part of the usage, once all preemptors have started, of workloads that are larger than the guarantee.
    pub(super) oversize: Vector,
    /// Past borrowed usage, decayed over time (`QuotaTree::accrue`).
    pub past: Past,
    /// Cached results, valid until the next change.
    pub(super) share: Cell<Option<Ratio>>,
    pub(super) beyond: Cell<Option<bool>>,
}

impl QuotaUsage {
    /// Sets the guarantee, with the amount of each resource that it covers.
    pub(super) fn set_guarantee(&mut self, guaranteed: Vector, governed: BTreeMap<usize, i64>) {
        (self.guaranteed, self.governed) = (guaranteed, governed.into_iter().collect());
    }

    /// The usage once all terminating pods are gone and all preemptors have started.
    #[must_use]
    pub fn settled(&self, index: usize) -> i64 {
        self.after(index, 0, 0)
    }

    /// The same after a hypothetical change and with `more` usage. Amounts may be as large as users write them, so a sum
    /// that does not fit is the nearest one that does.
    #[must_use]
    pub fn after(&self, index: usize, change: i64, more: i64) -> i64 {
        let held = self.held.get(index).saturating_sub(self.terminating.get(index));
        held.saturating_add(self.nominated.get(index)).saturating_add(change).saturating_add(more)
    }

    /// The part of that usage that counts against the guarantee: without workloads that are larger than the guarantee (law
    /// 2).
    #[must_use]
    pub fn counted(&self, index: usize, change: i64, more: i64) -> i64 {
        self.after(index, change, more).saturating_sub(self.oversize.get(index))
    }

    /// What is nominated of a resource to workloads that do not run yet.
    #[must_use]
    pub fn incoming(&self, index: usize) -> i64 {
        self.incoming.get(index)
    }

    /// The usage once all terminating pods are gone, without workloads that do not run yet, after a hypothetical change:
    /// what the team could lose (law 3).
    #[must_use]
    pub fn running(&self, index: usize, change: i64) -> i64 {
        self.after(index, change, 0).saturating_sub(self.incoming.get(index))
    }

    /// The part of that usage that counts against the guarantee.
    #[must_use]
    pub fn running_counted(&self, index: usize, change: i64) -> i64 {
        let oversize = self.oversize.get(index).saturating_sub(self.incoming_oversize.get(index));
        self.running(index, change).saturating_sub(oversize)
    }

    /// What workloads that are larger than the guarantee use of a resource.
    #[must_use]
    pub fn oversize(&self, index: usize) -> i64 {
        self.oversize.get(index)
    }

    /// Whether workloads that are larger than the guarantee run.
    #[must_use]
    pub fn has_oversize(&self) -> bool {
        self.governed().any(|(index, _)| self.oversize.get(index) > 0)
    }

    /// Whether a workload of that smallest size is larger than the guarantee.
    #[must_use]
    pub(super) fn is_smaller_than(&self, least: &Vector) -> bool {
        self.governed().any(|(index, guaranteed)| least.get(index) > guaranteed)
    }

    /// The part of the usage, once all preemptors have started and ending pods are gone, that is never preempted.
    #[must_use]
    pub fn fixed(&self, index: usize) -> i64 {
        self.fixed.get(index)
    }

    /// The same with what ends of it and still holds its capacity.
    #[must_use]
    pub fn fixed_now(&self, index: usize) -> i64 {
        self.fixed(index).saturating_add(self.fixed_terminating.get(index))
    }

    /// Whether the team has a guarantee in the pool.
    #[must_use]
    pub fn has_guarantee(&self) -> bool {
        !self.governed.is_empty()
    }

    /// The resources that the guarantee covers, with the guaranteed amount.
    pub fn governed(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        self.governed.iter().copied()
    }

    /// Whether the guarantee covers a resource in `amount`.
    #[must_use]
    pub fn covers_any(&self, amount: &Vector) -> bool {
        self.governed().any(|(index, _)| amount.get(index) > 0)
    }

    /// Whether the guarantees of the teams below exceed its own, of some resource.
    #[must_use]
    pub(super) fn promises_too_much(&self) -> bool {
        self.governed()
            .any(|(index, guaranteed)| self.below.get(&index).is_some_and(|below| *below > guaranteed))
    }

    /// The resources that its guarantee or its limit lists.
    pub fn listed(&self) -> impl Iterator<Item = usize> + '_ {
        self.governed().map(|(index, _)| index).chain(self.limit.keys().copied())
    }

    /// The guarantee of a resource; without a guarantee of its own, the sum of those below it.
    #[must_use]
    pub fn effective_guarantee(&self, index: usize) -> i64 {
        if self.has_guarantee() {
            self.guaranteed.get(index)
        } else {
            self.below.get(&index).copied().unwrap_or(0)
        }
    }

    /// The part of `usage` that is borrowed of a resource. For a team without a guarantee, the guarantees of
    /// the teams below it count.
    #[must_use]
    pub fn borrowed(&self, index: usize, usage: i64) -> i64 {
        if self.has_guarantee() {
            if self.governed().any(|(governed, _)| governed == index) {
                usage.saturating_sub(self.guaranteed.get(index)).max(0)
            } else {
                0
            }
        } else if self.below.is_empty() {
            usage.max(0)
        } else {
            self.below.get(&index).map_or(0, |guaranteed| usage.saturating_sub(*guaranteed).max(0))
        }
    }

    /// What the team and the teams below it borrow at present.
    pub(super) fn borrowed_now(&self) -> Vector {
        let mut borrowed = Vector::default();
        for (index, held) in self.held.entries() {
            borrowed.set(index, self.borrowed(index, held));
        }
        borrowed
    }

    /// Clears the cached results, after any change.
    pub(super) fn clear_cache(&mut self) {
        self.share.set(None);
        self.beyond.set(None);
    }

    /// The team's own share in its present state, computed at most once between two changes.
    pub(super) fn share_or(&self, compute: impl FnOnce() -> Ratio) -> Ratio {
        self.share.get().unwrap_or_else(|| {
            let share = compute();
            self.share.set(Some(share));
            share
        })
    }

    /// Whether the usage of any resource exceeds the guarantee; always true without a guarantee.
    #[must_use]
    pub fn is_beyond_guarantee(&self) -> bool {
        self.beyond.get().unwrap_or_else(|| {
            let beyond = self.would_be_beyond_guarantee(&Vector::default());
            self.beyond.set(Some(beyond));
            beyond
        })
    }

    /// The same after a hypothetical change. What a guarantee does not count is beyond it, however little it is, and the
    /// first to go.
    #[must_use]
    pub fn would_be_beyond_guarantee(&self, change: &Vector) -> bool {
        !self.has_guarantee()
            || self.governed().any(|(index, guaranteed)| {
                let change = change.get(index);
                let oversize = self.oversize.get(index).saturating_sub(self.incoming_oversize.get(index));
                oversize.saturating_add(change.min(0)) > 0 || self.running(index, change) > guaranteed
            })
    }
}
