//! The page of labels, annotations and gates.

use super::markdown::{code, head, table};
use crate::api::names;

const INTRODUCTION: &str = "\
The keys that people and Sluice write on objects. All keys for users are optional: a plain Job in a labelled
namespace needs none. `kubectl` shows a warning for a misspelt key. Keys that Sluice writes are refused from any
other writer.";

/// The place of a key on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// `metadata.labels`.
    Label,
    /// `metadata.annotations`.
    Annotation,
    /// `spec.schedulingGates`.
    Gate,
}

/// The writer of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// An administrator of the cluster.
    Administrator,
    /// The user of the workload.
    User,
    /// The user; the webhook fills it in where it is not given.
    UserOrWebhook,
    /// The webhook, at create.
    Webhook,
    /// The webhook, or a policy of the API server while Sluice is down.
    WebhookOrPolicy,
    /// The controller of the replica that leads.
    Controller,
    /// The webhook or a policy on pods, the controller on other objects.
    WebhookOrController,
}

/// A key that means something to Sluice.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key.
    pub key: &'static str,
    /// Its place.
    pub place: Place,
    /// The objects that carry it.
    pub on: &'static str,
    /// Its writer.
    pub by: Writer,
    /// Its meaning and the form of its value.
    pub meaning: &'static str,
}

macro_rules! keys {
    ($($constant:ident: $place:ident, $on:literal, $by:ident, $meaning:literal;)+) => {
        /// Every key.
        pub const KEYS: &[Key] = &[$(Key {
            key: names::$constant,
            place: Place::$place,
            on: $on,
            by: Writer::$by,
            meaning: $meaning,
        }),+];
    };
}

keys! {
    TEAM: Label, "Namespace", Administrator,
        "The Team to which the workloads of the namespace belong. Without it Sluice does not touch the namespace.";
    TEAM: Label, "Job, Pod, custom kinds", Webhook,
        "The team of the workload, from its namespace.";
    QUEUE: Label, "Namespace", Administrator,
        "The queue of workloads that name none, in place of the first queue of the team.";
    QUEUE: Label, "Job, Pod, custom kinds", UserOrWebhook,
        "The queue of the team. It can be changed while a Job waits.";
    VERDICT: Label, "Namespace", Administrator,
        "`off`: no verdict on new objects that are sent with dry-run.";
    POOL: Annotation, "Job, Pod, custom kinds", User,
        "NodePools in order of preference, separated by commas. Without it: `default`.";
    TIME_LIMIT: Annotation, "Job, Pod, custom kinds", User,
        "The longest expected run, such as `2h`. It lets the workload backfill, and makes the start of others predictable.";
    MIN_PARALLELISM: Annotation, "Job", User,
        "The fewest pods that an elastic Job can run with. It may start with and shrink to so many, and grows again.";
    WANTED_PARALLELISM: Annotation, "Job", UserOrWebhook,
        "The number of pods to which an elastic Job that runs is to grow. A larger `parallelism` that its user writes then stands here, and goes into the admission record with the next change of size.";
    TOPOLOGY_REQUIRED: Annotation, "Job, Pod, custom kinds", User,
        "Key of a node label: all pods must lie on nodes with the same value of it.";
    TOPOLOGY_PREFERRED: Annotation, "Job, Pod, custom kinds", User,
        "Key of a node label: all pods should lie on nodes with the same value of it.";
    CHECKPOINT_INTERVAL: Annotation, "Job, Pod, custom kinds", User,
        "How often the workload saves its work, such as `30m`. An eviction is taken to lose no more than that.";
    LAST_CHECKPOINT: Annotation, "Job, Pod, custom kinds", User,
        "Time of the last saved work in RFC 3339, such as `2026-01-31T12:00:00Z`. An eviction loses the work since then.";
    GPU_FRACTION: Annotation, "Job, Pod", User,
        "GPU fraction of each pod, between 0 and 1. A Job may list several, from the most wanted to the least: `1,0.7,0.4`.";
    GROUP: Label, "Pod", User,
        "Name of a group of pods that start all or none.";
    GROUP_SIZE: Annotation, "Pod", User,
        "Number of pods in the group. Required with the label of the group.";
    HOLD: Annotation, "Job, Pod, custom kinds", User,
        "`true`: while it waits the workload is not considered, until the annotation is removed. It keeps its place in the queue.";
    ORDER: Annotation, "Job, Pod, custom kinds", User,
        "A whole number that orders the work of one user in a queue: the highest comes first, without it 0. It moves the user's own work only.";
    TEAM_ORDER: Annotation, "Job, Pod, custom kinds", User,
        "A whole number that orders the work of equal priority in a team whatever the user: the highest comes first, without it 0. Only accounts that may `manage` or update the Team write it.";
    REQUEUE: Annotation, "Job, custom kinds", User,
        "Time in RFC 3339: if the workload was admitted before it, it is evicted once, back to its old place in the queue.";
    PREEMPTIBLE: Annotation, "Pod that no Job owns", User,
        "`true`: the pod may borrow and may be preempted, if its queue is preemptible. Without it: `false`.";
    HELD: Annotation, "Job, custom kinds", WebhookOrPolicy,
        "`true`: Sluice holds the object. A suspended object without it is held by its user.";
    USER: Annotation, "Job, Pod, custom kinds", WebhookOrPolicy,
        "The user that submitted the workload, as the API server authenticated it.";
    GPU_OFFER: Annotation, "Job, Pod", Webhook,
        "Resources that the pods request for their GPU fraction, where the NodePool has `shares`.";
    GPU_SIZES: Annotation, "Job", Webhook,
        "Resources that the pods request at each GPU fraction of the list, as JSON.";
    OWN_AFFINITY: Label, "Job", Webhook,
        "`true`: the user sets a node affinity or an elastic parallelism, so server-side apply must keep both owners apart.";
    TWIN: Label, "PriorityClass, Pod", WebhookOrController,
        "`true`: a class that Sluice made, and a pod that got it at create in place of its own.";
    TWIN_OF: Annotation, "PriorityClass", Controller,
        "The class for which Sluice made this one; empty on the class of pods without one.";
    ADMISSION: Annotation, "Job, Pod, custom kinds", Controller,
        "The admission record as JSON: pool, pods per node, granted pods, whether borrowed, and time. On a suspended Job: it is stopping.";
    EVICTION: Annotation, "Job, Pod, custom kinds", Controller,
        "Time, reason code and preemptor of the last eviction, as JSON: `for` is a preemptor in the namespace, `forTeam` the team of one in another namespace. It goes with the next admission.";
    USER_AFFINITY: Annotation, "Job, custom kinds", Controller,
        "The affinity that the user wrote, as JSON, while the template carries the placement.";
    NODES: Annotation, "Pod templates of custom kinds, and their pods", Controller,
        "Nodes of the pods, separated by commas. The webhook turns them into a node affinity.";
    PLACED: Label, "Pod templates of custom kinds, and their pods", Controller,
        "Marks objects with the annotation above, so that the API server asks the webhook about these pods only.";
    GATE_ADMISSION: Gate, "Pod that no Job owns", WebhookOrPolicy,
        "Holds the pod until it is admitted.";
    GATE_PLACEMENT: Gate, "Pod template of a Job, and its pods", Controller,
        "Holds each pod of an admitted Job until its node is written into it.";
}

/// The constants of `src/api/names.rs` that are not keys, each with its meaning.
pub const FIXED: &[(&str, &str)] = &[
    (names::CLASS, "The PriorityClass of pods in the namespaces of teams that have no other."),
    (names::FIELD_MANAGER, "The field manager of every write."),
    (names::NAMESPACE, "The namespace in which Sluice runs."),
    (names::ACCOUNT, "The user that the ServiceAccount of Sluice is to the API server."),
    (names::NAME, "The name of the Lease, Secret, Service and webhook configurations."),
    (names::KINDS, "The name of the webhook configurations that `sluice kinds --installed` prints."),
    (names::PROOF, "The Secret with the token that proves a Question."),
    (
        names::PROOF_IN,
        "Annotation of the mutating webhook configuration: `path` where no policy can write that token into a Question.",
    ),
    (names::PREFIX, "The prefix of every key above."),
];

/// The page of all keys.
pub fn page() -> String {
    let mut page = head("Labels, annotations and gates", INTRODUCTION);
    let sections = [
        ("For administrators", &[Writer::Administrator][..]),
        ("For users", &[Writer::User, Writer::UserOrWebhook]),
        (
            "Written by Sluice",
            &[Writer::Webhook, Writer::WebhookOrPolicy, Writer::WebhookOrController, Writer::Controller],
        ),
    ];
    for (title, writers) in sections {
        let keys = KEYS.iter().filter(|key| writers.contains(&key.by));
        let rows = keys.map(|key| {
            let place = format!("{:?}", key.place).to_lowercase();
            [code(key.key), place, key.on.to_owned(), writer(key.by).to_owned(), key.meaning.to_owned()]
        });
        page += &format!("\n## {title}\n\n{}", table(["key", "kind", "on", "written by", "meaning"], rows));
    }
    let rows = FIXED.iter().map(|(value, meaning)| [code(value), (*meaning).to_owned()]);
    page += &format!("\n## Fixed names\n\n{}", table(["name", "meaning"], rows));
    page
}

fn writer(writer: Writer) -> &'static str {
    match writer {
        Writer::Administrator => "administrator",
        Writer::User => "user",
        Writer::UserOrWebhook => "user, else webhook",
        Writer::Webhook => "webhook",
        Writer::WebhookOrPolicy => "webhook or policy",
        Writer::Controller => "controller",
        Writer::WebhookOrController => "webhook or policy; controller",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn keys(place: Place) -> BTreeSet<&'static str> {
        KEYS.iter().filter(|key| key.place == place).map(|key| key.key).collect()
    }

    #[test]
    fn every_constant_is_in_a_table() {
        let source = include_str!("../api/names.rs");
        let constants =
            source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split_once(": &str = "));
        let constants: Vec<(&str, &str)> =
            constants.map(|(name, value)| (name, value.trim_matches(['"', ';']))).collect();
        assert!(constants.len() > 25, "only these constants were found: {constants:?}");
        for (name, value) in constants {
            let gate = name.starts_with("GATE_");
            let is_key = KEYS.iter().any(|key| key.key == value && (key.place == Place::Gate) == gate);
            let is_fixed = FIXED.iter().any(|(fixed, _)| *fixed == value);
            assert!(is_key || is_fixed, "{name} is in no table");
        }
    }

    #[test]
    fn the_places_are_those_that_the_webhook_checks() {
        assert_eq!(keys(Place::Label), BTreeSet::from(names::LABELS));
        assert_eq!(keys(Place::Annotation), BTreeSet::from(names::ANNOTATIONS));
    }

    #[test]
    fn what_only_sluice_may_write_is_not_told_as_a_users() {
        for own in names::OWN_ANNOTATIONS {
            let by_user = |key: &&Key| matches!(key.by, Writer::User | Writer::UserOrWebhook);
            let found =
                KEYS.iter().filter(by_user).find(|key| key.place == Place::Annotation && key.key == own);
            assert!(found.is_none(), "{own}");
        }
    }
}
