//! The kind `Team`: whose GPUs these are, what is guaranteed, and which classes of service there are.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// Amounts by resource name as they are written in an object.
pub type Quantities = std::collections::BTreeMap<String, Quantity>;

/// The condition type that says whether the team's promises are in force.
pub const CONDITION_READY: &str = "Ready";
/// The condition type that says that more is guaranteed than there is.
pub const CONDITION_OVERCOMMITTED: &str = "Overcommitted";

/// What a team owns, what it may borrow, and its queues.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "sluice.dev",
    version = "v1alpha1",
    kind = "Team",
    plural = "teams",
    shortname = "tm",
    category = "sluice",
    status = "TeamStatus",
    derive = "PartialEq",
    doc = "A team that shares the cluster: its guaranteed quota per pool, its part of the surplus, and its queues.",
    selectable = ".spec.parent",
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.parent"),
    printcolumn(name = "Weight", type_ = "integer", json_path = ".spec.weight", priority = 1),
    printcolumn(
        name = "Pending",
        type_ = "integer",
        json_path = ".status.pending",
        description = "Workloads that wait for admission"
    ),
    printcolumn(
        name = "Guaranteed",
        type_ = "string",
        json_path = r".status.pools[*].guaranteed.nvidia\.com/gpu",
        description = "GPUs guaranteed in the first pool"
    ),
    printcolumn(
        name = "Used",
        type_ = "string",
        json_path = r".status.pools[*].used.nvidia\.com/gpu",
        description = "GPUs held in the first pool"
    ),
    printcolumn(
        name = "Borrowed",
        type_ = "string",
        json_path = r".status.pools[*].borrowed.nvidia\.com/gpu",
        description = "GPUs held beyond the guarantee in the first pool"
    ),
    printcolumn(
        name = "Fair Share",
        type_ = "string",
        json_path = r".status.pools[*].fairShare.nvidia\.com/gpu",
        description = "GPUs it would hold in the first pool if the pool were shared out anew to the present demand",
        priority = 1
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("!has(self.spec.parent) || self.spec.parent != self.metadata.name")
        .message("a team cannot be its own parent")
        .field_path(".spec.parent"),
    validation = Rule::new("self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')")
        .message("a team's name goes into a label: at most 63 characters of a-z, 0-9 and -")
)]
#[serde(rename_all = "camelCase")]
pub struct TeamSpec {
    /// The team above this one: what this team holds counts there too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::dns_label")]
    pub parent: Option<String>,
    /// What the team has in each pool. Only what is listed is limited; a pool that is not named guarantees nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pool"]))]
    pub quotas: Vec<TeamQuota>,
    /// The team's part of the surplus relative to other borrowers. 0 takes only what no other team wants.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub weight: i32,
    /// Whether its users take turns: among equal priorities the one who holds least goes first.
    #[serde(default)]
    pub fair_users: bool,
    /// Classes of service; the first is the default. Without any there is one, preemptible, named "default".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub queues: Vec<TeamQueue>,
}

/// What a team has in one pool.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "!has(self.guaranteed) || !has(self.limit) || self.guaranteed.all(r, !(r in self.limit) || quantity(string(self.guaranteed[r])).compareTo(quantity(string(self.limit[r]))) <= 0)"
    ).message("guaranteed must not exceed limit"),
    validation = Rule::new(
        "!has(self.lendable) || self.lendable.all(r, has(self.guaranteed) && r in self.guaranteed && quantity(string(self.lendable[r])).compareTo(quantity(string(self.guaranteed[r]))) <= 0)"
    ).message("lendable must not exceed guaranteed")
)]
pub struct TeamQuota {
    /// The NodePool; "default" is the pool of all nodes in no NodePool.
    #[serde(default = "default_pool")]
    #[schemars(schema_with = "schema::pool")]
    pub pool: String,
    /// What the team gets back whenever it asks.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(validation = schema::not_negative())]
    pub guaranteed: Quantities,
    /// The most it may hold, own and borrowed. A resource that is not listed has no cap.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(validation = schema::not_negative())]
    pub limit: Quantities,
    /// The most of its idle guarantee that others may borrow. Not listed: all of it.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(validation = schema::not_negative())]
    pub lendable: Quantities,
}

/// A class of service inside a team.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.onMaxWait == 'Notify' || has(self.maxWait)")
        .message("onMaxWait says what follows after maxWait, which is not set")
        .field_path(".onMaxWait"),
    validation = Rule::new("!has(self.readyTimeout) || duration(self.readyTimeout) > duration('0s')")
        .message("pods need some time to become ready: leave it out or give more than 0s")
        .field_path(".readyTimeout")
)]
pub struct TeamQueue {
    /// Its name, unique in the team.
    #[schemars(schema_with = "schema::dns_label")]
    pub name: String,
    /// Higher goes first inside the team.
    #[serde(default)]
    pub priority: i32,
    /// Whether its workloads may be evicted. Those that may not must fit the guarantee.
    #[serde(default = "yes")]
    pub preemptible: bool,
    /// The most the queue may hold at once. A resource that is not listed has no cap.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(validation = schema::not_negative())]
    pub limit: Quantities,
    /// The longest a workload may wait, e.g. 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub max_wait: Option<String>,
    /// What follows when a workload has waited for maxWait: Notify says so where one looks why it waits,
    /// RaisePriority puts it before all others of its team that have not waited that long, Fail ends it.
    #[serde(default)]
    pub on_max_wait: OnMaxWait,
    /// How long a workload runs undisturbed by claims on the surplus, e.g. 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub min_runtime: Option<String>,
    /// The longest a workload may run, e.g. 8h; then it fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub max_runtime: Option<String>,
    /// How long a workload that cannot start waits before room is reserved for it (10m if not set).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub reserve_after: Option<String>,
    /// The time limit of workloads that state none, e.g. 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub default_time_limit: Option<String>,
    /// What happens when a pod is lost: Replace makes it anew within the same topology domain, Restart
    /// puts the whole workload back in the queue.
    #[serde(default)]
    pub on_pod_loss: OnPodLoss,
    /// How soon after its admission all pods of a workload with several must be ready, e.g. 10m; else the whole
    /// of it goes back in the queue and rests, longer each time. Without it they may take as long as they do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub ready_timeout: Option<String>,
    /// The PriorityClass of pods that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
}

/// What follows when a workload has waited for the longest time its queue allows.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnMaxWait {
    /// It is said where one looks why it waits.
    #[default]
    Notify,
    /// It goes before all others of its team that have not waited that long.
    RaisePriority,
    /// It fails.
    Fail,
}

/// What happens to a workload that lost a pod.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnPodLoss {
    /// The lost pod is made anew.
    #[default]
    Replace,
    /// The whole workload goes back in the queue.
    Restart,
}

/// Where the team stands.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamStatus {
    /// The generation of the spec this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many workloads wait for admission, in all pools.
    #[serde(default)]
    pub pending: i64,
    /// Usage pool by pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pool"]))]
    pub pools: Vec<PoolUsage>,
    /// `Ready`: the promises are in force. `Overcommitted`: more is guaranteed than there is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What a team has and holds in one pool.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolUsage {
    /// The pool.
    pub pool: String,
    /// What it is guaranteed.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub guaranteed: Quantities,
    /// What it and the teams below it hold.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub used: Quantities,
    /// What of that is beyond its guarantee.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub borrowed: Quantities,
    /// What of its idle guarantee others hold.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub lent: Quantities,
    /// Its fair share of the pool at the present demand.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub fair_share: Quantities,
}

fn one() -> i32 {
    1
}

fn yes() -> bool {
    true
}

fn default_pool() -> String {
    crate::engine::types::DEFAULT_POOL.to_owned()
}
