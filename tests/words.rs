//! The words of `docs/concepts.md` are the only ones: comments and texts use none that the glossary retired, and their
//! subjects are workloads, teams, nodes and pods, not persons.

use std::path::{Path, PathBuf};

/// Retired words, each with the word that is used instead. A word with a space stands for the words in a row.
const RETIRED: &[(&str, &str)] = &[
    ("anew", "again"),
    ("astray", "misplaced"),
    ("bereft", "with lost pods"),
    ("claimant", "preemptor"),
    ("claimants", "preemptors"),
    ("doubtful", "preemption uncertain"),
    ("epoch", "generation"),
    ("forest", "quota tree"),
    ("foresight", "forecast"),
    ("foretell", "predict"),
    ("foretells", "predicts"),
    ("forgive", "clear"),
    ("hopeful", "may preempt"),
    ("kin", "owner chain"),
    ("mate", "workload of the same team"),
    ("mates", "workloads of the same team"),
    ("owed", "within guarantee"),
    ("parties", "workloads involved"),
    ("prospect", "what-if result"),
    ("scattered", "fragmented"),
    ("seniority", "submission order"),
    ("stakes", "usage totals"),
    ("stirred", "dirty"),
    ("straddle", "would fall below its guarantee"),
    ("straddles", "would fall below its guarantee"),
    ("straddling", "that would fall below its guarantee"),
    ("stranger", "unmanaged pod"),
    ("strangers", "unmanaged pods"),
    ("strayed", "misplaced"),
    ("told", "reported"),
    ("turnless", "without an owner"),
    ("wish", "request"),
    ("wishes", "requests"),
    ("lives off", "borrows"),
    ("live off", "borrow"),
    ("makes room", "frees capacity"),
    ("make room", "free capacity"),
    ("on the books", "in the state"),
    ("out of sight", "masked"),
    ("the books", "the state"),
    ("the edge", "the adapters"),
];

/// Words for persons. A few are left where a person is meant.
const PERSONS: &[&str] =
    &["who", "whose", "whom", "somebody", "someone", "nobody", "everybody", "everyone", "anybody"];
/// The most words for persons in the whole tree.
const MOST_PERSONS: usize = 29;

/// What stands for a word on purpose: names in the interfaces that do not change, and terms of Unix and Kubernetes.
const ALLOWED: &[&str] = &["Unix epoch", "name: stranger"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every file of the project that people read, but golden files, licences and locks.
fn files() -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder of the project") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                let skipped =
                    name.starts_with('.') || path == root().join("target") || path.ends_with("tests/golden");
                folders.extend((!skipped).then_some(path));
                continue;
            }
            let read = ["rs", "go", "md", "yaml", "yml", "json", "sh", "toml", "css", "js"];
            let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
            let is_text = extension.is_some_and(|extension| read.contains(&extension.as_str()));
            if (is_text || name == "Makefile" || name == "Containerfile") && !path.ends_with("tests/words.rs")
            {
                found.push(path);
            }
        }
    }
    assert!(found.len() > 500, "only {} files were found", found.len());
    found.sort();
    found
}

/// The comments and string literals of a source file, line by line; the whole line of any other file.
fn readable(path: &Path, line: &str) -> String {
    let is_source = path.extension().is_some_and(|extension| extension == "rs" || extension == "go");
    if !is_source {
        return line.to_owned();
    }
    let comment = line.find("//").filter(|at| !line[..*at].ends_with(':'));
    let (code, comment) = line.split_at(comment.unwrap_or(line.len()));
    let literals: Vec<&str> = code.split('"').skip(1).step_by(2).collect();
    format!("{} {comment}", literals.join(" "))
}

/// The words of a text in lower case.
fn words(text: &str) -> Vec<String> {
    let text = ALLOWED.iter().fold(text.to_owned(), |text, allowed| text.replace(allowed, ""));
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// Every place in the project with its words.
fn places() -> Vec<(String, Vec<String>)> {
    let mut places = Vec::new();
    for path in files() {
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let name = path.strip_prefix(root()).expect("a file of the project").display().to_string();
        for (number, line) in text.lines().enumerate() {
            let words = words(&readable(&path, line));
            if !words.is_empty() {
                places.push((format!("{name}:{}", number + 1), words));
            }
        }
    }
    places
}

#[test]
fn no_retired_word_is_left() {
    let retired: Vec<(Vec<String>, &str)> =
        RETIRED.iter().map(|(word, instead)| (words(word), *instead)).collect();
    let mut found = Vec::new();
    for (place, line) in places() {
        for (word, instead) in &retired {
            if line.windows(word.len()).any(|there| there == word.as_slice()) {
                found.push(format!("{place}: {} (say: {instead})", word.join(" ")));
            }
        }
    }
    assert!(found.is_empty(), "{} retired words:\n{}", found.len(), found.join("\n"));
}

#[test]
fn hardly_any_sentence_has_a_person_as_its_subject() {
    let mut found = Vec::new();
    for (place, line) in places() {
        found.extend(
            line.iter()
                .filter(|word| PERSONS.contains(&word.as_str()))
                .map(|word| format!("{place}: {word}")),
        );
    }
    assert!(found.len() <= MOST_PERSONS, "{} words for persons:\n{}", found.len(), found.join("\n"));
}
