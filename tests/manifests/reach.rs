//! What webhooks and policies are asked about: labelled namespaces, and never what Sluice itself writes.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice::api::names;

use super::{ASK, CONFINING, CRON_JOB, MEMBERSHIP, QUESTIONS, of_kind, policy};

/// The policy that warns of the deletion of Teams, which are in no namespace.
const TEAM_IN_USE: &str = "sluice-team-in-use";
/// The policy that refuses deletions which name a long grace period, and no others.
const GRACE: &str = "sluice-pod-grace";
/// The webhook that warns about Teams, which are in no namespace.
const TEAMS: &str = "teams.validate.sluice.dev";
/// The webhook that warns about the labels of namespaces.
const NAMESPACES: &str = "namespaces.validate.sluice.dev";
/// The webhook that is asked for verdicts at dry-run.
const VERDICTS: [&str; 2] = ["verdicts.validate.sluice.dev", "verdicts.pods.validate.sluice.dev"];

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
        let name = &binding["metadata"]["name"];
        // Tests of their own say which accounts these leave alone; the last only warns.
        if *name == MEMBERSHIP
            || *name == TEAM_IN_USE
            || CONFINING.iter().chain(&QUESTIONS).any(|other| name == other)
        {
            continue;
        }
        assert_labelled_only(&binding["spec"]["matchResources"]["namespaceSelector"], name);
    }
    for configuration in of_kind(&["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]) {
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            if webhook["name"] == TEAMS {
                assert_eq!(webhook["failurePolicy"], "Ignore", "a Team can be written without Sluice");
            }
            if [ASK, TEAMS, NAMESPACES].iter().any(|name| webhook["name"] == *name) {
                continue;
            }
            let mut selector = webhook["namespaceSelector"].clone();
            if VERDICTS.iter().any(|name| webhook["name"] == *name) {
                let off = selector["matchExpressions"].as_array_mut().and_then(Vec::pop);
                let expected =
                    serde_json::json!({"key": names::VERDICT, "operator": "NotIn", "values": ["off"]});
                assert_eq!(off, Some(expected));
            }
            assert_labelled_only(&selector, &webhook["name"]);
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
        if *name == MEMBERSHIP || CONFINING.iter().chain(&QUESTIONS).any(|other| name == other) {
            continue;
        }
        // This policy is about Sluice's own writes, and only about the owners of their fields.
        if *name == "sluice-job-unowned" {
            assert!(spec["matchConditions"].to_string().contains(&sluice.replace("!=", "==")));
            assert_eq!(spec["failurePolicy"], "Ignore");
            continue;
        }
        let rules = &spec["matchConstraints"]["resourceRules"];
        if operations(rules).contains(&"DELETE".into()) {
            check(&spec["matchConditions"], false, name);
            assert_eq!(spec["failurePolicy"], "Ignore", "{name}");
            if *name == GRACE {
                assert_eq!(actions(name), serde_json::json!(["Deny"]));
                continue;
            }
            assert_eq!(operations(rules).iter().find(|operation| **operation != "DELETE"), None, "{name}");
            assert_eq!(actions(name), serde_json::json!(["Warn"]), "{name} may refuse a deletion");
            continue;
        }
        if *name == CRON_JOB {
            check(&spec["matchConditions"], true, name);
            assert_eq!(
                (&spec["failurePolicy"], actions(name)),
                (&"Ignore".into(), serde_json::json!(["Warn"]))
            );
            continue;
        }
        assert!(
            policy["kind"] == "MutatingAdmissionPolicy" || actions(name) == serde_json::json!(["Deny"]),
            "{name}"
        );
        let updates = operations(rules).contains(&"UPDATE".into());
        let resizes = rules.to_string().contains("pods/resize");
        // Sluice's role does not let it create Jobs, so their creation needs no exception. Conditions would cost every create
        // another conversion of the Job.
        if operations(rules) == ["CREATE"] && rules.to_string().contains("\"jobs\"") {
            assert!(spec["matchConditions"].is_null(), "{name}");
        } else {
            check(&spec["matchConditions"], updates && !resizes, name);
        }
        // Such a request may remove the last finalizer.
        if updates && rules.to_string().contains("\"pods\"") {
            assert_eq!(spec["failurePolicy"], "Ignore", "{name}");
        }
    }
    for configuration in of_kind(&["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]) {
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            if webhook["name"] == ASK {
                continue;
            }
            let operations = operations(&webhook["rules"]);
            // Sluice's role does not let it create Jobs, so their creation needs no exception.
            if operations != ["CREATE"] || !webhook["rules"].to_string().contains("\"jobs\"") {
                let updates = operations.contains(&"UPDATE".into());
                check(&webhook["matchConditions"], updates, &webhook["name"]);
            }
            assert!(!operations.contains(&"DELETE".into()), "{}", webhook["name"]);
            if VERDICTS.iter().any(|name| webhook["name"] == *name) {
                assert_eq!(webhook["failurePolicy"], "Ignore");
                assert_eq!(webhook["matchConditions"][0]["expression"], "request.?dryRun.orValue(false)");
            }
            if webhook["name"] == "pods.update.mutate.sluice.dev" {
                // Only of pods with a twin, only where their class changes, and never in the way.
                assert_eq!(operations, ["UPDATE"]);
                assert_eq!(webhook["failurePolicy"], "Ignore");
                assert_eq!(webhook["objectSelector"]["matchExpressions"][0]["key"], names::TWIN);
                assert!(webhook["matchConditions"].to_string().contains("priorityClassName != oldObject"));
            } else {
                let rules = webhook["rules"].as_array().into_iter().flatten();
                let of_pods = rules.filter(|rule| rule["resources"].to_string().contains("\"pods\""));
                let created = serde_json::json!(["CREATE"]);
                assert!(of_pods.into_iter().all(|rule| rule["operations"] == created), "{}", webhook["name"]);
            }
            assert!(webhook["timeoutSeconds"].as_u64().is_some_and(|seconds| seconds <= 5));
            assert_eq!(webhook["sideEffects"], "None");
        }
    }
}

#[test]
fn the_confining_policies_leave_every_other_account_alone() {
    for name in CONFINING {
        let spec = &policy(name)["spec"];
        let expected = format!("request.userInfo.username == '{}'", names::ACCOUNT);
        assert_eq!(spec["matchConditions"].as_array().map(Vec::len), Some(1), "{name}");
        assert_eq!(spec["matchConditions"][0]["expression"], *expected, "{name}");
        assert_eq!(spec["failurePolicy"], "Fail", "{name}");
    }
    let bindings = of_kind(&["ValidatingAdmissionPolicyBinding"]);
    let binding = bindings.iter().find(|binding| binding["metadata"]["name"] == "sluice-confined");
    let selector =
        serde_json::json!({"matchExpressions": [{"key": names::TEAM, "operator": "DoesNotExist"}]});
    assert_eq!(binding.expect("it is bound")["spec"]["matchResources"]["namespaceSelector"], selector);
}

#[test]
fn only_a_change_of_its_team_or_queue_is_judged_on_a_namespace() {
    let spec = &policy(MEMBERSHIP)["spec"];
    let rules = serde_json::json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"],
        "operations": ["CREATE", "UPDATE"]}]);
    // The subresources status and finalize are not in the rule, nor are deletions.
    assert_eq!(spec["matchConstraints"]["resourceRules"], rules);
    let conditions = spec["matchConditions"].as_array().expect("conditions");
    let names: Vec<&Value> = conditions.iter().map(|condition| &condition["name"]).collect();
    assert_eq!(names, ["membership-changes"]);
    let checks = spec["validations"].to_string();
    assert_eq!(checks.matches("resource('teams')").count(), 2, "the old team and the new");
    assert_eq!(checks.matches("check('use')").count(), 2);
    let example =
        of_kind(&["ClusterRole"]).into_iter().find(|role| role["metadata"]["name"] == "sluice-team-user");
    let rule = &example.expect("the role to bind")["rules"][0];
    assert_eq!((&rule["verbs"][0], &rule["resources"][0]), (&"use".into(), &"teams".into()));
    assert!(rule["resourceNames"].is_array());
}

/// Only a namespace with a key of Sluice is sent, and writing it never depends on Sluice.
#[test]
fn the_warnings_about_namespaces_are_in_the_way_of_none() {
    let configurations = of_kind(&["ValidatingWebhookConfiguration"]);
    let mut webhooks = configurations.iter().flat_map(|one| one["webhooks"].as_array().into_iter().flatten());
    let webhook = webhooks.find(|webhook| webhook["name"] == NAMESPACES).expect("it is registered");
    assert_eq!(webhook["failurePolicy"], "Ignore");
    assert_eq!(webhook["timeoutSeconds"], 1);
    let selector = serde_json::json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", names::NAMESPACE]},
    ]});
    assert_eq!(webhook["namespaceSelector"], selector);
    let rules = serde_json::json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"],
        "operations": ["CREATE", "UPDATE"], "scope": "Cluster"}]);
    assert_eq!(webhook["rules"], rules, "neither subresources nor deletions");
    let conditions = webhook["matchConditions"].as_array().expect("conditions");
    let conditions: Vec<&Value> = conditions.iter().map(|condition| &condition["name"]).collect();
    assert_eq!(conditions, ["not-sluice", "not-deleting", "of-interest", "keys-change"]);
    let keys = webhook["matchConditions"][2]["expression"].as_str().expect("an expression");
    assert_eq!(keys.matches(&format!("key.startsWith('{}')", names::PREFIX)).count(), 2);
}

/// Questions are the only objects that Sluice judges outside of the namespaces of teams. They are never stored, so no
/// other work depends on the answer.
#[test]
fn questions_are_judged_everywhere_and_nothing_else_is() {
    let mut judged = 0;
    let only_questions = |rules: &Value| {
        let [rule] = rules.as_array().map(Vec::as_slice).unwrap_or_default() else { panic!("{rules}") };
        assert_eq!(rule["apiGroups"], serde_json::json!(["sluice.dev"]));
        assert_eq!(rule["resources"], serde_json::json!(["questions", "clusterquestions"]));
    };
    for policy in of_kind(&["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"]) {
        if QUESTIONS.iter().any(|name| policy["metadata"]["name"] == *name) {
            only_questions(&policy["spec"]["matchConstraints"]["resourceRules"]);
            assert_eq!(policy["spec"]["failurePolicy"], "Fail");
            judged += 1;
        }
    }
    let bindings = of_kind(&["MutatingAdmissionPolicyBinding"]);
    let proof = bindings.iter().find(|binding| binding["metadata"]["name"] == "sluice-question-proof");
    let parameter = &proof.expect("it is bound")["spec"]["paramRef"];
    assert_eq!(
        *parameter,
        serde_json::json!({"name": names::PROOF, "namespace": names::NAMESPACE,
        "parameterNotFoundAction": "Deny"})
    );
    for configuration in of_kind(&["MutatingWebhookConfiguration"]) {
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            if webhook["name"] == ASK {
                only_questions(&webhook["rules"]);
                assert_eq!(webhook["failurePolicy"], "Fail", "an unanswered Question is no answer");
                assert_eq!(webhook["sideEffects"], "None", "the API server calls it for dry-runs");
                judged += 1;
            }
        }
    }
    assert_eq!(judged, 3);
}
