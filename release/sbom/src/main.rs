//! Writes a CycloneDX 1.6 SBOM of the binary to standard output.
//!
//! It reads `cargo metadata` on standard input, and Cargo.lock at the path of its first argument for the checksums; the second
//! argument is the commit, and the third the time of the commit in RFC 3339. Only crates that are linked into the binary count: none that only
//! tests and builds use.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::Write as _;

use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [lock, commit, time] = arguments.as_slice() else { return Err("arguments: LOCK COMMIT TIME".into()) };
    let metadata: Value = serde_json::from_reader(std::io::stdin())?;
    let document = sbom(&metadata, &checksums(&std::fs::read_to_string(lock)?), commit, time)?;
    let mut text = serde_json::to_vec_pretty(&document)?;
    text.push(b'\n');
    Ok(std::io::stdout().write_all(&text)?)
}

/// The SHA-256 of each crate, by its reference.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in lock.split("[[package]]") {
        let field = |name: &str| {
            let line = entry.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")))?;
            line.strip_suffix('"')
        };
        if let (Some(name), Some(version), Some(sum)) = (field("name"), field("version"), field("checksum")) {
            found.insert(format!("pkg:cargo/{name}@{version}"), sum.to_owned());
        }
    }
    found
}

fn text<'a>(value: &'a Value, field: &str) -> Result<&'a str, String> {
    value[field].as_str().ok_or_else(|| format!("cargo metadata: no text {field} in {value}"))
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value[field].as_array().into_iter().flatten()
}

fn sbom(
    metadata: &Value,
    checksums: &BTreeMap<String, String>,
    commit: &str,
    time: &str,
) -> Result<Value, String> {
    let mut packages = BTreeMap::new();
    for package in list(metadata, "packages") {
        packages.insert(text(package, "id")?, package);
    }
    let mut needs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in list(&metadata["resolve"], "nodes") {
        let linked =
            list(node, "deps").filter(|need| list(need, "dep_kinds").any(|kind| kind["kind"].is_null()));
        let linked: Result<_, _> = linked.map(|need| text(need, "pkg")).collect();
        needs.insert(text(node, "id")?, linked?);
    }
    let of = |id: &str| packages.get(id).copied().ok_or_else(|| format!("cargo metadata: no package {id}"));
    let root =
        packages.iter().find(|(_, package)| package["name"] == "sluice" && package["source"].is_null());
    let (root, _) = root.ok_or("cargo metadata: no package sluice")?;
    let mut linked = BTreeSet::new();
    let mut waiting = vec![*root];
    while let Some(id) = waiting.pop() {
        if linked.insert(id) {
            waiting.extend(needs.get(id).into_iter().flatten());
        }
    }

    let reference = |id: &str| -> Result<String, String> {
        let package = of(id)?;
        Ok(format!("pkg:cargo/{}@{}", text(package, "name")?, text(package, "version")?))
    };
    let mut components = BTreeMap::new();
    let mut dependencies = Vec::new();
    for id in &linked {
        let (package, own) = (of(id)?, reference(id)?);
        let kind = if id == root { "application" } else { "library" };
        let mut component = json!({"type": kind, "bom-ref": own, "name": package["name"],
            "version": package["version"], "purl": own});
        if let Some(licence) = package["license"].as_str() {
            // Older crates separate alternatives by a slash.
            component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
        }
        if let Some(sum) = checksums.get(&own) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
        }
        let others: Result<Vec<String>, String> =
            needs.get(id).into_iter().flatten().map(|other| reference(other)).collect();
        dependencies.push(json!({"ref": own, "dependsOn": others?}));
        components.insert(own, component);
    }
    let own = components.remove(&reference(root)?).unwrap_or_default();
    Ok(json!({
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"timestamp": time, "component": own,
            "properties": [{"name": "sluice:commit", "value": commit}]},
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn every_linked_crate_is_named_with_licence_and_checksum_and_no_other() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let cargo = option_env!("CARGO").unwrap_or("cargo");
        let metadata = Command::new(cargo)
            .args(["metadata", "--format-version=1", "--locked", "--offline"])
            .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
            .current_dir(root)
            .output()
            .expect("cargo runs");
        let said = String::from_utf8_lossy(&metadata.stderr);
        assert!(metadata.status.success(), "{said}");
        let metadata: Value = serde_json::from_slice(&metadata.stdout).expect("it is JSON");
        let lock = std::fs::read_to_string(format!("{root}/Cargo.lock")).expect("the lock can be read");
        let document =
            sbom(&metadata, &checksums(&lock), "abc", "2026-11-25T00:00:00Z").expect("it is complete");
        let components: Vec<&Value> = list(&document, "components").collect();
        let names: BTreeSet<&str> =
            components.iter().filter_map(|component| component["name"].as_str()).collect();
        for name in ["axum", "kube", "rustls", "sluice-engine"] {
            assert!(names.contains(name), "no {name} in {names:?}");
        }
        for name in ["jsonschema", "proptest", "sluice-harness", "tempfile"] {
            assert!(!names.contains(name), "{name} is of tests");
        }
        let own = ["sluice-engine"];
        let others = components.iter().filter(|component| !own.iter().any(|name| component["name"] == *name));
        for component in others {
            assert!(component["hashes"].is_array() && component["licenses"].is_array(), "{component}");
        }
        let mut known: BTreeSet<&str> =
            components.iter().filter_map(|component| component["bom-ref"].as_str()).collect();
        known.extend(document["metadata"]["component"]["bom-ref"].as_str());
        let is_known = |reference: &Value| reference.as_str().is_some_and(|name| known.contains(name));
        for entry in list(&document, "dependencies") {
            assert!(is_known(&entry["ref"]), "{entry}");
            assert!(list(entry, "dependsOn").all(is_known), "{entry}");
        }
    }
}
