//! `sluice queue --watch`: asks again and again for what has changed since the last answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::filter::Filter;
use super::look::{Look, key, listed, table};
use crate::api::question::QuestionSpec;
use crate::cli::cluster::{Cluster, Page};
use crate::cli::columns::name_of;
use crate::cli::print::{self, Form};
use crate::cli::screen::Screen;
use crate::view::WorkloadRow;
use crate::view::answers::Kind;

/// The time between two questions.
const PERIOD: Duration = Duration::from_secs(2);
/// Puts the cursor of a terminal into the upper left corner, and clears what is below.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Shows the workloads until the command is ended: a terminal shows them all again and again, a pipe gets each row that
/// has changed, or a document of all rows on one line.
///
/// # Errors
/// When a question is not answered.
pub async fn watch(
    cluster: &Cluster,
    options: &print::Options,
    filter: &Filter,
    look: &Look,
    screen: &Screen,
) -> anyhow::Result<()> {
    let columns = look.columns(options.output, cluster.all);
    let for_people = matches!(options.output, Form::Table | Form::Wide);
    let (mut since, mut rows, mut total) = (None, Vec::new(), 0);
    let mut shown = BTreeMap::new();
    loop {
        let screen = screen.later();
        // The first row is enough to learn whether any row has changed.
        let spec = QuestionSpec { since: since.clone(), limit: Some(1), ..filter.question(false) };
        let changed: Option<Page<WorkloadRow>> = cluster.page(&spec).await?;
        let is_new = changed.is_some();
        if let Some(page) = changed {
            since = Some(page.version);
            (rows, total) = listed(cluster, filter, look, options.output, &screen).await?;
        }
        if for_people && screen.terminal {
            let text = table(&rows, total, &columns, &screen, !options.no_headers);
            print::text(&format!("{CLEAR}{text}\n"))?;
        } else if is_new && options.output == Form::Json {
            print::text(&format!("{}\n", Kind::WorkloadList.document(&rows)?))?;
        } else if is_new {
            let headers = for_people && !options.no_headers && shown.is_empty();
            let now: BTreeMap<_, _> = rows.iter().map(|row| (key(row), settled(row))).collect();
            let changed: Vec<WorkloadRow> =
                rows.iter().filter(|row| shown.get(&key(row)) != Some(&settled(row))).cloned().collect();
            if for_people && !changed.is_empty() {
                print::text(&format!("{}\n", table(&changed, changed.len(), &columns, &screen, headers)))?;
            } else {
                let names = changed.iter().map(|row| format!("{}\n", name_of(row)));
                print::text(&names.collect::<String>())?;
            }
            shown = now;
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// A row without what changes while nothing happens to its workload.
fn settled(row: &WorkloadRow) -> WorkloadRow {
    let mut row = row.clone();
    if let Some(eta) = &mut row.eta {
        Arc::make_mut(eta).foretold = Timestamp::UNIX_EPOCH;
    }
    row
}
