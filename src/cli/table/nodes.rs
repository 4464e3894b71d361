//! The columns of `sluice nodes`, with one block per GPU: full if used, empty if free.

use std::collections::BTreeMap;

use crate::cli::grid::{Column, Form, Value, column};
use crate::cli::human::pods;
use crate::view::{NodeRow, NodeWorkload};

/// The columns.
pub const COLUMNS: [Column<NodeRow>; 6] = [
    column("node", "NODE", Form::Name(12), |row, _| Value::text(&row.name)),
    column("pool", "POOL", Form::Cut(8), |row, _| Value::text(&row.pool)),
    column("state", "STATE", Form::Left, |row, _| Value::text(row.state())),
    column("gpus", "GPUS", Form::Left, |row, _| {
        Value::Blocks(row.gpus.saturating_sub(row.gpus_free), row.gpus_free)
    }),
    column("free", "FREE", Form::Right, |row, _| match &row.gpu_parts {
        Some(parts) => Value::Of(parts.free, parts.all),
        None => Value::Of(row.gpus_free.into(), row.gpus.into()),
    }),
    column("used-by", "USED BY", Form::Cut(12), |row, _| Value::text(used_by(row))),
];

/// The teams of its pods, and the GPUs that pods outside of all teams hold.
fn used_by(row: &NodeRow) -> String {
    let mut teams: BTreeMap<&str, u32> = BTreeMap::new();
    for workload in &row.workloads {
        let count = teams.entry(&workload.team).or_default();
        *count = count.saturating_add(workload.pods);
    }
    let team = |(team, count): (&&str, &u32)| {
        let team = if team.is_empty() { "others" } else { team };
        format!("{team} ({})", pods(*count))
    };
    let mut users: Vec<String> = teams.iter().map(team).collect();
    match others(row) {
        0 => {}
        1 => users.push("others (1 GPU)".to_owned()),
        more => users.push(format!("others ({more} GPUs)")),
    }
    users.join(", ")
}

/// The used GPUs that none of its workloads can hold. Pods that use parts of GPUs may hold one each.
fn others(row: &NodeRow) -> u32 {
    let held = |workload: &NodeWorkload| {
        let pods = f64::from(workload.pods.max(1));
        pods * (workload.gpus / pods - 0.001).ceil()
    };
    let held: f64 = row.workloads.iter().map(held).sum();
    (0..row.gpus.saturating_sub(row.gpus_free))
        .rev()
        .take_while(|at| f64::from(*at) + 0.5 > held)
        .fold(0, |sum, _| sum + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::grid;
    use crate::cli::screen::Screen;
    use crate::view::GpuParts;

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
        let text = grid::table(&columns, std::slice::from_ref(&node), &Screen::new(), true);
        assert!(text.contains("■■■□□") && text.contains("2/5"), "{text}");
        let csv = grid::csv(&columns, &[node], &Screen::new(), true).expect("CSV");
        assert_eq!(
            csv, "node,pool,state,gpus,free,used-by\nn1,a100,ready,5,2,others (3 GPUs)\n",
            "programs read numbers"
        );
    }

    #[test]
    fn parts_of_gpus_are_decimals() {
        let parts: GpuParts =
            serde_json::from_value(serde_json::json!({"all": 4, "free": 3.5})).expect("numbers");
        let node = NodeRow {
            name: "n1".into(),
            gpus: 4,
            gpus_free: 3,
            gpu_parts: Some(parts),
            ..NodeRow::default()
        };
        let columns: Vec<_> = COLUMNS.iter().filter(|column| column.name != "used-by").collect();
        let text = grid::table(&columns, std::slice::from_ref(&node), &Screen::new(), false);
        assert!(text.contains("■□□□") && text.ends_with("3.5/4"), "{text}");
        let csv = grid::csv(&columns, std::slice::from_ref(&node), &Screen::new(), false).expect("CSV");
        assert_eq!(csv, "n1,,unschedulable,4,3.5\n");
        let lost = NodeRow { not_ready: true, ..node };
        let csv = grid::csv(&columns, &[lost], &Screen::new(), false).expect("CSV");
        assert_eq!(csv, "n1,,NotReady,4,3.5\n");
    }

    #[test]
    fn gpus_of_pods_outside_of_teams_are_told() {
        let used = |gpus: u32, workloads: &[(&str, u32, f64)]| {
            let workload = |(team, pods, gpus): &(&str, u32, f64)| NodeWorkload {
                team: (*team).to_owned(),
                pods: *pods,
                gpus: *gpus,
                ..NodeWorkload::default()
            };
            let workloads = workloads.iter().map(workload).collect();
            used_by(&NodeRow { gpus: 10, gpus_free: 10 - gpus, workloads, ..NodeRow::default() })
        };
        assert_eq!(used(0, &[]), "");
        assert_eq!(used(1, &[]), "others (1 GPU)");
        assert_eq!(used(4, &[("a", 2, 2.0)]), "a (2 pods), others (2 GPUs)");
        assert_eq!(used(4, &[("a", 2, 4.0)]), "a (2 pods)");
        assert_eq!(used(2, &[("a", 2, 1.0)]), "a (2 pods)", "a part of each");
        assert_eq!(used(1, &[("a", 1, 0.5), ("b", 1, 0.25)]), "a (1 pod), b (1 pod)", "parts of one");
    }
}
