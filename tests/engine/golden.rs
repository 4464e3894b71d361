//! Decisions in random worlds equal those in `tests/golden/decisions.txt`. A change of the code that is to
//! keep every decision changes no line of that file; `make golden` writes it again after any other change.

use std::fmt::Write as _;
use std::path::Path;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::ops::{apply, build, ops, setup, submissions};
use super::world::World;

/// The FNV-1a hash of a text, 64 bits wide.
fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Every decision of a world, then the code of the verdict on each of its workloads.
fn line(name: &str, world: &World) -> String {
    let mut text = world.log.join("\n");
    for id in world.items.keys() {
        let code = world.engine.verdict(id).map_or("none", |verdict| verdict.reason.code());
        let _ = write!(text, "\n{id} {code}");
    }
    let _ = write!(text, "\n{:?}", world.engine.next_deadline().map(|at| at.0));
    format!("{name} {} decisions {:016x}\n", world.log.len(), digest(&text))
}

#[test]
fn decisions_are_those_of_the_golden_file() {
    let mut runner = TestRunner::deterministic();
    let mut lines = String::new();
    for number in 0..400 {
        let (setup, ops) = (setup(), ops()).new_tree(&mut runner).expect("a world").current();
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
            world.plan();
        }
        lines += &line(&format!("events-{number}"), &world);
        world.settle();
        lines += &line(&format!("settled-{number}"), &world);
    }
    for number in 0..400 {
        let (setup, ops) = (setup(), submissions(40)).new_tree(&mut runner).expect("a world").current();
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
            world.settle();
        }
        lines += &line(&format!("queue-{number}"), &world);
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/decisions.txt");
    if std::env::var_os("GOLDEN").is_some_and(|what| what == "write") {
        std::fs::write(&file, &lines).expect("the golden file is written");
    }
    let golden = std::fs::read_to_string(&file).expect("the golden file");
    assert_eq!(lines.lines().count(), golden.lines().count(), "as many worlds as in the golden file");
    let differ: Vec<String> = lines
        .lines()
        .zip(golden.lines())
        .filter(|(now, before)| now != before)
        .map(|(now, before)| format!("before: {before}\nnow:    {now}"))
        .collect();
    assert!(differ.is_empty(), "{} worlds decide otherwise:\n{}", differ.len(), differ.join("\n"));
}
