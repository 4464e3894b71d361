//! `sluice queue`: which workloads wait and run, those of the caller first.

mod filter;
mod groups;
mod look;
mod watch;

use std::collections::BTreeSet;

pub use self::filter::Filter;
pub use self::look::Look;
use self::look::{listed, print_rows};
use super::cluster::{self, Cluster};
use super::print::{Answer, Form};
use super::screen::Screen;
use super::{Invalid, ask, grid};
use crate::view::TeamsRow;
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
            known(&cluster, filter).await?;
        }
        match look.by {
            Some(by) => print_groups(&groups::group(by, &rows), options, &screen),
            None => print_rows(&rows, total, &options.print, look, &screen, cluster.all),
        }
    })
}

/// Says so where there is no such team or queue.
async fn known(cluster: &Cluster, filter: &Filter) -> anyhow::Result<()> {
    let (Some(team), queue) = (filter.team(), filter.queue()) else { return Ok(()) };
    let rows = ask::team_rows(cluster).await?;
    let queues = rows.iter().filter_map(|row| match row {
        TeamsRow::Queue(row) => Some((row.team.as_str(), row.queue.as_str())),
        _ => None,
    });
    let listed = rows.iter().filter_map(|row| match row {
        TeamsRow::Team(row) => Some(row.team.as_str()),
        _ => None,
    });
    let teams: BTreeSet<&str> = listed.chain(queues.clone().map(|(team, _)| team)).collect();
    if !teams.contains(team) {
        anyhow::bail!("no team {team}; there are {}", teams.into_iter().collect::<Vec<_>>().join(", "));
    }
    let queues: Vec<&str> = queues.filter(|(of, _)| *of == team).map(|(_, queue)| queue).collect();
    match queue {
        Some(queue) if !queues.contains(&queue) => {
            anyhow::bail!("no queue {queue} in team {team}; there are {}", queues.join(", "))
        }
        _ => Ok(()),
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
