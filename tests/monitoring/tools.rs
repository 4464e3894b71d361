//! Prometheus and promtool, as the distribution packages them.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use sluice_harness::eventually;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// The directory of the dashboards and the rules.
pub fn monitoring() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests").join("monitoring")
}

/// Runs a program; the error for a missing one says how to install it.
async fn run(program: &str, arguments: &[&str]) -> Result<Output> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().await;
    output.with_context(|| missing(program))
}

fn missing(program: &str) -> String {
    format!(
        "cannot run {program}, which checks the boards and the rules. It is a part of Prometheus: on Debian, \
         apt-get install prometheus"
    )
}

/// Runs promtool and returns its output.
pub async fn promtool(arguments: &[&str]) -> Result<String> {
    let output = run("promtool", arguments).await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("promtool {} failed: {said}{error}", arguments.join(" "));
    }
    Ok(said)
}

/// A separate Prometheus. Dropping it ends it and deletes its data.
pub struct Prometheus {
    url: String,
    log: PathBuf,
    _process: Child,
    _directory: TempDir,
}

impl Prometheus {
    /// Starts Prometheus with this configuration and waits until it answers.
    pub async fn start(config: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = |name: &str| directory.path().join(name);
        std::fs::write(file("prometheus.yaml"), config)?;
        let log = file("log");
        let output = std::fs::File::create(&log)?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file("prometheus.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", file("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| missing("prometheus"))?;
        let prometheus =
            Self { url: format!("http://{address}"), log, _process: process, _directory: directory };
        eventually("Prometheus answers", Duration::from_secs(60), async || {
            prometheus.instant("vector(1)").await.map_err(|error| format!("{error:#}"))
        })
        .await
        .with_context(|| prometheus.log_tail())?;
        Ok(prometheus)
    }

    /// The expression's value now.
    pub async fn instant(&self, expression: &str) -> Result<Vec<Series>> {
        self.query(&["query", "instant", "--format=json", &self.url, expression]).await
    }

    /// The expression's values from one second to another, for each second.
    pub async fn range(&self, expression: &str, from: i64, to: i64) -> Result<Vec<Series>> {
        let (start, end) = (format!("--start={from}"), format!("--end={to}"));
        self.query(&["query", "range", "--format=json", &start, &end, "--step=1s", &self.url, expression])
            .await
    }

    async fn query(&self, arguments: &[&str]) -> Result<Vec<Series>> {
        let answer = promtool(arguments).await?;
        let answer: Value = serde_json::from_str(&answer).with_context(|| answer.clone())?;
        let scalar = answer.as_array().is_some_and(|list| list.first().is_some_and(Value::is_number));
        if scalar {
            bail!("the answer is a number, not series: {answer}");
        }
        Ok(answer.as_array().into_iter().flatten().map(Series::new).collect())
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        format!("Prometheus's last lines:\n{}", lines[lines.len().saturating_sub(5)..].join("\n"))
    }
}

/// One series of an answer.
#[derive(Debug)]
pub struct Series {
    pub labels: Value,
    pub values: Vec<f64>,
}

impl Series {
    fn new(series: &Value) -> Self {
        let one = series.get("value").into_iter();
        let many = series["values"].as_array().into_iter().flatten();
        let number = |sample: &Value| sample[1].as_str().and_then(|value| value.parse().ok());
        Self { labels: series["metric"].clone(), values: one.chain(many).filter_map(number).collect() }
    }

    /// Whether there is a number to draw: 0/0 is none.
    pub fn shows(&self) -> bool {
        self.values.iter().any(|value| value.is_finite())
    }
}
