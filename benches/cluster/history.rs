//! What the history costs: admissions, processor time, memory and writes with no store, with one that is up, with one that
//! delays every request, and with one that refuses every connection. The team has a budget in all of these; what that costs
//! shows a variant without a budget and a store. The variants run in turn, so that all of them pay alike for what the machine
//! does besides.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use comfy_table::{Table, presets};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use sluice::api::names;
use sluice_harness::{Cluster, Options, Postgres, Sluice, webhook_answers};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::load::{self, Watch};
use crate::measures::resident_megabytes;
use crate::processors::processor_time;
use crate::{TEAM, per_second, say, set_limit, teams, turnover_sluice};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Store {
    /// No history, and no budget.
    Bare,
    /// No history.
    Off,
    /// A file of SQLite.
    File,
    /// A PostgreSQL.
    Up,
    /// The same, and what is sent to it takes 200 ms longer.
    Slow,
    /// No server at that address.
    Down,
}

/// The delay of a slow store.
const DELAY: Duration = Duration::from_millis(200);
/// How long after a load its writes and its facts are counted.
const AFTER: Duration = Duration::from_secs(6);

/// The figures of one variant, one of each round.
#[derive(Debug, Default)]
struct Figures {
    rates: Vec<f64>,
    milliseconds: Vec<f64>,
    idle: Vec<f64>,
    after: Vec<f64>,
    writes: Vec<f64>,
    statuses: Vec<f64>,
}

/// Measures these variants in turn, and says what each came to.
pub async fn measure(
    cluster: &Cluster,
    client: &Client,
    stores: &[Store],
    rounds: usize,
    (jobs, turnover): (usize, usize),
) -> Result<String> {
    let server = Postgres::start("bench-cluster").await?;
    let mut figures: BTreeMap<Store, Figures> = BTreeMap::new();
    for round in 0..rounds {
        // Forth and back, so that none is always the first.
        let mut order = stores.to_vec();
        if round % 2 == 1 {
            order.reverse();
        }
        for store in order {
            say(&format!("round {}, the history {store:?}", round + 1));
            let flag = flag(store, cluster, &server, round).await?;
            budget(client, store != Store::Bare).await?;
            let figures = figures.entry(store).or_default();
            let phase = format!("{store:?}-{round}").to_lowercase();
            figures.add(cluster, client, &phase, flag, (jobs, turnover)).await?;
            say(&format!("{figures:?}"));
        }
    }
    Ok(table(&figures))
}

/// The flag of a variant.
async fn flag(store: Store, cluster: &Cluster, server: &Postgres, round: usize) -> Result<String> {
    let url = server.url();
    let at = |port: u16| -> Result<String> {
        let (before, rest) = url.rsplit_once(':').context("a URL without a port")?;
        let (_, database) = rest.split_once('/').context("a URL without a database")?;
        Ok(format!("{before}:{port}/{database}"))
    };
    let value = match store {
        Store::Bare | Store::Off => "off".to_owned(),
        Store::File => cluster.scratch()?.join(format!("history-{round}.db")).display().to_string(),
        Store::Up => url.clone(),
        Store::Slow => at(slow(&url).await?)?,
        Store::Down => at(TcpListener::bind("127.0.0.1:0").await?.local_addr()?.port())?,
    };
    Ok(format!("--history={value}"))
}

/// The port of a proxy before a server, which passes on late what it is sent. It ends with this process.
async fn slow(url: &str) -> Result<u16> {
    let (_, address) = url.rsplit_once('@').context("a URL without an address")?;
    let address = address.split('/').next().unwrap_or_default().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(&address).await else { continue };
            // The delay is to be the only one.
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
            tokio::spawn(async move {
                let mut part = vec![0; 64 << 10];
                while let Ok(length @ 1..) = from_client.read(&mut part).await {
                    tokio::time::sleep(DELAY).await;
                    if to_server.write_all(&part[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(port)
}

/// Gives the team a budget that it does not reach, or takes it away.
async fn budget(client: &Client, has: bool) -> Result<()> {
    let budget = json!({"amount": 100_000, "period": "Month", "onExhausted": "Hold"});
    let patch = json!({"spec": {"budget": if has { budget } else { json!(null) }}});
    teams(client).patch("bench", &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

impl Figures {
    async fn add(
        &mut self,
        cluster: &Cluster,
        client: &Client,
        phase: &str,
        flag: String,
        (jobs, turnover): (usize, usize),
    ) -> Result<()> {
        let mut options = Options::new(env!("CARGO_BIN_EXE_sluice"));
        options.flags.push(flag);
        let mut sluice = Sluice::start(cluster, &options).await?;
        webhook_answers(cluster).await?;
        let process = sluice.process().context("Sluice has ended")?;
        tokio::time::sleep(AFTER).await;
        self.idle.push(resident_megabytes(process)?);

        load::create(client, phase, &TEAM, jobs, false, None).await?;
        load::quiet().await?;
        let mut watch = Watch::start(client, phase, jobs).await?;
        let before = processor_time(process)?;
        let began = Instant::now();
        set_limit(client, jobs).await?;
        self.rates.push(per_second(jobs, watch.started(jobs).await? - began));
        tokio::time::sleep(AFTER).await;
        let used = processor_time(process)?.saturating_sub(before);
        self.milliseconds.push(used.as_secs_f64() * 1_000.0 / per_second(jobs, Duration::from_secs(1)));
        self.after.push(resident_megabytes(process)?);
        load::clear(client, &TEAM).await?;
        set_limit(client, 0).await?;

        if turnover > 0 {
            let before = cluster.audit().by(names::ACCOUNT)?.len();
            turnover_sluice(client, &format!("{phase}-turnover"), turnover).await?;
            tokio::time::sleep(AFTER).await;
            let writes = cluster.audit().by(names::ACCOUNT)?;
            let count =
                |resource: &str| writes.iter().skip(before).filter(|w| w.resource == resource).count();
            let each = |count: usize| {
                per_second(count, Duration::from_secs(1)) / per_second(turnover, Duration::from_secs(1))
            };
            // Events are bounded in number by themselves.
            self.writes.push(each(writes.len() - before - count("events")));
            self.statuses.push(each(count("teams/status")));
            set_limit(client, 0).await?;
        }
        sluice.stop().await
    }
}

fn table(figures: &BTreeMap<Store, Figures>) -> String {
    let mut table = Table::new();
    let header = ["figure".to_owned()].into_iter().chain(figures.keys().map(|store| match store {
        Store::Bare => "no history, no budget".to_owned(),
        Store::Off => "no history".to_owned(),
        Store::File => "SQLite".to_owned(),
        Store::Up => "PostgreSQL".to_owned(),
        Store::Slow => "slow".to_owned(),
        Store::Down => "down".to_owned(),
    }));
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header.chain(["goal".to_owned()]));
    let mut row = |figure: &str, of: fn(&Figures) -> &[f64], digits: usize, goal: &str| {
        let cells = figures.values().map(|figures| {
            let each: Vec<String> = of(figures).iter().map(|value| format!("{value:.digits$}")).collect();
            each.join(", ")
        });
        let cells: Vec<String> =
            [figure.to_owned()].into_iter().chain(cells).chain([goal.to_owned()]).collect();
        table.add_row(cells);
    };
    row("open: Jobs started per second", |it| &it.rates, 0, "within 3 %");
    row("open: ms of a processor a Job", |it| &it.milliseconds, 2, "");
    row("resident memory, idle, MB", |it| &it.idle, 0, "<= 15 more");
    row("resident memory, after open, MB", |it| &it.after, 0, "<= 15 more");
    row("turnover: writes per Job without Events", |it| &it.writes, 3, "<= 0.05 more");
    row("turnover: of these of Team statuses", |it| &it.statuses, 3, "");
    table.to_string()
}
