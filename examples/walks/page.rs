//! The lines of a page.

/// A line of a page, as far as it belongs to the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Text for its reader.
    Prose(&'a str),
    /// This person types from now on.
    As(&'a str),
    /// An administrator does this beforehand.
    Setup(&'a str),
    /// The command of this number in the next block comes to print this.
    Until(usize, &'a str),
    /// The command of this number in the next block is refused.
    Fails(usize),
    /// A picture of this name, of this page of `sluice web`.
    Picture(&'a str, &'a str),
    /// A command, which may have several lines.
    Command(String),
}

impl Line<'_> {
    /// The comment that says it, if it is one.
    pub fn comment(&self) -> Option<String> {
        Some(match self {
            Line::Prose(_) | Line::Command(_) => return None,
            Line::As(name) => format!("<!-- as {name} -->"),
            Line::Setup(command) => format!("<!-- setup {command} -->"),
            Line::Until(number, text) => format!("<!-- until {number} {text} -->"),
            Line::Fails(number) => format!("<!-- fails {number} -->"),
            Line::Picture(name, path) => format!("<!-- picture {name} {path} -->"),
        })
    }
}

/// The lines of a page without what earlier walks have printed.
pub fn lines(text: &str) -> Vec<Line<'_>> {
    let (mut lines, mut in_console) = (Vec::new(), false);
    let mut following = text.lines();
    while let Some(line) = following.next() {
        let command = line.strip_prefix("$ ").filter(|_| in_console);
        if let Some(comment) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) {
            let (word, about) = comment.split_once(' ').unwrap_or((comment, ""));
            let (first, rest) = about.split_once(' ').unwrap_or((about, ""));
            let number = first.parse();
            lines.push(match word {
                "as" => Line::As(about),
                "setup" => Line::Setup(about),
                "until" => number.map_or(Line::Prose(line), |number| Line::Until(number, rest)),
                "fails" => number.map_or(Line::Prose(line), Line::Fails),
                "picture" => {
                    about.split_once(' ').map_or(Line::Prose(line), |(name, path)| Line::Picture(name, path))
                }
                _ => Line::Prose(line),
            });
        } else if let Some(command) = command {
            let mut command = command.to_owned();
            while command.ends_with('\\') {
                command = format!("{command}\n{}", following.next().unwrap_or_default());
            }
            lines.push(Line::Command(command));
        } else if !in_console || line == "```" {
            in_console = line == "```console";
            lines.push(Line::Prose(line));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_printed_goes_and_the_rest_stays() {
        let text = "Text.\n<!-- as nina -->\n<!-- until 1 it runs -->\n```console\n$ sluice queue \\\n  -A\nOLD\n$ id\n```\n<!-- note -->\n";
        assert_eq!(
            lines(text),
            [
                Line::Prose("Text."),
                Line::As("nina"),
                Line::Until(1, "it runs"),
                Line::Prose("```console"),
                Line::Command("sluice queue \\\n  -A".to_owned()),
                Line::Command("id".to_owned()),
                Line::Prose("```"),
                Line::Prose("<!-- note -->"),
            ]
        );
    }
}
