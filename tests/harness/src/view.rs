//! What the API server says at one moment, reduced to what tests and the demo look at.

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
use sluice::engine::types::amount::Amount;

const GPU: &str = "nvidia.com/gpu";
const CPU: &str = "cpu";

/// A Job.
#[derive(Clone, Debug)]
pub struct JobView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The team it was stamped with.
    pub team: Option<String>,
    /// Whether it is suspended.
    pub suspended: bool,
    /// Whether Sluice has marked it as held by itself.
    pub held: bool,
    /// Sluice's record of its admission.
    pub admission: Option<Record>,
    /// Why it was last evicted, until it is admitted again.
    pub eviction: Option<Eviction>,
    /// How many of its pods run or wait to.
    pub active: i32,
    /// How many of its pods are about to end.
    pub terminating: i32,
    /// How many of its pods have failed.
    pub failed_pods: i32,
    /// Whether it has ended well.
    pub complete: bool,
    /// Whether it has failed.
    pub failed: bool,
    /// When it ended well.
    pub completed_at: Option<Timestamp>,
    /// The class of priority its template names.
    pub priority_class: Option<String>,
}

impl JobView {
    /// Whether it waits in the queue.
    #[must_use]
    pub fn queued(&self) -> bool {
        self.suspended && self.held && self.admission.is_none() && !self.complete && !self.failed
    }

    /// Whether it has been admitted and has not ended.
    #[must_use]
    pub fn admitted(&self) -> bool {
        !self.suspended && self.admission.is_some() && !self.complete && !self.failed
    }

    /// One word for it.
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
            completed_at: status.completion_time.map(|time| time.0),
            priority_class: spec.template.spec.and_then(|pod| pod.priority_class_name),
        }
    }
}

/// A pod.
#[derive(Clone, Debug)]
pub struct PodView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The Job it belongs to.
    pub job: Option<String>,
    /// The team it was stamped with.
    pub team: Option<String>,
    /// The node it is on.
    pub node: Option<String>,
    /// `Pending`, `Running`, `Succeeded` or `Failed`.
    pub phase: String,
    /// Whether a scheduling gate holds it.
    pub gated: bool,
    /// Whether it has been deleted and is about to end.
    pub deleting: bool,
    /// How many GPUs it asks for.
    pub gpus: i64,
    /// How much CPU it asks for, in thousandths.
    pub cpu_milli: i64,
}

impl PodView {
    /// Whether it runs and is to go on running.
    #[must_use]
    pub fn running(&self) -> bool {
        self.phase == "Running" && !self.deleting
    }

    /// Whether it holds what it asks for.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.node.is_some() && self.phase != "Succeeded" && self.phase != "Failed"
    }

    fn from(pod: Pod) -> Self {
        let owner = pod.owner_references().iter().find(|owner| owner.controller == Some(true));
        let spec = pod.spec.as_ref();
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
        }
    }
}

fn parse<T: DeserializeOwned>(annotation: Option<String>) -> Option<T> {
    annotation.and_then(|text| serde_json::from_str(&text).ok())
}

/// How much of a resource the containers of a pod ask for, in thousandths.
fn asked(spec: &PodSpec, resource: &str) -> i64 {
    let each = spec.containers.iter().filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    each.map(|requests| milli(requests, resource)).sum()
}

fn milli(list: &BTreeMap<String, Quantity>, resource: &str) -> i64 {
    let quantity = list.get(resource).map_or("0", |quantity| quantity.0.as_str());
    Amount::parse(quantity).map_or(0, Amount::as_milli)
}

/// What a node offers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeView {
    /// Its GPUs.
    pub gpus: i64,
    /// Its CPU, in thousandths.
    pub cpu_milli: i64,
}

impl NodeView {
    fn from(node: &Node) -> Self {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let offers = |resource| allocatable.map_or(0, |list| milli(list, resource));
        Self { gpus: offers(GPU) / 1000, cpu_milli: offers(CPU) }
    }
}

/// All Jobs, pods and nodes at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The Jobs.
    pub jobs: Vec<JobView>,
    /// The pods.
    pub pods: Vec<PodView>,
    /// The nodes.
    pub nodes: BTreeMap<String, NodeView>,
}

impl View {
    /// Asks the API server.
    pub async fn take(client: &Client) -> Result<Self> {
        let all = ListParams::default();
        let (jobs, pods, nodes) = (
            Api::<Job>::all(client.clone()),
            Api::<Pod>::all(client.clone()),
            Api::<Node>::all(client.clone()),
        );
        let (jobs, pods, nodes) = tokio::try_join!(jobs.list(&all), pods.list(&all), nodes.list(&all))?;
        Ok(Self {
            jobs: jobs.items.into_iter().map(JobView::from).collect(),
            pods: pods.items.into_iter().map(PodView::from).collect(),
            nodes: nodes.items.iter().map(|node| (node.name_any(), NodeView::from(node))).collect(),
        })
    }

    /// A Job by namespace and name.
    #[must_use]
    pub fn job(&self, namespace: &str, name: &str) -> Option<&JobView> {
        self.jobs.iter().find(|job| job.namespace == namespace && job.name == name)
    }

    /// The Jobs of a namespace.
    pub fn jobs_in(&self, namespace: &str) -> impl Iterator<Item = &JobView> {
        self.jobs.iter().filter(move |job| job.namespace == namespace)
    }

    /// The pods of a namespace that run.
    pub fn running(&self, namespace: &str) -> impl Iterator<Item = &PodView> {
        self.pods.iter().filter(move |pod| pod.namespace == namespace && pod.running())
    }

    /// How many GPUs the pods on a node hold.
    #[must_use]
    pub fn held_on(&self, node: &str) -> i64 {
        let there = self.pods.iter().filter(|pod| pod.holds() && pod.node.as_deref() == Some(node));
        there.map(|pod| pod.gpus).sum()
    }

    /// The GPUs held on each node that has some, from the fullest to the emptiest.
    #[must_use]
    pub fn load(&self) -> Vec<i64> {
        let with_gpus = self.nodes.iter().filter(|(_, offers)| offers.gpus > 0);
        let mut load: Vec<i64> = with_gpus.map(|(node, _)| self.held_on(node)).collect();
        load.sort_unstable_by(|a, b| b.cmp(a));
        load
    }

    /// A node that holds more GPUs than it has, which must never be.
    #[must_use]
    pub fn overcommitted(&self) -> Option<String> {
        self.nodes.iter().find_map(|(node, offers)| {
            let (held, gpus) = (self.held_on(node), offers.gpus);
            (held > gpus).then(|| format!("pods hold {held} GPUs on node {node}, which has {gpus}"))
        })
    }

    /// How many Jobs of a namespace are in which state.
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
