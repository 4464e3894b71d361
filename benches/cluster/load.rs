//! The load: Jobs are created, watched, started by the generator and deleted, always by the same user.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Number of requests at the same time.
pub const IN_FLIGHT: usize = 16;
/// Timeout of every step.
const PATIENCE: Duration = Duration::from_secs(900);
/// The label by which a phase's Jobs are watched.
const PHASE: &str = "bench";

/// Creates nodes with eight GPUs each, two in a rack.
pub async fn nodes(client: &Client, count: usize) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    let create = |i: usize| {
        let resources = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"});
        let node = json!({
            "metadata": {
                "name": format!("node-{i}"),
                "labels": {"bench-node": "yes", "bench-rack": format!("rack-{}", i / 2)},
            },
            "status": {"capacity": resources, "allocatable": resources},
        });
        let api = api.clone();
        async move {
            api.create(&PostParams::default(), &serde_json::from_value(node)?)
                .await
                .map_err(anyhow::Error::from)
        }
    };
    stream::iter((0..count).map(create)).buffer_unordered(IN_FLIGHT).try_collect::<Vec<_>>().await?;
    until("all nodes are Ready", async || {
        let ready = api.list(&ListParams::default()).await?.into_iter().filter(is_ready).count();
        Ok((ready == count).then_some(()))
    })
    .await
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Creates a namespace with or without a team.
pub async fn namespace(client: &Client, name: &str, team: Option<&str>) -> Result<()> {
    let mut namespace = json!({"metadata": {"name": name}});
    if let Some(team) = team {
        namespace["metadata"]["labels"] = json!({ sluice::api::names::TEAM: team });
    }
    let api: Api<Namespace> = Api::all(client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(namespace)?).await?;
    Ok(())
}

/// A Job of one pod with one GPU. `seconds` is the pod's run time; without it the pod runs until deleted.
fn job(phase: &str, name: &str, suspend: bool, seconds: Option<u32>) -> Value {
    let mut annotations = json!({});
    if let Some(seconds) = seconds {
        annotations["simulate.sluice.dev/duration"] = json!(format!("{seconds}s"));
    }
    json!({
        "metadata": {"name": name, "labels": {PHASE: phase}},
        "spec": {"suspend": suspend, "template": {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [{
                "name": "main", "image": "registry.example/bench",
                "resources": {"limits": {"nvidia.com/gpu": 1}},
            }]},
        }},
    })
}

/// Creates `count` Jobs spread over `namespaces`; returns the total time and the time of each request.
pub async fn create(
    client: &Client,
    phase: &str,
    namespaces: &[&str],
    count: usize,
    suspend: bool,
    seconds: Option<u32>,
) -> Result<(Duration, Vec<Duration>)> {
    let began = Instant::now();
    let one = |i: usize| {
        let api: Api<Job> = Api::namespaced(client.clone(), namespaces[i % namespaces.len()]);
        let job = job(phase, &format!("{phase}-{i}"), suspend, seconds);
        async move {
            let asked = Instant::now();
            api.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
            anyhow::Ok(asked.elapsed())
        }
    };
    let each = stream::iter((0..count).map(one)).buffer_unordered(IN_FLIGHT).try_collect().await?;
    Ok((began.elapsed(), each))
}

/// Starts a Job with one request, by a client that knows its node.
pub async fn start_by_hand(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let patch = json!({
        "metadata": {"annotations": {"bench/started": "by hand"}},
        "spec": {"suspend": false, "template": {"spec": {"nodeSelector": {"bench-node": "yes"}}}},
    });
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// An event of a watch on the Jobs of a phase.
#[derive(Debug)]
pub enum Seen {
    /// A Job was seen not suspended for the first time.
    Started(Instant),
    /// A Job was seen with its pod ended for the first time.
    Ended(Instant),
}

/// A watch on the Jobs of one phase.
pub struct Watch {
    /// The events, in order.
    pub seen: mpsc::UnboundedReceiver<Seen>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Starts to watch and waits until `count` Jobs are known.
    pub async fn start(client: &Client, phase: &str, count: usize) -> Result<Self> {
        let (sender, seen) = mpsc::unbounded_channel();
        let (ready, all_known) = tokio::sync::oneshot::channel();
        let config = watcher::Config::default().labels(&format!("{PHASE}={phase}"));
        let mut events =
            watcher(Api::<Job>::all(client.clone()), config).default_backoff().applied_objects().boxed();
        let task = tokio::spawn(async move {
            let (mut known, mut started, mut ended) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
            let mut ready = Some(ready);
            while let Some(event) = events.next().await {
                let Ok(job) = event else { continue };
                let uid = job.uid().unwrap_or_default();
                let running = job.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true));
                let done = job.status.as_ref().is_some_and(|status| status.succeeded.unwrap_or(0) > 0);
                if running
                    && started.insert(uid.clone())
                    && sender.send(Seen::Started(Instant::now())).is_err()
                {
                    return;
                }
                if done && ended.insert(uid.clone()) && sender.send(Seen::Ended(Instant::now())).is_err() {
                    return;
                }
                known.insert(uid);
                if known.len() == count
                    && let Some(ready) = ready.take()
                {
                    // The receiver is gone if the run was given up.
                    let _ = ready.send(());
                }
            }
        });
        tokio::time::timeout(PATIENCE, all_known).await.context("not all Jobs appeared")??;
        Ok(Self { seen, task })
    }

    /// The next event.
    pub async fn next(&mut self) -> Result<Seen> {
        let next = tokio::time::timeout(PATIENCE, self.seen.recv()).await;
        next.with_context(|| format!("no event for {PATIENCE:?}"))?.context("the watch has ended")
    }

    /// Waits until `count` Jobs have started, and returns the time of the last start.
    pub async fn started(&mut self, count: usize) -> Result<Instant> {
        let mut seen = 0;
        loop {
            if let Seen::Started(at) = self.next().await? {
                seen += 1;
                if seen == count {
                    return Ok(at);
                }
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Deletes all Jobs of these namespaces and waits until they and their pods are gone.
pub async fn clear(client: &Client, namespaces: &[&str]) -> Result<()> {
    for namespace in namespaces {
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        // The API server ends a request after a minute, also one that has not deleted all of thousands yet.
        until("the Jobs are deleted", async || {
            Ok(jobs
                .delete_collection(&DeleteParams::background(), &ListParams::default())
                .await
                .ok()
                .map(|_| ()))
        })
        .await?;
    }
    until("the Jobs and their pods are gone", async || {
        let mut left = 0;
        for namespace in namespaces {
            let few = ListParams::default().limit(5);
            left += Api::<Job>::namespaced(client.clone(), namespace).list(&few).await?.items.len();
            left += Api::<Pod>::namespaced(client.clone(), namespace).list(&few).await?.items.len();
        }
        Ok((left == 0).then_some(()))
    })
    .await?;
    quiet().await
}

/// Waits until the machine is idle, so that no phase pays for the one before it; goes on after a while if others keep it busy.
pub async fn quiet() -> Result<()> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let began = Instant::now();
    let mut calm = 0;
    let mut before = processor_times()?;
    while calm < 3 {
        tokio::time::sleep(Duration::from_millis(800)).await;
        let now = processor_times()?;
        let (idle, all) = (now.0 - before.0, now.1 - before.1);
        before = now;
        calm = if idle * 100 >= all * 85 { calm + 1 } else { 0 };
        if began.elapsed() > PATIENCE {
            eprintln!("bench: the machine is busy with something else; its figures say little");
            break;
        }
    }
    Ok(())
}

/// Ticks of all processors since the start: idle ones, and all.
fn processor_times() -> Result<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("/proc/stat is empty")?;
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    let idle = ticks.iter().skip(3).take(2).sum();
    Ok((idle, ticks.iter().take(8).sum()))
}

/// Repeats the question until it has an answer.
pub async fn until<T>(what: &str, mut question: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(answer) = question().await? {
            return Ok(answer);
        }
        if began.elapsed() > PATIENCE {
            bail!("timed out after {PATIENCE:?}: {what}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
