//! ClusterQueues and Cohorts become a tree of Teams with the same quotas.
//!
//! Kueue borrows inside a cohort only, up to what the cohort has in all. So the Team of a cohort without a parent has that sum
//! as its guarantee and as its limit, and lends nothing to other such trees. A queue without a cohort is such a tree.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Map, Value, json};

use super::super::note::{ImportError, Notes};
use super::objects::{ResourceGroup, Setup};
use super::pools::Pools;
use super::team_names::label;
use crate::engine::types::DEFAULT_POOL;
use crate::engine::types::amount::Amount;

/// A pool and a resource.
type Key = (String, String);

/// The quota of one resource in one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    /// What the Team owns, its children's part included.
    nominal: Amount,
    /// What may be borrowed; none is no limit.
    borrow: Option<Amount>,
    /// What may be lent; none is all.
    lend: Option<Amount>,
}

/// A Team of the tree.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The name of the Team.
    pub team: String,
    /// The ClusterQueue or Cohort, for notes.
    pub object: String,
    /// The Cohort above, if any.
    parent: Option<String>,
    cells: BTreeMap<Key, Cell>,
    /// What the queue has at most in pools that its flavor is not alone in; nothing where it has no quota.
    caps: BTreeMap<Key, Amount>,
    /// Why Kueue admits nothing here.
    pub inactive: Option<String>,
    /// The pools of its flavors, in their order.
    pub pools: Vec<String>,
    /// Whether anything can be borrowed from, or lent to, others.
    pub in_cohort: bool,
    /// The queue's weight, in thousandths.
    pub weight: Option<i64>,
}

/// The tree: cohorts by name, then queues by name.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub cohorts: BTreeMap<String, Node>,
    pub queues: BTreeMap<String, Node>,
}

/// Builds the tree of Teams.
pub fn tree(setup: &Setup, pools: &Pools, notes: &mut Notes) -> Result<Tree, ImportError> {
    let mut tree = Tree::default();
    let mut taken = BTreeSet::new();
    for (name, spec) in &setup.queues {
        let object = format!("ClusterQueue {name}");
        let team = label(name, "ClusterQueue", &|name| taken.contains(name))?;
        taken.insert(team.clone());
        let mut node = Node {
            team,
            object,
            parent: spec.cohort_name.clone().filter(|name| !name.is_empty()),
            ..Node::default()
        };
        node.in_cohort = node.parent.is_some();
        node.weight = weight(&node.object, spec.fair_sharing.as_ref().and_then(|fair| fair.weight.as_ref()))?;
        own(&mut node, &spec.resource_groups, pools, notes)?;
        close(&mut node, &spec.resource_groups, setup, pools, notes);
        tree.queues.insert(name.clone(), node);
    }
    // A cohort exists as soon as it is named.
    let mut named: BTreeSet<String> = setup.cohorts.keys().cloned().collect();
    named.extend(tree.queues.values().filter_map(|node| node.parent.clone()));
    named.extend(
        setup.cohorts.values().filter_map(|spec| spec.parent_name.clone()).filter(|name| !name.is_empty()),
    );
    for name in named {
        let object = format!("Cohort {name}");
        let team = label(&name, "Cohort", &|name| taken.contains(name))?;
        taken.insert(team.clone());
        let spec = setup.cohorts.get(&name).cloned().unwrap_or_default();
        let mut node = Node {
            team,
            object,
            parent: spec.parent_name.filter(|name| !name.is_empty()),
            ..Node::default()
        };
        node.weight = weight(&node.object, spec.fair_sharing.as_ref().and_then(|fair| fair.weight.as_ref()))?;
        own(&mut node, &spec.resource_groups, pools, notes)?;
        tree.cohorts.insert(name, node);
    }
    sum(&mut tree)?;
    Ok(tree)
}

/// The queue's own quotas. Flavors of one pool are added up.
fn own(
    node: &mut Node,
    groups: &[ResourceGroup],
    pools: &Pools,
    notes: &mut Notes,
) -> Result<(), ImportError> {
    for flavor in groups.iter().flat_map(|group| &group.flavors) {
        let Some(pool) = pools.of(&flavor.name) else {
            node.inactive = Some(format!("there is no ResourceFlavor {}", flavor.name));
            continue;
        };
        if !node.pools.iter().any(|other| other == pool) {
            node.pools.push(pool.to_owned());
        }
        for quota in &flavor.resources {
            let field = |field: &str| format!("flavor {}, {}, {field}", flavor.name, quota.name);
            let amount = |name: &str, quantity: &Option<Quantity>| match quantity {
                Some(quantity) => Amount::parse(&quantity.0)
                    .map(Some)
                    .map_err(|error| ImportError::new(&node.object, field(name), error.to_string())),
                None => Ok(None),
            };
            let nominal = amount("nominalQuota", &quota.nominal_quota)?.unwrap_or_default();
            let borrow = amount("borrowingLimit", &quota.borrowing_limit)?;
            let lend = amount("lendingLimit", &quota.lending_limit)?;
            if !is_requested(&quota.name) {
                let text = "no pod requests a resource of this name; Kueue's configuration makes it of others \
                            (transformations, deviceClassMappings). The weights of a NodePool, or the name of the device \
                            class, are nearest";
                notes.lost(&node.object, &format!("quota of {}", quota.name), text);
                continue;
            }
            let key = (pool.to_owned(), quota.name.clone());
            let own = Cell { nominal, borrow, lend };
            let cell = node.cells.entry(key).and_modify(|cell| *cell = cell.plus(own)).or_insert(own);
            if cell.nominal < Amount::ZERO {
                return Err(ImportError::new(&node.object, field("nominalQuota"), "must not be negative"));
            }
        }
    }
    Ok(())
}

impl Cell {
    /// The quota of two flavors together.
    fn plus(self, other: Self) -> Self {
        let add = |left: Option<Amount>, right: Option<Amount>| Some(left? + right?);
        let lend = match (self.lend, other.lend) {
            (None, None) => None,
            (left, right) => Some(left.unwrap_or(self.nominal) + right.unwrap_or(other.nominal)),
        };
        Self { nominal: self.nominal + other.nominal, borrow: add(self.borrow, other.borrow), lend }
    }
}

/// Closes what the queue has no quota for: Kueue admits no workload that requests a resource without a flavor.
fn close(node: &mut Node, groups: &[ResourceGroup], setup: &Setup, pools: &Pools, notes: &mut Notes) {
    let covered = setup.queues.values().flat_map(|spec| &spec.resource_groups);
    let covered = covered.flat_map(|group| &group.covered_resources).filter(|name| is_requested(name));
    for resource in covered.collect::<BTreeSet<_>>() {
        let group = groups.iter().find(|group| group.covered_resources.contains(resource));
        for pool in &pools.names {
            let key = (pool.clone(), resource.clone());
            let flavors = || group.into_iter().flat_map(|group| &group.flavors);
            if flavors().any(|flavor| pools.of(&flavor.name) == Some(pool)) {
                continue;
            }
            let everywhere = flavors().find(|flavor| pools.is_everywhere(&flavor.name));
            match everywhere.filter(|_| node.pools.contains(pool)) {
                Some(flavor) => {
                    let text =
                        "counts pods of all pools together in Kueue, and those of each pool by itself here";
                    notes.lost(&node.object, &format!("quota of {resource} in flavor {}", flavor.name), text);
                    let own = node.cells.get(&(DEFAULT_POOL.to_owned(), resource.clone()));
                    let borrow = |cell: &Cell| if node.in_cohort { cell.borrow } else { Some(Amount::ZERO) };
                    if let Some(most) = own.and_then(|cell| Some(cell.nominal + borrow(cell)?)) {
                        node.caps.insert(key, most);
                    }
                }
                None => {
                    // In Kueue a pod takes a flavor of each group, and the labels of all of them; here it has one pool.
                    if group.is_some() && pool != DEFAULT_POOL && node.pools.contains(pool) {
                        let text = format!(
                            "pods in pool {pool} get none of it: a pod counts in one pool here, and not in a flavor of each group"
                        );
                        notes.lost(&node.object, &format!("quota of {resource}"), text);
                    }
                    node.caps.insert(key, Amount::ZERO);
                }
            }
        }
    }
}

/// Adds what each Team owns to the Teams above it.
fn sum(tree: &mut Tree) -> Result<(), ImportError> {
    let mut additions: Vec<(String, Key, Amount)> = Vec::new();
    let queues = tree.queues.values().map(|node| (None, node));
    let cohorts = tree.cohorts.iter().map(|(name, node)| (Some(name.clone()), node));
    for (own, node) in queues.chain(cohorts) {
        let mut path: Vec<String> = own.into_iter().collect();
        let mut above = node.parent.clone();
        while let Some(parent) = above {
            if path.contains(&parent) {
                return Err(ImportError::new(&node.object, "spec.parentName", "the Cohorts are in a circle"));
            }
            additions
                .extend(node.cells.iter().map(|(key, cell)| (parent.clone(), key.clone(), cell.nominal)));
            above = tree.cohorts.get(&parent).and_then(|cohort| cohort.parent.clone());
            path.push(parent);
        }
    }
    for (cohort, key, amount) in additions {
        if let Some(node) = tree.cohorts.get_mut(&cohort) {
            let cell = node.cells.entry(key).or_default();
            cell.nominal = cell.nominal + amount;
        }
    }
    Ok(())
}

impl Tree {
    /// The Team of the Cohort above a node.
    pub fn parent<'a>(&'a self, node: &'a Node) -> Option<&'a str> {
        let parent = self.cohorts.get(node.parent.as_ref()?)?;
        Some(parent.team.as_str())
    }

    /// How many trees there are.
    pub fn roots(&self) -> usize {
        self.cohorts.values().chain(self.queues.values()).filter(|node| node.parent.is_none()).count()
    }

    /// The cohorts, parents before their children.
    pub fn cohorts_down(&self) -> Vec<&Node> {
        let depth = |node: &Node| {
            let mut above = node.parent.as_ref();
            std::iter::from_fn(|| {
                let cohort = self.cohorts.get(above?)?;
                above = cohort.parent.as_ref();
                Some(())
            })
            .count()
        };
        let mut nodes: Vec<&Node> = self.cohorts.values().collect();
        nodes.sort_by_key(|node| (depth(node), node.team.clone()));
        nodes
    }
}

impl Node {
    /// The quotas of the Team, by pool. `alone` says that there is no other tree to lend to.
    pub fn quotas(&self, alone: bool) -> Vec<Value> {
        let is_root = self.parent.is_none();
        let mut pools: BTreeMap<&str, [Map<String, Value>; 3]> = BTreeMap::new();
        for ((pool, resource), cell) in &self.cells {
            let [guaranteed, limit, lendable] = pools.entry(pool).or_default();
            let text = |amount: Amount| Value::from(amount.quantity(resource));
            if cell.nominal > Amount::ZERO {
                guaranteed.insert(resource.clone(), text(cell.nominal));
            }
            let most =
                if is_root { Some(cell.nominal) } else { cell.borrow.map(|borrow| cell.nominal + borrow) };
            if let Some(most) = most {
                limit.insert(resource.clone(), text(most));
            }
            let lend = if is_root { (!alone).then_some(Amount::ZERO) } else { cell.lend };
            if let Some(lend) = lend.filter(|lend| *lend < cell.nominal) {
                lendable.insert(resource.clone(), text(lend));
            }
        }
        for ((pool, resource), most) in &self.caps {
            let [_, limit, _] = pools.entry(pool).or_default();
            limit.insert(resource.clone(), most.quantity(resource).into());
        }
        let quota = |(pool, [guaranteed, limit, lendable]): (&str, [Map<String, Value>; 3])| {
            let parts = [("guaranteed", guaranteed), ("limit", limit), ("lendable", lendable)];
            let parts = parts.into_iter().filter(|(_, part)| !part.is_empty());
            let parts = parts.map(|(name, part)| (name.to_owned(), Value::Object(part)));
            let mut quota = Map::from_iter([("pool".to_owned(), json!(pool))]);
            quota.extend(parts);
            Value::Object(quota)
        };
        pools.into_iter().map(quota).collect()
    }
}

/// Whether pods can request a resource of this name: Kubernetes's own, or one with a domain.
fn is_requested(resource: &str) -> bool {
    resource.contains('/')
        || resource.starts_with("hugepages-")
        || ["cpu", "memory", "ephemeral-storage", "pods"].contains(&resource)
}

fn weight(object: &str, weight: Option<&Quantity>) -> Result<Option<i64>, ImportError> {
    let parse = |weight: &Quantity| {
        Amount::parse(&weight.0)
            .map(Amount::as_milli)
            .map_err(|error| ImportError::new(object, "spec.fairSharing.weight", error.to_string()))
    };
    weight.map(parse).transpose()
}
