//! The API server's treatment of the kinds, the policies and Sluice's patches, without a running Sluice.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sluice::api::names;
use sluice::api::record::Eviction;
use sluice::cluster::target::{self, Failure, Grant, Managed, Operation, Pin};
use sluice::cluster::wire;
use sluice::engine::types::{Admission, Observed, Time, WorkloadKind};
use sluice_harness::{Cluster, Kubectl, User, eventually, install, patience};

fn team(spec: &Value) -> String {
    let team = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"}, "spec": spec});
    team.to_string()
}

fn pool(name: &str, spec: &Value) -> String {
    let pool = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec});
    pool.to_string()
}

/// Asserts that the object is refused with a message that contains `said`.
async fn refuses(kubectl: &Kubectl, manifest: &str, said: &str) -> Result<()> {
    let outcome = kubectl.run(&["create", "-f", "-"], Some(manifest)).await?;
    ensure!(!outcome.success, "accepted: {manifest}");
    ensure!(outcome.stderr.contains(said), "{manifest}\nis refused without {said:?}: {}", outcome.stderr);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn teams_and_pools_are_checked_when_they_are_written() -> Result<()> {
    let cluster = Cluster::up("kinds").await?;
    install(&cluster).await?;
    let kubectl = cluster.kubectl(User::Admin);
    let quota = |quota: Value| json!({"quotas": [quota]});
    let queue = |queue: Value| json!({"queues": [queue]});
    for (spec, said) in [
        (json!({"parent": "vision"}), "spec.parent: Invalid value: a team cannot be its own parent"),
        (json!({"weight": -1}), "spec.weight"),
        (
            json!({"budget": {"amount": 0}}),
            "spec.budget.amount: Invalid value: 0: the amount must be more than 0",
        ),
        (json!({"budget": {"amount": "much"}}), "spec.budget.amount"),
        (json!({"budget": {"amount": 1, "period": "Fortnight"}}), "spec.budget.period"),
        (json!({"budget": {"amount": 1, "onExhausted": "Kill"}}), "spec.budget.onExhausted"),
        (
            quota(json!({"guaranteed": {"nvidia.com/gpu": -1}})),
            "spec.quotas[0].guaranteed: Invalid value: a quantity must not be negative",
        ),
        (
            quota(json!({"guaranteed": {"nvidia.com/gpu": "2k"}, "limit": {"nvidia.com/gpu": 8}})),
            "spec.quotas[0]: Invalid value: guaranteed must not exceed limit",
        ),
        (
            quota(json!({"guaranteed": {"cpu": 1}, "lendable": {"cpu": "1001m"}})),
            "spec.quotas[0]: Invalid value: lendable must not exceed guaranteed",
        ),
        (quota(json!({"guaranteed": {"cpu": "many"}})), "spec.quotas[0].guaranteed.cpu"),
        (json!({"quotas": [{"limit": {"cpu": 1}}, {"pool": "default"}]}), "spec.quotas[1]: Duplicate value"),
        (json!({"queues": [{"name": "a"}, {"name": "a"}]}), "spec.queues[1]: Duplicate value"),
        (queue(json!({"name": "a", "maxWait": "soon"})), "spec.queues[0].maxWait"),
        (queue(json!({"name": "a", "onPodLoss": "Cry"})), "spec.queues[0].onPodLoss"),
        (
            queue(json!({"name": "a", "readyTimeout": "0s"})),
            "spec.queues[0].readyTimeout: Invalid value: must be more than 0s; leave it out for no timeout",
        ),
        (queue(json!({"name": "A.b"})), "spec.queues[0].name"),
        (queue(json!({"name": "a", "onMaxWait": "Cry", "maxWait": "1h"})), "spec.queues[0].onMaxWait"),
        (queue(json!({"name": "a", "onMaxWait": "Fail"})), "onMaxWait needs maxWait, which is not set"),
    ] {
        refuses(&kubectl, &team(&spec), said).await?;
    }
    refuses(&kubectl, &team(&json!({})).replace("vision", "a.b"), "a team's name is a label value").await?;
    let gpu = json!({"gpu": "a100"});
    refuses(&kubectl, &pool("default", &json!({"nodeSelector": gpu})), "choose another name").await?;
    refuses(&kubectl, &pool("a100", &json!({"nodeSelector": {}})), "spec.nodeSelector").await?;
    let twice = json!({"nodeSelector": gpu, "topology": ["rack", "rack"]});
    refuses(
        &kubectl,
        &pool("a100", &twice),
        "spec.topology: Invalid value: a topology level must be listed once",
    )
    .await?;

    for (weights, said) in [
        (json!({"nvidia.com/gpu": 0}), "spec.weights: Invalid value: a weight must be more than 0"),
        (json!({"nvidia.com/gpu": "-2"}), "spec.weights: Invalid value: a weight must be more than 0"),
        (json!({"sluice.dev/gpu": 1}), "spec.weights: Invalid value: the currency itself has no weight"),
    ] {
        refuses(&kubectl, &pool("h100", &json!({"nodeSelector": gpu, "weights": weights})), said).await?;
    }
    kubectl
        .create(&pool("default", &json!({"topology": ["rack"], "weights": {"nvidia.com/gpu": 1}})))
        .await?;

    // The longest allowed spec stays within the API server's cost limit for rules.
    let many: Value = (0..16)
        .map(|i| (format!("example.com/{}{i}", "r".repeat(40)), json!("1000Gi")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let quotas: Vec<Value> = (0..32)
        .map(|i| json!({"pool": format!("p{i}"), "guaranteed": many, "limit": many, "lendable": many}))
        .collect();
    let queues: Vec<Value> = (0..32)
        .map(|i| json!({"name": format!("q{i}"), "limit": many, "maxWait": "24h", "minRuntime": "1.5h"}))
        .collect();
    kubectl.create(&team(&json!({"parent": "research", "quotas": quotas, "queues": queues}))).await?;
    let whole = json!({"nodeSelector": gpu, "topology": ["zone", "rack"], "weights": many});
    kubectl.create(&pool("a100", &whole)).await?;
    Ok(())
}

fn job(name: &str, namespace: &str, spec: &Value) -> String {
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/x"}]}}},
    });
    json_patch::merge(&mut job["spec"], spec);
    job.to_string()
}

fn pod(name: &str, namespace: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [{"name": "main", "image": "registry.example/x"}]},
    })
    .to_string()
}

async fn get(kubectl: &Kubectl, object: &str, path: &str) -> Result<String> {
    kubectl.ok(&["get", object, "--namespace=vision", "-o", &format!("jsonpath={{{path}}}")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_webhook_the_policies_hold_workloads_in_labelled_namespaces_only() -> Result<()> {
    const HELD: &str = r".metadata.annotations.sluice\.dev/held";
    let cluster = Cluster::up("policies").await?;
    install(&cluster).await?;
    let kubectl = cluster.kubectl(User::Admin);
    for namespace in ["vision", "free"] {
        kubectl.ok(&["create", "namespace", namespace]).await?;
    }
    kubectl.ok(&["label", "namespace", "vision", "sluice.dev/team=vision"]).await?;
    // A policy is in force a moment after it is stored.
    let bound = pod("bound", "vision").replace(r#""spec":{"#, r#""spec":{"nodeName":"n0","#);
    eventually("the policies are in force", patience(), async || {
        let probe = [
            "create",
            "--dry-run=server",
            "-o",
            "jsonpath={.spec.suspend}{.spec.schedulingGates}",
            "-f",
            "-",
        ];
        let mut seen = String::new();
        for object in [job("probe", "vision", &json!({})), pod("probe", "vision"), bound.clone()] {
            seen += &kubectl.run(&probe, Some(&object)).await.map_err(|error| error.to_string())?.stdout;
        }
        // The first two are held, the third is refused.
        if seen == r#"true[{"name":"sluice.dev/admission"}]"# { Ok(()) } else { Err(seen) }
    })
    .await?;

    kubectl.create(&job("new", "vision", &json!({}))).await?;
    ensure!(get(&kubectl, "job/new", HELD).await? == "true");
    let submitter = get(&kubectl, "job/new", r".metadata.annotations.sluice\.dev/user").await?;
    ensure!(!submitter.is_empty(), "the Job's submitter is not recorded");
    let another = job("another", "vision", &json!({"suspend": true})).replacen(
        r#""metadata":{"#,
        r#""metadata":{"annotations":{"sluice.dev/user":"bob"},"#,
        1,
    );
    refuses(&kubectl, &another, "sluice.dev/user names the submitter of the Job").await?;
    kubectl.create(&job("own", "vision", &json!({"suspend": true}))).await?;
    ensure!(get(&kubectl, "job/own", HELD).await?.is_empty());
    kubectl.create(&pod("bare", "vision")).await?;

    let patch = |object: &'static str, patch: &'static str| {
        vec!["patch", object, "--namespace=vision", "--type=merge", "-p", patch]
    };
    let unsuspend = r#"{"spec":{"suspend":false}}"#;
    let forge = r#"{"metadata":{"annotations":{"sluice.dev/admission":"{}"}}}"#;
    for (arguments, said) in [
        (patch("job/new", unsuspend), "Only Sluice starts Jobs here"),
        (patch("job/new", forge), "written by Sluice alone"),
        (
            patch("job/new", r#"{"metadata":{"annotations":{"sluice.dev/user":"bob"}}}"#),
            "written by Sluice alone",
        ),
        (
            patch("job/new", r#"{"metadata":{"annotations":{"sluice.dev/held":null}}}"#),
            "written by Sluice alone",
        ),
        (patch("pod/bare", r#"{"spec":{"schedulingGates":null}}"#), "only Sluice removes its gates"),
    ] {
        let refusal = kubectl.refused(&arguments).await?;
        ensure!(refusal.contains(said), "{arguments:?}: {refusal}");
    }
    // Sluice is down, so the Job cannot be queued: the refusal says to retry, and it does not run.
    let refusal = kubectl.refused(&patch("job/own", unsuspend)).await?;
    ensure!(refusal.contains("can be released while Sluice is up"), "{refusal}");
    refuses(&kubectl, &bound, "spec.nodeName must not be set").await?;

    // Sluice's own account starts it with the granted number of pods; its user may suspend it again.
    let record = json!({"pool": "default", "nodes": {"n0": 2}, "pods": 2, "borrowed": false, "at": "2026-01-31T12:00:00Z"});
    let record = serde_json::from_value::<sluice::api::record::Record>(record)?;
    let admit = json!({
        "metadata": {"annotations": {"sluice.dev/admission": serde_json::to_string(&record)?}},
        "spec": {"suspend": false},
    })
    .to_string();
    let sluice = cluster.kubectl(User::Sluice);
    sluice
        .ok(&[
            "patch",
            "job/new",
            "--namespace=vision",
            "--type=merge",
            "--field-manager=sluice",
            "-p",
            &admit,
        ])
        .await?;
    kubectl.ok(&patch("job/new", r#"{"spec":{"parallelism":2}}"#)).await?;
    let refusal = kubectl.refused(&patch("job/new", r#"{"spec":{"parallelism":3}}"#)).await?;
    ensure!(refusal.contains("more than the 2 pods"), "{refusal}");
    // A field that Sluice writes must not be owned by server-side apply, also beside a user's affinity.
    let label = r#""metadata":{"labels":{"sluice.dev/own-affinity":"true"},"#;
    let placed = job("placed", "vision", &json!({})).replacen(r#""metadata":{"#, label, 1);
    kubectl.create(&placed).await?;
    sluice
        .ok(&[
            "patch",
            "job/placed",
            "--namespace=vision",
            "--type=merge",
            "--field-manager=sluice",
            "-p",
            &admit,
        ])
        .await?;
    let stored = kubectl
        .ok(&["get", "job/placed", "--namespace=vision", "--show-managed-fields", "-o", "json"])
        .await?;
    let managers = &serde_json::from_str::<Value>(&stored)?["metadata"]["managedFields"];
    let owners =
        managers.as_array().map(|all| all.iter().map(|one| one["manager"].clone()).collect::<Vec<_>>());
    ensure!(
        owners.as_ref().is_some_and(|owners| !owners.is_empty() && !owners.contains(&json!("sluice"))),
        "Sluice owns fields: {managers}"
    );
    // The mark is removed when Sluice is back: a record without an eviction shows that the user suspended the
    // Job.
    kubectl.ok(&patch("job/new", r#"{"spec":{"suspend":true}}"#)).await?;

    for object in [job("new", "free", &json!({})), pod("bare", "free")] {
        kubectl.create(&object).await?;
    }
    let gates = kubectl.ok(&["get", "job/new", "pod/bare", "--namespace=free", "-o", "json"]).await?;
    ensure!(!gates.contains("sluice.dev"), "{gates}");
    let everything = ["delete", "jobs,pods", "--all", "--namespace=vision", "--timeout=60s"];
    kubectl.ok(&everything).await?;
    Ok(())
}

/// The most bytes of all annotations of an object.
const ALL_ANNOTATIONS: usize = 256 * 1024;

const NODES: [&str; 2] = ["n0", "n1"];

fn node(name: &str) -> String {
    let resources = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "4"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": resources, "allocatable": resources},
    })
    .to_string()
}

/// A cluster with Sluice's rights and no Sluice: the test writes in its place.
struct Writer {
    admin: Kubectl,
    jobs: Api<Job>,
    pods: Api<Pod>,
}

impl Writer {
    async fn new(cluster: &Cluster) -> Result<Self> {
        let sluice = cluster.client(User::Sluice).await?;
        let (jobs, pods) = (Api::namespaced(sluice.clone(), "vision"), Api::namespaced(sluice, "vision"));
        Ok(Self { admin: cluster.kubectl(User::Admin), jobs, pods })
    }

    /// A Job or Pod in Sluice's form.
    async fn managed(&self, object: &str) -> Result<(Managed, u64)> {
        let text = self.admin.ok(&["get", object, "--namespace=vision", "-o", "json"]).await?;
        let (managed, version) = if object.starts_with("job/") {
            let seen = target::job::job(&serde_json::from_str::<wire::Job>(&text)?, Time(0));
            (seen.managed, seen.version)
        } else {
            let seen = target::pod::pod(&serde_json::from_str::<wire::Pod>(&text)?);
            (seen.managed, seen.version)
        };
        Ok((*managed.with_context(|| format!("{object} is not managed"))?, version))
    }

    /// Patches with Sluice's account, again after a conflict.
    async fn patch(
        &self,
        object: &str,
        subresource: Option<&str>,
        make: impl Fn(&Managed, u64) -> json_patch::Patch,
    ) -> Result<()> {
        eventually(&format!("{object} is patched"), patience(), async || {
            let (managed, version) = self.managed(object).await.map_err(|error| format!("{error:#}"))?;
            let patch = Patch::Json::<()>(make(&managed, version));
            let (name, params) = (&*managed.workload.name, PatchParams::default());
            let made = match (&managed.workload.kind, subresource) {
                (WorkloadKind::Job, None) => self.jobs.patch(name, &params, &patch).await.map(|_| ()),
                (WorkloadKind::Job, Some(part)) => {
                    self.jobs.patch_subresource(part, name, &params, &patch).await.map(|_| ())
                }
                (_, part) => {
                    let part = part.unwrap_or_default();
                    self.pods.patch_subresource(part, name, &params, &patch).await.map(|_| ())
                }
            };
            made.map_err(|error| error.to_string())
        })
        .await
    }

    async fn admit(&self, name: &str, nodes: &[(&str, u32)]) -> Result<()> {
        let admission = Admission {
            pool: "default".into(),
            nodes: nodes.iter().map(|(node, pods)| ((*node).into(), *pods)).collect(),
            pods: nodes.iter().map(|(_, pods)| pods).sum(),
            borrowed: false,
            share: None,
            spared: false,
            unfunded: false,
            at: Time(1_800_000_000_000),
        };
        self.patch(&format!("job/{name}"), None, |managed, version| {
            let record = (&admission).into();
            let grant = if admission.pods < managed.workload.pods { Grant::Part } else { Grant::All };
            match &managed.workload.state {
                Observed::Queued => managed.admit(version, &record, grant, Pin::Template),
                _ => managed.resize(version, &record, grant),
            }
        })
        .await
    }

    async fn fail(&self, object: &str, reason: &str) -> Result<()> {
        let at = "2026-11-21T09:00:00Z".parse()?;
        let why = Failure { reason, message: "longer than its queue allows", at };
        self.patch(object, Some("status"), |managed, version| match managed.fail(version, &why) {
            Operation::PatchStatus(patch) => patch,
            other => panic!("not a patch of the status: {other:?}"),
        })
        .await
    }

    /// Waits until a field of an object is `expected`.
    async fn becomes(&self, object: &str, path: &str, expected: &str) -> Result<()> {
        eventually(&format!("{path} of {object} is {expected:?}"), patience(), async || {
            match get(&self.admin, object, path).await {
                Ok(seen) if seen == expected => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_and_resized_workloads_end_or_continue_as_written() -> Result<()> {
    let cluster = Cluster::up("ends").await?;
    install(&cluster).await?;
    let writer = Writer::new(&cluster).await?;
    let admin = &writer.admin;
    admin.ok(&["create", "namespace", "vision"]).await?;
    admin.ok(&["label", "namespace", "vision", "sluice.dev/team=vision"]).await?;
    for name in NODES {
        admin.create(&node(name)).await?;
    }
    let held = |name: &str, spec: &Value| -> Result<String> {
        let mut job: Value = serde_json::from_str(&job(name, "vision", spec))?;
        let marks = json!({names::HELD: "true", names::MIN_PARALLELISM: "1"});
        let asks = json!({"limits": {"nvidia.com/gpu": 1}});
        job["metadata"]["annotations"] = marks;
        job["spec"]["suspend"] = json!(true);
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = asks;
        Ok(job.to_string())
    };
    const FAILED: &str = r#".status.conditions[?(@.type=="Failed")].reason"#;

    // One Job that never ran, one that ran and was requeued, and one that runs.
    admin.create(&held("waits", &json!({}))?).await?;
    writer.becomes("job/waits", r#".status.conditions[?(@.type=="Suspended")].status"#, "True").await?;
    writer.fail("job/waits", "MaxWait").await?;
    writer.becomes("job/waits", FAILED, "MaxWait").await?;
    let message = get(admin, "job/waits", r#".status.conditions[?(@.type=="Failed")].message"#).await?;
    ensure!(message == "longer than its queue allows", "{message}");

    admin.create(&held("runs", &json!({"parallelism": 2}))?).await?;
    writer.admit("runs", &[("n0", 2)]).await?;
    writer.becomes("job/runs", ".status.ready", "2").await?;
    writer.fail("job/runs", "MaxRuntime").await?;
    writer.becomes("job/runs", FAILED, "MaxRuntime").await?;
    let left = admin.ok(&["get", "pods", "--namespace=vision", "-o", "name"]).await?;
    ensure!(left.is_empty(), "its pods still exist: {left}");

    admin.create(&pod("bare", "vision")).await?;
    writer.fail("pod/bare", "MaxWait").await?;
    ensure!(get(admin, "pod/bare", ".status.reason").await? == "MaxWait");

    // An elastic Job starts small, grows, and shrinks by exactly the marked pods.
    admin.create(&held("elastic", &json!({"parallelism": 4}))?).await?;
    writer.admit("elastic", &[("n0", 1), ("n1", 1)]).await?;
    writer.becomes("job/elastic", ".status.ready", "2").await?;
    writer.admit("elastic", &[("n0", 2), ("n1", 2)]).await?;
    writer.becomes("job/elastic", ".status.ready", "4").await?;
    let pods = [
        "get",
        "pods",
        "--namespace=vision",
        "--selector=job-name=elastic",
        "-o",
        r#"jsonpath={range .items[?(@.status.phase=="Running")]}{.metadata.name}{"\n"}{end}"#,
    ];
    let all = admin.ok(&pods).await?;
    let (stays, goes): (Vec<_>, Vec<_>) = all.lines().enumerate().partition(|(index, _)| *index == 1);
    let marks = Patch::Strategic(target::pod::delete_first(
        "2026-11-21T09:00:00Z".parse()?,
        "capacity for another workload",
    ));
    for (_, name) in &goes {
        writer.pods.patch_status(name, &PatchParams::default(), &marks).await?;
    }
    writer.admit("elastic", &[("n0", 1)]).await?;
    writer.becomes("job/elastic", ".status.active", "1").await?;
    eventually("the other pods are gone", patience(), async || match admin.ok(&pods).await {
        Ok(left) if left.trim() == stays[0].1 => Ok(()),
        other => Err(format!("{other:?}, not {stays:?}")),
    })
    .await?;
    ensure!(get(admin, "job/elastic", ".status.failed").await?.is_empty(), "shrinking counts as failure");

    // A running Job with annotations that are full to the last byte can be stopped all the same.
    admin.create(&held("full", &json!({}))?).await?;
    writer.admit("full", &[("n1", 1)]).await?;
    writer.becomes("job/full", ".status.ready", "1").await?;
    let notes: Value = serde_json::from_str(&get(admin, "job/full", ".metadata.annotations").await?)?;
    let notes = notes.as_object().context("no annotations")?;
    let used: usize = notes.iter().map(|(key, text)| key.len() + text.as_str().map_or(0, str::len)).sum();
    let filler = "x".repeat(ALL_ANNOTATIONS - used - "filler".len());
    let fill = Patch::Merge(json!({"metadata": {"annotations": {"filler": filler}}}));
    writer.jobs.patch("full", &PatchParams::default(), &fill).await?;
    let more = Patch::Merge(json!({"metadata": {"annotations": {"more": "x"}}}));
    let refusal = writer.jobs.patch("full", &PatchParams::default(), &more).await.map(|_| ());
    ensure!(refusal.is_err(), "its annotations are not full");
    let at = "2026-11-21T09:00:00Z".parse()?;
    let note = Eviction { preemptor: "team-a/owner".to_owned(), ..Eviction::new(at, "Reclaimed") };
    writer
        .patch("job/full", None, |managed, version| {
            managed.smaller_evictions(version, &note).into_iter().next().unwrap_or_default()
        })
        .await?;
    eventually("it has stopped", patience(), async || {
        match admin.ok(&pods.map(|word| word.replace("elastic", "full")).each_ref().map(String::as_str)).await
        {
            Ok(left) if left.trim().is_empty() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await?;
    ensure!(get(admin, "job/full", r".metadata.annotations.sluice\.dev/held").await? == "true");
    let everything = ["delete", "jobs,pods", "--all", "--namespace=vision", "--timeout=60s"];
    admin.ok(&everything).await?;
    Ok(())
}
