//! How pods are divided among nodes and domains.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::capacity::packing::{Ask, Cost, PackingState};
use crate::placement::domains::{Site, capacity, group, tightest, value};
use crate::placement::{Capacity, Placement, Request, with_space};
use crate::state::cluster::ClusterState;
use crate::types::Name;
use crate::types::ids::NodeId;

/// One division of pods among sites.
pub struct Spread<'a> {
    state: &'a ClusterState,
    request: &'a Request<'a>,
    ask: &'a Ask,
    room: Capacity<'a>,
    sites: Vec<Site>,
}

impl<'a> Spread<'a> {
    /// To be divided among these sites, or where the request demands one domain, within one of them.
    #[must_use]
    pub fn new(
        state: &'a ClusterState,
        request: &'a Request<'a>,
        ask: &'a Ask,
        room: Capacity<'a>,
        sites: Vec<Site>,
    ) -> Self {
        let mut spread = Self { state, request, ask, room, sites };
        if let Some(label) = &request.topology.required
            && spread.occupied().next().is_some()
        {
            // Pods that run already have chosen the domain.
            let homes = spread.homes(label);
            spread.sites.retain(|site| domain_of(state, site, label).is_some_and(|d| homes.contains(&d)));
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
                let domains = group(&self.state.nodes, &self.sites, label);
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
            let domains = group(&self.state.nodes, &self.sites, label);
            let sites = tightest(&domains, pods, |site| self.free(site))?;
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
        let mut domains = group(&self.state.nodes, &sites, label);
        while left > 0 {
            if let Some(sites) = tightest(&domains, left, |site| self.free(site)) {
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
        sites.retain(|site| domain_of(self.state, site, label).is_none());
        placement.extend(self.fewest_nodes(&sites, left));
        placement
    }

    /// To as few nodes as possible, and of the ways to do that, within the innermost domain that allows
    /// one. Where pods run already, their nodes come first, then their innermost domain.
    fn gather(&self, sites: &[Site], pods: u32) -> Placement {
        let levels = self.state.topology(self.request.pool).iter().rev();
        let occupied: Vec<NodeId> = self.occupied().collect();
        if occupied.is_empty() {
            let fewest = node_count(sites, pods);
            if fewest > 1 {
                for label in levels {
                    let mut domains = group(&self.state.nodes, sites, label);
                    domains.retain(|_, sites| capacity(sites) >= pods && node_count(sites, pods) == fewest);
                    if let Some(sites) = tightest(&domains, pods, |site| self.free(site)) {
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

    /// The roomiest nodes first, until what remains fits one node; of equals those that it costs least.
    fn fewest_nodes(&self, sites: &[Site], pods: u32) -> Placement {
        let mut by_room: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
        for site in sites.iter().filter(|site| site.fits > 0) {
            by_room.entry(site.fits.min(pods)).or_default().push(site.node);
        }
        let mut placement = Placement::new();
        let mut left = pods;
        while left > 0
            && let Some(most) = by_room.last_key_value().map(|(fits, _)| *fits)
        {
            if most >= left {
                let last = by_room.range(left..).flat_map(|(_, nodes)| nodes).copied().collect();
                placement.extend(self.by_cost(last, left).first().map(|node| (*node, left)));
                break;
            }
            for node in self.by_cost(by_room.remove(&most).unwrap_or_default(), most) {
                if most >= left {
                    by_room.entry(most).or_default().push(node);
                } else {
                    placement.insert(node, most);
                    left -= most;
                }
            }
        }
        placement
    }

    /// The nodes in the order of what it costs to put so many pods on each, then of their names.
    fn by_cost(&self, nodes: Vec<NodeId>, pods: u32) -> Vec<NodeId> {
        let (cluster, mut known) = (self.state, BTreeMap::new());
        let mut priced: Vec<(Cost, &Name, NodeId)> = nodes
            .into_iter()
            .map(|node| {
                let cost = match self.plain_state(node) {
                    Some(state) => *known
                        .entry(state.slot)
                        .or_insert_with(|| cluster.nodes.packing().cost_in(state, self.ask, pods)),
                    None => with_space(cluster, node, self.room, |space| match cluster.nodes.state(node) {
                        Some(state) => cluster.nodes.packing().cost(state, space, self.ask, pods),
                        None => Cost::default(),
                    }),
                };
                (cost, cluster.nodes.name(node), node)
            })
            .collect();
        priced.sort_unstable();
        priced.into_iter().map(|(_, _, node)| node).collect()
    }

    /// The state of a node, if its room now is the room that counts.
    fn plain_state(&self, node: NodeId) -> Option<PackingState> {
        let info = self.state.nodes.get(node);
        let same = match self.room {
            Capacity::Now => true,
            Capacity::Settled(freed) => freed.get(&node).is_none() && info.now().equals(info.settled()),
            Capacity::Unheld | Capacity::Empty => false,
        };
        self.state.nodes.state(node).filter(|_| same)
    }

    /// What is free on a site of the devices that are asked for.
    fn free(&self, site: &Site) -> i64 {
        with_space(self.state, site.node, self.room, |space| {
            let devices = self.ask.devices.iter();
            devices.map(|(resource, _)| space.amounts().get(*resource).max(0)).sum()
        })
    }

    /// All that find room on these.
    fn fill(&self, sites: Vec<Site>) -> Placement {
        sites.into_iter().filter(|site| site.fits > 0).map(|site| (site.node, site.fits)).collect()
    }

    /// The nodes on which pods of the workload run already.
    fn occupied(&self) -> impl Iterator<Item = NodeId> {
        self.request.beside.into_iter().flatten().filter(|(_, pods)| **pods > 0).map(|(node, _)| *node)
    }

    /// The domains of that label in which pods of the workload run already.
    fn homes(&self, label: &str) -> Vec<&'a Name> {
        let nodes = &self.state.nodes;
        let occupied = self.request.beside.into_iter().flatten().filter(|(_, pods)| **pods > 0);
        let mut homes: Vec<&Name> = occupied
            .filter_map(|(node, _)| nodes.get(*node).node.as_ref().and_then(|node| value(node, label)))
            .collect();
        homes.sort();
        homes.dedup();
        homes
    }

    fn lies_in(&self, site: &Site, label: &str, domains: &[&Name]) -> bool {
        domain_of(self.state, site, label).is_some_and(|domain| domains.contains(&domain))
    }
}

fn domain_of<'a>(state: &'a ClusterState, site: &Site, label: &str) -> Option<&'a Name> {
    state.nodes.get(site.node).node.as_ref().and_then(|node| value(node, label))
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
