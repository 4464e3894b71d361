//! Laws 15 and 16: everything that runs is charged, and the record is the charge.
//!
//! Users try to hold more than the limit of their team: they shrink Jobs and let them grow back, delete Jobs and keep the
//! pods, detach pods, and run pods that no controller holds. A [`Ledger`] says what the pods on the nodes hold.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{
    Action, Admission, Event, EvictReason, Observed, Pod, PodId, PodOwner, Replacement, ResizeCause, Time,
    Unadmitted, Workload, WorkloadId,
};

use super::ledger::{Kind, Ledger, Op, Stray, TEAMS, op};
use super::world::gpus;

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn law_15_and_16_no_edit_takes_a_team_beyond_its_limit(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        limits in [2..9_i64, 2..9_i64],
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut ledger = Ledger::new(&nodes, limits);
        for op in &ops {
            ledger.apply(op);
            ledger.check_charges()?;
            ledger.plan()?;
            ledger.check_charges()?;
        }
        ledger.settle()?;
        for (team, name) in TEAMS.iter().enumerate() {
            let held = ledger.account(team).0;
            let first: BTreeSet<&PodId> = ledger
                .strays
                .iter()
                .filter(|(_, stray)| stray.team == team && stray.kind == Kind::Orphan)
                .map(|(id, _)| id)
                .collect();
            prop_assert!(
                held <= ledger.limit(team) || first.is_empty(),
                "team {name} holds {held} of {} with {first:?} that may be evicted",
                ledger.limit(team)
            );
        }
    }
}

/// One team that may use two GPUs of eight, and a Job of two pods.
fn two_of_eight() -> (Ledger, WorkloadId) {
    let mut ledger = Ledger::new(&[8], [2, 8]);
    ledger.apply(&Op::Submit { team: 0, pods: 2, gpus: 1 });
    assert!(ledger.plan().expect("it starts"));
    let id = ledger.jobs.keys().next().expect("a job").clone();
    (ledger, id)
}

#[test]
fn law_16_a_shrunk_job_keeps_its_charge_until_its_record_is_smaller() {
    let (mut ledger, first) = two_of_eight();
    ledger.apply(&Op::Scale { which: 0, pods: 0 });
    ledger.apply(&Op::Submit { team: 0, pods: 2, gpus: 1 });
    assert!(!ledger.plan().expect("it waits"), "the first Job may still grow back");
    assert_eq!(ledger.account(0), (2, 0));
    ledger.now = ledger.engine.next_deadline().expect("the record is written after a pause");
    assert!(ledger.plan().expect("the record becomes smaller"));
    assert_eq!(ledger.jobs[&first].record(), 0);
    assert!(ledger.plan().expect("the second Job starts"));
    assert_eq!(ledger.account(0), (2, 0));
}

#[test]
fn law_16_pods_that_a_user_asks_for_later_are_not_lost_ones() {
    for (pods, min_pods) in [(4, None), (40, None), (6, Some(4))] {
        let (mut ledger, first) = two_of_eight();
        let running = ledger.jobs[&first].workload.clone();
        let more = Workload { pods, min_pods, resizable: true, ..running };
        ledger.engine.apply(Event::workload(more), ledger.now);
        let actions = ledger.engine.plan(ledger.now).actions;
        let harmless = |action: &Action| matches!(action, Action::Resize { cause: ResizeCause::Grown, .. });
        assert!(actions.iter().all(harmless), "{actions:?}");
        assert!(min_pods.is_some() || actions.is_empty(), "{actions:?}");
    }
}

#[test]
fn law_16_a_record_stays_while_no_workload_wants_the_room() {
    let (mut ledger, first) = two_of_eight();
    ledger.apply(&Op::Scale { which: 0, pods: 1 });
    ledger.now = Time(60_000);
    assert!(!ledger.plan().expect("nothing waits"));
    assert_eq!(ledger.jobs[&first].record(), 2);
}

#[test]
fn law_15_an_orphan_is_evicted_for_work_of_its_own_team() {
    let (mut ledger, _) = two_of_eight();
    ledger.apply(&Op::Orphan(0));
    assert_eq!(ledger.account(0), (2, 2));
    ledger.plan().expect("within the limit the orphans run on");
    assert!(ledger.strays.values().all(|stray| !stray.ending));
    ledger.apply(&Op::Submit { team: 0, pods: 1, gpus: 1 });
    let plan = ledger.engine.clone().plan(ledger.now);
    let [Action::Evict { message, .. }] = &plan.actions[..] else { panic!("{plan:?}") };
    assert!(message.contains("this pod was never admitted"), "{message}");
    ledger.settle().expect("one of them goes");
    assert_eq!(ledger.account(0), (2, 1));
}

#[test]
fn law_15_an_owner_takes_borrowed_orphans_before_admitted_work() {
    let mut ledger = Ledger::new(&[8], [8, 8]);
    ledger.apply(&Op::Submit { team: 0, pods: 2, gpus: 2 });
    ledger.apply(&Op::Stray { team: 0, node: 0, gpus: 2, kind: Kind::Orphan });
    ledger.apply(&Op::Stray { team: 0, node: 0, gpus: 2, kind: Kind::Adopted });
    ledger.settle().expect("all fit");
    ledger.now = Time(1_000);
    ledger.apply(&Op::Submit { team: 1, pods: 1, gpus: 2 });
    ledger.settle().expect("the owner starts");
    assert!(ledger.strays.values().all(|stray| stray.kind == Kind::Adopted), "the orphan went");
    assert_eq!((ledger.account(0).0, ledger.account(1).0), (6, 2));
}

#[test]
fn law_15_a_pod_that_asks_for_nothing_listed_is_charged_nothing() {
    let mut ledger = Ledger::new(&[8], [2, 2]);
    let cpu = ResourceList::from([("cpu".into(), Amount::units(4))]);
    let stray =
        Stray { team: 0, node: "n0".into(), gpus: 0, kind: Kind::Orphan, created: Time(0), ending: false };
    let Event::PodApplied(pod) = ledger.stray_of(&PodId("logs".into()), &stray) else { return };
    ledger.tell(Event::PodApplied(Pod { requests: cpu, ..pod }));
    assert!(ledger.engine.unadmitted().is_empty());
    let view = ledger.engine.teams().into_iter().find(|view| &*view.team == "a").expect("team a");
    assert!(view.used.is_empty(), "{view:?}");
}

#[test]
fn law_15_an_owner_that_comes_back_unheld_is_evicted_once() {
    let mut ledger = Ledger::new(&[8], [2, 8]);
    let pod = |n: u32, created: Time| {
        let facts = Unadmitted {
            team: "a".into(),
            namespace: "a".into(),
            name: format!("p{n}").into(),
            created,
            owner: Some(PodOwner { uid: "x".into(), label: "Thing/x".into() }),
            replacement: Replacement::Held,
            adopted: false,
            ending: false,
        };
        Event::PodApplied(Pod {
            id: PodId(format!("p{n}").into()),
            workload: None,
            node: Some("n0".into()),
            requests: gpus(3),
            profile: None,
            unadmitted: Some(Box::new(facts)),
        })
    };
    ledger.tell(pod(1, Time(0)));
    assert!(ledger.engine.plan(Time(0)).actions.is_empty(), "it may still count twice");
    ledger.now = ledger.engine.next_deadline().expect("it is evicted after a pause");
    let plan = ledger.engine.plan(ledger.now);
    assert!(matches!(&plan.actions[..], [Action::Evict { reason: EvictReason::OverLimit, .. }]), "{plan:?}");
    ledger.tell(Event::PodRemoved(PodId("p1".into())));
    ledger.tell(pod(2, ledger.now));
    assert!(ledger.engine.plan(ledger.now).actions.is_empty());
    ledger.now = ledger.engine.next_deadline().unwrap_or(Time(60_000));
    assert!(ledger.engine.plan(ledger.now).actions.is_empty(), "it would come back again");
}

/// The workloads that wait are more than one plan considers, and the last ones are left for a plan at the same instant.
#[test]
fn law_15_a_limit_is_restored_though_the_waiting_work_takes_several_plans() {
    let mut ledger = Ledger::new(&[8], [1, 8]);
    ledger.apply(&Op::Submit { team: 0, pods: 1, gpus: 1 });
    assert!(ledger.plan().expect("it starts"));
    (9..29).for_each(|gpus| ledger.apply(&Op::Submit { team: 1, pods: 1, gpus }));
    ledger.apply(&Op::Detach(0));
    assert!(!ledger.plan().expect("nothing else fits"));
    assert!(ledger.engine.has_more());
    ledger.settle().expect("it comes to rest");
    assert_eq!(ledger.account(0), (1, 0));
}

/// The watch of pods may be ahead of the watch of Jobs: an orphan counts by itself and in the record of its Job.
#[test]
fn law_15_a_pod_that_counts_twice_for_a_moment_is_not_evicted() {
    let (mut ledger, job) = two_of_eight();
    let workload = ledger.jobs[&job].workload.clone();
    ledger.apply(&Op::Orphan(0));
    ledger.tell(Event::workload(workload));
    assert!(ledger.engine.plan(Time(0)).actions.is_empty(), "four of two GPUs seem to be in use");
    ledger.tell(Event::WorkloadRemoved(job));
    assert!(ledger.engine.plan(Time(1_000)).actions.is_empty());
    assert!(ledger.engine.plan(Time(60_000)).actions.is_empty(), "the limit holds both");
}

/// An admission is not needed here, but its type shows that a record may hold no pod at all.
#[test]
fn law_16_a_record_of_no_pods_is_charged_nothing() {
    let (mut ledger, first) = two_of_eight();
    ledger.apply(&Op::Scale { which: 0, pods: 0 });
    let job = ledger.jobs.get_mut(&first).expect("a job");
    let Observed::Admitted(admission) = job.workload.state.clone() else { return };
    job.workload.state = Observed::Admitted(Admission { pods: 0, nodes: BTreeMap::new(), ..admission });
    let workload = job.workload.clone();
    ledger.tell(Event::workload(workload));
    assert_eq!(ledger.account(0), (0, 0));
    ledger.check_charges().expect("nothing is charged");
}
