//! Holds the generated reference to the code that it describes.

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
    assert_eq!(files(&folder, "md").into_iter().collect::<BTreeSet<_>>(), generated);
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
