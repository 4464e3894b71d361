//! Reads a Job or a pod that Sluice does not manage.

use super::objects::{decode_value, life};
use super::unmanaged::UnmanagedWorkload;
use crate::cluster::mirror::Mirror;
use crate::cluster::reduce;
use crate::cluster::reduce::claims::Claims;
use crate::cluster::wire;
use crate::engine::types::{Name, WorkloadId};
use crate::scenario::{Kind, Object, ScenarioError};

/// The unmanaged workload of an object.
///
/// # Errors
/// A field that cannot be read, or claims that cannot be counted.
pub fn unmanaged(
    object: &Object,
    id: WorkloadId,
    mirror: &Mirror,
) -> Result<UnmanagedWorkload, ScenarioError> {
    let job: wire::Job;
    let pod: wire::Pod;
    let (spec, labels, at, numbers) = if object.kind == Kind::Job {
        job = decode_value(object, object.manifest.clone())?;
        let count = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
        let pods = count(job.spec.parallelism).unwrap_or(1);
        let completions = count(job.spec.completions).unwrap_or(pods);
        (
            &job.spec.template.spec,
            job.spec.template.metadata.labels.as_ref(),
            "spec.template.spec",
            (pods, completions, job.spec.suspend == Some(true)),
        )
    } else {
        pod = decode_value(object, object.manifest.clone())?;
        (&pod.spec, pod.metadata.labels.as_ref(), "spec", (1, 1, false))
    };
    let mut shape = reduce::shape::shape(spec, spec.affinity.as_ref());
    let profile = reduce::profile::profile(object.namespace.as_ref(), labels, spec, spec.affinity.as_ref());
    let namespace = object.namespace.as_deref().unwrap_or_default().into();
    let claims = reduce::claims::claims(spec, None);
    if let Some(claims) = Claims::of_template(&namespace, vec![claims], &shape.requests, &[]) {
        let wrong = |why: Name| object.invalid(&format!("{at}.resourceClaims"), why.to_string());
        shape.requests = mirror.requests_with(&claims).map_err(wrong)?;
    }
    let (pods, completions, held) = numbers;
    let bound = spec.node_name.as_deref().filter(|_| object.kind == Kind::Pod).map(Name::from);
    let (life, team) = (life(object), mirror.team_of(&namespace));
    Ok(UnmanagedWorkload { id, shape, profile, pods, completions, life, held, bound, team, joined: None })
}
