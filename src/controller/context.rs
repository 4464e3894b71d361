//! The handles and options of the controller.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use kube::Client;

use super::readiness::Readiness;
use super::recorder::Recorder;
use crate::api::caps::Caps;
use crate::cluster::events::Notices;
use crate::cluster::heartbeat::Heartbeat;
use crate::cluster::leader::Leadership;
use crate::directory::SharedDirectory;
use crate::engine::types::Settings;
use crate::kinds::Kinds;
use crate::metrics::Metrics;
use crate::notify::Notifier;

/// Handles and options, shared by all sessions.
#[derive(Clone)]
pub struct Context {
    /// The client of the API server.
    pub client: Client,
    /// Whether this process leads.
    pub leadership: Leadership,
    /// The heartbeat of the loop.
    pub heart: Heartbeat,
    /// The directory that the webhook reads.
    pub directory: SharedDirectory,
    /// Every metric.
    pub metrics: Arc<Metrics>,
    /// The queue of Kubernetes Events to publish.
    pub notices: Notices,
    /// Takes the transitions that endpoints of Teams are notified of.
    pub notifier: Notifier,
    /// Tells the history and the log of decisions.
    pub recorder: Arc<Mutex<Recorder>>,
    /// The number of writes in flight.
    pub busy: Arc<AtomicUsize>,
    /// Scheduling options.
    pub settings: Settings,
    /// What one workload may consist of.
    pub caps: Caps,
    /// The custom kinds: kinds besides Job and Pod with objects that are workloads.
    pub kinds: Kinds,
    /// Set when the first lists are complete.
    pub ready: Arc<Readiness>,
}
