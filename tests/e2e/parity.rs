//! The simulator's outcome of a scenario equals the cluster's: starts in order and time, until the first
//! end with their nodes, evictions with their cause, ends.
//!
//! Copies of one document are alike, and a cluster orders them by creation time, so they share one name here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use sluice::api::names;
use sluice::api::record::{Eviction, Record};
use sluice::scenario::{Kind, Scenario};
use sluice_harness::{Play, World, eventually, patience};

use crate::support::SLUICE;

/// Tolerance for a wait: pods take time to start and to end, more of it on a busy machine.
const OFF: Duration = Duration::from_secs(5);

/// The compared parts of a scenario's outcome.
#[derive(Clone, Debug, Default)]
struct Happened {
    /// Starts, in order.
    starts: Vec<Start>,
    /// Number of evictions by victim, preemptor and reason.
    evictions: BTreeMap<(String, String, String), usize>,
    /// Number of successful ends.
    ended: BTreeMap<String, usize>,
    /// Number of starts before the first end. Of pods that end together one ends first on a cluster, and its room is
    /// taken first, so only these starts have nodes to compare.
    placed: usize,
}

/// A start, for the first time or again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    /// Time since the beginning.
    at: Duration,
    name: String,
    /// Time since submission.
    waited: Duration,
    /// Pods by node.
    nodes: BTreeMap<String, u32>,
}

impl Happened {
    fn in_order(mut self) -> Self {
        self.starts.sort();
        self
    }

    /// The starts in order, with consecutive starts of the same name counted together.
    fn order(&self) -> Vec<(&str, usize)> {
        let mut order: Vec<(&str, usize)> = Vec::new();
        for Start { name, .. } in &self.starts {
            match order.last_mut().filter(|(last, _)| last == name) {
                Some((_, times)) => *times += 1,
                None => order.push((name, 1)),
            }
        }
        order
    }

    /// Number of the first starts by name and nodes.
    fn places(&self, first: usize) -> BTreeMap<(&str, &BTreeMap<String, u32>), usize> {
        let mut places = BTreeMap::new();
        let first = self.starts.iter().take(first);
        first.for_each(|start| count(&mut places, (start.name.as_str(), &start.nodes)));
        places
    }

    /// Number of starts, evictions and ends.
    fn size(&self) -> usize {
        self.starts.len() + self.evictions.values().sum::<usize>() + self.ended.values().sum::<usize>()
    }
}

/// The common name of all copies of a document.
fn alike(label: &str) -> String {
    match label.rsplit_once('-') {
        Some((stem, copy)) if copy.bytes().all(|byte| byte.is_ascii_digit()) => stem.to_owned(),
        _ => label.to_owned(),
    }
}

fn count<K: Ord>(to: &mut BTreeMap<K, usize>, key: K) {
    *to.entry(key).or_default() += 1;
}

/// The simulator's outcome.
fn simulated(scenario: &Scenario) -> Result<Happened> {
    let outcome = sluice::simulate::run(scenario, &sluice::simulate::Options::default())?;
    let mut happened = Happened::default();
    for workload in &outcome.workloads {
        let name = alike(&workload.label());
        happened.starts.extend(workload.admissions.iter().map(|admission| Start {
            at: admission.at.0,
            name: name.clone(),
            waited: admission.at.0.saturating_sub(workload.submitted.0),
            nodes: admission.nodes.iter().map(|(node, pods)| (node.to_string(), *pods)).collect(),
        }));
        for eviction in &workload.evictions {
            count(
                &mut happened.evictions,
                (name.clone(), alike(&eviction.preemptor), eviction.reason.clone()),
            );
        }
        if workload.state == sluice::simulate::State::Succeeded {
            count(&mut happened.ended, name);
        }
    }
    let mut happened = happened.in_order();
    let first = outcome.workloads.iter().filter_map(|workload| workload.finished).map(|end| end.0).min();
    happened.placed = happened.starts.iter().filter(|start| first.is_none_or(|end| start.at < end)).count();
    Ok(happened)
}

/// Every start and eviction that the API server has shown, by Job and time.
#[derive(Clone, Debug, Default)]
struct Seen {
    created: BTreeMap<String, Timestamp>,
    /// The Jobs by UID: the note of an eviction names no preemptor of another namespace.
    names: BTreeMap<String, String>,
    starts: BTreeMap<(String, Timestamp), BTreeMap<String, u32>>,
    evictions: BTreeMap<(String, Timestamp), Eviction>,
    ended: BTreeSet<String>,
}

impl Seen {
    fn note(&mut self, job: &Job) {
        let label = format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any());
        self.names.insert(job.uid().unwrap_or_default(), label.clone());
        // The API server reports whole seconds only.
        self.created.entry(label.clone()).or_insert_with(Timestamp::now);
        let annotation = |key: &str| job.annotations().get(key).map(String::as_str);
        let runs = job.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true));
        let record = annotation(names::ADMISSION).and_then(|text| serde_json::from_str::<Record>(text).ok());
        if let Some(record) = record.filter(|_| runs) {
            // Nodes of pods that have ended may be left out later.
            let nodes = record.nodes.into_iter().map(|(node, pods)| (node.to_string(), pods)).collect();
            self.starts.entry((label.clone(), record.at)).or_insert(nodes);
        }
        let eviction =
            annotation(names::EVICTION).and_then(|text| serde_json::from_str::<Eviction>(text).ok());
        if let Some(eviction) = eviction {
            self.evictions.insert((label.clone(), eviction.at), eviction);
        }
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if conditions.into_iter().any(|one| one.type_ == "Complete" && one.status == "True") {
            self.ended.insert(label);
        }
    }

    /// The same in the simulator's form, with times since `began`.
    fn happened(&self, began: Timestamp) -> Happened {
        let mut happened = Happened::default();
        for ((label, at), nodes) in &self.starts {
            let since = |time: &Timestamp| Duration::try_from(at.duration_since(*time)).unwrap_or_default();
            let waited = self.created.get(label).map(since).unwrap_or_default();
            let nodes = nodes.clone();
            happened.starts.push(Start { at: since(&began), name: alike(label), waited, nodes });
        }
        for ((label, _), eviction) in &self.evictions {
            let preemptor = self.names.get(&eviction.uid).unwrap_or(&eviction.preemptor);
            count(&mut happened.evictions, (alike(label), alike(preemptor), eviction.reason.clone()));
        }
        self.ended.iter().for_each(|label| count(&mut happened.ended, alike(label)));
        happened.in_order()
    }
}

/// Records every change of Jobs from now on.
fn watch(client: Client) -> Arc<Mutex<Seen>> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let notes = Arc::clone(&seen);
    tokio::spawn(async move {
        let jobs = watcher(Api::<Job>::all(client), watcher::Config::default()).default_backoff();
        let noted = jobs.applied_objects().try_for_each(|job| {
            notes.lock().expect("no thread panics with this lock").note(&job);
            std::future::ready(Ok(()))
        });
        // The task ends with the control plane.
        drop(noted.await);
    });
    seen
}

async fn compare(world: &mut World, scenario: Scenario) -> Result<()> {
    let expected = simulated(&scenario)?;
    let seen = watch(world.client.clone());
    let mut play = Play::new(&world.cluster, scenario, 1.0).await?;
    let began = Timestamp::now();
    play.all().await?;
    let now = || seen.lock().expect("no thread panics with this lock").happened(began);
    let last = expected.starts.last().map_or(Duration::ZERO, |start| start.at);
    let all = eventually("as many events as simulated", last + patience(), async || {
        let happened = now();
        if happened.size() >= expected.size() { Ok(()) } else { Err(format!("{happened:?}")) }
    });
    all.await.with_context(|| format!("simulated: {expected:?}"))?;
    // No further event may follow.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let happened = now();
    ensure!(
        happened.order() == expected.order(),
        "started in the order {:?}, simulated {:?}",
        happened.order(),
        expected.order()
    );
    ensure!(
        happened.places(expected.placed) == expected.places(expected.placed),
        "placed {:?}, simulated {:?}",
        happened.places(expected.placed),
        expected.places(expected.placed)
    );
    ensure!(
        happened.evictions == expected.evictions,
        "evicted {:?}, simulated {:?}",
        happened.evictions,
        expected.evictions
    );
    ensure!(happened.ended == expected.ended, "ended {:?}, simulated {:?}", happened.ended, expected.ended);
    for (start, said) in happened.starts.iter().zip(&expected.starts) {
        // A delay in the start of one pod delays every workload that waits for its end.
        let off = OFF + said.waited / 4;
        ensure!(
            start.waited.abs_diff(said.waited) <= off,
            "{} waited {:.1?}, simulated {:.1?}",
            start.name,
            start.waited,
            said.waited
        );
    }
    Ok(())
}

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

async fn parity(name: &str) {
    let scenario = match Scenario::load(&[example(&format!("{name}.yaml"))]) {
        Ok(scenario) => scenario,
        Err(error) => panic!("{error}"),
    };
    World::run(&format!("as-{name}"), SLUICE, 1, async |world| compare(world, scenario).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_greedy_team_runs_as_simulated() {
    parity("greedy-team").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fragmentation_runs_as_simulated() {
    parity("fragmentation").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_quota_runs_as_simulated() {
    parity("idle-quota").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn priority_runs_as_simulated() {
    parity("priority").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claimed_devices_run_as_simulated() {
    parity("claimed-devices").await;
}

/// Fails for a scenario among the examples that is not compared.
#[test]
fn every_scenario_among_the_examples_is_compared() {
    let entries = std::fs::read_dir(example("")).expect("the examples exist");
    let mut scenarios: Vec<String> = entries
        .filter_map(|entry| {
            let path = entry.expect("the directory can be read").path();
            let scenario = (path.extension()? == "yaml").then(|| Scenario::load(&[&path]))?;
            let scenario = scenario.expect("an example can be read");
            let has_nodes = scenario.objects().any(|object| object.kind == Kind::Node);
            has_nodes.then(|| path.file_stem().expect("a file has a name").to_string_lossy().into_owned())
        })
        .collect();
    scenarios.sort();
    assert_eq!(scenarios, ["claimed-devices", "fragmentation", "greedy-team", "idle-quota", "priority"]);
}
