//! The outcome as one self-contained HTML page: charts over time and a table of workloads.

use std::collections::BTreeMap;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::outcome::{AdmissionRow, Clock, NodeRow, Outcome, Sample, State, Usage, WorkloadRow};
use crate::chart::units::{count, gpu_time, number, span};
use crate::chart::{self, Area, Bar, Gantt, Layer, Look, Mark, Palette, Row};

/// The most rows in the table; the JSON has all.
const MOST_ROWS: usize = 2000;

/// The most workloads of which the rows are shown at once.
const UNFOLDED: usize = 40;
/// The most nodes and bars of the chart of nodes.
const MOST_NODES: usize = 64;
const MOST_BARS: usize = 5000;

const STYLE: &str = include_str!("style.css");

/// The page of an outcome with a timeline.
#[must_use]
pub fn page(outcome: &Outcome, title: &str) -> String {
    let palette = Palette::new(
        outcome.timeline.samples.iter().flat_map(|sample| sample.teams.keys()).map(|(team, _)| &**team),
    );
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Sluice: " (title) }
                style { (PreEscaped(chart::STYLE)) (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (title) }
                    (figures(outcome))
                    h2 { "Usage" }
                    (cluster(outcome, &palette))
                    h2 { "Usage by team" }
                    (teams(outcome, &palette))
                    (map(outcome, &palette))
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

/// The figure that is in GPU-seconds.
const LOST: &str = "work lost";

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
        (LOST, gpu_time(summary.wasted_gpu_seconds)),
        ("succeeded", number(State::Succeeded).to_string()),
        ("running", number(State::Running).to_string()),
        ("waiting", number(State::Pending).to_string()),
    ];
    let figures = figures.into_iter().filter(|(name, _)| gpus || *name != LOST);
    html! {
        dl.figures {
            @for (name, value) in figures {
                div { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// The cluster as a whole: usage by team on top of each other, below the capacity.
fn cluster(outcome: &Outcome, palette: &Palette) -> Markup {
    let samples = &outcome.timeline.samples;
    let resource = &outcome.timeline.resource;
    let of_team = |sample: &Sample, team: &str| -> f64 {
        sample.teams.iter().filter(|((name, _), _)| name == team).map(|(_, usage)| usage.own).sum()
    };
    let layer = |team: &str| Layer {
        class: palette.class(team),
        name: team.to_owned(),
        values: samples.iter().map(|sample| of_team(sample, team)).collect(),
    };
    let capacity: Vec<f64> = samples.iter().map(|sample| sample.capacity).collect();
    let most = capacity.iter().copied().fold(0.0, f64::max);
    html! {
        p.legend {
            @for team in palette.teams() { span class=(format!("swatch {}", palette.class(team))) {} " " (team) " " }
            span.rule-line {} " capacity"
        }
        (Area {
            title: format!("{resource} used, all teams"),
            description: format!("{resource} used by each team over time, of at most {}.", number(most)),
            times: times(samples),
            layers: palette.teams().map(layer).collect(),
            capacity,
            most,
            end: end(outcome),
            ..Area::default()
        }.draw())
    }
}

fn times(samples: &[Sample]) -> Vec<f64> {
    samples.iter().map(|sample| sample.at.0.as_secs_f64()).collect()
}

fn teams(outcome: &Outcome, palette: &Palette) -> Markup {
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
        let layer = |borrowed: bool, value: fn(Usage) -> f64| Layer {
            class: format!("{}{}", palette.class(team), if borrowed { " borrowed" } else { "" }),
            name: if borrowed { "borrowed".to_owned() } else { "within the guarantee".to_owned() },
            values: samples.iter().map(|sample| value(usage(sample))).collect(),
        };
        Area {
            title: format!("{team}, pool {pool}"),
            description: format!(
                "{resource} used by team {team} in pool {pool} over time: at most {peak}, {guaranteed} guaranteed."
            ),
            times: times(samples),
            layers: vec![
                layer(false, |usage| usage.used - usage.borrowed),
                layer(true, |usage| usage.borrowed),
            ],
            line: samples.iter().map(|sample| usage(sample).guaranteed).collect(),
            marks: evictions(outcome, team),
            most,
            end: end(outcome),
            ..Area::default()
        }
        .draw()
    };
    let mut named = None;
    html! {
        p.legend {
            span.swatch.own {} " " (resource) " within the guarantee "
            span.swatch.borrowed {} " borrowed "
            span.dashes {} " guaranteed "
            span.mark { "▼" } " eviction"
        }
        @for key in keys {
            (chart(key))
            // The evictions of a team are listed once, below its first pool.
            @if named.replace(&key.0) != Some(&key.0) { (eviction_list(&evictions(outcome, &key.0))) }
        }
    }
}

/// Evictions by name.
fn eviction_list(marks: &[Mark]) -> Markup {
    html! {
        @if !marks.is_empty() {
            details {
                summary { (marks.len()) @if marks.len() == 1 { " eviction" } @else { " evictions" } }
                ul { @for mark in marks.iter().take(MOST_ROWS) { li { (mark.text) } } }
            }
        }
    }
}

/// What ran on which node.
fn map(outcome: &Outcome, palette: &Palette) -> Markup {
    let shown: Vec<&NodeRow> = outcome.nodes.iter().filter(|node| node.gpus > 0.0).collect();
    let end = end(outcome);
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for node in shown.iter().take(MOST_NODES) {
        let row = Row { name: node.name.clone(), gpus: whole(node.gpus), bars: Vec::new() };
        rows.insert(&node.name, row);
    }
    let mut bars = 0;
    for workload in outcome.workloads.iter().filter(|workload| workload.gpus_per_pod > 0.0) {
        for (admission, to) in runs(workload) {
            let from = admission.at.0.as_secs_f64();
            let until = to.map_or_else(|| "the end".to_owned(), Clock::span);
            for (node, pods) in &admission.nodes {
                let Some(row) = rows.get_mut(node.as_str()).filter(|_| bars < MOST_BARS) else { continue };
                bars += 1;
                let (team, gpus) = (&workload.team, workload.gpus_per_pod * f64::from(*pods));
                let borrowed = if admission.borrowed { ", borrowed" } else { "" };
                row.bars.push(Bar {
                    from,
                    to: to.map(|to| to.0.as_secs_f64()),
                    gpus,
                    class: palette.class(team),
                    borrowed: admission.borrowed,
                    look: Look::Runs,
                    label: workload.name.clone(),
                    text: format!(
                        "{} (team {team}{borrowed}): {} GPUs of {node} from {} to {until}",
                        workload.label(),
                        number(gpus),
                        admission.at.span(),
                    ),
                });
            }
        }
    }
    for row in rows.values_mut() {
        row.bars.sort_by(|one, other| one.from.total_cmp(&other.from));
    }
    let drawn = rows.len();
    html! {
        @if drawn > 0 {
            h2 { "Nodes over time" }
            (Gantt {
                title: "GPUs of each node".to_owned(),
                description: format!("What ran on each of {drawn} nodes over time; hatched where it borrowed."),
                rows: rows.into_values().collect(),
                end,
                begin: "0s".to_owned(),
                sign: "",
            }.draw())
            @if shown.len() > drawn { p { "The first " (drawn) " of " (shown.len()) " nodes." } }
            @if bars == MOST_BARS { p { "The first " (MOST_BARS) " runs." } }
        }
    }
}

/// The admissions of a workload with the ends of these runs.
fn runs(workload: &WorkloadRow) -> Vec<(&AdmissionRow, Option<Clock>)> {
    let end_of = |at: usize, admission: &AdmissionRow| {
        let next = workload.admissions.get(at + 1).map(|next| next.at);
        let evicted =
            workload.evictions.iter().map(|eviction| eviction.at).find(|evicted| *evicted >= admission.at);
        [next, evicted, workload.finished].into_iter().flatten().min()
    };
    let with_end = workload.admissions.iter().enumerate();
    with_end.map(|(at, admission)| (admission, end_of(at, admission))).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count, never negative")]
fn whole(count: f64) -> u32 {
    count.clamp(0.0, 1_000_000.0).ceil() as u32
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
    let values: Vec<f64> = samples.iter().map(|sample| count(sample.waiting)).collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    Area {
        title: "waiting workloads".to_owned(),
        description: format!("Number of waiting workloads over time: at most {most}."),
        times: times(samples),
        layers: vec![Layer { class: "other".to_owned(), name: "waiting".to_owned(), values }],
        most,
        end: end(outcome),
        ..Area::default()
    }
    .draw()
}

/// The workloads of each team, folded where there are many.
fn workloads(rows: &[WorkloadRow]) -> Markup {
    let mut teams: BTreeMap<&str, Vec<&WorkloadRow>> = BTreeMap::new();
    for row in rows.iter().take(MOST_ROWS) {
        teams.entry(&row.team).or_default().push(row);
    }
    let open = rows.len() <= UNFOLDED;
    html! {
        @for (team, rows) in teams {
            details open[open] {
                summary {
                    strong { @if team.is_empty() { "without a team" } @else { (team) } }
                    ": " (by_state(&rows))
                }
                (table(&rows))
            }
        }
        @if rows.len() > MOST_ROWS {
            p { "The first " (MOST_ROWS) " of " (rows.len()) " workloads; the JSON output has all." }
        }
    }
}

/// The number of workloads in each state: `3 running, 1 pending`.
fn by_state(rows: &[&WorkloadRow]) -> String {
    let mut states: BTreeMap<State, usize> = BTreeMap::new();
    for row in rows {
        *states.entry(row.state).or_default() += 1;
    }
    let states =
        states.iter().map(|(state, number)| format!("{number} {}", state.to_string().to_lowercase()));
    states.collect::<Vec<_>>().join(", ")
}

fn table(rows: &[&WorkloadRow]) -> Markup {
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
                            ["Workload", "Queue", "State", "Submitted", "First start", "Ended", "Evictions", "Nodes", "Reason"]
                        { th scope="col" { (name) } }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            th scope="row" { (row.label()) }
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
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::outcome::{Clock, EvictionRow, Timeline, Usage};
    use super::*;

    #[test]
    fn the_page_shows_usage_and_evictions_and_is_self_contained() {
        let usage = |used| {
            [(
                ("a".to_owned(), "default".to_owned()),
                Usage { used, borrowed: (used - 2.0).max(0.0), own: used, guaranteed: 2.0 },
            )]
            .into()
        };
        let sample =
            |at, used, waiting| Sample { at: Clock::seconds(at), teams: usage(used), waiting, capacity: 4.0 };
        let eviction =
            EvictionRow { at: Clock::seconds(10), preemptor: "b/y".into(), reason: "Reclaimed".into() };
        let row = WorkloadRow {
            namespace: "a".into(),
            name: "<x>".into(),
            team: "a".into(),
            evictions: vec![eviction],
            admissions: vec![AdmissionRow {
                nodes: [("n0".to_owned(), 2)].into(),
                ..AdmissionRow::default()
            }],
            gpus_per_pod: 2.0,
            message: "needs more GPUs than exist".into(),
            ..WorkloadRow::default()
        };
        let outcome = Outcome {
            end: Clock(Duration::from_secs(40)),
            workloads: vec![row],
            nodes: vec![NodeRow { name: "n0".into(), gpus: 4.0, ..NodeRow::default() }],
            timeline: Timeline {
                resource: "GPUs".into(),
                samples: vec![sample(0, 4.0, 0), sample(10, 0.0, 1)],
            },
            ..Outcome::default()
        };
        let page = page(&outcome, "s.yaml");
        // The area of the team's usage: 4 GPUs until 10 s, then none, over a width of 40 s; half of it is borrowed.
        assert!(page.contains("M44.0 16.0H270.0V128.0H948.0V128.0L948.0 128.0H270.0H44.0Z"), "{page}");
        assert!(page.contains("M44.0 16.0H270.0V128.0H948.0V128.0L948.0 128.0H270.0V72.0H44.0Z"), "{page}");
        assert!(page.contains("10s: a/&lt;x&gt; evicted for b/y (Reclaimed)"));
        assert!(page.contains(
            "<desc>GPUs used by team a in pool default over time: at most 4, 2 guaranteed.</desc>"
        ));
        assert!(page.contains("needs more GPUs than exist"));
        assert!(page.contains("4 GPUs of n0 from 0s to 10s"), "{page}");
        assert!(page.contains("<summary>1 eviction</summary>"));
        let page = page.replace("url(#", "(#");
        for outside in ["http:", "https:", "src=", "url(", "<script", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
