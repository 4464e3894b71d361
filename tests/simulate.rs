//! The command `sluice simulate`.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

const SCENARIO: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: a, labels: {sluice.dev/team: a}}
---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {name: a}
spec: {quotas: [{guaranteed: {nvidia.com/gpu: 2}}]}
---
apiVersion: v1
kind: Node
metadata: {name: n0}
status: {allocatable: {nvidia.com/gpu: 2}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: x, namespace: a, annotations: {simulate.sluice.dev/count: '2', simulate.sluice.dev/duration: 2h}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 2}}}]}}}
";

fn simulate(directory: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.current_dir(directory).arg("simulate").args(arguments).output().expect("sluice runs")
}

fn with(text: &str) -> TempDir {
    let directory = TempDir::new().expect("a scratch directory");
    let mut file = std::fs::File::create(directory.path().join("s.yaml")).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    directory
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn the_outcome_is_printed_as_json_yaml_and_tables() {
    let directory = with(SCENARIO);
    let json = simulate(&directory, &["s.yaml", "-o", "json", "--events"]);
    assert!(json.status.success(), "{}", text(&json.stderr));
    let outcome: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(outcome["end"], "14400s");
    assert_eq!(outcome["workloads"][1]["admissions"][0]["at"], "7200s");
    assert_eq!(outcome["events"].as_array().map(Vec::len), Some(2));
    let yaml = simulate(&directory, &["s.yaml", "-o", "yaml", "--events"]);
    let same: serde_json::Value = serde_saphyr::from_str(&text(&yaml.stdout)).expect("YAML");
    assert_eq!(same, outcome);
    let table = text(&simulate(&directory, &["s.yaml", "--until", "1h"]).stdout);
    for part in [
        "a/x-0",
        "Running",
        "a/x-1",
        "Pending",
        "1h simulated: 1 running, 1 waiting. GPU utilization 100.0 %. Wait: mean 30m, longest 1h.",
    ] {
        assert!(table.contains(part), "{part} is missing:\n{table}");
    }
}

/// The sentence on a workload at the end of a scenario of these quotas of teams a and b, of one node, and of these Jobs.
fn said(name: &str, node: &str, quotas: [&str; 2], jobs: &[(&str, &str, &str)]) -> String {
    let mut scenario =
        format!("apiVersion: v1\nkind: Node\nmetadata: {{name: n0}}\nstatus: {{allocatable: {{{node}}}}}\n");
    for (team, guaranteed) in ["a", "b"].into_iter().zip(quotas) {
        scenario += &format!(
            "---
apiVersion: v1
kind: Namespace
metadata: {{name: {team}, labels: {{sluice.dev/team: {team}}}}}
---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {{name: {team}}}
spec: {{quotas: [{{guaranteed: {{{guaranteed}}}}}]}}
"
        );
    }
    for (at, (namespace, name, limits)) in jobs.iter().enumerate() {
        scenario += &format!(
            "---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: {namespace}, annotations: {{simulate.sluice.dev/at: {at}s}}}}
spec: {{template: {{spec: {{restartPolicy: Never, containers: [{{name: main, image: x, resources: {{limits: {{{limits}}}}}}}]}}}}}}
"
        );
    }
    let output = simulate(&with(&scenario), &["s.yaml", "-o", "json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let outcome: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut workloads = outcome["workloads"].as_array().into_iter().flatten();
    let found = workloads.find(|workload| workload["name"] == name).expect("it is there");
    found["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_reservation_without_nodes_and_with_its_quota_waits_for_that_of_another_team() {
    let one = "nvidia.com/gpu: 1";
    let all = "nvidia.com/gpu: 3";
    let jobs = [("b", "small", one), ("b", "first", all), ("a", "then", all)];
    let message = said("then", all, [one, one], &jobs);
    let waits = "It gets a reservation of nodes once a workload of another team that has one has started.";
    assert!(message.ends_with(waits) && !message.contains("quota"), "{message}");
}

#[test]
fn two_kinds_of_gpu_in_one_sentence_have_their_names() {
    let both = "nvidia.com/gpu: 1, amd.com/gpu: 1";
    let quotas = ["nvidia.com/gpu: 2, amd.com/gpu: 0", "nvidia.com/gpu: 0, amd.com/gpu: 2"];
    let node = "nvidia.com/gpu: 2, amd.com/gpu: 2";
    let message = said("x", node, quotas, &[("a", "x", both), ("b", "y", "amd.com/gpu: 2")]);
    for part in ["1 nvidia.com/gpu", "1 amd.com/gpu", "2 nvidia.com/gpu", "0 amd.com/gpu"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_report_is_written_besides_the_outcome() {
    let directory = with(SCENARIO);
    let output = simulate(&directory, &["s.yaml", "--report", "r.html"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(directory.path().join("r.html")).expect("the report");
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("</svg>"), "{page}");
}

#[test]
fn a_report_that_cannot_be_written_is_said_before_the_play() {
    let directory = with(SCENARIO);
    let output = simulate(&directory, &["s.yaml", "--report", "no/such/r.html"]);
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.starts_with("sluice: --report no/such/r.html: "), "{error}");
    assert!(output.stdout.is_empty());
    // What fails only after the play takes nothing from the outcome.
    let output = simulate(&directory, &["s.yaml", "--report", "/dev/full"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("sluice: --report /dev/full: "), "{error}");
    assert!(text(&output.stdout).contains("4h simulated: 2 succeeded."));
}

#[test]
fn a_report_stays_as_it_was_if_the_play_fails() {
    let directory = with(&SCENARIO.replace("spec: {quotas", "spec: {parent: none, quotas"));
    let path = directory.path().join("r.html");
    assert_eq!(simulate(&directory, &["s.yaml", "--report", "r.html"]).status.code(), Some(2));
    assert!(!path.exists(), "there was none before");
    let before = "x".repeat(1 << 20);
    std::fs::write(&path, &before).expect("written");
    assert_eq!(simulate(&directory, &["s.yaml", "--report", "r.html"]).status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), before);
    std::fs::write(directory.path().join("s.yaml"), SCENARIO).expect("written");
    assert!(simulate(&directory, &["s.yaml", "--report", "r.html"]).status.success());
    let page = std::fs::read_to_string(&path).expect("the report");
    assert!(page.trim_end().ends_with("</html>"), "nothing of the older one is left");
}

#[test]
fn standard_input_is_named_once() {
    let directory = with(SCENARIO);
    for arguments in [["-", "-"].as_slice(), &["--snapshot", "-", "-"]] {
        let output = simulate(&directory, arguments);
        assert_eq!(text(&output.stderr), "sluice: -: standard input is named twice\n");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn a_scenario_without_gpus_has_no_figures_of_gpus() {
    let output = simulate(&with(&SCENARIO.replace("nvidia.com/gpu", "cpu")), &["s.yaml"]);
    let said = text(&output.stdout);
    assert!(said.contains("CPU utilization") && said.trim_end().ends_with("No evictions."), "{said}");
}

#[test]
fn a_misspelt_label_of_a_namespace_is_a_warning() {
    let output = simulate(
        &with(&SCENARIO.replace("labels: {sluice.dev/team: a}", "labels: {sluice.dev/teem: a}")),
        &["s.yaml"],
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stderr),
        "sluice: warning: s.yaml: document 1 (Namespace a): label sluice.dev/teem has no effect: there is no such label of a namespace\n"
    );
}

#[test]
fn annotations_without_effect_are_warnings() {
    let misspelt = SCENARIO.replace(
        "simulate.sluice.dev/count",
        "sluice.dev/pol: x, sluice.dev/queue: x, simulate.sluice.dev/count",
    );
    let output = simulate(&with(&misspelt), &["s.yaml", "-o", "json"]);
    assert!(output.status.success() && output.stdout.starts_with(b"{"));
    let warned = text(&output.stderr);
    let place = "sluice: warning: s.yaml: document 4 (Job a/x): annotation sluice.dev";
    let lines = [
        format!("{place}/pol has no effect: there is no such annotation"),
        format!("{place}/queue has no effect: it must be a label"),
    ];
    assert_eq!(warned.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn several_files_are_one_scenario() {
    let (setting, jobs) = SCENARIO.split_at(SCENARIO.rfind("---").expect("a separator"));
    let directory = with(setting);
    std::fs::write(directory.path().join("jobs.yaml"), jobs).expect("written");
    let together = simulate(&directory, &["s.yaml", "jobs.yaml"]);
    assert!(text(&together.stdout).contains("4h simulated: 2 succeeded."), "{}", text(&together.stderr));
    let twice = simulate(&directory, &["s.yaml", "jobs.yaml", "s.yaml"]);
    let error = text(&twice.stderr);
    assert!(
        error.starts_with(
            "sluice: s.yaml: document 1 (Namespace a): metadata.name: \"a\" is already applied at 0s by document 1"
        ),
        "{error}"
    );
}

#[test]
fn a_scenario_is_read_from_standard_input() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(["simulate", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut sluice = command.spawn().expect("sluice runs");
    sluice.stdin.take().expect("its input").write_all(SCENARIO.as_bytes()).expect("written");
    let output = sluice.wait_with_output().expect("sluice ends");
    assert!(text(&output.stdout).contains("4h simulated: 2 succeeded."));
}

#[test]
fn bad_input_is_one_line_and_exit_code_2() {
    let directory = with(&SCENARIO.replace("kind: Job", "kind: Jobb"));
    std::fs::write(directory.path().join("empty.yaml"), "# nothing\n").expect("written");
    for (arguments, line) in [
        (&["s.yaml"][..], "sluice: s.yaml: document 4 (Jobb a/x): kind: "),
        (&["none.yaml"][..], "sluice: none.yaml: "),
        (&["empty.yaml"][..], "sluice: empty.yaml: contains no object"),
        (&["--snapshot", "none.yaml"][..], "sluice: none.yaml: "),
        (&["--snapshot", "empty.yaml"][..], "sluice: empty.yaml: contains no object"),
    ] {
        let output = simulate(&directory, arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with(line), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(output.stdout.is_empty());
    }
    let directory = with(&SCENARIO.replace("spec: {quotas", "spec: {parent: none, quotas"));
    let output = simulate(&directory, &["s.yaml"]);
    assert_eq!(output.status.code(), Some(2));
    let line = "sluice: s.yaml: document 2 (Team a): spec.parent: there is no Team \"none\"\n";
    assert_eq!(text(&output.stderr), line);
    for arguments in [&[][..], &["s.yaml", "--until", "soon"][..], &["s.yaml", "--output", "xml"][..]] {
        assert_eq!(simulate(&directory, arguments).status.code(), Some(2));
    }
}
