//! Calibration: the simulator of the reference policies against published figures.
//!
//! Four virtual clusters of Philly, each alone, in the setup of the Helios study (SC'21, Fig. 13): jobs
//! submitted 2017-09-30 17:00 to 2017-11-30 16:59 Pacific, strict order, no eviction.

use std::path::Path;

use anyhow::Result;
use comfy_table::{Table, presets};

use super::baseline::{Order, Policy, run};
use super::outcome::figures;
use super::trace;

/// Largest relative difference from a published figure.
const TOLERANCE: f64 = 0.01;

/// A published row: cluster, file, nodes, the window in seconds after its first job (on the trace's own
/// clock), and seconds of mean completion time and mean queue delay under FIFO and SJF.
type Published = (&'static str, &'static str, u32, (i64, i64), [(f64, f64); 2]);

const PUBLISHED: [Published; 4] = [
    ("7f04ca", "muri_trace1_7f04ca", 32, (3_731_982, 9_002_322), [(133_826.0, 1_412.0), (133_271.0, 857.0)]),
    ("2869ce", "muri_trace3_2869ce", 16, (1_071_361, 6_341_701), [(70_215.0, 21_171.0), (56_388.0, 7_344.0)]),
    (
        "0e4a51",
        "muri_trace4_0e4a51",
        32,
        (358_538, 5_628_878),
        [(233_539.0, 101_473.0), (168_747.0, 36_682.0)],
    ),
    (
        "ee9e8c",
        "muri_trace2_ee9e8c",
        64,
        (1_468_769, 6_739_109),
        [(243_144.0, 127_270.0), (130_493.0, 14_619.0)],
    ),
];

/// Prints every figure beside the published one; false when one differs too much.
///
/// # Errors
/// When a trace cannot be read.
pub fn passes(root: &Path) -> Result<bool> {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(["cluster", "order", "JCT s", "published", "off", "queue s", "published", "off", ""]);
    let mut all = true;
    for (name, file, nodes, (from, to), published) in PUBLISHED {
        let trace = trace::muri(root, file, nodes, from, to)?;
        for (order, (jct, queue)) in [Order::Fifo, Order::Sjf].into_iter().zip(published) {
            let policy = Policy { order, backfill: false, reclaim: false };
            let ours = figures(&trace, &run(&trace, policy, &|_| ()), None);
            let off = |ours: f64, theirs: f64| ours / theirs - 1.0;
            let (jct_off, queue_off) = (off(ours.jct, jct), off(ours.wait[0], queue));
            let passed = jct_off.abs() <= TOLERANCE && queue_off.abs() <= TOLERANCE;
            all &= passed;
            table.add_row([
                name.to_owned(),
                format!("{order:?}").to_uppercase(),
                format!("{:.0}", ours.jct),
                format!("{jct:.0}"),
                format!("{:+.2} %", 100.0 * jct_off),
                format!("{:.0}", ours.wait[0]),
                format!("{queue:.0}"),
                format!("{:+.2} %", 100.0 * queue_off),
                (if passed { "pass" } else { "FAIL" }).to_owned(),
            ]);
        }
    }
    println!("{table}");
    Ok(all)
}
