//! Teams that cannot be right, and what a Team says of its usage; a part of a test with a cluster.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_harness::{World, eventually, patience};

/// Teams that cannot be right, each with what kubectl warns of, and the condition that says so.
fn wrong() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let guaranteed = |resource: &str, amount: u32| json!({"quotas": [{"guaranteed": {resource: amount}}]});
    let child = json!({"parent": "a", "quotas": [{"guaranteed": {"nvidia.com/gpu": 30}}]});
    vec![
        ("t-parent", json!({"parent": "ghost"}), "Parent ghost does not exist", "Ready"),
        ("t-pool", json!({"quotas": [{"pool": "a100"}]}), "NodePool a100 does not exist", "Ready"),
        ("t-resource", guaranteed("nvidia.com/gpus", 1), "Is nvidia.com/gpu meant?", "Ready"),
        (
            "t-class",
            json!({"queues": [{"name": "q", "priorityClassName": "none"}]}),
            "PriorityClass none, which does not exist",
            "Ready",
        ),
        ("t-child", child, "the teams below a are guaranteed 30 of 1 nvidia.com/gpu", "Overcommitted"),
        ("t-large", guaranteed("nvidia.com/gpu", 100), "102 of 2 nvidia.com/gpu", "Overcommitted"),
    ]
}

fn manifest(name: &str, spec: &Value) -> String {
    json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team", "metadata": {"name": name}, "spec": spec})
        .to_string()
}

/// The teams a and b are right, use 2 of 1 and 0 of 1 guaranteed GPUs, and there are 2.
pub async fn say_what_cannot_be_right(world: &World) -> Result<()> {
    let apply = async |text: &str| world.kubectl.run(&["apply", "-f", "-"], Some(text)).await;
    let right = apply(&manifest("t-right", &json!({"weight": 2}))).await?;
    ensure!(right.success && right.stderr.is_empty(), "{}", right.stderr);
    for (name, spec, warning, _) in wrong() {
        let outcome = apply(&manifest(name, &spec)).await?;
        ensure!(outcome.success && outcome.stderr.contains(warning), "{name}: {}", outcome.stderr);
        ensure!(outcome.stderr.lines().count() == 1, "{name}: {}", outcome.stderr);
    }
    let outcome = apply(&manifest("t-right", &json!({"quotas": [{"pool": "a100"}]}))).await?;
    ensure!(outcome.stderr.contains("NodePool a100"), "an update warns too: {}", outcome.stderr);
    apply(&manifest("t-right", &json!({"weight": 2}))).await?;
    for (name, _, _, condition) in wrong() {
        let bad = if condition == "Ready" { "False" } else { "True" };
        says(world, name, condition, bad).await?;
    }
    for name in ["a", "b", "t-right"] {
        says(world, name, "Ready", "True").await?;
        says(world, name, "Overcommitted", "False").await?;
    }
    let namespace = |team: &str| {
        let metadata = json!({"name": "t-namespace", "labels": {"sluice.dev/team": team}});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}).to_string()
    };
    let outcome = apply(&namespace("t-rihgt")).await?;
    let warning = "Team t-rihgt does not exist. Is t-right meant?";
    ensure!(outcome.success && outcome.stderr.contains(warning), "{}", outcome.stderr);
    let outcome = apply(&namespace("t-right")).await?;
    ensure!(outcome.success && outcome.stderr.is_empty(), "{}", outcome.stderr);
    world.kubectl.ok(&["delete", "namespace", "t-namespace", "--wait=false"]).await?;
    let names: Vec<&str> = wrong().iter().map(|(name, ..)| *name).collect();
    let delete: Vec<&str> = ["delete", "team", "t-right"].into_iter().chain(names).collect();
    world.kubectl.ok(&delete).await.map(drop)
}

async fn says(world: &World, team: &str, condition: &str, status: &str) -> Result<()> {
    let path = format!(r#"jsonpath={{.status.conditions[?(@.type=="{condition}")].status}}"#);
    eventually(&format!("{condition} of {team} is {status}"), patience(), async || {
        match world.kubectl.ok(&["get", "team", team, "-o", &path]).await {
            Ok(found) if found == status => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// The line of a team shows 0, borrowed GPUs and the limit, and an Event says what a lower guarantee makes borrowed.
pub async fn show_usage(world: &World) -> Result<()> {
    let row = async |team: &str| world.kubectl.ok(&["get", "team", team, "--no-headers"]).await;
    eventually("the columns show the usage", patience(), async || {
        let [a, b] = [row("a").await, row("b").await].map(|row| row.unwrap_or_default());
        if a.contains("2/1 (+1)") && b.contains("0/1") { Ok(()) } else { Err(format!("{a}{b}")) }
    })
    .await?;
    let used = world.kubectl.run(&["delete", "team", "a", "--dry-run=server"], None).await?;
    ensure!(
        used.stderr.contains("Team a is in use: used of guaranteed 2/1 (+1)"),
        "a Team in use is deleted with a warning: {}",
        used.stderr
    );
    let lower = r#"{"spec":{"quotas":[{"guaranteed":{"nvidia.com/gpu":0},"limit":{"nvidia.com/gpu":2}}]}}"#;
    world.kubectl.ok(&["patch", "team", "a", "--type=merge", "-p", lower]).await?;
    let note = eventually("an Event of the Team", patience(), async || {
        let described =
            world.kubectl.ok(&["describe", "team", "a"]).await.map_err(|error| format!("{error:#}"))?;
        let line = described.lines().find(|line| line.contains("GuaranteeLowered"));
        line.map(str::to_owned).ok_or(described)
    })
    .await?;
    ensure!(note.contains("2 of 2 nvidia.com/gpu"), "{note}");
    eventually("the columns show the limit", patience(), async || {
        let a = row("a").await.unwrap_or_default();
        let cells: Vec<&str> = a.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        if cells.contains(&"2/0 (+2)") && cells.contains(&"2") { Ok(()) } else { Err(a) }
    })
    .await
    .context("kubectl get team a")
}
