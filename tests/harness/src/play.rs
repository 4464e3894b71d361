//! Plays a scenario on a real cluster, step by step, at its times.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use serde_json::Value;
use sluice::scenario::{Change, Kind, Object, PREFIX, Scenario};
use tokio::time::Instant;

use crate::{Cluster, Kubectl, User, eventually, patience};

/// A scenario that is being played.
pub struct Play {
    scenario: Scenario,
    next: usize,
    began: Option<Instant>,
    speed: f64,
    kubectl: Kubectl,
    client: Client,
}

impl Play {
    /// Prepares to play a scenario as the cluster's admin. A speed of 2 halves all times.
    pub async fn new(cluster: &Cluster, scenario: Scenario, speed: f64) -> Result<Self> {
        let running = scenario.objects().find(|object| object.running_on.is_some());
        if let Some(object) = running {
            bail!("{}: a workload that runs from the beginning can only be simulated", object.origin);
        }
        Ok(Self {
            scenario,
            next: 0,
            began: None,
            speed,
            kubectl: cluster.kubectl(User::Admin),
            client: cluster.client(User::Admin).await?,
        })
    }

    /// Waits for the time of the next steps and carries out all steps of that time. Returns false when none
    /// are left.
    pub async fn next(&mut self) -> Result<bool> {
        let Some(first) = self.scenario.steps.get(self.next) else { return Ok(false) };
        let at = first.at;
        let began = *self.began.get_or_insert_with(Instant::now);
        tokio::time::sleep_until(began + at.div_f64(self.speed)).await;

        let mut manifests = Vec::new();
        while let Some(step) = self.scenario.steps.get(self.next).filter(|step| step.at == at).cloned() {
            self.next += 1;
            if let Change::Apply(object) = &step.change {
                manifests.push(self.manifest(object)?);
                continue;
            }
            self.apply(&mut manifests).await?;
            match &step.change {
                Change::Apply(_) => {}
                Change::Delete(object) => self.delete(object).await?,
                Change::Cordon(node) => drop(self.kubectl.ok(&["cordon", &node.name]).await?),
                Change::Fail(node) => {
                    let down = format!("{PREFIX}down=true");
                    self.kubectl.ok(&["annotate", "node", &node.name, &down]).await?;
                }
            }
        }
        self.apply(&mut manifests).await?;
        Ok(true)
    }

    /// Carries out all remaining steps.
    pub async fn all(&mut self) -> Result<()> {
        while self.next().await? {}
        Ok(())
    }

    async fn apply(&self, manifests: &mut Vec<Value>) -> Result<()> {
        if manifests.is_empty() {
            return Ok(());
        }
        // Teams and namespaces come before workloads, and so do nodes: the first one that is ready would get the first pod.
        let submitted = |manifest: &Value| manifest["kind"] == "Job" || manifest["kind"] == "Pod";
        let (workloads, setting): (Vec<Value>, Vec<Value>) = manifests.drain(..).partition(submitted);
        for part in [setting, workloads].iter().filter(|part| !part.is_empty()) {
            let documents: Vec<String> = part.iter().map(|manifest| manifest.to_string()).collect();
            self.kubectl.apply(&documents.join("\n")).await?;
            for node in part.iter().filter(|manifest| manifest["kind"] == "Node") {
                let name = node["metadata"]["name"].as_str().context("a node without a name")?;
                self.node_ready(name).await?;
            }
        }
        Ok(())
    }

    async fn delete(&self, object: &Object) -> Result<()> {
        let mut arguments = vec!["delete", object.kind.name(), &object.name, "--wait=false"];
        arguments.extend(object.namespace.iter().flat_map(|namespace| ["--namespace", namespace]));
        self.kubectl.ok(&arguments).await.map(drop)
    }

    /// The manifest for the simulated nodes, which read a pod's run time from an annotation of the pod.
    fn manifest(&self, object: &Object) -> Result<Value> {
        let mut manifest = object.manifest.clone();
        if let Some(duration) = object.duration {
            let pod = match object.kind {
                Kind::Job => manifest.pointer_mut("/spec/template"),
                _ => Some(&mut manifest),
            };
            let pod = pod.filter(|pod| pod.is_object()).with_context(|| {
                format!("{}: spec.template: is missing, so it cannot have a duration", object.origin)
            })?;
            let milliseconds = duration.div_f64(self.speed).as_millis();
            pod["metadata"]["annotations"][format!("{PREFIX}duration")] =
                Value::String(format!("{milliseconds}ms"));
        }
        Ok(manifest)
    }

    async fn node_ready(&self, name: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        eventually(&format!("node {name} is ready for pods"), patience(), async || {
            let node = nodes.get(name).await.map_err(|error| error.to_string())?;
            let ready = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let ready = ready.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
            let taints = node.spec.and_then(|spec| spec.taints).unwrap_or_default();
            let untainted = !taints.iter().any(|taint| taint.key == "node.kubernetes.io/not-ready");
            if ready && untainted { Ok(()) } else { Err(format!("ready: {ready}, taints: {taints:?}")) }
        })
        .await
    }
}
