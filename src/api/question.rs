//! The kinds `Question` and `ClusterQuestion`: how people and programs read from Sluice.
//!
//! Both are created with `dryRun=All` only. The webhook puts the answer into the object that comes back, and nothing is
//! ever stored. The API server authenticates the caller and checks its rights, so Sluice needs no rights for that.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::accounts::{HistoryFilter, ReportFilter};
use super::schema;

/// API group and version of both kinds.
pub const API_VERSION: &str = "sluice.dev/v1alpha1";
/// The kind of a question about one namespace.
pub const KIND: &str = "Question";
/// The kind of a question about the whole cluster.
pub const CLUSTER_KIND: &str = "ClusterQuestion";
/// The most rows of one answer.
pub const MOST_ROWS: usize = 1_000;
/// The most bytes of the rows of one answer.
pub const MOST_BYTES: usize = 512 << 10;

/// What is asked: exactly one of `queue`, `explain`, `teams`, `nodes`, `history`, `report` and `whatIf`.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "sluice.dev",
    version = "v1alpha1",
    kind = "Question",
    plural = "questions",
    namespaced,
    derive = "PartialEq",
    doc = "A question to Sluice about one namespace. It is created with dryRun=All, as by `kubectl create --dry-run=server -o yaml`: the object that comes back has the answer, and nothing is stored. Work of other namespaces is in the answer as numbers, not by name.",
    validation = Rule::new("[has(self.spec.queue), has(self.spec.explain), has(self.spec.teams), has(self.spec.nodes), has(self.spec.history), has(self.spec.report), has(self.spec.whatIf)].exists_one(asked, asked)")
        .message("a Question asks exactly one of queue, explain, teams, nodes, history, report and whatIf")
        .field_path(".spec")
)]
#[serde(rename_all = "camelCase")]
pub struct QuestionSpec {
    /// Waiting and running workloads, the oldest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueFilter>,
    /// The workloads of one name, with the reasons for their state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explain: Option<ExplainFilter>,
    /// Quotas and usage of teams, and their queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub teams: Option<TeamsFilter>,
    /// Nodes, their devices and the teams that use them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodesFilter>,
    /// Runs, also of workloads that have been deleted, the newest first. Needs the right to create `questions/history`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<HistoryFilter>,
    /// Sums over the runs of a time. Needs the right to create `questions/history`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<ReportFilter>,
    /// When and where a Job would start if it were submitted now. Needs the right to create `questions/whatif`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what_if: Option<WhatIfFilter>,
    /// How the rows of the answer are written. Default: as `rows`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// Largest number of rows of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000))]
    pub limit: Option<i32>,
    /// The `cursor` of an answer; asks for the rows after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_024))]
    pub cursor: Option<String>,
    /// The `version` of an answer. If the rows are still the same, the answer has none and says `unchanged`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub since: Option<String>,
    /// Written by the API server and removed by Sluice: proves that the question came through the API server. What a
    /// caller writes here has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_024))]
    pub proof: Option<String>,
}

/// How the rows of an answer are written. Default: as `rows`. With `Gzip` the answer has `gzip` instead, a JSON list that is compressed and
/// in base64; it costs the API server a small part of what rows cost it.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Encoding {
    /// Compressed by gzip.
    Gzip,
}

/// The workloads to list.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueFilter {
    /// Only this namespace, in a ClusterQuestion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Only workloads of this team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub team: Option<String>,
    /// Only workloads of this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub queue: Option<String>,
    /// Only workloads that this user submitted, as the annotation `sluice.dev/user` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_024))]
    pub user: Option<String>,
    /// Only workloads that the caller submitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub me: bool,
    /// Only workloads in these states. Default: all but Finished.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5), extend("x-kubernetes-list-type" = "atomic"))]
    pub states: Vec<Phase>,
}

/// The state of a workload.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Held by its user.
    Held,
    /// Waits for admission.
    Pending,
    /// Admitted.
    Running,
    /// Evicted, with pods that still end.
    Evicting,
    /// Ended.
    Finished,
}

impl Phase {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Held, Self::Pending, Self::Running, Self::Evicting, Self::Finished];

    /// The state as rows name it.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Held => "Held",
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Evicting => "Evicting",
            Self::Finished => "Finished",
        }
    }
}

/// The workload to explain.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExplainFilter {
    /// Its name. Several kinds may have objects of that name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its namespace, in a ClusterQuestion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
}

/// The teams to show.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamsFilter {
    /// Only this team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub team: Option<String>,
}

/// The nodes to show.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesFilter {
    /// Only nodes of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub pool: Option<String>,
}

/// The most workloads that are judged together.
pub const MOST_TOGETHER: usize = 20;

/// The workloads to judge.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfFilter {
    /// The Job, as it would be submitted. In a Question its namespace is that of the Question.
    #[schemars(schema_with = "schema::any_object")]
    pub job: Value,
    /// Workloads that would be submitted after it, in this order. The answer has a row for each, in the same order, and one for
    /// all pods of a group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::any_objects")]
    pub then: Vec<Value>,
}

/// The definitions of both kinds. They have the same schema, with the field `answer` that no caller writes.
#[must_use]
pub fn definitions() -> [CustomResourceDefinition; 2] {
    let mut namespaced = Question::crd();
    for version in &mut namespaced.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        let properties = schema.and_then(|schema| schema.properties.as_mut());
        let answer = JSONSchemaProps {
            type_: Some("object".to_owned()),
            description: Some(
                "The answer, written by Sluice: `rows` (or `gzip`), their `version` and `total` number, the time `at`, a `cursor` if there are more, with `gzip` and without a `limit` the `cursors` of further pages, of `queue` the `caller`, and without rows a `note` if Sluice does not manage the namespace, or the team, queue or pool asked about is none."
                    .to_owned(),
            ),
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        };
        properties.map(|properties| properties.insert("answer".to_owned(), answer));
    }
    let mut cluster = namespaced.clone();
    cluster.metadata.name = Some("clusterquestions.sluice.dev".to_owned());
    cluster.spec.scope = "Cluster".to_owned();
    let names = &mut cluster.spec.names;
    names.kind = CLUSTER_KIND.to_owned();
    names.plural = "clusterquestions".to_owned();
    names.singular = Some("clusterquestion".to_owned());
    for version in &mut cluster.spec.versions {
        let schema = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut());
        if let Some(schema) = schema {
            schema.description = Some(
                "A question to Sluice about the whole cluster, like Question. All work is in the answer by name."
                    .to_owned(),
            );
        }
    }
    [namespaced, cluster]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_have_the_same_fields_and_a_place_for_the_answer() {
        let [namespaced, cluster] = definitions();
        assert_eq!((&*namespaced.spec.scope, &*cluster.spec.scope), ("Namespaced", "Cluster"));
        assert_eq!((&*namespaced.spec.names.kind, &*cluster.spec.names.kind), (KIND, CLUSTER_KIND));
        for definition in [namespaced, cluster] {
            let schema =
                definition.spec.versions[0].schema.clone().and_then(|schema| schema.open_api_v3_schema);
            let properties = schema.and_then(|schema| schema.properties).expect("properties");
            assert_eq!(properties["answer"].x_kubernetes_preserve_unknown_fields, Some(true));
            let spec = properties["spec"].properties.as_ref().expect("the spec has fields");
            assert!(spec.contains_key("proof") && spec.contains_key("report"));
        }
    }
}
