//! Two replicas on a real control plane under random load and random faults, with an observer that reads only the API
//! server and keeps books of its own.
//!
//! `SEED` and `FAULTS` choose the plan; the same plan is drawn from the same seed. Without them the test is the short
//! form: 100 faults of a fixed seed.

mod books;
mod ending;
mod faults;
mod judge;
mod kubelet;
mod load;
mod plan;
mod take_over;
#[cfg(test)]
mod tests;
mod trace;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use sluice_harness::{Cluster, Options, Sluice, View, World};

use crate::faults::Faults;
use crate::judge::Judge;
use crate::kubelet::Kubelet;
use crate::plan::Act;

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// Time between two snapshots of the observer.
const PAUSE: Duration = Duration::from_millis(400);

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
    let cluster = Cluster::up(&format!("chaos-{seed}")).await.expect("a control plane");
    let flags = vec!["--unreachable-after=5s".to_owned()];
    let world = World::up_on(cluster, Options { flags, ..Options::new(SLUICE) }, 0).await;
    let mut world = world.expect("Sluice is installed");
    let outcome = soak(&mut world, seed, faults).await;
    let logs: Vec<String> = world.replicas.iter().map(Sluice::log_tail).collect();
    if let Err(error) = outcome {
        // The failure comes last, because the end of a long output is what is kept.
        panic!("{}\nSEED={seed} FAULTS={faults}: {error:#}", logs.join("\n"));
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
    let observer = faults.observer();
    let mut kubelet = Kubelet::new(faults.world.client.clone());
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let recent: Arc<Mutex<Vec<String>>> = Arc::default();
    let before_breach = Arc::clone(&recent);
    let logs: Vec<PathBuf> = faults.world.replicas.iter().map(|one| one.log().to_owned()).collect();
    let watching = tokio::spawn(async move {
        let (mut judge, mut snapshots, mut breaks) = (Judge::default(), 0, Vec::new());
        while !*stopped.borrow_and_update() {
            tokio::time::sleep(PAUSE).await;
            // While the API server restarts there is nothing to judge.
            let Ok((view, books)) = observer.look().await else { continue };
            kubelet.look(&view, Timestamp::now()).await;
            snapshots += 1;
            for breach in judge.judge(books) {
                let faults = before_breach.lock().unwrap_or_else(PoisonError::into_inner).join(", ");
                let events = observer.events(&breach).await;
                let shown = trace::shown(&view, &breach) + &trace::logged(&logs, &breach);
                let line = format!("{:.1?} {breach} (after {faults}){shown}{events}", began.elapsed());
                println!("BROKEN: {line}");
                breaks.push(line);
            }
        }
        (judge, kubelet, snapshots, breaks)
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
                let line = format!("{:.1?} {fault:?}", began.elapsed());
                println!("{line}");
                note(&recent, line);
                faults.inject(fault, pick).await.with_context(|| format!("{fault:?}"))?;
            }
        }
    }
    faults.heal().await?;
    let waiting = ending::drained(&faults).await;
    let agree = books_agree(&faults).await;
    stop.send_replace(true);
    let (judge, kubelet, snapshots, breaks) = watching.await?;
    (report.snapshots, report.breaks) = (snapshots, breaks);
    let after = memory(faults.world);
    let (admissions, evictions) = (judge.admissions.len(), judge.evictions);
    println!("{report:#?}");
    println!("{admissions} admissions and {evictions} evictions seen; {}", faults.take_overs.summary());
    println!("{:#?}", outcomes(&faults).await?);
    println!("{} pods were lost by the simulated kubelet: {:?}", kubelet.lost.len(), kubelet.lost);
    println!("waiting in the end: {waiting:?}");
    let logs: Vec<u64> =
        faults.world.replicas.iter().filter_map(|one| Some(one.log().metadata().ok()?.len())).collect();
    println!(
        "memory before {before:?}, after {after:?} KiB; logs {logs:?} bytes; {:.0?} in all",
        began.elapsed()
    );
    waiting?;
    agree?;
    // Each was printed in full when it came.
    let breaks: Vec<&str> = report.breaks.iter().filter_map(|line| line.lines().next()).collect();
    ensure!(breaks.is_empty(), "{}", breaks.join("\n"));
    ensure!(snapshots > count / 4, "only {snapshots} snapshots were judged");
    ensure!(logs.iter().all(|bytes| *bytes < LOG), "logs of {logs:?} bytes");
    Ok(())
}

/// Keeps the last faults, for the report of a breach.
fn note(recent: &Mutex<Vec<String>>, fault: String) {
    let mut recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
    recent.push(fault);
    if recent.len() > 6 {
        recent.remove(0);
    }
}

/// How many Jobs and pods of each kind of work ended in each state.
async fn outcomes(faults: &Faults<'_>) -> Result<BTreeMap<String, usize>> {
    let view = View::take(&faults.world.client).await?;
    let mut outcomes = BTreeMap::new();
    let jobs = view.jobs.iter().map(|job| (&job.name, job.state()));
    let pods = view.pods.iter().filter(|pod| pod.job.is_none()).map(|pod| (&pod.name, pod.phase.as_str()));
    for (name, state) in jobs.chain(pods) {
        let kind = name.split('-').nth(1).unwrap_or(name);
        *outcomes.entry(format!("{kind} {state}")).or_default() += 1;
    }
    Ok(outcomes)
}

/// Laws 15 and 16: each Team's status says what the observer's books say.
async fn books_agree(faults: &Faults<'_>) -> Result<()> {
    let observer = faults.observer();
    sluice_harness::eventually("the statuses agree with the charges", Duration::from_secs(60), async || {
        let error = |error: anyhow::Error| format!("{error:#}");
        let (_, books) = observer.look().await.map_err(error)?;
        for (team, said) in &books.said {
            let charged = books.charged(team);
            if *said != charged {
                return Err(format!("team {team}: its status says {said}, the pods and records {charged}"));
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
