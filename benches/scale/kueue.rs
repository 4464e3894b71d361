//! Kueue's performance tests: teams in cohorts that lend to each other, and Jobs of three classes that come at fixed times.
//! Kueue runs them with Workloads that have neither Jobs nor pods; here they are Jobs that run.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::sync::Semaphore;

use crate::WITH_RAW;
use crate::figures::{Rows, mean, seconds, seconds_of};
use crate::jobs::{self, Shape};
use crate::load::{self, IN_FLIGHT};
use crate::stage::{RAW, Running, Side, Stage, say};

/// A test of Kueue.
pub struct Test {
    part: &'static str,
    cohorts: usize,
    teams_of_each: usize,
    /// Jobs of each class in each team.
    jobs: [usize; 3],
    /// Longest time of a run.
    patience: Duration,
    goal: &'static str,
    total: &'static str,
    waits: [&'static str; 3],
}

/// 30 queues and 15,000 Jobs.
pub const BASELINE: Test = Test {
    part: "kueue-baseline",
    cohorts: 5,
    teams_of_each: 6,
    jobs: [350, 100, 50],
    patience: Duration::from_secs(1_800),
    goal: "< 351 s",
    total: "Kueue 351.1 s, simulated",
    waits: ["Kueue 215 s", "Kueue 76.8 s", "Kueue 16.5 s"],
};
/// 1,000 queues and 50,000 Jobs.
pub const LARGE: Test = Test {
    part: "kueue-large",
    cohorts: 10,
    teams_of_each: 100,
    jobs: [35, 10, 5],
    patience: Duration::from_secs(5_400),
    goal: "< 1,179 s",
    total: "Kueue 1,179 s, simulated",
    waits: ["Kueue 700 s", "", ""],
};

/// A class of Jobs.
struct Class {
    name: &'static str,
    every: Duration,
    runs: Duration,
    asks: usize,
}

const CLASSES: [Class; 3] = [
    Class { name: "small", every: Duration::from_millis(100), runs: Duration::from_millis(200), asks: 1 },
    Class { name: "medium", every: Duration::from_millis(500), runs: Duration::from_millis(500), asks: 5 },
    Class { name: "large", every: Duration::from_millis(1200), runs: Duration::from_secs(1), asks: 20 },
];

impl Test {
    fn teams(&self) -> usize {
        self.cohorts * self.teams_of_each
    }

    fn all(&self) -> usize {
        self.jobs.iter().sum::<usize>() * self.teams()
    }

    fn names(&self) -> Vec<String> {
        let team =
            |at: usize| format!("{}-{}-{}", self.part, at / self.teams_of_each, at % self.teams_of_each);
        (0..self.teams()).map(team).collect()
    }

    /// Each team has 20 CPUs and may borrow 100 of those of its cohort.
    fn objects(&self) -> Result<String> {
        let mut text = String::new();
        for cohort in 0..self.cohorts {
            let all = self.teams_of_each * 20;
            write!(
                text,
                "---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {{name: {}-{cohort}}}
spec: {{quotas: [{{guaranteed: {{cpu: {all}}}, limit: {{cpu: {all}}}}}]}}
",
                self.part
            )?;
        }
        for (at, name) in self.names().iter().enumerate() {
            write!(
                text,
                "---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {{name: {name}}}
spec:
  parent: {}-{}
  quotas: [{{guaranteed: {{cpu: 20}}, limit: {{cpu: 120}}}}]
  queues: [{{name: small, priority: 50}}, {{name: medium, priority: 100}}, {{name: large, priority: 200}}]
---
apiVersion: v1
kind: Namespace
metadata: {{name: {name}, labels: {{sluice.dev/team: {name}}}}}
",
                self.part,
                at / self.teams_of_each
            )?;
        }
        Ok(text)
    }
}

/// What a run of one side has taken.
struct Took {
    total: Duration,
    /// The mean wait of each class.
    waits: [Duration; 3],
}

/// From the first create until all have succeeded. Raw Jobs are held by no quota.
pub async fn run(stage: &mut Stage, test: &Test, rows: &mut Rows) -> Result<()> {
    let mut raw = None;
    if stage.runs(Side::Raw) && WITH_RAW.contains(&test.part) {
        stage.without_sluice().await?;
        load::quiet().await?;
        let names = RAW.map(str::to_owned);
        raw = Some(ended(stage, test, &format!("raw-{}", test.part), &names, Side::Raw).await?);
    }
    let mut sluice = None;
    if stage.runs(Side::Sluice) {
        load::clear(&stage.client, &RAW).await?;
        stage.with_sluice(&test.objects()?).await?;
        load::quiet().await?;
        sluice = Some(ended(stage, test, test.part, &test.names(), Side::Sluice).await?);
    }

    let total = |took: &Option<Took>| seconds_of(took.as_ref().map(|took| took.total));
    let figure = format!("{} Jobs of {} teams, created, run and ended", test.all(), test.teams());
    rows.add(test.part, &figure, &total(&raw), &total(&sluice), test.goal, test.total);
    for (class, of) in CLASSES.iter().enumerate() {
        let wait = |took: &Option<Took>| seconds_of(took.as_ref().map(|took| took.waits[class]));
        let figure = format!("mean wait of {} Jobs", of.name);
        rows.add(test.part, &figure, &wait(&raw), &wait(&sluice), "", test.waits[class]);
    }
    Ok(())
}

/// Creates the Jobs of all teams in these namespaces, and waits until they have succeeded.
async fn ended(stage: &Stage, test: &Test, step: &str, namespaces: &[String], side: Side) -> Result<Took> {
    let client = stage.client.clone();
    let steps = CLASSES.map(|class| format!("{step}-{}", class.name));
    let counts = test.jobs.map(|jobs| jobs * test.teams());
    let mut due: Vec<(Duration, usize, usize)> = Vec::new();
    for (class, of) in CLASSES.iter().enumerate() {
        // One of each team in turn, as their places in the list of names.
        due.extend(
            (0..counts[class])
                .map(|at| (of.every * u32::try_from(at / test.teams()).unwrap_or(0), class, at)),
        );
    }
    due.sort_unstable();
    let [mut small, mut medium, mut large] =
        [0, 1, 2].map(|class| Running::succeeded(&client, &steps[class], test.patience));

    let (before, began) = (stage.processors()?, Instant::now());
    let mut last = began;
    let permits = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut created = Vec::new();
    for (at, class, number) in due {
        tokio::time::sleep_until((began + at).into()).await;
        let permit = Arc::clone(&permits).acquire_owned().await?;
        let (client, step, namespace) =
            (client.clone(), steps[class].clone(), namespaces[number % namespaces.len()].clone());
        created.push(tokio::spawn(async move {
            let of = &CLASSES[class];
            let (asks, namespaces) = (("cpu", of.asks), [namespace.as_str()]);
            let queue = (side == Side::Sluice).then_some(of.name);
            let shape = Shape { asks, runs: Some(of.runs), queue, ..Shape::single(&step, &namespaces) };
            let made = shape.create_one(&client, number).await;
            drop(permit);
            made
        }));
        if last.elapsed() > Duration::from_secs(10) {
            last = Instant::now();
            say(&format!("  {} created after {:.0} s", created.len(), began.elapsed().as_secs_f64()));
        }
    }
    let all = created.len();
    for one in created {
        one.await??;
    }
    say(&format!("  {all} created after {}", seconds(began.elapsed())));
    let ends =
        tokio::try_join!(small.reaches(counts[0]), medium.reaches(counts[1]), large.reaches(counts[2]))?;
    let total = ends.0.max(ends.1).max(ends.2) - began;
    stage.say_processors(&before)?;
    let mut waits = [Duration::ZERO; 3];
    for (class, wait) in waits.iter_mut().enumerate() {
        *wait = mean(&jobs::waits(&client, &steps[class], counts[class]).await?);
    }
    Ok(Took { total, waits })
}
