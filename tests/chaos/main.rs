//! Two replicas on a real control plane under random load and random faults, with an observer that reads only the API
//! server and keeps books of its own.
//!
//! `SEED` and `FAULTS` choose the plan; the same plan is drawn from the same seed. Without them the test is the short
//! form: 100 faults of a fixed seed.

mod books;
mod faults;
mod load;
mod plan;
mod take_over;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sluice_harness::{Cluster, Kubectl, Options, Sluice, View, World};

use crate::books::{Books, Judge};
use crate::faults::Faults;
use crate::plan::Act;

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// Time between two snapshots of the observer.
const PAUSE: Duration = Duration::from_millis(400);

/// The longest time for all work to end after the last fault.
const DRAIN: Duration = Duration::from_secs(180);

/// The most that a replica may log in a soak.
const LOG: u64 = 20 << 20;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// What happened in a soak.
#[derive(Debug, Default)]
struct Report {
    faults: BTreeMap<String, usize>,
    work: BTreeMap<String, usize>,
    snapshots: usize,
    /// Breaches with the time and the faults before.
    breaks: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn no_law_is_broken_under_faults() {
    let (seed, faults) = (setting("SEED", 1), usize::try_from(setting("FAULTS", 100)).unwrap_or(100));
    println!("SEED={seed} FAULTS={faults}");
    let cluster = Cluster::up("chaos").await.expect("a control plane");
    let flags = vec!["--unreachable-after=5s".to_owned()];
    let world = World::up_on(cluster, Options { flags, ..Options::new(SLUICE) }, 0).await;
    let mut world = world.expect("Sluice is installed");
    let outcome = soak(&mut world, seed, faults).await;
    let logs: Vec<String> = world.replicas.iter().map(Sluice::log_tail).collect();
    if let Err(error) = outcome {
        panic!("SEED={seed} FAULTS={faults}: {error:?}\n{}", logs.join("\n"));
    }
}

async fn soak(world: &mut World, seed: u64, count: usize) -> Result<()> {
    let began = Instant::now();
    world.apply(&load::nodes()).await?;
    let mut faults = Faults::new(world).await?;
    for object in load::scene() {
        faults.apply(&object).await?;
    }
    let mut report = Report::default();
    let memory = |world: &World| -> Vec<u64> { world.replicas.iter().filter_map(resident).collect() };
    let before = memory(faults.world);
    let observer = Observer { kubectl: faults.world.kubectl.clone(), client: faults.world.client.clone() };
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let watching = tokio::spawn(async move {
        let (mut judge, mut snapshots, began) = (Judge::default(), 0, Instant::now());
        while !*stopped.borrow_and_update() {
            tokio::time::sleep(PAUSE).await;
            // While the API server restarts there is nothing to judge.
            let Ok(books) = observer.books().await else { continue };
            snapshots += 1;
            for breach in judge.judge(books) {
                println!("{:>6.1?} BROKEN: {breach}", began.elapsed());
            }
        }
        (judge, snapshots)
    });
    for (number, step) in plan::draw(seed, count).into_iter().enumerate() {
        tokio::time::sleep(step.pause).await;
        match step.act {
            Act::Submit(load) => {
                *report.work.entry(format!("{:?}", load.kind)).or_default() += 1;
                for object in load::work(number, &load) {
                    // While the webhook or the API server is away, work of teams is refused.
                    let _ = faults.alice.run(&["create", "-f", "-"], Some(&object.to_string())).await?;
                }
            }
            Act::Fault(fault, pick) => {
                *report.faults.entry(format!("{fault:?}")).or_default() += 1;
                println!("{:>6.1?} {fault:?}", began.elapsed());
                faults.inject(fault, pick).await.with_context(|| format!("{fault:?}"))?;
            }
        }
    }
    faults.heal().await?;
    let drained = drain(&faults).await;
    let agree = books_agree(&faults).await;
    stop.send_replace(true);
    let (judge, snapshots) = watching.await?;
    (report.snapshots, report.breaks) = (snapshots, judge.breaches);
    let after = memory(faults.world);
    let (admissions, evictions) = (judge.admissions.len(), judge.evictions);
    println!("{report:#?}");
    println!("{admissions} admissions and {evictions} evictions seen; {}", faults.take_overs.summary());
    println!("{:?}", outcomes(&faults).await?);
    let logs: Vec<u64> =
        faults.world.replicas.iter().filter_map(|one| Some(one.log().metadata().ok()?.len())).collect();
    println!(
        "memory before {before:?}, after {after:?} KiB; logs {logs:?} bytes; {:.0?} in all",
        began.elapsed()
    );
    if drained.is_err() {
        explain_left(&faults).await?;
    }
    drained?;
    agree?;
    ensure!(report.breaks.is_empty(), "{:#?}", report.breaks);
    ensure!(snapshots > count / 4, "only {snapshots} snapshots were judged");
    ensure!(logs.iter().all(|bytes| *bytes < LOG), "logs of {logs:?} bytes");
    Ok(())
}

/// Reads the API server.
struct Observer {
    kubectl: Kubectl,
    client: kube::Client,
}

impl Observer {
    async fn books(&self) -> Result<Books> {
        let view = tokio::time::timeout(Duration::from_secs(5), View::take(&self.client)).await??;
        let teams = self.kubectl.run(&["get", "teams", "-o", "json", "--request-timeout=5s"], None).await?;
        let teams: Value = serde_json::from_str(&teams.stdout)?;
        Ok(Books::of(&view, Faults::teams(&teams).into_iter().collect()))
    }
}

/// Prints what the leader says of the Jobs that are left.
async fn explain_left(faults: &Faults<'_>) -> Result<()> {
    let leader = faults.world.leader().await?;
    let view = View::take(&faults.world.client).await?;
    for job in view.jobs.iter().filter(|job| !matches!(job.state(), "complete" | "failed" | "on hold")) {
        let path = format!("/api/v1/workloads/{}/{}", job.namespace, job.name);
        println!("{} {}", job.state(), faults.world.replicas[leader].get(&path).await.unwrap_or_default());
    }
    Ok(())
}

/// How many Jobs and pods without a Job ended in each state.
async fn outcomes(faults: &Faults<'_>) -> Result<BTreeMap<String, usize>> {
    let view = View::take(&faults.world.client).await?;
    let mut outcomes = BTreeMap::new();
    for job in &view.jobs {
        *outcomes.entry(format!("Jobs {}", job.state())).or_default() += 1;
    }
    for pod in view.pods.iter().filter(|pod| pod.job.is_none()) {
        *outcomes.entry(format!("pods {}", pod.phase)).or_default() += 1;
    }
    Ok(outcomes)
}

/// Waits until all work of the teams has ended, or is on hold by its user.
async fn drain(faults: &Faults<'_>) -> Result<()> {
    sluice_harness::eventually("all work has ended or is on hold", DRAIN, async || {
        let view = View::take(&faults.world.client).await.map_err(|error| format!("{error:#}"))?;
        let jobs = view.jobs.iter().filter(|job| !matches!(job.state(), "complete" | "failed" | "on hold"));
        let mut left: Vec<String> =
            jobs.map(|job| format!("{}/{} {}", job.namespace, job.name, job.state())).collect();
        let ended = |pod: &str| matches!(pod, "Succeeded" | "Failed");
        let pods = view.pods.iter().filter(|pod| pod.job.is_none() && !ended(&pod.phase));
        // A member of a group that lost another waits for it for ever; so does a detached pod.
        let pods = pods.filter(|pod| !pod.gated && !pod.deleting);
        left.extend(pods.map(|pod| format!("{}/{} {}", pod.namespace, pod.name, pod.phase)));
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    })
    .await
}

/// Laws 15 and 16: each Team's status says what the observer's books say.
async fn books_agree(faults: &Faults<'_>) -> Result<()> {
    let observer = Observer { kubectl: faults.world.kubectl.clone(), client: faults.world.client.clone() };
    sluice_harness::eventually("the statuses agree with the charges", Duration::from_secs(60), async || {
        let error = |error: anyhow::Error| format!("{error:#}");
        let books = observer.books().await.map_err(error)?;
        let list = faults.world.kubectl.ok(&["get", "teams", "-o", "json"]).await.map_err(error)?;
        let list: Value = serde_json::from_str(&list).map_err(|error| error.to_string())?;
        let teams: BTreeSet<&String> = books.teams.keys().collect();
        for item in list["items"].as_array().into_iter().flatten() {
            let name = item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let said =
                item["status"]["pools"][0]["used"]["nvidia.com/gpu"].as_str().unwrap_or("0").to_owned();
            if teams.contains(&name) && said != books.charged(&name).to_string() {
                return Err(format!(
                    "team {name}: its status says {said}, the pods and records {}",
                    books.charged(&name)
                ));
            }
        }
        Ok(())
    })
    .await
}

/// The resident memory of a replica in KiB.
fn resident(replica: &Sluice) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", replica.process()?)).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").trim().parse().ok()
}
