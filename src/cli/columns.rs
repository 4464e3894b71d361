//! The columns of workloads.

use jiff::Timestamp;

use crate::cli::grid::{Column, Form, Value, column};
use crate::cli::human;
use crate::cli::screen::Screen;
use crate::view::WorkloadRow;

/// A column of workloads.
pub type WorkloadColumn = Column<WorkloadRow>;

/// Every column, in the order of `--output wide` and CSV.
pub const ALL: [WorkloadColumn; 22] = [
    column("namespace", "NAMESPACE", Form::Left, |row, _| Value::text(&row.head.namespace)),
    column("kind", "KIND", Form::Left, |row, _| Value::text(&row.kind)),
    column("name", "NAME", Form::Name(18), |row, _| Value::text(&row.head.name)),
    column("team", "TEAM", Form::Cut(5), |row, _| Value::text(&row.head.team)),
    column("user", "USER", Form::Cut(6), |row, _| Value::text(row.user.clone().unwrap_or_default())),
    column("queue", "QUEUE", Form::Cut(6), |row, _| Value::text(&row.head.queue)),
    column("state", "STATE", Form::Left, |row, _| Value::State(row.head.state.clone())),
    column("reason", "REASON", Form::Left, |row, _| Value::text(&row.head.reason)),
    column("pos", "POS", Form::Right, |row, _| number(position(row))),
    column("prio", "PRIO", Form::Right, |row, _| Value::text(priority(row))),
    column("pods", "PODS", Form::Right, |row, _| Value::Number(row.pods.into())),
    column("gpus", "GPUS", Form::Right, |row, _| {
        if row.gpus.is_zero() { Value::None } else { Value::Count(row.gpus) }
    }),
    column("time", "WAIT/RUN", Form::Right, |row, screen| match row.head.state.as_str() {
        "Finished" => Value::None,
        _ => Value::Span(screen.since(row.admitted.unwrap_or(row.submitted))),
    }),
    // From the submission. WAIT of `sluice history` is that for one run, since the eviction before it.
    column("wait", "UNTIL START", Form::Right, |row, screen| Value::Span(waited(row, screen))),
    column("age", "AGE", Form::Right, |row, screen| Value::Span(screen.since(row.submitted))),
    column("eta", "ETA", Form::Right, |row, _| until(row, |eta| eta.likely)),
    column("latest", "LATEST", Form::Right, |row, _| until(row, |eta| eta.late)),
    column("pool", "POOL", Form::Left, |row, _| {
        let asked = row.eta.as_ref().and_then(|eta| eta.place.as_ref()).map(|place| &place.pool);
        Value::text(row.pool.as_ref().or(asked).cloned().unwrap_or_default())
    }),
    column("nodes", "NODES", Form::Cut(8), |row, _| Value::text(nodes(row))),
    column("borrowed", "BORROWED", Form::Left, |row, _| {
        // What its team borrows now is another question.
        if row.borrowed { Value::Yes("at start") } else { Value::None }
    }),
    column("preemptible", "PREEMPTIBLE", Form::Left, |row, _| yes(row.preemptible)),
    column("why", "WHY", Form::Cut(12), |row, _| Value::text(why(row))),
];

/// The columns of a table on a screen of 80 characters.
pub const USUAL: &str = "name,team,user,state,gpus,time,eta,why";
/// The columns of `--output wide`.
pub const WIDE: &str =
    "kind,name,team,user,queue,state,pos,prio,pods,gpus,time,eta,latest,pool,nodes,borrowed,preemptible,why";

/// Every column.
pub fn every() -> Vec<&'static WorkloadColumn> {
    const { &ALL }.iter().collect()
}

/// The kind and the name of a workload, as other commands take them.
pub fn name_of(row: &WorkloadRow) -> String {
    format!("{}/{}", row.kind.to_ascii_lowercase(), row.head.name)
}

/// The column of this name.
pub fn named(name: &str) -> Option<&'static WorkloadColumn> {
    const { &ALL }.iter().find(|column| column.name == name)
}

/// The names of all columns, for messages.
pub fn names() -> String {
    ALL.iter().map(|column| column.name).collect::<Vec<_>>().join(", ")
}

fn number(number: Option<usize>) -> Value {
    number.and_then(|number| i64::try_from(number).ok()).map_or(Value::None, Value::Number)
}

fn yes(it_is: bool) -> Value {
    if it_is { Value::text("yes") } else { Value::None }
}

/// The place of a workload among those of its team that wait for the same pool; none for those that do not wait.
fn position(row: &WorkloadRow) -> Option<usize> {
    row.eta.as_ref().and_then(|eta| eta.place.as_ref()).map(|place| place.position)
}

/// The priority that orders a workload inside its team: that of its queue, then that of its class.
pub fn priority(row: &WorkloadRow) -> String {
    match (row.queue_priority, row.priority) {
        (queue, 0) => queue.to_string(),
        (0, class) => class.to_string(),
        (queue, class) => format!("{queue}/{class}"),
    }
}

fn waited(row: &WorkloadRow, screen: &Screen) -> i64 {
    let until = row.admitted.unwrap_or(screen.now);
    until.as_second().saturating_sub(row.submitted.as_second()).max(0)
}

fn until(row: &WorkloadRow, of: fn(&crate::view::EtaRow) -> Option<Timestamp>) -> Value {
    match &row.eta {
        Some(eta) => of(eta).map_or(Value::text("?"), Value::Until),
        None => Value::None,
    }
}

/// Its nodes, with the number of pods where it is not one.
fn nodes(row: &WorkloadRow) -> String {
    let node = |(node, pods): (&String, &u32)| match pods {
        1 => node.clone(),
        pods => format!("{node} ×{pods}"),
    };
    row.nodes.iter().map(node).collect::<Vec<_>>().join(", ")
}

/// Why it is in its state, or where it runs.
fn why(row: &WorkloadRow) -> String {
    match row.head.state.as_str() {
        "Running" if row.nodes.is_empty() => String::new(),
        "Running" => {
            let preemptible = if row.preemptible { "; preemptible" } else { "" };
            let nodes = if row.nodes.len() > 2 {
                format!("{} on {} nodes", human::pods(row.nodes.values().sum::<u32>()), row.nodes.len())
            } else {
                format!("on {}", nodes(row))
            };
            let missing = match (row.without_pods, row.pods) {
                (false, _) => "",
                (true, 1) => "its pod does not exist yet; ",
                (true, _) => "none of its pods exists yet; ",
            };
            format!("{missing}{nodes}{preemptible}")
        }
        "Finished" => row.head.reason.clone(),
        _ if row.head.message.is_empty() => row.head.reason.clone(),
        _ => row.head.message.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_says_where_and_that_its_pods_are_missing() {
        let row = |more: serde_json::Value| -> WorkloadRow {
            let mut row = serde_json::json!({
                "namespace": "a", "name": "x", "team": "a", "queue": "default", "state": "Running", "reason": "Guaranteed",
                "message": "Runs.", "kind": "Job", "priority": 0, "pods": 2, "requests": {}, "nodes": {"n1": 2},
                "borrowed": false, "preemptible": true, "submitted": "2026-11-21T10:00:00Z",
            });
            json_patch::merge(&mut row, &more);
            serde_json::from_value(row).expect("a row")
        };
        assert_eq!(why(&row(serde_json::json!({}))), "on n1 ×2; preemptible");
        let missing = row(serde_json::json!({"withoutPods": true}));
        assert_eq!(why(&missing), "none of its pods exists yet; on n1 ×2; preemptible");
        let one = row(serde_json::json!({"withoutPods": true, "pods": 1, "preemptible": false}));
        assert_eq!(why(&one), "its pod does not exist yet; on n1 ×2");
    }

    #[test]
    fn the_time_until_the_start_counts_from_the_submission_and_is_not_called_a_wait() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let screen = Screen { now: at("2026-11-21T12:00:00Z"), ..Screen::new() };
        let row = |admitted: Option<&str>| -> WorkloadRow {
            serde_json::from_value(serde_json::json!({
                "namespace": "a", "name": "x", "team": "a", "queue": "default", "state": "Pending", "reason": "NoRoom",
                "message": "", "kind": "Job", "priority": 0, "pods": 1, "requests": {}, "nodes": {}, "borrowed": false,
                "submitted": "2026-11-21T10:00:00Z", "admitted": admitted,
            }))
            .expect("a row")
        };
        let column = named("wait").expect("a column");
        let shown = |row: &WorkloadRow| (column.value)(row, &screen);
        assert_eq!(shown(&row(None)), Value::Span(7_200));
        assert_eq!(shown(&row(Some("2026-11-21T10:30:00Z"))), Value::Span(1_800));
        assert_eq!(column.title, "UNTIL START");
        let borrowed = named("borrowed").expect("a column");
        let began = WorkloadRow { borrowed: true, ..row(None) };
        assert_eq!((borrowed.value)(&began, &screen), Value::Yes("at start"), "it may not borrow any more");
        let csv = crate::cli::grid::csv(&[borrowed], &[began], &screen, false).expect("CSV");
        assert_eq!(csv, "yes\n", "programs read what they always have");
    }

    #[test]
    fn every_list_of_columns_names_columns() {
        for name in USUAL.split(',').chain(WIDE.split(',')) {
            assert!(named(name).is_some(), "{name}");
        }
        assert!(named("colour").is_none() && names().contains("preemptible"));
    }
}
