//! Single decisions: what is written for them, and whether they still hold.

use crate::api::record::{Eviction, Record};
use crate::cluster::actuator::{Purpose, Write};
use crate::cluster::patch;
use crate::cluster::reduce::Managed;
use crate::engine::decision::Action;
use crate::engine::model::{Admission, Name, Observed, Workload};

/// A decision that is being written.
pub struct Decided {
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
        Action::Evict { .. } => managed.workload.state == decided.about.state,
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
