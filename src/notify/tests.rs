use serde_json::Value;

use super::message::message;
use super::*;
use crate::api::notify::Form;

fn news(name: &str) -> News {
    News {
        transition: Transition::Evicted,
        at: "2026-11-22T09:00:00Z".parse().expect("a time"),
        occasion: 0x1a,
        reason: "Reclaimed".into(),
        message: "Preempted for a workload of team blue.".into(),
        team: "red".into(),
        queue: "work".into(),
        user: Some("<!channel> & co".into()),
        kind: "Job".into(),
        namespace: "ns".into(),
        name: name.into(),
        uid: "u-1".into(),
    }
}

fn read(form: Form, news: &[News]) -> Value {
    let news: Vec<Arc<News>> = news.iter().cloned().map(Arc::new).collect();
    serde_json::from_str(&message(form, &news).body).expect("JSON")
}

#[test]
fn a_cloud_event_has_every_required_attribute_and_the_same_id_each_time() {
    let event = read(Form::CloudEvents, &[news("x")]);
    for (attribute, value) in [
        ("specversion", "1.0"),
        ("id", "u-1.evicted.1a"),
        ("source", "/apis/sluice.dev/v1alpha1/teams/red"),
        ("type", "dev.sluice.workload.evicted"),
        ("subject", "ns/x"),
        ("time", "2026-11-22T09:00:00Z"),
    ] {
        assert_eq!(event[attribute], value, "{attribute}");
    }
    assert_eq!(event["data"]["reason"], "Reclaimed");
    assert_eq!(event["data"]["user"], "<!channel> & co");
}

#[test]
fn news_of_a_budget_are_about_a_team() {
    let budget = News {
        transition: Transition::Budget,
        reason: "BudgetSpent".into(),
        message: "Team red has used 10 of its budget of 10 GPU-hours.".into(),
        kind: "Team".into(),
        namespace: "".into(),
        user: None,
        ..news("red")
    };
    let event = read(Form::CloudEvents, std::slice::from_ref(&budget));
    for (attribute, value) in
        [("id", "u-1.budget.1a"), ("type", "dev.sluice.team.budget"), ("subject", "red")]
    {
        assert_eq!(event[attribute], value, "{attribute}");
    }
    let text = read(Form::Slack, &[budget]);
    assert_eq!(text["text"], "Team red. BudgetSpent: Team red has used 10 of its budget of 10 GPU-hours.");
}

#[test]
fn a_text_mentions_and_links_nothing() {
    let text = read(Form::Slack, &[news("x"), news("y")]);
    let lines: Vec<&str> = text["text"].as_str().expect("a text").lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].starts_with(
            "Job ns/x of &lt;!channel&gt; &amp; co was evicted (team red, queue work). Reclaimed: "
        ),
        "{}",
        lines[0]
    );
    assert!(!text["text"].as_str().expect("a text").contains(['<', '>']));
}

#[tokio::test]
async fn what_waits_is_bounded() {
    let registry = Registry::new();
    let options = Options { notify_secrets: "/nowhere".into(), notify_ca: None };
    let (notifier, run) = start(&options, &registry, CancellationToken::new()).expect("it starts");
    let endpoint = Arc::new(Endpoint { transitions: vec![Transition::Evicted], ..Endpoint::default() });
    for _ in 0..BACKLOG + 5 {
        notifier.send([&endpoint].into_iter(), news("x"));
    }
    assert_eq!(notifier.counts.with_label_values(&["dropped"]).get(), 5);
    // An endpoint without a URL refuses all that its queue takes.
    let counts = notifier.counts.clone();
    drop(notifier);
    run.await;
    let [refused, dropped] = ["refused", "dropped"].map(|outcome| counts.with_label_values(&[outcome]).get());
    assert_eq!(refused + dropped, BACKLOG as u64 + 5);
    assert!(refused >= LINE as u64, "{refused}");
}
