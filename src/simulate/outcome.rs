//! What a simulation tells when it is over: one object, the same in JSON and YAML.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::view::Amounts;

/// A time since the beginning of the simulation, written in seconds: `90s`, `1.5s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Clock(pub Duration);

impl Clock {
    /// So many whole seconds.
    #[must_use]
    pub fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
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

/// Everything a simulation came to.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// When it ended.
    pub end: Clock,
    /// Every Job and bare pod that was ever there, in the order of submission.
    pub workloads: Vec<WorkloadRow>,
    /// Every team in every pool where it has a quota or holds something.
    pub teams: Vec<TeamRow>,
    /// Every node.
    pub nodes: Vec<NodeRow>,
    /// The whole in figures.
    pub summary: Summary,
    /// The decisions in order, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Vec<Decision>>,
    /// Of what those who submit would be warned, with file and document; not part of the JSON.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// What it looked like over time, where that was asked for; not part of the JSON.
    #[serde(skip)]
    pub timeline: Timeline,
}

/// Where a workload stands at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum State {
    /// It runs.
    Running,
    /// It waits, or has been told to stop and will wait again.
    #[default]
    Pending,
    /// Its user holds it back.
    Held,
    /// All its pods have succeeded.
    Succeeded,
    /// It ended otherwise: by a rule, with its node, or because it was deleted.
    Failed,
}

impl State {
    /// Whether nothing more can happen to it.
    #[must_use]
    pub fn is_over(self) -> bool {
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
    /// Its team; empty where its namespace belongs to none.
    pub team: String,
    /// Its queue.
    pub queue: String,
    /// Where it stands.
    pub state: State,
    /// When it was submitted.
    pub submitted: Clock,
    /// Where it ran, and every change of that.
    pub admissions: Vec<AdmissionRow>,
    /// When all its pods had to go.
    pub evictions: Vec<EvictionRow>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<Clock>,
    /// Why it stands there, as a code.
    pub reason: String,
    /// Why it stands there, in one sentence with the numbers and the parties.
    pub message: String,
    /// When it is expected to start, if it waits and that can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eta: Option<Clock>,
}

impl WorkloadRow {
    /// `namespace/name`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Where a workload runs from some time on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AdmissionRow {
    /// Since when.
    pub at: Clock,
    /// Pods by node.
    pub nodes: BTreeMap<String, u32>,
    /// All pods it was granted.
    pub pods: u32,
    /// Whether it goes beyond its team's guarantee.
    pub borrowed: bool,
    /// The share of a GPU that each pod has, where that is less than it wants most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
}

/// An eviction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EvictionRow {
    /// When it was told to stop.
    pub at: Clock,
    /// For whom, `namespace/name`; empty when no preemptor is the cause.
    #[serde(rename = "for")]
    pub preemptor: String,
    /// The rule.
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
    /// What it is promised.
    pub guaranteed: Amounts,
    /// What it and the teams below it hold.
    pub used: Amounts,
    /// What of that is beyond its guarantee.
    pub borrowed: Amounts,
    /// What it would hold if the pool were shared out anew.
    pub fair_share: Amounts,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// What nobody holds.
    pub free: Amounts,
}

/// The whole in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// GPU-seconds held by pods ÷ GPU-seconds that the nodes offered, over the whole run; of `cpu` where
    /// no node has a GPU.
    pub utilization: f64,
    /// The mean time from submission to the first admission, over those admitted.
    pub mean_wait_seconds: f64,
    /// How often all pods of a workload had to go.
    pub evictions: u64,
    /// GPU-seconds of work lost by evictions and shrinking: since the pods started or last saved it.
    pub wasted_gpu_seconds: f64,
}

/// A decision of the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// When.
    pub at: Clock,
    /// What: `Admitted`, `Resized`, `Evicted` or `Failed`.
    pub action: &'static str,
    /// The rule's code.
    pub rule: &'static str,
    /// Whom it concerns, `namespace/name`.
    pub workload: String,
    /// The team of that workload.
    pub team: String,
    /// For whom, `namespace/name`.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub preemptor: Option<String>,
    /// Where it runs from now on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, u32>,
    /// The engine's sentence.
    pub message: String,
}

/// What a simulation looked like over time, thinned out where there is more than a picture can show.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The resource that is shown.
    pub resource: String,
    /// The looks, in order of time.
    pub points: Vec<Point>,
}

/// One look.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// When.
    pub at: Clock,
    /// What each team holds, by team and pool, with what it is promised.
    pub teams: BTreeMap<(String, String), Held>,
    /// How many workloads wait.
    pub waiting: usize,
}

/// What a team holds of the resource shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// So much.
    pub used: f64,
    /// So much is promised.
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
}
