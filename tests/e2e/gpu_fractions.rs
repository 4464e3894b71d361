//! GPU fractions on nodes that offer a resource for them which kube-scheduler counts.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::ListParams;
use sluice_harness::{Options, World, eventually, patience};

use crate::pods::explained;
use crate::support::{Job, SLUICE, complete, nodes, nodes_with, pool, running, team, team_of};

/// Label of the nodes of the pool `sliced`.
const SLICED: &str = "example.com/sliced: \"true\"";

/// A pool of nodes that offer a device in two halves, and a team that owns one device.
fn owner_of_one(half: &str) -> String {
    let selector = format!("nodeSelector: {{{SLICED}}}");
    let shares = format!("shares: {{{half}: \"0.5\"}}");
    let team = team_of("a", &["quotas: [{pool: sliced, guaranteed: {sluice.dev/gpu: 1}}]"]);
    format!("{}{team}", pool("sliced", &[&selector, &shares]))
}

/// A device in two partitions that a driver offers as a class; the test replaces the driver.
const PARTITIONS: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: half.example.com}
spec:
  extendedResourceName: example.com/half-gpu
  selectors:
  - cel:
      expression: >-
        device.driver == 'gpu.example.com' && device.attributes['gpu.example.com'].type == 'half'
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: gpu-0}
spec:
  driver: gpu.example.com
  nodeName: gpu-0
  pool: {name: gpu-0, generation: 1, resourceSliceCount: 1}
  devices:
  - {name: left, attributes: {type: {string: half}}}
  - {name: right, attributes: {type: {string: half}}}
";

/// A Job that requests half a device of the pool.
fn half(name: &str) -> Job {
    Job::new("a", name).gpus(0).annotated("gpu-fraction", "0.5").annotated("pool", "sliced")
}

/// The team's usage in the pool, in GPUs.
async fn gpus_used(world: &World) -> Result<Option<String>> {
    let teams = world.replicas[0].teams().await?;
    let row = teams.teams.into_iter().find(|row| row.pool == "sliced");
    ensure!(
        row.as_ref().is_none_or(|row| row.shares.len() == 1),
        "the row has the shares of its pool: {row:?}"
    );
    Ok(row.and_then(|row| row.used.get("sluice.dev/gpu").cloned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_fraction_becomes_a_request_for_a_device_that_a_driver_offers() {
    World::run("fraction-dra", SLUICE, 1, async |world| {
        world
            .apply(&format!("{}{}", nodes_with(2, SLICED, ""), owner_of_one("example.com/half-gpu")))
            .await?;
        world.kubectl.apply(PARTITIONS).await?;
        world.kubectl.apply(&half("first").lasts(Duration::from_secs(12)).manifest()).await?;
        world.kubectl.apply(&half("second").manifest()).await?;
        running(world, "a", 2).await?;
        world.kubectl.apply(&half("third").manifest()).await?;
        explained(world, "a", "third", "NoRoom").await?;
        ensure!(gpus_used(world).await?.as_deref() == Some("1"), "two halves are one GPU");
        // kube-scheduler has made a claim for each pod and allocated a partition to it.
        let claims: Api<ResourceClaim> = Api::namespaced(world.client.clone(), "a");
        let allocations = claims.list(&ListParams::default()).await?.into_iter();
        let devices = allocations.filter_map(|claim| claim.status?.allocation?.devices?.results).flatten();
        let mut devices: Vec<String> = devices.map(|device| device.device).collect();
        devices.sort_unstable();
        ensure!(devices == ["left", "right"], "allocated: {devices:?}");
        complete(world, "a", 1).await?;
        running(world, "a", 2).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_halves_share_a_device_and_count_as_one() {
    World::run("fractions", SLUICE, 1, async |world| {
        let node = nodes_with(1, SLICED, "nvidia.com/gpu.shared: \"2\"");
        world.apply(&format!("{node}{}", owner_of_one("nvidia.com/gpu.shared"))).await?;
        world.kubectl.apply(&half("first").lasts(Duration::from_secs(12)).manifest()).await?;
        world.kubectl.apply(&half("second").manifest()).await?;
        running(world, "a", 2).await?;
        let asks = "jsonpath={.items[*].spec.containers[0].resources.limits.nvidia\\.com/gpu\\.shared}";
        let asked = world.kubectl.ok(&["get", "pods", "--namespace=a", "-o", asks]).await?;
        ensure!(asked == "1 1", "the pods ask for {asked:?}");
        ensure!(gpus_used(world).await?.as_deref() == Some("1"), "two halves are one GPU");
        // A slice that is requested directly is the same half, and there is no third one.
        let direct = half("direct").manifest().replace("gpu-fraction: \"0.5\"", "time-limit: \"1h\"");
        let direct = direct.replace("limits: {}", "limits: {nvidia.com/gpu.shared: 1}");
        world.kubectl.apply(&direct).await?;
        explained(world, "a", "direct", "NoRoom").await?;
        // The pool offers nothing larger than a slice.
        let large = half("large").manifest().replace("\"0.5\"", "\"0.7\"");
        let refused = world.kubectl.apply(&large).await;
        ensure!(
            refused.as_ref().is_err_and(
                |error| format!("{error:#}").contains("more than any fraction that pool sliced offers")
            ),
            "{refused:?}"
        );
        // Neither does another pool, and a template is no place for a fraction.
        let elsewhere = half("elsewhere").manifest().replace("\"sliced\"", "\"default\"");
        let template = Job::new("a", "template").gpus(0).manifest();
        let template = template.replacen(
            "      annotations: {",
            "      annotations: {sluice.dev/gpu-fraction: '0.5'",
            1,
        );
        for (manifest, why) in
            [(elsewhere, "no NodePool of default lists shares"), (template, "in spec.template has no effect")]
        {
            let refused = world.kubectl.apply(&manifest).await;
            ensure!(refused.as_ref().is_err_and(|error| format!("{error:#}").contains(why)), "{refused:?}");
        }
        complete(world, "a", 1).await?;
        let what = "the directly requested slice runs where the first one ran";
        let admitted = |view: &sluice_harness::View| match view.job("a", "direct") {
            Some(job) if job.admission.is_some() => Ok(()),
            _ => Err(view.summary("a")),
        };
        world.until(what, admitted).await?;
        running(world, "a", 2).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_starts_with_a_smaller_fraction_under_load_and_requests_all_of_it_again() {
    let options = Options { flags: vec!["--assume-gpu-fractions".to_owned()], ..Options::new(SLUICE) };
    World::run_with("sizes", options, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(1, 2), team("a", 1), team("b", 1))).await?;
        world.kubectl.apply(&Job::new("a", "own").lasts(Duration::from_secs(30)).manifest()).await?;
        running(world, "a", 1).await?;
        let half =
            Job::new("b", "half").gpus(0).annotated("gpu-fraction", "0.5").lasts(Duration::from_secs(8));
        world.kubectl.apply(&half.manifest()).await?;
        running(world, "b", 1).await?;
        let less = Job::new("a", "less").annotated("gpu-fraction", "1,0.7,0.4").manifest();
        world.kubectl.apply(&less).await?;
        running(world, "a", 2).await?;
        let limits = "jsonpath={.spec.template.spec.containers[0].resources.limits.nvidia\\.com/gpu}";
        let asks =
            async |name: &str| world.kubectl.ok(&["get", "job", name, "--namespace=a", "-o", limits]).await;
        let asked = asks("less").await?;
        ensure!(asked.is_empty(), "at 0.4 of a GPU kube-scheduler must be asked for none, not {asked:?}");
        let record = "jsonpath={.metadata.annotations.sluice\\.dev/admission}";
        let record = world.kubectl.ok(&["get", "job", "less", "--namespace=a", "-o", record]).await?;
        ensure!(record.contains("\"share\":\"0.4\""), "{record}");
        let sentence = explained(world, "a", "less", "Borrowed").await?;
        ensure!(sentence.contains("0.4 of a GPU instead of 1"), "{sentence}");
        // Applying the same manifest again changes neither the grant nor the request.
        world.kubectl.apply(&less).await?;
        ensure!(asks("less").await?.is_empty(), "an unchanged manifest undoes the grant");
        // b takes its own GPU back; the Job waits, and its template requests its largest size again.
        complete(world, "b", 1).await?;
        world.kubectl.apply(&Job::new("b", "owner").manifest()).await?;
        running(world, "b", 1).await?;
        let restored = async || match asks("less").await {
            Ok(asked) if asked == "1" => Ok(()),
            other => Err(format!("{other:?}")),
        };
        eventually("its template requests a whole GPU again", patience(), restored).await?;
        // Once its full size fits, it gets all of it.
        complete(world, "a", 1).await?;
        let sentence = explained(world, "a", "less", "Guaranteed").await?;
        ensure!(!sentence.contains("instead"), "{sentence}");
        ensure!(asks("less").await? == "1", "the whole granted GPU");
        running(world, "a", 1).await?;
        Ok(())
    })
    .await;
}
