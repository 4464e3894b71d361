//! Holds the documentation to the code: the generated reference, and the tests and files that the laws name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use sluice::cli::Cli;
use sluice::reference::{Page, pages};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files with an extension below a folder.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found
}

fn page(file: &str) -> String {
    let pages = pages(&Cli::command()).expect("the reference is generated");
    let page = pages.into_iter().find(|page| page.file == file);
    page.unwrap_or_else(|| panic!("there is no page {file}")).text
}

#[test]
fn the_pages_are_those_that_the_code_generates() {
    let folder = root().join("docs/reference");
    let pages = pages(&Cli::command()).expect("the reference is generated");
    for Page { file, text } in &pages {
        assert!(read(&folder.join(file)) == *text, "docs/reference/{file} is stale: run `make reference`");
    }
    let generated: BTreeSet<PathBuf> = pages.iter().map(|page| folder.join(page.file)).collect();
    let found = ["md", "json"].iter().flat_map(|extension| files(&folder, extension));
    assert_eq!(found.collect::<BTreeSet<_>>(), generated);
}

/// The names that the sources give to metrics: the first text behind each `Opts::new(`.
fn metrics_of_the_sources() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in files(&root().join("src"), "rs") {
        let text = read(&file);
        for rest in text.split("Opts::new(").skip(1) {
            let name = rest.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
            names.extend(name.map(ToOwned::to_owned));
            assert!(
                name.is_some() || file.ends_with("reference.rs"),
                "{}: a name is not a literal",
                file.display()
            );
        }
        let gauges = text.split("Gauge::new(\"").skip(1).filter_map(|rest| rest.split('"').next());
        names.extend(gauges.map(ToOwned::to_owned));
    }
    names
}

#[test]
fn every_metric_of_the_sources_is_in_the_reference() {
    let page = page("metrics.md");
    let names = metrics_of_the_sources();
    assert!(names.len() > 20, "only these metrics were found: {names:?}");
    let missing: Vec<&String> =
        names.iter().filter(|name| !page.contains(&format!("| `{name}` |"))).collect();
    assert!(missing.is_empty(), "these metrics are not in the reference: {missing:?}");
}

#[test]
fn every_flag_and_command_is_in_the_reference() {
    let page = page("flags.md");
    let commands: Vec<clap::Command> = Cli::command().get_subcommands().cloned().collect();
    for command in commands.iter().filter(|command| !command.is_hide_set()) {
        assert!(page.contains(&format!("## `sluice {}`", command.get_name())), "{}", command.get_name());
        for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
            assert!(page.contains(&format!("--{flag}")), "{} --{flag}", command.get_name());
        }
    }
    // The hidden command that writes these pages is not for users.
    assert!(!page.contains("sluice reference"));
}

/// The texts that a line sets as code.
fn code_spans(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

fn is_path(text: &str) -> bool {
    let folders = ["src/", "tests/", "policies/", "manifests/", "examples/", "docs/"];
    folders.iter().any(|folder| text.starts_with(folder)) && !text.contains(['{', '*', ' ', '…'])
}

#[test]
fn every_file_that_the_design_pages_name_exists() {
    for page in files(&root().join("docs/design"), "md") {
        let text = read(&page);
        let missing: BTreeSet<&str> = text
            .lines()
            .flat_map(code_spans)
            .filter(|path| is_path(path) && !root().join(path).exists())
            .collect();
        assert!(missing.is_empty(), "{} names files that do not exist: {missing:?}", page.display());
    }
}

#[test]
fn every_test_that_guards_a_law_exists() {
    let text = read(&root().join("docs/design/laws.md"));
    let mut missing = Vec::new();
    let mut count = 0;
    for line in text.lines().filter(|line| line.starts_with("- Guarded by: ")) {
        let mut source = String::new();
        for span in code_spans(line) {
            if is_path(span) {
                source = read(&root().join(span));
            } else {
                count += 1;
                // Properties stand in a macro, so the name alone tells a test.
                if !source.contains(&format!("fn {span}(")) {
                    missing.push(span);
                }
            }
        }
    }
    assert!(missing.is_empty(), "laws.md names tests that do not exist: {missing:?}");
    assert!(count > 25, "only {count} tests guard the laws");
}

#[test]
fn every_law_has_its_parts() {
    let text = read(&root().join("docs/design/laws.md"));
    let laws: Vec<&str> = text.split("\n## ").skip(1).collect();
    let numbers = laws.iter().map(|law| law.split('.').next().and_then(|number| number.parse().ok()));
    assert_eq!(numbers.collect::<Vec<Option<usize>>>(), (1..=17).map(Some).collect::<Vec<_>>());
    for law in laws {
        for part in ["**Statement.**", "**Why.**", "- Guarded by: ", "- Implemented in: ", "| kept today |"] {
            assert!(law.contains(part), "a law has no {part}: {law}");
        }
    }
}

#[test]
fn every_criterion_of_the_cost_of_a_set_is_in_the_page() {
    let source = read(&root().join("src/engine/preemption/cost.rs"));
    let fields = source.split("pub struct Cost {").nth(1).and_then(|rest| rest.split("\n}").next());
    let fields =
        fields.expect("the struct").lines().filter(|line| line.ends_with(',') && !line.contains("//"));
    let page = read(&root().join("docs/design/preemption.md"));
    let rows = page.lines().filter(|line| {
        let first = line.strip_prefix("| ").and_then(|rest| rest.split(" | ").next());
        first.is_some_and(|first| first.parse::<usize>().is_ok())
    });
    assert_eq!(
        fields.count(),
        rows.count(),
        "docs/design/preemption.md lists the fields of `Cost` in their order"
    );
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut pages = files(&root().join("docs"), "md");
    for folder in ["benches", "policies", "certs", "manifests"] {
        pages.extend(files(&root().join(folder), "md"));
    }
    pages.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| root().join(page)));
    assert!(pages.len() > 25, "only {} pages were found", pages.len());
    let mut broken = Vec::new();
    for page in pages {
        let text = read(&page);
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with('#')) {
            let file = target.split('#').next().unwrap_or_default();
            if !page.parent().expect("a folder").join(file).exists() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}
