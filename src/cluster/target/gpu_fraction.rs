//! GPU fractions: one fraction in the place of a whole GPU, or several sizes to choose from.

use kube::core::ObjectMeta;
use serde_json::{Value, json};

use super::super::reduce::{annotation, shape};
use super::super::wire::{PodSpec, Quantities};
use crate::api::names;
use crate::api::sizes::{Choice, are_at, limits_at, speaks_of};
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{Name, Size};
use crate::view::is_gpu;

/// The device of which a pod without a request for one needs a fraction.
const USUAL_DEVICE: &str = "nvidia.com/gpu";

/// Replaces a pod's request for one device by a fraction of it; gives the request that was replaced. A pod that
/// requests several devices needs them whole.
pub fn take_fraction(requests: &mut ResourceList, fraction: Amount) -> Option<(Name, Amount)> {
    let asked =
        requests.get_key_value(USUAL_DEVICE).or_else(|| requests.iter().find(|(name, _)| is_gpu(name)));
    let asked = asked.map(|(name, amount)| (name.clone(), *amount));
    match &asked {
        Some((_, amount)) if *amount > Amount::units(1) => return None,
        Some((name, _)) => requests.insert(name.clone(), fraction),
        None => requests.insert(USUAL_DEVICE.into(), fraction),
    };
    asked
}

/// Whether pods request a GPU, in whatever way, so that a fraction of one beside it is not all they have.
pub fn request_gpu(spec: &PodSpec, requests: &ResourceList) -> bool {
    requests.keys().any(|resource| is_gpu(resource))
        || spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())
}

/// The sizes of a Job's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The limits of the first container in the template.
    limits: Quantities,
    /// The limits that depend on the size, for each size, the most wanted first.
    choices: Vec<Choice>,
}

impl Sizes {
    /// The sizes in the annotation, if the template requests one of them: the admitted `share`, or else the most
    /// wanted. A template that a user has changed since counts as it is written.
    pub fn of(metadata: &ObjectMeta, spec: &PodSpec, share: Option<&str>) -> Option<Self> {
        let choices: Vec<Choice> = serde_json::from_str(annotation(metadata, names::GPU_SIZES)?).ok()?;
        let resources = &spec.containers.first()?.resources;
        let limits = resources.limits.clone().unwrap_or_default();
        let granted = share.and_then(|share| choices.iter().find(|choice| choice.share == share));
        let requested =
            resources.requests.iter().flatten().any(|(resource, _)| speaks_of(&choices, resource));
        let now = granted.or(choices.first()).filter(|now| !requested && are_at(&limits, &choices, now));
        now.is_some().then_some(Self { limits, choices })
    }

    /// Whether pods request nothing at some size.
    pub fn include_nothing(&self) -> bool {
        self.choices.iter().any(|choice| choice.limits.is_empty())
    }

    /// The requests of a pod of the template at each size.
    pub fn requests(&self, spec: &PodSpec) -> Vec<Size> {
        let at = |choice: &Choice| {
            let share = choice.amount()?;
            let mut spec = spec.clone();
            let first = spec.containers.first_mut()?;
            first.resources.limits = Some(limits_at(&self.limits, &self.choices, choice));
            let mut requests = shape::requests(&spec);
            if choice.limits.is_empty() {
                requests.entry(USUAL_DEVICE.into()).or_insert(share);
            }
            Some(Size { share, requests })
        };
        self.choices.iter().filter_map(at).collect()
    }

    /// The limits of the first container at the size of `share`, or else the most wanted, where the template has
    /// others.
    pub fn change(&self, share: Option<&str>) -> Option<Value> {
        let choice = share.and_then(|share| self.choices.iter().find(|choice| choice.share == share));
        let choice = choice.or(self.choices.first())?;
        let limits = limits_at(&self.limits, &self.choices, choice);
        let same = are_at(&self.limits, &self.choices, choice);
        (!same).then(|| if limits.is_empty() { Value::Null } else { json!(limits) })
    }
}
