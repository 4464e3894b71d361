//! The rooms of ARCHITECTURE.md: no room imports a room above it, inside the engine a room imports only what its line
//! allows, and no file anywhere imports itself through others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The imports between parts of the project, by the part that imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// A crate: its folder below the project, and the names by which its files call its root.
struct Crate {
    folder: &'static str,
    /// Folders inside that are crates of their own.
    without: &'static [&'static str],
}

const PRODUCT: Crate = Crate { folder: "src", without: &["src/engine"] };
const ENGINE: Crate = Crate { folder: "src/engine", without: &[] };
/// Every crate, benchmarks, tests and examples with several files included.
const CRATES: &[Crate] = &[
    PRODUCT,
    ENGINE,
    Crate { folder: "tests/harness/src", without: &[] },
    Crate { folder: "tests/e2e", without: &[] },
    Crate { folder: "tests/engine", without: &[] },
    Crate { folder: "tests/hostile", without: &[] },
    Crate { folder: "tests/manifests", without: &[] },
    Crate { folder: "tests/monitoring", without: &[] },
    Crate { folder: "tests/scenarios", without: &[] },
    Crate { folder: "tests/web", without: &[] },
    Crate { folder: "benches/cluster", without: &[] },
    Crate { folder: "benches/engine", without: &[] },
    Crate { folder: "benches/packing", without: &[] },
    Crate { folder: "benches/queueing", without: &[] },
    Crate { folder: "benches/scale", without: &[] },
    Crate { folder: "examples/demo", without: &[] },
    Crate { folder: "examples/walks", without: &[] },
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Crate {
    fn root(&self) -> PathBuf {
        root().join(self.folder)
    }

    /// Every source file but unit tests.
    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.root()];
        while let Some(folder) = folders.pop() {
            let entries = std::fs::read_dir(&folder).unwrap_or_else(|_| panic!("{}", folder.display()));
            for entry in entries {
                let path = entry.expect("an entry of a folder").path();
                let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
                let is_test = name == "tests" || name.ends_with("_tests");
                if path.is_dir() && !is_test && !self.without.iter().any(|other| path.ends_with(other)) {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
                    found.push(path);
                }
            }
        }
        found
    }

    /// The modules from the root of the crate down to the one in this file.
    fn module(&self, file: &Path) -> Vec<String> {
        let inside = file.strip_prefix(self.root()).expect("a file of the crate").with_extension("");
        let mut module: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str())) {
            module.pop();
        }
        module
    }

    /// The imports between parts, where `part` names the part that a path from the root of the crate leads to.
    fn imports(&self, part: impl Fn(&[String]) -> Option<String>) -> Imports {
        let mut imports = Imports::new();
        for file in self.files() {
            let module = self.module(&file);
            let Some(own) = part(&module) else { continue };
            let others = paths(&module, &read(&file)).into_iter().filter_map(|path| part(&path));
            imports.entry(own.clone()).or_default().extend(others.filter(|other| *other != own));
        }
        imports
    }

    /// The imports between files, each named by its module.
    fn imports_of_files(&self) -> Imports {
        let modules: BTreeSet<Vec<String>> = self.files().iter().map(|file| self.module(file)).collect();
        self.imports(|path| {
            let lengths = (0..=path.len()).rev();
            let module = lengths.map(|length| &path[..length]).find(|module| modules.contains(*module))?;
            Some(if module.is_empty() { "the root".to_owned() } else { module.join("::") })
        })
    }
}

/// The paths by `crate` or `super` in a file, from the root of the crate. A file that lists its own modules, or hands
/// on names of them, does not import them by that.
fn paths(module: &[String], text: &str) -> Vec<Vec<String>> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<&str>>().join("\n");
    let mut found = Vec::new();
    for (at, word) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        // The last of several in a row tells how far up it leads.
        let rest = &code[at + word.len()..];
        if rest.starts_with("super::") || code[..at].ends_with("pub use ") {
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

/// The beginning of a path; where it goes on with a list, that of each item.
fn items(rest: &str) -> Vec<&str> {
    let end_of_name =
        |text: &str| text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    let Some(list) = rest.strip_prefix('{') else { return vec![&rest[..end_of_name(rest)]] };
    let (mut depth, mut begin) = (0_usize, 0);
    let mut items = Vec::new();
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                items.push(list[begin..at].trim());
                begin = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    items
}

/// The parts that import each other in a circle, directly or through others; empty if there is none.
fn circle(mut imports: Imports) -> Imports {
    let known: BTreeSet<String> = imports.keys().cloned().collect();
    imports.values_mut().for_each(|others| others.retain(|other| known.contains(other)));
    loop {
        // A part that imports nothing of the rest is in no circle, nor is one that nothing of the rest imports.
        let imported: BTreeSet<String> = imports.values().flatten().cloned().collect();
        let free =
            |(own, others): &(&String, &BTreeSet<String>)| others.is_empty() || !imported.contains(*own);
        let Some(free) = imports.iter().find(free).map(|(own, _)| own.clone()) else { return imports };
        imports.remove(&free);
        imports.values_mut().for_each(|others| _ = others.remove(&free));
    }
}

/// The rows of a table of ARCHITECTURE.md that follows a heading, each as its cells.
fn table(heading: &str) -> Vec<Vec<String>> {
    let text = read(&root().join("ARCHITECTURE.md"));
    let lines = text.lines().skip_while(|line| *line != heading).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("## "));
    let rows = lines.filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| format!("`{row}").split(" | ").map(str::to_owned).collect()).collect()
}

/// The names between backticks, without the endings of folders and files.
fn names(cell: &str) -> Vec<String> {
    let names = cell.split('`').skip(1).step_by(2);
    names.map(|name| name.trim_end_matches('/').trim_end_matches(".rs").to_owned()).collect()
}

#[test]
fn no_room_imports_one_above_it() {
    let mut floors: BTreeMap<String, usize> = BTreeMap::new();
    for (floor, row) in table("## Rooms, from the top down").iter().enumerate() {
        floors.extend(names(&row[0]).into_iter().map(|room| (room, floor)));
    }
    let imports = PRODUCT.imports(|module| module.first().filter(|room| floors.contains_key(*room)).cloned());
    assert!(imports.len() > 15, "only these rooms were found: {:?}", imports.keys());
    for (room, others) in &imports {
        for other in others {
            assert!(floors[other] >= floors[room], "{room} imports {other}, which stands above it");
        }
    }
}

#[test]
fn every_room_of_the_engine_imports_only_what_its_line_allows() {
    let rows = table("## Rooms of the engine, from the top down");
    let allowed: BTreeMap<String, Vec<String>> =
        rows.iter().map(|row| (names(&row[0]).remove(0), names(&row[2]))).collect();
    let folders = ENGINE.imports(|module| module.first().cloned());
    let rooms: BTreeSet<&String> = folders.keys().collect();
    assert_eq!(rooms, allowed.keys().collect(), "the rooms of the engine and the lines about them");
    for (at, row) in rows.iter().enumerate() {
        for other in names(&row[2]) {
            let below = rows[at + 1..].iter().any(|row| names(&row[0]).contains(&other));
            assert!(below, "{} may import {other}, which does not stand below it", row[0]);
        }
    }
    let engine = |module: &[String]| match module.first().map(String::as_str) {
        Some("Engine") => Some("engine".to_owned()),
        first => first.map(str::to_owned),
    };
    let imports = ENGINE.imports(engine);
    assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 30, "too few imports: {imports:?}");
    for (room, others) in imports {
        let unexpected: Vec<_> = others.iter().filter(|other| !allowed[&room].contains(other)).collect();
        assert!(unexpected.is_empty(), "{room} imports {unexpected:?}, which its line does not allow");
    }
}

#[test]
fn no_file_imports_itself_through_others() {
    let mut found = 0;
    for part in CRATES {
        let imports = part.imports_of_files();
        found += imports.values().map(BTreeSet::len).sum::<usize>();
        let circle = circle(imports);
        assert!(circle.is_empty(), "in {} these files import each other: {circle:#?}", part.folder);
    }
    assert!(found > 800, "only {found} imports were found");
}

#[test]
fn a_circle_is_found() {
    let import = |own: &str, other: &str| (own.to_owned(), BTreeSet::from([other.to_owned()]));
    let line = Imports::from([import("a", "b"), import("b", "c"), ("c".to_owned(), BTreeSet::new())]);
    assert!(circle(line).is_empty());
    let round = Imports::from([import("a", "b"), import("b", "c"), import("c", "b")]);
    assert_eq!(circle(round).into_keys().collect::<Vec<_>>(), ["b", "c"]);
}
