//! The labels, annotations and gates that users and Sluice exchange.

/// Label on a namespace: the team that owns its workloads. Copied to the workloads at create.
pub const TEAM: &str = "sluice.dev/team";
/// Label with the queue of the team. On a namespace it sets the default.
pub const QUEUE: &str = "sluice.dev/queue";
/// Label on a namespace: `off` for no verdicts at dry-run. The API server reads it.
pub const VERDICT: &str = "sluice.dev/verdict";

/// Pools in order of preference, comma-separated.
pub const POOL: &str = "sluice.dev/pool";
/// The longest expected run time, a duration such as `2h`.
pub const TIME_LIMIT: &str = "sluice.dev/time-limit";
/// The smallest number of pods with which an elastic workload runs.
pub const MIN_PARALLELISM: &str = "sluice.dev/min-parallelism";
/// The number of pods to which an elastic Job that runs is to grow, as decimal digits. The webhook writes it where the user
/// writes a larger parallelism than the Job was granted; the next change of its size takes it over into the record.
pub const WANTED_PARALLELISM: &str = "sluice.dev/wanted-parallelism";
/// A node label. All pods must run on nodes with the same value.
pub const TOPOLOGY_REQUIRED: &str = "sluice.dev/topology-required";
/// A node label. All pods should run on nodes with the same value.
pub const TOPOLOGY_PREFERRED: &str = "sluice.dev/topology-preferred";
/// The time between two checkpoints, a duration.
pub const CHECKPOINT_INTERVAL: &str = "sluice.dev/checkpoint-interval";
/// The time of the last checkpoint, in RFC 3339.
pub const LAST_CHECKPOINT: &str = "sluice.dev/last-checkpoint";
/// The fraction of one GPU that a pod needs, above 0 and below 1, or a comma-separated list in order of preference. A
/// list may contain 1. A Job gets the first fraction that fits; a pod without a Job gets the first.
pub const GPU_FRACTION: &str = "sluice.dev/gpu-fraction";
/// The devices that the pods request for their GPU fraction, comma-separated. Written at create if the pool lists such
/// devices.
pub const GPU_OFFER: &str = "sluice.dev/gpu-offer";
/// The devices for each GPU fraction of a Job with several, see [`super::sizes::Choice`]. Written at create.
pub const GPU_SIZES: &str = "sluice.dev/gpu-sizes";
/// Label on pods without a Job: the group of pods that start all or none.
pub const GROUP: &str = "sluice.dev/group";
/// The number of pods in such a group.
pub const GROUP_SIZE: &str = "sluice.dev/group-size";

/// `true` holds a waiting workload: it is not considered until the annotation is removed, and keeps its place.
pub const HOLD: &str = "sluice.dev/hold";
/// A whole number that orders the work of one user in a queue; the highest comes first.
pub const ORDER: &str = "sluice.dev/order";
/// A whole number that orders the work of a team whatever the user, for accounts that may `manage` the Team; the highest
/// comes first.
pub const TEAM_ORDER: &str = "sluice.dev/team-order";
/// A time in RFC 3339: a workload that was admitted before it is evicted once, back to its place in the queue.
pub const REQUEUE: &str = "sluice.dev/requeue";

/// On a pod without a Job: `true` allows eviction if its queue is preemptible. Otherwise the pod runs until it ends,
/// because an evicted pod does not return to the queue.
pub const PREEMPTIBLE: &str = "sluice.dev/preemptible";

/// `true` on a Job that Sluice holds. A suspended Job without it is on hold by its user and not queued; one that stops is
/// queued afterwards if it has it.
pub const HELD: &str = "sluice.dev/held";
/// The record of an admission, see [`super::record::Record`]. On a suspended Job it means that the Job is stopping
/// and its template is not restored yet.
pub const ADMISSION: &str = "sluice.dev/admission";
/// The reason and the time of the last eviction, see [`super::record::Eviction`].
pub const EVICTION: &str = "sluice.dev/eviction";
/// The user's affinity as JSON, kept while the template carries Sluice's placement.
pub const USER_AFFINITY: &str = "sluice.dev/user-affinity";

/// The nodes of a pod, comma-separated. Used on pod templates with an immutable affinity, and on their pods. The webhook
/// turns it into an affinity.
pub const NODES: &str = "sluice.dev/nodes";
/// Label on pods with that annotation, so that the API server sends only these to the webhook.
pub const PLACED: &str = "sluice.dev/placed";

/// Label on an elastic Job and on a Job with a node affinity of its user. Sluice must not own the fields that it
/// writes there, or server-side apply would report a conflict.
pub const OWN_AFFINITY: &str = "sluice.dev/own-affinity";

/// Label on the PriorityClasses that Sluice makes, and on pods that got one of them in place of their own. The API server
/// sends only updates of such pods to the webhook.
pub const TWIN: &str = "sluice.dev/twin";
/// The PriorityClass for which Sluice has made a twin. On the twin.
pub const TWIN_OF: &str = "sluice.dev/twin-of";

/// The user that submitted the workload, as the API server names it. Written at create.
pub const USER: &str = "sluice.dev/user";

/// The gate that holds a bare pod until it is admitted.
pub const GATE_ADMISSION: &str = "sluice.dev/admission";
/// The gate that holds a pod of an admitted Job until its node is set.
pub const GATE_PLACEMENT: &str = "sluice.dev/placement";

/// The annotations that only Sluice may write.
pub const OWN_ANNOTATIONS: [&str; 5] = [HELD, ADMISSION, EVICTION, USER_AFFINITY, USER];

/// The prefix of all keys.
pub const PREFIX: &str = "sluice.dev/";
/// The labels of namespaces, Jobs and Pods.
pub const LABELS: [&str; 7] = [TEAM, QUEUE, VERDICT, GROUP, PLACED, OWN_AFFINITY, TWIN];
/// The labels of namespaces.
pub const NAMESPACE_LABELS: [&str; 3] = [TEAM, QUEUE, VERDICT];
/// The annotations of Jobs and Pods.
pub const ANNOTATIONS: [&str; 24] = [
    POOL,
    TIME_LIMIT,
    MIN_PARALLELISM,
    WANTED_PARALLELISM,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_PREFERRED,
    CHECKPOINT_INTERVAL,
    LAST_CHECKPOINT,
    GPU_FRACTION,
    GPU_OFFER,
    GPU_SIZES,
    GROUP_SIZE,
    HOLD,
    ORDER,
    TEAM_ORDER,
    REQUEUE,
    PREEMPTIBLE,
    HELD,
    ADMISSION,
    EVICTION,
    USER_AFFINITY,
    NODES,
    USER,
    TWIN_OF,
];

/// The field manager of every write.
pub const FIELD_MANAGER: &str = "sluice";
/// The namespace Sluice runs in.
pub const NAMESPACE: &str = "sluice-system";
/// The user name of Sluice's ServiceAccount.
pub const ACCOUNT: &str = "system:serviceaccount:sluice-system:sluice";
/// The PriorityClass of pods in the namespaces of teams that have no other: value 0, and it never preempts.
pub const CLASS: &str = "sluice";
/// The name of Sluice's Lease, Service and webhook configurations.
pub const NAME: &str = "sluice";
/// The name of the webhook configurations of custom kinds, where those of Sluice have no rules of them.
pub const KINDS: &str = "sluice-kinds";
/// The Secret with the token that proves that a Question came through the API server.
pub const PROOF: &str = "sluice-proof";
/// On the webhook configuration: `path` where the proof of a Question is the path of its review, because the API server
/// has no mutating policies.
pub const PROOF_IN: &str = "sluice.dev/proof";
