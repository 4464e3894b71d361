//! Sluice's words in the Kubernetes API: its kinds, labels, annotations and records.

pub mod names;
pub mod record;
