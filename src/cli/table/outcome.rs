//! The outcome of a simulation as tables.

use super::rows::{right, shown, table, with_text};
use crate::simulate::{Clock, Outcome, State, TeamRow, WorkloadRow, gpu_time, span};
use crate::view::Accelerators;

/// Workloads, teams, decisions if recorded, and a summary line.
pub fn outcome(outcome: &Outcome, summary_only: bool) -> String {
    let mut parts = vec![workloads(&outcome.workloads, outcome.end); usize::from(!summary_only)];
    parts.push(teams(&outcome.teams, &outcome.accelerators));
    if let Some(decisions) = &outcome.events {
        let mut rows = with_text(["TIME", "ACTION", "RULE", "WORKLOAD", "FOR", "MESSAGE"]);
        right(&mut rows, 0..1);
        for decision in decisions {
            let preemptor = decision.preemptor.as_deref().unwrap_or_default();
            let at = decision.at.span();
            let cells =
                [&at, decision.action, decision.rule, &decision.workload, preemptor, &decision.message];
            rows.add_row(cells);
        }
        parts.push(shown(&rows));
    }
    parts.push(summary(outcome));
    parts.join("\n\n")
}

fn workloads(workloads: &[WorkloadRow], end: Clock) -> String {
    let mut rows = with_text([
        "WORKLOAD",
        "TEAM",
        "QUEUE",
        "STATE",
        "GPUS",
        "SUBMITTED",
        "WAIT",
        "ENDED",
        "EVICTIONS",
        "NODES",
        "REASON",
    ]);
    right(&mut rows, 4..9);
    for row in workloads {
        let last = row.admissions.last();
        let nodes = last.filter(|_| row.state != State::Pending).map(|admission| {
            let nodes = admission.nodes.iter().map(|(node, pods)| format!("{node}: {pods}"));
            let borrowed = if admission.borrowed { " (borrowed)" } else { "" };
            format!("{}{borrowed}", nodes.collect::<Vec<_>>().join(", "))
        });
        let reason = match row.state {
            State::Succeeded => String::new(),
            State::Running if row.is_managed() => String::new(),
            _ => format!("{}: {}", row.reason, row.message),
        };
        let evictions = row.evictions.len();
        rows.add_row([
            row.label(),
            if row.is_managed() { row.team.clone() } else { "-".to_owned() },
            row.queue.clone(),
            row.state.to_string(),
            if row.gpus.is_zero() { String::new() } else { row.gpus.to_string() },
            row.submitted.span(),
            if row.state == State::Held { String::new() } else { Clock(row.wait(end)).span() },
            row.finished.map(|at| at.span()).unwrap_or_default(),
            if evictions == 0 { String::new() } else { evictions.to_string() },
            nodes.unwrap_or_default(),
            match row.eta {
                Some(eta) => format!("expected to start at {}; {reason}", eta.span()),
                None => reason,
            },
        ]);
    }
    shown(&rows)
}

fn teams(teams: &[TeamRow], accelerators: &Accelerators) -> String {
    let mut rows = table(["TEAM", "POOL", "RESOURCE", "GUARANTEED", "USED", "BORROWED", "FAIR SHARE"]);
    right(&mut rows, 3..7);
    for row in teams {
        let mut resources: Vec<&String> = row.guaranteed.keys().chain(row.used.keys()).collect();
        resources.sort();
        resources.dedup();
        resources
            .retain(|resource| accelerators.contains(resource) || row.guaranteed.contains_key(*resource));
        for resource in resources {
            let amount = |list: &crate::view::Amounts| list.get(resource).cloned().unwrap_or("0".to_owned());
            rows.add_row([
                row.name.clone(),
                row.pool.clone(),
                resource.clone(),
                amount(&row.guaranteed),
                amount(&row.used),
                amount(&row.borrowed),
                amount(&row.fair_share),
            ]);
        }
    }
    shown(&rows)
}

/// The whole simulation in one line.
fn summary(outcome: &Outcome) -> String {
    let count = |state: State| outcome.workloads.iter().filter(|row| row.state == state).count();
    let states = [
        (State::Succeeded, "succeeded"),
        (State::Running, "running"),
        (State::Pending, "waiting"),
        (State::Held, "on hold"),
        (State::Failed, "failed"),
    ];
    let states = states.map(|(state, name)| (count(state), name));
    let states: Vec<String> = states
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, name)| format!("{number} {name}"))
        .collect();
    let states = if states.is_empty() { "no workloads".to_owned() } else { states.join(", ") };
    let mut sentences = vec![format!("{} simulated: {states}.", outcome.end.span())];
    let summary = &outcome.summary;
    let has_gpus = outcome.timeline.resource == "GPUs";
    if !outcome.end.0.is_zero() {
        let resource = if has_gpus { "GPU" } else { "CPU" };
        sentences.push(format!("{resource} utilization {:.1} %.", summary.utilization * 100.0));
    }
    if let Some(waits) = outcome.waits() {
        sentences.push(format!("Wait: mean {}, longest {}.", span(waits.mean), span(waits.longest)));
    }
    let evictions = match summary.evictions {
        0 => "No evictions".to_owned(),
        1 => "1 eviction".to_owned(),
        number => format!("{number} evictions"),
    };
    sentences.push(match has_gpus {
        true => format!("{evictions}, {} lost.", gpu_time(summary.wasted_gpu_seconds)),
        false => format!("{evictions}."),
    });
    sentences.join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::simulate::{AdmissionRow, Summary, Timeline};

    fn row(state: State, submitted: u64, admitted: Option<u64>) -> WorkloadRow {
        let admission = |at| AdmissionRow { at: Clock::seconds(at), ..AdmissionRow::default() };
        WorkloadRow {
            team: "a".into(),
            state,
            submitted: Clock::seconds(submitted),
            admissions: admitted.into_iter().map(admission).collect(),
            ..WorkloadRow::default()
        }
    }

    #[test]
    fn the_summary_has_human_units_and_counts_workloads_that_still_wait() {
        let outcome = Outcome {
            end: Clock(Duration::from_secs(5_400)),
            workloads: vec![row(State::Running, 0, Some(0)), row(State::Pending, 0, None)],
            summary: Summary {
                utilization: 0.844,
                evictions: 8,
                wasted_gpu_seconds: 7_200.0,
                ..Summary::default()
            },
            timeline: Timeline { resource: "GPUs".into(), ..Timeline::default() },
            ..Outcome::default()
        };
        assert_eq!(
            summary(&outcome),
            "1h30m simulated: 1 running, 1 waiting. GPU utilization 84.4 %. Wait: mean 45m, longest 1h30m. \
             8 evictions, 2 GPU-h lost."
        );
        assert_eq!(summary(&Outcome::default()), "0s simulated: no workloads. No evictions.");
    }
}
