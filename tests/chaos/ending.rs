//! What must hold when the faults are over: all work has ended, or a verdict says truly why it waits.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::Value;
use sluice_harness::{JobView, PodView, Sluice, View};

use crate::books::Books;
use crate::faults::Faults;

/// The longest time after the last fault in which no work ends.
const DRAIN: Duration = Duration::from_secs(90);

/// Waits until no work is left but what waits for a reason that the observer's books confirm. Returns how much waits for
/// which reason.
pub async fn drained(faults: &Faults<'_>) -> Result<BTreeMap<String, usize>> {
    let leader = &faults.world.replicas[faults.world.leader().await?];
    let (mut fewest, mut ended, mut last) = (usize::MAX, Instant::now(), Vec::new());
    while ended.elapsed() < DRAIN {
        // While the API server does not answer there is nothing to see.
        if let Ok((waiting, left)) = what_is_left(faults, leader).await {
            if left.is_empty() {
                return Ok(waiting);
            }
            if left.len() < fewest {
                (fewest, ended) = (left.len(), Instant::now());
            }
            last = left;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    bail!("nothing has ended for {DRAIN:?}, and no reason that is true keeps this back:\n{}", last.join("\n"))
}

/// How much waits for which reason that is true, and what else is left.
async fn what_is_left(
    faults: &Faults<'_>,
    leader: &Sluice,
) -> Result<(BTreeMap<String, usize>, Vec<String>)> {
    let rows = leader.workloads().await?;
    let (view, books) = faults.observer().look().await?;
    let (mut waiting, mut left) = (BTreeMap::new(), Vec::new());
    for one in unfinished(&view) {
        let verdict = one.verdict(&rows);
        if one.explained(&verdict.0, &view, &books) {
            *waiting.entry(verdict.0).or_default() += 1;
        } else {
            left.push(format!("{one:?}, {} {}", verdict.0, verdict.1));
        }
    }
    Ok((waiting, left))
}

/// Work of a team that has not ended.
pub enum Unfinished<'v> {
    Job(&'v JobView),
    Pod(&'v PodView),
}

impl std::fmt::Debug for Unfinished<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Job(job) => write!(out, "Job {}/{} {}", job.namespace, job.name, job.state()),
            Self::Pod(pod) => {
                let (gated, deleting) = (pod.gated, pod.deleting);
                write!(
                    out,
                    "pod {}/{} {} gated={gated} deleting={deleting}",
                    pod.namespace, pod.name, pod.phase
                )
            }
        }
    }
}

/// All Jobs that have not ended, and all pods without a Job that have not. A Job that its user suspended in `free` is
/// not Sluice's.
pub fn unfinished(view: &View) -> Vec<Unfinished<'_>> {
    let jobs = view.jobs.iter().filter(|job| !job.complete && !job.failed);
    let jobs = jobs.filter(|job| job.namespace != "free" || !job.suspended).map(Unfinished::Job);
    let pods = view.pods.iter().filter(|pod| pod.job.is_none() && open(pod));
    jobs.chain(pods.map(Unfinished::Pod)).collect()
}

fn open(pod: &PodView) -> bool {
    pod.phase != "Succeeded" && pod.phase != "Failed"
}

impl Unfinished<'_> {
    /// Reason and message of the verdict; empty if Sluice does not know the workload.
    fn verdict(&self, rows: &Value) -> (String, String) {
        let (namespace, name) = match self {
            Self::Job(job) => (&job.namespace, &job.name),
            Self::Pod(pod) => (&pod.namespace, pod.group.as_ref().map_or(&pod.name, |(name, _)| name)),
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let own = |row: &&Value| row["namespace"] == **namespace && row["name"] == **name;
        let row = rows.as_array().into_iter().flatten().find(own);
        row.map_or_else(Default::default, |row| (text(&row["reason"]), text(&row["message"])))
    }

    /// Whether the objects show what the reason says.
    pub fn explained(&self, reason: &str, view: &View, books: &Books) -> bool {
        match self {
            // Suspended by its user, or scaled to none: before its admission, or while it ran.
            Self::Job(job) => {
                let on_hold = job.suspended && (!job.held || job.parallelism == 0);
                let scaled = job.admitted() && job.parallelism == 0 && job.active == 0;
                scaled || reason == "HeldByUser" && on_hold && job.admission.is_none()
            }
            Self::Pod(pod) => {
                let Some((group, size)) = &pod.group else { return false };
                let member = |other: &&PodView| {
                    let same = other.namespace == pod.namespace;
                    same && open(other) && other.group.as_ref().is_some_and(|(name, _)| name == group)
                };
                let members: Vec<&PodView> = view.pods.iter().filter(member).collect();
                let asks: i64 = members.iter().map(|pod| pod.gpus).sum();
                let gated = members.iter().all(|pod| pod.gated);
                match reason {
                    "Incomplete" => gated && members.len() < *size,
                    // Plain pods are never preempted, so a group must fit the guarantee on its whole path.
                    "NotPreemptibleOverGuarantee" => gated && books.least_guarantee(&pod.namespace) < asks,
                    _ => false,
                }
            }
        }
    }
}
