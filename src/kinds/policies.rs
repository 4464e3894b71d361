//! What of the table stands in the API server: the policies that hold and guard the kinds even while Sluice
//! is down, and the rights that go with them.

use serde_json::{Value, json};

use super::{Kind, Kinds, Pointer};
use crate::api::names;

/// Which of the manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The policies that hold new objects.
    Mutating,
    /// The policies that refuse what only Sluice may do.
    Validating,
    /// What Sluice and the operators of the kinds may do.
    Rights,
}

/// The line on top of what is generated.
const HEAD: &str = "# Generated from the table of kinds by `sluice kinds`; change that, not this.\n";

/// The manifests of a part as one YAML stream, as `kubectl apply` takes it.
///
/// # Errors
/// Never for what is made here: the serializer's error is passed on rather than hidden.
pub fn yaml(kinds: &Kinds, part: Part) -> Result<String, serde_saphyr::ser::Error> {
    let objects: Vec<Value> = match part {
        Part::Mutating => kinds.entries().flat_map(|kind| hold(kind)).collect(),
        Part::Validating => kinds.entries().flat_map(|kind| guard(kind)).collect(),
        Part::Rights => rights(kinds),
    };
    let documents: Result<Vec<String>, _> = objects.iter().map(serde_saphyr::to_string).collect();
    let documents = documents?;
    let documents = documents.iter().map(|document| format!("---\n{}\n", document.trim_end()));
    Ok(HEAD.chars().chain(documents.collect::<String>().chars()).collect())
}

/// An object made by the account that makes the children of a kind, below something that it controls. Its right
/// to create `children` tells that account; what a user could write alone never exempts.
fn of_operator(object: &str) -> String {
    format!(
        "has({object}.metadata.ownerReferences) && \
         {object}.metadata.ownerReferences.exists(o, has(o.controller) && o.controller) && \
         authorizer.group('sluice.dev').resource('children').namespace(request.namespace).check('create').allowed()"
    )
}

fn not_sluice() -> Value {
    json!({"name": "not-sluice", "expression": format!("request.userInfo.username != '{}'", names::ACCOUNT)})
}

fn rules(kind: &Kind, operations: &[&str]) -> Value {
    let version = kind.api_version.rsplit('/').next().unwrap_or_default();
    json!([{"apiGroups": [kind.group()], "apiVersions": [version], "resources": [kind.plural], "operations": operations}])
}

fn bound(policy: &str, binding: &str, name: &str, spec: Value) -> [Value; 2] {
    let version = "admissionregistration.k8s.io/v1";
    let mut bind = json!({"policyName": name, "matchResources": {"namespaceSelector": {"matchExpressions": [
        {"key": names::TEAM, "operator": "Exists"},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", names::NAMESPACE]},
    ]}}});
    if policy == "ValidatingAdmissionPolicy" {
        bind["validationActions"] = json!(["Deny"]);
    }
    [
        json!({"apiVersion": version, "kind": policy, "metadata": {"name": name}, "spec": spec}),
        json!({"apiVersion": version, "kind": binding, "metadata": {"name": name}, "spec": bind}),
    ]
}

/// A field in CEL, and whether it is there.
fn path(object: &str, pointer: &Pointer) -> String {
    format!("{object}.{}", pointer.tokens().join("."))
}

/// A field in CEL that may not be there, with what stands for it then.
fn optional(object: &str, pointer: &Pointer) -> String {
    format!("{object}.?{}", pointer.tokens().join(".?"))
}

/// Suspends what is created, and says so.
fn hold(kind: &Kind) -> [Value; 2] {
    let suspended = optional("object", &kind.suspend);
    // The first map on the way that is missing is written with all below it.
    let tokens = kind.suspend.tokens();
    let mut set = format!("JSONPatch{{op: \"add\", path: \"{}\", value: true}}", kind.suspend);
    for depth in (1..tokens.len()).rev() {
        let parent = tokens[..depth].iter().fold(Pointer::default(), |at, token| at.under(token.as_str()));
        let below = tokens[depth..]
            .iter()
            .rev()
            .fold("true".to_owned(), |value, token| format!("{{\"{token}\": {value}}}"));
        let make = format!("JSONPatch{{op: \"add\", path: \"{parent}\", value: {below}}}");
        set = format!("(has({}) ? {set} : {make})", path("object", &parent));
    }
    let notes = format!("{{\"{}\": \"true\", \"{}\": request.userInfo.username}}", names::HELD, names::USER);
    let note = |key: &str, value: &str| {
        let escaped = key.replace('/', "~1");
        format!("JSONPatch{{op: \"add\", path: \"/metadata/annotations/{escaped}\", value: {value}}}")
    };
    let (held, user) = (note(names::HELD, "\"true\""), note(names::USER, "request.userInfo.username"));
    let expression = format!(
        "[{set}] + (has(object.metadata.annotations) ? [{held}, {user}] : \
         [JSONPatch{{op: \"add\", path: \"/metadata/annotations\", value: {notes}}}])"
    );
    let spec = json!({
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": rules(kind, &["CREATE"])},
        "matchConditions": [
            not_sluice(),
            {"name": "not-suspended", "expression": format!("!{suspended}.orValue(false)")},
            {"name": "not-of-operator", "expression": format!("!({})", of_operator("object"))},
        ],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    });
    let name = format!("sluice-hold-{}.{}", kind.plural, kind.group());
    bound("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", &name, spec)
}

/// Refuses what only Sluice may do to an object. One on its way out is never judged.
fn guard(kind: &Kind) -> [Value; 2] {
    let name = &kind.kind;
    let own = [names::ADMISSION, names::EVICTION, names::USER_AFFINITY];
    let list = own.join(", ");
    let absent = own.map(|key| format!("!('{key}' in variables.new)")).join(" && ");
    let same = |key: &str| format!("variables.old[?'{key}'] == variables.new[?'{key}']");
    let kept = own.iter().chain([&names::USER]).map(|key| same(key)).collect::<Vec<_>>().join(" && ");
    let (held, user, team) = (names::HELD, names::USER, names::TEAM);
    let unchanged: Vec<String> = kind
        .described_in()
        .iter()
        .map(|at| format!("{} == {}", optional("oldObject", at), optional("object", at)))
        .collect();
    let forbid = |expression: String, message: String| json!({"expression": expression, "message": message, "reason": "Forbidden"});
    let create = "request.operation == 'CREATE'";
    let spec = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules(kind, &["CREATE", "UPDATE"])},
        "matchConditions": [
            not_sluice(),
            {"name": "not-deleting", "expression": "!has(object.metadata.deletionTimestamp)"},
            {"name": "not-of-operator", "expression": format!("!({})", of_operator("object"))},
        ],
        "variables": [
            {"name": "new", "expression": "object.metadata.?annotations.orValue({})"},
            {"name": "old", "expression": format!("{create} ? variables.new : oldObject.metadata.?annotations.orValue({{}})")},
            {"name": "suspended", "expression": format!("{}.orValue(false) == true", optional("object", &kind.suspend))},
            {"name": "suspendedBefore",
             "expression": format!("{create} || {}.orValue(false) == true", optional("oldObject", &kind.suspend))},
            {"name": "team", "expression": format!("{create} ? optional.none() : oldObject.metadata.?labels.orValue({{}})[?'{team}']")},
        ],
        "validations": [
            forbid(
                format!("!({create}) || variables.suspended"),
                format!("Sluice could not hold this {name}; try again in a moment, or create it with {} true.", kind.suspend),
            ),
            forbid(
                format!("!({create}) || ({absent})"),
                format!("The annotations {list} are written by Sluice alone; leave them out."),
            ),
            forbid(
                format!(
                    "!({create}) || (variables.new[?'{held}'].orValue('true') == 'true' && \
                     variables.new[?'{user}'].orValue(request.userInfo.username) == request.userInfo.username)"
                ),
                format!("The annotations {held} and {user} are written by Sluice alone; leave them out."),
            ),
            forbid(
                "!variables.suspendedBefore || variables.suspended".to_owned(),
                format!(
                    "Only Sluice starts a {name} here; a hold of your own can be released while Sluice answers, \
                     which queues the {name}."
                ),
            ),
            forbid(
                kept,
                format!("The annotations {list} and {user} are written by Sluice alone; leave them as they are."),
            ),
            // The hold comes when a user releases an own suspend, and goes when a user suspends what runs.
            forbid(
                format!(
                    "{} || (!('{held}' in variables.old) && variables.new[?'{held}'].orValue('') == 'true' && variables.suspended) || \
                     (!('{held}' in variables.new) && !variables.suspendedBefore && variables.suspended)",
                    same(held)
                ),
                format!("The annotation {held} is written by Sluice alone; leave it as it is."),
            ),
            forbid(
                format!(
                    "!variables.team.hasValue() || variables.team == object.metadata.?labels.orValue({{}})[?'{team}']"
                ),
                format!("The label {team} is written by Sluice alone; leave it as it is."),
            ),
            forbid(
                format!("variables.suspendedBefore || variables.suspended || ({})", unchanged.join(" && ")),
                format!("A {name} that runs keeps the pods it was admitted with; suspend it first to queue for others."),
            ),
        ],
    });
    let name = format!("sluice-guard-{}.{}", kind.plural, kind.group());
    bound("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", &name, spec)
}

/// What Sluice may do with the kinds, and who makes their children.
fn rights(kinds: &Kinds) -> Vec<Value> {
    let version = "rbac.authorization.k8s.io/v1";
    let watched = kinds.watched().iter().map(|watched| {
        let verbs: &[&str] = match watched.entry {
            Some(_) => &["get", "list", "watch", "patch"],
            None => &["list", "watch"],
        };
        json!({"apiGroups": [watched.resource.group], "resources": [watched.resource.plural], "verbs": verbs})
    });
    let subject = |account: &str| {
        let mut parts = account.trim_start_matches("system:serviceaccount:").splitn(2, ':');
        let (namespace, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
    };
    let mut operators: Vec<&String> = kinds.entries().flat_map(|kind| &kind.operators).collect();
    operators.sort();
    operators.dedup();
    let role =
        |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    vec![
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "sluice-kinds"},
            "rules": watched.collect::<Vec<_>>()}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": "sluice-kinds"},
            "roleRef": role("sluice-kinds"), "subjects": [subject(names::ACCOUNT)]}),
        json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": "sluice-operator"},
            "rules": [{"apiGroups": ["sluice.dev"], "resources": ["children"], "verbs": ["create"]}]}),
        json!({"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": "sluice-operator"},
            "roleRef": role("sluice-operator"),
            "subjects": operators.iter().map(|account| subject(account)).collect::<Vec<_>>()}),
    ]
}
