//! Devices of dynamic resource allocation (DRA), counted as amounts of a resource.
//!
//! A DeviceClass counts as one resource: the extended resource it names, or else the name that Kubernetes gives it.
//! A node offers the devices of its ResourceSlices that the class selects. A pod requests the devices that its claims
//! request of the class. Teams, quotas and placement treat it like any resource.

mod index;
mod selector;
mod supply;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::index::remove;
use self::supply::Supply;
use super::reduce::claims::{
    Asked, CLASS_PREFIX, ClaimSeen, Claims, DeviceClassSeen, PodClaim, SliceSeen, TemplateSeen,
};
use super::table::{Seen, Step, Table};
use crate::engine::types::amount::{Amount, ResourceList, sum};
use crate::engine::types::{Name, Node, Observed, Size, Unready, Workload};

/// A message of a watch on dynamic resource allocation.
#[derive(Clone, Debug)]
pub enum News {
    /// A ResourceSlice, by its name.
    Slice(Seen<SliceSeen>),
    /// A DeviceClass, by its name.
    Class(Seen<DeviceClassSeen>),
    /// A ResourceClaimTemplate, by namespace and name.
    Template(Seen<TemplateSeen>),
    /// A ResourceClaim, by namespace and name.
    Claim(Seen<ClaimSeen>),
}

impl News {
    /// The messages of four complete, empty lists.
    #[must_use]
    pub fn nothing() -> [Self; 8] {
        [
            Self::Slice(Seen::ListBegins),
            Self::Slice(Seen::ListEnds),
            Self::Class(Seen::ListBegins),
            Self::Class(Seen::ListEnds),
            Self::Template(Seen::ListBegins),
            Self::Template(Seen::ListEnds),
            Self::Claim(Seen::ListBegins),
            Self::Claim(Seen::ListEnds),
        ]
    }
}

/// The key of a namespaced object.
#[must_use]
pub fn key(namespace: &str, name: &str) -> Name {
    format!("{namespace}/{name}").as_str().into()
}

/// The objects to count again.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Affected {
    /// Nodes with changed devices.
    pub nodes: BTreeSet<Name>,
    /// Workloads and pods with requests that may have changed, by UID.
    pub dependents: BTreeSet<Name>,
}

/// An input of a device count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Classes,
    Template(Name),
    Claim(Name),
}

/// The cache of claimed devices.
#[derive(Debug, Default)]
pub struct Dra {
    supply: Supply,
    templates: Table<TemplateSeen>,
    claims: Table<ClaimSeen>,
    /// The workloads and pods with counts that depend on each input, by UID.
    dependents: BTreeMap<Source, BTreeSet<Name>>,
}

impl Dra {
    /// Whether every first list is complete.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.supply.complete() && self.templates.complete() && self.claims.complete()
    }

    /// Applies a message; returns the objects to count again.
    pub fn take(&mut self, news: News) -> Affected {
        match news {
            News::Slice(seen) => Affected { nodes: self.supply.take_slice(seen), ..Affected::default() },
            News::Class(seen) => match self.supply.take_class(seen) {
                None => Affected::default(),
                Some(nodes) => Affected {
                    nodes,
                    dependents: self.dependents.get(&Source::Classes).cloned().unwrap_or_default(),
                },
            },
            News::Template(seen) => {
                let steps = self.templates.take(seen);
                let same = |name: &Name, before: &TemplateSeen| self.templates.get(name) == Some(before);
                self.affected(changed(steps, same).into_iter().map(Source::Template))
            }
            News::Claim(seen) => {
                let steps = self.claims.take(seen);
                let same = |name: &Name, before: &ClaimSeen| self.claims.get(name) == Some(before);
                self.affected(changed(steps, same).into_iter().map(Source::Claim))
            }
        }
    }

    fn affected(&self, sources: impl Iterator<Item = Source>) -> Affected {
        let dependents = sources.filter_map(|source| self.dependents.get(&source)).flatten().cloned();
        Affected { dependents: dependents.collect(), ..Affected::default() }
    }

    /// Adds the devices that drivers offer on a node to its allocatable resources.
    pub fn offer(&mut self, node: &mut Node) {
        self.supply.offer(node);
    }

    /// Updates a node that [`Self::offer`] changed before.
    pub fn offer_again(&mut self, node: &mut Node) {
        self.supply.offer_again(node);
    }

    /// Drops a deleted node.
    pub fn remove_node(&mut self, node: &Name) {
        self.supply.remove_node(node);
    }

    /// Updates the inputs of the count of a workload or pod.
    pub fn note(&mut self, user: &Name, before: Option<&Claims>, now: Option<&Claims>) {
        for source in before.map(sources).unwrap_or_default() {
            remove(&mut self.dependents, &source, user);
        }
        for source in now.map(sources).unwrap_or_default() {
            self.dependents.entry(source).or_default().insert(user.clone());
        }
    }

    /// Adds the devices that the claims of a workload request. A workload with claims that cannot be counted is not
    /// queued; a running one keeps its last count.
    pub fn count(&self, claims: &mut Claims, workload: &mut Workload) {
        match self.asked(claims) {
            Ok(asked) => {
                claims.counted = Some(asked);
                claims.uncounted = None;
            }
            Err(why) => claims.uncounted = Some(why),
        }
        if matches!(workload.state, Observed::Unready(Unready::Uncounted(_))) {
            workload.state = Observed::Queued;
        }
        if let Some(why) = claims.uncounted.clone().filter(|_| !claims.grouped)
            && workload.state == Observed::Queued
        {
            workload.state = Observed::Unready(Unready::Uncounted(why));
        }
        let none = ResourceList::new();
        let counted = claims.counted.as_ref().unwrap_or(&none);
        let requests = self.by_resource(&sum(&workload.shape.requests, counted));
        Arc::make_mut(&mut workload.shape).requests = requests;
        for size in &mut workload.sizes {
            let requests = self.by_resource(&sum(&size.requests, counted));
            *size = Size { requests, share: size.share };
        }
    }

    /// The requests of a pod with its claimed devices.
    ///
    /// # Errors
    /// Why the claimed devices cannot be counted.
    pub fn requests_with(&self, claims: &Claims) -> Result<ResourceList, Name> {
        Ok(self.by_resource(&sum(&claims.plain, &self.asked(claims)?)))
    }

    /// The usage of the pod with this UID, with the devices of its claims.
    pub fn held(&self, pod: &Name, claims: &mut Claims) -> ResourceList {
        let mut held = ResourceList::new();
        let mut known = true;
        for claim in claims.roles.iter().flatten() {
            match self.given(pod, &claims.namespace, claim) {
                Some(Ok(devices)) => self.add(&mut held, devices),
                Some(Err(_)) => known = false,
                None => {}
            }
        }
        // If some claims are unknown, the earlier count is closer.
        if known || claims.counted.is_none() {
            claims.counted = Some(held);
        }
        let none = ResourceList::new();
        self.by_resource(&sum(&claims.plain, claims.counted.as_ref().unwrap_or(&none)))
    }

    /// The devices of one claim of a pod, allocated or requested. A shared claim is charged to its first pod.
    fn given(&self, pod: &Name, namespace: &str, claim: &PodClaim) -> Option<&Asked> {
        if let Some(shared) = &claim.shared {
            let claim = self.claims.get(&key(namespace, shared))?;
            return (claim.carrier.as_ref() == Some(pod)).then_some(&claim.asked);
        }
        let made = claim.made.as_ref().and_then(|made| self.claims.get(&key(namespace, made)));
        let template = || self.templates.get(&key(namespace, claim.template.as_ref()?));
        made.map(|claim| &claim.asked).or_else(|| template().map(|template| &template.asked))
    }

    /// The devices that each pod of a workload requests; the maximum per resource where pods differ.
    fn asked(&self, claims: &Claims) -> Result<ResourceList, Name> {
        let mut most = ResourceList::new();
        for role in &claims.roles {
            let mut asked = ResourceList::new();
            for claim in role {
                if let Some(devices) = self.asked_by(&claims.namespace, claim)? {
                    self.add(&mut asked, devices);
                }
            }
            for (resource, amount) in asked {
                let largest = most.entry(resource).or_default();
                *largest = (*largest).max(amount);
            }
        }
        Ok(most)
    }

    fn asked_by(&self, namespace: &str, claim: &PodClaim) -> Result<Option<&Vec<(Name, u64)>>, Name> {
        if let Some(shared) = &claim.shared {
            let why =
                format!("ResourceClaim {shared} is shared between pods; use a ResourceClaimTemplate instead");
            return Err(why.as_str().into());
        }
        let Some(name) = &claim.template else { return Ok(None) };
        let Some(template) = self.templates.get(&key(namespace, name)) else {
            return Err(format!("there is no ResourceClaimTemplate {name}").as_str().into());
        };
        let devices = template
            .asked
            .as_ref()
            .map_err(|why| Name::from(format!("ResourceClaimTemplate {name}: {why}").as_str()))?;
        match devices.iter().find(|(class, _)| !self.supply.knows(class)) {
            Some((class, _)) => Err(format!("there is no DeviceClass {class}").as_str().into()),
            None => Ok(Some(devices)),
        }
    }

    fn add(&self, to: &mut ResourceList, devices: &[(Name, u64)]) {
        for (class, count) in devices {
            let amount = Amount::units(i64::try_from(*count).unwrap_or(i64::MAX).min(MOST));
            let total = to.entry(self.supply.resource_of(class)).or_default();
            *total = *total + amount;
        }
    }

    /// Requests with each class under its resource's name.
    fn by_resource(&self, requests: &ResourceList) -> ResourceList {
        let mut renamed = ResourceList::new();
        for (resource, amount) in requests {
            let class = resource.strip_prefix(CLASS_PREFIX);
            let resource = class.map_or_else(|| resource.clone(), |class| self.supply.resource_of(class));
            let total = renamed.entry(resource).or_default();
            *total = *total + *amount;
        }
        renamed
    }
}

/// A limit for arithmetic; more devices than any claim can have.
const MOST: i64 = 1 << 20;

/// The keys of objects that differ from before.
fn changed<T>(steps: Vec<Step<T>>, same: impl Fn(&Name, &T) -> bool) -> Vec<Name> {
    let changed = |step: Step<T>| match step {
        Step::Put(name, Some(before)) if same(&name, &before) => None,
        Step::Put(name, _) | Step::Gone(name, _) => Some(name),
    };
    steps.into_iter().filter_map(changed).collect()
}

fn sources(claims: &Claims) -> BTreeSet<Source> {
    let key = |name: &Name| key(&claims.namespace, name);
    let each = claims.roles.iter().flatten().flat_map(|claim| {
        let template = claim.template.as_ref().map(|name| Source::Template(key(name)));
        let claims = [&claim.shared, &claim.made].into_iter().flatten();
        claims.map(|name| Source::Claim(key(name))).chain(template).collect::<Vec<_>>()
    });
    each.chain([Source::Classes]).collect()
}

#[cfg(test)]
mod tests;
