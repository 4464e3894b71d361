//! Every metric of the decision side: its name, help and labels in one place.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use prometheus::{
    CounterVec, Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder, core::Collector,
};

use crate::engine::types::amount::ResourceList;
use crate::engine::types::{
    EvictReason, FailReason, NodeView, Overcommitment, QueueView, ResizeCause, TeamView,
};
use crate::engine::types::{Name, Time};
use crate::view::gpus;

/// The metrics and the registry they are in.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Where other parts add theirs.
    pub registry: Registry,
    /// Workloads that wait.
    pub queue_depth: IntGaugeVec,
    /// How long the workload that waits longest has waited.
    pub queue_oldest_wait: GaugeVec,
    /// Workloads let run.
    pub admitted: IntCounterVec,
    /// Workloads told to stop.
    pub evicted: IntCounterVec,
    /// Workloads that went on with other pods.
    pub resized: IntCounterVec,
    /// Workloads ended as failed.
    pub failed: IntCounterVec,
    /// Each team's amounts.
    pub team_resources: GaugeVec,
    /// From submission to the first admission.
    pub time_to_start: HistogramVec,
    /// From the admission of a workload to its eviction.
    pub evicted_after: HistogramVec,
    /// How long the workload has waited that its team's guarantee covers and that waits longest.
    pub owed_oldest_wait: GaugeVec,
    /// Where more is promised than there is.
    pub overcommitted: IntGaugeVec,
    /// Nodes by pool.
    pub nodes: IntGaugeVec,
    /// Free GPUs by how many are free beside them.
    pub gpus_free: GaugeVec,
    /// GPUs by pool.
    pub gpus: GaugeVec,
    /// From the first news of a batch to the decisions on it.
    pub decision: Histogram,
    /// Writes to the API server.
    pub api_writes: IntCounterVec,
    /// Whether this process leads.
    pub leader: IntGauge,
    known: Arc<Mutex<BTreeSet<(Name, Name)>>>,
    resident: Gauge,
    cpu: CounterVec,
}

/// What a write does, as a label.
pub const WRITES: [&str; 12] = [
    "admit",
    "resize",
    "evict",
    "fail",
    "restore",
    "release",
    "place",
    "remake",
    "disruption",
    "pod_group",
    "event",
    "status",
];
/// How a write ended, as a label.
pub const OUTCOMES: [&str; 5] = ["done", "conflict", "gone", "refused", "unanswered"];

impl Metrics {
    /// The metrics in a registry of their own.
    ///
    /// # Errors
    /// Only when two metrics share a name.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let team_queue = ["team", "queue"];
        let start_buckets = vec![0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0];
        let evicted_buckets = vec![10.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0, 172_800.0];
        let decision_buckets = vec![0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];
        let metrics = Self {
            queue_depth: IntGaugeVec::new(
                Opts::new("sluice_queue_depth", "Workloads that wait for admission."),
                &team_queue,
            )?,
            queue_oldest_wait: GaugeVec::new(
                Opts::new(
                    "sluice_queue_oldest_wait_seconds",
                    "How long the oldest waiting workload has waited.",
                ),
                &team_queue,
            )?,
            admitted: IntCounterVec::new(
                Opts::new("sluice_admitted_total", "Workloads admitted, by whose quota."),
                &["team", "queue", "kind"],
            )?,
            evicted: IntCounterVec::new(
                Opts::new("sluice_evicted_total", "Workloads evicted, by rule."),
                &["team", "reason"],
            )?,
            resized: IntCounterVec::new(
                Opts::new(
                    "sluice_resized_total",
                    "Workloads that went on with more pods, fewer, or others, by rule.",
                ),
                &["team", "cause"],
            )?,
            failed: IntCounterVec::new(
                Opts::new("sluice_failed_total", "Workloads ended as failed by Sluice, by rule."),
                &["team", "reason"],
            )?,
            team_resources: GaugeVec::new(
                Opts::new("sluice_team_resources", "What a team has and holds in a pool, in base units."),
                &["team", "pool", "resource", "kind"],
            )?,
            time_to_start: HistogramVec::new(
                HistogramOpts::new("sluice_time_to_start_seconds", "From submission to the first admission.")
                    .buckets(start_buckets),
                &team_queue,
            )?,
            evicted_after: HistogramVec::new(
                HistogramOpts::new(
                    "sluice_evicted_after_seconds",
                    "From the admission of a workload to its eviction: the run that was lost.",
                )
                .buckets(evicted_buckets),
                &["team"],
            )?,
            owed_oldest_wait: GaugeVec::new(
                Opts::new(
                    "sluice_owed_oldest_wait_seconds",
                    "How long the oldest waiting workload has waited that its team's guarantee covers.",
                ),
                &["team"],
            )?,
            overcommitted: IntGaugeVec::new(
                Opts::new(
                    "sluice_overcommitted",
                    "1 where more is guaranteed than a team is promised itself, or, without a team, than \
                     the nodes of the pool offer; else 0.",
                ),
                &["team", "pool"],
            )?,
            nodes: IntGaugeVec::new(
                Opts::new("sluice_nodes", "Nodes by pool and whether new pods may go there."),
                &["pool", "schedulable"],
            )?,
            gpus_free: GaugeVec::new(
                Opts::new("sluice_gpus_free", "Free GPUs by how many are free on the same node."),
                &["pool", "fragment"],
            )?,
            gpus: GaugeVec::new(Opts::new("sluice_gpus", "GPUs of the nodes of a pool."), &["pool", "kind"])?,
            decision: Histogram::with_opts(
                HistogramOpts::new(
                    "sluice_decision_seconds",
                    "From the first news of a batch to the decisions on it.",
                )
                .buckets(decision_buckets),
            )?,
            api_writes: IntCounterVec::new(
                Opts::new(
                    "sluice_api_writes_total",
                    "Writes to the API server, by what they do and how they ended.",
                ),
                &["kind", "outcome"],
            )?,
            leader: IntGauge::new("sluice_leader", "1 if this process makes the decisions, else 0.")?,
            resident: Gauge::new("process_resident_memory_bytes", "Resident memory of the process.")?,
            cpu: CounterVec::new(
                Opts::new("process_cpu_seconds_total", "CPU time of the process."),
                &["mode"],
            )?,
            known: Arc::default(),
            registry,
        };
        metrics.register()?;
        Ok(metrics)
    }

    fn register(&self) -> prometheus::Result<()> {
        let build = IntGaugeVec::new(Opts::new("sluice_build_info", "The version that runs."), &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let all: [Box<dyn Collector>; 20] = [
            Box::new(self.queue_depth.clone()),
            Box::new(self.queue_oldest_wait.clone()),
            Box::new(self.admitted.clone()),
            Box::new(self.evicted.clone()),
            Box::new(self.resized.clone()),
            Box::new(self.failed.clone()),
            Box::new(self.team_resources.clone()),
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
            Box::new(self.resident.clone()),
            Box::new(self.cpu.clone()),
            Box::new(build),
        ];
        for collector in all {
            self.registry.register(collector)?;
        }
        for kind in WRITES {
            for outcome in OUTCOMES {
                self.api_writes.with_label_values(&[kind, outcome]).reset();
            }
        }
        Ok(())
    }

    /// Everything in the text format of Prometheus, with `figures` as they are `now`: read for each
    /// scrape, so that nothing is computed in vain. Without them the last ones stand.
    ///
    /// # Errors
    /// Only when a metric is inconsistent with itself.
    pub fn scrape(&self, figures: Option<&Figures>, now: Time) -> prometheus::Result<String> {
        // Reading sets every series anew, so nobody else may look in between. A poisoned lock only
        // means that another scrape panicked; the set itself is whole.
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
        self.forget_others(figures.queues.iter().map(|q| (q.team.clone(), q.queue.clone())).collect(), known);
        self.read_queues(&figures.queues, now);
        self.read_teams(&figures.teams);
        self.read_promises(figures, now);
        self.read_nodes(&figures.nodes);
    }

    fn read_teams(&self, teams: &[TeamView]) {
        self.team_resources.reset();
        for team in teams {
            let set = |kind: &str, resource: &str, amount: f64| {
                self.team_resources
                    .with_label_values(&[&*team.team, &*team.pool, resource, kind])
                    .set(amount);
            };
            // The engine leaves out what is nothing; a query would take that for not known.
            for resource in team.guaranteed.keys().chain(team.limit.keys()).chain(team.used.keys()) {
                for kind in ["used", "borrowed", "lent", "fairShare"] {
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

    fn read_promises(&self, figures: &Figures, now: Time) {
        self.owed_oldest_wait.reset();
        self.overcommitted.reset();
        for team in &figures.teams {
            self.owed_oldest_wait.with_label_values(&[&*team.team]).set(0.0);
            self.overcommitted.with_label_values(&[&*team.team, &*team.pool]).set(0);
            self.overcommitted.with_label_values(&["", &*team.pool]).set(0);
        }
        for (team, oldest) in &figures.owed {
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
            // Series that exist before the first event let a rate see that event.
            for kind in ["guaranteed", "borrowed"] {
                self.admitted.with_label_values(&[labels[0], labels[1], kind]).inc_by(0);
            }
            let _ = self.time_to_start.with_label_values(&labels);
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

    fn read_nodes(&self, nodes: &[NodeView]) {
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
            let (all, free) = (gpus(&node.allocatable), gpus(&node.free));
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

    /// Forgets the counters of queues that are no more.
    fn forget_others(&self, present: BTreeSet<(Name, Name)>, known: &mut BTreeSet<(Name, Name)>) {
        for (team, queue) in known.difference(&present) {
            // Removing what never existed is no error worth telling.
            for kind in ["guaranteed", "borrowed"] {
                let _ = self.admitted.remove_label_values(&[&**team, &**queue, kind]);
            }
            let _ = self.time_to_start.remove_label_values(&[&**team, &**queue]);
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

    /// Reads the process's own use off /proc; where there is none, the values stay as they are.
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
        // The name in parentheses may hold spaces; fields are counted from behind it.
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

/// What metrics and statuses are read off.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Every team in every pool.
    pub teams: Vec<TeamView>,
    /// Every queue.
    pub queues: Vec<QueueView>,
    /// Every node.
    pub nodes: Vec<NodeView>,
    /// When the oldest waiting workload was submitted that its team's guarantee covers, by team.
    pub owed: BTreeMap<Name, Time>,
    /// Promises that cannot be kept in full.
    pub overcommitments: Vec<Overcommitment>,
}

impl Figures {
    /// What the nodes of each pool offer, and how many there are.
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
