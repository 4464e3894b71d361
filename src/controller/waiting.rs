//! Events that say why workloads wait, where `kubectl describe` shows them: one when the kind of reason changes, not its
//! numbers.
//!
//! Workloads are looked at some at a time after the writes of a decision, never while one is made. A workload that starts
//! within moments gets no such event. Each gets one a minute at most, and all together a bounded number: events are the
//! least urgent of all writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::allowance::Allowance;
use super::news::{Fact, send, shown};
use crate::api::notify::Transition;
use crate::cluster::events::{Notice, Notices};
use crate::cluster::mirror::Mirror;
use crate::engine::Engine;
use crate::engine::types::{Event, Observed, Reason, State, Time, Verdict, Workload, WorkloadId};
use crate::metrics::Metrics;
use crate::notify::Notifier;

/// The wait before the first look: what starts sooner needs no explanation.
const DELAY: Duration = Duration::from_secs(3);
/// The wait until the next look at a workload.
const PERIOD: Duration = Duration::from_secs(15);
/// The shortest time between two events of a workload, unless its user holds or releases it.
const BETWEEN: Duration = Duration::from_secs(60);
/// The delay after a user holds or releases a workload.
const SOON: Duration = Duration::from_millis(500);
/// The shortest time between two passes, and the most looks of a pass: a thousandth of a second each at most, as a rule.
const PASS: Duration = Duration::from_millis(100);
const LOOKS: usize = 16;
/// The most events at once, and the time in which one more is allowed.
const BURST: u32 = 100;
const REFILL: Duration = Duration::from_millis(200);
/// The most pods of a group that get the event.
const MOST_PODS: usize = 16;

/// The reason of Events about work that can never start as it is.
const CAN_NEVER_START: &str = "Unschedulable";
/// How long before its term a leader takes work for new of which the leader before may not have said that it can never start.
const OVERLAP: Duration = Duration::from_secs(15);

/// Where it is published.
pub struct Outlets<'a> {
    /// Events.
    pub notices: &'a Notices,
    /// Metrics.
    pub metrics: &'a Metrics,
    /// Endpoints of teams.
    pub notifier: &'a Notifier,
    /// The beginning of this leader's term.
    pub since: Time,
}

impl Outlets<'_> {
    /// Whether a workload was submitted too late for the leader before to say anything about it.
    fn is_new(&self, workload: &Workload) -> bool {
        workload.submitted.after(OVERLAP) >= self.since
    }
}

/// What was said about the workloads that wait.
#[derive(Debug)]
pub struct Waiting {
    told: BTreeMap<WorkloadId, Told>,
    /// When to look at each workload next.
    due: BTreeSet<(Time, WorkloadId)>,
    last_pass: Option<Time>,
    allowance: Allowance,
}

impl Default for Waiting {
    fn default() -> Self {
        let allowance = Allowance::new(BURST, REFILL);
        Self { told: BTreeMap::new(), due: BTreeSet::new(), last_pass: None, allowance }
    }
}

/// What was said about one workload.
#[derive(Debug)]
struct Told {
    next: Time,
    /// The reason, and whether it said that the workload can never start.
    reason: Option<(Reason, bool)>,
    at: Option<Time>,
    /// The number of its events, which tells those of one reason apart.
    times: u32,
    /// Whether its user holds it, as last seen.
    held: bool,
}

/// How a reason is published.
enum Kind {
    /// Not at all: it passes at once.
    Silent,
    /// As an event of type Normal or Warning with this reason.
    Told { warning: bool, reason: &'static str },
}

impl Waiting {
    /// Takes note of a workload that waits, or does not any more.
    pub fn note(&mut self, event: &Event, now: Time) {
        match event {
            Event::WorkloadApplied(workload) if waits(workload) => {
                let held = workload.hold || workload.state == Observed::OnHold;
                match self.told.get(&workload.id) {
                    None => {
                        let told = Told { next: now, reason: None, at: None, times: 0, held };
                        self.told.insert(workload.id.clone(), told);
                        self.look_at(&workload.id, now.after(DELAY));
                    }
                    Some(told) if told.held != held => {
                        if let Some(told) = self.told.get_mut(&workload.id) {
                            told.held = held;
                        }
                        self.look_at(&workload.id, now.after(SOON));
                    }
                    Some(_) => {}
                }
            }
            Event::WorkloadApplied(workload) => self.forget(&workload.id),
            Event::WorkloadRemoved(id) => self.forget(id),
            _ => {}
        }
    }

    /// When the next look is due.
    pub fn next(&self) -> Option<Time> {
        let (at, _) = self.due.first()?;
        Some(self.last_pass.map_or(*at, |last| last.after(PASS).max(*at)))
    }

    /// Looks at some of the workloads that are due, and publishes what is new about them.
    pub fn report(&mut self, engine: &Engine, mirror: &Mirror, to: &Outlets<'_>, now: Time) {
        if self.next().is_none_or(|at| at > now) {
            return;
        }
        self.last_pass = Some(now);
        self.allowance.refill(now);
        for _ in 0..LOOKS {
            if self.allowance.is_spent() {
                return;
            }
            let Some((_, id)) = self.due.first().filter(|(at, _)| *at <= now).cloned() else { return };
            match engine.verdict(&id) {
                Some(verdict) if matches!(verdict.state, State::Held | State::Pending) => {
                    self.look(engine, mirror, to, (&id, &verdict), now);
                }
                // It is about to start, and its object says so soon.
                Some(_) => self.look_at(&id, now.after(PERIOD)),
                None => self.forget(&id),
            }
        }
    }

    fn look(
        &mut self,
        engine: &Engine,
        mirror: &Mirror,
        to: &Outlets<'_>,
        (id, verdict): (&WorkloadId, &Verdict),
        now: Time,
    ) {
        let Some(told) = self.told.get_mut(id) else { return };
        let kind = kind_of(verdict);
        let held = |said: Option<(Reason, bool)>| said.is_some_and(|(reason, _)| is_held(reason));
        let released = held(told.reason) && !is_held(verdict.reason);
        let by_user = released || is_held(verdict.reason) && !held(told.reason);
        let again = told.at.map_or(now, |at| at.after(BETWEEN));
        let next = match kind {
            _ if told.reason == Some((verdict.reason, verdict.never)) => now.after(PERIOD),
            Kind::Silent if !released => now.after(DELAY),
            _ if again > now && !by_user => again,
            _ => {
                let Some((managed, _)) = mirror.workload(id) else { return self.forget(id) };
                let code = verdict.reason.code();
                let (warning, reason, note) = match kind {
                    _ if released => {
                        (false, "Released", "It is in the queue again, in its old place.".to_owned())
                    }
                    Kind::Told { warning, reason } => {
                        let rollout = mirror.rollout(id).map(|text| format!(" {text}")).unwrap_or_default();
                        let place = place(engine, &managed.workload).filter(|_| !verdict.never);
                        let place = place.unwrap_or_default();
                        (
                            warning,
                            reason,
                            format!(
                                "{code}: {}{rollout}{place}",
                                shown(mirror, &managed.workload, &verdict.message)
                            ),
                        )
                    }
                    Kind::Silent => return,
                };
                if verdict.reason == Reason::WaitedTooLong && !released {
                    let labels = [&*managed.workload.team, &*mirror.queue_of(&managed.workload)];
                    to.metrics.waited_too_long.with_label_values(&labels).inc();
                }
                let times = told.times;
                told.times = times.saturating_add(1);
                let mut about = mirror.references(&managed.workload);
                about.truncate(MOST_PODS);
                self.allowance.spend(about.len());
                let occasion = match (released, times) {
                    // The first event of a workload has one name on every replica.
                    (_, 0) => code.to_lowercase(),
                    (true, times) => times.to_string(),
                    (false, times) => format!("{}{times}", code.to_lowercase()),
                };
                if reason == CAN_NEVER_START && (told.reason.is_some() || to.is_new(&managed.workload)) {
                    let fact = Fact {
                        transition: Transition::Failed,
                        occasion: managed.workload.submitted.0,
                        reason: code,
                        message: &verdict.message,
                    };
                    send(to.notifier, mirror, &managed.workload, &fact, |_| true);
                }
                to.notices.publish_each(about, |about| Notice {
                    about,
                    warning,
                    reason,
                    action: "Wait",
                    occasion: occasion.clone(),
                    note: note.clone(),
                });
                told.reason = (!released).then_some((verdict.reason, verdict.never));
                told.at = Some(now);
                now.after(if released { BETWEEN } else { PERIOD })
            }
        };
        self.look_at(id, next);
    }

    /// Sets the time of the next look at a workload.
    fn look_at(&mut self, id: &WorkloadId, at: Time) {
        let Some(told) = self.told.get_mut(id) else { return };
        let before = std::mem::replace(&mut told.next, at);
        self.due.remove(&(before, id.clone()));
        self.due.insert((at, id.clone()));
    }

    fn forget(&mut self, id: &WorkloadId) {
        if let Some(told) = self.told.remove(id) {
            self.due.remove(&(told.next, id.clone()));
        }
    }
}

/// Whether a workload waits, also on hold.
fn waits(workload: &Workload) -> bool {
    matches!(workload.state, Observed::Queued | Observed::Unready(_) | Observed::OnHold)
}

/// Whether a reason says that its user holds a workload.
fn is_held(reason: Reason) -> bool {
    matches!(reason, Reason::OnHold | Reason::HeldByUser)
}

/// How a verdict is published: what passes by waiting is Normal.
fn kind_of(verdict: &Verdict) -> Kind {
    match verdict.reason {
        Reason::NotYetConsidered | Reason::Failing | Reason::WaitingForEviction => Kind::Silent,
        Reason::OnHold | Reason::HeldByUser => Kind::Told { warning: false, reason: "Held" },
        Reason::WaitedTooLong => Kind::Told { warning: true, reason: "WaitedTooLong" },
        _ if verdict.never => Kind::Told { warning: true, reason: CAN_NEVER_START },
        Reason::NoNodeFits
        | Reason::UnknownTeam
        | Reason::UnknownQueue
        | Reason::UnlikePods
        | Reason::Uncounted => Kind::Told { warning: true, reason: CAN_NEVER_START },
        _ => Kind::Told { warning: false, reason: "Waiting" },
    }
}

/// The place of a workload among those of its team, as a sentence.
fn place(engine: &Engine, workload: &Workload) -> Option<String> {
    let (position, waiting) = engine.position(&workload.id)?;
    Some(format!(" Place {position} of {waiting} in the queue of team {}.", workload.team))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::types::PodShape;

    fn job(name: &str, hold: bool) -> Workload {
        let job = Workload::job(&"a".into(), &name.into(), 1, PodShape::default(), Time(0));
        Workload { hold, ..job }
    }

    #[test]
    fn what_can_never_start_for_a_limit_is_published_like_what_fits_no_node() {
        let reason = |reason, never| {
            let verdict = Verdict { state: State::Pending, reason, message: String::new(), never };
            match kind_of(&verdict) {
                Kind::Told { warning, reason } => (warning, reason),
                Kind::Silent => (false, ""),
            }
        };
        assert_eq!(reason(Reason::QueueLimit, true), (true, CAN_NEVER_START));
        assert_eq!(reason(Reason::QueueLimit, false), (false, "Waiting"));
        assert_eq!(reason(Reason::WaitedTooLong, true), (true, "WaitedTooLong"), "that is the news then");
        assert_eq!(reason(Reason::NoNodeFits, true), (true, CAN_NEVER_START));
    }

    #[test]
    fn only_what_waits_is_kept_and_looked_at() {
        let mut waiting = Waiting::default();
        waiting.note(&Event::workload(job("x", false)), Time(0));
        waiting.note(&Event::workload(job("y", false)), Time(1_000));
        assert_eq!(waiting.next(), Some(Time(3_000)));
        waiting.note(&Event::workload(job("x", true)), Time(1_000));
        assert_eq!(waiting.next(), Some(Time(1_500)), "a hold is looked at soon");
        let ended = Workload { state: Observed::Finished, ..job("x", false) };
        waiting.note(&Event::workload(ended), Time(2_000));
        assert_eq!(waiting.next(), Some(Time(4_000)));
        waiting.note(&Event::WorkloadRemoved(job("y", false).id), Time(2_000));
        assert_eq!((waiting.next(), waiting.told.len(), waiting.due.len()), (None, 0, 0));
    }
}
