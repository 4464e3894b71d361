//! Objects of custom kinds as workloads. Their definitions are minimal, and the test replaces their
//! controllers: it creates and removes children and writes statuses under the controllers' accounts, at the
//! moments when they would. Sluice, the API server, the Job controller and the scheduler are real.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::{User, World, eventually, patience};

use crate::support::{Job, SLUICE, nodes, running, team};

/// A minimal definition of a kind.
pub fn definition(group: &str, version: &str, kind: &str, plural: &str) -> String {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}},
            }],
        },
    })
    .to_string()
}

/// Adds a kind to the cluster, and waits until an object of it can be created: the API server serves a kind a
/// moment after it reports it as established.
pub async fn serve(world: &World, definition: &str, object: &Value) -> Result<()> {
    world.kubectl.apply(definition).await?;
    eventually("the kind is served", patience(), async || {
        let made =
            world.kubectl.run(&["create", "--dry-run=server", "-f", "-"], Some(&object.to_string())).await;
        let made = made.map_err(|error| error.to_string())?;
        if made.success { Ok(()) } else { Err(made.stderr) }
    })
    .await
}

/// The rights of a controller's account in the team's namespace besides creating children.
fn rights(account: &str, group: &str, plural: &str) -> String {
    let (namespace, name) = account.split_once('/').expect("NAMESPACE/NAME");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": plural, "namespace": "a"},
        "rules": [
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
            {"apiGroups": [group], "resources": [plural, format!("{plural}/status")], "verbs": ["*"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": plural, "namespace": "a"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": plural},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [role, binding]}).to_string()
}

/// Alice may write objects of these kinds, besides the rights of every team member.
const ALICE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: alice, namespace: a}
rules: [{apiGroups: ['', batch, jobset.x-k8s.io, kubeflow.org], resources: ['*'], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: alice}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
";

/// The controller of a kind, played by the test.
struct Operator<'a> {
    world: &'a World,
    account: String,
    resource: &'static str,
}

impl Operator<'_> {
    async fn kubectl(&self, arguments: &[&str], input: Option<&Value>) -> Result<()> {
        let account = format!("--as={}", self.account);
        let arguments: Vec<&str> = arguments.iter().copied().chain([&*account, "--namespace=a"]).collect();
        let text = input.map(Value::to_string);
        let outcome = self.world.kubectl.run(&arguments, text.as_deref()).await?;
        ensure!(outcome.success, "the operator's kubectl {arguments:?}: {}", outcome.stderr);
        Ok(())
    }

    async fn create(&self, object: &Value) -> Result<()> {
        self.kubectl(&["create", "-f", "-"], Some(object)).await
    }

    async fn suspend_job(&self, name: &str, suspend: bool) -> Result<()> {
        let patch = json!({"spec": {"suspend": suspend}}).to_string();
        self.kubectl(&["patch", "job", name, "--type=merge", "-p", &patch], None).await
    }

    /// Writes a condition into the status of the controller's object.
    async fn says(&self, name: &str, condition: &str, status: bool) -> Result<()> {
        let status = if status { "True" } else { "False" };
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({
            "type": condition, "status": status, "reason": "Test", "message": "", "lastTransitionTime": now,
        });
        let patch = json!({"status": {"conditions": [condition]}}).to_string();
        let target = self.resource;
        self.kubectl(&["patch", target, name, "--subresource=status", "--type=merge", "-p", &patch], None)
            .await
    }

    async fn object(&self, name: &str) -> Result<Value> {
        let text =
            self.world.kubectl.ok(&["get", self.resource, name, "--namespace=a", "-o", "json"]).await?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Waits until the controller's object meets a condition.
    async fn until(&self, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(&format!("{name} {what}"), patience(), async || {
            let object = self.object(name).await.map_err(|error| error.to_string())?;
            if check(&object) { Ok(object) } else { Err(object.to_string()) }
        })
        .await
    }

    /// The owner reference that a child of the object carries.
    fn owner(&self, object: &Value) -> Value {
        json!([{
            "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
            "uid": object["metadata"]["uid"], "controller": true,
        }])
    }
}

fn note<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

fn admitted(object: &Value, suspend: &str) -> bool {
    object.pointer(suspend) == Some(&false.into()) && note(object, names::ADMISSION).is_some()
}

fn queued(object: &Value, suspend: &str) -> bool {
    object.pointer(suspend) == Some(&true.into())
        && note(object, names::HELD).is_some()
        && note(object, names::ADMISSION).is_none()
}

pub fn template(gpus: u64) -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "main", "image": "registry.example/train", "resources": {"limits": {"nvidia.com/gpu": gpus}}},
    ]}})
}

/// Two Jobs of two pods with a GPU each, and a driver without one.
pub fn job_set(name: &str) -> Value {
    let driver = json!({"spec": {"restartPolicy": "Never", "containers": [
        {"name": "main", "image": "registry.example/drive", "resources": {"requests": {"cpu": "1"}}},
    ]}});
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name, "namespace": "a"},
        "spec": {"replicatedJobs": [
            {"name": "driver", "replicas": 1, "template": {"spec": {"template": driver}}},
            {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2, "template": template(1)}}},
        ]},
    })
}

/// Number of writes of Sluice on objects of a resource.
fn writes(world: &World, resource: &str) -> Result<usize> {
    Ok(world.cluster.audit().by(names::ACCOUNT)?.iter().filter(|write| write.resource == resource).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_set_is_one_gang_and_its_jobs_start_with_it() {
    World::run("job-set", SLUICE, 1, async |world| {
        const SUSPEND: &str = "/spec/suspend";
        world.apply(&format!("{}{}{}", nodes(2, 2), team("a", 0), team("b", 4))).await?;
        // Sluice already runs when the kind is added.
        let definition = definition("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets");
        serve(world, &definition, &job_set("dry")).await?;
        world
            .kubectl
            .apply(&rights("jobset-system/jobset-controller-manager", "jobset.x-k8s.io", "jobsets"))
            .await?;
        world.kubectl.apply(ALICE).await?;
        let alice = world.cluster.kubectl(User::Alice);
        let operator = Operator {
            world,
            account: "system:serviceaccount:jobset-system:jobset-controller-manager".into(),
            resource: "jobsets",
        };

        // The set is held from its creation, and started by one write.
        let dry = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
        let dry = alice.run(&dry, Some(&job_set("dry").to_string())).await?;
        let stored: Value = serde_json::from_str(&dry.stdout).with_context(|| dry.stderr)?;
        ensure!(queued(&stored, SUSPEND), "not held: {stored}");
        alice.create(&job_set("train").to_string()).await?;
        let object = operator.until("train", "is admitted", |object| admitted(object, SUSPEND)).await?;
        ensure!(writes(world, "jobsets")? == 1, "admitting took {} writes", writes(world, "jobsets")?);
        let record: Value = serde_json::from_str(note(&object, names::ADMISSION).unwrap_or_default())?;
        ensure!(record["pods"] == 4 && record["nodes"] == json!({"gpu-0": 2, "gpu-1": 2}), "{record}");

        // Its Jobs start at once, and their pods go to the planned nodes.
        for (job, role) in [("train-driver-0", 0), ("train-workers-0", 1), ("train-workers-1", 1)] {
            let spec = &object["spec"]["replicatedJobs"][role]["template"]["spec"];
            operator
                .create(&json!({
                    "apiVersion": "batch/v1", "kind": "Job",
                    "metadata": {"name": job, "namespace": "a", "ownerReferences": operator.owner(&object)},
                    "spec": spec,
                }))
                .await?;
        }
        let view = running(world, "a", 5).await?;
        for job in view.jobs_in("a") {
            ensure!(!job.suspended && !job.held && job.admission.is_none(), "{job:?}");
        }
        let answer = world.replicas[0].workloads().await?.to_string();
        ensure!(answer.contains("\"JobSet\"") && !answer.contains("train-workers"), "{answer}");

        // A user can neither start a queued set nor create children past the queue.
        alice.create(&job_set("next").to_string()).await?;
        let next = operator.until("next", "is queued", |object| queued(object, SUSPEND)).await?;
        let start = [
            "patch",
            "jobset",
            "next",
            "--namespace=a",
            "--type=merge",
            "-p",
            r#"{"spec":{"suspend":false}}"#,
        ];
        let refusal = alice.refused(&start).await?;
        ensure!(refusal.contains("only Sluice starts it"), "{refusal}");
        let child = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "forged", "namespace": "a", "ownerReferences": operator.owner(&next)},
            "spec": {"template": template(1)},
        });
        alice.create(&child.to_string()).await?;
        let view = world.view().await?;
        ensure!(view.job("a", "forged").is_some_and(|job| job.suspended), "{}", view.summary("a"));
        let grow = r#"{"spec":{"replicatedJobs":[]}}"#;
        let refusal =
            alice.refused(&["patch", "jobset", "train", "--namespace=a", "--type=merge", "-p", grow]).await?;
        ensure!(refusal.contains("keeps the pods it was admitted with"), "{refusal}");
        // The same manifest can still be applied again.
        alice.apply(&job_set("train").to_string()).await?;

        // An owner takes its GPUs back: the whole set is evicted and queued again with its original spec.
        world.kubectl.apply(&Job::new("b", "owner").gpus(2).manifest()).await?;
        operator.until("train", "is being evicted", |object| note(object, names::EVICTION).is_some()).await?;
        for job in ["train-driver-0", "train-workers-0", "train-workers-1"] {
            operator.suspend_job(job, true).await?;
        }
        operator.says("train", "Suspended", true).await?;
        let object = operator.until("train", "is queued again", |object| queued(object, SUSPEND)).await?;
        let mut wrote = job_set("train")["spec"]["replicatedJobs"].clone();
        for role in [0, 1] {
            wrote[role]["template"]["spec"]["template"]["spec"]["priorityClassName"] = names::CLASS.into();
        }
        ensure!(object["spec"]["replicatedJobs"] == wrote, "{object}");
        running(world, "b", 1).await?;

        // When the owner ends, the set and its Jobs start again.
        world.kubectl.ok(&["delete", "jobset", "next", "--namespace=a"]).await?;
        world.kubectl.ok(&["delete", "job", "owner", "--namespace=b"]).await?;
        operator.until("train", "is admitted again", |object| admitted(object, SUSPEND)).await?;
        operator.says("train", "Suspended", false).await?;
        for job in ["train-driver-0", "train-workers-0", "train-workers-1"] {
            operator.suspend_job(job, false).await?;
        }
        running(world, "a", 5).await?;
        Ok(())
    })
    .await;
}

/// A master and a worker with a GPU each.
fn training(name: &str) -> Value {
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name, "namespace": "a"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": template(1)}, "Worker": {"replicas": 1, "template": template(1)}}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_training_job_start_without_a_gate_of_their_own() {
    World::run("training-job", SLUICE, 1, async |world| {
        const SUSPEND: &str = "/spec/runPolicy/suspend";
        world.apply(&format!("{}{}", nodes(2, 1), team("a", 2))).await?;
        let definition = definition("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs");
        serve(world, &definition, &training("dry")).await?;
        world.kubectl.apply(&rights("kubeflow/training-operator", "kubeflow.org", "pytorchjobs")).await?;
        world.kubectl.apply(ALICE).await?;
        let alice = world.cluster.kubectl(User::Alice);
        let operator = Operator {
            world,
            account: "system:serviceaccount:kubeflow:training-operator".into(),
            resource: "pytorchjobs",
        };
        alice.create(&training("first").to_string()).await?;
        alice.create(&training("second").to_string()).await?;
        let object = operator.until("first", "is admitted", |object| admitted(object, SUSPEND)).await?;
        ensure!(
            writes(world, "pytorchjobs")? == 1,
            "admitting took {} writes",
            writes(world, "pytorchjobs")?
        );

        // Its pods start without a gate, on the nodes in its templates.
        for role in ["Master", "Worker"] {
            let template = &object["spec"]["pytorchReplicaSpecs"][role]["template"];
            operator
                .create(&json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {
                        "name": format!("first-{}", role.to_lowercase()), "namespace": "a",
                        "ownerReferences": operator.owner(&object),
                    },
                    "spec": template["spec"],
                }))
                .await?;
        }
        running(world, "a", 2).await?;
        let queue = world.replicas[0].ask(json!({"queue": {"team": "a"}})).await?;
        let rows = queue.as_array().into_iter().flatten();
        let names: Vec<&str> = rows.filter_map(|row| row["name"].as_str()).collect();
        ensure!(names == ["first", "second"], "{queue}");

        // A user's own pod is gated, also when it claims an owner.
        let forged = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "forged", "namespace": "a", "ownerReferences": operator.owner(&object)},
            "spec": template(1)["spec"],
        });
        alice.create(&forged.to_string()).await?;
        let text = world.kubectl.ok(&["get", "pod", "forged", "--namespace=a", "-o", "json"]).await?;
        let stored: Value = serde_json::from_str(&text)?;
        ensure!(stored["spec"]["schedulingGates"][0]["name"] == names::GATE_ADMISSION, "{stored}");
        world.kubectl.ok(&["delete", "pod", "forged", "--namespace=a"]).await?;

        // Suspended by its user: it holds its capacity until its pods are gone, and is not queued.
        let stop = r#"{"spec":{"runPolicy":{"suspend":true}}}"#;
        alice.ok(&["patch", "pytorchjob", "first", "--namespace=a", "--type=merge", "-p", stop]).await?;
        operator.says("first", "Suspended", true).await?;
        let second = operator.object("second").await?;
        ensure!(queued(&second, SUSPEND), "must wait until the pods of the first are gone: {second}");
        // Resumed meanwhile it is queued again, and suspended once more it is on hold.
        let patch = ["patch", "pytorchjob", "first", "--namespace=a", "--type=merge", "-p"];
        let resume = r#"{"spec":{"runPolicy":{"suspend":false}}}"#;
        alice.ok(&[&patch[..], &[resume]].concat()).await?;
        let object = operator.object("first").await?;
        let stops =
            object.pointer(SUSPEND) == Some(&true.into()) && note(&object, names::ADMISSION).is_some();
        ensure!(stops && note(&object, names::HELD).is_some(), "{object}");
        alice.ok(&[&patch[..], &[stop]].concat()).await?;
        let object = operator.object("first").await?;
        ensure!(note(&object, names::HELD).is_none(), "{object}");
        operator.kubectl(&["delete", "pod", "first-master", "first-worker"], None).await?;
        operator.until("second", "is admitted", |object| admitted(object, SUSPEND)).await?;
        let object = operator
            .until("first", "is released to its user", |object| note(object, names::ADMISSION).is_none())
            .await?;
        ensure!(note(&object, names::HELD).is_none(), "{object}");
        let mut wrote = training("first")["spec"]["pytorchReplicaSpecs"].clone();
        for role in ["Master", "Worker"] {
            wrote[role]["template"]["spec"]["priorityClassName"] = names::CLASS.into();
        }
        ensure!(object["spec"]["pytorchReplicaSpecs"] == wrote, "{object}");

        // Resumed by its user, it is queued; it starts when the other has succeeded.
        let release = r#"{"spec":{"runPolicy":{"suspend":false}}}"#;
        alice.ok(&["patch", "pytorchjob", "first", "--namespace=a", "--type=merge", "-p", release]).await?;
        operator.until("first", "is queued", |object| queued(object, SUSPEND)).await?;
        operator.says("second", "Succeeded", true).await?;
        operator.until("first", "is admitted again", |object| admitted(object, SUSPEND)).await?;
        Ok(())
    })
    .await;
}
