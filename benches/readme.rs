//! Writes the tables of a benchmark into `benches/README.md`.

use std::path::{Path, PathBuf};

/// Replaces the text between `<!-- BEGIN name -->` and `<!-- END name -->` by `table`.
///
/// # Errors
/// A line that names the file, when it cannot be read or written or a marker is missing.
pub fn write(name: &str, table: &str) -> Result<(), String> {
    update(name, |_| table.to_owned())
}

/// The same with what becomes of the table that is there.
///
/// # Errors
/// As for [`write`].
pub fn update(name: &str, table: impl FnOnce(&str) -> String) -> Result<(), String> {
    let (file, text) = page()?;
    let [before, former, after] = split(&text, name)?;
    let table = table(former);
    std::fs::write(&file, format!("{before}\n{}\n{after}", table.trim_end()))
        .map_err(|error| format!("{}: {error}", file.display()))
}

/// The page and its text.
fn page() -> Result<(PathBuf, String), String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|directory| directory.join("benches/README.md"))
        .find(|file| file.is_file())
        .ok_or("benches/README.md does not exist")?;
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok((file, text))
}

/// The text up to the end of the marker BEGIN, the table, and the text from the marker END.
fn split<'a>(text: &'a str, name: &str) -> Result<[&'a str; 3], String> {
    let (begin, end) = (format!("<!-- BEGIN {name} -->"), format!("<!-- END {name} -->"));
    let places = text.find(&begin).map(|at| at + begin.len()).zip(text.find(&end));
    let (from, to) = places
        .filter(|(from, to)| from <= to)
        .ok_or_else(|| format!("benches/README.md: {begin} or {end} is missing"))?;
    Ok([&text[..from], &text[from..to], &text[to..]])
}
