//! A request to place pods.

use std::sync::Arc;

use crate::state::nodes::Placement;
use crate::types::ids::PoolId;
use crate::types::vector::Vector;
use crate::types::{PodShape, Profile, Topology};

/// Pods to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The pool to place in.
    pub pool: PoolId,
    /// The requirements of each pod.
    pub shape: &'a PodShape,
    /// The topology domains that the pods must or should share.
    pub topology: &'a Topology,
    /// The labels of the pods, and their constraints on other pods.
    pub profile: &'a Arc<Profile>,
    /// The resources of each pod.
    pub need: &'a Vector,
    /// How many pods there are.
    pub pods: u32,
    /// The running pods of the same workload, which these pods join.
    pub beside: Option<&'a Placement>,
}

impl Request<'_> {
    /// The same request without topology constraints.
    #[must_use]
    pub fn anywhere(&self) -> Self {
        Self { topology: &ANYWHERE, beside: None, ..*self }
    }

    /// Whether no node is preferred for its topology.
    pub(super) fn is_free_of_topology(&self) -> bool {
        *self.topology == ANYWHERE && self.beside.is_none()
    }
}

/// No topology constraints.
static ANYWHERE: Topology = Topology { required: None, preferred: None };
