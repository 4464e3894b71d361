//! Every dashboard and every rule on a Sluice that has admitted, lent, reclaimed and refused.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use sluice_harness::{User, World, eventually, patience};

use crate::boards::{BOARDS, Board, Query, metrics, text};
use crate::files::rules;
use crate::tools::{Prometheus, Series, monitoring};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");
const REPLICAS: usize = 2;

/// A owns half of 40 GPUs and uses 32; B reclaims 15 of its own, so 7 Jobs must be evicted.
const BORROWER: &str = "
apiVersion: v1
kind: Node
metadata: {name: gpu, annotations: {simulate.sluice.dev/count: '4'}}
status:
  capacity: &resources {cpu: '64', memory: 512Gi, pods: '110', nvidia.com/gpu: '10'}
  allocatable: *resources
---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {name: a}
spec:
  quotas: [{guaranteed: {nvidia.com/gpu: 20}, limit: {nvidia.com/gpu: 40}}]
  budget: {amount: 10000, period: Month}
---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {name: b}
spec:
  quotas: [{guaranteed: {nvidia.com/gpu: 20}, limit: {nvidia.com/gpu: 40}}]
---
apiVersion: v1
kind: Namespace
metadata: {name: a, labels: {sluice.dev/team: a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: b, labels: {sluice.dev/team: b}}
---
";

/// This many Jobs of one GPU, with pods that take some seconds to stop.
fn jobs(namespace: &str, count: usize) -> String {
    format!(
        "
apiVersion: batch/v1
kind: Job
metadata: {{name: work, namespace: {namespace}, annotations: {{simulate.sluice.dev/count: '{count}'}}}}
spec:
  template:
    metadata: {{annotations: {{simulate.sluice.dev/termination: 4s}}}}
    spec:
      restartPolicy: Never
      containers: [{{name: main, image: registry.example/x, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]
"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_of_the_boards_and_the_rules_is_answered_by_a_running_sluice() {
    World::run("monitoring", SLUICE, REPLICAS, async |world| {
        let prometheus = Prometheus::start(&config(world)?).await?;
        let began = now()?;
        let outcome = watch(world, &prometheus, began).await;
        outcome.with_context(|| prometheus.log_tail())
    })
    .await;
}

async fn watch(world: &mut World, prometheus: &Prometheus, began: i64) -> Result<()> {
    // A scrape before the first start, so that the starts appear as an increase.
    value(prometheus, "sum(sluice_leader)", 1.0).await?;
    value(prometheus, "count(sluice_build_info)", 2.0).await?;
    world.apply(&format!("{BORROWER}{}", jobs("a", 32))).await?;
    value(prometheus, r#"sum(sluice_admitted_total{team="a"})"#, 32.0).await?;
    world.apply(&jobs("b", 15)).await?;
    for (expression, expected) in [
        (r#"sum(sluice_admitted_total{team="a",kind="borrowed"})"#, 12.0),
        (r#"sum(sluice_evicted_total{team="a",reason="Reclaimed"})"#, 7.0),
        (r#"sum(sluice_evicted_after_seconds_count{team="a"})"#, 7.0),
        (r#"sum(sluice_time_to_start_seconds_count{team="b"})"#, 15.0),
        (r#"max(sluice_queue_depth{team="a"})"#, 7.0),
        (r#"max(max_over_time(sluice_team_resources{team="a",kind="borrowed"}[5m]))"#, 12.0),
        (r#"max(sluice_team_resources{team="a",resource="nvidia.com/gpu",kind="borrowed"})"#, 5.0),
        // The owner waits while the borrowers stop; afterwards no workload waits within guarantee.
        (r#"max(max_over_time(sluice_owed_oldest_wait_seconds{team="b"}[5m])) >= bool 2"#, 1.0),
        (r#"max(sluice_owed_oldest_wait_seconds{team=~"a|b"})"#, 0.0),
        // Series of both replicas count once.
        (
            r#"sum(team_pool_resource_kind:sluice_team_resources:max{resource="nvidia.com/gpu",kind="used"})"#,
            40.0,
        ),
        (r#"sum(team:sluice_queue_depth:sum)"#, 7.0),
    ] {
        value(prometheus, expression, expected).await?;
    }
    let objects = monitoring().display().to_string();
    world.kubectl.ok(&["apply", "-k", &objects]).await.context("the boards' ConfigMaps")?;
    boards(world, prometheus, began).await?;
    records_and_alerts(prometheus).await?;
    unanswered_webhooks(world, prometheus).await
}

/// Every query of every panel returns data, and every variable offers the chosen value.
async fn boards(world: &World, prometheus: &Prometheus, began: i64) -> Result<()> {
    let chosen = BTreeMap::from([("team", "a"), ("pool", "default"), ("resource", "nvidia.com/gpu")]);
    let mut open: Vec<Query> = Vec::new();
    for file in BOARDS {
        let board = Board::load(file)?;
        open.extend(board.queries(&chosen)?);
        for choice in board.choices(&chosen)? {
            let offered =
                prometheus.instant(&format!("count by ({}) ({})", choice.label, choice.series)).await?;
            let mut offered = offered.iter().map(|series| text(&series.labels[&choice.label]));
            let wanted = chosen[choice.name.rsplit('$').next().unwrap_or_default()];
            ensure!(offered.any(|value| value == wanted), "{} does not offer {wanted}", choice.name);
        }
    }
    exist(prometheus, open.iter().flat_map(|query| metrics(&query.expression)).collect()).await?;
    let all = open.len();
    eventually(&format!("all {all} queries of the boards return data"), patience(), async || {
        // A rate is zero without events, so requests to the webhook continue.
        let probe = jobs("a", 1).replacen("name: work", "generateName: asking-", 1);
        let asked = world.kubectl.run(&["create", "--dry-run=server", "-f", "-"], Some(&probe)).await;
        asked.map_err(|error| format!("{error:#}"))?;
        let now = now().map_err(|error| format!("{error:#}"))?;
        let mut still = Vec::new();
        for query in std::mem::take(&mut open) {
            let answer = match query.instant {
                true => prometheus.instant(&query.expression).await,
                false => prometheus.range(&query.expression, began, now).await,
            };
            // A query that Prometheus cannot parse never succeeds.
            match answer {
                Ok(series) if series.iter().any(Series::shows) => {}
                Ok(_) => still.push(query),
                Err(error) => return Ok(Err(format!("{}: {error:#}", query.name))),
            }
        }
        open = still;
        let names: Vec<String> =
            open.iter().map(|query| format!("{}: {}", query.name, query.expression)).collect();
        if open.is_empty() { Ok(Ok(())) } else { Err(format!("nothing from\n{}", names.join("\n"))) }
    })
    .await?
    .map_err(anyhow::Error::msg)
}

/// Every recording rule has data, and the metrics of the alerts exist; no alert has a reason to fire.
async fn records_and_alerts(prometheus: &Prometheus) -> Result<()> {
    for rule in rules()? {
        let expression = text(&rule["expr"]);
        let answer = prometheus.instant(expression).await?;
        if let Some(record) = rule["record"].as_str() {
            let what = format!("{record} is recorded");
            eventually(&what, patience(), async || {
                let series = prometheus.instant(record).await.map_err(|error| format!("{error:#}"))?;
                if series.iter().any(Series::shows) { Ok(()) } else { Err(format!("{series:?}")) }
            })
            .await?;
            continue;
        }
        // Speed is for benchmarks: here a whole control plane shares the machine.
        let timed = text(&rule["alert"]).ends_with("Slow");
        ensure!(timed || answer.is_empty(), "{} has a reason to fire: {answer:?}", rule["alert"]);
        // Metrics that the API server creates at the first failed webhook call are checked at the end.
        let mut asked = metrics(expression);
        asked.retain(|metric| !metric.starts_with("apiserver_"));
        exist(prometheus, asked).await?;
    }
    Ok(())
}

/// Without Sluice the alerts for that become pending.
async fn unanswered_webhooks(world: &mut World, prometheus: &Prometheus) -> Result<()> {
    for replica in &mut world.replicas {
        replica.kill().await?;
    }
    for alert in ["SluiceDown", "SluiceWebhookUnreachable"] {
        eventually(&format!("{alert} is pending"), patience(), async || {
            // The first value of a counter is no increase, so several calls are necessary.
            let probe = jobs("a", 1).replacen("name: work", "generateName: unanswered-", 1);
            world.kubectl.create(&probe).await.map_err(|error| format!("{error:#}"))?;
            let pending = prometheus.instant(&format!("ALERTS{{alertname=\"{alert}\"}}")).await;
            match pending {
                Ok(series) if !series.is_empty() => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
    }
    for rule in rules()?.iter().filter(|rule| rule["alert"] == "SluiceWebhookUnreachable") {
        exist(prometheus, metrics(text(&rule["expr"]))).await?;
    }
    Ok(())
}

/// Waits until metrics of exactly these names exist.
async fn exist(prometheus: &Prometheus, mut open: BTreeSet<String>) -> Result<()> {
    eventually("every queried metric exists", patience(), async || {
        for metric in open.clone() {
            let count = prometheus.instant(&format!("count({{__name__=\"{metric}\"}})")).await;
            if !count.map_err(|error| format!("{error:#}"))?.is_empty() {
                open.remove(&metric);
            }
        }
        if open.is_empty() { Ok(()) } else { Err(format!("these are missing: {open:?}")) }
    })
    .await
}

/// Waits until the expression has this one value.
async fn value(prometheus: &Prometheus, expression: &str, expected: f64) -> Result<()> {
    eventually(&format!("{expression} is {expected}"), patience(), async || {
        let series = prometheus.instant(expression).await.map_err(|error| format!("{error:#}"))?;
        match series.as_slice() {
            [one] if one.values.iter().all(|value| (value - expected).abs() < 1e-9) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// Scrapes the replicas each second and the API server, which has many metrics, every four.
fn config(world: &World) -> Result<String> {
    let kubeconfig = std::fs::read_to_string(world.cluster.kubeconfig(User::Admin))?;
    let kubeconfig: Value = serde_saphyr::from_str(&kubeconfig)?;
    let server = text(&kubeconfig["clusters"][0]["cluster"]["server"]);
    let address = server.strip_prefix("https://").context("the API server has no https address")?;
    let Some(token) = kubeconfig["users"][0]["user"]["token"].as_str() else {
        bail!("the admin has no token");
    };
    let replicas: Vec<String> =
        world.replicas.iter().map(|replica| format!("\"{}\"", replica.http())).collect();
    Ok(format!(
        "
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
- job_name: sluice
  static_configs: [{{targets: [{replicas}]}}]
- job_name: kube-apiserver
  scrape_interval: 4s
  scrape_timeout: 4s
  scheme: https
  authorization: {{credentials: {token}}}
  tls_config: {{ca_file: {ca}}}
  static_configs: [{{targets: [\"{address}\"]}}]
",
        rules = monitoring().join("rules.yaml").display(),
        replicas = replicas.join(", "),
        ca = world.cluster.directory().join("ca.crt").display(),
    ))
}

fn now() -> Result<i64> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_secs())?)
}
