//! Kubernetes 1.34, where no policy changes objects and the template of a Job stays as it is once the Job has run.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::batch::v1::Job as BatchJob;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::{Cluster, Kubernetes, Options, World, eventually, patience};

use crate::install::sluice;
use crate::kinds::{definition, job_set, serve};
use crate::support::{Job, SLUICE, complete, node, queued, running, team};

/// A node affinity that every node here satisfies, as a user writes it.
const OWN_AFFINITY: &str = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
     {nodeSelectorTerms: [{matchExpressions: [{key: example.com/slow, operator: DoesNotExist}]}]}}}";

/// A node with 4 GPUs.
fn machine(name: &str) -> String {
    node(name, "", "nvidia.com/gpu: \"4\"")
}

/// A pod without a Job, which may borrow because it may be evicted.
fn pod(namespace: &str, name: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {namespace}
  annotations: {{sluice.dev/preemptible: \"true\"}}
spec:
  containers: [{{name: main, image: registry.example/shell, resources: {{limits: {{cpu: 1}}}}}}]
"
    )
}

/// A DaemonSet without devices.
fn daemon_set(namespace: &str, name: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec: {{containers: [{{name: main, image: registry.example/agent}}]}}
"
    )
}

fn jobs(world: &World, namespace: &str) -> Api<BatchJob> {
    Api::namespaced(world.client.clone(), namespace)
}

/// The nodes of the running pods of a Job.
async fn nodes_of(world: &World, namespace: &str, job: &str) -> Result<Vec<String>> {
    let view = world.view().await?;
    let pods = view.running(namespace).filter(|pod| pod.job.as_deref() == Some(job));
    Ok(pods.filter_map(|pod| pod.node.clone()).collect())
}

/// Lets the only running pod of a Job succeed.
async fn succeed(world: &World, namespace: &str, job: &str) -> Result<()> {
    let view = world.view().await?;
    let pod = view.running(namespace).find(|pod| pod.job.as_deref() == Some(job));
    let name = pod.with_context(|| format!("no pod of {job} runs"))?.name.clone();
    let (within, ended) = (format!("--namespace={namespace}"), r#"{"status": {"phase": "Succeeded"}}"#);
    world
        .kubectl
        .ok(&["patch", "pod", &name, &within, "--subresource=status", "--type=merge", "-p", ended])
        .await?;
    Ok(())
}

/// Waits until a Job has this many succeeded pods and one that runs.
async fn goes_on_after(world: &World, name: &str, succeeded: i32) -> Result<()> {
    let jobs = jobs(world, "a");
    eventually(&format!("{name} runs with {succeeded} succeeded pods"), patience(), async || {
        let job = jobs.get(name).await.map_err(|error| error.to_string())?;
        let seen = job.status.clone().unwrap_or_default();
        let runs = (seen.succeeded.unwrap_or(0), seen.active.unwrap_or(0)) == (succeeded, 1);
        let nodes = nodes_of(world, "a", name).await.map_err(|error| format!("{error:#}"))?;
        if runs && nodes.len() == 1 { Ok(()) } else { Err(format!("{seen:?} on {nodes:?}")) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_held_moved_and_guarded_on_kubernetes_1_34() {
    let cluster = Cluster::up_of("older", Kubernetes::V1_34, &[]).await;
    World::run_on(cluster, Options::new(SLUICE), 1, async |world| {
        world.apply(&format!("{}{}{}", machine("gpu-0"), team("a", 0), team("b", 4))).await?;
        world.kubectl.ok(&["create", "namespace", "free"]).await?;
        an_evicted_job_starts_again_on_other_nodes(world).await?;
        a_job_on_hold_by_its_user_runs_again(world).await?;
        no_pod_preempts(world).await?;
        kinds_may_have_webhook_rules_of_their_own(world).await?;
        without_sluice_new_work_is_refused_and_running_work_goes_on(world).await
    })
    .await;
}

/// Sets `spec.suspend` of a Job of team a, as its user.
async fn suspend(world: &World, job: &str, suspend: bool) -> Result<()> {
    let patch = format!(r#"{{"spec": {{"suspend": {suspend}}}}}"#);
    world.kubectl.ok(&["patch", "job", job, "--namespace=a", "--type=merge", "-p", &patch]).await?;
    Ok(())
}

async fn an_evicted_job_starts_again_on_other_nodes(world: &World) -> Result<()> {
    let borrower = Job::new("a", "borrower").gpus(4).ends_slowly(Duration::from_secs(4));
    let borrower = borrower.spec("completions: 2").spec("backoffLimit: 0").pod_spec(OWN_AFFINITY);
    world.kubectl.apply(&borrower.manifest()).await?;
    running(world, "a", 1).await?;
    succeed(world, "a", "borrower").await?;
    goes_on_after(world, "borrower", 1).await?;
    ensure!(nodes_of(world, "a", "borrower").await? == ["gpu-0"], "it runs elsewhere");

    world.kubectl.apply(&Job::new("b", "owner").gpus(4).manifest()).await?;
    world
        .until("the borrower stops", |view| match view.job("a", "borrower") {
            Some(job) if job.state() == "leaving" => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await?;
    // A resume by its user meanwhile is refused with a sentence, and disturbs nothing.
    let resumed = suspend(world, "borrower", false).await;
    let refusal = resumed.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(refusal.contains("only Sluice starts it"), "the resume: {refusal}");
    running(world, "b", 1).await?;
    queued(world, "a", 1).await?;
    let job = jobs(world, "a").get("borrower").await?;
    let status = job.status.clone().unwrap_or_default();
    ensure!(status.start_time.is_none() && status.succeeded == Some(1), "{status:?}");
    let template = serde_json::to_value(&job.spec.context("no spec")?.template)?;
    let terms =
        &template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let own =
        serde_json::json!([{"matchExpressions": [{"key": "example.com/slow", "operator": "DoesNotExist"}]}]);
    ensure!(terms["nodeSelectorTerms"] == own, "the template is not its user's: {terms}");

    world.apply(&machine("gpu-1")).await?;
    goes_on_after(world, "borrower", 1).await?;
    ensure!(nodes_of(world, "a", "borrower").await? == ["gpu-1"], "it runs elsewhere");
    succeed(world, "a", "borrower").await?;
    let view = complete(world, "a", 1).await?;
    let job = view.job("a", "borrower").context("no borrower")?;
    ensure!(job.failed_pods == 0, "the eviction is counted as a failure: {job:?}");
    Ok(())
}

async fn a_job_on_hold_by_its_user_runs_again(world: &World) -> Result<()> {
    world.kubectl.apply(&Job::new("a", "paused").gpus(4).manifest()).await?;
    let view = running(world, "a", 1).await?;
    let before = view.running("a").next().map(|pod| pod.uid.clone());
    suspend(world, "paused", true).await?;
    world
        .until("the Job is on hold", |view| match view.job("a", "paused") {
            Some(job) if job.state() == "on hold" => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await?;
    suspend(world, "paused", false).await?;
    world
        .until("the Job runs again", |view| {
            let again = view.running("a").any(|pod| Some(&pod.uid) != before.as_ref());
            let job = view.job("a", "paused").filter(|job| job.admitted() && job.failed_pods == 0);
            if again && job.is_some() { Ok(()) } else { Err(view.summary("a")) }
        })
        .await?;
    Ok(())
}

async fn no_pod_preempts(world: &World) -> Result<()> {
    world.kubectl.apply(&pod("a", "bare")).await?;
    world.kubectl.apply(&daemon_set("a", "agent")).await?;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "a");
    eventually("the bare pod and the DaemonSet's pods run", patience(), async || {
        let all = pods.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let running = |prefix: &str| {
            let of = all.iter().filter(|pod| pod.name_any().starts_with(prefix));
            let phase = |pod: &&Pod| {
                pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
            };
            of.filter(phase).count()
        };
        let seen = (running("bare"), running("agent-"), running("paused-"));
        if seen == (1, 2, 1) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await?;
    for pod in pods.list(&ListParams::default()).await?.items {
        let spec = pod.spec.clone().unwrap_or_default();
        let class = (spec.priority_class_name.as_deref(), spec.preemption_policy.as_deref());
        ensure!(class == (Some("sluice"), Some("Never")), "{}: {class:?}", pod.name_any());
    }
    Ok(())
}

/// An installation without the webhook rules of custom kinds gets those of the kinds that are served. No policy holds an object here, so
/// without them it is refused.
async fn kinds_may_have_webhook_rules_of_their_own(world: &World) -> Result<()> {
    serve(world, &definition("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"), &job_set("probe")).await?;
    for (kind, index, name) in [
        ("mutatingwebhookconfiguration", 3, "kinds.mutate.sluice.dev"),
        ("validatingwebhookconfiguration", 1, "kinds.validate.sluice.dev"),
    ] {
        let at = format!("/webhooks/{index}");
        let patch = json!([{"op": "test", "path": format!("{at}/name"), "value": name}, {"op": "remove", "path": at}]);
        world.kubectl.ok(&["patch", kind, "sluice", "--type=json", "-p", &patch.to_string()]).await?;
    }
    let made = async || {
        let create = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
        let made = world.kubectl.run(&create, Some(&job_set("held").to_string())).await;
        made.map_err(|error| error.to_string())
    };
    eventually("a JobSet is refused", patience(), async || {
        let made = made().await?;
        if made.success { Err(made.stdout) } else { Ok(()) }
    })
    .await?;
    let printed = sluice(world, &["kinds", "--installed"]).await?;
    ensure!(!printed.contains("MutatingAdmissionPolicy"), "{printed}");
    world.kubectl.apply(&printed).await?;
    eventually("a JobSet is held", patience(), async || {
        let made = made().await?;
        let object: Value = serde_json::from_str(&made.stdout).unwrap_or_default();
        match object["spec"]["suspend"] == true && object["metadata"]["labels"][names::TEAM] == "a" {
            true => Ok(()),
            false => Err(format!("{}{}", made.stdout, made.stderr)),
        }
    })
    .await
}

async fn without_sluice_new_work_is_refused_and_running_work_goes_on(world: &mut World) -> Result<()> {
    let kubectl = world.kubectl.clone();
    kubectl.apply(&Job::new("a", "waits").gpus(4).manifest()).await?;
    queued(world, "a", 1).await?;
    world.replicas[0].kill().await?;

    // Held by hand, a pod is let in only with a class that does not preempt.
    let gated =
        pod("a", "gated").replace("spec:\n", "spec:\n  schedulingGates: [{name: sluice.dev/admission}]\n");
    let not_held = "Sluice does not answer, so it could not hold this";
    for (manifest, sentence) in [
        (Job::new("a", "new").manifest(), not_held),
        (pod("a", "new"), not_held),
        (
            gated.clone(),
            "Sluice does not answer, so it could not give this pod a PriorityClass that does not preempt",
        ),
    ] {
        let outcome = kubectl.run(&["create", "-f", "-"], Some(&manifest)).await?;
        ensure!(
            !outcome.success && outcome.stderr.contains(sentence),
            "{}{}",
            outcome.stdout,
            outcome.stderr
        );
    }
    kubectl.create(&gated.replace("spec:\n", "spec:\n  priorityClassName: sluice\n")).await?;
    kubectl.create(&Job::new("a", "suspended").spec("suspend: true").manifest()).await?;
    let release = r#"{"spec": {"suspend": false}}"#;
    let released =
        kubectl.run(&["patch", "job", "waits", "--namespace=a", "--type=merge", "-p", release], None).await?;
    ensure!(released.stderr.contains("Only Sluice starts Jobs here"), "{}", released.stderr);

    // Nothing else depends on Sluice.
    kubectl.ok(&["label", "job", "waits", "--namespace=a", "example.com/seen=yes"]).await?;
    kubectl.ok(&["delete", "job", "waits", "--namespace=a", "--timeout=30s"]).await?;
    succeed(world, "b", "owner").await?;
    complete(world, "b", 1).await?;
    succeed(world, "a", "paused").await?;
    complete(world, "a", 2).await?;
    let began = Instant::now();
    kubectl.create(&pod("free", "bare")).await?;
    kubectl.create(&Job::new("free", "other").lasts(Duration::from_secs(1)).manifest()).await?;
    kubectl.create(&daemon_set("kube-system", "proxy")).await?;
    // A call of the webhook alone would take that long.
    ensure!(began.elapsed() < Duration::from_secs(9), "creates took {:?}", began.elapsed());
    complete(world, "free", 1).await?;
    kubectl.create(&daemon_set("a", "second-agent")).await?;
    running(world, "kube-system", 2).await?;
    world
        .until("the pods of the new DaemonSet run", |view| {
            let count = view.running("a").filter(|pod| pod.name.starts_with("second-agent-")).count();
            if count == 2 { Ok(()) } else { Err(view.summary("a")) }
        })
        .await?;

    world.start_replica().await?;
    kubectl.create(&Job::new("a", "after").lasts(Duration::from_secs(1)).manifest()).await?;
    complete(world, "a", 3).await?;
    Ok(())
}
