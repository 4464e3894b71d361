//! The rights of Sluice, its users, its page and the operators, and what reaches its ports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use sluice::api::names;

use super::{named, objects, of_kind, policy};

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
