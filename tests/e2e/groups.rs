//! Plain pods of a group start all or none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice::api::names;
use sluice::api::record::Record;
use sluice_harness::{View, World};

use crate::pods::{event_note, explained, find};
use crate::support::{Job, SLUICE, nodes, running, team};

/// A pod with one GPU in group `g` of four.
fn member(number: usize) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata:
  name: g-{number}
  namespace: a
  labels: {{sluice.dev/group: g}}
  annotations: {{sluice.dev/group-size: '4'}}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: main
    image: registry.example/train
    resources: {{limits: {{nvidia.com/gpu: 1}}}}
---"
    )
}

/// This many pods of the group are gated, and none of them runs.
fn all_gated(view: &View, count: usize) -> Result<(), String> {
    let of_group = || view.pods.iter().filter(|pod| pod.name.starts_with("g-"));
    let gated = of_group().filter(|pod| pod.gated && pod.node.is_none()).count();
    if gated == count && of_group().count() == count { Ok(()) } else { Err(view.summary("a")) }
}

/// The admission record of each pod of the group, by UID.
async fn records(world: &World) -> Result<BTreeMap<String, Record>> {
    let list = ["get", "pods", "--namespace=a", "-l", "sluice.dev/group=g", "-o", "json"];
    let list: serde_json::Value = serde_json::from_str(&world.kubectl.ok(&list).await?)?;
    let pods = list["items"].as_array().context("a list")?;
    let record = |pod: &serde_json::Value| -> Result<(String, Record)> {
        let text = pod["metadata"]["annotations"][names::ADMISSION].as_str().context("a record")?;
        Ok((pod["metadata"]["uid"].as_str().context("a UID")?.to_owned(), serde_json::from_str(text)?))
    };
    pods.iter().map(record).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_a_group_start_all_or_none() {
    World::run("group", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(2, 2), team("a", 4))).await?;
        world.kubectl.apply(&Job::new("a", "first").manifest()).await?;
        running(world, "a", 1).await?;
        world.kubectl.apply(&(0..3).map(member).collect::<String>()).await?;
        let waits = explained(world, "a", "g-1", "Incomplete").await?;
        ensure!(waits.contains("3 of 4 pods exist"), "{waits}");

        // All four exist, and three of them fit.
        world.kubectl.apply(&member(3)).await?;
        let waits = explained(world, "a", "g", "NoRoom").await?;
        ensure!(waits.contains("Needs 4 GPUs; 3 GPUs are free"), "{waits}");
        world.stays("none of them runs", Duration::from_secs(3), |view| all_gated(view, 4)).await?;
        let refusal = ["patch", "pod", "g-0", "--namespace=a", "--type=merge", "-p"];
        let free = r#"{"spec":{"schedulingGates":null}}"#;
        let refusal = world.kubectl.refused(&[&refusal[..], &[free]].concat()).await?;
        ensure!(refusal.contains("only Sluice removes its gates"), "{refusal}");

        world.kubectl.ok(&["delete", "job", "first", "--namespace=a", "--wait=false"]).await?;
        let view = world
            .until("all four run", |view| {
                let of_group = view.running("a").filter(|pod| pod.name.starts_with("g-"));
                if of_group.count() == 4 { Ok(()) } else { Err(view.summary("a")) }
            })
            .await?;
        let records = records(world).await?;
        let distinct: BTreeSet<String> =
            records.values().map(|record| serde_json::to_string(record).unwrap_or_default()).collect();
        ensure!(distinct.len() == 1, "their records differ: {distinct:?}");
        for pod in view.pods.iter().filter(|pod| pod.name.starts_with("g-")) {
            let planned = records.get(&pod.uid).map(|record| record.nodes_of(&pod.uid));
            ensure!(planned == pod.node.as_deref().map(|node| vec![node]), "{pod:?}, planned {planned:?}");
        }
        for number in 0..4 {
            let name = format!("g-{number}");
            let writes = world.cluster.audit().by(names::ACCOUNT)?;
            let writes = writes.iter().filter(|write| write.resource == "pods" && write.name == name);
            ensure!(writes.count() == 1, "{name} was written more than once");
            let note = event_note(world, "a", &name, "Admitted").await?;
            ensure!(note.contains("4 pods on gpu-0 (2), gpu-1 (2)"), "{note}");
        }
        let regroup = ["label", "pod", "g-0", "--namespace=a", "--overwrite", "sluice.dev/group=h"];
        let refusal = world.kubectl.refused(&regroup).await?;
        ensure!(refusal.contains("only while the pod waits"), "{refusal}");

        // One pod is deleted: the others run on, and its replacement is queued alone.
        world.kubectl.ok(&["delete", "pod", "g-0", "--namespace=a", "--wait=true"]).await?;
        world.kubectl.apply(&member(0)).await?;
        let view = world
            .until("the replacement runs", |view| match find(view, "a", "g-0")? {
                pod if pod.running() => Ok(()),
                pod => Err(format!("{pod:?}")),
            })
            .await?;
        ensure!(view.running("a").count() == 4, "{}", view.summary("a"));
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_evicted_whole_when_an_owner_needs_part_of_it() {
    World::run("group-evicted", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(2, 2), team("a", 0), team("b", 2))).await?;
        let lets = "sluice.dev/group-size: '4', sluice.dev/preemptible: 'true'";
        let members: String = (0..4).map(member).collect();
        world.kubectl.apply(&members.replace("sluice.dev/group-size: '4'", lets)).await?;
        running(world, "a", 4).await?;
        world.kubectl.apply(&Job::new("b", "owner").gpus(2).manifest()).await?;
        let view = running(world, "b", 1).await?;
        ensure!(
            !view.pods.iter().any(|pod| pod.name.starts_with("g-") && pod.running()),
            "part of it runs on"
        );
        let writes = world.cluster.audit().by(names::ACCOUNT)?;
        let evictions = writes.iter().filter(|write| write.resource == "pods/eviction").count();
        ensure!(evictions == 4, "{evictions} evictions");
        Ok(())
    })
    .await;
}
