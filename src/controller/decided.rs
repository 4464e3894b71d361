//! Single decisions: what is written for them, and whether they still hold.

use crate::api::record::{Eviction, Record};
use crate::cluster::actuator::{Purpose, Write};
use crate::cluster::patch;
use crate::cluster::reduce::Managed;
use crate::engine::decision::{Action, Reason};
use crate::engine::model::{Admission, Name, Workload, WorkloadKind};

/// A decision that is being written.
pub struct Decided {
    /// What was decided.
    pub action: Action,
    /// The workload as it was then.
    pub about: Workload,
    /// The version that was last written on.
    pub version: u64,
    /// How often it has been written.
    pub tries: u32,
}

/// Whether a reason will not pass by waiting.
pub fn refuses(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NoNodeFits | Reason::NotPreemptibleOverGuarantee | Reason::UnknownTeam | Reason::UnknownQueue
    )
}

/// Whether a decision is still right for an object that has moved.
pub fn still_holds(decided: &Decided, managed: &Managed) -> bool {
    match &decided.action {
        Action::Admit { .. } => managed.workload == decided.about,
        Action::Evict { .. } => managed.workload.state == decided.about.state,
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
pub fn write_on(
    managed: &Managed,
    purpose: Purpose,
    patch: Option<json_patch::Patch>,
    message: String,
) -> Write {
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
    write_on(managed, Purpose::Admit, Some(patch), message.to_owned())
}

/// The write that stops a workload.
pub fn eviction_of(
    managed: &Managed,
    version: u64,
    note: &Eviction,
    message: &str,
    pods: impl FnOnce() -> Vec<Name>,
) -> Write {
    match managed.workload.kind {
        WorkloadKind::Job => {
            let patch = Some(patch::evict(&managed.facts, version, note));
            let mut write = write_on(managed, Purpose::Evict, patch, message.to_owned());
            if managed.facts.has_failure_policy {
                write.disrupted = pods();
            }
            write
        }
        WorkloadKind::Pod => {
            let mut write = write_on(managed, Purpose::Evict, None, message.to_owned());
            write.disrupted = vec![managed.workload.name.clone()];
            write
        }
    }
}
