//! `sluice what-if`: what would become of a workload.

use crate::cli::grid::{self, Column, Form, Value};
use crate::cli::screen::Screen;
use crate::view::{VictimRow, WhatIfRow};

const fn column(name: &'static str, value: fn(&WhatIfRow, &Screen) -> Value) -> Column<WhatIfRow> {
    Column { name, title: name, form: Form::Left, value }
}

/// The columns of CSV.
pub const COLUMNS: [Column<WhatIfRow>; 8] = [
    column("namespace", |row, _| Value::text(&row.head.namespace)),
    column("name", |row, _| Value::text(&row.head.name)),
    column("state", |row, _| Value::text(&row.head.state)),
    column("reason", |row, _| Value::text(&row.head.reason)),
    column("eta", |row, _| row.eta.likely.map_or(Value::None, Value::Until)),
    column("pool", |row, _| Value::text(row.pool.clone().unwrap_or_default())),
    column("nodes", |row, _| Value::text(row.nodes.keys().cloned().collect::<Vec<_>>().join(" "))),
    column("preempts", |row, _| Value::text(row.displaced.join(" "))),
];

/// The columns of the workloads that would be evicted or shrunk.
const VICTIMS: [Column<VictimRow>; 6] = [
    Column {
        name: "preempts",
        title: "PREEMPTS",
        form: Form::Cut(20),
        value: |row, _| Value::text(&row.workload),
    },
    Column {
        name: "fate",
        title: "FATE",
        form: Form::Left,
        value: |row, _| Value::text(row.fate.to_lowercase()),
    },
    Column { name: "pods", title: "PODS", form: Form::Right, value: |row, _| Value::Number(row.pods.into()) },
    Column { name: "gpus", title: "GPUS", form: Form::Right, value: |row, _| Value::Count(row.gpus) },
    Column {
        name: "lost",
        title: "WORK LOST",
        form: Form::Right,
        value: |row, _| i64::try_from(row.lost_seconds).map_or(Value::None, Value::Span),
    },
    Column {
        name: "back",
        title: "BACK IN",
        form: Form::Right,
        value: |row, _| match row.back {
            Some(back) => Value::Until(back),
            None if row.fate == "Evicted" => Value::text("unknown"),
            None => Value::None,
        },
    },
];

/// The what-if results of workloads.
pub fn what_if(rows: &[WhatIfRow], screen: &Screen) -> String {
    rows.iter().map(|row| one(row, screen)).collect::<Vec<_>>().join("\n\n")
}

fn one(row: &WhatIfRow, screen: &Screen) -> String {
    let head = &row.head;
    let mut lines =
        vec![format!("{}/{}, in queue {} of team {}:", head.namespace, head.name, head.queue, head.team)];
    lines.extend(
        row.sentences(screen.now, &|at| screen.time(at)).into_iter().map(|sentence| format!("  {sentence}")),
    );
    if !row.victims.is_empty() {
        let columns: Vec<_> = const { &VICTIMS }.iter().collect();
        lines.extend([String::new(), grid::table(&columns, &row.victims, screen, true)]);
    }
    lines.join("\n")
}
