//! The parts of the CRD schemas that do not follow from the types.
//!
//! The bounds are necessary: from them the API server estimates the cost of every CEL rule, and it refuses a CRD with
//! expensive rules.

use kube::core::Rule;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

/// A Kubernetes quantity. A CEL rule checks the sign, because its message is clearer.
const QUANTITY: &str =
    r"^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,2})?$";
/// A non-negative Go duration such as `90s` or `1h30m`.
const DURATION: &str = r"^(0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$";
/// A price of an hour of one unit.
const PRICE: &str = r"^[0-9]{1,12}(\.[0-9]{1,12})?$";
const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";

/// The most objects that one Question asks about: at most 20 workloads, of which a group of pods has as many as pods.
pub const MOST_OBJECTS: usize = 256;

/// Quantities by resource name. Numbers and strings are both accepted: `nvidia.com/gpu: 8` or `"8"`.
pub fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "maxLength": 32,
            "pattern": QUANTITY,
        },
    })
}

/// One quantity above 0. Numbers and strings are both accepted.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 32, "pattern": QUANTITY})
}

/// A quantity that only Sluice writes, without bounds.
pub fn shown_quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// Prices by resource name, as quantities.
pub fn prices(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = quantities(generator);
    schema.insert(
        "additionalProperties".to_owned(),
        json!({"type": "string", "maxLength": 32, "pattern": PRICE}),
    );
    schema
}

/// Quantities that only Sluice writes, without bounds.
pub fn shown_quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}})
}

/// The rule that no quantity is negative.
pub fn not_negative() -> Rule {
    Rule::new("self.all(r, !string(self[r]).startsWith('-'))").message("a quantity must not be negative")
}

/// The rule that a quantity is above 0.
pub fn above_zero() -> Rule {
    Rule::new("quantity(string(self)).isGreaterThan(quantity('0'))").message("the amount must be more than 0")
}

/// The rule that every weight is above 0.
pub fn positive() -> Rule {
    Rule::new("self.all(r, quantity(string(self[r])).isGreaterThan(quantity('0')))")
        .message("a weight must be more than 0")
}

/// The rule that every quantity is a part of one unit.
pub fn part() -> Rule {
    Rule::new(
        "self.all(r, quantity(string(self[r])).isGreaterThan(quantity('0')) && \
         quantity(string(self[r])).isLessThan(quantity('1')))",
    )
    .message("a part of a GPU must be above 0 and below 1")
}

/// A duration such as `10m`.
pub fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "nullable": true, "maxLength": 32, "pattern": DURATION})
}

/// A duration such as `10m`, or `Never` or `Always`.
pub fn duration_or_extreme(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "nullable": true, "maxLength": 32,
        "pattern": format!("{DURATION}|^(Never|Always)$"),
    })
}

/// A name that is a DNS label.
pub fn dns_label(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": DNS_LABEL})
}

/// An https URL without user, query and fragment: none of them may hide a secret in a Team.
pub fn https_url(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "nullable": true, "maxLength": 1024, "pattern": r"^https://[A-Za-z0-9.:\[\]-]+(/[^\s?#@]*)?$",
    })
}

/// Short names of any form.
pub fn names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array", "maxItems": 32, "items": {"type": "string", "minLength": 1, "maxLength": 253},
    })
}

/// The name of a pool.
pub fn pool(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = dns_label(generator);
    schema.insert("default".to_owned(), crate::engine::types::DEFAULT_POOL.into());
    schema
}

/// An object of any form, which its reader checks.
pub fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Further objects of any kind, beside the one before them.
pub fn any_objects(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "maxItems": MOST_OBJECTS - 1, "items": any_object(generator)})
}

/// The labels that select a pool's nodes.
pub fn node_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {"type": "string", "maxLength": 63},
    })
}

/// The topology levels of a pool.
pub fn topology(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "items": {"type": "string", "minLength": 1, "maxLength": 317, "pattern": QUALIFIED_NAME},
    })
}
