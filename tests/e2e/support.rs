//! Short builders of manifests.

use std::time::Duration;

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_harness::{View, World};

/// The program under test.
pub const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// `alice` may ask about namespace a, but neither about its past nor what-if.
pub const ALICE_ASKS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: asks, namespace: a}
rules: [{apiGroups: [sluice.dev], resources: [questions], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: asks, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: asks}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
";

/// `count` nodes named `gpu-0` and so on, with `gpus` GPUs each.
pub fn nodes(count: usize, gpus: usize) -> String {
    nodes_with(count, "", &format!("nvidia.com/gpu: \"{gpus}\""))
}

/// `count` nodes named `gpu-0` and so on, with these labels, and these resources besides the usual ones.
pub fn nodes_with(count: usize, labels: &str, devices: &str) -> String {
    node_of("gpu", labels, &format!("simulate.sluice.dev/count: \"{count}\""), devices)
}

/// A node with these labels, and these resources besides the usual ones.
pub fn node(name: &str, labels: &str, devices: &str) -> String {
    node_of(name, labels, "", devices)
}

fn node_of(name: &str, labels: &str, annotations: &str, devices: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{{labels}}}
  annotations: {{{annotations}}}
status:
  capacity: &resources {{cpu: \"64\", memory: 512Gi, pods: \"110\", {devices}}}
  allocatable: *resources
---"
    )
}

/// A team with this many guaranteed GPUs, and a namespace of the same name.
pub fn team(name: &str, gpus: usize) -> String {
    team_of(name, &[&quota(gpus)])
}

/// The quotas of a team with this many guaranteed GPUs, as a field of its spec.
pub fn quota(gpus: usize) -> String {
    format!("quotas: [{{guaranteed: {{nvidia.com/gpu: {gpus}}}}}]")
}

/// A team with these fields in its spec, and a namespace of the same name.
pub fn team_of(name: &str, spec: &[&str]) -> String {
    let team = object("Team", name, spec);
    format!("{team}{}", namespace(name, name, ""))
}

/// A node pool with these fields in its spec.
pub fn pool(name: &str, spec: &[&str]) -> String {
    object("NodePool", name, spec)
}

fn object(kind: &str, name: &str, spec: &[&str]) -> String {
    let spec: String = spec.iter().map(|field| format!("  {field}\n")).collect();
    format!("\napiVersion: sluice.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n{spec}---")
}

/// A namespace of a team, with extra labels.
pub fn namespace(name: &str, team: &str, labels: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Namespace
metadata:
  name: {name}
  labels: {{sluice.dev/team: {team}, {labels}}}
---"
    )
}

/// A plain Job with the fields that tests change.
#[derive(Clone, Debug)]
pub struct Job {
    namespace: String,
    name: String,
    gpus: usize,
    copies: Option<usize>,
    duration: Option<Duration>,
    queue: Option<String>,
    annotations: Vec<String>,
    pod_annotations: Vec<String>,
    pod_spec: Vec<String>,
    spec: Vec<String>,
}

impl Job {
    /// One pod with one GPU that runs until it is deleted.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            gpus: 1,
            copies: None,
            duration: None,
            queue: None,
            annotations: Vec::new(),
            pod_annotations: Vec::new(),
            pod_spec: Vec::new(),
            spec: Vec::new(),
        }
    }

    /// Sets the namespace.
    pub fn within(self, namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), ..self }
    }

    /// Sets the GPUs of each pod.
    pub fn gpus(self, gpus: usize) -> Self {
        Self { gpus, ..self }
    }

    /// Sets the number of Jobs: `name-0` and so on.
    pub fn copies(self, copies: usize) -> Self {
        Self { copies: Some(copies), ..self }
    }

    /// Sets the run time of each pod.
    pub fn lasts(self, duration: Duration) -> Self {
        Self { duration: Some(duration), ..self }
    }

    /// Sets a queue other than the team's first.
    pub fn queue(self, queue: &str) -> Self {
        Self { queue: Some(queue.to_owned()), ..self }
    }

    /// Adds an annotation `sluice.dev/…`.
    pub fn annotated(mut self, key: &str, value: &str) -> Self {
        self.annotations.push(format!("sluice.dev/{key}: \"{value}\""));
        self
    }

    /// Sets the time that each pod takes to stop.
    pub fn ends_slowly(mut self, time: Duration) -> Self {
        self.pod_annotations.push(format!("simulate.sluice.dev/termination: {}s", time.as_secs()));
        self
    }

    /// Adds a line to the pod's spec.
    pub fn pod_spec(mut self, line: &str) -> Self {
        self.pod_spec.push(line.to_owned());
        self
    }

    /// Adds a line to the Job's spec.
    pub fn spec(mut self, line: &str) -> Self {
        self.spec.push(line.to_owned());
        self
    }

    /// The manifest for kubectl: one Job, with the run time of its pods.
    pub fn manifest(&self) -> String {
        let mut job = self.clone();
        if let Some(duration) = job.duration.take() {
            job.pod_annotations.push(format!("simulate.sluice.dev/duration: {}ms", duration.as_millis()));
        }
        job.copies = None;
        job.scenario()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The manifest as part of a scenario, with its copies.
    pub fn scenario(&self) -> String {
        let Self { namespace, name, gpus, .. } = self;
        let mut annotations = self.annotations.clone();
        if let Some(copies) = self.copies {
            annotations.push(format!("simulate.sluice.dev/count: \"{copies}\""));
        }
        if let Some(duration) = self.duration {
            annotations.push(format!("simulate.sluice.dev/duration: {}ms", duration.as_millis()));
        }
        let annotations = annotations.join(", ");
        let limits = if *gpus == 0 { String::new() } else { format!("nvidia.com/gpu: {gpus}") };
        let labels =
            self.queue.as_ref().map(|queue| format!("sluice.dev/queue: {queue}")).unwrap_or_default();
        let pod_annotations = self.pod_annotations.join(", ");
        let lines = |lines: &[String], indent: &str| -> String {
            lines.iter().map(|line| format!("{indent}{line}\n")).collect()
        };
        let (spec, pod_spec) = (lines(&self.spec, "  "), lines(&self.pod_spec, "      "));
        format!(
            "
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  namespace: {namespace}
  labels: {{{labels}}}
  annotations: {{{annotations}}}
spec:
{spec}  template:
    metadata:
      annotations: {{{pod_annotations}}}
    spec:
      restartPolicy: Never
{pod_spec}      containers:
      - name: main
        image: registry.example/train
        resources:
          limits: {{{limits}}}
---"
        )
    }
}

/// Waits until this many Jobs of a namespace are Complete.
pub async fn complete(world: &World, namespace: &str, count: usize) -> Result<View> {
    world
        .until(&format!("{count} Jobs of {namespace} are Complete"), |view| {
            let complete = view.jobs_in(namespace).filter(|job| job.complete).count();
            if complete == count { Ok(()) } else { Err(view.summary(namespace)) }
        })
        .await
}

/// Waits until this many pods of a namespace run.
pub async fn running(world: &World, namespace: &str, count: usize) -> Result<View> {
    world
        .until(&format!("{count} pods of {namespace} run"), |view| {
            let running = view.running(namespace).count();
            if running == count { Ok(()) } else { Err(view.summary(namespace)) }
        })
        .await
}

/// Waits until this many Jobs of a namespace are queued.
pub async fn queued(world: &World, namespace: &str, count: usize) -> Result<View> {
    world
        .until(&format!("{count} Jobs of {namespace} are queued"), |view| {
            let queued = view.jobs_in(namespace).filter(|job| job.queued()).count();
            if queued == count { Ok(()) } else { Err(view.summary(namespace)) }
        })
        .await
}

/// The items of a document that a command has printed.
pub fn items<T: DeserializeOwned>(text: &str) -> serde_json::Result<Vec<T>> {
    let mut document: Value = serde_json::from_str(text)?;
    serde_json::from_value(document["items"].take())
}
