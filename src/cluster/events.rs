//! What people read under `kubectl describe`: at most one event for each change of a workload.
//!
//! Events are for people; they wait while admissions and evictions are being written, and are
//! dropped rather than piled up.

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

use super::leader::Claim;
use crate::api::names;
use crate::engine::types::{Workload, WorkloadKind};
use crate::metrics::Metrics;

/// How many events may wait.
const BACKLOG: usize = 8192;
/// How long one is held back at most while other writes are under way.
const YIELD: Duration = Duration::from_millis(500);
/// How long the call may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// The longest note the API takes, in bytes.
const NOTE: usize = 1024;

/// Something to tell about a workload.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The object.
    pub about: ObjectReference,
    /// Whether it is bad news.
    pub warning: bool,
    /// What happened, a word.
    pub reason: &'static str,
    /// What was done, a word.
    pub action: &'static str,
    /// What tells this time that it happened from others, in lower case letters and digits.
    pub occasion: String,
    /// The sentence.
    pub note: String,
}

impl Notice {
    /// The same name for the same thing that happened, whoever tells of it and however often: the
    /// API server takes the first and refuses the rest.
    fn name(&self) -> String {
        let object = up_to(self.about.name.as_deref().unwrap_or_default(), 150).trim_end_matches(['-', '.']);
        let uid = self.about.uid.as_deref().unwrap_or_default();
        format!("{object}.{uid}.{}-{}", self.reason.to_lowercase(), self.occasion)
            .trim_end_matches('-')
            .to_owned()
    }
}

/// The object of a workload that is one.
#[must_use]
pub fn reference(workload: &Workload) -> ObjectReference {
    let (api_version, kind) = match &workload.kind {
        WorkloadKind::Job => ("batch/v1", "Job"),
        WorkloadKind::Pod | WorkloadKind::PodGroup => ("v1", "Pod"),
        WorkloadKind::Other { api_version, kind } => (&**api_version, &**kind),
    };
    ObjectReference {
        api_version: Some(api_version.into()),
        kind: Some(kind.into()),
        name: Some(workload.name.to_string()),
        namespace: Some(workload.namespace.to_string()),
        uid: Some(workload.id.0.to_string()),
        ..ObjectReference::default()
    }
}

/// Where notices go in.
#[derive(Clone, Debug)]
pub struct Notices(mpsc::Sender<Notice>);

impl Notices {
    /// Queues a notice about each of these objects.
    pub fn publish_each(&self, objects: Vec<ObjectReference>, notice: impl Fn(ObjectReference) -> Notice) {
        for about in objects {
            self.publish(notice(about));
        }
    }

    /// Queues a notice; it is lost when too many wait.
    pub fn publish(&self, notice: Notice) {
        if self.0.try_send(notice).is_err() {
            tracing::debug!("an event was dropped: too many wait");
        }
    }
}

/// Publishes notices one by one, while nothing more urgent is `busy`.
pub fn publisher(
    client: Client,
    claim: Claim,
    identity: String,
    metrics: Arc<Metrics>,
    busy: Arc<AtomicUsize>,
) -> (Notices, impl Future<Output = ()> + Send) {
    let (sender, mut receiver) = mpsc::channel(BACKLOG);
    let run = async move {
        while let Some(notice) = receiver.recv().await {
            yield_to(&busy).await;
            if !claim.holds() {
                continue;
            }
            let outcome = send(&client, &identity, notice).await;
            metrics.api_writes.with_label_values(&["event", outcome]).inc();
        }
    };
    (Notices(sender), run)
}

async fn yield_to(busy: &AtomicUsize) {
    const STEP: Duration = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    while busy.load(Ordering::Relaxed) > 0 && waited < YIELD {
        sleep(STEP).await;
        waited += STEP;
    }
}

async fn send(client: &Client, identity: &str, notice: Notice) -> &'static str {
    let now = k8s_openapi::jiff::Timestamp::now();
    let namespace = notice.about.namespace.clone().unwrap_or_default();
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
        // Told already, perhaps by the leader before.
        Ok(Err(kube::Error::Api(status))) if status.is_already_exists() => "conflict",
        Ok(Err(error)) => {
            tracing::debug!(%error, "an event was not written");
            "refused"
        }
        Err(_) => "unanswered",
    }
}

/// The beginning of a text, at most so many bytes of it, in whole characters.
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
    fn the_same_thing_has_the_same_name_and_another_another() {
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
