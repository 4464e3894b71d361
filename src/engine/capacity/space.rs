//! Free capacity on one node, and the demand of a pod.
//!
//! Most resources are plain amounts. A resource that counts devices (an extended resource) is different: a
//! whole number asks for devices that are not shared, a fraction for part of a single device. Fractions
//! share a device as long as they add up to at most one.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::types::vector::Vector;

/// One device, in the thousandths that amounts are counted in.
pub const DEVICE: i64 = 1000;

/// The demand of one pod on a node.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    amounts: Vector,
    fractions: Vec<(usize, i64)>,
}

impl Demand {
    /// Splits a need into plain amounts and fractions; `is_device` tells which resources count devices.
    pub fn new(need: &Vector, is_device: impl Fn(usize) -> bool) -> Self {
        let mut amounts = need.clone();
        let mut fractions = Vec::new();
        for (resource, milli) in need.nonzero() {
            if is_device(resource) && milli % DEVICE != 0 {
                amounts.set(resource, 0);
                fractions.push((resource, milli));
            }
        }
        Self { amounts, fractions }
    }

    /// The fractions of single devices, as (resource, thousandths).
    pub fn fractions(&self) -> &[(usize, i64)] {
        &self.fractions
    }
}

/// A device that fractions lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedDevice {
    /// The resource that counts it.
    pub resource: usize,
    /// Its free rest in thousandths.
    pub left: i64,
    /// Its index among the shared devices of the node; `None` for a device that would become shared.
    pub index: Option<usize>,
}

/// Free capacity on a node.
#[derive(Clone, Debug, Default)]
pub struct Space {
    amounts: Vector,
    shared: Vec<SharedDevice>,
}

impl Space {
    /// Capacity of `amounts`; the devices listed are shared already, all others are untouched.
    #[must_use]
    pub fn new(amounts: Vector, shared: Vec<SharedDevice>) -> Self {
        Self { amounts, shared }
    }

    /// Corrects a space with more shared devices than exist. Of the last devices that are `nominated` only,
    /// nothing is left: they do not exist.
    #[must_use]
    pub fn limited_to_existing(mut self, nominated: impl Fn(usize) -> bool) -> Self {
        for index in (0..self.shared.len()).rev() {
            let device = self.shared[index];
            if device.index.is_some_and(&nominated) && self.untouched(device.resource) < 0 {
                self.shared[index].left = 0;
            }
        }
        self
    }

    /// Offers nothing more on as many shared devices as whole ones are nominated beyond the untouched: a reservation counts on
    /// them once the fractions there have ended. These are the devices with the largest rest, which hold least.
    #[must_use]
    pub fn without_awaited(mut self) -> Self {
        let resources: BTreeSet<usize> = self.shared.iter().map(|device| device.resource).collect();
        for resource in resources {
            let awaited = self.untouched(resource).min(0).unsigned_abs().div_ceil(DEVICE.unsigned_abs());
            let of_resource = self.shared.iter_mut().filter(|device| device.resource == resource);
            let mut offering: Vec<&mut SharedDevice> = of_resource.filter(|device| device.left > 0).collect();
            offering.sort_by_key(|device| Reverse(device.left));
            offering.into_iter().zip(0..awaited).for_each(|(device, _)| device.left = 0);
        }
        self
    }

    /// The free amount of each resource, with the rest of shared devices.
    #[must_use]
    pub fn amounts(&self) -> &Vector {
        &self.amounts
    }

    /// The shared devices, including those that would become shared.
    #[must_use]
    pub fn shared(&self) -> &[SharedDevice] {
        &self.shared
    }

    /// The free amount of a resource on devices that are not shared.
    #[must_use]
    pub fn untouched(&self, resource: usize) -> i64 {
        self.amounts.get(resource).saturating_sub(self.left_on(resource).sum())
    }

    /// How many pods of this demand fit.
    #[must_use]
    pub fn fits(&self, demand: &Demand) -> u32 {
        let mut times = i64::from(u32::MAX);
        for (resource, milli) in demand.amounts.nonzero() {
            let free =
                if self.shared.is_empty() { self.amounts.get(resource) } else { self.untouched(resource) };
            times = times.min(free.max(0) / milli.max(1));
        }
        for (resource, fraction) in &demand.fractions {
            let fraction = (*fraction).max(1);
            let on_shared: i64 = self.left_on(*resource).map(|left| left.max(0) / fraction).sum();
            let on_new = self.untouched(*resource).max(0) / DEVICE * (DEVICE / fraction);
            times = times.min(on_shared + on_new);
        }
        u32::try_from(times).unwrap_or(u32::MAX)
    }

    /// Whether both have the same amounts and the same pieces of devices.
    #[must_use]
    pub fn equals(&self, other: &Self) -> bool {
        let pieces = |space: &Self| -> Vec<(usize, i64)> {
            space.shared.iter().map(|device| (device.resource, device.left)).collect()
        };
        self.amounts.equals(&other.amounts) && pieces(self) == pieces(other)
    }

    /// The tightest shared device with space for a fraction. Of equals it is the one that became shared last, since the pods there
    /// mostly end last too: the others are untouched again sooner.
    #[must_use]
    pub fn tightest_shared(&self, resource: usize, fraction: i64) -> Option<usize> {
        let fitting = self.shared.iter().enumerate();
        let fitting = fitting.filter(|(_, device)| device.resource == resource && device.left >= fraction);
        fitting.min_by_key(|(at, device)| (device.left, Reverse(*at))).map(|(at, _)| at)
    }

    /// Takes the demand of `pods` pods out: each fraction from the tightest shared device, else from a new
    /// one.
    pub fn take(&mut self, demand: &Demand, pods: u32) {
        self.amounts.add(&demand.amounts, -i64::from(pods));
        for (resource, fraction) in &demand.fractions {
            for _ in 0..pods {
                self.amounts.set(*resource, self.amounts.get(*resource).saturating_sub(*fraction));
                match self.tightest_shared(*resource, *fraction) {
                    Some(index) => self.shared[index].left -= fraction,
                    None => {
                        self.shared.push(SharedDevice {
                            resource: *resource,
                            left: DEVICE - fraction,
                            index: None,
                        });
                    }
                }
            }
        }
    }

    /// Takes the demand of `pods` pods out, with its fractions on these devices: each a resource, thousandths, and the device.
    pub fn take_on(&mut self, demand: &Demand, pods: u32, devices: &[(usize, i64, usize)]) {
        self.amounts.add(&demand.amounts, -i64::from(pods));
        devices.iter().for_each(|device| self.join(*device));
    }

    /// Puts a fraction on a device, which becomes shared by it unless it is already.
    pub fn join(&mut self, (resource, fraction, index): (usize, i64, usize)) {
        self.amounts.set(resource, self.amounts.get(resource).saturating_sub(fraction));
        match self.shared.iter_mut().find(|device| device.index == Some(index)) {
            Some(device) => device.left -= fraction,
            None => self.shared.push(SharedDevice { resource, left: DEVICE - fraction, index: Some(index) }),
        }
    }

    fn left_on(&self, resource: usize) -> impl Iterator<Item = i64> + '_ {
        self.shared.iter().filter(move |device| device.resource == resource).map(|device| device.left)
    }
}
