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
//! 3. A replica that takes the lease lists the whole cluster afterwards, with reads that etcd
//!    confirms, and makes no decision before. It sees every write committed by then.
//! 4. A leader that shuts down releases the lease only after each of its writes was answered.
//!
//! One case remains: the API server hands a write to etcd in time, and etcd commits it more than P
//! later, because etcd has no leader itself or its disk stalls. If the new leader has written the same
//! Job by then, the late write fails its test of the generation. Otherwise it takes effect beside the
//! new leader's decisions. From then on it is charged like any admission, and nothing more is admitted
//! until the capacity is free again.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::core::ObjectMeta;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::names;

/// The permission to write, until it expires.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// Whether this process leads now.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.remaining() > Duration::ZERO
    }

    /// The time until leadership expires if it is not renewed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.borrow().map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Leadership that expires at a given time.
    #[cfg(test)]
    pub(crate) fn until(until: Instant) -> Self {
        Self(watch::channel(Some(until)).1)
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

/// The last observed version of another holder's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Observation {
    version: Option<String>,
    first_seen: Instant,
}

/// The next step of the election.
#[derive(Debug, PartialEq)]
enum Step {
    /// This candidate holds the lease: renew it.
    Renew,
    /// The lease is free or expired: take it.
    Take,
    /// Another candidate holds the lease, at least until this time.
    Wait(Instant),
}

/// The next step, given the lease and when this version of it was first seen.
fn step(lease: &Lease, candidate: &Candidate, seen: &mut Option<Observation>, now: Instant) -> Step {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    if holder == candidate.identity {
        return Step::Renew;
    }
    if holder.is_empty() {
        return Step::Take;
    }
    let version = lease.metadata.resource_version.clone();
    let observation = match seen.take() {
        Some(observation) if observation.version == version => observation,
        _ => Observation { version, first_seen: now },
    };
    let stated = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
    let patience = stated.map_or(candidate.duration, Duration::from_secs);
    let expires = observation.first_seen + patience;
    *seen = Some(observation);
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

/// Takes part in the election until `stop`, then releases the lease.
pub fn campaign(
    client: Client,
    candidate: Candidate,
    stop: CancellationToken,
) -> (Leadership, impl Future<Output = ()> + Send) {
    let (sender, receiver) = watch::channel(None);
    let run = async move {
        let api: Api<Lease> = Api::namespaced(client, &candidate.namespace);
        let period = candidate.duration / 4;
        let mut seen = None;
        loop {
            let asked = Instant::now();
            let mut again = asked + period;
            match timeout(period * 2, round(&api, &candidate, &mut seen)).await {
                Ok(Ok(Held::Here)) => {
                    // Counted from the request, and one period shorter than other candidates wait.
                    sender.send_replace(Some(asked + candidate.duration - period));
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
    /// This candidate.
    Here,
    /// Another candidate; `expires` is the time at which the lease expires unless it is renewed, if known.
    Elsewhere { expires: Option<Instant> },
}

/// Reads the lease once and takes the next step.
async fn round(
    api: &Api<Lease>,
    candidate: &Candidate,
    seen: &mut Option<Observation>,
) -> kube::Result<Held> {
    let params = PostParams::default();
    let Some(lease) = api.get_opt(names::NAME).await? else {
        let metadata = ObjectMeta { name: Some(names::NAME.to_owned()), ..ObjectMeta::default() };
        let fresh = Lease { metadata, spec: None };
        return won(api.create(&params, &written(&fresh, candidate, true)).await);
    };
    match step(&lease, candidate, seen, Instant::now()) {
        Step::Wait(expires) => Ok(Held::Elsewhere { expires: Some(expires) }),
        Step::Renew => won(api.replace(names::NAME, &params, &written(&lease, candidate, false)).await),
        Step::Take => won(api.replace(names::NAME, &params, &written(&lease, candidate, true)).await),
    }
}

/// The result of a write on the lease. A lost race is an outcome, not an error.
fn won(answer: kube::Result<Lease>) -> kube::Result<Held> {
    match answer {
        Ok(_) => Ok(Held::Here),
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
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(5);

    fn me() -> Candidate {
        Candidate { identity: "me".into(), namespace: "ns".into(), duration: LEASE }
    }

    fn lease(holder: Option<&str>, version: &str) -> Lease {
        Lease {
            metadata: ObjectMeta { resource_version: Some(version.into()), ..ObjectMeta::default() },
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                lease_duration_seconds: Some(5),
                lease_transitions: Some(3),
                ..LeaseSpec::default()
            }),
        }
    }

    #[test]
    fn a_free_lease_is_taken_and_a_held_lease_is_renewed() {
        let now = Instant::now();
        assert_eq!(step(&lease(None, "1"), &me(), &mut None, now), Step::Take);
        assert_eq!(step(&lease(Some(""), "1"), &me(), &mut None, now), Step::Take);
        assert_eq!(step(&Lease::default(), &me(), &mut None, now), Step::Take);
        assert_eq!(step(&lease(Some("me"), "1"), &me(), &mut None, now), Step::Renew);
    }

    #[test]
    fn a_lease_of_another_holder_is_taken_when_it_is_unchanged_for_its_duration() {
        let (start, mut seen) = (Instant::now(), None);
        let until = start + LEASE;
        assert_eq!(step(&lease(Some("other"), "1"), &me(), &mut seen, start), Step::Wait(until));
        let almost = until - Duration::from_millis(1);
        assert_eq!(step(&lease(Some("other"), "1"), &me(), &mut seen, almost), Step::Wait(until));
        assert_eq!(step(&lease(Some("other"), "1"), &me(), &mut seen, start + LEASE), Step::Take);
    }

    #[test]
    fn a_renewal_restarts_the_wait() {
        let (start, mut seen) = (Instant::now(), None);
        step(&lease(Some("other"), "1"), &me(), &mut seen, start);
        let later = start + LEASE;
        assert_eq!(step(&lease(Some("other"), "2"), &me(), &mut seen, later), Step::Wait(later + LEASE));
        assert_eq!(step(&lease(Some("other"), "2"), &me(), &mut seen, later + LEASE), Step::Take);
    }

    #[test]
    fn a_write_carries_the_version_it_is_based_on() {
        let taken = written(&lease(Some("other"), "7"), &me(), true);
        assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"));
        let spec = taken.spec.expect("a spec");
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("me"), Some(4)));
        let odd = Candidate { duration: Duration::from_millis(2900), ..me() };
        let renewed = written(&lease(Some("me"), "8"), &odd, false).spec.expect("a spec");
        assert_eq!(renewed.lease_duration_seconds, Some(3), "no less than the holder assumes");
        assert_eq!(renewed.lease_transitions, Some(3));
    }

    #[test]
    fn leadership_expires_by_itself() {
        let (sender, receiver) = watch::channel(None);
        let leadership = Leadership(receiver);
        assert!(!leadership.holds());
        let renewed = Instant::now();
        sender.send_replace(Some(renewed + LEASE));
        assert!(leadership.holds() && leadership.remaining() <= LEASE);
        sender.send_replace(Some(renewed));
        assert!(!leadership.holds(), "it was not renewed since");
    }
}
