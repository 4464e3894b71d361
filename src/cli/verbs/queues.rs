//! `sluice pause` and `sluice resume`: a queue of a team.

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::call::{Options, tell};
use super::report::Report;
use crate::api::team::Team;
use crate::cli::resources::refused;
use crate::cli::{cluster, complete};

/// A queue.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct QueueArgument {
    /// The team.
    #[arg(value_name = "TEAM", add = complete::teams())]
    team: String,
    /// The queue; by default every queue of the team.
    #[arg(value_name = "QUEUE", add = complete::queues())]
    queue: Option<String>,
}

/// What a paused queue does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// Nothing starts.
    Hold,
    /// Nothing starts, and what may be preempted is evicted.
    Drain,
}

/// `sluice pause`.
pub fn pause(options: &Options, queue: &QueueArgument, paused: Paused) -> anyhow::Result<()> {
    let (value, meaning) = match paused {
        Paused::Hold => ("Hold", "is paused: nothing of it starts, and what runs goes on"),
        Paused::Drain => ("Drain", "is drained: nothing of it starts, and what may be preempted is evicted"),
    };
    write((options, "pause"), queue, value, meaning)
}

/// `sluice resume`.
pub fn resume(options: &Options, queue: &QueueArgument) -> anyhow::Result<()> {
    write((options, "resume"), queue, "", "is open again")
}

fn write(
    (options, action): (&Options, &'static str),
    asked: &QueueArgument,
    value: &str,
    meaning: &str,
) -> anyhow::Result<()> {
    let QueueArgument { team, queue } = asked;
    cluster::with(&options.cluster, async |cluster| {
        let label = format!("team {team}");
        let teams: Api<Team> = Api::all(cluster.client());
        let object = teams.get(team).await.map_err(|error| refused(&label, error))?;
        let named = |name: &str| queue.as_deref().is_none_or(|queue| queue == name);
        let chosen: Vec<(usize, String)> = (object.spec.queues.iter().enumerate())
            .filter(|(_, one)| named(&one.name))
            .map(|(place, one)| (place, one.name.clone()))
            .collect();
        if chosen.is_empty() {
            let names: Vec<&str> = object.spec.queues.iter().map(|one| one.name.as_str()).collect();
            match queue {
                Some(queue) => anyhow::bail!("{label} has no queue {queue}; it has: {}", names.join(", ")),
                None => {
                    anyhow::bail!("{label}: spec.queues lists no queue, and only listed queues can be paused")
                }
            }
        }
        // Each change tests the name, so that a list that was edited meanwhile stays as it is.
        let changes: Vec<_> = (chosen.iter())
            .flat_map(|(place, name)| {
                [
                    json!({"op": "test", "path": format!("/spec/queues/{place}/name"), "value": name}),
                    json!({"op": "add", "path": format!("/spec/queues/{place}/paused"), "value": value}),
                ]
            })
            .collect();
        let text = serde_json::to_string(&changes)?;
        tell(options, &["patch", "team", team, "--type=json", "-p", &text]);
        let patch: json_patch::Patch = serde_json::from_value(json!(changes))?;
        let patched = teams.patch(team, &PatchParams::default(), &Patch::<()>::Json(patch)).await;
        patched.map_err(|error| refused(&label, error))?;
        Report::of(options, action, async |report| {
            chosen.iter().try_for_each(|(_, name)| report.queue(team, name, meaning))
        })
        .await
    })
}
