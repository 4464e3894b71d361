//! The figures of a measurement as a table, as CSV, and as growth from size to size.

use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use sluice_engine::types::Effort;

use crate::clock::processor_time;
use crate::world::{Size, World};

/// Largest number of steps that are planned until no work is left.
const MOST_RESTS: u64 = 200;

/// The measurements at one size.
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
    memory: Memory,
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Of the engine with all nodes and workloads.
    pub resident: u64,
    /// Of one waiting workload.
    pub per_pending: u64,
}

/// The cost of planning until no work is left.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest {
    /// Number of measured steps after which work was left for further plans.
    left_over: u64,
    /// Number of steps planned until no work was left, each from a state of rest.
    steps: u64,
    /// Number of further plans of these steps; if none came to rest, those made until then.
    plans: u64,
    /// Total time of the further plans.
    sum: Duration,
}

impl Rest {
    /// Measures the cost for at most `limit`, after measured steps of which `left_over` left work.
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

/// The figures of one size.
pub struct Row {
    /// Size of the cluster.
    pub size: Size,
    /// Its figures.
    pub figures: Figures,
}

impl Figures {
    /// The figures of these times; sorts the times.
    pub fn new(
        times: &mut [Duration],
        rest: Rest,
        first_plan: Duration,
        memory: Memory,
        decisions: usize,
        effort: Effort,
    ) -> Self {
        let [p50, p99, longest] = quantiles(times);
        let steps = times.len() as u64;
        let mean = times.iter().sum::<Duration>() / u32::try_from(steps.max(1)).unwrap_or(u32::MAX);
        let (decisions, Effort { searches, bounded, .. }) = (decisions as u64, effort);
        Self { steps, decisions, searches, bounded, mean, p50, p99, longest, rest, first_plan, memory }
    }

    /// The figures as one line for [`Figures::parse`].
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
            self.memory.resident,
            self.memory.per_pending
        )
    }

    /// Reads the figures of such a line; none for another line.
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
            memory: Memory { resident, per_pending },
        })
    }

    fn steps_per_second(&self) -> f64 {
        1.0 / self.mean.as_secs_f64().max(1e-9)
    }
}

/// Median, 99th percentile and maximum; sorts the times.
pub fn quantiles(times: &mut [Duration]) -> [Duration; 3] {
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
    [50, 99, 100].map(|part| at(part).copied().unwrap_or_default())
}

/// A dimension of a size.
type Dimension = fn(&Size) -> usize;

const HEADERS: [&str; 16] = [
    "nodes",
    "pending",
    "teams",
    "events/s",
    "p50 µs",
    "p99 µs",
    "max µs",
    "unfinished plans %",
    "further plans to rest",
    "time to rest µs",
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
        (figures.memory.resident >> 20).to_string(),
        figures.memory.per_pending.to_string(),
        figures.decisions.to_string(),
        figures.searches.to_string(),
        figures.bounded.to_string(),
    ]
}

/// The table for readers.
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

/// The table of `benches/README.md`.
pub fn summary(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "nodes",
        "waiting",
        "teams",
        "events/s",
        "p50 ms",
        "p99 ms",
        "longest ms",
        "memory MiB",
        "searches bounded",
    ]);
    let millis = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1000.0);
    for Row { size, figures } in rows {
        table.add_row([
            thousands(size.nodes as u64),
            thousands(size.pending as u64),
            thousands(size.teams as u64),
            format!("{:.0}", figures.steps_per_second()),
            millis(figures.p50),
            millis(figures.p99),
            millis(figures.longest),
            thousands(figures.memory.resident >> 20),
            format!("{} %", figures.bounded * 100 / figures.searches.max(1)),
        ]);
    }
    table.add_row(["goal", "", "", "", "", "5", "20", "1,024", ""]);
    table
}

/// A number with commas between thousands.
fn thousands(value: u64) -> String {
    if value < 1000 { value.to_string() } else { format!("{},{:03}", thousands(value / 1000), value % 1000) }
}

/// The table for programs.
pub fn csv(rows: &[Row]) -> String {
    let lines = rows.iter().map(|row| cells(row).join(","));
    std::iter::once(HEADERS.join(",").replace(' ', "_"))
        .chain(lines)
        .fold(String::new(), |text, line| text + &line + "\n")
}

/// Factor by which a step costs more at the largest size than with less of one dimension.
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
