//! What of a workload's transitions is published outside of the decision loop, and in which words.

use crate::api::notify::{Endpoint, Transition};
use crate::cluster::mirror::Mirror;
use crate::engine::types::{Name, Workload};
use crate::notify::{News, Notifier};
use crate::sentences;

/// A sentence about a workload as the users of its namespace may read it: workloads of other namespaces are teams.
pub fn shown(mirror: &Mirror, workload: &Workload, text: &str) -> String {
    let is_resource = |word: &str| workload.requests().contains_key(word);
    sentences::shown_in(&workload.namespace, text, is_resource, |namespace| {
        mirror.team_of(&Name::from(namespace))
    })
}

/// A transition: which one, the number that distinguishes it from others of its kind, its reason code, and a sentence.
pub struct Fact<'a> {
    pub transition: Transition,
    pub occasion: i64,
    pub reason: &'a str,
    pub message: &'a str,
}

/// Sends a transition to those endpoints of the workload's team that want it and that `chosen` chooses.
pub fn send(
    notifier: &Notifier,
    mirror: &Mirror,
    workload: &Workload,
    fact: &Fact<'_>,
    chosen: impl Fn(&Endpoint) -> bool,
) {
    let Some(team) = mirror.team(&workload.team).filter(|team| !team.notify.is_empty()) else { return };
    let queue = mirror.queue_of(workload);
    let wants = |endpoint: &Endpoint| endpoint.wants(fact.transition, &queue, workload.user.as_deref());
    let endpoints = team.notify.iter().filter(|endpoint| wants(endpoint) && chosen(endpoint));
    let mut endpoints = endpoints.peekable();
    if endpoints.peek().is_none() {
        return;
    }
    let news = News {
        transition: fact.transition,
        at: jiff::Timestamp::now(),
        occasion: fact.occasion,
        reason: fact.reason.to_owned(),
        message: shown(mirror, workload, fact.message),
        team: workload.team.clone(),
        queue: queue.clone(),
        user: workload.user.clone(),
        kind: workload.kind.to_string(),
        namespace: workload.namespace.clone(),
        name: workload.name.clone(),
        uid: workload.id.0.clone(),
    };
    notifier.send(endpoints, news);
}
