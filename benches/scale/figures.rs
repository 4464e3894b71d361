//! The table. Parts that are not run keep the rows of their last run.

use std::time::Duration;

use comfy_table::{Table, presets};

use crate::stage::Side;

/// One line of the table.
pub type Row = [String; 6];

/// The columns of the two sides.
const COLUMNS: [(Side, usize); 2] = [(Side::Raw, 2), (Side::Sluice, 3)];
const HEADER: [&str; 6] = ["part", "figure", "raw", "Sluice", "goal", "published by the peer"];

/// The rows of this run.
#[derive(Debug)]
pub struct Rows {
    rows: Vec<Row>,
    /// The one side that it runs, if it does not run both.
    only: Option<Side>,
}

impl Rows {
    /// No rows yet, of a run of both sides or of one.
    pub fn of(only: Option<Side>) -> Self {
        Self { rows: Vec::new(), only }
    }

    /// Adds a row.
    pub fn add(&mut self, part: &str, figure: &str, raw: &str, sluice: &str, goal: &str, peer: &str) {
        crate::stage::say(&format!("{part}: {figure}: raw {raw}, Sluice {sluice}, goal {goal}, peer {peer}"));
        self.rows.push([part, figure, raw, sluice, goal, peer].map(str::to_owned));
    }

    /// The table of this run, and of the rows of a former table that belong to other parts; in this order of the parts. The
    /// side that has not run keeps its former figures.
    pub fn table(&self, former: &str, parts: &[&str]) -> String {
        let former = parse(former);
        let mut new = self.rows.clone();
        for row in &mut new {
            let before = former.iter().find(|before| before[..2] == row[..2]);
            for (_, column) in COLUMNS.iter().filter(|(side, _)| self.only.is_some_and(|only| only != *side))
            {
                if let Some(before) = before {
                    row[*column].clone_from(&before[*column]);
                }
            }
        }
        let mut rows: Vec<Row> =
            former.into_iter().filter(|row| !new.iter().any(|new| new[0] == row[0])).collect();
        rows.extend(new);
        rows.sort_by_key(|row| parts.iter().position(|part| *part == row[0]));
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN).set_header(HEADER);
        table.add_rows(rows);
        table.to_string()
    }
}

/// The rows of a table in Markdown.
fn parse(text: &str) -> Vec<Row> {
    let cells = |line: &str| -> Option<Row> {
        let line = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
        cells.try_into().ok()
    };
    text.lines().filter_map(cells).filter(|row| row[0] != HEADER[0] && !row[0].starts_with('-')).collect()
}

/// A time in seconds.
pub fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 10.0 { format!("{seconds:.2} s") } else { format!("{seconds:.1} s") }
}

/// A time in seconds, or nothing where it was not measured.
pub fn seconds_of(time: Option<Duration>) -> String {
    time.map(seconds).unwrap_or_default()
}

/// The mean of these times.
pub fn mean(times: &[Duration]) -> Duration {
    times.iter().sum::<Duration>() / u32::try_from(times.len().max(1)).unwrap_or(u32::MAX)
}
