//! Claimed devices (DRA): the claims of pods, the requests of claims, the offers of drivers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1::{
    Counter, DeviceAttribute, DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim,
    ResourceClaimSpec, ResourceClaimTemplate, ResourceSlice,
};

use super::super::wire::{PodSpec, PodStatus};
use super::name;
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{Name, Size};

/// The prefix of the resource by which Kubernetes knows a DeviceClass
/// (`deviceclass.resource.kubernetes.io/<class>`).
pub const CLASS_PREFIX: &str = "deviceclass.resource.kubernetes.io/";

/// The claims of pods, and their other requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The namespace of the claims and their templates.
    pub namespace: Name,
    /// The claims of a pod; several lists where pods differ.
    pub roles: Vec<Vec<PodClaim>>,
    /// The requests of each pod without its claims.
    pub plain: ResourceList,
    /// The same at each of its sizes.
    pub sizes: Vec<Size>,
    /// Whether the pod is part of a group, which itself has the state of the workload.
    pub grouped: bool,
    /// The devices of the claims when they were last counted.
    pub counted: Option<ResourceList>,
    /// Why they cannot be counted now.
    pub uncounted: Option<Name>,
}

/// A claim of a pod, by the names of objects in the pod's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodClaim {
    /// The ResourceClaimTemplate from which it is created for this pod alone.
    pub template: Option<Name>,
    /// The ResourceClaim that its user has created; other pods may name it too.
    pub shared: Option<Name>,
    /// The ResourceClaim created from the template, once it exists.
    pub made: Option<Name>,
}

impl Claims {
    /// The claims of pods of a template; `plain` and `sizes` are their requests. `None` without any claim.
    #[must_use]
    pub fn of_template(
        namespace: &Name,
        roles: Vec<Vec<PodClaim>>,
        plain: &ResourceList,
        sizes: &[Size],
    ) -> Option<Box<Self>> {
        let by_class = |requests: &ResourceList| requests.keys().any(|name| name.starts_with(CLASS_PREFIX));
        let none = roles.iter().all(Vec::is_empty);
        if none && !by_class(plain) && !sizes.iter().any(|size| by_class(&size.requests)) {
            return None;
        }
        Some(Box::new(Self {
            namespace: namespace.clone(),
            roles,
            plain: plain.clone(),
            sizes: sizes.to_vec(),
            ..Self::default()
        }))
    }
}

/// The claims of a pod of this spec.
#[must_use]
pub fn claims(spec: &PodSpec, status: Option<&PodStatus>) -> Vec<PodClaim> {
    let made = |claim: &PodResourceClaim| {
        let mut statuses =
            status.into_iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
        statuses.find(|status| status.name == claim.name)?.resource_claim_name.as_deref().map(Name::from)
    };
    let read = |claim: &PodResourceClaim| PodClaim {
        template: claim.resource_claim_template_name.as_deref().map(Name::from),
        shared: claim.resource_claim_name.as_deref().map(Name::from),
        made: made(claim),
    };
    spec.resource_claims.iter().flatten().map(read).collect()
}

/// Device classes with numbers of devices, or why they cannot be counted.
pub type Asked = Result<Vec<(Name, u64)>, Name>;

/// A ResourceClaimTemplate as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateSeen {
    /// The request of a claim created from it.
    pub asked: Asked,
}

/// A ResourceClaim as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimSeen {
    /// The devices allocated to it, or else its request.
    pub asked: Asked,
    /// The UID of the pod that uses it, the first of several.
    pub carrier: Option<Name>,
}

/// Converts a template of claims.
#[must_use]
pub fn template(template: &ResourceClaimTemplate) -> TemplateSeen {
    TemplateSeen { asked: asked(template.spec.as_ref().and_then(|spec| spec.spec.as_ref())) }
}

/// Converts a claim. An allocated claim counts by its devices instead of its request.
#[must_use]
pub fn claim(claim: &ResourceClaim) -> ClaimSeen {
    let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
    let pods = status.into_iter().flat_map(|status| status.reserved_for.iter().flatten());
    let given = status.and_then(|status| status.allocation.as_ref()?.devices.as_ref()?.results.as_ref());
    let given = given.map(|results| {
        let counted = results.iter().filter(|result| result.admin_access != Some(true));
        counted.filter_map(|result| Some((class_of(spec, &result.request)?, 1))).collect()
    });
    ClaimSeen {
        asked: given.map_or_else(|| asked(spec), Ok),
        carrier: pods.filter(|user| user.resource == "pods").map(|user| user.uid.as_str().into()).next(),
    }
}

/// The class of a request, which is named `request/alternative` where it has alternatives.
fn class_of(spec: Option<&ResourceClaimSpec>, request: &str) -> Option<Name> {
    let (main, alternative) =
        request.split_once('/').map_or((request, None), |(main, sub)| (main, Some(sub)));
    let found = requests(spec).find(|request| request.name == main)?;
    if let Some(exactly) = &found.exactly {
        return Some(exactly.device_class_name.as_str().into());
    }
    let mut alternatives = found.first_available.iter().flatten();
    let chosen = alternatives.find(|request| Some(request.name.as_str()) == alternative)?;
    Some(chosen.device_class_name.as_str().into())
}

fn requests(spec: Option<&ResourceClaimSpec>) -> impl Iterator<Item = &DeviceRequest> {
    spec.into_iter()
        .flat_map(|spec| spec.devices.iter())
        .flat_map(|devices| devices.requests.iter().flatten())
}

fn asked(spec: Option<&ResourceClaimSpec>) -> Asked {
    let mut devices = Vec::new();
    for request in requests(spec) {
        match &request.exactly {
            Some(exactly) => devices.extend(exact(&request.name, exactly)?),
            None => {
                let why = format!("its request {} has alternatives", request.name);
                return Err(why.as_str().into());
            }
        }
    }
    Ok(devices)
}

/// The devices of an exact request. Administrative access takes no device from other pods.
fn exact(name: &str, request: &ExactDeviceRequest) -> Result<Option<(Name, u64)>, Name> {
    if request.admin_access == Some(true) {
        return Ok(None);
    }
    match request.allocation_mode.as_deref() {
        None | Some("" | "ExactCount") => {
            let count = u64::try_from(request.count.unwrap_or(1)).unwrap_or(0);
            Ok(Some((request.device_class_name.as_str().into(), count)))
        }
        Some("All") => {
            Err(format!("its request {name} is for all devices of a node, however many there are")
                .as_str()
                .into())
        }
        Some(other) => Err(format!("its request {name} has the allocation mode {other}").as_str().into()),
    }
}

/// A DeviceClass as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceClassSeen {
    /// The extended resource that stands for its devices, where it names one.
    pub resource: Option<Name>,
    /// The expressions that must all select a device; `None` where one is in an unsupported language.
    pub selectors: Option<Vec<String>>,
}

/// Converts a class of devices.
#[must_use]
pub fn device_class(class: &DeviceClass) -> DeviceClassSeen {
    let spec = class.spec.as_ref();
    let selectors = spec.into_iter().flat_map(|spec| spec.selectors.iter().flatten());
    DeviceClassSeen {
        resource: spec.and_then(|spec| spec.extended_resource_name.as_deref()).map(Name::from),
        selectors: selectors.map(|selector| Some(selector.cel.as_ref()?.expression.clone())).collect(),
    }
}

/// A ResourceSlice as last seen: a part of a pool of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceSeen {
    /// The driver and the pool.
    pub pool: (Name, Name),
    /// The generation of the pool; slices of older generations are out of date.
    pub generation: i64,
    /// How many slices the pool has in this generation.
    pub of: i64,
    /// The node of the devices; `None` where they are not of one node.
    pub node: Option<Name>,
    /// The devices that can be allocated to a claim.
    pub devices: Vec<Device>,
    /// The counters that devices of the pool consume together.
    pub counters: Counters,
}

/// Amounts by set of counters and counter.
pub type Counters = BTreeMap<(String, String), Amount>;

/// A device, with the fields that selectors read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its attributes.
    pub attributes: BTreeMap<String, Attribute>,
    /// Its capacities, as quantities.
    pub capacity: BTreeMap<String, String>,
    /// Whether it can be allocated to several claims.
    pub multiple: bool,
    /// The counters that it consumes.
    pub takes: Counters,
}

/// An attribute of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// True or false.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text.
    Text(String),
    /// A semantic version.
    Version(String),
    /// Several of true and false.
    Bools(Vec<bool>),
    /// Numbers.
    Ints(Vec<i64>),
    /// Texts.
    Texts(Vec<String>),
    /// Semantic versions.
    Versions(Vec<String>),
    /// An unsupported kind of value.
    Unknown,
}

/// Converts a slice without its tainted devices: only claims that tolerate the taint can have these.
#[must_use]
pub fn slice(slice: &ResourceSlice) -> SliceSeen {
    let spec = &slice.spec;
    let all = || spec.devices.iter().flatten();
    let tainted = |device: &k8s_openapi::api::resource::v1::Device| {
        let mut taints = device.taints.iter().flatten();
        taints.any(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
    };
    let devices = all().filter(|device| !tainted(device)).map(|device| Device {
        attributes: device
            .attributes
            .iter()
            .flatten()
            .map(|(name, one)| (name.clone(), attribute(one)))
            .collect(),
        capacity: device
            .capacity
            .iter()
            .flatten()
            .map(|(name, one)| (name.clone(), one.value.0.clone()))
            .collect(),
        multiple: device.allow_multiple_allocations == Some(true),
        takes: device
            .consumes_counters
            .iter()
            .flatten()
            .flat_map(|taken| counters(&taken.counter_set, &taken.counters, TOO_MUCH))
            .collect(),
    });
    let shared = spec.shared_counters.iter().flatten();
    SliceSeen {
        pool: (spec.driver.as_str().into(), spec.pool.name.as_str().into()),
        generation: spec.pool.generation,
        of: spec.pool.resource_slice_count,
        node: spec.node_name.as_ref().filter(|node| !node.is_empty()).map(|node| name(Some(node))),
        devices: devices.collect(),
        counters: shared.flat_map(|set| counters(&set.name, &set.counters, Amount::ZERO)).collect(),
    }
}

/// More than any counter has.
const TOO_MUCH: Amount = Amount::units(1 << 46);

/// The counters of a set, with `otherwise` for an amount that cannot be read.
fn counters<'a>(
    set: &'a str,
    counters: &'a BTreeMap<String, Counter>,
    otherwise: Amount,
) -> impl Iterator<Item = ((String, String), Amount)> + 'a {
    counters.iter().map(move |(name, counter)| {
        ((set.to_owned(), name.clone()), Amount::parse(&counter.value.0).unwrap_or(otherwise))
    })
}

fn attribute(from: &DeviceAttribute) -> Attribute {
    let scalar = (from.bool.map(Attribute::Bool))
        .or_else(|| from.int.map(Attribute::Int))
        .or_else(|| from.string.clone().map(Attribute::Text))
        .or_else(|| from.version.clone().map(Attribute::Version));
    scalar
        .or_else(|| from.bools.clone().map(Attribute::Bools))
        .or_else(|| from.ints.clone().map(Attribute::Ints))
        .or_else(|| from.strings.clone().map(Attribute::Texts))
        .or_else(|| from.versions.clone().map(Attribute::Versions))
        .unwrap_or(Attribute::Unknown)
}

#[cfg(test)]
mod tests;
