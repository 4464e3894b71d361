//! The sizes at which a workload may run.

use std::sync::Arc;

use crate::types::vector::Vector;
use crate::types::{Admission, PodShape, Workload};

/// A pod of a workload at one of its sizes.
#[derive(Clone, Debug)]
pub struct SizedPod {
    /// Its demands on a node.
    pub shape: Arc<PodShape>,
    /// The amounts that it takes, its pod slot included.
    pub need: Vector,
}

/// The size that an admission grants, as an index into the sizes of the workload.
#[must_use]
pub fn granted(workload: &Workload, admission: Option<&Admission>) -> usize {
    let share = admission.and_then(|admission| admission.share);
    share.and_then(|share| workload.sizes.iter().position(|size| size.share == share)).unwrap_or(0)
}
