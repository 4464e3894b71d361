//! The kind `Team`: guaranteed quota per pool, limits, and queues.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::notify::Endpoint;
use super::schema;
use crate::engine::types::amount::Amount;

/// Quantities by resource name.
pub type Quantities = std::collections::BTreeMap<String, Quantity>;

/// The condition type for a team with a valid configuration: its guarantees are in force.
pub const CONDITION_READY: &str = "Ready";
/// The condition type for guarantees beyond the capacity of a pool.
pub const CONDITION_OVERCOMMITTED: &str = "Overcommitted";
/// Condition that is true while pods that were never admitted are charged to the team.
pub const CONDITION_UNADMITTED: &str = "Unadmitted";

/// Condition of a team with a budget that is true while nothing is left of it.
pub const CONDITION_EXHAUSTED: &str = "Exhausted";

/// The quotas and queues of a team.
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
    doc = "A team that shares the cluster: its guaranteed quota per pool, its weight when it borrows, and its queues.",
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
        name = "Usage",
        type_ = "string",
        json_path = ".status.usage",
        description = "Used of guaranteed, and in brackets the borrowed part"
    ),
    printcolumn(
        name = "Limit",
        type_ = "string",
        json_path = ".status.limit",
        description = "The limit of each resource that has one"
    ),
    printcolumn(
        name = "Budget",
        type_ = "string",
        json_path = ".status.budget.usage",
        priority = 1,
        description = "Used of the budget, in GPU-hours of the present period"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Ready")].status"#
    ),
    printcolumn(
        name = "Overcommitted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Overcommitted")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("!has(self.spec.parent) || self.spec.parent != self.metadata.name")
        .message("a team cannot be its own parent")
        .field_path(".spec.parent"),
    validation = Rule::new("self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')")
        .message("a team's name is a label value and must be 1 to 63 characters of a-z, 0-9 and -")
)]
#[serde(rename_all = "camelCase")]
pub struct TeamSpec {
    /// Parent team. Usage of this team counts as usage of its parent too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::dns_label")]
    pub parent: Option<String>,
    /// Quota in each pool. In a pool that is not listed the team has no guarantee and no limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pool"]))]
    pub quotas: Vec<TeamQuota>,
    /// Weight among teams that borrow. A team with weight 0 borrows only capacity that no other team requests.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub weight: i32,
    /// Fair sharing between users: among workloads of equal priority, the user with the least usage goes first.
    #[serde(default)]
    pub fair_users: bool,
    /// What the team and the teams below it may use in a period, in GPU-hours. Running work is never ended for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<TeamBudget>,
    /// Queues of the team; the first is the default. Without a list the team has one preemptible queue "default".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub queues: Vec<TeamQueue>,
    /// Endpoints that are notified when workloads of the team start, are evicted, fail by a rule, or wait for long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub notify: Vec<Endpoint>,
}

/// What a team and the teams below it may use in a period.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamBudget {
    /// GPU-hours: GPUs × hours of all that is charged to the team and to the teams below it. In a NodePool with weights their
    /// worth in its currency counts, and without GPUs every other device.
    #[schemars(schema_with = "schema::quantity")]
    #[x_kube(validation = schema::above_zero())]
    pub amount: Quantity,
    /// The calendar period, in UTC; the budget is full again at the start of each: Day, Week (from Monday), Month, Quarter, or Never.
    #[serde(default)]
    pub period: BudgetPeriod,
    /// What follows for a workload that the rest of the budget does not cover; with a time limit, its GPUs × the limit must be
    /// left. Notify: nothing but conditions, alerts and notifications. BorrowOnly: it starts only on idle capacity, after every
    /// other borrower, and no guarantee protects it. Hold: it waits for the next period.
    #[serde(default)]
    pub on_exhausted: OnExhausted,
}

/// The period of a budget.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum BudgetPeriod {
    /// A day.
    Day,
    /// A week, from Monday.
    Week,
    /// A calendar month.
    #[default]
    Month,
    /// Three calendar months, from January, April, July and October.
    Quarter,
    /// It is never full again.
    Never,
}

/// What follows once a budget is spent.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnExhausted {
    /// It is said.
    #[default]
    Notify,
    /// Workloads start only on idle capacity.
    BorrowOnly,
    /// No workload starts.
    Hold,
}

/// Quota of a team in one pool.
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
    /// Name of the NodePool. "default" contains all nodes outside of every NodePool.
    #[serde(default = "default_pool")]
    #[schemars(schema_with = "schema::pool")]
    pub pool: String,
    /// Capacity that the team gets whenever it requests it, e.g. nvidia.com/gpu: 8. Other teams may borrow it while it is idle.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(validation = schema::not_negative())]
    pub guaranteed: Quantities,
    /// Largest usage, guaranteed and borrowed. A resource that is not listed has no limit.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(validation = schema::not_negative())]
    pub limit: Quantities,
    /// Largest part of the idle guarantee that other teams may borrow. A resource that is not listed is lent in full.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(validation = schema::not_negative())]
    pub lendable: Quantities,
}

/// Queue of a team.
#[derive(KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.onMaxWait == 'Notify' || has(self.maxWait)")
        .message("onMaxWait needs maxWait, which is not set")
        .field_path(".onMaxWait"),
    validation = Rule::new("!has(self.readyTimeout) || duration(self.readyTimeout) > duration('0s')")
        .message("must be more than 0s; leave it out for no timeout")
        .field_path(".readyTimeout")
)]
pub struct TeamQueue {
    /// Name of the queue, unique in the team.
    #[schemars(schema_with = "schema::dns_label")]
    pub name: String,
    /// Priority inside the team; workloads of a higher priority go first.
    #[serde(default)]
    pub priority: i32,
    /// Whether workloads may be preempted. Workloads that may not be preempted cannot borrow.
    #[serde(default = "yes")]
    pub preemptible: bool,
    /// Largest usage of the queue. A resource that is not listed has no limit.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    #[x_kube(validation = schema::not_negative())]
    pub limit: Quantities,
    /// Longest wait of a workload, e.g. 24h. The field onMaxWait selects the action after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub max_wait: Option<String>,
    /// Action after maxWait. Notify: the reason for the wait, an Event and a metric say so. RaisePriority: the workload goes
    /// ahead of all workloads of its team that have not waited that long. Fail: the workload fails.
    #[serde(default)]
    pub on_max_wait: OnMaxWait,
    /// Run time before a workload may be preempted by a borrowing workload, e.g. 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub min_runtime: Option<String>,
    /// How long after minRuntime a workload that borrows may be preempted by borrowing workloads of other teams, e.g. 10m.
    /// Never: not at all. Always: as long as it runs. Workloads within guarantee may preempt it at any time. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration_or_extreme")]
    pub fair_share_window: Option<String>,
    /// Longest run time of a workload, e.g. 8h. After it the workload fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub max_runtime: Option<String>,
    /// Wait before capacity is reserved for a workload that cannot start. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub reserve_after: Option<String>,
    /// Time limit of workloads without one, e.g. 24h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub default_time_limit: Option<String>,
    /// Action after the loss of a pod: with its node, by deletion or eviction, or because it failed for good. Replace: the
    /// pod is replaced within the same topology domain. Restart: the whole workload returns to the queue.
    #[serde(default)]
    pub on_pod_loss: OnPodLoss,
    /// Action for pods on a node that has not answered for longer than --unreachable-after. End: they are ended without
    /// their kubelet, and the workload goes on elsewhere. Wait: the workload waits until the node answers or is deleted;
    /// for work that must never run twice.
    #[serde(default)]
    pub on_unreachable: OnUnreachable,
    /// Time from the admission until all pods of a workload with several pods must be ready, e.g. 10m. After it the
    /// workload returns to the queue and waits, longer each time. Default: no timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub ready_timeout: Option<String>,
    /// Longest terminationGracePeriodSeconds of a new workload, e.g. 2m. An eviction takes no longer than that.
    /// A pod that states none has 30s. Default: --max-grace of Sluice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub max_grace: Option<String>,
    /// PriorityClass of pods without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// Whether the queue is paused. Empty: it is not. Hold: no workload of the queue starts or gets more pods, and what runs
    /// goes on. Drain: also, running workloads return to the queue if they are preemptible. New workloads are queued in
    /// every case, and all keep their places.
    #[serde(default, skip_serializing_if = "Paused::is_no")]
    pub paused: Paused,
}

/// Whether a queue is paused.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Paused {
    /// It is not.
    #[default]
    #[serde(rename = "")]
    No,
    /// No workload starts or gets more pods.
    Hold,
    /// No workload starts, and running ones return to the queue if they are preemptible.
    Drain,
}

impl Paused {
    /// Whether the queue is not paused.
    fn is_no(&self) -> bool {
        *self == Self::No
    }
}

/// Action after the longest wait that a queue allows.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnMaxWait {
    /// The reason for the wait mentions it.
    #[default]
    Notify,
    /// The workload goes ahead of all workloads of its team that have not waited that long.
    RaisePriority,
    /// The workload fails.
    Fail,
}

/// Action after the loss of a pod.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnPodLoss {
    /// The lost pod is replaced.
    #[default]
    Replace,
    /// The whole workload returns to the queue.
    Restart,
}

/// Action for pods on a node that does not answer.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnUnreachable {
    /// The pods are ended without their kubelet.
    #[default]
    End,
    /// The workload waits until the node answers or is deleted.
    Wait,
}

/// Usage and conditions of a team.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamStatus {
    /// Generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Number of workloads that wait for admission, in all pools.
    #[serde(default)]
    pub pending: i64,
    /// Used of guaranteed amounts of every resource with a quota, and in brackets the borrowed part, e.g. 31/20 (+11). Names of
    /// pools and resources where there are several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub usage: String,
    /// The limits, in the form of `usage`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub limit: String,
    /// Usage in each pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pool"]))]
    pub pools: Vec<PoolUsage>,
    /// What was used of the budget, if the team has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetStatus>,
    /// The time up to which the pools' decayedUsage is decayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decayed_at: Option<Time>,
    /// How long runs of the team took, by queue and size. Backfill and reservations rest on it as it was last written. A new
    /// leader goes on from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub run_lengths: Vec<RunLength>,
    /// The time up to which ended runs are counted in `runLengths`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_lengths_at: Option<Time>,
    /// Conditions. `Ready`: the configuration is valid. `Overcommitted`: guarantees exceed the capacity of a pool.
    /// `Unadmitted`: pods that were never admitted are charged to the team. `Exhausted`: nothing is left of its budget.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What was used of a budget. Written when it has moved by a hundredth of the budget, after five minutes, with other changes of
/// the status, and when a leader ends. Decisions count it, and what runs now since `at`.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetStatus {
    /// Used of the amount, and its part, e.g. 1200.5/10000 (12 %).
    #[serde(default)]
    pub usage: String,
    /// GPU-hours used since the start of the period.
    #[serde(default)]
    #[schemars(schema_with = "schema::shown_quantity")]
    pub used: Quantity,
    /// GPU-hours that running work with time limits may still use.
    #[serde(default)]
    #[schemars(schema_with = "schema::shown_quantity")]
    pub committed: Quantity,
    /// The start of the period. Not set for a budget that is never full again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_start: Option<Time>,
    /// The end of the period, when the budget is full again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refill: Option<Time>,
    /// The time up to which was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// GPU-hours as a quantity with a decimal point, which people read more easily than thousandths.
#[must_use]
pub fn hours(amount: Amount) -> String {
    let (whole, part) = (amount.as_milli() / 1_000, (amount.as_milli() % 1_000).abs());
    format!("{whole}.{part:03}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// How long the latest runs of one class took.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunLength {
    /// Name of the queue; absent where the runs of all queues are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Thousandths of devices of a run, over all its pods; absent where runs of all sizes are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub milli_devices: Option<i64>,
    /// Number of runs, at most 64.
    #[serde(default)]
    pub runs: i64,
    /// Quantiles of their lengths in seconds, at most 21.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seconds: Vec<i64>,
    /// Number of runs with a time limit, at most 64.
    #[serde(default)]
    pub limited: i64,
    /// Quantiles of the part of the time limit that these took, in thousandths, at most 21.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_mille_of_limit: Vec<i64>,
}

/// Quota and usage of a team in one pool.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolUsage {
    /// Name of the pool.
    pub pool: String,
    /// Guaranteed capacity.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub guaranteed: Quantities,
    /// Usage of the team and of the teams below it.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub used: Quantities,
    /// The part of the usage that was never admitted: pods of no admitted workload.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub unadmitted: Quantities,
    /// Usage beyond the guarantee.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub borrowed: Quantities,
    /// Part of its idle guarantee that other teams use.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub lent: Quantities,
    /// Fair share of the pool at the present demand.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub fair_share: Quantities,
    /// What the team borrowed in the past, decayed up to `decayedAt`. Only with --usage-half-life. A new leader goes on
    /// from it.
    #[serde(default, skip_serializing_if = "Quantities::is_empty")]
    #[schemars(schema_with = "schema::shown_quantities")]
    pub decayed_usage: Quantities,
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
