//! ResourceQuotas become Teams, one for each namespace.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceQuotaSpec;
use serde_json::{Value, json};

use super::note::{ImportError, Notes};
use super::plan::Plan;
use super::source::Source;
use crate::api::names;
use crate::api::values::is_dns_label;
use crate::engine::types::amount::Amount;

/// Plans the Teams of these ResourceQuotas; other objects are not read.
///
/// # Errors
/// When a ResourceQuota cannot be read.
pub fn plan(sources: &[Source]) -> Result<Plan, ImportError> {
    let mut notes = Notes::default();
    let mut plan = Plan::default();
    let mut teams: BTreeMap<&str, BTreeMap<String, Amount>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.group.is_empty() && source.kind == "ResourceQuota") {
        let label = source.label();
        let spec: ResourceQuotaSpec = source.part("spec", &mut notes)?;
        if ["kube-system", names::NAMESPACE].contains(&source.namespace.as_str()) {
            notes.lost(&label, "", "this namespace is never under a team");
            continue;
        }
        if spec.scopes.is_some_and(|scopes| !scopes.is_empty()) || spec.scope_selector.is_some() {
            let text = "counts only some pods; leave the ResourceQuota in place. With the scope PriorityClass, add the \
                        twins of the classes";
            notes.lost(&label, "spec.scopes", text);
            continue;
        }
        let team = teams.entry(&source.namespace).or_default();
        for (name, quantity) in spec.hard.unwrap_or_default() {
            let field = format!("spec.hard[{name}]");
            let amount = Amount::parse(&quantity.0)
                .map_err(|error| ImportError::new(&label, &field, error.to_string()))?;
            let Some(resource) = resource(&name) else {
                notes.lost(&label, &field, "not a request of pods; leave it in the ResourceQuota");
                continue;
            };
            let least = team.get(resource).map_or(amount, |other| amount.min(*other));
            team.insert(resource.to_owned(), least);
        }
        let text = "take the requests out of it when the namespace is labelled: with them the pods over the quota are \
                    refused, and without them their workloads wait";
        notes.by_hand(&label, "spec.hard", text);
    }
    for (namespace, amounts) in teams.into_iter().filter(|(_, amounts)| !amounts.is_empty()) {
        if !is_dns_label(namespace) {
            return Err(ImportError::new(
                format!("Namespace {namespace}"),
                "metadata.name",
                "is no DNS label",
            ));
        }
        let amounts: BTreeMap<String, Value> =
            amounts.iter().map(|(name, amount)| (name.clone(), amount.quantity(name).into())).collect();
        plan.objects.push(json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "Team", "metadata": {"name": namespace},
            "spec": {"quotas": [{"pool": "default", "guaranteed": amounts, "limit": amounts}]},
        }));
        let labels = BTreeMap::from([(names::TEAM.to_owned(), namespace.to_owned())]);
        plan.namespaces.insert(namespace.to_owned(), labels);
    }
    if !plan.objects.is_empty() {
        let text = "a ResourceQuota is a cap, and the sum of caps may exceed the nodes; here it is a guarantee too, and \
                    Teams at fault are Overcommitted. Raise or remove `limit` to let a team borrow";
        notes.differs("all", "guaranteed", text);
        let text = "a ResourceQuota counts on all nodes, and the Team in pool default alone. Where there are NodePools, list each of them \
                    in its quotas: in others it has no limit";
        notes.by_hand("all", "quotas", text);
    }
    plan.notes = notes.sorted();
    Ok(plan)
}

/// The resource of pods that an entry of `hard` limits.
fn resource(name: &str) -> Option<&str> {
    if let Some(resource) = name.strip_prefix("requests.") {
        return (resource != "storage").then_some(resource);
    }
    ["cpu", "memory", "ephemeral-storage", "pods"].contains(&name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::source::read;
    use super::*;

    const QUOTAS: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ResourceQuota
  metadata: {name: gpus, namespace: vision}
  spec: {hard: {requests.nvidia.com/gpu: "20", requests.cpu: 64, limits.cpu: 128, count/jobs.batch: 50, pods: "100"}}
- apiVersion: v1
  kind: ResourceQuota
  metadata: {name: fewer, namespace: vision}
  spec: {hard: {requests.nvidia.com/gpu: "16", memory: 1Ti}}
- apiVersion: v1
  kind: ResourceQuota
  metadata: {name: high, namespace: speech}
  spec:
    hard: {requests.nvidia.com/gpu: "4"}
    scopeSelector: {matchExpressions: [{operator: In, scopeName: PriorityClass, values: [high]}]}
"#;

    #[test]
    fn requests_become_a_team_of_the_namespace_and_the_rest_is_noted() {
        let sources = read([("quotas.yaml", QUOTAS)]).expect("they are objects");
        let plan = plan(&sources).expect("they can be planned");
        let amounts = json!({"nvidia.com/gpu": "16", "cpu": "64", "memory": "1Ti", "pods": "100"});
        assert_eq!(
            plan.objects,
            [json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"},
                "spec": {"quotas": [{"pool": "default", "guaranteed": amounts, "limit": amounts}]}})]
        );
        assert_eq!(plan.namespaces.keys().collect::<Vec<_>>(), ["vision"]);
        let lost: Vec<String> = plan
            .notes
            .iter()
            .filter(|note| note.verdict == super::super::note::Verdict::Lost)
            .map(|note| format!("{} {}", note.object, note.field))
            .collect();
        assert_eq!(
            lost,
            [
                "ResourceQuota vision/gpus spec.hard[count/jobs.batch]",
                "ResourceQuota vision/gpus spec.hard[limits.cpu]",
                "ResourceQuota speech/high spec.scopes"
            ]
        );
    }

    #[test]
    fn a_wrong_quantity_is_one_line() {
        let text = QUOTAS.replace("1Ti", "much");
        let error =
            plan(&read([("q.yaml", text.as_str())]).expect("they are objects")).expect_err("it is wrong");
        assert_eq!(
            error.to_string(),
            "ResourceQuota vision/fewer: spec.hard[memory]: \"much\" is not a quantity (expected a number with an \
             optional suffix such as m, k, Gi)"
        );
    }
}
