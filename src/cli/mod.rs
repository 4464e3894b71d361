//! The command line.

mod accounts;
mod ask;
mod cluster;
mod columns;
mod complete;
mod export;
mod grid;
mod human;
mod import;
mod known;
mod log_limit;
mod logs;
mod manual;
mod print;
mod queue;
mod resources;
mod screen;
mod simulate;
mod table;
mod target;
mod verbs;
mod web;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use thiserror::Error;

use crate::kinds::policies::{self, Part};
use crate::kinds::{Kind as CustomKind, Kinds};
use crate::serve;
use crate::view::answers::Kind;

/// The heading of the options that all commands share.
const COMMON: &str = "Common options";

/// The end of the help of the program.
const EXIT_CODES: &str = "Exit codes: 0 success, 1 failure or refusal, 2 wrong usage or an invalid file.";

/// Invalid usage or an invalid file: one line, exit code 2.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct Invalid(pub String);

/// Quotas, queues and preemption for GPU clusters with ordinary Jobs and Pods.
///
/// Label a namespace with `sluice.dev/team` and submit Jobs as usual. Sluice queues them, starts them on their team's
/// guaranteed quota or on idle capacity that it borrows, and preempts borrowers when a team needs its guarantee.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the admission webhook and the controller against a cluster.
    Serve {
        /// Cluster, addresses and scheduling options.
        #[command(flatten)]
        options: Box<serve::Options>,
        /// Logging options.
        #[command(flatten)]
        logs: logs::Options,
    },
    /// Play a scenario with the production engine, without a cluster.
    ///
    /// A scenario is YAML as for `kubectl apply`: Namespaces, Teams, NodePools, Nodes, PriorityClasses, Jobs and Pods,
    /// and for claimed devices (DRA) DeviceClasses, ResourceSlices, ResourceClaimTemplates and ResourceClaims.
    ///
    /// Annotations `simulate.sluice.dev/…` set the schedule; times are written as `90s` or `1h30m`. `at`, `delete-at`:
    /// when the object is applied and deleted (an object applied again is changed). `duration`: run time of each pod of
    /// a Job or Pod, by default for ever. `count`: number of copies of a Job, Pod or Node, named `name-0`, `name-1`, ….
    /// `running-on`: nodes on which it runs from the start (`n0`, or pods by node: `n0=2,n1=1`). `cordon-at`,
    /// `fail-at`: when a Node is cordoned or lost.
    ///
    /// Evicted pods end after their terminationGracePeriodSeconds, at once if it is not set. Workloads of namespaces
    /// without a team, and pods that name their node, are unmanaged: each pod runs on the first node by name with
    /// capacity.
    Simulate(simulate::Options),
    /// Print the CustomResourceDefinitions for `kubectl apply -f -`.
    Crds,
    /// Write the generated reference pages to a folder.
    #[command(hide = true)]
    Reference {
        /// The folder, such as docs/reference.
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Print policies and RBAC for workload kinds other than Job and Pod, for `kubectl apply -f -`.
    Kinds {
        /// File with the table of kinds; replaces the built-in table.
        #[arg(long, value_name = "FILE")]
        kinds: Option<PathBuf>,
        /// Print only this part.
        #[arg(long, value_enum)]
        part: Option<Part>,
        /// Print only the right of this kind's operators, such as RayJob.
        #[arg(long, value_name = "KIND", conflicts_with = "part")]
        kind: Option<String>,
        /// Print only the policies of the kinds that the cluster of the kubeconfig serves, and webhook configurations with
        /// rules of these kinds: for an installation without them.
        #[arg(long, conflicts_with_all = ["part", "kind"])]
        installed: bool,
        /// The cluster of --installed.
        #[command(flatten)]
        cluster: cluster::Options,
    },
    /// Show each team's quota: guaranteed, limit, used, borrowed, lent and fair share.
    Teams(ask::Options),
    /// Show each node's GPUs, used and free, and the teams that use them.
    Nodes(ask::Options),
    /// Show waiting and running workloads: your own first, then the oldest first.
    #[command(after_help = EXIT_CODES)]
    Queue {
        /// The workloads to list.
        #[command(flatten)]
        filter: queue::Filter,
        /// Rows and columns.
        #[command(flatten)]
        look: queue::Look,
        /// Cluster and output.
        #[command(flatten)]
        options: ask::Options,
    },
    /// Explain the state of workloads: the reason, the numbers and the workloads involved.
    Explain {
        /// The workloads: NAME, KIND/NAME as for kubectl (`job/train -n vision`), or NAMESPACE/NAME; or one as KIND NAME.
        #[arg(value_name = "WORKLOAD", required = true, add = complete::workloads())]
        workload: Vec<String>,
        /// Cluster and output.
        #[command(flatten)]
        options: ask::Options,
    },
    /// Predict when and where workloads would start if submitted now, and which workloads they would preempt. Nothing
    /// is submitted. Several workloads are judged together, as if they were submitted one after the other.
    WhatIf {
        /// File with workloads, as for `kubectl apply`; `-` is standard input.
        #[arg(long, short, value_name = "FILE", required = true)]
        file: Vec<PathBuf>,
        /// Cluster and output.
        #[command(flatten)]
        options: ask::Options,
    },
    /// Show the runs of a workload, also of one that has long been deleted; without a name those of the namespace, the newest
    /// first: submission, wait, run, nodes, end, and for evictions their rule, the preemptor and the work that was lost.
    #[command(after_help = EXIT_CODES)]
    History {
        /// The runs.
        #[command(flatten)]
        filter: accounts::HistoryFilter,
        /// Cluster and output.
        #[command(flatten)]
        options: ask::Options,
    },
    /// Sum up the past: GPU-hours used within guarantee and borrowed, lent, lost to evictions and waited for, by team, user,
    /// pool or queue; waits; evictions.
    ///
    /// A run counts with the part of it that lies within the bounds, so days add up to their month. Times are those of the
    /// local time zone. `--output json` has exact GPU-seconds, `--output csv` GPU-hours.
    Report {
        /// The report.
        #[command(flatten)]
        report: accounts::ReportOptions,
        /// Cluster and output.
        #[command(flatten)]
        options: ask::Options,
    },
    /// Show what Sluice decides as pages in the browser: every GPU, the queue, the plan, shares, and why work waits.
    ///
    /// The pages ask as the user of the kubeconfig, and listen on this computer alone. The link that is printed works
    /// once. In a cluster, `--forward-token` asks as the user that each request names by its token instead.
    Web(Box<web::Options>),
    /// Hold waiting workloads: they keep their place in the queue, and do not start.
    Hold {
        /// The workloads.
        #[command(flatten)]
        workloads: verbs::Workloads,
        /// Cluster and output.
        #[command(flatten)]
        options: verbs::Options,
    },
    /// Release workloads that are on hold, also those that their user has suspended.
    Release {
        /// The workloads.
        #[command(flatten)]
        workloads: verbs::Workloads,
        /// Cluster and output.
        #[command(flatten)]
        options: verbs::Options,
    },
    /// Put waiting workloads before all other waiting work of the same user.
    Top {
        /// The workloads.
        #[command(flatten)]
        workloads: verbs::Workloads,
        /// Cluster and output.
        #[command(flatten)]
        options: verbs::Options,
    },
    /// Set the order of waiting workloads among the work of the same user: the highest goes first, and 0 is usual.
    Order {
        /// The order, a whole number.
        #[arg(value_name = "ORDER", allow_negative_numbers = true)]
        order: i32,
        /// Among the work of all users of the team, which needs the verb manage on the Team.
        #[arg(long)]
        across_users: bool,
        /// The workloads.
        #[command(flatten)]
        workloads: verbs::Workloads,
        /// Cluster and output.
        #[command(flatten)]
        options: verbs::Options,
    },
    /// Evict running workloads once; they return to their old place in the queue.
    Requeue {
        /// The workloads.
        #[command(flatten)]
        workloads: verbs::Workloads,
        /// Cluster and output.
        #[command(flatten)]
        options: verbs::Options,
    },
    /// Delete workloads, by name or by team, queue, user, state and labels. Asks first.
    Cancel {
        /// The workloads.
        #[command(flatten)]
        chosen: verbs::Chosen,
        /// Cluster and output.
        #[command(flatten)]
        options: verbs::Options,
    },
    /// Wait until workloads run or have ended, and say meanwhile why they wait.
    Wait {
        /// The workloads.
        #[command(flatten)]
        workloads: verbs::Workloads,
        /// What to wait for.
        #[arg(long = "for", value_enum, default_value_t = verbs::Until::Start)]
        until: verbs::Until,
        /// The longest wait, such as 10m; by default without end.
        #[arg(long, value_name = "TIME", value_parser = verbs::duration)]
        timeout: Option<Duration>,
        /// Cluster and output.
        #[command(flatten)]
        options: verbs::Options,
    },
    /// Pause a queue of a team: nothing of it starts.
    Pause {
        /// Team and queue.
        #[command(flatten)]
        queue: verbs::QueueArgument,
        /// Also evict what runs and may be preempted.
        #[arg(long)]
        drain: bool,
        /// Cluster and output.
        #[command(flatten)]
        options: verbs::Options,
    },
    /// Open a paused queue again.
    Resume {
        /// Team and queue.
        #[command(flatten)]
        queue: verbs::QueueArgument,
        /// Cluster and output.
        #[command(flatten)]
        options: verbs::Options,
    },
    /// Write a table of the history as CSV or Parquet.
    ///
    /// It reads the store itself, not through the cluster: a file of SQLite, or a PostgreSQL server.
    Export(export::Options),
    /// Read the set-up of Kueue, or ResourceQuotas, and print Teams, NodePools and labels of namespaces for `kubectl apply`.
    ///
    /// Nothing is written to the cluster. What has no equivalent goes to standard error as a table; `--check` prints it
    /// alone. `--steps` prints the switch, with the Jobs that wait in their order.
    #[command(after_help = EXIT_CODES)]
    Import(import::Options),
    /// Print the JSON Schema of the documents that `--output json` prints.
    Schema {
        /// The kind of document, such as WorkloadList; by default all.
        #[arg(value_name = "KIND", value_parser = manual::kind)]
        kind: Option<Kind>,
    },
    /// Print the script with which a shell completes commands, flags and names of workloads, teams and queues.
    ///
    /// For bash: `source <(sluice completion bash)`. `kubectl` is the program by which kubectl completes `kubectl sluice`.
    Completion {
        /// The shell: bash, elvish, fish, powershell or zsh; or kubectl.
        #[arg(value_name = "SHELL", value_parser = ["bash", "elvish", "fish", "powershell", "zsh", "kubectl"])]
        shell: String,
    },
    /// Print the manual page, or write the pages of all commands to a folder.
    Man {
        /// The folder.
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// Print the version.
    Version {
        /// Output format.
        #[arg(long, short, value_enum, default_value_t = print::Output::Table)]
        output: print::Output,
    },
}

/// Answers a shell that asks for candidates, and ends the process then.
pub fn complete() {
    clap_complete::CompleteEnv::with_factory(Cli::command).var(manual::COMPLETE).complete();
}

impl Cli {
    /// Runs the command to its end.
    ///
    /// # Errors
    /// [`Invalid`] for invalid input; any other error for a failure.
    pub fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Serve { options, logs } => {
                logs.start()?;
                let kinds = table_of_kinds(options.kinds.as_deref())?;
                let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
                runtime.block_on(async {
                    let config = cluster::config(options.kubeconfig.as_deref(), None).await?;
                    serve::run(*options, config, kinds).await
                })
            }
            Command::Simulate(options) => simulate::run(&options),
            Command::Crds => print::text(&crate::crds::crds_yaml()?),
            Command::Reference { folder } => write_reference(&folder),
            Command::Kinds { kinds, part, kind, installed, cluster } => {
                let kinds = table_of_kinds(kinds.as_deref())?;
                if installed {
                    return installed_kinds(&kinds, &cluster);
                }
                if let Some(kind) = kind {
                    let text = policies::operators_yaml(&kinds, &kind);
                    let text =
                        text.ok_or_else(|| Invalid(format!("--kind {kind}: the table has no such kind")))?;
                    return print::text(&text?);
                }
                let all = [Part::Rights, Part::Exemptions, Part::Validating, Part::Mutating];
                let parts = part.map_or(all.to_vec(), |part| vec![part]);
                let text: Result<String, _> =
                    parts.into_iter().map(|part| policies::yaml(&kinds, part)).collect();
                print::text(&text?)
            }
            Command::Teams(options) => ask::teams(&options),
            Command::Nodes(options) => ask::nodes(&options),
            Command::Queue { filter, look, options } => queue::run(&options, &filter, &look),
            Command::Explain { workload, options } => ask::explain(&options, &workload),
            Command::WhatIf { file, options } => ask::what_if(&options, &file),
            Command::History { filter, options } => accounts::history(&options, &filter),
            Command::Report { report, options } => accounts::report(&options, &report),
            Command::Web(options) => web::run(&options),
            Command::Hold { workloads, options } => verbs::hold(&options, &workloads),
            Command::Release { workloads, options } => verbs::release(&options, &workloads),
            Command::Top { workloads, options } => verbs::top(&options, &workloads),
            Command::Order { order, across_users, workloads, options } => {
                verbs::order(&options, order, across_users, &workloads)
            }
            Command::Requeue { workloads, options } => verbs::requeue(&options, &workloads),
            Command::Cancel { chosen, options } => verbs::cancel(&options, chosen),
            Command::Wait { workloads, until, timeout, options } => {
                verbs::wait(&options, &workloads, until, timeout)
            }
            Command::Pause { queue, drain, options } => {
                let paused = if drain { verbs::Paused::Drain } else { verbs::Paused::Hold };
                verbs::pause(&options, &queue, paused)
            }
            Command::Resume { queue, options } => verbs::resume(&options, &queue),
            Command::Export(options) => export::run(&options),
            Command::Import(options) => {
                let complete = import::run(&options)?;
                anyhow::ensure!(complete, "some parts have no equivalent");
                Ok(())
            }
            Command::Schema { kind } => manual::schema(kind),
            Command::Completion { shell } => manual::completion(&shell),
            Command::Man { folder } => manual::pages(Self::command(), folder.as_deref()),
            Command::Version { output } => manual::version(output),
        }
    }
}

/// The API group and version of policies.
const POLICIES: &str = "admissionregistration.k8s.io/v1";

/// Prints the policies and webhook rules of the kinds that the cluster serves.
fn installed_kinds(kinds: &Kinds, options: &cluster::Options) -> anyhow::Result<()> {
    let served: Vec<String> = cluster::with(options, async |cluster| {
        let groups = cluster
            .client()
            .list_api_groups()
            .await
            .map_err(|error| cluster.refused("API groups", error))?
            .groups;
        let versions = groups.into_iter().flat_map(|group| group.versions);
        let mut served = Vec::new();
        for version in versions.map(|version| version.group_version) {
            if version != POLICIES && !kinds.entries().any(|kind| kind.api_version == version) {
                continue;
            }
            let list = cluster.client().list_api_group_resources(&version).await;
            let resources = list.map_err(|error| cluster.refused(&version, error))?.resources;
            served.extend(resources.into_iter().map(|resource| format!("{version}/{}", resource.kind)));
        }
        Ok(served)
    })?;
    let serves = |version: &str, kind: &str| served.contains(&format!("{version}/{kind}"));
    let is_served = |kind: &CustomKind| serves(&kind.api_version, &kind.kind);
    // Without policies that change objects, the webhook alone holds them.
    let mutating = serves(POLICIES, "MutatingAdmissionPolicy").then_some(Part::Mutating);
    let parts = [Part::Validating].into_iter().chain(mutating).chain([Part::Webhooks]);
    let text: Result<String, _> = parts.map(|part| policies::yaml_for(kinds, part, is_served)).collect();
    print::text(&text?)
}

/// Writes every page of the reference.
fn write_reference(folder: &Path) -> anyhow::Result<()> {
    for page in crate::reference::pages(&Cli::command())? {
        let path = folder.join(page.file);
        std::fs::write(&path, page.text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Checks that no more than one of the files is standard input, which can be read only once.
///
/// # Errors
/// [`Invalid`] when two are.
fn standard_input_once<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Invalid> {
    match files.into_iter().filter(|file| file.as_os_str() == "-").count() {
        0 | 1 => Ok(()),
        _ => Err(Invalid("-: standard input is named twice".to_owned())),
    }
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
