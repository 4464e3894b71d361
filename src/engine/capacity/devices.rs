//! Which of a node's devices are shared, and by whom.
//!
//! A share stays on the device it was put on until its pod is gone. Devices given away whole need
//! no record: one is like the other.

use crate::capacity::space::{DEVICE, Shared};
use crate::types::vector::Vector;
use crate::types::{Name, PodId, WorkloadId};

/// Whose pods hold room on a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// The pods of a workload.
    Workload(WorkloadId),
    /// A pod that belongs to no workload the engine manages.
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

/// One share of a device.
#[derive(Clone, Debug)]
struct Seat {
    /// Whose it is; `None` when it is kept for a claimant.
    holder: Option<Holder>,
    share: i64,
    /// Its pod has been told to stop.
    going: bool,
}

#[derive(Clone, Debug)]
struct Device {
    resource: usize,
    seats: Vec<Seat>,
}

impl Device {
    /// What is left beside the seats that count; `None` when none does.
    fn left(&self, counts: impl Fn(usize, &Seat) -> bool) -> Option<i64> {
        let seats = self.seats.iter().enumerate().filter(|(index, seat)| counts(*index, seat));
        let mut taken = seats.map(|(_, seat)| seat.share).peekable();
        taken.peek()?;
        Some(DEVICE - taken.sum::<i64>())
    }
}

/// The shared devices of one node, in the order in which they became shared.
#[derive(Clone, Debug, Default)]
pub struct Devices(Vec<Device>);

impl Devices {
    /// The devices on which shares are held now, with what is left of each.
    pub fn unheld(&self) -> Vec<Shared> {
        self.view(|_, _, seat| seat.holder.is_some())
    }

    /// The devices that will be shared once those told to stop, and so many more pods of each of
    /// these, are gone and claimants have started.
    pub fn settled(&self, gone: &[(Holder, u32)]) -> Vec<Shared> {
        let mut leaving: Vec<(usize, usize)> = Vec::new();
        for (holder, count) in gone {
            for resource in self.resources() {
                let theirs = self.seats_of(holder, resource);
                let staying = theirs.into_iter().rev().filter(|(d, s)| !self.0[*d].seats[*s].going);
                leaving.extend(staying.take(pods(*count)));
            }
        }
        self.view(|place, index, seat| !seat.going && !leaving.contains(&(place, index)))
    }

    /// Every device on which shares are held: its resource, and who holds how much of it.
    pub fn tenants(&self) -> impl Iterator<Item = (usize, Vec<(&Holder, i64)>)> {
        let devices = self.0.iter().map(|device| {
            let held = device.seats.iter().filter_map(|seat| seat.holder.as_ref().map(|h| (h, seat.share)));
            (device.resource, held.collect::<Vec<_>>())
        });
        devices.filter(|(_, held)| !held.is_empty())
    }

    /// Whether nobody is on a device yet: it is only kept for claimants.
    pub fn is_only_kept(&self, place: usize) -> bool {
        self.0.get(place).is_some_and(|device| device.seats.iter().all(|seat| seat.holder.is_none()))
    }

    /// What is offered at once, besides `whole` untouched devices of a resource, where `free` are untouched
    /// now and `settled` will be once everything has settled: of each device what is left now and will
    /// still be left then.
    pub fn offered(&self, whole: &Vector, free: &Vector, settled: &Vector) -> Vec<Shared> {
        // Where more is kept than there is, nothing whole is offered.
        let besides = |all: &Vector| {
            let mut rest = all.clone();
            for (resource, milli) in whole.entries() {
                rest.set(resource, rest.get(resource) - milli.max(0));
            }
            rest
        };
        let (mut spare, mut unused) = (besides(settled), besides(free));
        let one_of = |devices: &mut Vector, resource: usize| {
            let is_there = devices.get(resource) >= DEVICE;
            if is_there {
                devices.set(resource, devices.get(resource) - DEVICE);
            }
            is_there
        };
        let devices = self.0.iter().enumerate();
        let shared = devices.filter_map(|(place, device)| {
            let resource = device.resource;
            let unheld = match device.left(|_, seat| seat.holder.is_some()) {
                Some(left) => left,
                // Nobody is on it yet: claimants share with others what becomes of an untouched device.
                None if settled.get(resource) >= 0 && one_of(&mut unused, resource) => DEVICE,
                None => return None,
            };
            let left = match device.left(|_, seat| !seat.going) {
                Some(later) => unheld.min(later),
                // Everybody on it leaves: who joins now makes one device fewer untouched later.
                None if one_of(&mut spare, resource) => unheld,
                None => 0,
            };
            Some(Shared { resource, left: left.max(0), place: Some(place) })
        });
        shared.collect()
    }

    /// Puts a share on the device at `place`, or on one not shared so far.
    pub fn seat(&mut self, resource: usize, share: i64, holder: Option<&Holder>, place: Option<usize>) {
        let seat = Seat { holder: holder.cloned(), share, going: false };
        match place {
            Some(place) => self.0[place].seats.push(seat),
            None => self.0.push(Device { resource, seats: vec![seat] }),
        }
    }

    /// Takes somebody's shares of a resource away but for the `keep` that came first.
    pub fn keep(&mut self, holder: &Holder, resource: usize, keep: u32) {
        for (device, seat) in self.seats_of(holder, resource).into_iter().skip(pods(keep)).rev() {
            self.0[device].seats.remove(seat);
        }
        self.0.retain(|device| !device.seats.is_empty());
    }

    /// Marks the last `going` of somebody's shares as about to leave, and no other.
    pub fn mark(&mut self, holder: &Holder, resource: usize, going: u32) {
        let seats = self.seats_of(holder, resource);
        let staying = seats.len().saturating_sub(pods(going));
        for (index, (device, seat)) in seats.into_iter().enumerate() {
            self.0[device].seats[seat].going = index >= staying;
        }
    }

    /// Gives up one share kept for a claimant.
    pub fn release(&mut self, resource: usize, share: i64) {
        let kept = |seat: &Seat| seat.holder.is_none() && seat.share == share;
        let devices = self.0.iter_mut().rev().filter(|device| device.resource == resource);
        for device in devices {
            if let Some(seat) = device.seats.iter().rposition(kept) {
                device.seats.remove(seat);
                break;
            }
        }
        self.0.retain(|device| !device.seats.is_empty());
    }

    /// The devices with at least one seat that counts, and what is left beside all that do.
    fn view(&self, counts: impl Fn(usize, usize, &Seat) -> bool) -> Vec<Shared> {
        let devices = self.0.iter().enumerate();
        let shared = devices.filter_map(|(place, device)| {
            let left = device.left(|index, seat| counts(place, index, seat))?;
            Some(Shared { resource: device.resource, left, place: Some(place) })
        });
        shared.collect()
    }

    fn resources(&self) -> std::collections::BTreeSet<usize> {
        self.0.iter().map(|device| device.resource).collect()
    }

    /// Somebody's shares of a resource as (device, seat).
    fn seats_of(&self, holder: &Holder, resource: usize) -> Vec<(usize, usize)> {
        let mut seats = Vec::new();
        for (d, device) in self.0.iter().enumerate().filter(|(_, device)| device.resource == resource) {
            let theirs =
                device.seats.iter().enumerate().filter(|(_, seat)| seat.holder.as_ref() == Some(holder));
            seats.extend(theirs.map(|(s, _)| (d, s)));
        }
        seats
    }
}

fn pods(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
