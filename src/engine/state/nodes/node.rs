//! One node: its capacity, the usage of each holder, and its free capacity.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capacity::devices::{Devices, Holder};
use crate::capacity::space::{DEVICE, Demand, Space};
use crate::types::ids::PoolId;
use crate::types::vector::Vector;
use crate::types::{Name, Node, Profile};

/// The usage of one holder on a node.
#[derive(Clone, Debug, Default)]
pub struct Hold {
    /// The need of one pod.
    pub need: Vector,
    /// The labels and constraints of its pods.
    pub profile: Option<Arc<Profile>>,
    /// The number of pods.
    pub pods: u32,
    /// The number of those that are terminating.
    pub terminating: u32,
}

/// One node with its usage and free capacity.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// The node as last observed; `None` while only pods on it are known.
    pub node: Option<Node>,
    /// Whether its pods are held nowhere, because it has not answered for too long; `node` is `None` then.
    pub lost: bool,
    /// The pool it belongs to.
    pub pool: PoolId,
    /// The name of that pool.
    pub pool_name: Name,
    /// Its capacity for pods.
    pub allocatable: Vector,
    /// The usage of pods on it or admitted to it.
    held: Vector,
    /// The part of `held` of terminating pods.
    terminating: Vector,
    /// The capacity that preemptors take once it has been freed for them.
    nominated: Vector,
    /// The usage of each holder.
    pub holds: BTreeMap<Holder, Hold>,
    /// The pods for which capacity is nominated, by profile.
    pub expected: Vec<(Arc<Profile>, u32)>,
    devices: Devices,
    /// Whether `now` equals `settled`.
    rests: bool,
    now: Space,
    settled: Space,
    unheld: Space,
    empty: Space,
}

/// The part of a node that nominations change, except fractions of devices.
#[derive(Debug)]
pub struct Nominated {
    nominated: Vector,
    now: Space,
    settled: Space,
}

impl NodeInfo {
    /// Whether it takes new pods.
    #[must_use]
    pub fn open(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.schedulable)
    }

    /// The capacity on offer now: neither held nor nominated.
    #[must_use]
    pub fn now(&self) -> &Space {
        &self.now
    }

    /// The free capacity once all terminating pods are gone and all preemptors have started.
    #[must_use]
    pub fn settled(&self) -> &Space {
        &self.settled
    }

    /// Whether its capacity on offer now is its free capacity once all has settled.
    #[must_use]
    pub fn rests(&self) -> bool {
        self.rests
    }

    /// The same once `gone` pods, which hold `amounts` together, are gone as well.
    #[must_use]
    pub fn settled_without(&self, amounts: &Vector, gone: &[(Holder, u32)]) -> Space {
        let space = Space::new(self.settled.amounts().plus(amounts, 1), self.devices.settled(gone));
        space.limited_to_existing(|index| self.devices.is_only_nominated(index)).without_awaited()
    }

    /// Whether some of its capacity is nominated.
    #[must_use]
    pub fn has_nominated(&self) -> bool {
        self.nominated.nonzero().next().is_some()
    }

    /// The capacity that no pod holds, nominated or not.
    #[must_use]
    pub fn unheld(&self) -> &Space {
        &self.unheld
    }

    /// Its capacity without any pods.
    #[must_use]
    pub fn empty(&self) -> &Space {
        &self.empty
    }

    /// The shared devices.
    #[must_use]
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Computes the free capacity, after a change of capacity or usage.
    pub fn refresh(&mut self) {
        let unheld = Space::new(self.allocatable.plus(&self.held, -1), self.devices.unheld());
        let mut amounts = unheld.amounts().plus(&self.terminating, 1);
        amounts.add(&self.nominated, -1);
        let settled = Space::new(amounts, self.devices.settled(&[]));
        let settled = settled.limited_to_existing(|index| self.devices.is_only_nominated(index));
        let settled = settled.without_awaited();
        let untouched = |space: &Space| {
            let mut whole = space.amounts().clone();
            for device in space.shared() {
                whole.set(device.resource, whole.get(device.resource).saturating_sub(device.left));
            }
            whole
        };
        let later = untouched(&settled);
        let free = untouched(&unheld);
        let mut now = free.clone();
        for (resource, milli) in later.entries() {
            now.set(resource, now.get(resource).min(milli));
        }
        let shared = self.devices.offered(&now, &free, &later, &settled);
        for device in &shared {
            now.set(device.resource, now.get(device.resource).saturating_add(device.left));
        }
        self.now = Space::new(now, shared);
        self.rests = self.now.equals(&settled);
        self.settled = settled;
        self.unheld = unheld;
    }

    /// Sets its capacity.
    pub fn offer(&mut self, allocatable: Vector) {
        self.empty = Space::new(allocatable.clone(), Vec::new());
        self.allocatable = allocatable;
        self.refresh();
    }

    /// The devices that the fractions of `pods` pods would get now, each with its resource and thousandths. Devices that are not
    /// shared yet have numbers that no shared device has.
    pub fn devices_for(&self, demand: &Demand, pods: u32) -> Vec<(usize, i64, usize)> {
        let (mut now, mut unheld, mut devices) = (self.now.clone(), self.unheld.clone(), Vec::new());
        let mut new = usize::MAX;
        for (resource, fraction) in (0..pods).flat_map(|_| demand.fractions()) {
            let device = joined_device((&now, &unheld), *resource, *fraction).unwrap_or_else(|| {
                new -= 1;
                new
            });
            devices.push((*resource, *fraction, device));
            now.join((*resource, *fraction, device));
            unheld.join((*resource, *fraction, device));
        }
        devices
    }

    /// Adds the usage of one pod. Each of its fractions goes to the tightest device on offer, else to an
    /// untouched device, else to a nominated device.
    fn add_pod(&mut self, need: &Vector, demand: &Demand, holder: &Holder) {
        let devices: Vec<Option<usize>> = demand
            .fractions()
            .iter()
            .map(|(resource, fraction)| joined_device((&self.now, &self.unheld), *resource, *fraction))
            .collect();
        self.held.add(need, 1);
        for ((resource, fraction), device) in demand.fractions().iter().zip(devices) {
            self.devices.place(*resource, *fraction, Some(holder), device);
        }
        self.refresh();
    }

    /// Replaces the usage of a holder; fractions of pods that stay remain on their devices.
    pub fn hold(&mut self, holder: &Holder, before: &Hold, old: &Demand, hold: Hold, demand: &Demand) {
        self.held.add(&before.need, -i64::from(before.pods));
        self.terminating.add(&before.need, -i64::from(before.terminating));
        let staying = if before.need.equals(&hold.need) { before.pods.min(hold.pods) } else { 0 };
        self.held.add(&hold.need, i64::from(staying));
        for (resource, _) in old.fractions() {
            self.devices.keep_first(holder, *resource, staying);
        }
        if demand.fractions().is_empty() {
            self.held.add(&hold.need, i64::from(hold.pods - staying));
        } else {
            self.refresh();
            for _ in staying..hold.pods {
                self.add_pod(&hold.need, demand, holder);
            }
        }
        self.terminating.add(&hold.need, i64::from(hold.terminating));
        for (resource, _) in demand.fractions() {
            self.devices.mark_terminating(holder, *resource, hold.terminating);
        }
        if hold.pods > 0 {
            self.holds.insert(holder.clone(), hold);
        }
        self.refresh();
    }

    /// Adds `times` × `need` to the nominated capacity, each fraction on the tightest device once everything
    /// has settled.
    pub fn nominate(&mut self, need: &Vector, demand: &Demand, times: i64) {
        if demand.fractions().is_empty() {
            self.nominated.add(need, times);
            self.refresh();
            return;
        }
        for _ in 0..times.unsigned_abs() {
            if times < 0 {
                for (resource, fraction) in demand.fractions() {
                    self.devices.release(*resource, *fraction);
                }
            } else {
                self.nominate_fractions(demand);
            }
            self.nominated.add(need, times.signum());
            self.refresh();
        }
    }

    /// The nominated capacity, for [`NodeInfo::restore`].
    pub fn nominated(&self) -> Nominated {
        Nominated { nominated: self.nominated.clone(), now: self.now.clone(), settled: self.settled.clone() }
    }

    /// Restores the nominated capacity. Nothing else, and no fraction, may have changed since the snapshot.
    pub fn restore(&mut self, before: Nominated) {
        let Nominated { nominated, now, settled } = before;
        (self.nominated, self.now, self.settled) = (nominated, now, settled);
        self.rests = self.now.equals(&self.settled);
    }

    /// Nominates the fractions of one more pod. If they fit on no device that is or becomes free, they share
    /// a device that other nominations wait for.
    fn nominate_fractions(&mut self, demand: &Demand) {
        let remaining = Space::new(Vector::default(), self.devices.settled(&[]));
        for (resource, fraction) in demand.fractions() {
            let tightest = |space: &Space| {
                space.tightest_shared(*resource, *fraction).and_then(|index| space.shared()[index].index)
            };
            let device = tightest(&self.settled).or_else(|| tightest(&remaining));
            self.devices.place(*resource, *fraction, None, device);
        }
    }
}

/// The shared device that a fraction joins, by the capacity on offer and that which no pod holds; `None` for one that is not shared
/// yet.
fn joined_device((now, unheld): (&Space, &Space), resource: usize, fraction: i64) -> Option<usize> {
    let full = unheld.untouched(resource) < DEVICE;
    let tightest = |space: &Space| {
        space.tightest_shared(resource, fraction).and_then(|index| space.shared()[index].index)
    };
    tightest(now).or_else(|| tightest(unheld).filter(|_| full))
}
