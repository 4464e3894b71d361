//! Claimed devices (DRA). The test replaces the driver and writes its ResourceSlices. Kubernetes' own
//! controller makes the claims, and its own scheduler allocates the devices.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::ListParams;
use sluice_harness::{View, World};

use crate::pods::explained;
use crate::support::{Job, SLUICE, complete, nodes_with, queued, running, team_of};

/// A device class and two nodes, each with three devices of the class and one outside it.
fn devices() -> String {
    let mut text = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec:
  extendedResourceName: example.com/gpu
  selectors:
  - cel:
      expression: >-
        device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'gpu' &&
        device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0
---"
    .to_owned();
    for node in ["gpu-0", "gpu-1"] {
        let gpu = "attributes: {type: {string: gpu}}, capacity: {memory: {value: 80Gi}}";
        let small = "attributes: {type: {string: gpu}}, capacity: {memory: {value: 16Gi}}";
        text.push_str(&format!(
            "
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: {node}}}
spec:
  driver: gpu.example.com
  nodeName: {node}
  pool: {{name: {node}, generation: 1, resourceSliceCount: 1}}
  devices:
  - {{name: gpu-a, {gpu}}}
  - {{name: gpu-b, {gpu}}}
  - {{name: gpu-c, {gpu}}}
  - {{name: gpu-small, {small}}}
---"
        ));
    }
    text
}

/// A claim template for one device of the class.
fn template(namespace: &str, name: &str) -> String {
    format!(
        "
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {{deviceClassName: gpu.example.com}}
---"
    )
}

/// A Job with one pod that claims by this template.
fn claiming(namespace: &str, name: &str, template: &str) -> Job {
    let claims = format!("resourceClaims: [{{name: gpu, resourceClaimTemplateName: {template}}}]");
    Job::new(namespace, name).gpus(0).pod_spec(&claims)
}

/// Each running pod of the namespace has exactly one device, on the node in its Job's record.
async fn given_where_recorded(world: &World, view: &View, namespace: &str) -> Result<()> {
    let claims: Api<ResourceClaim> = Api::namespaced(world.client.clone(), namespace);
    let mut given: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for claim in claims.list(&ListParams::default()).await? {
        let status = claim.status.unwrap_or_default();
        let pods = status.reserved_for.unwrap_or_default();
        let devices =
            status.allocation.and_then(|allocation| allocation.devices?.results).unwrap_or_default();
        for pod in pods {
            given.entry(pod.name).or_default().extend(devices.iter().map(|device| device.pool.clone()));
        }
    }
    for pod in view.running(namespace) {
        let job = pod.job.as_deref().and_then(|job| view.job(namespace, job));
        let record = job.and_then(|job| job.admission.as_ref());
        let nodes = record.map(|record| record.nodes.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
        let bound: Vec<String> = pod.node.iter().cloned().collect();
        let given = given.get(&pod.name).cloned().unwrap_or_default();
        ensure!(
            nodes == bound && given == bound,
            "pod {} is on {bound:?}, the record says {nodes:?}, its device is on {given:?}",
            pod.name
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn claimed_devices_count_against_quotas_and_are_reclaimed() {
    World::run("dra", SLUICE, 1, async |world| {
        let team = |name| team_of(name, &["quotas: [{guaranteed: {example.com/gpu: 2}}]"]);
        world.apply(&format!("{}{}{}", nodes_with(2, "", ""), team("a"), team("b"))).await?;
        world.kubectl.apply(&format!("{}{}", devices(), template("a", "one"))).await?;
        // A namespace without a team holds one of the six devices.
        let teamless = "
apiVersion: v1
kind: Pod
metadata: {name: teamless, namespace: default}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
  containers: [{name: main, image: registry.example/other}]
";
        world.kubectl.apply(&format!("{}{teamless}", template("default", "one"))).await?;
        running(world, "default", 1).await?;
        for name in ["a-0", "a-1", "a-2", "a-3", "a-4", "a-5"] {
            let lasts = if name == "a-0" { Duration::from_secs(30) } else { Duration::from_secs(3600) };
            world.kubectl.apply(&claiming("a", name, "one").lasts(lasts).manifest()).await?;
        }
        // All remaining devices of the class are in use: the last Job waits, and the small devices do not
        // count.
        let view = running(world, "a", 5).await?;
        given_where_recorded(world, &view, "a").await?;
        let waits: Vec<&str> =
            view.jobs_in("a").filter(|job| job.queued()).map(|job| job.name.as_str()).collect();
        ensure!(waits.len() == 1, "{waits:?} wait");
        let sentence = explained(world, "a", waits[0], "NoRoom").await?;
        ensure!(sentence.contains("Needs 1 GPU; 0 GPUs are free"), "{sentence}");
        let teams = world.replicas[0].teams().await?;
        let row = teams.teams.iter().find(|row| row.team == "a");
        let used = row.map(|row| (row.used.get("example.com/gpu"), row.borrowed.get("example.com/gpu")));
        ensure!(used == Some((Some(&"5".to_owned()), Some(&"3".to_owned()))), "{row:?}");

        // The owner requests its guarantee twice: by a claim with a late template, and by the resource's name.
        world.kubectl.apply(&claiming("b", "by-claim", "late").manifest()).await?;
        let sentence = explained(world, "b", "by-claim", "Uncounted").await?;
        ensure!(sentence.contains("there is no ResourceClaimTemplate late"), "{sentence}");
        world.kubectl.apply(&template("b", "late")).await?;
        let by_name =
            Job::new("b", "by-name").gpus(0).manifest().replace("limits: {}", "limits: {example.com/gpu: 1}");
        world.kubectl.apply(&by_name).await?;
        let view = running(world, "b", 2).await?;
        given_where_recorded(world, &view, "b").await?;
        // Two of the borrowers are queued again; one resumes when the owner's own Job ends.
        let view = running(world, "a", 3).await?;
        given_where_recorded(world, &view, "a").await?;
        queued(world, "a", 3).await?;
        complete(world, "a", 1).await?;
        let view = running(world, "a", 3).await?;
        given_where_recorded(world, &view, "a").await?;
        Ok(())
    })
    .await;
}
