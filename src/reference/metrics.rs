//! The page of metrics, gathered from a registry in which every series exists.

use std::collections::{BTreeMap, BTreeSet};

use prometheus::proto::MetricFamily;

use super::markdown::{code, codes, head, sentence, table};
use crate::ask::{AskMetrics, VerdictMetrics};
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{Budget, BudgetView, NodeView, OnExhausted, Paused, Period, QueueView, TeamView};
use crate::engine::types::{Name, Time};
use crate::history;
use crate::metrics::{Figures, Metrics};
use crate::notify;
use crate::version::{COMMIT, VERSION};
use crate::webhook::WebhookMetrics;

/// The value of every label that takes names of teams, queues, pools or resources.
const NAME: &str = "(name)";

const INTRODUCTION: &str = "\
`http://<pod>:8080/metrics` of every replica, in the text format of Prometheus. Gauges are read for each scrape;
only the replica with `sluice_leader` 1 decides and writes, so sum counters over replicas and take the maximum of
gauges. Series of a team exist from its first scrape, with 0, and go with the team. Boards and alerts:
[manifests/monitoring](../../manifests/monitoring/README.md).

A histogram `x` has the series `x_bucket`, `x_sum` and `x_count`.";

/// The page of all metrics.
///
/// # Errors
/// When two metrics share a name.
pub fn page() -> prometheus::Result<String> {
    let metrics = Metrics::new()?;
    WebhookMetrics::new(&metrics.registry)?;
    AskMetrics::new(&metrics.registry)?;
    notify::counter(&metrics.registry)?;
    history::counts(&metrics.registry)?;
    VerdictMetrics::new(&metrics.registry)?;
    metrics.scrape(Some(&figures()), Time(0))?;
    let rows = metrics.registry.gather();
    let rows = rows.iter().map(|family| {
        let kind = format!("{:?}", family.get_field_type()).to_lowercase();
        [code(family.name()), kind, labels(family), sentence(family.help())]
    });
    Ok(format!("{}\n{}", head("Metrics", INTRODUCTION), table(["name", "type", "labels", "meaning"], rows)))
}

/// The labels of a metric, each with its values where these are fixed.
fn labels(family: &MetricFamily) -> String {
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for label in family.get_metric().iter().flat_map(|metric| metric.get_label()) {
        let values = labels.entry(label.name()).or_default();
        if !["", NAME, COMMIT, VERSION].contains(&label.value()) {
            values.insert(label.value());
        }
    }
    let labels: Vec<String> = labels
        .into_iter()
        .map(|(name, values)| match values.is_empty() {
            true => code(name),
            false => format!("{} ({})", code(name), codes(values)),
        })
        .collect();
    labels.join(", ")
}

/// Figures with one of everything, so that each metric has its series.
fn figures() -> Figures {
    let name = Name::from(NAME);
    let one = |resource: &str| ResourceList::from([(resource.into(), Amount::units(1))]);
    let team = TeamView {
        team: name.clone(),
        pool: name.clone(),
        guaranteed: one(NAME),
        limit: one(NAME),
        used: one(NAME),
        unadmitted: one(NAME),
        borrowed: one(NAME),
        lent: one(NAME),
        fair_share: one(NAME),
        past: one(NAME),
        weight: 1,
        parent: None,
    };
    let queue = QueueView {
        team: name.clone(),
        queue: name.clone(),
        pending: 1,
        oldest: Some(Time(0)),
        running: 0,
        paused: Paused::No,
    };
    let node = NodeView {
        name: name.clone(),
        pool: name,
        schedulable: true,
        not_ready: false,
        allocatable: one("nvidia.com/gpu"),
        free: one("nvidia.com/gpu"),
        workloads: Vec::new(),
        shared: Vec::new(),
    };
    let budget = BudgetView {
        team: NAME.into(),
        budget: Budget { amount: Amount::units(1), period: Period::Month, on_exhausted: OnExhausted::Notify },
        used: Amount::ZERO,
        counted: Amount::ZERO,
        written: None,
        committed: Amount::ZERO,
        period: None,
        refill: None,
    };
    let (teams, queues, nodes, budgets) = (vec![team], vec![queue], vec![node], vec![budget]);
    Figures { teams, queues, nodes, budgets, ..Figures::default() }
}
