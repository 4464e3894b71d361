//! The options of all commands that act, and their writes as commands of kubectl.

use std::io::{Write as _, stderr};

use clap::ValueEnum;

use crate::cli::cluster;

/// Cluster and output of a command that acts.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Cluster and namespace.
    #[command(flatten)]
    pub cluster: cluster::Options,
    /// Print each write as a command of kubectl.
    #[arg(long, short, help_heading = crate::cli::COMMON)]
    pub verbose: bool,
    /// Output format. `sluice schema ActionList` prints the schema of the document.
    #[arg(long, short, value_enum, default_value_t = Form::Text, help_heading = crate::cli::COMMON)]
    pub output: Form,
}

/// Output formats of commands that act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// One sentence for each workload or queue.
    Text,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Only the names of what has been written.
    Name,
}

/// Prints a step for kubectl.
pub fn tell(options: &Options, arguments: &[&str]) {
    if options.verbose {
        let quoted = arguments
            .iter()
            .map(|one| if one.contains(['{', ' ', '"']) { format!("'{one}'") } else { (*one).to_owned() });
        // The output of a command that acts may be read by a program, so this goes beside it.
        let _ = writeln!(stderr(), "kubectl {}", quoted.collect::<Vec<_>>().join(" "));
    }
}
