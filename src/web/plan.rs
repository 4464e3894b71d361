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
use super::show::{self, between, counted, gpus_of};
use crate::api::question::{Phase, QuestionSpec, QueueFilter};
use crate::chart::units::{DAY, HOUR, float};
use crate::chart::{Bar, Gantt, Look, Row};
use crate::view::{NodeRow, NodeWorkload, WorkloadRow};

/// The nodes of a page.
const NODES: usize = 60;
/// The waiting workloads that are considered, the oldest first.
const WAITING: i32 = 500;
/// How far ahead the chart may look: its parameter, its name, and its seconds.
const AHEAD: [(&str, &str, f64); 6] = [
    ("1", "1 hour", HOUR),
    ("6", "6 hours", 6.0 * HOUR),
    ("24", "1 day", DAY),
    ("72", "3 days", 3.0 * DAY),
    ("168", "7 days", 7.0 * DAY),
    ("720", "30 days", 30.0 * DAY),
];

/// `GET …/plan`.
pub async fn page(context: Context, RawQuery(query): RawQuery) -> Response {
    let mut choice = Choice::default();
    for (key, value) in pairs(&query.unwrap_or_default()) {
        match key.as_str() {
            "pool" if !value.is_empty() => choice.pool = Some(value),
            "from" => choice.from = value.parse().unwrap_or(0),
            "ahead" => choice.ahead = AHEAD.into_iter().find(|(hours, ..)| *hours == value),
            _ => {}
        }
    }
    let drawn = load(&context, choice).await;
    context.respond(Tab::Plan, drawn)
}

/// What the address of the page says.
#[derive(Clone, Debug, Default)]
struct Choice {
    pool: Option<String>,
    /// The first node.
    from: usize,
    ahead: Option<(&'static str, &'static str, f64)>,
}

impl Choice {
    /// Its address.
    fn path(&self, context: &Context) -> String {
        let mut pairs: Vec<String> = self.pool.iter().map(|pool| format!("pool={}", escaped(pool))).collect();
        pairs.extend((self.from > 0).then(|| format!("from={}", self.from)));
        pairs.extend(self.ahead.map(|(hours, ..)| format!("ahead={hours}")));
        context.path(&format!("plan?{}", pairs.join("&")))
    }
}

async fn load(
    context: &Context,
    choice: Choice,
) -> Result<impl FnOnce(&Context) -> (String, Markup), Problem> {
    let seen = Seen::ask(context).await?;
    let filter = QueueFilter { states: vec![Phase::Pending], ..QueueFilter::default() };
    let spec = QuestionSpec { queue: Some(filter), limit: Some(WAITING), ..QuestionSpec::default() };
    let answer = context.ask(&spec).await?;
    let (waiting, more): (Vec<WorkloadRow>, bool) = (answer.rows()?, answer.cursor.is_some());
    Ok(move |context: &Context| ("Plan".to_owned(), draw(context, &seen, &waiting, more, &choice)))
}

fn draw(context: &Context, seen: &Seen, waiting: &[WorkloadRow], more: bool, choice: &Choice) -> Markup {
    let (pool, from) = (choice.pool.as_deref(), choice.from);
    let mut pools: Vec<&str> = seen.nodes.iter().map(|node| &*node.pool).collect();
    pools.dedup();
    let of_pool: Vec<&NodeRow> =
        seen.nodes.iter().filter(|node| node.gpus > 0 && pool.is_none_or(|pool| pool == node.pool)).collect();
    let nodes = of_pool.get(from..).unwrap_or_default();
    let nodes = &nodes[..nodes.len().min(NODES)];
    let other = |change: &dyn Fn(&mut Choice)| {
        let mut other = choice.clone();
        change(&mut other);
        other.path(context)
    };
    let expected: Vec<&WorkloadRow> =
        waiting.iter().filter(|row| row.eta.as_ref().is_some_and(|eta| eta.likely.is_some())).collect();
    html! {
        h1 { "Plan" }
        @if pools.len() > 1 {
            p.pools { "Pool: "
                a href=(other(&|choice| (choice.pool, choice.from) = (None, 0))) aria-current=[pool.is_none().then_some("true")] { "all" }
                @for name in &pools {
                    " " a href=(other(&|choice| (choice.pool, choice.from) = (Some((*name).to_owned()), 0)))
                        aria-current=[(pool == Some(*name)).then_some("true")] { (name) }
                }
            }
        }
        p.pools { "Ahead: "
            @let chosen = choice.ahead.map(|(hours, ..)| hours);
            a href=(other(&|choice| choice.ahead = None)) aria-current=[chosen.is_none().then_some("true")] { "most ends" }
            @for ahead in AHEAD {
                " " a href=(other(&|choice| choice.ahead = Some(ahead))) aria-current=[(chosen == Some(ahead.0)).then_some("true")] { (ahead.1) }
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
            (chart(context, seen, nodes, &expected, choice))
            p.pages {
                @if from > 0 { a href=(other(&|choice| choice.from = from.saturating_sub(NODES))) rel="prev" { "Previous nodes" } " " }
                @if from + nodes.len() < of_pool.len() {
                    a href=(other(&|choice| choice.from = from + nodes.len())) rel="next" { "Next nodes" } " of " (of_pool.len())
                }
            }
        }
        h2 { "Expected next" }
        (next(context, waiting, &expected))
        @if more { p.soft { "Of the " (waiting.len()) " oldest waiting workloads." } }
    }
}

/// Seconds from now.
fn ahead(at: Timestamp, now: Timestamp) -> f64 {
    float(at.as_second() - now.as_second()).max(0.0)
}

fn chart(
    context: &Context,
    seen: &Seen,
    nodes: &[&NodeRow],
    expected: &[&WorkloadRow],
    choice: &Choice,
) -> Markup {
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
        let each = workload.gpus.as_f64() / f64::from(workload.granted().max(1));
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
    let end = choice.ahead.map_or_else(|| far_enough(ends), |(.., seconds)| seconds);
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

/// A time by which most of the ends have come: a few long runs must not press all others together.
fn far_enough(mut ends: Vec<f64>) -> f64 {
    ends.sort_by(f64::total_cmp);
    let most = ends.get(ends.len() * 4 / 5).or(ends.last()).copied().unwrap_or(HOUR);
    let times = AHEAD.map(|(.., seconds)| seconds);
    times.into_iter().find(|seconds| *seconds >= most).unwrap_or(times[times.len() - 1])
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
fn next(context: &Context, waiting: &[WorkloadRow], expected: &[&WorkloadRow]) -> Markup {
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
                        " (" (show::team(context, &head.team)) ", " (gpus_of(row.gpus.as_f64())) ") "
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_long_runs_do_not_press_the_others_together() {
        assert!((far_enough(Vec::new()) - HOUR).abs() < 1.0);
        let mut ends = vec![2.0 * HOUR; 9];
        ends.push(20.0 * DAY);
        assert!((far_enough(ends) - 6.0 * HOUR).abs() < 1.0);
        assert!((far_enough(vec![90.0 * DAY]) - 30.0 * DAY).abs() < 1.0);
    }
}
