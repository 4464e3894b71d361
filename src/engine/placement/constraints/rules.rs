//! The rules for the pods of one request, with the pods that are on nodes already.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::capacity::fit;
use crate::placement::capacity::Capacity;
use crate::placement::domains::{Site, value};
use crate::placement::request::Request;
use crate::state::cluster::ClusterState;
use crate::state::nodes::{NodeTable, There, Wanted, selects};
use crate::types::ids::NodeId;
use crate::types::{Name, Node, PodSelector, PodTerm, Profile, SpreadTerm};

/// One rule for the pods of a request.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// The node label that names the domains.
    pub key: Name,
    /// The constraint that it comes from.
    pub origin: Origin,
    pub kind: Kind,
}

/// Where a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The anti-affinity of the pods.
    Apart,
    /// The anti-affinity of other pods.
    Others,
    /// The affinity or spread of a workload that is about to start.
    Awaited,
    /// The affinity of the pods.
    Together,
    /// The spread of the pods.
    Spread,
}

/// What a rule demands.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// No pod anywhere.
    Nowhere,
    /// No pod in these domains.
    Closed(BTreeSet<Name>),
    /// At most one pod in a domain.
    Single,
    /// Every pod in one of these domains.
    Open(BTreeSet<Name>),
    /// All pods in one domain, because they are the first that their affinity selects.
    Same,
    /// No domain with more pods than the one with the fewest and `max_skew`. The pods of the request count where
    /// `own` says so.
    Skew { counts: BTreeMap<Name, u32>, max_skew: u32, own: bool, few_domains: bool },
}

/// All rules for the pods of a request.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(super) rules: Vec<Rule>,
}

impl Rules {
    /// The rules for a request in this capacity; `None` if there are none, which is cheap to find out.
    #[must_use]
    pub fn of(state: &ClusterState, request: &Request<'_>, capacity: Capacity<'_>) -> Option<Self> {
        let (profile, nodes) = (&**request.profile, &state.nodes);
        let beside_others = !matches!(capacity, Capacity::Empty);
        let mut repelling: BTreeSet<&Arc<PodTerm>> = BTreeSet::new();
        if beside_others {
            repelling.extend(nodes.constraints.repelling(profile));
        }
        if let Capacity::Settled(freed) = capacity {
            let added = freed.nodes().flat_map(|node| freed.added(node)).flat_map(|(added, _)| &added.apart);
            repelling.extend(added.filter(|term| selects(&term.pods, profile)));
        }
        let awaited = beside_others && nodes.constraints.is_awaited(profile);
        if !profile.is_constrained() && repelling.is_empty() && !awaited {
            return None;
        }
        let reading = Reading { state, request, capacity };
        let mut rules = Vec::new();
        let mut rule = |origin, key: &Name, kind| rules.push(Rule { key: key.clone(), origin, kind });
        for term in &profile.apart {
            let closed = reading.domains(&term.topology_key, &selected([&term.pods]));
            rule(Origin::Apart, &term.topology_key, Kind::Closed(closed));
            if selects(&term.pods, profile) {
                rule(Origin::Apart, &term.topology_key, Kind::Single);
            }
        }
        for term in repelling {
            let closed = reading.domains(&term.topology_key, &Wanted::Repelling(Arc::clone(term)));
            rule(Origin::Others, &term.topology_key, Kind::Closed(closed));
        }
        if awaited {
            rule(Origin::Awaited, &"".into(), Kind::Nowhere);
        }
        if !profile.together.is_empty() {
            reading.together(profile, &mut rule);
        }
        for term in &profile.spread {
            rule(Origin::Spread, &term.topology_key, reading.skew(profile, term));
        }
        Some(Self { rules })
    }

    /// The constraints that the rules come from, with the node labels that name their domains.
    #[must_use]
    pub fn origins(&self) -> BTreeSet<(Origin, &Name)> {
        self.rules.iter().map(|rule| (rule.origin, &rule.key)).collect()
    }

    /// Those of the rules that come from one constraint.
    #[must_use]
    pub fn only(&self, origin: Origin, key: &Name) -> Self {
        let of = |rule: &&Rule| rule.origin == origin && rule.key == *key;
        Self { rules: self.rules.iter().filter(of).cloned().collect() }
    }

    /// Whether a first pod may go to a node.
    pub(super) fn admit(&self, node: &Node) -> bool {
        self.rules.iter().all(|rule| rule.admits(value(node, &rule.key)))
    }

    /// Takes away the sites where no pod may go. At most one pod fits on a site with a domain of its own for which a rule
    /// allows one. Returns whether other rules are left that pods on different sites share.
    pub fn narrow(&mut self, nodes: &NodeTable, sites: &mut Vec<Site>) -> bool {
        sites.retain(|site| {
            site.fits > 0 && nodes.get(site.node).node.as_ref().is_some_and(|node| self.admit(node))
        });
        self.rules.retain(|rule| match &rule.kind {
            Kind::Nowhere | Kind::Closed(_) | Kind::Open(_) => false,
            Kind::Skew { own, .. } => *own,
            Kind::Same => true,
            Kind::Single => {
                let domains: Vec<Option<&Name>> =
                    sites.iter().map(|site| domain(nodes, site, &rule.key)).collect();
                let distinct: BTreeSet<&Name> = domains.iter().flatten().copied().collect();
                let alone = domains.iter().flatten().count() == distinct.len();
                if alone {
                    for (site, _) in sites.iter_mut().zip(&domains).filter(|(_, domain)| domain.is_some()) {
                        site.fits = site.fits.min(1);
                    }
                }
                !alone
            }
        });
        !self.rules.is_empty()
    }
}

/// The domain of a site for a label.
pub(super) fn domain<'a>(nodes: &'a NodeTable, site: &Site, key: &str) -> Option<&'a Name> {
    nodes.get(site.node).node.as_ref().and_then(|node| value(node, key))
}

fn selected<'a>(selectors: impl IntoIterator<Item = &'a PodSelector>) -> Wanted {
    Wanted::Selected(selectors.into_iter().cloned().collect())
}

impl Rule {
    /// Whether a first pod may go to a node with this domain.
    fn admits(&self, domain: Option<&Name>) -> bool {
        match &self.kind {
            Kind::Single => true,
            Kind::Nowhere => false,
            Kind::Closed(closed) => domain.is_none_or(|domain| !closed.contains(domain)),
            Kind::Open(open) => domain.is_some_and(|domain| open.contains(domain)),
            Kind::Same => domain.is_some(),
            Kind::Skew { counts, own: false, .. } => domain.is_some_and(|domain| {
                counts.get(domain).copied().unwrap_or(0) <= self.highest(self.fewest())
            }),
            Kind::Skew { .. } => domain.is_some(),
        }
    }

    /// The fewest pods in a domain of a spread.
    pub(super) fn fewest(&self) -> u32 {
        match &self.kind {
            Kind::Skew { few_domains: false, counts, .. } => counts.values().copied().min().unwrap_or(0),
            _ => 0,
        }
    }

    /// The most pods that a domain may have, if the one with the fewest has `fewest`.
    pub(super) fn highest(&self, fewest: u32) -> u32 {
        match &self.kind {
            Kind::Skew { max_skew, .. } => fewest.saturating_add(*max_skew),
            Kind::Single => 1,
            _ => u32::MAX,
        }
    }
}

/// Which pods count. kube-scheduler leaves pods that are about to end out of spreads, not out of affinities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// Those that stay.
    Staying,
    /// Those too that are about to end, until they are gone.
    Ending,
    /// Those too for which capacity is nominated.
    Expected,
}

/// What is read from the state for the rules of a request.
struct Reading<'a> {
    state: &'a ClusterState,
    request: &'a Request<'a>,
    capacity: Capacity<'a>,
}

impl Reading<'_> {
    /// The number of pods that a constraint looks at, by node.
    fn pods(&self, wanted: &Wanted, counted: Counted) -> BTreeMap<NodeId, u32> {
        let nodes = &self.state.nodes;
        let number = |there: &There| {
            let pods = match self.capacity {
                Capacity::Now | Capacity::Unheld if counted != Counted::Staying => there.pods,
                Capacity::Empty => return 0,
                _ => there.pods.saturating_sub(there.terminating),
            };
            if counted == Counted::Expected { pods.saturating_add(there.expected) } else { pods }
        };
        let mut pods: BTreeMap<NodeId, u32> =
            nodes.count(wanted, |counts| counts.iter().map(|(node, there)| (*node, number(there))).collect());
        if let Capacity::Settled(freed) = self.capacity {
            for node in freed.nodes() {
                let there = pods.entry(node).or_default();
                for (holder, gone) in freed.gone(node) {
                    let hold = nodes.get(node).holds.get(holder);
                    let matches = |profile: &Arc<Profile>| wanted.matches(profile);
                    if hold.and_then(|hold| hold.profile.as_ref()).is_some_and(matches) {
                        *there = there.saturating_sub(*gone);
                    }
                }
                let added = freed.added(node).filter(|(profile, _)| wanted.matches(profile));
                *there = added.fold(*there, |sum, (_, pods)| sum.saturating_add(pods));
            }
        }
        pods.retain(|_, pods| *pods > 0);
        pods
    }

    fn domain(&self, node: NodeId, key: &str) -> Option<&Name> {
        self.state.nodes.get(node).node.as_ref().and_then(|node| value(node, key))
    }

    /// The domains with a pod that a constraint looks at.
    fn domains(&self, key: &str, wanted: &Wanted) -> BTreeSet<Name> {
        self.pods(wanted, Counted::Expected)
            .keys()
            .filter_map(|node| self.domain(*node, key).cloned())
            .collect()
    }

    /// The rules of the affinity of the pods: where there are pods that all terms select, pods go to their domains. The
    /// first of pods that select themselves goes anywhere.
    fn together(&self, profile: &Profile, rule: &mut impl FnMut(Origin, &Name, Kind)) {
        let selectors = || profile.together.iter().map(|term| &term.pods);
        let there = self.pods(&selected(selectors()), Counted::Ending);
        let itself = selectors().all(|pods| selects(pods, profile));
        for PodTerm { topology_key: key, .. } in &profile.together {
            if !there.is_empty() {
                let open = there.keys().filter_map(|node| self.domain(*node, key).cloned()).collect();
                rule(Origin::Together, key, Kind::Open(open));
            } else if itself {
                rule(Origin::Together, key, Kind::Same);
            } else if !matches!(self.capacity, Capacity::Empty) {
                rule(Origin::Together, key, Kind::Open(BTreeSet::new()));
            }
        }
    }

    /// The rule of a spread. Its domains are those of the nodes that may hold the pods, or of all nodes where it says so.
    fn skew(&self, profile: &Profile, term: &SpreadTerm) -> Kind {
        let nodes = &self.state.nodes;
        let keys = || profile.spread.iter().map(|term| &term.topology_key);
        let complete = |node: &Node| keys().all(|key| value(node, key).is_some());
        let mut counts: BTreeMap<Name, u32> = BTreeMap::new();
        let mut within = BTreeSet::new();
        let mut add = |index: NodeId, node: &Node| {
            if complete(node)
                && let Some(domain) = value(node, &term.topology_key)
            {
                counts.entry(domain.clone()).or_default();
                within.insert(index);
            }
        };
        if term.all_nodes {
            let tolerated = |node: &Node| fit::tolerates_all(&self.request.shape.tolerations, &node.taints);
            for (index, _, node) in nodes.alive().filter(|(_, _, node)| !term.untainted || tolerated(node)) {
                add(index, node);
            }
        } else {
            let Request { pool, shape, need, .. } = *self.request;
            let eligible = nodes.fitting(pool, shape, need, |fitting| fitting.nodes(nodes));
            for index in eligible.iter() {
                if let Some(node) = &nodes.get(*index).node {
                    add(*index, node);
                }
            }
        }
        for (node, pods) in self.pods(&selected([&term.pods]), Counted::Staying) {
            if let Some(domain) = self.domain(node, &term.topology_key).filter(|_| within.contains(&node))
                && let Some(count) = counts.get_mut(domain)
            {
                *count = count.saturating_add(pods);
            }
        }
        let domains = u32::try_from(counts.len()).unwrap_or(u32::MAX);
        let own = selects(&term.pods, profile);
        // Each pod is bound to one node that Sluice names, and kube-scheduler looks at no other domain then. So a minimum
        // of several domains always counts as missed there, unless all nodes count.
        let few_domains = if term.all_nodes { domains < term.min_domains } else { term.min_domains > 1 };
        Kind::Skew { counts, max_skew: term.max_skew.max(1), own, few_domains }
    }
}
