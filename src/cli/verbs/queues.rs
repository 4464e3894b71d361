//! `sluice pause` and `sluice resume`: a queue of a team.

use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::call::{Options, tell};
use super::report::Report;
use crate::api::team::{Paused as State, Team, TeamQueue};
use crate::api::values::is_dns_subdomain;
use crate::cli::{cluster, complete};

/// A queue.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct QueueArgument {
    /// The team.
    #[arg(value_name = "TEAM", value_parser = team_name, add = complete::teams())]
    team: String,
    /// The queue; by default every queue of the team.
    #[arg(value_name = "QUEUE", add = complete::queues())]
    queue: Option<String>,
}

/// The name of a team. With a slash in it the request would be for another path, and its error about another team.
fn team_name(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((team, queue)) => Err(format!("team and queue are two arguments: {team} {queue}")),
        None if is_dns_subdomain(text) => Ok(text.to_owned()),
        None => Err("a Team is named by lower case letters, digits, - and .".to_owned()),
    }
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
    let (value, meanings) = match paused {
        Paused::Hold => (
            State::Hold,
            (
                "is paused: nothing of it starts, and what runs goes on",
                "is paused already; nothing of it starts",
            ),
        ),
        Paused::Drain => (
            State::Drain,
            (
                "is drained: nothing of it starts, and what may be preempted is evicted",
                "is drained already; nothing of it starts",
            ),
        ),
    };
    write((options, "pause"), queue, value, meanings)
}

/// `sluice resume`.
pub fn resume(options: &Options, queue: &QueueArgument) -> anyhow::Result<()> {
    write((options, "resume"), queue, State::No, ("is open again", "is not paused"))
}

/// The queues of a team, or the one of this name, by their place in the list: those to change, and those that are in that state.
fn split(queues: &[TeamQueue], name: Option<&str>, to: State) -> (Vec<(usize, String)>, Vec<String>) {
    let named = queues.iter().enumerate().filter(|(_, one)| name.is_none_or(|name| name == one.name));
    let (same, others): (Vec<_>, Vec<_>) = named.partition(|(_, one)| one.paused == to);
    let others = others.into_iter().map(|(place, one)| (place, one.name.clone()));
    (others.collect(), same.into_iter().map(|(_, one)| one.name.clone()).collect())
}

fn write(
    (options, action): (&Options, &'static str),
    asked: &QueueArgument,
    value: State,
    (meaning, already): (&str, &str),
) -> anyhow::Result<()> {
    let QueueArgument { team, queue } = asked;
    cluster::with(&options.cluster, async |cluster| {
        let label = format!("team {team}");
        let teams: Api<Team> = Api::all(cluster.client());
        let object = teams.get(team).await.map_err(|error| cluster.refused(&label, error))?;
        let (chosen, same) = split(&object.spec.queues, queue.as_deref(), value);
        if chosen.is_empty() && same.is_empty() {
            let names: Vec<&str> = object.spec.queues.iter().map(|one| one.name.as_str()).collect();
            match queue {
                Some(queue) if !names.is_empty() => {
                    anyhow::bail!("{label} has no queue {queue}; it has: {}", names.join(", "))
                }
                _ => {
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
        if !changes.is_empty() {
            let text = serde_json::to_string(&changes)?;
            tell(options, &["patch", "team", team, "--type=json", "-p", &text]);
            let patch: json_patch::Patch = serde_json::from_value(json!(changes))?;
            let patched = teams.patch(team, &PatchParams::default(), &Patch::<()>::Json(patch)).await;
            patched.map_err(|error| cluster.refused(&label, error))?;
        }
        Report::of(options, action, async |report| {
            chosen.iter().try_for_each(|(_, name)| report.queue(team, name, (true, meaning)))?;
            same.iter().try_for_each(|name| report.queue(team, name, (false, already)))
        })
        .await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_and_its_queue_are_two_arguments() {
        assert_eq!(team_name("a.b-1"), Ok("a.b-1".to_owned()));
        assert_eq!(team_name("a/batch"), Err("team and queue are two arguments: a batch".to_owned()));
        for text in ["", "A", "a b", "-a", "a?x"] {
            assert!(team_name(text).is_err_and(|problem| problem.contains("lower case")), "{text}");
        }
    }

    #[test]
    fn only_queues_in_another_state_are_written() {
        let queues: Vec<TeamQueue> = serde_json::from_value(json!([
            {"name": "day"}, {"name": "night", "paused": "Hold"}, {"name": "week", "paused": "Drain"},
        ]))
        .expect("queues");
        let names = |text: &[&str]| text.iter().map(ToString::to_string).collect::<Vec<_>>();
        let split = |name, to| {
            let (others, same) = split(&queues, name, to);
            (others.into_iter().map(|(place, _)| place).collect::<Vec<_>>(), same)
        };
        assert_eq!(split(None, State::No), (vec![1, 2], names(&["day"])));
        assert_eq!(split(Some("day"), State::No), (vec![], names(&["day"])));
        assert_eq!(split(Some("night"), State::Drain), (vec![1], names(&[])), "a drain is more than a hold");
        assert_eq!(split(None, State::Hold), (vec![0, 2], names(&["night"])));
        assert_eq!(split(Some("zz"), State::No), (vec![], names(&[])));
    }
}
