//! What all commands that act share: the conversation with the cluster, and what is printed of it.

use std::io::{Write as _, stderr};

use crate::cli::Invalid;
use crate::cli::cluster;

/// Cluster and output of a command that acts.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Cluster and namespace.
    #[command(flatten)]
    pub cluster: cluster::Options,
    /// Print the equivalent of each write for kubectl.
    #[arg(long, short)]
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

/// A refusal of the API server as one line.
pub fn refused(label: &str, error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => Invalid(format!("{label}: {}", status.message)).into(),
        other => anyhow::Error::new(other).context("cannot reach the cluster"),
    }
}
