//! Waiting and running workloads: filters, the place in the queue, the reason, the expected start.

use axum::extract::RawQuery;
use axum::response::Response;
use maud::{Markup, html};

use super::answers::{Problem, Shared};
use super::layout::Tab;
use super::page::Context;
use super::query::{escaped, pairs};
use super::show;
use crate::api::question::{Phase, QuestionSpec, QueueFilter};
use crate::view::WorkloadRow;

/// The rows of a page.
const ROWS: i32 = 100;
const PHASES: [Phase; 5] = [Phase::Pending, Phase::Running, Phase::Held, Phase::Evicting, Phase::Finished];

/// What the address of the page says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    team: String,
    queue: String,
    user: String,
    me: bool,
    states: Vec<&'static str>,
    cursor: Option<String>,
}

impl Filter {
    fn read(query: &str) -> Self {
        let mut filter = Self::default();
        for (key, value) in pairs(query) {
            match key.as_str() {
                "team" => filter.team = value,
                "queue" => filter.queue = value,
                "user" => filter.user = value,
                "me" => filter.me = true,
                "cursor" if !value.is_empty() => filter.cursor = Some(value),
                "state" => {
                    filter.states.extend(PHASES.map(Phase::code).into_iter().find(|code| *code == value));
                }
                _ => {}
            }
        }
        filter
    }

    fn question(&self) -> QuestionSpec {
        let some = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let states = PHASES.into_iter().filter(|phase| self.states.contains(&phase.code())).collect();
        let Self { team, queue, user, me, cursor, .. } = self;
        QuestionSpec {
            queue: Some(QueueFilter {
                namespace: None,
                team: some(team),
                queue: some(queue),
                user: some(user).filter(|_| !me),
                me: *me,
                states,
            }),
            limit: Some(ROWS),
            cursor: cursor.clone(),
            ..QuestionSpec::default()
        }
    }

    /// The address of the same list from another place on.
    fn address(&self, cursor: Option<&str>) -> String {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for (key, value) in [("team", &self.team), ("queue", &self.queue), ("user", &self.user)] {
            pairs.extend((!value.is_empty()).then_some((key, value.as_str())));
        }
        pairs.extend(self.me.then_some(("me", "1")));
        pairs.extend(self.states.iter().map(|state| ("state", *state)));
        pairs.extend(cursor.map(|cursor| ("cursor", cursor)));
        let pairs: Vec<String> =
            pairs.into_iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
        format!("queue?{}", pairs.join("&"))
    }
}

/// `GET …/queue`.
pub async fn page(context: Context, RawQuery(query): RawQuery) -> Response {
    let drawn = load(&context, Filter::read(&query.unwrap_or_default())).await;
    context.respond(Tab::Queue, drawn)
}

async fn load(
    context: &Context,
    filter: Filter,
) -> Result<impl FnOnce(&Context) -> (String, Markup), Problem> {
    let answer: Shared = context.ask(&filter.question()).await?;
    let workloads: Vec<WorkloadRow> = answer.rows()?;
    let next = answer.cursor.clone();
    Ok(move |context: &Context| ("Queue".to_owned(), draw(context, &filter, &workloads, next.as_deref())))
}

fn draw(context: &Context, filter: &Filter, workloads: &[WorkloadRow], next: Option<&str>) -> Markup {
    html! {
        h1 { "Queue" }
        form.filters action=(context.path("queue")) method="get" role="search" aria-label="Filter" {
            @for (name, text, value) in [("team", "Team", &filter.team), ("queue", "Queue", &filter.queue), ("user", "User", &filter.user)] {
                label { span { (text) } input name=(name) value=(value) size="12" autocomplete="off" spellcheck="false"; }
            }
            label.check { input type="checkbox" name="me" value="1" checked[filter.me]; " mine" }
            fieldset {
                legend.hidden { "States" }
                @for code in PHASES.map(Phase::code) {
                    label.check { input type="checkbox" name="state" value=(code) checked[filter.states.contains(&code)]; " " (code) }
                }
            }
            button { "Filter" }
            @if *filter != (Filter { cursor: filter.cursor.clone(), ..Filter::default() }) { a href=(context.path("queue")) { "Clear" } }
        }
        @if workloads.is_empty() { p.empty { "No workload matches." } } @else {
            (table(context, workloads))
        }
        p.pages {
            @if filter.cursor.is_some() { a href=(context.path(&filter.address(None))) rel="first" { "First page" } " " }
            @if let Some(next) = next { a href=(context.path(&filter.address(Some(next)))) rel="next" { "Next " (ROWS) } }
        }
    }
}

/// Workloads as a table.
pub fn table(context: &Context, workloads: &[WorkloadRow]) -> Markup {
    let all = matches!(context.scope, crate::client::Scope::Cluster);
    html! {
        div.scroll tabindex="0" role="region" aria-label="Workloads" {
            table.cards {
                thead {
                    tr {
                        th scope="col" { "Workload" } th scope="col" { "State" } th scope="col" { "Team" } th scope="col" { "User" }
                        th.number scope="col" { "GPUs" } th scope="col" { "Place" } th scope="col" { "Expected" }
                        th scope="col" { "For" } th scope="col" { "Reason" }
                    }
                }
                tbody {
                    @for row in workloads {
                        @let head = &row.head;
                        tr {
                            th scope="row" {
                                a href=(context.workload(&head.namespace, &head.name)) { @if all { (head.namespace) "/" } (head.name) }
                                @if row.kind != "Job" { span.soft { " " (row.kind) } }
                            }
                            td data-label="State" { (show::state(&head.state)) }
                            td data-label="Team" { (show::team(context, &head.team)) @if !head.queue.is_empty() { span.soft { " " (head.queue) } } }
                            td data-label="User" { (row.user.as_deref().unwrap_or_default()) }
                            td.number data-label="GPUs" { (show::gpus(row.gpus.as_f64())) }
                            td data-label="Place" { (show::position(row)) }
                            td data-label="Expected" {
                                @if let Some(eta) = &row.eta { "start " (show::eta(eta, context.now)) }
                                @else if let Some(end) = row.run.as_ref().and_then(|run| run.likely_end) {
                                    "end " @if end <= context.now { "at any moment" } @else { "in " (show::between(context.now, end)) }
                                }
                            }
                            td data-label="For" { (show::ago(row.admitted.unwrap_or(row.submitted), context.now)) }
                            td.why data-label="Reason" { strong { (head.reason) } " " (head.message) }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_says_what_is_listed() {
        let filter =
            Filter::read("team=a%2Fb&state=Pending&state=Running&state=Odd&user=&me=1&cursor=x+y%zz");
        assert_eq!(
            (filter.team.as_str(), filter.cursor.as_deref(), filter.me),
            ("a/b", Some("x y%zz"), true)
        );
        assert_eq!(filter.states, ["Pending", "Running"]);
        let spec = filter.question();
        let queue = spec.queue.clone().expect("a question about the queue");
        assert_eq!((queue.states.len(), queue.user, spec.limit), (2, None, Some(100)));
        let again = Filter::read(filter.address(Some("ä/1")).strip_prefix("queue?").expect("a query"));
        assert_eq!(again, Filter { cursor: Some("ä/1".to_owned()), ..filter });
    }
}
