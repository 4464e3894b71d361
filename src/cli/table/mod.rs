//! Answers as tables.

mod outcome;

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use jiff::Timestamp;

pub use outcome::outcome;

use crate::engine::types::amount::Amount;
use crate::view::{Accelerators, Amounts, EtaRow, NodeRow, Teams, WhatIfRow, WorkloadRow, counted, span};

/// A table that does not wrap its cells.
fn table(header: impl IntoIterator<Item = &'static str>) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header.into_iter().collect::<Vec<_>>());
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    table
}

/// A table with text in the last column, wrapped to the width of the terminal.
fn with_text<const N: usize>(header: [&'static str; N]) -> Table {
    let mut table = table(header);
    if let Some(column) = table.column_mut(N - 1) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(NARROWEST)));
    }
    table
}

/// The least width of a text column, in characters.
const NARROWEST: u16 = 32;

fn shown(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Teams and their queues.
pub fn teams(teams: &Teams, accelerators: &Accelerators) -> String {
    // Pods that were never admitted are rare, so the column appears with the first of them.
    let with_unadmitted = teams.teams.iter().any(|row| !row.unadmitted.is_empty());
    let columns = ["TEAM", "POOL", "RESOURCE", "GUARANTEED", "LIMIT", "USED"];
    let columns = columns.into_iter().chain(with_unadmitted.then_some("UNADMITTED"));
    let columns: Vec<&'static str> = columns.chain(["BORROWED", "LENT", "FAIR SHARE"]).collect();
    let width = columns.len();
    let mut quotas = table(columns);
    right(&mut quotas, 3..width);
    for row in &teams.teams {
        let lists = [&row.guaranteed, &row.limit, &row.used, &row.borrowed, &row.lent, &row.fair_share];
        let mut resources: Vec<&String> = lists.iter().flat_map(|list| list.keys()).collect();
        resources.sort();
        resources.dedup();
        // GPUs are always shown, other resources only if the quota lists them.
        resources.retain(|resource| {
            accelerators.contains(resource)
                || row.guaranteed.contains_key(*resource)
                || row.limit.contains_key(*resource)
        });
        if resources.is_empty() {
            let mut cells = vec![row.team.clone(), row.pool.clone(), "-".to_owned()];
            cells.resize(width, String::new());
            quotas.add_row(cells);
        }
        for resource in resources {
            let amount =
                |list: &Amounts, none: &str| list.get(resource).map_or(none, String::as_str).to_owned();
            let cells = [
                row.team.clone(),
                row.pool.clone(),
                resource.clone(),
                amount(&row.guaranteed, "0"),
                amount(&row.limit, "-"),
                amount(&row.used, "0"),
            ];
            let cells = cells.into_iter().chain(with_unadmitted.then(|| amount(&row.unadmitted, "0")));
            quotas.add_row(cells.chain([
                amount(&row.borrowed, "0"),
                amount(&row.lent, "0"),
                amount(&row.fair_share, "0"),
            ]));
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
    for group in &teams.unadmitted {
        text.push_str(&format!("\n\nNot admitted, charged to team {}: {}", group.team, group.message));
    }
    text
}

/// Nodes with one block per GPU: full if used, empty if free.
pub fn nodes(nodes: &[NodeRow]) -> String {
    let mut rows = with_text(["NODE", "POOL", "STATE", "GPUS", "FREE", "USED BY"]);
    right(&mut rows, 4..5);
    for node in nodes {
        let used = node.gpus.saturating_sub(node.gpus_free);
        let blocks = format!("{}{}", blocks(used, '■'), blocks(node.gpus_free, '□'));
        let mut teams: BTreeMap<&str, u32> = BTreeMap::new();
        for workload in &node.workloads {
            *teams.entry(&workload.team).or_default() += workload.pods;
        }
        let teams: Vec<String> =
            teams.iter().map(|(team, pods)| format!("{team} ({})", counted(*pods))).collect();
        rows.add_row([
            node.name.clone(),
            node.pool.clone(),
            if node.schedulable { "ready" } else { "unschedulable" }.to_owned(),
            blocks,
            format!("{}/{}", node.gpus_free, node.gpus),
            teams.join(", "),
        ]);
    }
    shown(&rows)
}

/// Waiting and running workloads.
pub fn queue(workloads: &[WorkloadRow], accelerators: &Accelerators) -> String {
    let mut rows = table([
        "NAMESPACE",
        "NAME",
        "TEAM",
        "USER",
        "QUEUE",
        "PRIORITY",
        "STATE",
        "REASON",
        "POS",
        "PODS",
        "GPUS",
        "AGE",
        "ETA",
    ]);
    right(&mut rows, 5..6);
    right(&mut rows, 8..11);
    let now = Timestamp::now();
    for workload in workloads {
        let head = &workload.head;
        rows.add_row([
            head.namespace.clone(),
            head.name.clone(),
            head.team.clone(),
            workload.user.clone().unwrap_or_default(),
            head.queue.clone(),
            workload.priority.to_string(),
            head.state.clone(),
            head.reason.clone(),
            position(workload),
            workload.pods.to_string(),
            gpus(workload, accelerators),
            age(workload.submitted),
            workload.eta.as_ref().map(|eta| time_to_start(eta, now)).unwrap_or_default(),
        ]);
    }
    shown(&rows)
}

/// The place of a workload among those of its team that wait for the same pool; empty for those that do not wait.
fn position(workload: &WorkloadRow) -> String {
    let place = workload.eta.as_ref().and_then(|eta| eta.place.as_ref());
    place.map(|place| place.position.to_string()).unwrap_or_default()
}

/// GPUs of all pods of a workload; empty for none.
fn gpus(workload: &WorkloadRow, accelerators: &Accelerators) -> String {
    let requests = workload.requests.iter().filter(|(resource, _)| accelerators.contains(resource));
    let each = requests.filter_map(|(_, each)| Amount::parse(each).ok());
    let all = each.fold(Amount::ZERO, |sum, each| sum + each) * workload.pods;
    if all == Amount::ZERO { String::new() } else { all.as_units_lossy().to_string() }
}

/// Everything about workloads, the reason first.
pub fn explain(found: &[WorkloadRow]) -> String {
    let one = |workload: &WorkloadRow| {
        let head = &workload.head;
        let mut lines = vec![
            format!("{} {}/{} is {}", workload.kind, head.namespace, head.name, head.state),
            format!("  {}: {}", head.reason, head.message),
            String::new(),
            format!("  Team        {}", head.team),
        ];
        if !head.queue.is_empty() {
            lines.push(format!("  Queue       {}", head.queue));
        }
        lines.extend(workload.user.as_ref().map(|user| format!("  User        {user}")));
        lines.push(format!("  Priority    {}", workload.priority));
        lines.push(format!("  Pods        {}, each {}", workload.pods, listed(&workload.requests)));
        lines.push(format!("  Submitted   {} ({} ago)", workload.submitted, age(workload.submitted)));
        if let Some(eta) = &workload.eta {
            lines.extend(expected(eta, &head.team));
        }
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

/// The what-if result of a workload, in the sentences of a request with dry-run.
pub fn what_if(row: &WhatIfRow) -> String {
    let head = &row.head;
    let mut lines =
        vec![format!("{}/{}, in queue {} of team {}:", head.namespace, head.name, head.queue, head.team)];
    lines.extend(row.sentences(Timestamp::now()).into_iter().map(|sentence| format!("  {sentence}")));
    lines.join("\n")
}

/// Time until the expected start, with its range: `1m30s (30s-2m0s)`.
fn time_to_start(eta: &EtaRow, now: Timestamp) -> String {
    let when = |at: Timestamp| span(at.as_second() - now.as_second());
    match (eta.early, eta.likely, eta.late) {
        (Some(early), Some(likely), Some(late)) if early == late => when(likely),
        (Some(early), Some(likely), Some(late)) => {
            format!("{} ({}-{})", when(likely), when(early), when(late))
        }
        _ => "unknown".to_owned(),
    }
}

/// The expected start of a workload of that team, what it rests on, and its place in the queue.
fn expected(eta: &EtaRow, team: &str) -> Vec<String> {
    let mut lines = vec![format!("  Expected    {}", eta.sentence(Timestamp::now()))];
    if eta.likely.is_some() && !eta.message.is_empty() {
        lines.push(format!("              {}", eta.message));
    }
    lines.extend(eta.place.as_ref().map(|place| format!("  Position    {}", place.sentence(team))));
    lines
}

fn listed(amounts: &Amounts) -> String {
    if amounts.is_empty() {
        return "nothing".to_owned();
    }
    amounts.iter().map(|(resource, amount)| format!("{resource} {amount}")).collect::<Vec<_>>().join(", ")
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

/// Time since then, in its two largest units.
fn age(since: Timestamp) -> String {
    span(Timestamp::now().as_second().saturating_sub(since.as_second()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::TeamRow;

    #[test]
    fn gpus_are_shown_as_blocks() {
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
    fn an_expected_start_has_its_range_and_age() {
        let at = |second| Timestamp::from_second(second).ok();
        let now = at(1_000).expect("a time");
        let eta = |early, likely, late| EtaRow {
            early: at(early),
            likely: at(likely),
            late: at(late),
            foretold: at(990).expect("a time"),
            basis: "TimeLimits".into(),
            message: "Rests on the time limits of the runs in its way.".into(),
            place: None,
        };
        let exact = eta(1_090, 1_090, 1_090);
        assert_eq!(time_to_start(&exact, now), "1m30s");
        assert_eq!(exact.sentence(now), "start in 1m30s, at 1970-01-01T00:18:10Z (estimated 10s ago)");
        let range = eta(1_030, 1_090, 1_120);
        assert_eq!(time_to_start(&range, now), "1m30s (30s-2m0s)");
        assert!(range.sentence(now).contains("earliest 1970-01-01T00:17:10Z"));
        let unknown =
            EtaRow { early: None, likely: None, late: None, message: "No estimate: why.".into(), ..range };
        assert_eq!(time_to_start(&unknown, now), "unknown");
        assert_eq!(unknown.sentence(now), "No estimate: why.");
        let past = eta(999, 999, 999);
        assert!(past.sentence(now).contains("at any moment"));
    }

    #[test]
    fn an_empty_answer_is_an_empty_table() {
        assert_eq!(queue(&[], &Accelerators::default()).lines().count(), 1);
        assert_eq!(teams(&Teams::default(), &Accelerators::default()).lines().count(), 3);
    }

    #[test]
    fn accelerators_of_any_vendor_are_in_the_tables() {
        let amounts = |resource: &str| Amounts::from([(resource.to_owned(), "4".to_owned())]);
        let row = |guaranteed, used| TeamRow { team: "a".into(), guaranteed, used, ..TeamRow::default() };
        let rows = vec![
            row(amounts("google.com/tpu"), Amounts::new()),
            row(Amounts::new(), amounts("google.com/tpu")),
            row(Amounts::new(), amounts("rdma/hca")),
        ];
        let answer = Teams { teams: rows, ..Teams::default() };
        let accelerators = Accelerators::default().with_quotas(["google.com/tpu"]);
        let text = teams(&answer, &accelerators);
        assert_eq!(text.matches("google.com/tpu").count(), 2, "{text}");
        assert!(!text.contains("rdma/hca"), "{text}");
        let workload: WorkloadRow = serde_json::from_value(serde_json::json!({
            "kind": "Job", "namespace": "a", "name": "x", "team": "a", "queue": "q", "state": "Pending",
            "reason": "NoRoom", "message": "", "priority": 0, "pods": 3,
            "requests": {"google.com/tpu": "4", "cpu": "8"}, "nodes": {}, "borrowed": false,
            "submitted": "2026-11-21T10:00:00Z",
        }))
        .expect("a row");
        assert_eq!(gpus(&workload, &accelerators), "12");
        assert_eq!(gpus(&workload, &Accelerators::default()), "");
    }
}
