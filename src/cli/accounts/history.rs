//! `sluice history`: every run of a workload, also of one that has long been deleted.

use jiff::Timestamp;

use crate::api::accounts::{HistoryFilter, RunState};
use crate::api::question::{MOST_ROWS, QuestionSpec};
use crate::cli::cluster::{self, Cluster, Page};
use crate::cli::grid::{self, Column, Form as Cells, Value, column};
use crate::cli::print::{Answer, Form};
use crate::cli::screen::Screen;
use crate::cli::target::Target;
use crate::cli::{Invalid, ask, complete, known};
use crate::dates::When;
use crate::view::accounts::HistoryRow;
use crate::view::answers::Kind;

/// The rows of a terminal, unless more are asked for.
const USUAL_ROWS: usize = 40;
/// The past that is listed without a name, unless another is asked for.
const USUAL_PAST: &str = "7d";

/// The runs that are listed.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Filter {
    /// The workload: NAME, KIND/NAME, KIND NAME or NAMESPACE/NAME; by default all.
    #[arg(value_name = "WORKLOAD", num_args = 0..=2)]
    workload: Vec<String>,
    /// Only runs of this team.
    #[arg(long, short, value_name = "TEAM", add = complete::teams())]
    team: Option<String>,
    /// Only runs of workloads that this user submitted.
    #[arg(long, short, value_name = "USER", conflicts_with = "me")]
    user: Option<String>,
    /// Only runs of workloads that you submitted.
    #[arg(long)]
    me: bool,
    /// Only runs in these states: Running, Completed, Failed, Evicted, Stopped, Deleted, Ended.
    #[arg(long, short, value_name = "STATES", value_delimiter = ',', value_parser = state)]
    state: Vec<RunState>,
    /// Only runs after this time: 2026-11-01, 2026-11, 2026-11-01T10:30, today, yesterday, 7d, 2w, 12h. Without a
    /// workload 7d by default.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only runs before this time; a day or a month counts as a whole.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// The most rows, 0 for all. A terminal shows 40; programs get all.
    #[arg(long, value_name = "ROWS")]
    limit: Option<usize>,
}

fn state(text: &str) -> Result<RunState, String> {
    let found = RunState::ALL.into_iter().find(|state| state.code().eq_ignore_ascii_case(text));
    let names = || RunState::ALL.map(RunState::code).join(", ");
    found.ok_or_else(|| format!("expected one of {}", names()))
}

/// `sluice history`.
///
/// # Errors
/// When the question is wrong or not answered, or there is no run of a workload that is named.
pub fn run(options: &ask::Options, filter: &Filter) -> anyhow::Result<()> {
    let screen = Screen::new();
    let form = options.print.output;
    let (from, to) = filter.range(&screen)?;
    let for_people = matches!(form, Form::Table | Form::Wide) && screen.terminal;
    let most = filter.limit.or(for_people.then_some(USUAL_ROWS)).filter(|most| *most > 0);
    let (page, target) = cluster::with(&options.cluster, async |mut cluster| {
        let target = match &filter.workload[..] {
            [] => None,
            words => Some(Target::read(words, options.cluster.namespace(), &cluster.namespace)?),
        };
        let mut asked = HistoryFilter {
            team: filter.team.clone(),
            user: filter.user.clone(),
            me: filter.me,
            states: filter.state.clone(),
            from,
            to,
            ..HistoryFilter::default()
        };
        if let Some(target) = &target {
            asked.name = Some(target.name.clone());
            asked.namespace = cluster.all.then(|| target.namespace.clone());
            cluster.namespace.clone_from(&target.namespace);
        }
        let page = rows(&cluster, asked, most).await?;
        if page.rows.is_empty() && target.is_none() {
            known::check(&cluster, filter.team.as_deref(), None).await?;
        }
        Ok((page, target))
    })?;
    let Page { mut rows, cursor, .. } = page;
    if let Some(target) = &target {
        rows.retain(|row| target.may_be(&row.kind));
        anyhow::ensure!(!rows.is_empty(), "the history has no run of {}", target.label());
    }
    let columns = columns(form, target.is_some(), options.cluster.all());
    let answer = Answer {
        kind: Kind::HistoryList,
        document: &rows,
        rows: &rows,
        columns: &columns,
        name: |row: &HistoryRow| format!("{}/{}", row.kind.to_ascii_lowercase(), row.name),
    };
    answer.print(&options.print, &screen, || {
        let mut text = grid::table(&columns, &rows, &screen, !options.print.no_headers);
        if target.is_some() {
            let explained = rows.iter().filter(|row| !row.message.is_empty());
            let lines = explained
                .map(|row| format!("\n{}  {}", screen.time(row.ended.unwrap_or(row.admitted)), row.message));
            let lines: String = lines.collect();
            if !lines.is_empty() {
                text.push_str(&format!("\n{lines}"));
            }
        }
        if cursor.is_some() {
            text.push_str("\nand more (use --limit 0)");
        }
        text
    })
}

impl Filter {
    /// The bounds of the runs that are asked for.
    fn range(&self, screen: &Screen) -> Result<(Option<Timestamp>, Option<Timestamp>), Invalid> {
        let now = screen.now.to_zoned(screen.zone.clone());
        let read = |flag: &str, text: &str| {
            When::read(text, &now).map_err(|problem| Invalid(format!("--{flag} {problem}")))
        };
        let usual = self.workload.is_empty().then_some(USUAL_PAST);
        let from = self.from.as_deref().or(usual).map(|text| read("from", text)).transpose()?;
        let to = self.to.as_deref().map(|text| read("to", text)).transpose()?;
        let (from, to) = (from.map(|when| when.beginning()), to.map(|when| when.end()));
        if let (Some(from), Some(to)) = (from, to)
            && from >= to
        {
            let (from, to) = (screen.time(from), screen.time(to));
            return Err(Invalid(format!("--from {from} is not before --to {to}")));
        }
        Ok((from, to))
    }
}

/// The newest rows, at most so many.
async fn rows(
    cluster: &Cluster,
    filter: HistoryFilter,
    most: Option<usize>,
) -> anyhow::Result<Page<HistoryRow>> {
    let limit = most.and_then(|most| i32::try_from(most.min(MOST_ROWS)).ok());
    let mut spec = QuestionSpec { history: Some(filter), limit, ..QuestionSpec::default() };
    let unexpected = || anyhow::anyhow!("unexpected answer of Sluice");
    let mut page: Page<HistoryRow> = cluster.page(&spec).await?.ok_or_else(unexpected)?;
    while page.cursor.is_some() && most.is_none_or(|most| page.rows.len() < most) {
        spec.cursor.clone_from(&page.cursor);
        let next: Page<HistoryRow> = cluster.page(&spec).await?.ok_or_else(unexpected)?;
        page.rows.extend(next.rows);
        page.cursor = next.cursor;
    }
    page.rows.truncate(most.unwrap_or(usize::MAX));
    Ok(page)
}

type RunColumn = Column<HistoryRow>;

/// Every column, in the order of `--output wide` and CSV.
const ALL: [RunColumn; 21] =
    [
        column("namespace", "NAMESPACE", Cells::Left, |row, _| Value::text(&row.namespace)),
        column("kind", "KIND", Cells::Left, |row, _| Value::text(&row.kind)),
        column("name", "NAME", Cells::Name(12), |row, _| Value::text(&row.name)),
        column("team", "TEAM", Cells::Cut(5), |row, _| Value::text(&row.team)),
        column("user", "USER", Cells::Cut(6), |row, _| Value::text(row.user.clone().unwrap_or_default())),
        column("queue", "QUEUE", Cells::Cut(6), |row, _| Value::text(&row.queue)),
        column("state", "STATE", Cells::Left, |row, _| Value::State(row.state.clone())),
        column("gpus", "GPUS", Cells::Right, |row, _| Value::Count(row.gpus)),
        column("pods", "PODS", Cells::Right, |row, _| Value::Number(row.pods.into())),
        column("submitted", "SUBMITTED", Cells::Left, |row, _| Value::At(row.submitted)),
        column("wait", "WAIT", Cells::Right, |row, _| {
            row.waited_seconds
                .map_or(Value::None, |waited| Value::Span(i64::try_from(waited).unwrap_or(i64::MAX)))
        }),
        column("admitted", "ADMITTED", Cells::Left, |row, _| Value::At(row.admitted)),
        column("ended", "ENDED", Cells::Left, |row, _| row.ended.map_or(Value::None, Value::At)),
        column("run", "RUN", Cells::Right, |row, screen| {
            let until = row.ended.unwrap_or(screen.now).as_second();
            Value::Span(until.saturating_sub(row.admitted.as_second()).max(0))
        }),
        column("gpu-time", "GPU-H", Cells::Right, |row, _| Value::GpuTime(row.gpu_seconds)),
        column("lost", "LOST", Cells::Right, |row, _| match row.state.as_str() {
            "Evicted" => Value::GpuTime(row.lost_gpu_seconds),
            _ => Value::None,
        }),
        column("pool", "POOL", Cells::Left, |row, _| Value::text(&row.pool)),
        column("borrowed", "BORROWED", Cells::Left, |row, _| {
            if row.borrowed { Value::text("yes") } else { Value::None }
        }),
        column("nodes", "NODES", Cells::Cut(8), |row, _| Value::text(nodes(row))),
        column("why", "WHY", Cells::Cut(10), |row, _| Value::text(why(row))),
        column("message", "MESSAGE", Cells::Left, |row, _| Value::text(&row.message)),
    ];

/// The columns of a table on a screen of 80 characters.
const USUAL: &str = "name,user,state,gpus,admitted,wait,run,lost,why";
/// The columns of `--output wide`.
const WIDE: &str = "kind,name,team,user,queue,state,gpus,pods,submitted,wait,admitted,ended,run,gpu-time,lost,pool,borrowed,nodes,why";
/// The columns of the runs of one workload.
const OF_ONE: &str = "state,gpus,admitted,wait,run,lost,nodes,why";

fn columns(form: Form, one: bool, all_namespaces: bool) -> Vec<&'static RunColumn> {
    let all = const { &ALL };
    let names = match form {
        Form::Table if one => OF_ONE,
        Form::Table => USUAL,
        Form::Wide => WIDE,
        _ => return all.iter().collect(),
    };
    let namespace = (all_namespaces && !one).then_some("namespace");
    let named = |name: &str| all.iter().find(|column| column.name == name);
    namespace.into_iter().chain(names.split(',')).filter_map(named).collect()
}

/// Its nodes, with the number of pods where it is not one.
fn nodes(row: &HistoryRow) -> String {
    let node = |(node, pods): (&String, &u32)| match pods {
        1 => node.clone(),
        pods => format!("{node} ×{pods}"),
    };
    row.nodes.iter().map(node).collect::<Vec<_>>().join(", ")
}

/// Why it ended: the rule, and the preemptor.
fn why(row: &HistoryRow) -> String {
    match row.evicted_for.as_str() {
        "" => row.reason.clone(),
        preemptor => format!("{} for {preemptor}", row.reason),
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::view::accounts::GpuTime;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn a_range_that_ends_before_it_starts_is_refused() {
        let now = at("2026-11-25T10:00:00Z");
        let screen = Screen { width: Some(80), terminal: true, now, zone: TimeZone::UTC };
        let range = |from: Option<&str>, to: Option<&str>| {
            let text = |text: &str| text.to_owned();
            let filter = Filter {
                workload: Vec::new(),
                team: None,
                user: None,
                me: false,
                state: Vec::new(),
                from: from.map(text),
                to: to.map(text),
                limit: None,
            };
            filter.range(&screen).map_err(|problem| problem.to_string())
        };
        assert!(range(Some("2d"), Some("1d")).is_ok() && range(None, Some("today")).is_ok());
        let problem = range(Some("1d"), Some("2d")).expect_err("it ends before it starts");
        assert!(problem.starts_with("--from ") && problem.contains(" is not before --to "), "{problem}");
    }

    #[test]
    fn the_history_fits_eighty_columns() {
        let row = HistoryRow {
            kind: "Job".to_owned(),
            name: "train-a-rather-long-name-0001".to_owned(),
            user: Some("dora@example.com".to_owned()),
            team: "vision".to_owned(),
            state: "Evicted".to_owned(),
            submitted: at("2026-10-19T08:00:00Z"),
            admitted: at("2026-10-19T09:30:00Z"),
            ended: Some(at("2026-10-21T10:30:00Z")),
            waited_seconds: Some(5_400),
            lost_gpu_seconds: GpuTime::of_micro(45_000_000_000),
            reason: "Reclaimed".to_owned(),
            evicted_for: "speech/asr-large".to_owned(),
            nodes: [("gpu-1".to_owned(), 2), ("gpu-2".to_owned(), 1)].into(),
            ..HistoryRow::default()
        };
        assert_eq!(why(&row), "Reclaimed for speech/asr-large");
        assert_eq!(nodes(&row), "gpu-1 ×2, gpu-2");
        let now = at("2026-11-25T10:00:00Z");
        let screen = Screen { width: Some(80), terminal: true, now, zone: TimeZone::UTC };
        for one in [false, true] {
            let text =
                grid::table(&columns(Form::Table, one, false), std::slice::from_ref(&row), &screen, true);
            let text = anstream::adapter::strip_str(&text).to_string();
            assert!(text.contains("Oct 19 09:30") && text.contains("12.5"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
        for name in [USUAL, OF_ONE, WIDE].iter().flat_map(|names| names.split(',')) {
            assert!(ALL.iter().any(|column| column.name == name), "{name}");
        }
    }
}
