//! The outcome as one HTML page that needs nothing else: pictures over time and the workloads' reasons.

mod chart;
mod scale;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::outcome::{Clock, Outcome, Point, State, WorkloadRow};
use chart::{Chart, Mark};
use scale::span;

/// More rows than anybody reads; the JSON has them all.
const MOST_ROWS: usize = 2000;

const STYLE: &str = include_str!("report/style.css");

/// The page. The outcome must have been asked for with a timeline.
#[must_use]
pub fn page(outcome: &Outcome, title: &str) -> String {
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Sluice: " (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (title) }
                    (figures(outcome))
                    h2 { "What each team holds" }
                    (teams(outcome))
                    h2 { "What waits" }
                    (waiting(outcome))
                    h2 { "Workloads" }
                    (workloads(&outcome.workloads))
                }
            }
        }
    };
    body.into_string()
}

fn figures(outcome: &Outcome) -> Markup {
    let summary = &outcome.summary;
    let count = |state: State| outcome.workloads.iter().filter(|row| row.state == state).count();
    let figures = [
        ("simulated time", told(outcome.end)),
        ("utilization", format!("{:.1} %", summary.utilization * 100.0)),
        ("mean wait", span(summary.mean_wait_seconds)),
        ("evictions", summary.evictions.to_string()),
        ("work lost", format!("{:.0} GPU-s", summary.wasted_gpu_seconds)),
        ("succeeded", count(State::Succeeded).to_string()),
        ("running", count(State::Running).to_string()),
        ("pending", count(State::Pending).to_string()),
    ];
    html! {
        dl.figures {
            @for (name, value) in figures {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

fn teams(outcome: &Outcome) -> Markup {
    let points = &outcome.timeline.points;
    let resource = &outcome.timeline.resource;
    let mut keys: Vec<&(String, String)> = points.iter().flat_map(|point| point.teams.keys()).collect();
    keys.sort();
    keys.dedup();
    // One scale for all, so that they can be compared.
    let all = points.iter().flat_map(|point| point.teams.values());
    let most = all.map(|held| held.used.max(held.guaranteed)).fold(0.0, f64::max);
    let chart = |key: &(String, String)| {
        let held = |point: &Point| point.teams.get(key).copied().unwrap_or_default();
        let (team, pool) = key;
        let peak = points.iter().map(|point| held(point).used).fold(0.0, f64::max);
        let promised = points.last().map(|point| held(point).guaranteed).unwrap_or_default();
        Chart {
            title: format!("{team}, pool {pool}"),
            description: format!(
                "{resource} held by team {team} in pool {pool} over time: at most {peak}, of {promised} guaranteed."
            ),
            values: points.iter().map(|point| (point.at.0.as_secs_f64(), held(point).used)).collect(),
            line: points.iter().map(|point| (point.at.0.as_secs_f64(), held(point).guaranteed)).collect(),
            marks: evictions(outcome, team),
            most,
            end: end(outcome),
        }
        .draw()
    };
    html! {
        p.legend {
            span.area {} " " (resource) " held "
            span.dashes {} " guaranteed "
            span.mark { "▼" } " eviction"
        }
        @for key in keys { (chart(key)) }
    }
}

/// Where the pictures end: where something changes at the very end, it is shown for a while.
fn end(outcome: &Outcome) -> f64 {
    let end = outcome.end.0.as_secs_f64();
    match outcome.timeline.points.last() {
        Some(last) if last.at == outcome.end => end * 1.04 + 0.1,
        _ => end,
    }
}

/// A time for people; the JSON has it exactly.
fn told(at: Clock) -> String {
    span(at.0.as_secs_f64())
}

/// When workloads of a team were evicted.
fn evictions(outcome: &Outcome, team: &str) -> Vec<Mark> {
    let rows = outcome.workloads.iter().filter(|row| row.team == team);
    rows.flat_map(|row| {
        row.evictions.iter().map(|eviction| {
            let whom = if eviction.preemptor.is_empty() {
                String::new()
            } else {
                format!(" for {}", eviction.preemptor)
            };
            Mark {
                at: eviction.at.0.as_secs_f64(),
                text: format!("{}: {} evicted{whom} ({})", told(eviction.at), row.label(), eviction.reason),
            }
        })
    })
    .collect()
}

fn waiting(outcome: &Outcome) -> Markup {
    let points = &outcome.timeline.points;
    let values: Vec<(f64, f64)> =
        points.iter().map(|point| (point.at.0.as_secs_f64(), chart::count(point.waiting))).collect();
    let most = values.iter().map(|(_, waiting)| *waiting).fold(0.0, f64::max);
    Chart {
        title: "waiting workloads".to_owned(),
        description: format!("How many workloads wait over time: at most {most}."),
        values,
        line: Vec::new(),
        marks: Vec::new(),
        most,
        end: end(outcome),
    }
    .draw()
}

fn workloads(rows: &[WorkloadRow]) -> Markup {
    let nodes = |row: &WorkloadRow| -> Vec<String> {
        let last = row.admissions.last().filter(|_| row.state != State::Pending);
        let nodes = last.into_iter().flat_map(|admission| &admission.nodes);
        nodes.map(|(node, pods)| format!("{node}: {pods}")).collect()
    };
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        @for name in
                            ["Workload", "Team", "Queue", "State", "Submitted", "Started", "Ended", "Evicted", "Nodes", "Why"]
                        { th scope="col" { (name) } }
                    }
                }
                tbody {
                    @for row in rows.iter().take(MOST_ROWS) {
                        tr {
                            th scope="row" { (row.label()) }
                            td { (row.team) }
                            td { (row.queue) }
                            td { span class=(format!("state {}", row.state.to_string().to_lowercase())) { (row.state) } }
                            td.number { (told(row.submitted)) }
                            td.number { @if let Some(first) = row.admissions.first() { (told(first.at)) } }
                            td.number { @if let Some(finished) = row.finished { (told(finished)) } }
                            td.number { @if !row.evictions.is_empty() { (row.evictions.len()) } }
                            td { @for node in nodes(row) { span.node { (node) } " " } }
                            td {
                                @if row.state != State::Succeeded {
                                    @if let Some(eta) = row.eta { "expected at " (told(eta)) "; " }
                                    strong { (row.reason) } " " (row.message)
                                }
                            }
                        }
                    }
                }
            }
        }
        @if rows.len() > MOST_ROWS {
            p { "The first " (MOST_ROWS) " of " (rows.len()) "; the JSON output has all." }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::outcome::{Clock, EvictionRow, Held, Timeline};
    use super::*;

    #[test]
    fn the_page_shows_what_happened_and_needs_nothing_else() {
        let held = |used| [(("a".to_owned(), "default".to_owned()), Held { used, guaranteed: 2.0 })].into();
        let point = |at, used, waiting| Point { at: Clock::seconds(at), teams: held(used), waiting };
        let eviction =
            EvictionRow { at: Clock::seconds(10), preemptor: "b/y".into(), reason: "Reclaimed".into() };
        let row = WorkloadRow {
            namespace: "a".into(),
            name: "<x>".into(),
            team: "a".into(),
            evictions: vec![eviction],
            message: "asks for more than there is".into(),
            ..WorkloadRow::default()
        };
        let outcome = Outcome {
            end: Clock(Duration::from_secs(40)),
            workloads: vec![row],
            timeline: Timeline { resource: "GPUs".into(), points: vec![point(0, 4.0, 0), point(10, 0.0, 1)] },
            ..Outcome::default()
        };
        let page = page(&outcome, "s.yaml");
        // The area of the team's use: full until 10 s, then nothing, over the width of 40 s.
        assert!(page.contains("M44.0 128.0L44.0 16.0H270.0V128.0H948.0V128.0Z"), "{page}");
        assert!(page.contains("10s: a/&lt;x&gt; evicted for b/y (Reclaimed)"));
        assert!(page.contains(
            "<desc>GPUs held by team a in pool default over time: at most 4, of 2 guaranteed.</desc>"
        ));
        assert!(page.contains("asks for more than there is"));
        for outside in ["http:", "https:", "src=", "url(", "<script", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
