//! The web page in a real browser, on a real control plane: `make web-check`. Pictures of every page are left in
//! `target/web-check` to be looked at.

mod browser;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use sluice_harness::{Options, User, World, patience};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use self::browser::Browser;

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// Three teams on two pools: one borrows, one waits, one is idle, and a node is closed.
fn load() -> String {
    let mut text = String::from(
        "
apiVersion: sluice.dev/v1alpha1
kind: NodePool
metadata: {name: h100}
spec: {nodeSelector: {gpu: h100}}
---",
    );
    for (name, count, label) in [("a100", 20, "a100"), ("h100", 6, "h100")] {
        text += &format!(
            "
apiVersion: v1
kind: Node
metadata:
  name: {name}
  labels: {{gpu: {label}}}
  annotations: {{simulate.sluice.dev/count: \"{count}\"}}
status:
  capacity: &resources {{cpu: \"64\", memory: 512Gi, pods: \"110\", nvidia.com/gpu: \"8\"}}
  allocatable: *resources
---"
        );
    }
    for (team, guaranteed) in [("vision", 48), ("speech", 64), ("robotics", 32)] {
        text += &format!(
            "
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {{name: {team}}}
spec:
  quotas:
  - {{guaranteed: {{nvidia.com/gpu: {guaranteed}}}}}
  - {{pool: h100, guaranteed: {{nvidia.com/gpu: 16}}}}
  queues:
  - {{name: training, defaultTimeLimit: 12h}}
  - {{name: interactive, priority: 100}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: {team}, labels: {{sluice.dev/team: {team}}}}}
---"
        );
    }
    for (team, name, pods, gpus, limit, pool) in [
        ("vision", "segmentation-large", 10, 8, "9h", ""),
        ("vision", "detector-sweep-3", 6, 2, "2h30m", ""),
        ("speech", "asr-conformer", 4, 8, "30h", ""),
        ("speech", "tts-finetune", 3, 4, "45m", ""),
        ("robotics", "policy-rollouts", 12, 1, "5h", ""),
        ("robotics", "world-model", 4, 8, "20h", "h100"),
        ("vision", "foundation-pretraining", 3, 8, "40h", "h100"),
        ("speech", "asr-giant", 6, 8, "60h", "h100"),
        ("robotics", "sim2real-ablation", 2, 8, "3h", ""),
        ("vision", "eval-nightly", 4, 4, "1h", ""),
    ] {
        let pool = if pool.is_empty() { String::new() } else { format!("sluice.dev/pool: {pool}, ") };
        text += &format!(
            "
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  namespace: {team}
  annotations: {{{pool}sluice.dev/time-limit: {limit}}}
spec:
  parallelism: {pods}
  completions: {pods}
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: registry.example/train
        resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}
---"
        );
    }
    text
}

/// Starts the pages for the administrator; what they say first is the link.
async fn pages(world: &World) -> Result<(Child, String)> {
    let mut command = Command::new(SLUICE);
    command.args(["web", "--no-open", "-A"]).env("KUBECONFIG", world.cluster.kubeconfig(User::Admin));
    let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut line = String::new();
    let output = process.stdout.take().context("its output")?;
    tokio::time::timeout(patience(), BufReader::new(output).read_line(&mut line)).await??;
    let url = line.trim().strip_prefix("The pages are at ").context("a link")?.to_owned();
    Ok((process, url))
}

const PAGES: [(&str, &str); 9] = [
    ("overview", "/all/"),
    ("queue", "/all/queue"),
    ("plan", "/all/plan"),
    ("fairness", "/all/fairness"),
    ("what-if", "/all/what-if"),
    ("reports", "/all/reports"),
    ("team", "/all/team/vision"),
    ("workload", "/all/workload/speech/asr-giant"),
    ("refused", "/all/workload/speech/nothing"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_page_works_in_a_browser() {
    let past = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let history = past.path().join("history.db").display().to_string();
    let options = Options { flags: vec!["--history".to_owned(), history], ..Options::new(SLUICE) };
    World::run_with("web-check", options, 1, async |world| {
        world.apply(&load()).await?;
        world.kubectl.ok(&["cordon", "a100-19"]).await?;
        let (_process, link) = pages(world).await?;
        world
            .until("the first Jobs run", |view| match view.running("vision").count() {
                0..10 => Err(view.summary("vision")),
                _ => Ok(()),
            })
            .await?;
        let folder = tempfile::tempdir()?;
        let (profile, submitted) = (folder.path().to_owned(), world.kubectl.clone());
        let base = link.split("/open").next().unwrap_or_default().to_owned();
        // The browser is driven by a thread of its own.
        let browsed = tokio::task::spawn_blocking(move || browse(&profile, &link, &base));
        let mut browser = browsed.await??;
        submitted.apply(LATE).await?;
        tokio::task::spawn_blocking(move || browser.until("document.body.innerText.includes('late-arrival')"))
            .await?
    })
    .await;
}

/// A Job that is submitted while a page shows the queue.
const LATE: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: late-arrival, namespace: robotics}
spec:
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: registry.example/train}]}
";

fn browse(profile: &Path, link: &str, base: &str) -> Result<Browser> {
    let pictures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/web-check");
    std::fs::create_dir_all(&pictures)?;
    let mut browser = Browser::start(profile)?;
    browser.call("Page.navigate", serde_json::json!({"url": link}))?;
    browser.until("location.pathname === '/all/' && document.readyState === 'complete'")?;
    for (name, path) in PAGES {
        browser.open(&format!("{base}{path}"))?;
        std::fs::write(
            pictures.join(format!("{name}.html")),
            browser.value("document.documentElement.outerHTML")?.as_str().unwrap_or_default(),
        )?;
        for width in [400, 1_280, 2_560] {
            for dark in [false, true] {
                browser.view(width, dark)?;
                let scheme = if dark { "dark" } else { "light" };
                std::fs::write(pictures.join(format!("{name}-{width}-{scheme}.png")), browser.picture()?)?;
                let wide = "document.documentElement.scrollWidth - innerWidth";
                let over = browser.value(wide)?.as_i64().unwrap_or(0);
                ensure!(over <= 0, "{name} is {over} pixels wider than its window of {width}");
            }
        }
        // Every link and field can be reached by the keyboard, and says what it is.
        let unnamed = browser.value(
            "[...document.querySelectorAll('a[href], button, input:not([type=hidden]), textarea')].filter((one) => \
             one.tabIndex < 0 || !(one.innerText || one.ariaLabel || (one.labels && one.labels.length))).map((one) => one.outerHTML)",
        )?;
        ensure!(unnamed == serde_json::json!([]), "{name}: {unnamed}");
    }
    browser.view(1_280, false)?;
    browser.open(&format!("{base}/all/queue"))?;
    for event in &browser.events {
        let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
        let own = url.is_empty() || url.starts_with(base) || url.starts_with("data:");
        ensure!(own, "a request leaves the origin: {url}");
        let entry = &event["params"]["entry"];
        let is_error = entry["level"] == "error" && entry["source"] != "network";
        ensure!(!is_error && event["method"] != "Runtime.exceptionThrown", "the console says: {event}");
    }
    let asked = browser.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
    ensure!(asked.count() > PAGES.len(), "the log of requests is empty");
    Ok(browser)
}
