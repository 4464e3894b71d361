//! The tables that people see, as golden files.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::*;
use crate::cli::print::Options;

fn now() -> Timestamp {
    "2026-11-21T10:00:00Z".parse().expect("a time")
}

fn screen(width: u16) -> Screen {
    Screen { width: Some(width), terminal: true, now: now(), zone: TimeZone::UTC }
}

/// A workload of which every third runs and every seventh is on hold.
fn workload(number: usize) -> WorkloadRow {
    let at = |seconds: i64| now().checked_add(SignedDuration::from_secs(seconds)).expect("a time");
    let age = 60 + 977 * i64::try_from(number).expect("a small number");
    let user = if number.is_multiple_of(2) { "alice" } else { "bob.miller@example.com" };
    let mut row = json!({
        "kind": "Job", "namespace": "vision", "name": format!("train-resnet50-imagenet-lr{number}"),
        "team": "vision", "queue": "training", "user": user,
        "priority": 0, "queuePriority": 100, "preemptible": true, "pods": 4, "gpus": 4 + number % 13,
        "requests": {"nvidia.com/gpu": "4"}, "nodes": {}, "borrowed": false, "submitted": at(-age),
        "state": "Pending", "reason": "NoRoom",
        "message": "Needs 16 GPUs; 6 of 40 are free in pool default.",
        "eta": {
            "early": at(600), "likely": at(1_800), "late": at(90_000), "foretold": now(), "basis": "History",
            "message": "Rests on earlier runs.",
            "place": {"pool": "default", "position": number + 1, "waiting": 500, "inFront": [], "teamsInFront": 0},
        },
    });
    if number % 3 == 1 {
        json_patch::merge(
            &mut row,
            &json!({
                "state": "Running", "reason": "Borrowed", "message": "", "borrowed": true, "pool": "default",
                "nodes": {"gpu-0": 2, "gpu-1": 1}, "admitted": at(-age / 2), "eta": null,
            }),
        );
    } else if number % 7 == 2 {
        json_patch::merge(
            &mut row,
            &json!({"state": "Held", "reason": "OnHold", "message": "On hold by its user.", "eta": null}),
        );
    } else if number % 7 == 3 {
        json_patch::merge(&mut row, &json!({"eta": {"early": null, "likely": null, "late": null}}));
    }
    serde_json::from_value(row).expect("a row")
}

fn look(arguments: &[&str]) -> Look {
    #[derive(clap::Parser)]
    struct Parsed {
        #[command(flatten)]
        look: Look,
    }
    let arguments = ["queue"].iter().chain(arguments);
    <Parsed as clap::Parser>::parse_from(arguments).look
}

/// The table of so many workloads as a terminal of this width shows it.
fn shown(count: usize, width: u16, form: Form, arguments: &[&str]) -> String {
    let (look, screen) = (look(arguments), screen(width));
    let mut rows: Vec<WorkloadRow> = (0..count).map(workload).collect();
    look.arrange(&mut rows, None, &screen);
    rows.truncate(look.most(form, &screen).unwrap_or(usize::MAX));
    let table = table(&rows, count, &look.columns(form, false), &screen, true);
    format!("{}\n", anstream::adapter::strip_str(&table))
}

/// Compares with a file of `tests/golden/tables`; `UPDATE_GOLDEN=1` writes it.
fn golden(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tables").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("the file can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == text, "{} differs:\n{text}", path.display());
}

#[test]
fn a_queue_fits_80_columns() {
    for count in [5, 500] {
        let text = shown(count, 80, Form::Table, &[]);
        golden(&format!("queue-{count}.txt"), &text);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn a_wide_queue_reads_well_at_200_columns() {
    let text = shown(5, 200, Form::Wide, &[]);
    golden("queue-wide.txt", &text);
    assert!(text.lines().all(|line| line.chars().count() <= 200), "{text}");
}

#[test]
fn rows_are_sorted_and_counted() {
    let text = shown(500, 80, Form::Table, &["--sort=-gpus,name", "--columns=name,gpus", "--limit=2"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "train-resnet50-imagenet-lr103    16");
    assert_eq!(lines[3], "and 498 more (use --limit 0)");
    assert_eq!(shown(500, 80, Form::Table, &["--limit=0"]).lines().count(), 501);
    assert_eq!(shown(500, 80, Form::Csv, &[]).lines().count(), 501, "programs get all");
}

#[test]
fn the_workloads_of_the_caller_come_first() {
    let arranged = |caller: Option<&str>| -> Vec<String> {
        let mut rows: Vec<WorkloadRow> = (0..4).map(workload).collect();
        rows[0].user = None;
        look(&[]).arrange(&mut rows, caller, &screen(80));
        rows.iter().filter_map(|row| row.head.name.rsplit("lr").next()).map(ToOwned::to_owned).collect()
    };
    assert_eq!(arranged(Some("bob.miller@example.com")), ["1", "3", "0", "2"]);
    assert_eq!(arranged(Some("carol")), ["0", "1", "2", "3"]);
    assert_eq!(arranged(None), ["0", "1", "2", "3"], "no user is not the caller");
}

#[test]
fn documents_are_valid() {
    let rows: Vec<WorkloadRow> = (0..8).map(workload).collect();
    let schema = jsonschema::validator_for(&Kind::WorkloadList.schema()).expect("a schema");
    let document = Kind::WorkloadList.document(&rows).expect("JSON");
    let errors: Vec<String> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(document["items"][0]["gpus"], 4, "a plain number");
}

#[test]
fn names_are_arguments_of_other_commands() {
    let rows = [workload(0)];
    let columns = look(&[]).columns(Form::Name, false);
    let options = Options { output: Form::Name, no_headers: false };
    let answer =
        Answer { kind: Kind::WorkloadList, document: &rows, rows: &rows, columns: &columns, name: name_of };
    let names = answer.plain(&options, &screen(80)).expect("names");
    assert_eq!(names.as_deref(), Some("job/train-resnet50-imagenet-lr0\n"));
}

#[test]
fn unknown_columns_are_refused() {
    assert!(
        several("name,colour").is_err_and(|error| error.starts_with("there is no column colour; there are"))
    );
}
