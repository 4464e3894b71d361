//! The kind `NodePool`: a set of nodes with quotas of its own.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use super::team::Quantities;
use crate::engine::types::CURRENCY;

/// Which nodes belong together, and how they are wired.
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
    doc = "A set of nodes that teams have quotas in. Nodes that no NodePool selects are the pool \"default\"; a NodePool of that name says more about it and selects none.",
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(
        name = "GPUs",
        type_ = "string",
        json_path = r".status.allocatable.nvidia\.com/gpu",
        description = "GPUs its nodes offer"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("self.metadata.name != 'default' || !has(self.spec.nodeSelector) || self.spec.nodeSelector.size() == 0")
        .message("\"default\" is the pool of all nodes in no NodePool and selects none; choose another name")
        .field_path(".spec.nodeSelector"),
    validation = Rule::new("self.metadata.name == 'default' || (has(self.spec.nodeSelector) && self.spec.nodeSelector.size() > 0)")
        .message("must name at least one label, or the pool would take every node")
        .field_path(".spec.nodeSelector"),
    validation = Rule::new("self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')")
        .message("a pool's name is at most 63 characters of a-z, 0-9 and -")
)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolSpec {
    /// Labels a node must carry to belong to it. Of several pools that match, the first by name has the node.
    /// Only the pool "default" has none: it is all nodes that no NodePool selects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::node_selector")]
    pub node_selector: BTreeMap<String, String>,
    /// Node labels that name topology domains, outermost first. The node itself is always the last level.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::topology")]
    #[x_kube(validation = Rule::new("self.all(l, self.exists_one(m, m == l))")
        .message("a topology level must be listed once"))]
    pub topology: Vec<String>,
    /// What a unit of a resource counts in the pool's currency, the resource "sluice.dev/gpu" in quotas: where
    /// nvidia.com/gpu weighs 2, a Job of 4 GPUs counts 8. Resources not listed are not part of the currency.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(
        validation = schema::positive(),
        validation = Rule::new(format!("!({CURRENCY:?} in self)"))
            .message("the currency itself has no weight")
    )]
    pub weights: Quantities,
    /// What the nodes offer for a share of a GPU: resources, with the part of a GPU that a unit of each is, such as
    /// nvidia.com/mig-3g.20gb: 0.43, or nvidia.com/gpu.shared: 0.25 where each GPU is sliced in four. A pod that
    /// wishes for a share (annotation sluice.dev/gpu-fraction) asks for one unit of the smallest that is enough;
    /// of units of a hundredth or less, such as cores and memory in per cent, for as many of each as the share is.
    /// Each counts that part of what a GPU counts in the currency, unless `weights` says otherwise; of several that
    /// are hundredths, only the first by name.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(
        validation = schema::part(),
        validation = Rule::new(format!("!({CURRENCY:?} in self)"))
            .message("the currency itself is no share of a GPU")
    )]
    pub shares: Quantities,
}

/// What the pool consists of.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePoolStatus {
    /// The generation of the spec this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many nodes it has.
    #[serde(default)]
    pub nodes: i64,
    /// What they offer in total.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub allocatable: Quantities,
}
