//! The ways around the quota that objects of a team's namespace could open, each refused where it starts: with the
//! webhook, and by the policies of the API server alone. What users and operators do every day passes.

mod objects;
mod operators;
mod refusals;
mod standing;

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::{World, eventually, patience};

use self::objects::{
    RIGHTS, create, daemon_set, get, job, object, passes, pod, ray_job, refused, resources, run, terms, with,
};
use self::operators::operators_make_children_of_workloads_alone;
use self::refusals::assert_refusals;
use self::standing::{
    Running, a_stopping_job_keeps_what_its_pods_ask_for, growth_is_refused, running_pods_stay_with_their_job,
};
use crate::kinds::{definition, serve};
use crate::support::{Job, SLUICE, namespace, nodes, running, team};

#[tokio::test(flavor = "multi_thread")]
async fn routes_around_the_quota_are_refused_and_everyday_use_passes() {
    World::run("prevention", SLUICE, 1, async |world| {
        let unlabelled = namespace("later", "a", "").replacen("sluice.dev/team: a, ", "", 1);
        world.apply(&format!("{}{}", nodes(1, 8), team("a", 6))).await?;
        world.kubectl.apply(&unlabelled).await?;
        world.kubectl.apply(RIGHTS).await?;
        for (group, version, kind, plural) in [
            ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
            ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
            ("ray.io", "v1", "RayJob", "rayjobs"),
            ("ray.io", "v1", "RayCluster", "rayclusters"),
        ] {
            let mut text: Value = serde_json::from_str(&definition(group, version, kind, plural))?;
            if kind == "PyTorchJob" {
                text["spec"]["versions"][0]["subresources"]["scale"] = json!({
                    "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
                    "statusReplicasPath": ".status.replicas",
                });
            }
            let mut dry = object(&format!("{group}/{version}"), kind, "dry", json!({}));
            dry["metadata"]["namespace"] = "later".into();
            serve(world, &text.to_string(), &dry).await?;
        }
        old_daemon_sets(world).await?;
        assert_refusals(world, true).await?;
        running_pods_stay_with_their_job(world).await?;
        growth_is_refused(world).await?;
        operators_make_children_of_workloads_alone(world).await?;
        orphans_are_warned_of(world).await?;
        everyday_use(world).await?;
        let kept = Running::start(world).await?;
        kept.keeps_its_terms(world).await?;
        let slow = Job::new("a", "slow").ends_slowly(Duration::from_secs(15));
        world.kubectl.apply(&slow.manifest()).await?;
        running(world, "a", 3).await?;
        a_stopping_job_keeps_what_its_pods_ask_for(world, "slow").await?;
        world.replicas.clear();
        assert_refusals(world, false).await?;
        kept.keeps_its_terms(world).await?;
        a_stopping_job_keeps_what_its_pods_ask_for(world, "kept").await
    })
    .await;
}

/// A DaemonSet from the time before its namespace belonged to a team keeps its devices, and its new pods are gated.
async fn old_daemon_sets(world: &World) -> Result<()> {
    let limits = json!({"nvidia.com/gpu": "1"});
    let mut old = daemon_set("old", limits, json!({}));
    old["metadata"]["namespace"] = "later".into();
    world.kubectl.create(&old.to_string()).await?;
    running(world, "later", 1).await?;
    let mut slow = pod(with(json!({"spec": {"terminationGracePeriodSeconds": 3600}})));
    slow["metadata"]["namespace"] = "later".into();
    slow["spec"]["containers"][0]["resources"] = json!({});
    world.kubectl.create(&slow.to_string()).await?;
    world.kubectl.ok(&["label", "namespace", "later", "sluice.dev/team=a"]).await?;
    let mark = ["annotate", "pod", "pod", "--namespace=later", "sluice.dev/preemptible=true"];
    refused(world, &mark, "may have a terminationGracePeriodSeconds of at most 600").await?;
    passes(world, &["delete", "pod", "pod", "--namespace=later", "--grace-period=0", "--force"]).await?;
    passes(world, &["label", "daemonset", "old", "x=y", "--namespace=later"]).await?;
    let more = r#"{"spec":{"template":{"spec":{"containers":[{"name":"m","resources":{"limits":{"nvidia.com/gpu":"2"}}}]}}}}"#;
    let patch = ["patch", "daemonset", "old", "--namespace=later", "-p", more];
    refused(world, &patch, "must not ask for devices").await?;
    passes(world, &["delete", "pod", "--all", "--namespace=later", "--wait=false"]).await?;
    eventually("the new pod of the DaemonSet is gated", patience(), async || {
        let pods = get(world, &["pods", "--namespace=later"]).await.map_err(|error| error.to_string())?;
        let mut alive = pods["items"].as_array().into_iter().flatten();
        let gated = alive.any(|pod| {
            pod["metadata"]["labels"][names::TEAM] == "a"
                && pod["metadata"]["annotations"][names::USER].is_string()
        });
        if gated { Ok(()) } else { Err(pods.to_string()) }
    })
    .await?;
    passes(world, &["delete", "daemonset", "old", "--namespace=later"]).await?;
    Ok(())
}

/// A deletion is never refused.
async fn orphans_are_warned_of(world: &World) -> Result<()> {
    const WARNING: &str = "The pods of this Job run on without it";
    for (cascade, warned) in [("orphan", true), ("background", false), ("foreground", false)] {
        let delete = ["delete", "job", "first", "--dry-run=server", &format!("--cascade={cascade}")];
        let outcome = passes(world, &delete).await?;
        ensure!(outcome.stderr.contains(WARNING) == warned, "{cascade}: {outcome:?}");
    }
    create(world, "alice", &ray_job("left", json!({}))).await?;
    let outcome = passes(world, &["delete", "rayjob", "left", "--cascade=orphan"]).await?;
    ensure!(outcome.stderr.contains("The pods of this workload run on without it"), "{outcome:?}");
    passes(world, &["delete", "job", "first"]).await?;
    Ok(())
}

async fn everyday_use(world: &World) -> Result<()> {
    let collector = daemon_set("logs", json!({"cpu": "100m"}), json!({}));
    let apply = ["apply", "-f", "-"];
    for _ in 0..2 {
        let outcome = run(world, "alice", &apply, Some(&collector)).await?;
        ensure!(outcome.success, "{}", outcome.stderr);
    }
    running(world, "a", 1).await?;
    // An administrator may give a collector a class of the system.
    let critical = daemon_set("critical", json!({}), json!({"priorityClassName": "system-node-critical"}));
    let outcome =
        world.kubectl.run(&["create", "-f", "-", "--namespace=a"], Some(&critical.to_string())).await?;
    ensure!(outcome.success, "{}", outcome.stderr);
    passes(world, &["delete", "daemonset", "logs", "critical"]).await?;

    // As much as is allowed.
    let mut largest = job(with(terms(64)));
    json_patch::merge(&mut largest["spec"]["template"], &resources(32));
    json_patch::merge(
        &mut largest["spec"]["template"],
        &json!({"spec": {"terminationGracePeriodSeconds": 600}}),
    );
    largest["spec"]["parallelism"] = 10_000.into();
    create(world, "alice", &largest).await?;
    passes(world, &["annotate", "job", "job", "mine=yes"]).await?;
    passes(world, &["delete", "job", "job"]).await?;

    let deployment = object(
        "apps/v1",
        "Deployment",
        "web",
        json!({
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {
                "containers": [{"name": "m", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            }},
        }),
    );
    create(world, "alice", &deployment).await?;
    running(world, "a", 1).await?;
    passes(world, &["delete", "deployment", "web"]).await?;
    let none = |view: &sluice_harness::View| match view.running("a").count() {
        0 => Ok(()),
        _ => Err(view.summary("a")),
    };
    world.until("all pods are gone", none).await?;
    world.stays("no pod comes back", Duration::from_secs(1), none).await?;
    Ok(())
}
