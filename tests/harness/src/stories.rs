//! The four stories that show the purpose of Sluice; the tests and the demo run them.
//!
//! Each story is a scenario file under `examples/` and a function that plays it on a cluster and checks the
//! result. An error is the reason why the story failed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use kube::Client;
use sluice::scenario::Scenario;

use crate::cluster::project;
use crate::world::{running_uids, stays, until};
use crate::{Cluster, Play, User, View, patience};

const A: &str = "team-a";
const B: &str = "team-b";
const C: &str = "team-c";

/// One of the stories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Story {
    /// A borrower gives back exactly the GPUs that the owner requests, and gets them again afterwards.
    GreedyTeam,
    /// Small Jobs are packed so that a large one still fits a node.
    Fragmentation,
    /// Idle quota is used, and the owner takes back only the GPUs that one large Job needs.
    IdleQuota,
    /// Higher priority runs first; the evicted Job returns to its old place in the queue.
    Priority,
}

impl Story {
    /// All stories, in an order that works on one cluster: packing learns from the large pods of earlier
    /// stories and then leaves capacity for a few of them on several nodes. No node would then have eight
    /// free GPUs.
    pub const ALL: [Self; 4] = [Self::GreedyTeam, Self::IdleQuota, Self::Fragmentation, Self::Priority];

    /// The story's title.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::GreedyTeam => "The greedy team",
            Self::Fragmentation => "Fragmentation",
            Self::IdleQuota => "Idle quota",
            Self::Priority => "Priority",
        }
    }

    /// The story's scenario file.
    #[must_use]
    pub fn file(self) -> PathBuf {
        project().join("examples").join(match self {
            Self::GreedyTeam => "greedy-team.yaml",
            Self::Fragmentation => "fragmentation.yaml",
            Self::IdleQuota => "idle-quota.yaml",
            Self::Priority => "priority.yaml",
        })
    }

    /// Plays the story on a cluster where Sluice runs; `report` gets a sentence for every step.
    pub async fn play(self, cluster: &Cluster, report: &(dyn Fn(String) + Sync)) -> Result<()> {
        let play = Play::new(cluster, Scenario::load(&[self.file()])?, 1.0).await?;
        let mut stage = Stage { play, client: cluster.client(User::Admin).await?, report };
        match self {
            Self::GreedyTeam => greedy_team(&mut stage).await,
            Self::Fragmentation => fragmentation(&mut stage).await,
            Self::IdleQuota => idle_quota(&mut stage).await,
            Self::Priority => priority(&mut stage).await,
        }
    }

    /// Deletes the story's Jobs, and waits until their pods are gone.
    pub async fn clear(cluster: &Cluster) -> Result<()> {
        let kubectl = cluster.kubectl(User::Admin);
        for namespace in [A, B, C] {
            kubectl.ok(&["delete", "jobs", "--all", "--namespace", namespace, "--wait=false"]).await?;
        }
        let client = cluster.client(User::Admin).await?;
        until(&client, "the story's Jobs and pods are gone", patience(), |view| {
            match view.pods.iter().filter(|pod| [A, B, C].contains(&pod.namespace.as_str())).count() {
                0 => Ok(()),
                pods => Err(format!("{pods} pods")),
            }
        })
        .await
        .map(drop)
    }
}

/// The cluster on which a story is played.
struct Stage<'a> {
    play: Play,
    client: Client,
    report: &'a (dyn Fn(String) + Sync),
}

impl Stage<'_> {
    /// Reports the next step and carries it out.
    async fn act(&mut self, sentence: &str) -> Result<()> {
        self.report(sentence);
        self.step().await
    }

    /// Carries out the next step.
    async fn step(&mut self) -> Result<()> {
        ensure!(self.play.next().await?, "the scenario file has fewer steps than the story");
        Ok(())
    }

    fn report(&self, sentence: impl Into<String>) {
        (self.report)(sentence.into());
    }

    async fn until(&self, what: &str, check: impl Fn(&View) -> Result<(), String>) -> Result<View> {
        until(&self.client, what, patience(), check).await
    }

    async fn stays(&self, what: &str, check: impl Fn(&View) -> Result<(), String>) -> Result<()> {
        stays(&self.client, what, Duration::from_secs(3), check).await
    }
}

/// Checks that these numbers of pods run in these namespaces.
fn pods_run(counts: &[(&str, usize)]) -> impl Fn(&View) -> Result<(), String> {
    move |view| {
        let seen = |(namespace, _): &(&str, usize)| view.summary(namespace);
        if counts.iter().all(|(namespace, count)| view.running(namespace).count() == *count) {
            return Ok(());
        }
        Err(counts.iter().map(seen).collect::<Vec<_>>().join("; "))
    }
}

/// Checks that this many Jobs of this namespace are Complete.
fn complete(namespace: &str, jobs: usize) -> impl Fn(&View) -> Result<(), String> {
    move |view| {
        let complete = view.jobs_in(namespace).filter(|job| job.complete).count();
        if complete == jobs { Ok(()) } else { Err(view.summary(namespace)) }
    }
}

async fn greedy_team(stage: &mut Stage<'_>) -> Result<()> {
    stage.act("Teams A and B own 20 GPUs each. A submits 30 Jobs of one GPU.").await?;
    let before = stage.until("A's thirty Jobs run", pods_run(&[(A, 30)])).await?;
    let borrowed =
        before.jobs_in(A).filter(|job| job.admission.as_ref().is_some_and(|record| record.borrowed));
    let borrowed = borrowed.count();
    ensure!(
        borrowed == 10,
        "A runs 30 GPUs with 20 of its own, but {borrowed} Jobs are recorded as borrowing"
    );
    stage.report("All 30 run: 20 on A's own quota, 10 borrowed from B's idle quota.");

    stage.act("B submits 20 Jobs of one GPU.").await?;
    let counts = [(A, 20), (B, 20)];
    let after = stage.until("A keeps twenty and B runs twenty", pods_run(&counts)).await?;
    stage.stays("A keeps twenty and B runs twenty", pods_run(&counts)).await?;
    let surviving = running_uids(&after, A);
    let restarted = surviving.difference(&running_uids(&before, A)).count();
    ensure!(restarted == 0, "{restarted} of the pods that A keeps were restarted");
    let requeued = stage
        .until("ten of A's Jobs are queued again", |view| {
            let queued = view.jobs_in(A).filter(|job| job.queued()).count();
            if queued == 10 { Ok(()) } else { Err(view.summary(A)) }
        })
        .await?;
    let failed = requeued.jobs_in(A).filter(|job| job.failed_pods > 0).count();
    ensure!(failed == 0, "{failed} of A's Jobs count a failed pod, though only Sluice ended them");
    stage.report("Exactly ten of A's Jobs are suspended and queued again. A and B run 20 each.");

    let end = stage.until("A's ten Jobs resume when B's have ended", pods_run(&[(A, 30), (B, 0)])).await?;
    stage.until("B's twenty Jobs are Complete", complete(B, 20)).await?;
    let same = running_uids(&end, A).intersection(&surviving).count();
    ensure!(same == 20, "of the 20 pods that should keep running, only {same} still run");
    stage.report("B's Jobs have ended, and A's ten Jobs run again.");
    Ok(())
}

async fn fragmentation(stage: &mut Stage<'_>) -> Result<()> {
    stage.act("Four nodes of ten GPUs. A submits six Jobs of three GPUs.").await?;
    let before = stage.until("A's six Jobs run", pods_run(&[(A, 6)])).await?;
    let load = before.load();
    ensure!(load == [9, 9, 0, 0], "the nodes hold {load:?} GPUs instead of [9, 9, 0, 0]");
    stage.report("The nodes hold 9 + 9 + 0 + 0 GPUs: two nodes stay empty.");

    stage.act("B submits a Job that needs eight GPUs on one node.").await?;
    let submitted = Instant::now();
    let after = stage.until("B's Job runs beside A's six", pods_run(&[(A, 6), (B, 1)])).await?;
    let waited = submitted.elapsed();
    ensure!(waited < Duration::from_secs(10), "it started only after {waited:.1?}");
    ensure!(running_uids(&before, A) == running_uids(&after, A), "a Job of team A was disturbed");
    stage.report(format!("It runs {:.1} s later, and no Job had to move.", waited.as_secs_f64()));
    Ok(())
}

async fn idle_quota(stage: &mut Stage<'_>) -> Result<()> {
    stage.act("B is idle. A submits 30 Jobs of one GPU, and 10 more a little later.").await?;
    let old = stage.until("A's first thirty Jobs run", pods_run(&[(A, 30)])).await?;
    stage.act("A submits the other ten.").await?;
    stage.until("A's forty Jobs run", pods_run(&[(A, 40)])).await?;
    stage.report("All 40 GPUs run Jobs of A, 20 of them borrowed.");

    stage.act("B submits a Job that needs eight GPUs on one node.").await?;
    let counts = [(A, 32), (B, 1)];
    let after = stage.until("B's Job runs, and 32 of A's", pods_run(&counts)).await?;
    stage.stays("B's Job runs, and 32 of A's", pods_run(&counts)).await?;
    let gone: BTreeSet<String> =
        running_uids(&old, A).difference(&running_uids(&after, A)).cloned().collect();
    ensure!(
        gone.is_empty(),
        "{} of the Jobs evicted had run longest; evicting younger Jobs loses less work",
        gone.len()
    );
    let Some(node) = after.running(B).find_map(|pod| pod.node.clone()) else {
        bail!("B's pod does not exist")
    };
    let held = after.held_on(&node);
    ensure!(held == 10, "8 GPUs of B and 2 of A make 10 on {node}, not {held}");
    stage.report(format!(
        "Eight borrowers of A were evicted, all on {node} and the youngest: they lose the least work."
    ));
    Ok(())
}

async fn priority(stage: &mut Stage<'_>) -> Result<()> {
    stage
        .act("A node of 2 CPUs. C submits test1, test2 and test3 of 2 CPUs each, one after another.")
        .await?;
    stage.step().await?; // test2
    stage.step().await?; // test3
    let first = stage.until("test1 runs", runs("test1")).await?;
    let first = running_uids(&first, C);
    stage.act("test-p1 is submitted with high priority.").await?;
    let high = stage.until("test-p1 runs in place of test1", runs("test-p1")).await?;
    ensure!(running_uids(&high, C).is_disjoint(&first), "test1's pod runs beside test-p1");
    stage.report("test1 is suspended and queued again; test-p1 runs.");

    let end = stage.until("all four Jobs are Complete", complete(C, 4)).await?;
    let mut order: Vec<_> = end.jobs_in(C).map(|job| (job.completed_at, job.name.as_str())).collect();
    order.sort_unstable();
    let order: Vec<&str> = order.into_iter().map(|(_, name)| name).collect();
    ensure!(order == ["test-p1", "test1", "test2", "test3"], "they ended in the order {}", order.join(", "));
    stage.report("The others ran in their order. All are Complete.");
    Ok(())
}

/// Checks that only this Job of the priority story runs.
fn runs(job: &str) -> impl Fn(&View) -> Result<(), String> {
    move |view| {
        let running: Vec<_> = view.running(C).filter_map(|pod| pod.job.as_deref()).collect();
        if running == [job] { Ok(()) } else { Err(format!("running: {running:?}; {}", view.summary(C))) }
    }
}
