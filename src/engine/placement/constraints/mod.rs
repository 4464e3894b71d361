//! The constraints of pods on other pods: required affinity and anti-affinity, and required spread.
//!
//! The rules are kube-scheduler's (`InterPodAffinity` and `PodTopologySpread`), for all pods of a request together: the
//! pods of a request count against each other as if they were bound one after another. What the engine places so can be
//! bound at once.

mod levels;
mod parts;
mod rules;

pub use rules::{Origin, Rules};
