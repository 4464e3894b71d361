//! The expected start of a waiting workload: its times, what they rest on, and its place in the queue (law 14).

use std::hash::{Hash, Hasher};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::record::timestamp;
use crate::engine::Engine;
use crate::engine::replay::forecast::Eta;
use crate::engine::replay::grounds::{self, Grounds, Unbounded};
use crate::engine::types::{PlaceView, Time, WorkloadId};
use crate::sentences;

/// The expected start of a waiting workload: all three times, or none of them where nothing bounds it. Earlier forecasts and
/// their outcomes correct them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtaRow {
    /// With runs of the usual length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely: Option<Timestamp>,
    /// The earliest start, with short runs and if no other workload is submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<Timestamp>,
    /// The latest start, with long runs and if the submissions of the last day come again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Timestamp>,
    /// When the forecast was made.
    pub foretold: Timestamp,
    /// What the times rest on: `AtOnce`, `BudgetRefill`, `EndingPods`, `TimeLimits` or `History`; or why there are none: `UnknownEnd`,
    /// `NothingEnds`, `QueuePaused` or `TooFarAhead`.
    #[serde(default)]
    pub basis: String,
    /// The same in one sentence, with the run of which the end is not known.
    #[serde(default)]
    pub message: String,
    /// Where it stands in the queue; absent while it is not in the queue, because capacity is being freed for it or it
    /// pauses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<PlaceRow>,
}

/// Where a workload stands in the queue of its team for a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlaceRow {
    /// The pool that it asks for first.
    pub pool: String,
    /// Its position among the workloads of its team that wait for the pool; the first is 1.
    pub position: usize,
    /// The number of these workloads.
    pub waiting: usize,
    /// The first of those in front of it, at most five.
    pub in_front: Vec<String>,
    /// The number of other teams of which the first workload in the pool comes before it.
    pub teams_in_front: usize,
}

/// `namespace/name` of a workload of the engine.
pub fn label(engine: &Engine, id: &WorkloadId) -> String {
    engine.workload(id).map_or_else(|| id.to_string(), |w| format!("{}/{}", w.namespace, w.name))
}

impl Hash for EtaRow {
    /// Without the time of the forecast: it is made again and again, while its outcome stays the same. A listing that takes equal rows
    /// from the one before compares that time separately (`foretold` in `src/ask/rows.rs`).
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { likely, early, late, foretold: _, basis, message, place } = self;
        (likely, early, late, basis, message, place).hash(state);
    }
}

impl EtaRow {
    /// This estimate without its times, for a workload of a queue that was paused after the forecast.
    #[must_use]
    pub fn of_paused_queue(&self) -> Self {
        Self {
            foretold: self.foretold,
            basis: Unbounded::QueuePaused.code().to_owned(),
            message: grounds::QUEUE_PAUSED.to_owned(),
            place: self.place.clone(),
            ..Self::default()
        }
    }

    /// The estimate of a forecast made at `at`.
    #[must_use]
    pub fn new(engine: &Engine, eta: &Eta, grounds: &Grounds, place: Option<&PlaceView>, at: Time) -> Self {
        let (basis, message) = match grounds {
            Ok(basis) => (basis.code(), basis.sentence()),
            Err(unbounded) => (unbounded.code(), unbounded.sentence(engine)),
        };
        Self {
            likely: eta.likely.map(timestamp),
            early: eta.early.map(timestamp),
            late: eta.late.map(timestamp),
            foretold: timestamp(at),
            basis: basis.to_owned(),
            message,
            place: place.map(|place| PlaceRow::new(engine, place)),
        }
    }
}

impl PlaceRow {
    fn new(engine: &Engine, place: &PlaceView) -> Self {
        Self {
            pool: place.pool.to_string(),
            position: place.position,
            waiting: place.waiting,
            in_front: place.in_front.iter().map(|id| label(engine, id)).collect(),
            teams_in_front: place.teams_in_front,
        }
    }

    /// The place in one sentence.
    #[must_use]
    pub fn sentence(&self, team: &str) -> String {
        let Self { pool, position, waiting, in_front, teams_in_front } = self;
        let mut sentence = format!("{position} of {waiting} that wait for pool {pool} in team {team}");
        if !in_front.is_empty() {
            let more = match (position - 1).saturating_sub(in_front.len()) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            sentence += &format!("; in front of it: {}{more}", sentences::counted(in_front).join(", "));
        }
        match teams_in_front {
            0 => {}
            1 => sentence += "; the first workload of 1 other team comes before it",
            teams => sentence += &format!("; the first workloads of {teams} other teams come before it"),
        }
        sentence
    }
}
