//! The labels, annotations and gates by which people and Sluice talk to each other.

/// Label on a namespace that makes its Jobs and Pods a team's; stamped on them at create.
pub const TEAM: &str = "sluice.dev/team";
/// Label that names the queue of the team; on a namespace it sets the default.
pub const QUEUE: &str = "sluice.dev/queue";

/// Pools in order of preference, comma-separated.
pub const POOL: &str = "sluice.dev/pool";
/// The expected longest run, a duration such as `2h`.
pub const TIME_LIMIT: &str = "sluice.dev/time-limit";
/// The fewest pods an elastic workload can run with.
pub const MIN_PARALLELISM: &str = "sluice.dev/min-parallelism";
/// Node label within one value of which all pods must lie.
pub const TOPOLOGY_REQUIRED: &str = "sluice.dev/topology-required";
/// Node label within one value of which all pods should lie.
pub const TOPOLOGY_PREFERRED: &str = "sluice.dev/topology-preferred";
/// How often the workload saves its work, a duration.
pub const CHECKPOINT_INTERVAL: &str = "sluice.dev/checkpoint-interval";
/// When it last saved its work, an RFC 3339 time.
pub const LAST_CHECKPOINT: &str = "sluice.dev/last-checkpoint";
/// The share of one GPU a pod needs, between 0 and 1. Of several, from the most wanted to the least and separated
/// by commas, a Job gets the first that fits, and a pod of its own the first; the whole, 1, may be among them.
pub const GPU_FRACTION: &str = "sluice.dev/gpu-fraction";
/// What the pods ask for instead of a share of a GPU, where their pool says what its nodes offer for one; stamped
/// at create.
pub const GPU_OFFER: &str = "sluice.dev/gpu-offer";
/// What the pods of a Job ask for at each of the shares that it would make do with, see
/// [`super::sizes::Choice`]; stamped at create.
pub const GPU_SIZES: &str = "sluice.dev/gpu-sizes";
/// Label on plain pods that start all or none.
pub const GROUP: &str = "sluice.dev/group";
/// How many pods such a group has.
pub const GROUP_SIZE: &str = "sluice.dev/group-size";

/// On a pod that no Job owns: `true` lets it be evicted where its queue's workloads may be. Without it such
/// a pod stays until it ends, for nothing puts it back in the queue.
pub const PREEMPTIBLE: &str = "sluice.dev/preemptible";

/// Sluice's mark on a Job that it holds or has admitted: `true`. A suspended Job without it is held
/// by its user and not queued.
pub const HELD: &str = "sluice.dev/held";
/// The record of an admission, see [`super::record::Record`]. On a suspended Job it means that the
/// Job has been told to stop and its template has not been restored yet.
pub const ADMISSION: &str = "sluice.dev/admission";
/// Why and when the workload was last evicted, see [`super::record::Eviction`].
pub const EVICTION: &str = "sluice.dev/eviction";
/// The node affinity the user wrote, as JSON, kept while the template carries Sluice's placement.
pub const USER_AFFINITY: &str = "sluice.dev/user-affinity";

/// The nodes that a pod goes to, separated by commas, on pod templates whose affinity cannot be changed and on
/// the pods made from them; the webhook turns it into an affinity.
pub const NODES: &str = "sluice.dev/nodes";
/// Label on what has that annotation, so that the API server asks the webhook about no other pods.
pub const PLACED: &str = "sluice.dev/placed";

/// Label on a Job whose user wrote a node affinity of its own, or lets its parallelism be changed: what
/// Sluice writes there must not look like Sluice's to server-side apply.
pub const OWN_AFFINITY: &str = "sluice.dev/own-affinity";

/// Who submitted the workload, as the API server knows them; stamped at create.
pub const USER: &str = "sluice.dev/user";

/// The gate that holds a bare pod until it is admitted.
pub const GATE_ADMISSION: &str = "sluice.dev/admission";
/// The gate that holds a pod of an admitted Job until its node is written in.
pub const GATE_PLACEMENT: &str = "sluice.dev/placement";

/// Marks only Sluice may write on Jobs and Pods, besides [`TEAM`] (and [`QUEUE`] once stamped).
pub const OWN_ANNOTATIONS: [&str; 5] = [HELD, ADMISSION, EVICTION, USER_AFFINITY, USER];

/// What all of the keys above begin with.
pub const PREFIX: &str = "sluice.dev/";
/// The labels that mean something on a Job or Pod.
pub const LABELS: [&str; 5] = [TEAM, QUEUE, GROUP, PLACED, OWN_AFFINITY];
/// The annotations that mean something there.
pub const ANNOTATIONS: [&str; 18] = [
    POOL,
    TIME_LIMIT,
    MIN_PARALLELISM,
    TOPOLOGY_REQUIRED,
    TOPOLOGY_PREFERRED,
    CHECKPOINT_INTERVAL,
    LAST_CHECKPOINT,
    GPU_FRACTION,
    GPU_OFFER,
    GPU_SIZES,
    GROUP_SIZE,
    PREEMPTIBLE,
    HELD,
    ADMISSION,
    EVICTION,
    USER_AFFINITY,
    NODES,
    USER,
];

/// The field manager of every write.
pub const FIELD_MANAGER: &str = "sluice";
/// The namespace Sluice runs in.
pub const NAMESPACE: &str = "sluice-system";
/// The user that Sluice's ServiceAccount is to the API server.
pub const ACCOUNT: &str = "system:serviceaccount:sluice-system:sluice";
/// The name of Sluice's Lease, Secret, Service and webhook configurations.
pub const NAME: &str = "sluice";
