//! The kinds of pods seen, as a bounded summary.

use std::collections::BTreeMap;

use crate::capacity::fit;
use crate::capacity::packing::{PARTS, SCALE};
use crate::capacity::space::{DEVICE, Space};
use crate::types::vector::{MEMORY, Vector};
use crate::types::{Name, Node, PodShape};

/// So many kinds are counted at most.
const KINDS: usize = 1024;
/// So many of them are typical at most; their numbers are bits of [`Kinds`].
const TYPICAL: usize = 128;
/// The most frequent kinds are typical until they cover so many percent of the pods.
const COVERED: u64 = 95;
/// Room for a kind weighs at most so many times as much as room that every kind can use.
const SCARCE: u128 = 100;
/// A weight stands until it is off by more than one part in so many.
const STEADY: i64 = 16;
/// The mix is looked at anew after 1, 2, 4, … workloads, and then whenever so many more have come.
const PACE: u64 = 512;

/// A set of typical kinds, as bits.
pub type Kinds = u128;

/// What pods ask for, as far as it matters to packing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// The pools they may go to.
    pools: Vec<Name>,
    /// What they demand of a node beside room.
    demands: PodShape,
    /// The room one takes: devices and CPU as asked for, memory in steps of powers of two.
    need: Vec<(usize, i64)>,
}

/// A part of a pod's need that is met by devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    resource: usize,
    milli: i64,
}

/// A kind of pods that is seen often.
#[derive(Clone, Debug)]
struct Class {
    kind: Kind,
    /// The devices it needs, as places in [`Mix::pieces`].
    pieces: Vec<usize>,
    /// What else it needs.
    others: Vec<(usize, i64)>,
    /// Thousandths of devices that one pod takes.
    size: i64,
    pods: u64,
    weight: i64,
}

/// What is seen, and which of it is typical.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    counts: BTreeMap<Kind, u64>,
    /// Pods counted, and workloads seen.
    pods: u64,
    seen: u64,
    /// The numbers of workloads at which the mix is looked at next: the kinds, and their weights.
    choose_at: u64,
    weigh_at: u64,
    classes: Vec<Class>,
    /// Every different need of devices among the typical kinds.
    pieces: Vec<Piece>,
    /// By resource, the largest amount of which every typical kind asks a multiple.
    steps: BTreeMap<usize, i64>,
}

/// What is to be done after a workload has been counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// The kinds must be weighed.
    Weighing,
    /// Other kinds are typical: everything about them must be worked out anew.
    Everything,
}

impl Mix {
    /// Counts the pods of a new workload, of which each needs `need`.
    pub fn note(
        &mut self,
        pools: Vec<Name>,
        shape: &PodShape,
        need: &Vector,
        is_device: impl Fn(usize) -> bool,
        pods: u32,
    ) -> Due {
        let need = need.nonzero().map(|(resource, milli)| match resource {
            MEMORY => (resource, power_of_two_below(milli)),
            _ => (resource, milli),
        });
        let kind = Kind {
            pools,
            demands: PodShape { requests: BTreeMap::new(), ..shape.clone() },
            need: need.collect(),
        };
        *self.counts.entry(kind).or_default() += u64::from(pods);
        self.pods += u64::from(pods);
        self.seen += 1;
        while self.counts.len() > KINDS {
            // The rare ones go; what is left keeps its proportions.
            self.counts.retain(|_, pods| {
                *pods /= 2;
                *pods > 0
            });
            self.pods = self.counts.values().sum();
        }
        if self.seen < self.weigh_at {
            return Due::Nothing;
        }
        self.weigh_at = if self.seen < PACE { self.seen * 2 } else { self.seen + PACE };
        if self.seen >= self.choose_at {
            self.choose_at =
                if self.seen < PACE { self.seen * 2 } else { self.seen + PACE.max(self.seen / 4) };
            if self.choose(is_device) {
                return Due::Everything;
            }
        }
        Due::Weighing
    }

    /// Chooses the typical kinds: the most frequent ones, and those of several devices, which need their
    /// room kept even if they are few. True if they are others than before.
    fn choose(&mut self, is_device: impl Fn(usize) -> bool) -> bool {
        let mut kinds: Vec<(&Kind, u64)> = self.counts.iter().map(|(kind, pods)| (kind, *pods)).collect();
        kinds.sort_by_key(|(_, pods)| std::cmp::Reverse(*pods));
        let mut covered = 0;
        let mut chosen: Vec<(&Kind, u64)> = Vec::new();
        for (kind, pods) in kinds {
            let devices = || kind.need.iter().filter(|(resource, _)| is_device(*resource));
            let several = devices().any(|(_, milli)| *milli > DEVICE);
            if (several || covered * 100 < self.pods * COVERED) && devices().next().is_some() {
                chosen.push((kind, pods));
            }
            covered += pods;
        }
        chosen.truncate(TYPICAL);
        // In the order of their descriptions, so that a mere change of places is none.
        chosen.sort_unstable();
        if self.classes.iter().map(|class| &class.kind).eq(chosen.iter().map(|(kind, _)| *kind)) {
            for (class, (_, pods)) in self.classes.iter_mut().zip(&chosen) {
                class.pods = *pods;
            }
            return false;
        }
        (self.pieces, self.steps) = (Vec::new(), BTreeMap::new());
        let mut classes = Vec::new();
        for (kind, pods) in chosen {
            let part = |of_devices: bool| -> Vec<(usize, i64)> {
                let wanted = |(resource, _): &&(usize, i64)| is_device(*resource) == of_devices;
                kind.need.iter().filter(wanted).copied().collect()
            };
            let (devices, others) = (part(true), part(false));
            let mut pieces = Vec::new();
            for (resource, milli) in &devices {
                let step = self.steps.entry(*resource).or_default();
                *step = common_divisor(*step, *milli);
                let piece = Piece { resource: *resource, milli: *milli };
                let known = self.pieces.iter().position(|known| *known == piece);
                pieces.push(known.unwrap_or(self.pieces.len()));
                if known.is_none() {
                    self.pieces.push(piece);
                }
            }
            let size = devices.iter().map(|(_, milli)| milli).sum();
            classes.push(Class { kind: kind.clone(), pieces, others, size, pods, weight: 0 });
        }
        self.classes = classes;
        true
    }

    /// Weighs the kinds: by how often they are seen, and by what is idle over what of it they can use;
    /// room counts in pods, so that a large pod weighs no more than a small one. True if a weight has
    /// changed notably.
    pub fn weigh(&mut self, idle: &Vector, usable: &[i64]) -> bool {
        let total: u64 = self.classes.iter().map(|class| class.pods).sum();
        let weights: Vec<i64> = self
            .classes
            .iter()
            .enumerate()
            .map(|(index, class)| {
                let idle: i64 = class.pieces.iter().map(|piece| idle.get(self.pieces[*piece].resource)).sum();
                let usable = usable.get(index).copied().unwrap_or(0) / PARTS;
                let pods = u128::from(class.pods) * unsigned(DEVICE) * scarcity(idle, usable);
                let weight = pods / (unsigned(class.size).max(1) * u128::from(total.max(1)));
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

    /// Which typical kinds a node admits.
    #[must_use]
    pub fn admitted(&self, node: &Node, pool: &Name) -> Kinds {
        let admits = |kind: &Kind| kind.pools.contains(pool) && fit::admits(node, &kind.demands);
        let classes = self.classes.iter().enumerate().filter(|(_, class)| admits(&class.kind));
        classes.fold(0, |kinds, (index, _)| kinds | 1 << index)
    }

    /// What every typical kind can use of some room, in parts of [`PARTS`].
    #[must_use]
    pub fn usable(&self, admits: Kinds, space: &Space) -> Vec<i64> {
        let mut usable = vec![0; self.classes.len()];
        self.each_usable(admits, space, |index, parts| usable[index] = parts);
        usable
    }

    /// What some room is worth to the typical kinds.
    #[must_use]
    pub fn value(&self, admits: Kinds, space: &Space) -> i64 {
        let mut value = 0_i64;
        self.each_usable(admits, space, |index, parts| {
            value = value.saturating_add(self.classes[index].weight.saturating_mul(parts));
        });
        value
    }

    /// What such room is worth, of which that is usable.
    #[must_use]
    pub fn value_of(&self, usable: &[i64]) -> i64 {
        let parts = self.classes.iter().zip(usable);
        parts.fold(0, |sum: i64, (class, parts)| sum.saturating_add(class.weight.saturating_mul(*parts)))
    }

    /// The resources that typical kinds count devices in.
    pub fn resources(&self) -> impl Iterator<Item = usize> {
        self.steps.keys().copied()
    }

    /// For the greater part the devices that suit one pod, if one fits, and for one part those used by
    /// as many as fit.
    fn each_usable(&self, admits: Kinds, space: &Space, mut found: impl FnMut(usize, i64)) {
        let pieces: Vec<(i64, i64)> = self.pieces.iter().map(|piece| self.suited(*piece, space)).collect();
        let mut rest = admits;
        while rest != 0 {
            let index = usize::try_from(rest.trailing_zeros()).unwrap_or(TYPICAL);
            rest &= rest - 1;
            let class = &self.classes[index];
            let mut fits = class.pieces.iter().map(|piece| pieces[*piece].1).min().unwrap_or(0);
            for (resource, milli) in &class.others {
                let free = space.amounts().get(*resource).max(0);
                if milli.saturating_mul(fits) > free {
                    fits = free / milli;
                }
            }
            if fits > 0 {
                let of = |piece: &usize| {
                    (PARTS - 1) * pieces[*piece].0 + fits.saturating_mul(self.pieces[*piece].milli)
                };
                found(index, class.pieces.iter().map(of).sum());
            }
        }
    }

    /// What of the free devices suits a need, and how often it can be met. What would be left over
    /// beside pods of any typical kind is no use to one more.
    fn suited(&self, piece: Piece, space: &Space) -> (i64, i64) {
        let step = self.steps.get(&piece.resource).copied().unwrap_or(1).max(1);
        let untouched = space.untouched(piece.resource).max(0);
        if piece.milli % DEVICE == 0 {
            return (untouched / step * step, untouched / piece.milli.max(1));
        }
        let devices = untouched / DEVICE;
        let (mut suits, mut times) =
            (devices * (DEVICE / step * step), devices * (DEVICE / piece.milli.max(1)));
        for device in space.shared() {
            if device.resource == piece.resource && device.left >= piece.milli {
                suits += device.left / step * step;
                times += device.left / piece.milli.max(1);
            }
        }
        (suits, times)
    }
}

/// By how much room for a kind weighs more than room that every kind can use: the square of what is
/// idle over what of it the kind can use, in fixed point.
fn scarcity(idle: i64, usable: i64) -> u128 {
    let idle = unsigned(idle.max(0) + DEVICE) << SCALE;
    let ratio = (idle / unsigned(usable.max(0) + DEVICE)).min(SCARCE << SCALE);
    ((ratio * ratio) >> SCALE).min(SCARCE << SCALE)
}

fn unsigned(amount: i64) -> u128 {
    u128::try_from(amount).unwrap_or(0)
}

/// The largest power of two that is no more: rounded up, a kind might seem to fit nowhere.
fn power_of_two_below(milli: i64) -> i64 {
    if milli < 1 { milli } else { 1 << milli.ilog2() }
}

fn common_divisor(left: i64, right: i64) -> i64 {
    if right == 0 { left } else { common_divisor(right, left % right) }
}
