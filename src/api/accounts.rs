//! What Questions ask of the history: single runs, and sums over them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// The most periods of one report: two years of days.
pub const MOST_PERIODS: usize = 750;

/// The runs to list, the newest first.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryFilter {
    /// Only runs of workloads of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Only runs in this namespace, in a ClusterQuestion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Only runs of this team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub team: Option<String>,
    /// Only runs of workloads that this user submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_024))]
    pub user: Option<String>,
    /// Only runs of workloads that the caller submitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub me: bool,
    /// Only runs in these states.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub states: Vec<RunState>,
    /// Only runs that had not ended at this time: `2026-11-01`, `2026-11`, `2026-11-01T10:30`, `today`, `yesterday`, `7d`, `2w`, `12h`.
    /// Days and months are those of UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 64))]
    pub from: Option<Timestamp>,
    /// Only runs that were admitted before this time; a day or a month counts as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 64))]
    pub to: Option<Timestamp>,
}

/// The state of a run.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// It runs.
    Running,
    /// It ended with success.
    Completed,
    /// It failed, by itself or by a rule.
    Failed,
    /// It was evicted.
    Evicted,
    /// Its user suspended it.
    Stopped,
    /// Its object was deleted.
    Deleted,
    /// It ended, and no object says how.
    Ended,
}

impl RunState {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::Evicted,
        Self::Stopped,
        Self::Deleted,
        Self::Ended,
    ];

    /// The state as rows name it.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Evicted => "Evicted",
            Self::Stopped => "Stopped",
            Self::Deleted => "Deleted",
            Self::Ended => "Ended",
        }
    }
}

/// What a report sums up; of users, in a Question those of its namespace.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum ReportKind {
    /// GPU-hours of each team.
    Teams,
    /// GPU-hours of each user.
    Users,
    /// GPU-hours and utilization of each pool.
    Pools,
    /// GPU-hours of each queue.
    Queues,
    /// Median, 90th percentile and longest wait of the runs that started, by team and queue.
    Waits,
    /// Evictions by rule and team of the preemptor.
    Evictions,
}

/// The periods of a report.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Period {
    /// Days of UTC.
    Day,
    /// Months of UTC.
    Month,
}

/// The report to make. A run counts with the part of it that lies within the bounds.
#[derive(JsonSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportFilter {
    /// What it sums up.
    pub kind: ReportKind,
    /// Its beginning, in the forms of `history.from`; an age counts from the half hour before.
    #[schemars(with = "String", length(max = 64))]
    pub from: Timestamp,
    /// Its end; a day or a month counts as a whole. By default the present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", length(max = 64))]
    pub to: Option<Timestamp>,
    /// Its periods; by default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Period>,
    /// The times at which its periods begin, in place of `by`: days of another time zone, for example.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>", length(max = 750), inner(length(max = 64)), extend("x-kubernetes-list-type" = "atomic"))]
    pub cuts: Vec<Timestamp>,
    /// Only this team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub team: Option<String>,
    /// The price of an hour of one unit of each resource, as a quantity: `nvidia.com/gpu: "2.50"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::prices")]
    pub prices: BTreeMap<String, String>,
}
