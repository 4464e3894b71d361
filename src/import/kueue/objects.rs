//! The objects of Kueue, versions v1beta1 and v1beta2.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

use super::super::note::{ImportError, Notes};
use super::super::source::Source;

/// The API group of Kueue.
pub const GROUP: &str = "kueue.x-k8s.io";
/// The versions that are read.
pub const VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];
/// The kinds that are read from a cluster, with their names in API paths.
pub const KINDS: [(&str, &str); 7] = [
    ("ResourceFlavor", "resourceflavors"),
    ("Topology", "topologies"),
    ("ClusterQueue", "clusterqueues"),
    ("Cohort", "cohorts"),
    ("LocalQueue", "localqueues"),
    ("WorkloadPriorityClass", "workloadpriorityclasses"),
    ("Workload", "workloads"),
];

/// The spec of a ClusterQueue.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterQueueSpec {
    pub resource_groups: Vec<ResourceGroup>,
    #[serde(alias = "cohort")]
    pub cohort_name: Option<String>,
    pub queueing_strategy: Option<String>,
    pub namespace_selector: Option<LabelSelector>,
    pub flavor_fungibility: FlavorFungibility,
    pub preemption: Preemption,
    /// Version v1beta1.
    pub admission_checks: Vec<String>,
    pub admission_checks_strategy: Option<AdmissionChecks>,
    pub stop_policy: Option<String>,
    pub fair_sharing: Option<FairSharing>,
    pub admission_scope: Option<Value>,
    pub concurrent_admission_policy: Option<Value>,
}

/// The spec of a Cohort.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CohortSpec {
    pub parent_name: Option<String>,
    pub resource_groups: Vec<ResourceGroup>,
    pub fair_sharing: Option<FairSharing>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceGroup {
    pub covered_resources: Vec<String>,
    pub flavors: Vec<FlavorQuotas>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct FlavorQuotas {
    pub name: String,
    #[serde(default)]
    pub resources: Vec<ResourceQuota>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    pub name: String,
    #[serde(default)]
    pub nominal_quota: Option<Quantity>,
    #[serde(default)]
    pub borrowing_limit: Option<Quantity>,
    #[serde(default)]
    pub lending_limit: Option<Quantity>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorFungibility {
    pub when_can_borrow: Option<String>,
    pub when_can_preempt: Option<String>,
    pub preference: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Preemption {
    pub reclaim_within_cohort: Option<String>,
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    pub within_cluster_queue: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BorrowWithinCohort {
    pub policy: Option<String>,
    pub max_priority_threshold: Option<i32>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionChecks {
    pub admission_checks: Vec<AdmissionCheck>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheck {
    pub name: String,
    #[serde(default, rename = "onFlavors")]
    pub _on_flavors: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct FairSharing {
    pub weight: Option<Quantity>,
}

/// The spec of a LocalQueue.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueueSpec {
    pub cluster_queue: String,
    pub stop_policy: Option<String>,
    pub fair_sharing: Option<FairSharing>,
}

/// The spec of a ResourceFlavor.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FlavorSpec {
    pub node_labels: BTreeMap<String, String>,
    pub node_taints: Vec<Taint>,
    pub tolerations: Vec<Toleration>,
    pub topology_name: Option<String>,
}

/// The spec of a Topology.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct TopologySpec {
    pub levels: Vec<TopologyLevel>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    pub node_label: String,
}

/// A LocalQueue.
#[derive(Clone, Debug)]
pub struct LocalQueue {
    pub namespace: String,
    pub name: String,
    pub spec: LocalQueueSpec,
}

impl LocalQueue {
    /// The queue for notes.
    pub fn label(&self) -> String {
        format!("LocalQueue {}/{}", self.namespace, self.name)
    }
}

/// A whole set-up of Kueue, each kind by name.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    pub queues: BTreeMap<String, ClusterQueueSpec>,
    pub cohorts: BTreeMap<String, CohortSpec>,
    pub flavors: BTreeMap<String, FlavorSpec>,
    pub topologies: BTreeMap<String, TopologySpec>,
    /// Ordered by namespace and name.
    pub locals: Vec<LocalQueue>,
    /// The values of WorkloadPriorityClasses, with their descriptions.
    pub classes: BTreeMap<String, (i64, String)>,
    /// The labels of known namespaces.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// Jobs that name a LocalQueue.
    pub jobs: Vec<Source>,
    /// Namespace and name of the Jobs with a deactivated Workload (`spec.active: false`).
    pub deactivated: BTreeSet<(String, String)>,
}

/// The label that names the LocalQueue of a workload.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";

impl Setup {
    /// Sorts the objects into a set-up. Kinds that are not of Kueue are left out, and those of Kueue that are not read are
    /// noted.
    pub fn read(sources: &[Source], notes: &mut Notes) -> Result<Self, ImportError> {
        let mut setup = Self::default();
        for source in sources {
            let name = source.name.clone();
            match (source.group.as_str(), source.kind.as_str()) {
                (GROUP, "ClusterQueue") => _ = setup.queues.insert(name, source.part("spec", notes)?),
                (GROUP, "Cohort") => _ = setup.cohorts.insert(name, source.part("spec", notes)?),
                (GROUP, "ResourceFlavor") => _ = setup.flavors.insert(name, source.part("spec", notes)?),
                (GROUP, "Topology") => _ = setup.topologies.insert(name, source.part("spec", notes)?),
                (GROUP, "LocalQueue") => {
                    let (namespace, spec) = (source.namespace.clone(), source.part("spec", notes)?);
                    setup.locals.push(LocalQueue { namespace, name, spec });
                }
                (GROUP, "WorkloadPriorityClass") => {
                    let value = source.value["value"].as_i64().ok_or_else(|| {
                        ImportError::new(source.label(), "value", "is missing or is no whole number")
                    })?;
                    let description = source.value["description"].as_str().unwrap_or_default();
                    setup.classes.insert(name, (value, description.to_owned()));
                }
                (GROUP, "Workload") if source.value["spec"]["active"] == false => {
                    let owners = source.value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                    let jobs = owners.filter(|owner| owner["kind"] == "Job" && owner["controller"] == true);
                    let names = jobs.filter_map(|owner| owner["name"].as_str());
                    setup.deactivated.extend(names.map(|name| (source.namespace.clone(), name.to_owned())));
                }
                (GROUP, "Workload") => {}
                (GROUP, "AdmissionCheck") => {
                    notes.lost(&source.label(), "", "workloads start without admission checks");
                }
                (GROUP, _) => notes.lost(&source.label(), "", "Sluice has no such kind"),
                ("", "Namespace") => _ = setup.namespaces.insert(name, source.labels()),
                ("batch", "Job") if source.labels().contains_key(QUEUE_NAME) => {
                    setup.jobs.push(source.clone());
                }
                _ if source.labels().contains_key(QUEUE_NAME) => {
                    let text = "queued by Kueue; only Jobs are moved: let it end, or create it again after the switch";
                    notes.by_hand(&source.label(), "", text);
                }
                _ => {}
            }
        }
        setup.locals.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        Ok(setup)
    }
}
