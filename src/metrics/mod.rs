//! Names, help texts and labels of the controller's metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use prometheus::{
    CounterVec, Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder, core::Collector,
};

use crate::engine::types::amount::ResourceList;
use crate::engine::types::{
    BudgetView, EvictReason, FailReason, NodeView, Overcommitment, QueueView, ResizeCause, TeamView,
    UnadmittedView,
};
use crate::engine::types::{Name, Time};
use crate::version::{COMMIT, VERSION};
use crate::view::{Accelerators, PoolAccelerators};

/// The metrics and their registry.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// The registry; other modules register their metrics here.
    pub registry: Registry,
    /// Waiting workloads.
    pub queue_depth: IntGaugeVec,
    /// Seconds that the oldest waiting workload has waited.
    pub queue_oldest_wait: GaugeVec,
    /// Admissions.
    pub admitted: IntCounterVec,
    /// Evictions.
    pub evicted: IntCounterVec,
    /// Resizes of elastic workloads.
    pub resized: IntCounterVec,
    /// Workloads failed by a rule of their queue.
    pub failed: IntCounterVec,
    /// Workloads of which an Event says that they have waited longer than their queue allows.
    pub waited_too_long: IntCounterVec,
    /// Quota and usage of each team.
    pub team_resources: GaugeVec,
    /// Budgets, and what is used of them.
    pub team_budget: GaugeVec,
    /// Seconds from submission to first admission.
    pub time_to_start: HistogramVec,
    /// Seconds from admission to eviction.
    pub evicted_after: HistogramVec,
    /// Seconds that the oldest workload within its team's guarantee has waited.
    pub owed_oldest_wait: GaugeVec,
    /// Whether guarantees exceed the capacity behind them.
    pub overcommitted: IntGaugeVec,
    /// Nodes by pool.
    pub nodes: IntGaugeVec,
    /// Free GPUs by the number of free GPUs on their node.
    pub gpus_free: GaugeVec,
    /// GPUs by pool.
    pub gpus: GaugeVec,
    /// Seconds from the first event of a batch to its decisions.
    pub decision: Histogram,
    /// Writes to the API server.
    pub api_writes: IntCounterVec,
    /// Whether this replica leads.
    pub leader: IntGauge,
    /// Terms as leader that this replica has begun.
    pub takeovers: IntCounterVec,
    accelerators: Accelerators,
    known: Arc<Mutex<BTreeSet<(Name, Name)>>>,
    resident: Gauge,
    cpu: CounterVec,
}

/// Purposes of a write, a label.
pub const WRITES: [&str; 16] = [
    "admit",
    "resize",
    "evict",
    "fail",
    "restore",
    "complete",
    "release",
    "place",
    "end_pod",
    "remake",
    "shorten",
    "disruption",
    "pod_group",
    "twin",
    "event",
    "status",
];
/// Outcomes of a write, a label.
pub const OUTCOMES: [&str; 5] = ["done", "conflict", "gone", "refused", "unanswered"];

impl Metrics {
    /// The metrics in a new registry.
    ///
    /// # Errors
    /// When two metrics share a name.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let team_queue = ["team", "queue"];
        let start_buckets = vec![0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0];
        let evicted_buckets = vec![10.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0, 172_800.0];
        let decision_buckets = vec![0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];
        let metrics = Self {
            queue_depth: IntGaugeVec::new(
                Opts::new("sluice_queue_depth", "Waiting workloads, by team and queue."),
                &team_queue,
            )?,
            queue_oldest_wait: GaugeVec::new(
                Opts::new("sluice_queue_oldest_wait_seconds", "Wait of the oldest waiting workload."),
                &team_queue,
            )?,
            admitted: IntCounterVec::new(
                Opts::new(
                    "sluice_admitted_total",
                    "Workloads admitted, by kind of quota: guaranteed or borrowed.",
                ),
                &["team", "queue", "kind"],
            )?,
            evicted: IntCounterVec::new(
                Opts::new("sluice_evicted_total", "Workloads evicted, by reason."),
                &["team", "reason"],
            )?,
            resized: IntCounterVec::new(
                Opts::new(
                    "sluice_resized_total",
                    "Elastic workloads scaled up, scaled down or moved while running, by cause.",
                ),
                &["team", "cause"],
            )?,
            waited_too_long: IntCounterVec::new(
                Opts::new(
                    "sluice_waited_too_long_total",
                    "Workloads of which an Event says that they have waited longer than the maxWait of their queue.",
                ),
                &team_queue,
            )?,
            failed: IntCounterVec::new(
                Opts::new("sluice_failed_total", "Workloads failed by Sluice, by reason."),
                &["team", "reason"],
            )?,
            team_resources: GaugeVec::new(
                Opts::new("sluice_team_resources", "Quota and usage of a team in a pool, in base units."),
                &["team", "pool", "resource", "kind"],
            )?,
            team_budget: GaugeVec::new(
                Opts::new(
                    "sluice_team_budget_gpu_hours",
                    "Budget of a team for the present period, what is used of it, and what running work with time limits may \
                     still use, in GPU-hours.",
                ),
                &["team", "kind"],
            )?,
            time_to_start: HistogramVec::new(
                HistogramOpts::new(
                    "sluice_time_to_start_seconds",
                    "Time from submission to first admission.",
                )
                .buckets(start_buckets),
                &team_queue,
            )?,
            evicted_after: HistogramVec::new(
                HistogramOpts::new(
                    "sluice_evicted_after_seconds",
                    "Time from admission to eviction: the run time lost.",
                )
                .buckets(evicted_buckets),
                &["team"],
            )?,
            owed_oldest_wait: GaugeVec::new(
                Opts::new(
                    "sluice_owed_oldest_wait_seconds",
                    "Wait of the oldest waiting workload within its team's guarantee.",
                ),
                &["team"],
            )?,
            overcommitted: IntGaugeVec::new(
                Opts::new(
                    "sluice_overcommitted",
                    "1 if the guarantees of a team's children exceed its own, or, with an empty team, if all \
                     guarantees exceed the capacity of the pool; else 0.",
                ),
                &["team", "pool"],
            )?,
            nodes: IntGaugeVec::new(
                Opts::new("sluice_nodes", "Nodes, by pool and whether they take new pods."),
                &["pool", "schedulable"],
            )?,
            gpus_free: GaugeVec::new(
                Opts::new("sluice_gpus_free", "Free GPUs, by the number of whole free GPUs on their node."),
                &["pool", "fragment"],
            )?,
            gpus: GaugeVec::new(
                Opts::new(
                    "sluice_gpus",
                    "GPUs in a pool: allocatable, used or free; a unit of its shares counts as a part of one.",
                ),
                &["pool", "kind"],
            )?,
            decision: Histogram::with_opts(
                HistogramOpts::new(
                    "sluice_decision_seconds",
                    "Time from the first event of a batch to its decisions.",
                )
                .buckets(decision_buckets),
            )?,
            api_writes: IntCounterVec::new(
                Opts::new("sluice_api_writes_total", "Writes to the API server, by purpose and outcome."),
                &["kind", "outcome"],
            )?,
            leader: IntGauge::new("sluice_leader", "1 if this replica is the leader, else 0.")?,
            takeovers: IntCounterVec::new(
                Opts::new(
                    "sluice_takeovers_total",
                    "Terms as leader that a replica has begun: warm with the cache it had, or cold by listing the cluster.",
                ),
                &["kind"],
            )?,
            resident: Gauge::new("process_resident_memory_bytes", "Resident memory of the process.")?,
            cpu: CounterVec::new(
                Opts::new("process_cpu_seconds_total", "CPU time of the process."),
                &["mode"],
            )?,
            accelerators: Accelerators::default(),
            known: Arc::default(),
            registry,
        };
        metrics.register()?;
        Ok(metrics)
    }

    /// The same metrics, with these resources counted as GPUs besides those in quotas.
    #[must_use]
    pub fn counting(self, accelerators: Accelerators) -> Self {
        Self { accelerators, ..self }
    }

    fn register(&self) -> prometheus::Result<()> {
        let build = IntGaugeVec::new(
            Opts::new("sluice_build_info", "Version of this replica."),
            &["commit", "version"],
        )?;
        build.with_label_values(&[COMMIT, VERSION]).set(1);
        let all: [Box<dyn Collector>; 23] = [
            Box::new(self.queue_depth.clone()),
            Box::new(self.queue_oldest_wait.clone()),
            Box::new(self.admitted.clone()),
            Box::new(self.evicted.clone()),
            Box::new(self.resized.clone()),
            Box::new(self.failed.clone()),
            Box::new(self.waited_too_long.clone()),
            Box::new(self.team_resources.clone()),
            Box::new(self.team_budget.clone()),
            Box::new(self.time_to_start.clone()),
            Box::new(self.evicted_after.clone()),
            Box::new(self.owed_oldest_wait.clone()),
            Box::new(self.overcommitted.clone()),
            Box::new(self.nodes.clone()),
            Box::new(self.gpus_free.clone()),
            Box::new(self.gpus.clone()),
            Box::new(self.decision.clone()),
            Box::new(self.api_writes.clone()),
            Box::new(self.leader.clone()),
            Box::new(self.takeovers.clone()),
            Box::new(self.resident.clone()),
            Box::new(self.cpu.clone()),
            Box::new(build),
        ];
        for collector in all {
            self.registry.register(collector)?;
        }
        for kind in ["warm", "cold"] {
            self.takeovers.with_label_values(&[kind]).reset();
        }
        for kind in WRITES {
            for outcome in OUTCOMES {
                self.api_writes.with_label_values(&[kind, outcome]).reset();
            }
        }
        Ok(())
    }

    /// All metrics in Prometheus' text format. Gauges are computed from `figures` at scrape time only; without
    /// figures the last values stand.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn scrape(&self, figures: Option<&Figures>, now: Time) -> prometheus::Result<String> {
        // A scrape resets every series, so scrapes must not overlap. A poisoned lock means that another scrape
        // panicked; the set itself is intact.
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(figures) = figures {
            self.read(figures, now, &mut known);
        }
        self.read_process();
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn read(&self, figures: &Figures, now: Time, known: &mut BTreeSet<(Name, Name)>) {
        self.remove_deleted(
            figures.queues.iter().map(|q| (q.team.clone(), q.queue.clone())).collect(),
            known,
        );
        self.read_queues(&figures.queues, now);
        self.read_teams(&figures.teams);
        self.read_budgets(&figures.budgets);
        self.read_guarantees(figures, now);
        let usual = self.accelerators.with_quotas_of(&figures.teams);
        self.read_nodes(&figures.nodes, &PoolAccelerators::new(usual, &figures.shares));
    }

    fn read_teams(&self, teams: &[TeamView]) {
        self.team_resources.reset();
        for team in teams {
            let set = |kind: &str, resource: &str, amount: f64| {
                self.team_resources
                    .with_label_values(&[&*team.team, &*team.pool, resource, kind])
                    .set(amount);
            };
            // The engine omits zero amounts; in a query a missing series would mean unknown.
            for resource in team.guaranteed.keys().chain(team.limit.keys()).chain(team.used.keys()) {
                for kind in ["used", "unadmitted", "borrowed", "lent", "fairShare"] {
                    set(kind, resource, 0.0);
                }
                if team.guaranteed.is_empty() {
                    set("guaranteed", resource, 0.0);
                }
            }
            for (kind, list) in [
                ("guaranteed", &team.guaranteed),
                ("limit", &team.limit),
                ("used", &team.used),
                ("unadmitted", &team.unadmitted),
                ("borrowed", &team.borrowed),
                ("lent", &team.lent),
                ("fairShare", &team.fair_share),
            ] {
                for (resource, amount) in list {
                    set(kind, resource, amount.as_units_lossy());
                }
            }
        }
    }

    fn read_budgets(&self, budgets: &[BudgetView]) {
        self.team_budget.reset();
        for view in budgets {
            let amounts =
                [("amount", view.budget.amount), ("used", view.used), ("committed", view.committed)];
            for (kind, amount) in amounts {
                self.team_budget.with_label_values(&[&*view.team, kind]).set(amount.as_units_lossy());
            }
        }
    }

    fn read_guarantees(&self, figures: &Figures, now: Time) {
        self.owed_oldest_wait.reset();
        self.overcommitted.reset();
        for team in &figures.teams {
            self.owed_oldest_wait.with_label_values(&[&*team.team]).set(0.0);
            self.overcommitted.with_label_values(&[&*team.team, &*team.pool]).set(0);
            self.overcommitted.with_label_values(&["", &*team.pool]).set(0);
        }
        for (team, oldest) in &figures.oldest_within_guarantee {
            self.owed_oldest_wait.with_label_values(&[&**team]).set(now.since(*oldest).as_secs_f64());
        }
        for over in &figures.overcommitments {
            let team = over.team.as_deref().unwrap_or_default();
            self.overcommitted.with_label_values(&[team, &*over.pool]).set(1);
        }
    }

    fn read_queues(&self, queues: &[QueueView], now: Time) {
        self.queue_depth.reset();
        self.queue_oldest_wait.reset();
        for queue in queues {
            let labels = [&*queue.team, &*queue.queue];
            self.queue_depth.with_label_values(&labels).set(i64::try_from(queue.pending).unwrap_or(i64::MAX));
            let wait = queue.oldest.map_or(0.0, |oldest| now.since(oldest).as_secs_f64());
            self.queue_oldest_wait.with_label_values(&labels).set(wait);
            // A series that exists before its first event lets `rate` see that event.
            for kind in ["guaranteed", "borrowed"] {
                self.admitted.with_label_values(&[labels[0], labels[1], kind]).inc_by(0);
            }
            let _ = self.time_to_start.with_label_values(&labels);
            self.waited_too_long.with_label_values(&labels).inc_by(0);
            let _ = self.evicted_after.with_label_values(&labels[..1]);
            for reason in EvictReason::ALL {
                self.evicted.with_label_values(&[labels[0], reason.code()]).inc_by(0);
            }
            for cause in ResizeCause::ALL {
                self.resized.with_label_values(&[labels[0], cause.code()]).inc_by(0);
            }
            for reason in FailReason::ALL {
                self.failed.with_label_values(&[labels[0], reason.code()]).inc_by(0);
            }
        }
    }

    fn read_nodes(&self, nodes: &[NodeView], accelerators: &PoolAccelerators) {
        self.nodes.reset();
        self.gpus.reset();
        self.gpus_free.reset();
        let pools: BTreeSet<&str> = nodes.iter().map(|node| &*node.pool).collect();
        for pool in pools {
            for schedulable in ["true", "false"] {
                self.nodes.with_label_values(&[pool, schedulable]).set(0);
            }
            for kind in ["allocatable", "used", "free"] {
                self.gpus.with_label_values(&[pool, kind]).set(0.0);
            }
            for fragment in FRAGMENTS {
                self.gpus_free.with_label_values(&[pool, fragment]).set(0.0);
            }
        }
        for node in nodes {
            let pool = &*node.pool;
            self.nodes.with_label_values(&[pool, if node.schedulable { "true" } else { "false" }]).inc();
            let accelerators = accelerators.in_pool(pool);
            let (all, free) = (accelerators.count(&node.allocatable), accelerators.count(&node.free));
            self.gpus.with_label_values(&[pool, "allocatable"]).add(all);
            self.gpus.with_label_values(&[pool, "free"]).add(free);
            self.gpus.with_label_values(&[pool, "used"]).add(all - free);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count of GPUs, clamped"
            )]
            let fragment = FRAGMENTS[(free.clamp(0.0, 8.0)) as usize];
            self.gpus_free.with_label_values(&[pool, fragment]).add(free);
        }
    }

    /// Removes the series of deleted queues and teams.
    fn remove_deleted(&self, present: BTreeSet<(Name, Name)>, known: &mut BTreeSet<(Name, Name)>) {
        for (team, queue) in known.difference(&present) {
            // A series that never existed is fine.
            for kind in ["guaranteed", "borrowed"] {
                let _ = self.admitted.remove_label_values(&[&**team, &**queue, kind]);
            }
            let _ = self.time_to_start.remove_label_values(&[&**team, &**queue]);
            let _ = self.waited_too_long.remove_label_values(&[&**team, &**queue]);
            if !present.iter().any(|(other, _)| other == team) {
                let _ = self.evicted_after.remove_label_values(&[&**team]);
                for reason in EvictReason::ALL {
                    let _ = self.evicted.remove_label_values(&[&**team, reason.code()]);
                }
                for cause in ResizeCause::ALL {
                    let _ = self.resized.remove_label_values(&[&**team, cause.code()]);
                }
                for reason in FailReason::ALL {
                    let _ = self.failed.remove_label_values(&[&**team, reason.code()]);
                }
            }
        }
        *known = present;
    }

    /// Reads memory and CPU time of this process from /proc; without /proc the values stay.
    fn read_process(&self) {
        const PAGE: f64 = 4096.0;
        const TICKS: f64 = 100.0;
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<f64>().ok());
        if let Ok(statm) = std::fs::read_to_string("/proc/self/statm")
            && let Some(pages) = number(statm.split_whitespace().nth(1))
        {
            self.resident.set(pages * PAGE);
        }
        let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
        // The process name in parentheses may contain spaces, so fields are counted after it.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        for (mode, field) in [("user", 11), ("system", 12)] {
            if let Some(ticks) = number(fields.get(field).copied()) {
                let counter = self.cpu.with_label_values(&[mode]);
                counter.inc_by((ticks / TICKS - counter.get()).max(0.0));
            }
        }
    }
}

const FRAGMENTS: [&str; 9] = ["0", "1", "2", "3", "4", "5", "6", "7", "8+"];

/// Views of the engine for metrics and statuses.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Every team in every pool.
    pub teams: Vec<TeamView>,
    /// Every queue.
    pub queues: Vec<QueueView>,
    /// Every node.
    pub nodes: Vec<NodeView>,
    /// By team, submission time of the oldest waiting workload within the team's guarantee.
    pub oldest_within_guarantee: BTreeMap<Name, Time>,
    /// Guarantees that exceed the capacity behind them.
    pub overcommitments: Vec<Overcommitment>,
    /// Pods that were never admitted and are charged to their team.
    pub unadmitted: Vec<UnadmittedView>,
    /// Every budget.
    pub budgets: Vec<BudgetView>,
    /// By pool with `shares`, the part of a GPU that a unit of each resource is.
    pub shares: BTreeMap<Name, ResourceList>,
}

impl Figures {
    /// Number of nodes and sum of their allocatable resources, by pool.
    #[must_use]
    pub fn pools(&self) -> BTreeMap<Name, (usize, ResourceList)> {
        let mut pools: BTreeMap<Name, (usize, ResourceList)> = BTreeMap::new();
        for node in &self.nodes {
            let (count, offered) = pools.entry(node.pool.clone()).or_default();
            *count += 1;
            *offered = crate::engine::types::amount::sum(offered, &node.allocatable);
        }
        pools
    }
}

#[cfg(test)]
mod tests;
