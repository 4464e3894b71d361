//! A random mix of Jobs, and a check that every pod ran where the record of its Job says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use sluice::api::names;
use sluice::api::record::Record;
use tokio::task::JoinHandle;

use crate::{Cluster, Sluice, User, eventually};

/// Number of Jobs created at the same time.
const IN_FLIGHT: usize = 8;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Number of Jobs.
    pub jobs: usize,
    /// Seed of the Jobs' shapes; the same seed gives the same Jobs.
    pub seed: u64,
    /// Shortest run time of a pod in milliseconds; the longest is three times that. A shorter time loads the
    /// control plane more.
    pub shortest: u32,
}

/// One Job.
#[derive(Clone, Debug)]
struct Shape {
    name: String,
    pods: u32,
    gpus: u32,
    indexed: bool,
    milliseconds: u32,
}

impl Mix {
    /// Draws one to 16 pods of one to eight GPUs, at most 64 together, half of the Jobs Indexed.
    fn shapes(self) -> Vec<Shape> {
        let mut state = self.seed;
        let mut below = |bound: u32| {
            // A linear congruential generator; its low bits are weak and left out.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((state >> 33) % u64::from(bound)).unwrap_or_default()
        };
        let shape = |job: usize| {
            let gpus = [1, 1, 2, 2, 3, 4, 8][below(7) as usize];
            let pods = (1 + below(16)).min(64 / gpus);
            let indexed = below(2) == 0;
            Shape {
                name: format!("mix-{job}"),
                pods,
                gpus,
                indexed,
                milliseconds: self.shortest + below(2 * self.shortest),
            }
        };
        (0..self.jobs).map(shape).collect()
    }
}

impl Shape {
    fn manifest(&self) -> Result<Job> {
        let mode = if self.indexed { "Indexed" } else { "NonIndexed" };
        let duration = format!("{}ms", self.milliseconds);
        Ok(serde_json::from_value(json!({
            "metadata": {"name": self.name},
            "spec": {
                "parallelism": self.pods, "completions": self.pods, "completionMode": mode,
                "template": {
                    "metadata": {"annotations": {"simulate.sluice.dev/duration": duration}},
                    "spec": {"restartPolicy": "Never", "containers": [{
                        "name": "main", "image": "registry.example/mix",
                        "resources": {"limits": {"nvidia.com/gpu": self.gpus}},
                    }]},
                },
            },
        }))?)
    }
}

/// The measurements of a run.
#[derive(Clone, Debug, Default)]
pub struct Fidelity {
    /// Number of Jobs that completed.
    pub jobs: usize,
    /// Number of pods of Indexed Jobs, and of other Jobs.
    pub pods: [usize; 2],
    /// Number of Jobs with pods on several nodes.
    pub spread: usize,
    /// Pods on other nodes than in the record.
    pub misplaced: Vec<String>,
    /// Times from admission to the binding of each pod, in ascending order.
    pub bound_after: Vec<Duration>,
    /// Times from the first sight of a pod to the first sight of its binding, in ascending order.
    pub pending: Vec<Duration>,
    /// Number of Sluice's writes on Jobs, on pods of Indexed Jobs, and on other pods.
    pub writes: [usize; 3],
    /// Jobs that were not admitted by exactly one write. Further writes may only make the record smaller.
    pub miswritten: Vec<String>,
    /// Writes on Jobs that were carried out, though the API server did not answer in time.
    pub unanswered: usize,
}

/// Results of Sluice's writes on one Job, by the audit log.
#[derive(Clone, Copy, Debug, Default)]
struct Tries {
    done: usize,
    /// Writes that the API server logged as timed out, with unknown result.
    unanswered: usize,
}

#[derive(Default)]
struct Seen {
    /// Number of pod events received.
    news: usize,
    /// The node of each pod, by Job and pod.
    pods: BTreeMap<String, BTreeMap<String, PodSeen>>,
    /// The record of each Job at its admission.
    records: BTreeMap<String, Record>,
    /// The pods on the last record of each Job, and how often these became fewer: pods that will not run again were
    /// taken off it, because other Jobs waited.
    released: BTreeMap<String, (u32, usize)>,
    /// Generation of each Job: the number of writes of its spec, its creation included.
    generations: BTreeMap<String, i64>,
    complete: BTreeSet<String>,
}

impl Seen {
    /// Notes the record of a Job as an event shows it.
    fn note(&mut self, job: String, record: Record) {
        let (pods, times) = self.released.entry(job.clone()).or_insert((record.pods, 0));
        *times += usize::from(record.pods < *pods);
        *pods = record.pods;
        self.records.entry(job).or_insert(record);
    }
}

#[derive(Default)]
struct PodSeen {
    first: Option<Timestamp>,
    bound: Option<Bound>,
    /// As the number of pod events.
    ended: Option<usize>,
}

struct Bound {
    node: String,
    at: Timestamp,
    /// As the number of pod events.
    news: usize,
}

impl PodSeen {
    /// Whether the pod was on the node after this many pod events.
    fn on(&self, node: &str, news: usize) -> bool {
        let bound = self.bound.as_ref().is_some_and(|bound| bound.node == node && bound.news <= news);
        bound && self.ended.is_none_or(|ended| ended > news)
    }
}

/// Runs the Jobs in a team's namespace until all are Complete.
pub async fn run(cluster: &Cluster, namespace: &str, mix: Mix, patience: Duration) -> Result<Fidelity> {
    let client = cluster.client(User::Raw).await?;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let watches = [watch_jobs(&client, namespace, &seen), watch_pods(&client, namespace, &seen)];
    let before = cluster.audit().writes()?.len();
    let shapes = mix.shapes();
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    let create = |shape: &Shape| {
        let (api, manifest) = (api.clone(), shape.manifest());
        async move { anyhow::Ok(api.create(&PostParams::default(), &manifest?).await.map(drop)?) }
    };
    stream::iter(shapes.iter().map(create)).buffer_unordered(IN_FLIGHT).try_collect::<Vec<()>>().await?;
    let done = eventually("all Jobs are Complete", patience, async || {
        let complete = look(&seen).complete.len();
        if complete == shapes.len() { Ok(()) } else { Err(format!("{complete} of {}", shapes.len())) }
    });
    let done = done.await;
    watches.iter().for_each(JoinHandle::abort);
    done?;
    let mut writes = cluster.audit().writes()?.split_off(before);
    writes.retain(|write| write.user == names::ACCOUNT && write.namespace == namespace);
    let mut fidelity = Fidelity { jobs: shapes.len(), ..Fidelity::default() };
    let seen = look(&seen);
    for shape in &shapes {
        fidelity.judge(shape, &seen)?;
    }
    fidelity.bound_after.sort_unstable();
    fidelity.pending.sort_unstable();
    let indexed: BTreeSet<&str> =
        shapes.iter().filter(|shape| shape.indexed).map(|shape| shape.name.as_str()).collect();
    let mut tries: BTreeMap<&str, Tries> = BTreeMap::new();
    for write in &writes {
        match write.resource.as_str() {
            "jobs" | "jobs/status" => {
                let tries = tries.entry(&write.name).or_default();
                tries.done += usize::from(write.succeeded());
                tries.unanswered += usize::from(write.code >= 500);
            }
            "pods" | "pods/status" if write.succeeded() => {
                fidelity.writes[if indexed.contains(job_of(&write.name)) { 1 } else { 2 }] += 1;
            }
            _ => {}
        }
    }
    for shape in &shapes {
        let generation = seen.generations.get(&shape.name).copied().unwrap_or_default();
        let released = seen.released.get(&shape.name).map_or(0, |(_, times)| *times);
        fidelity.count(shape, tries.get(&*shape.name).copied().unwrap_or_default(), generation, released);
    }
    Ok(fidelity)
}

/// Number of pods that the webhook left to the leader because it had not seen their nodes in time.
pub async fn unseen(replicas: &[Sluice]) -> Result<usize> {
    let mut sum = 0;
    for replica in replicas {
        let metrics = replica.get("/metrics").await?;
        let series = "sluice_webhook_unseen_total{kind=\"Pod\"} ";
        let count = metrics.lines().find_map(|line| line.strip_prefix(series));
        sum += count.context("the webhook has no metric of unseen admissions")?.parse::<usize>()?;
    }
    Ok(sum)
}

impl Fidelity {
    /// Counts the writes on a Job: its admission, and those that made its record smaller. A request that timed out may have been carried
    /// out nevertheless; the record and the generation, which counts the writes of the spec, show how many were.
    fn count(&mut self, shape: &Shape, tries: Tries, generation: i64, released: usize) {
        let unseen = (1 + released).saturating_sub(tries.done).min(tries.unanswered);
        let writes = tries.done + unseen;
        if writes != 1 + released || generation != 2 {
            let name = &shape.name;
            self.miswritten
                .push(format!("{name}: {tries:?}, generation {generation}, released {released} times"));
        }
        self.writes[0] += writes;
        self.unanswered += unseen;
    }

    fn judge(&mut self, shape: &Shape, seen: &Seen) -> Result<()> {
        let record =
            seen.records.get(&shape.name).with_context(|| format!("{} has no record", shape.name))?;
        let Some(pods) = seen.pods.get(&shape.name) else { bail!("no pods of {} were seen", shape.name) };
        for pod in pods.values() {
            let Some(bound) = &pod.bound else { bail!("a pod of {} was never seen bound", shape.name) };
            let since =
                |time: Timestamp| Duration::try_from(bound.at.duration_since(time)).unwrap_or_default();
            self.bound_after.push(since(record.at));
            self.pending.extend(pod.first.map(since));
            // A pod may take over the node of an ended pod, where a Job has more completions than parallel
            // pods. A node never has more pods at a time than in the record.
            let beside = pods.values().filter(|other| other.on(&bound.node, bound.news)).count();
            let places = record.nodes.get(&bound.node).copied().unwrap_or_default() as usize;
            if beside > places {
                self.misplaced.push(format!(
                    "{}: {beside} pods on {}, but the record says {:?}",
                    shape.name, bound.node, record.nodes
                ));
            }
        }
        if pods.len() != record.pods as usize {
            self.misplaced.push(format!(
                "{}: {} pods, but the record says {}",
                shape.name,
                pods.len(),
                record.pods
            ));
        }
        self.spread += usize::from(record.nodes.len() > 1);
        self.pods[usize::from(!shape.indexed)] += pods.len();
        Ok(())
    }
}

/// The Job of a pod by its name: `mix-7-3-abcde` and `mix-7-abcde` are pods of `mix-7`.
fn job_of(pod: &str) -> &str {
    let end = pod.match_indices('-').nth(1).map_or(pod.len(), |(at, _)| at);
    &pod[..end]
}

fn look(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch_jobs(client: &Client, namespace: &str, seen: &Arc<Mutex<Seen>>) -> JoinHandle<()> {
    let (api, seen) = (Api::<Job>::namespaced(client.clone(), namespace), Arc::clone(seen));
    let mut events = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let Ok(job) = event else { continue };
            let record = job.annotations().get(names::ADMISSION);
            let record = record.and_then(|text| serde_json::from_str::<Record>(text).ok());
            let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let complete = conditions.into_iter().any(|one| one.type_ == "Complete" && one.status == "True");
            let mut seen = look(&seen);
            seen.generations.insert(job.name_any(), job.metadata.generation.unwrap_or_default());
            if let Some(record) = record {
                seen.note(job.name_any(), record);
            }
            if complete {
                seen.complete.insert(job.name_any());
            }
        }
    })
}

fn watch_pods(client: &Client, namespace: &str, seen: &Arc<Mutex<Seen>>) -> JoinHandle<()> {
    let (api, seen) = (Api::<Pod>::namespaced(client.clone(), namespace), Arc::clone(seen));
    let mut events = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let Ok(pod) = event else { continue };
            let Some(job) = pod.owner_references().iter().find(|owner| owner.kind == "Job") else { continue };
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            let now = Timestamp::now();
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let ended = matches!(phase, Some("Succeeded" | "Failed"));
            let mut seen = look(&seen);
            seen.news += 1;
            let news = seen.news;
            let pods = seen.pods.entry(job.name.clone()).or_default();
            let known = pods.entry(pod.uid().unwrap_or_default()).or_default();
            known.first.get_or_insert(now);
            if known.bound.is_none() {
                known.bound = node.map(|node| Bound { node, at: now, news });
            }
            if ended {
                known.ended.get_or_insert(news);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_jobs_and_another_seed_gives_others() {
        let shapes = |seed| format!("{:?}", Mix { jobs: 50, seed, shortest: 1000 }.shapes());
        assert_eq!(shapes(1), shapes(1));
        assert_ne!(shapes(1), shapes(2));
        let all = Mix { jobs: 500, seed: 1, shortest: 1000 }.shapes();
        assert!(all.iter().all(|shape| (1..=16).contains(&shape.pods) && shape.pods * shape.gpus <= 64));
        assert!(all.iter().any(|shape| shape.indexed) && all.iter().any(|shape| !shape.indexed));
    }

    #[test]
    fn a_write_without_an_answer_counts_if_the_job_shows_it() {
        let miswritten = |done, unanswered, generation, released| {
            let mut seen = Fidelity::default();
            let shape = &Mix { jobs: 1, seed: 1, shortest: 1000 }.shapes()[0];
            seen.count(shape, Tries { done, unanswered }, generation, released);
            (seen.miswritten.len(), seen.writes[0], seen.unanswered)
        };
        assert_eq!(miswritten(1, 0, 2, 0), (0, 1, 0));
        assert_eq!(miswritten(0, 1, 2, 0), (0, 1, 1), "the admission was not answered");
        assert_eq!(miswritten(2, 1, 2, 2), (0, 3, 1), "a smaller record was not answered");
        assert_eq!(miswritten(2, 1, 2, 1), (0, 2, 0), "what was not answered was not carried out");
        assert_eq!(miswritten(2, 1, 2, 0).0, 1, "one write too many");
        assert_eq!(miswritten(1, 0, 2, 1).0, 1, "the record became smaller without a write");
        assert_eq!(miswritten(1, 1, 3, 0).0, 1, "the spec was written twice");
    }

    #[test]
    fn the_job_of_a_pod_follows_from_its_name() {
        assert_eq!((job_of("mix-7-3-abcde"), job_of("mix-7-abcde")), ("mix-7", "mix-7"));
    }
}
