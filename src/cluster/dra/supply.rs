//! Devices to claim: those that drivers offer and classes select, by node.

use std::collections::{BTreeMap, BTreeSet};

use super::index::remove;
use super::selector::{Language, Selector};
use crate::cluster::reduce::claims::{CLASS_PREFIX, Device, DeviceClassSeen, SliceSeen};
use crate::cluster::table::{Seen, Step, Table};
use crate::engine::types::amount::{Amount, ResourceList, sum};
use crate::engine::types::{Name, Node};

/// All offered devices.
#[derive(Debug, Default)]
pub struct Supply {
    language: Language,
    slices: Table<SliceSeen>,
    classes: Table<DeviceClassSeen>,
    /// The selectors of each readable class.
    selectors: BTreeMap<Name, Vec<Selector>>,
    /// For each device of a slice, the classes that select it.
    selected: BTreeMap<Name, Vec<BTreeSet<Name>>>,
    /// The slices of each pool.
    pools: BTreeMap<(Name, Name), BTreeSet<Name>>,
    /// The slices of each node.
    of_node: BTreeMap<Name, BTreeSet<Name>>,
    /// The resources added to each node.
    added: BTreeMap<Name, BTreeSet<Name>>,
    /// Problems already logged.
    logged: BTreeSet<String>,
}

impl Supply {
    /// Whether the first lists are complete.
    pub fn complete(&self) -> bool {
        self.slices.complete() && self.classes.complete()
    }

    /// Whether a class exists.
    pub fn knows(&self, class: &str) -> bool {
        self.classes.get(class).is_some()
    }

    /// The resource of a class.
    pub fn resource_of(&self, class: &str) -> Name {
        let named = self.classes.get(class).and_then(|class| class.resource.clone());
        named.unwrap_or_else(|| format!("{CLASS_PREFIX}{class}").as_str().into())
    }

    /// Applies a message about a slice; returns the nodes with devices that may have changed.
    pub fn take_slice(&mut self, seen: Seen<SliceSeen>) -> BTreeSet<Name> {
        let mut changed = BTreeSet::new();
        for step in self.slices.take(seen) {
            let (name, before) = match step {
                Step::Put(name, before) => (name, before),
                Step::Gone(name, before) => (name, Some(before)),
            };
            let now = self.slices.get(&name);
            if now == before.as_ref() {
                continue;
            }
            if let Some(before) = &before {
                remove(&mut self.pools, &before.pool, &name);
                if let Some(node) = &before.node {
                    remove(&mut self.of_node, node, &name);
                    changed.insert((before.pool.clone(), Some(node.clone())));
                }
            }
            match now {
                Some(now) => {
                    self.pools.entry(now.pool.clone()).or_default().insert(name.clone());
                    if let Some(node) = &now.node {
                        self.of_node.entry(node.clone()).or_default().insert(name.clone());
                    }
                    changed.insert((now.pool.clone(), now.node.clone()));
                    self.select_devices(&name, None);
                }
                None => {
                    self.selected.remove(&name);
                }
            }
        }
        let mut nodes = BTreeSet::new();
        for (pool, node) in changed {
            // A slice of a newer generation invalidates the older slices of its pool.
            let slices = self.pools.get(&pool).into_iter().flatten().filter_map(|name| self.slices.get(name));
            nodes.extend(slices.filter_map(|slice| slice.node.clone()).chain(node));
        }
        nodes
    }

    /// Applies a message about a class; returns the nodes with devices that may have changed, or `None` if nothing
    /// changed.
    pub fn take_class(&mut self, seen: Seen<DeviceClassSeen>) -> Option<BTreeSet<Name>> {
        let mut any = false;
        for step in self.classes.take(seen) {
            let (name, before) = match step {
                Step::Put(name, before) => (name, before),
                Step::Gone(name, before) => (name, Some(before)),
            };
            let now = self.classes.get(&name);
            if now == before.as_ref() {
                continue;
            }
            any = true;
            if now.map(|class| &class.selectors) != before.as_ref().map(|class| &class.selectors) {
                self.selectors_changed(&name);
            }
        }
        any.then(|| self.of_node.keys().cloned().collect())
    }

    fn selectors_changed(&mut self, name: &Name) {
        self.selectors.remove(name);
        let itself = format!("DeviceClass {name} ");
        self.logged.retain(|what| !what.starts_with(&itself));
        if let Some(class) = self.classes.get(name) {
            let read = |text: &String| self.language.read(text);
            let selectors = class.selectors.as_ref().ok_or("a selector is not in CEL".to_owned());
            match selectors.and_then(|texts| texts.iter().map(read).collect::<Result<Vec<_>, _>>()) {
                Ok(selectors) => drop(self.selectors.insert(name.clone(), selectors)),
                Err(problem) => self.log_once(format!("DeviceClass {name} selects nothing"), &problem),
            }
        }
        let slices: Vec<Name> = self.selected.keys().cloned().collect();
        for slice in slices {
            self.select_devices(&slice, Some(name));
        }
    }

    /// Evaluates all classes, or only one, on each device of a slice.
    fn select_devices(&mut self, name: &Name, only: Option<&Name>) {
        let slice = self.slices.get(name).filter(|slice| slice.node.is_some());
        let mut selected = self.selected.remove(name).unwrap_or_default();
        let Some(slice) = slice else { return };
        let driver = &slice.pool.0;
        let mut problems = Vec::new();
        selected.resize(slice.devices.len(), BTreeSet::new());
        for (device, classes) in slice.devices.iter().zip(&mut selected) {
            match only {
                Some(only) => drop(classes.remove(only)),
                None => classes.clear(),
            }
            let shown = match self.language.show(driver, device) {
                Ok(shown) => shown,
                Err(problem) => {
                    problems.push((format!("a device of {driver}"), problem));
                    continue;
                }
            };
            for (class, selectors) in
                self.selectors.iter().filter(|(class, _)| only.is_none_or(|only| only == *class))
            {
                let selects = selectors.iter().try_fold(true, |all, one| Ok(all && shown.matches(one)?));
                match selects {
                    Ok(true) => drop(classes.insert(class.clone())),
                    Ok(false) => {}
                    Err(problem) => {
                        problems.push((format!("DeviceClass {class} on devices of {driver}"), problem))
                    }
                }
            }
        }
        self.selected.insert(name.clone(), selected);
        for (what, problem) in problems {
            self.log_once(what, &problem);
        }
    }

    /// The devices of a slice by resource. A device counts once for each resource of the classes that select it. Of
    /// devices that share counters, only those that can all be allocated at once count: whole devices as a rule, not
    /// their partitions.
    fn counted(&self, name: &Name, slice: &SliceSeen) -> ResourceList {
        let scarce = self.scarce(slice);
        let mut counted = ResourceList::new();
        for (device, resources) in self.resources(name, slice) {
            for resource in resources {
                let mut sets = device.takes.keys().map(|(set, _)| set);
                if !sets.any(|set| scarce.contains(&(resource.clone(), set.as_str()))) {
                    let count = counted.entry(resource).or_default();
                    *count = *count + Amount::units(1);
                }
            }
        }
        counted
    }

    /// The resources of each device of a slice.
    fn resources<'a>(
        &'a self,
        name: &Name,
        slice: &'a SliceSeen,
    ) -> impl Iterator<Item = (&'a Device, BTreeSet<Name>)> {
        let selected = self.selected.get(name).into_iter().flatten();
        slice
            .devices
            .iter()
            .zip(selected)
            .map(|(device, classes)| (device, classes.iter().map(|class| self.resource_of(class)).collect()))
    }

    /// The counter sets of a pool that do not cover all devices of a resource, by resource.
    fn scarce<'a>(&'a self, of: &'a SliceSeen) -> BTreeSet<(Name, &'a str)> {
        if of.devices.iter().all(|device| device.takes.is_empty()) {
            return BTreeSet::new();
        }
        let names = self.pools.get(&of.pool).into_iter().flatten();
        let slices = names.filter_map(|name| Some((name, self.slices.get(name)?)));
        let pool: Vec<_> = slices.filter(|(_, slice)| slice.generation == of.generation).collect();
        let mut taken: BTreeMap<(Name, &(String, String)), i128> = BTreeMap::new();
        for (name, slice) in &pool {
            for (device, resources) in self.resources(name, slice) {
                for (resource, (counter, amount)) in resources
                    .iter()
                    .flat_map(|resource| device.takes.iter().map(move |taken| (resource, taken)))
                {
                    *taken.entry((resource.clone(), counter)).or_default() += i128::from(amount.as_milli());
                }
            }
        }
        let offered = |counter: &(String, String)| {
            let amounts = pool.iter().filter_map(|(_, slice)| slice.counters.get(counter));
            amounts.map(|amount| i128::from(amount.as_milli())).max().unwrap_or(0)
        };
        let short = taken.into_iter().filter(|((_, counter), taken)| *taken > offered(counter));
        short.map(|((resource, counter), _)| (resource, counter.0.as_str())).collect()
    }

    /// The devices of a node, from pools with all slices of their newest generation.
    fn amounts(&self, node: &Name) -> ResourceList {
        let mut amounts = ResourceList::new();
        for name in self.of_node.get(node).into_iter().flatten() {
            let Some(slice) = self.slices.get(name) else { continue };
            let pool = || {
                let names = self.pools.get(&slice.pool).into_iter().flatten();
                names.filter_map(|name| self.slices.get(name))
            };
            let newest = pool().map(|one| one.generation).max();
            let there = pool().filter(|one| Some(one.generation) == newest).count();
            if Some(slice.generation) == newest && i64::try_from(there) == Ok(slice.of) {
                amounts = sum(&amounts, &self.counted(name, slice));
            }
        }
        amounts
    }

    /// Adds the devices of a node to its allocatable resources. A resource that the node lists itself keeps its
    /// amount: a device plugin offers the same devices, and kube-scheduler uses that amount.
    pub fn offer(&mut self, node: &mut Node) {
        let mut added = BTreeSet::new();
        for (resource, amount) in self.amounts(&node.name) {
            let listed = node.allocatable.get(&resource).copied().unwrap_or(Amount::ZERO);
            if listed == Amount::ZERO {
                node.allocatable.insert(resource.clone(), amount);
                added.insert(resource);
            }
        }
        if added.is_empty() {
            self.added.remove(&node.name);
        } else {
            self.added.insert(node.name.clone(), added);
        }
    }

    /// Updates a node that [`Self::offer`] changed before.
    pub fn offer_again(&mut self, node: &mut Node) {
        for resource in self.added.remove(&node.name).unwrap_or_default() {
            node.allocatable.remove(&resource);
        }
        self.offer(node);
    }

    /// Drops a deleted node.
    pub fn remove_node(&mut self, node: &Name) {
        self.added.remove(node);
    }

    /// Logs a problem, once per object.
    fn log_once(&mut self, what: String, problem: &str) {
        if !self.logged.contains(&what) {
            tracing::warn!(what, problem, "devices are not counted");
            self.logged.insert(what);
        }
    }
}
