//! Printing that does not panic when nobody reads on.

use std::io::{ErrorKind, Write, stdout};

use clap::ValueEnum;
use serde::Serialize;

/// How answers are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
    /// For both.
    Yaml,
}

/// Prints a text; a closed pipe is the reader's business.
pub fn text(text: &str) -> anyhow::Result<()> {
    match stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints an answer as chosen.
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
