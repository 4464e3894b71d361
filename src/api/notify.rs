//! `spec.notify` of a Team: the endpoints that are notified of what happens to its workloads.

use std::time::Duration;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;
use super::values::duration;

/// An endpoint that is notified.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.url) || has(self.secretRef)")
        .message("an endpoint needs url or secretRef"),
    validation = Rule::new("self.form != 'Slack' || has(self.secretRef) && !has(self.url)")
        .message("the URL of a Slack webhook is a secret: leave url out and name the secret in secretRef"),
    validation = Rule::new("has(self.waitingLongerThan) == self.transitions.exists(t, t == 'WaitingTooLong')")
        .message("WaitingTooLong needs waitingLongerThan, and nothing else does")
)]
pub struct Endpoint {
    /// The URL, https only, without user, query or fragment. Leave it out where the URL is a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::https_url")]
    pub url: Option<String>,
    /// The secret of the endpoint: the key TEAM.NAME in Secret sluice-notify of Sluice's namespace, e.g. hook for the key
    /// vision.hook. It holds the URL; if url is set, a token that is sent as a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::dns_label")]
    pub secret_ref: Option<String>,
    /// The form of a notification. CloudEvents: CloudEvents 1.0 in JSON. Slack: a text, as Slack, Mattermost and
    /// Rocket.Chat take it.
    #[serde(default)]
    pub form: Form,
    /// The transitions to send. Started, Evicted. Failed: Sluice failed it by a rule of its queue, or it can never start as
    /// it is. WaitingTooLong: it has waited for longer than waitingLongerThan. Budget: 80 % or all of the budget of the team is
    /// used, whatever queues and users are named.
    // Not `on`: kubectl reads YAML 1.1, in which that key means `true`.
    #[schemars(length(min = 1, max = 5), extend("x-kubernetes-list-type" = "set"))]
    pub transitions: Vec<Transition>,
    /// The wait after which WaitingTooLong is sent, e.g. 1h.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub waiting_longer_than: Option<String>,
    /// Only workloads of these queues. Empty: of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names")]
    pub queues: Vec<String>,
    /// Only workloads of these users. Empty: of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::names")]
    pub users: Vec<String>,
}

/// The form of a notification.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Form {
    /// CloudEvents 1.0, structured JSON.
    #[default]
    CloudEvents,
    /// One text.
    Slack,
}

/// A transition of a workload, or of the budget of a team.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Transition {
    /// It was admitted.
    Started,
    /// It was evicted.
    Evicted,
    /// Sluice failed it by a rule, or it can never start.
    Failed,
    /// It has waited for longer than the endpoint wants.
    WaitingTooLong,
    /// Of the budget of the team, 80 % or all is used.
    Budget,
}

impl Transition {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "Started",
            Self::Evicted => "Evicted",
            Self::Failed => "Failed",
            Self::WaitingTooLong => "WaitingTooLong",
            Self::Budget => "Budget",
        }
    }
}

impl Endpoint {
    /// Whether it is notified of a transition of a workload in this queue, by this user.
    #[must_use]
    pub fn wants(&self, transition: Transition, queue: &str, user: Option<&str>) -> bool {
        let all_or = |list: &[String], name: &str| list.is_empty() || list.iter().any(|one| one == name);
        self.transitions.contains(&transition)
            && all_or(&self.queues, queue)
            && all_or(&self.users, user.unwrap_or_default())
    }

    /// The wait after which it is notified.
    ///
    /// # Errors
    /// The problem with the field's text.
    pub fn mark(&self) -> Result<Option<Duration>, String> {
        let wanted = self.waiting_longer_than.as_deref();
        wanted.filter(|_| self.transitions.contains(&Transition::WaitingTooLong)).map(duration).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_chooses_by_transition_queue_and_user() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let all = Endpoint { transitions: vec![Transition::Started], ..Endpoint::default() };
        assert!(all.wants(Transition::Started, "work", None));
        assert!(!all.wants(Transition::Evicted, "work", None));
        let some = Endpoint { queues: names(&["work"]), users: names(&["alice"]), ..all };
        for (queue, user, wanted) in [
            ("work", Some("alice"), true),
            ("work", Some("bob"), false),
            ("work", None, false),
            ("x", Some("alice"), false),
        ] {
            assert_eq!(some.wants(Transition::Started, queue, user), wanted, "{queue} {user:?}");
        }
    }

    #[test]
    fn only_an_endpoint_that_wants_long_waits_has_a_mark() {
        let endpoint = |transition, text: &str| Endpoint {
            transitions: vec![transition],
            waiting_longer_than: Some(text.to_owned()),
            ..Endpoint::default()
        };
        assert_eq!(endpoint(Transition::WaitingTooLong, "1h").mark(), Ok(Some(Duration::from_secs(3600))));
        assert_eq!(endpoint(Transition::Started, "1h").mark(), Ok(None));
        assert!(endpoint(Transition::WaitingTooLong, "soon").mark().is_err());
    }
}
