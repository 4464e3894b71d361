//! Free room on one node, and what a pod takes of it.
//!
//! Most resources are amounts. Of a resource that counts devices (an extended resource) a whole
//! number asks for devices nobody shares, and a part of one for a share of a single device: shares lie
//! together on a device as long as they add up to no more than one.

use crate::types::vector::Vector;

/// One device, in the thousandths in which amounts are counted.
pub const DEVICE: i64 = 1000;

/// What one pod takes of a node.
#[derive(Clone, Debug, Default)]
pub struct Demand {
    amounts: Vector,
    shares: Vec<(usize, i64)>,
}

impl Demand {
    /// Takes a need apart; `is_device` says which resources count devices.
    pub fn new(need: &Vector, is_device: impl Fn(usize) -> bool) -> Self {
        let mut amounts = need.clone();
        let mut shares = Vec::new();
        for (resource, milli) in need.nonzero() {
            if is_device(resource) && milli % DEVICE != 0 {
                amounts.set(resource, 0);
                shares.push((resource, milli));
            }
        }
        Self { amounts, shares }
    }

    /// The shares of single devices, by resource.
    pub fn shares(&self) -> &[(usize, i64)] {
        &self.shares
    }
}

/// A device that shares lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The resource that counts it.
    pub resource: usize,
    /// What of it is left.
    pub left: i64,
    /// Which of the node's shared devices it is; `None` for one that would become shared.
    pub place: Option<usize>,
}

/// Free room on a node.
#[derive(Clone, Debug, Default)]
pub struct Space {
    amounts: Vector,
    shared: Vec<Shared>,
}

impl Space {
    /// Room of so much, in which the devices listed are shared already and the others are untouched.
    #[must_use]
    pub fn new(amounts: Vector, shared: Vec<Shared>) -> Self {
        Self { amounts, shared }
    }

    /// The same where more devices are shared than there are: of the last of those of which `kept` says that
    /// they are only kept for somebody nothing is left, for they are not there.
    #[must_use]
    pub fn backed(mut self, kept: impl Fn(usize) -> bool) -> Self {
        for index in (0..self.shared.len()).rev() {
            let device = self.shared[index];
            if device.place.is_some_and(&kept) && self.untouched(device.resource) < 0 {
                self.shared[index].left = 0;
            }
        }
        self
    }

    /// All that is free by resource, what is left of shared devices included.
    #[must_use]
    pub fn amounts(&self) -> &Vector {
        &self.amounts
    }

    /// The devices that are shared and have not been given away whole.
    #[must_use]
    pub fn shared(&self) -> &[Shared] {
        &self.shared
    }

    /// What is free of a resource in devices that nobody shares.
    #[must_use]
    pub fn untouched(&self, resource: usize) -> i64 {
        self.amounts.get(resource) - self.left_on(resource).sum::<i64>()
    }

    /// How many pods of that demand find room.
    #[must_use]
    pub fn fits(&self, demand: &Demand) -> u32 {
        let mut times = i64::from(u32::MAX);
        for (resource, milli) in demand.amounts.nonzero() {
            let free =
                if self.shared.is_empty() { self.amounts.get(resource) } else { self.untouched(resource) };
            times = times.min(free.max(0) / milli.max(1));
        }
        for (resource, share) in &demand.shares {
            let share = (*share).max(1);
            let on_shared: i64 = self.left_on(*resource).map(|left| left.max(0) / share).sum();
            let on_new = self.untouched(*resource).max(0) / DEVICE * (DEVICE / share);
            times = times.min(on_shared + on_new);
        }
        u32::try_from(times).unwrap_or(u32::MAX)
    }

    /// Whether there is as much room in as many pieces in both.
    #[must_use]
    pub fn equals(&self, other: &Self) -> bool {
        let pieces = |space: &Self| -> Vec<(usize, i64)> {
            space.shared.iter().map(|device| (device.resource, device.left)).collect()
        };
        self.amounts.equals(&other.amounts) && pieces(self) == pieces(other)
    }

    /// The tightest shared device that has room for a share; the first of equals.
    #[must_use]
    pub fn best_shared(&self, resource: usize, share: i64) -> Option<usize> {
        let fitting = self.shared.iter().enumerate();
        let fitting = fitting.filter(|(_, device)| device.resource == resource && device.left >= share);
        fitting.min_by_key(|(_, device)| device.left).map(|(index, _)| index)
    }

    /// Takes the room of so many pods out, each share from the tightest device, else from a new one.
    pub fn take(&mut self, demand: &Demand, pods: u32) {
        self.amounts.add(&demand.amounts, -i64::from(pods));
        for (resource, share) in &demand.shares {
            for _ in 0..pods {
                self.amounts.set(*resource, self.amounts.get(*resource) - share);
                match self.best_shared(*resource, *share) {
                    Some(index) => self.shared[index].left -= share,
                    None => {
                        self.shared.push(Shared { resource: *resource, left: DEVICE - share, place: None });
                    }
                }
            }
        }
    }

    fn left_on(&self, resource: usize) -> impl Iterator<Item = i64> + '_ {
        self.shared.iter().filter(move |device| device.resource == resource).map(|device| device.left)
    }
}
