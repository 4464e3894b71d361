//! The warning at create about what can never start.

use std::sync::Arc;

use super::context::Context;
use crate::cluster::target::unsubmitted;
use crate::engine::types::Time;

/// The warning about a new object that is too large for the nodes, its queue or its team, if it is. The verdict at
/// dry-run says the same, and more.
pub fn warning(context: &Context<'_>) -> Option<String> {
    if context.request.dry_run {
        return None;
    }
    let assignment = context.assignment().ok()?;
    let team = assignment.team.as_ref()?;
    // What cannot be read waits with that reason.
    let found = unsubmitted::read(context.view.kinds(), context.object(), Time(0)).ok()??;
    let mut workload = Arc::unwrap_or_clone(found.managed.workload);
    workload.team = Arc::clone(team);
    workload.queue.clone_from(&assignment.queue);
    let why = context.view.never(&workload)?;
    Some(format!("sluice: {why}"))
}
