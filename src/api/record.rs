//! The records Sluice writes on workloads: with the objects themselves they are its only state.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::engine::model::{Admission, Time};

/// The value of the annotation `sluice.dev/admission`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The pool whose quota pays.
    pub pool: String,
    /// Pods per node.
    pub nodes: BTreeMap<String, u32>,
    /// Granted parallelism.
    pub pods: u32,
    /// Whether the workload went beyond its team's guarantee when it was admitted.
    pub borrowed: bool,
    /// When it was admitted.
    pub at: Timestamp,
    /// The parallelism its user wrote, where `spec.parallelism` says what was granted instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u32>,
}

/// The value of the annotation `sluice.dev/eviction`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// When the workload was told to stop.
    pub at: Timestamp,
    /// The workload it made room for, `namespace/name`; empty when none was the cause.
    #[serde(rename = "for", default, skip_serializing_if = "String::is_empty")]
    pub claimant: String,
    /// The rule, e.g. `Reclaimed`.
    pub reason: String,
}

/// The engine's time as a timestamp; the epoch for a time no timestamp can hold.
#[must_use]
pub fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_millisecond(time.0).unwrap_or_default()
}

/// A timestamp as the engine's time.
#[must_use]
pub fn time(timestamp: Timestamp) -> Time {
    Time(timestamp.as_millisecond())
}

impl From<&Admission> for Record {
    fn from(admission: &Admission) -> Self {
        Self {
            pool: admission.pool.to_string(),
            nodes: admission.nodes.iter().map(|(node, pods)| (node.to_string(), *pods)).collect(),
            pods: admission.pods,
            borrowed: admission.borrowed,
            at: timestamp(admission.at),
            wanted: None,
        }
    }
}

impl From<&Record> for Admission {
    fn from(record: &Record) -> Self {
        Self {
            pool: record.pool.as_str().into(),
            nodes: record.nodes.iter().map(|(node, pods)| (node.as_str().into(), *pods)).collect(),
            pods: record.pods,
            borrowed: record.borrowed,
            at: time(record.at),
        }
    }
}
