//! Warnings about Teams that cannot be right, from memory. A Team is never refused here: what is missing may be applied next.

use super::review::{Request, Verdict};
use super::view::View;
use crate::api::team::Team;
use crate::cluster::reduce::team::team;
use crate::faults::{Subject, excesses, faults, less_than_it_seems};

/// Answers a review of a Team.
#[must_use]
pub fn validate(view: &View<'_>, request: &Request) -> Verdict {
    let unchanged = request.old_object["spec"] == request.object["spec"] && !request.old_object.is_null();
    if unchanged || !view.complete() {
        return Verdict::pass();
    }
    let read: Result<Team, _> = serde_json::from_value(request.object.clone());
    let Some(seen) = read.ok().and_then(|object| team(&object).ok()) else { return Verdict::pass() };
    let subject = Subject { team: &seen.team, classes: &seen.classes };
    let found = view.faults_of(|known| faults(subject, known));
    let (team, known) = (&seen.team, view.directory());
    let messages = found.into_iter().map(|fault| fault.message);
    Verdict::warn(messages.chain(excesses(team, known)).chain(less_than_it_seems(team, known)))
}
