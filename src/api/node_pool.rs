//! The kind `NodePool`: a set of nodes with its own quotas.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use super::team::Quantities;
use crate::engine::types::CURRENCY;

/// The nodes of a pool, their topology, and the value of their devices.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "sluice.dev",
    version = "v1alpha1",
    kind = "NodePool",
    plural = "nodepools",
    shortname = "np",
    category = "sluice",
    status = "NodePoolStatus",
    derive = "PartialEq",
    doc = "A set of nodes with quotas for teams. Nodes outside of every NodePool form the pool \"default\"; a NodePool with that name configures it and has no nodeSelector.",
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(
        name = "GPUs",
        type_ = "string",
        json_path = r".status.allocatable.nvidia\.com/gpu",
        description = "Allocatable GPUs of its nodes"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name != 'default' || !has(self.spec.nodeSelector) || self.spec.nodeSelector.size() == 0")
        .message("\"default\" is the pool of all nodes outside of every NodePool and has no nodeSelector; choose another name")
        .field_path(".spec.nodeSelector"),
    validation = Rule::new("self.metadata.name == 'default' || (has(self.spec.nodeSelector) && self.spec.nodeSelector.size() > 0)")
        .message("must name at least one label, or the pool would select every node")
        .field_path(".spec.nodeSelector"),
    validation = Rule::new("self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')")
        .message("a pool's name must be 1 to 63 characters of a-z, 0-9 and -")
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// Labels that select the nodes of the pool. A node that several pools select belongs to the first by name.
    /// The pool "default" has no selector: it contains all nodes outside of every NodePool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::node_selector")]
    pub node_selector: BTreeMap<String, String>,
    /// Node labels with the topology domains, largest first. The node itself is always the last level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::topology")]
    #[x_kube(validation = Rule::new("self.all(l, self.exists_one(m, m == l))")
        .message("a topology level must be listed once"))]
    pub topology: Vec<String>,
    /// Weight of one unit of a resource in the pool's currency, the quota resource "sluice.dev/gpu". Example: with
    /// nvidia.com/gpu: 2, a Job with 4 GPUs uses 8. Resources without a weight are not part of the currency.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(
        validation = schema::positive(),
        validation = Rule::new(format!("!({CURRENCY:?} in self)"))
            .message("the currency itself has no weight")
    )]
    pub weights: Quantities,
    /// Devices that the nodes offer for a GPU fraction, each with the part of a GPU that one unit is. Examples:
    /// nvidia.com/mig-3g.20gb: 0.43, or nvidia.com/gpu.shared: 0.25 for GPUs that are shared by four. A pod with a
    /// fraction (annotation sluice.dev/gpu-fraction) requests one unit of the smallest sufficient device. Of units
    /// of at most 0.01, such as cores and memory in per cent, it requests as many of each device as the fraction
    /// needs. A unit counts its part of a GPU in the currency, unless `weights` has a weight for it. Of several
    /// devices with units of at most 0.01, only the first by name counts.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(
        validation = schema::part(),
        validation = Rule::new(format!("!({CURRENCY:?} in self)"))
            .message("the currency itself is not a part of a GPU")
    )]
    pub shares: Quantities,
}

/// The nodes of the pool.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of nodes in the pool.
    #[serde(default)]
    pub nodes: i64,
    /// Allocatable resources of all its nodes.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub allocatable: Quantities,
}
