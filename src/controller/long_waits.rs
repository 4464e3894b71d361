//! Workloads that have waited for longer than an endpoint of their team wants.
//!
//! The workloads that wait are kept in order of the time since which they wait. A pass looks, for each endpoint, at those that
//! have reached its mark since the pass before, so that nothing is kept of what was sent, and a Team that changes, or another
//! leader, sends nothing again. A new leader begins shortly before its term: what reached the mark then may be sent twice,
//! with the same ID.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::news::{Fact, send};
use crate::api::notify::Transition;
use crate::cluster::mirror::Mirror;
use crate::engine::Engine;
use crate::engine::types::{Event, Name, Observed, State, Time, Workload, WorkloadId};
use crate::notify::Notifier;

/// The shortest time between two passes.
const PASS: Duration = Duration::from_secs(1);
/// How long before its term a leader begins.
const OVERLAP: Duration = Duration::from_secs(15);
/// The most workloads of which one pass explains why they wait, and the most that wait for that.
const LOOKS: usize = 16;
const MOST_DUE: usize = 1024;

/// The workloads that wait, and those to send.
#[derive(Debug, Default)]
pub struct LongWaits {
    teams: BTreeMap<Name, BTreeSet<(Time, WorkloadId)>>,
    waits: BTreeMap<WorkloadId, (Name, Time)>,
    last: Option<Time>,
    due: VecDeque<(WorkloadId, Time, Duration)>,
}

/// The time since which a workload waits, if it does and its user does not hold it.
fn waits_since(workload: &Workload) -> Option<Time> {
    let waits = matches!(workload.state, Observed::Queued | Observed::Unready(_)) && !workload.hold;
    waits.then(|| workload.evicted.map_or(workload.submitted, |evicted| evicted.max(workload.submitted)))
}

impl LongWaits {
    /// Takes note of a workload that waits, or does not any more.
    pub fn note(&mut self, event: &Event) {
        let (id, now) = match event {
            Event::WorkloadApplied(workload) => {
                (&workload.id, waits_since(workload).map(|since| (workload.team.clone(), since)))
            }
            Event::WorkloadRemoved(id) => (id, None),
            _ => return,
        };
        let before = self.waits.get(id);
        if before == now.as_ref() {
            return;
        }
        if let Some((team, since)) = self.waits.remove(id)
            && let Some(waiting) = self.teams.get_mut(&team)
        {
            waiting.remove(&(since, id.clone()));
            if waiting.is_empty() {
                self.teams.remove(&team);
            }
        }
        if let Some((team, since)) = now {
            self.teams.entry(team.clone()).or_default().insert((since, id.clone()));
            self.waits.insert(id.clone(), (team, since));
        }
    }

    /// When the next pass is due, if one may find something.
    pub fn next(&self) -> Option<Time> {
        let waits = !self.due.is_empty() || !self.teams.is_empty();
        self.last.filter(|_| waits).map(|last| last.after(PASS))
    }

    /// Sends what has reached a mark since the last pass.
    pub fn report(&mut self, engine: &Engine, mirror: &Mirror, notifier: &Notifier, now: Time) {
        let last = *self.last.get_or_insert(before(now, OVERLAP));
        if last.after(PASS) <= now {
            self.last = Some(now);
            for (team, waiting) in &self.teams {
                let endpoints = mirror.team(team).into_iter().flat_map(|seen| &seen.notify);
                let marks: BTreeSet<Duration> =
                    endpoints.filter_map(|endpoint| endpoint.mark().ok().flatten()).collect();
                for mark in marks {
                    let reached = reached(waiting, mark, (last, now));
                    let room = MOST_DUE.saturating_sub(self.due.len());
                    self.due.extend(reached.take(room).map(|(since, id)| (id.clone(), *since, mark)));
                }
            }
        }
        for (id, since, mark) in self.due.drain(..self.due.len().min(LOOKS)) {
            let Some((managed, _)) = mirror.workload(&id) else { continue };
            let workload = &managed.workload;
            let Some(verdict) = engine.verdict(&id).filter(|verdict| verdict.state == State::Pending) else {
                continue;
            };
            let message = format!("It waits for longer than {mark:?}. {}", verdict.message);
            let occasion = since.after(mark).0;
            let fact = Fact {
                transition: Transition::WaitingTooLong,
                occasion,
                reason: verdict.reason.code(),
                message: &message,
            };
            send(notifier, mirror, workload, &fact, |endpoint| endpoint.mark() == Ok(Some(mark)));
        }
    }
}

fn before(at: Time, earlier: Duration) -> Time {
    Time(at.0.saturating_sub(i64::try_from(earlier.as_millis()).unwrap_or(i64::MAX)))
}

/// The workloads that reached a mark after `last` and until `now`.
fn reached(
    waiting: &BTreeSet<(Time, WorkloadId)>,
    mark: Duration,
    (last, now): (Time, Time),
) -> impl Iterator<Item = &(Time, WorkloadId)> {
    let begins = |at: Time| (before(at, mark).after(Duration::from_millis(1)), WorkloadId("".into()));
    waiting.range(begins(last)..begins(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::types::PodShape;

    fn job(name: &str, submitted: i64) -> Workload {
        Workload::job(&"a".into(), &name.into(), 1, PodShape::default(), Time(submitted))
    }

    fn names<'a>(found: impl Iterator<Item = &'a (Time, WorkloadId)>) -> Vec<&'a str> {
        found.map(|(_, id)| &*id.0).collect()
    }

    #[test]
    fn a_workload_reaches_a_mark_once() {
        let mut waits = LongWaits::default();
        for (name, at) in [("x", 1_000), ("y", 2_000), ("z", 3_000)] {
            waits.note(&Event::workload(job(name, at)));
        }
        let waiting = &waits.teams["a"];
        let mark = Duration::from_secs(10);
        let mut found = Vec::new();
        for pass in 0..20 {
            let (last, now) = (Time(pass * 1_000 + 500), Time(pass * 1_000 + 1_500));
            found.extend(names(reached(waiting, mark, (last, now))));
        }
        assert_eq!(found, ["a/x", "a/y", "a/z"]);
        assert_eq!(
            names(reached(waiting, mark, (Time(11_000), Time(12_000)))),
            ["a/y"],
            "the last is not, now is"
        );
    }

    #[test]
    fn only_what_waits_is_kept() {
        let mut waits = LongWaits::default();
        waits.note(&Event::workload(job("x", 1_000)));
        waits.note(&Event::workload(Workload { hold: true, ..job("x", 1_000) }));
        assert!(waits.teams.is_empty() && waits.waits.is_empty());
        let again = Workload { evicted: Some(Time(9_000)), ..job("x", 1_000) };
        waits.note(&Event::workload(again));
        assert_eq!(waits.waits[&job("x", 0).id].1, Time(9_000), "it waits since its eviction");
        waits.note(&Event::WorkloadRemoved(job("x", 0).id));
        assert!(waits.teams.is_empty() && waits.waits.is_empty());
    }
}
