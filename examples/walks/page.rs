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
    /// The next command comes to print this.
    Until(&'a str),
    /// The next command is refused.
    Fails,
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
            Line::Until(text) => format!("<!-- until {text} -->"),
            Line::Fails => "<!-- fails -->".to_owned(),
            Line::Picture(name, path) => format!("<!-- picture {name} {path} -->"),
        })
    }
}

/// The lines of a page without what earlier walks have printed.
pub fn lines(text: &str) -> Vec<Line<'_>> {
    let (mut lines, mut in_console) = (Vec::new(), false);
    let mut rest = text.lines();
    while let Some(line) = rest.next() {
        let command = line.strip_prefix("$ ").filter(|_| in_console);
        if let Some(comment) = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->")) {
            let (word, about) = comment.split_once(' ').unwrap_or((comment, ""));
            lines.push(match word {
                "as" => Line::As(about),
                "setup" => Line::Setup(about),
                "until" => Line::Until(about),
                "fails" => Line::Fails,
                "picture" => {
                    about.split_once(' ').map_or(Line::Prose(line), |(name, path)| Line::Picture(name, path))
                }
                _ => Line::Prose(line),
            });
        } else if let Some(command) = command {
            let mut command = command.to_owned();
            while command.ends_with('\\') {
                command = format!("{command}\n{}", rest.next().unwrap_or_default());
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
        let text = "Text.\n<!-- as nina -->\n```console\n<!-- until runs -->\n$ sluice queue \\\n  -A\nOLD\n$ id\n```\n<!-- note -->\n";
        assert_eq!(
            lines(text),
            [
                Line::Prose("Text."),
                Line::As("nina"),
                Line::Prose("```console"),
                Line::Until("runs"),
                Line::Command("sluice queue \\\n  -A".to_owned()),
                Line::Command("id".to_owned()),
                Line::Prose("```"),
                Line::Prose("<!-- note -->"),
            ]
        );
    }
}
