//! Law 10: the engine stays pure. It has no I/O, no clock and no unordered maps.

use std::path::{Path, PathBuf};

/// Words that no source of the engine may contain, each with the reason.
const FORBIDDEN: [(&str, &str); 12] = [
    ("kube::", "Kubernetes belongs to the adapters"),
    ("k8s_openapi", "Kubernetes belongs to the adapters"),
    ("tokio", "no I/O"),
    ("axum", "no I/O"),
    ("std::fs", "no I/O"),
    ("tracing", "events are returned, not logged"),
    ("prometheus", "figures are returned, not counted"),
    ("async ", "decisions wait for nothing"),
    ("HashMap", "its order differs from run to run"),
    ("HashSet", "its order differs from run to run"),
    ("::now()", "time is an argument"),
    ("SystemTime", "time is an argument"),
];

#[test]
fn law_10_the_engine_has_no_io_no_clock_and_no_unordered_maps() {
    let mut folders = vec![PathBuf::from(env!("CARGO_MANIFEST_DIR"))];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the engine's sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files += 1;
                is_pure(&path);
            }
        }
    }
    assert!(files > 50, "only {files} files were read");
}

fn is_pure(path: &Path) {
    let text = std::fs::read_to_string(path).expect("a source file");
    let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    for (number, line) in code {
        for (word, why) in FORBIDDEN {
            assert!(!line.contains(word), "{}:{}: {word}: {why}", path.display(), number + 1);
        }
        let float = line.contains("f64") || line.contains("f32");
        assert!(!float || line.contains("lossy") || path.ends_with("amount.rs"), "{line}: no floats");
    }
}
