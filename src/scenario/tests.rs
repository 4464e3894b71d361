use super::*;

const TEAM: &str = "
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {name: a}
";

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse([("s.yaml", text)])
}

fn error(text: &str) -> String {
    parse(text).expect_err("this scenario is wrong").to_string()
}

fn job(annotations: &str) -> String {
    format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {{name: x, namespace: a, annotations: {annotations}}}\n"
    )
}

fn node(annotations: &str) -> String {
    format!("apiVersion: v1\nkind: Node\nmetadata: {{name: n, annotations: {annotations}}}\n")
}

fn steps(scenario: &Scenario) -> Vec<String> {
    let describe = |step: &Step| {
        let (verb, object) = match &step.change {
            Change::Apply(object) => ("apply", object),
            Change::Delete(object) => ("delete", object),
            Change::Cordon(object) => ("cordon", object),
            Change::Fail(object) => ("fail", object),
        };
        format!("{}s {verb} {} {}", step.at.as_secs(), object.kind, object.name)
    };
    scenario.steps.iter().map(describe).collect()
}

#[test]
fn steps_are_ordered_by_time_then_by_document() {
    let late = job("{simulate.sluice.dev/at: 1m30s, simulate.sluice.dev/delete-at: 2m}");
    let nodes = node("{simulate.sluice.dev/count: '2', simulate.sluice.dev/fail-at: 1m30s}");
    let scenario = parse(&format!("---\n{late}---\n# nothing\n---\n{nodes}---\n{TEAM}")).expect("a scenario");
    assert_eq!(
        steps(&scenario),
        [
            "0s apply Node n-0",
            "0s apply Node n-1",
            "0s apply Team a",
            "90s apply Job x",
            "90s fail Node n-0",
            "90s fail Node n-1",
            "120s delete Job x",
        ]
    );
}

#[test]
fn copies_are_numbered_and_lose_the_scenarios_annotations() {
    let text =
        job("{simulate.sluice.dev/count: '2', simulate.sluice.dev/duration: 1.5s, sluice.dev/pool: a100}");
    let scenario = parse(&text).expect("a scenario");
    let objects: Vec<_> = scenario.objects().collect();
    assert_eq!(objects.len(), 2);
    assert_eq!(objects[1].name, "x-1");
    assert_eq!(objects[1].duration, Some(Duration::from_millis(1500)));
    assert_eq!(
        objects[1].manifest["metadata"],
        serde_json::json!({"name": "x-1", "namespace": "a", "annotations": {"sluice.dev/pool": "a100"}})
    );
}

#[test]
fn a_job_without_namespace_is_in_the_default_one() {
    let scenario = parse("apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\n").expect("a scenario");
    let object = scenario.objects().next().expect("one object");
    assert_eq!(object.namespace.as_deref(), Some("default"));
    assert_eq!(object.manifest["metadata"]["namespace"], "default");
}

#[test]
fn running_on_names_existing_nodes() {
    let nodes = node("{simulate.sluice.dev/count: '2'}");
    let on = |value: &str| {
        format!("{}---\n{nodes}", job(&format!("{{simulate.sluice.dev/running-on: '{value}'}}")))
    };
    let running = |value: &str| {
        let scenario = parse(&on(value)).expect("a scenario");
        scenario.objects().find_map(|object| object.running_on.clone()).expect("it runs")
    };
    assert_eq!(running("n-1"), RunningOn::Node("n-1".to_owned()));
    assert_eq!(
        running("n-0=2, n-1=1"),
        RunningOn::Pods([("n-0".to_owned(), 2), ("n-1".to_owned(), 1)].into())
    );
    for wrong in ["n-7", "n-0,n-1", "n-0=0", "n-0=1,n-0=1", "n-0=x", " "] {
        let error = error(&on(wrong));
        assert!(
            error.starts_with(
                "s.yaml: document 1 (Job a/x): metadata.annotations[simulate.sluice.dev/running-on]: "
            ),
            "{wrong}: {error}"
        );
    }
}

#[test]
fn errors_are_one_line_with_file_document_and_field() {
    let in_job = |annotations: &str| format!("{TEAM}---\n{}", job(annotations));
    let key = "s.yaml: document 2 (Job a/x): metadata.annotations[simulate.sluice.dev/";
    for (text, expected) in [
        (in_job("{simulate.sluice.dev/att: 1s}"), format!("{key}att]: unknown annotation")),
        (in_job("{simulate.sluice.dev/at: soon}"), format!("{key}at]: \"soon\" is not a duration")),
        (in_job("{simulate.sluice.dev/at: -1s}"), format!("{key}at]: \"-1s\" is negative")),
        (in_job("{simulate.sluice.dev/at: 1h-2m}"), format!("{key}at]: \"1h-2m\" is not a duration")),
        (in_job("{simulate.sluice.dev/count: '0'}"), format!("{key}count]: \"0\" is not a number")),
        (in_job("{simulate.sluice.dev/count: 3}"), format!("{key}count]: 3 is not a string; quote it")),
        (in_job("{simulate.sluice.dev/fail-at: 1s}"), format!("{key}fail-at]: does not apply to a Job")),
        (
            in_job("{simulate.sluice.dev/at: 3s, simulate.sluice.dev/delete-at: 2s}"),
            format!("{key}delete-at]: is before the object is applied"),
        ),
        ("kind: Secret\n".to_owned(), "s.yaml: document 1 (Secret): kind: Secret is not supported in a scenario".to_owned()),
        ("kind: Job\n".to_owned(), "s.yaml: document 1 (Job): apiVersion: is missing".to_owned()),
        (
            "apiVersion: v1\nkind: Job\n".to_owned(),
            "s.yaml: document 1 (Job): apiVersion: v1 is not batch/v1".to_owned(),
        ),
        (
            TEAM.replace("v1alpha1", "v1"),
            "s.yaml: document 1 (Team a): apiVersion: sluice.dev/v1 is not sluice.dev/v1alpha1".to_owned(),
        ),
        (
            job("{}").replace("kind: Job", "kind: Jobb"),
            "s.yaml: document 1 (Jobb a/x): kind: Jobb is not supported in a scenario".to_owned(),
        ),
        (": : :".to_owned(), "s.yaml: document 1: line 1, column 1: a key is empty".to_owned()),
        (
            "apiVersion: batch/v1\nkind: Job\nmetadata: {}\n".to_owned(),
            "s.yaml: document 1 (Job): metadata.name: is missing".to_owned(),
        ),
        (
            job("{}").replace("name: x", "name: X_1"),
            "s.yaml: document 1 (Job a/X_1): metadata.name: \"X_1\" must be 1 to 253 characters".to_owned(),
        ),
        (TEAM.replace("name: a", "name: a.b"), "s.yaml: document 1 (Team a.b): metadata.name: \"a.b\" must be".to_owned()),
        (
            in_job("{}") + "---\n" + &job("{}"),
            "s.yaml: document 3 (Job a/x): metadata.name: \"x\" is already applied at 0s by document 2 of s.yaml"
                .to_owned(),
        ),
        (
            format!("{}---\n{}", job("{simulate.sluice.dev/count: '2'}"), job("{}").replace("name: x", "name: x-1")),
            "s.yaml: document 2 (Job a/x-1): metadata.name: \"x-1\" is already applied at 0s by document 1 of".to_owned(),
        ),
        ("# nothing\n---\n".to_owned(), "s.yaml: contains no object".to_owned()),
        ("- 1\n".to_owned(), "s.yaml: document 1: (document): is not an object".to_owned()),
        (format!("{TEAM}---\na: [1\n---\n{TEAM}"), "s.yaml: document 2: ".to_owned()),
        (format!("{TEAM}kind: Team\n"), "s.yaml: document 1 (Team a): line 5, column 1: the key kind is there twice".to_owned()),
    ] {
        let error = error(&text);
        assert!(error.starts_with(&expected), "expected {expected:?}, got {error:?}");
        assert_eq!(error.lines().count(), 1, "{error:?}");
    }
}

/// A List of documents.
fn list(documents: &[&str]) -> String {
    let item = |document: &&str| format!("- {}\n", document.trim().replace('\n', "\n  "));
    let items: String = documents.iter().map(item).collect();
    format!("apiVersion: v1\nkind: List\nmetadata: {{resourceVersion: ''}}\nitems:\n{items}")
}

#[test]
fn each_item_of_a_list_is_an_object() {
    let jobs = job("{simulate.sluice.dev/count: '2'}");
    let text = format!("{}---\n{}", list(&[TEAM, &jobs]), node("{}"));
    assert_eq!(
        steps(&parse(&text).expect("a scenario")),
        ["0s apply Team a", "0s apply Job x-0", "0s apply Job x-1", "0s apply Node n"]
    );
    let plain = job("{}");
    let none = "apiVersion: v1\nkind: List\nitems: []\n";
    for (text, expected) in [
        (
            list(&[TEAM, &job("{simulate.sluice.dev/at: soon}")]),
            "s.yaml: document 1, item 2 (Job a/x): metadata.annotations[simulate.sluice.dev/at]: \"soon\" is not",
        ),
        (
            format!("{TEAM}---\n{}", list(&[&plain, &plain])),
            "s.yaml: document 2, item 2 (Job a/x): metadata.name: \"x\" is already applied at 0s by document 2, item 1 of s.yaml",
        ),
        (list(&["1"]), "s.yaml: document 1, item 1: (document): is not an object"),
        (none.replace("[]", "{}"), "s.yaml: document 1 (List): items: is not a list"),
        (none.replace("items: []", ""), "s.yaml: document 1 (List): items: is missing"),
        (none.replace("v1", "batch/v1"), "s.yaml: document 1 (List): apiVersion: batch/v1 is not v1"),
        (none.to_owned(), "s.yaml: contains no object"),
    ] {
        let error = error(&text);
        assert!(error.starts_with(expected), "expected {expected:?}, got {error:?}");
    }
}

#[test]
fn an_object_may_be_applied_again_later() {
    let later = TEAM.replace("name: a", "name: a, annotations: {simulate.sluice.dev/at: 5s}");
    assert_eq!(
        steps(&parse(&format!("{TEAM}---\n{later}")).expect("a scenario")),
        ["0s apply Team a", "5s apply Team a"]
    );
}

#[test]
fn a_field_of_the_wrong_type_is_named() {
    let text = format!("{}spec: {{parallelism: many}}\n", job("{}"));
    let scenario = parse(&text).expect("a scenario");
    let object = scenario.objects().next().expect("one object");
    let error = object.decode::<k8s_openapi::api::batch::v1::Job>().expect_err("parallelism is a number");
    assert!(
        error.to_string().starts_with(
            "s.yaml: document 1 (Job a/x): spec.parallelism: expected a whole number, not \"many\""
        ),
        "{error}"
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = Scenario::load(&["no/such.yaml"]).expect_err("there is no such file");
    assert!(error.to_string().starts_with("no/such.yaml: "), "{error}");
}

#[test]
fn a_key_that_is_there_twice_is_reported_with_object_and_line() {
    let twice = |line: &str| job("{}").replace("metadata:", &format!("{line}metadata:"));
    assert_eq!(
        error(&format!("{TEAM}---\n{}", twice("spec:\n  parallelism: 1\n  parallelism: 2\n"))),
        "s.yaml: document 2 (Job a/x): line 10, column 3: the key parallelism is there twice"
    );
    let annotations = "{simulate.sluice.dev/at: 1s, simulate.sluice.dev/at: 2s}";
    let said = error(&format!("{TEAM}---\n{}", job(annotations)));
    assert!(
        said.starts_with("s.yaml: document 2 (Job a/x): line 8, column ")
            && said.ends_with(": the key simulate.sluice.dev/at is there twice"),
        "{said}"
    );
    let nameless = error("kind: Job\nkind: Job\n");
    assert_eq!(nameless, "s.yaml: document 1 (Job): line 2, column 1: the key kind is there twice");
}
