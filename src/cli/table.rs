//! Answers as tables for people.

mod outcome;

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use jiff::Timestamp;

pub use outcome::outcome;

use crate::view::{Amounts, NodeRow, Teams, WorkloadRow, is_gpu};

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

fn shown(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Teams and their queues.
pub fn teams(teams: &Teams) -> String {
    let mut quotas =
        table(["TEAM", "POOL", "RESOURCE", "GUARANTEED", "LIMIT", "USED", "BORROWED", "LENT", "FAIR SHARE"]);
    right(&mut quotas, 3..9);
    for row in &teams.teams {
        let lists = [&row.guaranteed, &row.limit, &row.used, &row.borrowed, &row.lent, &row.fair_share];
        let mut resources: Vec<&String> = lists.iter().flat_map(|list| list.keys()).collect();
        resources.sort();
        resources.dedup();
        // GPUs are what this is about; the rest follows only where it is promised or capped.
        resources.retain(|resource| {
            is_gpu(resource) || row.guaranteed.contains_key(*resource) || row.limit.contains_key(*resource)
        });
        if resources.is_empty() {
            quotas.add_row([&row.team, &row.pool, "-", "", "", "", "", "", ""].map(str::to_owned));
        }
        for resource in resources {
            let amount =
                |list: &Amounts, none: &str| list.get(resource).map_or(none, String::as_str).to_owned();
            quotas.add_row([
                row.team.clone(),
                row.pool.clone(),
                resource.clone(),
                amount(&row.guaranteed, "0"),
                amount(&row.limit, "-"),
                amount(&row.used, "0"),
                amount(&row.borrowed, "0"),
                amount(&row.lent, "0"),
                amount(&row.fair_share, "0"),
            ]);
        }
    }
    let mut queues = table(["TEAM", "QUEUE", "PENDING", "RUNNING", "OLDEST"]);
    right(&mut queues, 2..4);
    for row in &teams.queues {
        let oldest = row.oldest.map(age).unwrap_or_default();
        let (pending, running) = (row.pending.to_string(), row.running.to_string());
        queues.add_row([row.team.clone(), row.queue.clone(), pending, running, oldest]);
    }
    let mut text = format!("{}\n\n{}", shown(&quotas), shown(&queues));
    for over in &teams.overcommitments {
        text.push_str(&format!("\n\nOvercommitted: {over}"));
    }
    text
}

/// Nodes with a block a GPU: full where it is held, empty where it is free.
pub fn nodes(nodes: &[NodeRow]) -> String {
    let mut rows = table(["NODE", "POOL", "STATE", "GPUS", "FREE", "HELD BY"]);
    right(&mut rows, 4..5);
    for node in nodes {
        let held = node.gpus.saturating_sub(node.gpus_free);
        let blocks = format!("{}{}", blocks(held, '■'), blocks(node.gpus_free, '□'));
        let mut teams: BTreeMap<&str, u32> = BTreeMap::new();
        for share in &node.workloads {
            *teams.entry(&share.team).or_default() += share.pods;
        }
        let teams: Vec<String> =
            teams.iter().map(|(team, pods)| format!("{team} ({})", counted(*pods))).collect();
        rows.add_row([
            node.name.clone(),
            node.pool.clone(),
            if node.schedulable { "ready" } else { "closed" }.to_owned(),
            blocks,
            format!("{}/{}", node.gpus_free, node.gpus),
            teams.join(", "),
        ]);
    }
    shown(&rows)
}

/// What waits and what runs.
pub fn queue(workloads: &[WorkloadRow]) -> String {
    let mut rows =
        table(["NAMESPACE", "NAME", "TEAM", "QUEUE", "PRIORITY", "STATE", "REASON", "PODS", "GPUS", "AGE"]);
    right(&mut rows, 4..5);
    right(&mut rows, 7..9);
    for workload in workloads {
        rows.add_row([
            workload.namespace.clone(),
            workload.name.clone(),
            workload.team.clone(),
            workload.queue.clone(),
            workload.priority.to_string(),
            workload.state.clone(),
            workload.reason.clone(),
            workload.pods.to_string(),
            gpus(workload),
            age(workload.submitted),
        ]);
    }
    shown(&rows)
}

fn gpus(workload: &WorkloadRow) -> String {
    let each = workload.requests.iter().find(|(resource, _)| is_gpu(resource));
    each.and_then(|(_, each)| each.parse::<u32>().ok())
        .map(|each| each.saturating_mul(workload.pods).to_string())
        .unwrap_or_default()
}

/// Everything about one workload, the sentence first.
pub fn explain(found: &[WorkloadRow]) -> String {
    let one = |workload: &WorkloadRow| {
        let mut lines = vec![
            format!("{} {}/{} is {}", workload.kind, workload.namespace, workload.name, workload.state),
            format!("  {}: {}", workload.reason, workload.message),
            String::new(),
            format!("  Team        {}", workload.team),
        ];
        if !workload.queue.is_empty() {
            lines.push(format!("  Queue       {}", workload.queue));
        }
        lines.push(format!("  Priority    {}", workload.priority));
        lines.push(format!("  Pods        {}, each {}", workload.pods, listed(&workload.requests)));
        lines.push(format!("  Submitted   {} ({} ago)", workload.submitted, age(workload.submitted)));
        if let Some(admitted) = workload.admitted {
            let kind = if workload.borrowed { "borrowed" } else { "guaranteed" };
            lines.push(format!("  Admitted    {admitted} ({} ago), {kind}", age(admitted)));
        }
        if let Some(pool) = &workload.pool {
            lines.push(format!("  Pool        {pool}"));
        }
        for (node, pods) in &workload.nodes {
            lines.push(format!("  Node        {node} ({})", counted(*pods)));
        }
        lines.join("\n")
    };
    found.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

fn listed(amounts: &Amounts) -> String {
    if amounts.is_empty() {
        return "nothing".to_owned();
    }
    amounts.iter().map(|(resource, amount)| format!("{resource} {amount}")).collect::<Vec<_>>().join(", ")
}

fn counted(pods: u32) -> String {
    if pods == 1 { "1 pod".to_owned() } else { format!("{pods} pods") }
}

fn blocks(count: u32, block: char) -> String {
    std::iter::repeat_n(block, count.min(64) as usize).collect()
}

fn right(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// How long ago, in the two largest units.
fn age(since: Timestamp) -> String {
    let seconds = Timestamp::now().as_second().saturating_sub(since.as_second()).max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, ..) => format!("{hours}h{minutes}m"),
        _ => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_are_blocks() {
        let node = NodeRow {
            name: "n1".into(),
            pool: "a100".into(),
            schedulable: true,
            allocatable: Amounts::new(),
            free: Amounts::new(),
            gpus: 5,
            gpus_free: 2,
            workloads: Vec::new(),
        };
        let text = nodes(&[node]);
        assert!(text.contains("■■■□□"), "{text}");
        assert!(text.contains("2/5"), "{text}");
    }

    #[test]
    fn nothing_is_an_empty_table() {
        assert_eq!(queue(&[]).lines().count(), 1);
        assert_eq!(teams(&Teams::default()).lines().count(), 3);
    }
}
