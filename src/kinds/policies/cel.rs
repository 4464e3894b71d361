//! The parts that the generated policies share: matching, binding, and fields and accounts in CEL.

use serde_json::{Value, json};

use crate::api::names;
use crate::kinds::{Kind, Kinds, Pointer};

/// The CEL condition that the operator of a kind of the table makes or changes the object as a child of another object.
///
/// Three things identify the operator: its account, the kind of the object's controlling owner, and the right to create
/// `children`. A binding in a namespace does not give that right, because the check names no namespace: the owner of a
/// namespace may well hold `*` there. An owner reference alone exempts no object, because any user can write one.
pub fn of_operator(kinds: &Kinds, object: &str) -> String {
    let arms: Vec<String> = kinds
        .entries()
        .filter(|kind| !kind.operators.is_empty())
        .map(|kind| {
            let accounts: Vec<String> = kind.operators.iter().map(|account| format!("'{account}'")).collect();
            format!("(request.userInfo.username in [{}] && ({}))", accounts.join(", "), owners([&**kind]))
        })
        .collect();
    if arms.is_empty() {
        return "false".to_owned();
    }
    format!(
        "{} && authorizer.group('sluice.dev').resource('children').check('create').allowed()",
        controlled(object, &arms.join(" || "))
    )
}

/// The CEL condition that a kind of the table controls the object.
pub fn has_parent(kinds: &Kinds, object: &str) -> String {
    controlled(object, &owners(kinds.entries().map(|kind| &**kind)))
}

/// The owners `o` that are of these kinds or of the kinds between them and their pods.
fn owners<'a>(kinds: impl IntoIterator<Item = &'a Kind>) -> String {
    let is = |group: &str, kind: &str| format!("(o.kind == '{kind}' && o.apiVersion.startsWith('{group}/'))");
    let each = kinds.into_iter().flat_map(|kind| {
        let children = kind.children.iter().map(move |child| is(child.group(), &child.kind));
        std::iter::once(is(kind.group(), &kind.kind)).chain(children)
    });
    let each: Vec<String> = each.collect();
    if each.is_empty() { "false".to_owned() } else { each.join(" || ") }
}

fn controlled(object: &str, owner: &str) -> String {
    format!(
        "{object}.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && ({owner}))"
    )
}

/// The controlling owners of an object.
pub fn controllers(object: &str) -> String {
    format!("{object}.metadata.?ownerReferences.orValue([]).filter(o, o.?controller.orValue(false))")
}

/// The condition that the request is not Sluice's own.
pub fn not_sluice() -> Value {
    json!({"name": "not-sluice", "expression": format!("request.userInfo.username != '{}'", names::ACCOUNT)})
}

/// The condition that the object is not being deleted.
pub fn not_deleting() -> Value {
    json!({"name": "not-deleting", "expression": "!has(object.metadata.deletionTimestamp)"})
}

/// The condition that the account belongs to a controller of Kubernetes, such as the garbage collector.
pub const BY_KUBERNETES: &str = "(request.userInfo.username == 'system:kube-controller-manager' || \
     request.userInfo.username.startsWith('system:serviceaccount:kube-system:'))";

/// A rule that refuses a request where the expression is false.
pub fn forbid(expression: impl Into<String>, message: impl Into<String>) -> Value {
    json!({"expression": expression.into(), "message": message.into(), "reason": "Forbidden"})
}

/// Matches operations on a resource.
pub fn rule(api_version: &str, resource: &str, operations: &[&str]) -> Value {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    json!({"apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": operations})
}

/// What a policy does to a request that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes the object.
    Mutate,
    /// It refuses the request.
    Deny,
    /// It warns the user.
    Warn,
}

/// A policy and its binding to the namespaces of teams.
pub fn bound(effect: Effect, name: &str, spec: &Value) -> [Value; 2] {
    let version = "admissionregistration.k8s.io/v1";
    let mut bind = json!({"policyName": name, "matchResources": {"namespaceSelector": {"matchExpressions": [
        {"key": names::TEAM, "operator": "Exists"},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", names::NAMESPACE]},
    ]}}});
    let kind = match effect {
        Effect::Mutate => "MutatingAdmissionPolicy",
        Effect::Deny | Effect::Warn => "ValidatingAdmissionPolicy",
    };
    if effect != Effect::Mutate {
        bind["validationActions"] = json!([if effect == Effect::Deny { "Deny" } else { "Warn" }]);
    }
    [
        json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}),
        json!({"apiVersion": version, "kind": format!("{kind}Binding"), "metadata": {"name": name}, "spec": bind}),
    ]
}

/// A field in CEL.
pub fn path(object: &str, pointer: &Pointer) -> String {
    format!("{object}.{}", pointer.dotted())
}

/// An optional field in CEL.
pub fn optional(object: &str, pointer: &Pointer) -> String {
    format!("{object}.?{}", pointer.tokens().join(".?"))
}
