//! Every pod goes where its Job was admitted to; where it cannot, that is put right and told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_harness::fidelity::{self, Mix};
use sluice_harness::{JobView, View, World, eventually, patience};

use crate::pods::pod;
use crate::support::{Job, SLUICE, namespace, nodes, queued, quota, running, team_of};

const SCHEDULER: &str = "kube-scheduler";

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_of_a_random_mix_goes_where_the_record_says() {
    World::run("fidelity", SLUICE, 1, async |world| {
        // Nobody is moved for another, so every Job starts once.
        let team = team_of("a", &[&quota(24 * 8), "queues: [{name: training, preemptible: false}]"]);
        world.apply(&format!("{}{team}", nodes(24, 8))).await?;
        let mix = Mix { jobs: 70, seed: 11, shortest: 1000 };
        let seen = fidelity::run(&world.cluster, "a", mix, Duration::from_secs(240)).await?;
        ensure!(seen.astray.is_empty(), "{:#?}", seen.astray);
        ensure!(seen.spread > 10 && seen.pods.iter().all(|pods| *pods > 100), "no mix: {seen:?}");
        ensure!(seen.miswritten.is_empty(), "not admitted by one write each: {:#?}", seen.miswritten);
        let [_, indexed, others] = seen.writes;
        // None, but for pods that the webhook itself counts because news of their admission was late by
        // more than it may wait; on a machine where the API server answers in time it counts none.
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

/// A Job of so many Indexed pods.
fn indexed(name: &str, pods: usize, gpus: usize) -> Job {
    Job::new("a", name)
        .gpus(gpus)
        .spec(&format!("parallelism: {pods}"))
        .spec(&format!("completions: {pods}"))
        .spec("completionMode: Indexed")
}

/// Submits a Job that is admitted but cannot start, because nobody binds pods; gives its nodes.
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
    view.job("a", name).with_context(|| format!("{name} is not there"))
}

fn places(job: &JobView) -> BTreeMap<String, u32> {
    job.admission.as_ref().map(|record| record.nodes.clone()).unwrap_or_default()
}

/// Waits until all pods of a Job run where its record says, off that node.
async fn runs_without(world: &World, name: &str, pods: usize, node: &str) -> Result<View> {
    world
        .until(&format!("{name} runs with {pods} pods, none of them on {node}"), |view| {
            let job = view.job("a", name).ok_or("it is not there")?;
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

/// Waits until an Event about a Job has been told.
async fn told(world: &World, namespace: &str, name: &str, reason: &str, part: &str) -> Result<()> {
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

/// What Sluice answers about a Job that waits.
async fn verdict(world: &World, name: &str) -> Result<String> {
    world.replicas[0].get(&format!("/api/v1/workloads/a/{name}")).await
}

/// A team with two namespaces: in `a` lost pods are made anew, in `whole` their workload starts again.
fn team_with_both() -> String {
    let queues = "queues: [{name: training}, {name: whole, onPodLoss: Restart}]";
    let whole = namespace("whole", "a", "sluice.dev/queue: whole");
    format!("{}{whole}", team_of("a", &[&quota(16), queues]))
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_cannot_get_to_their_places_or_lose_them_are_put_right() {
    World::run("faults", SLUICE, 1, async |world| faults(world).await).await;
}

/// One fault after the other, each put right before the next.
pub async fn faults(world: &World) -> Result<()> {
    world.apply(&format!("{}{}", nodes(2, 4), team_with_both())).await?;
    a_foreign_pod_takes_a_planned_place(world).await?;
    world.apply(&nodes(3, 4)).await?;
    a_node_is_closed_between_decision_and_binding(world).await?;
    world.apply(&nodes(4, 4)).await?;
    a_node_is_lost_under_a_gang(world).await?;
    world.apply(&nodes(4, 4)).await?;
    a_node_is_lost_under_a_gang_that_starts_whole(world).await
}

/// The gang of two finds one of its two nodes taken; with no third one it goes back and says why.
async fn a_foreign_pod_takes_a_planned_place(world: &World) -> Result<()> {
    let before = admitted_only(world, &indexed("ousted", 2, 3), "ousted").await?;
    ensure!(before.len() == 2, "it was admitted to {before:?}");
    let on_node = format!("spec:\n  nodeName: {}", before[0]);
    let foreign = pod("default", "foreign", 4, "").replacen("spec:", &on_node, 1);
    world.kubectl.apply(&foreign).await?;
    world.cluster.start(SCHEDULER).await?;
    let view = queued(world, "a", 1).await?;
    let job = job_of(&view, "ousted")?;
    let reason = job.eviction.as_ref().map(|note| note.reason.as_str());
    ensure!(reason == Some("NotPlaced"), "{job:?}");
    told(world, "a", "ousted", "Evicted", &before[0]).await?;
    let says = verdict(world, "ousted").await?;
    ensure!(says.contains("could not be started") && says.contains(&before[0]), "{says}");

    world.kubectl.ok(&["delete", "pod", "foreign", "--namespace=default", "--wait=false"]).await?;
    running(world, "a", 2).await?;
    end(world, "a", "ousted").await
}

/// Pods that get their places one by one are made anew; a Job that its template pins goes back and comes
/// again.
async fn a_node_is_closed_between_decision_and_binding(world: &World) -> Result<()> {
    let gang = indexed("gang", 2, 3).spec("backoffLimit: 0");
    let before = admitted_only(world, &gang, "gang").await?;
    ensure!(before.len() == 2, "it was admitted to {before:?}");
    world.kubectl.ok(&["cordon", &before[1]]).await?;
    world.cluster.start(SCHEDULER).await?;
    let view = runs_without(world, "gang", 2, &before[1]).await?;
    let job = job_of(&view, "gang")?;
    ensure!(job.eviction.is_none() && job.failed_pods == 0, "made anew one by one: {job:?}");
    ensure!(places(job).contains_key(&before[0]), "the other stays: {job:?}");
    told(world, "a", "gang", "Replaced", &before[1]).await?;
    end(world, "a", "gang").await?;
    world.kubectl.ok(&["uncordon", &before[1]]).await?;

    let single = admitted_only(world, &Job::new("a", "single").gpus(4), "single").await?;
    world.kubectl.ok(&["cordon", &single[0]]).await?;
    world.cluster.start(SCHEDULER).await?;
    runs_without(world, "single", 1, &single[0]).await?;
    told(world, "a", "single", "Evicted", "NotPlaced").await?;
    world.kubectl.ok(&["uncordon", &single[0]]).await?;
    end(world, "a", "single").await
}

/// The lost pods are made anew on a free node; when there is none, the gang goes back until there is.
async fn a_node_is_lost_under_a_gang(world: &World) -> Result<()> {
    world.kubectl.apply(&indexed("trio", 3, 4).spec("backoffLimit: 0").manifest()).await?;
    let view = running(world, "a", 3).await?;
    let lost = places(job_of(&view, "trio")?).into_keys().next().context("it has no places")?;
    world.kubectl.ok(&["delete", "node", &lost]).await?;
    let view = runs_without(world, "trio", 3, &lost).await?;
    let job = job_of(&view, "trio")?;
    ensure!(job.eviction.is_none() && job.failed_pods == 0, "{job:?}");
    told(world, "a", "trio", "Replaced", "node").await?;

    let lost = places(job).into_keys().next().context("it has no places")?;
    world.kubectl.ok(&["delete", "node", &lost]).await?;
    told(world, "a", "trio", "Evicted", "NodeLost").await?;
    clear(world, "a", &lost).await?;
    let view = queued(world, "a", 1).await?;
    let job = job_of(&view, "trio")?;
    ensure!(job.eviction.as_ref().is_some_and(|note| note.reason == "NodeLost"), "{job:?}");
    world.apply(&nodes(4, 4)).await?;
    running(world, "a", 3).await?;
    end(world, "a", "trio").await
}

/// Where its queue says so, the whole gang starts again, although there is room for the lost pod alone.
async fn a_node_is_lost_under_a_gang_that_starts_whole(world: &World) -> Result<()> {
    let gang = indexed("gang", 2, 4).within("whole").spec("backoffLimit: 0");
    world.kubectl.apply(&gang.manifest()).await?;
    let before = running(world, "whole", 2).await?;
    let pods: BTreeSet<String> = before.running("whole").map(|pod| pod.uid.clone()).collect();
    let lost = before.running("whole").find_map(|pod| pod.node.clone()).context("no pod has a node")?;
    world.kubectl.ok(&["delete", "node", &lost]).await?;
    told(world, "whole", "gang", "Evicted", "NodeLost").await?;
    clear(world, "whole", &lost).await?;
    world
        .until("the gang runs again, all its pods anew", |view| {
            let now: BTreeSet<String> = view.running("whole").map(|pod| pod.uid.clone()).collect();
            if now.len() == 2 && now.is_disjoint(&pods) { Ok(()) } else { Err(view.summary("whole")) }
        })
        .await
        .map(drop)
}

/// Does what the pod garbage collector does a minute later: pods whose node is gone are nobody's to end.
async fn clear(world: &World, namespace: &str, node: &str) -> Result<()> {
    let on = format!("--field-selector=spec.nodeName={node}");
    let delete = ["delete", "pod", "--namespace", namespace, &on, "--grace-period=0", "--force"];
    world.kubectl.ok(&delete).await.map(drop)
}

/// Deletes a Job and waits until its last pod is gone: until then it holds its room.
async fn end(world: &World, namespace: &str, job: &str) -> Result<()> {
    world.kubectl.ok(&["delete", "job", job, "--namespace", namespace, "--cascade=foreground"]).await?;
    running(world, namespace, 0).await.map(drop)
}

/// One pod of a gang is up and one is held by a gate of somebody else: after its queue's time the whole gang
/// goes back and rests, and another has its room. That one comes up in time and stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_does_not_come_up_goes_back_whole() {
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
        let first = pods.lines().next().context("there are no pods")?;
        let open = r#"{"spec":{"schedulingGates":null}}"#;
        world.kubectl.ok(&["patch", first, "--namespace=a", "--type=merge", "-p", open]).await?;
        running(world, "a", 1).await?;
        told(world, "a", "stuck", "Evicted", "NotReady: 1 of 2 pods were ready").await?;
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
