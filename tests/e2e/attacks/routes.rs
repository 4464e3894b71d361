//! Routes of a user with the ClusterRole `edit` in the team's namespace, and of one with every right there.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::{View, eventually, patience, stays};

use super::stage::{Attacker, Books, LIMIT, Stage, job, owned_pod, owner, uid, whole};
use crate::support::{Job, queued};

/// The garbage collector's account, to which no policy applies: it strips owners from orphans.
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

/// A UID of an object that does not exist.
const ABSENT: &str = "11111111-1111-1111-1111-111111111111";

/// A patch of a Job.
fn patch<'a>(name: &'a str, patch: &'a str) -> [&'a str; 5] {
    ["patch", "job", name, "--type=merge", patch]
}

/// `-p` of a merge patch.
fn merge(value: &Value) -> String {
    format!("-p={value}")
}

/// A Job gives its pods up, another takes the room, then the first asks for its pods again.
pub async fn shrink_and_grow(stage: &mut Stage<'_>) -> Result<()> {
    let parallelism = |pods: usize| merge(&json!({"spec": {"parallelism": pods}}));
    let names = ["shrinks-0", "shrinks-1", "shrinks-2", "shrinks-3"];
    for name in names {
        stage.alice.create(&job(name, 1).spec("parallelism: 2").manifest()).await?;
        // The capacity is wanted, so the record of the Job before is made smaller.
        stage.runs("a", name, 2).await?;
        stage.alice.tries(&patch(name, &parallelism(0)), None).await?;
    }
    ensure!(
        stage.peak() <= LIMIT,
        "{} GPUs held: what a Job gave up was used before its pods were gone",
        stage.peak()
    );
    // The record of the last Job still has its pods, so it may grow back at once, while its former pods end.
    for name in names {
        stage.alice.tries(&patch(name, &parallelism(2)), None).await?;
    }
    stage.within_limit().await
}

/// `kubectl delete job --cascade=orphan` leaves pods that nothing owns.
pub async fn orphans(stage: &mut Stage<'_>) -> Result<()> {
    for name in ["orphan-0", "orphan-1", "orphan-2", "orphan-3"] {
        stage.alice.create(&job(name, 2).manifest()).await?;
        stage.runs("a", name, 1).await.context("an orphan of the team does not free capacity for its Job")?;
        stage.orphans(&stage.alice, name).await?;
    }
    stage.charged("a", Books { used: 2, unadmitted: 2 }).await?;
    shown(stage).await?;
    ensure!(stage.peak() <= LIMIT, "{} GPUs held: a Job started before the orphans were gone", stage.peak());
    Ok(())
}

/// The status of the team, the command and the metrics show two GPUs that were never admitted.
async fn shown(stage: &Stage<'_>) -> Result<()> {
    eventually("the status of the team shows unadmitted usage", patience(), async || {
        let path = "jsonpath={.status.pools[0].unadmitted.nvidia\\.com/gpu}";
        let shown = stage.world.kubectl.ok(&["get", "team", "a", "-o", path]).await;
        match shown.map_err(|error| format!("{error:#}"))? {
            shown if shown == "2" => Ok(()),
            other => Err(other),
        }
    })
    .await?;
    let replica = stage.world.replicas.last().context("Sluice has no replica")?;
    let metrics = replica.get("/metrics").await?;
    let series = metrics.lines().find(|line| {
        let labels = ["team=\"a\"", "resource=\"nvidia.com/gpu\"", "kind=\"unadmitted\""];
        line.starts_with("sluice_team_resources{") && labels.iter().all(|label| line.contains(label))
    });
    ensure!(series.is_some_and(|line| line.ends_with(" 2")), "the metric is {series:?}");
    let table = crate::limits::says(stage.world, &["teams"]).await?;
    let column = |line: &str, name: &str| line.split_whitespace().position(|word| word == name);
    let header = table.lines().next().unwrap_or_default();
    ensure!(column(header, "UNADMITTED").is_some(), "the table has no such column:\n{table}");
    Ok(())
}

/// A pod is taken from its Job, which makes another.
pub async fn detached_pods(stage: &mut Stage<'_>) -> Result<()> {
    stage.alice.create(&job("detached", 1).manifest()).await?;
    let detach = json!([
        {"op": "remove", "path": "/metadata/ownerReferences"},
        {"op": "replace", "path": "/metadata/labels/batch.kubernetes.io~1controller-uid", "value": "x"},
        {"op": "replace", "path": "/metadata/labels/batch.kubernetes.io~1job-name", "value": "x"},
        {"op": "replace", "path": "/metadata/labels/controller-uid", "value": "x"},
        {"op": "replace", "path": "/metadata/labels/job-name", "value": "x"},
    ]);
    let detach = format!("-p={detach}");
    let collector = stage.account(COLLECTOR);
    let mut refused = false;
    for _ in 0..3 {
        let view = stage.runs("a", "detached", 1).await?;
        let pod = view.running("a").find(|pod| pod.job.as_deref() == Some("detached"));
        let pod = pod.context("the Job has no pod")?.name.clone();
        let patch = ["patch", "pod", &pod, "--type=json", &detach];
        if !stage.alice.tries(&patch, None).await? {
            refused = true;
            ensure!(collector.tries(&patch, None).await?, "also the garbage collector is refused");
        }
    }
    // Three detached pods and the Job's own: those beyond the limit are ended.
    stage.within_limit().await?;
    ensure!(refused, "detaching a pod is not refused");
    Ok(())
}

fn set_of(name: &str, pod_spec: &Value, resources: &Value) -> String {
    let mut spec = json!({"terminationGracePeriodSeconds": 2, "containers": [
        {"name": "main", "image": "registry.example/agent", "resources": {"limits": resources}},
    ]});
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, pod_spec) {
        spec.extend(more.clone());
    }
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "a"},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    })
    .to_string()
}

/// Pods of a DaemonSet need no admission.
pub async fn daemon_set(stage: &mut Stage<'_>) -> Result<()> {
    // One without devices is as free as everywhere.
    stage.alice.create(&set_of("agent", &json!({}), &json!({"cpu": "1"}))).await?;
    running(stage, "agent", 2).await?;
    let devices = json!({"nvidia.com/gpu": 8});
    let made = stage.alice.tries_to_create(&set_of("takes-all", &json!({}), &devices)).await?;
    let grow =
        json!([{"op": "add", "path": "/spec/template/spec/containers/0/resources/limits", "value": devices}]);
    let grown = stage
        .alice
        .tries(&["patch", "daemonset", "agent", "--type=json", &format!("-p={grow}")], None)
        .await?;
    if made {
        running(stage, "takes-all", 2).await?;
    }
    ensure!(!made, "a DaemonSet with devices is not refused");
    ensure!(!grown, "an update that adds devices to a DaemonSet is not refused");
    Ok(())
}

/// Waits until this many pods with a name that begins so run.
async fn running(stage: &Stage<'_>, prefix: &str, count: usize) -> Result<View> {
    let what = format!("{count} pods of {prefix} run");
    stage
        .world
        .until(&what, |view| {
            let running = view.running("a").filter(|pod| pod.name.starts_with(prefix)).count();
            if running == count { Ok(()) } else { Err(view.summary("a")) }
        })
        .await
}

/// The system's priority classes make the scheduler evict other teams' pods.
pub async fn system_priority(stage: &mut Stage<'_>) -> Result<()> {
    let class = "system-node-critical";
    let agent = set_of("urgent", &json!({"priorityClassName": class}), &json!({"cpu": "1"}));
    let agent = stage.alice.tries_to_create(&agent).await?;
    let line = format!("priorityClassName: {class}");
    let made = stage.alice.tries_to_create(&job("urgent", 2).pod_spec(&line).manifest()).await?;
    ensure!(!agent, "a DaemonSet of class {class} is not refused");
    ensure!(!made, "a Job of class {class} is not refused");
    Ok(())
}

/// A controlling owner that does not exist.
fn absent() -> Value {
    owner("ray.io/v1", "RayCluster", "absent", ABSENT)
}

/// Puts a controlling owner onto an admitted Job: alice must be refused, so the garbage collector's account does it.
async fn disown(stage: &Stage<'_>, name: &str) -> Result<bool> {
    let owned = merge(&json!({"metadata": {"ownerReferences": absent()}}));
    let refused = !stage.alice.tries(&patch(name, &owned), None).await?;
    if refused {
        let collector = stage.account(COLLECTOR);
        ensure!(collector.tries(&patch(name, &owned), None).await?, "also the garbage collector is refused");
    }
    Ok(refused)
}

/// An owner of a watched kind takes an admitted Job out of Sluice's care; its deletion must not leave a phantom.
pub async fn owner_of_an_admitted_job(stage: &mut Stage<'_>) -> Result<()> {
    stage.alice.create(&job("owned", 2).manifest()).await?;
    stage.runs("a", "owned", 1).await?;
    let refused = disown(stage, "owned").await?;
    stage.charged("a", Books { used: 2, unadmitted: 0 }).await?;
    free_on_nodes(stage, 62).await?;
    stage.alice.create(&job("next", 2).manifest()).await?;
    let next = queued(stage.world, "a", 1).await?;
    ensure!(next.job("a", "next").is_some_and(|job| job.suspended), "the next Job does not wait");
    stage.world.kubectl.ok(&["delete", "job", "owned", "--namespace=a", "--wait=false"]).await?;
    stage.runs("a", "next", 1).await.context("a phantom holds the quota")?;
    stage.world.kubectl.ok(&["delete", "job", "next", "--namespace=a", "--wait=false"]).await?;
    stage.world.kubectl.create(&whole("owner").manifest()).await?;
    stage.runs("b", "owner", 2).await.context("a phantom holds nodes")?;
    ensure!(refused, "a new controlling owner of an admitted Job is not refused");
    Ok(())
}

/// The nodes have this many free GPUs in Sluice's books: nothing is counted twice.
async fn free_on_nodes(stage: &Stage<'_>, free: u64) -> Result<()> {
    eventually(&format!("the nodes have {free} free GPUs"), patience(), async || {
        let nodes = stage.ask(json!({"nodes": {}})).await.map_err(|error| format!("{error:#}"))?;
        let sum: u64 =
            nodes.as_array().into_iter().flatten().filter_map(|node| node["gpusFree"].as_u64()).sum();
        if sum == free { Ok(()) } else { Err(format!("{sum} are free: {nodes}")) }
    })
    .await
}

/// The same Job, and Sluice starts again: the Job must still be charged.
pub async fn owner_over_a_restart(stage: &mut Stage<'_>) -> Result<()> {
    stage.alice.create(&job("owned", 2).manifest()).await?;
    stage.runs("a", "owned", 1).await?;
    let refused = disown(stage, "owned").await?;
    stage.restart().await?;
    stage.charged("a", Books { used: 2, unadmitted: 0 }).await?;
    stage.alice.create(&job("next", 2).manifest()).await?;
    stage.waits("a", "next").await?;
    ensure!(refused, "a new controlling owner of an admitted Job is not refused");
    ensure!(stage.peak() <= LIMIT, "{} GPUs held", stage.peak());
    Ok(())
}

/// Owners in the manifests of new Jobs and pods.
pub async fn forged_owners(stage: &mut Stage<'_>) -> Result<()> {
    stage.alice.create(&job("holder", 2).manifest()).await?;
    stage.runs("a", "holder", 1).await?;
    let text = stage.alice.kubectl(&["get", "job", "holder", "-o", "json"], None).await?.stdout;
    let holder: Value = serde_json::from_str(&text)?;
    let real = owner("batch/v1", "Job", "holder", uid(&holder)?);
    for (name, owners) in [("of-absent", absent()), ("of-holder", real.clone())] {
        let manifest = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
                {"name": "main", "image": "registry.example/train", "resources": {"limits": {"nvidia.com/gpu": 2}}},
            ]}}},
        });
        if let Some(stored) = created(&stage.alice, &manifest.to_string()).await? {
            ensure!(stored["spec"]["suspend"] == true, "Job {name} is not held: {stored}");
        }
    }
    let set = owner("apps/v1", "DaemonSet", "absent", ABSENT);
    for (name, owners) in [("pod-of-holder", real), ("pod-of-absent", absent()), ("pod-of-set", set)] {
        gated(&stage.alice, name, &owners).await?;
    }
    Ok(())
}

/// The object as stored; nothing if Sluice has refused it with a sentence.
async fn created(attacker: &Attacker, manifest: &str) -> Result<Option<Value>> {
    let dry = ["create", "--dry-run=server", "-f", "-"];
    if attacker.tries(&dry, Some(manifest)).await? {
        attacker.create(manifest).await.map(Some)
    } else {
        Ok(None)
    }
}

/// A pod with this owner is held by a gate, or refused.
pub async fn gated(attacker: &Attacker, name: &str, owners: &Value) -> Result<()> {
    if let Some(stored) = created(attacker, &owned_pod(name, 8, owners)).await? {
        let gates = stored["spec"]["schedulingGates"].as_array().map_or(&[][..], Vec::as_slice);
        ensure!(
            gates.iter().any(|gate| gate["name"] == names::GATE_ADMISSION),
            "{name} is not held: {owners}"
        );
    }
    Ok(())
}

/// The record is taken off a running Job, under Sluice's own account, as a user must not.
pub async fn record_forged_away(stage: &mut Stage<'_>) -> Result<()> {
    stage.alice.create(&job("forgotten", 2).manifest()).await?;
    stage.runs("a", "forgotten", 1).await?;
    let forget = merge(&json!({"metadata": {"annotations": {(names::ADMISSION): null}}}));
    stage.alice.refused("taking the record off", &patch("forgotten", &forget), None).await?;
    let sluice = stage.account(names::ACCOUNT);
    ensure!(sluice.tries(&patch("forgotten", &forget), None).await?, "Sluice's own account is refused");
    stage.alice.create(&job("next", 2).manifest()).await?;
    stage.within_limit().await?;
    ensure!(stage.peak() <= LIMIT, "{} GPUs held", stage.peak());
    Ok(())
}

/// Pods that never end keep borrowed capacity for ever.
pub async fn grace_of_a_year(stage: &mut Stage<'_>) -> Result<()> {
    let year = "terminationGracePeriodSeconds: 31536000";
    let manifest = Job::new("a", "slow").pod_spec(year).manifest();
    stage.alice.refused_to_create("a Job with a grace period of a year", &manifest).await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "slow"},
        "spec": {"terminationGracePeriodSeconds": 31_536_000, "containers": [{"name": "main", "image": "x"}]},
    });
    stage.alice.refused_to_create("a pod with a grace period of a year", &pod.to_string()).await
}

/// A Job with a pod that carries a forged record: it belongs to a group with the UID of another team's workload.
fn forger(namespace: &str, victim: &str) -> String {
    let record = json!({
        "pool": "default", "nodes": {}, "pods": 1, "borrowed": false, "at": "2026-11-22T00:00:00Z",
        "group": {"id": victim, "members": {}},
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "forger", "namespace": namespace, "annotations": {(names::GROUP_SIZE): "1"}},
        "spec": {"template": {
            "metadata": {
                "labels": {(names::GROUP): "g"},
                "annotations": {
                    (names::GROUP_SIZE): "1", (names::ADMISSION): record.to_string(),
                    "simulate.sluice.dev/duration": "3s",
                },
            },
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/x"}]},
        }},
    })
    .to_string()
}

/// When the forger's pod ends, a waiting Job of another team must not be forgotten.
pub async fn forged_group(stage: &mut Stage<'_>) -> Result<()> {
    stage.world.kubectl.create(&whole("filler").manifest()).await?;
    stage.runs("b", "filler", 2).await?;
    stage.world.kubectl.create(&whole("victim").manifest()).await?;
    stage.waits("b", "victim").await?;
    let victim =
        stage.world.view().await?.job("b", "victim").context("the victim does not exist")?.uid.clone();
    let made = stage.alice.tries_to_create(&forger("a", &victim)).await?;
    if made {
        ended(stage, "a").await?;
    }
    // What ran before its namespace belonged to a team was never judged.
    stage.world.kubectl.ok(&["create", "namespace", "outside"]).await?;
    stage.world.kubectl.create(&forger("outside", &victim)).await?;
    stage.world.kubectl.ok(&["label", "namespace", "outside", "sluice.dev/team=c"]).await?;
    ended(stage, "outside").await?;
    stage.world.kubectl.ok(&["delete", "namespace", "outside", "--wait=false"]).await?;
    stage.waits("b", "victim").await.context("Sluice has forgotten the victim")?;
    stage.world.kubectl.ok(&["delete", "job", "filler", "--namespace=b", "--wait=false"]).await?;
    stage.runs("b", "victim", 2).await?;
    ensure!(!made, "marks of Sluice in a pod template are not refused");
    Ok(())
}

/// Waits until the forger has run, and deletes it.
async fn ended(stage: &Stage<'_>, namespace: &str) -> Result<()> {
    stage
        .world
        .until("the forger is complete", |view| match view.job(namespace, "forger") {
            Some(job) if job.complete => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await?;
    stage.world.kubectl.ok(&["delete", "job", "forger", "--namespace", namespace]).await.map(drop)
}

/// A node named in the template of a Job passes by the scheduler.
pub async fn node_in_the_template(stage: &mut Stage<'_>) -> Result<()> {
    let manifest = job("pinned", 1).pod_spec("nodeName: gpu-0").manifest();
    stage.alice.refused_to_create("a node in the template of a Job", &manifest).await
}

/// A waiting pod that claims to be of a DaemonSet is not resized.
pub async fn resize_by_a_forged_owner(stage: &mut Stage<'_>) -> Result<()> {
    stage.alice.create(&job("holder", 2).manifest()).await?;
    stage.runs("a", "holder", 1).await?;
    let set = owner("x.y/v1", "DaemonSet", "absent", ABSENT);
    let Some(_) = created(&stage.nora, &owned_pod("grows", 1, &set)).await? else { return Ok(()) };
    let resize = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "4"}}}]}});
    let arguments = ["patch", "pod", "grows", "--subresource=resize", &merge(&resize)];
    stage.nora.refused("a resize of a pod with a forged owner", &arguments, None).await
}

/// Every right in a namespace includes that of operators to create children there.
pub async fn owner_of_a_namespace(stage: &mut Stage<'_>) -> Result<()> {
    stage.alice.create(&job("holder", 2).manifest()).await?;
    stage.runs("a", "holder", 1).await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let map = stage.nora.create(&map.to_string()).await?;
    let mut faults = Vec::new();
    let training = owner("kubeflow.org/v1", "PyTorchJob", "absent", ABSENT);
    for (name, owners) in
        [("of-map", owner("v1", "ConfigMap", "owner", uid(&map)?)), ("of-training", training)]
    {
        faults.extend(gated(&stage.nora, name, &owners).await.err());
    }
    // An account that is known as an operator's, in a namespace that an attacker has.
    let bind = [
        "create",
        "rolebinding",
        "borrowed-operator",
        "--clusterrole=edit",
        "--serviceaccount=default:kuberay-operator",
    ];
    stage.nora.kubectl(&bind, None).await?;
    let operator = stage.account("system:serviceaccount:default:kuberay-operator");
    faults
        .extend(gated(&operator, "of-operator", &owner("v1", "ConfigMap", "owner", uid(&map)?)).await.err());
    if let Some(fault) = faults.into_iter().reduce(|all, one| all.context(format!("{one:#}"))) {
        // The scheduler is given the time to show what it costs.
        let nothing =
            |view: &View| if super::stage::held(view, "a") <= LIMIT { Ok(()) } else { Err(String::new()) };
        let _ = stays(&stage.world.client, "nothing more runs", Duration::from_secs(3), nothing).await;
        bail!(fault);
    }
    Ok(())
}

/// Rights on namespaces alone do not give a team's quota.
const SELF_SERVICE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: self-service}
rules: [{apiGroups: [''], resources: [namespaces], verbs: [get, create, update, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: self-service}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: self-service}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: self-service}]
";

/// A right to label a namespace alone gives no team's quota, and no way out of a team's books.
pub async fn label_of_a_namespace(stage: &mut Stage<'_>) -> Result<()> {
    stage.world.kubectl.apply(SELF_SERVICE).await?;
    stage.alice.create(&job("stays", 2).manifest()).await?;
    stage.runs("a", "stays", 1).await?;
    let service = stage.account("self-service");
    let mine = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}});
    let made = service.kubectl(&["apply", "-f", "-"], Some(&mine.to_string())).await?;
    ensure!(made.success, "a plain namespace is refused: {}", made.stderr);
    let labelled = service.tries(&["label", "namespace", "mine", "sluice.dev/team=b"], None).await?;
    let moved = service.tries(&["label", "namespace", "a", "--overwrite", "sluice.dev/team=b"], None).await?;
    let left = service.tries(&["label", "namespace", "a", "sluice.dev/team-"], None).await?;
    // Other labels are no concern of Sluice.
    ensure!(
        service.tries(&["label", "namespace", "a", "--overwrite", "color=blue"], None).await?,
        "color is refused"
    );
    let outcome = stage.charged("a", Books { used: 2, unadmitted: 0 }).await;
    stage.world.kubectl.ok(&["label", "namespace", "a", "--overwrite", "sluice.dev/team=a"]).await?;
    stage.world.kubectl.ok(&["delete", "namespace", "mine", "--wait=false"]).await?;
    outcome?;
    for (what, done) in
        [("to join team b", labelled), ("to move to team b", moved), ("to leave team a", left)]
    {
        ensure!(!done, "labelling a namespace {what} is not refused");
    }
    Ok(())
}
