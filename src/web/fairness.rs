//! The shares of teams: what each may expect of a pool, what it has, and its turn.

use std::collections::BTreeMap;

use axum::response::Response;
use maud::{Markup, html};

use super::answers::Problem;
use super::layout::Tab;
use super::overview::palette;
use super::page::Context;
use super::show::{self, gpus};
use crate::api::question::{Phase, QuestionSpec, QueueFilter};
use crate::chart::Palette;
use crate::client::Scope;
use crate::view::{Accelerators, TeamRow, Teams, WorkloadRow};

/// `GET …/fairness`.
pub async fn page(context: Context) -> Response {
    let drawn = load(&context).await;
    context.respond(Tab::Fairness, drawn)
}

/// How many teams come before each, by pool and team.
type Turns = BTreeMap<(String, String), usize>;

async fn load(context: &Context) -> Result<impl FnOnce(&Context) -> (String, Markup), Problem> {
    let (teams, accelerators) = context.teams().await?;
    let filter = QueueFilter { states: vec![Phase::Pending], ..QueueFilter::default() };
    let spec = QuestionSpec { queue: Some(filter), limit: Some(1_000), ..QuestionSpec::default() };
    let waiting: Vec<WorkloadRow> = context.ask(&spec).await?.rows()?;
    let turns = turns(&waiting);
    Ok(move |context: &Context| ("Fairness".to_owned(), draw(context, &teams, &turns, &accelerators)))
}

/// The turns that the places of waiting workloads show.
fn turns(waiting: &[WorkloadRow]) -> Turns {
    let mut turns = Turns::new();
    for row in waiting {
        let Some(place) = row.eta.as_ref().and_then(|eta| eta.place.as_ref()) else { continue };
        let turn = turns.entry((place.pool.clone(), row.head.team.clone())).or_insert(usize::MAX);
        *turn = place.teams_in_front.min(*turn);
    }
    turns
}

fn draw(context: &Context, teams: &Teams, turns: &Turns, accelerators: &Accelerators) -> Markup {
    let palette = palette(teams, &[]);
    let mut pools: BTreeMap<&str, Vec<&TeamRow>> = BTreeMap::new();
    for row in &teams.teams {
        pools.entry(&row.pool).or_default().push(row);
    }
    let past = teams.teams.iter().any(|row| accelerators.of_row(row).count_amounts(&row.past) > 0.0);
    html! {
        h1 { "Fairness" }
        p.soft {
            "The fair share is what a team would have if the pool were divided again by the present demand: guarantees first, then the surplus by weight. "
            "A team below its share comes before one above it."
        }
        @if pools.is_empty() { p.empty { "There are no teams with a quota yet." } }
        @for (pool, rows) in &pools {
            section aria-label=(format!("Pool {pool}")) {
                h2 { "Pool " (pool) }
                (table(context, pool, rows, turns, past, &palette, accelerators))
            }
        }
        @if matches!(context.scope, Scope::Namespace(_)) {
            p.soft.note { "Turns of teams without waiting work in this namespace are not shown." }
        }
    }
}

fn table(
    context: &Context,
    pool: &str,
    rows: &[&TeamRow],
    turns: &Turns,
    past: bool,
    palette: &Palette,
    accelerators: &Accelerators,
) -> Markup {
    let rows: Vec<_> = rows.iter().map(|row| (row, accelerators.of_row(row))).collect();
    let most = rows.iter().map(|(row, accelerators)| {
        let count = |amounts| accelerators.count_amounts(amounts);
        count(&row.used).max(count(&row.fair_share)).max(count(&row.guaranteed))
    });
    let most = most.fold(1.0, f64::max);
    html! {
        div.scroll tabindex="0" role="region" aria-label=(format!("Shares in pool {pool}")) {
            table.cards {
                thead { tr {
                    th scope="col" { "Team" } th scope="col" { "Used against fair share" }
                    th.number scope="col" { "Fair share" } th.number scope="col" { "Used" } th.number scope="col" { "Difference" }
                    th.number scope="col" { "Guaranteed" } th.number scope="col" { "Weight" }
                    @if past { th.number scope="col" { "Borrowed in the past" } }
                    th scope="col" { "Turn" }
                } }
                tbody {
                    @for (row, accelerators) in &rows {
                        @let count = |amounts| accelerators.count_amounts(amounts);
                        @let (share, used) = (count(&row.fair_share), count(&row.used));
                        tr {
                            th scope="row" { (show::key(palette, &row.team)) (show::team(context, &row.team)) }
                            td data-label="Used against fair share" { (show::meter(&palette.class(&row.team), used, count(&row.borrowed), ("fair share", share), None, most)) }
                            td.number data-label="Fair share" { (gpus(share)) }
                            td.number data-label="Used" { (gpus(used)) }
                            td.number data-label="Difference" { @if used > share + 0.001 { "+" } (gpus(used - share)) }
                            td.number data-label="Guaranteed" { (gpus(count(&row.guaranteed))) }
                            td.number data-label="Weight" { (row.weight) }
                            @if past { td.number data-label="Borrowed in the past" { (gpus(count(&row.past))) } }
                            td data-label="Turn" {
                                @match turns.get(&(pool.to_owned(), row.team.clone())) {
                                    Some(0) => strong { "next" },
                                    Some(1) => "after 1 team",
                                    Some(teams) => { "after " (teams) " teams" },
                                    None => "",
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
