//! The records that Sluice writes on workloads. Sluice has no other persistent state.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::sizes::written;
use crate::engine::types::amount::Amount;
use crate::engine::types::{Admission, Time, Workload};

/// The value of the annotation `sluice.dev/admission`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The pool with the charged quota.
    pub pool: String,
    /// The number of pods on each node.
    pub nodes: BTreeMap<String, u32>,
    /// The number of granted pods.
    pub pods: u32,
    /// Whether the workload borrowed capacity when it was admitted.
    pub borrowed: bool,
    /// The time of the admission.
    pub at: Timestamp,
    /// The parallelism of the user, if `spec.parallelism` holds the granted number instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u32>,
    /// The GPU fraction granted to each pod, if it is smaller than the first requested fraction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
    /// Whether the workload is not evicted for the fair share of another team in this run: its last run was, or it took the place of
    /// work of its own team that could not be either.
    #[serde(default, skip_serializing_if = "is_false")]
    pub spared: bool,
    /// Whether the workload started on idle capacity beyond the budget of a team, so that no guarantee protects it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unfunded: bool,
    /// The group of the pod, if it has one. The other fields then describe the whole group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// The indexes of an Indexed Job that had finished at the admission, in the form of its status (`0-2,5`). Present if
    /// pods get their nodes by index, see [`super::seats::Seats`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<String>,
    /// The number of failed pods that the Job had counted before its admission; later ones were lost in this run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u32,
    /// Room for the marks of an eviction, which take its place: so a stop makes no object larger, however full of
    /// annotations it is by then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub room: String,
}

/// The bytes of that room: the mark of the hold, a note without the preemptor, and the two names among the managed fields.
const ROOM: usize = 160;

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Pods without a Job that were admitted together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The identifier of the workload.
    pub id: String,
    /// The node of each pod, by UID. A new leader reads from it the nodes of pods that are not released yet.
    pub members: BTreeMap<String, String>,
}

impl Record {
    /// The record of a group. The pods, in the order of `uids`, fill the nodes in the order of their names.
    pub fn of_group<'a>(id: &str, admission: &Admission, uids: impl Iterator<Item = &'a str>) -> Self {
        let places =
            admission.nodes.iter().flat_map(|(node, pods)| std::iter::repeat_n(node, *pods as usize));
        let members = uids.map(ToOwned::to_owned).zip(places.map(ToString::to_string)).collect();
        Self { group: Some(Group { id: id.to_owned(), members }), ..Self::from(admission) }
    }

    /// The record with room for the marks of an eviction.
    #[must_use]
    pub fn with_room(self) -> Self {
        Self { room: "-".repeat(ROOM), ..self }
    }

    /// The record without that room.
    #[must_use]
    pub fn without_room(self) -> Self {
        Self { room: String::new(), ..self }
    }

    /// The nodes for the pods of the object with this UID: one node for a member of a group, else all.
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
    /// The time of the eviction.
    pub at: Timestamp,
    /// The preemptor, `namespace/name`; empty if there is none, and if it is in another namespace: the users of the victim
    /// read this note.
    #[serde(rename = "for", default, skip_serializing_if = "String::is_empty")]
    pub preemptor: String,
    /// The team of a preemptor in another namespace.
    #[serde(rename = "forTeam", default, skip_serializing_if = "String::is_empty")]
    pub team: String,
    /// The identifier of that preemptor, by which Sluice finds its name.
    #[serde(rename = "forUid", default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The reason code, such as `Reclaimed`.
    pub reason: String,
}

impl Eviction {
    /// A note without a preemptor.
    #[must_use]
    pub fn new(at: Timestamp, reason: &str) -> Self {
        let [preemptor, team, uid] = [const { String::new() }; 3];
        Self { at, preemptor, team, uid, reason: reason.to_owned() }
    }

    /// The note with its preemptor, as the users of the namespace `own` may read it.
    #[must_use]
    pub fn caused_by(self, preemptor: &Workload, own: &str) -> Self {
        let Workload { id, namespace, name, team, .. } = preemptor;
        if **namespace == *own {
            return Self { preemptor: format!("{namespace}/{name}"), ..self };
        }
        Self { team: team.to_string(), uid: id.to_string(), ..self }
    }

    /// The note without the preemptor, which may have a long name.
    #[must_use]
    pub fn short(&self) -> Self {
        Self::new(self.at, &self.reason)
    }
}

/// Converts the engine's time to a timestamp; the Unix epoch if it is out of range.
#[must_use]
pub fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_millisecond(time.0).unwrap_or_default()
}

/// Converts a timestamp to the engine's time.
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
            spared: admission.spared,
            unfunded: admission.unfunded,
            group: None,
            done: None,
            failed: 0,
            room: String::new(),
        }
    }
}

/// The most pods of an admission, and on all of its nodes together: far above every cap. Sums of pods stay in range,
/// whatever a record says that is not Sluice's.
const MOST_PODS: u32 = 1 << 24;

impl From<&Record> for Admission {
    fn from(record: &Record) -> Self {
        let mut left = MOST_PODS;
        let nodes = record.nodes.iter().map(|(node, pods)| {
            let pods = (*pods).min(left);
            left -= pods;
            (node.as_str().into(), pods)
        });
        Self {
            pool: record.pool.as_str().into(),
            nodes: nodes.collect(),
            pods: record.pods.min(MOST_PODS),
            borrowed: record.borrowed,
            share: record.share.as_deref().and_then(|share| Amount::parse(share).ok()),
            spared: record.spared,
            unfunded: record.unfunded,
            at: time(record.at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pods_of_any_record_can_be_added_up() {
        let text = r#"{"pool":"p","nodes":{"a":7,"b":4294967295,"c":4294967295},"pods":4294967295,"borrowed":false,
            "at":"2026-11-21T08:00:00Z"}"#;
        let record: Record = serde_json::from_str(text).expect("a record");
        let admission = Admission::from(&record);
        assert_eq!(admission.pods, MOST_PODS);
        let pods: Vec<u32> = admission.nodes.values().copied().collect();
        assert_eq!(pods, [7, MOST_PODS - 7, 0]);
    }
}
