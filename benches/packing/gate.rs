//! Compares the baselines with their published figures. Comparisons are valid only if they agree.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

use crate::registry::Kind;
use crate::report::{Key, Names, Results, column, mean};
use crate::run::at;
use crate::trace::PublishedTable;

/// The load at which allocation is compared, in per cent.
const ALLOCATION_AT: u32 = 100;
/// The load at which fragmentation is compared, in per cent.
const FRAGMENTATION_AT: u32 = 80;

/// The largest difference of a mean from its published figure, in points.
#[derive(Clone, Copy)]
struct Tolerance {
    allocation: f64,
    fragmentation: f64,
}

impl Tolerance {
    fn of(kind: Kind, variant: &str) -> Self {
        match kind {
            Kind::GpuClustering | Kind::GpuPacking => Self { allocation: 2.0, fragmentation: 1.5 },
            Kind::Fgd if variant == "cpu200" => Self { allocation: 1.2, fragmentation: 0.6 },
            Kind::Fgd => Self { allocation: 0.5, fragmentation: 0.6 },
            _ => Self { allocation: 0.7, fragmentation: 0.6 },
        }
    }
}

/// One figure beside the published one.
struct Line {
    variant: &'static str,
    kind: Kind,
    what: &'static str,
    published: f64,
    ours: f64,
    tolerance: f64,
}

impl Line {
    fn passes(&self) -> bool {
        (self.ours - self.published).abs() <= self.tolerance
    }
}

/// All lines of the comparison.
pub struct Gate(Vec<Line>);

impl Gate {
    /// Compares the baselines that were run with the trace's node names.
    pub fn new(results: &Results, published: &PublishedTable) -> Self {
        let mut lines = Vec::new();
        for (Key { variant, kind, names }, outcomes) in results {
            let figure = |load| published.get(&((*variant).to_owned(), kind.to_string(), load));
            let (Some(allocation), Some(fragmentation)) = (figure(ALLOCATION_AT), figure(FRAGMENTATION_AT))
            else {
                continue;
            };
            if *names == Names::Shuffled {
                continue;
            }
            let tolerance = Tolerance::of(*kind, variant);
            lines.push(Line {
                variant,
                kind: *kind,
                what: "allocation at 100 %",
                published: allocation.allocation,
                ours: mean(&column(outcomes, |o| at(o, ALLOCATION_AT).allocation)),
                tolerance: tolerance.allocation,
            });
            lines.push(Line {
                variant,
                kind: *kind,
                what: "fragmentation at 80 %",
                published: fragmentation.fragmentation,
                ours: mean(&column(outcomes, |o| at(o, FRAGMENTATION_AT).fragmentation)),
                tolerance: tolerance.fragmentation,
            });
        }
        Self(lines)
    }

    /// Number of failed lines.
    pub fn failures(&self) -> usize {
        self.0.iter().filter(|line| !line.passes()).count()
    }

    /// Number of lines.
    pub fn lines(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        table.set_header(["variant", "policy", "figure", "published", "here", "gap", "allowed", ""]);
        for line in &self.0 {
            table.add_row([
                line.variant.to_owned(),
                line.kind.to_string(),
                line.what.to_owned(),
                format!("{:.2}", line.published),
                format!("{:.2}", line.ours),
                format!("{:+.2}", line.ours - line.published),
                format!("{:.1}", line.tolerance),
                (if line.passes() { "pass" } else { "FAIL" }).to_owned(),
            ]);
        }
        for column in table.column_iter_mut().skip(3).take(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        write!(f, "{table}")
    }
}
