//! What the history is made of: facts, each with a key, so that writing one twice changes nothing.
//!
//! Times are milliseconds since the Unix epoch, amounts are in thousandths of a unit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The name under which amounts count the devices of a run together: its GPUs, in the currency of a pool that has one.
pub const DEVICES: &str = "devices";

/// A run of a workload: from one admission until nothing of it is charged any more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey {
    /// The UID of the object.
    pub uid: String,
    /// The time of the admission, as in its record; 0 for what happened outside of any run.
    pub admitted_at: i64,
}

/// What the object and its record say of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Head {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The kind of the object.
    pub kind: String,
    /// The team.
    pub team: String,
    /// The queue.
    pub queue: String,
    /// The pool that is charged.
    pub pool: String,
    /// The user that submitted it; empty if unknown.
    pub username: String,
    /// When it was submitted.
    pub submitted_at: i64,
    /// Since when it had waited for this run; `None` if that is not known.
    pub queued_at: Option<i64>,
    /// Admitted pods.
    pub pods: i64,
    /// Pods by node, as JSON.
    pub nodes: String,
    /// Admitted devices, see [`DEVICES`].
    pub devices: i64,
    /// Whether it borrowed when it was admitted.
    pub borrowed: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ending {
    /// With success.
    Completed,
    /// It failed, by itself or by a rule.
    Failed,
    /// Sluice evicted it.
    Evicted,
    /// Its user suspended it.
    Stopped,
    /// Its object was deleted.
    Deleted,
    /// It ended, and no object says how.
    Ended,
}

impl Ending {
    /// Every ending.
    pub const ALL: [Self; 6] =
        [Self::Completed, Self::Failed, Self::Evicted, Self::Stopped, Self::Deleted, Self::Ended];

    /// The word in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Evicted => "Evicted",
            Self::Stopped => "Stopped",
            Self::Deleted => "Deleted",
            Self::Ended => "Ended",
        }
    }
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct End {
    /// When the last of it came free.
    pub at: i64,
    /// How it ended.
    pub how: Ending,
    /// The reason code of a rule or of the object; empty if there is none.
    pub reason: String,
    /// The workload it was evicted for, `namespace/name`.
    pub for_workload: String,
    /// When it was evicted or failed by a rule; `None` if it was not.
    pub stopped_at: Option<i64>,
    /// The time from which on its work was lost with an eviction; `None` if nothing was lost.
    pub saved_at: Option<i64>,
}

/// Amounts that a run was charged for a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Segment {
    /// The beginning.
    pub from: i64,
    /// The end.
    pub to: i64,
    /// Thousandths of a unit by resource.
    pub amounts: BTreeMap<String, i64>,
}

/// What one process saw of a run, a fact of its own. Later ones of the same process include the earlier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Sighting {
    /// The process: the time of its start, and a hash of its name.
    pub session: i64,
    /// The run, as the object and its record say.
    pub head: Head,
    /// Since when the process watched it: the admission, if it saw the whole run. `None` if it never ran before its eyes.
    pub seen_from: Option<i64>,
    /// Until when.
    pub seen_until: i64,
    /// The end, once it has ended.
    pub end: Option<End>,
    /// What it was charged while the process watched, without gaps; what the record says, where the process did not.
    pub segments: Vec<Segment>,
}

/// The start of the words for a workload of which only the team is known.
pub const OF_TEAM: &str = "a workload of team ";

/// Something that happened to a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transition {
    /// The UID of the object.
    pub uid: String,
    /// The run that it belongs to; 0 outside of any run.
    pub admitted_at: i64,
    /// `Submitted`, `Reserved`, `Admitted`, `Resized`, `Evicted`, `Failed` or `Ended`.
    pub transition: String,
    /// Distinguishes those of one kind in a run: the time of a resize or of a reservation, else 0.
    pub occasion: i64,
    /// When.
    pub at: i64,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The team.
    pub team: String,
    /// The rule or reason, a code.
    pub reason: String,
    /// The workload for which it happened, `namespace/name`, or [`OF_TEAM`] with its team; empty if there is none.
    pub for_workload: String,
    /// The sentence with the numbers, where the leader that decided wrote it.
    pub message: String,
    /// How much the writer knew: [`FILLED`], [`SEEN`] or [`DECIDED`].
    pub grade: i64,
}

/// Taken from an object after the fact.
pub const FILLED: i64 = 0;
/// Seen when it happened.
pub const SEEN: i64 = 1;
/// Written by the leader that decided it.
pub const DECIDED: i64 = 2;

/// The figures of a team, a pool and a resource at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When: a multiple of five minutes.
    pub at: i64,
    /// The team, with the teams below it.
    pub team: String,
    /// The pool.
    pub pool: String,
    /// The resource.
    pub resource: String,
    /// Its guarantee.
    pub guaranteed: i64,
    /// What it uses.
    pub used: i64,
    /// The part beyond the guarantee.
    pub borrowed: i64,
    /// The part of its idle guarantee that others use.
    pub lent: i64,
    /// What its waiting workloads want, those of the teams below it included.
    pub waiting: i64,
    /// The allocatable amount of the pool.
    pub capacity: i64,
}

/// A fact of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// What this process saw of a run.
    Sighting(RunKey, Sighting),
    /// Something that happened.
    Transition(Transition),
    /// Figures.
    Sample(Sample),
}

/// A run as the facts about it say: a row of the table `runs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which.
    pub key: RunKey,
    /// What the object and its record say.
    pub head: Head,
    /// Until when it is known; the end, if it has ended.
    pub until: i64,
    /// The end.
    pub end: Option<End>,
    /// The time integral of its devices, in device-milliseconds.
    pub used: i64,
    /// The part of that which was lost at its eviction.
    pub lost: i64,
    /// What it was charged, by resource and time.
    pub segments: Vec<Segment>,
}
