//! What commands that act print: sentences, names or one document.

use super::call::{Form, Options};
use super::object::Object;
use crate::cli::print;
use crate::view::answers::{ActionRow, Kind};

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

    /// Adds what has been done to a queue of a team, or what there was not to do.
    pub fn queue(&mut self, team: &str, queue: &str, (done, meaning): (bool, &str)) -> anyhow::Result<()> {
        self.add(ActionRow {
            action: self.action.to_owned(),
            done,
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
