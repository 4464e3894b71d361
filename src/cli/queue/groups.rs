//! `sluice queue --by`: one line for the workloads that have something in common.

use std::collections::BTreeMap;

use clap::ValueEnum;

use crate::cli::grid::{Column, Form, Value};
use crate::view::answers::GroupRow;
use crate::view::{Count, WorkloadRow};

/// What the workloads of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// Their user.
    User,
    /// Their team.
    Team,
    /// Their queue.
    Queue,
    /// The beginning of their names, without a number at the end.
    Prefix,
    /// Their state.
    State,
}

/// The columns of groups. The title of the first says what they are.
pub const COLUMNS: [Column<GroupRow>; 8] = [
    Column { name: "name", title: "NAME", form: Form::Cut(12), value: |row, _| Value::text(&row.name) },
    Column { name: "pending", title: "PENDING", form: Form::Right, value: |row, _| count(row.pending) },
    Column { name: "running", title: "RUNNING", form: Form::Right, value: |row, _| count(row.running) },
    Column { name: "held", title: "HELD", form: Form::Right, value: |row, _| count(row.held) },
    Column { name: "other", title: "OTHER", form: Form::Right, value: |row, _| count(row.other) },
    Column {
        name: "gpus-pending",
        title: "GPUS PENDING",
        form: Form::Right,
        value: |row, _| Value::Count(row.gpus_pending),
    },
    Column {
        name: "gpus-running",
        title: "GPUS RUNNING",
        form: Form::Right,
        value: |row, _| Value::Count(row.gpus_running),
    },
    Column {
        name: "next",
        title: "NEXT ETA",
        form: Form::Right,
        value: |row, _| row.next.map_or(Value::None, Value::Until),
    },
];

fn count(number: usize) -> Value {
    Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

/// The groups, by name.
pub fn group(by: By, rows: &[WorkloadRow]) -> Vec<GroupRow> {
    let mut groups: BTreeMap<String, GroupRow> = BTreeMap::new();
    for row in rows {
        let name = match by {
            By::User => row.user.clone().unwrap_or_else(|| "-".to_owned()),
            By::Team => row.head.team.clone(),
            By::Queue => format!("{}/{}", row.head.team, row.head.queue),
            By::Prefix => prefix(&row.head.name).to_owned(),
            By::State => row.head.state.clone(),
        };
        let group = groups.entry(name.clone()).or_insert_with(|| GroupRow {
            name,
            pending: 0,
            running: 0,
            held: 0,
            other: 0,
            gpus_pending: Count::default(),
            gpus_running: Count::default(),
            next: None,
        });
        match row.head.state.as_str() {
            "Pending" => {
                group.pending += 1;
                group.gpus_pending = group.gpus_pending.plus(row.gpus);
                let likely = row.eta.as_ref().and_then(|eta| eta.likely);
                group.next = group.next.into_iter().chain(likely).min();
            }
            "Running" => {
                group.running += 1;
                group.gpus_running = group.gpus_running.plus(row.gpus);
            }
            "Held" => group.held += 1,
            _ => group.other += 1,
        }
    }
    groups.into_values().collect()
}

/// A name without the numbers and the separators at its end.
fn prefix(name: &str) -> &str {
    let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '-' | '.' | '_'));
    if prefix.is_empty() { name } else { prefix }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_numbers() {
        for (name, expected) in [("train-12", "train"), ("train-1-2", "train"), ("7", "7"), ("a1b", "a1b")] {
            assert_eq!(prefix(name), expected);
        }
    }
}
