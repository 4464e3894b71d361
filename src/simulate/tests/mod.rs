mod adopted;
mod devices;
mod refused;
mod said;

use super::*;
use crate::scenario::Scenario;

const TEAMS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: a, labels: {sluice.dev/team: a}}
---
apiVersion: v1
kind: Namespace
metadata: {name: b, labels: {sluice.dev/team: b}}
---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {name: a}
spec: {quotas: [{guaranteed: {nvidia.com/gpu: 2}}]}
---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {name: b}
spec: {quotas: [{guaranteed: {nvidia.com/gpu: 2}}], queues: [{name: train}, {name: urgent, priority: 5}]}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 10
";

fn node(name: &str, gpus: u32, notes: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}, annotations: {{{notes}}}}}\n\
         status: {{allocatable: {{nvidia.com/gpu: {gpus}}}}}\n"
    )
}

/// A Job `namespace/name` with one GPU per pod.
fn job(label: &str, pods: u32, notes: &str) -> String {
    job_of(label, pods, 1, notes, "")
}

fn job_of(label: &str, pods: u32, gpus: u32, notes: &str, more: &str) -> String {
    let (namespace, name) = label.split_once('/').expect("namespace/name");
    let spec = more.split('|').next().unwrap_or_default();
    let pod = more.split('|').nth(1).unwrap_or_default();
    format!(
        "---\napiVersion: batch/v1\nkind: Job\n\
         metadata: {{name: {name}, namespace: {namespace}, annotations: {{{notes}}}}}\n\
         spec:\n  parallelism: {pods}\n  completions: {pods}\n{spec}\n  template:\n    spec:\n\
         \x20     restartPolicy: Never\n{pod}\n      containers:\n      - {{name: main, image: x, \
         resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}\n"
    )
}

fn sim(key: &str, value: &str) -> String {
    format!("simulate.sluice.dev/{key}: \"{value}\"")
}

fn notes(pairs: &[(&str, &str)]) -> String {
    pairs.iter().map(|(key, value)| sim(key, value)).collect::<Vec<_>>().join(", ")
}

fn parse(parts: &[String]) -> Result<Scenario, Error> {
    let text = format!("{TEAMS}{}", parts.concat());
    Ok(Scenario::parse([("s.yaml", text.as_str())])?)
}

fn outcome(parts: &[String], options: &Options) -> Outcome {
    run(&parse(parts).expect("a scenario"), options).expect("an outcome")
}

fn error(parts: &[String]) -> String {
    let scenario = parse(parts).expect("a scenario");
    run(&scenario, &Options::default()).expect_err("something is wrong").to_string()
}

/// Admissions, evictions and final state of each workload.
fn histories(outcome: &Outcome) -> Vec<String> {
    let history = |row: &WorkloadRow| {
        let mut parts = vec![row.label()];
        for admission in &row.admissions {
            let nodes: Vec<String> =
                admission.nodes.iter().map(|(node, pods)| format!("{node}={pods}")).collect();
            let borrowed = if admission.borrowed { " borrowed" } else { "" };
            parts.push(format!("{} on {}{borrowed}", admission.at, nodes.join(",")));
        }
        for eviction in &row.evictions {
            parts.push(format!("{} {} for {}", eviction.at, eviction.reason, eviction.preemptor));
        }
        let ended = row.finished.map(|at| format!(" at {at}")).unwrap_or_default();
        parts.push(format!("{}{ended}", row.state));
        parts.join("; ")
    };
    outcome.workloads.iter().map(history).collect()
}

#[test]
fn a_team_reclaims_its_guarantee_from_a_borrower() {
    let parts = [
        node("n0", 4, ""),
        job("a/x", 4, &notes(&[("duration", "60s")])),
        job("b/y", 2, &notes(&[("at", "10s"), ("duration", "20s")])),
    ];
    let outcome = outcome(&parts, &Options { events: true, ..Options::default() });
    assert_eq!(
        histories(&outcome),
        [
            "a/x; 0s on n0=4 borrowed; 30s on n0=4 borrowed; 10s Reclaimed for b/y; Succeeded at 90s",
            "b/y; 10s on n0=2; Succeeded at 30s",
        ]
    );
    assert_eq!(outcome.end, Clock::seconds(90));
    assert_eq!(outcome.summary.evictions, 1);
    assert!((outcome.summary.wasted_gpu_seconds - 40.0).abs() < 1e-9);
    // 4 GPUs for 10 s and 60 s, 2 for 20 s, of 4 for 90 s.
    assert!((outcome.summary.utilization - 320.0 / 360.0).abs() < 1e-9);
    assert!(outcome.summary.mean_wait_seconds.abs() < 1e-9);
    let events = outcome.events.expect("they were requested");
    let rules: Vec<_> =
        events.iter().map(|event| (event.action, event.rule, event.workload.as_str())).collect();
    assert_eq!(
        rules,
        [
            ("Admitted", "Borrowed", "a/x"),
            ("Evicted", "Reclaimed", "a/x"),
            ("Admitted", "Guaranteed", "b/y"),
            ("Admitted", "Borrowed", "a/x"),
        ]
    );
    assert_eq!(events[1].preemptor.as_deref(), Some("b/y"));
    assert!(!events[1].message.is_empty());
}

#[test]
fn the_json_has_its_documented_fields() {
    let parts = [node("n0", 4, ""), job("a/x", 3, ""), job("b/y", 4, &notes(&[("at", "1.5s")]))];
    let outcome = outcome(&parts, &Options { until: Some(Duration::from_secs(3600)), ..Options::default() });
    let mut json = serde_json::to_value(&outcome).expect("JSON");
    let message = json["workloads"][1]["message"].take();
    assert!(message.as_str().is_some_and(|message| !message.is_empty()));
    assert!(json["workloads"][0]["message"].take().is_string());
    let fair = json["teams"].as_array_mut().expect("teams").iter_mut().map(|team| team["fairShare"].take());
    assert!(fair.collect::<Vec<_>>().iter().all(serde_json::Value::is_object));
    assert_eq!(
        json,
        serde_json::json!({
            "end": "3600s",
            "workloads": [
                {"kind": "Job", "namespace": "a", "name": "x", "team": "a", "queue": "default", "state": "Running",
                 "submitted": "0s", "admissions": [{"at": "0s", "nodes": {"n0": 3}, "pods": 3, "borrowed": true}],
                 "evictions": [], "reason": "Borrowed", "message": null},
                {"kind": "Job", "namespace": "b", "name": "y", "team": "b", "queue": "train", "state": "Pending",
                 "submitted": "1.5s", "admissions": [], "evictions": [], "reason": "NoRoom", "message": null},
            ],
            "teams": [
                {"name": "a", "pool": "default", "guaranteed": {"nvidia.com/gpu": "2"}, "used": {"nvidia.com/gpu": "3"},
                 "borrowed": {"nvidia.com/gpu": "1"}, "fairShare": null},
                {"name": "b", "pool": "default", "guaranteed": {"nvidia.com/gpu": "2"}, "used": {"nvidia.com/gpu": "0"},
                 "borrowed": {"nvidia.com/gpu": "0"}, "fairShare": null},
            ],
            "nodes": [{"name": "n0", "free": {"nvidia.com/gpu": "1"}}],
            "summary": {"utilization": 0.75, "meanWaitSeconds": 0.0, "evictions": 0, "wastedGpuSeconds": 0.0},
        })
    );
}

#[test]
fn a_waiting_workload_has_an_expected_start() {
    let limit = "sluice.dev/time-limit: \"100s\"";
    let parts = [
        node("n0", 1, ""),
        job("a/limited", 1, &format!("{limit}, {}", sim("duration", "80s"))),
        job("a/second", 1, &format!("{limit}, {}", sim("duration", "80s"))),
        job("a/third", 1, &sim("duration", "10s")),
        job("a/huge", 2, ""),
    ];
    let until = Some(Duration::from_secs(30));
    let outcome = outcome(&parts, &Options { until, ..Options::default() });
    let etas: Vec<Option<String>> =
        outcome.workloads.iter().map(|row| row.eta.map(|eta| eta.to_string())).collect();
    let at = |eta: &str| Some(eta.to_owned());
    assert_eq!(etas, [None, at("100s"), at("200s"), None]);
    let open = [node("n0", 1, ""), job("a/x", 1, &sim("duration", "80s")), job("a/y", 1, "")];
    let outcome = run(&parse(&open).expect("a scenario"), &Options { until, ..Options::default() });
    let eta = outcome.expect("an outcome").workloads[1].eta;
    assert_eq!(eta.map(|eta| eta.to_string()), at("80s"), "only the scenario knows the run length");
}

#[test]
fn an_expected_start_counts_the_grace_period_of_the_pods_that_end_for_it() {
    let slow = job_of("a/x", 4, 1, "", "|      terminationGracePeriodSeconds: 120");
    let parts = [node("n0", 4, ""), slow, job("b/y", 1, &notes(&[("at", "10s")]))];
    for seconds in [10, 20, 60] {
        let until = Some(Duration::from_secs(seconds));
        let stopped = outcome(&parts, &Options { until, ..Options::default() });
        let eta = stopped.workloads[1].eta.map(|eta| eta.to_string());
        assert_eq!(eta.as_deref(), Some("130s"), "at {seconds} s");
    }
    assert_eq!(histories(&outcome(&parts, &Options::default()))[1], "b/y; 130s on n0=1; Running");
}

#[test]
fn earlier_documents_are_older_whatever_their_names() {
    let second = notes(&[("duration", "10s")]);
    let parts = [node("n0", 2, ""), job("a/z", 2, &second), job("a/y", 2, &second), job("a/x", 2, &second)];
    assert_eq!(
        histories(&outcome(&parts, &Options::default())),
        [
            "a/z; 0s on n0=2; Succeeded at 10s",
            "a/y; 10s on n0=2; Succeeded at 20s",
            "a/x; 20s on n0=2; Succeeded at 30s",
        ]
    );
}

#[test]
fn copies_are_ordered_by_their_numbers() {
    let copies = notes(&[("count", "11"), ("duration", "10s")]);
    let parts = [node("n0", 1, ""), job("a/c", 1, &copies)];
    let outcome = outcome(&parts, &Options { until: Some(Duration::from_secs(25)), ..Options::default() });
    let running: Vec<String> =
        outcome.workloads.iter().filter(|row| row.state == State::Running).map(WorkloadRow::label).collect();
    assert_eq!(running, ["a/c-2"]);
}

#[test]
fn workloads_that_run_from_the_start_keep_their_nodes_and_the_newest_is_evicted_first() {
    let on = |node: &str| notes(&[("running-on", node)]);
    let parts = [
        node("n0", 2, ""),
        node("n1", 2, ""),
        job("a/older", 2, &on("n0=1,n1=1")),
        job("a/old", 1, &on("n0")),
        job("a/new", 1, &on("n1")),
        job("b/y", 1, &notes(&[("at", "5s")])),
    ];
    assert_eq!(
        histories(&outcome(&parts, &Options::default())),
        [
            "a/older; 0s on n0=1,n1=1; Running",
            "a/old; 0s on n0=1 borrowed; Running",
            "a/new; 0s on n1=1 borrowed; 5s Reclaimed for b/y; Pending",
            "b/y; 5s on n1=1; Running",
        ]
    );
}

#[test]
fn queue_priority_priority_class_and_suspension_order_workloads() {
    let urgent =
        job("b/urgent", 2, "").replace("annotations:", "labels: {sluice.dev/queue: urgent}, annotations:");
    let held = |at: &str, suspend: bool| {
        job_of("b/held", 1, 1, &notes(&[("at", at), ("duration", "5s")]), &format!("  suspend: {suspend}"))
    };
    let parts = [
        node("n0", 2, ""),
        job("b/first", 2, &notes(&[("duration", "10s")])),
        job_of("b/high", 2, 1, &notes(&[("duration", "10s")]), "|      priorityClassName: high"),
        urgent.replace("annotations: {", &format!("annotations: {{{}, ", notes(&[("duration", "3s")]))),
        held("0s", true),
        held("40s", false),
    ];
    assert_eq!(
        histories(&outcome(&parts, &Options::default())),
        [
            "b/first; 13s on n0=2; Succeeded at 23s",
            "b/high; 3s on n0=2; Succeeded at 13s",
            "b/urgent; 0s on n0=2; Succeeded at 3s",
            "b/held; 40s on n0=1; Succeeded at 45s",
        ]
    );
    let held = outcome(&[node("n0", 2, ""), held("0s", true)], &Options::default());
    assert_eq!((held.workloads[0].state, held.workloads[0].reason.as_str()), (State::Held, "HeldByUser"));
}

#[test]
fn nodes_are_cordoned_and_fail() {
    let parts = [
        node("n0", 1, &notes(&[("cordon-at", "0s")])),
        node("n1", 1, &notes(&[("fail-at", "10s")])),
        "---\napiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: a}\nspec: {containers: [{name: m, image: x, \
         resources: {limits: {nvidia.com/gpu: 1}}}]}\n"
            .to_owned(),
    ];
    let outcome = outcome(&parts, &Options::default());
    assert_eq!(histories(&outcome), ["a/p; 0s on n1=1; 10s NodeLost for ; Failed at 10s"]);
    assert_eq!(outcome.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n0"]);
}

#[test]
fn grace_delays_the_preemptor_and_deletion_frees_capacity() {
    let slow =
        job_of("a/x", 4, 1, &notes(&[("delete-at", "50s")]), "|      terminationGracePeriodSeconds: 7");
    let parts = [node("n0", 4, ""), slow, job("b/y", 1, &notes(&[("at", "10s")]))];
    let outcome = outcome(&parts, &Options::default());
    assert_eq!(
        histories(&outcome),
        ["a/x; 0s on n0=4 borrowed; 10s Reclaimed for b/y; Failed at 50s", "b/y; 17s on n0=1; Running",]
    );
    assert_eq!(outcome.workloads[0].reason, "Deleted");
}

#[test]
fn unmanaged_workloads_use_capacity_of_their_nodes() {
    let other = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n".to_owned();
    let parts = [
        node("n0", 1, ""),
        node("n1", 1, ""),
        other,
        job("other/x", 1, &notes(&[("duration", "10s")])),
        job("a/y", 2, &notes(&[("duration", "5s")])),
        job("other/z", 1, &notes(&[("running-on", "n1"), ("duration", "20s")])),
    ];
    assert_eq!(
        histories(&outcome(&parts, &Options::default())),
        [
            "other/x; 0s on n0=1; Succeeded at 10s",
            "a/y; 20s on n0=1,n1=1; Succeeded at 25s",
            "other/z; 0s on n1=1; Succeeded at 20s",
        ]
    );
}

#[test]
fn a_scenario_is_decided_the_same_way_twice() {
    let mut parts =
        vec![node("n", 4, &notes(&[("count", "2")])), job("a/long", 7, &notes(&[("duration", "90s")]))];
    for index in 0..40_u32 {
        let team = if index % 3 == 0 { "b" } else { "a" };
        let (at, run) = (format!("{}s", index * 7 % 50), format!("{}s", 5 + index * 13 % 40));
        let timing = notes(&[("at", at.as_str()), ("duration", run.as_str())]);
        parts.push(job(&format!("{team}/j{index}"), 1 + index % 4, &timing));
    }
    let options = Options { events: true, ..Options::default() };
    let outcomes = [outcome(&parts, &options), outcome(&parts, &options)];
    let [first, second] = outcomes.map(|outcome| serde_json::to_string(&outcome).expect("JSON"));
    assert_eq!(first, second);
    assert!(first.contains("Reclaimed"), "the scenario is not trivial");
}

#[test]
fn annotations_of_users_apply() {
    let elastic = job(
        "a/elastic",
        4,
        &format!("{}, sluice.dev/min-parallelism: '1'", notes(&[("running-on", "n0=2")])),
    );
    let share = |name: &str| {
        let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: NAME, namespace: a, annotations: \
                   {sluice.dev/gpu-fraction: '0.5', simulate.sluice.dev/running-on: n1}}\nspec: {containers: [{name: m, \
                   image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}\n";
        pod.replace("NAME", name)
    };
    let parts = [node("n0", 2, ""), node("n1", 1, ""), elastic, share("one"), share("two")];
    let outcome = outcome(&parts, &Options { until: Some(Duration::ZERO), ..Options::default() });
    let first = &outcome.workloads[0];
    assert_eq!((first.admissions[0].pods, first.state), (2, State::Running));
    assert_eq!(outcome.nodes[1].free["nvidia.com/gpu"], "0", "two halves fill a GPU");
    assert_eq!(outcome.teams[0].used["nvidia.com/gpu"], "3");
}

#[test]
fn a_simulation_without_an_end_stops_after_the_last_event() {
    let parts =
        [node("n0", 2, ""), job("a/x", 2, ""), job("a/y", 2, ""), job("b/z", 2, &notes(&[("at", "7s")]))];
    assert_eq!(outcome(&parts, &Options::default()).end, Clock::seconds(7));
}

#[test]
fn a_job_without_annotations_is_applied_again() {
    let held = job_of("a/x", 1, 1, "", "  suspend: true");
    let free = job("a/x", 1, &sim("at", "5s"));
    let released = outcome(&[node("n0", 1, ""), held, free.clone()], &Options::default());
    assert_eq!(histories(&released), ["a/x; 5s on n0=1; Running"]);
    // Applying a queued Job again changes nothing.
    let again = outcome(&[node("n0", 1, ""), job("a/x", 1, ""), free], &Options::default());
    assert_eq!(histories(&again), ["a/x; 0s on n0=1; Running"]);
}

#[test]
fn what_is_left_out_when_an_object_is_applied_again_is_removed() {
    let again = |at: &str| sim("at", at);
    let hold = "sluice.dev/hold: 'true'";
    let parts = [
        node("n0", 1, ""),
        job("a/x", 1, hold),
        job("a/x", 1, &again("10s")),
        job("a/x", 1, &format!("{}, {hold}", again("20s"))),
        job_of("a/y", 1, 1, "", "|      nodeSelector: {zone: none}"),
        job("a/y", 1, &format!("{}, {hold}", again("30s"))),
        job("a/y", 1, &again("40s")),
        node("n1", 1, &again("35s")),
    ];
    assert_eq!(
        histories(&outcome(&parts, &Options::default())),
        ["a/x; 10s on n0=1; Running", "a/y; 40s on n1=1; Running"]
    );
    let held = outcome(&parts[..2], &Options::default());
    assert_eq!((held.workloads[0].state, held.workloads[0].reason.as_str()), (State::Held, "OnHold"));
}

#[test]
fn utilization_counts_the_accelerators_in_quotas() {
    let tpus = |parts: [String; 2]| parts.concat().replace("nvidia.com/gpu", "google.com/tpu");
    let text = TEAMS.replace("nvidia.com/gpu", "google.com/tpu")
        + &tpus([node("n0", 4, ""), job("a/x", 3, &notes(&[("duration", "10s")]))])
        + &tpus([job("b/y", 2, &notes(&[("at", "5s"), ("duration", "10s")])), String::new()]);
    let scenario = Scenario::parse([("s.yaml", text.as_str())]).expect("a scenario");
    let played = |options: Options| run(&scenario, &options).expect("an outcome");
    let outcome = played(Options::default());
    assert_eq!(outcome.timeline.resource, "GPUs");
    assert!(outcome.accelerators.contains("google.com/tpu"));
    assert!(outcome.summary.utilization > 0.5 && outcome.summary.wasted_gpu_seconds > 10.0, "{outcome:?}");
    let configured = Accelerators::configured(&["nvidia.com/gpu".to_owned()]);
    let outcome = played(Options { accelerators: configured, ..Options::default() });
    assert_eq!((outcome.timeline.resource.as_str(), outcome.summary.utilization), ("cpu", 0.0));
}

#[test]
fn law_8_an_eviction_that_an_edit_of_the_preemptor_adds_names_the_edit() {
    let slow = "|      terminationGracePeriodSeconds: 30";
    let wants = |at: &str, gpus: u32| job_of("b/y", 1, gpus, &sim("at", at), "");
    let borrowers: String = ["a/u", "a/v", "a/w", "a/x"].map(|name| job_of(name, 1, 1, "", slow)).concat();
    let parts = [node("n0", 4, ""), borrowers, wants("10s", 1), wants("20s", 2)];
    let options = Options { events: true, until: Some(Duration::from_secs(25)), ..Options::default() };
    let events = outcome(&parts, &options).events.expect("the decisions");
    let evictions: Vec<&Decision> = events.iter().filter(|event| event.action == "Evicted").collect();
    let [planned, added] = &evictions[..] else { panic!("{events:?}") };
    let named = "last since a change of b/y.";
    assert!(!planned.message.contains(named) && added.message.ends_with(named), "{evictions:?}");
}
