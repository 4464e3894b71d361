//! Every pod runs where its Job was admitted to; misplaced pods are corrected and reported.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_harness::fidelity::{self, Mix};
use sluice_harness::{JobView, View, World, eventually, patience};

use crate::pods::pod;
use crate::support::{Job, SLUICE, namespace, nodes, queued, quota, running, team_of};

const SCHEDULER: &str = "kube-scheduler";

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_of_a_random_mix_runs_where_the_record_says() {
    World::run("fidelity", SLUICE, 1, async |world| {
        // No workload is moved for another, so every Job starts once.
        let team = team_of("a", &[&quota(24 * 8), "queues: [{name: training, preemptible: false}]"]);
        world.apply(&format!("{}{team}", nodes(24, 8))).await?;
        let mix = Mix { jobs: 70, seed: 11, shortest: 1000 };
        let seen = fidelity::run(&world.cluster, "a", mix, Duration::from_secs(240)).await?;
        ensure!(seen.misplaced.is_empty(), "{:#?}", seen.misplaced);
        ensure!(seen.spread > 10 && seen.pods.iter().all(|pods| *pods > 100), "not a mix: {seen:?}");
        ensure!(seen.miswritten.is_empty(), "not admitted by one write each: {:#?}", seen.miswritten);
        let [_, indexed, others] = seen.writes;
        // None, except for pods that the webhook itself counts because their admission reached it later than
        // its longest wait. Where the API server answers in time the count is zero.
        let unseen = fidelity::unseen(&world.replicas).await?;
        ensure!(
            indexed <= unseen,
            "{indexed} writes on the {} pods of Indexed Jobs; the webhook missed {unseen} admissions",
            seen.pods[0]
        );
        ensure!(others < seen.pods[1], "{others} writes on the {} pods of other Jobs", seen.pods[1]);
        Ok(())
    })
    .await;
}

/// A Job with this many Indexed pods.
fn indexed(name: &str, pods: usize, gpus: usize) -> Job {
    Job::new("a", name)
        .gpus(gpus)
        .spec(&format!("parallelism: {pods}"))
        .spec(&format!("completions: {pods}"))
        .spec("completionMode: Indexed")
}

/// Submits a Job that is admitted but cannot start because pods are not bound; returns its nodes.
async fn admitted_only(world: &World, job: &Job, name: &str) -> Result<Vec<String>> {
    world.cluster.stop(SCHEDULER).await?;
    world.kubectl.apply(&job.manifest()).await?;
    let view = world
        .until("the Job is admitted and has its pods", |view| {
            let job = view.job("a", name).filter(|job| job.admitted());
            let granted = job.and_then(|job| job.admission.as_ref()).map(|record| record.pods as usize);
            let pods = view.pods.iter().filter(|pod| pod.job.as_deref() == Some(name)).count();
            if granted == Some(pods) { Ok(()) } else { Err(format!("{job:?}, {pods} pods")) }
        })
        .await?;
    Ok(places(job_of(&view, name)?).into_keys().collect())
}

fn job_of<'a>(view: &'a View, name: &str) -> Result<&'a JobView> {
    view.job("a", name).with_context(|| format!("{name} does not exist"))
}

fn places(job: &JobView) -> BTreeMap<String, u32> {
    job.admission.as_ref().map(|record| record.nodes.clone()).unwrap_or_default()
}

/// Waits until all pods of a Job run where its record says, none of them on this node.
async fn runs_without(world: &World, name: &str, pods: usize, node: &str) -> Result<View> {
    world
        .until(&format!("{name} runs with {pods} pods, none of them on {node}"), |view| {
            let job = view.job("a", name).ok_or("the Job does not exist")?;
            let mut on: BTreeMap<String, u32> = BTreeMap::new();
            let ours = view.running("a").filter(|pod| pod.job.as_deref() == Some(name));
            for at in ours.filter_map(|pod| pod.node.clone()) {
                *on.entry(at).or_default() += 1;
            }
            let all = on.values().sum::<u32>() as usize == pods;
            let right = on == places(job) && !on.contains_key(node) && job.admitted();
            if all && right { Ok(()) } else { Err(format!("pods on {on:?}, {job:?}")) }
        })
        .await
}

/// Waits for an Event about a Job.
async fn has_event(world: &World, namespace: &str, name: &str, reason: &str, part: &str) -> Result<()> {
    let selector = format!("--field-selector=reason={reason},involvedObject.name={name}");
    eventually(&format!("an Event {reason} of {name} says {part:?}"), patience(), async || {
        let list =
            ["get", "events", "--namespace", namespace, "-o", "jsonpath={.items[*].message}", &selector];
        match world.kubectl.ok(&list).await {
            Ok(messages) if messages.contains(part) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// Sluice's message about a waiting Job.
async fn verdict(world: &World, name: &str) -> Result<String> {
    Ok(world.replicas[0].workload("a", name).await?.to_string())
}

/// A team with two namespaces: in `a` lost pods are replaced, in `whole` their workload starts again.
fn team_with_both() -> String {
    let queues = "queues: [{name: training}, {name: whole, onPodLoss: Restart}]";
    let whole = namespace("whole", "a", "sluice.dev/queue: whole");
    format!("{}{whole}", team_of("a", &[&quota(16), queues]))
}

#[tokio::test(flavor = "multi_thread")]
async fn misplaced_and_lost_pods_are_replaced_or_requeued() {
    World::run("faults", SLUICE, 1, async |world| faults(world).await).await;
}

/// One fault after another, each corrected before the next.
pub async fn faults(world: &World) -> Result<()> {
    world.apply(&format!("{}{}", nodes(2, 4), team_with_both())).await?;
    an_unmanaged_pod_takes_a_planned_node(world).await?;
    world.apply(&nodes(3, 4)).await?;
    a_node_is_closed_between_decision_and_binding(world).await?;
    world.apply(&nodes(4, 4)).await?;
    a_node_is_lost_under_a_gang(world).await?;
    world.apply(&nodes(4, 4)).await?;
    a_node_is_lost_under_a_gang_that_starts_whole(world).await
}

/// One of the two nodes of a gang is taken. Without a third node the gang is requeued with the reason.
async fn an_unmanaged_pod_takes_a_planned_node(world: &World) -> Result<()> {
    let before = admitted_only(world, &indexed("ousted", 2, 3), "ousted").await?;
    ensure!(before.len() == 2, "admitted to {before:?}");
    let on_node = format!("spec:\n  nodeName: {}", before[0]);
    let unmanaged = pod("default", "unmanaged", 4, "").replacen("spec:", &on_node, 1);
    world.kubectl.apply(&unmanaged).await?;
    world.cluster.start(SCHEDULER).await?;
    let view = queued(world, "a", 1).await?;
    let job = job_of(&view, "ousted")?;
    let reason = job.eviction.as_ref().map(|note| note.reason.as_str());
    ensure!(reason == Some("NotPlaced"), "{job:?}");
    has_event(world, "a", "ousted", "Evicted", &before[0]).await?;
    let says = verdict(world, "ousted").await?;
    ensure!(says.contains("could not be started") && says.contains(&before[0]), "{says}");

    world.kubectl.ok(&["delete", "pod", "unmanaged", "--namespace=default", "--wait=false"]).await?;
    running(world, "a", 2).await?;
    end(world, "a", "ousted").await
}

/// Pods placed one by one are replaced elsewhere; a Job pinned by its template is requeued and admitted
/// again.
async fn a_node_is_closed_between_decision_and_binding(world: &World) -> Result<()> {
    let gang = indexed("gang", 2, 3).spec("backoffLimit: 0");
    let before = admitted_only(world, &gang, "gang").await?;
    ensure!(before.len() == 2, "admitted to {before:?}");
    world.kubectl.ok(&["cordon", &before[1]]).await?;
    world.cluster.start(SCHEDULER).await?;
    let view = runs_without(world, "gang", 2, &before[1]).await?;
    let job = job_of(&view, "gang")?;
    ensure!(job.eviction.is_none() && job.failed_pods == 0, "not replaced one by one: {job:?}");
    ensure!(places(job).contains_key(&before[0]), "the other pod has moved: {job:?}");
    has_event(world, "a", "gang", "Replaced", &before[1]).await?;
    end(world, "a", "gang").await?;
    world.kubectl.ok(&["uncordon", &before[1]]).await?;

    let single = admitted_only(world, &Job::new("a", "single").gpus(4), "single").await?;
    world.kubectl.ok(&["cordon", &single[0]]).await?;
    world.cluster.start(SCHEDULER).await?;
    runs_without(world, "single", 1, &single[0]).await?;
    has_event(world, "a", "single", "Evicted", "NotPlaced").await?;
    world.kubectl.ok(&["uncordon", &single[0]]).await?;
    end(world, "a", "single").await
}

/// Lost pods are replaced on a free node; without one, the gang is requeued until there is one.
async fn a_node_is_lost_under_a_gang(world: &World) -> Result<()> {
    world.kubectl.apply(&indexed("trio", 3, 4).spec("backoffLimit: 0").manifest()).await?;
    let view = running(world, "a", 3).await?;
    let lost = places(job_of(&view, "trio")?).into_keys().next().context("no nodes in the record")?;
    world.kubectl.ok(&["delete", "node", &lost]).await?;
    let view = runs_without(world, "trio", 3, &lost).await?;
    let job = job_of(&view, "trio")?;
    ensure!(job.eviction.is_none() && job.failed_pods == 0, "{job:?}");
    has_event(world, "a", "trio", "Replaced", "node").await?;

    let lost = places(job).into_keys().next().context("no nodes in the record")?;
    world.kubectl.ok(&["delete", "node", &lost]).await?;
    has_event(world, "a", "trio", "Evicted", "NodeLost").await?;
    clear(world, "a", &lost).await?;
    let view = queued(world, "a", 1).await?;
    let job = job_of(&view, "trio")?;
    ensure!(job.eviction.as_ref().is_some_and(|note| note.reason == "NodeLost"), "{job:?}");
    world.apply(&nodes(4, 4)).await?;
    running(world, "a", 3).await?;
    end(world, "a", "trio").await
}

/// In a queue with `onPodLoss: Restart` the whole gang starts again, although there is capacity for the lost
/// pod alone.
async fn a_node_is_lost_under_a_gang_that_starts_whole(world: &World) -> Result<()> {
    let gang = indexed("gang", 2, 4).within("whole").spec("backoffLimit: 0");
    world.kubectl.apply(&gang.manifest()).await?;
    let before = running(world, "whole", 2).await?;
    let pods: BTreeSet<String> = before.running("whole").map(|pod| pod.uid.clone()).collect();
    let lost = before.running("whole").find_map(|pod| pod.node.clone()).context("no pod is bound")?;
    world.kubectl.ok(&["delete", "node", &lost]).await?;
    has_event(world, "whole", "gang", "Evicted", "NodeLost").await?;
    clear(world, "whole", &lost).await?;
    world
        .until("the gang runs again with new pods only", |view| {
            let now: BTreeSet<String> = view.running("whole").map(|pod| pod.uid.clone()).collect();
            if now.len() == 2 && now.is_disjoint(&pods) { Ok(()) } else { Err(view.summary("whole")) }
        })
        .await
        .map(drop)
}

/// Replaces the pod garbage collector, which would delete the pods of a removed node a minute later.
async fn clear(world: &World, namespace: &str, node: &str) -> Result<()> {
    let on = format!("--field-selector=spec.nodeName={node}");
    let delete = ["delete", "pod", "--namespace", namespace, &on, "--grace-period=0", "--force"];
    world.kubectl.ok(&delete).await.map(drop)
}

/// Deletes a Job and waits until its last pod is gone: until then it holds its capacity.
async fn end(world: &World, namespace: &str, job: &str) -> Result<()> {
    world.kubectl.ok(&["delete", "job", job, "--namespace", namespace, "--cascade=foreground"]).await?;
    running(world, namespace, 0).await.map(drop)
}

/// One pod of a gang is ready and one has a gate of another controller. After the queue's `readyTimeout` the
/// whole gang is requeued and pauses, and another gang takes its capacity. That gang is ready in time and
/// stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_does_not_become_ready_is_requeued_whole() {
    World::run("readiness", SLUICE, 1, async |world| {
        let team = team_of("a", &[&quota(4), "queues: [{name: training, readyTimeout: 15s}]"]);
        world.apply(&format!("{}{team}", nodes(1, 4))).await?;
        let gang = |name: &str| indexed(name, 2, 2);
        let stuck = gang("stuck").pod_spec("schedulingGates: [{name: example.com/data}]");
        world.kubectl.apply(&stuck.manifest()).await?;
        world
            .until("the gang has its pods", |view| {
                let pods = view.pods.iter().filter(|pod| pod.job.as_deref() == Some("stuck")).count();
                if pods == 2 { Ok(()) } else { Err(view.summary("a")) }
            })
            .await?;
        let pods = world.kubectl.ok(&["get", "pods", "--namespace=a", "-o", "name"]).await?;
        let first = pods.lines().next().context("no pods")?;
        let open = r#"{"spec":{"schedulingGates":null}}"#;
        world.kubectl.ok(&["patch", first, "--namespace=a", "--type=merge", "-p", open]).await?;
        running(world, "a", 1).await?;
        has_event(world, "a", "stuck", "Evicted", "NotReady: 1 of 2 pods were ready").await?;
        let view = queued(world, "a", 1).await?;
        let job = job_of(&view, "stuck")?;
        ensure!(job.eviction.as_ref().is_some_and(|note| note.reason == "NotReady"), "{job:?}");

        let says = verdict(world, "stuck").await?;
        ensure!(says.contains("1 of 2 pods were ready"), "{says}");
        world.kubectl.apply(&gang("sound").manifest()).await?;
        running(world, "a", 2).await?;
        world
            .stays("the gang that is up runs", Duration::from_secs(18), |view| {
                let stays =
                    view.job("a", "sound").is_some_and(|job| job.admitted() && job.eviction.is_none());
                if stays { Ok(()) } else { Err(view.summary("a")) }
            })
            .await?;
        let metrics = world.replicas[0].get("/metrics").await?;
        let counted = r#"sluice_evicted_total{reason="NotReady",team="a"} 1"#;
        ensure!(metrics.contains(counted), "{metrics}");
        Ok(())
    })
    .await;
}
