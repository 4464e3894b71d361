//! Sluice's effect on a control plane: Jobs admitted per second, the time from an end to the next start,
//! creates per second, each beside the same control plane without Sluice.
//!
//! *Raw* is the ceiling: the load generator itself starts the held Jobs, with one request each and 16
//! requests at a time. *Open*: many held Jobs; the capacity is opened at once, until the last Job is seen to
//! start. *Turnover*: Jobs of three seconds on 40 GPUs, from the k-th end to the (40+k)-th start seen by the
//! same watch.

mod figures;
mod history;
mod load;
#[path = "../measures.rs"]
mod measures;
#[path = "../processors.rs"]
mod processors;
#[path = "../readme.rs"]
mod readme;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result};
use clap::Parser;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::json;
use sluice::api::names;
use sluice_harness::{Cluster, Options, Sluice, User, install, webhook_answers};

use figures::Report;
use load::{IN_FLIGHT, Seen, Watch};
use measures::{Quantiles, resident_megabytes, webhook_quantiles};
use processors::Processors;

/// Measures Sluice on a local control plane.
#[derive(Parser)]
struct Arguments {
    /// Number of Jobs that wait when the capacity opens.
    #[arg(long, default_value_t = 2000)]
    jobs: usize,
    /// Number of nodes with 8 GPUs.
    #[arg(long, default_value_t = 250)]
    nodes: usize,
    /// Number of Jobs that run on 40 GPUs.
    #[arg(long, default_value_t = 400)]
    turnover: usize,
    /// Number of Jobs created in a round.
    #[arg(long, default_value_t = 1000)]
    creates: usize,
    /// Only the creates, and what they cost each process.
    #[arg(long, conflicts_with = "write")]
    only_creates: bool,
    /// Only what the history costs, with these stores in turn.
    #[arg(long, value_name = "STORES", value_delimiter = ',', conflicts_with = "only_creates")]
    history: Vec<history::Store>,
    /// How often each store is measured.
    #[arg(long, default_value_t = 2, requires = "history")]
    rounds: usize,
    /// An object to delete first, to see what it costs: validatingadmissionpolicybinding/sluice-team-order.
    #[arg(long, value_name = "KIND/NAME")]
    without: Vec<String>,
    /// Write the table into benches/README.md.
    #[arg(long)]
    write: bool,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

const RAW: [&str; 2] = ["raw-0", "raw-1"];
const TEAM: [&str; 2] = ["team-0", "team-1"];
const SLOTS: usize = 40;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let cluster = Cluster::up("bench").await?;
    let client = cluster.client(User::Raw).await?;
    say(&format!("{} nodes with 8 GPUs each", arguments.nodes));
    load::nodes(&client, arguments.nodes).await?;
    install(&cluster).await?;
    for object in &arguments.without {
        cluster.kubectl(User::Admin).ok(&["delete", object]).await?;
    }
    for namespace in RAW {
        load::namespace(&client, namespace, None).await?;
    }
    create_team(&client).await?;
    for namespace in TEAM {
        load::namespace(&client, namespace, Some("bench")).await?;
    }
    if arguments.only_creates {
        return only_creates(&cluster, &client, arguments.creates).await;
    }
    if !arguments.history.is_empty() {
        let sizes = (arguments.jobs, arguments.turnover);
        let table = history::measure(&cluster, &client, &arguments.history, arguments.rounds, sizes).await?;
        println!("{table}");
        if arguments.write {
            readme::write("bench-cluster-history", &table).map_err(Error::msg)?;
        }
        return Ok(());
    }
    let mut report = Report::default();

    say("raw: open and turnover, without Sluice");
    let raw_before = open_raw(&client, "raw-open-1", arguments.jobs).await?;
    let raw_turnover = turnover_raw(&client, arguments.turnover).await?;

    let mut sluice = Sluice::start(&cluster, &Options::new(env!("CARGO_BIN_EXE_sluice"))).await?;
    let process = sluice.process().context("Sluice has ended")?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    report.idle_megabytes = resident_megabytes(process)?;

    say("creates: in a namespace without and with a team, in turn");
    let before = sluice.get("/metrics").await?;
    let (mut plain, mut held) = (Creates::default(), Creates::default());
    for round in 0..2 {
        plain.run(&client, &format!("plain-{round}"), RAW[0], arguments.creates, true).await?;
        // In both rounds no Job starts: in the plain one the creator suspends it, in the other it is held.
        // The Job controller lags behind, and its delayed work for one round must not load the next.
        load::quiet().await?;
        held.run(&client, &format!("held-{round}"), TEAM[0], arguments.creates, false).await?;
        load::clear(&client, &[RAW[0], TEAM[0]]).await?;
    }
    let after = sluice.get("/metrics").await?;
    report.creates = [plain.rate(), held.rate()];
    report.create_latency = [Quantiles::of(&plain.each), Quantiles::of(&held.each)];
    report.webhook = webhook_quantiles(&before, &after);

    say("open, with Sluice");
    let (open, writes) = open_sluice(&cluster, &client, arguments.jobs).await?;
    report.writes = writes;
    report.busy_megabytes = resident_megabytes(process)?;
    say("turnover, with Sluice");
    let turnover = turnover_sluice(&client, "turnover", arguments.turnover).await?;
    sluice.stop().await?;

    say("raw: open again, without Sluice");
    let raw_after = open_raw(&client, "raw-open-2", arguments.jobs).await?;
    report.open = [raw_before, raw_after, open];
    report.turnover = [Quantiles::of(&raw_turnover), Quantiles::of(&turnover)];
    println!("{report}");
    if arguments.write {
        readme::write("bench-cluster", &report.to_string()).map_err(Error::msg)?;
    }
    Ok(())
}

/// Creates in a namespace without and with a team, in turn, and what each create costs each process.
async fn only_creates(cluster: &Cluster, client: &Client, count: usize) -> Result<()> {
    let mut sluice = Sluice::start(cluster, &Options::new(env!("CARGO_BIN_EXE_sluice"))).await?;
    webhook_answers(cluster).await?;
    for round in 0..3 {
        for (name, namespace, suspend) in [("raw", RAW[0], true), ("Sluice", TEAM[0], false)] {
            load::quiet().await?;
            let before = Processors::now(cluster.directory(), sluice.process())?;
            let mut creates = Creates::default();
            let phase = format!("{}-{round}", name.to_lowercase());
            creates.run(client, &phase, namespace, count, suspend).await?;
            let used = Processors::now(cluster.directory(), sluice.process())?.since(&before);
            let each: Vec<String> = used
                .iter()
                .map(|(name, time)| {
                    format!(
                        "{name} {:.2}",
                        time.as_secs_f64() * 1000.0 / per_second(count, Duration::from_secs(1))
                    )
                })
                .collect();
            let took = Quantiles::of(&creates.each);
            println!(
                "{name}: {:.0}/s, p50 / p99 {took}; ms of a processor each: {}",
                creates.rate(),
                each.join(", ")
            );
        }
        load::clear(client, &[RAW[0], TEAM[0]]).await?;
    }
    sluice.stop().await
}

fn say(what: &str) {
    eprintln!("bench: {what}");
}

#[derive(Default)]
struct Creates {
    elapsed: Duration,
    each: Vec<Duration>,
}

impl Creates {
    async fn run(
        &mut self,
        client: &Client,
        phase: &str,
        namespace: &str,
        count: usize,
        suspend: bool,
    ) -> Result<()> {
        let (elapsed, each) = load::create(client, phase, &[namespace], count, suspend, None).await?;
        self.elapsed += elapsed;
        self.each.extend(each);
        Ok(())
    }

    fn rate(&self) -> f64 {
        per_second(self.each.len(), self.elapsed)
    }
}

fn per_second(count: usize, elapsed: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "thousands at the most")]
    let count = count as f64;
    count / elapsed.as_secs_f64()
}

fn teams(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("sluice.dev", "v1alpha1", "Team"));
    Api::all_with(client.clone(), &kind)
}

async fn create_team(client: &Client) -> Result<()> {
    let team = json!({
        "apiVersion": "sluice.dev/v1alpha1", "kind": "Team", "metadata": {"name": "bench"},
        "spec": {"quotas": [{"limit": {"nvidia.com/gpu": 0}}]},
    });
    teams(client).create(&PostParams::default(), &serde_json::from_value(team)?).await?;
    Ok(())
}

/// Opens or closes the team's capacity.
async fn set_limit(client: &Client, gpus: usize) -> Result<()> {
    let patch = json!({"spec": {"quotas": [{"limit": {"nvidia.com/gpu": gpus}}]}});
    teams(client).patch("bench", &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

async fn open_raw(client: &Client, phase: &str, count: usize) -> Result<f64> {
    load::create(client, phase, &RAW, count, true, None).await?;
    let mut watch = Watch::start(client, phase, count).await?;
    let began = Instant::now();
    let start = |i: usize| async move {
        load::start_by_hand(client, RAW[i % RAW.len()], &format!("{phase}-{i}")).await
    };
    let (started, seen) = tokio::join!(
        stream::iter((0..count).map(start)).buffer_unordered(IN_FLIGHT).try_collect::<Vec<_>>(),
        watch.started(count)
    );
    started?;
    let rate = per_second(count, seen? - began);
    load::clear(client, &RAW).await?;
    Ok(rate)
}

/// Waits until Sluice publishes no more Events: they follow the admissions, and all of them are to be counted.
async fn all_events(cluster: &Cluster) -> Result<()> {
    let events = || -> Result<usize> {
        let writes = cluster.audit().by(names::ACCOUNT)?;
        Ok(writes.iter().filter(|write| write.resource == "events").count())
    };
    let mut before = None;
    loop {
        let now = events()?;
        if before.replace(now) == Some(now) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

async fn open_sluice(cluster: &Cluster, client: &Client, count: usize) -> Result<(f64, Vec<(String, f64)>)> {
    load::create(client, "open", &TEAM, count, false, None).await?;
    let mut watch = Watch::start(client, "open", count).await?;
    let before = cluster.audit().by(names::ACCOUNT)?.len();
    let began = Instant::now();
    set_limit(client, count).await?;
    let rate = per_second(count, watch.started(count).await? - began);
    all_events(cluster).await?;
    let mut writes: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for write in cluster.audit().by(names::ACCOUNT)?.into_iter().skip(before) {
        *writes.entry(format!("{} {}", write.verb, write.resource)).or_default() += 1;
    }
    let unit = Duration::from_secs(1);
    let per_job = |n: usize| per_second(n, unit) / per_second(count, unit);
    load::clear(client, &TEAM).await?;
    set_limit(client, 0).await?;
    Ok((rate, writes.into_iter().map(|(what, n)| (what, per_job(n))).collect()))
}

/// From the k-th end to the (40+k)-th start; a start before the end counts as zero.
#[derive(Default)]
struct Turnover {
    started: Vec<Instant>,
    ended: Vec<Instant>,
}

impl Turnover {
    fn note(&mut self, seen: Seen) {
        match seen {
            Seen::Started(at) => self.started.push(at),
            Seen::Ended(at) => self.ended.push(at),
        }
    }

    fn gaps(&self) -> Vec<Duration> {
        let next_starts = self.started.iter().skip(SLOTS);
        self.ended.iter().zip(next_starts).map(|(end, start)| start.saturating_duration_since(*end)).collect()
    }
}

async fn turnover_raw(client: &Client, count: usize) -> Result<Vec<Duration>> {
    let phase = "raw-turnover";
    load::create(client, phase, &RAW, count, true, Some(3)).await?;
    let mut watch = Watch::start(client, phase, count).await?;
    let start = |i: usize| {
        let client = client.clone();
        tokio::spawn(async move {
            load::start_by_hand(&client, RAW[i % RAW.len()], &format!("{phase}-{i}")).await
        })
    };
    let mut requests: Vec<_> = (0..SLOTS.min(count)).map(start).collect();
    let mut turnover = Turnover::default();
    while turnover.ended.len() < count {
        let seen = watch.next().await?;
        if matches!(seen, Seen::Ended(_)) && requests.len() < count {
            requests.push(start(requests.len()));
        }
        turnover.note(seen);
    }
    for request in requests {
        request.await??;
    }
    load::clear(client, &RAW).await?;
    Ok(turnover.gaps())
}

async fn turnover_sluice(client: &Client, phase: &str, count: usize) -> Result<Vec<Duration>> {
    load::create(client, phase, &TEAM, count, false, Some(3)).await?;
    let mut watch = Watch::start(client, phase, count).await?;
    set_limit(client, SLOTS).await?;
    let mut turnover = Turnover::default();
    while turnover.ended.len() < count {
        turnover.note(watch.next().await?);
    }
    load::clear(client, &TEAM).await?;
    Ok(turnover.gaps())
}
