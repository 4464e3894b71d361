//! The few forms of Markdown that the reference pages use.

/// The head of a page: its title, how it is made, and an introduction.
pub fn head(title: &str, introduction: &str) -> String {
    format!(
        "# {title}\n\n<!-- Generated from the code by `make reference`. Do not edit. -->\n\n{introduction}\n"
    )
}

/// A table. An empty cell is shown as a dash.
pub fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String; N]| format!("| {} |\n", cells.join(" | "));
    let rule = format!("|{}\n", "---|".repeat(N));
    let rows = rows.into_iter().map(|row| line(&row.map(|text| cell(&text))));
    [line(&header.map(ToOwned::to_owned)), rule].into_iter().chain(rows).collect()
}

/// A text as one cell: on one line, with no character that ends the cell.
fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() { "–".to_owned() } else { words.join(" ").replace('|', r"\|") }
}

/// A text with a full stop at its end.
pub fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', ':']) { text.to_owned() } else { format!("{text}.") }
}

/// Text set as code.
pub fn code(text: &str) -> String {
    format!("`{text}`")
}

/// Several texts, each set as code.
pub fn codes<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(code).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_its_columns_whatever_its_cells_hold() {
        let rows = [["a|b".to_owned(), "two\nlines".to_owned()], [String::new(), "x".to_owned()]];
        let expected = "| one | two |\n|---|---|\n| a\\|b | two lines |\n| – | x |\n";
        assert_eq!(table(["one", "two"], rows), expected);
    }

    #[test]
    fn a_sentence_has_one_full_stop() {
        for (text, expected) in [("Only this part", "Only this part."), ("All. ", "All."), ("", "")] {
            assert_eq!(sentence(text), expected);
        }
    }
}
