//! Kubernetes objects as far as Sluice reads them.
//!
//! The types of `k8s-openapi` hold every field there is: 125 KB for one GPU pod, most of it managed
//! fields. These decode the same JSON and skip what nobody asks for, which keeps a list of thousands
//! of pods, and the answer to each write, small and quick to read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::{batch, core};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Amounts as they stand in the JSON, by resource.
pub type Quantities = BTreeMap<String, Value>;

/// A `batch/v1` Job.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Job {
    /// Name, marks and version.
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// What was asked for.
    #[serde(default)]
    pub spec: JobSpec,
    /// How far it has come.
    #[serde(default)]
    pub status: JobStatus,
}

/// What a Job asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// Whether it is held back.
    pub suspend: Option<bool>,
    /// How many pods run at once.
    pub parallelism: Option<i64>,
    /// How many pods must succeed.
    pub completions: Option<i64>,
    /// `Indexed` when its pods have numbers.
    pub completion_mode: Option<String>,
    /// The longest it may run.
    pub active_deadline_seconds: Option<i64>,
    /// Whether rules say which pod failures count.
    pub pod_failure_policy: Option<serde::de::IgnoredAny>,
    /// Its pods.
    pub template: PodTemplate,
}

/// The pods of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    /// What they ask for.
    pub spec: PodSpec,
}

/// How far a Job has come.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Pods that run or wait.
    pub active: Option<i64>,
    /// Pods that succeeded.
    pub succeeded: Option<i64>,
    /// Pods that are ending.
    pub terminating: Option<i64>,
    /// Of an Indexed Job, the indexes that have succeeded, as `0-2,5`.
    pub completed_indexes: Option<String>,
    /// Those that have failed for good, written alike.
    pub failed_indexes: Option<String>,
    /// Since when it runs; with every resume anew.
    pub start_time: Option<Time>,
    /// When it succeeded.
    pub completion_time: Option<Time>,
    /// What its controller says of it.
    pub conditions: Option<Vec<Condition>>,
}

/// A statement on an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What is stated.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Since when.
    pub last_transition_time: Option<Time>,
    /// Why, a word.
    pub reason: String,
    /// Why, a sentence.
    pub message: String,
}

/// A `v1` Pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Pod {
    /// Name, marks and version.
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// What was asked for.
    #[serde(default)]
    pub spec: PodSpec,
    /// How far it has come.
    #[serde(default)]
    pub status: PodStatus,
}

/// What a pod asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to.
    pub node_name: Option<String>,
    /// What must be lifted before it is scheduled.
    pub scheduling_gates: Option<Vec<Gate>>,
    /// What runs side by side.
    pub containers: Vec<Container>,
    /// What runs before.
    pub init_containers: Option<Vec<Container>>,
    /// What the sandbox costs.
    pub overhead: Option<Quantities>,
    /// What the pod asks for as a whole.
    pub resources: Option<Resources>,
    /// Labels its node must carry.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Where it may go, as it was written.
    pub affinity: Option<Value>,
    /// The taints it tolerates.
    pub tolerations: Option<Vec<core::v1::Toleration>>,
    /// The class its priority comes from.
    pub priority_class_name: Option<String>,
    /// Its priority, once resolved.
    pub priority: Option<i32>,
    /// The longest it may run.
    pub active_deadline_seconds: Option<i64>,
    /// The group that is scheduled as one.
    pub scheduling_group: Option<SchedulingGroup>,
    /// The devices it claims.
    pub resource_claims: Option<Vec<core::v1::PodResourceClaim>>,
}

/// A group of pods that is scheduled as one.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulingGroup {
    /// The name of the PodGroup.
    pub pod_group_name: Option<String>,
}

/// A scheduling gate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Gate {
    /// Its name.
    pub name: String,
}

/// A container's part in what a pod needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// What it asks for.
    pub resources: Resources,
    /// `Always` on an init container makes it run beside the others.
    pub restart_policy: Option<String>,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// What is set aside.
    pub requests: Option<Quantities>,
    /// What is allowed; stands for the request where that is left out.
    pub limits: Option<Quantities>,
}

/// How far a pod has come.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: Option<String>,
    /// Why it is there, a word.
    pub reason: Option<String>,
    /// What is said of it.
    pub conditions: Option<Vec<Condition>>,
    /// The claims that were made for it.
    pub resource_claim_statuses: Option<Vec<core::v1::PodResourceClaimStatus>>,
}

/// A `v1` Node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Node {
    /// Name, labels and version.
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// What was asked for.
    #[serde(default)]
    pub spec: NodeSpec,
    /// What it offers.
    #[serde(default)]
    pub status: NodeStatus,
}

/// How a node may be used.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Whether it is cordoned.
    pub unschedulable: Option<bool>,
    /// Its taints.
    pub taints: Option<Vec<core::v1::Taint>>,
}

/// What a node offers and how it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// What pods may request in total.
    pub allocatable: Option<Quantities>,
    /// What its kubelet says of it.
    pub conditions: Option<Vec<Condition>>,
}

/// Makes a slim type stand for the resource whose JSON it decodes.
macro_rules! stands_for {
    ($slim:ty, $full:ty) => {
        impl Resource for $slim {
            type DynamicType = ();
            type Scope = <$full as Resource>::Scope;
            fn kind((): &()) -> Cow<'_, str> {
                <$full as Resource>::kind(&())
            }
            fn group((): &()) -> Cow<'_, str> {
                <$full as Resource>::group(&())
            }
            fn version((): &()) -> Cow<'_, str> {
                <$full as Resource>::version(&())
            }
            fn plural((): &()) -> Cow<'_, str> {
                <$full as Resource>::plural(&())
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
stands_for!(Job, batch::v1::Job);
stands_for!(Pod, core::v1::Pod);
stands_for!(Node, core::v1::Node);

/// The part of an object's metadata that Sluice reads.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

fn slim_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let slim = SlimMetadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        labels: slim.labels,
        annotations: slim.annotations,
        owner_references: slim.owner_references,
        ..ObjectMeta::default()
    })
}
