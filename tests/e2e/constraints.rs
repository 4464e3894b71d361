//! Constraints between the pods of users are honoured: what Sluice places, kube-scheduler binds at once.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use sluice::api::names;
use sluice_harness::{View, World};

use crate::pods::explained;
use crate::support::{Job, SLUICE, node, running, team};

const HOST: &str = "kubernetes.io/hostname";

/// A Job with one GPU a pod.
fn gang(name: &str, pods: usize) -> Job {
    Job::new("a", name).spec(&format!("parallelism: {pods}")).spec(&format!("completions: {pods}"))
}

/// Selects the pods of a Job by a label that the Job controller gives them.
fn selector(name: &str) -> String {
    format!("labelSelector: {{matchLabels: {{batch.kubernetes.io/job-name: {name}}}}}")
}

/// The same Job with at most one pod on each host.
fn apart(name: &str, pods: usize) -> Job {
    let term = format!("{{topologyKey: {HOST}, {}}}", selector(name));
    gang(name, pods).pod_spec(&format!(
        "affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{term}]}}}}"
    ))
}

/// The same Job spread evenly over hosts.
fn spread(name: &str, pods: usize) -> Job {
    gang(name, pods).pod_spec(&format!(
        "topologySpreadConstraints: [{{topologyKey: {HOST}, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, {}}}]",
        selector(name)
    ))
}

/// The running pods of a Job by node.
fn pods_of(view: &View, name: &str) -> BTreeMap<String, usize> {
    let mut on = BTreeMap::new();
    for pod in view.running("a").filter(|pod| pod.job.as_deref() == Some(name)) {
        *on.entry(pod.node.clone().unwrap_or_default()).or_default() += 1;
    }
    on
}

/// Starts a Job of one pod for each of so many hosts. It starts with one write on the Job, and without a failed pod.
async fn one_for_each_host(world: &World, job: &Job, name: &str, pods: usize) -> Result<()> {
    world.kubectl.apply(&job.manifest()).await?;
    let view = running(world, "a", pods).await?;
    let on = pods_of(&view, name);
    ensure!(on.len() == pods && on.values().all(|pods| *pods == 1), "{name} on {on:?}");
    let seen = view.job("a", name).context("the Job does not exist")?;
    ensure!(seen.eviction.is_none() && seen.failed_pods == 0, "{seen:?}");
    let writes = world.cluster.audit().by(names::ACCOUNT)?;
    let on_job =
        writes.iter().filter(|write| write.resource == "jobs" && write.name == name && write.succeeded());
    ensure!(on_job.count() == 1, "{writes:?}");
    world.kubectl.ok(&["delete", "job", name, "--namespace=a", "--wait=false"]).await?;
    running(world, "a", 0).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn constraints_between_pods_are_honoured_at_the_first_start() {
    World::run("constraints", SLUICE, 1, async |world| {
        let host = |number: usize| {
            let part = if number < 2 { "few" } else { "many" };
            let labels = format!("{HOST}: gpu-{number}, part: {part}");
            node(&format!("gpu-{number}"), &labels, "nvidia.com/gpu: \"8\"")
        };
        let hosts: String = (0..16).map(host).collect();
        world.apply(&format!("{hosts}{}", team("a", 128))).await?;
        let few = |job: Job| job.pod_spec("nodeSelector: {part: few}");

        one_for_each_host(world, &few(apart("pair", 2)), "pair", 2).await?;
        one_for_each_host(world, &apart("sixteen", 16), "sixteen", 16).await?;
        one_for_each_host(world, &few(spread("even", 2)), "even", 2).await?;

        world.kubectl.apply(&few(apart("three", 3)).manifest()).await?;
        let sentence = explained(world, "a", "three", "NoNodeFits").await?;
        ensure!(
            sentence.contains("its anti-affinity by kubernetes.io/hostname leaves 2 of 2 nodes"),
            "{sentence}"
        );
        Ok(())
    })
    .await;
}
