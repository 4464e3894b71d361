//! Objects that are refused when they are created.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::World;

use super::objects::{
    FALSE_RAY, JOBS, LABELS, NOTES, RAY, daemon_set, gates, job, job_set, labelled, noted, object, owned,
    pod, ray_job, resources, run, terms, training, with,
};
use crate::kinds::template;

/// Objects that are refused at create: by an account, with a sentence of the policies, and with one of the webhook where it
/// judges the same.
fn refusals() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    const NODE: &str = "must not set spec.nodeName, because Sluice chooses the nodes";
    const CLASS: &str = "The priority classes of the system are not for the workloads of teams";
    const DEVICES: &str = "A DaemonSet in a team's namespace must not ask for devices";
    const ORDER: &str = "that needs the verb manage on the Team; sluice.dev/order is for your own work";
    const CLUSTER: &str = "The pods of a RayCluster start without Sluice's queue";
    const MOST_NOTES: &str = "bytes of annotations and affinity, more than the 196608 of one object";
    let node = json!({"spec": {"nodeName": "gpu-0"}});
    let critical = json!({"spec": {"priorityClassName": "system-node-critical"}});
    let record = json!({"metadata": {"annotations": {names::ADMISSION: "{}"}}});
    let group = json!({"metadata": {"labels": {names::GROUP: "g"}}});
    let slow = json!({"spec": {"terminationGracePeriodSeconds": 601}});
    let any = json!("11111111-1111-1111-1111-111111111111");
    let of_job = |template: Value| owned(pod(template), "batch/v1", "Job", "job", &any);
    let cluster =
        || object("ray.io/v1", "RayCluster", "cluster", json!({"headGroupSpec": {"template": template(1)}}));
    let device = || json!({"nvidia.com/gpu": "1"});
    let mut many = job(template(1));
    many["spec"]["parallelism"] = 10_001.into();
    let mut long = pod(with(slow.clone()));
    long["metadata"]["annotations"][names::PREEMPTIBLE] = "true".into();
    let ordered = |mut object: Value| {
        object["metadata"]["annotations"][names::TEAM_ORDER] = "9".into();
        object
    };
    vec![
        ("alice", ordered(job(template(1))), ORDER, ""),
        ("alice", ordered(pod(template(1))), ORDER, ""),
        ("alice", job(with(node.clone())), NODE, "spec.template.spec.nodeName \"gpu-0\" must not be set"),
        ("alice", job(with(critical.clone())), CLASS, "system-node-critical is not for workloads of teams"),
        (
            "alice",
            job(with(record.clone())),
            "must not carry marks of Sluice",
            "is not for pods of a workload",
        ),
        (
            "alice",
            job(with(group.clone())),
            "must not carry marks of Sluice",
            "is for pods without a workload",
        ),
        (
            "alice",
            job(with(gates(17))),
            "may have at most 16 scheduling gates",
            "more than the 16 of --max-scheduling-gates",
        ),
        (
            "alice",
            job(with(terms(65))),
            "may have at most 64 terms",
            "more than the 64 of --max-affinity-terms",
        ),
        (
            "alice",
            job(with(terms(3000))),
            "may have at most 64 terms",
            "more than the 64 of --max-affinity-terms",
        ),
        (
            "alice",
            job(with(resources(33))),
            "may ask for at most 32 different resources",
            "more than the 32 of --max-resource-names",
        ),
        (
            "alice",
            job(with(slow.clone())),
            "terminationGracePeriodSeconds may be at most 600",
            "more than the 600 of --max-grace",
        ),
        ("alice", many, "spec.parallelism may be at most 10000", "more than the 10000 of --max-pods"),
        ("alice", pod(with(node.clone())), "spec.nodeName must not be set in a team's namespace", ""),
        ("alice", pod(with(critical.clone())), CLASS, ""),
        (
            "alice",
            pod(with(gates(17))),
            "may have at most 16 scheduling gates",
            "more than the 16 of --max-scheduling-gates",
        ),
        (
            "alice",
            pod(with(terms(65))),
            "may have at most 64 terms",
            "more than the 64 of --max-affinity-terms",
        ),
        (
            "alice",
            pod(with(resources(33))),
            "may ask for at most 32 different resources",
            "more than the 32 of --max-resource-names",
        ),
        (
            "alice",
            long,
            "may be at most 600 on a pod in a team's namespace",
            "more than the 600 of --max-grace",
        ),
        (
            "alice",
            pod(with(slow.clone())),
            "may be at most 600 on a pod in a team's namespace",
            "more than the 600 of --max-grace",
        ),
        ("alice", noted(job(template(1)), 197_000), NOTES, MOST_NOTES),
        ("alice", noted(pod(template(1)), 197_000), NOTES, MOST_NOTES),
        ("alice", noted(training(json!({})), 197_000), NOTES, MOST_NOTES),
        ("alice", labelled(job(template(1)), 257), LABELS, "labels, more than the 256 of one object"),
        ("alice", labelled(training(json!({})), 257), LABELS, "labels, more than the 256 of one object"),
        // Pods of a template that no policy has seen, such as a runtime's.
        (JOBS, of_job(with(node.clone())), "spec.nodeName must not be set in a team's namespace", ""),
        (JOBS, of_job(with(record.clone())), "are written by Sluice alone; leave them out", ""),
        (JOBS, of_job(with(group)), "are for pods without a Job", ""),
        (JOBS, of_job(with(critical.clone())), CLASS, ""),
        ("alice", daemon_set("d", device(), json!({})), DEVICES, ""),
        ("alice", daemon_set("d", json!({}), critical["spec"].clone()), CLASS, ""),
        ("alice", daemon_set("d", json!({}), node["spec"].clone()), NODE, ""),
        (
            "alice",
            ray_job("r", json!({"enableInTreeAutoscaling": true})),
            "enableInTreeAutoscaling lets the pods",
            "",
        ),
        (
            "alice",
            ray_job("r", json!({"headGroupSpec": {"template": node}})),
            NODE,
            "nodeName \"gpu-0\" must not be set",
        ),
        (
            "alice",
            ray_job("r", json!({"workerGroupSpecs": [{"replicas": 1, "template": with(critical.clone())}]})),
            CLASS,
            "system-node-critical is not for workloads of teams",
        ),
        (
            "alice",
            ray_job("r", json!({"headGroupSpec": {"template": with(slow)}})),
            "may be at most 600",
            "more than the 600 of --max-grace",
        ),
        (
            "alice",
            ray_job("r", json!({"headGroupSpec": {"template": with(terms(65))}})),
            "may have at most 64 terms",
            "more than the 64 of --max-affinity-terms",
        ),
        ("alice", training(json!({"elasticPolicy": {"maxReplicas": 9}})), "elasticPolicy lets the pods", ""),
        (
            "alice",
            job_set("s", with(record)),
            "must not carry marks of Sluice",
            "is not for pods of a workload",
        ),
        ("alice", cluster(), CLUSTER, ""),
        ("alice", owned(cluster(), "ray.io/v1", "RayJob", "r", &any), CLUSTER, ""),
        (RAY, owned(cluster(), "ray.io/v1", "RayService", "r", &any), CLUSTER, ""),
        (FALSE_RAY, owned(cluster(), "ray.io/v1", "RayJob", "r", &any), CLUSTER, ""),
    ]
}

/// Each of them is refused, with the sentence of the webhook or of a policy.
pub async fn assert_refusals(world: &World, webhook: bool) -> Result<()> {
    for (account, object, policy, clear) in refusals() {
        let expected = if webhook && !clear.is_empty() { clear } else { policy };
        let outcome = run(world, account, &["create", "-f", "-"], Some(&object)).await?;
        let start: String = object.to_string().chars().take(400).collect();
        ensure!(!outcome.success, "{account} creates {start}; expected: {expected}");
        ensure!(
            outcome.stderr.contains(expected),
            "expected: {expected}; {account} reads: {}",
            outcome.stderr
        );
    }
    Ok(())
}
