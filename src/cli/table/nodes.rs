//! The columns of `sluice nodes`, with one block per GPU: full if used, empty if free.

use std::collections::BTreeMap;

use crate::cli::grid::{Column, Form, Value};
use crate::cli::human::pods;
use crate::view::NodeRow;

/// The columns.
pub const COLUMNS: [Column<NodeRow>; 6] = [
    Column { name: "node", title: "NODE", form: Form::Name(12), value: |row, _| Value::text(&row.name) },
    Column { name: "pool", title: "POOL", form: Form::Cut(8), value: |row, _| Value::text(&row.pool) },
    Column {
        name: "state",
        title: "STATE",
        form: Form::Left,
        value: |row, _| Value::text(if row.schedulable { "ready" } else { "unschedulable" }),
    },
    Column {
        name: "gpus",
        title: "GPUS",
        form: Form::Left,
        value: |row, _| {
            let used = row.gpus.saturating_sub(row.gpus_free);
            Value::text(format!("{}{}", blocks(used, '■'), blocks(row.gpus_free, '□')))
        },
    },
    Column {
        name: "free",
        title: "FREE",
        form: Form::Right,
        value: |row, _| Value::text(format!("{}/{}", row.gpus_free, row.gpus)),
    },
    Column {
        name: "used-by",
        title: "USED BY",
        form: Form::Cut(12),
        value: |row, _| Value::text(used_by(row)),
    },
];

fn blocks(count: u32, block: char) -> String {
    std::iter::repeat_n(block, count.min(64) as usize).collect()
}

/// The teams of its pods.
fn used_by(row: &NodeRow) -> String {
    let mut teams: BTreeMap<&str, u32> = BTreeMap::new();
    for workload in &row.workloads {
        let count = teams.entry(&workload.team).or_default();
        *count = count.saturating_add(workload.pods);
    }
    let teams: Vec<String> = teams.iter().map(|(team, count)| format!("{team} ({})", pods(*count))).collect();
    teams.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::grid;
    use crate::cli::screen::Screen;

    #[test]
    fn gpus_are_shown_as_blocks() {
        let node = NodeRow {
            name: "n1".into(),
            pool: "a100".into(),
            schedulable: true,
            gpus: 5,
            gpus_free: 2,
            ..NodeRow::default()
        };
        let columns: Vec<_> = COLUMNS.iter().collect();
        let text = grid::table(&columns, &[node], &Screen::new(), true);
        assert!(text.contains("■■■□□") && text.contains("2/5"), "{text}");
    }
}
