//! Logging options.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::{EnvFilter, fmt};

use super::Invalid;
use super::log_limit::Limited;

/// The client's own lines about calls that fail, which name neither object nor cause. The caller reports both.
const UNTOLD: &str = "kube_client::client::builder=off";

/// Logging options.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Format of log lines.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    log_format: Format,
    /// Log level: error, warn, info, debug or trace, or a filter such as sluice=debug.
    #[arg(long, env = "RUST_LOG", default_value = "info", value_name = "LEVEL")]
    log_level: String,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

impl Options {
    /// Starts logging to standard error. A fault that lasts is logged at growing intervals.
    ///
    /// # Errors
    /// [`Invalid`] when the filter is malformed.
    pub fn start(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(format!("{UNTOLD},{}", self.log_level))
            .map_err(|error| Invalid(format!("--log-level {}: {error}", self.log_level)))?;
        let colors = std::io::stderr().is_terminal();
        let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
        let format = fmt::format().with_ansi(colors);
        let started = match self.log_format {
            Format::Text => logs.event_format(Limited::text(format.with_target(false))).try_init(),
            Format::Json => logs
                .fmt_fields(fmt::format::JsonFields::new())
                .event_format(Limited::json(format.json().flatten_event(true)))
                .try_init(),
        };
        started.map_err(|error| anyhow::anyhow!(error)).context("cannot start logging")
    }
}
