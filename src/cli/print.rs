//! Printing to standard output, which may be a closed pipe.

use std::io::{ErrorKind, Write, stdout};

use clap::ValueEnum;
use serde::Serialize;

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text tables.
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Prints a text; a closed pipe is no error.
pub fn text(text: &str) -> anyhow::Result<()> {
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints an answer in the chosen format.
pub fn answer<T: Serialize>(
    output: Output,
    answer: &T,
    table: impl FnOnce(&T) -> String,
) -> anyhow::Result<()> {
    text(&match output {
        Output::Table => format!("{}\n", table(answer)),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(answer)?),
        Output::Yaml => serde_saphyr::to_string(answer)?,
    })
}
