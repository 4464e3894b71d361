//! ResourceFlavors become NodePools.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::note::{ImportError, Notes};
use super::objects::{FlavorSpec, Setup};
use super::team_names::label;
use crate::engine::types::DEFAULT_POOL;

/// The last level of every topology, in Sluice without mention.
const HOST: &str = "kubernetes.io/hostname";

/// The pools of a set-up.
#[derive(Clone, Debug, Default)]
pub struct Pools {
    /// The pool of each flavor.
    of: BTreeMap<String, String>,
    /// The flavors that select every node.
    everywhere: BTreeSet<String>,
    /// The NodePools.
    pub objects: Vec<Value>,
    /// The names of all pools, `default` among them.
    pub names: BTreeSet<String>,
}

impl Pools {
    /// The pool of a flavor that exists.
    pub fn of(&self, flavor: &str) -> Option<&str> {
        self.of.get(flavor).map(String::as_str)
    }

    /// Whether the pods of this flavor may run on every node.
    pub fn is_everywhere(&self, flavor: &str) -> bool {
        self.everywhere.contains(flavor)
    }
}

/// Plans the pools.
pub fn pools(setup: &Setup, notes: &mut Notes) -> Result<Pools, ImportError> {
    let mut pools = Pools { names: BTreeSet::from([DEFAULT_POOL.to_owned()]), ..Pools::default() };
    let mut by_labels: BTreeMap<&BTreeMap<String, String>, &str> = BTreeMap::new();
    let mut topologies: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, flavor) in &setup.flavors {
        let object = format!("ResourceFlavor {name}");
        let first = *by_labels.entry(&flavor.node_labels).or_insert(name);
        if first != name {
            let text = format!("selects the nodes of {first}: their quotas are added up in one pool");
            notes.differs(&object, "spec.nodeLabels", text);
        }
        let pool = match flavor.node_labels.is_empty() {
            true => DEFAULT_POOL.to_owned(),
            false => label(first, "ResourceFlavor", &|name| name == DEFAULT_POOL)?,
        };
        tolerated(&object, flavor, notes);
        let levels = levels(setup, &object, flavor, notes);
        if !levels.is_empty() {
            let known = topologies.entry(pool.clone()).or_insert_with(|| levels.clone());
            if *known != levels {
                notes.lost(
                    &object,
                    "spec.topologyName",
                    format!("pool {pool} has the levels of another flavor"),
                );
            }
        }
        if flavor.node_labels.is_empty() {
            pools.everywhere.insert(name.clone());
        } else if first == name && !pools.names.insert(pool.clone()) {
            return Err(ImportError::new(
                object,
                "metadata.name",
                format!("two flavors would be the pool {pool}"),
            ));
        }
        pools.of.insert(name.clone(), pool);
    }
    overlaps(&by_labels, notes);
    for (labels, first) in by_labels {
        let pool = &pools.of[first];
        let mut spec = serde_json::Map::new();
        if !labels.is_empty() {
            spec.insert("nodeSelector".to_owned(), json!(labels));
        }
        if let Some(levels) = topologies.get(pool) {
            spec.insert("topology".to_owned(), json!(levels));
        }
        if !spec.is_empty() {
            pools.objects.push(json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "NodePool",
                "metadata": {"name": pool}, "spec": spec}));
        }
    }
    if pools.names.len() > 1 {
        for name in &pools.everywhere {
            let text = "its pods may run on every node; here they run on nodes outside of every NodePool";
            notes.differs(&format!("ResourceFlavor {name}"), "spec.nodeLabels", text);
        }
        let text = "Kueue tries the flavors of a queue by itself; here a workload names its pools, in order, in the \
                    annotation sluice.dev/pool, and is in pool `default` without it";
        notes.by_hand("all", "sluice.dev/pool", text);
    }
    pools.objects.sort_by_key(|object| object["metadata"]["name"].as_str().unwrap_or_default().to_owned());
    Ok(pools)
}

fn tolerated(object: &str, flavor: &FlavorSpec, notes: &mut Notes) {
    if !flavor.node_taints.is_empty() {
        let text = "the taints of nodes themselves count, and only for pods that do not tolerate them";
        notes.differs(object, "spec.nodeTaints", text);
    }
    if !flavor.tolerations.is_empty() {
        notes.by_hand(object, "spec.tolerations", "Kueue adds them to pods; here the pods state them");
    }
}

/// The levels of the flavor's topology, without the node itself.
fn levels(setup: &Setup, object: &str, flavor: &FlavorSpec, notes: &mut Notes) -> Vec<String> {
    let Some(name) = &flavor.topology_name else { return Vec::new() };
    let Some(topology) = setup.topologies.get(name) else {
        notes.lost(object, "spec.topologyName", format!("there is no Topology {name}"));
        return Vec::new();
    };
    let text = "the annotations kueue.x-k8s.io/podset-required-topology and -preferred-topology of workloads become \
                sluice.dev/topology-required and sluice.dev/topology-preferred";
    notes.by_hand(&format!("Topology {name}"), "", text);
    let levels = topology.levels.iter().map(|level| level.node_label.clone());
    levels.filter(|level| level != HOST).collect()
}

/// Notes pools with selectors that match common nodes.
fn overlaps(by_labels: &BTreeMap<&BTreeMap<String, String>, &str>, notes: &mut Notes) {
    for (labels, first) in by_labels {
        for (others, second) in
            by_labels.iter().filter(|(others, second)| *second > first && !others.is_empty())
        {
            let apart = labels.iter().any(|(key, value)| others.get(key).is_some_and(|other| other != value));
            if !labels.is_empty() && !apart {
                let text = format!(
                    "may select nodes of {second} too; such a node is in the first pool by name only"
                );
                notes.differs(&format!("ResourceFlavor {first}"), "spec.nodeLabels", text);
            }
        }
    }
}
