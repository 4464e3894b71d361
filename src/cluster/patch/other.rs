//! The patches on objects of the kinds of the table: the same, at the places that the table says.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::{Failure, add_at, annotate, expect, json, unannotate};
use crate::api::names;
use crate::api::record::{Eviction, Record};
use crate::cluster::reduce::Facts;
use crate::cluster::reduce::other::Other;
use crate::kinds::{Placement, place, unplace};

/// Lets it run on the nodes of `record`.
pub fn admit(facts: &Facts, other: &Other, version: u64, record: &Record) -> Patch {
    let nodes: Vec<&str> = record.nodes.keys().map(String::as_str).collect();
    let (placed, kept) = place(&other.kind, &other.object, &other.templates, &nodes);
    let mut patch = expect(facts, version);
    patch.push(suspend(other, false));
    patch.extend(placed);
    patch.push(annotate(names::ADMISSION, json(record)));
    if other.kind.placement == Placement::Affinity {
        patch.push(annotate(names::USER_AFFINITY, json(&kept)));
    }
    if facts.has_eviction {
        patch.push(unannotate(names::EVICTION));
    }
    Patch(patch)
}

/// Stops it; its record stays until nothing of it is left.
pub fn evict(facts: &Facts, other: &Other, version: u64, eviction: &Eviction) -> Patch {
    let mut patch = expect(facts, version);
    patch.extend([suspend(other, true), annotate(names::EVICTION, json(eviction))]);
    Patch(patch)
}

/// Stops it for good: nothing but its own controller can say that it has failed, so it is left suspended,
/// as if its user held it, with a note that says why.
pub fn fail(facts: &Facts, other: &Other, version: u64, why: &Failure<'_>) -> Patch {
    let note = Eviction { at: why.at, preemptor: String::new(), reason: why.reason.to_owned() };
    let mut patch = evict(facts, other, version, &note).0;
    if facts.held {
        patch.push(unannotate(names::HELD));
    }
    Patch(patch)
}

/// Gives it its user's templates back and ends the admission.
pub fn restore(facts: &Facts, other: &Other, version: u64) -> Patch {
    let mut patch = expect(facts, version);
    patch.extend(unplace(&other.kind, &other.object, &other.templates, &other.kept));
    patch.push(unannotate(names::ADMISSION));
    if facts.held && !facts.has_eviction {
        patch.push(unannotate(names::HELD));
    }
    if !other.kept.is_empty() {
        patch.push(unannotate(names::USER_AFFINITY));
    }
    Patch(patch)
}

fn suspend(other: &Other, suspended: bool) -> PatchOperation {
    add_at(other.kind.suspend.to_buf(), Value::Bool(suspended))
}
