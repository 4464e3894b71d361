//! The sizes at which a workload may run.

use std::sync::Arc;

use crate::types::vector::Vector;
use crate::types::{Admission, PodShape, Workload};

/// A pod of a workload at one of its sizes.
#[derive(Clone, Debug)]
pub struct SizedPod {
    /// What it demands of a node.
    pub shape: Arc<PodShape>,
    /// What it takes there, its slot included.
    pub need: Vector,
}

/// Which size an admission grants, by its place among those of the workload.
#[must_use]
pub fn granted(workload: &Workload, admission: Option<&Admission>) -> usize {
    let share = admission.and_then(|admission| admission.share);
    share.and_then(|share| workload.sizes.iter().position(|size| size.share == share)).unwrap_or(0)
}
