//! Completion of names: a shell asks this program, and it asks the cluster of the line so far, for a second at most.

use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};

use super::cluster::{self, Cluster};
use crate::api::question::{QuestionSpec, QueueFilter, TeamsFilter};
use crate::view::{TeamsRow, WorkloadRow};

/// The longest time that a shell waits for names.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most names.
const MOST: i32 = 200;

/// Completes names of workloads in the namespace of the context.
pub fn workloads() -> ArgValueCompleter {
    ArgValueCompleter::new(|written: &OsStr| {
        let queue = Some(QueueFilter::default());
        let spec = QuestionSpec { queue, limit: Some(MOST), ..QuestionSpec::default() };
        let with_kind = written.to_string_lossy().contains('/');
        candidates(written, async |cluster| {
            let rows = cluster.page::<WorkloadRow>(&spec).await.ok().flatten().map(|page| page.rows);
            let name = |row: WorkloadRow| {
                let help = format!("{} of team {}", row.head.state, row.head.team);
                let kind = row.kind.to_ascii_lowercase();
                (if with_kind { format!("{kind}/{}", row.head.name) } else { row.head.name }, help)
            };
            rows.unwrap_or_default().into_iter().map(name).collect()
        })
    })
}

/// Completes names of teams.
pub fn teams() -> ArgValueCompleter {
    of_teams(|row| match row {
        TeamsRow::Team(row) => Some((row.team, String::new())),
        _ => None,
    })
}

/// Completes names of queues.
pub fn queues() -> ArgValueCompleter {
    of_teams(|row| match row {
        TeamsRow::Queue(row) => Some((row.queue, format!("of team {}", row.team))),
        _ => None,
    })
}

fn of_teams(name: fn(TeamsRow) -> Option<(String, String)>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |written: &OsStr| {
        let spec = QuestionSpec { teams: Some(TeamsFilter::default()), ..QuestionSpec::default() };
        candidates(written, async |cluster| {
            let rows = cluster.page(&spec).await.ok().flatten().map(|page| page.rows);
            rows.unwrap_or_default().into_iter().filter_map(name).collect()
        })
    })
}

/// The names that go on as written, with a help for each; none when the cluster does not answer in time.
fn candidates(
    written: &OsStr,
    ask: impl AsyncFnOnce(Cluster) -> Vec<(String, String)>,
) -> Vec<CompletionCandidate> {
    let written = written.to_string_lossy();
    let options = cluster::Options::of_line(std::env::args().skip_while(|word| word != "--").skip(1));
    let names = cluster::with(&options, async |cluster| {
        Ok(tokio::time::timeout(PATIENCE, ask(cluster)).await.unwrap_or_default())
    });
    let mut names = names.unwrap_or_default();
    names.retain(|(name, _)| name.starts_with(&*written));
    names.sort();
    names.dedup_by(|one, other| one.0 == other.0);
    let candidate = |(name, help): (String, String)| {
        CompletionCandidate::new(name).help((!help.is_empty()).then(|| help.into()))
    };
    names.into_iter().map(candidate).collect()
}
