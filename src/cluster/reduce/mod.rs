//! Kubernetes object in, engine value out: pure functions, one file for each kind of object.
//!
//! Objects that are workloads are read in [`super::target`].

pub mod claims;
pub mod counts;
pub mod node;
pub mod profile;
pub mod shape;
pub mod team;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time as MetaTime};
use kube::core::ObjectMeta;

use crate::engine::types::{Name, Time};

/// An object's version as a number that grows with each change; 0 without a version.
#[must_use]
pub fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// An object's UID; empty only on an object that no API server has seen.
#[must_use]
pub fn uid(metadata: &ObjectMeta) -> Name {
    metadata.uid.as_deref().unwrap_or_default().into()
}

/// The owner that controls the object.
pub(super) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

/// A name; empty where none is written.
pub(super) fn name(text: Option<&String>) -> Name {
    text.map(String::as_str).unwrap_or_default().into()
}

/// The value of an annotation.
pub(super) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The value of a label that is not empty.
pub(super) fn label(metadata: &ObjectMeta, key: &str) -> Option<Name> {
    metadata.labels.as_ref()?.get(key).filter(|value| !value.is_empty()).map(|value| value.as_str().into())
}

/// A time of the API as the engine's.
#[must_use]
pub fn instant(time: &MetaTime) -> Time {
    Time(time.0.as_millisecond())
}

/// The time of creation; the Unix epoch on an object that no API server has seen.
pub(super) fn created(metadata: &ObjectMeta) -> Time {
    metadata.creation_timestamp.as_ref().map_or(Time(0), instant)
}
