//! `sluice explain`: everything about workloads, the reason first.

use crate::cli::columns::priority;
use crate::cli::human::{amounts, pods, span};
use crate::cli::screen::Screen;
use crate::engine::types::runs_on;
use crate::view::{EtaRow, WorkloadRow};

/// Everything about workloads.
pub fn explain(found: &[WorkloadRow], screen: &Screen) -> String {
    found.iter().map(|row| one(row, screen)).collect::<Vec<_>>().join("\n\n")
}

fn one(row: &WorkloadRow, screen: &Screen) -> String {
    let head = &row.head;
    let ago = |at| format!("{} ({} ago)", screen.time(at), span(screen.since(at)));
    let mut lines = vec![
        format!("{} {}/{} is {}", row.kind, head.namespace, head.name, head.state),
        format!("  {}: {}", head.reason, head.message),
        String::new(),
        format!("  Team        {}", head.team),
    ];
    if !head.queue.is_empty() {
        lines.push(format!("  Queue       {}", head.queue));
    }
    lines.extend(row.user.as_ref().map(|user| format!("  User        {user}")));
    let parts = match (row.queue_priority, row.priority) {
        (0, _) | (_, 0) => "",
        _ => " (queue/class)",
    };
    lines.push(format!("  Priority    {}{parts}", priority(row)));
    lines.push(format!("  Preemptible {}", if row.preemptible { "yes" } else { "no" }));
    let of = match row.granted() {
        granted if granted == row.pods => String::new(),
        granted => format!(" asked for, {granted} granted"),
    };
    lines.push(format!("  Pods        {}{of}, each {}", row.pods, amounts(&row.requests)));
    if row.pods > 1 && !row.gpus.is_zero() {
        lines.push(format!("  GPUs        {}", row.gpus));
    }
    lines.push(format!("  Submitted   {}", ago(row.submitted)));
    if let Some(eta) = &row.eta {
        lines.extend(expected(eta, &head.team, screen));
    }
    if let Some(admitted) = row.admitted {
        let on = runs_on(row.outside_quotas, row.borrowed);
        lines.push(format!("  Admitted    {}, then {on}", ago(admitted)));
    }
    if let Some(run) = row.run.as_ref().filter(|_| row.admitted.is_some()) {
        let latest = run.latest_end.filter(|latest| Some(*latest) != run.likely_end);
        let latest = latest.map_or_else(String::new, |latest| format!("; latest {}", screen.time(latest)));
        lines.extend(run.likely_end.map(|end| format!("  Ends        {}{latest}", screen.time(end))));
        if run.likely_end.is_some() && !run.basis.is_empty() {
            lines.push(format!("              {}", run.basis));
        }
    }
    lines.extend(row.pool.as_ref().map(|pool| format!("  Pool        {pool}")));
    lines.extend(row.nodes.iter().map(|(node, count)| format!("  Node        {node} ({})", pods(*count))));
    lines.join("\n")
}

/// The expected start of a workload of that team, what it rests on, and its place in the queue.
pub fn expected(eta: &EtaRow, team: &str, screen: &Screen) -> Vec<String> {
    let mut lines = vec![format!("  Expected    {}", eta.sentence(screen.now, &|at| screen.time(at)))];
    if eta.likely.is_some() && !eta.message.is_empty() {
        lines.push(format!("              {}", eta.message));
    }
    lines.extend(eta.place.as_ref().map(|place| format!("  Position    {}", place.sentence(team))));
    lines
}
