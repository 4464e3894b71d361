//! The real traces as jobs of teams on a cluster of nodes with eight GPUs.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// GPUs of a node.
pub const NODE: u32 = 8;
/// Seconds of a day.
const DAY: i64 = 86_400;
/// 2017-10-01 00:00 and 2017-12-01 00:00 Pacific in the Philly trace's elapsed seconds, which count from
/// 2017-08-14 14:27:00; the second lies after the end of daylight saving time.
const PHILLY_OCTOBER: i64 = 47 * DAY + 34_380;
const PHILLY_DECEMBER: i64 = 108 * DAY + 34_380 + 3_600;

/// One job; all of its GPUs are allocated at once.
#[derive(Clone, Debug)]
pub struct Job {
    /// Index of its team in the trace's teams.
    pub team: usize,
    /// Time of submission, in seconds.
    pub submit: i64,
    /// Run time, in seconds.
    pub duration: i64,
    /// Number of GPUs.
    pub gpus: u32,
}

/// A team and its own nodes.
#[derive(Clone, Debug)]
pub struct Team {
    /// Name in the trace.
    pub name: String,
    /// Number of guaranteed nodes.
    pub nodes: u32,
}

/// Jobs in the order of submission, and their cluster.
#[derive(Clone, Debug)]
pub struct Trace {
    /// Name in the tables.
    pub name: &'static str,
    /// Number of nodes of the cluster.
    pub nodes: u32,
    /// The teams.
    pub teams: Vec<Team>,
    /// The jobs, sorted by submission.
    pub jobs: Vec<Job>,
}

impl Trace {
    fn new(name: &'static str, nodes: u32, teams: Vec<Team>, mut jobs: Vec<Job>) -> Self {
        jobs.sort_by_key(|job| job.submit);
        Self { name, nodes, teams, jobs }
    }

    /// All GPUs of the cluster.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        self.nodes * NODE
    }

    /// The jobs of one team on the nodes of its guarantee, with the index of each in the whole trace. Jobs
    /// larger than those nodes are left out, because they could never start there.
    #[must_use]
    pub fn private(&self, team: usize) -> (Self, Vec<usize>) {
        let owned = self.teams[team].clone();
        let fits = |job: &Job| job.team == team && job.gpus <= owned.nodes * NODE;
        let places: Vec<usize> = (0..self.jobs.len()).filter(|i| fits(&self.jobs[*i])).collect();
        let jobs = places.iter().map(|i| Job { team: 0, ..self.jobs[*i].clone() }).collect();
        (Self { name: self.name, nodes: owned.nodes, teams: vec![owned], jobs }, places)
    }

    /// The jobs submitted within this many days of the first one.
    #[must_use]
    pub fn within(mut self, days: Option<f64>) -> Self {
        if let (Some(days), Some(first)) = (days, self.jobs.first().map(|job| job.submit)) {
            #[expect(clippy::cast_possible_truncation, reason = "a few years of seconds at most")]
            let end = first + (days * 86_400.0) as i64;
            self.jobs.retain(|job| job.submit < end);
        }
        self
    }

    /// The same jobs on fewer nodes: `percent` of those of the cluster and of each team.
    #[must_use]
    pub fn on(mut self, percent: u32) -> Self {
        let part = |nodes: u32| (nodes * percent).div_ceil(100);
        self.nodes = part(self.nodes);
        self.teams.iter_mut().for_each(|team| team.nodes = part(team.nodes));
        self
    }

    /// All jobs except the one with this index by submission.
    #[must_use]
    pub fn without(mut self, job: Option<usize>) -> Self {
        if let Some(job) = job.filter(|job| *job < self.jobs.len()) {
            self.jobs.remove(job);
        }
        self
    }
}

/// The directory of the traces: `SLUICE_TRACES`, else a directory beside the project.
#[must_use]
pub fn directory() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    std::env::var_os("SLUICE_TRACES").map_or_else(beside, PathBuf::from)
}

#[derive(Deserialize)]
struct ItpRow {
    submission_time: f64,
    duration: f64,
    num_gpu: u32,
}

/// Ten training clusters of one company over 31 days, pooled: 160 nodes, of which 143 are owned.
///
/// # Errors
/// When a file cannot be read.
pub fn itp(root: &Path) -> Result<Trace> {
    let owned = [2, 9, 5, 67, 2, 12, 31, 10, 4, 1];
    let (mut teams, mut jobs) = (Vec::new(), Vec::new());
    for (team, nodes) in owned.into_iter().enumerate() {
        let name = format!("cluster{:02}", team + 1);
        for row in rows::<ItpRow>(&root.join(format!("itp-2021/{name}.csv.gz")))? {
            let (submit, duration) = (seconds(row.submission_time), seconds(row.duration));
            jobs.push(Job { team, submit, duration, gpus: row.num_gpu });
        }
        teams.push(Team { name, nodes });
    }
    Ok(Trace::new("itp", 160, teams, jobs))
}

#[derive(Deserialize)]
struct PhillyRow {
    vc: String,
    submit_s: f64,
    num_gpu: u32,
    duration_s: f64,
}

#[derive(Deserialize)]
struct VcRow {
    vc: String,
    nodes_8gpu: u32,
}

/// Eleven virtual clusters of one company in October and November 2017 on 208 nodes, owned in proportion to
/// their original 352 nodes.
///
/// # Errors
/// When a file cannot be read.
pub fn philly(root: &Path) -> Result<Trace> {
    let nodes = 208_u32;
    let vcs = rows::<VcRow>(&root.join("philly-2017/vc_nodes.csv"))?;
    let whole: u32 = vcs.iter().map(|vc| vc.nodes_8gpu).sum();
    let owned = |had: u32| (2 * had * nodes + whole) / (2 * whole);
    let teams: Vec<Team> =
        vcs.into_iter().map(|vc| Team { nodes: owned(vc.nodes_8gpu), name: vc.vc }).collect();
    let mut jobs = Vec::new();
    for row in rows::<PhillyRow>(&root.join("philly-2017/philly_12vc.csv.gz"))? {
        let submit = seconds(row.submit_s);
        let team = teams.iter().position(|team| team.name == row.vc);
        if let Some(team) = team.filter(|_| (PHILLY_OCTOBER..PHILLY_DECEMBER).contains(&submit)) {
            jobs.push(Job { team, submit, duration: seconds(row.duration_s), gpus: row.num_gpu });
        }
    }
    Ok(Trace::new("philly", nodes, teams, jobs))
}

#[derive(Deserialize)]
struct VenusRow {
    arrival_s: f64,
    service_sec: f64,
    gpu_count: u32,
}

/// A training cluster of 133 nodes over 167 days, without teams: a test of size.
///
/// # Errors
/// When the file cannot be read.
pub fn venus(root: &Path) -> Result<Trace> {
    let rows = rows::<VenusRow>(&root.join("helios-venus-2020/helios_venus_2020-03_to_08.csv.gz"))?;
    let job = |row: VenusRow| Job {
        team: 0,
        submit: seconds(row.arrival_s),
        duration: seconds(row.service_sec).max(1),
        gpus: row.gpu_count,
    };
    let teams = vec![Team { name: "venus".to_owned(), nodes: 133 }];
    Ok(Trace::new("venus", 133, teams, rows.into_iter().map(job).collect()))
}

#[derive(Deserialize)]
struct MuriRow {
    num_gpu: u32,
    submit_time: f64,
    duration: f64,
}

/// One virtual cluster of Philly alone, as in its published figures: jobs submitted between `from` and `to`
/// (seconds after its first job).
///
/// # Errors
/// When the file cannot be read.
pub fn muri(root: &Path, file: &str, nodes: u32, from: i64, to: i64) -> Result<Trace> {
    let rows = rows::<MuriRow>(&root.join(format!("philly-2017/{file}.csv.gz")))?;
    let job = |row: MuriRow| Job {
        team: 0,
        submit: seconds(row.submit_time / 1000.0),
        duration: seconds(row.duration / 1000.0),
        gpus: row.num_gpu,
    };
    let jobs = rows.into_iter().map(job).filter(|job| (from..to).contains(&job.submit)).collect();
    Ok(Trace::new("muri", nodes, vec![Team { name: file.to_owned(), nodes }], jobs))
}

/// Whole seconds; half of the traces write them with a fraction of zero.
#[expect(clippy::cast_possible_truncation, reason = "a few years of seconds at most")]
fn seconds(value: f64) -> i64 {
    value.round() as i64
}

fn rows<R: DeserializeOwned>(path: &Path) -> Result<Vec<R>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let reader: Box<dyn std::io::Read> = if path.extension().is_some_and(|end| end == "gz") {
        Box::new(GzDecoder::new(file))
    } else {
        Box::new(file)
    };
    let rows: Vec<R> = csv::Reader::from_reader(reader)
        .into_deserialize()
        .collect::<Result<_, _>>()
        .with_context(|| format!("{} has an unexpected format", path.display()))?;
    if rows.is_empty() {
        bail!("{} is empty", path.display());
    }
    Ok(rows)
}
