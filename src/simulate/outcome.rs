//! The outcome of a simulation: one object, the same in JSON and YAML.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::chart::units::{count, span};
use crate::view::{Accelerators, Amounts, Count};

/// A time since the start of the simulation, written in seconds: `90s`, `1.5s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clock(pub Duration);

impl Clock {
    /// A time of whole seconds.
    #[must_use]
    pub fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// The time in its two largest units, for tables and charts: `1m30s`.
    #[must_use]
    pub fn span(self) -> String {
        span(self.0.as_secs_f64())
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, milliseconds) = (self.0.as_secs(), self.0.subsec_millis());
        if milliseconds == 0 {
            return write!(f, "{seconds}s");
        }
        let fraction = format!("{milliseconds:03}");
        write!(f, "{seconds}.{}s", fraction.trim_end_matches('0'))
    }
}

impl Serialize for Clock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The outcome of a simulation.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// When the simulation ended.
    pub end: Clock,
    /// Every Job and bare pod, in order of submission.
    pub workloads: Vec<WorkloadRow>,
    /// Every team in every pool where it has a quota or usage.
    pub teams: Vec<TeamRow>,
    /// Every node.
    pub nodes: Vec<NodeRow>,
    /// Utilization, waits and evictions of the whole simulation.
    pub summary: Summary,
    /// The decisions in order, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<Decision>>,
    /// The webhook's warnings, with file and document; not part of the JSON.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// Usage over time, if requested; not part of the JSON.
    #[serde(skip)]
    pub timeline: Timeline,
    /// The resources that count as GPUs; not part of the JSON.
    #[serde(skip)]
    pub accelerators: Accelerators,
}

/// The waits of workloads until their first admission, or until now where they still wait.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// The mean, in seconds.
    pub mean: f64,
    /// The longest, in seconds.
    pub longest: f64,
}

impl Outcome {
    /// The waits of all workloads that Sluice queued; `None` without any.
    #[must_use]
    pub fn waits(&self) -> Option<Waits> {
        let queued = self.workloads.iter().filter(|row| row.is_managed() && row.state != State::Held);
        let waits: Vec<f64> = queued.map(|row| row.wait(self.end).as_secs_f64()).collect();
        let longest = waits.iter().copied().reduce(f64::max)?;
        Some(Waits { mean: waits.iter().sum::<f64>() / count(waits.len()), longest })
    }
}

/// The state of a workload at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum State {
    /// It runs.
    Running,
    /// It waits, or is stopping and will wait again.
    #[default]
    Pending,
    /// Its user suspends it.
    Held,
    /// All its pods have succeeded.
    Succeeded,
    /// It ended otherwise: by a rule, by loss of its node, or by deletion.
    Failed,
}

impl State {
    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One Job or bare pod.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRow {
    /// `Job` or `Pod`.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its team; empty if its namespace belongs to no team.
    pub team: String,
    /// Its queue.
    pub queue: String,
    /// The GPUs of all its pods.
    #[serde(skip)]
    pub gpus: Count,
    /// Its state.
    pub state: State,
    /// Submission time.
    pub submitted: Clock,
    /// Its admissions, and every change of nodes or pods.
    pub admissions: Vec<AdmissionRow>,
    /// Its evictions.
    pub evictions: Vec<EvictionRow>,
    /// When the workload ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<Clock>,
    /// The reason code of its state.
    pub reason: String,
    /// One sentence with the numbers and the workloads involved.
    pub message: String,
    /// Its expected start, if it waits and has an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta: Option<Clock>,
    /// The GPUs of each pod; not part of the JSON.
    #[serde(skip)]
    pub gpus_per_pod: f64,
}

impl WorkloadRow {
    /// `namespace/name`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// How long it waited for its first start, up to `end` if it still waits.
    #[must_use]
    pub fn wait(&self, end: Clock) -> Duration {
        let admitted = self.admissions.first().map(|admission| admission.at);
        admitted.or(self.finished).unwrap_or(end).0.saturating_sub(self.submitted.0)
    }

    /// Whether Sluice manages it.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        !self.team.is_empty()
    }
}

/// Nodes and pods of a workload from some time on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdmissionRow {
    /// Start of the admission.
    pub at: Clock,
    /// Pods by node.
    pub nodes: BTreeMap<String, u32>,
    /// Number of pods granted.
    pub pods: u32,
    /// Whether it borrows.
    pub borrowed: bool,
    /// The GPU fraction of each pod, if less than the one it prefers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
}

/// An eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EvictionRow {
    /// When it happened.
    pub at: Clock,
    /// The preemptor, `namespace/name`; empty without one.
    #[serde(rename = "for")]
    pub preemptor: String,
    /// The reason code.
    pub reason: String,
}

/// A team in one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamRow {
    /// The team.
    pub name: String,
    /// The pool.
    pub pool: String,
    /// Its guarantee.
    pub guaranteed: Amounts,
    /// Its usage, with that of the teams below it.
    pub used: Amounts,
    /// Its usage beyond its guarantee.
    pub borrowed: Amounts,
    /// Its fair share of the pool.
    pub fair_share: Amounts,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Its free resources.
    pub free: Amounts,
    /// Its GPUs; not part of the JSON.
    #[serde(skip)]
    pub gpus: f64,
}

/// Utilization, waits and evictions of the whole simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// GPU-seconds used ÷ GPU-seconds of capacity, over the whole simulation; of `cpu` if no node has a GPU.
    pub utilization: f64,
    /// The mean time from submission to first admission, over admitted workloads.
    pub mean_wait_seconds: f64,
    /// Number of evictions.
    pub evictions: u64,
    /// GPU-seconds of work lost by evictions and shrinking, since start or last checkpoint.
    pub wasted_gpu_seconds: f64,
}

/// A decision of the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// When it was made.
    pub at: Clock,
    /// `Admitted`, `Resized`, `Evicted` or `Failed`.
    pub action: &'static str,
    /// The reason code of the rule.
    pub rule: &'static str,
    /// The workload, `namespace/name`.
    pub workload: String,
    /// Its team.
    pub team: String,
    /// The preemptor, `namespace/name`.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub preemptor: Option<String>,
    /// Pods by node from now on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, u32>,
    /// The engine's sentence.
    pub message: String,
}

/// Usage over time, thinned out to the resolution of a chart.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The resource: `GPUs`, or `cpu` if no node has a GPU.
    pub resource: String,
    /// The samples, in order of time.
    pub samples: Vec<Sample>,
}

/// Usage at one time.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// The time.
    pub at: Clock,
    /// Usage and guarantee by team and pool.
    pub teams: BTreeMap<(String, String), Usage>,
    /// Number of waiting workloads.
    pub waiting: usize,
    /// The amount that the nodes offer.
    pub capacity: f64,
}

/// Usage and guarantee of a team.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Used amount, with that of the teams below it.
    pub used: f64,
    /// The part of it beyond the guarantee.
    pub borrowed: f64,
    /// Used amount without that of the teams below it.
    pub own: f64,
    /// Guaranteed amount.
    pub guaranteed: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_seconds() {
        for (milliseconds, text) in [(0, "0s"), (90_000, "90s"), (1500, "1.5s"), (1001, "1.001s")] {
            assert_eq!(Clock(Duration::from_millis(milliseconds)).to_string(), text);
        }
    }

    #[test]
    fn waits_include_workloads_that_still_wait() {
        let row = |submitted, admitted: Option<u64>| WorkloadRow {
            team: "a".into(),
            submitted: Clock::seconds(submitted),
            admissions: admitted
                .into_iter()
                .map(|at| AdmissionRow { at: Clock::seconds(at), ..AdmissionRow::default() })
                .collect(),
            ..WorkloadRow::default()
        };
        let unmanaged = WorkloadRow { team: String::new(), ..row(0, None) };
        let held = WorkloadRow { state: State::Held, ..row(0, None) };
        let workloads = vec![row(0, Some(2)), row(10, None), unmanaged, held];
        let outcome = Outcome { end: Clock::seconds(60), workloads, ..Outcome::default() };
        assert_eq!(outcome.waits(), Some(Waits { mean: 26.0, longest: 50.0 }));
        assert_eq!(Outcome::default().waits(), None);
    }
}
