use super::super::merge::merge;
use super::*;
use crate::engine::types::{Name, PodShape, Workload};

const GPU: &str = "nvidia.com/gpu";

fn gpus(count: i64) -> ResourceList {
    if count == 0 { ResourceList::new() } else { [(GPU.into(), Amount::units(count))].into() }
}

fn admission(at: i64, pods: u32) -> Admission {
    Admission {
        pool: "default".into(),
        nodes: [("n".into(), pods)].into(),
        pods,
        borrowed: true,
        share: None,
        spared: false,
        at: Time(at),
        unfunded: false,
    }
}

fn job(state: Observed) -> Workload {
    Workload { state, ..Workload::job(&"a".into(), &"j".into(), 4, PodShape::default(), Time(500)) }
}

fn tracker(session: i64, since: i64) -> Tracker {
    let mut tracker = Tracker::new(session, Accelerators::default());
    tracker.complete(|_| true, Time(since));
    tracker
}

/// What a tracker sees of a workload in that state.
fn subject<'a>(workload: &'a Workload, queue: &'a Name, admission: Option<&'a Admission>) -> Subject<'a> {
    Subject { workload, queue, eviction: None, admission, failure: None, past: None }
}

/// The sightings among facts, the later ones of a session in place of the earlier.
fn sightings(facts: &[Fact]) -> Vec<Sighting> {
    let mut latest: BTreeMap<i64, Sighting> = BTreeMap::new();
    for fact in facts {
        if let Fact::Sighting(_, seen) = fact {
            latest.insert(seen.session, seen.clone());
        }
    }
    latest.into_values().collect()
}

fn transitions(facts: &[Fact]) -> Vec<(&str, i64, &str)> {
    let all = facts.iter().filter_map(|fact| match fact {
        Fact::Transition(what) => Some((&*what.transition, what.at, &*what.reason)),
        _ => None,
    });
    all.collect()
}

fn key() -> RunKey {
    RunKey { uid: "a/j".into(), admitted_at: 2_000 }
}

#[test]
fn a_run_is_charged_from_its_admission_until_its_last_pod_is_gone() {
    let queue: Name = "q".into();
    let (four, two) = (admission(2_000, 4), admission(2_000, 2));
    let mut tracker = tracker(1, 0);
    tracker.see(&subject(&job(Observed::Queued), &queue, None), &gpus(0), Time(600));
    // The decision is charged already, but its write is not confirmed.
    tracker.see(&subject(&job(Observed::Queued), &queue, None), &gpus(4), Time(2_000));
    tracker.see(&subject(&job(Observed::Admitted(four.clone())), &queue, Some(&four)), &gpus(4), Time(2_010));
    tracker.see(&subject(&job(Observed::Admitted(two.clone())), &queue, Some(&two)), &gpus(4), Time(5_000));
    tracker.see(&subject(&job(Observed::Admitted(two.clone())), &queue, Some(&two)), &gpus(2), Time(6_000));
    let leaving = Observed::Leaving { admission: two.clone(), since: Time(8_000), stopped: true };
    let evicted = job(leaving);
    let note = (Time(8_000), "b/big", "Reclaimed");
    let seen = Subject { eviction: Some(note), ..subject(&evicted, &queue, Some(&two)) };
    tracker.see(&seen, &gpus(2), Time(8_001));
    tracker.see(&seen, &gpus(1), Time(8_500));
    tracker.see(&seen, &gpus(0), Time(9_000));
    tracker.see(&seen, &gpus(0), Time(9_500));
    let waits = Workload { evicted: Some(Time(8_000)), ..job(Observed::Queued) };
    tracker.see(&subject(&waits, &queue, None), &gpus(0), Time(9_600));
    let facts = tracker.take_facts();
    assert_eq!(
        transitions(&facts),
        [
            ("Submitted", 500, ""),
            ("Admitted", 2_000, "Borrowed"),
            ("Evicted", 8_000, "Reclaimed"),
            ("Ended", 9_000, "Reclaimed"),
        ]
    );
    let run = merge(&key(), &sightings(&facts)).expect("a run");
    assert_eq!(run.used, 4 * 4_000 + 2 * 2_500 + 500);
    assert_eq!(run.lost, run.used, "without checkpoints all of it is lost");
    assert_eq!((run.head.queued_at, run.head.pods, run.head.devices), (Some(500), 4, 4_000));
    let end = run.end.expect("an end");
    assert_eq!((end.how, &*end.for_workload, end.stopped_at), (Ending::Evicted, "b/big", Some(8_000)));
    // The next run has waited since the eviction.
    let next = admission(20_000, 4);
    tracker.see(
        &subject(&job(Observed::Admitted(next.clone())), &queue, Some(&next)),
        &gpus(4),
        Time(20_001),
    );
    assert_eq!(sightings(&tracker.take_facts())[0].head.queued_at, Some(8_000));
}

#[test]
fn what_ended_while_no_process_ran_is_taken_from_its_object() {
    let queue: Name = "q".into();
    let four = admission(2_000, 4);
    let requests = [(Name::from(GPU), Amount::units(1))];
    let past = Past { requests: &requests, ended: Some(Time(7_000)), succeeded: Some(true) };
    let done = job(Observed::Finished);
    let seen = Subject { past: Some(past), ..subject(&done, &queue, Some(&four)) };
    let mut tracker = tracker(1, 9_000);
    tracker.see(&seen, &gpus(0), Time(9_000));
    let facts = tracker.take_facts();
    assert_eq!(transitions(&facts), [("Admitted", 2_000, "Borrowed"), ("Ended", 7_000, "Completed")]);
    let run = merge(&key(), &sightings(&facts)).expect("a run");
    assert_eq!((run.used, run.until), (4 * 5_000, 7_000));
    tracker.see(&seen, &gpus(0), Time(9_900));
    assert!(tracker.take_facts().is_empty(), "it is written once");
    tracker.write_again();
    tracker.see(&seen, &gpus(0), Time(9_950));
    assert_eq!(tracker.take_facts(), facts, "and again after the store has lost something");
}

#[test]
fn a_process_that_starts_in_the_middle_says_since_when_it_watches() {
    let queue: Name = "q".into();
    let four = admission(2_000, 4);
    let runs = job(Observed::Admitted(four.clone()));
    let mut tracker = tracker(1, 6_000);
    tracker.see(&subject(&runs, &queue, Some(&four)), &gpus(4), Time(6_000));
    tracker.gone(&runs.id, &gpus(1), Time(8_000));
    tracker.gone(&runs.id, &gpus(0), Time(9_000));
    let facts = tracker.take_facts();
    let seen = &sightings(&facts)[0];
    assert_eq!((seen.seen_from, seen.end.as_ref().map(|end| end.how)), (Some(6_000), Some(Ending::Deleted)));
    let run = merge(&key(), &sightings(&facts)).expect("a run");
    assert_eq!(run.used, 4 * 6_000 + 1_000, "before that its record counts");
    assert_eq!(tracker.take_ended().len(), 1);
}

#[test]
fn a_run_that_lasts_is_written_every_five_minutes() {
    let queue: Name = "q".into();
    let four = admission(2_000, 4);
    let runs = job(Observed::Admitted(four.clone()));
    let mut tracker = tracker(1, 0);
    tracker.see(&subject(&runs, &queue, Some(&four)), &gpus(4), Time(2_000));
    tracker.take_facts();
    let minute = 60_000;
    let mut written = 0;
    for at in 1..=20 {
        tracker.checkpoint(Time(2_000 + at * minute));
        written += tracker.take_facts().len();
    }
    assert_eq!(written, 4);
}

#[test]
fn a_run_that_is_resized_without_end_is_written_in_parts() {
    let queue: Name = "q".into();
    let four = admission(2_000, 4);
    let runs = job(Observed::Admitted(four.clone()));
    let mut tracker = tracker(1, 0);
    let mut used = 0;
    let mut longest = 0;
    let mut facts = Vec::new();
    for step in 0..1_000 {
        tracker.see(&subject(&runs, &queue, Some(&four)), &gpus(1 + step % 2), Time(2_000 + step * 10));
        used += 10 * (1 + step % 2);
        facts.extend(tracker.take_facts());
    }
    tracker.gone(&runs.id, &gpus(0), Time(12_000));
    facts.extend(tracker.take_facts());
    for fact in &facts {
        if let Fact::Sighting(_, seen) = fact {
            longest = longest.max(seen.segments.len());
        }
    }
    assert!(longest <= SEGMENTS + 1, "{longest}");
    assert_eq!(merge(&key(), &sightings(&facts)).expect("a run").used, used);
}

#[test]
fn what_a_rule_ends_for_good_has_failed_and_lost_nothing() {
    let queue: Name = "q".into();
    let four = admission(2_000, 4);
    for (reason, how, lost) in
        [("MaxRuntime", Ending::Failed, None), ("Reclaimed", Ending::Evicted, Some(2_000))]
    {
        let leaving = job(Observed::Leaving { admission: four.clone(), since: Time(8_000), stopped: true });
        let note = Some((Time(8_000), "", reason));
        let seen = Subject { eviction: note, ..subject(&leaving, &queue, Some(&four)) };
        let mut tracker = tracker(1, 0);
        tracker.see(
            &subject(&job(Observed::Admitted(four.clone())), &queue, Some(&four)),
            &gpus(4),
            Time(2_000),
        );
        tracker.see(&seen, &gpus(4), Time(8_000));
        tracker.gone(&leaving.id, &gpus(0), Time(9_000));
        let facts = tracker.take_facts();
        let run = merge(&key(), &sightings(&facts)).expect("a run");
        let end = run.end.expect("it has ended");
        assert_eq!((end.how, end.saved_at, &*end.reason), (how, lost, reason));
        let evicted = transitions(&facts).iter().any(|(what, ..)| *what == "Evicted");
        assert_eq!(evicted, how == Ending::Evicted, "{reason}");
    }
}

#[test]
fn devices_of_a_teams_quota_count_once_they_are_known() {
    let tpus: ResourceList = [("google.com/tpu".into(), Amount::units(4))].into();
    let mut tracker = tracker(1, 0);
    assert_eq!(tracker.amounts(&tpus).get(DEVICES), None);
    tracker.count(Accelerators::default().with_quotas(["google.com/tpu"]));
    assert_eq!(tracker.amounts(&tpus).get(DEVICES), Some(&4_000));
}

#[test]
fn the_work_since_the_last_checkpoint_is_lost() {
    let at = |last: Option<i64>, interval: Option<u64>| {
        let workload = Workload {
            last_checkpoint: last.map(Time),
            checkpoint_interval: interval.map(Duration::from_secs),
            ..job(Observed::Queued)
        };
        subject::saved(&workload, Time(1_000), Time(95_000)).0
    };
    assert_eq!(at(None, None), 1_000);
    assert_eq!(at(None, Some(30)), 91_000);
    assert_eq!(at(Some(80_000), Some(30)), 80_000);
    assert_eq!(at(Some(200), None), 1_000, "a checkpoint of an earlier run");
}

#[test]
fn the_wait_of_a_job_that_its_user_suspends_begins_when_the_user_resumes_it() {
    let queue: Name = "q".into();
    let (first, second) = (admission(2_000, 4), admission(9_000, 4));
    let mut tracker = tracker(1, 0);
    let mut see = |state: Observed, admission: Option<&Admission>, count: i64, at: i64| {
        tracker.see(&subject(&job(state), &queue, admission), &gpus(count), Time(at));
    };
    see(Observed::Queued, None, 0, 600);
    see(Observed::Admitted(first.clone()), Some(&first), 4, 2_000);
    let leaving = Observed::Leaving { admission: first.clone(), since: Time(5_000), stopped: true };
    see(leaving, Some(&first), 0, 5_000);
    see(Observed::OnHold, None, 0, 5_100);
    see(Observed::OnHold, None, 0, 6_000);
    see(Observed::Queued, None, 0, 8_000);
    see(Observed::Queued, None, 0, 8_500);
    see(Observed::Admitted(second.clone()), Some(&second), 4, 9_000);
    let heads = tracker.take_facts().into_iter().filter_map(|fact| match fact {
        Fact::Sighting(key, seen) => Some((key.admitted_at, seen.head.queued_at)),
        _ => None,
    });
    let queued: BTreeMap<i64, Option<i64>> = heads.collect();
    assert_eq!(queued, BTreeMap::from([(2_000, Some(500)), (9_000, Some(8_000))]));
}
