//! One node with its books.

use std::collections::BTreeMap;

use crate::capacity::devices::{Devices, Holder};
use crate::capacity::space::{DEVICE, Demand, Space};
use crate::types::ids::PoolId;
use crate::types::vector::Vector;
use crate::types::{Name, Node};

/// What somebody's pods on a node hold.
#[derive(Clone, Debug, Default)]
pub struct Hold {
    /// What one pod takes.
    pub need: Vector,
    /// How many there are.
    pub pods: u32,
    /// Those of them that have been told to stop.
    pub going: u32,
}

/// One node with its books.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    /// The node as last seen; `None` while only pods on it are known.
    pub node: Option<Node>,
    /// The pool it belongs to.
    pub pool: PoolId,
    /// The name of that pool.
    pub pool_name: Name,
    /// What it offers.
    pub allocatable: Vector,
    /// What pods on it, or admitted to it, hold.
    held: Vector,
    /// The part of `held` whose pods have been told to stop.
    leaving: Vector,
    /// What claimants will take once room has been freed for them.
    nominated: Vector,
    /// Who holds room on it.
    pub holds: BTreeMap<Holder, Hold>,
    devices: Devices,
    now: Space,
    settled: Space,
    unheld: Space,
    empty: Space,
}

/// All of a node's books that change when more or less of it is promised to claimants, shares of devices aside.
#[derive(Debug)]
pub struct Promised {
    nominated: Vector,
    now: Space,
    settled: Space,
}

impl NodeInfo {
    /// Whether new pods may be bound to it.
    #[must_use]
    pub fn open(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.schedulable)
    }

    /// What may be given away at once: unheld, and not needed by a claimant.
    #[must_use]
    pub fn now(&self) -> &Space {
        &self.now
    }

    /// What is left once all who have been told to stop are gone and all claimants have started.
    #[must_use]
    pub fn settled(&self) -> &Space {
        &self.settled
    }

    /// The same once so many more pods of each of these, which hold `amounts` together, are gone.
    #[must_use]
    pub fn settled_without(&self, amounts: &Vector, gone: &[(Holder, u32)]) -> Space {
        let space = Space::new(self.settled.amounts().plus(amounts, 1), self.devices.settled(gone));
        space.backed(|place| self.devices.is_only_kept(place))
    }

    /// What nobody's pods hold, whether it is needed by a claimant or not.
    #[must_use]
    pub fn unheld(&self) -> &Space {
        &self.unheld
    }

    /// What it offers when nobody is on it.
    #[must_use]
    pub fn empty(&self) -> &Space {
        &self.empty
    }

    /// The devices that pods hold shares of.
    #[must_use]
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Works out what is free, after a change of what is offered or held.
    pub fn refresh(&mut self) {
        let unheld = Space::new(self.allocatable.plus(&self.held, -1), self.devices.unheld());
        let mut amounts = unheld.amounts().plus(&self.leaving, 1);
        amounts.add(&self.nominated, -1);
        let settled = Space::new(amounts, self.devices.settled(&[]));
        let settled = settled.backed(|place| self.devices.is_only_kept(place));
        let untouched = |space: &Space| {
            let mut whole = space.amounts().clone();
            for device in space.shared() {
                whole.set(device.resource, whole.get(device.resource) - device.left);
            }
            whole
        };
        let later = untouched(&settled);
        let free = untouched(&unheld);
        let mut now = free.clone();
        for (resource, milli) in later.entries() {
            now.set(resource, now.get(resource).min(milli));
        }
        let shared = self.devices.offered(&now, &free, &later);
        for device in &shared {
            now.set(device.resource, now.get(device.resource) + device.left);
        }
        self.now = Space::new(now, shared);
        self.settled = settled;
        self.unheld = unheld;
    }

    /// Takes note of what it offers from now on.
    pub fn offer(&mut self, allocatable: Vector) {
        self.empty = Space::new(allocatable.clone(), Vec::new());
        self.allocatable = allocatable;
        self.refresh();
    }

    /// Lets one more pod hold its need. Each of its shares goes to the tightest device on offer, else to
    /// one not shared yet, else to one that is kept for a claimant.
    fn seat(&mut self, need: &Vector, demand: &Demand, holder: &Holder) {
        let places: Vec<Option<usize>> = demand
            .shares()
            .iter()
            .map(|(resource, share)| {
                let unheld = &self.unheld;
                let full = unheld.untouched(*resource) < DEVICE;
                let best = |space: &Space| {
                    space.best_shared(*resource, *share).and_then(|index| space.shared()[index].place)
                };
                best(&self.now).or_else(|| best(unheld).filter(|_| full))
            })
            .collect();
        self.held.add(need, 1);
        for ((resource, share), place) in demand.shares().iter().zip(places) {
            self.devices.seat(*resource, *share, Some(holder), place);
        }
        self.refresh();
    }

    /// Sets what somebody holds; shares of pods that were there before stay on their devices.
    pub fn hold(&mut self, holder: &Holder, before: &Hold, old: &Demand, hold: Hold, demand: &Demand) {
        self.held.add(&before.need, -i64::from(before.pods));
        self.leaving.add(&before.need, -i64::from(before.going));
        let stay = if before.need.equals(&hold.need) { before.pods.min(hold.pods) } else { 0 };
        self.held.add(&hold.need, i64::from(stay));
        for (resource, _) in old.shares() {
            self.devices.keep(holder, *resource, stay);
        }
        if demand.shares().is_empty() {
            self.held.add(&hold.need, i64::from(hold.pods - stay));
        } else {
            self.refresh();
            for _ in stay..hold.pods {
                self.seat(&hold.need, demand, holder);
            }
        }
        self.leaving.add(&hold.need, i64::from(hold.going));
        for (resource, _) in demand.shares() {
            self.devices.mark(holder, *resource, hold.going);
        }
        if hold.pods > 0 {
            self.holds.insert(holder.clone(), hold);
        }
        self.refresh();
    }

    /// Adds `times` × `need` to what claimants will take, each share on the tightest device with room
    /// once everything has settled.
    pub fn nominate(&mut self, need: &Vector, demand: &Demand, times: i64) {
        if demand.shares().is_empty() {
            self.nominated.add(need, times);
            self.refresh();
            return;
        }
        for _ in 0..times.unsigned_abs() {
            if times < 0 {
                for (resource, share) in demand.shares() {
                    self.devices.release(*resource, *share);
                }
            } else {
                self.keep_shares(demand);
            }
            self.nominated.add(need, times.signum());
            self.refresh();
        }
    }

    /// What is promised, to be [restored](Self::restore) later.
    pub fn promised(&self) -> Promised {
        Promised { nominated: self.nominated.clone(), now: self.now.clone(), settled: self.settled.clone() }
    }

    /// Promises what was promised before; nothing else, and no share, may have changed since then.
    pub fn restore(&mut self, before: Promised) {
        let Promised { nominated, now, settled } = before;
        (self.nominated, self.now, self.settled) = (nominated, now, settled);
    }

    /// Keeps the shares of one more pod for a claimant. Where no device has room that is or will be there, those
    /// who are kept room for on one that is not there yet share that.
    fn keep_shares(&mut self, demand: &Demand) {
        let kept = Space::new(Vector::default(), self.devices.settled(&[]));
        for (resource, share) in demand.shares() {
            let best = |space: &Space| {
                space.best_shared(*resource, *share).and_then(|index| space.shared()[index].place)
            };
            let place = best(&self.settled).or_else(|| best(&kept));
            self.devices.seat(*resource, *share, None, place);
        }
    }
}
