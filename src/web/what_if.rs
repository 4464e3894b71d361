//! What a Job would come to if it were submitted now. Nothing is submitted.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use std::sync::Arc;

use super::answers::Problem;
use super::layout::Tab;
use super::page::{Context, Web, problem_page};
use super::query::pairs;
use super::show;
use crate::api::question::{QuestionSpec, WhatIfFilter};
use crate::client::{self, Scope};
use crate::engine::types::runs_on;
use crate::view::WhatIfRow;

/// What stands in an empty form.
const EXAMPLE: &str = "apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: registry.example.com/train
        resources:
          limits:
            nvidia.com/gpu: 1
";

/// `GET …/what-if`.
pub async fn page(context: Context) -> Response {
    context.respond(
        Tab::WhatIf,
        Ok(|context: &Context| ("What if".to_owned(), form(context, EXAMPLE, html! {}))),
    )
}

/// `POST …/what-if`.
pub async fn asked(State(web): State<Arc<Web>>, context: Context, body: String) -> Response {
    let job =
        pairs(&body).into_iter().find(|(key, _)| key == "job").map(|(_, value)| value).unwrap_or_default();
    match ask(&context, &job).await {
        Ok(row) => context.respond(
            Tab::WhatIf,
            Ok(|context: &Context| ("What if".to_owned(), form(context, &job, result(context, &row)))),
        ),
        // What is wrong with the Job is said next to it, so that it can be changed.
        Err(problem) if problem.status == StatusCode::UNPROCESSABLE_ENTITY => context.respond(
            Tab::WhatIf,
            Ok(|context: &Context| {
                let said = html! { p.problem role="alert" { (problem.message) } };
                ("What if".to_owned(), form(context, &job, said))
            }),
        ),
        Err(problem) => problem_page(&web, Some(&context.scope), Tab::WhatIf, &problem),
    }
}

async fn ask(context: &Context, text: &str) -> Result<WhatIfRow, Problem> {
    let wrong = |message: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, message);
    let job = client::one_job(text).map_err(wrong)?;
    let spec =
        QuestionSpec { what_if: Some(WhatIfFilter { job, then: Vec::new() }), ..QuestionSpec::default() };
    let rows: Vec<WhatIfRow> = context.ask(&spec).await?.rows()?;
    rows.into_iter()
        .next()
        .ok_or_else(|| Problem::new(StatusCode::BAD_GATEWAY, "unexpected answer of Sluice"))
}

fn form(context: &Context, job: &str, result: Markup) -> Markup {
    html! {
        h1 { "What if" }
        p.soft {
            "When and where would this Job start, if it were submitted now"
            @if let Scope::Namespace(namespace) = &context.scope { " to namespace " (namespace) }
            "? Nothing is submitted."
            @if context.scope == Scope::Cluster { " Its metadata must name a namespace." }
        }
        (result)
        form.what-if action=(context.path("what-if")) method="post" {
            label for="job" { "Job, as YAML" }
            textarea #job name="job" rows="22" spellcheck="false" autocapitalize="off" { "\n" (job) }
            button { "Ask" }
        }
    }
}

fn result(context: &Context, row: &WhatIfRow) -> Markup {
    let head = &row.head;
    html! {
        section.result aria-label="Result" role="status" {
            h2 { "It would be " (show::state(&head.state)) }
            p { strong { (head.reason) } " " (head.message) }
            dl.facts {
                dt { "Team" } dd { (show::team(context, &head.team)) @if !head.queue.is_empty() { ", queue " (head.queue) } }
                @if !head.never_starts {
                    dt { "Expected start" }
                    dd { (show::eta(&row.eta, context.now)) @if !row.eta.message.is_empty() { ". " (row.eta.message) } }
                }
                @if let Some(place) = &row.eta.place { dt { "Place" } dd { (place.sentence(&head.team)) } }
                @if let Some(pool) = &row.pool { dt { "Pool" } dd { (pool) ", " (runs_on(row.outside_quotas, row.borrowed)) } }
                @if !row.nodes.is_empty() {
                    dt { "Nodes" }
                    dd { @for (node, pods) in row.nodes.iter().take(64) { span.chip { (node) ": " (pods) } " " } }
                }
                dt { "Would preempt" }
                dd { @if row.displaced.is_empty() { "nothing" } @else { ul { @for name in &row.displaced { li { (name) } } } } }
            }
        }
    }
}
