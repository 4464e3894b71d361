//! Dense resource vectors: a [`ResourceList`] with small numbers in place of names, for arithmetic.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::types::CURRENCY;
use crate::types::amount::{Amount, ResourceList, ResourceName};

/// The resource that stands for a node's pod slots.
pub const PODS: &str = "pods";

/// The number of CPU.
pub const CPU: usize = 0;
/// The number of memory.
pub const MEMORY: usize = 1;
/// The number of pod slots.
pub const SLOTS: usize = 2;

/// The number that stands for every resource without a number of its own: no node and no quota names it.
pub const UNOFFERED: usize = 3;

/// The numbering of resource names: CPU, memory and pod slots first, then in the order in which nodes and quotas name
/// them. Any user may request any name, so a request alone gives no number: vectors stay short.
#[derive(Clone, Debug)]
pub struct Resources {
    names: Vec<ResourceName>,
    /// Whether each counts devices.
    devices: Vec<bool>,
    index: BTreeMap<ResourceName, usize>,
}

impl Default for Resources {
    fn default() -> Self {
        let mut resources = Self { names: Vec::new(), devices: Vec::new(), index: BTreeMap::new() };
        for name in ["cpu", "memory", PODS, "(offered by no node)"] {
            resources.intern(&name.into());
        }
        resources
    }
}

impl Resources {
    /// The number of `name`. A new name gets the next number.
    pub fn intern(&mut self, name: &ResourceName) -> usize {
        if let Some(index) = self.index.get(name) {
            return *index;
        }
        let index = self.names.len();
        self.names.push(name.clone());
        self.devices.push(name.contains('/') && **name != *CURRENCY);
        self.index.insert(name.clone(), index);
        index
    }

    /// How many resources have a number.
    #[must_use]
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The number of `name`, if it has one.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<usize> {
        self.index.get(name).copied()
    }

    /// The dense form of `list`.
    pub fn vector(&mut self, list: &ResourceList) -> Vector {
        let mut vector = Vector::default();
        for (name, amount) in list {
            vector.set(self.intern(name), amount.as_milli());
        }
        vector
    }

    /// The dense form of requests. What no node and no quota names counts as one [`UNOFFERED`] resource.
    #[must_use]
    pub fn request(&self, list: &ResourceList) -> Vector {
        let mut vector = Vector::default();
        for (name, amount) in list.iter().filter(|(_, amount)| **amount != Amount::ZERO) {
            match self.find(name) {
                Some(index) => vector.set(index, amount.as_milli()),
                None => vector.set(UNOFFERED, 1000),
            }
        }
        vector
    }

    /// The list form, without zeros.
    #[must_use]
    pub fn list(&self, vector: &Vector) -> ResourceList {
        vector.nonzero().map(|(index, milli)| (self.names[index].clone(), Amount::milli(milli))).collect()
    }

    /// The name of resource number `index`.
    #[must_use]
    pub fn name(&self, index: usize) -> &ResourceName {
        &self.names[index]
    }

    /// Whether the resource counts devices such as GPUs: an extended resource, named with a domain.
    #[must_use]
    pub fn is_device(&self, index: usize) -> bool {
        self.devices.get(index).copied().unwrap_or(false)
    }
}

/// How many amounts a vector stores inline. Most vectors live for one decision only, where a heap allocation
/// would cost more than the arithmetic.
const FEW: usize = 8;

/// Amounts in thousandths by resource number. An amount that is not set is zero.
///
/// Sums are exact, however absurd the amounts that users write: what is added and taken off again leaves no trace. They
/// are read as the nearest `i64`.
#[derive(Clone, Debug, Default)]
pub struct Vector(SmallVec<[i128; FEW]>);

/// The nearest amount.
fn nearest(milli: i128) -> i64 {
    i64::try_from(milli).unwrap_or(if milli < 0 { i64::MIN } else { i64::MAX })
}

impl Vector {
    /// The amount of resource number `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> i64 {
        self.0.get(index).copied().map_or(0, nearest)
    }

    /// One more than the highest resource number that was ever set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Sets the amount of resource number `index`.
    pub fn set(&mut self, index: usize, milli: i64) {
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] = i128::from(milli);
    }

    /// Every resource number up to the last one set, with its amount.
    pub fn entries(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        self.0.iter().copied().map(nearest).enumerate()
    }

    /// The resources with an amount other than zero.
    pub fn nonzero(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        self.entries().filter(|(_, milli)| *milli != 0)
    }

    /// Adds `times` × `other`; `times` may be negative.
    pub fn add(&mut self, other: &Self, times: i64) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = mine.saturating_add(theirs.saturating_mul(i128::from(times)));
        }
    }

    /// This vector plus `times` × `other`.
    #[must_use]
    pub fn plus(&self, other: &Self, times: i64) -> Self {
        let mut total = self.clone();
        total.add(other, times);
        total
    }

    /// The amounts of so many pods of which each needs this.
    #[must_use]
    pub fn times(&self, pods: u32) -> Self {
        Self::default().plus(self, i64::from(pods))
    }

    /// Whether both hold the same amounts.
    #[must_use]
    pub fn equals(&self, other: &Self) -> bool {
        let length = self.0.len().max(other.0.len());
        let at = |amounts: &Self, index| amounts.0.get(index).copied().unwrap_or(0);
        (0..length).all(|index| at(self, index) == at(other, index))
    }

    /// How often `need` fits: the smallest quotient over its resources. `u32::MAX` if `need` is zero.
    #[must_use]
    pub fn fits(&self, need: &Self) -> u32 {
        let mut times = i64::from(u32::MAX);
        for (index, milli) in need.nonzero() {
            times = times.min(self.get(index).max(0) / milli.max(1));
        }
        u32::try_from(times.max(0)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_and_taken_off_leaves_no_trace_whatever_its_size() {
        let of = |milli| {
            let mut vector = Vector::default();
            vector.set(0, milli);
            vector
        };
        let mut held = of(5_000);
        held.add(&of(i64::MAX), i64::from(u32::MAX));
        assert_eq!(held.get(0), i64::MAX);
        held.add(&of(i64::MIN), 3);
        held.add(&of(i64::MAX), -i64::from(u32::MAX));
        assert_eq!(held.get(0), i64::MIN);
        held.add(&of(i64::MIN), -3);
        assert!(held.equals(&of(5_000)));
    }
}
