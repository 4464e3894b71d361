//! The pods that an object describes, as one gang of pods that are alike.
//!
//! The engine places pods of one shape. Where the roles of an object differ, two rules apply:
//!
//! * A role without devices (a launcher, a driver) rides along. The requests of all its pods are added to each
//!   pod with devices, so any node of the gang can hold them. Devices are counted exactly; processors and
//!   memory are counted too high rather than too low.
//! * Roles that differ in their other requests are counted by the largest of each, and [`Gang::inexact`] says so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::api::caps::{Counts, MOST_WRITTEN_TERMS};
use crate::cluster::reduce::claims::{PodClaim, claims};
use crate::cluster::reduce::counts::counts;
use crate::cluster::reduce::profile::{Labels, profile};
use crate::cluster::reduce::shape::{grace, has_device, nowhere, shape};
use crate::cluster::wire::{Container, PodSpec, Resources};
use crate::engine::types::amount::{Amount, ResourceList, sum};
use crate::engine::types::{Name, NodeTerm, PodShape, Profile, Toleration};
use crate::kinds::{Factor, Kind, Pointer, Role};

/// The pods that an object requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gang {
    /// How many pods are alike.
    pub pods: u32,
    /// The shape of each of them, with the roles that ride along.
    pub shape: PodShape,
    /// The labels and constraints of its pods; none where several templates have constraints or differ in labels.
    pub profile: Arc<Profile>,
    /// The claims of a pod, once for each role that differs in them.
    pub claims: Vec<Vec<PodClaim>>,
    /// The class of the largest role.
    pub class: Option<Name>,
    /// The pod templates of all roles that go to the nodes of the gang.
    pub templates: Vec<Pointer>,
    /// A field that is missing, without which the pods cannot be counted.
    pub missing: Option<Pointer>,
    /// Whether templates with constraints on other pods differ, so that none of these is considered.
    pub mixed: bool,
    /// How roles differ, where more is counted than is requested.
    pub inexact: Option<String>,
    /// How long its pods may take to end: the longest grace period of all roles.
    pub grace: Duration,
    /// What it has of everything that is capped.
    pub counts: Counts,
}

/// The most roles with claims of their own that are counted. An object with more exceeds the cap on pod templates.
const MOST_CLAIMING_ROLES: usize = 256;

/// The most requirements, with their values, in the terms of several roles together. More than this is above the cap on
/// selectors and requirements for any cap on terms.
const MOST_COMBINED_RULES: usize = 16 * MOST_WRITTEN_TERMS;

/// The pods of one role.
struct Part {
    pods: u32,
    shape: PodShape,
    profile: Arc<Profile>,
    claims: Vec<PodClaim>,
    class: Option<Name>,
    template: Option<Pointer>,
    grace: Duration,
    counts: Counts,
}

impl Part {
    /// Whether its pods request devices.
    fn is_heavy(&self) -> bool {
        has_device(&self.shape.requests) || !self.claims.is_empty()
    }
}

/// The pods that an object of this kind requests in a namespace; `affinity` gives the user's affinity of a template.
#[must_use]
pub fn gang(
    kind: &Kind,
    (object, namespace): (&Value, Option<&String>),
    affinity: &dyn Fn(&Pointer) -> Option<Value>,
) -> Gang {
    let mut gang = Gang::default();
    let mut parts = Vec::new();
    for role in &kind.roles {
        for place in places(role, object) {
            gang.counts.templates += 1;
            match part(role, &place, (object, namespace), affinity) {
                Ok(part) => parts.extend(part.filter(|part| part.pods > 0)),
                Err(missing) => gang.missing = Some(missing),
            }
        }
    }
    // The pods of all roles, also of those that ride along: they are made, watched and kept as well.
    gang.counts.pods = parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.pods.into()));
    gang.counts = parts.iter().fold(gang.counts, |most, part| most.max(part.counts));
    // An admission keeps the affinities of all templates in one annotation.
    gang.counts.notes = parts.iter().map(|part| part.counts.affinity_bytes).sum();
    gang.grace = parts.iter().map(|part| part.grace).max().unwrap_or_default();
    let any_heavy = parts.iter().any(Part::is_heavy);
    let (heavy, light): (Vec<Part>, Vec<Part>) =
        parts.into_iter().partition(|part| !any_heavy || part.is_heavy());
    gang.count(heavy);
    if gang.pods > 0 {
        gang.carry(light);
    }
    gang
}

impl Gang {
    /// Counts the roles that need devices, or all roles where none does.
    fn count(&mut self, roles: Vec<Part>) {
        let Some(largest) = roles.iter().max_by_key(|part| part.pods) else { return };
        self.pods = roles.iter().fold(0u32, |sum, part| sum.saturating_add(part.pods));
        self.class = largest.class.clone();
        self.shape = largest.shape.clone();
        self.profile = Arc::clone(&largest.profile);
        // The same terms again narrow nothing further.
        let mut covered = BTreeSet::from([&largest.shape.node_terms]);
        for part in &roles {
            if part.shape != self.shape || part.claims != largest.claims {
                self.inexact = Some(format!(
                    "its roles differ, so each of the {} pods is counted as the largest of them",
                    self.pods
                ));
            }
            if part.profile != self.profile {
                // The engine has one profile for all pods, so the constraints of several templates are left to
                // kube-scheduler.
                let constrained = part.profile.is_constrained() || self.profile.is_constrained();
                self.mixed |= constrained;
                let profile = Arc::make_mut(&mut self.profile);
                profile.labels =
                    profile.labels.only(|key, value| part.profile.labels.get(key) == Some(value));
                profile.apart.clear();
                profile.together.clear();
                profile.spread.clear();
            }
            let new = covered.insert(&part.shape.node_terms);
            self.counts = self.counts.max(cover(&mut self.shape, &part.shape, new));
            let few = self.claims.len() < MOST_CLAIMING_ROLES;
            if few && !part.claims.is_empty() && !self.claims.contains(&part.claims) {
                self.claims.push(part.claims.clone());
            }
        }
        self.templates.extend(roles.into_iter().filter_map(|part| part.template));
    }

    /// Adds the roles that ride along to each pod.
    fn carry(&mut self, roles: Vec<Part>) {
        for part in roles {
            if !rides_along(&part, &self.shape) {
                continue;
            }
            let all = part.shape.requests.iter();
            let all = all.map(|(resource, each)| (resource.clone(), times(*each, part.pods))).collect();
            self.shape.requests = sum(&self.shape.requests, &all);
            // The engine counts one slot for each pod by itself.
            let slots = ResourceList::from([(Name::from("pods"), Amount::units(i64::from(part.pods)))]);
            self.shape.requests = sum(&self.shape.requests, &slots);
            self.templates.extend(part.template);
        }
    }
}

/// The pod templates of all roles of an object.
#[must_use]
pub fn templates(kind: &Kind, object: &Value) -> Vec<Pointer> {
    let roles = kind.roles.iter().filter_map(|role| Some((role, role.template.as_ref()?)));
    let all = roles.flat_map(|(role, template)| {
        places(role, object).into_iter().map(|place| place.join(template)).collect::<Vec<_>>()
    });
    all.filter(|at| at.read(object).is_some()).collect()
}

/// The places that describe a role; none if the object has no such role.
pub fn places(role: &Role, object: &Value) -> Vec<Pointer> {
    if let Some(at) = &role.at {
        return vec![at.clone()];
    }
    let Some(each) = &role.each else { return Vec::new() };
    match each.read(object) {
        Some(Value::Array(list)) => (0..list.len()).map(|index| each.under(index.to_string())).collect(),
        Some(Value::Object(map)) => map.keys().map(|key| each.under(key.as_str())).collect(),
        _ => Vec::new(),
    }
}

/// The pods that one place describes; the error is the field that is missing.
fn part(
    role: &Role,
    place: &Pointer,
    (object, namespace): (&Value, Option<&String>),
    affinity: &dyn Fn(&Pointer) -> Option<Value>,
) -> Result<Option<Part>, Pointer> {
    let there = place.read(object).unwrap_or(&Value::Null);
    if let Some(factor) = role.pods.iter().find(|factor| factor.required && factor.at.read(there).is_none()) {
        return Err(place.join(&factor.at));
    }
    let pods = role.pods.iter().map(|factor| number(factor, there)).fold(1u32, u32::saturating_mul);
    if let Some(template) = &role.template {
        let Some(written) = template.read(there) else { return Ok(None) };
        let at = place.join(template);
        let spec: PodSpec = serde_json::from_value(written["spec"].clone()).map_err(|_| at.under("spec"))?;
        let user = affinity(&at);
        let labels: Option<Labels> = serde_json::from_value(written["metadata"]["labels"].clone()).ok();
        return Ok(Some(Part {
            pods,
            counts: counts(&spec, user.as_ref()),
            shape: shape(&spec, user.as_ref()),
            profile: profile(namespace, labels.as_ref(), &spec, user.as_ref()),
            claims: claims(&spec, None),
            class: spec.priority_class_name.as_deref().map(Name::from),
            template: Some(at),
            grace: grace(&spec),
        }));
    }
    let Some(resources) = &role.resources else { return Ok(None) };
    let written = resources.read(there).cloned().unwrap_or_default();
    let at = place.join(resources);
    let resources: Resources = serde_json::from_value(written).map_err(|_| at.clone())?;
    if resources.requests.is_none() && resources.limits.is_none() {
        return Err(at);
    }
    let spec =
        PodSpec { containers: vec![Container { resources, restart_policy: None }], ..PodSpec::default() };
    let (counts, shape, grace) = (counts(&spec, None), shape(&spec, None), grace(&spec));
    let profile = profile(namespace, None, &spec, None);
    Ok(Some(Part { pods, shape, profile, claims: Vec::new(), class: None, template: None, grace, counts }))
}

fn number(factor: &Factor, there: &Value) -> u32 {
    let read = |at: &Pointer| at.read(there).and_then(Value::as_u64);
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let written = read(&factor.at).map_or(factor.default, small);
    let written = factor.at_least.as_ref().and_then(read).map_or(written, |least| written.max(small(least)));
    factor.at_most.as_ref().and_then(read).map_or(written, |most| written.min(small(most)))
}

/// The requests of that many pods.
fn times(each: Amount, pods: u32) -> Amount {
    Amount::milli(each.as_milli().saturating_mul(pods.into()))
}

/// Extends a shape to hold every pod of the other, on nodes that suit both. Returns the counts of both together.
///
/// `new_terms` says whether the node terms of the other have not been combined yet. Terms beyond what any admission could
/// write are never built: one that no node satisfies stands for them.
fn cover(shape: &mut PodShape, other: &PodShape, new_terms: bool) -> Counts {
    for (resource, amount) in &other.requests {
        let largest = shape.requests.entry(resource.clone()).or_default();
        *largest = (*largest).max(*amount);
    }
    shape.node_selector.extend(other.node_selector.iter().map(|(key, value)| (key.clone(), value.clone())));
    let common: BTreeSet<&Toleration> = other.tolerations.iter().collect();
    shape.tolerations.retain(|toleration| common.contains(toleration));
    let given_up = shape.node_terms == [nowhere()];
    if shape.node_terms.is_empty() {
        shape.node_terms.clone_from(&other.node_terms);
    } else if new_terms && !given_up && !other.node_terms.is_empty() {
        let (mine, theirs) = (&shape.node_terms, &other.node_terms);
        let terms = mine.len().saturating_mul(theirs.len());
        let rules =
            rules(mine).saturating_mul(theirs.len()).saturating_add(rules(theirs).saturating_mul(mine.len()));
        if terms > MOST_WRITTEN_TERMS || rules > MOST_COMBINED_RULES {
            shape.node_terms = vec![nowhere()];
            return Counts { terms: terms as u64, rules: rules as u64, ..Counts::default() };
        }
        let both = |a: &NodeTerm, b: &NodeTerm| NodeTerm {
            labels: a.labels.iter().chain(&b.labels).cloned().collect(),
            fields: a.fields.iter().chain(&b.fields).cloned().collect(),
        };
        let pairs = mine.iter().flat_map(|a| theirs.iter().map(move |b| both(a, b)));
        shape.node_terms = pairs.collect::<BTreeSet<_>>().into_iter().collect();
    }
    Counts { terms: shape.node_terms.len() as u64, ..Counts::default() }
}

/// The requirements of terms, and their values.
fn rules(terms: &[NodeTerm]) -> usize {
    let each = terms.iter().flat_map(|term| term.labels.iter().chain(&term.fields));
    each.map(|requirement| 1 + requirement.values.len()).sum()
}

/// Whether pods without devices go to the nodes of the gang: not if they select nodes of their own, or lack a
/// toleration of the gang.
fn rides_along(part: &Part, gang: &PodShape) -> bool {
    let own = &part.shape;
    let anywhere = own.node_selector.is_empty() && own.node_terms.is_empty();
    let alike = own.node_selector == gang.node_selector && own.node_terms == gang.node_terms;
    let tolerated: BTreeSet<&Toleration> = own.tolerations.iter().collect();
    (anywhere || alike) && gang.tolerations.iter().all(|toleration| tolerated.contains(toleration))
}

#[cfg(test)]
mod tests;
