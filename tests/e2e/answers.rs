//! What the commands print, for people and for programs.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice::view::answers::Kind;
use sluice_harness::{World, eventually, patience};
use tokio::process::Command;

use crate::command::{answered, comes_to_say, refused, sluice};
use crate::support::{Job, SLUICE};

/// Job `mine` of namespace a waits for a Job of team b. `dora` may view namespace a.
pub async fn are_for_people_and_programs(world: &World, dora: &Path) -> Result<()> {
    documents_have_the_schema_that_the_program_prints(dora).await?;
    rows_are_chosen_sorted_and_grouped(world, dora).await?;
    a_watch_shows_changes(world, dora).await?;
    what_if_reads_several_documents(dora).await?;
    mistakes_and_failures_have_codes(dora).await?;
    names_are_completed(dora).await
}

async fn documents_have_the_schema_that_the_program_prints(dora: &Path) -> Result<()> {
    for (arguments, kind) in [
        (&["queue"][..], Kind::WorkloadList),
        (&["explain", "mine"], Kind::WorkloadList),
        (&["queue", "--by=user"], Kind::GroupList),
        (&["teams"], Kind::Teams),
        (&["nodes"], Kind::NodeList),
        (&["version"], Kind::Version),
    ] {
        let schema = answered(dora, &["schema", kind.name()]).await?;
        let schema = jsonschema::validator_for(&serde_json::from_str(&schema)?)?;
        let text = answered(dora, &[arguments, &["--output=json"]].concat()).await?;
        let document: Value = serde_json::from_str(&text)?;
        let errors: Vec<String> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
        ensure!(errors.is_empty(), "{arguments:?}: {errors:?} in {text}");
        ensure!(document["apiVersion"] == "sluice.dev/cli/v1" && document["kind"] == kind.name(), "{text}");
        ensure!(
            !kind.is_list() || document["items"].as_array().is_some_and(|rows| !rows.is_empty()),
            "{text}"
        );
    }
    let queue: Value = serde_json::from_str(&answered(dora, &["queue", "-o", "json"]).await?)?;
    ensure!(queue["items"][0]["gpus"] == 2, "a plain number of GPUs: {queue}");
    Ok(())
}

async fn rows_are_chosen_sorted_and_grouped(world: &World, dora: &Path) -> Result<()> {
    world.kubectl.ok(&["label", "job", "mine", "--namespace=a", "tier=gold"]).await?;
    for (arguments, expected) in [
        (&["--output=name"][..], "job/mine\n"),
        (&["--output=name", "--selector=tier=gold"], "job/mine\n"),
        (&["--output=name", "--selector=tier=silver"], ""),
        (&["--no-headers", "--columns=name,team,gpus,state"], "mine  a  2  Pending\n"),
        (&["--output=csv", "--columns=name,gpus"], "name,gpus\nmine,2\n"),
        (&["--by=team", "--no-headers", "--output=csv"], "a,1,0,0,0,2,0,\n"),
    ] {
        let printed = answered(dora, &[&["queue"], arguments].concat()).await?;
        ensure!(printed == expected, "queue {arguments:?} prints {printed:?}");
    }
    let wide = answered(dora, &["queue", "--output=wide"]).await?;
    ensure!(wide.contains("POS") && wide.contains("PREEMPTIBLE"), "{wide}");
    Ok(())
}

async fn a_watch_shows_changes(world: &World, dora: &Path) -> Result<()> {
    let file = tempfile::NamedTempFile::new()?;
    let mut watch = Command::new(SLUICE)
        .args(["queue", "--watch", "--output=name"])
        .env("KUBECONFIG", dora)
        .stdout(Stdio::from(file.reopen()?))
        .kill_on_drop(true)
        .spawn()?;
    let printed = async |count: usize| {
        eventually(&format!("the watch has printed {count} names"), patience(), async || {
            let text = std::fs::read_to_string(file.path()).map_err(|error| error.to_string())?;
            if text.lines().collect::<std::collections::BTreeSet<_>>().len() >= count {
                Ok(text)
            } else {
                Err(text)
            }
        })
        .await
    };
    printed(1).await?;
    world.kubectl.apply(&Job::new("a", "later").gpus(2).manifest()).await?;
    let text = printed(2).await?;
    ensure!(text.starts_with("job/mine\n") && text.contains("job/later\n"), "{text}");
    watch.kill().await?;
    world.kubectl.ok(&["delete", "job", "later", "--namespace=a"]).await?;
    Ok(())
}

async fn what_if_reads_several_documents(dora: &Path) -> Result<()> {
    let jobs = format!("{}{}", Job::new("a", "one").manifest(), Job::new("a", "two").manifest());
    let mut asked = std::process::Command::new(SLUICE)
        .args(["what-if", "-f", "-", "--output=json"])
        .env("KUBECONFIG", dora)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    asked.stdin.take().context("its input")?.write_all(jobs.as_bytes())?;
    let output = tokio::task::spawn_blocking(move || asked.wait_with_output()).await??;
    let document: Value = serde_json::from_slice(&output.stdout)?;
    let schema = jsonschema::validator_for(&Kind::WhatIfList.schema())?;
    ensure!(schema.is_valid(&document), "{document}");
    let names: Vec<&Value> =
        document["items"].as_array().into_iter().flatten().map(|row| &row["name"]).collect();
    ensure!(names == ["one", "two"], "{document}");
    // The second is submitted after the first.
    let in_front = &document["items"][1]["eta"]["place"]["inFront"];
    let in_front = in_front.as_array().into_iter().flatten();
    ensure!(in_front.clone().any(|name| *name == json!("a/one")), "{document}");
    Ok(())
}

async fn mistakes_and_failures_have_codes(dora: &Path) -> Result<()> {
    for (arguments, code) in [
        (&["queue"][..], 0),
        (&["queue", "--team=zz"], 1),
        (&["explain", "nothing"], 1),
        (&["queue", "-n", "b"], 1),
        (&["queue", "--colour"], 2),
        (&["queue", "--columns=colour"], 2),
        (&["explain", "a/b/c"], 2),
        (&["what-if", "-f", "/nowhere"], 2),
    ] {
        let output = Command::new(SLUICE).args(arguments).env("KUBECONFIG", dora).output().await?;
        ensure!(output.status.code() == Some(code), "{arguments:?}: {output:?}");
    }
    refused(dora, &["queue", "--team=zz"], "no team zz; there are a, b").await?;
    refused(dora, &["queue", "--team=a", "--queue=night"], "no queue night in team a; there is default").await
}

/// What kubectl runs for `kubectl sluice explain mi<TAB>`.
async fn kubectl_completes(dora: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("kubectl_complete-sluice");
    std::fs::write(&script, answered(dora, &["completion", "kubectl"]).await?)?;
    std::os::unix::fs::symlink(SLUICE, folder.path().join("kubectl-sluice"))?;
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH")?);
    let mut command = Command::new("sh");
    command.arg(&script).args(["explain", "mi"]).env("PATH", path).env("KUBECONFIG", dora);
    let printed = String::from_utf8(command.output().await?.stdout)?;
    let lines: Vec<&str> = printed.lines().filter(|line| !line.is_empty()).collect();
    ensure!(lines == ["mine", ":4"], "{printed:?}");
    Ok(())
}

async fn names_are_completed(dora: &Path) -> Result<()> {
    let script = answered(dora, &["completion", "bash"]).await?;
    ensure!(script.contains("complete ") && script.contains("SLUICE_COMPLETE"), "{script}");
    // What the script of bash runs for `sluice explain mi<TAB>`.
    let complete = async |words: &[&str]| -> Result<String> {
        let last = (words.len() - 1).to_string();
        let arguments = [&["--", "sluice"], &words[1..]].concat();
        let output = Command::new(SLUICE)
            .args(arguments)
            .env("KUBECONFIG", dora)
            .env("SLUICE_COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", last)
            .env("_CLAP_IFS", "\n")
            .env("_CLAP_COMPLETE_COMP_TYPE", "9")
            .env("_CLAP_COMPLETE_SPACE", "true")
            .output()
            .await?;
        Ok(String::from_utf8(output.stdout)?)
    };
    for (words, expected) in [
        (&["sluice", "explain", "mi"][..], "mine"),
        (&["sluice", "queue", "--team", ""], "b"),
        (&["sluice", "expl"], "explain"),
    ] {
        eventually(&format!("{words:?} is completed"), patience(), async || {
            let names = complete(words).await.map_err(|error| error.to_string())?;
            if names.lines().any(|name| name.trim() == expected) { Ok(names) } else { Err(names) }
        })
        .await?;
    }
    // Another kubeconfig in the line is the one that is asked.
    let line = ["sluice", "explain", "--kubeconfig", &dora.display().to_string(), "mi"];
    let arguments = [&["--", "sluice"], &line[1..]].concat();
    let mut command = Command::new(SLUICE);
    command.args(arguments).env("KUBECONFIG", "/nowhere").env("SLUICE_COMPLETE", "bash");
    command.env("_CLAP_COMPLETE_INDEX", "4").env("_CLAP_IFS", "\n").env("_CLAP_COMPLETE_COMP_TYPE", "9");
    let output = String::from_utf8(command.env("_CLAP_COMPLETE_SPACE", "true").output().await?.stdout)?;
    ensure!(output.lines().any(|name| name.trim() == "mine"), "{output:?}");
    kubectl_completes(dora).await?;
    comes_to_say(dora, &["queue"], "mine").await?;
    let page = sluice(dora, &["man"]).await?;
    ensure!(page.success && page.stdout.contains(".TH"), "{page:?}");
    Ok(())
}
