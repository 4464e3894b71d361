//! The openb trace: nodes, pods, and its published figures.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;

/// The variants of the pod list with published figures, in the order of the report.
pub const VARIANTS: [&str; 13] = [
    "default",
    "cpu050",
    "cpu100",
    "cpu200",
    "gpushare40",
    "gpushare60",
    "gpushare100",
    "multigpu20",
    "multigpu30",
    "multigpu50",
    "gpuspec10",
    "gpuspec20",
    "gpuspec33",
];

/// Thousandths of one device.
pub const DEVICE: i32 = 1000;
/// The load to which every pod list is tuned, in per cent of the cluster's devices.
const TUNED_TO: i64 = 130;

/// A node of the trace.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its name in the trace.
    pub name: String,
    /// Its processors in thousandths.
    pub cpu: i32,
    /// Its memory in MiB.
    pub memory: i32,
    /// Number of devices.
    pub devices: usize,
    /// The index of its device model in [`Trace::models`].
    pub model: u8,
}

/// A pod of the trace. Two equal pods are of the same class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pod {
    /// Processors in thousandths.
    pub cpu: i32,
    /// Memory in MiB.
    pub memory: i32,
    /// Number of requested devices.
    pub devices: usize,
    /// Requested part of each device, in thousandths; less than [`DEVICE`] only with one device.
    pub milli: i32,
    /// The accepted models, a bit each.
    pub models: u16,
}

impl Pod {
    /// The request for all devices together, in thousandths.
    pub fn request(&self) -> i64 {
        i64::from(self.milli) * i64::try_from(self.devices).unwrap_or(0)
    }

    /// Whether the pod requests a fraction of one device.
    pub fn is_fraction(&self) -> bool {
        self.devices == 1 && self.milli < DEVICE
    }
}

/// The cluster, and one list of pods.
#[derive(Debug)]
pub struct Trace {
    /// The nodes that have devices, in the order of their names.
    pub machines: Vec<Machine>,
    /// The names of the device models.
    pub models: Vec<String>,
    /// The sum of all devices, in thousandths.
    pub capacity: i64,
}

#[derive(Deserialize)]
struct NodeRow {
    sn: String,
    cpu_milli: i32,
    memory_mib: i32,
    gpu: usize,
    model: String,
}

#[derive(Deserialize)]
struct PodRow {
    name: String,
    cpu_milli: i32,
    memory_mib: i32,
    num_gpu: usize,
    gpu_milli: i32,
    #[serde(default)]
    gpu_spec: Option<String>,
}

/// A figure published for one variant and policy at one load.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Published {
    /// Devices allocated, mean over ten seeds, in per cent of the cluster's.
    #[serde(rename = "alloc_pct_mean")]
    pub allocation: f64,
    /// Its standard deviation.
    #[serde(rename = "alloc_pct_std")]
    pub deviation: f64,
    /// Fragmented devices, mean over ten seeds, in per cent of the cluster's.
    #[serde(rename = "frag_amount_pct_mean")]
    pub fragmentation: f64,
}

#[derive(Deserialize)]
struct PublishedRow {
    workload: String,
    policy: String,
    arrived_pct: u32,
    alloc_pct_mean: f64,
    alloc_pct_std: f64,
    frag_amount_pct_mean: f64,
}

/// Published figures by variant, policy and load in per cent.
pub type PublishedTable = BTreeMap<(String, String, u32), Published>;

impl Trace {
    /// Reads the nodes from `directory`.
    ///
    /// # Errors
    /// When the file is missing or malformed.
    pub fn read(directory: &Path) -> Result<Self> {
        let path = directory.join("openb_node_list_gpu_node.csv");
        let mut rows: Vec<NodeRow> = read_rows(&path)?;
        rows.sort_by(|a, b| a.sn.cmp(&b.sn));
        let mut models: Vec<String> = rows.iter().map(|row| row.model.clone()).collect();
        models.sort();
        models.dedup();
        ensure!(models.len() <= 16, "{}: more than 16 device models", path.display());
        let mut machines = Vec::new();
        for row in rows {
            let model = models.binary_search(&row.model).unwrap_or(0);
            machines.push(Machine {
                name: row.sn,
                cpu: row.cpu_milli,
                memory: row.memory_mib,
                devices: row.gpu,
                model: u8::try_from(model)?,
            });
        }
        let devices: usize = machines.iter().map(|machine| machine.devices).sum();
        Ok(Self { machines, models, capacity: i64::try_from(devices)? * i64::from(DEVICE) })
    }

    /// Reads the pods of `variant`, in the order of their names.
    ///
    /// # Errors
    /// When the file is missing or names a device model that no node has.
    pub fn pods(&self, directory: &Path, variant: &str) -> Result<Vec<Pod>> {
        let mut path = directory.join(format!("openb_pod_list_{variant}.csv"));
        if !path.exists() {
            path.set_extension("csv.gz");
        }
        let mut rows: Vec<PodRow> = read_rows(&path)?;
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows.iter()
            .map(|row| {
                let models = self
                    .accepted(row.gpu_spec.as_deref().unwrap_or(""))
                    .with_context(|| format!("{}: pod {}", path.display(), row.name))?;
                Ok(Pod {
                    cpu: row.cpu_milli,
                    memory: row.memory_mib,
                    devices: row.num_gpu,
                    milli: if row.num_gpu == 0 { 0 } else { row.gpu_milli },
                    models,
                })
            })
            .collect()
    }

    fn accepted(&self, spec: &str) -> Result<u16> {
        if spec.is_empty() {
            return Ok(u16::MAX);
        }
        let mut models = 0;
        for name in spec.split('|') {
            // A model that no node has excludes every node that is not named.
            if let Some(index) = self.models.iter().position(|model| model == name) {
                models |= 1 << index;
            }
        }
        ensure!(models != 0, "no node has a device of {spec:?}");
        Ok(models)
    }

    /// The pods in the order of arrival for this seed: shuffled, then tuned to [`TUNED_TO`] per cent of the
    /// cluster by drawing more of them, or by deleting some.
    pub fn arrivals(&self, pods: &[Pod], seed: u64) -> Vec<Pod> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut arrivals = pods.to_vec();
        arrivals.shuffle(&mut random);
        let target = self.capacity * TUNED_TO / 100;
        let mut total: i64 = arrivals.iter().map(Pod::request).sum();
        while total < target {
            let drawn = pods[random.random_range(0..pods.len())];
            // The check counts one device of the drawn pod, like the published runs.
            if total + i64::from(drawn.milli) > target {
                break;
            }
            total += drawn.request();
            arrivals.push(drawn);
        }
        while total > target {
            let gone = arrivals.remove(random.random_range(0..arrivals.len()));
            total -= gone.request();
        }
        arrivals
    }
}

/// Reads the published figures.
///
/// # Errors
/// When the file is missing or malformed.
pub fn published(directory: &Path) -> Result<PublishedTable> {
    let rows: Vec<PublishedRow> = read_rows(&directory.join("fgd_atc23_published.csv.gz"))?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let figures = Published {
                allocation: row.alloc_pct_mean,
                deviation: row.alloc_pct_std,
                fragmentation: row.frag_amount_pct_mean,
            };
            ((row.workload, row.policy, row.arrived_pct), figures)
        })
        .collect())
}

fn read_rows<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Vec<T>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let text: Box<dyn Read> = if path.extension().is_some_and(|e| e == "gz") {
        Box::new(GzDecoder::new(file))
    } else {
        Box::new(file)
    };
    let mut reader = csv::Reader::from_reader(text);
    reader.deserialize().collect::<Result<_, _>>().with_context(|| format!("cannot read {}", path.display()))
}
