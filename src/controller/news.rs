//! What of a workload's transitions is published outside of the decision loop, and in which words.

use crate::api::notify::{Endpoint, Transition};
use crate::api::record::{Eviction, timestamp};
use crate::cluster::mirror::Mirror;
use crate::engine::types::{EvictReason, Name, Time, Workload, WorkloadId};
use crate::history::record::OF_TEAM;
use crate::notify::{News, Notifier};
use crate::sentences;

/// A sentence about a workload as the users of its namespace may read it: workloads of other namespaces are teams.
pub fn shown(mirror: &Mirror, workload: &Workload, text: &str) -> String {
    let is_resource = |word: &str| workload.requests().contains_key(word);
    sentences::shown_in(&workload.namespace, text, is_resource, |namespace| {
        mirror.team_of(&Name::from(namespace))
    })
}

/// The note of an eviction on the object of its victim: its users do not learn the names of other namespaces' workloads.
pub fn note(
    mirror: &Mirror,
    victim: &Workload,
    preemptor: Option<&WorkloadId>,
    (reason, now): (EvictReason, Time),
) -> Eviction {
    let note = Eviction::new(timestamp(now), reason.code());
    match preemptor.map(|id| (id, mirror.subject(id))) {
        Some((_, Some((managed, _)))) => note.caused_by(&managed.workload, &victim.namespace),
        Some((id, None)) => Eviction { uid: id.to_string(), ..note },
        None => note,
    }
}

/// The preemptor of a note: its name, or its team once it is gone.
pub fn preemptor(mirror: &Mirror, note: &Eviction) -> String {
    let known = Some(&note.uid).filter(|uid| !uid.is_empty());
    let known = known.and_then(|uid| mirror.subject(&WorkloadId(uid.as_str().into())));
    match known {
        Some((managed, _)) => format!("{}/{}", managed.workload.namespace, managed.workload.name),
        None if note.team.is_empty() => note.preemptor.clone(),
        None => format!("{OF_TEAM}{}", note.team),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::mirror::Change;
    use crate::cluster::reduce::team::NamespaceSeen;
    use crate::cluster::table::Seen;
    use crate::cluster::target::job::job;
    use crate::directory::Membership;

    /// Jobs a/victim, a/own and b/secret, in namespaces of teams of other names.
    fn mirror() -> Mirror {
        let mut mirror = Mirror::default();
        for (namespace, team) in [("a", "red"), ("b", "blue")] {
            let membership = Some(Membership { team: team.into(), queue: None });
            let seen = NamespaceSeen { name: namespace.into(), membership, since: None };
            mirror.take(Change::Namespace(Seen::Object(namespace.into(), seen)));
        }
        for (namespace, name, uid) in [("a", "victim", "1"), ("a", "own", "2"), ("b", "secret", "3")] {
            mirror.take(saw(namespace, name, uid));
        }
        mirror
    }

    fn saw(namespace: &str, name: &str, uid: &str) -> Change {
        let object = json!({
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1",
                "annotations": {"sluice.dev/held": "true"}},
            "spec": {"suspend": true, "template": {"spec": {"containers": []}}},
        });
        let seen = job(&serde_json::from_value(object).expect("a Job"), Time(0));
        Change::Job(Seen::Object(seen.uid.clone(), seen))
    }

    #[test]
    fn the_note_of_an_eviction_names_workloads_of_its_own_namespace_only() {
        let mut mirror = mirror();
        let id = |uid: &str| WorkloadId(uid.into());
        let written = |mirror: &Mirror, preemptor: Option<&str>| {
            let (victim, _) = mirror.subject(&id("1")).expect("it is known");
            let preemptor = preemptor.map(id);
            let note = note(mirror, &victim.workload, preemptor.as_ref(), (EvictReason::Reclaimed, Time(0)));
            serde_json::to_value(note).expect("JSON")
        };
        let at = "1970-01-01T00:00:00Z";
        assert_eq!(written(&mirror, None), json!({"at": at, "reason": "Reclaimed"}));
        assert_eq!(written(&mirror, Some("2")), json!({"at": at, "for": "a/own", "reason": "Reclaimed"}));
        let foreign = json!({"at": at, "forTeam": "blue", "forUid": "3", "reason": "Reclaimed"});
        assert_eq!(written(&mirror, Some("3")), foreign);
        assert_eq!(written(&mirror, Some("9")), json!({"at": at, "forUid": "9", "reason": "Reclaimed"}));

        // A process that starts later reads the name from the preemptor, or the team from the note.
        let read =
            |note: &serde_json::Value| serde_json::from_value::<Eviction>(note.clone()).expect("a note");
        assert_eq!(preemptor(&mirror, &read(&foreign)), "b/secret");
        mirror.take(Change::Job(Seen::Deleted("3".into())));
        assert_eq!(preemptor(&mirror, &read(&foreign)), "a workload of team blue");
        assert_eq!(preemptor(&mirror, &read(&written(&mirror, Some("2")))), "a/own");
        let older = json!({"at": at, "for": "b/secret", "reason": "Reclaimed"});
        assert_eq!(preemptor(&mirror, &read(&older)), "b/secret", "a note of an older version");
        assert_eq!(preemptor(&mirror, &read(&written(&mirror, None))), "");
    }
}
