//! Annotations of workloads: the marks that Sluice writes and the requests of users.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::core::ObjectMeta;

use super::super::reduce::{annotation, created, name, uid};
use super::{Facts, Suspension};
use crate::api::names;
use crate::api::record::{Eviction, Record, time};
use crate::engine::types::amount::Amount;
use crate::engine::types::{
    Admission, EvictReason, Name, Observed, Time, Topology, Workload, WorkloadId, WorkloadKind,
};

/// The marks of Sluice on an object.
pub struct Marks {
    /// The record of its admission.
    pub record: Option<Record>,
    /// The note of its last eviction.
    pub eviction: Option<Eviction>,
    /// Whether Sluice holds it; a suspended object without this mark is held by its user.
    pub held: bool,
}

/// The stage of an object that is held by suspension.
pub struct Stage {
    /// Whether it is suspended.
    pub suspended: bool,
    /// Whether its controller says that it has stopped.
    pub stopped: bool,
    /// Whether it makes no more pods for good.
    pub finished: bool,
    /// Whether it has pods to admit, and all that they need is known.
    pub admissible: bool,
}

impl Marks {
    /// Reads the marks of an object.
    pub fn read(metadata: &ObjectMeta) -> Self {
        Self {
            record: record(metadata),
            eviction: annotation(metadata, names::EVICTION).and_then(|text| serde_json::from_str(text).ok()),
            held: annotation(metadata, names::HELD) == Some("true"),
        }
    }

    /// Whether an object that is held by suspension is managed; one that runs without an admission is not.
    pub fn manage(&self, suspended: bool, finished: bool) -> bool {
        self.record.is_some() || suspended || (self.held && finished)
    }

    /// The state of an object that is held by suspension, seen at `now`. A stop begins then, and is confirmed as soon as its
    /// controller says so; the cache corrects both by what it saw before.
    pub fn state(&self, stage: &Stage, now: Time) -> Observed {
        match (stage.suspended, self.record.as_ref().map(Admission::from)) {
            _ if stage.finished => Observed::Finished,
            (false, Some(admission)) => Observed::Admitted(admission),
            (true, Some(admission)) => Observed::Leaving { admission, since: now, stopped: stage.stopped },
            (_, None) if self.held && stage.admissible => Observed::Queued,
            (_, None) => Observed::OnHold,
        }
    }

    /// The facts that every kind has.
    pub fn facts(&self, metadata: &ObjectMeta) -> Facts {
        Facts {
            uid: uid(metadata),
            generation: metadata.generation,
            record: annotation(metadata, names::ADMISSION).map(Into::into),
            has_eviction: annotation(metadata, names::EVICTION).is_some(),
            eviction: self.eviction.clone(),
            held: self.held,
            suspension: Suspension::None,
            most_cached: 0,
            failure: None,
            deleting: metadata.deletion_timestamp.is_some(),
            whole_device: None,
            past: None,
        }
    }
}

/// The record of the admission; an unreadable one counts as none, because no patch could follow it.
pub fn record(metadata: &ObjectMeta) -> Option<Record> {
    let text = annotation(metadata, names::ADMISSION)?;
    serde_json::from_str(text)
        .inspect_err(|error| {
            let object = metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(object, %error, "unreadable admission record");
        })
        .ok()
}

/// The requests of a user, as annotations.
pub struct Requests {
    /// Pools in order of preference.
    pub pools: Vec<Name>,
    /// The longest run, from the annotation or else the deadline of the object.
    pub time_limit: Option<Duration>,
    /// When the workload last saved its work.
    pub last_checkpoint: Option<Time>,
    /// How often the workload saves its work.
    pub checkpoint_interval: Option<Duration>,
    /// The fewest pods of an elastic workload.
    pub min_pods: Option<u32>,
    /// Node labels within one value of which its pods lie.
    pub topology: Topology,
    /// The GPU fraction of each pod.
    pub fraction: Option<Amount>,
    /// The user that submitted it.
    pub user: Option<Name>,
    /// Whether a pod may be evicted although it is not queued again.
    pub preemptible: bool,
    /// Whether its last eviction was for the fair share of another team.
    pub evicted_for_fair_share: bool,
    /// When it was evicted last.
    pub evicted: Option<Time>,
    /// Whether its user holds it while it waits.
    pub hold: bool,
    /// Its order among the work of its user.
    pub order: i32,
    /// Its order among the work of its team.
    pub team_order: i32,
    /// When its user wants it back in the queue.
    pub requeue: Option<Time>,
}

impl Requests {
    /// Reads the requests; a malformed one counts as not given (the webhook refuses it when it is written).
    pub fn read(metadata: &ObjectMeta, active_deadline_seconds: Option<i64>) -> Self {
        let of = |key: &str| annotation(metadata, key);
        let eviction = of(names::EVICTION).and_then(|text| serde_json::from_str::<Eviction>(text).ok());
        let pools = of(names::POOL).unwrap_or_default();
        let deadline = active_deadline_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs);
        Self {
            pools: pools.split(',').filter_map(stated).collect(),
            time_limit: of(names::TIME_LIMIT).and_then(duration).or(deadline),
            last_checkpoint: of(names::LAST_CHECKPOINT).and_then(instant),
            checkpoint_interval: of(names::CHECKPOINT_INTERVAL).and_then(duration),
            min_pods: of(names::MIN_PARALLELISM)
                .and_then(|text| text.trim().parse().ok())
                .filter(|fewest| *fewest > 0),
            topology: Topology {
                required: of(names::TOPOLOGY_REQUIRED).and_then(stated),
                preferred: of(names::TOPOLOGY_PREFERRED).and_then(stated),
            },
            fraction: of(names::GPU_FRACTION)
                // With an offer of the pool the pods request other resources instead, which count as written.
                .filter(|_| of(names::GPU_OFFER).is_none())
                .and_then(|text| crate::api::values::fractions(text).ok()?.first().copied()),
            user: of(names::USER).and_then(stated),
            preemptible: of(names::PREEMPTIBLE) == Some("true"),
            evicted_for_fair_share: eviction
                .as_ref()
                .is_some_and(|eviction| eviction.reason == EvictReason::FairShare.code()),
            evicted: eviction.map(|eviction| time(eviction.at)),
            hold: of(names::HOLD) == Some("true"),
            order: of(names::ORDER).and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            team_order: of(names::TEAM_ORDER).and_then(|text| text.trim().parse().ok()).unwrap_or(0),
            requeue: of(names::REQUEUE).and_then(instant),
        }
    }

    /// A workload of one pod with these requests, as far as they do not depend on its kind: the grace period is that of
    /// its pod template. Team, default queue and priority follow from other objects.
    pub fn workload(self, kind: WorkloadKind, metadata: &ObjectMeta, state: Observed) -> Workload {
        Workload {
            id: WorkloadId(uid(metadata)),
            kind,
            namespace: name(metadata.namespace.as_ref()),
            name: name(metadata.name.as_ref()),
            team: "".into(),
            queue: None,
            priority: 0,
            submitted: created(metadata),
            pods: 1,
            min_pods: None,
            shape: Arc::default(),
            sizes: Vec::new(),
            topology: self.topology,
            profile: Arc::default(),
            user: self.user,
            pools: self.pools,
            resumable: true,
            expendable: false,
            resizable: false,
            time_limit: self.time_limit,
            last_checkpoint: self.last_checkpoint,
            checkpoint_interval: self.checkpoint_interval,
            grace: Duration::ZERO,
            ran: None,
            failed_pods: 0,
            evicted_for_fair_share: self.evicted_for_fair_share,
            evicted: self.evicted,
            hold: self.hold,
            order: self.order,
            team_order: self.team_order,
            requeue: self.requeue,
            state,
        }
    }
}

/// A time in RFC 3339.
fn instant(text: &str) -> Option<Time> {
    text.trim().parse::<Timestamp>().ok().map(time)
}

/// A duration as people write it in annotations (`90m`, `1h30m`).
fn duration(text: &str) -> Option<Duration> {
    crate::api::values::duration(text.trim()).ok()
}

/// A text that is not blank.
fn stated(text: &str) -> Option<Name> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(Name::from)
}
