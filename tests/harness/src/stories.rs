//! The four stories that show what Sluice is for; tests run them, and so does the demo.
//!
//! Each is a scenario file under `examples/` and a function that plays it on a cluster and checks
//! what must come of it. An error is the reason why the story failed.

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
    /// A borrower gives back exactly what the owner asks for, and gets it again afterwards.
    GreedyTeam,
    /// Small jobs are packed so that a large one still finds a node.
    Fragmentation,
    /// Idle quota is used, and only as much is taken back as one large job needs.
    IdleQuota,
    /// Higher priority goes first; who had to go comes back to its old place.
    Priority,
}

impl Story {
    /// All of them, in an order in which they can be told on one cluster: once larger pods have been seen,
    /// small ones are laid so that room for a few large ones is left on several nodes, and then nobody can
    /// have eight GPUs of one node without taking from the old.
    pub const ALL: [Self; 4] = [Self::GreedyTeam, Self::IdleQuota, Self::Fragmentation, Self::Priority];

    /// Its title.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::GreedyTeam => "The greedy team",
            Self::Fragmentation => "Fragmentation",
            Self::IdleQuota => "Idle quota",
            Self::Priority => "Priority",
        }
    }

    /// Its scenario file.
    #[must_use]
    pub fn file(self) -> PathBuf {
        project().join("examples").join(match self {
            Self::GreedyTeam => "greedy-team.yaml",
            Self::Fragmentation => "fragmentation.yaml",
            Self::IdleQuota => "idle-quota.yaml",
            Self::Priority => "priority.yaml",
        })
    }

    /// Plays it on a cluster where Sluice runs; `tell` is told what happens.
    pub async fn play(self, cluster: &Cluster, tell: &(dyn Fn(String) + Sync)) -> Result<()> {
        let play = Play::new(cluster, Scenario::load(&[self.file()])?, 1.0).await?;
        let mut stage = Stage { play, client: cluster.client(User::Admin).await?, tell };
        match self {
            Self::GreedyTeam => greedy_team(&mut stage).await,
            Self::Fragmentation => fragmentation(&mut stage).await,
            Self::IdleQuota => idle_quota(&mut stage).await,
            Self::Priority => priority(&mut stage).await,
        }
    }

    /// Removes the Jobs it has left, and waits until their pods are gone.
    pub async fn clear(cluster: &Cluster) -> Result<()> {
        let kubectl = cluster.kubectl(User::Admin);
        for namespace in [A, B, C] {
            kubectl.ok(&["delete", "jobs", "--all", "--namespace", namespace, "--wait=false"]).await?;
        }
        let client = cluster.client(User::Admin).await?;
        until(&client, "nothing is left of the story", patience(), |view| {
            match view.pods.iter().filter(|pod| [A, B, C].contains(&pod.namespace.as_str())).count() {
                0 => Ok(()),
                pods => Err(format!("{pods} pods")),
            }
        })
        .await
        .map(drop)
    }
}

/// Where a story takes place.
struct Stage<'a> {
    play: Play,
    client: Client,
    tell: &'a (dyn Fn(String) + Sync),
}

impl Stage<'_> {
    /// Says what is about to happen and lets it happen.
    async fn act(&mut self, told: &str) -> Result<()> {
        self.tell(told);
        self.step().await
    }

    /// Lets the next thing happen.
    async fn step(&mut self) -> Result<()> {
        ensure!(self.play.next().await?, "the scenario file has fewer steps than the story");
        Ok(())
    }

    fn tell(&self, told: impl Into<String>) {
        (self.tell)(told.into());
    }

    async fn until(&self, what: &str, check: impl Fn(&View) -> Result<(), String>) -> Result<View> {
        until(&self.client, what, patience(), check).await
    }

    async fn stays(&self, what: &str, check: impl Fn(&View) -> Result<(), String>) -> Result<()> {
        stays(&self.client, what, Duration::from_secs(3), check).await
    }
}

/// So many pods of these namespaces run.
fn pods_run(counts: &[(&str, usize)]) -> impl Fn(&View) -> Result<(), String> {
    move |view| {
        let seen = |(namespace, _): &(&str, usize)| view.summary(namespace);
        if counts.iter().all(|(namespace, count)| view.running(namespace).count() == *count) {
            return Ok(());
        }
        Err(counts.iter().map(seen).collect::<Vec<_>>().join("; "))
    }
}

/// So many Jobs of this namespace are Complete.
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
    ensure!(borrowed == 10, "A runs 30 GPUs with 20 of its own, but {borrowed} Jobs are marked as borrowing");
    stage.tell("All 30 run: 20 on A's own quota, 10 on what B leaves idle.");

    stage.act("B comes back and submits 20 Jobs of one GPU.").await?;
    let counts = [(A, 20), (B, 20)];
    let after = stage.until("A keeps twenty and B runs twenty", pods_run(&counts)).await?;
    stage.stays("A keeps twenty and B runs twenty", pods_run(&counts)).await?;
    let kept = running_uids(&after, A);
    let restarted = kept.difference(&running_uids(&before, A)).count();
    ensure!(restarted == 0, "{restarted} of the pods that A keeps were restarted");
    let requeued = stage
        .until("ten of A's Jobs are back in the queue", |view| {
            let queued = view.jobs_in(A).filter(|job| job.queued()).count();
            if queued == 10 { Ok(()) } else { Err(view.summary(A)) }
        })
        .await?;
    let failed = requeued.jobs_in(A).filter(|job| job.failed_pods > 0).count();
    ensure!(failed == 0, "{failed} of A's Jobs count a failed pod, though nobody but Sluice ended them");
    stage.tell("Exactly ten of A's Jobs are suspended and queued again. A keeps its 20, B has its 20.");

    let end =
        stage.until("A's ten resume by themselves when B's have ended", pods_run(&[(A, 30), (B, 0)])).await?;
    stage.until("B's twenty Jobs are Complete", complete(B, 20)).await?;
    let same = running_uids(&end, A).intersection(&kept).count();
    ensure!(same == 20, "of the 20 pods that A was to keep, only {same} still run");
    stage.tell("B's Jobs have ended, and A's ten run again by themselves.");
    Ok(())
}

async fn fragmentation(stage: &mut Stage<'_>) -> Result<()> {
    stage.act("Four nodes of ten GPUs. A submits six Jobs of three GPUs.").await?;
    let before = stage.until("A's six Jobs run", pods_run(&[(A, 6)])).await?;
    let load = before.load();
    ensure!(load == [9, 9, 0, 0], "the nodes hold {load:?} GPUs instead of [9, 9, 0, 0]");
    stage.tell("They lie 9 + 9 + 0 + 0: two nodes stay whole.");

    stage.act("B submits a Job that needs eight GPUs on one node.").await?;
    let submitted = Instant::now();
    let after = stage.until("B's Job runs beside A's six", pods_run(&[(A, 6), (B, 1)])).await?;
    let waited = submitted.elapsed();
    ensure!(waited < Duration::from_secs(10), "it started only after {waited:.1?}");
    ensure!(running_uids(&before, A) == running_uids(&after, A), "a Job of A's was disturbed for it");
    stage.tell(format!("It runs {:.1} s later, and nobody had to move.", waited.as_secs_f64()));
    Ok(())
}

async fn idle_quota(stage: &mut Stage<'_>) -> Result<()> {
    stage.act("B is idle. A submits 30 Jobs of one GPU, and a little later 10 more.").await?;
    let old = stage.until("A's first thirty Jobs run", pods_run(&[(A, 30)])).await?;
    stage.act("A submits the other ten.").await?;
    stage.until("A's forty Jobs run", pods_run(&[(A, 40)])).await?;
    stage.tell("All 40 GPUs work for A, 20 of them borrowed.");

    stage.act("B submits a Job that needs eight GPUs on one node.").await?;
    let counts = [(A, 32), (B, 1)];
    let after = stage.until("B's Job runs, and 32 of A's", pods_run(&counts)).await?;
    stage.stays("B's Job runs, and 32 of A's", pods_run(&counts)).await?;
    let gone: BTreeSet<String> =
        running_uids(&old, A).difference(&running_uids(&after, A)).cloned().collect();
    ensure!(
        gone.is_empty(),
        "{} of the Jobs evicted had run longest; the younger ones lose less",
        gone.len()
    );
    let Some(node) = after.running(B).find_map(|pod| pod.node.clone()) else { bail!("B's pod has gone") };
    let held = after.held_on(&node);
    ensure!(held == 10, "8 GPUs for B and the 2 Jobs of A that may stay make 10 on {node}, not {held}");
    stage.tell(format!("Eight of A's borrowers went, all on {node}, the youngest: they lose least."));
    Ok(())
}

async fn priority(stage: &mut Stage<'_>) -> Result<()> {
    stage
        .act("A node of 2 CPUs. C submits test1, test2 and test3 of 2 CPUs each, one after the other.")
        .await?;
    stage.step().await?; // test2
    stage.step().await?; // test3
    let first = stage.until("test1 runs", runs("test1")).await?;
    let first = running_uids(&first, C);
    stage.act("test-p1 comes, with high priority.").await?;
    let high = stage.until("test-p1 runs in place of test1", runs("test-p1")).await?;
    ensure!(running_uids(&high, C).is_disjoint(&first), "test1's pod runs beside test-p1");
    stage.tell("test1 is suspended and queued again; test-p1 runs.");

    let end = stage.until("all four Jobs are Complete", complete(C, 4)).await?;
    let mut order: Vec<_> = end.jobs_in(C).map(|job| (job.completed_at, job.name.as_str())).collect();
    order.sort_unstable();
    let order: Vec<&str> = order.into_iter().map(|(_, name)| name).collect();
    ensure!(order == ["test-p1", "test1", "test2", "test3"], "they ended in the order {}", order.join(", "));
    stage.tell("Then the others in their order. All are Complete.");
    Ok(())
}

/// This Job of the priority story runs, alone.
fn runs(job: &str) -> impl Fn(&View) -> Result<(), String> {
    move |view| {
        let running: Vec<_> = view.running(C).filter_map(|pod| pod.job.as_deref()).collect();
        if running == [job] { Ok(()) } else { Err(format!("running: {running:?}; {}", view.summary(C))) }
    }
}
