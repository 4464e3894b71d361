//! What runs on which node until when, what is expected there next, and what is reserved.

use std::collections::BTreeMap;

use axum::extract::RawQuery;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::answers::Problem;
use super::layout::Tab;
use super::overview::Seen;
use super::page::Context;
use super::query::{escaped, pairs};
use super::show::{self, between, counted, float, gpus_of};
use crate::api::question::{Phase, QuestionSpec, QueueFilter};
use crate::chart::units::{DAY, HOUR};
use crate::chart::{Bar, Gantt, Look, Row};
use crate::view::{NodeRow, NodeWorkload, WorkloadRow};

/// The nodes of a page.
const NODES: usize = 60;
/// The waiting workloads that are considered, the oldest first.
const WAITING: i32 = 500;
/// The farthest and the nearest end of the chart.
const FARTHEST: f64 = 14.0 * DAY;
const NEAREST: f64 = HOUR;

/// `GET …/plan`.
pub async fn page(context: Context, RawQuery(query): RawQuery) -> Response {
    let (mut pool, mut from) = (None, 0);
    for (key, value) in pairs(&query.unwrap_or_default()) {
        match key.as_str() {
            "pool" if !value.is_empty() => pool = Some(value),
            "from" => from = value.parse().unwrap_or(0),
            _ => {}
        }
    }
    let drawn = load(&context, pool, from).await;
    context.respond(Tab::Plan, drawn)
}

async fn load(
    context: &Context,
    pool: Option<String>,
    from: usize,
) -> Result<impl FnOnce(&Context) -> (String, Markup), Problem> {
    let seen = Seen::ask(context).await?;
    let filter = QueueFilter { states: vec![Phase::Pending], ..QueueFilter::default() };
    let spec = QuestionSpec { queue: Some(filter), limit: Some(WAITING), ..QuestionSpec::default() };
    let answer = context.ask(&spec).await?;
    let (waiting, more): (Vec<WorkloadRow>, bool) = (answer.rows()?, answer.cursor.is_some());
    Ok(move |context: &Context| {
        ("Plan".to_owned(), draw(context, &seen, &waiting, more, pool.as_deref(), from))
    })
}

fn draw(
    context: &Context,
    seen: &Seen,
    waiting: &[WorkloadRow],
    more: bool,
    pool: Option<&str>,
    from: usize,
) -> Markup {
    let mut pools: Vec<&str> = seen.nodes.iter().map(|node| &*node.pool).collect();
    pools.dedup();
    let of_pool: Vec<&NodeRow> =
        seen.nodes.iter().filter(|node| node.gpus > 0 && pool.is_none_or(|pool| pool == node.pool)).collect();
    let nodes = of_pool.get(from..).unwrap_or_default();
    let nodes = &nodes[..nodes.len().min(NODES)];
    let address = |pool: Option<&str>, from: usize| {
        let pool = pool.map(|pool| format!("pool={}&", escaped(pool))).unwrap_or_default();
        context.path(&format!("plan?{pool}from={from}"))
    };
    let expected: Vec<&WorkloadRow> =
        waiting.iter().filter(|row| row.eta.as_ref().is_some_and(|eta| eta.likely.is_some())).collect();
    html! {
        h1 { "Plan" }
        @if pools.len() > 1 {
            p.pools { "Pool: "
                a href=(context.path("plan")) aria-current=[pool.is_none().then_some("true")] { "all" }
                @for name in &pools { " " a href=(address(Some(name), 0)) aria-current=[(pool == Some(*name)).then_some("true")] { (name) } }
            }
        }
        ul.legend aria-label="Legend" {
            li { i.t9 aria-hidden="true" {} "runs, until its likely end" }
            li { i.t9.borrowed aria-hidden="true" {} "hatched: borrowed" }
            li { i.expected aria-hidden="true" {} "dashed: expected" }
            li { i.reserved aria-hidden="true" {} "dotted: reserved" }
            li { "A pointed end is not known." }
        }
        @if nodes.is_empty() { p.empty { "There are no nodes with GPUs." } } @else {
            (chart(context, seen, nodes, &expected))
            p.pages {
                @if from > 0 { a href=(address(pool, from.saturating_sub(NODES))) rel="prev" { "Previous nodes" } " " }
                @if from + nodes.len() < of_pool.len() {
                    a href=(address(pool, from + nodes.len())) rel="next" { "Next nodes" } " of " (of_pool.len())
                }
            }
        }
        h2 { "Expected next" }
        (next(context, seen, waiting, &expected))
        @if more { p.soft { "Of the " (waiting.len()) " oldest waiting workloads." } }
    }
}

/// Seconds from now.
fn ahead(at: Timestamp, now: Timestamp) -> f64 {
    float(at.as_second() - now.as_second()).max(0.0)
}

fn chart(context: &Context, seen: &Seen, nodes: &[&NodeRow], expected: &[&WorkloadRow]) -> Markup {
    let now = context.now;
    let mut rows: BTreeMap<&str, Row> = nodes
        .iter()
        .map(|node| {
            let mut bars: Vec<Bar> = node
                .workloads
                .iter()
                .filter(|one| one.gpus > 0.0)
                .map(|one| runs(seen, node, one, now))
                .collect();
            bars.extend(
                node.reserved.iter().filter(|one| one.gpus > 0.0).map(|one| reserved(seen, node, one, now)),
            );
            (&*node.name, Row { name: node.name.clone(), gpus: node.gpus, bars })
        })
        .collect();
    let mut ends: Vec<f64> = Vec::new();
    for workload in expected {
        let (Some(run), Some(start)) = (&workload.run, workload.eta.as_ref().and_then(|eta| eta.likely))
        else {
            continue;
        };
        ends.push(ahead(start, now) + HOUR / 4.0);
        let each = workload.gpus(&seen.accelerators) / f64::from(workload.pods.max(1));
        let head = &workload.head;
        let label = format!("{}/{}", head.namespace, head.name);
        for (node, pods) in &run.nodes {
            let Some(row) = rows.get_mut(node.as_str()) else { continue };
            // The owner of a reservation is drawn once.
            let is_it = |bar: &Bar| bar.look == Look::Reserved && bar.label == head.name;
            row.bars.retain(|bar| !is_it(bar));
            let until = run.likely_end.map_or_else(
                || "an end that is not known".to_owned(),
                |end| format!("{} from now", between(now, end)),
            );
            row.bars.push(Bar {
                from: ahead(start, now),
                to: run.likely_end.map(|end| ahead(end, now)),
                gpus: each * f64::from(*pods),
                class: seen.palette.class(&head.team),
                borrowed: false,
                look: Look::Expected,
                label: head.name.clone(),
                text: format!(
                    "Expected: {label} (team {}), {}, from {} from now until {until}",
                    head.team,
                    gpus_of(each * f64::from(*pods)),
                    between(now, start),
                ),
            });
        }
    }
    for row in rows.values_mut() {
        row.bars.sort_by(|one, other| one.from.total_cmp(&other.from));
        ends.extend(row.bars.iter().filter_map(|bar| bar.to));
    }
    let end = ends.into_iter().fold(NEAREST, f64::max).min(FARTHEST) * 1.05;
    let ordered = nodes.iter().filter_map(|node| rows.remove(&*node.name)).collect();
    Gantt {
        title: "GPUs of each node from now on".to_owned(),
        description: format!(
            "What runs on each of {} until when, and what is expected next. The list below says the same in words.",
            counted(nodes.len(), "node")
        ),
        rows: ordered,
        end,
        begin: "now".to_owned(),
        sign: "+",
    }
    .draw()
}

/// Pods that run on a node.
fn runs(seen: &Seen, node: &NodeRow, one: &NodeWorkload, now: Timestamp) -> Bar {
    let until = match one.until {
        Some(end) if end <= now => "ends at any moment".to_owned(),
        Some(end) => format!("ends in {}", between(now, end)),
        None => "its end is not known".to_owned(),
    };
    let borrowed = if one.borrowed { ", borrowed" } else { "" };
    let (name, label) = names(one);
    Bar {
        from: 0.0,
        // A run that is overdue is still there.
        to: one.until.map(|end| ahead(end, now).max(60.0)),
        gpus: one.gpus,
        class: seen.palette.class(&one.team),
        borrowed: one.borrowed,
        look: Look::Runs,
        label,
        text: format!(
            "{name} (team {}{borrowed}): {} of {}, {until}",
            one.team,
            gpus_of(one.gpus),
            node.name
        ),
    }
}

/// What is reserved on a node.
fn reserved(seen: &Seen, node: &NodeRow, one: &NodeWorkload, now: Timestamp) -> Bar {
    let from = one.until.map_or(0.0, |start| ahead(start, now));
    let start = one.until.map_or_else(
        || "its start is not known".to_owned(),
        |start| format!("starts at the latest in {}", between(now, start)),
    );
    let (name, label) = names(one);
    Bar {
        from,
        to: None,
        gpus: one.gpus,
        class: seen.palette.class(&one.team),
        borrowed: false,
        look: Look::Reserved,
        label,
        text: format!(
            "Reserved for {name} (team {}): {} of {}, {start}",
            one.team,
            gpus_of(one.gpus),
            node.name
        ),
    }
}

/// A workload by its whole name and by its short one; the sum of those of other namespaces by its team.
fn names(one: &NodeWorkload) -> (String, String) {
    match one.workload.split_once('/') {
        Some((_, name)) => (one.workload.clone(), name.to_owned()),
        None => ("Work of another namespace".to_owned(), one.team.clone()),
    }
}

/// The waiting workloads in the order of their expected starts, those without one last.
fn next(context: &Context, seen: &Seen, waiting: &[WorkloadRow], expected: &[&WorkloadRow]) -> Markup {
    let mut expected = expected.to_vec();
    expected.sort_by_key(|row| row.eta.as_ref().and_then(|eta| eta.likely));
    let unknown = waiting.len() - expected.len();
    let shown = expected.len().min(50);
    html! {
        @if waiting.is_empty() { p.empty { "Nothing waits." } }
        @if !expected.is_empty() {
            ol.next {
                @for row in &expected[..shown] {
                    @let head = &row.head;
                    li {
                        a href=(context.workload(&head.namespace, &head.name)) { (head.namespace) "/" (head.name) }
                        " (" (show::team(context, &head.team)) ", " (gpus_of(row.gpus(&seen.accelerators))) ") "
                        @if let Some(eta) = &row.eta { (show::eta(eta, context.now)) }
                        @if let Some(run) = row.run.as_ref().filter(|run| !run.nodes.is_empty()) {
                            " on " (run.nodes.iter().take(4).map(|(node, _)| &**node).collect::<Vec<_>>().join(", "))
                            @if run.nodes.len() > 4 { " and " (run.nodes.len() - 4) " more" }
                        }
                    }
                }
            }
            @if expected.len() > shown { p.soft { "and " (expected.len() - shown) " more" } }
        }
        @if unknown > 0 { p.soft { "The start of " (counted(unknown, "waiting workload")) " is not known: " a href=(context.path("queue?state=Pending")) { "their reasons" } "." } }
    }
}
