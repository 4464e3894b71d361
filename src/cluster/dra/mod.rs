//! Devices of dynamic resource allocation (DRA), counted as amounts of a resource.
//!
//! A class of devices counts as one resource: the extended resource it names, or else the name that Kubernetes knows
//! it by. A node has as much of it as drivers say in ResourceSlices and the class selects, a pod asks for as much as
//! its claims ask of the class, and all else (teams, quotas, places) is as with any resource.

mod selector;
mod supply;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use self::supply::Supply;
use super::reduce::claims::{
    Asked, CLASS_PREFIX, ClaimSeen, Claims, DeviceClassSeen, PodClaim, SliceSeen, TemplateSeen,
};
use super::table::{Seen, Step, Table};
use crate::engine::types::amount::{Amount, ResourceList, sum};
use crate::engine::types::{Name, Node, Observed, Size, Unready, Workload};

/// A message of one of the watches.
#[derive(Clone, Debug)]
pub enum News {
    /// Of a ResourceSlice, by its name.
    Slice(Seen<SliceSeen>),
    /// Of a DeviceClass, by its name.
    Class(Seen<DeviceClassSeen>),
    /// Of a ResourceClaimTemplate, by namespace and name.
    Template(Seen<TemplateSeen>),
    /// Of a ResourceClaim, by namespace and name.
    Claim(Seen<ClaimSeen>),
}

impl News {
    /// That there are no such objects.
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

/// The key of an object that has a namespace.
#[must_use]
pub fn key(namespace: &str, name: &str) -> Name {
    format!("{namespace}/{name}").as_str().into()
}

/// What is to be counted anew.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Concerns {
    /// Nodes that offer something else.
    pub nodes: BTreeSet<Name>,
    /// Workloads and pods that may ask for something else, by UID.
    pub users: BTreeSet<Name>,
}

/// What somebody's count depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Classes,
    Template(Name),
    Claim(Name),
}

/// All that is known of claimed devices.
#[derive(Debug, Default)]
pub struct Dra {
    supply: Supply,
    templates: Table<TemplateSeen>,
    claims: Table<ClaimSeen>,
    /// Who asks for what comes from where.
    users: BTreeMap<Source, BTreeSet<Name>>,
}

impl Dra {
    /// Whether every first list has been read to its end.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.supply.complete() && self.templates.complete() && self.claims.complete()
    }

    /// Takes note of a message; whom it concerns.
    pub fn take(&mut self, news: News) -> Concerns {
        match news {
            News::Slice(seen) => Concerns { nodes: self.supply.take_slice(seen), ..Concerns::default() },
            News::Class(seen) => match self.supply.take_class(seen) {
                None => Concerns::default(),
                Some(nodes) => {
                    Concerns { nodes, users: self.users.get(&Source::Classes).cloned().unwrap_or_default() }
                }
            },
            News::Template(seen) => {
                let steps = self.templates.take(seen);
                let same = |name: &Name, before: &TemplateSeen| self.templates.get(name) == Some(before);
                self.concerned(changed(steps, same).into_iter().map(Source::Template))
            }
            News::Claim(seen) => {
                let steps = self.claims.take(seen);
                let same = |name: &Name, before: &ClaimSeen| self.claims.get(name) == Some(before);
                self.concerned(changed(steps, same).into_iter().map(Source::Claim))
            }
        }
    }

    fn concerned(&self, sources: impl Iterator<Item = Source>) -> Concerns {
        let users = sources.filter_map(|source| self.users.get(&source)).flatten().cloned();
        Concerns { users: users.collect(), ..Concerns::default() }
    }

    /// Adds what drivers offer on a node to what it lists itself.
    pub fn offer(&mut self, node: &mut Node) {
        self.supply.offer(node);
    }

    /// The same for a node to which it has been done before.
    pub fn offer_again(&mut self, node: &mut Node) {
        self.supply.offer_again(node);
    }

    /// Forgets a node.
    pub fn forget(&mut self, node: &Name) {
        self.supply.forget(node);
    }

    /// Takes note of what somebody's count depends on.
    pub fn note(&mut self, user: &Name, before: Option<&Claims>, now: Option<&Claims>) {
        for source in before.map(sources).unwrap_or_default() {
            remove(&mut self.users, &source, user);
        }
        for source in now.map(sources).unwrap_or_default() {
            self.users.entry(source).or_default().insert(user.clone());
        }
    }

    /// Fills in what the claims of a workload ask for. What cannot be counted is not queued; if it runs already,
    /// it keeps what was counted.
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
        workload.shape.requests = self.by_resource(&sum(&workload.shape.requests, counted));
        for size in &mut workload.sizes {
            let requests = self.by_resource(&sum(&size.requests, counted));
            *size = Size { requests, share: size.share };
        }
    }

    /// What pods request, with what they claim; the error says why that cannot be told.
    pub fn requests_with(&self, claims: &Claims) -> Result<ResourceList, Name> {
        Ok(self.by_resource(&sum(&claims.plain, &self.asked(claims)?)))
    }

    /// What a pod of this UID holds, with what it was given by claims.
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
        // Of what is known only in part, what was counted before is nearer the truth, if anything was.
        if known || claims.counted.is_none() {
            claims.counted = Some(held);
        }
        let none = ResourceList::new();
        self.by_resource(&sum(&claims.plain, claims.counted.as_ref().unwrap_or(&none)))
    }

    /// What a pod has been given by one claim, or is to be given. A claim that pods share is its first user's.
    fn given(&self, pod: &Name, namespace: &str, claim: &PodClaim) -> Option<&Asked> {
        if let Some(shared) = &claim.shared {
            let claim = self.claims.get(&key(namespace, shared))?;
            return (claim.carrier.as_ref() == Some(pod)).then_some(&claim.asked);
        }
        let made = claim.made.as_ref().and_then(|made| self.claims.get(&key(namespace, made)));
        let template = || self.templates.get(&key(namespace, claim.template.as_ref()?));
        made.map(|claim| &claim.asked).or_else(|| template().map(|template| &template.asked))
    }

    /// What each pod of a workload asks for by claims: where they differ, the largest of each.
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
            let why = format!(
                "ResourceClaim {shared} is one that pods share; name a ResourceClaimTemplate instead"
            );
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
            let entry = to.entry(self.supply.resource_of(class)).or_default();
            *entry = *entry + amount;
        }
    }

    /// Requests with the resource of each class under the one name it is counted by.
    fn by_resource(&self, requests: &ResourceList) -> ResourceList {
        let mut renamed = ResourceList::new();
        for (resource, amount) in requests {
            let class = resource.strip_prefix(CLASS_PREFIX);
            let resource = class.map_or_else(|| resource.clone(), |class| self.supply.resource_of(class));
            let entry = renamed.entry(resource).or_default();
            *entry = *entry + *amount;
        }
        renamed
    }
}

/// More devices than any claim can have.
const MOST: i64 = 1 << 20;

/// The keys of what is another than before.
fn changed<T>(steps: Vec<Step<T>>, same: impl Fn(&Name, &T) -> bool) -> Vec<Name> {
    let news = |step: Step<T>| match step {
        Step::Put(name, Some(before)) if same(&name, &before) => None,
        Step::Put(name, _) | Step::Gone(name, _) => Some(name),
    };
    steps.into_iter().filter_map(news).collect()
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

/// Takes a name out of an index.
fn remove<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Name>>, key: &K, name: &Name) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
