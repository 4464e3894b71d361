//! Budgets of teams: what is used is kept over leaders, and at the start of a period the budget is full again.

use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use sluice_harness::{Options, Sluice, World, eventually, patience};

use crate::limits::says;
use crate::support::{Job, SLUICE, nodes, queued, quota, running, team_of};

/// Seconds of a day.
const DAY: i64 = 86_400;

/// Seconds until midnight in UTC.
fn until_midnight() -> i64 {
    DAY - Timestamp::now().as_second().rem_euclid(DAY)
}

/// A field of the status of a team.
async fn status(world: &World, team: &str, path: &str) -> Result<String> {
    let path = format!("jsonpath={{.status.{path}}}");
    Ok(world.kubectl.ok(&["get", "team", team, "-o", &path]).await?.trim().to_owned())
}

/// Waits until the verdict of a waiting Job names the budget.
async fn waits_for_its_budget(world: &World, job: &str) -> Result<String> {
    eventually(&format!("{job} waits for its budget"), patience(), async || {
        let text = says(world, &["explain", job]).await.map_err(|error| format!("{error:#}"))?;
        if text.contains("BudgetSpent") { Ok(text) } else { Err(text) }
    })
    .await
}

/// The environment of a process with a clock that is so many seconds fast.
fn fast(seconds: i64) -> Vec<(String, String)> {
    let library = format!("/usr/lib/{}-linux-gnu/faketime/libfaketime.so.1", std::env::consts::ARCH);
    let variables = [
        ("LD_PRELOAD", library),
        ("FAKETIME", format!("+{seconds}")),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ];
    variables.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spent_budget_holds_or_lets_borrow_and_is_kept_over_leaders_until_midnight() {
    // The test begins in one period.
    if let Ok(left @ 0..180) = u64::try_from(until_midnight()) {
        tokio::time::sleep(Duration::from_secs(left + 1)).await;
    }
    World::run_with("budgets", Options::new(SLUICE), 2, async |world| {
        // 36 GPU-seconds each.
        let budget = |then: &str| format!("budget: {{amount: 10m, period: Day, onExhausted: {then}}}");
        let held = team_of("held", &[&quota(4), &budget("Hold")]);
        let lends = team_of("lends", &[&quota(4), &budget("BorrowOnly")]);
        let owner = team_of("owner", &[&quota(2)]);
        world.apply(&format!("{}{held}{lends}{owner}", nodes(3, 4))).await?;
        for namespace in ["held", "lends"] {
            world.kubectl.apply(&Job::new(namespace, "first").gpus(4).manifest()).await?;
            running(world, namespace, 1).await?;
        }
        for team in ["held", "lends"] {
            eventually(&format!("the budget of team {team} is spent"), patience(), async || {
                let path = r#"conditions[?(@.type=="Exhausted")].status"#;
                let found = status(world, team, path).await.map_err(|error| format!("{error:#}"))?;
                if found == "True" { Ok(()) } else { Err(found) }
            })
            .await?;
        }
        let used = status(world, "held", "budget.used").await?;
        ensure!(used.parse::<f64>()? >= 0.01, "{used} GPU-hours");
        let columns = says(world, &["teams"]).await?;
        ensure!(columns.contains("BUDGET") && columns.contains("BorrowOnly"), "{columns}");
        // One waits, though there is room; the other borrows what is idle, and gives way to its owner.
        world.kubectl.apply(&Job::new("held", "next").gpus(1).manifest()).await?;
        let text = waits_for_its_budget(world, "held/next").await?;
        ensure!(text.contains("of 0.01 GPU-hours of this day"), "{text}");
        world.kubectl.apply(&Job::new("lends", "next").gpus(4).manifest()).await?;
        running(world, "lends", 2).await?;
        world.kubectl.apply(&Job::new("owner", "wants").gpus(2).manifest()).await?;
        running(world, "owner", 1).await?;
        running(world, "lends", 1).await?;
        queued(world, "lends", 1).await?;
        waits_for_its_budget(world, "lends/next").await?;

        // What was used outlives its leader, although nothing of it runs any more.
        world.kubectl.ok(&["delete", "job", "first", "--namespace=held"]).await?;
        running(world, "held", 0).await?;
        eventually("the status counts what has ended", patience(), async || {
            let found = status(world, "held", "usage").await.map_err(|error| format!("{error:#}"))?;
            if found == "0/4" { Ok(()) } else { Err(found) }
        })
        .await?;
        let before: f64 = status(world, "held", "budget.used").await?.parse()?;
        let leader = world.leader().await?;
        world.replicas[leader].kill().await?;
        world.kubectl.apply(&Job::new("held", "later").gpus(1).manifest()).await?;
        waits_for_its_budget(world, "held/later").await?;
        queued(world, "held", 2).await?;
        let after: f64 = status(world, "held", "budget.used").await?.parse()?;
        ensure!(after >= before, "{before} GPU-hours before, {after} after");

        // A replica that sees midnight in a few seconds.
        let next = 1 - leader;
        world.replicas[next].kill().await?;
        let options = world.options.clone();
        for index in [leader, next] {
            let old = &world.replicas[index];
            let addresses = Some([old.https(), old.http()]);
            let identity = old.identity().to_owned();
            let environment = fast(until_midnight() - 20);
            let options = Options { identity, addresses, environment, ..options.clone() };
            world.replicas[index] = Sluice::spawn(&world.cluster, &options)?;
        }
        running(world, "held", 2).await?;
        let today = Timestamp::now();
        eventually("the status is about the next day", patience(), async || {
            let found = status(world, "held", "budget.periodStart").await;
            let found = found.map_err(|error| format!("{error:#}"))?;
            if found.parse().is_ok_and(|start: Timestamp| start > today) { Ok(()) } else { Err(found) }
        })
        .await?;
        let view = world.view().await?;
        let first = view.jobs_in("lends").filter(|job| !job.queued()).count();
        ensure!(first >= 1, "nothing of team lends was ended for its budget: {}", view.summary("lends"));
        Ok(())
    })
    .await;
}
