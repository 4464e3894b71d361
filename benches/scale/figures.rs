//! The table. Parts that are not run keep the rows of their last run.

use std::time::Duration;

use comfy_table::{Table, presets};

/// One line of the table.
pub type Row = [String; 6];

const HEADER: [&str; 6] = ["part", "figure", "raw", "Sluice", "goal", "published by the peer"];

/// The rows of this run.
#[derive(Debug, Default)]
pub struct Rows(Vec<Row>);

impl Rows {
    /// Adds a row.
    pub fn add(&mut self, part: &str, figure: &str, raw: &str, sluice: &str, goal: &str, peer: &str) {
        crate::stage::say(&format!("{part}: {figure}: raw {raw}, Sluice {sluice}, goal {goal}, peer {peer}"));
        self.0.push([part, figure, raw, sluice, goal, peer].map(str::to_owned));
    }

    /// The table of this run, and of the rows of a former table that belong to other parts; in this order of the parts.
    pub fn table(&self, former: &str, parts: &[&str]) -> String {
        let mut rows: Vec<Row> =
            parse(former).into_iter().filter(|row| !self.0.iter().any(|new| new[0] == row[0])).collect();
        rows.extend(self.0.iter().cloned());
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

/// The mean of these times.
pub fn mean(times: &[Duration]) -> Duration {
    times.iter().sum::<Duration>() / u32::try_from(times.len().max(1)).unwrap_or(u32::MAX)
}
