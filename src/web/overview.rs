//! Every GPU: which team uses it, what is reserved and closed, what is free, and what waits.

use std::collections::BTreeMap;

use axum::response::Response;
use maud::{Markup, html};

use super::answers::Problem;
use super::layout::Tab;
use super::page::{Context, rows};
use super::show::{self, counted, figure, gpus, gpus_of};
use crate::api::question::{NodesFilter, QuestionSpec};
use crate::chart::Palette;
use crate::view::{Accelerators, NodeRow, NodeWorkload, Teams};

/// The most pages of an answer about nodes; a page has up to 1,000.
const MOST_PAGES: usize = 10;
/// The most nodes that are drawn.
const MOST_NODES: usize = 2_000;
/// The most cells of a node.
const MOST_CELLS: u32 = 64;

/// `GET …/`.
pub async fn page(context: Context) -> Response {
    let drawn = load(&context).await;
    context.respond(Tab::Overview, drawn)
}

/// Nodes, teams and what counts as a GPU.
pub struct Seen {
    /// The nodes by pool and name.
    pub nodes: Vec<NodeRow>,
    /// The teams.
    pub teams: Teams,
    /// What counts as a GPU.
    pub accelerators: Accelerators,
    /// How teams look.
    pub palette: Palette,
}

impl Seen {
    /// Asks for all of it.
    ///
    /// # Errors
    /// [`Problem`].
    pub async fn ask(context: &Context) -> Result<Self, Problem> {
        let (teams, accelerators) = context.teams().await?;
        let spec = QuestionSpec { nodes: Some(NodesFilter::default()), ..QuestionSpec::default() };
        let (pages, _) = context.ask_all(spec, MOST_PAGES).await?;
        let mut nodes: Vec<NodeRow> = rows(&pages)?;
        nodes.sort_by_cached_key(|node| (node.pool.clone(), in_order(&node.name)));
        let palette = palette(&teams, &nodes);
        Ok(Self { nodes, teams, accelerators, palette })
    }
}

/// A name by its letters and numbers, so that `gpu-2` comes before `gpu-10`.
fn in_order(name: &str) -> Vec<(String, u64, String)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let (letters, after) = rest.split_at(digits);
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let (number, after) = after.split_at(end);
        parts.push((letters.to_owned(), number.parse().unwrap_or(u64::MAX), number.to_owned()));
        rest = after;
    }
    parts
}

/// How these teams look.
pub fn palette(teams: &Teams, nodes: &[NodeRow]) -> Palette {
    let named = teams.teams.iter().map(|row| &*row.team).chain(teams.queues.iter().map(|row| &*row.team));
    Palette::new(named.chain(nodes.iter().flat_map(|node| &node.workloads).map(|workload| &*workload.team)))
}

async fn load(context: &Context) -> Result<impl FnOnce(&Context) -> (String, Markup), Problem> {
    let seen = Seen::ask(context).await?;
    Ok(move |context: &Context| ("Overview".to_owned(), draw(context, &seen)))
}

fn draw(context: &Context, seen: &Seen) -> Markup {
    let Seen { nodes, teams, .. } = seen;
    let sum = |count: fn(&NodeRow) -> u32| nodes.iter().map(count).fold(0, u32::saturating_add);
    let (all, free) = (sum(|node| node.gpus), sum(|node| node.gpus_free));
    let closed = sum(|node| if node.schedulable { 0 } else { node.gpus_free });
    let waiting: usize = teams.queues.iter().map(|queue| queue.pending).sum();
    let running: usize = teams.queues.iter().map(|queue| queue.running).sum();
    let fits = fits(nodes);
    let largest =
        fits.iter().filter(|fit| fit.pods > 0).max_by_key(|fit| u64::from(fit.pods) * u64::from(fit.size));
    let used = all.saturating_sub(free);
    let part = if all == 0 { 0.0 } else { 100.0 * f64::from(used) / f64::from(all) };
    html! {
        h1 { "Overview" }
        dl.figures {
            (figure("GPUs used", html! { (used) " of " (all) }, format!("{part:.0} %")))
            (figure("free", free, if closed > 0 { format!("{closed} on closed nodes") } else { String::new() }))
            (figure("largest gang that fits now", largest.map_or("none".to_owned(), |fit| format!("{} × {}", fit.pods, gpus_of(f64::from(fit.size)))), largest.map(|fit| format!("pool {}", fit.pool)).unwrap_or_default()))
            (figure("waiting", html! { a href=(context.path("queue?state=Pending")) { (waiting) } }, "workloads"))
            (figure("running", html! { a href=(context.path("queue?state=Running")) { (running) } }, "workloads"))
        }
        @for over in &teams.overcommitments { p.warning { strong { "Overcommitted. " } (over) } }
        @for group in &teams.unadmitted {
            p.warning { strong { "Not admitted, charged to team " (group.team) ". " } (group.message) }
        }
        h2 #nodes { "Nodes" }
        @if nodes.is_empty() { p.empty { "There are no nodes yet." } } @else {
            (legend(seen))
            (map(seen))
        }
        h2 { "What fits now" }
        (fit_table(&fits))
        h2 { "Teams" }
        (team_table(context, seen))
    }
}

/// The teams by colour and letter, and the patterns.
fn legend(seen: &Seen) -> Markup {
    let cell = |class: &str, sign: &str| html! { i class=(class) aria-hidden="true" { (sign) } };
    html! {
        ul.legend aria-label="Legend" {
            @for team in seen.palette.teams() {
                li { (cell(&seen.palette.class(team), &seen.palette.letter(team).to_string())) (team) }
            }
            li { (cell("t9 borrowed", "a")) "small letter, hatched: borrowed" }
            li { (cell("reserved", "a")) "reserved for a team" }
            li { (cell("", "")) "free" }
            li { (cell("closed", "×")) "closed" }
            li { (cell("other", "?")) "not of a team" }
        }
    }
}

/// The heat map: a cell for each GPU, the nodes by pool.
fn map(seen: &Seen) -> Markup {
    let mut pools: BTreeMap<&str, Vec<&NodeRow>> = BTreeMap::new();
    for node in seen.nodes.iter().take(MOST_NODES) {
        pools.entry(&node.pool).or_default().push(node);
    }
    html! {
        @for (pool, nodes) in &pools {
            @let gpus: u32 = nodes.iter().map(|node| node.gpus).sum();
            @let free: u32 = nodes.iter().map(|node| node.gpus_free).sum();
            section.pool aria-label=(format!("Pool {pool}")) {
                h3 { "Pool " (pool) span.soft { " " (counted(nodes.len(), "node")) ", " (gpus.saturating_sub(free)) " of " (gpus) " GPUs used" } }
                ul.nodes {
                    @for node in nodes { (node_cells(node, &seen.palette)) }
                }
            }
        }
        @if seen.nodes.len() > MOST_NODES { p { "The first " (MOST_NODES) " of " (seen.nodes.len()) " nodes." } }
    }
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    class: String,
    sign: String,
}

fn node_cells(node: &NodeRow, palette: &Palette) -> Markup {
    let closed = !node.schedulable;
    html! {
        li.node title=(summary(node)) {
            span.name { (node.name) @if closed { " (" @if node.not_ready { "not ready" } @else { "closed" } ")" } }
            span.hidden { ": " (summary(node)) }
            span.cells aria-hidden="true" {
                @for cell in cells(node, palette) { i class=[Some(&cell.class).filter(|class| !class.is_empty())] { (cell.sign) } }
            }
        }
    }
}

/// The cells of a node: those in use by team, those that are reserved, and the rest.
fn cells(node: &NodeRow, palette: &Palette) -> Vec<Cell> {
    let all = node.gpus.min(MOST_CELLS);
    let mut cells: Vec<Cell> = Vec::new();
    let of = |workload: &NodeWorkload| {
        let letter = palette.letter(&workload.team);
        let borrowed = if workload.borrowed { " borrowed" } else { "" };
        let letter = if workload.borrowed { letter.to_ascii_lowercase() } else { letter };
        Cell { class: format!("{}{borrowed}", palette.class(&workload.team)), sign: letter.to_string() }
    };
    let (mut parts, mut of_parts) = (0.0, None::<Cell>);
    for workload in &node.workloads {
        let whole = whole(workload.gpus);
        cells.extend(std::iter::repeat_n(of(workload), usize::try_from(whole).unwrap_or(0)));
        let part = workload.gpus - f64::from(whole);
        if part > 0.001 {
            parts += part;
            // A GPU that several teams share has a sign of its own.
            let shared = Cell { class: "shared".to_owned(), sign: "÷".to_owned() };
            let own = of(workload);
            of_parts = Some(of_parts.map_or(own.clone(), |other| if other == own { own } else { shared }));
        }
    }
    if let Some(cell) = of_parts {
        cells.extend(std::iter::repeat_n(cell, usize::try_from(whole(parts.ceil())).unwrap_or(0)));
    }
    let used = usize::try_from(node.gpus.saturating_sub(node.gpus_free)).unwrap_or(0);
    while cells.len() < used {
        cells.push(Cell { class: "other".to_owned(), sign: "?".to_owned() });
    }
    for workload in &node.reserved {
        let letter = palette.letter(&workload.team).to_ascii_lowercase().to_string();
        let cell = Cell { class: format!("reserved {}", palette.class(&workload.team)), sign: letter };
        cells.extend(std::iter::repeat_n(cell, usize::try_from(whole(workload.gpus.ceil())).unwrap_or(0)));
    }
    let rest = if node.schedulable {
        Cell { class: String::new(), sign: String::new() }
    } else {
        Cell { class: "closed".to_owned(), sign: "×".to_owned() }
    };
    cells.resize(usize::try_from(all).unwrap_or(0), rest);
    cells
}

/// A node in words.
fn summary(node: &NodeRow) -> String {
    let mut parts = vec![format!("{} of {} GPUs used", node.gpus.saturating_sub(node.gpus_free), node.gpus)];
    let mut teams: BTreeMap<(&str, bool), f64> = BTreeMap::new();
    for workload in node.workloads.iter().filter(|workload| workload.gpus > 0.0) {
        *teams.entry((&workload.team, workload.borrowed)).or_default() += workload.gpus;
    }
    parts.extend(teams.into_iter().map(|((team, borrowed), count)| {
        let team = if team.is_empty() { "no team" } else { team };
        format!("{team} {}{}", gpus(count), if borrowed { " borrowed" } else { "" })
    }));
    parts.extend(node.reserved.iter().map(|owner| {
        let name = if owner.workload.is_empty() { "a workload" } else { &owner.workload };
        format!("{} reserved for {name} of team {}", gpus_of(owner.gpus), owner.team)
    }));
    if !node.schedulable {
        let why = if node.not_ready { "not ready, so closed" } else { "closed" };
        parts.push(format!("{why} to new pods"));
    }
    parts.join(", ")
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the GPUs of a node, never negative"
)]
fn whole(count: f64) -> u32 {
    (count + 0.001).clamp(0.0, f64::from(MOST_CELLS)) as u32
}

/// How many pods of a size fit a pool at once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fit {
    pool: String,
    /// GPUs of each pod.
    size: u32,
    pods: u32,
}

/// The GPUs of a node that are free for new pods: not reserved, and the node is open.
fn open_gpus(node: &NodeRow) -> u32 {
    let reserved: f64 = node.reserved.iter().map(|owner| owner.gpus).sum();
    if node.schedulable { node.gpus_free.saturating_sub(whole(reserved.ceil())) } else { 0 }
}

/// The pods of each usual size that fit each pool.
fn fits(nodes: &[NodeRow]) -> Vec<Fit> {
    let mut pools: BTreeMap<&str, Vec<&NodeRow>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.gpus > 0) {
        pools.entry(&node.pool).or_default().push(node);
    }
    let mut fits = Vec::new();
    for (pool, nodes) in pools {
        let largest = nodes.iter().map(|node| node.gpus).max().unwrap_or(1);
        let mut sizes: Vec<u32> = [1, 2, 4, 8, 16].into_iter().filter(|size| *size < largest).collect();
        sizes.push(largest);
        fits.extend(sizes.into_iter().map(|size| {
            let pods = nodes.iter().map(|node| open_gpus(node) / size).sum();
            Fit { pool: pool.to_owned(), size, pods }
        }));
    }
    fits
}

fn fit_table(fits: &[Fit]) -> Markup {
    let mut sizes: Vec<u32> = fits.iter().map(|fit| fit.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut pools: Vec<&str> = fits.iter().map(|fit| &*fit.pool).collect();
    pools.dedup();
    let pods = |pool: &str, size: u32| fits.iter().find(|fit| fit.pool == pool && fit.size == size);
    html! {
        @if fits.is_empty() { p.empty { "There are no GPUs." } } @else {
            p.soft {
                "Pods that start together, by the GPUs of each: free GPUs of open nodes that are not reserved. Quotas, cpu and \
                 memory may allow fewer."
            }
            div.scroll tabindex="0" role="region" aria-label="What fits now" {
                table.compact {
                    thead { tr { th scope="col" { "Pool" } @for size in &sizes { th.number scope="col" { (gpus_of(f64::from(*size))) } } } }
                    tbody {
                        @for pool in pools {
                            tr {
                                th scope="row" { (pool) }
                                @for size in &sizes { td.number { @match pods(pool, *size) { Some(fit) => (fit.pods), None => "–" } } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn team_table(context: &Context, seen: &Seen) -> Markup {
    let Seen { teams, accelerators, palette, .. } = seen;
    let rows: Vec<_> = teams.teams.iter().map(|row| (row, accelerators.of_row(row))).collect();
    let most = rows.iter().map(|(row, accelerators)| {
        let count = |amounts| accelerators.count_amounts(amounts);
        count(&row.used).max(count(&row.guaranteed)).max(count(&row.limit))
    });
    let most = most.fold(1.0, f64::max);
    let mut waiting: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for queue in &teams.queues {
        let sum = waiting.entry(&queue.team).or_default();
        *sum = (sum.0 + queue.pending, sum.1 + queue.running);
    }
    let mut named = None;
    html! {
        @if teams.teams.is_empty() && teams.queues.is_empty() { p.empty { "There are no teams yet." } } @else {
            div.scroll tabindex="0" role="region" aria-label="Teams" {
                table.cards {
                    thead {
                        tr {
                            th scope="col" { "Team" } th scope="col" { "Pool" } th scope="col" { "GPUs used" }
                            th.number scope="col" { "Used" } th.number scope="col" { "Guaranteed" }
                            th.number scope="col" { "Borrowed" } th.number scope="col" { "Lent" }
                            th.number scope="col" { "Waiting" } th.number scope="col" { "Running" }
                        }
                    }
                    tbody {
                        @for (row, accelerators) in &rows {
                            @let count = |amounts| accelerators.count_amounts(amounts);
                            @let first = named.replace(&row.team) != Some(&row.team);
                            @let (pending, running) = waiting.get(&*row.team).copied().unwrap_or_default();
                            tr {
                                th scope="row" { (show::key(palette, &row.team)) (show::team(context, &row.team)) }
                                td data-label="Pool" { (row.pool) }
                                td data-label="GPUs used" {
                                    (show::meter(&palette.class(&row.team), count(&row.used), count(&row.borrowed), ("guarantee", count(&row.guaranteed)),
                                        Some(count(&row.limit)).filter(|_| row.limit.keys().any(|resource| accelerators.contains(resource))), most))
                                }
                                td.number data-label="Used" { (gpus(count(&row.used))) }
                                td.number data-label="Guaranteed" { (gpus(count(&row.guaranteed))) }
                                td.number data-label="Borrowed" { (gpus(count(&row.borrowed))) }
                                td.number data-label="Lent" { (gpus(count(&row.lent))) }
                                td.number data-label="Waiting" { @if first { (pending) } }
                                td.number data-label="Running" { @if first { (running) } }
                            }
                        }
                        @for (team, (pending, running)) in waiting.iter().filter(|(team, _)| !teams.teams.iter().any(|row| row.team == **team)) {
                            tr {
                                th scope="row" { (show::key(palette, team)) (show::team(context, team)) }
                                td.soft colspan="6" { "no quota: runs on what others leave" }
                                td.number data-label="Waiting" { (pending) }
                                td.number data-label="Running" { (running) }
                            }
                        }
                    }
                }
            }
            p.soft.note { "The dashed line is the guarantee, the solid line the limit. A team's usage includes that of the teams below it." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(team: &str, gpus: f64, borrowed: bool) -> NodeWorkload {
        NodeWorkload { team: team.to_owned(), pods: 1, gpus, borrowed, ..NodeWorkload::default() }
    }

    fn node(workloads: Vec<NodeWorkload>, gpus: u32, gpus_free: u32) -> NodeRow {
        NodeRow {
            name: "n".into(),
            pool: "p".into(),
            schedulable: true,
            gpus,
            gpus_free,
            workloads,
            ..NodeRow::default()
        }
    }

    fn signs(node: &NodeRow) -> String {
        let palette = Palette::new(["red", "blue"]);
        cells(node, &palette).iter().map(|cell| if cell.sign.is_empty() { "." } else { &cell.sign }).collect()
    }

    #[test]
    fn a_node_has_a_cell_for_each_gpu() {
        let mut busy = node(vec![on("red", 2.0, false), on("blue", 1.0, true)], 8, 4);
        assert_eq!(signs(&busy), "RRb?....", "one GPU is used by no team");
        busy.reserved = vec![on("blue", 3.0, false)];
        assert_eq!(signs(&busy), "RRb?bbb.");
        assert_eq!((open_gpus(&busy), open_gpus(&NodeRow { schedulable: false, ..busy.clone() })), (1, 0));
        assert_eq!(signs(&NodeRow { schedulable: false, ..busy }), "RRb?bbb×");
        let halves = node(vec![on("red", 0.5, false), on("red", 0.5, false)], 2, 1);
        assert_eq!(signs(&halves), "R.");
        let shared = node(vec![on("red", 0.5, false), on("blue", 1.25, false)], 2, 0);
        assert_eq!(signs(&shared), "B÷");
        assert_eq!(signs(&node(vec![on("red", 9.0, false)], 4, 0)), "RRRR", "never more than it has");
    }

    #[test]
    fn pods_fit_by_free_gpus_of_open_nodes() {
        let closed = NodeRow { schedulable: false, ..node(Vec::new(), 8, 8) };
        let fits = fits(&[node(Vec::new(), 8, 8), node(Vec::new(), 8, 3), closed]);
        let pods: Vec<(u32, u32)> = fits.iter().map(|fit| (fit.size, fit.pods)).collect();
        assert_eq!(pods, [(1, 11), (2, 5), (4, 2), (8, 1)]);
    }

    #[test]
    fn nodes_are_in_the_order_of_their_numbers() {
        let mut names = ["gpu-10", "gpu-2", "a-1", "gpu-2-b", "gpu-99999999999999999999"];
        names.sort_by_key(|name| in_order(name));
        assert_eq!(names, ["a-1", "gpu-2", "gpu-2-b", "gpu-10", "gpu-99999999999999999999"]);
    }

    #[test]
    fn a_node_in_words_names_teams_and_reservations() {
        let mut busy = node(vec![on("red", 2.0, false), on("", 1.0, false)], 8, 5);
        busy.reserved = vec![on("blue", 1.0, false)];
        assert_eq!(
            summary(&busy),
            "3 of 8 GPUs used, no team 1, red 2, 1 GPU reserved for a workload of team blue"
        );
        let closed = |not_ready| NodeRow { schedulable: false, not_ready, ..node(Vec::new(), 8, 8) };
        assert_eq!(summary(&closed(false)), "0 of 8 GPUs used, closed to new pods");
        assert_eq!(summary(&closed(true)), "0 of 8 GPUs used, not ready, so closed to new pods");
    }
}
