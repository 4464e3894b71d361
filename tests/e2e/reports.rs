//! The history as users read it: runs of Jobs that are gone, with the preemptor of each eviction, and reports that equal what ran.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sluice::api::names;
use sluice::view::accounts::{HistoryRow, ReportRow, UsageRow};
use sluice::view::answers::Kind;
use sluice_harness::{Options, User, World, eventually, patience};

use crate::command::{answered, comes_to_say, refused, sluice};
use crate::support::{ALICE_ASKS, Job, SLUICE, complete, items, nodes, running, team};

/// `alice` is a member of both namespaces.
const MEMBER: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: sluice-user, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sluice-user}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: sluice-user, namespace: b}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sluice-user}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
";

#[tokio::test(flavor = "multi_thread")]
async fn the_past_of_deleted_jobs_is_listed_and_added_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("history.db").display().to_string();
    let options = Options { flags: vec!["--history".to_owned(), file], ..Options::new(SLUICE) };
    World::run_with("reports", options, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(1, 4), team("a", 2), team("b", 2))).await?;
        // Job `greedy` borrows two GPUs, and Job `wants` reclaims them.
        let marked =
            "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}";
        let greedy = Job::new("b", "greedy").gpus(4).spec(marked).ends_slowly(Duration::from_secs(3));
        world.kubectl.apply(&greedy.manifest()).await?;
        running(world, "b", 1).await?;
        world.kubectl.apply(&Job::new("a", "wants").gpus(2).lasts(Duration::from_secs(5)).manifest()).await?;
        objects_name_the_team_alone(world).await?;
        complete(world, "a", 1).await?;
        running(world, "b", 1).await?;
        for (namespace, name) in [("a", "wants"), ("b", "greedy")] {
            world.kubectl.ok(&["delete", "job", name, "--namespace", namespace]).await?;
        }
        let admin = world.cluster.kubeconfig(User::Admin);
        eventually("all runs have ended in the history", patience(), async || {
            let outcome =
                sluice(&admin, &["history", "-A", "-o", "json"]).await.map_err(|error| error.to_string())?;
            let rows: Vec<HistoryRow> = items(&outcome.stdout).map_err(|_| outcome.stderr.clone())?;
            let ended = rows.iter().filter(|row| row.ended.is_some()).count();
            if ended == 3 { Ok(()) } else { Err(format!("{rows:?}")) }
        })
        .await?;
        rights_decide(world).await?;
        names_of_others_are_hidden(world).await?;
        reports_equal_what_ran(world).await?;
        pages_and_kubectl_read_it_too(world).await
    })
    .await;
}

/// What the users of namespace b read of the eviction: the note on the Job, the condition of its pod, and the Event.
async fn objects_name_the_team_alone(world: &World) -> Result<()> {
    let team = "of team a";
    let mut found = [("the note", false), ("the condition", false), ("the Event", false)];
    let leak = eventually("the objects name the team", patience(), async || {
        let get = ["get", "jobs,pods,events", "--namespace=b", "-o", "json"];
        let text = world.kubectl.ok(&get).await.map_err(|error| format!("{error:#}"))?;
        if text.contains("wants") {
            return Ok(Some(text));
        }
        let list: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        for object in list["items"].as_array().into_iter().flatten() {
            let note = object["metadata"]["annotations"][names::EVICTION].as_str();
            let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let said = |text: &Value| text.as_str().is_some_and(|text| text.contains(team));
            found[0].1 |= note.is_some_and(|note| note.contains(r#""forTeam":"a""#));
            found[1].1 |= object["kind"] == "Pod" && conditions.any(|one| said(&one["message"]));
            found[2].1 |= object["reason"] == "Evicted" && said(&object["message"]);
        }
        if found.iter().all(|(_, found)| *found) { Ok(None) } else { Err(format!("{found:?}; {text}")) }
    })
    .await?;
    ensure!(leak.is_none(), "it names a workload of another namespace: {leak:?}");
    Ok(())
}

async fn rights_decide(world: &World) -> Result<()> {
    let alice = world.cluster.kubeconfig(User::Alice);
    refused(&alice, &["history", "wants", "-n", "a"], "sluice-user").await?;
    world.kubectl.apply(ALICE_ASKS).await?;
    comes_to_say(&alice, &["teams", "-n", "a"], "TEAM").await?;
    for arguments in [&["history", "wants", "-n", "a"][..], &["report", "teams", "-n", "a"]] {
        refused(&alice, arguments, "questions/history").await?;
    }
    world.kubectl.apply(MEMBER).await?;
    comes_to_say(&alice, &["history", "wants", "-n", "a"], "Completed").await?;
    refused(&alice, &["history", "-A"], "sluice-manager").await
}

async fn names_of_others_are_hidden(world: &World) -> Result<()> {
    let alice = world.cluster.kubeconfig(User::Alice);
    for output in ["table", "wide", "json", "yaml", "csv"] {
        let text = answered(&alice, &["history", "greedy", "-n", "b", "--output", output]).await?;
        ensure!(text.contains("a workload of team a") && text.contains("Reclaimed"), "{text}");
        ensure!(!text.contains("wants"), "it names a workload of another namespace: {text}");
        let text = answered(&alice, &["history", "-n", "b", "--output", output]).await?;
        ensure!(text.contains("greedy") && !text.contains("wants"), "{text}");
    }
    refused(&alice, &["history", "nothing", "-n", "b"], "the history has no run of b/nothing").await
}

fn usage(text: &str) -> Result<Vec<UsageRow>> {
    let rows: Vec<ReportRow> = items(text)?;
    rows.into_iter()
        .map(|row| if let ReportRow::Usage(row) = row { Some(row) } else { None })
        .collect::<Option<_>>()
        .context("a report about usage")
}

async fn reports_equal_what_ran(world: &World) -> Result<()> {
    let admin = world.cluster.kubeconfig(User::Admin);
    let listed = answered(&admin, &["history", "-A", "-o", "json"]).await?;
    for (text, kind) in [
        (listed.clone(), Kind::HistoryList),
        (answered(&admin, &["report", "waits", "-A", "-o", "json"]).await?, Kind::ReportList),
    ] {
        let schema = jsonschema::validator_for(&kind.schema())?;
        let document: Value = serde_json::from_str(&text)?;
        let errors: Vec<String> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
        ensure!(errors.is_empty(), "{errors:?} in {text}");
    }
    let rows: Vec<HistoryRow> = items(&listed)?;
    let sum = |team: &str| -> f64 {
        rows.iter().filter(|row| row.team == team).map(|row| row.gpu_seconds.seconds()).sum()
    };
    let wants = rows.iter().find(|row| row.name == "wants").context("the run of a Job that is gone")?;
    ensure!(
        wants.state == "Completed" && !wants.borrowed && wants.nodes == [("gpu-0".to_owned(), 1)].into(),
        "{wants:?}"
    );
    ensure!(sum("a") >= 2.0 * 5.0, "two GPUs for five seconds: {wants:?}");
    for by in ["--by=day", "--by=month"] {
        let arguments =
            ["report", "teams", "-A", "--from=1d", by, "--price=nvidia.com/gpu=3600", "-o", "json"];
        let reported = usage(&answered(&admin, &arguments).await?)?;
        for team in ["a", "b"] {
            let of = reported.iter().filter(|row| row.team == team);
            let used: f64 = of.clone().map(|row| row.used_gpu_seconds.seconds()).sum();
            let cost: f64 = of.clone().filter_map(|row| row.cost).sum();
            let [borrowed, lost]: [f64; 2] = [
                of.clone().map(|row| row.borrowed_gpu_seconds.seconds()).sum(),
                of.map(|row| row.lost_gpu_seconds.seconds()).sum(),
            ];
            ensure!((used - sum(team)).abs() < 0.01, "{team}: {used}, and its runs {}", sum(team));
            ensure!((cost - used).abs() < 0.01, "an hour for 3,600: {cost} for {used}");
            ensure!((borrowed > 0.0, lost > 0.0) == (team == "b", team == "b"), "{team}: {reported:?}");
        }
    }
    let evictions = answered(&admin, &["report", "evictions", "-A", "--from=1d", "-o", "csv"]).await?;
    let line = evictions.lines().nth(1).with_context(|| evictions.clone())?;
    ensure!(line.contains(",Reclaimed,a,1,"), "{evictions}");
    let table = answered(&admin, &["report", "users", "-A", "--from=today"]).await?;
    ensure!(
        table.starts_with("From ") && table.contains("GPU time in hours") && table.contains("USER"),
        "{table}"
    );
    let nothing =
        usage(&answered(&admin, &["report", "pools", "-A", "--from=3d", "--to=2d", "-o", "json"]).await?)?;
    ensure!(nothing.iter().all(|row| row.runs == 0), "{nothing:?}");
    for (arguments, problem) in [
        (&["report", "teams", "--from=soon"][..], "--from \"soon\": expected a day"),
        (&["report", "teams", "--from=today", "--to=yesterday"], "is not before"),
        (&["history", "--to=2026-13"], "--to \"2026-13\""),
    ] {
        refused(&admin, arguments, problem).await?;
    }
    Ok(())
}

/// A Question as a program asks it.
const QUESTION: &str = "
apiVersion: sluice.dev/v1alpha1
kind: ClusterQuestion
metadata: {name: any}
spec: {report: {kind: Teams, from: \"2026-01-01T00:00:00Z\", by: Month}}
";

async fn pages_and_kubectl_read_it_too(world: &World) -> Result<()> {
    let asked = ["create", "--dry-run=server", "-o", "json", "-f", "-"];
    let outcome = world.kubectl.run(&asked, Some(QUESTION)).await?;
    ensure!(outcome.success, "{outcome:?}");
    let answer: Value = serde_json::from_str(&outcome.stdout)?;
    let rows = answer["answer"]["rows"].as_array().context("rows")?;
    ensure!(
        rows.iter().any(|row| row["team"] == "b" && row["usedGpuSeconds"].as_f64() > Some(0.0)),
        "{answer}"
    );
    Ok(())
}
