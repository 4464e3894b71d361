//! Reports: GPU-hours by team, user, pool or queue over days or months, waits, and evictions.

use std::collections::BTreeMap;

use axum::extract::RawQuery;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use clap::ValueEnum as _;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use maud::{Markup, html};

use super::answers::Problem;
use super::layout::Tab;
use super::page::{Context, problem_page, rows};
use super::query::{escaped, pairs};
use super::show;
use crate::api::accounts::{MOST_PERIODS, ReportFilter, ReportKind};
use crate::api::question::QuestionSpec;
use crate::chart::units::{count, number};
use crate::chart::{Area, Layer, Palette};
use crate::dates::{When, cuts};
use crate::view::accounts::{EvictionsRow, GpuTime, ReportRow, UsageRow, WaitsRow, csv};

/// The most pages of an answer; a page has up to 1,000 rows.
const MOST_PAGES: usize = 10;
/// The most layers of a chart; the rest is one more.
const LAYERS: usize = 9;
/// The rows that are listed.
const LISTED: usize = 500;
/// The name of what has no name.
const UNKNOWN: &str = "not known";

const BY: [&str; 3] = ["day", "month", "none"];

/// What the address of the page says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    kind: ReportKind,
    from: String,
    to: String,
    by: &'static str,
    team: String,
}

impl Choice {
    fn read(query: &str) -> Self {
        let mut choice = Self {
            kind: ReportKind::Teams,
            from: String::new(),
            to: String::new(),
            by: "day",
            team: String::new(),
        };
        for (key, value) in pairs(query) {
            let value = value.trim().to_owned();
            match key.as_str() {
                "about" => choice.kind = ReportKind::from_str(&value, false).unwrap_or(choice.kind),
                "by" => choice.by = BY.into_iter().find(|by| *by == value).unwrap_or(choice.by),
                "from" => choice.from = value,
                "to" => choice.to = value,
                "team" => choice.team = value,
                _ => {}
            }
        }
        choice
    }

    /// The address of the same report as this file.
    fn address(&self, file: &str) -> String {
        let Self { from, to, by, team, .. } = self;
        let about = name(self.kind);
        let pairs = [("about", &*about), ("from", from), ("to", to), ("by", by), ("team", team)];
        let pairs = pairs.iter().filter(|(_, value)| !value.is_empty());
        let pairs: Vec<String> = pairs.map(|(key, value)| format!("{key}={}", escaped(value))).collect();
        format!("{file}?{}", pairs.join("&"))
    }

    /// The question, in days and months of this time zone.
    fn question(&self, now: &Zoned) -> Result<ReportFilter, String> {
        let month = now.strftime("%Y-%m").to_string();
        let text = |text: &str, usual: &str| if text.is_empty() { usual.to_owned() } else { text.to_owned() };
        let from = When::read(&text(&self.from, &month), now)?.beginning_of_report();
        let to = When::read(&text(&self.to, "now"), now)?.end().min(now.timestamp());
        if from >= to {
            return Err("the report would end before it begins".to_owned());
        }
        let cuts = match self.by {
            "none" => Vec::new(),
            by => cuts(from, to, by == "month", now.time_zone()),
        };
        if cuts.len() >= MOST_PERIODS {
            return Err(format!("a report has at most {MOST_PERIODS} periods"));
        }
        let team = Some(self.team.clone()).filter(|team| !team.is_empty());
        Ok(ReportFilter {
            kind: self.kind,
            from,
            to: Some(to),
            by: None,
            cuts,
            team,
            prices: BTreeMap::new(),
        })
    }
}

/// The name of what a report is about, as on the command line.
fn name(kind: ReportKind) -> String {
    kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The present in whole minutes, so that an answer serves more than one request.
fn minute(context: &Context) -> Zoned {
    let minute = context.now.as_second().div_euclid(60) * 60;
    Timestamp::from_second(minute).unwrap_or(context.now).to_zoned(TimeZone::system())
}

/// The rows of a report.
///
/// # Errors
/// [`Problem`].
pub async fn asked(context: &Context, filter: ReportFilter) -> Result<Vec<ReportRow>, Problem> {
    let spec = QuestionSpec { report: Some(filter), ..QuestionSpec::default() };
    let (pages, _) = context.ask_all(spec, MOST_PAGES).await?;
    rows(&pages)
}

/// `GET …/reports`.
pub async fn page(context: Context, RawQuery(query): RawQuery) -> Response {
    let choice = Choice::read(&query.unwrap_or_default());
    let now = minute(&context);
    let answer = match choice.question(&now) {
        Ok(filter) => asked(&context, filter.clone())
            .await
            .map(|rows| (filter, rows))
            .map_err(|problem| problem.message),
        Err(wrong) => Err(wrong),
    };
    context.respond(
        Tab::Reports,
        Ok(|context: &Context| ("Reports".to_owned(), draw(context, &choice, &now, &answer))),
    )
}

/// `GET …/reports.csv`.
pub async fn file(context: Context, RawQuery(query): RawQuery) -> Response {
    let choice = Choice::read(&query.unwrap_or_default());
    let asked = match choice.question(&minute(&context)) {
        Ok(filter) => asked(&context, filter).await,
        Err(wrong) => Err(Problem::new(axum::http::StatusCode::BAD_REQUEST, wrong)),
    };
    let text = asked.and_then(|rows| {
        csv(&rows, true).map_err(|error| Problem::new(axum::http::StatusCode::BAD_GATEWAY, error.to_string()))
    });
    match text {
        Ok(text) => {
            let name = format!("attachment; filename=\"sluice-{}.csv\"", name(choice.kind));
            ([(CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()), (CONTENT_DISPOSITION, name)], text)
                .into_response()
        }
        Err(problem) => problem_page(&context.web, Some(&context.scope), Tab::Reports, &problem),
    }
}

type Answer = Result<(ReportFilter, Vec<ReportRow>), String>;

fn draw(context: &Context, choice: &Choice, now: &Zoned, answer: &Answer) -> Markup {
    html! {
        h1 { "Reports" }
        (form(context, choice))
        @match answer {
            Err(message) => p.problem role="alert" { (message) },
            Ok((filter, rows)) => {
                p.soft { (heading(filter, now)) }
                @if rows.is_empty() { p.empty { "Nothing ran in this time." } } @else {
                    (chart(filter, rows))
                    (table(context, rows, choice.by != "none", now.time_zone()))
                    p.pages { a href=(context.path(&choice.address("reports.csv"))) download { "Download as CSV" } }
                }
            }
        }
    }
}

fn form(context: &Context, choice: &Choice) -> Markup {
    html! {
        form.filters action=(context.path("reports")) method="get" role="search" aria-label="Report" {
            label { span { "About" } select name="about" {
                @for kind in ReportKind::value_variants() { option value=(name(*kind)) selected[*kind == choice.kind] { (name(*kind)) } }
            } }
            label { span { "From" } input name="from" value=(choice.from) size="12" placeholder="2026-11-01" autocomplete="off"; }
            label { span { "To" } input name="to" value=(choice.to) size="12" placeholder="now" autocomplete="off"; }
            label { span { "By" } select name="by" {
                @for by in BY { option value=(by) selected[by == choice.by] { (by) } }
            } }
            label { span { "Team" } input name="team" value=(choice.team) size="12" autocomplete="off" spellcheck="false"; }
            button { "Show" }
        }
    }
}

/// The bounds of a report and their time zone.
fn heading(filter: &ReportFilter, now: &Zoned) -> String {
    let at = |at: Timestamp| at.to_zoned(now.time_zone().clone()).strftime("%Y-%m-%d %H:%M").to_string();
    let zone =
        now.time_zone().iana_name().map_or_else(|| now.strftime("UTC%:z").to_string(), ToOwned::to_owned);
    let to = filter.to.unwrap_or(now.timestamp());
    format!("From {} to {} ({zone}). A run counts with the part of it in this time.", at(filter.from), at(to))
}

/// The name under which a row of usage is drawn.
fn series(row: &UsageRow) -> &str {
    let names = [&row.user, &row.queue, &row.pool, &row.team];
    names.into_iter().find(|name| !name.is_empty()).map_or(UNKNOWN, String::as_str)
}

/// GPU-hours of each period; `None` where there is only one, or the report is about something else.
fn chart(filter: &ReportFilter, rows: &[ReportRow]) -> Markup {
    let usage: Vec<&UsageRow> = rows
        .iter()
        .filter_map(|row| if let ReportRow::Usage(row) = row { Some(row) } else { None })
        .collect();
    if usage.is_empty() || filter.cuts.is_empty() {
        return html! {};
    }
    let mut sums: BTreeMap<&str, GpuTime> = BTreeMap::new();
    for row in &usage {
        let sum = sums.entry(series(row)).or_default();
        *sum = sum.plus(row.used_gpu_seconds);
    }
    let mut largest: Vec<(&str, GpuTime)> = sums.into_iter().collect();
    largest.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
    let shown: Vec<&str> = largest.iter().take(LAYERS).map(|(name, _)| *name).collect();
    let rest = largest.len().saturating_sub(LAYERS);
    let palette = Palette::new(shown.iter().copied());
    let begins: Vec<Timestamp> = std::iter::once(filter.from).chain(filter.cuts.iter().copied()).collect();
    let layer = |class: String, label: String, mine: &dyn Fn(&str) -> bool| {
        let value = |begin: &Timestamp| {
            let period = usage.iter().filter(|row| row.from == *begin && mine(series(row)));
            period.fold(GpuTime::ZERO, |sum, row| sum.plus(row.used_gpu_seconds)).hours()
        };
        Layer { class, name: label, values: begins.iter().map(value).collect() }
    };
    let mut layers: Vec<Layer> =
        shown.iter().map(|of| layer(palette.class(of), (*of).to_owned(), &|name| name == *of)).collect();
    if rest > 0 {
        layers.push(layer("other".to_owned(), format!("{rest} others"), &|name| !shown.contains(&name)));
    }
    let since = |at: Timestamp| show::float(at.as_second().saturating_sub(filter.from.as_second()));
    let end = since(filter.to.unwrap_or(filter.from));
    let area = Area {
        title: "GPU-hours of each period".to_owned(),
        description: format!(
            "{} of {}",
            show::counted(begins.len(), "period"),
            show::counted(largest.len(), "name")
        ),
        times: begins.iter().map(|begin| since(*begin)).collect(),
        layers,
        end,
        ..Area::default()
    };
    html! {
        (area.draw())
        ul.legend aria-label="Legend" {
            @for of in &shown { li { (show::key(&palette, of)) (of) } }
            @if rest > 0 { li { i.other {} (rest) " others" } }
        }
    }
}

/// Cells with their titles.
type Cells = Vec<(&'static str, String)>;

/// Whether a row names a user or a queue. What was lent and what was available is known of teams and pools alone.
fn is_finer(row: &ReportRow) -> bool {
    matches!(row, ReportRow::Usage(row) if !row.user.is_empty() || !row.queue.is_empty())
}

/// The cells of a row; the first few are words and the others numbers.
fn cells(row: &ReportRow, sampled: bool) -> (Cells, Cells) {
    let hours = |time: GpuTime| number(time.hours());
    let maybe = |time: Option<GpuTime>| time.map(hours).unwrap_or_default();
    match row {
        ReportRow::Usage(row) => {
            let words =
                [("Team", &row.team), ("User", &row.user), ("Queue", &row.queue), ("Pool", &row.pool)];
            let words: Vec<_> = words.into_iter().filter(|(_, word)| !word.is_empty()).collect();
            let words = words.into_iter().map(|(title, word)| (title, word.clone())).collect();
            let mut numbers = vec![
                ("Runs", row.runs.to_string()),
                ("Used", hours(row.used_gpu_seconds)),
                ("Guaranteed", hours(row.guaranteed_gpu_seconds)),
                ("Borrowed", hours(row.borrowed_gpu_seconds)),
                ("Lost", hours(row.lost_gpu_seconds)),
                ("Waited", hours(row.waited_gpu_seconds)),
            ];
            if sampled {
                let part = row.utilization().map(|part| format!("{:.0} %", part * 100.0));
                numbers.extend([
                    ("Lent", maybe(row.lent_gpu_seconds)),
                    ("Utilization", part.unwrap_or_default()),
                ]);
            }
            (words, numbers)
        }
        ReportRow::Waits(WaitsRow {
            team, queue, started, median_seconds, p90_seconds, max_seconds, ..
        }) => {
            let span = |seconds: u64| {
                crate::chart::units::span(count(usize::try_from(seconds).unwrap_or(usize::MAX)))
            };
            let numbers = vec![
                ("Started", started.to_string()),
                ("Median", span(*median_seconds)),
                ("90 %", span(*p90_seconds)),
                ("Longest", span(*max_seconds)),
            ];
            (vec![("Team", team.clone()), ("Queue", queue.clone())], numbers)
        }
        ReportRow::Evictions(EvictionsRow { rule, for_team, evictions, lost_gpu_seconds, .. }) => {
            let numbers = vec![("Evictions", evictions.to_string()), ("Lost", hours(*lost_gpu_seconds))];
            (vec![("Rule", rule.clone()), ("For team", for_team.clone())], numbers)
        }
    }
}

fn table(context: &Context, rows: &[ReportRow], periods: bool, zone: &TimeZone) -> Markup {
    let day = |row: &ReportRow| row.period().0.to_zoned(zone.clone()).strftime("%Y-%m-%d").to_string();
    // Some rows have a word less, such as work without a known user.
    let sampled = !rows.iter().any(is_finer);
    let titles =
        rows.iter().map(|row| cells(row, sampled)).max_by_key(|(words, _)| words.len()).unwrap_or_default();
    html! {
        div.scroll tabindex="0" role="region" aria-label="Report" {
            table.cards {
                caption.soft { "GPU time in GPU-hours" }
                thead { tr {
                    @if periods { th scope="col" { "From" } }
                    @for (title, _) in &titles.0 { th scope="col" { (title) } }
                    @for (title, _) in &titles.1 { th.number scope="col" { (title) } }
                } }
                tbody {
                    @for row in rows.iter().take(LISTED) {
                        @let (words, numbers) = cells(row, sampled);
                        tr {
                            @if periods { td data-label="From" { (day(row)) } }
                            @for (title, _) in &titles.0 {
                                @let word = words.iter().find(|(of, _)| of == title).map(|(_, word)| word.as_str()).unwrap_or_default();
                                td data-label=(title) {
                                    @if *title == "Team" { (show::team(context, word)) } @else if word.is_empty() { (UNKNOWN) } @else { (word) }
                                }
                            }
                            @for (title, number) in &numbers { td.number data-label=(title) { (number) } }
                        }
                    }
                }
            }
        }
        @if rows.len() > LISTED { p.soft { "and " (rows.len() - LISTED) " more rows, which the CSV has" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_says_which_report_it_is() {
        let choice = Choice::read("about=users&from=2026-11-01&by=month&team=a%2Fb&to=&x=1");
        assert_eq!((choice.kind, choice.by, choice.team.as_str()), (ReportKind::Users, "month", "a/b"));
        assert_eq!(
            choice.address("reports.csv"),
            "reports.csv?about=users&from=2026-11-01&by=month&team=a%2Fb"
        );
        assert_eq!(Choice::read("about=odd&by=odd"), Choice::read(""));
    }

    #[test]
    fn days_are_those_of_the_time_zone() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a time zone");
        let now = "2026-11-03T10:00:00Z".parse::<Timestamp>().expect("a time").to_zoned(zone);
        let filter = Choice::read("").question(&now).expect("a question");
        assert_eq!(filter.from.to_string(), "2026-10-31T23:00:00Z");
        let cuts: Vec<String> = filter.cuts.iter().map(ToString::to_string).collect();
        assert_eq!(cuts, ["2026-11-01T23:00:00Z", "2026-11-02T23:00:00Z"]);
        for wrong in ["from=soon", "from=2026-11-03&to=2026-11-01", "from=2000-01-01"] {
            assert!(Choice::read(wrong).question(&now).is_err(), "{wrong}");
        }
    }
}
