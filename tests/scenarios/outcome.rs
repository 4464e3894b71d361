//! The outcome of a simulation, read from its JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use sluice::engine::types::amount::Amount;

/// A time in milliseconds since the beginning; written in seconds, as in `1.5s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Seconds(pub i64);

impl TryFrom<String> for Seconds {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let amount = text.strip_suffix('s').and_then(|seconds| Amount::parse(seconds).ok());
        amount.map(|amount| Self(amount.as_milli())).ok_or_else(|| format!("{text:?} is not in seconds"))
    }
}

impl Seconds {
    /// The time this much later.
    pub fn later(self, by: Duration) -> Duration {
        Duration::from_millis(u64::try_from(self.0).unwrap_or(0)) + by
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", Amount::milli(self.0))
    }
}

/// The compared fields of an outcome.
#[derive(Clone, Debug, Deserialize)]
pub struct Outcome {
    /// The time after which no further event is possible.
    pub end: Seconds,
    /// Every workload.
    pub workloads: Vec<Workload>,
    teams: Vec<TeamFigures>,
    /// The decisions in order.
    #[serde(default)]
    events: Vec<Decision>,
}

/// The compared fields of a decision.
#[derive(Clone, Debug, Deserialize)]
struct Decision {
    at: Seconds,
    action: String,
    workload: String,
}

/// One workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Workload {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its team.
    pub team: String,
    /// `Running`, `Pending`, `Held`, `Succeeded` or `Failed`.
    pub state: String,
    /// Its admissions, oldest first.
    pub admissions: Vec<Admission>,
    /// Its evictions as a whole, oldest first.
    pub evictions: Vec<Eviction>,
    /// When it ended.
    #[serde(default)]
    pub finished: Option<Seconds>,
    /// The code of the reason for its state.
    #[serde(default)]
    pub reason: Option<String>,
    /// The expected start, if it waits.
    #[serde(default)]
    pub eta: Option<Seconds>,
    /// The reason in words.
    #[serde(default)]
    pub message: Option<String>,
}

/// A start, or a change of nodes or number of pods.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Admission {
    /// Time of the decision.
    pub at: Seconds,
    /// Number of pods by node.
    pub nodes: BTreeMap<String, u32>,
    /// The admitted GPU fraction, if it is smaller than the preferred one.
    #[serde(default)]
    pub share: Option<String>,
}

/// An eviction.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Eviction {
    /// Time of the decision.
    pub at: Seconds,
    /// The preemptor; empty without one.
    #[serde(rename = "for")]
    pub preemptor: String,
    /// The code of the rule.
    pub reason: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TeamFigures {
    name: String,
    #[serde(default)]
    fair_share: BTreeMap<String, serde_json::Value>,
}

impl Workload {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The nodes of the last admission.
    pub fn nodes(&self) -> Option<&BTreeMap<String, u32>> {
        self.admissions.last().map(|admission| &admission.nodes)
    }
}

impl Outcome {
    /// Number of admissions, changes included, that a workload got at an instant before its eviction number
    /// `evictions` (counted from zero) of that instant; zero if there is no such eviction.
    pub fn admitted_before(&self, key: &str, at: Seconds, evictions: usize) -> usize {
        let mut decisions = self.events.iter().filter(|event| event.at == at && event.workload == key);
        let (mut admitted, mut left) = (0, evictions);
        loop {
            match decisions.next().map(|event| event.action.as_str()) {
                Some("Evicted") if left == 0 => return admitted,
                Some("Evicted") => left -= 1,
                Some("Admitted" | "Resized") => admitted += 1,
                Some(_) => {}
                None => return 0,
            }
        }
    }

    /// The workload `namespace/name`.
    pub fn workload(&self, key: &str) -> Option<&Workload> {
        self.workloads.iter().find(|workload| workload.key() == key)
    }

    /// Every eviction with its victim.
    pub fn evictions(&self) -> impl Iterator<Item = (&Workload, &Eviction)> {
        self.workloads
            .iter()
            .flat_map(|workload| workload.evictions.iter().map(move |eviction| (workload, eviction)))
    }

    /// A team's fair share in thousandths, of all resources and pools together.
    pub fn fair_share(&self, team: &str) -> i64 {
        let figures = self.teams.iter().filter(|figures| figures.name == team);
        let amounts = figures.flat_map(|figures| figures.fair_share.values());
        let milli = |value: &serde_json::Value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Amount::parse(&text).map_or(0, Amount::as_milli)
        };
        amounts.map(milli).sum()
    }

    /// The events, line by line in the order of time.
    pub fn story(&self) -> Vec<String> {
        let mut lines: Vec<(Seconds, bool, String)> = Vec::new();
        for workload in &self.workloads {
            let key = workload.key();
            for admission in &workload.admissions {
                lines.push((admission.at, true, format!("{key} at {:?}", admission.nodes)));
            }
            for eviction in &workload.evictions {
                let line = format!("{key} evicted for {:?} ({})", eviction.preemptor, eviction.reason);
                lines.push((eviction.at, false, line));
            }
            if let Some(at) = workload.finished {
                lines.push((at, false, format!("{key} {}", workload.state)));
            }
        }
        lines.sort();
        lines.into_iter().map(|(at, _, line)| format!("{at} {line}")).collect()
    }
}
