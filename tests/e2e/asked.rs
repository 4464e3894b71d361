//! What users ask of their own waiting work, as a user with the ClusterRole `edit` in the namespace and nothing else: to hold
//! it, to order it, to have it back in the queue; queues that are paused; and the Events that say why a Job waits.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use sluice_harness::{JobView, View, World, eventually, patience};

use crate::support::{Job, SLUICE, nodes, quota, running, team_of};

/// The user of these tests.
const CAROL: &str = "--as=carol";

/// Annotates a Job as that user.
async fn annotate(world: &World, job: &str, annotation: &str) -> Result<String> {
    world.kubectl.ok(&["annotate", "job", job, "--namespace=a", "--overwrite", annotation, CAROL]).await
}

async fn delete(world: &World, job: &str) -> Result<()> {
    world.kubectl.ok(&["delete", "job", job, "--namespace=a", CAROL]).await.map(drop)
}

/// Submits a Job and waits until the API server's clock has moved on: submission times have whole seconds.
async fn submit(world: &World, job: Job) -> Result<()> {
    world.kubectl.apply(&job.manifest()).await?;
    let since = Timestamp::now().as_second();
    eventually("the next second", patience(), async || {
        if Timestamp::now().as_second() > since { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await
}

fn admitted(view: &View, job: &str) -> Option<Timestamp> {
    view.job("a", job)
        .filter(|job| job.admitted())
        .and_then(|job| job.admission.as_ref())
        .map(|record| record.at)
}

/// Waits until exactly these Jobs are admitted.
async fn only(world: &World, jobs: &[&str]) -> Result<View> {
    let check = |view: &View| {
        let mut found: Vec<&str> = view
            .jobs_in("a")
            .filter(|job| admitted(view, &job.name).is_some())
            .map(|job| &*job.name)
            .collect();
        found.sort_unstable();
        if found == jobs { Ok(()) } else { Err(format!("{found:?}")) }
    };
    world.until(&format!("{jobs:?} are admitted"), check).await
}

/// The notes of a Job's Events with this reason, as the user lists them; waits for at least one.
async fn told(world: &World, job: &str, reason: &str) -> Result<String> {
    let selector = format!("--field-selector=reason={reason},involvedObject.name={job}");
    let list = [
        "get",
        "events",
        "--namespace=a",
        CAROL,
        &selector,
        "-o",
        "jsonpath={range .items[*]}{.type}: {.message}{\"\\n\"}{end}",
    ];
    eventually(&format!("an Event {reason} of {job}"), patience(), async || {
        match world.kubectl.ok(&list).await {
            Ok(notes) if !notes.trim().is_empty() => Ok(notes),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

async fn pause(world: &World, paused: &str) -> Result<()> {
    let patch = format!(r#"{{"spec":{{"queues":[{{"name":"work","maxWait":"20s","paused":"{paused}"}}]}}}}"#);
    world.kubectl.ok(&["patch", "team", "a", "--type=merge", "-p", &patch]).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn users_hold_order_and_requeue_their_work_and_are_told_why_it_waits() {
    World::run("asked", SLUICE, 1, async |world| {
        let queues = "queues: [{name: work, maxWait: 20s}]";
        world.apply(&format!("{}{}", nodes(1, 1), team_of("a", &[&quota(1), queues]))).await?;
        let bind = ["create", "rolebinding", "carol", "--clusterrole=edit", "--user=carol", "--namespace=a"];
        world.kubectl.ok(&bind).await?;
        submit(world, Job::new("a", "first")).await?;
        running(world, "a", 1).await?;
        for name in ["one", "two", "three"] {
            submit(world, Job::new("a", name)).await?;
        }
        hold(world).await?;
        order(world).await?;
        requeue(world).await?;
        paused(world).await
    })
    .await;
}

/// `first` runs; one, two and three wait in this order.
async fn hold(world: &World) -> Result<()> {
    let why = told(world, "one", "Waiting").await?;
    ensure!(why.starts_with("Normal: ") && why.contains("Place 1 of 3 in the queue of team a"), "{why}");
    let nothing = [
        "get",
        "events",
        "--namespace=a",
        "--field-selector=reason=Waiting,involvedObject.name=first",
        "-o",
        "name",
    ];
    ensure!(world.kubectl.ok(&nothing).await?.is_empty(), "a Job that starts at once needs no explanation");
    annotate(world, "one", "sluice.dev/hold=true").await?;
    let why = told(world, "one", "Held").await?;
    ensure!(why.contains("sluice.dev/hold"), "{why}");
    delete(world, "first").await?;
    only(world, &["two"]).await?;
    let wrong = ["annotate", "job", "one", "--namespace=a", "--overwrite", "sluice.dev/hold=maybe", CAROL];
    let refusal = world.kubectl.refused(&wrong).await?;
    ensure!(refusal.contains("sluice.dev/hold: \"maybe\" is neither"), "{refusal}");
    annotate(world, "one", "sluice.dev/hold-").await?;
    told(world, "one", "Released").await?;
    delete(world, "two").await?;
    only(world, &["one"]).await.map(drop)
}

/// `one` runs and three waits; four comes later.
async fn order(world: &World) -> Result<()> {
    submit(world, Job::new("a", "four")).await?;
    annotate(world, "four", "sluice.dev/order=1").await?;
    let late = ["annotate", "job", "one", "--namespace=a", "sluice.dev/order=1", CAROL];
    let refusal = world.kubectl.refused(&late).await?;
    ensure!(refusal.contains("only while the Job waits"), "{refusal}");
    delete(world, "one").await?;
    only(world, &["four"]).await.map(drop)
}

/// `four` runs, and three waits for longer than its queue wants. Four is requeued, and three has the capacity before four is in
/// the queue again.
async fn requeue(world: &World) -> Result<()> {
    let why = told(world, "three", "WaitedTooLong").await?;
    ensure!(why.contains("Warning: "), "{why}");
    annotate(world, "four", &format!("sluice.dev/requeue={}", Timestamp::now())).await?;
    world
        .until("four is requeued", |view| match view.job("a", "four") {
            Some(job)
                if is_queued(job) && job.eviction.as_ref().is_some_and(|note| note.reason == "Requeued") =>
            {
                Ok(())
            }
            other => Err(format!("{other:?}")),
        })
        .await?;
    only(world, &["three"]).await?;
    let why = told(world, "four", "Evicted").await?;
    ensure!(why.contains("Requeued: "), "{why}");
    Ok(())
}

fn is_queued(job: &JobView) -> bool {
    job.suspended && job.held && job.admission.is_none()
}

/// `three` runs and four waits; nothing starts in a paused queue. Then four runs, and is not requeued again.
async fn paused(world: &World) -> Result<()> {
    pause(world, "Hold").await?;
    delete(world, "three").await?;
    let none = |view: &View| match admitted(view, "four") {
        None => Ok(()),
        Some(at) => Err(format!("admitted at {at}")),
    };
    world.stays("nothing of the queue starts", Duration::from_secs(3), none).await?;
    let wrong = r#"{"spec":{"queues":[{"name":"work","paused":"Sometimes"}]}}"#;
    let refusal = world.kubectl.refused(&["patch", "team", "a", "--type=merge", "-p", wrong]).await?;
    ensure!(refusal.contains("Unsupported value"), "{refusal}");
    pause(world, "").await?;
    let since = admitted(&only(world, &["four"]).await?, "four");
    let same = |view: &View| match admitted(view, "four") {
        at if at == since => Ok(()),
        other => Err(format!("{other:?}")),
    };
    world.stays("it was requeued once", Duration::from_secs(3), same).await?;
    pause(world, "Drain").await?;
    world
        .until("four is back in the queue", |view| match view.job("a", "four") {
            Some(job) if is_queued(job) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await
        .map(drop)
}
