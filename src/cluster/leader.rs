//! Leader election through a Lease: at most one replica writes.
//!
//! The protocol is that of client-go. A candidate takes the lease when its record has not changed for
//! the holder's lease duration *on the candidate's own clock*. Every write carries the resource
//! version it is based on, so of two candidates one loses. The holder gets a [`Leadership`] that
//! expires by itself: a leader that cannot reach the API server stops leading before another replica
//! may start.
//!
//! No write of an old leader is missing from a new leader's view. Let L be the lease duration and
//! P = L/4 the renewal period:
//!
//! 1. The holder requests a renewal at `t`. If it is granted, leadership lasts until `t + L - P`.
//!    Other replicas see the renewal at `t` at the earliest and wait for L from that moment, so none
//!    takes the lease before `t + L`. Only durations are compared, each on one clock.
//! 2. A call ends for its caller when the leadership it started under does, so by `t + L - P`. The
//!    API server gets the same duration as the deadline of the request, counted from its arrival. P
//!    is the margin for network delay and for clocks of different speed.
//! 3. A replica that takes the lease makes no decision before it sees every write committed by then.
//!    Either it lists the whole cluster afterwards, with reads that etcd confirms. Or it has watched the
//!    cluster before: then it lists the versions of all objects that a leader writes and decides on, with such
//!    reads too, and waits until its cache shows each of them in that version or a later one. See
//!    [`super::catch_up`]. The cache alone does not do: a watch may lag behind without a bound.
//! 4. A leader that shuts down releases the lease only after each of its writes was answered.
//! 5. The lease is taken and renewed only while the decision loop runs, see [`super::heartbeat`]. A loop that hangs loses
//!    it. When it runs again, it learns from the term that it led before and not without a break. It does not know how
//!    its last writes ended, and lists again.
//! 6. A replica that led last itself counts as leader again no earlier than P after the end of its term, so that step
//!    2 holds for its own writes too.
//! 7. A process renews only a lease that it has taken itself. After a crash the next process of the same identity waits until that
//!    lease has expired, like any other candidate: writes of the process before may be under way.
//!
//! The clock of durations stands still while the machine is suspended, and the lease does not. So leadership also ends
//! by the clock of dates. That one may be set: forward ends leadership early, backward changes nothing.
//!
//! One case remains: the API server hands a write to etcd in time, and etcd commits it more than P
//! later, because etcd has no leader itself or its disk stalls. If the new leader has written the same
//! Job by then, the late write fails its test of the generation. Otherwise it takes effect beside the
//! new leader's decisions. From then on it is charged like any admission, and nothing more is admitted
//! until the capacity is free again.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::heartbeat::{Heartbeat, RENEWED};
use crate::api::names;

/// The permission to write, until it expires.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Claim>>);

/// A lease that this process holds.
#[derive(Clone, Copy, Debug)]
struct Claim {
    /// The number of times that the lease was gained.
    term: u64,
    until: Instant,
    /// The same on the clock of dates.
    date: SystemTime,
}

impl Claim {
    fn new(term: u64, until: Instant) -> Self {
        let date = SystemTime::now() + until.saturating_duration_since(Instant::now());
        Self { term, until, date }
    }

    fn remaining(&self) -> Duration {
        let by_date = self.date.duration_since(SystemTime::now()).unwrap_or_default();
        self.until.saturating_duration_since(Instant::now()).min(by_date)
    }

    /// The claim after a renewal requested at `asked`. One that has expired, or that another candidate may have interrupted,
    /// starts a new term; `None` while writes of the last one may be under way.
    fn renewed(before: Option<Self>, taken: bool, asked: Instant, terms: &mut Terms) -> Option<Self> {
        let until = asked + terms.lasts;
        let claim = match before.filter(|claim| !taken && claim.remaining() > Duration::ZERO) {
            Some(claim) => Self::new(claim.term, until),
            None if terms.end.is_some_and(|end| asked < end + terms.margin) => return None,
            None => {
                terms.count += 1;
                Self::new(terms.count, until)
            }
        };
        terms.end = Some(until);
        Some(claim)
    }
}

/// The terms of this process.
#[derive(Debug)]
struct Terms {
    count: u64,
    /// When the last one ends.
    end: Option<Instant>,
    /// How long leadership lasts from the request for a renewal.
    lasts: Duration,
    /// The time after a term in which a write of it may still take effect.
    margin: Duration,
}

impl Terms {
    fn of(candidate: &Candidate) -> Self {
        let margin = candidate.duration / 4;
        Self { count: 0, end: None, lasts: candidate.duration - margin, margin }
    }
}

impl Leadership {
    /// Whether this process leads now.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.remaining() > Duration::ZERO
    }

    /// The time until leadership expires if it is not renewed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.borrow().map_or(Duration::ZERO, |claim| claim.remaining())
    }

    /// The term in which this process leads now. Between two terms another process may have led.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        self.0.borrow().filter(|claim| claim.remaining() > Duration::ZERO).map(|claim| claim.term)
    }

    /// Leadership that expires at a given time.
    #[cfg(test)]
    pub(crate) fn until(until: Instant) -> Self {
        Self(watch::channel(Some(Claim::new(1, until))).1)
    }

    /// Waits until leadership is renewed, released or lost; false when the election has ended.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// The candidate that this process is.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The holder identity in the lease.
    pub identity: String,
    /// The namespace of the lease.
    pub namespace: String,
    /// The lease duration: how long the lease must be unchanged before another candidate takes it.
    pub duration: Duration,
}

/// The last observed version of the lease of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Observation {
    version: Option<String>,
    first_seen: Instant,
}

/// The next step of the election.
#[derive(Debug, PartialEq)]
enum Step {
    /// This process holds the lease: renew it.
    Renew,
    /// The lease is free or expired: take it.
    Take,
    /// Another candidate holds the lease, at least until this time.
    Wait(Instant),
}

/// What a process knows of the lease.
#[derive(Debug, Default)]
struct Known {
    /// Whether this process has taken the lease at some time. A lease of its identity is its own then, and else that of a process
    /// before it.
    taken: bool,
    /// The last version that was not its own.
    seen: Option<Observation>,
}

/// The next step, given the lease and when this version of it was first seen.
fn step(lease: &Lease, candidate: &Candidate, known: &mut Known, now: Instant) -> Step {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    if holder == candidate.identity && known.taken {
        return Step::Renew;
    }
    if holder.is_empty() {
        return Step::Take;
    }
    let version = lease.metadata.resource_version.clone();
    let observation = match known.seen.take() {
        Some(observation) if observation.version == version => observation,
        _ => Observation { version, first_seen: now },
    };
    let stated = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
    let patience = stated.map_or(candidate.duration, Duration::from_secs);
    let expires = observation.first_seen + patience;
    known.seen = Some(observation);
    if now >= expires { Step::Take } else { Step::Wait(expires) }
}

/// The lease with this candidate as holder.
fn written(lease: &Lease, candidate: &Candidate, taking: bool) -> Lease {
    let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
    let before = lease.spec.clone().unwrap_or_default();
    let transitions = before.lease_transitions.unwrap_or(0);
    Lease {
        metadata: lease.metadata.clone(),
        spec: Some(LeaseSpec {
            holder_identity: Some(candidate.identity.clone()),
            // Rounded up: other candidates must not wait for less than the holder assumes.
            lease_duration_seconds: i32::try_from(candidate.duration.as_millis().div_ceil(1000).max(1)).ok(),
            acquire_time: if taking { Some(now.clone()) } else { before.acquire_time },
            renew_time: Some(now),
            lease_transitions: Some(transitions + i32::from(taking)),
            ..before
        }),
    }
}

/// Takes part in the election until `stop`, then releases the lease. It stands aside while `heart` does not beat.
pub fn campaign(
    client: Client,
    candidate: Candidate,
    heart: Heartbeat,
    stop: CancellationToken,
) -> (Leadership, impl Future<Output = ()> + Send) {
    let (sender, receiver) = watch::channel(None::<Claim>);
    let run = async move {
        let api: Api<Lease> = Api::namespaced(client, &candidate.namespace);
        let period = candidate.duration / 4;
        let (mut known, mut terms, mut aside) = (Known::default(), Terms::of(&candidate), false);
        loop {
            let asked = Instant::now();
            let mut again = asked + period;
            if heart.age() > RENEWED {
                if !std::mem::replace(&mut aside, true) {
                    let age = heart.age();
                    tracing::error!(
                        ?age,
                        "the decision loop does not run; the lease is neither taken nor renewed"
                    );
                }
                if stop.run_until_cancelled(tokio::time::sleep_until(again)).await.is_none() {
                    break;
                }
                continue;
            }
            aside = false;
            match timeout(period * 2, round(&api, &candidate, &mut known)).await {
                Ok(Ok(Held::Here { taken })) => {
                    known.taken = true;
                    // Counted from the request, and one period shorter than other candidates wait.
                    let before = *sender.borrow();
                    sender.send_replace(Claim::renewed(before, taken, asked, &mut terms));
                }
                Ok(Ok(Held::Elsewhere { expires })) => {
                    sender.send_replace(None);
                    // An expired lease is taken at once, not up to a period later.
                    again = expires.map_or(again, |expires| again.min(expires));
                }
                Ok(Err(error)) => tracing::warn!(%error, "cannot read or write the lease"),
                Err(_) => tracing::warn!("the API server did not answer a request for the lease in time"),
            }
            if stop.run_until_cancelled(tokio::time::sleep_until(again)).await.is_none() {
                break;
            }
        }
        let held = sender.send_replace(None).is_some();
        if held && timeout(period * 2, release(&api, &candidate)).await.is_err() {
            tracing::warn!("the lease was not released in time; it expires by itself");
        }
    };
    (Leadership(receiver), run)
}

/// The holder of the lease after one round.
enum Held {
    /// This candidate; `taken` says that it did not hold the lease before.
    Here { taken: bool },
    /// Another candidate; `expires` is the time at which the lease expires unless it is renewed, if known.
    Elsewhere { expires: Option<Instant> },
}

/// Reads the lease once and takes the next step.
async fn round(api: &Api<Lease>, candidate: &Candidate, known: &mut Known) -> kube::Result<Held> {
    let params = PostParams::default();
    let Some(lease) = api.get_opt(names::NAME).await? else {
        let metadata = ObjectMeta { name: Some(names::NAME.to_owned()), ..ObjectMeta::default() };
        let fresh = Lease { metadata, spec: None };
        return won(api.create(&params, &written(&fresh, candidate, true)).await, true);
    };
    match step(&lease, candidate, known, Instant::now()) {
        Step::Wait(expires) => Ok(Held::Elsewhere { expires: Some(expires) }),
        Step::Renew => {
            won(api.replace(names::NAME, &params, &written(&lease, candidate, false)).await, false)
        }
        Step::Take => won(api.replace(names::NAME, &params, &written(&lease, candidate, true)).await, true),
    }
}

/// The result of a write on the lease. A lost race is an outcome, not an error.
fn won(answer: kube::Result<Lease>, taken: bool) -> kube::Result<Held> {
    match answer {
        Ok(_) => Ok(Held::Here { taken }),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
            Ok(Held::Elsewhere { expires: None })
        }
        Err(error) => Err(error),
    }
}

async fn release(api: &Api<Lease>, candidate: &Candidate) {
    let released = async {
        let mut lease = api.get(names::NAME).await?;
        let Some(spec) = lease.spec.as_mut() else { return Ok(()) };
        if spec.holder_identity.as_deref() != Some(&candidate.identity) {
            return Ok(());
        }
        spec.holder_identity = None;
        api.replace(names::NAME, &PostParams::default(), &lease).await.map(|_| ())
    };
    let released: kube::Result<()> = released.await;
    if let Err(error) = released {
        tracing::warn!(%error, "the lease was not released; it expires by itself");
    }
}

#[cfg(test)]
mod tests;
