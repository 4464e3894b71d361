//! The mix of pods: a bounded summary of the kinds of pods seen so far.

use std::collections::BTreeMap;

use crate::capacity::fit;
use crate::capacity::packing::scale::{PARTS, SCALE};
use crate::capacity::space::{DEVICE, Space};
use crate::types::vector::{MEMORY, Vector};
use crate::types::{Name, Node, PodShape};

/// At most this many kinds are counted.
const KINDS: usize = 1024;
/// At most this many kinds are typical; their numbers are bits of [`Kinds`].
const TYPICAL: usize = 128;
/// The most frequent kinds are typical until they cover this percentage of all pods.
const COVERED: u64 = 95;
/// The largest factor by which scarcity raises the weight of a kind.
const SCARCE: u128 = 100;
/// A weight stands until it is off by more than one part in this many.
const STEADY: i64 = 16;
/// The mix is reviewed after 1, 2, 4, … workloads, and later whenever this many more have come.
const PACE: u64 = 512;

/// A set of typical kinds, as bits.
pub type Kinds = u128;

/// The properties of a pod that matter to packing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    /// The pools that may hold it.
    pools: Vec<Name>,
    /// Its demands on a node besides capacity.
    demands: PodShape,
    /// Its need: devices and CPU as requested, memory rounded down to a power of two.
    need: Vec<(usize, i64)>,
}

/// A part of a pod's need that devices meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    resource: usize,
    milli: i64,
}

/// A typical kind.
#[derive(Clone, Debug)]
struct Class {
    kind: Kind,
    /// The devices it needs, as positions in [`Mix::pieces`].
    pieces: Vec<usize>,
    /// The rest of its need.
    others: Vec<(usize, i64)>,
    /// Thousandths of devices that one pod takes.
    size: i64,
    pods: u64,
    weight: i64,
}

/// The kinds seen, and the typical ones among them.
#[derive(Clone, Debug, Default)]
pub struct Mix {
    counts: BTreeMap<Kind, u64>,
    /// Pods counted, and workloads seen.
    pods: u64,
    seen: u64,
    /// The numbers of workloads at which the typical kinds are chosen again, and weighed again.
    choose_at: u64,
    weigh_at: u64,
    classes: Vec<Class>,
    /// Every distinct need of devices among the typical kinds.
    pieces: Vec<Piece>,
    /// By resource, the greatest common divisor of the needs of the typical kinds.
    steps: BTreeMap<usize, i64>,
}

/// The work that is due after a workload was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// No work.
    Nothing,
    /// The typical kinds must be weighed.
    Weighing,
    /// Other kinds are typical: every state must be computed again.
    Everything,
}

impl Mix {
    /// Counts the pods of a new workload, each with `need`.
    pub fn record(
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
            // Rare kinds are dropped; the rest keeps its proportions.
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

    /// Chooses the typical kinds: the most frequent ones, and the kinds of several devices, which need their
    /// capacity kept even if they are rare. True if the choice has changed.
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
        // Sorted by description, so a different order of frequency alone is no change.
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
            let size = devices.iter().fold(0, |sum: i64, (_, milli)| sum.saturating_add(*milli));
            classes.push(Class { kind: kind.clone(), pieces, others, size, pods, weight: 0 });
        }
        self.classes = classes;
        true
    }

    /// Weighs the typical kinds by frequency, and by how much of the idle capacity each can use. Weights
    /// count pods, so a large pod weighs no more than a small one. True if a weight has changed notably.
    pub fn weigh(&mut self, idle: &Vector, usable: &[i64]) -> bool {
        let total: u64 = self.classes.iter().map(|class| class.pods).sum();
        let weights: Vec<i64> = self
            .classes
            .iter()
            .enumerate()
            .map(|(index, class)| {
                let idle: i64 = class
                    .pieces
                    .iter()
                    .map(|piece| idle.get(self.pieces[*piece].resource))
                    .fold(0, i64::saturating_add);
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

    /// The typical kinds that a node admits.
    #[must_use]
    pub fn admitted(&self, node: &Node, pool: &Name) -> Kinds {
        let admits = |kind: &Kind| kind.pools.contains(pool) && fit::admits(node, &kind.demands);
        let classes = self.classes.iter().enumerate().filter(|(_, class)| admits(&class.kind));
        classes.fold(0, |kinds, (index, _)| kinds | 1 << index)
    }

    /// The part of a space that each typical kind can use, in [`PARTS`].
    #[must_use]
    pub fn usable(&self, admits: Kinds, space: &Space) -> Vec<i64> {
        let mut usable = vec![0; self.classes.len()];
        self.each_usable(admits, space, |index, parts| usable[index] = parts);
        usable
    }

    /// The value of a space to the typical kinds.
    #[must_use]
    pub fn value(&self, admits: Kinds, space: &Space) -> i64 {
        let mut value = 0_i64;
        self.each_usable(admits, space, |index, parts| {
            value = value.saturating_add(self.classes[index].weight.saturating_mul(parts));
        });
        value
    }

    /// The value of a space of which the kinds can use `usable`.
    #[must_use]
    pub fn value_of(&self, usable: &[i64]) -> i64 {
        let parts = self.classes.iter().zip(usable);
        parts.fold(0, |sum: i64, (class, parts)| sum.saturating_add(class.weight.saturating_mul(*parts)))
    }

    /// The resources that typical kinds count devices in.
    pub fn resources(&self) -> impl Iterator<Item = usize> {
        self.steps.keys().copied()
    }

    /// Calls `found` with each kind that fits, and with its usable devices: all parts but one count the
    /// devices that suit one pod, and one part counts the devices that as many pods as fit would use.
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
                    let (suits, milli) = (pieces[*piece].0, self.pieces[*piece].milli);
                    suits.saturating_mul(PARTS - 1).saturating_add(fits.saturating_mul(milli))
                };
                found(index, class.pieces.iter().map(of).fold(0, i64::saturating_add));
            }
        }
    }

    /// The free devices that suit a need, and how many pods they suffice for. A remainder beside pods of
    /// every typical kind is of no use to a further pod and is left out.
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

/// The factor of scarcity for a kind: the square of idle ÷ usable capacity, in fixed point.
fn scarcity(idle: i64, usable: i64) -> u128 {
    let idle = unsigned(idle.max(0).saturating_add(DEVICE)) << SCALE;
    let ratio = (idle / unsigned(usable.max(0).saturating_add(DEVICE))).min(SCARCE << SCALE);
    ((ratio * ratio) >> SCALE).min(SCARCE << SCALE)
}

fn unsigned(amount: i64) -> u128 {
    u128::try_from(amount).unwrap_or(0)
}

/// The largest power of two that is no larger. Rounded up, a kind might seem to fit nowhere.
fn power_of_two_below(milli: i64) -> i64 {
    if milli < 1 { milli } else { 1 << milli.ilog2() }
}

fn common_divisor(left: i64, right: i64) -> i64 {
    if right == 0 { left } else { common_divisor(right, left % right) }
}
