//! What its users cannot change of a workload that runs.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::{Outcome, User, World, eventually, patience};

use super::objects::{LABELS, NOTES, create, get, job, labelled, noted, passes, pod, refused, run, training};
use crate::kinds::template;
use crate::support::{Job, running};

/// What the policy says of a deletion with a grace period above the cap.
const GRACE: &str = "may be deleted with a grace period of at most 600 seconds";
/// A year.
const LONG: u64 = 31_536_000;

/// A running pod stays with its Job, and its Job keeps what it was granted.
pub async fn running_pods_stay_with_their_job(world: &World) -> Result<()> {
    let alice = world.cluster.kubectl(User::Alice);
    let manifest = Job::new("a", "first").spec("parallelism: 2").manifest();
    alice.apply(&manifest).await?;
    running(world, "a", 2).await?;
    let pods = get(world, &["pods", "-l", "batch.kubernetes.io/job-name=first"]).await?;
    let pod = pods["items"][0]["metadata"]["name"].as_str().context("a pod")?.to_owned();
    const STAYS: &str = "A pod keeps its controlling owner and the labels of its Job";
    let other = r#"{"metadata":{"ownerReferences":[{"apiVersion":"ray.io/v1","kind":"RayCluster","name":"x","uid":"11111111-1111-1111-1111-111111111111","controller":true}]}}"#;
    for patch in [
        r#"{"metadata":{"ownerReferences":null}}"#,
        other,
        r#"{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"x"}}}"#,
        r#"{"metadata":{"labels":{"batch.kubernetes.io/job-name":null}}}"#,
        r#"{"metadata":{"labels":{"job-name":"x"}}}"#,
        r#"{"metadata":{"labels":{"controller-uid":"x"}}}"#,
    ] {
        refused(world, &["patch", "pod", &pod, "--type=merge", "-p", patch], STAYS).await?;
    }
    passes(world, &["label", "pod", &pod, "mine=yes"]).await?;
    pods_of_a_job_end_in_time(world, "first").await?;
    refused(world, &["patch", "job", "first", "--type=merge", "-p", other], "The controlling owner of a Job")
        .await?;

    // A smaller Job is granted less, and does not grow back by itself.
    let pods = |count: u32| json!({"spec": {"parallelism": count}}).to_string();
    passes(world, &["patch", "job", "first", "--type=merge", "-p", &pods(1)]).await?;
    running(world, "a", 1).await?;
    refused(
        world,
        &["patch", "job", "first", "--type=merge", "-p", &pods(3)],
        "it was granted; suspend it first",
    )
    .await?;
    // The same manifest can be applied again.
    alice.apply(&manifest).await?;
    Ok(())
}

/// The pods of a Job are deleted and evicted as its user likes, but with no longer grace than the cap.
async fn pods_of_a_job_end_in_time(world: &World, job: &str) -> Result<()> {
    let selector = format!("batch.kubernetes.io/job-name={job}");
    let pods = async || -> Result<Vec<String>> {
        let list = get(world, &["pods", "-l", &selector, "--field-selector=status.phase=Running"]).await?;
        let running = list["items"].as_array().into_iter().flatten();
        let running = running.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        Ok(running.filter_map(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned())).collect())
    };
    let before = pods().await?;
    let [deleted, evicted] = &before[..] else { bail!("not two pods: {before:?}") };
    let (long, short) = (format!("--grace-period={LONG}"), "--grace-period=1");
    refused(world, &["delete", "pod", deleted, &long, "--wait=false"], GRACE).await?;
    let outcome = evict(world, evicted, LONG, false).await?;
    ensure!(!outcome.success && outcome.stderr.contains(GRACE), "{outcome:?}");
    ensure!(pods().await? == before, "{before:?} end: {:?}", pods().await?);
    passes(world, &["delete", "pod", deleted, short, "--wait=false"]).await?;
    let outcome = evict(world, evicted, 1, false).await?;
    ensure!(outcome.success, "{outcome:?}");
    eventually("both pods are replaced", patience(), async || {
        let now = pods().await.map_err(|error| format!("{error:#}"))?;
        let old = now.iter().any(|pod| before.contains(pod));
        if now.len() == 2 && !old { Ok(()) } else { Err(format!("{now:?} after {before:?}")) }
    })
    .await
}

/// Evicts a pod as Alice.
async fn evict(world: &World, pod: &str, grace: u64, dry: bool) -> Result<Outcome> {
    let dry_run = if dry { vec!["All"] } else { vec![] };
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "a"},
        "deleteOptions": {"gracePeriodSeconds": grace, "dryRun": dry_run},
    });
    let query = if dry { "?dryRun=All" } else { "" };
    let path = format!("/api/v1/namespaces/a/pods/{pod}/eviction{query}");
    run(world, "alice", &["create", "--raw", &path, "-f", "-"], Some(&eviction)).await
}

/// A Job is suspended by its user, and its pods have not ended yet.
pub async fn a_stopping_job_keeps_what_its_pods_ask_for(world: &World, name: &str) -> Result<()> {
    let what = format!("job/{name}");
    passes(world, &["patch", &what, "--type=merge", "-p", r#"{"spec":{"suspend":true}}"#]).await?;
    let at = "/spec/template/spec/containers/0/resources";
    let other = json!([{"op": "replace", "path": at, "value": {"limits": {"cpu": "1"}}}]).to_string();
    let outcome = run(world, "alice", &["patch", &what, "--type=json", "-p", &other], None).await?;
    let expected = "can be changed only while the Job waits; its pods have not all ended";
    ensure!(!outcome.success && outcome.stderr.contains(expected), "{outcome:?}");
    passes(world, &["label", &what, "stopping=yes"]).await?;
    Ok(())
}

/// A Job, a pod and an object of a custom kind that run, named `kept`.
pub struct Running;

impl Running {
    /// Creates them, and waits until they run.
    pub async fn start(world: &World) -> Result<Self> {
        let mut kept = [job(template(1)), pod(template(1)), training(json!({}))];
        for object in &mut kept {
            object["metadata"]["name"] = "kept".into();
            create(world, "alice", object).await?;
        }
        running(world, "a", 2).await?;
        eventually("the PyTorchJob is admitted", patience(), async || {
            let training = get(world, &["pytorchjob", "kept"]).await.map_err(|error| error.to_string())?;
            let admitted = training["metadata"]["annotations"][names::ADMISSION].is_string();
            if admitted { Ok(()) } else { Err(training.to_string()) }
        })
        .await?;
        Ok(Self)
    }

    /// With the webhook, and without it.
    pub async fn keeps_its_terms(&self, world: &World) -> Result<()> {
        for kept in ["pod/kept", "job/kept", "pytorchjob/kept"] {
            const QUEUE: &str = "label sluice.dev/queue can be changed only while the";
            for queue in ["sluice.dev/queue=another", "sluice.dev/queue-"] {
                refused(world, &["label", kept, queue, "--overwrite"], QUEUE).await?;
            }
            passes(world, &["label", kept, "mine=yes", "--overwrite"]).await?;

            // Sluice must have room for its marks.
            let (large, more) = (noted(json!({}), 197_000), labelled(json!({}), 257));
            for (change, sentences) in [
                (large, [NOTES, "bytes of annotations and affinity, more than"]),
                (more, [LABELS, "labels, more than the 256 of one object"]),
            ] {
                let outcome = merged(world, kept, &change).await?;
                let told = sentences.iter().any(|sentence| outcome.stderr.contains(sentence));
                ensure!(!outcome.success && told, "{kept}: {outcome:?}");
            }
            let outcome = merged(world, kept, &noted(json!({}), 100_000)).await?;
            ensure!(outcome.success, "{kept}: {outcome:?}");
        }
        // The grace of a deletion has the cap of a spec.
        for what in ["kept", "--all"] {
            refused(world, &["delete", "pods", what, "--grace-period=31536000", "--wait=false"], GRACE)
                .await?;
            for grace in ["600", "0", "-1"] {
                let grace = format!("--grace-period={grace}");
                passes(world, &["delete", "pods", what, &grace, "--dry-run=server"]).await?;
            }
        }
        let outcome = evict(world, "kept", LONG, true).await?;
        ensure!(!outcome.success && outcome.stderr.contains(GRACE), "{outcome:?}");
        let outcome = evict(world, "kept", 600, true).await?;
        ensure!(outcome.success, "{outcome:?}");
        Ok(())
    }
}

/// A merge patch of Alice, as a file: it may be longer than an argument.
async fn merged(world: &World, what: &str, change: &Value) -> Result<Outcome> {
    let patch = ["patch", what, "--type=merge", "--patch-file=/dev/stdin"];
    run(world, "alice", &patch, Some(change)).await
}

/// Growth by the scale subresource.
pub async fn growth_is_refused(world: &World) -> Result<()> {
    create(world, "alice", &training(json!({}))).await?;
    let scale = ["scale", "pytorchjob/training", "--replicas=50"];
    refused(world, &scale, "Sluice admits all pods of this workload together").await?;
    passes(world, &["scale", "pytorchjob/training", "--replicas=1"]).await?;
    passes(world, &["delete", "pytorchjob", "training"]).await?;
    Ok(())
}
