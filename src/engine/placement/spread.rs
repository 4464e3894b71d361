//! How pods are divided among nodes and domains.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::domains::{capacity, group, tightest, value};
use super::{Placement, Request, Room, with_space};
use crate::books::Books;
use crate::model::Name;
use crate::nodes::NodeIx;
use crate::space::{Demand, Space};

/// A node that may hold pods.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// Which.
    pub node: NodeIx,
    /// How many pods find room there.
    pub fits: u32,
    /// What is free of the devices that are asked for.
    pub free: i64,
}

/// How well pods fit a node; smaller is better.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waste {
    /// Devices that were untouched before and are not any more.
    opened: i64,
    devices: i64,
    others: Vec<i64>,
}

/// One division of pods among sites.
pub struct Spread<'a> {
    books: &'a Books,
    request: &'a Request<'a>,
    demand: &'a Demand,
    room: Room<'a>,
    sites: Vec<Site>,
}

impl<'a> Spread<'a> {
    /// To be divided among these sites, or where the request demands one domain, within one of them.
    #[must_use]
    pub fn new(
        books: &'a Books,
        request: &'a Request<'a>,
        demand: &'a Demand,
        room: Room<'a>,
        sites: Vec<Site>,
    ) -> Self {
        let mut spread = Self { books, request, demand, room, sites };
        if let Some(label) = &request.topology.required
            && spread.occupied().next().is_some()
        {
            // Pods that run already have chosen the domain.
            let homes = spread.homes(label);
            spread.sites.retain(|site| domain_of(books, site, label).is_some_and(|d| homes.contains(&d)));
            if homes.len() != 1 {
                spread.sites.clear();
            }
        }
        spread
    }

    /// How many pods find room under the request's demands.
    #[must_use]
    pub fn most(&self) -> u32 {
        match &self.request.topology.required {
            None => capacity(&self.sites),
            Some(label) => {
                let domains = group(&self.books.nodes, &self.sites, label);
                domains.values().map(|sites| capacity(sites)).max().unwrap_or(0)
            }
        }
    }

    /// Divides so many pods; `None` when they do not all find room.
    #[must_use]
    pub fn place(&self, pods: u32) -> Option<Placement> {
        if pods == 0 {
            return Some(Placement::new());
        }
        let topology = &self.request.topology;
        if let Some(label) = &topology.required {
            let domains = group(&self.books.nodes, &self.sites, label);
            let sites = tightest(&domains, pods)?;
            return Some(match &topology.preferred {
                Some(inner) => self.prefer(inner, sites.clone(), pods),
                None => self.gather(sites, pods),
            });
        }
        if capacity(&self.sites) < pods {
            return None;
        }
        Some(match &topology.preferred {
            Some(label) => self.prefer(label, self.sites.clone(), pods),
            None => self.gather(&self.sites, pods),
        })
    }

    /// Within one domain of that label if one holds all, else within as few as possible. Where pods
    /// run already, their domains come first.
    fn prefer(&self, label: &Name, mut sites: Vec<Site>, pods: u32) -> Placement {
        let homes = self.homes(label);
        let home: Vec<Site> =
            sites.iter().copied().filter(|site| self.lies_in(site, label, &homes)).collect();
        if capacity(&home) >= pods {
            return self.gather(&home, pods);
        }
        let mut placement = self.fill(home);
        sites.retain(|site| !self.lies_in(site, label, &homes));
        let mut left = pods - placement.values().sum::<u32>();
        let mut domains = group(&self.books.nodes, &sites, label);
        while left > 0 {
            if let Some(sites) = tightest(&domains, left) {
                placement.extend(self.gather(sites, left));
                return placement;
            }
            // The roomiest first makes the fewest; the first by name of equals.
            let roomiest = domains.iter().rev().max_by_key(|(_, sites)| capacity(sites));
            let Some(name) = roomiest.map(|(name, _)| name.clone()) else { break };
            let filled = self.fill(domains.remove(&name).unwrap_or_default());
            left -= filled.values().sum::<u32>();
            placement.extend(filled);
        }
        // What no domain holds goes to nodes that lie in none.
        sites.retain(|site| domain_of(self.books, site, label).is_none());
        placement.extend(self.fewest_nodes(&sites, left));
        placement
    }

    /// To as few nodes as possible, and of the ways to do that, within the innermost domain that allows
    /// one. Where pods run already, their nodes come first, then their innermost domain.
    fn gather(&self, sites: &[Site], pods: u32) -> Placement {
        let levels = self.books.topology(self.request.pool).iter().rev();
        let occupied: Vec<NodeIx> = self.occupied().collect();
        if occupied.is_empty() {
            let fewest = node_count(sites, pods);
            if fewest > 1 {
                for label in levels {
                    let mut domains = group(&self.books.nodes, sites, label);
                    domains.retain(|_, sites| capacity(sites) >= pods && node_count(sites, pods) == fewest);
                    if let Some(sites) = tightest(&domains, pods) {
                        return self.fewest_nodes(sites, pods);
                    }
                }
            }
            return self.fewest_nodes(sites, pods);
        }
        let (home, mut others): (Vec<Site>, Vec<Site>) =
            sites.iter().partition(|site| occupied.contains(&site.node));
        if capacity(&home) >= pods {
            return self.fewest_nodes(&home, pods);
        }
        let mut placement = self.fill(home);
        let left = pods - placement.values().sum::<u32>();
        for label in levels {
            let homes = self.homes(label);
            let near: Vec<Site> =
                others.iter().copied().filter(|site| self.lies_in(site, label, &homes)).collect();
            if capacity(&near) >= left {
                others = near;
                break;
            }
        }
        placement.extend(self.fewest_nodes(&others, left));
        placement
    }

    /// The roomiest nodes first, until what remains fits one node; that one is chosen by best fit.
    fn fewest_nodes(&self, sites: &[Site], pods: u32) -> Placement {
        let mut sites: Vec<Site> = sites.iter().copied().filter(|site| site.fits > 0).collect();
        // Taking whole nodes keeps the order of names among equals, because the sort is stable.
        sites.sort_by_key(|site| Reverse(site.fits.min(pods)));
        let mut placement = Placement::new();
        let mut left = pods;
        while left > 0 && !sites.is_empty() {
            let last = sites
                .iter()
                .enumerate()
                .filter(|(_, site)| site.fits >= left)
                .min_by_key(|(_, site)| (self.waste(site.node, left), self.books.nodes.name(site.node)))
                .map(|(position, _)| position);
            let site = sites.remove(last.unwrap_or(0));
            let taken = site.fits.min(left);
            placement.insert(site.node, taken);
            left -= taken;
        }
        placement
    }

    /// All that find room on these.
    fn fill(&self, sites: Vec<Site>) -> Placement {
        sites.into_iter().filter(|site| site.fits > 0).map(|site| (site.node, site.fits)).collect()
    }

    /// The nodes on which pods of the workload run already.
    fn occupied(&self) -> impl Iterator<Item = NodeIx> {
        self.request.beside.into_iter().flatten().filter(|(_, pods)| **pods > 0).map(|(node, _)| *node)
    }

    /// The domains of that label in which pods of the workload run already.
    fn homes(&self, label: &str) -> Vec<&'a Name> {
        let nodes = &self.books.nodes;
        let occupied = self.request.beside.into_iter().flatten().filter(|(_, pods)| **pods > 0);
        let mut homes: Vec<&Name> = occupied
            .filter_map(|(node, _)| nodes.get(*node).node.as_ref().and_then(|node| value(node, label)))
            .collect();
        homes.sort();
        homes.dedup();
        homes
    }

    fn lies_in(&self, site: &Site, label: &str, domains: &[&Name]) -> bool {
        domain_of(self.books, site, label).is_some_and(|domain| domains.contains(&domain))
    }

    fn waste(&self, node: NodeIx, pods: u32) -> Waste {
        let (books, need) = (self.books, self.request.need);
        let mut left = with_space(books, node, self.room, Space::clone);
        let of_devices = |index: &usize| books.nodes.is_device(*index);
        let asked = || need.nonzero().map(|(index, _)| index).filter(of_devices);
        let untouched = |space: &Space| asked().map(|index| space.untouched(index)).sum::<i64>();
        let before = untouched(&left);
        left.take(self.demand, pods);
        let opened = before - untouched(&left);
        let allocatable = &books.nodes.get(node).allocatable;
        let devices = if asked().next().is_some() { left.amounts() } else { allocatable };
        let others = left.amounts().entries().filter(|(index, _)| !of_devices(index));
        Waste {
            opened,
            devices: devices.entries().filter(|(index, _)| of_devices(index)).map(|(_, milli)| milli).sum(),
            others: others.filter(|(index, _)| need.get(*index) > 0).map(|(_, milli)| milli).collect(),
        }
    }
}

fn domain_of<'a>(books: &'a Books, site: &Site, label: &str) -> Option<&'a Name> {
    books.nodes.get(site.node).node.as_ref().and_then(|node| value(node, label))
}

/// The fewest nodes that hold so many pods.
fn node_count(sites: &[Site], pods: u32) -> usize {
    let mut by_room: BTreeMap<Reverse<u32>, u32> = BTreeMap::new();
    for site in sites.iter().filter(|site| site.fits > 0) {
        *by_room.entry(Reverse(site.fits)).or_default() += 1;
    }
    let (mut left, mut nodes) = (pods, 0_u32);
    for (Reverse(fits), count) in by_room {
        let wanted = left.div_ceil(fits).min(count);
        nodes += wanted;
        left = left.saturating_sub(wanted.saturating_mul(fits));
        if left == 0 {
            break;
        }
    }
    usize::try_from(nodes).unwrap_or(usize::MAX)
}
