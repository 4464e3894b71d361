//! The Jobs of the steps.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice::api::names;

use crate::load::{IN_FLIGHT, start_by_hand};
use crate::stage::{STEP, say};

/// The resource of GPUs.
pub const GPU: &str = "nvidia.com/gpu";
/// The shape of the Jobs of a step.
#[derive(Clone, Copy)]
pub struct Shape<'a> {
    /// The step.
    pub step: &'a str,
    /// The namespaces, in turn.
    pub namespaces: &'a [&'a str],
    /// Pods of a Job; several make an Indexed Job.
    pub pods: usize,
    /// What each pod asks for.
    pub asks: (&'a str, usize),
    /// Run time of a pod; for ever without one.
    pub runs: Option<Duration>,
    /// Whether the generator itself suspends them.
    pub suspend: bool,
    /// The label of a node that pods should have in common.
    pub topology: Option<&'a str>,
    /// The queue of the team.
    pub queue: Option<&'a str>,
}

impl<'a> Shape<'a> {
    /// Jobs of one pod with one GPU that runs for ever.
    pub fn single(step: &'a str, namespaces: &'a [&'a str]) -> Self {
        let (asks, runs, topology, queue) = ((GPU, 1), None, None, None);
        Self { step, namespaces, pods: 1, asks, runs, suspend: false, topology, queue }
    }

    /// Name and namespace of one of them.
    pub fn place(&self, at: usize) -> (String, &'a str) {
        (format!("{}-{at}", self.step), self.namespaces[at % self.namespaces.len()])
    }

    fn job(&self, at: usize) -> Value {
        let (name, namespace) = self.place(at);
        let (resource, amount) = self.asks;
        let mut job = json!({
            "metadata": {"name": name, "namespace": namespace, "labels": {STEP: self.step}, "annotations": {}},
            "spec": {"suspend": self.suspend, "parallelism": self.pods, "completions": self.pods, "template": {
                "metadata": {"labels": {STEP: self.step}, "annotations": {}},
                "spec": {"restartPolicy": "Never", "containers": [{
                    "name": "main", "image": "registry.example/bench",
                    "resources": {"requests": {resource: amount}, "limits": {resource: amount}},
                }]},
            }},
        });
        if self.pods > 1 {
            job["spec"]["completionMode"] = json!("Indexed");
        }
        if let Some(runs) = self.runs {
            job["spec"]["template"]["metadata"]["annotations"]["simulate.sluice.dev/duration"] =
                json!(format!("{}ms", runs.as_millis()));
        }
        if let Some(key) = self.topology {
            job["metadata"]["annotations"][names::TOPOLOGY_PREFERRED] = json!(key);
        }
        if let Some(queue) = self.queue {
            job["metadata"]["labels"][names::QUEUE] = json!(queue);
        }
        job
    }

    /// Creates one of them.
    pub async fn create_one(&self, client: &Client, at: usize) -> Result<()> {
        let (_, namespace) = self.place(at);
        let api: Api<Job> = Api::namespaced(client.clone(), namespace);
        api.create(&PostParams::default(), &serde_json::from_value(self.job(at))?).await?;
        Ok(())
    }

    /// Creates so many, 16 at a time. It is an error if a create fails.
    pub async fn create(&self, client: &Client, count: usize) -> Result<Duration> {
        let began = Instant::now();
        let mut created =
            stream::iter((0..count).map(|at| self.create_one(client, at))).buffer_unordered(IN_FLIGHT);
        let mut done = 0;
        while let Some(one) = created.next().await {
            one.with_context(|| format!("{}: a create failed", self.step))?;
            done += 1;
            if done % 5_000 == 0 {
                say(&format!("  {}: {done} of {count} created", self.step));
            }
        }
        Ok(began.elapsed())
    }

    /// Starts so many suspended ones by hand, 16 at a time.
    pub async fn start(&self, client: &Client, count: usize) -> Result<()> {
        let start = |at: usize| {
            let (name, namespace) = self.place(at);
            async move { start_by_hand(client, namespace, &name).await }
        };
        let mut started = stream::iter((0..count).map(start)).buffer_unordered(IN_FLIGHT);
        while let Some(one) = started.next().await {
            one?;
        }
        Ok(())
    }

    /// Suspends one of them.
    pub async fn suspend(&self, client: &Client, at: usize) -> Result<()> {
        let (name, namespace) = self.place(at);
        let api: Api<Job> = Api::namespaced(client.clone(), namespace);
        let patch = Patch::Merge(json!({"spec": {"suspend": true}}));
        api.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// Deletes these Jobs of a namespace, 16 at a time.
pub async fn delete(client: &Client, namespace: &str, jobs: Vec<String>) -> Result<()> {
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    let one = |name: String| {
        let api = api.clone();
        async move { api.delete(&name, &DeleteParams::background()).await }
    };
    let mut deleted = stream::iter(jobs.into_iter().map(one)).buffer_unordered(IN_FLIGHT);
    while let Some(one) = deleted.next().await {
        one?;
    }
    Ok(())
}

/// Waits of so many Jobs from their creation to the start of the first pod, as the API server has recorded them: whole seconds.
/// The control plane may write the last of these after the pods have ended.
pub async fn waits(client: &Client, step: &str, count: usize) -> Result<Vec<Duration>> {
    let mut waits = recorded_waits(client, step).await?;
    for _ in 0..60 {
        if waits.len() >= count {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        waits = recorded_waits(client, step).await?;
    }
    ensure!(waits.len() == count, "{step}: {} of {count} have started", waits.len());
    Ok(waits)
}

async fn recorded_waits(client: &Client, step: &str) -> Result<Vec<Duration>> {
    let api: Api<Job> = Api::all(client.clone());
    let mut params = kube::api::ListParams::default().labels(&format!("{STEP}={step}")).limit(2_000);
    let mut waits = Vec::new();
    loop {
        let page = api.list(&params).await?;
        for job in &page.items {
            let started = job.status.as_ref().and_then(|status| status.start_time.as_ref());
            let created = job.creation_timestamp().context("a Job without a time")?;
            if let Some(started) = started {
                let wait = started.0.duration_since(created.0);
                waits.push(Duration::try_from(wait).unwrap_or_default());
            }
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => break,
        }
    }
    Ok(waits)
}
