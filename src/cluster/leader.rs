//! One leader at a time, through a Lease.
//!
//! As client-go does it: a candidate takes the lease when its record has not changed for the holder's
//! lease duration *on the candidate's own clock*, and every write carries the version it was decided
//! on, so of two candidates one loses. What the holder gets is a [`Leadership`] that runs out by itself:
//! a leader that cannot reach the API server stops leading before another may start.
//!
//! Why no write of an old leader meets a new leader's view, with L the lease's duration and P = L/4
//! the period of renewal:
//!
//! 1. The holder asks for a renewal at `t` and, if it is granted, claims until `t + L - P`. Others
//!    can see the renewal at `t` at the earliest, and wait L from when they see it: none takes the
//!    lease before `t + L` (no clock is compared with another's, only durations on each).
//! 2. A call ends for its caller when the leadership it was begun under does, so by `t + L - P`, and the
//!    API server is told to give it up after the same time, counted from its arrival. P is the margin
//!    for the way there and for clocks that run differently fast.
//! 3. Whoever takes the lease reads the whole cluster afterwards, with reads that etcd confirms, and
//!    decides nothing before. It sees every write that was committed by then.
//! 4. A holder that ends gives the lease back only when each of its writes has been answered.
//!
//! What remains is a write that the API server has handed to etcd in time and that etcd commits more
//! than P later, as it may while it has no leader itself or its disk stalls. Where the new leader has
//! touched the same Job by then, the write fails its test of the generation. Otherwise it takes effect
//! beside what the new leader has decided without it; from then on it is counted like any admission,
//! and nothing more is admitted until the room is there again.

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

/// The right to write, until it runs out.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// Whether this process leads now.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.remaining() > Duration::ZERO
    }

    /// How long the leadership still holds if it is not renewed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.borrow().map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// A leadership that holds until a given moment.
    #[cfg(test)]
    pub(crate) fn until(until: Instant) -> Self {
        Self(watch::channel(Some(until)).1)
    }

    /// Waits until the leadership has been renewed, given up or lost; false when there will be no more.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// Who stands for election, and for how long an election holds.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What this process is called in the lease.
    pub identity: String,
    /// The namespace of the lease.
    pub namespace: String,
    /// How long others must not have heard of the holder before they take over.
    pub duration: Duration,
}

/// Another's lease as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sighting {
    version: Option<String>,
    first_seen: Instant,
}

/// What to do about the lease.
#[derive(Debug, PartialEq)]
enum Step {
    /// It is ours: renew it.
    Renew,
    /// It is free: take it.
    Take,
    /// Another holds it, and if nothing changes, until then.
    Wait(Instant),
}

/// Decides what to do about a lease, given when this record of it was first seen.
fn step(lease: &Lease, candidate: &Candidate, seen: &mut Option<Sighting>, now: Instant) -> Step {
    let spec = lease.spec.as_ref();
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default();
    if holder == candidate.identity {
        return Step::Renew;
    }
    if holder.is_empty() {
        return Step::Take;
    }
    let version = lease.metadata.resource_version.clone();
    let sighting = match seen.take() {
        Some(sighting) if sighting.version == version => sighting,
        _ => Sighting { version, first_seen: now },
    };
    let stated = spec.and_then(|spec| spec.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
    let patience = stated.map_or(candidate.duration, Duration::from_secs);
    let expires = sighting.first_seen + patience;
    *seen = Some(sighting);
    if now >= expires { Step::Take } else { Step::Wait(expires) }
}

/// The lease as this candidate writes it.
fn written(lease: &Lease, candidate: &Candidate, taking: bool) -> Lease {
    let now = MicroTime(k8s_openapi::jiff::Timestamp::now());
    let before = lease.spec.clone().unwrap_or_default();
    let transitions = before.lease_transitions.unwrap_or(0);
    Lease {
        metadata: lease.metadata.clone(),
        spec: Some(LeaseSpec {
            holder_identity: Some(candidate.identity.clone()),
            // Rounded up: others must never wait for less than the holder counts on.
            lease_duration_seconds: i32::try_from(candidate.duration.as_millis().div_ceil(1000).max(1)).ok(),
            acquire_time: if taking { Some(now.clone()) } else { before.acquire_time },
            renew_time: Some(now),
            lease_transitions: Some(transitions + i32::from(taking)),
            ..before
        }),
    }
}

/// Stands for election until `stop`, then gives the lease back.
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
                    // Counted from when we asked, and a period short of what the others wait.
                    sender.send_replace(Some(asked + candidate.duration - period));
                }
                Ok(Ok(Held::Elsewhere { expires })) => {
                    sender.send_replace(None);
                    // A dead holder's lease is taken when it runs out, not up to a period later.
                    again = expires.map_or(again, |expires| again.min(expires));
                }
                Ok(Err(error)) => tracing::warn!(%error, "the lease could not be read or written"),
                Err(_) => tracing::warn!("the API server does not answer about the lease"),
            }
            if stop.run_until_cancelled(tokio::time::sleep_until(again)).await.is_none() {
                break;
            }
        }
        let held = sender.send_replace(None).is_some();
        if held && timeout(period * 2, release(&api, &candidate)).await.is_err() {
            tracing::warn!("the lease was not given back in time; it runs out by itself");
        }
    };
    (Leadership(receiver), run)
}

/// Whose the lease is after a look at it.
enum Held {
    /// Ours.
    Here,
    /// Another's; if known, when it runs out unless it is renewed.
    Elsewhere { expires: Option<Instant> },
}

/// Reads the lease once and does what is to be done.
async fn round(api: &Api<Lease>, candidate: &Candidate, seen: &mut Option<Sighting>) -> kube::Result<Held> {
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

/// That another was faster is an outcome, not an error.
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
    let given_back = async {
        let mut lease = api.get(names::NAME).await?;
        let Some(spec) = lease.spec.as_mut() else { return Ok(()) };
        if spec.holder_identity.as_deref() != Some(&candidate.identity) {
            return Ok(());
        }
        spec.holder_identity = None;
        api.replace(names::NAME, &PostParams::default(), &lease).await.map(|_| ())
    };
    let given_back: kube::Result<()> = given_back.await;
    if let Err(error) = given_back {
        tracing::warn!(%error, "the lease was not given back; it runs out by itself");
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
    fn a_free_lease_is_taken_and_ones_own_renewed() {
        let now = Instant::now();
        assert_eq!(step(&lease(None, "1"), &me(), &mut None, now), Step::Take);
        assert_eq!(step(&lease(Some(""), "1"), &me(), &mut None, now), Step::Take);
        assert_eq!(step(&Lease::default(), &me(), &mut None, now), Step::Take);
        assert_eq!(step(&lease(Some("me"), "1"), &me(), &mut None, now), Step::Renew);
    }

    #[test]
    fn anothers_lease_is_taken_when_its_record_has_stood_still_for_its_duration() {
        let (start, mut seen) = (Instant::now(), None);
        let until = start + LEASE;
        assert_eq!(step(&lease(Some("other"), "1"), &me(), &mut seen, start), Step::Wait(until));
        let almost = until - Duration::from_millis(1);
        assert_eq!(step(&lease(Some("other"), "1"), &me(), &mut seen, almost), Step::Wait(until));
        assert_eq!(step(&lease(Some("other"), "1"), &me(), &mut seen, start + LEASE), Step::Take);
    }

    #[test]
    fn a_renewal_starts_the_wait_anew() {
        let (start, mut seen) = (Instant::now(), None);
        step(&lease(Some("other"), "1"), &me(), &mut seen, start);
        let later = start + LEASE;
        assert_eq!(step(&lease(Some("other"), "2"), &me(), &mut seen, later), Step::Wait(later + LEASE));
        assert_eq!(step(&lease(Some("other"), "2"), &me(), &mut seen, later + LEASE), Step::Take);
    }

    #[test]
    fn what_is_written_carries_the_version_it_was_decided_on() {
        let taken = written(&lease(Some("other"), "7"), &me(), true);
        assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"));
        let spec = taken.spec.expect("a spec");
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("me"), Some(4)));
        let odd = Candidate { duration: Duration::from_millis(2900), ..me() };
        let renewed = written(&lease(Some("me"), "8"), &odd, false).spec.expect("a spec");
        assert_eq!(renewed.lease_duration_seconds, Some(3), "no less than the holder counts on");
        assert_eq!(renewed.lease_transitions, Some(3));
    }

    #[test]
    fn a_claim_runs_out_by_itself() {
        let (sender, receiver) = watch::channel(None);
        let leadership = Leadership(receiver);
        assert!(!leadership.holds());
        let renewed = Instant::now();
        sender.send_replace(Some(renewed + LEASE));
        assert!(leadership.holds() && leadership.remaining() <= LEASE);
        sender.send_replace(Some(renewed));
        assert!(!leadership.holds(), "nobody has said anything since");
    }
}
