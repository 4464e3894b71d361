//! Printing to standard output, which may be a closed pipe.

use std::io::{ErrorKind, Write};

use clap::ValueEnum;
use serde::Serialize;

use super::grid::{self, Column};
use super::screen::Screen;
use crate::view::answers::Kind;

/// Output formats of the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text tables.
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Output formats of commands that ask a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// Text for people.
    Table,
    /// The same with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Comma-separated values with every column; lengths of time in seconds.
    Csv,
    /// Only names.
    Name,
}

/// The output of a command.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Output format. `sluice schema` prints the schemas of the documents.
    #[arg(long, short, value_enum, default_value_t = Form::Table, help_heading = super::COMMON)]
    pub output: Form,
    /// Leave out the titles of columns.
    #[arg(long, help_heading = super::COMMON)]
    pub no_headers: bool,
}

/// Prints a text; colours only where the terminal has them and NO_COLOR is not set. A closed pipe is no error.
pub fn text(text: &str) -> anyhow::Result<()> {
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a result of the simulator in the chosen format.
pub fn answer<T: Serialize>(
    output: Output,
    answer: &T,
    table: impl FnOnce(&T) -> String,
) -> anyhow::Result<()> {
    text(&match output {
        Output::Table => format!("{}\n", table(answer)),
        Output::Json => json(answer)?,
        Output::Yaml => serde_saphyr::to_string(answer)?,
    })
}

fn json(document: &impl Serialize) -> anyhow::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(document)?))
}

/// Prints a document of these rows, as JSON or YAML.
///
/// # Errors
/// When it cannot be written.
pub fn document(kind: Kind, rows: &impl Serialize, yaml: bool) -> anyhow::Result<()> {
    let document = kind.document(rows)?;
    text(&if yaml { serde_saphyr::to_string(&document)? } else { json(&document)? })
}

/// An answer in each of its forms.
pub struct Answer<'a, T, A> {
    /// The kind of its document.
    pub kind: Kind,
    /// The document's rows or fields.
    pub document: &'a A,
    /// Its rows.
    pub rows: &'a [T],
    /// Every column.
    pub columns: &'a [&'a Column<T>],
    /// The name of a row.
    pub name: fn(&T) -> String,
}

impl<T, A: Serialize> Answer<'_, T, A> {
    /// The answer as programs read it; `None` in the formats for people.
    ///
    /// # Errors
    /// When the answer cannot be written in that format.
    pub fn plain(&self, options: &Options, screen: &Screen) -> anyhow::Result<Option<String>> {
        Ok(Some(match options.output {
            Form::Table | Form::Wide => return Ok(None),
            Form::Json => json(&self.kind.document(self.document)?)?,
            Form::Yaml => serde_saphyr::to_string(&self.kind.document(self.document)?)?,
            Form::Csv => grid::csv(self.columns, self.rows, screen, !options.no_headers)?,
            Form::Name => self.rows.iter().map(|row| format!("{}\n", (self.name)(row))).collect(),
        }))
    }

    /// Prints the answer; `table` is its text for people.
    ///
    /// # Errors
    /// When the answer cannot be written.
    pub fn print(
        &self,
        options: &Options,
        screen: &Screen,
        table: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        match self.plain(options, screen)? {
            Some(plain) => text(&plain),
            None => text(&format!("{}\n", table())),
        }
    }
}
