//! Rows of the history: runs, and reports over them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Count;

/// GPU-seconds, exact to a millionth, which is a thousandth of a GPU for a millisecond: days add up to their month.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GpuTime(i64);

/// The parts of a GPU-second.
const MICRO: i64 = 1_000_000;

impl GpuTime {
    /// None.
    pub const ZERO: Self = Self(0);

    /// So many millionths of a GPU-second; the largest possible number where it is larger.
    #[must_use]
    pub fn of_micro(micro: i128) -> Self {
        Self(i64::try_from(micro.max(0)).unwrap_or(i64::MAX))
    }

    /// The millionths of a GPU-second.
    #[must_use]
    pub fn as_micro(self) -> i64 {
        self.0
    }

    /// GPU-seconds, for charts and texts.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "for charts and texts")]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// GPU-hours, for charts and texts.
    #[must_use]
    pub fn hours(self) -> f64 {
        self.seconds() / 3_600.0
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for GpuTime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / MICRO, self.0 % MICRO);
        match format!("{part:06}").trim_end_matches('0') {
            "" => write!(formatter, "{whole}"),
            part => write!(formatter, "{whole}.{part}"),
        }
    }
}

impl Serialize for GpuTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            micro if micro % MICRO == 0 => serializer.serialize_i64(micro / MICRO),
            _ => serializer.serialize_f64(self.seconds()),
        }
    }
}

impl<'de> Deserialize<'de> for GpuTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if !(0.0..=9e12).contains(&number) {
            return Err(serde::de::Error::custom(format!("{number} is no number of GPU-seconds")));
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        Ok(Self((number * 1e6).round() as i64))
    }
}

impl JsonSchema for GpuTime {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "GpuTime".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number", "minimum": 0})
    }
}

/// A run of a workload: from one admission to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryRow {
    /// `Job`, `Pod`, `PodGroup` or a custom kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The UID of its object.
    pub uid: String,
    /// Its team.
    pub team: String,
    /// The user that submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Its queue.
    pub queue: String,
    /// The pool of the run.
    pub pool: String,
    /// `Running`, or how the run ended: `Completed`, `Failed`, `Evicted`, `Stopped` by its user, `Deleted`, or `Ended` where no
    /// object says how.
    pub state: String,
    /// The GPUs of its pods.
    pub gpus: Count,
    /// Number of pods.
    pub pods: u32,
    /// Whether it borrowed when it was admitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub borrowed: bool,
    /// When the workload was submitted.
    pub submitted: Timestamp,
    /// When it was admitted to this run.
    pub admitted: Timestamp,
    /// When the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// Seconds for which it waited for this run, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_seconds: Option<u64>,
    /// GPU-seconds of the run so far.
    pub gpu_seconds: GpuTime,
    /// The GPU-seconds of work that its eviction lost.
    #[serde(default, skip_serializing_if = "is_none")]
    pub lost_gpu_seconds: GpuTime,
    /// The rule of its eviction, or why it failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The preemptor, `namespace/name`; of another namespace only its team.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub evicted_for: String,
    /// The numbers and the workloads involved in its eviction, if the leader that decided it recorded them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Pods by node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, u32>,
}

fn is_none(time: &GpuTime) -> bool {
    *time == GpuTime::ZERO
}

/// One row of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "about")]
pub enum ReportRow {
    /// GPU time of a team, user, pool or queue in a period.
    Usage(UsageRow),
    /// Waits of the runs of a team and queue that started in a period.
    Waits(WaitsRow),
    /// Evictions by one rule for one team in a period.
    Evictions(EvictionsRow),
}

/// GPU time of a team, user, pool or queue in a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UsageRow {
    /// The beginning of the period.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// The team; in reports of users the team that the work was for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub team: String,
    /// The user.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The queue.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub queue: String,
    /// The pool.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pool: String,
    /// Number of runs of which a part lies in the period.
    pub runs: u64,
    /// GPU-seconds used.
    pub used_gpu_seconds: GpuTime,
    /// The part of it within guarantee.
    pub guaranteed_gpu_seconds: GpuTime,
    /// The part of it on borrowed capacity.
    pub borrowed_gpu_seconds: GpuTime,
    /// GPU-seconds of its idle guarantee that other teams used, from samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent_gpu_seconds: Option<GpuTime>,
    /// GPU-seconds of work that evictions in the period lost.
    pub lost_gpu_seconds: GpuTime,
    /// GPU-seconds that work waited for.
    pub waited_gpu_seconds: GpuTime,
    /// Of a team its guarantee and of a pool its capacity, from samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_gpu_seconds: Option<GpuTime>,
    /// The price of what was used, if prices were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl UsageRow {
    /// The part of what was available that was used within it: of a pool all that was used, of a team what was within
    /// its guarantee.
    #[must_use]
    pub fn utilization(&self) -> Option<f64> {
        let available = self.available_gpu_seconds.filter(|available| *available > GpuTime::ZERO)?;
        let used = if self.team.is_empty() { self.used_gpu_seconds } else { self.guaranteed_gpu_seconds };
        Some(used.seconds() / available.seconds())
    }
}

/// Waits of the runs of a team and queue that started in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitsRow {
    /// The beginning of the period.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// The team.
    pub team: String,
    /// The queue.
    pub queue: String,
    /// Number of runs that started.
    pub started: u64,
    /// Half of them waited for at most these seconds.
    pub median_seconds: u64,
    /// Nine tenths of them waited for at most these seconds.
    pub p90_seconds: u64,
    /// The longest wait.
    pub max_seconds: u64,
}

/// Evictions by one rule for one team in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvictionsRow {
    /// The beginning of the period.
    pub from: Timestamp,
    /// Its end.
    pub to: Timestamp,
    /// The rule: a reason of evictions.
    pub rule: String,
    /// The team of the preemptor; empty where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub for_team: String,
    /// Number of evictions.
    pub evictions: u64,
    /// The GPU-seconds of work that they lost.
    pub lost_gpu_seconds: GpuTime,
}

impl From<UsageRow> for ReportRow {
    fn from(row: UsageRow) -> Self {
        Self::Usage(row)
    }
}

impl From<WaitsRow> for ReportRow {
    fn from(row: WaitsRow) -> Self {
        Self::Waits(row)
    }
}

impl From<EvictionsRow> for ReportRow {
    fn from(row: EvictionsRow) -> Self {
        Self::Evictions(row)
    }
}

impl ReportRow {
    /// The period.
    #[must_use]
    pub fn period(&self) -> (Timestamp, Timestamp) {
        match self {
            Self::Usage(row) => (row.from, row.to),
            Self::Waits(row) => (row.from, row.to),
            Self::Evictions(row) => (row.from, row.to),
        }
    }
}

/// A report as CSV with a line of names: GPU time in hours, waits in seconds, times with their zone.
///
/// # Errors
/// When the rows cannot be written, which never happens.
pub fn csv(rows: &[ReportRow], names: bool) -> Result<String, csv::Error> {
    let mut lines = csv::Writer::from_writer(Vec::new());
    let records: Vec<_> = rows.iter().map(ReportRow::record).collect();
    if let Some(first) = records.first().filter(|_| names) {
        lines.write_record(first.iter().map(|(name, _)| name))?;
    }
    for record in &records {
        lines.write_record(record.iter().map(|(_, value)| value))?;
    }
    let bytes = lines.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl ReportRow {
    /// The fields as programs read them in CSV; those of all rows of a report are the same.
    fn record(&self) -> Vec<(&'static str, String)> {
        let hours = |time: GpuTime| format!("{:.4}", time.hours());
        let maybe = |time: Option<GpuTime>| time.map(hours).unwrap_or_default();
        let (from, to) = self.period();
        let mut record = vec![("from", from.to_string()), ("to", to.to_string())];
        match self {
            Self::Usage(row) => record.extend([
                ("team", row.team.clone()),
                ("user", row.user.clone()),
                ("queue", row.queue.clone()),
                ("pool", row.pool.clone()),
                ("runs", row.runs.to_string()),
                ("used_gpu_hours", hours(row.used_gpu_seconds)),
                ("guaranteed_gpu_hours", hours(row.guaranteed_gpu_seconds)),
                ("borrowed_gpu_hours", hours(row.borrowed_gpu_seconds)),
                ("lent_gpu_hours", maybe(row.lent_gpu_seconds)),
                ("lost_gpu_hours", hours(row.lost_gpu_seconds)),
                ("waited_gpu_hours", hours(row.waited_gpu_seconds)),
                ("available_gpu_hours", maybe(row.available_gpu_seconds)),
                ("utilization", row.utilization().map(|part| format!("{part:.4}")).unwrap_or_default()),
                ("cost", row.cost.map(|cost| format!("{cost:.2}")).unwrap_or_default()),
            ]),
            Self::Waits(row) => record.extend([
                ("team", row.team.clone()),
                ("queue", row.queue.clone()),
                ("started", row.started.to_string()),
                ("median_seconds", row.median_seconds.to_string()),
                ("p90_seconds", row.p90_seconds.to_string()),
                ("max_seconds", row.max_seconds.to_string()),
            ]),
            Self::Evictions(row) => record.extend([
                ("rule", row.rule.clone()),
                ("for_team", row.for_team.clone()),
                ("evictions", row.evictions.to_string()),
                ("lost_gpu_hours", hours(row.lost_gpu_seconds)),
            ]),
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_time_is_a_number_of_seconds() {
        for (micro, written) in [(0, "0"), (3_600_000_000, "3600"), (1_500_000, "1.5"), (10, "0.00001")] {
            let time = GpuTime::of_micro(micro);
            let json = serde_json::to_string(&time).expect("JSON");
            assert_eq!(serde_json::from_str::<GpuTime>(&json).expect("a time"), time);
            assert_eq!((time.to_string().as_str(), json.parse::<f64>()), (written, written.parse()));
        }
        assert!(serde_json::from_str::<GpuTime>("-1").is_err());
        assert_eq!(GpuTime::of_micro(i128::MAX).as_micro(), i64::MAX);
    }
}
