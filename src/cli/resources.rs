//! The resources of workloads.

use kube::core::{ApiResource, GroupVersionKind};

use crate::kinds::Kinds;

/// The resource of a kind of workload.
///
/// # Errors
/// For a kind that this command does not know.
pub fn of(kind: &str) -> anyhow::Result<ApiResource> {
    let known = |group: &str, kind: &str, plural: &str| {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
    };
    Ok(match kind {
        "Job" => known("batch", "Job", "jobs"),
        "Pod" | "PodGroup" => known("", "Pod", "pods"),
        kind => {
            let kinds = Kinds::default();
            let watched = kinds.watched().iter().find(|one| one.resource.kind == kind);
            let resource = watched.map(|one| one.resource.clone());
            return resource.ok_or_else(|| anyhow::anyhow!("this command does not know {kind}; use kubectl"));
        }
    })
}
