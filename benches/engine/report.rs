//! The figures of a measurement, as a table, as CSV, and as growth from size to size.

use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use sluice_engine::types::Effort;

use crate::clock::processor_time;
use crate::world::{Size, World};

/// So many steps at most are planned to the end.
const MOST_RESTS: u64 = 200;

/// What was measured at one size.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    steps: u64,
    decisions: u64,
    searches: u64,
    bounded: u64,
    mean: Duration,
    p50: Duration,
    p99: Duration,
    longest: Duration,
    rest: Rest,
    first_plan: Duration,
    resident: u64,
    per_pending: u64,
}

/// What it takes until nothing is left to be planned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest {
    /// After how many of the steps measured something was left for further plans.
    left_over: u64,
    /// How many steps were planned to the end, each from a state of rest.
    steps: u64,
    /// How many further plans they entailed; if none was planned to the end, those made until then.
    plans: u64,
    /// How long these took in sum.
    sum: Duration,
}

impl Rest {
    /// Measures it, for so long at most, after steps of which so many left something over.
    pub fn of(world: &mut World, left_over: usize, limit: Duration) -> Self {
        let left_over = left_over as u64;
        let started = Instant::now();
        let drain = |world: &mut World| {
            let (begun, mut plans) = (processor_time(), 0);
            while world.engine.has_more() && started.elapsed() < limit {
                world.plan();
                plans += 1;
            }
            (plans, processor_time() - begun, !world.engine.has_more())
        };
        let (plans, sum, mut ended) = drain(world);
        let mut rest = Self { left_over, steps: 0, plans, sum };
        while ended && rest.steps < MOST_RESTS {
            world.step();
            world.plan();
            let (plans, sum, now_ended) = drain(world);
            ended = now_ended;
            if ended {
                let before = if rest.steps == 0 { Self::default() } else { rest };
                let (plans, sum) = (before.plans + plans, before.sum + sum);
                rest = Self { left_over, steps: rest.steps + 1, plans, sum };
            }
        }
        rest
    }

    fn cells(&self) -> [String; 2] {
        let (plans, micros) = (self.plans as f64, self.sum.as_micros() as f64);
        match self.steps {
            0 => [format!("> {plans}"), format!("> {micros}")],
            steps => [format!("{:.1}", plans / steps as f64), format!("{:.0}", micros / steps as f64)],
        }
    }
}

/// What was measured, and at which size.
pub struct Row {
    /// How large the cluster was.
    pub size: Size,
    /// What was measured.
    pub figures: Figures,
}

impl Figures {
    /// The figures of these times; memory in bytes, in all and for one waiting workload.
    pub fn new(
        times: &mut [Duration],
        rest: Rest,
        first_plan: Duration,
        resident: u64,
        per_pending: u64,
        decisions: usize,
        effort: Effort,
    ) -> Self {
        let [p50, p99, longest] = quantiles(times);
        let steps = times.len() as u64;
        let mean = times.iter().sum::<Duration>() / u32::try_from(steps.max(1)).unwrap_or(u32::MAX);
        let (decisions, Effort { searches, bounded }) = (decisions as u64, effort);
        Self {
            steps,
            decisions,
            searches,
            bounded,
            mean,
            p50,
            p99,
            longest,
            rest,
            first_plan,
            resident,
            per_pending,
        }
    }

    /// One line from which [`Figures::parse`] reads them again.
    pub fn line(&self) -> String {
        let times = [self.mean, self.p50, self.p99, self.longest, self.rest.sum, self.first_plan];
        let times: Vec<String> = times.iter().map(|time| time.as_nanos().to_string()).collect();
        format!(
            "figures {} {} {} {} {} {} {} {} {} {}",
            self.steps,
            self.decisions,
            self.searches,
            self.bounded,
            self.rest.left_over,
            self.rest.steps,
            self.rest.plans,
            times.join(" "),
            self.resident,
            self.per_pending
        )
    }

    /// The figures in such a line; none if it is another one.
    pub fn parse(line: &str) -> Option<Self> {
        let numbers: Option<Vec<u64>> =
            line.strip_prefix("figures ")?.split(' ').map(|number| number.parse().ok()).collect();
        let [steps, decisions, searches, bounded, left_over, rested, plans, times @ ..]: [u64; 15] =
            numbers?.try_into().ok()?;
        let [mean, p50, p99, longest, sum, first_plan, resident, per_pending] = times;
        let nanos = Duration::from_nanos;
        Some(Self {
            steps,
            decisions,
            searches,
            bounded,
            mean: nanos(mean),
            p50: nanos(p50),
            p99: nanos(p99),
            longest: nanos(longest),
            rest: Rest { left_over, steps: rested, plans, sum: nanos(sum) },
            first_plan: nanos(first_plan),
            resident,
            per_pending,
        })
    }

    fn steps_per_second(&self) -> f64 {
        1.0 / self.mean.as_secs_f64().max(1e-9)
    }
}

/// The middle, the 99th in a hundred, and the longest; sorts the times.
pub fn quantiles(times: &mut [Duration]) -> [Duration; 3] {
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
    [50, 99, 100].map(|part| at(part).copied().unwrap_or_default())
}

/// A number of things that a size says.
type Dimension = fn(&Size) -> usize;

const HEADERS: [&str; 16] = [
    "nodes",
    "pending",
    "teams",
    "events/s",
    "p50 µs",
    "p99 µs",
    "max µs",
    "left over %",
    "further plans to rest",
    "their sum µs",
    "first plan ms",
    "memory MiB",
    "bytes/pending",
    "decisions",
    "searches",
    "bounded",
];

fn cells(row: &Row) -> [String; 16] {
    let figures = &row.figures;
    let micros = |time: Duration| time.as_micros().to_string();
    let [plans_to_rest, time_to_rest] = figures.rest.cells();
    [
        row.size.nodes.to_string(),
        row.size.pending.to_string(),
        row.size.teams.to_string(),
        format!("{:.0}", figures.steps_per_second()),
        micros(figures.p50),
        micros(figures.p99),
        micros(figures.longest),
        (figures.rest.left_over * 100 / figures.steps.max(1)).to_string(),
        plans_to_rest,
        time_to_rest,
        figures.first_plan.as_millis().to_string(),
        (figures.resident >> 20).to_string(),
        figures.per_pending.to_string(),
        figures.decisions.to_string(),
        figures.searches.to_string(),
        figures.bounded.to_string(),
    ]
}

/// For people.
pub fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(HEADERS);
    for row in rows {
        table.add_row(cells(row));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// For programs.
pub fn csv(rows: &[Row]) -> String {
    let lines = rows.iter().map(|row| cells(row).join(","));
    std::iter::once(HEADERS.join(",").replace(' ', "_"))
        .chain(lines)
        .fold(String::new(), |text, line| text + &line + "\n")
}

/// How many times as much a step costs at the greatest size as with less of one thing.
pub fn growth(rows: &[Row]) -> String {
    let Some(largest) = rows.iter().max_by_key(|row| (row.size.nodes, row.size.pending, row.size.teams))
    else {
        return String::new();
    };
    let dimensions: [(&str, Dimension); 3] =
        [("nodes", |s| s.nodes), ("pending", |s| s.pending), ("teams", |s| s.teams)];
    let mut text = String::new();
    for (name, number) in dimensions {
        let alike = |row: &&Row| {
            dimensions.iter().all(|(other, of)| *other == name || of(&row.size) == of(&largest.size))
                && number(&row.size) < number(&largest.size)
        };
        for row in rows.iter().filter(alike) {
            let ratio = |of: fn(&Figures) -> Duration| {
                of(&largest.figures).as_secs_f64() / of(&row.figures).as_secs_f64().max(1e-9)
            };
            text += &format!(
                "{name}: {} -> {} (x{:.0}): mean x{:.2}, p50 x{:.2}, p99 x{:.2}\n",
                number(&row.size),
                number(&largest.size),
                number(&largest.size) as f64 / number(&row.size).max(1) as f64,
                ratio(|f| f.mean),
                ratio(|f| f.p50),
                ratio(|f| f.p99),
            );
        }
    }
    text
}
