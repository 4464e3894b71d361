//! The outcome as one self-contained HTML page: charts over time and a table of workloads.

mod chart;
mod scale;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::outcome::{Outcome, Sample, State, WorkloadRow};
use super::units::{count, gpu_time, span};
use chart::{Chart, Mark};

/// The most rows in the table; the JSON has all.
const MOST_ROWS: usize = 2000;

const STYLE: &str = include_str!("style.css");

/// The page of an outcome with a timeline.
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
                    h2 { "Usage by team" }
                    (teams(outcome))
                    h2 { "Waiting workloads" }
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
    let number = |state: State| outcome.workloads.iter().filter(|row| row.state == state).count();
    let waits = outcome.waits().unwrap_or_default();
    let gpus = outcome.timeline.resource == "GPUs";
    let figures = [
        ("simulated time", outcome.end.span()),
        (
            if gpus { "GPU utilization" } else { "CPU utilization" },
            format!("{:.1} %", summary.utilization * 100.0),
        ),
        ("mean wait", span(waits.mean)),
        ("longest wait", span(waits.longest)),
        ("evictions", summary.evictions.to_string()),
        ("work lost", gpu_time(summary.wasted_gpu_seconds)),
        ("succeeded", number(State::Succeeded).to_string()),
        ("running", number(State::Running).to_string()),
        ("waiting", number(State::Pending).to_string()),
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
    let samples = &outcome.timeline.samples;
    let resource = &outcome.timeline.resource;
    let mut keys: Vec<&(String, String)> = samples.iter().flat_map(|sample| sample.teams.keys()).collect();
    keys.sort();
    keys.dedup();
    // All charts share a scale, so that teams can be compared.
    let all = samples.iter().flat_map(|sample| sample.teams.values());
    let most = all.map(|usage| usage.used.max(usage.guaranteed)).fold(0.0, f64::max);
    let chart = |key: &(String, String)| {
        let usage = |sample: &Sample| sample.teams.get(key).copied().unwrap_or_default();
        let (team, pool) = key;
        let peak = samples.iter().map(|sample| usage(sample).used).fold(0.0, f64::max);
        let guaranteed = samples.last().map(|sample| usage(sample).guaranteed).unwrap_or_default();
        Chart {
            title: format!("{team}, pool {pool}"),
            description: format!(
                "{resource} used by team {team} in pool {pool} over time: at most {peak}, {guaranteed} guaranteed."
            ),
            values: samples.iter().map(|sample| (sample.at.0.as_secs_f64(), usage(sample).used)).collect(),
            line: samples.iter().map(|sample| (sample.at.0.as_secs_f64(), usage(sample).guaranteed)).collect(),
            marks: evictions(outcome, team),
            most,
            end: end(outcome),
        }
        .draw()
    };
    html! {
        p.legend {
            span.area {} " " (resource) " used "
            span.dashes {} " guaranteed "
            span.mark { "▼" } " eviction"
        }
        @for key in keys { (chart(key)) }
    }
}

/// The end of the time axis, with a margin if something changes at the end.
fn end(outcome: &Outcome) -> f64 {
    let end = outcome.end.0.as_secs_f64();
    match outcome.timeline.samples.last() {
        Some(last) if last.at == outcome.end => end * 1.04 + 0.1,
        _ => end,
    }
}

/// The evictions of a team's workloads.
fn evictions(outcome: &Outcome, team: &str) -> Vec<Mark> {
    let rows = outcome.workloads.iter().filter(|row| row.team == team);
    rows.flat_map(|row| {
        row.evictions.iter().map(|eviction| {
            let preemptor = if eviction.preemptor.is_empty() {
                String::new()
            } else {
                format!(" for {}", eviction.preemptor)
            };
            Mark {
                at: eviction.at.0.as_secs_f64(),
                text: format!(
                    "{}: {} evicted{preemptor} ({})",
                    eviction.at.span(),
                    row.label(),
                    eviction.reason
                ),
            }
        })
    })
    .collect()
}

fn waiting(outcome: &Outcome) -> Markup {
    let samples = &outcome.timeline.samples;
    let values: Vec<(f64, f64)> =
        samples.iter().map(|sample| (sample.at.0.as_secs_f64(), count(sample.waiting))).collect();
    let most = values.iter().map(|(_, waiting)| *waiting).fold(0.0, f64::max);
    Chart {
        title: "waiting workloads".to_owned(),
        description: format!("Number of waiting workloads over time: at most {most}."),
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
                            ["Workload", "Team", "Queue", "State", "Submitted", "First start", "Ended", "Evictions", "Nodes", "Reason"]
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
                            td.number { (row.submitted.span()) }
                            td.number { @if let Some(first) = row.admissions.first() { (first.at.span()) } }
                            td.number { @if let Some(finished) = row.finished { (finished.span()) } }
                            td.number { @if !row.evictions.is_empty() { (row.evictions.len()) } }
                            td { @for node in nodes(row) { span.node { (node) } " " } }
                            td {
                                @if row.state != State::Succeeded {
                                    @if let Some(eta) = row.eta { "expected to start at " (eta.span()) "; " }
                                    strong { (row.reason) } " " (row.message)
                                }
                            }
                        }
                    }
                }
            }
        }
        @if rows.len() > MOST_ROWS {
            p { "The first " (MOST_ROWS) " of " (rows.len()) " workloads; the JSON output has all." }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::outcome::{Clock, EvictionRow, Timeline, Usage};
    use super::*;

    #[test]
    fn the_page_shows_usage_and_evictions_and_is_self_contained() {
        let usage = |used| [(("a".to_owned(), "default".to_owned()), Usage { used, guaranteed: 2.0 })].into();
        let sample = |at, used, waiting| Sample { at: Clock::seconds(at), teams: usage(used), waiting };
        let eviction =
            EvictionRow { at: Clock::seconds(10), preemptor: "b/y".into(), reason: "Reclaimed".into() };
        let row = WorkloadRow {
            namespace: "a".into(),
            name: "<x>".into(),
            team: "a".into(),
            evictions: vec![eviction],
            message: "needs more GPUs than exist".into(),
            ..WorkloadRow::default()
        };
        let outcome = Outcome {
            end: Clock(Duration::from_secs(40)),
            workloads: vec![row],
            timeline: Timeline {
                resource: "GPUs".into(),
                samples: vec![sample(0, 4.0, 0), sample(10, 0.0, 1)],
            },
            ..Outcome::default()
        };
        let page = page(&outcome, "s.yaml");
        // The area of the team's usage: 4 GPUs until 10 s, then none, over a width of 40 s.
        assert!(page.contains("M44.0 128.0L44.0 16.0H270.0V128.0H948.0V128.0Z"), "{page}");
        assert!(page.contains("10s: a/&lt;x&gt; evicted for b/y (Reclaimed)"));
        assert!(page.contains(
            "<desc>GPUs used by team a in pool default over time: at most 4, 2 guaranteed.</desc>"
        ));
        assert!(page.contains("needs more GPUs than exist"));
        for outside in ["http:", "https:", "src=", "url(", "<script", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
