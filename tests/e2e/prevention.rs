//! The ways around the quota that objects of a team's namespace could open, each refused where it starts: with the
//! webhook, and by the policies of the API server alone. What users and operators do every day passes.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::{Outcome, User, World, eventually, patience};

use crate::kinds::{definition, serve, template};
use crate::support::{Job, SLUICE, namespace, nodes, running, team};

const RAY: &str = "system:serviceaccount:kuberay-system:kuberay-operator";
const SETS: &str = "system:serviceaccount:jobset-system:jobset-controller-manager";
/// An account with the rights of an operator that no manifest binds.
const FALSE_RAY: &str = "system:serviceaccount:default:kuberay-operator";
const JOBS: &str = "system:serviceaccount:kube-system:job-controller";

/// Alice owns the namespace: she may do everything in it. The operators may make and change its objects.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: owner, namespace: a}
rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: owner, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: owner}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
- {kind: ServiceAccount, name: kuberay-operator, namespace: kuberay-system}
- {kind: ServiceAccount, name: kuberay-operator, namespace: default}
- {kind: ServiceAccount, name: jobset-controller-manager, namespace: jobset-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: alice-edits}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
";

/// Runs kubectl in namespace `a` as Alice, or as this account.
async fn run(world: &World, account: &str, arguments: &[&str], input: Option<&Value>) -> Result<Outcome> {
    let input = input.map(Value::to_string);
    let mut all: Vec<&str> = arguments.to_vec();
    if !arguments.iter().any(|argument| argument.starts_with("--namespace")) {
        all.push("--namespace=a");
    }
    if account == "alice" {
        return world.cluster.kubectl(User::Alice).run(&all, input.as_deref()).await;
    }
    let account = format!("--as={account}");
    all.push(&account);
    world.kubectl.run(&all, input.as_deref()).await
}

async fn create(world: &World, account: &str, object: &Value) -> Result<()> {
    let outcome = run(world, account, &["create", "-f", "-"], Some(object)).await?;
    ensure!(outcome.success, "{account} creates {object}: {}", outcome.stderr);
    Ok(())
}

/// A request of Alice that passes.
async fn passes(world: &World, arguments: &[&str]) -> Result<Outcome> {
    let outcome = run(world, "alice", arguments, None).await?;
    ensure!(outcome.success, "{arguments:?}: {}", outcome.stderr);
    Ok(outcome)
}

/// A request of Alice that is refused with this sentence.
async fn refused(world: &World, arguments: &[&str], sentence: &str) -> Result<()> {
    let outcome = run(world, "alice", arguments, None).await?;
    ensure!(!outcome.success && outcome.stderr.contains(sentence), "{arguments:?}: {outcome:?}");
    Ok(())
}

async fn get(world: &World, what: &[&str]) -> Result<Value> {
    let arguments: Vec<&str> = ["get"].iter().chain(what).chain(&["-o", "json"]).copied().collect();
    let outcome = run(world, "alice", &arguments, None).await?;
    serde_json::from_str(&outcome.stdout).with_context(|| outcome.stderr)
}

/// A template with changes.
fn with(change: Value) -> Value {
    let mut changed = template(1);
    json_patch::merge(&mut changed, &change);
    changed
}

fn object(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn job(template: Value) -> Value {
    object("batch/v1", "Job", "job", json!({"template": template}))
}

fn pod(template: Value) -> Value {
    let mut pod = object("v1", "Pod", "pod", template["spec"].clone());
    if template["metadata"].is_object() {
        json_patch::merge(&mut pod, &json!({"metadata": template["metadata"]}));
    }
    pod
}

fn daemon_set(name: &str, limits: Value, spec: Value) -> Value {
    let mut pods = json!({"containers": [{"name": "m", "image": "x", "resources": {"limits": limits}}]});
    json_patch::merge(&mut pods, &spec);
    let labels = json!({"app": name});
    let spec = json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pods}});
    object("apps/v1", "DaemonSet", name, spec)
}

fn ray_job(name: &str, cluster: Value) -> Value {
    let mut spec = json!({"headGroupSpec": {"template": template(1)}});
    json_patch::merge(&mut spec, &cluster);
    object("ray.io/v1", "RayJob", name, json!({"rayClusterSpec": spec}))
}

fn training(spec: Value) -> Value {
    let mut all = json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template(1)}}});
    json_patch::merge(&mut all, &spec);
    object("kubeflow.org/v1", "PyTorchJob", "training", all)
}

fn job_set(name: &str, template: Value) -> Value {
    let job = json!({"name": "w", "replicas": 1, "template": {"spec": {"template": template}}});
    object("jobset.x-k8s.io/v1alpha2", "JobSet", name, json!({"replicatedJobs": [job]}))
}

fn owned(mut object: Value, api_version: &str, kind: &str, name: &str, uid: &Value) -> Value {
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}]);
    object
}

fn terms(count: usize) -> Value {
    let terms: Vec<Value> = (0..count)
        .map(|n| json!({"matchExpressions": [{"key": format!("k{n}"), "operator": "Exists"}]}))
        .collect();
    json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}})
}

fn gates(count: usize) -> Value {
    let gates: Vec<Value> = (0..count).map(|n| json!({"name": format!("example.com/g{n}")})).collect();
    json!({"spec": {"schedulingGates": gates}})
}

fn resources(count: usize) -> Value {
    let limits: serde_json::Map<String, Value> =
        (0..count).map(|n| (format!("x.y/r{n}"), json!("1"))).collect();
    json!({"spec": {"containers": [{"name": "m", "image": "x", "resources": {"limits": limits}}]}})
}

/// What the policies say of too many annotations, and of too many labels.
const NOTES: &str = "The annotations may be at most 256, and 192 KiB in all";
const LABELS: &str = "may have at most 256 labels";

/// An object with an annotation of so many bytes.
fn noted(mut object: Value, bytes: usize) -> Value {
    object["metadata"]["annotations"]["example.com/note"] = "x".repeat(bytes).into();
    object
}

/// An object with so many labels.
fn labelled(mut object: Value, count: usize) -> Value {
    let labels = (0..count).map(|n| (format!("l{n}"), json!(""))).collect::<serde_json::Map<_, _>>();
    object["metadata"]["labels"] = labels.into();
    object
}

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

async fn assert_refusals(world: &World, webhook: bool) -> Result<()> {
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
        let running = Running::start(world).await?;
        running.keeps_its_terms(world).await?;
        world.replicas.clear();
        assert_refusals(world, false).await?;
        running.keeps_its_terms(world).await
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

async fn running_pods_stay_with_their_job(world: &World) -> Result<()> {
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
    refused(world, &["patch", "job", "first", "--type=merge", "-p", other], "The controlling owner of a Job")
        .await?;

    // A smaller Job is granted less, and does not grow back by itself.
    let pods = |count: u32| json!({"spec": {"parallelism": count}}).to_string();
    passes(world, &["patch", "job", "first", "--type=merge", "-p", &pods(1)]).await?;
    running(world, "a", 1).await?;
    refused(world, &["patch", "job", "first", "--type=merge", "-p", &pods(3)], "pods it was granted").await?;
    // The same manifest can be applied again.
    alice.apply(&manifest).await?;
    Ok(())
}

/// A Job, a pod and an object of a custom kind that run, named `kept`.
struct Running;

impl Running {
    async fn start(world: &World) -> Result<Self> {
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
    async fn keeps_its_terms(&self, world: &World) -> Result<()> {
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
        const GRACE: &str = "may be deleted with a grace period of at most 600 seconds";
        for what in ["kept", "--all"] {
            refused(world, &["delete", "pods", what, "--grace-period=31536000", "--wait=false"], GRACE)
                .await?;
            for grace in ["600", "0", "-1"] {
                let grace = format!("--grace-period={grace}");
                passes(world, &["delete", "pods", what, &grace, "--dry-run=server"]).await?;
            }
        }
        let evicted = async |grace: u64| {
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "kept", "namespace": "a"},
                "deleteOptions": {"gracePeriodSeconds": grace, "dryRun": ["All"]},
            });
            let path = "/api/v1/namespaces/a/pods/kept/eviction?dryRun=All";
            run(world, "alice", &["create", "--raw", path, "-f", "-"], Some(&eviction)).await
        };
        let outcome = evicted(31_536_000).await?;
        ensure!(!outcome.success && outcome.stderr.contains(GRACE), "{outcome:?}");
        let outcome = evicted(600).await?;
        ensure!(outcome.success, "{outcome:?}");
        Ok(())
    }
}

/// A merge patch of Alice, as a file: it may be longer than an argument.
async fn merged(world: &World, what: &str, change: &Value) -> Result<Outcome> {
    let patch = ["patch", what, "--type=merge", "--patch-file=/dev/stdin"];
    run(world, "alice", &patch, Some(change)).await
}

async fn growth_is_refused(world: &World) -> Result<()> {
    create(world, "alice", &training(json!({}))).await?;
    let scale = ["scale", "pytorchjob/training", "--replicas=50"];
    refused(world, &scale, "Sluice admits all pods of this workload together").await?;
    passes(world, &["scale", "pytorchjob/training", "--replicas=1"]).await?;
    passes(world, &["delete", "pytorchjob", "training"]).await?;
    Ok(())
}

async fn operators_make_children_of_workloads_alone(world: &World) -> Result<()> {
    create(world, "alice", &ray_job("ray", json!({}))).await?;
    let uid = get(world, &["rayjob", "ray"]).await?["metadata"]["uid"].clone();
    let cluster =
        object("ray.io/v1", "RayCluster", "below", json!({"headGroupSpec": {"template": template(1)}}));
    create(world, RAY, &owned(cluster, "ray.io/v1", "RayJob", "ray", &uid)).await?;
    let grow = r#"{"spec":{"workerGroupSpecs":[{"replicas":50}]}}"#;
    let patch = ["patch", "raycluster", "below", "--type=merge", "-p", grow];
    refused(world, &patch, "keeps the pods that were admitted with its RayJob").await?;
    let leave = r#"{"metadata":{"ownerReferences":null}}"#;
    let patch = ["patch", "raycluster", "below", "--type=merge", "-p", leave];
    refused(world, &patch, "keeps its controlling owner").await?;
    passes(world, &["label", "raycluster", "below", "mine=yes"]).await?;
    let shrink = run(world, RAY, &["patch", "raycluster", "below", "--type=merge", "-p", grow], None).await?;
    ensure!(shrink.success, "its operator: {}", shrink.stderr);

    // Only the operator's account makes pods without a gate, and only below its own kinds.
    let uid = get(world, &["raycluster", "below"]).await?["metadata"]["uid"].clone();
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    create(world, "alice", &config).await?;
    let config = get(world, &["configmap", "c"]).await?["metadata"]["uid"].clone();
    for (account, api_version, kind, name, uid, gated) in [
        (RAY, "ray.io/v1", "RayCluster", "below", &uid, false),
        (FALSE_RAY, "ray.io/v1", "RayCluster", "below", &uid, true),
        (SETS, "ray.io/v1", "RayCluster", "below", &uid, true),
        ("alice", "ray.io/v1", "RayCluster", "below", &uid, true),
        ("alice", "v1", "ConfigMap", "c", &config, true),
        (RAY, "v1", "ConfigMap", "c", &config, true),
    ] {
        create(world, account, &owned(pod(template(8)), api_version, kind, name, uid)).await?;
        let stored = get(world, &["pod", "pod"]).await?;
        let gate = stored["spec"]["schedulingGates"][0]["name"] == names::GATE_ADMISSION;
        ensure!(gate == gated, "{account} below {kind}: {stored}");
        passes(world, &["delete", "pod", "pod", "--grace-period=0", "--force"]).await?;
    }

    // A Job below a set belongs to the set: it starts by itself, and its user cannot make it larger, also suspended.
    create(world, "alice", &job_set("set", template(1))).await?;
    let uid = get(world, &["jobset", "set"]).await?["metadata"]["uid"].clone();
    let below = |template: Value| owned(job(template), "jobset.x-k8s.io/v1alpha2", "JobSet", "set", &uid);
    let pinned = below(with(json!({"spec": {"nodeName": "gpu-0"}})));
    let outcome = run(world, SETS, &["create", "-f", "-"], Some(&pinned)).await?;
    ensure!(!outcome.success && outcome.stderr.contains("must not set spec.nodeName"), "{outcome:?}");
    create(world, SETS, &below(template(1))).await?;
    let stored = get(world, &["job", "job"]).await?;
    ensure!(stored["spec"]["suspend"] == false && stored["metadata"]["annotations"].is_null(), "{stored}");
    let grow = r#"{"spec":{"suspend":true,"parallelism":8}}"#;
    let patch = ["patch", "job", "job", "--type=merge", "-p", grow];
    refused(world, &patch, "belongs to another workload and keeps the pods").await?;
    for suspend in [true, false] {
        let patch = json!({"spec": {"suspend": suspend}}).to_string();
        let outcome = run(world, SETS, &["patch", "job", "job", "--type=merge", "-p", &patch], None).await?;
        ensure!(outcome.success, "its operator: {}", outcome.stderr);
    }
    // Children first: the garbage collector deletes those of a deleted object at any time.
    passes(world, &["delete", "job/job", "jobset/set", "raycluster/below", "rayjob/ray", "configmap/c"])
        .await?;
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
