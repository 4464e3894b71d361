//! Answers as tables for people.

mod outcome;

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};
use jiff::Timestamp;

pub use outcome::outcome;

use crate::view::{Amounts, EtaRow, NodeRow, ProspectRow, Teams, WorkloadRow, is_gpu};

/// A table in which names stay whole, however narrow the terminal is.
fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    table
}

/// The same with prose in the last column, which is wrapped where the terminal is too narrow.
fn with_prose<const N: usize>(header: [&str; N]) -> Table {
    let mut table = table(header);
    if let Some(column) = table.column_mut(N - 1) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(NARROWEST)));
    }
    table
}

/// What prose has at least, in characters.
const NARROWEST: u16 = 32;

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
    let mut rows = with_prose(["NODE", "POOL", "STATE", "GPUS", "FREE", "HELD BY"]);
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
    let mut rows = table([
        "NAMESPACE",
        "NAME",
        "TEAM",
        "QUEUE",
        "PRIORITY",
        "STATE",
        "REASON",
        "PODS",
        "GPUS",
        "AGE",
        "ETA",
    ]);
    right(&mut rows, 4..5);
    right(&mut rows, 7..9);
    let now = Timestamp::now();
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
            workload.eta.as_ref().map(|eta| expected(eta, now)).unwrap_or_default(),
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
        if let Some(eta) = &workload.eta {
            lines.push(format!("  Expected    {}", foretold(eta, Timestamp::now())));
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

/// What would become of a Job.
pub fn prospect(prospect: &ProspectRow) -> String {
    let mut lines = vec![
        format!("Job {}/{} would be {}", prospect.namespace, prospect.name, prospect.state),
        format!("  {}: {}", prospect.reason, prospect.message),
        String::new(),
        format!("  Team        {}", prospect.team),
        format!("  Queue       {}", prospect.queue),
        format!("  Expected    {}", foretold(&prospect.eta, Timestamp::now())),
    ];
    if let Some(pool) = &prospect.pool {
        let kind = if prospect.borrowed { "borrowed" } else { "guaranteed" };
        lines.push(format!("  Pool        {pool}, {kind}"));
    }
    for (node, pods) in &prospect.nodes {
        lines.push(format!("  Node        {node} ({})", counted(*pods)));
    }
    for displaced in &prospect.displaced {
        lines.push(format!("  Makes room  {displaced}"));
    }
    lines.join("\n")
}

/// In how much time something is expected: the likely time, and the range where there is one.
fn expected(eta: &EtaRow, now: Timestamp) -> String {
    let when = |at: Timestamp| span(at.as_second() - now.as_second());
    match (eta.early, eta.likely, eta.late) {
        (_, Some(likely), Some(late)) if likely == late && eta.early == Some(late) => when(likely),
        (Some(early), Some(likely), Some(late)) => {
            format!("{} ({}-{})", when(likely), when(early), when(late))
        }
        (Some(early), Some(likely), None) => format!("{} ({} or later)", when(likely), when(early)),
        (Some(early), None, _) => format!("{} or later", when(early)),
        (None, ..) => "unknown".to_owned(),
    }
}

/// When something is expected, in one sentence with the age of that knowledge.
fn foretold(eta: &EtaRow, now: Timestamp) -> String {
    let known = match now.as_second() - eta.foretold.as_second() {
        age if age > 1 => format!(", as foretold {} ago", span(age)),
        _ => String::new(),
    };
    let when = |at: Timestamp| match at.as_second() - now.as_second() {
        left if left > 0 => format!("in {} ({})", span(left), seconds(at)),
        _ => "any moment now".to_owned(),
    };
    let told = match (eta.early, eta.likely, eta.late) {
        (Some(early), Some(likely), Some(late)) if early == late => format!("to start {}", when(likely)),
        (Some(early), Some(likely), Some(late)) => {
            let (early, late) = (seconds(early), seconds(late));
            format!("to start {}; at the earliest {early}, at the latest {late}", when(likely))
        }
        (Some(early), Some(likely), None) => {
            let early = seconds(early);
            format!("to start {}; at the earliest {early}, how late cannot be said", when(likely))
        }
        (Some(early), None, _) => {
            format!("to start not before {}; when cannot be said", seconds(early))
        }
        (None, ..) => {
            "when it starts cannot be said: it waits for what has no time limit, too few runs of its \
                       kind have ended to tell how long it takes, or for a change of the cluster"
                .to_owned()
        }
    };
    format!("{told}{known}")
}

/// A time without parts of seconds.
fn seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
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
    span(Timestamp::now().as_second().saturating_sub(since.as_second()))
}

/// So many seconds, in the two largest units.
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
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
    fn an_expectation_says_its_range_and_its_age() {
        let at = |second| Timestamp::from_second(second).ok();
        let now = at(1_000).expect("a time");
        let eta = |early, likely, late| EtaRow {
            early: at(early),
            likely: at(likely),
            late: at(late),
            foretold: at(990).expect("a time"),
        };
        let exact = eta(1_090, 1_090, 1_090);
        assert_eq!(expected(&exact, now), "1m30s");
        assert_eq!(foretold(&exact, now), "to start in 1m30s (1970-01-01T00:18:10Z), as foretold 10s ago");
        let range = eta(1_030, 1_090, 1_120);
        assert_eq!(expected(&range, now), "1m30s (30s-2m0s)");
        assert!(foretold(&range, now).contains("at the earliest 1970-01-01T00:17:10Z"));
        assert_eq!(expected(&EtaRow { late: None, ..range }, now), "1m30s (30s or later)");
        assert_eq!(expected(&EtaRow { late: None, likely: None, ..range }, now), "30s or later");
        let unknown = EtaRow { early: None, likely: None, late: None, ..range };
        assert_eq!(expected(&unknown, now), "unknown");
        assert!(foretold(&unknown, now).starts_with("when it starts cannot be said"));
        let past = eta(999, 999, 999);
        assert!(foretold(&past, now).contains("any moment now"));
    }

    #[test]
    fn nothing_is_an_empty_table() {
        assert_eq!(queue(&[]).lines().count(), 1);
        assert_eq!(teams(&Teams::default()).lines().count(), 3);
    }
}
