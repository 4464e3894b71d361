//! Sluice's part of the Kubernetes API: kinds, labels, annotations and records.

pub mod accounts;
pub mod affinity;
pub mod caps;
pub mod convert;
pub mod names;
pub mod node_pool;
pub mod notify;
pub mod pod_group;
pub mod priority;
pub mod question;
pub mod record;
pub(crate) mod schema;
pub mod seats;
pub mod sizes;
pub mod team;
pub mod values;
