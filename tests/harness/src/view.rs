//! A snapshot of the API server's objects, reduced to the fields that tests and the demo read.

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use sluice::api::names;
use sluice::api::record::{Eviction, Record};
use sluice::api::values::duration;
use sluice::cluster::target::pod::OWN_GROUP;
use sluice::engine::types::amount::Amount;

const GPU: &str = "nvidia.com/gpu";
const CPU: &str = "cpu";

/// A Job.
#[derive(Clone, Debug, Default)]
pub struct JobView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Team label stamped by the webhook.
    pub team: Option<String>,
    /// Whether the Job is suspended.
    pub suspended: bool,
    /// Whether the Job carries Sluice's mark `sluice.dev/held`.
    pub held: bool,
    /// Admission record.
    pub admission: Option<Record>,
    /// Record of the last eviction, until the next admission.
    pub eviction: Option<Eviction>,
    /// Number of active pods: running or pending.
    pub active: i32,
    /// Number of terminating pods.
    pub terminating: i32,
    /// Number of failed pods.
    pub failed_pods: i32,
    /// Whether the Job is Complete.
    pub complete: bool,
    /// Whether the Job is Failed.
    pub failed: bool,
    /// Whether its controller makes no more pods for it, and waits for the last ones to end.
    pub ending: bool,
    /// Completion time.
    pub completed_at: Option<Timestamp>,
    /// PriorityClass in the pod template.
    pub priority_class: Option<String>,
    /// GPUs of each pod.
    pub gpus: i64,
    /// Whether the Job is deleted and terminating.
    pub deleting: bool,
    /// `spec.parallelism`.
    pub parallelism: i32,
    /// Queue label.
    pub queue: Option<String>,
    /// Whether the Job may run with fewer pods than it wants.
    pub elastic: bool,
    /// When it was submitted.
    pub created: Option<Timestamp>,
}

impl JobView {
    /// Whether the Job waits in the queue.
    #[must_use]
    pub fn queued(&self) -> bool {
        self.suspended && self.held && self.admission.is_none() && !self.complete && !self.failed
    }

    /// Whether the Job is admitted and has not ended.
    #[must_use]
    pub fn admitted(&self) -> bool {
        !self.suspended && self.admission.is_some() && !self.complete && !self.failed
    }

    /// The state in one word.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match self {
            Self { complete: true, .. } => "complete",
            Self { failed: true, .. } => "failed",
            Self { suspended: true, admission: Some(_), .. } => "leaving",
            Self { suspended: true, held: true, .. } => "queued",
            Self { suspended: true, .. } => "on hold",
            Self { admission: Some(_), .. } => "admitted",
            _ => "unmanaged",
        }
    }

    fn from(job: Job) -> Self {
        let annotation = |key: &str| job.annotations().get(key).cloned();
        let status = job.status.clone().unwrap_or_default();
        let condition = |kind: &str| {
            status.conditions.iter().flatten().any(|one| one.type_ == kind && one.status == "True")
        };
        let spec = job.spec.clone().unwrap_or_default();
        Self {
            namespace: job.namespace().unwrap_or_default(),
            name: job.name_any(),
            uid: job.uid().unwrap_or_default(),
            team: job.labels().get(names::TEAM).cloned(),
            suspended: spec.suspend == Some(true),
            held: annotation(names::HELD).is_some_and(|value| value == "true"),
            admission: parse(annotation(names::ADMISSION)),
            eviction: parse(annotation(names::EVICTION)),
            active: status.active.unwrap_or(0),
            terminating: status.terminating.unwrap_or(0),
            failed_pods: status.failed.unwrap_or(0),
            complete: condition("Complete"),
            failed: condition("Failed"),
            ending: condition("FailureTarget") || condition("SuccessCriteriaMet"),
            completed_at: status.completion_time.map(|time| time.0),
            gpus: spec.template.spec.as_ref().map_or(0, |pod| asked_or_limited(pod, GPU)) / 1000,
            deleting: job.metadata.deletion_timestamp.is_some(),
            queue: job.labels().get(names::QUEUE).cloned(),
            elastic: annotation(names::MIN_PARALLELISM).is_some(),
            created: job.metadata.creation_timestamp.as_ref().map(|time| time.0),
            parallelism: spec.parallelism.unwrap_or(1),
            priority_class: spec.template.spec.and_then(|pod| pod.priority_class_name),
        }
    }
}

/// A pod.
#[derive(Clone, Debug, Default)]
pub struct PodView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The Job that owns the pod.
    pub job: Option<String>,
    /// Team label stamped by the webhook.
    pub team: Option<String>,
    /// The node to which the pod is bound.
    pub node: Option<String>,
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// Whether the pod has a scheduling gate.
    pub gated: bool,
    /// Whether the pod is deleted and terminating.
    pub deleting: bool,
    /// Requested GPUs.
    pub gpus: i64,
    /// Requested CPU in thousandths.
    pub cpu_milli: i64,
    /// Admission record, of a pod without a Job.
    pub admission: Option<Record>,
    /// When the pod was bound to its node.
    pub bound_at: Option<Timestamp>,
    /// The name of the pod's group, and how many pods it has.
    pub group: Option<(String, usize)>,
    /// When the simulated kubelet ends the pod, or removes it if it is deleted, at the latest.
    pub ends_by: Option<Timestamp>,
}

impl PodView {
    /// Whether the pod runs and is not terminating.
    #[must_use]
    pub fn running(&self) -> bool {
        self.phase == "Running" && !self.deleting
    }

    /// Whether the pod holds its requests on a node.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.node.is_some() && self.phase != "Succeeded" && self.phase != "Failed"
    }

    fn from(pod: Pod) -> Self {
        let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
        let spec = pod.spec.as_ref();
        let group = pod.labels().get(names::GROUP).cloned();
        let size = pod.annotations().get(names::GROUP_SIZE).and_then(|size| size.parse().ok());
        let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let scheduled = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "True");
        let scheduled = scheduled.and_then(|one| one.last_transition_time.clone());
        Self {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
            job: owner.filter(|owner| owner.kind == "Job").map(|owner| owner.name.clone()),
            team: pod.labels().get(names::TEAM).cloned(),
            node: spec.and_then(|spec| spec.node_name.clone()),
            phase: pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default(),
            gated: spec
                .and_then(|spec| spec.scheduling_gates.as_ref())
                .is_some_and(|gates| !gates.is_empty()),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            gpus: spec.map_or(0, |spec| asked(spec, GPU)) / 1000,
            cpu_milli: spec.map_or(0, |spec| asked(spec, CPU)),
            admission: parse(pod.annotations().get(names::ADMISSION).cloned()),
            bound_at: scheduled.or_else(|| pod.creation_timestamp()).map(|time| time.0),
            group: group.zip(size),
            ends_by: ends_by(&pod),
        }
    }
}

/// The Jobs with the names of their preemptors, which the notes of evictions in other namespaces leave out.
fn named(mut jobs: Vec<JobView>, pods: &[PodView]) -> Vec<JobView> {
    let of_jobs = jobs.iter().map(|job| (&job.uid, format!("{}/{}", job.namespace, job.name)));
    let of_pods = pods.iter().map(|pod| {
        let name = pod.group.as_ref().map_or(&pod.name, |(group, _)| group);
        (&pod.uid, format!("{}/{name}", pod.namespace))
    });
    let names: BTreeMap<String, String> =
        of_jobs.chain(of_pods).map(|(uid, name)| (uid.clone(), name)).collect();
    for note in jobs.iter_mut().filter_map(|job| job.eviction.as_mut()).filter(|note| !note.uid.is_empty()) {
        let gone = || format!("{}/{}", note.team, note.uid);
        note.preemptor = names.get(note.uid.trim_start_matches(OWN_GROUP)).cloned().unwrap_or_else(gone);
    }
    jobs
}

/// When the simulated kubelet ends a pod that runs: see tests/cluster/stages.yaml.
fn ends_by(pod: &Pod) -> Option<Timestamp> {
    if let Some(deleted) = &pod.metadata.deletion_timestamp {
        return Some(deleted.0);
    }
    let runs = duration(pod.annotations().get("simulate.sluice.dev/duration")?).ok()?;
    let container = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    let began = container.container_id.as_ref()?.strip_prefix("simulated://")?.parse().ok()?;
    Timestamp::from_millisecond(began).ok()?.checked_add(runs).ok()
}

fn parse<T: DeserializeOwned>(annotation: Option<String>) -> Option<T> {
    annotation.and_then(|text| serde_json::from_str(&text).ok())
}

/// A resource's sum over the containers of a pod, in thousandths.
fn asked(spec: &PodSpec, resource: &str) -> i64 {
    let each = spec.containers.iter().filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    each.map(|requests| milli(requests, resource)).sum()
}

/// The same in a template, where limits stand for requests that are not given.
fn asked_or_limited(spec: &PodSpec, resource: &str) -> i64 {
    let of =
        |list: &Option<BTreeMap<String, Quantity>>| list.as_ref().map_or(0, |list| milli(list, resource));
    let each = spec.containers.iter().filter_map(|container| container.resources.as_ref());
    each.map(|resources| of(&resources.requests).max(of(&resources.limits))).sum()
}

fn milli(list: &BTreeMap<String, Quantity>, resource: &str) -> i64 {
    let quantity = list.get(resource).map_or("0", |quantity| quantity.0.as_str());
    Amount::parse(quantity).map_or(0, Amount::as_milli)
}

/// A node's allocatable resources.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeView {
    /// GPUs.
    pub gpus: i64,
    /// CPU in thousandths.
    pub cpu_milli: i64,
    /// Whether the node takes no new pods.
    pub cordoned: bool,
    /// Whether the node's kubelet answers.
    pub ready: bool,
}

impl NodeView {
    fn from(node: &Node) -> Self {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let offers = |resource| allocatable.map_or(0, |list| milli(list, resource));
        let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        let ready = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
        Self { gpus: offers(GPU) / 1000, cpu_milli: offers(CPU), cordoned, ready }
    }
}

/// All Jobs, pods and nodes at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The Jobs.
    pub jobs: Vec<JobView>,
    /// The pods.
    pub pods: Vec<PodView>,
    /// The nodes by name.
    pub nodes: BTreeMap<String, NodeView>,
}

impl View {
    /// Lists the objects of the cluster.
    pub async fn take(client: &Client) -> Result<Self> {
        let all = ListParams::default();
        let (jobs, pods, nodes) = (
            Api::<Job>::all(client.clone()),
            Api::<Pod>::all(client.clone()),
            Api::<Node>::all(client.clone()),
        );
        let (jobs, pods, nodes) = tokio::try_join!(jobs.list(&all), pods.list(&all), nodes.list(&all))?;
        let jobs: Vec<JobView> = jobs.items.into_iter().map(JobView::from).collect();
        let pods: Vec<PodView> = pods.items.into_iter().map(PodView::from).collect();
        Ok(Self {
            jobs: named(jobs, &pods),
            pods,
            nodes: nodes.items.iter().map(|node| (node.name_any(), NodeView::from(node))).collect(),
        })
    }

    /// The Job of this namespace and name.
    #[must_use]
    pub fn job(&self, namespace: &str, name: &str) -> Option<&JobView> {
        self.jobs.iter().find(|job| job.namespace == namespace && job.name == name)
    }

    /// The Jobs of a namespace.
    pub fn jobs_in(&self, namespace: &str) -> impl Iterator<Item = &JobView> {
        self.jobs.iter().filter(move |job| job.namespace == namespace)
    }

    /// The running pods of a namespace.
    pub fn running(&self, namespace: &str) -> impl Iterator<Item = &PodView> {
        self.pods.iter().filter(move |pod| pod.namespace == namespace && pod.running())
    }

    /// Number of GPUs that the pods on a node hold.
    #[must_use]
    pub fn held_on(&self, node: &str) -> i64 {
        let there = self.pods.iter().filter(|pod| pod.holds() && pod.node.as_deref() == Some(node));
        there.map(|pod| pod.gpus).sum()
    }

    /// The held GPUs of each node that has GPUs, in descending order.
    #[must_use]
    pub fn load(&self) -> Vec<i64> {
        let with_gpus = self.nodes.iter().filter(|(_, offers)| offers.gpus > 0);
        let mut load: Vec<i64> = with_gpus.map(|(node, _)| self.held_on(node)).collect();
        load.sort_unstable_by(|a, b| b.cmp(a));
        load
    }

    /// A violation: a node with more GPUs held by pods than it has.
    #[must_use]
    pub fn overcommitted(&self) -> Option<String> {
        self.nodes.iter().find_map(|(node, offers)| {
            let (held, gpus) = (self.held_on(node), offers.gpus);
            (held > gpus).then(|| format!("pods hold {held} GPUs on node {node}, which has {gpus}"))
        })
    }

    /// Number of Jobs of a namespace by state.
    #[must_use]
    pub fn summary(&self, namespace: &str) -> String {
        let mut states: BTreeMap<&str, usize> = BTreeMap::new();
        for job in self.jobs_in(namespace) {
            *states.entry(job.state()).or_default() += 1;
        }
        let states: Vec<String> = states.iter().map(|(state, jobs)| format!("{jobs} {state}")).collect();
        let running = self.running(namespace).count();
        format!("{namespace}: Jobs {}; pods running {running}", states.join(", "))
    }
}
