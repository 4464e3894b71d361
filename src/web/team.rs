//! One team: what it uses of its guarantee, what it borrows and lends, its users, its queues and its work.

use std::collections::BTreeMap;

use axum::extract::{Path, RawQuery};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::answers::Problem;
use super::layout::Tab;
use super::overview::palette;
use super::page::{Context, rows};
use super::past::{self, TeamPast};
use super::query;
use super::queue;
use super::show::{self, counted, gpus};
use crate::api::question::{QuestionSpec, QueueFilter};
use crate::client::Scope;
use crate::view::{Accelerators, Amounts, BudgetRow, TeamRow, Teams, WorkloadRow};

/// The most pages of an answer about workloads; a page has up to 1,000.
const MOST_PAGES: usize = 5;
/// The workloads that are listed.
const LISTED: usize = 50;

/// `GET …/team/{team}`.
pub async fn page(
    context: Context,
    Path(path): Path<BTreeMap<String, String>>,
    RawQuery(query): RawQuery,
) -> Response {
    let team = path.get("team").cloned().unwrap_or_default();
    let pairs = query::pairs(&query.unwrap_or_default());
    let past = pairs.into_iter().find(|(key, _)| key == "past").map(|(_, value)| value);
    let drawn = load(&context, team, &past.unwrap_or_default()).await;
    context.respond(Tab::Other, drawn)
}

async fn load(
    context: &Context,
    team: String,
    past: &str,
) -> Result<impl FnOnce(&Context) -> (String, Markup) + use<>, Problem> {
    let (teams, accelerators) = context.teams().await?;
    let known =
        teams.teams.iter().any(|row| row.team == team) || teams.queues.iter().any(|row| row.team == team);
    if !known {
        return Err(Problem::new(StatusCode::NOT_FOUND, format!("there is no team {team}")));
    }
    let filter = QueueFilter { team: Some(team.clone()), ..QueueFilter::default() };
    let spec = QuestionSpec { queue: Some(filter), ..QuestionSpec::default() };
    let (pages, more) = context.ask_all(spec, MOST_PAGES).await?;
    let workloads: Vec<WorkloadRow> = rows(&pages)?;
    let past = past::of_team(context, &team, past).await;
    Ok(move |context: &Context| {
        let body = draw(context, &team, &teams, (&workloads, more), &past, &accelerators);
        (format!("Team {team}"), body)
    })
}

fn draw(
    context: &Context,
    team: &str,
    teams: &Teams,
    (workloads, more): (&[WorkloadRow], bool),
    past: &TeamPast,
    accelerators: &Accelerators,
) -> Markup {
    let palette = palette(teams, &[]);
    let own: Vec<&TeamRow> = teams.teams.iter().filter(|row| row.team == team).collect();
    let parent = own.iter().find_map(|row| row.parent.as_deref());
    let mut below: Vec<&str> =
        teams.teams.iter().filter(|row| row.parent.as_deref() == Some(team)).map(|row| &*row.team).collect();
    below.dedup();
    html! {
        h1 { (show::key(&palette, team)) "Team " (team) }
        @if let Some(parent) = parent { p.soft { "Below team " (show::team(context, parent)) "." } }
        @if !below.is_empty() {
            p.soft { "Its usage includes that of " @for (at, name) in below.iter().enumerate() { @if at > 0 { ", " } (show::team(context, name)) } "." }
        }
        h2 { "Quota" }
        @if own.is_empty() { p.empty { "It has no quota: its work runs on what others leave." } }
        @for row in &own { (quota(row, &palette.class(team), accelerators)) }
        @for row in teams.budgets.iter().filter(|row| row.team == team) { (budget(row, &palette.class(team))) }
        h2 { "Past" }
        (past.draw(context, team, &palette.class(team)))
        h2 { "Queues" }
        (queues(context, team, teams))
        h2 { "Users" }
        (users(context, workloads))
        h2 { "Work" }
        @match &context.scope {
            Scope::Namespace(namespace) => p.soft { "In namespace " (namespace) ". Work of other namespaces of the team is counted above, but not listed." },
            Scope::Cluster => {}
        }
        @if workloads.is_empty() { p.empty { "Nothing runs or waits." } } @else {
            (queue::table(context, &workloads[..workloads.len().min(LISTED)]))
            @if more || workloads.len() > LISTED {
                p.pages { a href=(context.path(&format!("queue?team={team}"))) { "All of its work" } }
            }
        }
    }
}

/// The quota of a team in one pool.
fn quota(row: &TeamRow, class: &str, accelerators: &Accelerators) -> Markup {
    let accelerators = accelerators.of_row(row);
    let count = |amounts: &Amounts| accelerators.count_amounts(amounts);
    let limited = row.limit.keys().any(|resource| accelerators.contains(resource));
    let limit = Some(count(&row.limit)).filter(|_| limited);
    let most = count(&row.used).max(count(&row.guaranteed)).max(limit.unwrap_or(0.0)).max(1.0);
    let lists = [&row.guaranteed, &row.limit, &row.used, &row.borrowed, &row.lent, &row.fair_share];
    let mut resources: Vec<&String> = lists.iter().flat_map(|list| list.keys()).collect();
    resources.sort();
    resources.dedup();
    let amount = |list: &Amounts, resource: &str, none: &str| {
        list.get(resource).map_or(none, String::as_str).to_owned()
    };
    html! {
        section.quota aria-label=(format!("Pool {}", row.pool)) {
            h3 { "Pool " (row.pool) }
            (show::meter(class, count(&row.used), count(&row.borrowed), ("guarantee", count(&row.guaranteed)), limit, most))
            p {
                (gpus(count(&row.used))) " GPUs used of " (gpus(count(&row.guaranteed))) " guaranteed"
                @if let Some(limit) = limit { " and at most " (gpus(limit)) }
                ". "
                @if count(&row.borrowed) > 0.0 { "It borrows " strong { (gpus(count(&row.borrowed))) } ". " }
                @if count(&row.lent) > 0.0 { "Others borrow " strong { (gpus(count(&row.lent))) } " of its idle guarantee. " }
                @if count(&row.unadmitted) > 0.0 { "Pods that were never admitted hold " strong { (gpus(count(&row.unadmitted))) } ". " }
            }
            details id=(format!("amounts-{}", row.pool)) {
                summary { "All resources" }
                div.scroll tabindex="0" role="region" aria-label=(format!("Resources in pool {}", row.pool)) {
                    table.compact {
                        thead { tr {
                            th scope="col" { "Resource" }
                            @for name in ["Guaranteed", "Limit", "Used", "Borrowed", "Lent", "Fair share"] { th.number scope="col" { (name) } }
                        } }
                        tbody {
                            @for resource in resources {
                                tr {
                                    th scope="row" { (resource) }
                                    @for (list, none) in [(&row.guaranteed, "0"), (&row.limit, "–"), (&row.used, "0"), (&row.borrowed, "0"), (&row.lent, "0"), (&row.fair_share, "0")] {
                                        td.number { (amount(list, resource, none)) }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The budget of a team: what is used of it, and what is committed to running work.
fn budget(row: &BudgetRow, class: &str) -> Markup {
    let used = f64::from(row.used_percent);
    let both = used + f64::from(row.committed_percent);
    html! {
        h2 { "Budget" }
        section.quota aria-label="Budget" {
            (show::bar(class, used, both, &format!("{} % used, {} % committed", row.used_percent, row.committed_percent)))
            p {
                (row.used) " of " (row.amount) " GPU-hours used (" (row.used_percent) " %), and " (row.committed)
                " committed to running work with time limits. "
                @if let Some(refill) = &row.refill { "It is full again on " strong { (refill) } ", 00:00 UTC. " }
                @match &*row.on_exhausted {
                    "Hold" => "What the rest does not cover waits until then.",
                    "BorrowOnly" => "What the rest does not cover starts on idle capacity only.",
                    _ => "A spent budget keeps nothing from starting.",
                }
                " Running work goes on in every case."
            }
        }
    }
}

fn queues(context: &Context, team: &str, teams: &Teams) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Queues" {
            table.compact {
                thead { tr { th scope="col" { "Queue" } th.number scope="col" { "Waiting" } th.number scope="col" { "Running" } th scope="col" { "Oldest waits for" } } }
                tbody {
                    @for row in teams.queues.iter().filter(|row| row.team == team) {
                        tr {
                            th scope="row" {
                                a href=(context.path(&format!("queue?team={team}&queue={}", row.queue))) { (row.queue) }
                                @if let Some(paused) = &row.paused { " " strong { "paused (" (paused) ")" } }
                            }
                            td.number { (row.pending) }
                            td.number { (row.running) }
                            td { @if let Some(oldest) = row.oldest { (show::ago(oldest, context.now)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Running GPUs and waiting workloads by user.
fn users(context: &Context, workloads: &[WorkloadRow]) -> Markup {
    let mut users: BTreeMap<&str, (f64, usize, usize)> = BTreeMap::new();
    for row in workloads {
        let sum = users.entry(row.user.as_deref().unwrap_or("not known")).or_default();
        match &*row.head.state {
            "Running" | "Evicting" => *sum = (sum.0 + row.gpus.as_f64(), sum.1 + 1, sum.2),
            "Pending" => sum.2 += 1,
            _ => {}
        }
    }
    let mut users: Vec<_> = users.into_iter().collect();
    users.sort_by(|(_, one), (_, other)| other.0.total_cmp(&one.0).then(other.2.cmp(&one.2)));
    let (most, all) = (20, users.len());
    html! {
        @if users.is_empty() { p.empty { "No work is known by its user." } } @else {
            ul.users {
                @for (user, (used, running, waiting)) in users.into_iter().take(most) {
                    li {
                        a href=(context.path(&format!("queue?user={}", query::escaped(user)))) { (user) } ": "
                        (gpus(used)) " GPUs in " (counted(running, "workload")) ", " (waiting) " waiting"
                    }
                }
            }
            @if all > most { p.soft { "and " (all - most) " more" } }
        }
    }
}
