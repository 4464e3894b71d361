//! Checks that manifests and policies match the program and affect labelled namespaces only.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice::api::names;

/// All objects of the YAML files under `manifests/` and `policies/`.
fn objects() -> Vec<(PathBuf, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("manifests"), root.join("policies")];
    let mut objects = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = std::fs::read_to_string(&path).expect("the file can be read");
                let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                objects.extend(documents.into_iter().map(|object| (path.clone(), object)));
            }
        }
    }
    objects
}

fn of_kind(kinds: &[&str]) -> Vec<Value> {
    let found: Vec<Value> = objects()
        .into_iter()
        .map(|(_, object)| object)
        .filter(|o| kinds.iter().any(|kind| o["kind"] == *kind))
        .collect();
    assert!(!found.is_empty(), "no {kinds:?}");
    found
}

/// Asserts that the selector matches labelled namespaces only, and never the system's own.
fn assert_labelled_only(selector: &Value, what: &Value) {
    let wanted = serde_json::json!({"matchExpressions": [
        {"key": names::TEAM, "operator": "Exists"},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", names::NAMESPACE]},
    ]});
    assert_eq!(*selector, wanted, "{what}");
}

#[test]
fn webhooks_and_policies_apply_to_labelled_namespaces_only() {
    for binding in of_kind(&["ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding"]) {
        assert_labelled_only(
            &binding["spec"]["matchResources"]["namespaceSelector"],
            &binding["metadata"]["name"],
        );
    }
    for configuration in of_kind(&["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]) {
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            assert_labelled_only(&webhook["namespaceSelector"], &webhook["name"]);
        }
    }
}

#[test]
fn every_policy_is_bound_once_by_its_own_name() {
    for kind in ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"] {
        let name = |object: &Value| object["metadata"]["name"].as_str().map(ToOwned::to_owned);
        let policies: BTreeSet<_> = of_kind(&[kind]).iter().map(name).collect();
        let bindings = of_kind(&[&format!("{kind}Binding")]);
        let bound: BTreeSet<_> = bindings
            .iter()
            .map(|binding| binding["spec"]["policyName"].as_str().map(ToOwned::to_owned))
            .collect();
        assert_eq!(policies, bound, "{kind}");
        assert_eq!(policies.len(), bindings.len(), "{kind}");
    }
}

#[test]
fn webhooks_and_policies_exempt_sluice_itself_and_deletions() {
    let sluice = format!("request.userInfo.username != '{}'", names::ACCOUNT);
    let check = |conditions: &Value, deletes: bool, what: &Value| {
        let text = conditions.to_string();
        assert!(text.contains(&sluice), "{what} applies to Sluice itself");
        assert!(
            !deletes || text.contains("!has(object.metadata.deletionTimestamp)"),
            "{what} applies to deletions"
        );
    };
    let operations = |rules: &Value| -> Vec<Value> {
        rules
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|rule| rule["operations"].as_array().cloned().unwrap_or_default())
            .collect()
    };
    let bindings = of_kind(&["ValidatingAdmissionPolicyBinding"]);
    let actions = |policy: &Value| -> Value {
        let binding = bindings.iter().find(|binding| binding["spec"]["policyName"] == *policy);
        binding.map(|binding| binding["spec"]["validationActions"].clone()).unwrap_or_default()
    };
    for policy in of_kind(&["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"]) {
        let (spec, name) = (&policy["spec"], &policy["metadata"]["name"]);
        // This policy is about Sluice's own writes, and only about the owners of their fields.
        if *name == "sluice-job-unowned" {
            assert!(spec["matchConditions"].to_string().contains(&sluice.replace("!=", "==")));
            assert_eq!(spec["failurePolicy"], "Ignore");
            continue;
        }
        let rules = &spec["matchConstraints"]["resourceRules"];
        if operations(rules).contains(&"DELETE".into()) {
            check(&spec["matchConditions"], false, name);
            assert_eq!(operations(rules).iter().find(|operation| **operation != "DELETE"), None, "{name}");
            assert_eq!(spec["failurePolicy"], "Ignore", "{name}");
            assert_eq!(actions(name), serde_json::json!(["Warn"]), "{name} may refuse a deletion");
            continue;
        }
        assert!(
            policy["kind"] == "MutatingAdmissionPolicy" || actions(name) == serde_json::json!(["Deny"]),
            "{name}"
        );
        let updates = operations(rules).contains(&"UPDATE".into());
        let resizes = rules.to_string().contains("pods/resize");
        check(&spec["matchConditions"], updates && !resizes, name);
        // Such a request may remove the last finalizer.
        if updates && rules.to_string().contains("\"pods\"") {
            assert_eq!(spec["failurePolicy"], "Ignore", "{name}");
        }
    }
    for configuration in of_kind(&["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]) {
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            let operations = operations(&webhook["rules"]);
            // Sluice's role does not let it create Jobs, so their creation needs no exception.
            if operations != ["CREATE"] || !webhook["rules"].to_string().contains("\"jobs\"") {
                let updates = operations.contains(&"UPDATE".into());
                check(&webhook["matchConditions"], updates, &webhook["name"]);
            }
            assert!(!operations.contains(&"DELETE".into()), "{}", webhook["name"]);
            if webhook["rules"].to_string().contains("\"pods\"") {
                assert_eq!(operations, ["CREATE"], "{}", webhook["name"]);
            }
            assert!(webhook["timeoutSeconds"].as_u64().is_some_and(|seconds| seconds <= 5));
            assert_eq!(webhook["sideEffects"], "None");
        }
    }
}

#[test]
fn the_policies_guard_every_mark() {
    let text: String = of_kind(&["ValidatingAdmissionPolicy"]).iter().map(Value::to_string).collect();
    for mark in names::OWN_ANNOTATIONS.iter().chain([&names::TEAM, &names::GATE_ADMISSION]) {
        assert!(text.contains(&format!("'{mark}'")), "no policy guards {mark}");
    }
}

#[test]
fn manifests_use_the_names_and_account_of_the_program() {
    for configuration in of_kind(&["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]) {
        assert_eq!(configuration["metadata"]["name"], names::NAME);
    }
    let accounts = of_kind(&["ServiceAccount"]);
    let users: Vec<String> = accounts
        .iter()
        .map(|account| {
            let part = |key: &str| account["metadata"][key].as_str().unwrap_or_default().to_owned();
            format!("system:serviceaccount:{}:{}", part("namespace"), part("name"))
        })
        .collect();
    assert_eq!(users, [names::ACCOUNT]);
}

#[test]
fn the_program_accepts_the_example_teams() {
    for team in of_kind(&["Team"]) {
        let team: sluice::api::team::Team = serde_json::from_value(team).expect("the example is a Team");
        sluice::engine::types::Team::try_from(&team).expect("the example is accepted");
    }
}

/// An account that does not exist yet could be made by any user that may edit its namespace.
#[test]
fn operators_are_bound_one_by_one_and_by_choice() {
    for (path, binding) in objects() {
        let chosen = path.parent().is_some_and(|folder| folder.ends_with("manifests/operators"));
        let is_binding = binding["kind"] == "ClusterRoleBinding" || binding["kind"] == "RoleBinding";
        let of_operator = is_binding && binding["roleRef"]["name"] == "sluice-operator";
        assert_eq!(of_operator, chosen && is_binding, "{}", path.display());
        let accounts = binding["subjects"].as_array().into_iter().flatten();
        for account in accounts.filter(|_| of_operator) {
            assert!(account["namespace"] != "default", "{}: {account}", path.display());
        }
    }
    for folder in ["manifests", "manifests/without-mutating-policy"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("kustomization.yaml");
        let text = std::fs::read_to_string(path).expect("the kustomization can be read");
        assert!(!text.contains("operators"), "{folder} binds operators");
    }
}

/// The policies ask for the right in the whole cluster, so that no Role of a namespace gives it.
#[test]
fn the_right_of_operators_is_asked_for_in_the_whole_cluster() {
    let policies = of_kind(&["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"]);
    let text: String = policies.iter().map(Value::to_string).collect();
    let right = "authorizer.group('sluice.dev').resource('children')";
    assert!(text.contains(right));
    assert_eq!(text.matches(right).count(), text.matches(&format!("{right}.check('create')")).count());
}
