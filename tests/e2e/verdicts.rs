//! Verdicts at dry-run: what `kubectl` says of an object before it is submitted is what `sluice what-if` says, and what then
//! happens.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use serde_json::{Value, json};
use sluice::api::names;
use sluice::view::{WhatIfRow, WorkloadRow};
use sluice_harness::{Outcome, PodView, User, View, World, end_if_this_test_hangs, eventually, patience};

use crate::command::answered;
use crate::kinds::{definition, serve};
use crate::support::{Job, SLUICE, items, namespace, nodes, quota, running, team, team_of};

/// The warnings of Sluice in the output of kubectl, without their beginning.
fn warnings(outcome: &Outcome) -> Vec<String> {
    let lines = outcome.stderr.lines();
    lines.filter_map(|line| line.strip_prefix("Warning: sluice: ")).map(ToOwned::to_owned).collect()
}

/// The verdict on a manifest; waits while the API server has none, because the address of the webhook is new.
async fn verdict(world: &World, arguments: &[&str], manifest: &str) -> Result<Vec<String>> {
    eventually(&format!("a verdict from {arguments:?}"), patience(), async || {
        let outcome =
            world.kubectl.run(arguments, Some(manifest)).await.map_err(|error| error.to_string())?;
        match warnings(&outcome) {
            said if said.iter().any(|line| line.starts_with("Would ")) => Ok(said),
            _ => Err(format!("{outcome:?}")),
        }
    })
    .await
}

const CREATE: &[&str] = &["create", "--dry-run=server", "-f", "-"];

/// The same result by `sluice what-if`.
async fn what_if(world: &World, file: &Path) -> Result<WhatIfRow> {
    let admin = world.cluster.kubeconfig(User::Admin);
    let file = file.display().to_string();
    let answer = answered(&admin, &["what-if", "--file", &file, "--output", "json"]).await?;
    items(&answer)?.pop().context("what-if has an answer")
}

fn written(world: &World, job: &Job) -> Result<PathBuf> {
    let file = world.cluster.scratch()?.join(format!("{}.yaml", job.name()));
    std::fs::write(&file, job.manifest())?;
    Ok(file)
}

/// A sentence without times of the clock: these two are made at different instants.
fn timeless(sentence: &str) -> String {
    let words: Vec<&str> = sentence.split(' ').collect();
    let is_seconds = |at: usize| words.get(at + 1).is_some_and(|unit| unit.trim_end_matches('.') == "s");
    let word = |(at, word): (usize, &&str)| {
        let is_time =
            word.starts_with(|c: char| c.is_ascii_digit()) && word.contains(['s', 'm', 'h', 'd', 'T']);
        if is_time || is_seconds(at) { "TIME".to_owned() } else { (*word).to_owned() }
    };
    words.iter().enumerate().map(word).collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_then_happens() {
    let most = std::env::var("SLUICE_VERDICTS").ok().and_then(|most| most.parse().ok()).unwrap_or(40);
    if most <= 40 {
        end_if_this_test_hangs();
    }
    let outcome = async {
        // Longer than a test may take, for the many Jobs that one may ask for by hand.
        let mut world = World::up("verdicts", SLUICE, 2).await?;
        let outcome = tokio::time::timeout(
            Duration::from_secs(420).max(Duration::from_secs(20) * most),
            all_of_it(&mut world, most),
        )
        .await
        .context("the test took too long")?;
        let logs: Vec<String> = world.replicas.iter().map(sluice_harness::Sluice::log_tail).collect();
        outcome.with_context(|| logs.join("\n\n"))
    };
    if let Err(error) = outcome.await {
        panic!("{error:?}");
    }
}

/// Team a has queues with rules of their own, team c borrows only.
fn cluster() -> String {
    let queues = "queues: [{name: work, preemptible: true}, {name: fixed, preemptible: false}, {name: capped, limit: \
                  {nvidia.com/gpu: 2}}]";
    format!(
        "{}{}{}{}{}",
        nodes(4, 4),
        team_of("a", &[&quota(8), queues]),
        team("b", 8),
        team_of("c", &["weight: 1"]),
        namespace("quiet", "a", "sluice.dev/verdict: \"off\"")
    )
}

async fn all_of_it(world: &mut World, most: u32) -> Result<()> {
    world.apply(&cluster()).await?;
    let before = world.cluster.audit().by(names::ACCOUNT)?.len();
    every_way_to_dry_run_has_a_verdict(world).await?;
    every_kind_has_a_verdict(world).await?;
    a_forged_review_is_allowed_without_a_verdict(world).await?;
    nothing_was_written(world, before).await?;
    what_can_never_start_is_said_at_create(world).await?;
    a_change_of_waiting_work_has_a_verdict(world).await?;
    names_of_others_are_hidden(world).await?;
    random_jobs_do_as_they_were_said_to(world, most).await
}

async fn every_way_to_dry_run_has_a_verdict(world: &World) -> Result<()> {
    let job = Job::new("a", "asked");
    let manifest = job.manifest();
    let expected = "Would start now within the guarantee of pool default on gpu-0 (1 pod).";
    for arguments in [
        CREATE,
        &["apply", "--dry-run=server", "-f", "-"],
        &["apply", "--server-side", "--dry-run=server", "-f", "-"],
        &["diff", "-f", "-"],
    ] {
        let said = verdict(world, arguments, &manifest).await?;
        ensure!(said == [expected], "{arguments:?}: {said:?}");
    }
    let row = what_if(world, &written(world, &job)?).await?;
    ensure!(row.sentences(Timestamp::now(), &sluice::view::utc) == [expected], "{row:?}");
    let quiet = world.kubectl.run(CREATE, Some(&job.within("quiet").manifest())).await?;
    ensure!(quiet.success && warnings(&quiet).is_empty(), "{quiet:?}");
    // A real create has no verdict.
    let made = world.kubectl.run(&["create", "-f", "-"], Some(&Job::new("b", "made").manifest())).await?;
    ensure!(made.success && warnings(&made).is_empty(), "{made:?}");
    running(world, "b", 1).await?;
    world.kubectl.ok(&["delete", "job", "made", "--namespace=b"]).await?;
    running(world, "b", 0).await.map(drop)
}

async fn every_kind_has_a_verdict(world: &World) -> Result<()> {
    let container = json!({"name": "main", "image": "registry.example/x", "resources": {"limits": {"nvidia.com/gpu": 1}}});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "alone", "namespace": "a"},
        "spec": {"containers": [container]},
    });
    let said = verdict(world, CREATE, &pod.to_string()).await?;
    ensure!(said.len() == 1 && said[0].ends_with("on gpu-0 (1 pod)."), "{said:?}");
    let mut grouped = pod.clone();
    grouped["metadata"]["labels"] = json!({names::GROUP: "ring"});
    grouped["metadata"]["annotations"] = json!({names::GROUP_SIZE: "6"});
    let said = verdict(world, CREATE, &grouped.to_string()).await?;
    ensure!(said[0].contains("whole group ring: its 6 pods"), "{said:?}");
    ensure!(said[1].starts_with("Would start now"), "{said:?}");
    let set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set", "namespace": "a"},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": {
            "parallelism": 2, "completions": 2,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        }}}]},
    });
    serve(world, &definition("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"), &set).await?;
    let said = verdict(world, CREATE, &set.to_string()).await?;
    ensure!(said.len() == 1 && said[0].contains("(4 pods)"), "{said:?}");
    Ok(())
}

/// The response to a review that is posted to a replica without the API server.
async fn posted(world: &World, path: &str) -> Result<Value> {
    let replica = world.replicas.first().context("a replica")?;
    let mut config = kube::Config::new(format!("https://{}", replica.https()).parse()?);
    config.accept_invalid_certs = true;
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "42", "kind": {"group": "batch", "version": "v1", "kind": "Job"}, "namespace": "a",
            "operation": "CREATE", "dryRun": true, "userInfo": {"username": "admin", "groups": ["system:masters"]},
            "object": {
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": "forged", "annotations": {names::HELD: "true"}},
                "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": [
                    {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
                ]}}},
            },
        },
    });
    let request = axum::http::Request::post(path)
        .header("content-type", "application/json")
        .body(review.to_string().into_bytes())?;
    let answer: Value = kube::Client::try_from(config)?.request(request).await?;
    Ok(answer["response"].clone())
}

async fn a_forged_review_is_allowed_without_a_verdict(world: &World) -> Result<()> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let configuration = api.get(names::NAME).await?;
    let mut webhooks = configuration.webhooks.into_iter().flatten();
    let webhook = webhooks.find(|webhook| webhook.name.starts_with("verdicts.")).context("the webhook")?;
    let url = webhook.client_config.url.context("its URL")?;
    let path = url.find("/verdict/").map(|at| url[at..].to_owned()).context("a path with a proof")?;
    let last = if path.ends_with('0') { '1' } else { '0' };
    for forged in ["/verdict", "/verdict/guess", &format!("{}{last}", &path[..path.len() - 1])] {
        let response = posted(world, forged).await?;
        ensure!(response["allowed"] == true && response["warnings"].is_null(), "{forged}: {response}");
    }
    // The same review by the path of the configuration has a verdict, so it is the proof that is missing above.
    let response = posted(world, &path).await?;
    ensure!(response["warnings"][0].as_str().is_some_and(|said| said.contains("Would start")), "{response}");
    // Nor does that path answer Questions.
    let proof = path.trim_start_matches("/verdict/");
    let response = posted(world, &format!("/ask/{proof}")).await?;
    ensure!(response["allowed"] == false, "{response}");
    Ok(())
}

/// Of all dry-runs so far nothing is stored, and Sluice wrote nothing but its Lease, statuses and about `made`.
async fn nothing_was_written(world: &World, before: usize) -> Result<()> {
    let writes = world.cluster.audit().by(names::ACCOUNT)?;
    let kept = ["leases", "events", "teams/status", "nodepools/status"];
    let odd = writes.iter().skip(before).filter(|write| {
        !kept.contains(&write.resource.as_str())
            && !write.resource.ends_with("webhookconfigurations")
            && write.name != "made"
    });
    let odd: Vec<_> = odd.collect();
    ensure!(odd.is_empty(), "{odd:?}");
    let view = world.view().await?;
    ensure!(view.jobs_in("a").next().is_none() && view.pods.iter().all(|pod| pod.namespace != "a"), "stored");
    Ok(())
}

async fn what_can_never_start_is_said_at_create(world: &World) -> Result<()> {
    for (job, why) in [
        (Job::new("a", "large").gpus(5), "a pod needs 5 GPUs, more than any of the 4 nodes"),
        (
            Job::new("a", "many").spec("parallelism: 60"),
            "the nodes of pool default hold at most 16 of its 60 pods",
        ),
        (Job::new("a", "far").annotated("topology-required", "rack"), "has the label rack"),
        (Job::new("a", "capped").gpus(3).queue("capped"), "queue capped has a limit of 2 GPUs"),
        (Job::new("a", "fixed").spec("parallelism: 9").queue("fixed"), "team a is guaranteed 8 GPUs"),
    ] {
        let made = world.kubectl.run(&["create", "-f", "-"], Some(&job.manifest())).await?;
        let said = warnings(&made);
        ensure!(made.success && said.len() == 1, "{}: {made:?}", job.name());
        ensure!(said[0].starts_with("Can never start: ") && said[0].contains(why), "{said:?}");
    }
    world.kubectl.ok(&["delete", "jobs", "--all", "--namespace=a"]).await.map(drop)
}

/// A Job waits for the limit of its queue, and would start in another queue or with less.
async fn a_change_of_waiting_work_has_a_verdict(world: &World) -> Result<()> {
    let apply = ["apply", "--dry-run=server", "-f", "-"];
    let stored = Job::new("a", "moved").gpus(2).spec("parallelism: 2").queue("capped");
    world.kubectl.apply(&stored.manifest()).await?;
    rests(world).await?;
    let same = world.kubectl.run(&apply, Some(&stored.manifest())).await?;
    ensure!(same.success && warnings(&same).is_empty(), "{same:?}");
    let moved = Job::new("a", "moved").gpus(2).spec("parallelism: 2").queue("work");
    let said = verdict(world, &apply, &moved.manifest()).await?;
    ensure!(said == ["Would start now within the guarantee of pool default on gpu-0 (2 pods)."], "{said:?}");
    let smaller = Job::new("a", "moved").gpus(2).spec("parallelism: 1").queue("capped");
    let said = verdict(world, &["diff", "-f", "-"], &smaller.manifest()).await?;
    ensure!(said == ["Would start now within the guarantee of pool default on gpu-0 (1 pod)."], "{said:?}");
    let view = world.view().await?;
    ensure!(view.job("a", "moved").is_some_and(sluice_harness::JobView::queued), "it has been changed");
    world.kubectl.apply(&moved.manifest()).await?;
    running(world, "a", 2).await?;
    world.kubectl.ok(&["delete", "jobs", "--all", "--namespace=a"]).await?;
    running(world, "a", 0).await.map(drop)
}

/// A Job of team a takes from the borrowers of team c, and does not learn their names.
async fn names_of_others_are_hidden(world: &World) -> Result<()> {
    for name in ["secret-1", "secret-2", "secret-3", "secret-4"] {
        world.kubectl.apply(&Job::new("c", name).gpus(4).manifest()).await?;
    }
    running(world, "c", 4).await?;
    let job = Job::new("a", "owner").gpus(4).spec("parallelism: 2");
    let said = verdict(world, CREATE, &job.manifest()).await?;
    ensure!(said.last().is_some_and(|line| line == "Would preempt 2 workloads of team c."), "{said:?}");
    ensure!(said.len() <= 4 && !said.concat().contains("secret"), "{said:?}");
    let never = verdict(world, CREATE, &Job::new("a", "never").gpus(5).manifest()).await?;
    ensure!(never[0].starts_with("Would wait. NoNodeFits: Can never start: a pod needs"), "{never:?}");
    rests(world).await?;
    ensure!(predicted_and_seen(world, &job).await? == "preempted", "it preempts nothing");
    world.kubectl.ok(&["delete", "jobs", "--all", "--namespace=a"]).await?;
    world.kubectl.ok(&["delete", "jobs", "--all", "--namespace=c"]).await?;
    running(world, "c", 0).await?;
    running(world, "a", 0).await.map(drop)
}

/// A Job of a random size in a random queue.
fn random(random: &mut fastrand::Rng, number: u32) -> Job {
    let namespace = ["a", "a", "b", "c"][random.usize(0..4)];
    let pods = [1, 1, 2, 3][random.usize(0..4)];
    let mut job = Job::new(namespace, &format!("job-{number}"))
        .gpus(random.usize(1..=4))
        .spec(&format!("parallelism: {pods}"))
        .spec(&format!("completions: {pods}"));
    if namespace == "a" {
        job = job.queue(["work", "work", "fixed", "capped"][random.usize(0..4)]);
    }
    if random.bool() {
        job = job.annotated("time-limit", ["1h", "2h", "30m"][random.usize(0..3)]);
    }
    job
}

/// Everything that changes by decisions: the state and nodes of each Job, and its pods.
fn shape(view: &View) -> BTreeMap<(String, String), String> {
    let of = |job: &sluice_harness::JobView| {
        let pods = view.pods.iter().filter(|pod| pod.job.as_deref() == Some(&job.name));
        let pods: Vec<_> = pods.map(|pod| (&pod.name, &pod.node, &pod.phase, pod.deleting)).collect();
        ((job.namespace.clone(), job.name.clone()), format!("{} {:?} {pods:?}", job.state(), job.admission))
    };
    view.jobs.iter().map(of).collect()
}

/// Whether a pod is about to end, or its Job has gone before it.
fn ends(view: &View, pod: &PodView) -> bool {
    let gone = |job: &str| view.job(&pod.namespace, job).is_none();
    pod.deleting || pod.job.as_deref().is_some_and(gone)
}

/// Waits until nothing changes any more for a second, no pod is about to end, and no workload is being evicted: the Job
/// controller says late that a Job has stopped, when the machine is busy.
async fn rests(world: &World) -> Result<()> {
    let leader = world.replicas.get(world.leader().await?).context("a leader")?;
    let mut last = (BTreeMap::new(), tokio::time::Instant::now());
    eventually("the cluster rests", patience(), async || {
        let view = world.view().await.map_err(|error| error.to_string())?;
        let rows = leader.workloads().await.map_err(|error| format!("{error:#}"))?;
        let evicted = rows.as_array().into_iter().flatten().any(|row| row["state"] == "Evicting");
        let now = shape(&view);
        if now != last.0 || evicted || view.pods.iter().any(|pod| ends(&view, pod)) {
            last = (now, tokio::time::Instant::now());
        }
        if last.1.elapsed() > Duration::from_secs(1) { Ok(()) } else { Err(format!("{:?}", last.0)) }
    })
    .await
}

/// A Job waits for the reason that was said, with another expected start: a run in its way has meanwhile lasted longer than
/// the runs that the estimate was learned from.
const OTHERWISE: &str = "waits, expected otherwise";

async fn random_jobs_do_as_they_were_said_to(world: &World, most: u32) -> Result<()> {
    // A reservation rests on what was known when it was made. A replica that does not lead may not know that any more.
    let leader = world.replicas.get(world.leader().await?).context("a leader")?;
    world.service.replace(vec![leader.https()]);
    world.service.cut();
    let mut rng = fastrand::Rng::with_seed(18);
    let mut there: Vec<(String, String)> = Vec::new();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for number in 0..most {
        while there.len() > 12 || !there.is_empty() && rng.u8(0..3) == 0 {
            let (namespace, name) = there.remove(rng.usize(0..there.len()));
            let namespace = format!("--namespace={namespace}");
            world.kubectl.ok(&["delete", "job", &name, &namespace, "--wait=false"]).await?;
        }
        rests(world).await?;
        let job = random(&mut rng, number);
        let outcome = predicted_and_seen(world, &job)
            .await
            .with_context(|| format!("Job {number}:{}", job.manifest()))?;
        println!("{}/{}: {outcome}", job.namespace(), job.name());
        *counts.entry(outcome).or_default() += 1;
        there.push((job.namespace().to_owned(), job.name().to_owned()));
    }
    println!("{most} verdicts: {counts:?}");
    let otherwise = counts.get(OTHERWISE).copied().unwrap_or_default();
    ensure!(otherwise <= 1 + most / 100, "{otherwise} expected starts are not those that were said");
    ensure!(counts.len() > 1, "the Jobs do not try every outcome: {counts:?}");
    Ok(())
}

/// Compares the verdict on a Job with what-if, submits it, and compares with what happens.
async fn predicted_and_seen(world: &World, job: &Job) -> Result<&'static str> {
    let (manifest, file) = (job.manifest(), written(world, job)?);
    let plain = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| timeless(line.trim_start_matches("sluice: "))).collect()
    };
    // A forecast leans on how long the runs in the way have lasted so far, so it may change between two questions: the
    // dry-run says what one of those around it says.
    let before = what_if(world, &file).await?.warnings(Timestamp::now());
    let said = verdict(world, CREATE, &manifest).await?;
    let row = what_if(world, &file).await?;
    let after = row.warnings(Timestamp::now());
    ensure!(
        [&before, &after].into_iter().any(|expected| plain(&said) == plain(expected)),
        "dry-run and what-if differ: {said:?}; before {before:?}, after {after:?}"
    );
    said.iter().for_each(|line| println!("  {line}"));
    world.kubectl.apply(&manifest).await?;
    let key = (job.namespace().to_owned(), job.name().to_owned());
    // Work that is preempted at once; what is said of a later start depends on how long runs take.
    let at_once = row.head.state == "Running" || row.head.reason == "WaitingForEviction";
    let preempts = at_once && !row.displaced.is_empty();
    if at_once {
        let check = |view: &View| {
            let Some(job) = view.job(&key.0, &key.1) else { return Err("it is not there".to_owned()) };
            let Some(record) = job.admission.as_ref().filter(|_| job.admitted()) else {
                return Err(job.state().to_owned());
            };
            Ok((record.nodes.clone(), record.borrowed, record.pool.clone()))
        };
        let view = match world.until("it starts", |view| check(view).map(drop)).await {
            Ok(view) => view,
            Err(error) => {
                let mut answers = Vec::new();
                for replica in &world.replicas {
                    answers.push(replica.workload(&key.0, &key.1).await);
                }
                return Err(error.context(format!("{row:?}; {answers:?}")));
            }
        };
        let seen = check(&view).map_err(anyhow::Error::msg)?;
        let (nodes, borrowed, pool) = seen;
        let nodes: BTreeMap<String, u32> =
            nodes.into_iter().map(|(node, pods)| (node.to_string(), pods)).collect();
        ensure!(
            (&nodes, borrowed, Some(pool.to_string())) == (&row.nodes, row.borrowed, row.pool.clone()),
            "started otherwise: {nodes:?} borrowed {borrowed}; {row:?}"
        );
        let for_it: BTreeSet<String> = view
            .jobs
            .iter()
            .filter(|other| {
                other.eviction.as_ref().is_some_and(|note| note.preemptor == format!("{}/{}", key.0, key.1))
            })
            .map(|other| other.team.clone().unwrap_or_default())
            .collect();
        ensure!(row.displaced.is_empty() == for_it.is_empty(), "evicted for it: {for_it:?}; {row:?}");
        return Ok(if preempts { "preempted" } else { "started" });
    }
    let explained =
        eventually("the Job waits with an expected start, or never starts", patience(), async || {
            let found = explain(world, &key).await.map_err(|error| format!("{error:#}"))?;
            match found {
                Some(found) if found.eta.is_some() || found.head.never_starts => Ok(found),
                other => Err(format!("{other:?}")),
            }
        })
        .await
        .with_context(|| format!("{said:?}"))?;
    ensure!(explained.head.state == "Pending", "it does not wait: {explained:?}; {row:?}");
    ensure!(
        explained.head.reason == row.head.reason
            && timeless(&explained.head.message) == timeless(&row.head.message),
        "waits otherwise: {explained:?}; {row:?}"
    );
    ensure!(explained.head.never_starts == row.head.never_starts, "{explained:?}; {row:?}");
    if explained.head.never_starts {
        ensure!(
            explained.eta.is_none(),
            "what never starts has neither a place nor an estimate: {explained:?}"
        );
        return Ok("never starts");
    }
    let eta = explained.eta.as_ref().context("an expected start")?;
    ensure!(eta.place == row.eta.place, "{eta:?}; {row:?}");
    let soon = jiff::SignedDuration::from_secs(5);
    let as_said = eta.basis == row.eta.basis
        && match (eta.likely, row.eta.likely) {
            (None, None) => true,
            (Some(seen), Some(said)) => seen.duration_since(said).abs() < soon,
            _ => false,
        };
    if !as_said {
        println!("  Expected otherwise: {eta:?}; {:?}", row.eta);
        return Ok(OTHERWISE);
    }
    Ok("waits")
}

/// What `sluice explain` says of a Job.
async fn explain(world: &World, (namespace, name): &(String, String)) -> Result<Option<WorkloadRow>> {
    let admin = world.cluster.kubeconfig(User::Admin);
    let answer = answered(&admin, &["explain", name, "--namespace", namespace, "--output", "json"]).await?;
    let rows: Vec<WorkloadRow> = items(&answer)?;
    Ok(rows.into_iter().next())
}
