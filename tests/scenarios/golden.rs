//! The outcomes of all scenarios, examples and random scenarios equal those in
//! `tests/golden/scenarios.jsonl`, so a change of the code that must not change decisions can be checked.
//! `make golden` writes the file again after an intended change.

use std::fmt::Write as _;
use std::path::Path;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::Value;
use sluice::scenario::Scenario;

use crate::{Case, parse, random, simulate};

/// Outcomes longer than this, in bytes, are kept as a digest.
const LONGEST: usize = 6_000;

/// Removes the sentences of an outcome: decisions, times, nodes, codes and figures stay.
fn silent(outcome: &mut Value) {
    match outcome {
        Value::Object(fields) => {
            fields.remove("message");
            fields.values_mut().for_each(silent);
        }
        Value::Array(items) => items.iter_mut().for_each(silent),
        _ => {}
    }
}

/// The 64-bit FNV-1a hash of a text.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// One line of the file.
fn line(name: &str, printed: &str) -> String {
    let mut outcome: Value = parse(name, printed);
    silent(&mut outcome);
    let text = outcome.to_string();
    if text.len() <= LONGEST {
        return format!("{name}\t{text}\n");
    }
    format!(
        "{name}\t{:016x} of {} bytes, end {}, {}\n",
        digest(&text),
        text.len(),
        outcome["end"],
        outcome["summary"]
    )
}

#[test]
fn outcomes_equal_the_golden_file() {
    let mut lines = String::new();
    for case in Case::all() {
        let printed = case.simulate(&case.scenario(), None).expect("the scenario can be simulated");
        lines += &line(&case.name, &printed);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples = std::fs::read_dir(root.join("examples")).expect("the examples");
    let mut examples: Vec<_> = examples.map(|entry| entry.expect("an example").path()).collect();
    examples.sort();
    for path in examples.iter().filter(|path| path.extension().is_some_and(|extension| extension == "yaml")) {
        let name = path.file_name().expect("a name").to_string_lossy();
        let printed = Scenario::load(&[path]).map_err(|error| error.to_string());
        let printed = printed.and_then(|scenario| simulate(&scenario, None, None));
        match printed {
            Ok(printed) => lines += &line(&name, &printed),
            Err(_) => _ = writeln!(lines, "{name}\tcannot be played"),
        }
    }
    let mut runner = TestRunner::deterministic();
    for number in 0..200 {
        let text = random::scenario().new_tree(&mut runner).expect("a scenario").current();
        let scenario = Scenario::parse([("random", text.as_str())]).expect("the scenario can be parsed");
        lines += &line(
            &format!("random-{number}"),
            &simulate(&scenario, None, None).expect("the simulation succeeds"),
        );
    }
    let file = root.join("tests/golden/scenarios.jsonl");
    if std::env::var_os("GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(&file, &lines).expect("the golden file is written");
    }
    let golden = std::fs::read_to_string(&file).expect("the golden file exists");
    assert_eq!(lines.lines().count(), golden.lines().count(), "number of outcomes");
    let differ: Vec<String> = lines
        .lines()
        .zip(golden.lines())
        .filter(|(now, before)| now != before)
        .map(|(now, before)| format!("before: {before}\nnow:    {now}"))
        .collect();
    assert!(differ.is_empty(), "{} outcomes changed:\n{}", differ.len(), differ.join("\n"));
}
