//! What people's reading costs: verdicts at dry-run and Questions, by themselves and beside creates, and `sluice queue`, in a
//! full cluster with a long queue.

#[path = "../tests/web/browser.rs"]
#[expect(dead_code, reason = "shared with the test of the pages")]
mod browser;
mod listing;
mod measures;
#[expect(dead_code, reason = "shared with the benchmarks of the control plane")]
mod processors;
mod readme;
mod viewers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, ensure};
use clap::Parser;
use comfy_table::{Table, presets};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::{User, World, eventually};

use browser::Browser;
use measures::{Quantiles, resident_megabytes, webhook_quantiles};
use processors::processor_time;
use viewers::Pages;

/// Measures verdicts, Questions and `sluice queue` on a local control plane.
#[derive(Parser)]
struct Arguments {
    /// Number of nodes with 8 GPUs.
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// Number of Jobs that wait.
    #[arg(long, default_value_t = 10_000)]
    waiting: usize,
    /// Number of verdicts, one after the other.
    #[arg(long, default_value_t = 200)]
    verdicts: usize,
    /// Length of each phase of creates.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    seconds: u64,
    /// The program to measure; by default the one that is built with the benchmark.
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_sluice"))]
    program: String,
    /// Length of the looks at pages, with and without viewers. A forecast takes seconds of a processor, but is made rarely.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    viewing: u64,
    /// Number of viewers of the pages.
    #[arg(long, default_value_t = 200)]
    viewers: u32,
    /// Write the table into benches/README.md.
    #[arg(long)]
    write: bool,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The teams, each with a tenth of the GPUs guaranteed and in use.
const TEAMS: usize = 10;
/// The requests at once while the cluster is filled.
const IN_FLIGHT: usize = 16;
/// Creates a second in each phase.
const CREATES: u32 = 10;
/// Dry-runs or Questions a second beside them.
const BESIDE: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(1800);

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let world = World::up("bench-questions", &arguments.program, 1).await?;
    let measured = measure(&arguments, &world).await;
    if measured.is_err() {
        // It is deleted together with the control plane.
        world.replicas.iter().for_each(|replica| eprintln!("{}", replica.log_tail()));
    }
    measured
}

async fn measure(arguments: &Arguments, world: &World) -> Result<()> {
    say(&format!("{} nodes with 8 GPUs each, and Jobs on all of them", arguments.nodes));
    world.apply(&setting(arguments.nodes)).await?;
    world.kubectl.apply(RIGHTS).await?;
    let client = world.cluster.client(User::Raw).await?;
    // The API server limits what an ordinary user asks at once, unlike a member of `system:masters`.
    let user = world.cluster.client(User::Alice).await?;
    fill(&client, "runs", arguments.nodes, |_| (1, 8)).await?;
    started(world, arguments.nodes).await?;
    say(&format!("{} Jobs that wait", arguments.waiting));
    fill(&client, "waits", arguments.waiting, |at| (1 + at % 4, 1 + at % 8)).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let replica = world.replicas.first().context("a replica")?;
    let mut rows: Vec<[String; 3]> = Vec::new();

    say("verdicts, one after the other");
    let mut each = Vec::new();
    let writes = decisions(world)?;
    for at in 0..arguments.verdicts {
        let began = Instant::now();
        create(&client, &team(at), &job("asked", at, (1 + at % 4, 1 + at % 8)), true).await?;
        each.push(began.elapsed());
        // As people ask, and within the share of a processor that verdicts have.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    rows.push(["dry-run of a Job, p50 / p99".into(), Quantiles::of(&each).to_string(), "p99 < 1 s".into()]);
    let outcomes = outcomes(&replica.get("/metrics").await?);
    rows.push(["verdicts: answered, busy, late".into(), outcomes, String::new()]);
    let writes = decisions(world)? - writes;
    rows.push(["writes to workloads meanwhile".into(), writes.to_string(), "0".into()]);

    let question = |name: &str, spec: Value| {
        json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "Question",
            "metadata": {"name": name, "namespace": "team-0"}, "spec": spec,
        })
    };
    let time = Duration::from_secs(arguments.seconds);
    for (phase, goal) in [
        ("alone", ""),
        // The same load of the API server without the webhook.
        ("dry-runs without a team", ""),
        ("dry-runs", "p99 + 5 %"),
        ("questions", "p99 + 5 %"),
        ("plain questions", ""),
        ("alone again", ""),
    ] {
        say(&format!("creates: {phase}"));
        let before = replica.get("/metrics").await?;
        let creates = at_rate(CREATES, time, |at| {
            let (client, job) =
                (client.clone(), job(&format!("made-{}", phase.replace(' ', "-")), at, (1, 1)));
            async move { create(&client, &team(at), &job, false).await }
        });
        let beside = async {
            match phase {
                "dry-runs" | "dry-runs without a team" => {
                    let in_team = phase == "dry-runs";
                    at_rate(BESIDE, time, |at| {
                        let (client, job) = (client.clone(), job("dry", at, (1 + at % 4, 1 + at % 8)));
                        let namespace = if in_team { team(at) } else { "default".to_owned() };
                        async move { create(&client, &namespace, &job, true).await }
                    })
                    .await
                }
                "questions" | "plain questions" => {
                    at_rate(BESIDE, time, |at| {
                        let mut spec = json!({"queue": {}, "limit": 100});
                        if phase == "questions" {
                            // As the commands and the pages ask.
                            spec["encoding"] = "Gzip".into();
                        }
                        let (client, question) = (user.clone(), question(&format!("q-{at}"), spec));
                        async move { ask(&client, &question).await.map(drop) }
                    })
                    .await
                }
                _ => (Vec::new(), 0),
            }
        };
        let ((each, failed), (others, refused)) = tokio::join!(creates, beside);
        ensure!(failed == 0, "{failed} creates failed");
        let webhook = webhook_quantiles(&before, &replica.get("/metrics").await?);
        rows.push([format!("create, {phase}, p50 / p99"), Quantiles::of(&each).to_string(), goal.into()]);
        rows.push([format!("webhook, {phase}, p50 / p99"), webhook.to_string(), goal.into()]);
        if !others.is_empty() {
            let took = Quantiles::of(&others).to_string();
            rows.push([
                format!("{phase} themselves, p50 / p99, refused"),
                format!("{took}, {refused}"),
                String::new(),
            ]);
        }
    }

    let process = replica.process().context("Sluice has ended")?;
    rows.push([
        "resident memory of Sluice".into(),
        format!("{:.0} MB", resident_megabytes(process)?),
        String::new(),
    ]);

    say("sluice queue");
    for (form, field, encoding) in
        [("as a command asks", "gzip", json!("Gzip")), ("as values", "rows", Value::Null)]
    {
        let mut spec = json!({"queue": {"states": ["Pending"]}, "limit": 100});
        if !encoding.is_null() {
            spec["encoding"] = encoding;
        }
        let began = Instant::now();
        let answer = ask(
            &client,
            &json!({
                "apiVersion": "sluice.dev/v1alpha1", "kind": "ClusterQuestion", "metadata": {"name": "first"},
                "spec": spec,
            }),
        )
        .await?;
        let took = began.elapsed();
        ensure!(!answer["answer"][field].is_null(), "{answer}");
        rows.push([format!("first 100 rows of the queue, {form}"), milliseconds(took), "< 300 ms".into()]);
    }
    let (took, megabytes, lines) =
        listing::queue(&arguments.program, &world.cluster.kubeconfig(User::Admin)).await?;
    rows.push([format!("`sluice queue -A`, {lines} rows"), milliseconds(took), "< 1 s".into()]);
    rows.push(["memory of the client".into(), format!("{megabytes:.0} MB"), "< 100 MB".into()]);

    say("pages");
    let pages = Arc::new(Pages::start(&arguments.program, &world.cluster.kubeconfig(User::Admin)).await?);
    for (name, path) in PAGES {
        let got = pages.get(path, &[]).await?;
        ensure!(got.status == 200, "{path}: {got:?}");
        let kilobytes = got.bytes.div_ceil(1_000);
        rows.push([format!("page {name}, compressed"), format!("{kilobytes} kB"), "< 300 kB".into()]);
        rows.push([
            format!("page {name}, first time until the last byte"),
            milliseconds(got.took),
            String::new(),
        ]);
    }
    let shown = Arc::clone(&pages);
    let paints = tokio::task::spawn_blocking(move || painted(&shown)).await??;
    for (name, paint) in paints {
        rows.push([
            format!("page {name}, first paint, longest of 3"),
            format!("{paint:.0} ms"),
            "< 500 ms".into(),
        ]);
    }

    say("viewers");
    let paths = PAGES.map(|(_, path)| path);
    let served = pages.process().context("the pages have ended")?;
    let time = Duration::from_secs(arguments.viewing);
    for (viewers, goal) in [(0, ""), (arguments.viewers, "< 5 % more")] {
        let before = (processor_time(process)?, processor_time(served)?, requests(&client).await?);
        // So that pages have something to show.
        let changes = at_rate(1, time, |at| {
            let (client, job) = (client.clone(), job(&format!("seen-by-{viewers}"), at, (1, 1)));
            async move { create(&client, &team(at), &job, false).await }
        });
        let looks = async {
            match viewers {
                0 => Ok(viewers::Looks::default()),
                _ => pages.viewed(viewers, &paths, time).await,
            }
        };
        let ((_, failed), looks) = tokio::join!(changes, looks);
        ensure!(failed == 0, "{failed} creates failed");
        let looks = looks?;
        let percent = |after: Duration, before: Duration| {
            format!("{:.1} %", (after - before).as_secs_f64() * 100.0 / time.as_secs_f64())
        };
        let after = (processor_time(process)?, processor_time(served)?, requests(&client).await?);
        rows.push([format!("{viewers} viewers: one core, Sluice"), percent(after.0, before.0), goal.into()]);
        rows.push([
            format!("{viewers} viewers: one core, the pages"),
            percent(after.1, before.1),
            String::new(),
        ]);
        #[expect(clippy::cast_precision_loss, reason = "a count of requests")]
        let rate = (after.2 - before.2) as f64 / time.as_secs_f64();
        rows.push([format!("{viewers} viewers: Questions a second"), format!("{rate:.1}"), "<= 20".into()]);
        if viewers > 0 {
            let viewers::Looks { looks, changed, failed } = looks;
            rows.push([
                format!("{viewers} viewers: looks, changed, failed"),
                format!("{looks}, {changed}, {failed}"),
                String::new(),
            ]);
        }
    }

    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(["figure", "measured", "goal"]);
    for row in rows {
        table.add_row(row);
    }
    println!("{table}");
    if arguments.write {
        readme::write("bench-questions", &table.to_string()).map_err(Error::msg)?;
    }
    Ok(())
}

fn say(what: &str) {
    eprintln!("bench: {what}");
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// Alice may ask about the work of the first team.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice-asks, namespace: team-0}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sluice-user}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
";

/// Nodes and teams; each team is guaranteed an equal part.
fn setting(nodes: usize) -> String {
    let mut text = format!(
        "
apiVersion: v1
kind: Node
metadata:
  name: gpu
  annotations: {{simulate.sluice.dev/count: \"{nodes}\"}}
status:
  capacity: &resources {{cpu: \"64\", memory: 512Gi, pods: \"110\", nvidia.com/gpu: \"8\"}}
  allocatable: *resources
"
    );
    for team in 0..TEAMS {
        text += &format!(
            "---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {{name: team-{team}}}
spec:
  quotas: [{{guaranteed: {{nvidia.com/gpu: {}}}}}]
---
apiVersion: v1
kind: Namespace
metadata: {{name: team-{team}, labels: {{sluice.dev/team: team-{team}}}}}
",
            nodes * 8 / TEAMS
        );
    }
    text
}

/// A Job of so many pods with so many GPUs each, which runs until it is deleted.
fn job(phase: &str, at: usize, (pods, gpus): (usize, usize)) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": format!("{phase}-{at}"), "annotations": {"sluice.dev/time-limit": format!("{}h", 1 + at % 48)}},
        "spec": {"parallelism": pods, "completions": pods, "template": {"spec": {"restartPolicy": "Never", "containers": [{
            "name": "main", "image": "registry.example/bench",
            "resources": {"limits": {"nvidia.com/gpu": gpus}},
        }]}}},
    })
}

/// The namespace of one of the teams.
fn team(at: usize) -> String {
    format!("team-{}", at % TEAMS)
}

async fn create(client: &Client, namespace: &str, job: &Value, dry_run: bool) -> Result<()> {
    let api: Api<Job> = Api::namespaced(client.clone(), namespace);
    let params = PostParams { dry_run, ..PostParams::default() };
    api.create(&params, &serde_json::from_value(job.clone())?).await?;
    Ok(())
}

/// Creates so many Jobs.
async fn fill(
    client: &Client,
    phase: &str,
    count: usize,
    size: impl Fn(usize) -> (usize, usize),
) -> Result<()> {
    let one = |at: usize| {
        let (client, job) = (client.clone(), job(phase, at, size(at)));
        async move { create(&client, &team(at), &job, false).await }
    };
    stream::iter((0..count).map(one)).buffer_unordered(IN_FLIGHT).try_collect::<Vec<_>>().await?;
    Ok(())
}

/// Waits until every node is in use.
async fn started(world: &World, count: usize) -> Result<()> {
    eventually("every Job runs", PATIENCE, async || {
        let view = world.view().await.map_err(|error| format!("{error:#}"))?;
        let running = view.jobs.iter().filter(|job| job.admitted()).count();
        if running == count { Ok(()) } else { Err(format!("{running} run")) }
    })
    .await
}

/// Makes requests at this rate for so long, each when it is due; returns the time of each that succeeded, and how many
/// failed.
async fn at_rate<F: Future<Output = Result<()>> + Send + 'static>(
    per_second: u32,
    time: Duration,
    request: impl Fn(usize) -> F,
) -> (Vec<Duration>, usize) {
    let (began, pause) = (tokio::time::Instant::now(), Duration::from_secs(1) / per_second);
    let mut open = Vec::new();
    while began.elapsed() < time {
        let request = request(open.len());
        open.push(tokio::spawn(async move {
            let began = Instant::now();
            request.await.map(|()| began.elapsed())
        }));
        tokio::time::sleep_until(began + pause * u32::try_from(open.len()).unwrap_or(u32::MAX)).await;
    }
    let (mut each, mut failed) = (Vec::new(), 0);
    for one in open {
        match one.await {
            Ok(Ok(took)) => each.push(took),
            _ => failed += 1,
        }
    }
    (each, failed)
}

async fn ask(client: &Client, question: &Value) -> Result<Value> {
    let object: DynamicObject = serde_json::from_value(question.clone())?;
    let kind = question["kind"].as_str().unwrap_or_default();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("sluice.dev", "v1alpha1", kind));
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &kind),
        None => Api::all_with(client.clone(), &kind),
    };
    let params = PostParams { dry_run: true, ..PostParams::default() };
    Ok(serde_json::to_value(api.create(&params, &object).await?)?)
}

/// The pages that are measured.
const PAGES: [(&str, &str); 5] = [
    ("overview", "/all/"),
    ("queue", "/all/queue"),
    ("plan", "/all/plan"),
    ("fairness", "/all/fairness"),
    ("team", "/all/team/team-0"),
];

/// The longest time until a browser paints each page, in milliseconds; none without a browser.
fn painted(pages: &Pages) -> Result<Vec<(&'static str, f64)>> {
    let folder = tempfile::tempdir()?;
    if std::process::Command::new("chromium").arg("--version").output().is_err() {
        say("no first paint: there is no chromium");
        return Ok(Vec::new());
    }
    let mut browser = Browser::start(folder.path())?;
    let (name, value) = &pages.cookie;
    browser.call(
        "Network.setCookie",
        json!({"name": name, "value": value, "url": format!("http://{}/", pages.host)}),
    )?;
    browser.view(1_280, false)?;
    let mut paints = Vec::new();
    for (name, path) in PAGES {
        let mut longest = 0.0_f64;
        for _ in 0..3 {
            browser.open("about:blank")?;
            // Longer than answers are kept.
            std::thread::sleep(Duration::from_secs(3));
            browser.open(&format!("http://{}{path}", pages.host))?;
            browser.until("performance.getEntriesByName('first-contentful-paint').length > 0")?;
            let at = browser.value("performance.getEntriesByName('first-contentful-paint')[0].startTime")?;
            longest = longest.max(at.as_f64().unwrap_or(f64::MAX));
        }
        paints.push((name, longest));
    }
    Ok(paints)
}

/// The Questions that the API server has answered.
async fn requests(client: &Client) -> Result<u64> {
    let request = axum::http::Request::get("/metrics").body(Vec::new())?;
    let scrape = client.request_text(request).await?;
    let lines = scrape.lines().filter(|line| {
        line.starts_with("apiserver_request_total{")
            && (line.contains("resource=\"clusterquestions\"") || line.contains("resource=\"questions\""))
    });
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum())
}

/// The writes of Sluice to workloads so far.
fn decisions(world: &World) -> Result<usize> {
    let writes = world.cluster.audit().by(names::ACCOUNT)?;
    Ok(writes.iter().filter(|write| matches!(write.resource.as_str(), "jobs" | "pods")).count())
}

/// How many verdicts ended how.
fn outcomes(scrape: &str) -> String {
    let counts: BTreeMap<&str, &str> = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("sluice_verdict_duration_seconds_count{outcome=\""))
        .filter_map(|line| line.split_once("\"} "))
        .collect();
    ["answered", "busy", "late"].map(|outcome| counts.get(outcome).copied().unwrap_or("0")).join(", ")
}
