//! The records Sluice writes on workloads: with the objects themselves they are its only state.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::sizes::written;
use crate::engine::types::amount::Amount;
use crate::engine::types::{Admission, Time};

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
    /// The share of a GPU that each pod was granted, where that is less than it wants most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// On the pods of a group: the workload they are together. The rest is then about all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// Where the pods of an Indexed Job find their nodes by their indexes: which of these had ended for
    /// good when it was admitted, as its status writes it (`0-2,5`). See [`super::seats::Seats`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
}

/// Plain pods that were admitted together, as each of them says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The workload they are.
    pub id: String,
    /// The node of each pod, by UID: whoever finds only some of them released knows where the others go.
    pub members: BTreeMap<String, String>,
}

impl Record {
    /// The record of a group of pods of these UIDs: in their order they go to the nodes in the order of their
    /// names.
    pub fn of_group<'a>(id: &str, admission: &Admission, uids: impl Iterator<Item = &'a str>) -> Self {
        let places =
            admission.nodes.iter().flat_map(|(node, pods)| std::iter::repeat_n(node, *pods as usize));
        let members = uids.map(ToOwned::to_owned).zip(places.map(ToString::to_string)).collect();
        Self { group: Some(Group { id: id.to_owned(), members }), ..Self::from(admission) }
    }

    /// The nodes to which an object of this UID may send pods: in a group its own one, else all.
    #[must_use]
    pub fn nodes_of(&self, uid: &str) -> Vec<&str> {
        match self.group.as_ref().and_then(|group| group.members.get(uid)) {
            Some(node) => vec![node],
            None => self.nodes.keys().map(String::as_str).collect(),
        }
    }
}

/// The value of the annotation `sluice.dev/eviction`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// When the workload was told to stop.
    pub at: Timestamp,
    /// The workload it made room for, `namespace/name`; empty when none was the cause.
    #[serde(rename = "for", default, skip_serializing_if = "String::is_empty")]
    pub preemptor: String,
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
            share: admission.share.map(written),
            group: None,
            done: None,
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
            share: record.share.as_deref().and_then(|share| Amount::parse(share).ok()),
            at: time(record.at),
        }
    }
}
