//! What all commands that act share: the conversation with the cluster, and what is printed of it.

use std::io::{Write as _, stderr};

use clap::ValueEnum;

use super::object::Object;
use crate::cli::{cluster, print};
use crate::view::answers::{ActionRow, Kind};

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
    output: Form,
}

/// Output formats of commands that act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
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

/// What a command has done so far. Sentences and names are printed at once, a document at the end.
pub struct Report {
    action: &'static str,
    form: Form,
    rows: Vec<ActionRow>,
}

impl Report {
    /// A report of `act`, which is printed also where it ends early.
    ///
    /// # Errors
    /// Those of `act`.
    pub async fn of(
        options: &Options,
        action: &'static str,
        act: impl AsyncFnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut report = Self { action, form: options.output, rows: Vec::new() };
        let outcome = act(&mut report).await;
        match report.form {
            Form::Text | Form::Name => {}
            Form::Json => print::document(Kind::ActionList, &report.rows, false)?,
            Form::Yaml => print::document(Kind::ActionList, &report.rows, true)?,
        }
        outcome
    }

    /// Adds what has been done to a workload, or what there was not to do.
    pub fn workload(&mut self, object: &Object, done: bool, meaning: &str) -> anyhow::Result<()> {
        let text = format!("{} {meaning}", object.label());
        self.add(ActionRow {
            action: self.action.to_owned(),
            done,
            kind: object.kind(),
            namespace: Some(object.namespace.clone()),
            team: None,
            name: object.name.clone(),
            message: text,
        })
    }

    /// Adds what has been done to a queue of a team.
    pub fn queue(&mut self, team: &str, queue: &str, meaning: &str) -> anyhow::Result<()> {
        self.add(ActionRow {
            action: self.action.to_owned(),
            done: true,
            kind: "Queue".to_owned(),
            namespace: None,
            team: Some(team.to_owned()),
            name: queue.to_owned(),
            message: format!("queue {queue} of team {team} {meaning}"),
        })
    }

    /// Prints what is no result, where sentences are printed.
    pub fn note(&self, text: &str) -> anyhow::Result<()> {
        if self.form == Form::Text { print::text(&format!("{text}\n")) } else { Ok(()) }
    }

    fn add(&mut self, row: ActionRow) -> anyhow::Result<()> {
        match self.form {
            Form::Text => print::text(&format!("{}\n", row.message))?,
            Form::Name if row.done => {
                print::text(&format!("{}/{}\n", row.kind.to_ascii_lowercase(), row.name))?;
            }
            _ => {}
        }
        self.rows.push(row);
        Ok(())
    }
}
