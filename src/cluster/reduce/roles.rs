//! The pods that an object describes, as one gang of pods that are alike.
//!
//! The engine places pods of one shape. Where the roles of an object differ, two rules keep that honest:
//!
//! * A role that asks for no device (a launcher, a driver) rides along: what all of its pods need beside the
//!   others' devices is asked for with every pod, so there is room for them on any node of the gang. Devices are
//!   counted exactly, processors and memory too high rather than too low.
//! * Roles that differ in what they ask for beyond that are counted by the largest of each, which
//!   [`Gang::inexact`] tells.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::wire::{Container, PodSpec, Resources};
use super::claims::{PodClaim, claims};
use super::shape::shape;
use crate::engine::types::amount::{Amount, ResourceList, sum};
use crate::engine::types::{Name, NodeTerm, PodShape};
use crate::kinds::{Factor, Kind, Pointer, Role};

/// What an object asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gang {
    /// How many pods are alike.
    pub pods: u32,
    /// What each of them needs, with what rides along.
    pub shape: PodShape,
    /// What pods of the roles claim, of each that differs in that.
    pub claims: Vec<Vec<PodClaim>>,
    /// The class that its largest role names.
    pub class: Option<Name>,
    /// The templates of all roles whose pods go where the gang goes.
    pub templates: Vec<Pointer>,
    /// Where something is missing without which nothing can be counted.
    pub missing: Option<Pointer>,
    /// Whether roles differ, so that more is counted than is asked for; says how.
    pub inexact: Option<String>,
}

struct Part {
    pods: u32,
    shape: PodShape,
    claims: Vec<PodClaim>,
    class: Option<Name>,
    template: Option<Pointer>,
}

impl Part {
    /// Whether its pods ask for devices.
    fn is_heavy(&self) -> bool {
        has_device(&self.shape.requests) || !self.claims.is_empty()
    }
}

/// What an object of this kind asks for, where `affinity` gives what its user wrote into a template.
#[must_use]
pub fn gang(kind: &Kind, object: &Value, affinity: &dyn Fn(&Pointer) -> Option<Value>) -> Gang {
    let mut gang = Gang::default();
    let mut parts = Vec::new();
    for role in &kind.roles {
        for place in places(role, object) {
            match part(role, &place, object, affinity) {
                Ok(part) => parts.extend(part.filter(|part| part.pods > 0)),
                Err(missing) => gang.missing = Some(missing),
            }
        }
    }
    let heavy_alone = parts.iter().any(Part::is_heavy);
    let (heavy, light): (Vec<Part>, Vec<Part>) =
        parts.into_iter().partition(|part| !heavy_alone || part.is_heavy());
    let Some(largest) = heavy.iter().max_by_key(|part| part.pods) else { return gang };
    gang.pods = heavy.iter().fold(0u32, |sum, part| sum.saturating_add(part.pods));
    gang.class = largest.class.clone();
    gang.shape = largest.shape.clone();
    for part in &heavy {
        if part.shape != gang.shape || part.claims != largest.claims {
            gang.inexact = Some(format!(
                "its roles differ, so each of the {} pods is counted as the largest of them",
                gang.pods
            ));
        }
        cover(&mut gang.shape, &part.shape);
        if !part.claims.is_empty() && !gang.claims.contains(&part.claims) {
            gang.claims.push(part.claims.clone());
        }
    }
    gang.templates.extend(heavy.into_iter().filter_map(|part| part.template));
    for part in light {
        if !rides_along(&part, &gang.shape) {
            continue;
        }
        for _ in 0..part.pods {
            gang.shape.requests = sum(&gang.shape.requests, &part.shape.requests);
        }
        // The engine counts one slot for each pod by itself.
        let slots = ResourceList::from([(Name::from("pods"), Amount::units(i64::from(part.pods)))]);
        gang.shape.requests = sum(&gang.shape.requests, &slots);
        gang.templates.extend(part.template);
    }
    gang
}

/// Where a role is described; nowhere, if the object has none.
fn places(role: &Role, object: &Value) -> Vec<Pointer> {
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

/// The pods that one place describes; the error says what is missing there.
fn part(
    role: &Role,
    place: &Pointer,
    object: &Value,
    affinity: &dyn Fn(&Pointer) -> Option<Value>,
) -> Result<Option<Part>, Pointer> {
    let there = place.read(object).unwrap_or(&Value::Null);
    let pods = role.pods.iter().map(|factor| number(factor, there)).fold(1u32, u32::saturating_mul);
    if let Some(template) = &role.template {
        let Some(written) = template.read(there) else { return Ok(None) };
        let at = place.join(template);
        let spec: PodSpec = serde_json::from_value(written["spec"].clone()).map_err(|_| at.under("spec"))?;
        return Ok(Some(Part {
            pods,
            shape: shape(&spec, affinity(&at).as_ref()),
            claims: claims(&spec, None),
            class: spec.priority_class_name.as_deref().map(Name::from),
            template: Some(at),
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
    Ok(Some(Part { pods, shape: shape(&spec, None), claims: Vec::new(), class: None, template: None }))
}

fn number(factor: &Factor, there: &Value) -> u32 {
    let read = |at: &Pointer| at.read(there).and_then(Value::as_u64);
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let written = read(&factor.at).map_or(factor.default, small);
    factor.at_most.as_ref().and_then(read).map_or(written, |most| written.min(small(most)))
}

/// Whether there are devices among the requests: resources that belong to somebody by name.
#[must_use]
pub fn has_device(requests: &ResourceList) -> bool {
    requests.keys().any(|resource| resource.contains('/'))
}

/// Makes a shape one that holds every pod of the other, on nodes that suit both.
fn cover(shape: &mut PodShape, other: &PodShape) {
    for (resource, amount) in &other.requests {
        let largest = shape.requests.entry(resource.clone()).or_default();
        *largest = (*largest).max(*amount);
    }
    shape.node_selector.extend(other.node_selector.iter().map(|(key, value)| (key.clone(), value.clone())));
    if shape.node_terms.is_empty() {
        shape.node_terms.clone_from(&other.node_terms);
    } else if !other.node_terms.is_empty() && shape.node_terms != other.node_terms {
        let both = |a: &NodeTerm, b: &NodeTerm| NodeTerm {
            labels: a.labels.iter().chain(&b.labels).cloned().collect(),
            fields: a.fields.iter().chain(&b.fields).cloned().collect(),
        };
        let pairs = shape.node_terms.iter().flat_map(|a| other.node_terms.iter().map(move |b| both(a, b)));
        shape.node_terms = pairs.collect::<BTreeSet<_>>().into_iter().collect();
    }
    shape.tolerations.retain(|toleration| other.tolerations.contains(toleration));
}

/// Whether pods without devices go with the others: unless they ask for nodes of their own, or do not
/// tolerate what the others do.
fn rides_along(part: &Part, gang: &PodShape) -> bool {
    let own = &part.shape;
    let anywhere = own.node_selector.is_empty() && own.node_terms.is_empty();
    let alike = own.node_selector == gang.node_selector && own.node_terms == gang.node_terms;
    (anywhere || alike) && gang.tolerations.iter().all(|toleration| own.tolerations.contains(toleration))
}

#[cfg(test)]
#[path = "roles_tests.rs"]
mod tests;
