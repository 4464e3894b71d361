//! What all commands that act share: the conversation with the cluster, and what is printed of it.

use std::io::{Write as _, stderr};

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
