//! The start time of Jobs, which keeps their templates from being changed before Kubernetes 1.36.
//!
//! A template gets the nodes of an admission, and after an eviction what its user wrote. Until 1.36 an API server allows
//! that only while the Job is suspended and its status has no start time, and a Job that has run keeps its start time. Its
//! controller sets a new one when the Job is resumed. From 1.36 on the controller clears it itself, and nothing here is
//! called.

use kube::api::{GetParams, Patch, PatchParams};
use kube::core::Request;

use super::call::{Caller, Failure, unsendable};
use super::target::job::{Unstart, unstart};
use super::wire;
use crate::api::names;
use crate::engine::types::Name;

/// How often the status is read again because the Job controller has written it meanwhile.
const TRIES: u32 = 3;

/// Clears the start time of a suspended Job without pods, after the API server has refused to change its template for
/// the reason `refusal`. A Job that has been resumed or restored meanwhile is left as it is: the write on its template
/// tells by itself what has changed. Calls are counted under `label`.
///
/// # Errors
/// Why the template still cannot be changed.
pub async fn clear(
    caller: &Caller,
    jobs: &Request,
    (name, uid): (&str, &Name),
    label: &'static str,
    refusal: String,
) -> Result<(), Failure> {
    for _ in 0..TRIES {
        let request = jobs.get(name, &GetParams::default()).map_err(unsendable)?;
        let patch = match unstart(&caller.until_known::<wire::Job>(None, false, request).await?, uid) {
            Unstart::Patch(patch) => Patch::Json::<()>(patch),
            Unstart::Resumed => return Ok(()),
            Unstart::NeverRan => return Err(Failure::Refused(refusal)),
            Unstart::Stopping => {
                return Err(Failure::NotNow("the Job controller has not stopped the Job yet".to_owned()));
            }
        };
        let params =
            PatchParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PatchParams::default() };
        let request = jobs.patch_subresource("status", name, &params, &patch).map_err(unsendable)?;
        match caller.until_known::<wire::Job>(Some(label), true, request).await {
            Ok(_) => return Ok(()),
            Err(Failure::Moved) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::NotNow("the status of the Job keeps changing".to_owned()))
}
