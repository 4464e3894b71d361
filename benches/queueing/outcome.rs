//! The runs of a trace's jobs under a policy, and the figures computed from them.

use std::collections::BTreeSet;

use super::trace::{NODE, Trace};

/// One run of a job.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Index of the job.
    pub job: usize,
    /// Start, in seconds.
    pub start: i64,
    /// End, in seconds.
    pub end: i64,
    /// Whether the job finished; else it was evicted and its work is lost.
    pub finished: bool,
}

/// Sizes of jobs: a name, and the largest number of GPUs.
pub const SIZES: [(&str, u32); 5] =
    [("1 GPU", 1), ("2 to 7", NODE - 1), ("8", NODE), ("9 to 31", 31), ("32 and more", u32::MAX)];

/// What predicts how long runs take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictor {
    /// Sluice, as people are shown.
    Sluice,
    /// The mean of the last two runs.
    LastTwo,
    /// The request.
    Request,
}

impl Predictor {
    /// All, in the order of the tables.
    pub const ALL: [Self; 3] = [Self::Sluice, Self::LastTwo, Self::Request];

    /// Name in the tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::Sluice => "Sluice",
            Self::LastTwo => "mean of the last two runs",
            Self::Request => "request",
        }
    }
}

/// A forecast of a start, compared with the start.
#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    /// What foretold it.
    pub by: Predictor,
    /// How far the likely start was off, in seconds.
    pub error: i64,
    /// The wait that was left when the forecast was made, in seconds.
    pub left: i64,
    /// Whether the start lay between the earliest and the latest that was predicted.
    pub within: bool,
    /// Whether the job was submitted at that time.
    pub at_submission: bool,
}

/// How good the forecasts of starts were.
#[derive(Clone, Copy, Debug)]
pub struct Forecasts {
    /// What foretold them.
    pub by: Predictor,
    /// Whether they were made at submission, and not of all that waited at that time.
    pub at_submission: bool,
    /// The number of forecasts.
    pub count: usize,
    /// Error in seconds: median, 90th percentile.
    pub error: (i64, i64),
    /// Median and 90th percentile of the error as a part of the wait that was left, in per cent; of forecasts a minute or
    /// more ahead.
    pub of_wait: (i64, i64),
    /// Per cent of the starts within the range that was predicted.
    pub covered: f64,
}

impl Forecasts {
    fn of(all: &[Predicted], by: Predictor, at_submission: bool) -> Option<Self> {
        let sorted = |values: &mut dyn Iterator<Item = i64>| {
            let mut values: Vec<i64> = values.collect();
            values.sort_unstable();
            values
        };
        let counts = |one: &&Predicted| one.by == by && (one.at_submission || !at_submission);
        let predicted = || all.iter().filter(counts);
        let errors = sorted(&mut predicted().map(|predicted| predicted.error));
        let ahead = predicted().filter(|predicted| predicted.left >= 60);
        let parts = sorted(&mut ahead.map(|predicted| 100 * predicted.error / predicted.left));
        let covered = predicted().filter(|predicted| predicted.within).count();
        (!errors.is_empty()).then(|| Self {
            by,
            at_submission,
            count: errors.len(),
            error: (quantile(&errors, 50), quantile(&errors, 90)),
            of_wait: (quantile(&parts, 50), quantile(&parts, 90)),
            covered: 100.0 * count(covered) / count(errors.len()),
        })
    }

    /// By predictor, at submission and of all that waited.
    fn all(predicted: &[Predicted]) -> Vec<Self> {
        let both = [true, false].into_iter().flat_map(|sub| Predictor::ALL.map(|by| (by, sub)));
        both.filter_map(|(by, at_submission)| Self::of(predicted, by, at_submission)).collect()
    }
}

/// The events of a run of a policy.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Every run, in the order of their ends.
    pub runs: Vec<Run>,
    /// Every forecast of a start.
    pub predicted: Vec<Predicted>,
}

/// A policy's figures on a trace.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Seconds from submission to the start of the run that finished: mean, median, 95th, 99th percentile.
    pub wait: [f64; 4],
    /// Mean seconds of the same wait, weighted by the GPUs of each job.
    pub wait_by_gpus: f64,
    /// Mean seconds from submission to the end.
    pub jct: f64,
    /// Number of finished jobs.
    pub jobs: usize,
    /// Percent of the capacity in use from the first to the last submission, lost work included.
    pub used: f64,
    /// The same without work lost by evictions.
    pub useful: f64,
    /// Number of evictions.
    pub evictions: usize,
    /// GPU-hours of lost work.
    pub lost: f64,
    /// Mean wait by team, in seconds; none for a team without jobs.
    pub team_wait: Vec<Option<f64>>,
    /// Mean wait by [`SIZES`], in seconds.
    pub size_wait: Vec<Option<f64>>,
    /// Jain's index of the teams' mean slowdowns: 1 when all are equal.
    pub jain: f64,
    /// Percent of jobs that wait over a minute longer than on their team's own nodes, and the largest such
    /// difference in seconds.
    pub anomaly: Option<(f64, i64)>,
    /// Seconds to the first start of jobs within their team's guarantee at submission, beside all running and
    /// waiting jobs of the team: median, 99th percentile.
    pub guaranteed_wait: (i64, i64),
    /// How good the forecasts of starts were.
    pub forecasts: Vec<Forecasts>,
}

/// The waits of all jobs in seconds, in the order of the trace; none for unfinished jobs.
#[must_use]
pub fn waits(trace: &Trace, outcome: &Outcome) -> Vec<Option<i64>> {
    let mut waits = vec![None; trace.jobs.len()];
    for run in outcome.runs.iter().filter(|run| run.finished) {
        waits[run.job] = Some(run.start - trace.jobs[run.job].submit);
    }
    waits
}

/// Computes the figures; `private` are the waits of the same jobs on their teams' own nodes.
#[must_use]
pub fn figures(trace: &Trace, outcome: &Outcome, private: Option<&[Option<i64>]>) -> Figures {
    let waits = waits(trace, outcome);
    let mut sorted: Vec<i64> = waits.iter().flatten().copied().collect();
    sorted.sort_unstable();
    let mut within = guaranteed_waits(trace, outcome);
    within.sort_unstable();
    let finished: Vec<(usize, i64)> =
        waits.iter().enumerate().filter_map(|(job, wait)| Some((job, (*wait)?))).collect();
    let (used, useful) = utilization(trace, outcome);
    let lost = outcome.runs.iter().filter(|run| !run.finished);
    let team = |job: usize| trace.jobs[job].team;
    let size =
        |job: usize| SIZES.iter().position(|(_, most)| trace.jobs[job].gpus <= *most).unwrap_or_default();
    let slowed = |job: usize, wait| slowdown(trace.jobs[job].duration, wait);
    let slowdowns: Vec<f64> = by(trace.teams.len(), team, &finished, slowed).into_iter().flatten().collect();
    Figures {
        wait: [
            mean(sorted.iter().map(|wait| real(*wait))),
            real(quantile(&sorted, 50)),
            real(quantile(&sorted, 95)),
            real(quantile(&sorted, 99)),
        ],
        wait_by_gpus: weighted(
            finished.iter().map(|(job, wait)| (real(*wait), f64::from(trace.jobs[*job].gpus))),
        ),
        jct: mean(finished.iter().map(|(job, wait)| real(wait + trace.jobs[*job].duration))),
        jobs: finished.len(),
        used,
        useful,
        evictions: lost.clone().count(),
        lost: 0.0
            + lost.map(|run| f64::from(trace.jobs[run.job].gpus) * real(run.end - run.start)).sum::<f64>()
                / 3600.0,
        team_wait: by(trace.teams.len(), team, &finished, |_, wait| real(wait)),
        size_wait: by(SIZES.len(), size, &finished, |_, wait| real(wait)),
        jain: jain(&slowdowns),
        anomaly: private.map(|private| anomaly(&waits, private)),
        guaranteed_wait: (quantile(&within, 50), quantile(&within, 99)),
        forecasts: Forecasts::all(&outcome.predicted),
    }
}

/// Completion time divided by run time; jobs under ten seconds count as ten.
fn slowdown(duration: i64, wait: i64) -> f64 {
    let floor = duration.max(10);
    real(wait + floor) / real(floor)
}

/// The mean of a value of the jobs by group.
fn by(
    groups: usize,
    group: impl Fn(usize) -> usize,
    finished: &[(usize, i64)],
    value: impl Fn(usize, i64) -> f64,
) -> Vec<Option<f64>> {
    let one = |index: usize| {
        let own = || finished.iter().filter(|(job, _)| group(*job) == index);
        own().next().map(|_| mean(own().map(|(job, wait)| value(*job, *wait))))
    };
    (0..groups).map(one).collect()
}

/// Waits to the first start of jobs within their team's guarantee at submission.
fn guaranteed_waits(trace: &Trace, outcome: &Outcome) -> Vec<i64> {
    let (mut first, mut end) = (vec![i64::MAX; trace.jobs.len()], vec![i64::MAX; trace.jobs.len()]);
    for run in &outcome.runs {
        first[run.job] = first[run.job].min(run.start);
        if run.finished {
            end[run.job] = run.end;
        }
    }
    let mut waits = Vec::new();
    let mut demand = vec![0; trace.teams.len()];
    let mut present: BTreeSet<(i64, usize)> = BTreeSet::new();
    for (index, job) in trace.jobs.iter().enumerate() {
        while let Some((_, gone)) = present.first().copied().filter(|(end, _)| *end <= job.submit) {
            present.pop_first();
            demand[trace.jobs[gone].team] -= trace.jobs[gone].gpus;
        }
        demand[job.team] += job.gpus;
        present.insert((end[index], index));
        if demand[job.team] <= trace.teams[job.team].nodes * NODE && first[index] < i64::MAX {
            waits.push(first[index] - job.submit);
        }
    }
    waits
}

/// Use from the first to the last submission in percent of the capacity: all work, and work not lost.
fn utilization(trace: &Trace, outcome: &Outcome) -> (f64, f64) {
    let (Some(first), Some(last)) = (trace.jobs.first(), trace.jobs.last()) else { return (0.0, 0.0) };
    let (mut used, mut useful) = (0.0, 0.0);
    for run in &outcome.runs {
        let within = (run.end.min(last.submit) - run.start.max(first.submit)).max(0);
        let work = f64::from(trace.jobs[run.job].gpus) * real(within);
        used += work;
        useful += if run.finished { work } else { 0.0 };
    }
    let capacity = f64::from(trace.gpus()) * real((last.submit - first.submit).max(1));
    (100.0 * used / capacity, 100.0 * useful / capacity)
}

fn anomaly(waits: &[Option<i64>], private: &[Option<i64>]) -> (f64, i64) {
    let excess: Vec<i64> =
        waits.iter().zip(private).filter_map(|(wait, private)| Some((*wait)? - (*private)?)).collect();
    let worse = excess.iter().filter(|more| **more > 60).count();
    (100.0 * count(worse) / count(excess.len().max(1)), excess.iter().copied().max().unwrap_or(0).max(0))
}

fn jain(values: &[f64]) -> f64 {
    let (sum, squares) = (values.iter().sum::<f64>(), values.iter().map(|v| v * v).sum::<f64>());
    if squares > 0.0 { sum * sum / (count(values.len()) * squares) } else { 1.0 }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, n) = values.fold((0.0, 0_usize), |(sum, n), value| (sum + value, n + 1));
    sum / count(n.max(1))
}

/// The mean of values with their weights.
fn weighted(values: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (sum, weights) =
        values.fold((0.0, 0.0), |(sum, weights), (value, weight)| (sum + value * weight, weights + weight));
    if weights > 0.0 { sum / weights } else { 0.0 }
}

/// The smallest value that is at least as large as this percentage of the values.
fn quantile(sorted: &[i64], percent: usize) -> i64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).copied().unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a few months are far below 2^52")]
fn real(value: i64) -> f64 {
    value as f64
}

#[expect(clippy::cast_precision_loss, reason = "numbers of jobs are far below 2^52")]
fn count(value: usize) -> f64 {
    value as f64
}
