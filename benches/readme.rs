//! Writes the tables of a benchmark into `benches/README.md`.

use std::path::Path;

/// Replaces the text between `<!-- BEGIN name -->` and `<!-- END name -->` by `table`.
///
/// # Errors
/// A line that names the file, when it cannot be read or written or a marker is missing.
pub fn write(name: &str, table: &str) -> Result<(), String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|directory| directory.join("benches/README.md"))
        .find(|file| file.is_file())
        .ok_or("benches/README.md does not exist")?;
    let failed = |error: std::io::Error| format!("{}: {error}", file.display());
    let text = std::fs::read_to_string(&file).map_err(failed)?;
    std::fs::write(&file, replace(&text, name, table)?).map_err(failed)
}

fn replace(text: &str, name: &str, table: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- BEGIN {name} -->"), format!("<!-- END {name} -->"));
    let parts = text.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("benches/README.md: {begin} or {end} is missing"))?;
    Ok(format!("{before}{begin}\n{}\n{end}{after}", table.trim_end()))
}
