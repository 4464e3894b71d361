//! Whose a workload is: the team of its namespace, the queue it asks for, and what that queue gives.

use std::sync::Arc;

use serde_json::Value;

use super::object::label;
use super::view::View;
use crate::api::names;
use crate::engine::types::{Name, Team};

/// Whose a workload is, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The team of its namespace.
    pub team: Option<Name>,
    /// The queue it goes into.
    pub queue: Option<Name>,
    /// The PriorityClass that queue gives to pods that name none.
    pub priority_class: Option<Name>,
}

/// Finds the team and the queue of `object` in `namespace`.
///
/// A namespace that has just been labelled, and everything before the first lists are complete, may
/// be unknown here without being wrong: then what is known is returned, and the hold does the rest.
///
/// # Errors
/// One sentence when the team or the queue does not exist, or the object claims another team.
pub fn standing(view: &View<'_>, namespace: &str, object: &Value) -> Result<Standing, String> {
    let Some(membership) = view.namespace(namespace) else { return Ok(Standing::default()) };
    let team = &membership.team;
    if let Some(claimed) = label(object, names::TEAM).filter(|claimed| *claimed != &**team) {
        return Err(format!(
            "label {} says {claimed:?}, but namespace {namespace:?} belongs to team {team:?}",
            names::TEAM
        ));
    }
    let known =
        |queue: Option<Name>, class| Standing { team: Some(Arc::clone(team)), queue, priority_class: class };
    let Some(team_object) = view.team(team) else {
        if view.complete() {
            return Err(format!(
                "team {team:?} (label {} of namespace {namespace:?}) does not exist",
                names::TEAM
            ));
        }
        return Ok(known(None, None));
    };
    let queue =
        queue(view, team_object, namespace, label(object, names::QUEUE), membership.queue.as_deref())?;
    let class = view.priority_class(team, &queue);
    Ok(known(Some(queue), class))
}

fn queue(
    view: &View<'_>,
    team: &Team,
    namespace: &str,
    own: Option<&str>,
    default: Option<&str>,
) -> Result<Name, String> {
    let wanted = match (own, default) {
        (Some(own), _) => Some((own, format!("label {}", names::QUEUE))),
        (None, Some(default)) => {
            Some((default, format!("label {} of namespace {namespace:?}", names::QUEUE)))
        }
        (None, None) => None,
    };
    let Some((wanted, source)) = wanted else {
        return team
            .queues
            .first()
            .map(|queue| Arc::clone(&queue.name))
            .ok_or_else(|| format!("team {:?} has no queue", team.name));
    };
    view.queue(team, wanted).ok_or_else(|| {
        let all: Vec<&str> = team.queues.iter().map(|queue| &*queue.name).collect();
        format!("team {:?} has no queue {wanted:?} ({source}); it has {}", team.name, all.join(", "))
    })
}
