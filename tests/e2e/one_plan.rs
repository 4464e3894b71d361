//! A preemption is one plan, carried out once: what-if predicts it, and the cluster carries out just that (law 8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job as ApiJob;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use sluice::api::names;
use sluice::api::record::{Eviction, Record};
use sluice::scenario::Scenario;
use sluice::view::WhatIfRow;
use sluice_harness::{JobView, World};

use crate::limits::says;
use crate::support::{Job, SLUICE, items, nodes, running, team};

/// The numbers of pods on the record of each Job in turn, and the evictions of each.
#[derive(Clone, Debug, Default)]
struct Seen {
    sizes: BTreeMap<String, Vec<u32>>,
    evicted: BTreeMap<String, BTreeSet<String>>,
}

impl Seen {
    fn note(&mut self, job: &ApiJob) {
        let annotation = |key: &str| job.annotations().get(key).map(String::as_str);
        let record = annotation(names::ADMISSION).and_then(|text| serde_json::from_str::<Record>(text).ok());
        if let Some(record) = record {
            let sizes = self.sizes.entry(job.name_any()).or_default();
            if sizes.last() != Some(&record.pods) {
                sizes.push(record.pods);
            }
        }
        let eviction =
            annotation(names::EVICTION).and_then(|text| serde_json::from_str::<Eviction>(text).ok());
        if let Some(eviction) = eviction {
            self.evicted.entry(job.name_any()).or_default().insert(eviction.at.to_string());
        }
    }
}

fn watch(client: Client) -> Arc<Mutex<Seen>> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let notes = Arc::clone(&seen);
    tokio::spawn(async move {
        let jobs = watcher(Api::<ApiJob>::all(client), watcher::Config::default()).default_backoff();
        let noted = jobs.applied_objects().try_for_each(|job| {
            notes.lock().expect("no thread panics with this lock").note(&job);
            std::future::ready(Ok(()))
        });
        // The task ends with the control plane.
        drop(noted.await);
    });
    seen
}

/// A preemption: the nodes of the preemptor, the evicted Jobs, and the size of the elastic one unless it was evicted: then
/// its next start is another decision.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    nodes: BTreeMap<String, u32>,
    evicted: BTreeSet<String>,
    elastic: Option<u32>,
}

impl Outcome {
    fn new(nodes: BTreeMap<String, u32>, evicted: BTreeSet<String>, elastic: Option<u32>) -> Self {
        let elastic = elastic.filter(|_| !evicted.contains("elastic"));
        Self { nodes, evicted, elastic }
    }
}

/// Team a uses 31 of its 20 GPUs, and 9 of 40 are free.
fn borrowers() -> Vec<(Job, usize)> {
    let gang = Job::new("a", "gang").gpus(4).spec("parallelism: 4").spec("completions: 4");
    let elastic = Job::new("a", "elastic").annotated("min-parallelism", "2").spec("parallelism: 8");
    let single = |name| Job::new("a", name);
    vec![
        (Job::new("a", "two").gpus(2), 1),
        (single("first"), 2),
        (single("second"), 3),
        (single("third"), 4),
        (single("fourth"), 5),
        (single("fifth"), 6),
        (gang, 10),
        (elastic, 18),
    ]
}

/// What `sluice what-if` says of a Job that is not submitted: its nodes, and every workload that would be displaced.
async fn foretold(world: &World, job: &Job) -> Result<(BTreeMap<String, u32>, BTreeSet<String>)> {
    let file = world.cluster.scratch()?.join("asked.yaml");
    std::fs::write(&file, job.manifest())?;
    let answer = says(world, &["what-if", "--file", &file.display().to_string(), "--output=json"]).await?;
    let row: WhatIfRow = items(&answer)?.pop().context("what-if has an answer")?;
    let victims = row.displaced.iter().map(|label| label.trim_start_matches("a/").to_owned());
    Ok((row.nodes.clone(), victims.collect()))
}

/// The simulator's outcome for the same objects, each applied when the cluster admitted it, and the owner at that time.
fn simulated(began: &BTreeMap<String, i64>, owner: &Job, at: i64) -> Result<Outcome> {
    let first = began.values().min().context("no Job was admitted")?;
    let jobs = borrowers().into_iter().map(|(job, _)| job).chain([owner.clone()]);
    let then = |job: Job| {
        let at = began.get(job.name()).copied().unwrap_or(at) - first;
        let at = format!("annotations: {{simulate.sluice.dev/at: {at}ms, ");
        job.scenario().replacen("annotations: {", &at, 1)
    };
    let jobs: String = jobs.map(then).collect();
    let text = format!("{}{}{}{jobs}", nodes(5, 8), team("a", 20), team("b", 20));
    let scenario = Scenario::parse([("one-plan.yaml", text.as_str())])?;
    let outcome = sluice::simulate::run(&scenario, &sluice::simulate::Options::default())?;
    let of = |name: &str| outcome.workloads.iter().find(|workload| workload.name == name);
    let last = |name: &str| of(name).and_then(|workload| workload.admissions.last());
    let nodes = last("owner").context("never started")?.nodes.iter();
    let evicted = outcome.workloads.iter().filter(|workload| !workload.evictions.is_empty());
    let evicted = evicted.map(|workload| workload.name.to_string()).collect();
    let nodes = nodes.map(|(node, pods)| (node.to_string(), *pods)).collect();
    Ok(Outcome::new(nodes, evicted, last("elastic").map(|admission| admission.pods)))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_if_and_simulator_name_the_victims_and_the_cluster_evicts_just_them() {
    World::run("one-plan", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(5, 8), team("a", 20), team("b", 20))).await?;
        for (job, pods) in borrowers() {
            world.apply(&job.manifest()).await?;
            running(world, "a", pods).await?;
            // Run times in whole seconds are part of what an eviction costs, and tell the Jobs apart.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let view = world.view().await?;
        let admitted_at =
            |job: &JobView| Some((job.name.clone(), job.admission.as_ref()?.at.as_millisecond()));
        let began: BTreeMap<String, i64> = view.jobs.iter().filter_map(admitted_at).collect();
        let seen = watch(world.client.clone());
        let owner = Job::new("b", "owner").gpus(8).spec("parallelism: 2").spec("completions: 2");
        let asked = Timestamp::now().as_millisecond();
        let (nodes, displaced) = foretold(world, &owner).await?;
        let answered = Timestamp::now().as_millisecond();
        world.apply(&owner.manifest()).await?;
        running(world, "b", 2).await?;
        // Nothing may follow.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let view = world.view().await?;
        let record = view.job("b", "owner").and_then(|job| job.admission.clone()).context("no record")?;
        let seen = seen.lock().expect("no thread panics with this lock").clone();
        let last = seen.sizes.get("elastic").and_then(|sizes| sizes.last().copied());
        let happened = Outcome::new(record.nodes, seen.evicted.keys().cloned().collect(), last);
        // What an eviction costs grows with time, so each is compared at its own instant.
        let decided =
            view.jobs.iter().filter_map(|job| Some(job.eviction.as_ref()?.at.as_millisecond())).min();
        let alike = simulated(&began, &owner, decided.context("no Job was evicted")?)?;
        ensure!(happened == alike, "{happened:?}, simulated {alike:?}");
        let foreseen = |at: i64| {
            let Outcome { nodes, evicted, elastic } = simulated(&began, &owner, at)?;
            let shrunk = elastic.filter(|pods| *pods < 8).map(|_| "elastic".to_owned());
            anyhow::Ok((nodes, evicted.into_iter().chain(shrunk).collect::<BTreeSet<String>>()))
        };
        let predicted = (nodes, displaced);
        ensure!(
            predicted == foreseen(asked)? || predicted == foreseen(answered)?,
            "foretold {predicted:?}, simulated {:?}",
            foreseen(asked)?
        );
        // Each once: the elastic Job shrinks or is evicted in one step, and no Job is evicted twice.
        ensure!(seen.sizes.values().all(|sizes| sizes.len() <= 2), "{seen:?}");
        ensure!(seen.evicted.values().all(|times| times.len() == 1), "{seen:?}");
        Ok(())
    })
    .await;
}
