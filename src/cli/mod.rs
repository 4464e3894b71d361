//! The command line: what there is to run, and where it goes.

mod ask;
mod logs;
mod print;
mod simulate;
mod table;
mod target;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use thiserror::Error;

use self::target::Target;
use crate::kinds::Kinds;
use crate::kinds::policies::{self, Part};
use crate::serve;

/// Something the user gave that cannot be taken: told in one line, exit code 2.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Invalid(pub String);

/// Lets teams share a GPU cluster with ordinary Jobs.
///
/// Label a namespace with `sluice.dev/team` and submit Jobs as ever: Sluice holds them, starts them
/// when their team's guarantee or idle capacity allows, and takes borrowed capacity back for its owners.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the admission webhook and the controller against a cluster.
    Serve {
        /// Everything about where and as whom.
        #[command(flatten)]
        options: Box<serve::Options>,
        /// How to log.
        #[command(flatten)]
        logs: logs::Options,
    },
    /// Play a scenario without a cluster, with the engine that also runs clusters.
    ///
    /// A scenario is the very objects that one would apply: Namespaces, Teams, NodePools, Nodes,
    /// PriorityClasses, Jobs and Pods, and for claimed devices (DRA) DeviceClasses, ResourceSlices,
    /// ResourceClaimTemplates and ResourceClaims.
    ///
    /// Annotations `simulate.sluice.dev/…` say when, all in text such as `90s` or `1h30m`: `at` and `delete-at`
    /// when an object comes and goes (an object applied again later is changed); `duration` how long the pods of
    /// a Job or Pod run (for ever without it); `count` how many copies there are, named `name-0`, `name-1`, …, of a
    /// Job, Pod or Node; `running-on` where it runs from the beginning (`n0`, or pods per node: `n0=2,n1=1`);
    /// `cordon-at` and `fail-at` when a Node is closed or lost.
    ///
    /// Pods end their terminationGracePeriodSeconds after they are told to, at once if it is not set. What is in
    /// no team's namespace, and pods that name their node, run as load that Sluice does not manage: each pod on the
    /// first node by name with room.
    Simulate(simulate::Options),
    /// Print the CustomResourceDefinitions, ready for `kubectl apply -f -`.
    Crds,
    /// Write the reference pages, which are generated from the code, into a folder.
    #[command(hide = true)]
    Reference {
        /// The folder, such as docs/reference.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Print the policies and rights for the kinds besides Job and Pod, ready for `kubectl apply -f -`.
    Kinds {
        /// File with a table of kinds, in place of the one built in.
        #[arg(long, value_name = "FILE")]
        kinds: Option<PathBuf>,
        /// Only this part.
        #[arg(long, value_enum)]
        part: Option<Part>,
    },
    /// Show what each team is promised, holds, borrows and lends.
    Teams(ask::Options),
    /// Show each node's GPUs and who holds them.
    Nodes(ask::Options),
    /// Show what waits and what runs, oldest first, with the reason in one line.
    Queue {
        /// Only this team's.
        #[arg(long, short, value_name = "TEAM")]
        team: Option<String>,
        /// Also what has ended.
        #[arg(long, short)]
        all: bool,
        /// Where to ask and how to print.
        #[command(flatten)]
        options: ask::Options,
    },
    /// Say why a Job or Pod is where it is: the rule, the numbers and the parties.
    Explain {
        /// The Job, Pod or other workload: NAMESPACE/NAME as `sluice queue` shows it, or as for kubectl NAME,
        /// KIND/NAME or KIND NAME together with --namespace (`job/train -n vision`).
        #[arg(value_name = "WORKLOAD", required = true, num_args = 1..=2)]
        workload: Vec<String>,
        /// Its namespace.
        #[arg(long, short, value_name = "NAME")]
        namespace: Option<String>,
        /// Where to ask and how to print.
        #[command(flatten)]
        options: ask::Options,
    },
    /// Say what would become of a Job if it were submitted now: when and where it would start, and who would
    /// have to go for it. Nothing is submitted.
    WhatIf {
        /// The Job, as one would apply it.
        #[arg(long, short, value_name = "FILE")]
        file: PathBuf,
        /// Its namespace, if the file does not say.
        #[arg(long, short, value_name = "NAME")]
        namespace: Option<String>,
        /// Where to ask and how to print.
        #[command(flatten)]
        options: ask::Options,
    },
}

impl Cli {
    /// Runs the command to its end.
    ///
    /// # Errors
    /// [`Invalid`] for what the user can mend, anything else for what failed.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Serve { options, logs } => {
                logs.start()?;
                let kinds = table_of_kinds(options.kinds.as_deref())?;
                let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
                runtime.block_on(serve::run(*options, kinds))
            }
            Command::Simulate(options) => simulate::run(&options),
            Command::Crds => print::text(&crate::crds::crds_yaml()?),
            Command::Reference { folder } => write_reference(&folder),
            Command::Kinds { kinds, part } => {
                let kinds = table_of_kinds(kinds.as_deref())?;
                let parts =
                    part.map_or(vec![Part::Rights, Part::Validating, Part::Mutating], |part| vec![part]);
                let text: Result<String, _> =
                    parts.into_iter().map(|part| policies::yaml(&kinds, part)).collect();
                print::text(&text?)
            }
            Command::Teams(options) => ask::teams(&options),
            Command::Nodes(options) => ask::nodes(&options),
            Command::Queue { team, all, options } => ask::queue(&options, team.as_deref(), all),
            Command::Explain { workload, namespace, options } => {
                ask::explain(&options, &Target::read(&workload, namespace.as_deref())?)
            }
            Command::WhatIf { file, namespace, options } => {
                ask::what_if(&options, &file, namespace.as_deref())
            }
        }
    }
}

/// Writes every page of the reference.
fn write_reference(folder: &Path) -> anyhow::Result<()> {
    for page in crate::reference::pages(&Cli::command())? {
        let path = folder.join(page.file);
        std::fs::write(&path, page.text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The table of kinds to go by.
fn table_of_kinds(file: Option<&Path>) -> Result<Kinds, Invalid> {
    Kinds::load(file).map_err(|error| Invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
