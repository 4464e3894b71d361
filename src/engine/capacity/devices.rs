//! The shared devices of one node, and the holders of their fractions.
//!
//! A fraction stays on its device until its pod is gone. Devices that one pod holds whole are interchangeable
//! and need no record.

use crate::capacity::space::{DEVICE, SharedDevice, Space};
use crate::types::vector::Vector;
use crate::types::{Name, PodId, WorkloadId};

/// A holder of capacity on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// The pods of a workload.
    Workload(WorkloadId),
    /// A pod of no workload that the engine manages.
    Pod(PodId),
}

impl Holder {
    /// The identity of the workload or pod.
    #[must_use]
    pub fn name(&self) -> &Name {
        match self {
            Self::Workload(id) => &id.0,
            Self::Pod(id) => &id.0,
        }
    }
}

/// A fraction of one device.
#[derive(Clone, Debug)]
struct Fraction {
    /// `None` for nominated capacity.
    holder: Option<Holder>,
    milli: i64,
    /// Its pod is ending.
    terminating: bool,
}

#[derive(Clone, Debug)]
struct Device {
    resource: usize,
    fractions: Vec<Fraction>,
}

impl Device {
    /// The rest of the device beside the fractions that `counts` selects; `None` when it selects none.
    fn left(&self, counts: impl Fn(usize, &Fraction) -> bool) -> Option<i64> {
        let fractions =
            self.fractions.iter().enumerate().filter(|(index, fraction)| counts(*index, fraction));
        let mut taken = fractions.map(|(_, fraction)| fraction.milli).peekable();
        taken.peek()?;
        Some(DEVICE - taken.sum::<i64>())
    }
}

/// The shared devices of one node, in the order in which they became shared.
#[derive(Clone, Debug, Default)]
pub struct Devices(Vec<Device>);

impl Devices {
    /// The devices with held fractions, and the rest of each.
    pub fn unheld(&self) -> Vec<SharedDevice> {
        self.view(|_, _, fraction| fraction.holder.is_some())
    }

    /// The devices that stay shared once terminating pods and, in addition, `gone` pods have ended and
    /// preemptors have started.
    pub fn settled(&self, gone: &[(Holder, u32)]) -> Vec<SharedDevice> {
        let mut leaving: Vec<(usize, usize)> = Vec::new();
        for (holder, count) in gone {
            for resource in self.resources() {
                let theirs = self.fractions_of(holder, resource);
                let staying = theirs.into_iter().rev().filter(|(d, s)| !self.0[*d].fractions[*s].terminating);
                leaving.extend(staying.take(pods(*count)));
            }
        }
        self.view(|device, index, fraction| !fraction.terminating && !leaving.contains(&(device, index)))
    }

    /// Every device with held fractions: its resource, and how much of it each holder has.
    pub fn holders(&self) -> impl Iterator<Item = (usize, Vec<(&Holder, i64)>)> {
        let devices = self.0.iter().map(|device| {
            let held = device
                .fractions
                .iter()
                .filter_map(|fraction| fraction.holder.as_ref().map(|h| (h, fraction.milli)));
            (device.resource, held.collect::<Vec<_>>())
        });
        devices.filter(|(_, held)| !held.is_empty())
    }

    /// Whether all fractions on a device are nominated and none is held yet.
    pub fn is_only_nominated(&self, index: usize) -> bool {
        self.0
            .get(index)
            .is_some_and(|device| device.fractions.iter().all(|fraction| fraction.holder.is_none()))
    }

    /// The devices that are shared at once, and how much of each is free both now and once everything has
    /// settled, which is `later`. `whole` is the amount of untouched devices on offer, `free` the amount that is untouched now,
    /// `settled` the amount that is untouched later.
    pub fn offered(
        &self,
        whole: &Vector,
        free: &Vector,
        settled: &Vector,
        later: &Space,
    ) -> Vec<SharedDevice> {
        // Where nominations exceed the capacity, no whole device is on offer.
        let besides = |all: &Vector| {
            let mut rest = all.clone();
            for (resource, milli) in whole.entries() {
                rest.set(resource, rest.get(resource).saturating_sub(milli.max(0)));
            }
            rest
        };
        let (mut spare, mut unused) = (besides(settled), besides(free));
        let one_of = |devices: &mut Vector, resource: usize| {
            let exists = devices.get(resource) >= DEVICE;
            if exists {
                devices.set(resource, devices.get(resource) - DEVICE);
            }
            exists
        };
        let devices = self.0.iter().enumerate();
        let shared = devices.filter_map(|(index, device)| {
            let resource = device.resource;
            let unheld = match device.left(|_, fraction| fraction.holder.is_some()) {
                Some(left) => left,
                // No pod is on it yet: preemptors share what becomes of an untouched device.
                None if settled.get(resource) >= 0 && one_of(&mut unused, resource) => DEVICE,
                None => return None,
            };
            let left_later = later.shared().iter().find(|device| device.index == Some(index));
            let left = match left_later.map(|device| device.left) {
                Some(later) => unheld.min(later),
                // All its pods terminate: a pod that joins now leaves one untouched device fewer later.
                None if one_of(&mut spare, resource) => unheld,
                None => 0,
            };
            Some(SharedDevice { resource, left: left.max(0), index: Some(index) })
        });
        shared.collect()
    }

    /// Puts a fraction on the shared device at `index`, or on a device that becomes shared by it.
    pub fn place(&mut self, resource: usize, milli: i64, holder: Option<&Holder>, index: Option<usize>) {
        let fraction = Fraction { holder: holder.cloned(), milli, terminating: false };
        match index {
            Some(index) => self.0[index].fractions.push(fraction),
            None => self.0.push(Device { resource, fractions: vec![fraction] }),
        }
    }

    /// Removes a holder's fractions of a resource, except the first `keep`.
    pub fn keep_first(&mut self, holder: &Holder, resource: usize, keep: u32) {
        for (device, fraction) in self.fractions_of(holder, resource).into_iter().skip(pods(keep)).rev() {
            self.0[device].fractions.remove(fraction);
        }
        self.0.retain(|device| !device.fractions.is_empty());
    }

    /// Marks exactly the last `terminating` fractions of a holder as terminating.
    pub fn mark_terminating(&mut self, holder: &Holder, resource: usize, terminating: u32) {
        let fractions = self.fractions_of(holder, resource);
        let staying = fractions.len().saturating_sub(pods(terminating));
        for (index, (device, fraction)) in fractions.into_iter().enumerate() {
            self.0[device].fractions[fraction].terminating = index >= staying;
        }
    }

    /// Removes one nominated fraction.
    pub fn release(&mut self, resource: usize, milli: i64) {
        let nominated = |fraction: &Fraction| fraction.holder.is_none() && fraction.milli == milli;
        let devices = self.0.iter_mut().rev().filter(|device| device.resource == resource);
        for device in devices {
            if let Some(fraction) = device.fractions.iter().rposition(nominated) {
                device.fractions.remove(fraction);
                break;
            }
        }
        self.0.retain(|device| !device.fractions.is_empty());
    }

    /// The devices with at least one fraction that `counts` selects, and the rest beside these.
    fn view(&self, counts: impl Fn(usize, usize, &Fraction) -> bool) -> Vec<SharedDevice> {
        let devices = self.0.iter().enumerate();
        let shared = devices.filter_map(|(index, device)| {
            let left = device.left(|piece, fraction| counts(index, piece, fraction))?;
            Some(SharedDevice { resource: device.resource, left, index: Some(index) })
        });
        shared.collect()
    }

    fn resources(&self) -> std::collections::BTreeSet<usize> {
        self.0.iter().map(|device| device.resource).collect()
    }

    /// A holder's fractions of a resource as (device, fraction).
    fn fractions_of(&self, holder: &Holder, resource: usize) -> Vec<(usize, usize)> {
        let mut fractions = Vec::new();
        for (d, device) in self.0.iter().enumerate().filter(|(_, device)| device.resource == resource) {
            let theirs = device
                .fractions
                .iter()
                .enumerate()
                .filter(|(_, fraction)| fraction.holder.as_ref() == Some(holder));
            fractions.extend(theirs.map(|(s, _)| (d, s)));
        }
        fractions
    }
}

fn pods(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
