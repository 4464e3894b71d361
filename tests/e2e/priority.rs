//! No pod of a team lets kube-scheduler preempt: its PriorityClass has a twin that does not.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;
use sluice_harness::{View, World, eventually, patience};

use crate::kinds::{definition, job_set, serve};
use crate::support::{Job, SLUICE, nodes, queued, quota, running, team, team_of};

/// A PriorityClass.
fn class(name: &str, value: i32, policy: &str) -> String {
    format!(
        "
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: {name}}}
value: {value}
preemptionPolicy: {policy}
---"
    )
}

/// A pod without a Job, with this class.
fn pod(name: &str, class: Option<&str>) -> String {
    let class = class.map(|class| format!("priorityClassName: {class}, ")).unwrap_or_default();
    let limits = "{limits: {nvidia.com/gpu: 1}}";
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: a}}
spec: {{{class}containers: [{{name: main, image: registry.example/shell, resources: {limits}}}]}}
---"
    )
}

/// The manifest of a Job of which only one pod fits on a node, because each wants the same port.
fn with_port(job: &Job) -> String {
    let ports = "        ports: [{containerPort: 80, hostPort: 8080}]\n        resources:";
    job.manifest().replace("        resources:", ports)
}

async fn pods(world: &World, namespace: &str) -> Result<Vec<Pod>> {
    Ok(Api::namespaced(world.client.clone(), namespace).list(&ListParams::default()).await?.items)
}

/// Waits until a class has this value, or is gone.
async fn has_value(world: &World, name: &str, value: Option<i32>) -> Result<()> {
    let classes: Api<PriorityClass> = Api::all(world.client.clone());
    eventually(&format!("PriorityClass {name} has {value:?}"), patience(), async || {
        let found = classes.get_opt(name).await.map_err(|error| error.to_string())?;
        if found.as_ref().and_then(|class| class.value) == value { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await
}

/// Checks class, priority and policy of the pod of a Job, or of a pod without one.
fn ensure_class(pods: &[Pod], name: &str, class: &str, value: i32) -> Result<()> {
    let of = |pod: &&Pod| {
        let job = pod.labels().get("batch.kubernetes.io/job-name");
        job.map_or(pod.name_any() == name, |job| job == name)
    };
    let spec =
        pods.iter().find(of).and_then(|pod| pod.spec.as_ref()).with_context(|| format!("no pod {name}"))?;
    let found = (spec.priority_class_name.as_deref(), spec.priority, spec.preemption_policy.as_deref());
    ensure!(found == (Some(class), Some(value), Some("Never")), "{name}: {found:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_of_a_team_has_a_class_that_does_not_preempt() {
    World::run("priority", SLUICE, 1, async |world| {
        let queues = "queues: [{name: training}, {name: serving, priorityClassName: urgent}]";
        let classes = [
            class("high", 900, "PreemptLowerPriority"),
            class("urgent", 700, "PreemptLowerPriority"),
            class("calm", 500, "Never"),
        ];
        world.kubectl.apply(&classes.concat()).await?;
        world
            .apply(&format!("{}{}{}", nodes(1, 20), team_of("a", &[&quota(16), queues]), team("b", 4)))
            .await?;
        has_value(world, "sluice", Some(0)).await?;
        has_value(world, "sluice-high", Some(900)).await?;
        has_value(world, "sluice-urgent", Some(700)).await?;

        let named =
            |name: &str, class: &str| Job::new("a", name).pod_spec(&format!("priorityClassName: {class}"));
        let jobs = [
            named("job-high", "high").manifest(),
            named("job-calm", "calm").manifest(),
            Job::new("a", "job-none").manifest(),
            Job::new("a", "job-queue").queue("serving").manifest(),
            named("job-late", "late").manifest(),
        ];
        world.kubectl.apply(&jobs.concat()).await?;
        let in_queue = pod("pod-queue", None)
            .replace("namespace: a}", "namespace: a, labels: {sluice.dev/queue: serving}}");
        let bare = [pod("pod-high", Some("high")), pod("pod-none", None), in_queue];
        world.kubectl.apply(&bare.concat()).await?;
        running(world, "a", 7).await?;
        // The pods of a class that comes later are made then, from a template that names it.
        world.kubectl.apply(&class("late", 300, "PreemptLowerPriority")).await?;
        running(world, "a", 8).await?;

        // The template of a Job that is created while Sluice is down names a class that preempts.
        world.replicas[0].kill().await?;
        world.kubectl.apply(&named("job-down", "high").manifest()).await?;
        let view = world.view().await?;
        let stored = view.job("a", "job-down").context("the Job does not exist")?;
        ensure!(stored.suspended && stored.priority_class.as_deref() == Some("high"), "{stored:?}");
        let down = format!("{}{}", pod("pod-down", Some("high")), pod("pod-down-none", None));
        world.kubectl.apply(&down).await?;
        let made = pods(world, "a").await?;
        ensure_class(&made, "pod-down", "sluice-high", 900)?;
        ensure_class(&made, "pod-down-none", "sluice", 0)?;
        world.start_replica().await?;
        running(world, "a", 11).await?;

        let pods = pods(world, "a").await?;
        for (name, class, value) in [
            ("job-high", "sluice-high", 900),
            ("job-calm", "calm", 500),
            ("job-none", "sluice", 0),
            ("job-queue", "sluice-urgent", 700),
            ("job-late", "sluice-late", 300),
            ("job-down", "sluice-high", 900),
            ("pod-high", "sluice-high", 900),
            ("pod-none", "sluice", 0),
            ("pod-queue", "sluice-urgent", 700),
        ] {
            ensure_class(&pods, name, class, value)?;
        }

        // Sluice admits a Job to a node on which another team's pod has the port that it wants.
        world.kubectl.apply(&with_port(&Job::new("b", "victim"))).await?;
        let before = running(world, "b", 1).await?;
        let before = before.running("b").next().context("no pod runs")?.uid.clone();
        world.kubectl.apply(&with_port(&named("wants-port", "high"))).await?;
        let wants = |view: &View| match view.job("a", "wants-port") {
            Some(job) if job.admitted() && job.active == 1 => Ok(()),
            other => Err(format!("{other:?}")),
        };
        world.until("the Job is admitted", wants).await?;
        let stays = |view: &View| {
            let there = view.running("b").any(|pod| pod.uid == before);
            if there { Ok(()) } else { Err(view.summary("b")) }
        };
        world.stays("the pod of the other team runs", Duration::from_secs(5), stays).await?;
        // The scheduler would preempt it: it does so for a pod of the same class outside of the teams.
        world.kubectl.ok(&["create", "namespace", "free"]).await?;
        world.kubectl.ok(&["delete", "job", "wants-port", "--namespace=a"]).await?;
        world.kubectl.apply(&with_port(&named("wants-port", "high").within("free").gpus(0))).await?;
        world
            .until("the pod is preempted", |view| match stays(view) {
                Ok(()) => Err(view.summary("free")),
                Err(_) => Ok(()),
            })
            .await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_whose_class_has_a_twin_can_be_applied_again() {
    World::run("priority-again", SLUICE, 1, async |world| {
        let high = class("high", 900, "PreemptLowerPriority");
        world.kubectl.apply(&high).await?;
        has_value(world, "sluice-high", Some(900)).await?;
        world.apply(&format!("{}{}", nodes(1, 8), team("a", 8))).await?;
        let ways = [("client", "--server-side=false"), ("server", "--server-side=true")];
        for (done, (name, how)) in ways.into_iter().enumerate() {
            let job = Job::new("a", name).pod_spec("priorityClassName: high").manifest();
            let waits = Job::new("a", &format!("{name}-waits")).gpus(9).pod_spec("priorityClassName: high");
            let manifest = format!("{job}{}{}", waits.manifest(), pod(&format!("pod-{name}"), Some("high")));
            apply(world, how, &manifest).await?;
            running(world, "a", 2 * done + 2).await?;
            queued(world, "a", done + 1).await?;
            for _ in 0..2 {
                apply(world, how, &manifest).await.with_context(|| format!("{name} again"))?;
            }
            let view = world.view().await?;
            for job in [name, &format!("{name}-waits")] {
                let job = view.job("a", job).context("the Job does not exist")?;
                ensure!(job.priority_class.as_deref() == Some("sluice-high"), "{job:?}");
            }
        }
        let pods = pods(world, "a").await?;
        for pod in ["client", "server", "pod-client", "pod-server"] {
            ensure_class(&pods, pod, "sluice-high", 900)?;
        }

        let mut set = job_set("set");
        serve(world, &definition("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"), &set).await?;
        set["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["priorityClassName"] =
            "high".into();
        for _ in 0..2 {
            world.kubectl.apply(&set.to_string()).await?;
            let text = world.kubectl.ok(&["get", "jobset", "set", "--namespace=a", "-o", "json"]).await?;
            let stored: Value = serde_json::from_str(&text)?;
            let of = |role: usize| {
                let role = &stored["spec"]["replicatedJobs"][role];
                role["template"]["spec"]["template"]["spec"]["priorityClassName"].clone()
            };
            ensure!(of(0) == "sluice" && of(1) == "sluice-high", "{stored}");
        }

        // A class with another value is another object; its twin follows. It stays while a Job names it.
        let other = class("other", 10, "PreemptLowerPriority");
        world.kubectl.apply(&other).await?;
        has_value(world, "sluice-other", Some(10)).await?;
        world.kubectl.ok(&["delete", "priorityclass", "high", "other"]).await?;
        has_value(world, "sluice-other", None).await?;
        has_value(world, "sluice-high", Some(900)).await?;
        world.kubectl.apply(&high.replace("900", "400")).await?;
        has_value(world, "sluice-high", Some(400)).await?;
        world.kubectl.ok(&["delete", "priorityclass", "sluice-high", "sluice"]).await?;
        has_value(world, "sluice-high", Some(400)).await?;
        has_value(world, "sluice", Some(0)).await?;
        Ok(())
    })
    .await;
}

async fn apply(world: &World, how: &str, manifest: &str) -> Result<()> {
    let outcome = world.kubectl.run(&["apply", how, "-f", "-"], Some(manifest)).await?;
    ensure!(outcome.success, "kubectl apply {how} failed: {}", outcome.stderr.trim());
    Ok(())
}
