//! Decisions in flight: the write for each, and whether it still holds after its object changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::api::record::{Eviction, Record};
use crate::cluster::actuator::{Purpose, Task, Write};
use crate::cluster::pod_groups::PodGroup;
use crate::cluster::target::{Facts, Failure, Grant, Managed, Operation, Pin};
use crate::engine::types::{Action, Admission, FailReason, Name, Observed, ResizeCause, Workload};

/// A decision with a write in flight.
pub struct Decision {
    /// A number unique within the session; distinguishes decisions on the same workload.
    pub number: u64,
    /// The decision itself.
    pub action: Action,
    /// The workload at the time of the decision.
    pub about: Arc<Workload>,
    /// Whether the workload has no eviction on record, so an admission is its first.
    pub first: bool,
    /// The number of writes so far.
    pub tries: u32,
}

/// Whether a decision still holds for an object that has changed.
pub fn still_holds(decided: &Decision, managed: &Managed) -> bool {
    match &decided.action {
        Action::Admit { .. } => managed.workload == decided.about,
        Action::Evict { .. } | Action::Resize { .. } | Action::Fail { .. } | Action::EndPod { .. } => {
            managed.workload.state == decided.about.state
        }
    }
}

/// Whether a changed object shows the effect of the decision: the answer of its write was lost, or the write
/// was confirmed before the watch showed the object it was decided on.
pub fn carried_out(decided: &Decision, managed: &Managed) -> bool {
    match (&decided.action, &managed.workload.state) {
        (
            Action::Admit { admission, .. },
            Observed::Admitted(seen) | Observed::Leaving { admission: seen, .. },
        ) => admission == seen,
        (Action::Admit { .. }, Observed::Finished) => managed.facts.record.is_some(),
        (Action::Evict { .. }, Observed::Leaving { .. }) => managed.facts.has_eviction,
        // A deleted pod ends for good.
        (Action::Evict { .. }, Observed::Finished) => decided.about.kind.is_pods() && managed.facts.deleting,
        (
            Action::Resize { admission, .. },
            Observed::Admitted(seen) | Observed::Leaving { admission: seen, .. },
        ) => admission == seen,
        (Action::Resize { admission, .. }, Observed::Finished) => {
            record(managed).is_some_and(|record| *admission == Admission::from(&record))
        }
        (Action::Fail { reason, .. }, Observed::Finished | Observed::Leaving { .. } | Observed::OnHold) => {
            let Facts { failure, eviction, .. } = &managed.facts;
            let codes = [failure.as_deref(), eviction.as_ref().map(|note| note.reason.as_str())];
            codes.contains(&Some(reason.code()))
        }
        _ => false,
    }
}

/// The admission record of a workload.
pub fn record(managed: &Managed) -> Option<Record> {
    serde_json::from_str(managed.facts.record.as_deref()?).ok()
}

/// The pods and nodes of an admission as text, such as `4 pods on gpu-1 (2), gpu-2 (2)`.
pub fn places(admission: &Admission) -> String {
    const SHOWN: usize = 8;
    let mut nodes: Vec<String> =
        admission.nodes.iter().take(SHOWN).map(|(node, pods)| format!("{node} ({pods})")).collect();
    if admission.nodes.len() > SHOWN {
        nodes.push(format!("{} more", admission.nodes.len() - SHOWN));
    }
    let pods = if admission.pods == 1 { "pod" } else { "pods" };
    format!("{} {pods} on {}", admission.pods, nodes.join(", "))
}

/// A write on a workload with the defaults of every purpose.
pub fn write_on(managed: &Managed, purpose: Purpose, task: Task, message: String) -> Write {
    let workload = &managed.workload;
    Write {
        id: workload.id.clone(),
        resource: managed.resource(),
        namespace: workload.namespace.clone(),
        name: workload.name.clone(),
        purpose,
        decision: 0,
        task,
        smaller: Vec::new(),
        disrupted: Vec::new(),
        message,
        group: None,
    }
}

/// The write that admits a workload.
pub fn admission_of(
    managed: &Managed,
    version: u64,
    admission: &Admission,
    pin: Pin,
    message: &str,
) -> Write {
    let record = Record::from(admission);
    let grants = grants(managed, admission);
    admission_by(managed, version, Purpose::Admit, &record, (grants, pin), message)
}

/// The PodGroup that an admitted Job's pods name; `None` if they name none of Sluice, or leave it because others have
/// succeeded. Its `minCount` is the number of admitted pods if they must start together.
pub fn pod_group_of(managed: &Managed, admission: &Admission, may_be_there: bool) -> Option<PodGroup> {
    let gang = managed.gang().filter(|gang| !gang.thinned)?;
    let together = gang.together.then_some(admission.pods);
    Some(PodGroup { name: gang.group.clone(), together, may_be_there })
}

/// The write that admits a workload with a given record.
pub fn admission_by(
    managed: &Managed,
    version: u64,
    purpose: Purpose,
    record: &Record,
    (grants, pin): (Grant, Pin),
    message: &str,
) -> Write {
    let task = match managed.too_many_terms(record.nodes.len(), pin) {
        Some(why) => Task::Impossible(why),
        None => Task::Single(Operation::Patch(managed.admit(version, record, grants, pin))),
    };
    write_on(managed, purpose, task, message.to_owned())
}

fn grants(managed: &Managed, admission: &Admission) -> Grant {
    if admission.pods < managed.workload.pods { Grant::Part } else { Grant::All }
}

/// The write that resizes a running Job; `pods` gives its current pods by node. Pods that can never run again are taken
/// off the record without a mark: no pod has to end for that, and the watch may show one that has ended as running.
pub fn resize_of(
    managed: &Managed,
    version: u64,
    admission: &Admission,
    cause: ResizeCause,
    message: &str,
    pods: impl FnOnce() -> BTreeMap<Name, Vec<Name>>,
) -> Write {
    let record = Record::from(admission);
    let operation = Operation::Patch(managed.resize(version, &record, grants(managed, admission)));
    let mut write = write_on(managed, Purpose::Resize, Task::Single(operation), message.to_owned());
    let before = match &managed.workload.state {
        Observed::Admitted(before) if before.pods > admission.pods => Some(before),
        _ => None,
    };
    write.smaller = before.and_then(|_| managed.smaller_resize(version, &record)).into_iter().collect();
    // With all pods on one node, any of them may end.
    let matters = before.is_some_and(|before| before.nodes.len() > 1);
    if cause != ResizeCause::Released && (matters || managed.has_failure_policy()) {
        write.disrupted = excess(pods(), admission);
    }
    write
}

/// The pods beyond the admitted number of each node, the last ones by name.
fn excess(pods: BTreeMap<Name, Vec<Name>>, admission: &Admission) -> Vec<Name> {
    let beyond = |(node, mut pods): (Name, Vec<Name>)| {
        let stay = admission.nodes.get(&node).map_or(0, |pods| *pods as usize);
        pods.sort();
        pods.into_iter().skip(stay)
    };
    pods.into_iter().flat_map(beyond).collect()
}

/// The write that fails a workload.
pub fn failure_of(
    managed: &Managed,
    version: u64,
    reason: FailReason,
    message: &str,
    at: Timestamp,
) -> Write {
    let why = Failure { reason: reason.code(), message, at };
    write_on(managed, Purpose::Fail, Task::Single(managed.fail(version, &why)), message.to_owned())
}

/// The write that evicts a workload: a Job is suspended, a pod is evicted through the Eviction API. A pod is
/// evicted only if its user marked it preemptible, because it is not created again.
pub fn eviction_of(
    managed: &Managed,
    version: u64,
    note: &Eviction,
    message: &str,
    pods: impl FnOnce() -> Vec<Name>,
) -> Write {
    let task = Task::Single(managed.evict(version, note));
    let mut write = write_on(managed, Purpose::Evict, task, message.to_owned());
    write.smaller = managed.smaller_evictions(version, note);
    if managed.has_failure_policy() {
        write.disrupted = pods();
    }
    write
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names;
    use crate::cluster::target::job::job;
    use crate::engine::types::EvictReason;
    use crate::engine::types::{Time, WorkloadId};

    fn seen(suspend: bool, annotations: &Value) -> Managed {
        let object = json!({
            "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "5", "generation": 2,
                "annotations": annotations},
            "spec": {"suspend": suspend, "template": {"spec": {"containers": []}}},
        });
        let seen = job(&serde_json::from_value(object).expect("a Job"), Time(0));
        *seen.managed.expect("managed")
    }

    fn spread(nodes: &[(&str, u32)]) -> Admission {
        Admission {
            pool: "p".into(),
            nodes: nodes.iter().map(|(node, pods)| ((*node).into(), *pods)).collect(),
            pods: nodes.iter().map(|(_, pods)| pods).sum(),
            borrowed: false,
            share: None,
            spared: false,
            unfunded: false,
            at: Time(7),
        }
    }

    #[test]
    fn a_shrinking_job_loses_the_pods_beyond_the_admitted_number_of_each_node() {
        let pods = || {
            let named = |names: [&str; 2]| names.map(Name::from).to_vec();
            BTreeMap::from([("n1".into(), named(["c", "a"])), ("n2".into(), named(["d", "b"]))])
        };
        let marked_for = |cause: ResizeCause, before: &[(&str, u32)], after: &[(&str, u32)]| {
            let record = serde_json::to_string(&Record::from(&spread(before))).expect("a record");
            let managed = seen(false, &json!({names::HELD: "true", names::ADMISSION: record}));
            resize_of(&managed, 5, &spread(after), cause, "why", pods).disrupted
        };
        let marked =
            |before: &[(&str, u32)], after: &[(&str, u32)]| marked_for(ResizeCause::Shrunk, before, after);
        assert_eq!(marked(&[("n1", 2), ("n2", 2)], &[("n1", 1), ("n2", 2)]), [Name::from("c")]);
        assert_eq!(marked(&[("n1", 2), ("n2", 2)], &[("n2", 1)]), ["a", "c", "d"].map(Name::from));
        assert!(marked(&[("n1", 2)], &[("n1", 1)]).is_empty(), "on one node any pod may end");
        assert!(marked(&[("n1", 1), ("n2", 2)], &[("n1", 2), ("n2", 2)]).is_empty(), "it grows");
        let released = marked_for(ResizeCause::Released, &[("n1", 2), ("n2", 2)], &[("n2", 1)]);
        assert!(released.is_empty(), "pods that can never run again are not to end");
    }

    #[test]
    fn a_changed_object_shows_whether_the_decision_changed_it() {
        let admission = |at: i64| Admission {
            pool: "p".into(),
            nodes: [("n1".into(), 1)].into(),
            pods: 1,
            borrowed: false,
            share: None,
            spared: false,
            unfunded: false,
            at: Time(at),
        };
        let record = |at: i64| serde_json::to_string(&Record::from(&admission(at))).expect("a record");
        let held = || json!({names::HELD: "true"});
        let admitted = |at: i64| json!({names::HELD: "true", names::ADMISSION: record(at)});
        let evicted = json!({names::HELD: "true", names::ADMISSION: record(7),
            names::EVICTION: r#"{"at":"2026-11-21T09:00:00Z","for":"b/y","reason":"Reclaimed"}"#});
        let decided = |action: Action, about: Managed| Decision {
            number: 1,
            action,
            about: about.workload,
            first: true,
            tries: 1,
        };
        let id = || WorkloadId("u".into());
        let admit = || {
            let action = Action::Admit { workload: id(), admission: admission(7), message: String::new() };
            decided(action, seen(true, &held()))
        };
        let evict = || {
            let reason = EvictReason::Reclaimed;
            let action =
                Action::Evict { workload: id(), preemptor: Some(id()), reason, message: String::new() };
            decided(action, seen(false, &admitted(7)))
        };
        let grown = || Admission { pods: 2, nodes: [("n1".into(), 2)].into(), ..admission(7) };
        let resized = json!({names::HELD: "true",
            names::ADMISSION: serde_json::to_string(&Record::from(&grown())).expect("a record")});
        let resize = || {
            let action = Action::Resize {
                workload: id(),
                admission: grown(),
                cause: ResizeCause::Grown,
                preemptor: None,
                message: String::new(),
            };
            decided(action, seen(false, &admitted(7)))
        };
        let fail = |about: Managed| {
            let action =
                Action::Fail { workload: id(), reason: FailReason::MaxRuntime, message: String::new() };
            decided(action, about)
        };
        let ended = |reason: &str| {
            let mut ended = seen(false, &admitted(7));
            Arc::make_mut(&mut ended.workload).state = Observed::Finished;
            ended.facts.failure = Some(reason.into());
            ended
        };
        for (case, decided, now, done, holds) in [
            ("resized as decided", resize(), seen(false, &resized), true, false),
            ("resized and stopped", resize(), seen(true, &resized), true, false),
            ("not resized yet", resize(), seen(false, &admitted(7)), false, true),
            ("stopped before it was resized", resize(), seen(true, &admitted(7)), false, false),
            ("failed as decided", fail(seen(false, &admitted(7))), ended("MaxRuntime"), true, false),
            (
                "failed by itself",
                fail(seen(false, &admitted(7))),
                ended("BackoffLimitExceeded"),
                false,
                false,
            ),
            ("not failed yet", fail(seen(true, &held())), seen(true, &held()), false, true),
            ("admitted before it failed", fail(seen(true, &held())), seen(false, &admitted(7)), false, false),
            ("admitted as decided", admit(), seen(false, &admitted(7)), true, false),
            ("admitted and stopped by its user", admit(), seen(true, &admitted(7)), true, false),
            ("admitted otherwise", admit(), seen(false, &admitted(8)), false, false),
            ("only annotated", admit(), seen(true, &held()), false, true),
            ("evicted as decided", evict(), seen(true, &evicted), true, false),
            ("stopped by its user", evict(), seen(true, &admitted(7)), false, false),
            ("still running", evict(), seen(false, &admitted(7)), false, true),
        ] {
            assert_eq!(carried_out(&decided, &now), done, "{case}");
            assert_eq!(still_holds(&decided, &now), holds, "{case}");
        }
    }
}
