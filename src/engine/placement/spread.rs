//! The distribution of pods over nodes and topology domains.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::capacity::packing::{Ask, Cost, PackingState};
use crate::placement::capacity::{Capacity, with_space};
use crate::placement::constraints::Rules;
use crate::placement::domains::{Site, group, tightest, total_fits, value};
use crate::placement::request::Request;
use crate::state::cluster::ClusterState;
use crate::state::nodes::Placement;
use crate::types::Name;
use crate::types::ids::NodeId;

/// A distribution of the pods of a request over sites.
pub struct Spread<'a> {
    state: &'a ClusterState,
    request: &'a Request<'a>,
    ask: &'a Ask,
    capacity: Capacity<'a>,
    sites: Vec<Site>,
    /// The rules of constraints between pods that several sites share.
    rules: Option<Rules>,
}

impl<'a> Spread<'a> {
    /// Distributes over these sites. If pods of the workload run already, a required domain limits the sites to theirs.
    #[must_use]
    pub fn new(
        state: &'a ClusterState,
        request: &'a Request<'a>,
        ask: &'a Ask,
        capacity: Capacity<'a>,
        mut sites: Vec<Site>,
        rules: Option<Rules>,
    ) -> Self {
        let rules = rules.and_then(|mut rules| rules.narrow(&state.nodes, &mut sites).then_some(rules));
        let mut spread = Self { state, request, ask, capacity, sites, rules };
        if let Some(label) = &request.topology.required
            && spread.occupied().next().is_some()
        {
            // Running pods have fixed the domain.
            let homes = spread.homes(label);
            spread.sites.retain(|site| domain_of(state, site, label).is_some_and(|d| homes.contains(&d)));
            if homes.len() != 1 {
                spread.sites.clear();
            }
        }
        spread
    }

    /// How many pods fit under the request's topology constraints.
    #[must_use]
    pub fn most(&self) -> u32 {
        match &self.request.topology.required {
            None => self.total(&self.sites),
            Some(label) => {
                let domains = group(&self.state.nodes, &self.sites, label);
                domains.values().map(|sites| self.total(sites)).max().unwrap_or(0)
            }
        }
    }

    /// How many pods fit on these sites, required topology aside.
    fn total(&self, sites: &[Site]) -> u32 {
        match &self.rules {
            None => total_fits(sites),
            Some(rules) => rules.most(&self.state.nodes, sites),
        }
    }

    /// Places that many pods. `None` when they do not all fit.
    #[must_use]
    pub fn place(&self, pods: u32) -> Option<Placement> {
        if pods == 0 {
            return Some(Placement::new());
        }
        let topology = &self.request.topology;
        if let Some(rules) = &self.rules {
            return self.place_by(rules, pods);
        }
        if let Some(label) = &topology.required {
            let domains = group(&self.state.nodes, &self.sites, label);
            let sites = tightest(&domains, pods, |site| self.free(site))?;
            return Some(match &topology.preferred {
                Some(inner) => self.prefer(inner, sites.clone(), pods),
                None => self.gather(sites, pods),
            });
        }
        if total_fits(&self.sites) < pods {
            return None;
        }
        Some(match &topology.preferred {
            Some(label) => self.prefer(label, self.sites.clone(), pods),
            None => self.gather(&self.sites, pods),
        })
    }

    /// Places pods by the rules of constraints. These decide how many pods go to which domains; a preferred topology does
    /// not count beside them.
    fn place_by(&self, rules: &Rules, pods: u32) -> Option<Placement> {
        let nodes = &self.state.nodes;
        let divide = |sites: &[Site]| rules.divide(nodes, sites, pods, |site| self.free(site));
        let parts = match &self.request.topology.required {
            None => divide(&self.sites)?,
            Some(label) => {
                let mut domains = group(nodes, &self.sites, label);
                domains.retain(|_, sites| self.total(sites) >= pods);
                divide(tightest(&domains, pods, |site| self.free(site))?)?
            }
        };
        Some(parts.iter().flat_map(|part| self.gather(&part.sites, part.pods)).collect())
    }

    /// Places pods in one domain of that label if all fit there, else in as few domains as possible. Domains
    /// where pods of the workload run come first.
    fn prefer(&self, label: &Name, mut sites: Vec<Site>, pods: u32) -> Placement {
        let homes = self.homes(label);
        let home: Vec<Site> =
            sites.iter().copied().filter(|site| self.lies_in(site, label, &homes)).collect();
        if total_fits(&home) >= pods {
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
            // The largest domain first gives the fewest domains. Ties go by name.
            let largest = domains.iter().rev().max_by_key(|(_, sites)| total_fits(sites));
            let Some(name) = largest.map(|(name, _)| name.clone()) else { break };
            let filled = self.fill(domains.remove(&name).unwrap_or_default());
            left -= filled.values().sum::<u32>();
            placement.extend(filled);
        }
        // Pods that fit in no domain go to nodes without a domain.
        sites.retain(|site| domain_of(self.state, site, label).is_none());
        placement.extend(self.fewest_nodes(&sites, left));
        placement
    }

    /// Places pods on as few nodes as possible, within the innermost domain that allows this. Nodes where pods
    /// of the workload run come first, then their innermost domain.
    fn gather(&self, sites: &[Site], pods: u32) -> Placement {
        let levels = self.state.topology(self.request.pool).iter().rev();
        let occupied: Vec<NodeId> = self.occupied().collect();
        if occupied.is_empty() {
            let fewest = node_count(sites, pods);
            if fewest > 1 {
                for label in levels {
                    let mut domains = group(&self.state.nodes, sites, label);
                    domains.retain(|_, sites| total_fits(sites) >= pods && node_count(sites, pods) == fewest);
                    if let Some(sites) = tightest(&domains, pods, |site| self.free(site)) {
                        return self.fewest_nodes(sites, pods);
                    }
                }
            }
            return self.fewest_nodes(sites, pods);
        }
        let (home, mut others): (Vec<Site>, Vec<Site>) =
            sites.iter().partition(|site| occupied.contains(&site.node));
        if total_fits(&home) >= pods {
            return self.fewest_nodes(&home, pods);
        }
        let mut placement = self.fill(home);
        let left = pods - placement.values().sum::<u32>();
        for label in levels {
            let homes = self.homes(label);
            let near: Vec<Site> =
                others.iter().copied().filter(|site| self.lies_in(site, label, &homes)).collect();
            if total_fits(&near) >= left {
                others = near;
                break;
            }
        }
        placement.extend(self.fewest_nodes(&others, left));
        placement
    }

    /// Fills the nodes with the most headroom first, until the remaining pods fit on one node. Ties go by cost.
    fn fewest_nodes(&self, sites: &[Site], pods: u32) -> Placement {
        let mut by_fits: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
        for site in sites.iter().filter(|site| site.fits > 0) {
            by_fits.entry(site.fits.min(pods)).or_default().push(site.node);
        }
        let mut placement = Placement::new();
        let mut left = pods;
        while left > 0
            && let Some(most) = by_fits.last_key_value().map(|(fits, _)| *fits)
        {
            if most >= left {
                let last = by_fits.range(left..).flat_map(|(_, nodes)| nodes).copied().collect();
                placement.extend(self.cheapest(last, left, 1).first().map(|node| (*node, left)));
                break;
            }
            // As many as are filled; the remaining pods fit on one node then.
            let wanted = usize::try_from((left - 1) / most).unwrap_or(usize::MAX);
            let mut nodes = self.cheapest(by_fits.remove(&most).unwrap_or_default(), most, wanted);
            for node in nodes.drain(..wanted.min(nodes.len())) {
                placement.insert(node, most);
                left -= most;
            }
            if !nodes.is_empty() {
                by_fits.insert(most, nodes);
            }
        }
        placement
    }

    /// The nodes with the first `count` in front, by the cost of placing that many pods on each, then by name. The others follow
    /// in no particular order: of thousands of free nodes a few are wanted.
    fn cheapest(&self, nodes: Vec<NodeId>, pods: u32, count: usize) -> Vec<NodeId> {
        let (cluster, mut known) = (self.state, BTreeMap::new());
        let mut priced: Vec<(Cost, &Name, NodeId)> = nodes
            .into_iter()
            .map(|node| {
                let cost = match self.plain_state(node) {
                    Some(state) => *known
                        .entry(state.slot)
                        .or_insert_with(|| cluster.nodes.packing().cost_in(state, self.ask, pods)),
                    None => {
                        with_space(cluster, node, self.capacity, |space| match cluster.nodes.state(node) {
                            Some(state) => cluster.nodes.packing().cost(state, space, self.ask, pods),
                            None => Cost::default(),
                        })
                    }
                };
                (cost, cluster.nodes.name(node), node)
            })
            .collect();
        if count < priced.len() {
            priced.select_nth_unstable(count);
        }
        let first = count.min(priced.len());
        priced[..first].sort_unstable();
        priced.into_iter().map(|(_, _, node)| node).collect()
    }

    /// The packing state of a node, if its free capacity now is the capacity that counts.
    fn plain_state(&self, node: NodeId) -> Option<PackingState> {
        let info = self.state.nodes.get(node);
        let same = match self.capacity {
            Capacity::Now => true,
            Capacity::Settled(freed) => freed.get(&node).is_none() && info.rests(),
            Capacity::Unheld | Capacity::Empty => false,
        };
        self.state.nodes.state(node).filter(|_| same)
    }

    /// The free amount on a site of the devices that the request asks for.
    fn free(&self, site: &Site) -> i64 {
        with_space(self.state, site.node, self.capacity, |space| {
            let devices = self.ask.devices.iter();
            devices.map(|(resource, _)| space.amounts().get(*resource).max(0)).fold(0, i64::saturating_add)
        })
    }

    /// As many pods as fit on these sites.
    fn fill(&self, sites: Vec<Site>) -> Placement {
        sites.into_iter().filter(|site| site.fits > 0).map(|site| (site.node, site.fits)).collect()
    }

    /// The nodes on which pods of the workload run.
    fn occupied(&self) -> impl Iterator<Item = NodeId> {
        self.request.beside.into_iter().flatten().filter(|(_, pods)| **pods > 0).map(|(node, _)| *node)
    }

    /// The domains of that label in which pods of the workload run.
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

/// The smallest number of nodes on which that many pods fit.
fn node_count(sites: &[Site], pods: u32) -> usize {
    let mut by_fits: BTreeMap<Reverse<u32>, u32> = BTreeMap::new();
    for site in sites.iter().filter(|site| site.fits > 0) {
        *by_fits.entry(Reverse(site.fits)).or_default() += 1;
    }
    let (mut left, mut nodes) = (pods, 0_u32);
    for (Reverse(fits), count) in by_fits {
        let wanted = left.div_ceil(fits).min(count);
        nodes += wanted;
        left = left.saturating_sub(wanted.saturating_mul(fits));
        if left == 0 {
            break;
        }
    }
    usize::try_from(nodes).unwrap_or(usize::MAX)
}
