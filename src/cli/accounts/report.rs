//! `sluice report`: what teams, users, pools and queues have used, waited for and lost.

use std::collections::BTreeMap;

use clap::ValueEnum;
use jiff::Timestamp;

use crate::api::accounts::{MOST_PERIODS, ReportFilter, ReportKind};
use crate::api::question::QuestionSpec;
use crate::cli::cluster::{self};
use crate::cli::grid::{self, Column, Form as Cells, Value, column};
use crate::cli::print::{self, Answer, Form};
use crate::cli::screen::Screen;
use crate::cli::{Invalid, ask, complete, known};
use crate::dates::{When, cuts};
use crate::view::accounts::{EvictionsRow, ReportRow, UsageRow, WaitsRow, csv};
use crate::view::answers::Kind;

/// Periods of the local time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Days.
    Day,
    /// Months.
    Month,
}

/// The report that is made.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// What it is about.
    #[arg(value_enum, value_name = "ABOUT")]
    about: ReportKind,
    /// Its beginning: 2026-11-01, 2026-11, 2026-11-01T10:30, today, yesterday, 7d, 2w, 12h (from the half hour
    /// before). By default the beginning of the month.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Its end; a day or a month counts as a whole. By default the present.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// One line for each day or month.
    #[arg(long, value_enum, value_name = "PERIOD")]
    by: Option<By>,
    /// Only this team.
    #[arg(long, short, value_name = "TEAM", add = complete::teams())]
    team: Option<String>,
    /// The price of an hour of one unit of a resource, such as nvidia.com/gpu=2.50; several are separated by commas.
    #[arg(long, value_name = "RESOURCE=PRICE", value_delimiter = ',', value_parser = price)]
    price: Vec<(String, String)>,
}

fn price(text: &str) -> Result<(String, String), String> {
    let wrong = || "expected a resource and a price, such as nvidia.com/gpu=2.50".to_owned();
    let (resource, price) = text.split_once('=').ok_or_else(wrong)?;
    let (whole, part) = price.split_once('.').unwrap_or((price, "0"));
    let digits =
        |text: &str| (1..=12).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if resource.is_empty() || !digits(whole) || !digits(part) {
        return Err(wrong());
    }
    Ok((resource.to_owned(), price.to_owned()))
}

/// `sluice report`.
///
/// # Errors
/// When the question is wrong or not answered.
pub fn run(options: &ask::Options, report: &Options) -> anyhow::Result<()> {
    let screen = Screen::new();
    let (from, to) = report.range(&screen)?;
    let filter = report.question(from, to, &screen)?;
    let spec = QuestionSpec { report: Some(filter), ..QuestionSpec::default() };
    let rows: Vec<ReportRow> = cluster::with(&options.cluster, async |cluster| {
        let rows: Vec<ReportRow> = cluster.ask(spec).await?;
        if rows.is_empty() {
            known::check(&cluster, report.team.as_deref(), None).await?;
        }
        Ok(rows)
    })?;
    if let Some(warning) = unused(&report.price, &rows) {
        eprintln!("sluice: warning: {warning}");
    }
    let headers = !options.print.no_headers;
    if options.print.output == Form::Csv {
        return print::text(&csv(&rows, headers)?);
    }
    let by = report.by;
    match report.about {
        ReportKind::Waits => {
            let rows = of(&rows, |row| if let ReportRow::Waits(row) = row { Some(row) } else { None });
            shown(options, &screen, &rows, &chosen(&WAITS, by, |_| true), |row| row.team.clone(), (from, to))
        }
        ReportKind::Evictions => {
            let rows = of(&rows, |row| if let ReportRow::Evictions(row) = row { Some(row) } else { None });
            shown(
                options,
                &screen,
                &rows,
                &chosen(&EVICTIONS, by, |_| true),
                |row| row.rule.clone(),
                (from, to),
            )
        }
        about => {
            let rows = of(&rows, |row| if let ReportRow::Usage(row) = row { Some(row) } else { None });
            let wide = options.print.output == Form::Wide;
            let priced = !report.price.is_empty();
            let columns = chosen(&USAGE, by, |name| match name {
                "team" => about != ReportKind::Pools,
                "user" => about == ReportKind::Users,
                "queue" => about == ReportKind::Queues,
                "pool" => about == ReportKind::Pools,
                "lent" | "utilization" => matches!(about, ReportKind::Teams | ReportKind::Pools),
                "runs" => wide || by.is_none(),
                "available" => wide,
                "cost" => priced,
                _ => true,
            });
            let name = |row: &UsageRow| {
                let names = [&row.user, &row.queue, &row.pool, &row.team];
                names.into_iter().find(|name| !name.is_empty()).cloned().unwrap_or_default()
            };
            shown(options, &screen, &rows, &columns, name, (from, to))
        }
    }
}

impl Options {
    /// The bounds of the report.
    fn range(&self, screen: &Screen) -> Result<(Timestamp, Timestamp), Invalid> {
        let now = screen.now.to_zoned(screen.zone.clone());
        let read = |flag: &str, text: &str| {
            When::read(text, &now).map_err(|problem| Invalid(format!("--{flag} {problem}")))
        };
        let month = now.strftime("%Y-%m").to_string();
        let from = read("from", self.from.as_deref().unwrap_or(&month))?.beginning_of_report();
        // What has not passed yet has no history.
        let to = read("to", self.to.as_deref().unwrap_or("now"))?.end().min(screen.now);
        if from >= to {
            let (from, to) = (screen.time(from), screen.time(to));
            return Err(Invalid(format!("--from {from} is not before --to {to}")));
        }
        Ok((from, to))
    }

    fn question(&self, from: Timestamp, to: Timestamp, screen: &Screen) -> Result<ReportFilter, Invalid> {
        let cuts = match self.by {
            Some(by) => cuts(from, to, by == By::Month, &screen.zone),
            None => Vec::new(),
        };
        if cuts.len() >= MOST_PERIODS {
            return Err(Invalid(format!("--by: a report has at most {MOST_PERIODS} periods")));
        }
        let prices: BTreeMap<String, String> = self.price.iter().cloned().collect();
        Ok(ReportFilter {
            kind: self.about,
            from,
            to: Some(to),
            by: None,
            cuts,
            team: self.team.clone(),
            prices,
        })
    }
}

/// A warning where nothing in a report was used of what has a price: most often a resource is misspelt.
fn unused(prices: &[(String, String)], rows: &[ReportRow]) -> Option<String> {
    let costs = |row: &ReportRow| if let ReportRow::Usage(row) = row { row.cost } else { None };
    let is_free = |price: &str| price.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    let priced: Vec<&str> =
        prices.iter().filter(|(_, price)| !is_free(price)).map(|(resource, _)| resource.as_str()).collect();
    let nothing = !priced.is_empty() && rows.iter().filter_map(costs).all(|cost| cost == 0.0);
    let is_about_costs = rows.iter().any(|row| costs(row).is_some());
    (nothing && is_about_costs)
        .then(|| format!("--price: no workload in this report used {}", priced.join(" or ")))
}

fn of<'a, T: Clone + 'a>(rows: &'a [ReportRow], row: impl Fn(&'a ReportRow) -> Option<&'a T>) -> Vec<T> {
    rows.iter().filter_map(row).cloned().collect()
}

/// The columns with the names that are wanted; the period only where there are several.
fn chosen<T>(
    columns: &'static [Column<T>],
    by: Option<By>,
    wanted: impl Fn(&str) -> bool,
) -> Vec<&'static Column<T>> {
    let is_chosen = |column: &&Column<T>| match column.name {
        "period" => by.is_some(),
        name => wanted(name),
    };
    columns.iter().filter(is_chosen).collect()
}

fn shown<T: serde::Serialize + Clone>(
    options: &ask::Options,
    screen: &Screen,
    rows: &[T],
    columns: &[&Column<T>],
    name: fn(&T) -> String,
    bounds: (Timestamp, Timestamp),
) -> anyhow::Result<()>
where
    ReportRow: From<T>,
{
    let document: Vec<ReportRow> = rows.iter().cloned().map(ReportRow::from).collect();
    let answer = Answer { kind: Kind::ReportList, document: &document, rows, columns, name };
    answer.print(&options.print, screen, || {
        let table = grid::table(columns, rows, screen, !options.print.no_headers);
        if options.print.no_headers { table } else { format!("{}\n\n{table}", heading(screen, bounds)) }
    })
}

/// The bounds of a report and their time zone.
fn heading(screen: &Screen, (from, to): (Timestamp, Timestamp)) -> String {
    let at = |at: Timestamp| at.to_zoned(screen.zone.clone()).strftime("%Y-%m-%d %H:%M").to_string();
    let zone = match screen.zone.iana_name() {
        Some(name) => name.to_owned(),
        None => to.to_zoned(screen.zone.clone()).strftime("UTC%:z").to_string(),
    };
    format!("From {} to {} ({zone}), GPU time in hours", at(from), at(to))
}

/// The beginning of a period: a day, unless it begins within one.
fn period(from: Timestamp, screen: &Screen) -> Value {
    let local = from.to_zoned(screen.zone.clone());
    let whole = local.time() == jiff::civil::Time::midnight();
    Value::text(local.strftime(if whole { "%Y-%m-%d" } else { "%Y-%m-%d %H:%M" }).to_string())
}

const USAGE: [Column<UsageRow>; 15] = [
    column("period", "PERIOD", Cells::Left, |row, screen| period(row.from, screen)),
    column("team", "TEAM", Cells::Cut(6), |row, _| Value::text(&row.team)),
    column("user", "USER", Cells::Cut(8), |row, _| Value::text(&row.user)),
    column("queue", "QUEUE", Cells::Cut(6), |row, _| Value::text(&row.queue)),
    column("pool", "POOL", Cells::Cut(6), |row, _| Value::text(&row.pool)),
    column("runs", "RUNS", Cells::Right, |row, _| number(row.runs)),
    column("used", "USED", Cells::Right, |row, _| Value::GpuTime(row.used_gpu_seconds)),
    column("guaranteed", "GUARANTEED", Cells::Right, |row, _| Value::GpuTime(row.guaranteed_gpu_seconds)),
    column("borrowed", "BORROWED", Cells::Right, |row, _| Value::GpuTime(row.borrowed_gpu_seconds)),
    column("lent", "LENT", Cells::Right, |row, _| row.lent_gpu_seconds.map_or(Value::None, Value::GpuTime)),
    column("lost", "LOST", Cells::Right, |row, _| Value::GpuTime(row.lost_gpu_seconds)),
    column("waited", "WAITED", Cells::Right, |row, _| Value::GpuTime(row.waited_gpu_seconds)),
    column("available", "AVAILABLE", Cells::Right, |row, _| {
        row.available_gpu_seconds.map_or(Value::None, Value::GpuTime)
    }),
    column("utilization", "UTIL", Cells::Right, |row, _| {
        Value::text(row.utilization().map(|part| format!("{:.0}%", part * 100.0)).unwrap_or_default())
    }),
    column("cost", "COST", Cells::Right, |row, _| {
        Value::text(row.cost.map(|cost| format!("{cost:.2}")).unwrap_or_default())
    }),
];

const WAITS: [Column<WaitsRow>; 7] = [
    Column {
        name: "period",
        title: "PERIOD",
        form: Cells::Left,
        value: |row, screen| period(row.from, screen),
    },
    Column { name: "team", title: "TEAM", form: Cells::Cut(6), value: |row, _| Value::text(&row.team) },
    Column { name: "queue", title: "QUEUE", form: Cells::Cut(6), value: |row, _| Value::text(&row.queue) },
    Column { name: "started", title: "STARTED", form: Cells::Right, value: |row, _| number(row.started) },
    Column { name: "median", title: "MEDIAN", form: Cells::Right, value: |row, _| span(row.median_seconds) },
    Column { name: "p90", title: "P90", form: Cells::Right, value: |row, _| span(row.p90_seconds) },
    Column { name: "max", title: "MAX", form: Cells::Right, value: |row, _| span(row.max_seconds) },
];

const EVICTIONS: [Column<EvictionsRow>; 5] = [
    Column {
        name: "period",
        title: "PERIOD",
        form: Cells::Left,
        value: |row, screen| period(row.from, screen),
    },
    Column { name: "rule", title: "RULE", form: Cells::Left, value: |row, _| Value::text(&row.rule) },
    Column {
        name: "for",
        title: "FOR TEAM",
        form: Cells::Cut(8),
        value: |row, _| Value::text(&row.for_team),
    },
    Column {
        name: "evictions",
        title: "EVICTIONS",
        form: Cells::Right,
        value: |row, _| number(row.evictions),
    },
    Column {
        name: "lost",
        title: "LOST",
        form: Cells::Right,
        value: |row, _| Value::GpuTime(row.lost_gpu_seconds),
    },
];

fn number(number: u64) -> Value {
    Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

fn span(seconds: u64) -> Value {
    Value::Span(i64::try_from(seconds).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn prices_name_a_resource() {
        assert_eq!(price("nvidia.com/gpu=2.50"), Ok(("nvidia.com/gpu".to_owned(), "2.50".to_owned())));
        assert_eq!(price("cpu=0.0416"), Ok(("cpu".to_owned(), "0.0416".to_owned())));
        for wrong in [
            "2.50",
            "nvidia.com/gpu=",
            "=1",
            "nvidia.com/gpu=-1",
            "nvidia.com/gpu=1k",
            "a=1e3",
            "a=.5",
            "a=1.",
        ] {
            assert!(price(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_price_of_what_no_workload_used_is_a_warning() {
        let rows = |cost| [ReportRow::Usage(UsageRow { cost, ..UsageRow::default() })];
        let prices = |price: &str| [("nvidia.com/gpus".to_owned(), price.to_owned())];
        let warning = unused(&prices("2.50"), &rows(Some(0.0)));
        assert_eq!(warning.as_deref(), Some("--price: no workload in this report used nvidia.com/gpus"));
        assert_eq!(unused(&prices("2.50"), &rows(Some(1.5))), None);
        assert_eq!(unused(&prices("0.00"), &rows(Some(0.0))), None);
        assert_eq!(unused(&prices("2.50"), &rows(None)), None);
        assert_eq!(unused(&[], &rows(None)), None);
    }

    #[test]
    fn a_report_says_its_time_zone() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a time zone");
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let screen = Screen { width: Some(80), terminal: true, now: at("2026-11-25T10:00:00Z"), zone };
        let said = heading(&screen, (at("2026-10-31T23:00:00Z"), at("2026-11-25T10:00:00Z")));
        assert_eq!(said, "From 2026-11-01 00:00 to 2026-11-25 11:00 (UTC+01:00), GPU time in hours");
        assert_eq!(period(at("2026-10-31T23:00:00Z"), &screen), Value::text("2026-11-01"));
        assert_eq!(period(at("2026-11-01T07:30:00Z"), &screen), Value::text("2026-11-01 08:30"));
        let options = Options {
            about: ReportKind::Teams,
            from: None,
            to: None,
            by: Some(By::Day),
            team: None,
            price: Vec::new(),
        };
        let (from, to) = options.range(&screen).expect("a range");
        assert_eq!((from, to), (at("2026-10-31T23:00:00Z"), screen.now));
        assert_eq!(options.question(from, to, &screen).expect("a question").cuts.len(), 24);
        let backwards =
            Options { from: Some("today".to_owned()), to: Some("yesterday".to_owned()), ..options };
        assert!(backwards.range(&screen).is_err_and(|error| error.to_string().contains("is not before")));
    }

    #[test]
    fn a_report_of_days_fits_eighty_columns() {
        let rows = [UsageRow {
            team: "vision-research".to_owned(),
            lent_gpu_seconds: Some(crate::view::accounts::GpuTime::of_micro(360_000_000_000_000)),
            ..UsageRow::default()
        }];
        let screen =
            Screen { width: Some(80), terminal: true, now: Timestamp::UNIX_EPOCH, zone: TimeZone::UTC };
        let columns = chosen(&USAGE, Some(By::Day), |name| {
            !["user", "queue", "pool", "runs", "available", "cost"].contains(&name)
        });
        let text = grid::table(&columns, &rows, &screen, true);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(crate::cli::human::hours(rows[0].lent_gpu_seconds.unwrap_or_default()), "100000.0");
    }
}
