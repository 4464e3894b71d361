//! Patches that change how many pods a Job has, or how large they are, and the room that they need.

use super::*;

/// The bytes of all annotations, as the API server counts them.
fn annotated(object: &Value) -> usize {
    let all = object["metadata"]["annotations"].as_object().expect("annotations");
    all.iter().map(|(key, text)| key.len() + text.as_str().map_or(0, str::len)).sum()
}

#[test]
fn a_job_full_of_annotations_can_be_stopped_and_shrunk() {
    let mut object = held(&Value::Null);
    object["spec"]["parallelism"] = json!(4);
    object["metadata"]["annotations"]["sluice.dev/min-parallelism"] = json!("1");
    let (known, version, _) = read(&object);
    let patch = known.admit(version, &spread(&[("n1", 2), ("n2", 2)]), Grant::All, Pin::Template);
    json_patch::patch(&mut object, &patch).expect("the patch applies");
    let full = annotated(&object);
    let (known, version, _) = read(&object);
    let made = |patch: &Patch| {
        let mut object = object.clone();
        json_patch::patch(&mut object, patch).expect("the patch applies");
        assert!(annotated(&object) <= full, "{object}");
        object
    };

    let long = Eviction { team: "n".repeat(253), uid: "u".repeat(36), ..eviction("Reclaimed") };
    let [short, bare] = known.smaller_evictions(version, &long).try_into().expect("two patches");
    let mut stopped = made(&short);
    let (known_now, version_now, state) = read(&stopped);
    assert!(matches!(state, Observed::Leaving { .. }));
    assert_eq!(known_now.facts.eviction.as_ref().map(|note| &*note.reason), Some("Reclaimed"));
    json_patch::patch(&mut stopped, &known_now.restore(version_now)).expect("the patch applies");
    assert_eq!(read(&stopped).2, Observed::Queued, "it is queued again");

    let (without, _, state) = read(&made(&bare));
    assert!(matches!(state, Observed::Leaving { .. }) && without.workload.hold, "as if by its user");

    let fewer = spread(&[("n1", 1)]);
    let (shrunk, _, state) = read(&made(&known.smaller_resize(version, &fewer).expect("a Job")));
    assert!(matches!(state, Observed::Admitted(admission) if admission.pods == 1));
    assert_eq!(shrunk.job().map(|job| (job.parallelism, job.wanted)), Some((1, 1)));
}

#[test]
fn an_elastic_job_has_its_users_parallelism_back_when_it_is_restored() {
    let mut object = held(&Value::Null);
    object["metadata"]["annotations"]["sluice.dev/min-parallelism"] = json!("1");
    object["spec"]["parallelism"] = json!(4);
    let before = object.clone();
    let pods = |object: &Value| {
        let seen = job(&serde_json::from_value(object.clone()).expect("a Job"), Time(0));
        let workload = seen.managed.expect("managed").workload;
        (workload.pods, workload.min_pods, workload.resizable)
    };
    let admitted = |object: &Value| match read(object).2 {
        Observed::Admitted(admission) => admission.pods,
        other => panic!("not admitted: {other:?}"),
    };
    let apply = |object: &mut Value, patch: &Patch| json_patch::patch(object, patch).expect("it applies");
    assert_eq!(pods(&object), (4, Some(1), true));

    // It starts small, grows and shrinks again; the user's parallelism stays the same.
    let (known, version, _) = read(&object);
    apply(&mut object, &known.admit(version, &spread(&[("n1", 2)]), Grant::Part, Pin::Template));
    assert_eq!((object["spec"]["parallelism"].as_u64(), admitted(&object)), (Some(2), 2));
    for (grant, granted, written) in [(Grant::Part, 3, 3), (Grant::All, 4, 4), (Grant::Part, 1, 1)] {
        let (known, version, _) = read(&object);
        let patch = known.resize(version, &spread(&[("n1", granted)]), grant);
        apply(&mut object, &patch);
        assert_eq!(object["spec"]["parallelism"], written);
        assert_eq!((admitted(&object), pods(&object)), (granted, (4, Some(1), true)));
        assert!(json_patch::patch(&mut object.clone(), &patch).is_err(), "it applies once");
    }

    // While it runs its pods can only go to nodes in its template.
    let seen = job(&serde_json::from_value(object.clone()).expect("a Job"), Time(0));
    let terms = &seen.managed.expect("managed").workload.shape.node_terms;
    assert_eq!(terms[0].fields[0].values, ["n1".into()]);

    // Its user may lower the parallelism for good.
    let mut lowered = object.clone();
    json_patch::merge(&mut lowered, &json!({"spec": {"parallelism": 0}}));
    assert_eq!(pods(&lowered).0, 0);

    let (known, version, _) = read(&object);
    apply(&mut object, &patch_of(known.evict(version, &eviction("NodeLost"))));
    assert_eq!(pods(&object).0, 4);
    let (known, version, _) = read(&object);
    apply(&mut object, &known.restore(version));
    let note = object["metadata"]["annotations"]["sluice.dev/eviction"].clone();
    assert_eq!(note, json!(r#"{"at":"2026-11-21T09:00:00Z","reason":"NodeLost"}"#), "without a preemptor");
    assert_eq!((object["spec"].clone(), read(&object).2), (expected_spec(&before), Observed::Queued));
}

#[test]
fn a_larger_parallelism_of_a_running_job_is_granted_later_and_stays() {
    const WANTED: &str = "sluice.dev/wanted-parallelism";
    let mut object = held(&Value::Null);
    object["metadata"]["annotations"]["sluice.dev/min-parallelism"] = json!("1");
    object["spec"]["parallelism"] = json!(2);
    let apply = |object: &mut Value, patch: &Patch| json_patch::patch(object, patch).expect("it applies");
    let sizes = |object: &Value| {
        let (known, _, state) = read(object);
        let granted = match state {
            Observed::Admitted(admission) => admission.pods,
            other => panic!("not admitted: {other:?}"),
        };
        (granted, known.workload.pods, object["spec"]["parallelism"].as_u64())
    };
    let (known, version, _) = read(&object);
    apply(&mut object, &known.admit(version, &spread(&[("n1", 2)]), Grant::All, Pin::Template));
    object["metadata"]["annotations"][WANTED] = json!("6");
    assert_eq!(sizes(&object), (2, 6, Some(2)), "the charge is what it was granted");

    // A number that its user writes meanwhile is not lost.
    let (known, version, _) = read(&object);
    let patch = known.resize(version, &spread(&[("n1", 4)]), Grant::Part);
    let mut newer = object.clone();
    newer["metadata"]["annotations"][WANTED] = json!("8");
    assert!(json_patch::patch(&mut newer, &patch).is_err());
    apply(&mut object, &patch);
    assert_eq!(sizes(&object), (4, 6, Some(4)));
    assert!(object["metadata"]["annotations"][WANTED].is_null(), "the record has it");

    // A smaller number in the spec is newer, also where the annotation stays.
    object["metadata"]["annotations"][WANTED] = json!("8");
    let mut lowered = object.clone();
    lowered["spec"]["parallelism"] = json!(1);
    assert_eq!(sizes(&lowered), (4, 1, Some(1)));

    let (known, version, _) = read(&object);
    apply(&mut object, &patch_of(known.evict(version, &eviction("NodeLost"))));
    let (known, version, _) = read(&object);
    apply(&mut object, &known.restore(version));
    assert_eq!(object["spec"]["parallelism"], 8, "it queues for all that its user wants");
    assert!(object["metadata"]["annotations"][WANTED].is_null());
}

/// A restored template has a null affinity where the user's had no such field.
fn expected_spec(before: &Value) -> Value {
    let mut spec = before["spec"].clone();
    spec["template"]["spec"]["affinity"] = Value::Null;
    spec
}

#[test]
fn the_size_of_the_pods_follows_the_admission_and_is_the_first_again_after_restoring() {
    let choices = json!([
        {"share": "1", "limits": {"nvidia.com/gpu": "1"}},
        {"share": "0.4", "limits": {"nvidia.com/mig-3g.20gb": "1"}},
        {"share": "0.1", "limits": {}},
    ]);
    let limits = json!({"cpu": "4", "nvidia.com/gpu": 1});
    let mut before = held(&Value::Null);
    before["metadata"]["annotations"]["sluice.dev/gpu-sizes"] = choices.to_string().into();
    before["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "c", "resources": {"limits": limits}}]);
    let limits =
        |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"].clone();
    for (share, expected) in [
        (None, json!({"cpu": "4", "nvidia.com/gpu": 1})),
        (Some("0.4"), json!({"cpu": "4", "nvidia.com/mig-3g.20gb": "1"})),
        (Some("0.1"), json!({"cpu": "4"})),
    ] {
        let mut object = before.clone();
        let (known, version, _) = read(&object);
        let granted = Record { share: share.map(ToOwned::to_owned), ..record(&["n1"]) };
        let patch = known.admit(version, &granted, Grant::All, Pin::Template);
        json_patch::patch(&mut object, &patch).expect("the patch applies");
        assert_eq!(limits(&object), expected, "{share:?}");

        let seen = job(&serde_json::from_value(object.clone()).expect("a Job"), Time(0));
        let workload = seen.managed.expect("managed").workload;
        let Observed::Admitted(admission) = &workload.state else { panic!("{:?}", workload.state) };
        assert_eq!(admission.share.map(crate::api::sizes::written).as_deref(), share);
        assert_eq!(workload.shape.requests["nvidia.com/gpu"].as_milli(), 1000, "the most wanted size stays");
        assert_eq!(workload.sizes.len(), 3);
        let held = workload.requests();
        let gpu = held.get("nvidia.com/gpu").map(|amount| amount.as_milli());
        let mig = held.get("nvidia.com/mig-3g.20gb").map(|amount| amount.as_milli());
        let expected = match share {
            None => (Some(1000), None),
            Some("0.4") => (None, Some(1000)),
            Some(_) => (Some(100), None),
        };
        assert_eq!((gpu, mig), expected);

        object["spec"]["suspend"] = true.into();
        let (known, version, _) = read(&object);
        json_patch::patch(&mut object, &known.restore(version)).expect("the patch applies");
        let again = limits(&object);
        assert_eq!(again["cpu"], "4");
        assert_eq!(again["nvidia.com/gpu"].as_str().unwrap_or("1"), "1");
        assert_eq!(again.as_object().map(serde_json::Map::len), Some(2));
    }
}
