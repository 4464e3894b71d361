//! `make demo`: four stories of Sluice on a real control plane with simulated nodes.
//!
//! The demo uses `kubectl apply` of plain Jobs and the production binary.

mod board;
mod screen;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use screen::Screen;
use sluice_harness::stories::Story;
use sluice_harness::{Cluster, Options, Sluice, User, install, webhook_answers};

const NAME: &str = "demo";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let demo = async {
        match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [] => show().await,
            ["down"] => down().await.map(|()| true),
            other => bail!("unknown argument {}; there is only `down`", other.join(" ")),
        }
    };
    let outcome = tokio::select! {
        outcome = demo => outcome,
        _ = tokio::signal::ctrl_c() => interrupted().await,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("\ndemo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Stops the cluster of an interrupted demo.
async fn interrupted() -> Result<bool> {
    eprintln!("\ninterrupted; stopping the cluster and Sluice");
    Cluster::remove(NAME).await.map(|()| false)
}

/// Stops the demo's cluster and Sluice.
async fn down() -> Result<()> {
    Cluster::remove(NAME).await?;
    println!("The demo's cluster and Sluice are stopped.");
    Ok(())
}

/// Plays all stories; true if all passed.
async fn show() -> Result<bool> {
    let began = Instant::now();
    println!("Sluice demo: a real Kubernetes control plane on this machine, with simulated GPU nodes.\n");
    step(1, "Building the control plane from its Go modules (about 8 minutes the first time)");
    Cluster::build().await?;
    step(2, "Starting it (a few seconds)");
    Cluster::remove(NAME).await?;
    let cluster = Cluster::up_as(NAME, None).await?;
    step(3, "Installing Sluice from manifests/local and starting `sluice serve` (a few seconds)");
    install(&cluster).await?;
    let mut options = Options::new(program()?);
    options.identity = "sluice-demo".to_owned();
    options.detached = true;
    options.addresses = default_addresses();
    options.flags = vec![format!("--history={}", cluster.scratch()?.join("history.db").display())];
    let sluice = Sluice::start(&cluster, &options).await?;
    webhook_answers(&cluster).await?;
    step(4, &format!("Four stories, about 2 minutes (ready after {} s)", began.elapsed().as_secs()));

    let screen = Screen::new(cluster.client(User::Admin).await?);
    let mut verdicts = Vec::new();
    for story in Story::ALL {
        let began = Instant::now();
        screen.story(story.title()).await;
        let outcome = story.play(&cluster, &|line| screen.say(line)).await;
        let verdict = match &outcome {
            Ok(()) => format!("passed ({} s)", began.elapsed().as_secs()),
            Err(error) => format!("FAILED: {error:#}"),
        };
        screen.verdict(&verdict, outcome.is_ok()).await;
        verdicts.push((story, outcome.is_ok(), verdict));
        Story::clear(&cluster).await?;
    }

    println!("\nResults");
    for (story, _, verdict) in &verdicts {
        println!("  {:<16} {verdict}", story.title());
    }
    let passed = verdicts.iter().all(|(_, passed, _)| *passed);
    if !passed {
        println!("\nLogs: {} and {}", sluice.log().display(), cluster.directory().join("logs").display());
    }
    next_steps(&cluster, &sluice);
    cluster.leave_running();
    Ok(passed)
}

/// Prints commands to try by hand.
fn next_steps(cluster: &Cluster, sluice: &Sluice) {
    println!(
        "
The cluster and Sluice keep running. Try it yourself:

  export KUBECONFIG={}
  kubectl get teams                              # quota and usage
  kubectl apply -f examples/job.yaml             # a plain Job of team A
  target/debug/sluice queue -A                   # running and waiting work, with reasons
  target/debug/sluice explain team-a/hello       # one Job: the rule and the numbers
  target/debug/sluice teams -A; target/debug/sluice nodes -A
  target/debug/sluice history -A                 # every run so far, also of the stories
  kubectl describe job hello --namespace team-a  # its Events
  curl http://{}/metrics

`make demo-down` stops both.",
        cluster.kubeconfig(User::Admin).display(),
        sluice.http()
    );
}

fn step(number: usize, what: &str) {
    println!("[{number}/4] {what}");
}

/// The `sluice` binary built together with this program.
fn program() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let program = this.ancestors().nth(2).map(|target| target.join("sluice"));
    program
        .filter(|program| program.is_file())
        .context("the program `sluice` is not built; run `make demo`, or `cargo build` first")
}

/// Sluice's default ports, if they are free.
fn default_addresses() -> Option<[SocketAddr; 2]> {
    let addresses = [9443, 8080].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    addresses.iter().all(|address| TcpListener::bind(address).is_ok()).then_some(addresses)
}
