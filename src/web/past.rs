//! The past on the pages of teams and workloads: usage against the guarantee over time, and the runs of a workload.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::answers::Problem;
use super::page::{Context, seconds};
use super::reports;
use super::show;
use crate::api::accounts::{HistoryFilter, ReportFilter, ReportKind};
use crate::api::question::QuestionSpec;
use crate::chart::units::number;
use crate::chart::{Area, Layer};
use crate::client::Scope;
use crate::view::accounts::{GpuTime, HistoryRow, ReportRow, UsageRow};

/// The pasts that are shown: their name, their length and the length of their steps, in seconds.
const PASTS: [(&str, i64, i64); 4] =
    [("24h", 86_400, 900), ("7d", 604_800, 7_200), ("30d", 2_592_000, 28_800), ("90d", 7_776_000, 86_400)];
/// The past that is shown first.
const USUAL: &str = "7d";
/// The most runs of one workload that are shown.
const MOST_RUNS: i32 = 50;

/// Usage of a team over a past.
pub struct TeamPast {
    name: &'static str,
    from: i64,
    to: i64,
    step: i64,
    rows: Result<Vec<UsageRow>, String>,
}

/// Asks what a team has used in a past of this name.
pub async fn of_team(context: &Context, team: &str, past: &str) -> TeamPast {
    let known = |name: &str| PASTS.into_iter().find(|(of, ..)| *of == name);
    let (name, length, step) = known(past).or_else(|| known(USUAL)).unwrap_or(PASTS[0]);
    // Whole steps, so that an answer serves more than one request.
    let to = context.now.as_second().div_euclid(60) * 60;
    let from = (to - length).div_euclid(step) * step;
    let at = |second: i64| Timestamp::from_second(second).unwrap_or_default();
    let begins = (1..).map(|count| from + count * step).take_while(|begin| *begin < to);
    let filter = ReportFilter {
        kind: ReportKind::Teams,
        from: at(from),
        to: Some(at(to)),
        by: None,
        cuts: begins.map(at).collect(),
        team: Some(team.to_owned()),
        prices: std::collections::BTreeMap::new(),
    };
    let usage = |row| if let ReportRow::Usage(row) = row { Some(row) } else { None };
    let rows = reports::asked(context, filter).await;
    let rows =
        rows.map(|rows| rows.into_iter().filter_map(usage).collect()).map_err(|problem| problem.message);
    TeamPast { name, from, to, step, rows }
}

impl TeamPast {
    /// The chart, or why there is none.
    pub fn draw(&self, context: &Context, team: &str, class: &str) -> Markup {
        html! {
            p.pools {
                @for (name, ..) in PASTS {
                    a href=(context.path(&format!("team/{team}?past={name}"))) aria-current=[(name == self.name).then_some("true")] { (name) }
                }
            }
            @match &self.rows {
                Err(message) => p.soft { (message) },
                Ok(rows) => (self.chart(rows, class)),
            }
        }
    }

    fn chart(&self, rows: &[UsageRow], class: &str) -> Markup {
        let begins: Vec<i64> =
            (0..).map(|count| self.from + count * self.step).take_while(|begin| *begin < self.to).collect();
        let mean = |begin: &i64, of: fn(&UsageRow) -> GpuTime| {
            let length = show::float((self.to - begin).min(self.step)).max(1.0);
            let rows = rows.iter().filter(|row| row.from.as_second() == *begin);
            rows.fold(GpuTime::ZERO, |sum, row| sum.plus(of(row))).seconds() / length
        };
        let values = |of: fn(&UsageRow) -> GpuTime| begins.iter().map(|begin| mean(begin, of)).collect();
        let layer =
            |class: String, name: &str, of| Layer { class, name: name.to_owned(), values: values(of) };
        let sum =
            |of: fn(&UsageRow) -> GpuTime| rows.iter().fold(GpuTime::ZERO, |sum, row| sum.plus(of(row)));
        let [used, borrowed] =
            [sum(|row| row.used_gpu_seconds), sum(|row| row.borrowed_gpu_seconds)].map(GpuTime::hours);
        let area = Area {
            title: "GPUs used against the guarantee (dashed)".to_owned(),
            description: format!("{} GPU-hours used, of them {} borrowed", number(used), number(borrowed)),
            times: begins.iter().map(|begin| show::float(begin - self.from)).collect(),
            layers: vec![
                layer(class.to_owned(), "within the guarantee", |row| row.guaranteed_gpu_seconds),
                layer(format!("{class} borrowed"), "borrowed", |row| row.borrowed_gpu_seconds),
            ],
            line: values(|row| row.available_gpu_seconds.unwrap_or_default()),
            end: show::float(self.to - self.from),
            ..Area::default()
        };
        html! {
            (area.draw())
            p.soft { (number(used)) " GPU-hours used, of them " (number(borrowed)) " on borrowed capacity." }
        }
    }
}

/// The runs of a workload, the newest first.
pub type Runs = Result<Vec<HistoryRow>, Problem>;

/// Asks for the runs of a workload.
pub async fn of_workload(context: &Context, namespace: &str, name: &str) -> Runs {
    let in_scope = matches!(context.scope, Scope::Cluster).then(|| namespace.to_owned());
    let filter =
        HistoryFilter { name: Some(name.to_owned()), namespace: in_scope, ..HistoryFilter::default() };
    let spec = QuestionSpec { history: Some(filter), limit: Some(MOST_RUNS), ..QuestionSpec::default() };
    context.ask(&spec).await?.rows()
}

/// The runs as a table, or why there is none.
pub fn runs(context: &Context, runs: &Runs) -> Markup {
    html! {
        @match runs {
            Err(problem) => p.soft { (problem.message) },
            Ok(runs) if runs.is_empty() => p.empty { "It has not run yet." },
            Ok(runs) => {
                div.scroll tabindex="0" role="region" aria-label="Runs" {
                    table.cards {
                        thead { tr {
                            th scope="col" { "Admitted" } th scope="col" { "State" } th.number scope="col" { "GPUs" }
                            th scope="col" { "Waited" } th scope="col" { "Ran" } th.number scope="col" { "GPU-hours" }
                            th.number scope="col" { "Lost" } th scope="col" { "Nodes" } th scope="col" { "Why it ended" }
                        } }
                        tbody { @for row in runs { (run(context, row)) } }
                    }
                }
            }
        }
    }
}

fn run(context: &Context, row: &HistoryRow) -> Markup {
    let until = row.ended.unwrap_or(context.now);
    let waited = row.waited_seconds.and_then(|waited| i64::try_from(waited).ok());
    let waited = waited.and_then(|waited| row.admitted.checked_sub(SignedDuration::from_secs(waited)).ok());
    html! {
        tr {
            td data-label="Admitted" { time datetime=(seconds(row.admitted)) { (seconds(row.admitted)) } @if row.borrowed { span.soft { " borrowed" } } }
            td data-label="State" { (show::state(&row.state)) }
            td.number data-label="GPUs" { (row.gpus) }
            td data-label="Waited" { @if let Some(queued) = waited { (show::between(queued, row.admitted)) } }
            td data-label="Ran" { (show::between(row.admitted, until)) }
            td.number data-label="GPU-hours" { (number(row.gpu_seconds.hours())) }
            td.number data-label="Lost" { @if row.lost_gpu_seconds > GpuTime::ZERO { (number(row.lost_gpu_seconds.hours())) } }
            td data-label="Nodes" { (row.nodes.keys().cloned().collect::<Vec<_>>().join(", ")) }
            td.why data-label="Why it ended" {
                @if !row.reason.is_empty() { strong { (row.reason) } }
                @if !row.message.is_empty() { " " (row.message) }
                @else if !row.evicted_for.is_empty() { " for " (row.evicted_for) }
            }
        }
    }
}
