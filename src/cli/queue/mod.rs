//! `sluice queue`: which workloads wait and run, those of the caller first.

mod filter;
mod groups;
mod look;
mod watch;

pub use self::filter::Filter;
pub use self::look::Look;
use self::look::{listed, print_rows};
use super::cluster::{self, Cluster, Page};
use super::print::{Answer, Form};
use super::screen::Screen;
use super::{Invalid, ask, grid, known};
use crate::api::question::QuestionSpec;
use crate::view::WorkloadRow;
use crate::view::answers::{GroupRow, Kind};

/// `sluice queue`.
///
/// # Errors
/// When the question is wrong or not answered.
pub fn run(options: &ask::Options, filter: &Filter, look: &Look) -> anyhow::Result<()> {
    let screen = Screen::new();
    let form = options.print.output;
    if look.watch && matches!(form, Form::Csv | Form::Yaml) {
        return Err(Invalid("--watch prints tables, names or JSON".to_owned()).into());
    }
    cluster::with(&options.cluster, async |cluster| {
        if look.watch {
            return watch::watch(&cluster, &options.print, filter, look, &screen).await;
        }
        let (rows, total) = listed(&cluster, filter, look, form, &screen).await?;
        if rows.is_empty() {
            why_none(&cluster, filter).await?;
        }
        match look.by {
            Some(by) => print_groups(&groups::group(by, &rows), options, &screen),
            None => print_rows(&rows, total, &options.print, look, &screen, cluster.all),
        }
    })
}

/// Says why there are no rows, where the namespace or a name of the filter is the reason.
///
/// # Errors
/// When there is no such team or queue, Sluice does not manage the namespace, or a question is not answered.
pub async fn why_none(cluster: &Cluster, filter: &Filter) -> anyhow::Result<()> {
    known::check(cluster, filter.team(), filter.queue()).await?;
    let spec = QuestionSpec { limit: Some(1), ..filter.question(false) };
    let page: Option<Page<WorkloadRow>> = cluster.page(&spec).await?;
    match page.and_then(|page| page.note) {
        Some(note) => Err(anyhow::Error::msg(note)),
        None => Ok(()),
    }
}

fn print_groups(groups: &[GroupRow], options: &ask::Options, screen: &Screen) -> anyhow::Result<()> {
    let columns: Vec<_> = const { &groups::COLUMNS }.iter().collect();
    let answer = Answer {
        kind: Kind::GroupList,
        document: &groups,
        rows: groups,
        columns: &columns,
        name: |group| group.name.clone(),
    };
    answer.print(&options.print, screen, || grid::table(&columns, groups, screen, !options.print.no_headers))
}
