//! Admissions that the API server refuses: no other workload loses work for them.

use sluice_engine::Engine;
use sluice_engine::types::amount::Amount;
use sluice_engine::types::{Action, Event, Node, Observed, PodShape, Reason, Time, Workload, WorkloadId};

use super::world::{gpus, team};

const MINUTE: i64 = 60_000;

fn job(team: &str, name: &str, submitted: i64) -> Workload {
    let shape = PodShape { requests: gpus(2), ..PodShape::default() };
    let workload = Workload::job(&team.into(), &name.into(), 1, shape, Time(submitted));
    Workload { id: WorkloadId(format!("{team}/{name}").as_str().into()), ..workload }
}

/// Plans; a workload of team `b` is refused, everything else is carried out. Returns how many were evicted.
fn plan(engine: &mut Engine, jobs: &mut [Workload], now: Time) -> usize {
    let mut evicted = 0;
    for action in engine.plan(now).actions {
        let id = action.workload().clone();
        let job = jobs.iter_mut().find(|job| job.id == id).expect("a submitted workload");
        match action {
            Action::Admit { .. } if job.team == "b".into() => {
                let message = "metadata.annotations: Too long".to_owned();
                engine.apply(Event::WriteFailed { workload: id.clone(), message }, now);
                engine.apply(Event::AdmissionRefused(id), now);
                continue;
            }
            Action::Admit { admission, .. } => job.state = Observed::Admitted(admission),
            Action::Evict { .. } => {
                evicted += 1;
                let Observed::Admitted(admission) = job.state.clone() else { panic!("it does not run") };
                job.state = Observed::Leaving { admission, since: now, stopped: true };
                engine.apply(Event::workload(job.clone()), now);
                job.state = Observed::Queued;
            }
            _ => continue,
        }
        engine.apply(Event::workload(job.clone()), now);
    }
    evicted
}

#[test]
fn nobody_is_evicted_again_for_an_admission_that_is_refused() {
    let mut engine = Engine::new();
    let mut allocatable = gpus(2);
    allocatable.insert("pods".into(), Amount::units(110));
    engine.apply(
        Event::NodeApplied(Node {
            name: "n0".into(),
            labels: [].into(),
            allocatable,
            taints: Vec::new(),
            schedulable: true,
            unreachable: None,
        }),
        Time(0),
    );
    for (name, guaranteed) in [("a", 0), ("b", 2)] {
        engine.apply(Event::TeamApplied(team(name, None, guaranteed, None)), Time(0));
    }
    let mut jobs = [job("a", "borrower", 0), job("b", "refused", 1000), job("b", "sound", 2 * 60 * MINUTE)];
    engine.apply(Event::workload(jobs[0].clone()), Time(0));
    assert_eq!(plan(&mut engine, &mut jobs, Time(0)), 0);
    engine.apply(Event::workload(jobs[1].clone()), Time(1000));
    let run = |engine: &mut Engine, jobs: &mut [Workload], from: i64| -> usize {
        (0..600).map(|second| plan(engine, jobs, Time(from + 1000 * second))).sum()
    };
    assert_eq!(run(&mut engine, &mut jobs, 1000), 1, "the first refusal could not be foreseen");
    assert!(matches!(jobs[0].state, Observed::Admitted(_)), "the borrower runs again");
    let verdict = engine.verdict(&jobs[1].id).expect("a verdict");
    assert_ne!(verdict.reason, Reason::WaitingForEviction);
    assert!(verdict.message.contains("metadata.annotations: Too long"), "{}", verdict.message);

    engine.apply(Event::ObjectChanged(jobs[1].id.clone()), Time(60 * MINUTE));
    assert_eq!(
        run(&mut engine, &mut jobs, 60 * MINUTE),
        1,
        "its object has changed, so it may be accepted now"
    );
    engine.apply(Event::workload(jobs[2].clone()), Time(120 * MINUTE));
    assert_eq!(
        plan(&mut engine, &mut jobs, Time(120 * MINUTE)),
        1,
        "a workload like it, which was not refused, is not held back"
    );
}
