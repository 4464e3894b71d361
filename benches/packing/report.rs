//! The figures of all runs: as tables, and as CSV.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};

use crate::registry::Kind;
use crate::run::{LOADS, Outcome, Sample, at};
use crate::trace::{PublishedTable, VARIANTS};

/// The assignment of names to nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Names {
    /// As in the trace.
    Given,
    /// Shuffled, differently for each seed.
    Shuffled,
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Given => "given",
            Self::Shuffled => "shuffled",
        })
    }
}

/// The parameters that every seed was run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The list of pods.
    pub variant: &'static str,
    /// The policy.
    pub kind: Kind,
    /// The names of the nodes.
    pub names: Names,
}

impl Key {
    fn place(&self) -> (Option<usize>, Names, Kind) {
        (VARIANTS.iter().position(|variant| *variant == self.variant), self.names, self.kind)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place().cmp(&other.place())
    }
}

/// The outcomes, seed by seed.
pub type Results = BTreeMap<Key, BTreeMap<u64, Outcome>>;

/// One figure of every seed's outcome.
pub fn column(outcomes: &BTreeMap<u64, Outcome>, figure: impl Fn(&Outcome) -> f64) -> Vec<f64> {
    outcomes.values().map(figure).collect()
}

/// The mean.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The standard deviation of the population.
fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// One figure of the sample at a load.
type Figure = fn(&Sample) -> f64;

/// Every figure of every policy, a row for each variant.
pub fn figures(results: &Results) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "variant",
        "names",
        "policy",
        "alloc 95",
        "alloc 100",
        "alloc 130",
        "idle GPUs",
        "frag 60",
        "frag 80",
        "frag 90",
        "frag 100",
        "dropped",
        "p50",
        "p99",
    ]);
    for (key, outcomes) in results {
        let spread = |load, figure: Figure| {
            let values = column(outcomes, |o| figure(at(o, load)));
            format!("{:.2} ({:.2})", mean(&values), deviation(&values))
        };
        let plain = |figure: &dyn Fn(&Outcome) -> f64| mean(&column(outcomes, figure));
        table.add_row([
            key.variant.to_owned(),
            key.names.to_string(),
            key.kind.to_string(),
            spread(95, |s| s.allocation),
            spread(100, |s| s.allocation),
            spread(130, |s| s.allocation),
            format!("{:.0}", plain(&|o| at(o, 100).idle)),
            spread(60, |s| s.fragmentation),
            spread(80, |s| s.fragmentation),
            spread(90, |s| s.fragmentation),
            spread(100, |s| s.fragmentation),
            format!("{:.1}", plain(&|o| at(o, 100).failed_multi)),
            micros(plain(&|o| o.p50)),
            micros(plain(&|o| o.p99)),
        ]);
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn micros(nanos: f64) -> String {
    format!("{:.0} µs", nanos / 1000.0)
}

/// Sluice at full load beside the best of the other policies and the published figures of FGD.
pub fn verdict(results: &Results, published: &PublishedTable) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header([
        "variant",
        "names",
        "BestFit",
        "FGD here",
        "FGD published (std)",
        "Sluice (std)",
        "to BestFit",
        "to FGD here",
        "to FGD published",
        "in its std",
    ]);
    let mut gaps: BTreeMap<Names, Vec<[f64; 3]>> = BTreeMap::new();
    for (key, outcomes) in results.iter().filter(|(key, _)| key.kind == Kind::Sluice) {
        let allocation = |outcomes| column(outcomes, |o| at(o, 100).allocation);
        let ours = allocation(outcomes);
        let of = |kind| results.get(&Key { kind, ..*key }).map(|outcomes| mean(&allocation(outcomes)));
        let figure = published.get(&(key.variant.to_owned(), Kind::Fgd.to_string(), 100));
        let (Some(best_fit), Some(fgd), Some(figure)) = (of(Kind::BestFit), of(Kind::Fgd), figure) else {
            continue;
        };
        let all = [best_fit, fgd, figure.allocation].map(|other| mean(&ours) - other);
        gaps.entry(key.names).or_default().push(all);
        table.add_row([
            key.variant.to_owned(),
            key.names.to_string(),
            format!("{best_fit:.2}"),
            format!("{fgd:.2}"),
            format!("{:.2} ({:.2})", figure.allocation, figure.deviation),
            format!("{:.2} ({:.2})", mean(&ours), deviation(&ours)),
            format!("{:+.2}", all[0]),
            format!("{:+.2}", all[1]),
            format!("{:+.2}", all[2]),
            format!("{:+.1}", all[2] / figure.deviation),
        ]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = table.to_string();
    for (names, gaps) in gaps {
        let mean = |index: usize| gaps.iter().map(|gap| gap[index]).sum::<f64>() / gaps.len() as f64;
        let above = |index: usize| gaps.iter().filter(|gap| gap[index] > 0.0).count();
        text += &format!(
            "\nnames {names}: above BestFit in {} of {n} variants ({:+.2} in the mean), above FGD run here in {} \
             ({:+.2}), above FGD as published in {} ({:+.2})",
            above(0),
            mean(0),
            above(1),
            mean(1),
            above(2),
            mean(2),
            n = gaps.len()
        );
    }
    text
}

/// The table of `benches/README.md`: allocation at full load with shuffled names.
pub fn summary(results: &Results, published: &PublishedTable) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "workload",
        "BestFit",
        "FGD",
        "FGD published (std)",
        "Sluice (std)",
        "several GPUs, dropped: FGD / Sluice",
    ]);
    for variant in VARIANTS {
        let of = |kind| results.get(&Key { variant, kind, names: Names::Shuffled });
        let figure = published.get(&(variant.to_owned(), Kind::Fgd.to_string(), 100));
        let (Some(best_fit), Some(fgd), Some(ours), Some(figure)) =
            (of(Kind::BestFit), of(Kind::Fgd), of(Kind::Sluice), figure)
        else {
            continue;
        };
        let allocation = |outcomes| column(outcomes, |o| at(o, 100).allocation);
        let dropped = |outcomes| mean(&column(outcomes, |o| at(o, 100).failed_multi));
        table.add_row([
            variant.to_owned(),
            format!("{:.2}", mean(&allocation(best_fit))),
            format!("{:.2}", mean(&allocation(fgd))),
            format!("{:.2} ({:.2})", figure.allocation, figure.deviation),
            format!("{:.2} ({:.2})", mean(&allocation(ours)), deviation(&allocation(ours))),
            format!("{:.0} / {:.0}", dropped(fgd), dropped(ours)),
        ]);
    }
    table
}

/// Writes every figure with mean and standard deviation. The directory is made where there is none, as with `CARGO_TARGET_DIR`.
///
/// # Errors
/// When the file cannot be written.
pub fn write_csv(results: &Results, path: &Path) -> Result<()> {
    let failed = || format!("cannot write {}", path.display());
    path.parent().map_or(Ok(()), std::fs::create_dir_all).with_context(failed)?;
    let mut file = csv::Writer::from_path(path).with_context(failed)?;
    file.write_record(["variant", "names", "policy", "seeds", "load_pct", "figure", "mean", "std"])?;
    let samples: [(&str, Figure); 4] = [
        ("allocation_pct", |s| s.allocation),
        ("idle_gpus", |s| s.idle),
        ("frag_amount_pct", |s| s.fragmentation),
        ("failed_multi_gpu_pods", |s| s.failed_multi),
    ];
    for (key, outcomes) in results {
        let mut record = |load: &str, figure: &str, values: &[f64]| {
            file.write_record([
                key.variant,
                &key.names.to_string(),
                &key.kind.to_string(),
                &values.len().to_string(),
                load,
                figure,
                &format!("{:.4}", mean(values)),
                &format!("{:.4}", deviation(values)),
            ])
        };
        for load in LOADS {
            for (name, figure) in samples {
                record(&load.to_string(), name, &column(outcomes, |o| figure(at(o, load))))?;
            }
        }
        record("", "decision_p50_ns", &column(outcomes, |o| o.p50))?;
        record("", "decision_p99_ns", &column(outcomes, |o| o.p99))?;
    }
    file.flush().with_context(failed)
}
