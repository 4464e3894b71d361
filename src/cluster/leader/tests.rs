use super::super::heartbeat::LIVES;
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
    let next = |lease: Lease| step(&lease, &me(), &mut Known { taken: true, seen: None }, now);
    assert_eq!(next(lease(None, "1")), Step::Take);
    assert_eq!(next(lease(Some(""), "1")), Step::Take);
    assert_eq!(next(Lease::default()), Step::Take);
    assert_eq!(next(lease(Some("me"), "1")), Step::Renew);
}

#[test]
fn a_lease_of_another_holder_is_taken_when_it_is_unchanged_for_its_duration() {
    let (start, mut known) = (Instant::now(), Known::default());
    let until = start + LEASE;
    assert_eq!(step(&lease(Some("other"), "1"), &me(), &mut known, start), Step::Wait(until));
    let almost = until - Duration::from_millis(1);
    assert_eq!(step(&lease(Some("other"), "1"), &me(), &mut known, almost), Step::Wait(until));
    assert_eq!(step(&lease(Some("other"), "1"), &me(), &mut known, start + LEASE), Step::Take);
}

#[test]
fn the_lease_of_a_process_before_it_must_expire() {
    let (start, mut known) = (Instant::now(), Known::default());
    let until = start + LEASE;
    assert_eq!(step(&lease(Some("me"), "1"), &me(), &mut known, start), Step::Wait(until));
    assert_eq!(step(&lease(Some("me"), "1"), &me(), &mut known, until), Step::Take);
}

#[test]
fn a_renewal_restarts_the_wait() {
    let (start, mut known) = (Instant::now(), Known::default());
    step(&lease(Some("other"), "1"), &me(), &mut known, start);
    let later = start + LEASE;
    assert_eq!(step(&lease(Some("other"), "2"), &me(), &mut known, later), Step::Wait(later + LEASE));
    assert_eq!(step(&lease(Some("other"), "2"), &me(), &mut known, later + LEASE), Step::Take);
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
    sender.send_replace(Some(Claim::new(1, renewed + LEASE)));
    assert!(leadership.holds() && leadership.remaining() <= LEASE);
    sender.send_replace(Some(Claim::new(1, renewed)));
    assert!(!leadership.holds(), "it was not renewed since");
}

#[test]
fn leadership_ends_while_the_machine_is_suspended() {
    let (start, date) = (Instant::now() + LEASE, SystemTime::now());
    let claim = Claim { term: 1, until: start, date };
    assert_eq!(claim.remaining(), Duration::ZERO, "the clock of durations stood still meanwhile");
    assert!(Claim { date: date + 100 * LEASE, ..claim }.remaining() <= LEASE, "the date was set back");
}

#[test]
fn a_term_lasts_while_the_lease_is_renewed_in_time() {
    let (mut terms, start) = (Terms::of(&me()), Instant::now());
    let mut renewed = |before: Option<Claim>, taken, after: Duration| {
        Claim::renewed(before, taken, start + after, &mut terms)
    };
    let first = renewed(None, true, Duration::ZERO);
    let term = |claim: Option<Claim>| claim.map(|claim| claim.term);
    assert_eq!(term(first), Some(1));
    assert_eq!(term(renewed(first, false, LEASE / 4)), Some(1));
    let end = LEASE;
    let expired = Some(Claim::new(1, start));
    assert_eq!(term(renewed(expired, false, end)), None, "a write of its own may be under way");
    assert_eq!(term(renewed(None, false, end + LEASE / 8)), None);
    let late = renewed(None, false, end + LEASE / 4);
    assert_eq!(term(late), Some(2), "it had expired");
    let later = end + 2 * LEASE;
    assert_eq!(term(renewed(late, true, later)), Some(3), "it was lost meanwhile");
}

/// An API server that has no Lease yet, and keeps the one it is sent.
fn api_server() -> (Client, watch::Receiver<usize>) {
    use axum::Json;
    use axum::extract::State;
    use axum::http::StatusCode;
    use axum::response::IntoResponse;
    use axum::routing::{get, post};
    use serde_json::{Value, json};
    use std::sync::{Arc, Mutex};

    let (writes, written) = watch::channel(0);
    let stored: Arc<Mutex<Option<Value>>> = Arc::default();
    let read = |State(stored): State<Arc<Mutex<Option<Value>>>>| async move {
        match stored.lock().expect("no panic").clone() {
            Some(lease) => Json(lease).into_response(),
            None => {
                let status =
                    json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
                (StatusCode::NOT_FOUND, Json(status)).into_response()
            }
        }
    };
    let write = move |State(stored): State<Arc<Mutex<Option<Value>>>>, Json(lease): Json<Value>| async move {
        writes.send_modify(|count| *count += 1);
        *stored.lock().expect("no panic") = Some(lease.clone());
        Json(lease)
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases";
    let router = axum::Router::new()
        .route(leases, post(write.clone()))
        .route(&format!("{leases}/sluice"), get(read).put(write))
        .with_state(stored);
    (Client::new(router, "ns"), written)
}

#[tokio::test]
async fn a_loop_that_hangs_loses_the_lease_and_gains_it_again_when_it_runs() {
    let (client, writes) = api_server();
    let (heart, stop) = (Heartbeat::default(), CancellationToken::new());
    let candidate = Candidate { duration: Duration::from_secs(2), ..me() };
    let (mut leadership, run) = campaign(client, candidate.clone(), heart.clone(), stop.clone());
    let election = tokio::spawn(run);
    assert!(leadership.changed().await && leadership.holds());
    let first = leadership.term();
    // The loop runs: the lease is renewed.
    assert!(leadership.changed().await && leadership.changed().await);
    assert_eq!(leadership.term(), first);
    // It hangs.
    heart.stopped_since(RENEWED + candidate.duration);
    while leadership.holds() {
        tokio::time::sleep(candidate.duration / 20).await;
    }
    let count = *writes.borrow();
    tokio::time::sleep(candidate.duration).await;
    assert_eq!(*writes.borrow(), count, "others may take the lease");
    assert_eq!(heart.stopped(), None, "the process still has time to recover");
    heart.stopped_since(LIVES + Duration::from_secs(1));
    assert!(heart.stopped().is_some_and(|sentence| sentence.contains("has not run for 61 s")));
    // It runs again.
    heart.beat();
    assert!(leadership.changed().await);
    assert!(leadership.holds());
    assert!(leadership.term() > first, "it must list the cluster again");
    assert_eq!(heart.stopped(), None);
    stop.cancel();
    election.await.expect("no panic");
}
