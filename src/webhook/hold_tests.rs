//! Suspending and resuming while Sluice admits, stops and restores: the user's last word counts, in every order.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::offline::stored;
use super::test_client::{ALICE, directory};
use crate::api::names;
use crate::api::record::{Eviction, Record};
use crate::cluster::target::job::job;
use crate::cluster::target::{Grant, Managed, Operation, Pin};
use crate::engine::types::{Observed, Time};

/// One write on a Job. Those of Sluice are decided on the Job as it was before a number of other writes.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Its user suspends it, or resumes it.
    Suspend(bool),
    /// Its user suspends a running Job while the webhook is away.
    SuspendUnseen,
    /// Sluice lets it run if it waits, stops it if it runs, or restores it once it has stopped.
    Admit(usize),
    Evict(usize),
    Restore(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let age = || 0..3_usize;
    let step = prop_oneof![
        3 => any::<bool>().prop_map(Step::Suspend),
        1 => Just(Step::SuspendUnseen),
        2 => age().prop_map(Step::Admit),
        1 => age().prop_map(Step::Evict),
        2 => age().prop_map(Step::Restore),
    ];
    prop::collection::vec(step, 1..24)
}

fn record() -> Record {
    let text = r#"{"pool":"default","nodes":{"n0":1},"pods":1,"borrowed":false,"at":"2026-01-31T12:00:00Z"}"#;
    serde_json::from_str(text).expect("a record")
}

fn read(object: &Value) -> Option<(Managed, Observed)> {
    let seen = job(&serde_json::from_value(object.clone()).expect("a Job"), Time(0));
    seen.managed.map(|managed| {
        let state = managed.workload.state.clone();
        (*managed, state)
    })
}

/// The object with a new spec and marks; its generation moves with the spec, as in the API server.
fn put(before: &Value, mut after: Value) -> Value {
    let generation = before["metadata"]["generation"].as_i64().unwrap_or(1);
    let moved = i64::from(before["spec"] != after["spec"]);
    after["metadata"]["generation"] = (generation + moved).into();
    after
}

fn user(object: &Value, suspend: bool) -> Value {
    let mut wanted = object.clone();
    wanted["spec"]["suspend"] = suspend.into();
    match stored(&directory(), ALICE, Some(object), wanted) {
        Ok((after, _)) => put(object, after),
        Err(_) => object.clone(),
    }
}

/// Sluice's write of this kind, decided on the object as it was `then`.
fn patch(then: &Value, step: Step) -> Option<json_patch::Patch> {
    let (managed, state) = read(then)?;
    match (step, state) {
        (Step::Admit(_), Observed::Queued) => Some(managed.admit(1, &record(), Grant::All, Pin::Template)),
        (Step::Restore(_), Observed::Leaving { .. }) => Some(managed.restore(1)),
        (Step::Evict(_), Observed::Admitted(_)) => {
            let at = "2026-01-31T12:00:00Z".parse().expect("a time");
            let note = Eviction::new(at, "Reclaimed");
            match managed.evict(1, &note) {
                Operation::Patch(patch) => Some(patch),
                other => panic!("not a patch: {other:?}"),
            }
        }
        _ => None,
    }
}

/// Makes a write of Sluice that is due.
fn write(object: &mut Value, step: Step) {
    let patch = patch(object, step).expect("it is due");
    json_patch::patch(object, &patch).expect("it applies");
}

/// What the user's last effective word asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Hold,
    Run,
}

fn created() -> Value {
    let object = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": {"parallelism": 1, "template": {"spec": {"containers": [{"name": "main"}]}}},
    });
    stored(&directory(), ALICE, None, object).expect("it is accepted").0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Law 11: what a Job is to do follows from the object alone, however old the state that Sluice has decided on.
    #[test]
    fn the_last_word_of_a_user_counts(steps in steps()) {
        let mut states = vec![created()];
        let mut wanted = Wanted::Run;
        for step in steps {
            let now = states.last().expect("a state").clone();
            let suspended = now["spec"]["suspend"] == true;
            let admitted = now["metadata"]["annotations"][names::ADMISSION].is_string();
            let evicted = now["metadata"]["annotations"][names::EVICTION].is_string();
            let next = match step {
                Step::Suspend(suspend) => {
                    // A Job that waits, or stops for another workload, is suspended already: that is no word of its user.
                    let heard = !suspend || !suspended || admitted && !evicted;
                    if heard {
                        wanted = if suspend { Wanted::Hold } else { Wanted::Run };
                    }
                    user(&now, suspend)
                }
                Step::SuspendUnseen if !suspended => {
                    wanted = Wanted::Hold;
                    let mut after = now.clone();
                    after["spec"]["suspend"] = true.into();
                    put(&now, after)
                }
                Step::SuspendUnseen => now.clone(),
                Step::Admit(age) | Step::Evict(age) | Step::Restore(age) => {
                    let then = &states[states.len().saturating_sub(1 + age)];
                    let mut after = now.clone();
                    match patch(then, step) {
                        Some(patch) if json_patch::patch(&mut after, &patch).is_ok() => put(&now, after),
                        _ => now.clone(),
                    }
                }
            };
            states.push(next);
            let now = states.last().expect("a state");
            let (_, state) = read(now).expect("managed");
            let runs = matches!(state, Observed::Admitted(_));
            prop_assert!(!(runs && wanted == Wanted::Hold), "it runs, though its user holds it: {now}");
        }
        let mut last = states.pop().expect("a state");
        if patch(&last, Step::Restore(0)).is_some() {
            write(&mut last, Step::Restore(0));
        }
        let (_, state) = read(&last).expect("managed");
        let expected = match wanted {
            Wanted::Hold => matches!(state, Observed::OnHold),
            Wanted::Run => matches!(state, Observed::Queued | Observed::Admitted(_)),
        };
        prop_assert!(expected, "{wanted:?}, but {state:?}: {last}");
    }
}

#[test]
fn a_resume_while_the_job_stops_queues_it_again() {
    let mut job = created();
    for restored_between in [false, true] {
        write(&mut job, Step::Admit(0));
        assert!(job["metadata"]["annotations"][names::HELD].is_null(), "the mark goes with the admission");
        job = user(&job, true);
        if restored_between {
            write(&mut job, Step::Restore(0));
            assert_eq!(read(&job).expect("managed").1, Observed::OnHold);
        }
        job = user(&job, false);
        assert_eq!(job["spec"]["suspend"], true, "its pods still end");
        if !restored_between {
            write(&mut job, Step::Restore(0));
        }
        assert_eq!(read(&job).expect("managed").1, Observed::Queued);
    }
}

#[test]
fn a_manifest_that_comes_to_suspend_holds_a_job_that_stops_and_warns_of_one_that_waits() {
    let with_manifest = |job: &Value, suspend: bool| {
        let mut job = job.clone();
        let manifest = json!({"spec": {"suspend": suspend}}).to_string();
        job["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = manifest.into();
        job
    };
    let waits = with_manifest(&created(), false);
    let (after, warnings) =
        stored(&directory(), ALICE, Some(&waits), with_manifest(&waits, true)).expect("it is accepted");
    assert_eq!((after["metadata"]["annotations"][names::HELD].as_str(), warnings.len()), (Some("true"), 1));

    let mut stops = waits;
    write(&mut stops, Step::Admit(0));
    write(&mut stops, Step::Evict(0));
    assert_eq!(user(&stops, true), stops, "without a manifest it is no word");
    let (after, warnings) =
        stored(&directory(), ALICE, Some(&stops), with_manifest(&stops, true)).expect("it is accepted");
    assert!(after["metadata"]["annotations"][names::HELD].is_null() && warnings.is_empty(), "{warnings:?}");
}
