//! How workloads are shown: which rows, in which order, with which columns.

use std::collections::BTreeSet;

use super::filter::Filter;
use super::groups::By;
use crate::api::question::{MOST_ROWS, QuestionSpec};
use crate::cli::cluster::{Cluster, Page};
use crate::cli::columns::{self, WorkloadColumn, name_of};
use crate::cli::grid;
use crate::cli::print::{self, Answer, Form};
use crate::cli::screen::Screen;
use crate::view::WorkloadRow;
use crate::view::answers::Kind;

/// The rows of a terminal, unless more are asked for.
const USUAL_ROWS: usize = 40;

/// How `sluice queue` shows workloads.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Look {
    /// Columns, separated by commas: namespace, kind, name, team, user, queue, state, reason, pos, prio, pods, gpus, time,
    /// wait (from the submission until the start or now, earlier runs included), age, eta, latest, pool, nodes, borrowed
    /// (as it was admitted; `sluice teams` shows what a team borrows now), preemptible, why.
    #[arg(long, value_name = "COLUMNS", value_parser = several, conflicts_with = "by")]
    columns: Option<Columns>,
    /// Sort by these columns; a column after `-` from its largest value down, as in `--sort=-gpus`.
    #[arg(long, value_name = "COLUMNS", allow_hyphen_values = true, value_parser = several, conflicts_with = "by")]
    sort: Option<Columns>,
    /// One line for all workloads with the same user, team, queue, state or beginning of the name.
    #[arg(long, value_enum, value_name = "WHAT")]
    pub by: Option<By>,
    /// The most rows, 0 for all. A terminal shows 40; programs get all.
    #[arg(long, value_name = "ROWS")]
    limit: Option<usize>,
    /// Go on showing changes.
    #[arg(long, short, conflicts_with = "by")]
    pub watch: bool,
}

/// Columns in the order of the command line, each with whether it is sorted from its largest value down.
#[derive(Clone, Debug)]
pub struct Columns(Vec<(&'static WorkloadColumn, bool)>);

fn several(text: &str) -> Result<Columns, String> {
    let one = |name: &str| {
        let (name, down) = name.strip_prefix('-').map_or((name, false), |name| (name, true));
        let column = columns::named(&name.to_ascii_lowercase());
        column
            .map(|column| (column, down))
            .ok_or_else(|| format!("there is no column {name}; there are {}", columns::names()))
    };
    text.split(',').map(|name| one(name.trim())).collect::<Result<_, _>>().map(Columns)
}

impl Look {
    /// The columns of a table.
    pub fn columns(&self, form: Form, all_namespaces: bool) -> Vec<&'static WorkloadColumn> {
        if let Some(Columns(columns)) = &self.columns {
            return columns.iter().map(|(column, _)| *column).collect();
        }
        if form == Form::Csv {
            return columns::every();
        }
        let names = if form == Form::Wide { columns::WIDE } else { columns::USUAL };
        let namespace = all_namespaces.then_some("namespace");
        namespace.into_iter().chain(names.split(',')).filter_map(columns::named).collect()
    }

    /// The most rows; `None` for all.
    fn most(&self, form: Form, screen: &Screen) -> Option<usize> {
        let for_people = matches!(form, Form::Table | Form::Wide) && screen.terminal && self.by.is_none();
        let most = self.limit.or((for_people && !self.watch).then_some(USUAL_ROWS));
        most.filter(|most| *most > 0)
    }

    /// Puts the rows in the order that is asked for, or those of the caller first.
    fn arrange(&self, rows: &mut [WorkloadRow], caller: Option<&str>, screen: &Screen) {
        match &self.sort {
            None => rows.sort_by_key(|row| caller.is_none() || row.user.as_deref() != caller),
            Some(Columns(columns)) => rows.sort_by(|one, other| {
                let orders = columns.iter().map(|(column, down)| {
                    let order = (column.value)(one, screen).order(&(column.value)(other, screen));
                    if *down { order.reverse() } else { order }
                });
                orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
            }),
        }
    }
}

/// What identifies a workload.
pub fn key(row: &WorkloadRow) -> (String, String, String) {
    (row.kind.clone(), row.head.namespace.clone(), row.head.name.clone())
}

/// The chosen workloads in their order, and the number of all that there are.
pub async fn listed(
    cluster: &Cluster,
    filter: &Filter,
    look: &Look,
    form: Form,
    screen: &Screen,
) -> anyhow::Result<(Vec<WorkloadRow>, usize)> {
    let for_people = matches!(form, Form::Table | Form::Wide) && look.sort.is_none() && look.by.is_none();
    let most = look.most(form, screen);
    // What is sorted or selected here has to be here as a whole.
    let cut = most.filter(|_| for_people && !filter.selects());
    let question = |me: bool| {
        let limit = cut.and_then(|most| i32::try_from(most.min(MOST_ROWS)).ok());
        QuestionSpec { limit, ..filter.question(me) }
    };
    let mine_first = for_people && !filter.names_user();
    let own = async {
        // Rows of the caller may be beyond the cut. All rows name their user.
        let asks = mine_first && cut.is_some();
        if asks { asked(cluster, question(true), cut).await.map(Some) } else { Ok(None) }
    };
    let (own, all) = tokio::try_join!(own, asked(cluster, question(false), cut))?;
    let Page { mut rows, mut total, caller, .. } = all;
    if filter.selects() {
        rows = filter.selected(cluster, rows).await?;
        total = rows.len();
    }
    if cut.is_some() {
        let own = own.map(|own| own.rows).unwrap_or_default();
        let mine: BTreeSet<_> = own.iter().map(key).collect();
        rows.retain(|row| !mine.contains(&key(row)));
        rows.splice(0..0, own);
    } else {
        look.arrange(&mut rows, caller.as_deref().filter(|_| mine_first), screen);
    }
    rows.truncate(most.unwrap_or(usize::MAX));
    Ok((rows, total))
}

async fn asked(
    cluster: &Cluster,
    spec: QuestionSpec,
    cut: Option<usize>,
) -> anyhow::Result<Page<WorkloadRow>> {
    let page = cluster.page(&spec).await?.ok_or_else(|| anyhow::anyhow!("unexpected answer of Sluice"))?;
    match cut {
        Some(most) if page.rows.len() >= most => Ok(page),
        _ => cluster.rest(spec, page).await,
    }
}

pub fn print_rows(
    rows: &[WorkloadRow],
    total: usize,
    options: &print::Options,
    look: &Look,
    screen: &Screen,
    all_namespaces: bool,
) -> anyhow::Result<()> {
    let columns = look.columns(options.output, all_namespaces);
    let answer = Answer { kind: Kind::WorkloadList, document: &rows, rows, columns: &columns, name: name_of };
    answer.print(options, screen, || table(rows, total, &columns, screen, !options.no_headers))
}

/// The rows as a table, and how many more there are.
pub fn table(
    rows: &[WorkloadRow],
    total: usize,
    columns: &[&WorkloadColumn],
    screen: &Screen,
    headers: bool,
) -> String {
    let mut text = grid::table(columns, rows, screen, headers);
    match total.saturating_sub(rows.len()) {
        0 => {}
        more => text.push_str(&format!("\nand {more} more (use --limit 0)")),
    }
    text
}

#[cfg(test)]
mod tests;
