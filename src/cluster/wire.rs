//! Kubernetes objects with the fields that Sluice reads.
//!
//! The types of `k8s-openapi` have every field: 125 KB for one GPU pod, most of it managed fields. These types
//! decode the same JSON and skip unused fields, so lists of thousands of pods and the answers to writes stay small
//! and decode quickly.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::{batch, core};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::Resource;
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Amounts by resource, as raw JSON.
pub type Quantities = BTreeMap<String, Value>;

/// A `batch/v1` Job.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Job {
    /// The metadata.
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// The spec.
    #[serde(default)]
    pub spec: JobSpec,
    /// The status.
    #[serde(default)]
    pub status: JobStatus,
}

/// The spec of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    /// Whether the Job is suspended.
    pub suspend: Option<bool>,
    /// The number of pods that run at once.
    pub parallelism: Option<i64>,
    /// The number of pods that must succeed.
    pub completions: Option<i64>,
    /// `Indexed` if its pods have an index.
    pub completion_mode: Option<String>,
    /// The active deadline, in seconds.
    pub active_deadline_seconds: Option<i64>,
    /// Present if the Job has a pod failure policy.
    pub pod_failure_policy: Option<serde::de::IgnoredAny>,
    /// The pod template.
    pub template: PodTemplate,
}

/// The pod template of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodTemplate {
    /// The labels of its pods.
    pub metadata: TemplateMetadata,
    /// The spec of its pods.
    pub spec: PodSpec,
}

/// The metadata of a pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TemplateMetadata {
    /// The labels of its pods.
    pub labels: Option<BTreeMap<String, String>>,
}

/// The status of a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatus {
    /// Pods that run or wait.
    pub active: Option<i64>,
    /// Pods that succeeded.
    pub succeeded: Option<i64>,
    /// Pods that failed, or were deleted while the Job ran.
    pub failed: Option<i64>,
    /// Pods that are ending.
    pub terminating: Option<i64>,
    /// Ended pods that are not counted yet.
    pub uncounted_terminated_pods: Uncounted,
    /// The succeeded indexes of an Indexed Job, such as `0-2,5`.
    pub completed_indexes: Option<String>,
    /// The finally failed indexes, in the same form.
    pub failed_indexes: Option<String>,
    /// The time of its last start or resume.
    pub start_time: Option<Time>,
    /// The time of completion.
    pub completion_time: Option<Time>,
    /// The conditions that its controller sets.
    pub conditions: Option<Vec<Condition>>,
}

/// Ended pods of a Job that its controller has noted and is about to count.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Uncounted {
    /// Those that succeeded.
    pub succeeded: Vec<serde::de::IgnoredAny>,
}

/// A condition of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The time of the last change of `status`.
    pub last_transition_time: Option<Time>,
    /// The reason, one word.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// A `v1` Pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Pod {
    /// The metadata.
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// The spec.
    #[serde(default)]
    pub spec: PodSpec,
    /// The status.
    #[serde(default)]
    pub status: PodStatus,
}

/// The spec of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// The node it is bound to.
    pub node_name: Option<String>,
    /// The gates that keep it from being scheduled.
    pub scheduling_gates: Option<Vec<Gate>>,
    /// Its containers.
    pub containers: Vec<Container>,
    /// Its init containers.
    pub init_containers: Option<Vec<Container>>,
    /// The overhead of its runtime class.
    pub overhead: Option<Quantities>,
    /// The pod-level resources.
    pub resources: Option<Resources>,
    /// Labels its node must carry.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The affinity, as raw JSON.
    pub affinity: Option<Value>,
    /// How it is spread over domains, as raw JSON.
    pub topology_spread_constraints: Option<Vec<Value>>,
    /// The taints it tolerates.
    pub tolerations: Option<Vec<core::v1::Toleration>>,
    /// The class its priority comes from.
    pub priority_class_name: Option<String>,
    /// Its priority, once resolved.
    pub priority: Option<i32>,
    /// The active deadline, in seconds.
    pub active_deadline_seconds: Option<i64>,
    /// The time from its first signal to its last, in seconds.
    pub termination_grace_period_seconds: Option<i64>,
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

/// A container.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its requests and limits.
    pub resources: Resources,
    /// `Always` on an init container makes it run beside the containers.
    pub restart_policy: Option<String>,
}

/// Requests and limits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    /// The requests.
    pub requests: Option<Quantities>,
    /// The limits. A missing request equals the limit.
    pub limits: Option<Quantities>,
}

/// The status of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: Option<String>,
    /// The reason of the phase, one word.
    pub reason: Option<String>,
    /// Its conditions.
    pub conditions: Option<Vec<Condition>>,
    /// The claims created for it.
    pub resource_claim_statuses: Option<Vec<core::v1::PodResourceClaimStatus>>,
}

/// A `v1` Node.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Node {
    /// The metadata.
    #[serde(default, deserialize_with = "slim_metadata")]
    pub metadata: ObjectMeta,
    /// The spec.
    #[serde(default)]
    pub spec: NodeSpec,
    /// The status.
    #[serde(default)]
    pub status: NodeStatus,
}

/// The spec of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// Whether it is cordoned.
    pub unschedulable: Option<bool>,
    /// Its taints.
    pub taints: Option<Vec<core::v1::Taint>>,
}

/// The status of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// The resources that pods may request in total.
    pub allocatable: Option<Quantities>,
    /// The conditions that its kubelet sets.
    pub conditions: Option<Vec<Condition>>,
}

/// Implements [`Resource`] for a slim type, as for the full type.
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

/// The metadata that Sluice reads.
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
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

/// Reads the metadata that Sluice uses, and skips the rest.
///
/// # Errors
/// If the metadata cannot be read.
pub fn slim_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let slim = SlimMetadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        deletion_grace_period_seconds: slim.deletion_grace_period_seconds,
        labels: slim.labels,
        annotations: slim.annotations,
        owner_references: slim.owner_references,
        ..ObjectMeta::default()
    })
}
