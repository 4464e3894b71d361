//! Installed by Helm, upgraded and rolled back with work running, and moved to from Kueue.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::{
    Cluster, Helm, Options, Service, User, View, World, end_if_this_test_hangs, eventually, kustomize,
    patience, running_uids, stays, webhook_answers,
};
use tokio::process::Command;

use crate::kinds::{definition, job_set, serve};
use crate::support::{Job, SLUICE, nodes, running, team};

/// The Jobs that run during the upgrade.
const JOBS: usize = 200;

/// Objects by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

/// The objects of a stream. Each run of white space in a text is one space, because kustomize adds lines to folded texts; the
/// expressions of policies mean the same. So do 1 and 1.0.
fn objects(stream: &str) -> Objects {
    let documents: Vec<Value> = serde_saphyr::from_multiple(stream).expect("it is YAML");
    let mut objects = Objects::new();
    for mut document in documents.into_iter().filter(|document| !document.is_null()) {
        let metadata = &document["metadata"];
        let name = format!("{} {}/{}", document["kind"], metadata["namespace"], metadata["name"]);
        if document["kind"] == "CustomResourceDefinition" {
            let annotations =
                document["metadata"].as_object_mut().and_then(|metadata| metadata.remove("annotations"));
            // Only Helm has it, and without it `helm uninstall` would delete every Team.
            let kept = annotations.filter(|annotations| annotations["helm.sh/resource-policy"] == "keep");
            document["kept"] = json!(kept.is_some());
        }
        folded(&mut document);
        assert!(objects.insert(name.clone(), document).is_none(), "{name} is there twice");
    }
    objects
}

fn folded(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.split_whitespace().collect::<Vec<_>>().join(" "),
        Value::Number(number) => *value = json!(number.as_f64()),
        Value::Array(list) => list.iter_mut().for_each(folded),
        Value::Object(map) => map.values_mut().for_each(folded),
        _ => {}
    }
}

fn assert_equal(chart: &str, kustomization: &str, what: &str) {
    let (mut chart, mut kustomization) = (objects(chart), objects(kustomization));
    for (name, object) in &mut chart {
        let kept = object.as_object_mut().and_then(|object| object.remove("kept"));
        assert!(kept.is_none_or(|kept| kept == true), "{what}: Helm would delete {name}");
    }
    for object in kustomization.values_mut() {
        object.as_object_mut().map(|object| object.remove("kept"));
    }
    let names = |objects: &Objects| objects.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&chart), names(&kustomization), "{what}");
    for (name, object) in &chart {
        assert_eq!(object, &kustomization[name], "{what}: {name}");
    }
}

/// A kustomization of a folder and components.
async fn kustomized(folder: &str, components: &[&str]) -> Result<String> {
    if components.is_empty() {
        return kustomize(folder).await;
    }
    let directory = tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/target"))?;
    let manifests = "../../manifests";
    let components: Vec<String> =
        components.iter().map(|name| format!("{manifests}/components/{name}")).collect();
    let text = json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [format!("{manifests}/{folder}")], "components": components});
    std::fs::write(directory.path().join("kustomization.yaml"), text.to_string())?;
    kustomize(directory.path().to_str().context("the path is UTF-8")?).await
}

#[tokio::test]
async fn the_chart_makes_the_objects_of_the_kustomizations() -> Result<()> {
    let helm = Helm::build().await?;
    let newest = ["--kube-version", "1.36.2"];
    let older = ["--kube-version", "1.34.4"];
    let outside =
        "kinds=all,webhookUrl=https://127.0.0.1:9443,operators={JobSet,TrainJob,PyTorchJob,RayJob,MPIJob}";
    for (folder, components, kubernetes, values) in [
        (".", vec![], newest, "kinds=all"),
        ("without-mutating-policy", vec![], older, "kinds=all"),
        ("local", vec![], newest, outside),
        ("local-without-mutating-policy", vec![], older, outside),
        (".", vec!["without-kinds"], newest, "kinds=installed"),
        ("without-mutating-policy", vec!["without-kinds"], older, "kinds=installed"),
        (".", vec!["view-may-ask"], newest, "kinds=all,viewMayAsk=true"),
        (".", vec!["without-certificate-writes"], newest, "kinds=all,ownCertificates=false"),
    ] {
        let chart = helm.template(&[&kubernetes[..], &["--set", values]].concat()).await?;
        assert_equal(&chart, &kustomized(folder, &components).await?, &format!("{folder} {components:?}"));
    }

    // What is optional on both sides.
    let all = helm.template(&[&newest[..], &["--set", "kinds=all"]].concat()).await?;
    let all = objects(&all);
    let more = "kinds=all,web.enabled=true,monitoring.monitor=PodMonitor,monitoring.rules=true,monitoring.dashboards=true";
    let more = objects(&helm.template(&[&newest[..], &["--set", more]].concat()).await?);
    let mut wanted = Objects::new();
    for folder in ["web", "monitoring", "monitoring/operator"] {
        wanted.extend(objects(&kustomize(folder).await?));
    }
    for (name, object) in more.iter().filter(|(name, _)| !all.contains_key(*name)) {
        assert_eq!(Some(object), wanted.get(name), "{name}");
    }
    assert_eq!(more.len(), all.len() + wanted.len());
    Ok(())
}

#[tokio::test]
async fn values_of_the_chart_are_checked_and_reach_the_objects() -> Result<()> {
    let helm = Helm::build().await?;
    let version = ["--kube-version", "1.36.2"];
    for (wrong, said) in [
        ("replicas=0", "replicas"),
        ("image.digest=latest", "digest"),
        ("kinds=some", "kinds"),
        ("kinds={CronJob}", "CronJob"),
        ("operators={CronJob}", "CronJob"),
        ("replica=3", "replica"),
        ("webhookUrl=http://sluice", "webhookUrl"),
    ] {
        let error = helm.template(&[&version[..], &["--set", wrong]].concat()).await.err().context(wrong)?;
        ensure!(error.to_string().contains(said), "{wrong}: {error}");
    }
    let digest = format!("sha256:{}", "0".repeat(64));
    let values = format!(
        "image.repository=registry.internal:5000/sluice,image.digest={digest},replicas=3,args={{--usage-half-life=12h}},\
         resources.limits.memory=2Gi,disruptionBudget.enabled=false,flowControl.enabled=false,kinds={{RayJob}},\
         networkPolicy.scrapers[0].namespaceSelector.matchLabels.team=watch"
    );
    // A release in the namespace of Sluice found the namespace there.
    let rendered =
        helm.template(&[&version[..], &["--set", &values, "--namespace", "sluice-system"]].concat()).await?;
    let objects = objects(&rendered);
    let text: String = objects.keys().map(|name| format!("{name}\n")).collect();
    for absent in ["\"Namespace\"", "PodDisruptionBudget", "FlowSchema", "jobsets", "pytorchjobs"] {
        ensure!(!text.contains(absent), "{absent} is there");
    }
    ensure!(
        text.contains("sluice-hold-rayjobs.ray.io") && text.contains("sluice-child-rayclusters.ray.io"),
        "{text}"
    );
    let of = |name: &str| objects.get(name).with_context(|| format!("no {name}"));
    let deployment = of("\"Deployment\" \"sluice-system\"/\"sluice\"")?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], format!("registry.internal:5000/sluice@{digest}"));
    assert_eq!(container["args"], json!(["serve", "--log-format=json", "--usage-half-life=12h"]));
    assert_eq!(
        (&deployment["spec"]["replicas"], &container["resources"]["limits"]["memory"]),
        (&json!(3.0), &json!("2Gi"))
    );
    let peers = &of("\"NetworkPolicy\" \"sluice-system\"/\"sluice\"")?["spec"]["ingress"][1]["from"];
    assert_eq!(peers.as_array().map(Vec::len), Some(3));
    assert_eq!(peers[0]["namespaceSelector"]["matchLabels"]["team"], "watch");
    one_replica_with_more(&helm, &version).await
}

/// The page runs where Sluice does, and volumes come besides those of Sluice.
async fn one_replica_with_more(helm: &Helm, version: &[&str]) -> Result<()> {
    let values = "replicas=1,web.enabled=true,image.repository=r.internal/sluice,image.pullSecrets={registry},image.pullPolicy=Always,\
         nodeSelector.pool=system,tolerations[0].operator=Exists,env[0].name=SLUICE_HISTORY,env[0].value=x,\
         volumes[0].name=certs,volumes[0].secret.secretName=certs,volumeMounts[0].name=certs,volumeMounts[0].mountPath=/certs,\
         historyVolume.persistentVolumeClaim.claimName=past,historyVolume.emptyDir=null";
    let objects = objects(&helm.template(&[version, &["--set", values]].concat()).await?);
    ensure!(!objects.keys().any(|name| name.contains("PodDisruptionBudget")), "no node could be drained");
    for name in ["sluice", "sluice-web"] {
        let name = format!("\"Deployment\" \"sluice-system\"/\"{name}\"");
        let pod = &objects.get(&name).with_context(|| name.clone())?["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(
            (&container["image"], &container["imagePullPolicy"]),
            (&json!("r.internal/sluice:0.1.0"), &json!("Always")),
            "{name}"
        );
        assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]), "{name}");
        assert_eq!(pod["nodeSelector"], json!({"pool": "system"}), "{name}");
        assert_eq!(pod["tolerations"], json!([{"operator": "Exists"}]), "{name}");
    }
    let pod = &objects["\"Deployment\" \"sluice-system\"/\"sluice\""]["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][1], json!({"name": "history", "persistentVolumeClaim": {"claimName": "past"}}));
    let named = |list: &Value, wanted: &str| {
        list.as_array().is_some_and(|list| list.iter().any(|one| one["name"] == wanted))
    };
    let container = &pod["containers"][0];
    for (list, names) in [
        (&pod["volumes"], vec!["notify", "history", "certs"]),
        (&container["volumeMounts"], vec!["notify", "history", "certs"]),
        (&container["env"], vec!["POD_NAME", "SLUICE_HISTORY"]),
    ] {
        for name in names {
            ensure!(named(list, name), "{name}: {list}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn certificates_of_cert_manager_come_besides_the_volumes_of_sluice() -> Result<()> {
    let directory = tempfile::tempdir_in(concat!(env!("CARGO_MANIFEST_DIR"), "/target"))?;
    let text = json!({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["../../manifests"], "components": ["../../certs/cert-manager"]});
    std::fs::write(directory.path().join("kustomization.yaml"), text.to_string())?;
    let built = objects(&kustomize(directory.path().to_str().context("the path is UTF-8")?).await?);
    let pod = &built["\"Deployment\" \"sluice-system\"/\"sluice\""]["spec"]["template"]["spec"];
    for list in [&pod["volumes"], &pod["containers"][0]["volumeMounts"]] {
        let names: BTreeSet<&str> =
            list.as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect();
        assert_eq!(names, BTreeSet::from(["certs", "history", "notify"]));
    }
    Ok(())
}

/// A control plane on which Helm has installed everything but the program, which runs outside.
async fn installed(
    cluster: Cluster,
    helm: &Helm,
    program: &Path,
    url: &str,
    service: Service,
) -> Result<World> {
    helm.upgrade(&["--set", &format!("webhookUrl={url}"), "--wait"]).await?;
    let client = cluster.client(User::Admin).await?;
    let kubectl = cluster.kubectl(User::Admin);
    let crds = ["crd/teams.sluice.dev", "crd/nodepools.sluice.dev", "crd/questions.sluice.dev"];
    kubectl.ok(&[&["wait", "--for=condition=Established", "--timeout=60s"], &crds[..]].concat()).await?;
    let options = Options { webhook_url: Some(service.url()), ..Options::new(program) };
    let mut world = World { replicas: Vec::new(), service, client, kubectl, options, cluster };
    world.start_replica().await?;
    webhook_answers(&world.cluster).await?;
    Ok(world)
}

/// Replaces the replica by one of this program, as a rollout does: the new one is ready before the old one ends.
async fn roll(world: &mut World, program: &Path) -> Result<()> {
    world.options.program = program.to_owned();
    world.start_replica().await?;
    let (last, old) = (world.replicas.len() - 1, world.replicas.len() - 2);
    world.service.replace(vec![world.replicas[last].https()]);
    world.replicas[old].stop().await?;
    ensure!(world.leader().await? == last, "the new replica leads");
    Ok(())
}

/// The policies and webhook rules of a kind that came after the installation, without Helm, as with kustomize.
async fn kinds_without_an_upgrade(world: &World) -> Result<()> {
    let printed = sluice(world, &["kinds", "--installed"]).await?;
    ensure!(
        printed.contains("sluice-hold-jobsets") && !printed.contains("rayjobs.ray.io\nspec"),
        "{printed}"
    );
    world.kubectl.apply(&printed).await?;
    // Sluice has filled in its certificate and the proof of verdicts once a dry-run shows both the label and the verdict.
    eventually("a JobSet is stamped and has a verdict", patience(), async || {
        let create = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
        let made = world.kubectl.run(&create, Some(&job_set("stamped").to_string())).await;
        let made = made.map_err(|error| error.to_string())?;
        let object: Value = serde_json::from_str(&made.stdout).unwrap_or_default();
        match object["metadata"]["labels"][names::TEAM] == "a"
            && made.stderr.contains("Warning: sluice: Would ")
        {
            true => Ok(()),
            false => Err(format!("{object}: {}", made.stderr)),
        }
    })
    .await?;
    let deleted = world.kubectl.run(&["delete", "-f", "-"], Some(&printed)).await?;
    ensure!(deleted.success, "{}", deleted.stderr);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_and_a_rollback_by_helm_evict_nothing_and_lose_nothing() -> Result<()> {
    end_if_this_test_hangs();
    let cluster = Cluster::up("helm").await?;
    let helm = Helm::on(&cluster).await?;
    let service = Service::start().await?;
    let url = service.url();
    // `make upgrade-test` names the checkout of an earlier version, with its program.
    let earlier = std::env::var_os("SLUICE_PREVIOUS").map(PathBuf::from);
    let program = earlier.as_ref().map_or(SLUICE.into(), |checkout| checkout.join("target/debug/sluice"));
    let first = earlier.filter(|checkout| checkout.join("manifests/chart").exists());
    let first = first.map_or(helm.of(Path::new(env!("CARGO_MANIFEST_DIR"))), |checkout| helm.of(&checkout));
    let mut world = installed(cluster, &first, &program, &url, service).await?;
    let setup = [nodes(25, 8), team("a", 100), team("b", 100)].concat();
    world.apply(&setup).await?;
    world.apply(&Job::new("a", "work").gpus(1).copies(JOBS).scenario()).await?;
    // Half of them borrow, so that an eviction would be allowed.
    let before = running_uids(&running(&world, "a", JOBS).await?, "a");
    let policies = "get validatingadmissionpolicies,mutatingadmissionpolicies -o name";
    let policies: Vec<&str> = policies.split(' ').collect();
    ensure!(!world.kubectl.ok(&policies).await?.contains("jobsets"), "no kind is served");

    let values = format!("webhookUrl={url},viewMayAsk=true");
    helm.upgrade(&["--set", &values, "--wait"]).await?;
    roll(&mut world, Path::new(SLUICE)).await?;
    stays_as_it_was(&world, &before).await?;

    // The definition of a kind comes, and the next upgrade brings its policies.
    let definition = definition("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets");
    serve(&world, &definition, &job_set("probe")).await?;
    kinds_without_an_upgrade(&world).await?;
    helm.upgrade(&["--set", &values, "--wait"]).await?;
    let found = world.kubectl.ok(&policies).await?;
    ensure!(found.contains("sluice-hold-jobsets") && found.contains("sluice-guard-jobsets"), "{found}");
    ensure!(!found.contains("rayjobs"), "{found}");
    helm.run(&["rollback", "sluice", "1", "--wait"]).await?;
    roll(&mut world, &program).await?;
    stays_as_it_was(&world, &before).await?;
    ensure!(
        !world.kubectl.ok(&policies).await?.contains("sluice-hold-jobsets"),
        "the policies are rolled back"
    );

    // The webhook still answers, with the certificate that only Sluice has written: a Job over the quota waits.
    world.apply(&Job::new("a", "more").scenario()).await?;
    let waits = |view: &View| {
        let more = view.jobs.iter().find(|job| job.name == "more");
        match more {
            Some(job) if job.held && job.suspended && job.team.as_deref() == Some("a") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    };
    world.until("a new Job waits", waits).await?;

    // Removing the release keeps the definitions, and so the Teams.
    helm.run(&["uninstall", "sluice", "--wait"]).await?;
    ensure!(
        world.kubectl.ok(&["get", "teams", "-o", "name"]).await?.lines().count() == 2,
        "the Teams are kept"
    );
    Ok(())
}

async fn stays_as_it_was(world: &World, before: &BTreeSet<String>) -> Result<()> {
    stays(&world.client, "the same pods run", Duration::from_secs(3), |view| {
        let evicted: Vec<&str> =
            view.jobs.iter().filter(|job| job.eviction.is_some()).map(|job| job.name.as_str()).collect();
        match (running_uids(view, "a") == *before, evicted.is_empty()) {
            (true, true) => Ok(()),
            _ => Err(format!("{} run, evicted: {evicted:?}", running_uids(view, "a").len())),
        }
    })
    .await
}

/// Runs the program as the administrator, and returns what it prints.
pub async fn sluice(world: &World, arguments: &[&str]) -> Result<String> {
    let output = Command::new(SLUICE)
        .args(arguments)
        .env("KUBECONFIG", world.cluster.kubeconfig(User::Admin))
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "sluice {}: {said}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The kinds of Kueue that an import reads, with minimal definitions.
fn kueue() -> String {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let kinds = [
        ("ResourceFlavor", "resourceflavors", "Cluster"),
        ("ClusterQueue", "clusterqueues", "Cluster"),
        ("LocalQueue", "localqueues", "Namespaced"),
        ("WorkloadPriorityClass", "workloadpriorityclasses", "Cluster"),
        ("Workload", "workloads", "Namespaced"),
    ];
    let definitions = kinds.map(|(kind, plural, scope)| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.kueue.x-k8s.io"),
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
            "spec": {"group": "kueue.x-k8s.io", "scope": scope,
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1beta2", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties":
                        {"spec": anything, "value": {"type": "integer"}}}}}]}})
    });
    json!({"apiVersion": "v1", "kind": "List", "items": definitions}).to_string()
}

// kubectl takes a stream that begins with a brace for JSON.
const QUEUES: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: vision}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: any, resources: [{name: nvidia.com/gpu, nominalQuota: 2}]}]
---
{apiVersion: v1, kind: Namespace, metadata: {name: vision}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: any}, spec: {}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: high}, value: 1000}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: main, namespace: vision}, spec: {clusterQueue: vision}}
";

/// A Job as Kueue leaves it: suspended while it waits.
fn queued(name: &str, suspend: bool, class: Option<&str>) -> String {
    let mut labels = json!({"kueue.x-k8s.io/queue-name": "main"});
    if let Some(class) = class {
        labels["kueue.x-k8s.io/priority-class"] = json!(class);
    }
    json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "vision", "labels": labels},
        "spec": {"suspend": suspend, "template": {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "registry.example/train",
                "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}}})
    .to_string()
}

/// The Workload of a Job that is deactivated in Kueue.
fn deactivated(job: &str, uid: &str) -> String {
    json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": format!("job-{job}"), "namespace": "vision", "ownerReferences":
            [{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": true}]},
        "spec": {"active": false, "queueName": "main"}})
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_kueue_run_on_at_the_switch_and_those_that_wait_keep_their_order() {
    World::run("kueue", SLUICE, 1, async |world| {
        world.kubectl.apply(&kueue()).await?;
        let names =
            ["resourceflavors", "clusterqueues", "localqueues", "workloadpriorityclasses", "workloads"];
        let names = names.map(|plural| format!("crd/{plural}.kueue.x-k8s.io"));
        let wait = ["wait", "--for=condition=Established", "--timeout=60s"];
        world
            .kubectl
            .ok(&wait.into_iter().chain(names.iter().map(String::as_str)).collect::<Vec<_>>())
            .await?;
        world.apply(&[nodes(1, 4), team("other", 2)].concat()).await?;
        eventually("the kinds of Kueue are served", patience(), async || {
            world.kubectl.apply(QUEUES).await.map_err(|error| format!("{error:#}"))
        })
        .await?;
        world.kubectl.apply(&queued("runs", false, None)).await?;
        let before = running_uids(&running(world, "vision", 1).await?, "vision");
        for (name, class) in [("stopped", None), ("second", None), ("third", None), ("first", Some("high"))] {
            world.kubectl.apply(&queued(name, true, class)).await?;
            // Creation times have whole seconds.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
        }
        let uid = ["get", "job", "-n", "vision", "stopped", "-o", "jsonpath={.metadata.uid}"];
        let uid = world.kubectl.ok(&uid).await?;
        world.kubectl.apply(&deactivated("stopped", &uid)).await?;

        let printed = sluice(world, &["import", "kueue", "live"]).await?;
        ensure!(
            printed.contains("kind: Namespace") && printed.contains("sluice.dev/team: vision"),
            "{printed}"
        );
        let printed = sluice(world, &["import", "kueue", "live", "--without-labels"]).await?;
        ensure!(!printed.contains("kind: Namespace"), "{printed}");
        world.kubectl.apply(&printed).await?;
        let steps = sluice(world, &["import", "kueue", "live", "--steps"]).await?;
        let parsed = Command::new("sh").args(["-n", "-c", &steps]).output().await?;
        ensure!(parsed.status.success(), "{}", String::from_utf8_lossy(&parsed.stderr));
        for line in steps.lines() {
            // The commands of a Job are one list for the shell, on a line each.
            let line = line.trim().trim_end_matches(" && \\");
            let line = line.split_once(" || left_out").map_or(line, |(command, _)| command);
            let words: Vec<String> = line.split(' ').map(|word| word.trim_matches('\'').to_owned()).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            if let ["kubectl", "label" | "annotate" | "patch", ..] = words[..] {
                world.kubectl.ok(&words[1..]).await.with_context(|| line.to_owned())?;
            }
        }

        // Two GPUs: one is held by what ran before, so that one Job of three starts at a time. The oldest is on hold.
        for name in ["first", "second", "third"] {
            let wanted = BTreeSet::from(["runs", name]);
            let check = |view: &View| {
                let names: BTreeSet<&str> =
                    view.running("vision").filter_map(|pod| pod.job.as_deref()).collect();
                if names == wanted { Ok(()) } else { Err(format!("{names:?} run")) }
            };
            let view = world.until(&format!("{name} comes next"), check).await?;
            ensure!(before.is_subset(&running_uids(&view, "vision")), "what ran before goes on");
            world.kubectl.ok(&["delete", "job", "-n", "vision", name]).await?;
        }
        sluice(world, &["release", "-n", "vision", "stopped"]).await?;
        world
            .until("the Job that was deactivated starts once it is released", |view| {
                match view.running("vision").any(|pod| pod.job.as_deref() == Some("stopped")) {
                    true => Ok(()),
                    false => Err("it does not run".to_owned()),
                }
            })
            .await?;
        Ok(())
    })
    .await;
}
