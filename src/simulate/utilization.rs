//! Utilization over the whole simulation, and samples of usage over time.

use std::collections::BTreeMap;
use std::time::Duration;

use super::outcome::{Clock, Sample, Timeline, Usage};
use crate::engine::replay::Run;
use crate::engine::types::Name;
use crate::engine::types::amount::{Amount, ResourceList};
use crate::view::Accelerators;

/// More samples than a chart has columns.
const MOST_SAMPLES: usize = 3000;

/// Amount × time of one resource, in unit-seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Integral {
    used: f64,
    offered: f64,
}

/// Amounts of GPUs and cpu.
#[derive(Clone, Copy, Debug, Default)]
struct Amounts {
    gpus: f64,
    cpus: f64,
}

/// Measures usage and capacity of a simulation.
#[derive(Debug, Default)]
pub struct UtilizationMeter {
    accelerators: Accelerators,
    since: Duration,
    gpus: Integral,
    cpus: Integral,
    capacity: Amounts,
    usage: Amounts,
    has_gpus: bool,
    timeline: Option<Samples>,
}

/// Samples, farther apart the longer the simulation lasts.
#[derive(Debug, Default)]
struct Samples {
    samples: Vec<Sample>,
    interval: Duration,
}

impl UtilizationMeter {
    /// A meter; with `timeline` it also samples the usage of teams.
    #[must_use]
    pub fn new(timeline: bool, accelerators: Accelerators) -> Self {
        Self { timeline: timeline.then(Samples::default), accelerators, ..Self::default() }
    }

    /// Sets the resources that count as GPUs from now on.
    pub fn count(&mut self, accelerators: Accelerators) {
        self.accelerators = accelerators;
    }

    /// Reads the capacity after a change of nodes.
    pub fn read_capacity(&mut self, run: &Run) {
        self.capacity = Amounts::default();
        for node in run.engine().nodes() {
            let amounts = self.amounts(&node.allocatable);
            self.capacity.gpus += amounts.gpus;
            self.capacity.cpus += amounts.cpus;
        }
        self.has_gpus |= self.capacity.gpus > 0.0;
    }

    /// Integrates usage and capacity up to `now`.
    pub fn advance(&mut self, now: Duration) {
        let seconds = now.saturating_sub(self.since).as_secs_f64();
        self.since = now;
        self.gpus.used += self.usage.gpus * seconds;
        self.gpus.offered += self.capacity.gpus * seconds;
        self.cpus.used += self.usage.cpus * seconds;
        self.cpus.offered += self.capacity.cpus * seconds;
    }

    /// Reads the usage from `now` on.
    pub fn read_usage(&mut self, now: Duration, run: &Run) {
        self.usage = self.amounts(run.in_use());
        let Some(timeline) = &self.timeline else { return };
        let last = timeline.samples.last().map(|sample| sample.at.0);
        if last.is_some_and(|last| now.saturating_sub(last) < timeline.interval && now > last) {
            return;
        }
        let shown = |list: &ResourceList| {
            let amounts = self.amounts(list);
            if self.has_gpus { amounts.gpus } else { amounts.cpus }
        };
        let mut sample = Sample { at: Clock(now), ..Sample::default() };
        let teams = run.engine().teams();
        let mut below: BTreeMap<(&Name, &Name), f64> = BTreeMap::new();
        for team in &teams {
            if let Some(parent) = &team.parent {
                *below.entry((parent, &team.pool)).or_default() += shown(&team.used);
            }
        }
        for team in &teams {
            let used = shown(&team.used);
            let below = below.get(&(&team.team, &team.pool)).copied().unwrap_or_default();
            let usage = Usage {
                used,
                borrowed: shown(&team.borrowed),
                own: (used - below).max(0.0),
                guaranteed: shown(&team.guaranteed),
            };
            sample.teams.insert((team.team.to_string(), team.pool.to_string()), usage);
        }
        sample.capacity = if self.has_gpus { self.capacity.gpus } else { self.capacity.cpus };
        sample.waiting = run.engine().queues().iter().map(|queue| queue.pending).sum();
        if let Some(timeline) = &mut self.timeline {
            timeline.add(sample);
        }
    }

    /// The used part of the capacity: of GPUs or, without any, of cpu.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        let integral = if self.has_gpus { self.gpus } else { self.cpus };
        if integral.offered > 0.0 { integral.used / integral.offered } else { 0.0 }
    }

    /// The samples.
    #[must_use]
    pub fn timeline(self) -> Timeline {
        let resource = if self.has_gpus { "GPUs" } else { "cpu" };
        let samples = self.timeline.map(|timeline| timeline.samples).unwrap_or_default();
        Timeline { resource: resource.to_owned(), samples }
    }

    fn amounts(&self, list: &ResourceList) -> Amounts {
        let cpus = list.get("cpu").copied().unwrap_or(Amount::ZERO);
        Amounts { gpus: self.accelerators.count(list), cpus: cpus.as_units_lossy() }
    }
}

impl Samples {
    fn add(&mut self, sample: Sample) {
        let now = sample.at.0;
        if self.samples.last().is_some_and(|last| last.at == sample.at) {
            self.samples.pop();
        }
        self.samples.push(sample);
        if self.samples.len() > MOST_SAMPLES {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.interval = (self.interval * 2).max(now / u32::try_from(MOST_SAMPLES).unwrap_or(u32::MAX));
        }
    }
}
