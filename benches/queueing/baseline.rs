//! The reference policies, on a small simulator of their own.
//!
//! An event is the end or the submission of a job. After all events of a second every waiting job is tried.
//! Evictions take no time; an evicted job starts from zero, in its old place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::cluster::{Cluster, Taken};
use super::outcome::{Outcome, Run};
use super::trace::{Job, NODE, Trace};

/// The order in which waiting jobs are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The oldest first.
    Fifo,
    /// The shortest first; run times are known.
    Sjf,
}

/// The parameters of a reference policy.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The order of the queue.
    pub order: Order,
    /// Whether a job may start before an earlier one that cannot.
    pub backfill: bool,
    /// Whether teams have guarantees. There is then one queue per team, and a job within its team's guarantee
    /// evicts borrowers, the newest first, and spares those that turn out not to be needed.
    pub reclaim: bool,
}

/// Runs a policy over a trace until every job has finished.
#[must_use]
pub fn run(trace: &Trace, policy: Policy, progress: &dyn Fn(usize)) -> Outcome {
    let mut simulator = Simulator::new(trace, policy);
    let (mut next, mut finished) = (0, 0);
    loop {
        let submit = trace.jobs.get(next).map(|job| job.submit);
        let end = simulator.ends.peek().map(|Reverse((end, _, _))| *end);
        let Some(now) = [submit, end].into_iter().flatten().min() else { break };
        while let Some(Reverse((end, job, run))) = simulator.ends.peek().copied() {
            if end > now {
                break;
            }
            simulator.ends.pop();
            // The planned end of an evicted run is void.
            if simulator.running.get(&job).is_some_and(|running| running.number == run) {
                simulator.stop(job, now, true);
                finished += 1;
            }
        }
        while trace.jobs.get(next).is_some_and(|job| job.submit <= now) {
            simulator.wait(next);
            next += 1;
        }
        simulator.schedule(now);
        progress(finished);
    }
    simulator.outcome
}

struct Running {
    number: usize,
    start: i64,
    taken: Taken,
}

/// The place of a job in its queue, by the policy's order.
type Place = (i64, usize);

struct Simulator<'a> {
    trace: &'a Trace,
    policy: Policy,
    cluster: Cluster,
    /// The waiting jobs, by team and by size.
    waiting: Vec<BTreeMap<u32, BTreeSet<Place>>>,
    used: Vec<u32>,
    running: BTreeMap<usize, Running>,
    ends: BinaryHeap<Reverse<(i64, usize, usize)>>,
    starts: usize,
    outcome: Outcome,
}

impl<'a> Simulator<'a> {
    fn new(trace: &'a Trace, policy: Policy) -> Self {
        let queues = if policy.reclaim { trace.teams.len() } else { 1 };
        Self {
            trace,
            policy,
            cluster: Cluster::new(trace.nodes),
            waiting: vec![BTreeMap::new(); queues],
            used: vec![0; trace.teams.len()],
            running: BTreeMap::new(),
            ends: BinaryHeap::new(),
            starts: 0,
            outcome: Outcome::default(),
        }
    }

    fn queue_of(&self, job: &Job) -> usize {
        if self.policy.reclaim { job.team } else { 0 }
    }

    fn wait(&mut self, index: usize) {
        let job = &self.trace.jobs[index];
        let key = if self.policy.order == Order::Sjf { job.duration } else { 0 };
        let queue = self.queue_of(job);
        self.waiting[queue].entry(job.gpus).or_default().insert((key, index));
    }

    /// Starts every job that can start: jobs within a guarantee first, then the team that borrows least, then
    /// the older.
    fn schedule(&mut self, now: i64) {
        // A job that could not start stays infeasible until an eviction.
        let mut stuck: BTreeSet<(usize, u32)> = BTreeSet::new();
        while let Some((queue, place)) = self.next(&stuck) {
            let job = &self.trace.jobs[place.1];
            let evictions = self.outcome.runs.len();
            let taken = self.cluster.find(job.gpus).or_else(|| self.reclaim(job, now));
            match taken {
                Some(taken) => self.start(queue, place, taken, now),
                None => {
                    stuck.insert((queue, job.gpus));
                }
            }
            if self.outcome.runs.len() > evictions {
                stuck.clear();
            }
        }
    }

    fn next(&self, stuck: &BTreeSet<(usize, u32)>) -> Option<(usize, Place)> {
        let heads = self.waiting.iter().enumerate().filter_map(|(queue, sizes)| {
            let heads = sizes.iter().filter_map(|(gpus, places)| Some((places.first()?, *gpus)));
            let place = if self.policy.backfill {
                *heads.filter(|(_, gpus)| !stuck.contains(&(queue, *gpus))).map(|(place, _)| place).min()?
            } else {
                let (place, gpus) = heads.min()?;
                *Some(place).filter(|_| !stuck.contains(&(queue, gpus)))?
            };
            let (within, borrowed) = self.guarantee(&self.trace.jobs[place.1]);
            Some(((Reverse(within), borrowed, place), queue))
        });
        heads.min().map(|((_, _, place), queue)| (queue, place))
    }

    /// Whether the job is within its team's guarantee, and the GPUs that the team borrows already.
    fn guarantee(&self, job: &Job) -> (bool, u32) {
        if !self.policy.reclaim {
            return (false, 0);
        }
        let (used, owned) = (self.used[job.team], self.trace.teams[job.team].nodes * NODE);
        (used + job.gpus <= owned, used.saturating_sub(owned))
    }

    /// Evicts borrowers so that the job can start, if it is within guarantee.
    fn reclaim(&mut self, job: &Job, now: i64) -> Option<Taken> {
        if !self.guarantee(job).0 {
            return None;
        }
        let mut newest: Vec<usize> = self.running.keys().copied().collect();
        newest.sort_by_key(|index| {
            let running = &self.running[index];
            (Reverse(running.start), Reverse(running.number))
        });
        let mut left = self.used.clone();
        let mut cluster = self.cluster.clone();
        let mut victims: Vec<usize> = Vec::new();
        for index in newest {
            if cluster.find(job.gpus).is_some() {
                break;
            }
            let Job { team, gpus, .. } = self.trace.jobs[index];
            if left[team] > self.trace.teams[team].nodes * NODE {
                left[team] -= gpus;
                cluster.give(&self.running[&index].taken);
                victims.push(index);
            }
        }
        cluster.find(job.gpus)?;
        for position in (0..victims.len()).rev() {
            let taken = &self.running[&victims[position]].taken;
            cluster.take(taken);
            if cluster.find(job.gpus).is_some() {
                victims.remove(position);
            } else {
                cluster.give(taken);
            }
        }
        for victim in victims {
            self.stop(victim, now, false);
            self.wait(victim);
        }
        self.cluster.find(job.gpus)
    }

    fn start(&mut self, queue: usize, place: Place, taken: Taken, now: i64) {
        let index = place.1;
        let job = &self.trace.jobs[index];
        if let Some(places) = self.waiting[queue].get_mut(&job.gpus) {
            places.remove(&place);
            if places.is_empty() {
                self.waiting[queue].remove(&job.gpus);
            }
        }
        self.cluster.take(&taken);
        self.used[job.team] += job.gpus;
        self.starts += 1;
        self.ends.push(Reverse((now + job.duration, index, self.starts)));
        self.running.insert(index, Running { number: self.starts, start: now, taken });
    }

    fn stop(&mut self, index: usize, now: i64, finished: bool) {
        let Some(running) = self.running.remove(&index) else { return };
        let job = &self.trace.jobs[index];
        self.cluster.give(&running.taken);
        self.used[job.team] -= job.gpus;
        self.outcome.runs.push(Run { job: index, start: running.start, end: now, finished });
    }
}
