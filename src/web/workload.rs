//! The story of one workload: what happened to it, why it is in its state, what is expected, and the commands for it.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::answers::Problem;
use super::layout::Tab;
use super::page::{Context, seconds};
use super::past;
use super::show;
use crate::api::question::{ExplainFilter, QuestionSpec};
use crate::client::Scope;
use crate::engine::types::runs_on;
use crate::view::WorkloadRow;

/// The most nodes that are listed.
const MOST_NODES: usize = 200;

/// `GET …/workload/{name}`, or `/all/workload/{in}/{name}`.
pub async fn page(context: Context, Path(path): Path<BTreeMap<String, String>>) -> Response {
    let part = |key: &str| path.get(key).cloned().unwrap_or_default();
    let namespace = match &context.scope {
        Scope::Namespace(namespace) => namespace.clone(),
        Scope::Cluster => part("in"),
    };
    let drawn = load(&context, namespace, part("name")).await;
    context.respond(Tab::Other, drawn)
}

/// An Event of Kubernetes, the parts that are shown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Event {
    reason: String,
    message: String,
    r#type: String,
    event_time: Option<Timestamp>,
    last_timestamp: Option<Timestamp>,
    reporting_component: String,
    involved_object: Involved,
    series: Option<Series>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Involved {
    kind: String,
    uid: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Series {
    last_observed_time: Option<Timestamp>,
}

impl Event {
    /// Whether it is about the object of a row, and not about an earlier one of the same name.
    fn is_about(&self, row: &WorkloadRow) -> bool {
        let Involved { kind, uid } = &self.involved_object;
        *kind == row.kind && (uid.is_empty() || row.uid.as_ref().is_none_or(|own| own == uid))
    }

    fn at(&self) -> Option<Timestamp> {
        let again = self.series.as_ref().and_then(|series| series.last_observed_time);
        again.or(self.last_timestamp).or(self.event_time)
    }
}

async fn load(
    context: &Context,
    namespace: String,
    name: String,
) -> Result<impl FnOnce(&Context) -> (String, Markup), Problem> {
    let in_scope = matches!(context.scope, Scope::Cluster).then(|| namespace.clone());
    let explain = ExplainFilter { name: name.clone(), namespace: in_scope };
    let spec = QuestionSpec { explain: Some(explain), ..QuestionSpec::default() };
    let found: Vec<WorkloadRow> = context.ask(&spec).await?.rows()?;
    let runs = past::of_workload(context, &namespace, &name).await;
    if found.is_empty() && runs.as_ref().map_or(true, Vec::is_empty) {
        let message =
            format!("Sluice manages no Job or Pod {namespace}/{name}, and the history has no run of it");
        return Err(Problem::new(StatusCode::NOT_FOUND, message));
    }
    // Events are a comfort: the page stands without them.
    let events: Vec<Event> = match context.events(&namespace, &name).await {
        Ok(events) => events.rows().unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    Ok(move |context: &Context| {
        let body = html! {
            @for row in &found { (draw(context, row, &events)) }
            @if found.is_empty() {
                h1 { span.soft { (namespace) "/" } (name) }
                p.verdict { "Its object has been deleted. The history has its runs." }
            }
            h2 { "Runs" }
            (past::runs(context, &runs))
        };
        (format!("{namespace}/{name}"), body)
    })
}

fn draw(context: &Context, row: &WorkloadRow, events: &[Event]) -> Markup {
    let head = &row.head;
    let now = context.now;
    html! {
        h1 { span.soft { (row.kind) " " (head.namespace) "/" } (head.name) }
        p.verdict { (show::state(&head.state)) " " strong { (head.reason) } " " (head.message) }
        dl.facts {
            dt { "Team" } dd { (show::team(context, &head.team)) @if !head.queue.is_empty() { ", queue " (head.queue) } }
            @if let Some(user) = &row.user { dt { "User" } dd { (user) } }
            dt { "Asks for" }
            dd {
                (show::counted(usize::try_from(row.pods).unwrap_or(usize::MAX), "pod"))
                @if !row.requests.is_empty() {
                    ", each " (row.requests.iter().map(|(resource, amount)| format!("{resource} {amount}")).collect::<Vec<_>>().join(", "))
                }
                @let gpus = row.gpus.as_f64();
                @if row.granted() != row.pods { "; " (row.granted()) " granted" }
                @if gpus > 0.0 { " (" (show::gpus_of(gpus)) " together)" }
            }
            @if row.priority != 0 { dt { "Priority" } dd { (row.priority) } }
            @if let Some(eta) = &row.eta {
                dt { "Expected start" } dd { (show::eta(eta, now)) @if !eta.message.is_empty() { ". " (eta.message) } }
                @if let Some(place) = &eta.place { dt { "Place" } dd { (place.sentence(&head.team)) } }
            }
            @if let Some(end) = row.run.as_ref().and_then(|run| run.likely_end) {
                dt { @if row.admitted.is_some() { "Expected end" } @else { "Would end" } }
                dd {
                    (when(end, now))
                    @if let Some(latest) = row.run.as_ref().and_then(|run| run.latest_end).filter(|latest| *latest != end) {
                        ", at the latest " (when(latest, now))
                    }
                    @if row.run.as_ref().is_some_and(|run| run.limited) { " (time limit)" }
                    @if let Some(basis) = row.run.as_ref().map(|run| &run.basis).filter(|basis| !basis.is_empty()) { ". " (basis) }
                }
            }
            @if let Some(pool) = &row.pool { dt { "Pool" } dd { (pool) ", " (runs_on(row.outside_quotas, row.borrowed)) } }
            @if !row.nodes.is_empty() {
                dt { "Nodes" }
                dd {
                    @for (node, pods) in row.nodes.iter().take(MOST_NODES) { span.chip { (node) ": " (pods) } " " }
                    @if row.nodes.len() > MOST_NODES { "and " (row.nodes.len() - MOST_NODES) " more" }
                }
            }
        }
        h2 { "Story" }
        (story(row, events, now))
        h2 { "Commands" }
        (commands(row))
    }
}

fn when(at: Timestamp, now: Timestamp) -> Markup {
    html! {
        time datetime=(seconds(at)) title=(seconds(at)) {
            @if at <= now { "at any moment" } @else { "in " (show::between(now, at)) }
        }
    }
}

/// One thing that happened.
struct Happened<'a> {
    at: Timestamp,
    what: String,
    why: &'a str,
    bad: bool,
}

/// What happened, the oldest first.
fn story(row: &WorkloadRow, events: &[Event], now: Timestamp) -> Markup {
    let plain = |at, what: String| Happened { at, what, why: "", bad: false };
    let by = row.user.as_ref().map(|user| format!(" by {user}")).unwrap_or_default();
    let mut story = vec![plain(row.submitted, format!("Submitted{by}"))];
    if let Some(admitted) = row.admitted {
        let nodes = show::counted(row.nodes.len(), "node");
        let how = runs_on(row.outside_quotas, row.borrowed);
        story.push(plain(admitted, format!("Admitted {how}, on {nodes}")));
    }
    // Those of its pods have other names. Sluice reports as sluice.dev/controller, the rest is of Kubernetes.
    for event in events.iter().filter(|event| event.is_about(row)) {
        let Some(at) = event.at() else { continue };
        let own = if event.reporting_component.starts_with("sluice.dev/") { "" } else { "Kubernetes: " };
        let what = format!("{own}{}", event.reason);
        story.push(Happened { at, what, why: &event.message, bad: event.r#type == "Warning" });
    }
    story.sort_by_key(|happened| happened.at);
    html! {
        ol.story {
            @for happened in &story {
                li class=[happened.bad.then_some("bad")] {
                    time datetime=(seconds(happened.at)) title=(seconds(happened.at)) { (show::between(happened.at, now)) " ago" }
                    span { strong { (happened.what) } @if !happened.why.is_empty() { " " (happened.why) } }
                }
            }
            li.now { span.time { "now" } " " strong { (row.head.state) ": " (row.head.reason) } }
        }
        @if events.is_empty() { p.soft { "Events of the last hour appear here for viewers that may read them." } }
    }
}

/// What can be done about it, as the viewer, with kubectl's credentials.
fn commands(row: &WorkloadRow) -> Markup {
    let head = &row.head;
    let kind = if row.kind == "PodGroup" { "pod".to_owned() } else { row.kind.to_lowercase() };
    let target = format!("{kind}/{} -n {}", head.name, head.namespace);
    let mut commands = vec![format!("sluice explain {target}")];
    match &*head.state {
        "Pending" => commands.extend([
            format!("sluice wait {target}"),
            format!("sluice top {target}"),
            format!("sluice hold {target}"),
        ]),
        "Running" => commands.extend([format!("kubectl logs {target}"), format!("sluice requeue {target}")]),
        "Held" => commands.push(format!("sluice release {target}")),
        _ => {}
    }
    if head.state != "Finished" {
        commands.push(format!("sluice cancel {target}"));
    }
    html! { @for text in &commands { (show::command(text)) } }
}
