//! What is integrated over time: use against offer, and the looks that a picture is made of.

use std::time::Duration;

use super::outcome::{Clock, Held, Point, Timeline};
use crate::engine::replay::Run;
use crate::engine::types::amount::{Amount, ResourceList};
use crate::view::is_gpu;

/// More looks than a picture has columns.
const MOST_POINTS: usize = 3000;

/// The gauge of one resource.
#[derive(Clone, Copy, Debug, Default)]
struct Gauge {
    used: f64,
    offered: f64,
}

/// Measures a run.
#[derive(Debug, Default)]
pub struct Meter {
    since: Duration,
    gpus: Gauge,
    cpus: Gauge,
    offer: (f64, f64),
    use_: (f64, f64),
    has_gpus: bool,
    timeline: Option<Looks>,
}

/// Looks, ever farther apart.
#[derive(Debug, Default)]
struct Looks {
    points: Vec<Point>,
    apart: Duration,
}

impl Meter {
    /// A meter; with `timeline` it also keeps looks at the teams.
    #[must_use]
    pub fn new(timeline: bool) -> Self {
        Self { timeline: timeline.then(Looks::default), ..Self::default() }
    }

    /// The nodes have changed.
    pub fn offers(&mut self, run: &Run) {
        self.offer = (0.0, 0.0);
        for node in run.engine().nodes() {
            let (gpus, cpus) = both(&node.allocatable);
            self.offer.0 += gpus;
            self.offer.1 += cpus;
        }
        self.has_gpus |= self.offer.0 > 0.0;
    }

    /// Counts what was in use until now.
    pub fn pass(&mut self, now: Duration) {
        let seconds = now.saturating_sub(self.since).as_secs_f64();
        self.since = now;
        self.gpus.used += self.use_.0 * seconds;
        self.gpus.offered += self.offer.0 * seconds;
        self.cpus.used += self.use_.1 * seconds;
        self.cpus.offered += self.offer.1 * seconds;
    }

    /// Looks at what is in use from now on.
    pub fn look(&mut self, now: Duration, run: &Run) {
        self.use_ = both(run.in_use());
        let gpu = self.has_gpus;
        let Some(looks) = &mut self.timeline else { return };
        let last = looks.points.last().map(|point| point.at.0);
        let close = last.is_some_and(|last| now.saturating_sub(last) < looks.apart && now > last);
        if close {
            return;
        }
        let of = |list: &ResourceList| if gpu { both(list).0 } else { both(list).1 };
        let mut point = Point { at: Clock(now), ..Point::default() };
        for team in run.engine().teams() {
            let held = Held { used: of(&team.used), guaranteed: of(&team.guaranteed) };
            point.teams.insert((team.team.to_string(), team.pool.to_string()), held);
        }
        point.waiting = run.engine().queues().iter().map(|queue| queue.pending).sum();
        if last == Some(now) {
            looks.points.pop();
        }
        looks.points.push(point);
        if looks.points.len() > MOST_POINTS {
            let mut keep = false;
            looks.points.retain(|_| {
                keep = !keep;
                keep
            });
            looks.apart = (looks.apart * 2).max(now / u32::try_from(MOST_POINTS).unwrap_or(u32::MAX));
        }
    }

    /// The part of the offer that was used, of GPUs or, where there are none, of cpu.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        let gauge = if self.has_gpus { self.gpus } else { self.cpus };
        if gauge.offered > 0.0 { gauge.used / gauge.offered } else { 0.0 }
    }

    /// The looks.
    #[must_use]
    pub fn timeline(self) -> Timeline {
        let resource = if self.has_gpus { "GPUs" } else { "cpu" };
        let points = self.timeline.map(|looks| looks.points).unwrap_or_default();
        Timeline { resource: resource.to_owned(), points }
    }
}

fn both(list: &ResourceList) -> (f64, f64) {
    let sum = |wanted: fn(&str) -> bool| {
        let amounts = list.iter().filter(|(resource, _)| wanted(resource)).map(|(_, amount)| *amount);
        amounts.fold(Amount::ZERO, |sum, amount| sum + amount).as_units_lossy()
    };
    (sum(is_gpu), sum(|resource| resource == "cpu"))
}
