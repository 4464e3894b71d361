//! The kinds of pods seen, as a bounded summary.

use std::collections::BTreeMap;

use super::{Ask, PARTS, SCALE};
use crate::fit;
use crate::model::{Name, Node, PodShape};
use crate::space::{DEVICE, Space};
use crate::vector::Vector;

/// So many kinds are counted at most.
const KINDS: usize = 1024;
/// So many of them are typical at most; their numbers are bits of a `u64`.
const TYPICAL: usize = 48;
/// Typical kinds cover so many percent of the pods.
const COVERED: u64 = 95;
/// Room for a kind weighs at most so many times as much as room that every kind can use.
const SCARCE: u128 = 100;
/// A weight stands until it is off by more than one part in so many.
const STEADY: i64 = 16;

/// The pools that pods may go to, and what they demand there.
type Kind = (Vec<Name>, PodShape);

#[derive(Clone, Debug)]
struct Count {
    ask: Ask,
    pods: u64,
}

/// A kind of pods that is seen often.
#[derive(Clone, Debug)]
struct Class {
    kind: Kind,
    ask: Ask,
    pods: u64,
    weight: i64,
}

/// What is seen, and which of it is typical.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    counts: BTreeMap<Kind, Count>,
    pods: u64,
    /// The typical kinds are chosen anew once so many pods have been seen.
    choose_at: u64,
    classes: Vec<Class>,
    /// By resource, the largest amount of which every typical kind asks a multiple.
    steps: BTreeMap<usize, i64>,
}

impl Mix {
    /// Counts the pods of a new workload; true if other kinds are typical now.
    pub fn note(&mut self, pools: Vec<Name>, shape: &PodShape, ask: &Ask, pods: u32) -> bool {
        let pods = u64::from(pods);
        self.pods += pods;
        let count = self.counts.entry((pools, shape.clone()));
        count.or_insert_with(|| Count { ask: ask.clone(), pods: 0 }).pods += pods;
        while self.counts.len() > KINDS {
            // The rare ones go; what is left keeps its proportions.
            self.counts.retain(|_, count| {
                count.pods /= 2;
                count.pods > 0
            });
            self.pods = self.counts.values().map(|count| count.pods).sum();
            self.choose_at = self.choose_at.min(self.pods);
        }
        if self.pods < self.choose_at {
            return false;
        }
        self.choose_at = self.pods + (self.pods / 4).max(1);
        self.choose()
    }

    fn choose(&mut self) -> bool {
        let mut kinds: Vec<(&Kind, &Count)> = self.counts.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(count.pods));
        let mut covered = 0;
        let enough = |pods: u64| pods * 100 >= self.pods * COVERED;
        let mut chosen = Vec::new();
        for (kind, count) in kinds.into_iter().take(TYPICAL) {
            if enough(covered) {
                break;
            }
            covered += count.pods;
            chosen.push((kind.clone(), count));
        }
        // In the order of their descriptions, so that a mere change of places is none.
        chosen.sort_by(|left, right| left.0.cmp(&right.0));
        if self.classes.iter().map(|class| &class.kind).eq(chosen.iter().map(|(kind, _)| kind)) {
            for (class, (_, count)) in self.classes.iter_mut().zip(&chosen) {
                class.pods = count.pods;
            }
            return false;
        }
        self.classes = chosen
            .into_iter()
            .map(|(kind, count)| Class { kind, ask: count.ask.clone(), pods: count.pods, weight: 0 })
            .collect();
        self.steps.clear();
        for (resource, milli) in self.classes.iter().flat_map(|class| &class.ask.devices) {
            let step = self.steps.entry(*resource).or_default();
            *step = common_divisor(*step, *milli);
        }
        true
    }

    /// Weighs the kinds: by how often they are seen, and by what is idle over what of it they can use;
    /// room counts in pods, so that a large pod weighs no more than a small one. True if a weight has changed notably.
    pub fn weigh(&mut self, idle: &Vector, usable: &[i64]) -> bool {
        let total: u64 = self.classes.iter().map(|class| class.pods).sum();
        let weights: Vec<i64> = self
            .classes
            .iter()
            .enumerate()
            .map(|(index, class)| {
                let idle: i64 = class.ask.devices.iter().map(|(resource, _)| idle.get(*resource)).sum();
                let usable = usable.get(index).copied().unwrap_or(0) / PARTS;
                let size: i64 = class.ask.devices.iter().map(|(_, milli)| milli).sum();
                let pods = u128::from(class.pods) * unsigned(DEVICE) * scarcity(idle, usable);
                let weight = pods / (unsigned(size).max(1) * u128::from(total.max(1)));
                i64::try_from(weight).unwrap_or(i64::MAX)
            })
            .collect();
        let off = |class: &Class, weight: i64| (class.weight - weight).abs() > class.weight.max(1) / STEADY;
        if !self.classes.iter().zip(&weights).any(|(class, weight)| off(class, *weight)) {
            return false;
        }
        for (class, weight) in self.classes.iter_mut().zip(weights) {
            class.weight = weight;
        }
        true
    }

    /// Which typical kinds a node admits, as bits.
    #[must_use]
    pub fn admitted(&self, node: &Node, pool: &Name) -> u64 {
        let admits = |class: &Class| class.kind.0.contains(pool) && fit::admits(node, &class.kind.1);
        let classes = self.classes.iter().enumerate().filter(|(_, class)| admits(class));
        classes.fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// What every typical kind can use of some room, in parts of [`PARTS`].
    #[must_use]
    pub fn usable(&self, admits: u64, space: &Space) -> Vec<i64> {
        let classes = self.classes.iter().enumerate();
        classes
            .map(|(i, class)| if admits & 1 << i == 0 { 0 } else { self.usable_by(class, space) })
            .collect()
    }

    /// What some room is worth to the typical kinds.
    #[must_use]
    pub fn value(&self, admits: u64, space: &Space) -> i64 {
        let classes = self.classes.iter().enumerate().filter(|(index, _)| admits & 1 << index != 0);
        classes.fold(0, |sum: i64, (_, class)| {
            sum.saturating_add(class.weight.saturating_mul(self.usable_by(class, space)))
        })
    }

    /// The resources that typical kinds count devices in.
    pub fn resources(&self) -> impl Iterator<Item = usize> {
        self.steps.keys().copied()
    }

    /// For the greater part the devices that suit one pod, if one fits, and for one part those used by
    /// as many as fit. What is left over beside pods of any typical kind is no use to one more.
    fn usable_by(&self, class: &Class, space: &Space) -> i64 {
        let fits = i64::from(space.fits(&class.ask.demand));
        if fits == 0 {
            return 0;
        }
        let once = |resource: usize, milli: i64| {
            let step = self.steps.get(&resource).copied().unwrap_or(1).max(1);
            let untouched = space.untouched(resource).max(0);
            if milli % DEVICE == 0 {
                return untouched / step * step;
            }
            let shared = space.shared().iter().filter(|d| d.resource == resource && d.left >= milli);
            untouched / DEVICE * (DEVICE / step * step)
                + shared.map(|device| device.left / step * step).sum::<i64>()
        };
        let devices = class.ask.devices.iter();
        devices
            .map(|(resource, milli)| (PARTS - 1) * once(*resource, *milli) + fits.saturating_mul(*milli))
            .sum()
    }
}

/// By how much room for a kind weighs more than room that every kind can use: what is idle over what of
/// it the kind can use, to the power of 1.5, in fixed point.
fn scarcity(idle: i64, usable: i64) -> u128 {
    let idle = unsigned(idle.max(0) + DEVICE) << SCALE;
    let ratio = (idle / unsigned(usable.max(0) + DEVICE)).min(SCARCE << SCALE);
    ((ratio * ratio * ratio).isqrt() >> (SCALE / 2)).min(SCARCE << SCALE)
}

fn unsigned(amount: i64) -> u128 {
    u128::try_from(amount).unwrap_or(0)
}

fn common_divisor(left: i64, right: i64) -> i64 {
    if right == 0 { left } else { common_divisor(right, left % right) }
}
