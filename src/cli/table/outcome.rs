//! What a simulation came to, as tables.

use super::{right, shown, table, with_prose};
use crate::simulate::{Outcome, State, TeamRow, WorkloadRow};
use crate::view::is_gpu;

/// The workloads, the teams, the decisions where they were asked for, and the whole in figures.
pub fn outcome(outcome: &Outcome) -> String {
    let mut parts = vec![workloads(&outcome.workloads), teams(&outcome.teams)];
    if let Some(decisions) = &outcome.events {
        let mut rows = with_prose(["TIME", "ACTION", "RULE", "WORKLOAD", "FOR", "WHY"]);
        right(&mut rows, 0..1);
        for decision in decisions {
            let preemptor = decision.preemptor.as_deref().unwrap_or_default();
            let at = decision.at.to_string();
            let cells =
                [&at, decision.action, decision.rule, &decision.workload, preemptor, &decision.message];
            rows.add_row(cells);
        }
        parts.push(shown(&rows));
    }
    parts.push(summary(outcome));
    parts.join("\n\n")
}

fn workloads(workloads: &[WorkloadRow]) -> String {
    let mut rows = with_prose([
        "WORKLOAD",
        "TEAM",
        "QUEUE",
        "STATE",
        "SUBMITTED",
        "STARTED",
        "ENDED",
        "EVICTED",
        "NODES",
        "WHY",
    ]);
    right(&mut rows, 4..8);
    for row in workloads {
        let last = row.admissions.last();
        let nodes = last.filter(|_| row.state != State::Pending).map(|admission| {
            let nodes = admission.nodes.iter().map(|(node, pods)| format!("{node}: {pods}"));
            let borrowed = if admission.borrowed { " (borrowed)" } else { "" };
            format!("{}{borrowed}", nodes.collect::<Vec<_>>().join(", "))
        });
        let why = match row.state {
            State::Succeeded => String::new(),
            State::Running if !row.team.is_empty() => String::new(),
            _ => format!("{}: {}", row.reason, row.message),
        };
        let evictions = row.evictions.len();
        rows.add_row([
            row.label(),
            if row.team.is_empty() { "-".to_owned() } else { row.team.clone() },
            row.queue.clone(),
            row.state.to_string(),
            row.submitted.to_string(),
            row.admissions.first().map(|admission| admission.at.to_string()).unwrap_or_default(),
            row.finished.map(|at| at.to_string()).unwrap_or_default(),
            if evictions == 0 { String::new() } else { evictions.to_string() },
            nodes.unwrap_or_default(),
            match row.eta {
                Some(eta) => format!("expected at {eta}; {why}"),
                None => why,
            },
        ]);
    }
    shown(&rows)
}

fn teams(teams: &[TeamRow]) -> String {
    let mut rows = table(["TEAM", "POOL", "RESOURCE", "GUARANTEED", "USED", "BORROWED", "FAIR SHARE"]);
    right(&mut rows, 3..7);
    for row in teams {
        let mut resources: Vec<&String> = row.guaranteed.keys().chain(row.used.keys()).collect();
        resources.sort();
        resources.dedup();
        resources.retain(|resource| is_gpu(resource) || row.guaranteed.contains_key(*resource));
        for resource in resources {
            let amount = |list: &crate::view::Amounts| list.get(resource).cloned().unwrap_or("0".to_owned());
            rows.add_row([
                row.name.clone(),
                row.pool.clone(),
                resource.clone(),
                amount(&row.guaranteed),
                amount(&row.used),
                amount(&row.borrowed),
                row.fair_share.get(resource).cloned().unwrap_or_default(),
            ]);
        }
    }
    shown(&rows)
}

fn summary(outcome: &Outcome) -> String {
    let count = |state: State| outcome.workloads.iter().filter(|row| row.state == state).count();
    let states = [State::Succeeded, State::Running, State::Pending, State::Held, State::Failed];
    let states: Vec<String> = states
        .into_iter()
        .map(|state| (count(state), state))
        .filter(|(number, _)| *number > 0)
        .map(|(number, state)| format!("{number} {}", state.to_string().to_lowercase()))
        .collect();
    let summary = &outcome.summary;
    format!(
        "After {}: {}. Used {:.1} % of what there was; mean wait {:.1} s; {} eviction{}, {:.0} GPU-seconds of work lost.",
        outcome.end,
        if states.is_empty() { "no workloads".to_owned() } else { states.join(", ") },
        summary.utilization * 100.0,
        summary.mean_wait_seconds,
        summary.evictions,
        if summary.evictions == 1 { "" } else { "s" },
        summary.wasted_gpu_seconds,
    )
}
