//! The demo's live view: teams, nodes and Sluice's latest Events.

use std::collections::BTreeMap;

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::Value;
use sluice::engine::types::amount::Amount;
use sluice_harness::{PodView, View};

/// Number of Events shown.
const EVENTS: usize = 4;

/// A view of the cluster at one moment.
pub struct Board {
    view: View,
    teams: Vec<TeamRow>,
    events: Vec<Event>,
}

/// A team in the unit of its guarantee.
struct TeamRow {
    name: String,
    unit: Unit,
    guaranteed: i64,
    used: i64,
    pending: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Gpu,
    Cpu,
}

impl Unit {
    const ALL: [(Self, &str); 2] = [(Self::Gpu, "nvidia.com/gpu"), (Self::Cpu, "cpu")];

    fn of(self, pod: &PodView) -> i64 {
        match self {
            Self::Gpu => pod.gpus,
            Self::Cpu => pod.cpu_milli / 1000,
        }
    }

    fn count(self, number: i64) -> String {
        match self {
            Self::Gpu => format!("{number} GPU"),
            Self::Cpu => format!("{number} CPU"),
        }
    }
}

impl Board {
    /// Reads the cluster from the API server.
    pub async fn take(client: &Client) -> Result<Self> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("sluice.dev", "v1alpha1", "Team"));
        let teams: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let events: Api<Event> = Api::all(client.clone());
        let all = ListParams::default();
        let (view, teams, events) =
            tokio::try_join!(View::take(client), async { Ok(teams.list(&all).await?) }, async {
                Ok(events.list(&all).await?)
            })?;
        let rows = teams.items.iter().map(|team| TeamRow::new(team, &view)).collect();
        let mut events = events.items;
        events.retain(|event| {
            event.reporting_controller.as_deref().is_some_and(|controller| controller.contains("sluice"))
        });
        events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
        Ok(Self { view, teams: rows, events })
    }

    /// The view in color, as lines.
    pub fn lines(&self) -> Vec<String> {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["team", "guaranteed", "used", "borrowed", "waiting"]);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for team in &self.teams {
            table.add_row([
                team.name.clone(),
                team.unit.count(team.guaranteed),
                team.used.to_string(),
                team.borrowed().to_string(),
                team.pending.to_string(),
            ]);
        }
        // Colored after the layout, because the table counts escape sequences as visible characters.
        let mut lines = vec![String::new()];
        lines.extend(table.lines().map(|line| format!("  {line}")));
        for (line, team) in lines.iter_mut().skip(2).zip(&self.teams) {
            *line = paint(&team.name, line);
        }
        lines.push(String::new());
        lines.extend(self.view.nodes.keys().map(|node| self.node(node)));
        lines.push(String::new());
        lines.extend(self.event_lines());
        lines
    }

    /// The teams in one line without color.
    pub fn line(&self) -> String {
        let team = |team: &TeamRow| {
            let TeamRow { name, unit, used, pending, .. } = team;
            format!("team {name}: {} ({} borrowed), {pending} waiting", unit.count(*used), team.borrowed())
        };
        self.teams.iter().map(team).collect::<Vec<_>>().join("; ")
    }

    /// A node with one block per GPU, or per CPU if it has no GPUs.
    fn node(&self, name: &str) -> String {
        let offers = self.view.nodes.get(name).copied().unwrap_or_default();
        let (unit, size) = match offers.gpus {
            0 => (Unit::Cpu, offers.cpu_milli / 1000),
            gpus => (Unit::Gpu, gpus),
        };
        let mut used: BTreeMap<(&str, bool), i64> = BTreeMap::new();
        for pod in self.view.pods.iter().filter(|pod| pod.holds() && pod.node.as_deref() == Some(name)) {
            let team = pod.team.as_deref().unwrap_or("-");
            *used.entry((team, pod.deleting)).or_default() += unit.of(pod);
        }
        let blocks = |(&(team, leaving), count): (&(&str, bool), &i64)| {
            let block = if leaving { "▒▒ " } else { "██ " };
            paint(team, &block.repeat(usize::try_from(*count).unwrap_or(0)))
        };
        let total: i64 = used.values().sum();
        let free = "·· ".repeat(usize::try_from(size - total).unwrap_or(0));
        let blocks: String = used.iter().map(blocks).collect();
        format!("  {name:<12} {blocks}{free} {total}/{}", unit.count(size))
    }

    /// Sluice's latest Events; equal reasons in a namespace share a line.
    fn event_lines(&self) -> Vec<String> {
        let mut groups: Vec<(&Event, usize)> = Vec::new();
        for event in self.events.iter().rev() {
            if let Some((last, count)) = groups.last_mut()
                && last.reason == event.reason
                && namespace(last) == namespace(event)
            {
                *count += 1;
            } else if groups.len() == EVENTS {
                break;
            } else {
                groups.push((event, 1));
            }
        }
        let mut lines = vec!["  Events of Sluice".to_owned()];
        let width = terminal_size::terminal_size().map_or(120, |(width, _)| usize::from(width.0));
        lines.extend(groups.iter().rev().flat_map(|(event, count)| {
            let time = event.event_time.as_ref().map(|time| time.0.strftime("%H:%M:%S").to_string());
            let name = event.regarding.as_ref().and_then(|object| object.name.as_deref()).unwrap_or_default();
            let others = if *count > 1 { format!(" and {} more", count - 1) } else { String::new() };
            let line = format!(
                "{} {:<9} {}/{name}{others}: {}",
                time.unwrap_or_default(),
                event.reason.as_deref().unwrap_or_default(),
                namespace(event),
                event.note.as_deref().unwrap_or_default()
            );
            wrapped(&line, width)
        }));
        // The height is constant, so that the view does not jump.
        lines.resize(2 * EVENTS + 1, String::new());
        lines
    }
}

/// A text as two indented lines of whole words; what does not fit into them is left out.
fn wrapped(text: &str, width: usize) -> [String; 2] {
    let mut lines = ["  ".to_owned(), "           ".to_owned()];
    let mut at = 0;
    for word in text.split(' ') {
        let fits = |line: &String| line.chars().count() + word.chars().count() + 2 < width;
        if at == 0 && !fits(&lines[0]) {
            at = 1;
        }
        if at == 1 && !fits(&lines[1]) {
            lines[1].push('…');
            break;
        }
        lines[at].push_str(word);
        lines[at].push(' ');
    }
    lines.map(|line| line.trim_end().to_owned())
}

/// The namespace of an Event.
fn namespace(event: &Event) -> &str {
    event.regarding.as_ref().and_then(|object| object.namespace.as_deref()).unwrap_or_default()
}

impl TeamRow {
    fn new(team: &DynamicObject, view: &View) -> Self {
        let name = team.name_any();
        let guaranteed = |resource: &str| -> i64 {
            let quotas = team.data["spec"]["quotas"].as_array().into_iter().flatten();
            let amounts = quotas.filter_map(|quota| {
                let text = match &quota["guaranteed"][resource] {
                    Value::String(text) => text.clone(),
                    Value::Number(number) => number.to_string(),
                    _ => return None,
                };
                Amount::parse(&text).ok()
            });
            amounts.map(Amount::as_milli).sum::<i64>() / 1000
        };
        let listed = Unit::ALL.into_iter().map(|(unit, resource)| (unit, guaranteed(resource)));
        let (unit, guaranteed) = listed.into_iter().find(|(_, amount)| *amount > 0).unwrap_or((Unit::Gpu, 0));
        let of_team = |pod: &&PodView| pod.holds() && pod.team.as_deref() == Some(&name);
        let used = view.pods.iter().filter(of_team).map(|pod| unit.of(pod)).sum();
        let pending =
            view.jobs.iter().filter(|job| job.team.as_deref() == Some(&name) && job.queued()).count();
        Self { name, unit, guaranteed, used, pending }
    }

    fn borrowed(&self) -> i64 {
        (self.used - self.guaranteed).max(0)
    }
}

/// A text in the color of a team.
fn paint(team: &str, text: &str) -> String {
    let color = match team {
        "a" => 34,
        "b" => 33,
        "c" => 35,
        _ => 37,
    };
    format!("\x1b[{color}m{text}\x1b[0m")
}

/// A heading.
pub fn bold(text: &str, color: bool) -> String {
    if color { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

/// The result line of a story.
pub fn verdict(text: &str, passed: bool, color: bool) -> String {
    let mark = if passed { "✔" } else { "✘" };
    match color {
        true => format!("\x1b[{}m{mark} {text}\x1b[0m", if passed { 32 } else { 31 }),
        false => format!("{mark} {text}"),
    }
}
