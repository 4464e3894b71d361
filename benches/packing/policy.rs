//! The interface that all policies share.

use anyhow::Result;

use crate::cluster::{Cluster, Spot};
use crate::trace::Pod;

/// Chooses nodes for pods. A choice is allocated before the next pod arrives.
pub trait Policy {
    /// Node and devices for the next pod; none when it is dropped. The benchmark times this call.
    ///
    /// # Errors
    /// When the policy contradicts itself.
    fn place(&mut self, cluster: &Cluster, pod: &Pod) -> Result<Option<Spot>>;

    /// Notes that the last choice was carried out.
    fn confirm(&mut self) {}

    /// Compares the policy's own usage figures, if it has any, with the cluster at the end of a run.
    ///
    /// # Errors
    /// When they differ.
    fn audit(&self, _cluster: &Cluster) -> Result<()> {
        Ok(())
    }
}
