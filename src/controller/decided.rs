//! Single decisions: what is written for them, and whether they still hold.

use crate::api::record::{Eviction, Record};
use crate::cluster::actuator::{Purpose, Write};
use crate::cluster::patch;
use crate::cluster::reduce::Managed;
use crate::engine::decision::Action;
use crate::engine::model::{Admission, Name, Observed, Workload};

/// A decision that is being written.
pub struct Decided {
    /// Its number: a later decision on the same workload has another.
    pub number: u64,
    /// What was decided.
    pub action: Action,
    /// The workload as it was then.
    pub about: Workload,
    /// Whether it is the first admission, as far as is known.
    pub first: bool,
    /// How often it has been written.
    pub tries: u32,
}

/// Whether a decision is still right for an object that has moved.
pub fn still_holds(decided: &Decided, managed: &Managed) -> bool {
    match &decided.action {
        Action::Admit { .. } => managed.workload == decided.about,
        Action::Evict { .. } | Action::Resize { .. } | Action::Fail { .. } => {
            managed.workload.state == decided.about.state
        }
    }
}

/// Whether an object that has moved shows that the decision has been carried out: its answer was lost,
/// or its write overtook the news of what it was decided on.
pub fn carried_out(decided: &Decided, managed: &Managed) -> bool {
    match (&decided.action, &managed.workload.state) {
        (
            Action::Admit { admission, .. },
            Observed::Admitted(seen) | Observed::Leaving { admission: seen, .. },
        ) => admission == seen,
        (Action::Admit { .. }, Observed::Finished) => managed.facts.has_record,
        (Action::Evict { .. }, Observed::Leaving { .. }) => managed.facts.has_eviction,
        _ => false,
    }
}

/// Where an admission puts its pods, for people.
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

/// A write on a workload.
pub fn write_on(managed: &Managed, purpose: Purpose, patch: json_patch::Patch, message: String) -> Write {
    let workload = &managed.workload;
    Write {
        id: workload.id.clone(),
        kind: workload.kind,
        namespace: workload.namespace.clone(),
        name: workload.name.clone(),
        purpose,
        decision: 0,
        patch,
        disrupted: Vec::new(),
        message,
    }
}

/// The write that lets a workload run.
pub fn admission_of(managed: &Managed, version: u64, admission: &Admission, message: &str) -> Write {
    let patch = patch::admit(managed.workload.kind, &managed.facts, version, &Record::from(admission));
    write_on(managed, Purpose::Admit, patch, message.to_owned())
}

/// The write that stops a Job. Bare pods cannot be started again, so none is ever told to stop.
pub fn eviction_of(
    managed: &Managed,
    version: u64,
    note: &Eviction,
    message: &str,
    pods: impl FnOnce() -> Vec<Name>,
) -> Write {
    let patch = patch::evict(&managed.facts, version, note);
    let mut write = write_on(managed, Purpose::Evict, patch, message.to_owned());
    if managed.facts.has_failure_policy {
        write.disrupted = pods();
    }
    write
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names;
    use crate::cluster::reduce::job::job;
    use crate::engine::decision::EvictReason;
    use crate::engine::model::{Time, WorkloadId};

    fn seen(suspend: bool, annotations: &Value) -> Managed {
        let object = json!({
            "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "5", "generation": 2,
                "annotations": annotations},
            "spec": {"suspend": suspend, "template": {"spec": {"containers": []}}},
        });
        let seen = job(&serde_json::from_value(object).expect("a Job"), Time(0));
        *seen.managed.expect("managed")
    }

    #[test]
    fn an_object_that_moved_tells_whether_the_decision_moved_it() {
        let admission = |at: i64| Admission {
            pool: "p".into(),
            nodes: [("n1".into(), 1)].into(),
            pods: 1,
            borrowed: false,
            at: Time(at),
        };
        let record = |at: i64| serde_json::to_string(&Record::from(&admission(at))).expect("a record");
        let held = || json!({names::HELD: "true"});
        let admitted = |at: i64| json!({names::HELD: "true", names::ADMISSION: record(at)});
        let evicted = json!({names::HELD: "true", names::ADMISSION: record(7),
            names::EVICTION: r#"{"at":"2026-11-21T09:00:00Z","for":"b/y","reason":"Reclaimed"}"#});
        let decided = |action: Action, about: Managed| Decided {
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
                Action::Evict { workload: id(), claimant: Some(id()), reason, message: String::new() };
            decided(action, seen(false, &admitted(7)))
        };
        for (what, decided, now, done, holds) in [
            ("admitted as decided", admit(), seen(false, &admitted(7)), true, false),
            ("admitted and stopped by its user", admit(), seen(true, &admitted(7)), true, false),
            ("admitted otherwise", admit(), seen(false, &admitted(8)), false, false),
            ("only annotated", admit(), seen(true, &held()), false, true),
            ("evicted as decided", evict(), seen(true, &evicted), true, false),
            ("stopped by its user", evict(), seen(true, &admitted(7)), false, false),
            ("still running", evict(), seen(false, &admitted(7)), false, true),
        ] {
            assert_eq!(carried_out(&decided, &now), done, "{what}");
            assert_eq!(still_holds(&decided, &now), holds, "{what}");
        }
    }
}
