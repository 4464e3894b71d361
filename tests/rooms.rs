//! The house as ARCHITECTURE.md tells it: no room imports one above it, and inside of `cluster` there are no circles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What each part of the house imports of it.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        let test = path.file_stem().is_some_and(|name| name.to_string_lossy().contains("test"));
        if path.is_dir() && !path.ends_with("src/engine") && !test {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !test {
            found.push(path);
        }
    }
}

/// The modules from the root of the crate down to the one in this file.
fn module(file: &Path, root: &Path) -> Vec<String> {
    let inside = file.strip_prefix(root).expect("a source").with_extension("");
    let mut module: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    module
}

/// The paths that a text imports by `crate` or `super`, from the root of the crate.
fn paths(module: &[String], text: &str) -> Vec<Vec<String>> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    for (at, word) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        // The last of several in a row tells how far up it goes.
        let rest = &code[at + word.len()..];
        if rest.starts_with("super::") {
            continue;
        }
        let ups =
            code[..at + word.len()].rsplit("::").skip(1).take_while(|part| part.ends_with("super")).count();
        let base = if word == "crate::" { &[][..] } else { &module[..module.len().saturating_sub(ups)] };
        for item in items(rest) {
            let item = item.split("::").map(|part| part.trim().to_owned());
            found.push(base.iter().cloned().chain(item).collect());
        }
    }
    found
}

/// What a path begins with, of each item where it goes on with a list of them.
fn items(rest: &str) -> Vec<&str> {
    let end_of_name =
        |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    let Some(list) = rest.strip_prefix('{') else { return vec![&rest[..end_of_name(rest)]] };
    let mut depth = 0_usize;
    let mut items = Vec::new();
    let mut begin = 0;
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                items.push(list[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
        if c == '}' && begin == at + 1 {
            break;
        }
    }
    items
}

/// The imports between parts, where `part` tells the part of a module.
fn imports(part: impl Fn(&[String]) -> Option<String>) -> Imports {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    assert!(files.len() > 80, "only {} files were read", files.len());
    let mut imports = Imports::new();
    for file in files {
        let module = module(&file, &root);
        let Some(own) = part(&module) else { continue };
        let text = std::fs::read_to_string(&file).expect("a source");
        let others = paths(&module, &text).into_iter().filter_map(|path| part(&path));
        imports.entry(own.clone()).or_default().extend(others.filter(|other| *other != own));
    }
    imports
}

#[test]
fn no_room_imports_one_above_it() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md"));
    let text = text.expect("ARCHITECTURE.md");
    // A room is told of in the first column, from the top down.
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let mut floors: BTreeMap<String, usize> = BTreeMap::new();
    for (floor, row) in rows.enumerate() {
        for room in row.split('`').step_by(2) {
            floors.insert(room.trim_end_matches('/').trim_end_matches(".rs").to_owned(), floor);
        }
    }
    let imports = imports(|module| module.first().filter(|room| floors.contains_key(*room)).cloned());
    assert!(imports.len() > 15, "only these rooms were found: {:?}", imports.keys());
    for (room, others) in &imports {
        for other in others {
            assert!(floors[other] >= floors[room], "{room} imports {other}, which stands above it");
        }
    }
}

#[test]
fn there_are_no_circles_in_cluster() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cluster");
    let is_module = |name: &str| root.join(name).is_dir() || root.join(format!("{name}.rs")).is_file();
    let mut imports = imports(|module| match module {
        [room, own, ..] if room == "cluster" && is_module(own) => Some(own.clone()),
        _ => None,
    });
    assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 40, "too few imports: {imports:?}");
    // What imports nothing of the rest is in no circle.
    while let Some(free) = imports.iter().find(|(_, others)| others.is_empty()).map(|(own, _)| own.clone()) {
        imports.remove(&free);
        for others in imports.values_mut() {
            others.remove(&free);
        }
    }
    assert!(imports.is_empty(), "these import each other: {imports:?}");
}
