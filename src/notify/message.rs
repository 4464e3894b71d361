//! The forms of a notification.

use std::sync::Arc;

use serde_json::json;

use super::News;
use crate::api::notify::{Form, Transition};

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its type.
    pub content_type: &'static str,
    /// Its text.
    pub body: String,
}

/// The message of some transitions; CloudEvents take one, the first.
pub fn message(form: Form, news: &[Arc<News>]) -> Message {
    match form {
        Form::CloudEvents => Message {
            content_type: "application/cloudevents+json; charset=utf-8",
            body: news.first().map(|news| cloud_event(news)).unwrap_or_default(),
        },
        Form::Slack => {
            let lines: Vec<String> = news.iter().map(|news| line(news)).collect();
            Message { content_type: "application/json", body: json!({"text": lines.join("\n")}).to_string() }
        }
    }
}

fn cloud_event(news: &News) -> String {
    let (about, subject) = match news.transition {
        Transition::Budget => ("team", news.name.to_string()),
        _ => ("workload", format!("{}/{}", news.namespace, news.name)),
    };
    json!({
        "specversion": "1.0",
        "id": news.id(),
        "source": format!("/apis/sluice.dev/v1alpha1/teams/{}", news.team),
        "type": format!("dev.sluice.{about}.{}", news.transition.name().to_lowercase()),
        "subject": subject,
        "time": news.at.to_string(),
        "datacontenttype": "application/json",
        "data": {
            "transition": news.transition.name(),
            "reason": news.reason,
            "message": news.message,
            "team": &*news.team,
            "queue": &*news.queue,
            "user": news.user.as_deref(),
            "kind": news.kind,
            "namespace": &*news.namespace,
            "name": &*news.name,
            "uid": &*news.uid,
        },
    })
    .to_string()
}

/// A line of text. Names and sentences may hold what users wrote, which must not become a link or a mention.
fn line(news: &News) -> String {
    let what = match news.transition {
        Transition::Started => "started",
        Transition::Evicted => "was evicted",
        Transition::Failed => "failed",
        Transition::WaitingTooLong => "waits for long",
        Transition::Budget => {
            return escaped(&format!("Team {}. {}: {}", news.team, news.reason, news.message));
        }
    };
    let user = news.user.as_deref().map(|user| format!(" of {user}")).unwrap_or_default();
    let text = format!(
        "{} {}/{}{user} {what} (team {}, queue {}). {}: {}",
        news.kind, news.namespace, news.name, news.team, news.queue, news.reason, news.message
    );
    escaped(&text)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\n', " ")
}
