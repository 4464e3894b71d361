//! Kubernetes Events: at most one for each change of a workload.
//!
//! Events have the lowest priority of all writes: they wait while admissions and evictions are in
//! flight, and are dropped when too many wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::leader::Leadership;
use crate::api::names;
use crate::engine::types::{Workload, WorkloadKind};
use crate::metrics::Metrics;

/// The most events that wait.
const BACKLOG: usize = 8192;
/// The longest delay of an event while other writes are in flight.
const LONGEST_DELAY: Duration = Duration::from_millis(500);
/// The time limit of one call.
const DEADLINE: Duration = Duration::from_secs(5);
/// The longest note the API takes, in bytes.
const NOTE: usize = 1024;

/// An event to publish about an object.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The object.
    pub about: ObjectReference,
    /// Whether the event is of type Warning.
    pub warning: bool,
    /// The reason, one word in CamelCase.
    pub reason: &'static str,
    /// The action taken, one word in CamelCase.
    pub action: &'static str,
    /// A key that distinguishes occurrences of the same reason, in lower-case letters and digits.
    pub occasion: String,
    /// The message.
    pub note: String,
}

impl Notice {
    /// The event's name. It is the same for the same occurrence on every replica, so the API server refuses
    /// duplicates.
    fn name(&self) -> String {
        let object = up_to(self.about.name.as_deref().unwrap_or_default(), 150).trim_end_matches(['-', '.']);
        let uid = self.about.uid.as_deref().unwrap_or_default();
        format!("{object}.{uid}.{}-{}", self.reason.to_lowercase(), self.occasion)
            .trim_end_matches('-')
            .to_owned()
    }
}

/// The object of a workload that is a single object.
#[must_use]
pub fn reference(workload: &Workload) -> ObjectReference {
    let (api_version, kind) = match &workload.kind {
        WorkloadKind::Job => ("batch/v1", "Job"),
        WorkloadKind::Pod | WorkloadKind::PodGroup => ("v1", "Pod"),
        WorkloadKind::Other { api_version, kind } => (&**api_version, &**kind),
    };
    let uid = workload.id.unadmitted_pod().map_or_else(|| workload.id.0.clone(), |pod| pod.0);
    ObjectReference {
        api_version: Some(api_version.into()),
        kind: Some(kind.into()),
        name: Some(workload.name.to_string()),
        namespace: Some(workload.namespace.to_string()),
        uid: Some(uid.to_string()),
        ..ObjectReference::default()
    }
}

/// The queue of notices.
#[derive(Clone, Debug)]
pub struct Notices(mpsc::Sender<Notice>);

impl Notices {
    /// Queues a notice about each object.
    pub fn publish_each(&self, objects: Vec<ObjectReference>, notice: impl Fn(ObjectReference) -> Notice) {
        for about in objects {
            self.publish(notice(about));
        }
    }

    /// Queues a notice; drops it when too many wait.
    pub fn publish(&self, notice: Notice) {
        if self.0.try_send(notice).is_err() {
            tracing::debug!("event dropped: the queue is full");
        }
    }
}

/// Publishes notices one by one, while no other writes are in flight (`busy`).
pub fn publisher(
    client: Client,
    leadership: Leadership,
    identity: String,
    metrics: Arc<Metrics>,
    busy: Arc<AtomicUsize>,
) -> (Notices, impl Future<Output = ()> + Send) {
    let (sender, mut receiver) = mpsc::channel(BACKLOG);
    let run = async move {
        while let Some(notice) = receiver.recv().await {
            wait_while_busy(&busy).await;
            if !leadership.holds() {
                continue;
            }
            let outcome = send(&client, &identity, notice).await;
            metrics.api_writes.with_label_values(&["event", outcome]).inc();
        }
    };
    (Notices(sender), run)
}

async fn wait_while_busy(busy: &AtomicUsize) {
    const STEP: Duration = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    while busy.load(Ordering::Relaxed) > 0 && waited < LONGEST_DELAY {
        sleep(STEP).await;
        waited += STEP;
    }
}

async fn send(client: &Client, identity: &str, notice: Notice) -> &'static str {
    let now = k8s_openapi::jiff::Timestamp::now();
    // The namespace of Events about objects that are in none.
    let namespace = notice.about.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let event = Event {
        metadata: ObjectMeta {
            name: Some(notice.name()),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some(notice.action.into()),
        event_time: Some(MicroTime(now)),
        note: Some(up_to(&notice.note, NOTE).to_owned()),
        reason: Some(notice.reason.into()),
        regarding: Some(notice.about),
        reporting_controller: Some("sluice.dev/controller".into()),
        reporting_instance: Some(identity.to_owned()),
        type_: Some(if notice.warning { "Warning" } else { "Normal" }.into()),
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
    match timeout(DEADLINE, api.create(&params, &event)).await {
        Ok(Ok(_)) => "done",
        // Already published, perhaps by the previous leader.
        Ok(Err(kube::Error::Api(status))) if status.is_already_exists() => "conflict",
        Ok(Err(error)) => {
            tracing::debug!(%error, "cannot write an event");
            "refused"
        }
        Err(_) => "unanswered",
    }
}

/// The start of a text, at most `bytes` bytes, in whole characters.
fn up_to(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_between_characters() {
        for (text, bytes, expected) in [("abc", 5, "abc"), ("abc", 2, "ab"), ("aé", 2, "a"), ("é", 0, "")] {
            assert_eq!(up_to(text, bytes), expected, "{text} {bytes}");
        }
    }
    #[test]
    fn one_occurrence_has_one_name() {
        let notice = |name: &str, uid: &str, reason, occasion: &str| Notice {
            about: ObjectReference {
                name: Some(name.into()),
                uid: Some(uid.into()),
                ..ObjectReference::default()
            },
            warning: false,
            reason,
            action: "Admit",
            occasion: occasion.into(),
            note: String::new(),
        };
        let name = notice("train", "u1", "Admitted", "1a").name();
        assert_eq!(name, "train.u1.admitted-1a");
        for other in [
            notice("train", "u2", "Admitted", "1a"),
            notice("train", "u1", "Evicted", "1a"),
            notice("train", "u1", "Admitted", "1b"),
        ] {
            assert_ne!(other.name(), name);
        }
        let long = format!("{}-{}", "x".repeat(149), "y".repeat(103));
        let name = notice(&long, "u1", "Evicted", "").name();
        assert_eq!(name, format!("{}.u1.evicted", "x".repeat(149)), "every part ends as the API wants");
    }
}
