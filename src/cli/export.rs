//! `sluice export`: a table of the history as CSV or Parquet.

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal as _, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;

use super::Invalid;
use crate::history::export::{csv, parquet};
use crate::history::store::schema::{PUBLISHED, Table};
use crate::history::store::{Location, Store};

/// Options of `sluice export`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The table: runs, segments (what runs were charged over time), transitions (what happened and why) or samples (the
    /// figures of teams every 5 minutes).
    #[arg(value_name = "TABLE", default_value = "runs", value_parser = ["runs", "segments", "transitions", "samples"])]
    table: String,
    /// The store: a file of SQLite or a postgres:// URL.
    #[arg(long, env = "SLUICE_HISTORY", hide_env_values = true, value_name = "FILE|URL")]
    history: String,
    /// File with the password of the PostgreSQL server.
    #[arg(long, value_name = "FILE")]
    history_password_file: Option<PathBuf>,
    /// File with further certificate authorities of the PostgreSQL server, in PEM.
    #[arg(long, value_name = "FILE")]
    history_ca: Option<PathBuf>,
    /// The format.
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
    /// The file to write; by default standard output.
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Comma-separated values, with a head.
    Csv,
    /// Parquet, compressed with Snappy.
    Parquet,
}

/// Writes the table.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let table: &Table = PUBLISHED
        .into_iter()
        .find(|table| table.name == options.table)
        .ok_or_else(|| Invalid(format!("{}: there is no such table", options.table)))?;
    let location =
        Location::parse(&options.history).map_err(|problem| Invalid(format!("--history: {problem}")))?;
    let location = location.with(options.history_password_file.clone(), options.history_ca.clone());
    if options.format == Format::Parquet && options.file.is_none() && std::io::stdout().is_terminal() {
        return Err(Invalid("--format parquet: name a --file; a terminal cannot show it".to_owned()).into());
    }
    let mut store = Store::read(&location).with_context(|| format!("--history {location}"))?;
    let closed = Arc::new(AtomicBool::new(false));
    let mut output: Box<dyn Write + Send> = match &options.file {
        Some(path) => {
            let file = File::create(path).map_err(|error| Invalid(format!("{}: {error}", path.display())))?;
            Box::new(BufWriter::new(file))
        }
        None => Box::new(BufWriter::new(Pipe { closed: Arc::clone(&closed) })),
    };
    let written = match options.format {
        Format::Csv => csv(&mut store, table, &mut output),
        Format::Parquet => parquet(&mut store, table, &mut output),
    };
    let written = written.map_err(anyhow::Error::from).and_then(|()| Ok(output.flush()?));
    // A pipe may be closed before its end: the next program has enough.
    if closed.load(Ordering::Relaxed) { Ok(()) } else { written }
}

/// Standard output, which may be a closed pipe: writers of formats wrap its errors, so it notes that itself.
struct Pipe {
    closed: Arc<AtomicBool>,
}

impl Pipe {
    fn noted<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        if outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            self.closed.store(true, Ordering::Relaxed);
        }
        outcome
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outcome = io::stdout().write(bytes);
        self.noted(outcome)
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = io::stdout().flush();
        self.noted(outcome)
    }
}
