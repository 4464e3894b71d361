//! The built-in table, malformed tables, and the generated manifests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::policies::{Part, exempting, operators_yaml, yaml, yaml_for};
use super::*;

fn entry(name: &str) -> Arc<Kind> {
    let kinds = Kinds::default();
    let found = kinds.entries().find(|kind| kind.kind == name).cloned();
    found.unwrap_or_else(|| panic!("{name} is not in the table"))
}

#[test]
fn a_sign_is_a_condition_or_a_field() {
    let set = entry("JobSet");
    let with =
        |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
    assert!(set.has_finished(&with("Completed", "True")) && set.has_finished(&with("Failed", "True")));
    assert!(!set.has_finished(&with("Completed", "False")) && !set.has_finished(&json!({})));
    assert!(set.has_stopped(&with("Suspended", "True")) && !set.has_stopped(&with("Suspended", "False")));
    let ray = entry("RayJob");
    assert!(ray.has_finished(&json!({"status": {"jobDeploymentStatus": "Complete"}})));
    assert!(!ray.has_finished(&json!({"status": {"jobDeploymentStatus": "Running"}})));
}

/// A table with one kind, with one part of its text replaced.
fn table(from: &str, to: &str) -> String {
    let text = "kinds:
- apiVersion: example.com/v1
  kind: Sweep
  plural: sweeps
  suspend: /spec/suspend
  roles: [{each: /spec/groups, template: /template, pods: [{at: /count}]}]
  placement: affinity
  finished: [{condition: Done}]
  stopped: [{field: /status/phase, values: [Held]}]
";
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn a_new_kind_is_one_entry_and_a_mistake_gives_one_line() {
    let kinds = Kinds::parse(&table("Sweep", "Sweep"), "t.yaml").expect("it is a table");
    assert!(kinds.find("example.com", "Sweep").is_some() && kinds.find("example.com", "JobSet").is_none());
    for (from, to, expected) in [
        (
            "suspend: /spec/suspend",
            "suspend: spec",
            "t.yaml: Sweep: field suspend: \"spec\" is not a JSON pointer",
        ),
        (
            "suspend: /spec/suspend",
            "suspend: /spec/0",
            "Sweep: field suspend: /spec/0 does not lead to a field",
        ),
        ("  plural: sweeps\n", "", "Sweep: field plural: is missing"),
        ("plural: sweeps", "plural: Sweeps", "Sweep: field plural: \"Sweeps\" must be in lower case"),
        ("example.com/v1", "v1", "Sweep: field apiVersion: \"v1\" is not GROUP/VERSION"),
        ("{at: /count}", "{at: count}", "Sweep: field roles[0].pods[0].at: \"count\" is not a JSON pointer"),
        ("{at: /count}", "{from: /count}", "Sweep: field roles[0].pods[0].from: unknown field `from`"),
        ("template: /template", "at: /spec/x", "Sweep: field roles[0].at: exactly one of `at` and `each`"),
        ("template: /template", "resources: /r", "Sweep: field roles[0].resources: without a template"),
        ("[{condition: Done}]", "[]", "Sweep: field finished: at least one is needed"),
        ("condition: Done", "values: [x]", "Sweep: field finished[0]: either a `condition`, or a `field`"),
        (
            "placement: affinity",
            "placement: magic",
            "Sweep: field placement: \"magic\" is none of affinity, annotation, entry",
        ),
        (
            "placement: affinity",
            "placement: affinity\n  operators: [me]",
            "Sweep: field operators[0]: \"me\" is not",
        ),
        (
            "template: /template",
            "template: /0",
            "Sweep: field roles[0].template: /0 does not lead to a field",
        ),
        (
            "placement: affinity",
            "placement: affinity\n  elastic: [/a/-]",
            "Sweep: field elastic[0]: /a/- does not lead to a field",
        ),
        ("kind: Sweep", "kind: 3", "kinds[0]: field kind: expected a text, not 3"),
        ("kinds:", "sorts:", "t.yaml: unknown field \"sorts\""),
        ("kinds:", "kinds: 3 #", "t.yaml: "),
        ("kinds:", "kinds: []\n---\nkinds:", "t.yaml: has 2 documents, and a table of kinds is one"),
    ] {
        let error = Kinds::parse(&table(from, to), "t.yaml").expect_err(to).to_string();
        assert!(error.contains(expected) && !error.trim().contains('\n'), "{to}: {error}");
    }
    let twice = format!("{}{}", table("x", "x"), table("kinds:\n", ""));
    let error = Kinds::parse(&twice, "t.yaml").expect_err("twice").to_string();
    assert_eq!(error, "t.yaml: Sweep: field kind: the table lists it twice");
    let error = Kinds::load(Some(Path::new("/nowhere/kinds.yaml"))).expect_err("there is none").to_string();
    assert!(error.starts_with("/nowhere/kinds.yaml: "), "{error}");
}

/// Compares a file with its generated text, or writes it if `UPDATE_MANIFESTS` is set.
fn assert_generated(file: &str, generated: &str, command: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("UPDATE_MANIFESTS").is_some() {
        std::fs::write(&path, generated).expect("the manifest can be written");
    }
    let written = std::fs::read_to_string(path).expect("the manifest can be read");
    assert!(written == generated, "{file} is stale: regenerate it with `{command}`");
}

#[test]
fn the_manifests_match_the_table() {
    let kinds = Kinds::default();
    for (part, file, name) in [
        (Part::Mutating, "policies/mutating/kinds.yaml", "mutating"),
        (Part::Validating, "policies/validating/kinds.yaml", "validating"),
        (Part::Rights, "manifests/base/kinds.yaml", "rights"),
    ] {
        let generated = yaml(&kinds, part).expect("the objects serialize");
        assert_generated(file, &generated, &format!("sluice kinds --part {name} > {file}"));
    }
    for kind in kinds.entries() {
        let file = format!("manifests/operators/{}.yaml", kind.plural);
        let generated = operators_yaml(&kinds, &kind.kind).expect("a kind").expect("the object serializes");
        assert_generated(&file, &generated, &format!("sluice kinds --kind {} > {file}", kind.kind));
    }
    for name in ["jobs", "pods"] {
        for folder in ["mutating", "validating"] {
            let file = format!("policies/{folder}/{name}.yaml");
            let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&file));
            let generated = exempting(&kinds, &text.expect("the policies can be read"));
            assert_generated(&file, &generated, "UPDATE_MANIFESTS=1 cargo test the_manifests_match");
        }
    }
}

#[test]
fn operators_are_exempt_for_their_own_kind_alone() {
    let owner = |api: &str, kind: &str| OwnerReference {
        api_version: api.to_owned(),
        kind: kind.to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let (ray, sets) = (
        "system:serviceaccount:kuberay-system:kuberay-operator",
        "system:serviceaccount:jobset-system:jobset-controller-manager",
    );
    let kinds = Kinds::default();
    for (api, kind, account, exempt) in [
        ("ray.io/v1", "RayJob", ray, true),
        ("ray.io/v1alpha1", "RayCluster", ray, true),
        ("ray.io/v1", "RayService", ray, false),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", ray, false),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", sets, true),
        ("example.com/v1", "JobSet", sets, false),
        ("v1", "ConfigMap", sets, false),
        ("ray.io/v1", "RayJob", "system:serviceaccount:default:kuberay-operator", false),
    ] {
        assert_eq!(kinds.is_operator_of(&owner(api, kind), account), exempt, "{kind} of {api} by {account}");
    }

    // The policies of Jobs and Pods follow another table.
    let table = Kinds::parse(
        &table("placement: affinity", "placement: affinity\n  operators: ['system:serviceaccount:x:y']"),
        "t.yaml",
    );
    let text = yaml(&table.expect("it is a table"), Part::Exemptions).expect("it is text");
    assert_eq!(text.matches("request.userInfo.username in ['system:serviceaccount:x:y']").count(), 6);
    assert_eq!(text.matches("o.kind == 'Sweep' && o.apiVersion.startsWith('example.com/')").count(), 7);
    assert!(
        !text.contains("RayJob") && !text.contains("kuberay"),
        "the accounts of the built-in table are left"
    );
    let none = exempting(&Kinds::parse("kinds: []", "t.yaml").expect("it is a table"), &text);
    assert!(!none.contains("Sweep") && none.contains("\n      false\n"), "{none}");
}

#[test]
fn the_webhook_configurations_list_every_kind() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/webhooks/webhooks.yaml");
    let text = std::fs::read_to_string(path).expect("the manifest can be read");
    let configurations: Vec<Value> = serde_saphyr::from_multiple(&text).expect("it is YAML");
    let expected: Vec<(String, String, String)> = Kinds::default()
        .entries()
        .map(|kind| {
            let (group, version) = kind.api_version.split_once('/').expect("a group and a version");
            (group.to_owned(), version.to_owned(), kind.plural.clone())
        })
        .collect();
    let mut found = 0;
    for webhook in configurations.iter().flat_map(|one| one["webhooks"].as_array().into_iter().flatten()) {
        if !webhook["name"].as_str().is_some_and(|name| name.starts_with("kinds.")) {
            continue;
        }
        let first = |rule: &Value, field: &str| rule[field][0].as_str().unwrap_or_default().to_owned();
        let rules = webhook["rules"].as_array().into_iter().flatten();
        let listed: Vec<_> = rules
            .map(|rule| (first(rule, "apiGroups"), first(rule, "apiVersions"), first(rule, "resources")))
            .collect();
        assert_eq!(listed, expected, "{}", webhook["name"]);
        found += 1;
    }
    assert_eq!(found, 2, "one mutating and one validating webhook");
}

#[test]
fn an_annotation_names_nodes() {
    assert_eq!(nodes_of("n1, n2,").collect::<Vec<_>>(), ["n1", "n2"]);
    let kept = BTreeMap::new();
    assert!(unplace(&entry("JobSet"), &json!({"spec": {}}), &[], &kept).is_empty());
}

/// The webhooks of custom kinds by configuration, with all but their names and the rules of Jobs.
fn webhooks_of_kinds(text: &str) -> BTreeMap<String, Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).expect("it is YAML");
    let of = |document: &Value| {
        let webhooks = document["webhooks"].as_array().cloned().unwrap_or_default().into_iter();
        let webhooks = webhooks.filter_map(|mut webhook| {
            let name = webhook.as_object_mut()?.remove("name")?;
            let rules = webhook["rules"].as_array_mut()?;
            rules.retain(|rule| rule["apiGroups"] != json!(["batch"]));
            (name.as_str()?.contains("kinds.") || name == "verdicts.validate.sluice.dev").then_some(webhook)
        });
        webhooks.collect()
    };
    documents.iter().map(|document| (document["kind"].to_string(), of(document))).collect()
}

#[test]
fn webhook_configurations_of_kinds_alone_are_as_the_parts_of_those_of_sluice() {
    let kinds = Kinds::default();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/webhooks/webhooks.yaml");
    let all = webhooks_of_kinds(&std::fs::read_to_string(path).expect("the file can be read"));
    let printed = yaml(&kinds, Part::Webhooks).expect("the objects serialize");
    assert_eq!(webhooks_of_kinds(&printed), all);
    assert_eq!(all.values().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(printed.matches("  name: sluice-kinds\n").count(), 2, "{printed}");

    let one = yaml_for(&kinds, Part::Webhooks, |kind| kind.kind == "RayJob").expect("the objects serialize");
    assert!(one.contains("rayjobs") && !one.contains("jobsets"), "{one}");
    let none = yaml_for(&kinds, Part::Webhooks, |_| false).expect("the objects serialize");
    assert!(!none.contains("kind:"), "{none}");
}
