//! What goes into the image: the build context has all that the build reads, and the dependencies are those that
//! deny.toml allows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files and directories of the root that `.dockerignore` lets into the build context: it leaves all out, then lets
/// names in.
fn context() -> BTreeSet<String> {
    let text = read(&root().join(".dockerignore"));
    let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    assert_eq!(lines.next(), Some("*"), ".dockerignore begins with all");
    lines.map(|line| line.strip_prefix('!').expect("then it lets names in").to_owned()).collect()
}

/// All files below a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, component| {
        if component == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(component);
        }
        plain
    })
}

/// Whether a file is in the build context.
fn is_in(context: &BTreeSet<String>, file: &Path) -> bool {
    let name = file.strip_prefix(root()).ok().and_then(|file| file.components().next());
    name.is_some_and(|name| context.contains(&*name.as_os_str().to_string_lossy()))
}

fn metadata(directory: &Path, arguments: &[&str]) -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn the_build_context_has_every_file_that_the_build_reads() {
    let context = context();
    let mut included = 0;
    for source in files(&root().join("src")) {
        if source.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = read(&source);
        for rest in text.split("include_str!(\"").chain(text.split("include_bytes!(\"")).skip(1) {
            let Some((path, _)) = rest.split_once("\")").filter(|(path, _)| !path.contains('\n')) else {
                continue;
            };
            let file = plain(&source.parent().expect("a directory").join(path));
            if !file.exists() {
                continue;
            }
            assert!(is_in(&context, &file), "{} includes {}", source.display(), file.display());
            included += 1;
        }
    }
    assert!(included >= 5, "only {included} included files were found");
    // The manifest of the project is complete with nothing but the context: every target of it is there.
    let directory = tempfile::tempdir().expect("a directory");
    for name in &context {
        let from = root().join(name);
        let files = if from.is_dir() { files(&from) } else { vec![from] };
        for file in files {
            let to = directory.path().join(file.strip_prefix(root()).expect("a file of the project"));
            fs::create_dir_all(to.parent().expect("a directory")).expect("it can be made");
            fs::copy(&file, &to).expect("it can be copied");
        }
    }
    let found = metadata(directory.path(), &["--no-deps"]);
    let targets = found["packages"].as_array().into_iter().flatten();
    let targets = targets.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let binary = |target: &Value| target["kind"][0] == "bin" && target["name"] == "sluice";
    assert!(targets.into_iter().any(binary), "the context builds the binary");
}

#[test]
fn every_dependency_has_an_allowed_license_and_comes_from_the_registry() {
    let rules = read(&root().join("deny.toml"));
    let list = rules.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).expect("a list");
    let allowed: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
    let found = metadata(root(), &["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let packages = found["packages"].as_array().expect("packages");
    assert!(packages.len() > 100);
    for package in packages {
        let name = &package["name"];
        let Some(source) = package["source"].as_str() else { continue };
        assert_eq!(source, "registry+https://github.com/rust-lang/crates.io-index", "{name}");
        let license = package["license"].as_str().unwrap_or_default();
        // Of alternatives one is enough; where licenses apply together, all of them are needed.
        let together = license.replace(['(', ')'], "");
        let covered = together.split(" AND ").all(|part| {
            part.replace('/', " OR ").split(" OR ").any(|license| allowed.contains(license.trim()))
        });
        assert!(covered, "{name} has the license {license:?}, which deny.toml does not allow");
    }
}
