//! Checks that manifests and policies match the program and affect labelled namespaces only.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice::api::names;

/// The policies that judge the writes of Sluice, and no others.
const CONFINING: [&str; 3] = ["sluice-confined", "sluice-confined-images", "sluice-confined-names"];
/// The policy that judges which account moves a namespace to a team.
const MEMBERSHIP: &str = "sluice-namespace-team";
/// The policies of Questions, which may be asked in every namespace.
const QUESTIONS: [&str; 2] = ["sluice-question", "sluice-question-proof"];
/// The policy that warns of the deletion of Teams, which are in no namespace.
const TEAM_IN_USE: &str = "sluice-team-in-use";
/// The policy that refuses deletions which name a long grace period, and no others.
const GRACE: &str = "sluice-pod-grace";
/// The policy that warns of keys without effect in CronJobs.
const CRON_JOB: &str = "sluice-cron-job";
/// The webhook that answers Questions.
const ASK: &str = "questions.mutate.sluice.dev";
/// The webhook that warns about Teams, which are in no namespace.
const TEAMS: &str = "teams.validate.sluice.dev";
/// The webhook that warns about the labels of namespaces.
const NAMESPACES: &str = "namespaces.validate.sluice.dev";
/// The webhook that is asked for verdicts at dry-run.
const VERDICTS: [&str; 2] = ["verdicts.validate.sluice.dev", "verdicts.pods.validate.sluice.dev"];

/// All objects of the YAML files under `manifests/` and `policies/`.
fn objects() -> Vec<(PathBuf, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("manifests"), root.join("policies")];
    let mut objects = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be listed").path();
            // The chart's templates are no YAML, and it reads the same files; its own test compares.
            if path.is_dir() {
                folders.extend((!path.ends_with("manifests/chart")).then_some(path));
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

fn policy(name: &str) -> Value {
    let mut policies = of_kind(&["ValidatingAdmissionPolicy"]).into_iter();
    policies.find(|policy| policy["metadata"]["name"] == name).unwrap_or_else(|| panic!("no policy {name}"))
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
fn sluice_is_confined_for_every_kind_that_it_writes() {
    let rules = policy("sluice-confined")["spec"]["matchConstraints"]["resourceRules"].clone();
    let strings = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned).collect()
    };
    let judged = |group: &str, resource: &str| {
        rules.as_array().into_iter().flatten().any(|rule| {
            let resources = strings(&rule["resources"]);
            strings(&rule["apiGroups"]).iter().any(|other| other == group)
                && resources
                    .iter()
                    .any(|other| other == resource || (other == "*" && !resource.contains('/')))
                && strings(&rule["operations"]).len() == 3
        })
    };
    // Not in the namespace of a workload, or no harm to it.
    let elsewhere = ["events", "leases", "secrets", "priorityclasses", "teams/status", "nodepools/status"];
    let configurations = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"];
    let mut count = 0;
    for role in roles_of_sluice() {
        for rule in role["rules"].as_array().into_iter().flatten() {
            let writes = strings(&rule["verbs"]).iter().any(|v| !["get", "list", "watch"].contains(&&**v));
            for resource in strings(&rule["resources"]).iter().filter(|_| writes) {
                if elsewhere.contains(&&**resource) || configurations.contains(&&**resource) {
                    continue;
                }
                for group in strings(&rule["apiGroups"]) {
                    assert!(judged(&group, resource), "no policy confines writes to {resource} of {group:?}");
                    count += 1;
                }
            }
        }
    }
    assert!(count > 8, "only {count} kinds were found");
}

/// The roles that are bound to the account of Sluice.
fn roles_of_sluice() -> Vec<Value> {
    let bindings = of_kind(&["ClusterRoleBinding", "RoleBinding"]);
    let bound: BTreeSet<[String; 2]> = bindings
        .iter()
        .filter(|binding| {
            let subjects = binding["subjects"].as_array().into_iter().flatten();
            subjects.into_iter().any(|subject| {
                subject["kind"] == "ServiceAccount"
                    && subject["name"] == names::NAME
                    && subject["namespace"] == names::NAMESPACE
            })
        })
        .map(|binding| ["kind", "name"].map(|field| binding["roleRef"][field].to_string()))
        .collect();
    let is_bound =
        |role: &Value| bound.contains(&[role["kind"].to_string(), role["metadata"]["name"].to_string()]);
    of_kind(&["ClusterRole", "Role"]).into_iter().filter(is_bound).collect()
}

#[test]
fn the_roles_of_sluice_have_no_wildcard_and_name_the_objects_that_they_guard() {
    let roles = roles_of_sluice();
    assert_eq!(roles.len(), 6, "sluice, sluice-kinds, sluice-certificates, and three in its namespace");
    for role in roles {
        for rule in role["rules"].as_array().into_iter().flatten() {
            let text = rule.to_string();
            for too_much in ["\"*\"", "impersonate", "escalate", "\"bind\"", "deletecollection", "approve"] {
                assert!(!text.contains(too_much), "{}: {text}", role["metadata"]["name"]);
            }
            let guarded =
                ["secrets", "leases", "webhookconfigurations"].iter().any(|kind| text.contains(kind));
            let creates = rule["verbs"] == serde_json::json!(["create"]);
            assert!(!guarded || creates || rule["resourceNames"].is_array(), "{text}");
            // What RBAC cannot name, a policy does.
            if guarded && creates {
                assert_eq!(role["kind"], "Role");
                let names = policy("sluice-confined-names").to_string();
                assert!(names.contains(rule["resources"][0].as_str().expect("a resource")), "{text}");
            }
        }
    }
}

#[test]
fn the_account_and_its_namespace_agree_everywhere() {
    assert_eq!(names::ACCOUNT, format!("system:serviceaccount:{}:{}", names::NAMESPACE, names::NAME));
    for (path, object) in objects() {
        let text = object.to_string();
        for (at, _) in text.match_indices("system:serviceaccount:sluice") {
            assert!(
                text[at..].starts_with(&format!("{}'", names::ACCOUNT)),
                "{}: {}",
                path.display(),
                &text[at..at + 60]
            );
        }
        let binding = object["kind"].as_str().is_some_and(|kind| kind.ends_with("RoleBinding"));
        for subject in object["subjects"].as_array().into_iter().flatten().filter(|_| binding) {
            if subject["name"] == names::NAME {
                assert_eq!(subject["namespace"], names::NAMESPACE, "{}", path.display());
            }
        }
        if ["Deployment", "Service", "Role", "RoleBinding", "NetworkPolicy", "ServiceAccount"]
            .iter()
            .any(|kind| object["kind"] == *kind)
        {
            assert_eq!(object["metadata"]["namespace"], names::NAMESPACE, "{}", path.display());
        }
    }
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

/// People ask, and nothing else: no role for users reads Secrets, pods or configurations.
#[test]
fn the_roles_of_users_create_questions_and_little_else() {
    let roles = of_kind(&["ClusterRole"]);
    let rules = |name: &str| {
        let role = roles.iter().find(|role| role["metadata"]["name"] == name);
        role.unwrap_or_else(|| panic!("no role {name}"))["rules"].clone()
    };
    let asks = serde_json::json!([{"apiGroups": ["sluice.dev"], "resources":
        ["questions", "questions/history", "questions/whatif"], "verbs": ["create"]}]);
    assert_eq!(rules("sluice-user"), asks);
    for role in ["sluice-manager", "sluice-admin"] {
        let rules = rules(role);
        for right in ["clusterquestions/history", "clusterquestions/whatif"] {
            assert!(rules.to_string().contains(right), "{role}");
        }
        for rule in rules.as_array().into_iter().flatten() {
            assert_eq!(rule["apiGroups"], serde_json::json!(["sluice.dev"]), "{role}");
            assert!(!rule.to_string().contains('*'), "{role}");
        }
    }
}

#[test]
fn the_network_reaches_the_webhook_and_metrics_and_nothing_else() {
    let [deployment, policy] = ["Deployment", "NetworkPolicy"].map(|kind| named(kind, names::NAME));
    let template = &deployment["spec"]["template"];
    assert_eq!(policy["spec"]["podSelector"]["matchLabels"], template["metadata"]["labels"]);
    assert_eq!(policy["spec"]["policyTypes"], serde_json::json!(["Ingress"]));
    let container = &template["spec"]["containers"][0];
    let ports: BTreeMap<&str, u64> = container["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|port| Some((port["name"].as_str()?, port["containerPort"].as_u64()?)))
        .collect();
    assert_eq!(ports, BTreeMap::from([("https", 9443), ("http", 8080)]));
    assert!(!container["args"].to_string().contains("api"), "the API stays on the loopback address");
    let rules: BTreeMap<&str, bool> = policy["spec"]["ingress"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|rule| (rule["ports"][0]["port"].as_str().expect("a port by name"), rule["from"].is_array()))
        .collect();
    assert_eq!(rules, BTreeMap::from([("https", false), ("http", true)]));
}

/// The object of this kind and name.
fn named(kind: &str, name: &str) -> Value {
    let mut found = of_kind(&[kind]).into_iter().filter(|object| object["metadata"]["name"] == name);
    let object = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
    assert!(found.next().is_none(), "more than one {kind} {name}");
    object
}

/// The page asks with the tokens of its viewers, so it has none of its own, and only the proxy may bring them.
#[test]
fn the_web_page_has_no_rights_and_only_its_proxy_reaches_it() {
    let [deployment, policy, service] =
        ["Deployment", "NetworkPolicy", "Service"].map(|kind| named(kind, "sluice-web"));
    let pod = &deployment["spec"]["template"];
    let labels = &pod["metadata"]["labels"];
    assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
    assert!(pod["spec"]["serviceAccountName"].is_null(), "it needs no account");
    for object in of_kind(&["RoleBinding", "ClusterRoleBinding"]) {
        assert!(!object.to_string().contains("sluice-web"), "{object}");
    }
    let volumes = serde_json::json!([{"name": "authority", "configMap": {"name": "kube-root-ca.crt"}}]);
    assert_eq!(pod["spec"]["volumes"], volumes, "no Secret, no token");
    let container = &pod["spec"]["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(
        (&security["readOnlyRootFilesystem"], &security["allowPrivilegeEscalation"]),
        (&true.into(), &false.into())
    );
    assert_eq!(pod["spec"]["securityContext"]["runAsNonRoot"], true);
    let arguments: Vec<&str> =
        container["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert!(arguments.contains(&"--forward-token") && arguments.iter().any(|one| one.starts_with("--host=")));
    assert_eq!(
        (&policy["spec"]["podSelector"]["matchLabels"], &service["spec"]["selector"]),
        (labels, labels)
    );
    let [rule] = policy["spec"]["ingress"].as_array().map(Vec::as_slice).unwrap_or_default() else {
        panic!("one rule")
    };
    assert!(
        rule["from"]
            .as_array()
            .is_some_and(|from| from.iter().all(|peer| peer.to_string().contains("web-proxy")))
    );
}

#[test]
fn kustomizations_name_files_that_exist_and_patch_objects_that_exist() {
    let objects = objects();
    let known: BTreeSet<(String, String)> = objects
        .iter()
        .map(|(_, object)| (object["kind"].to_string(), object["metadata"]["name"].to_string()))
        .collect();
    for (path, object) in &objects {
        let folder = path.parent().expect("a folder");
        for field in ["resources", "components"] {
            for entry in object[field]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|_| path.ends_with("kustomization.yaml"))
            {
                let entry = entry.as_str().expect("a path");
                assert!(folder.join(entry).exists(), "{}: {entry}", path.display());
            }
        }
        for patch in object["patches"].as_array().into_iter().flatten() {
            let target = (patch["target"]["kind"].to_string(), patch["target"]["name"].to_string());
            assert!(known.contains(&target), "{}: {target:?}", path.display());
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

#[test]
fn a_cron_job_may_have_the_annotations_that_users_write_on_jobs() {
    let policy =
        of_kind(&["ValidatingAdmissionPolicy"]).into_iter().find(|one| one["metadata"]["name"] == CRON_JOB);
    let variables = policy.expect("the policy")["spec"]["variables"].clone();
    let known = variables.as_array().into_iter().flatten().find(|one| one["name"] == "ofJobs").cloned();
    let known = known.expect("the variable")["expression"].to_string();
    let known: BTreeSet<&str> = known.split('\'').filter(|text| text.starts_with(names::PREFIX)).collect();
    // Those of Sluice, and those of pods without a Job.
    let others = [
        names::WANTED_PARALLELISM,
        names::GPU_OFFER,
        names::GPU_SIZES,
        names::GROUP_SIZE,
        names::PREEMPTIBLE,
        names::NODES,
        names::TWIN_OF,
    ];
    let others: BTreeSet<&str> = others.into_iter().chain(names::OWN_ANNOTATIONS).collect();
    let expected: BTreeSet<&str> =
        names::ANNOTATIONS.into_iter().filter(|key| !others.contains(key)).collect();
    assert_eq!(known, expected);
}
