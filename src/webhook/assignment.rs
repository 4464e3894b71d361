//! The team and the queue of a workload.

use std::sync::Arc;

use serde_json::Value;

use super::object::label;
use super::view::View;
use crate::api::names;
use crate::engine::types::{Name, Team};

/// The team and the queue of a workload, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The team of the namespace.
    pub team: Option<Name>,
    /// The queue of that team.
    pub queue: Option<Name>,
    /// The PriorityClass that the queue gives to pods without one.
    pub priority_class: Option<Name>,
}

impl Assignment {
    /// The labels that follow, each with its value.
    pub fn labels(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let values = [(names::TEAM, &self.team), (names::QUEUE, &self.queue)];
        values.into_iter().filter_map(|(key, value)| Some((key, &**value.as_ref()?)))
    }
}

/// Finds the team and the queue of `object` in `namespace`.
///
/// The namespace may be missing because its label is new or the first lists are not complete. Then the known part is
/// returned: the workload is held in any case.
///
/// # Errors
/// One sentence if the team or the queue does not exist, or the object names another team.
pub fn assign(view: &View<'_>, namespace: &str, object: &Value) -> Result<Assignment, String> {
    let Some(membership) = view.namespace(namespace) else { return Ok(Assignment::default()) };
    let name = &membership.team;
    if let Some(named) = label(object, names::TEAM).filter(|named| *named != &**name) {
        return Err(format!(
            "label {} says {named:?}, but namespace {namespace:?} belongs to team {name:?}",
            names::TEAM
        ));
    }
    let assignment = |queue: Option<Name>, priority_class| Assignment {
        team: Some(Arc::clone(name)),
        queue,
        priority_class,
    };
    let Some(team) = view.team(name) else {
        if view.complete() {
            return Err(format!(
                "team {name:?} (label {} of namespace {namespace:?}) does not exist",
                names::TEAM
            ));
        }
        return Ok(assignment(None, None));
    };
    let own = label(object, names::QUEUE).map(|queue| (queue, format!("label {}", names::QUEUE)));
    let wanted = own.or_else(|| {
        let default = membership.queue.as_deref()?;
        Some((default, format!("label {} of namespace {namespace:?}", names::QUEUE)))
    });
    let queue = queue(view, team, wanted)?;
    let class = view.priority_class(name, &queue);
    Ok(assignment(Some(queue), class))
}

/// The wanted queue (with the label that names it), or the team's first queue.
fn queue(view: &View<'_>, team: &Team, wanted: Option<(&str, String)>) -> Result<Name, String> {
    let Some((wanted, source)) = wanted else {
        let first = team.queues.first().map(|queue| Arc::clone(&queue.name));
        return first.ok_or_else(|| format!("team {:?} has no queue", team.name));
    };
    view.queue(team, wanted).ok_or_else(|| {
        let all: Vec<&str> = team.queues.iter().map(|queue| &*queue.name).collect();
        format!("team {:?} has no queue {wanted:?} ({source}); it has {}", team.name, all.join(", "))
    })
}
