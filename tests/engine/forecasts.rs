//! Law 8: forecasts and what-if results decide as the cluster does. They come true if time limits are true
//! and no workload is submitted later, and asking for them changes nothing.

use proptest::prelude::*;
use sluice_engine::replay::Life;
use sluice_engine::replay::forecast::{Bounds, Eta, Fate, Forecast, forecast, what_if};
use sluice_engine::replay::grounds::{Basis, Grounds, Unbounded};
use sluice_engine::types::{Likeness, Observed, Queue, Time};
use sluice_engine::types::{Reason, Workload, WorkloadId};

use super::reservations::{JobSpec, Simulation, seconds};

/// A job that runs exactly up to its time limit.
fn truthful() -> impl Strategy<Value = JobSpec> {
    (0..20_i64, 1..4_u32, 1..5_i64, 1..60_i64).prop_map(|(pause, pods, gpus, run)| JobSpec {
        pause,
        pods,
        gpus,
        run,
        limit: Some(run),
    })
}

fn exactly(at: Option<Time>) -> Eta {
    Eta { early: at, likely: at, late: at }
}

/// A cluster to which these jobs are submitted one after the other. With `ask`, a forecast and a what-if
/// result are computed before each.
fn simulated(nodes: &[i64], specs: &[JobSpec], ask: bool) -> Result<Simulation, TestCaseError> {
    let mut simulation = Simulation::new(nodes, Queue::fallback());
    for spec in specs {
        let to = Time(simulation.run.now().0 + spec.pause * 1_000);
        simulation.advance(to)?;
        if ask {
            let forecast = forecast(simulation.run.engine(), to, Bounds::default());
            let what_if = what_if(simulation.run.engine(), simulation.next(spec), to, Bounds::default());
            prop_assert!(!forecast.cut && !what_if.cut);
        }
        simulation.submit(spec);
    }
    let now = simulation.run.now();
    simulation.advance(now)?;
    Ok(simulation)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn law_8_a_forecast_is_exact_when_limits_are_true_and_no_workload_is_submitted(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        specs in prop::collection::vec(truthful(), 1..20),
    ) {
        let mut simulation = simulated(&nodes, &specs, false)?;
        let forecast = forecast(simulation.run.engine(), simulation.run.now(), Bounds::default());
        simulation.advance(Time(100_000_000))?;
        prop_assert!(!forecast.cut);
        for (id, eta) in &forecast.etas {
            prop_assert_eq!(*eta, exactly(simulation.started(id)), "{}", id);
        }
    }

    #[test]
    fn law_8_a_what_if_result_comes_true(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        specs in prop::collection::vec(truthful(), 1..20),
        last in truthful(),
    ) {
        let mut simulation = simulated(&nodes, &specs, false)?;
        let now = simulation.run.now();
        let what_if = what_if(simulation.run.engine(), simulation.next(&last), now, Bounds::default());
        let id = simulation.submit(&last);
        simulation.advance(now)?;
        prop_assert_eq!(what_if.verdict, simulation.run.engine().verdict(&id));
        simulation.advance(Time(100_000_000))?;
        prop_assert_eq!(what_if.eta, exactly(simulation.started(&id)));
        prop_assert_eq!(what_if.admission.map(|admission| admission.at), simulation.started(&id));
    }

    #[test]
    fn law_8_asking_for_a_forecast_changes_nothing(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        specs in prop::collection::vec(truthful(), 1..15),
    ) {
        let mut simulations = [simulated(&nodes, &specs, false)?, simulated(&nodes, &specs, true)?];
        let verdicts = |simulation: &Simulation| -> Vec<_> {
            let engine = simulation.run.engine();
            engine.workloads().map(|workload| (workload.id.clone(), engine.verdict(&workload.id))).collect()
        };
        prop_assert_eq!(verdicts(&simulations[0]), verdicts(&simulations[1]));
        for simulation in &mut simulations {
            simulation.advance(Time(100_000_000))?;
        }
        prop_assert_eq!(verdicts(&simulations[0]), verdicts(&simulations[1]));
    }
}

#[test]
fn the_range_of_a_forecast_comes_from_earlier_runs() {
    let mut simulation = Simulation::new(&[1], Queue::fallback());
    let spec = |run| JobSpec { pause: 0, pods: 1, gpus: 1, run, limit: None };
    // Ten runs of 10, 20, ... 100 s, one after the other.
    for run in 1..=10 {
        simulation.submit(&spec(10 * run));
    }
    simulation.advance_unjudged(Time(1_000_000));
    simulation.submit(&spec(70));
    let id = simulation.submit(&spec(10));
    simulation.advance_unjudged(Time(1_000_000));
    let eta = |simulation: &Simulation| {
        forecast(simulation.run.engine(), simulation.run.now(), Bounds::default()).etas[&id]
    };
    let after = |seconds: i64| Some(Time(1_000_000 + 1_000 * seconds));
    assert_eq!(eta(&simulation), Eta { early: after(10), likely: after(50), late: after(90) });
    // The first has run for 45 s. Of the runs that took longer, half took no more than 70 s.
    simulation.advance_unjudged(Time(1_045_000));
    assert_eq!(eta(&simulation), Eta { early: after(50), likely: after(70), late: after(100) });
}

#[test]
fn a_workload_that_waits_for_an_unknown_end_has_no_estimate() {
    let mut simulation = Simulation::new(&[1], Queue::fallback());
    let spec = JobSpec { pause: 0, pods: 1, gpus: 1, run: 100, limit: None };
    simulation.submit(&spec);
    let id = simulation.submit(&spec);
    simulation.advance_unjudged(Time(0));
    let forecast = forecast(simulation.run.engine(), Time(0), Bounds::default());
    assert_eq!(forecast.etas[&id], Eta::default());
    assert_eq!(forecast.grounds[&id], Err(Unbounded::Run(WorkloadId("a/w0".into()))));
    assert!(!forecast.cut, "the forecast stays within its bounds");
    let what_if = what_if(simulation.run.engine(), simulation.next(&spec), Time(0), Bounds::default());
    assert_eq!(what_if.verdict.map(|verdict| verdict.reason), Some(Reason::NoRoom));
    assert_eq!(what_if.admission, None);
}

#[test]
fn a_what_if_result_says_what_becomes_of_its_victims() {
    let mut simulation = Simulation::new(&[4], Queue::fallback());
    let spec = |gpus, run| JobSpec { pause: 0, pods: 1, gpus, run, limit: Some(run) };
    let victim = simulation.submit(&spec(4, 1_000));
    simulation.advance_unjudged(Time(100_000));
    let mut urgent = simulation.next(&spec(4, 50));
    urgent.priority = 10;
    let result = what_if(simulation.run.engine(), urgent, Time(100_000), Bounds::default());
    assert_eq!(result.displaced, [victim]);
    let lost = std::time::Duration::from_secs(100);
    assert_eq!(result.fates, [Fate { keeps: None, pods: 1, lost, back: Some(Time(150_000)) }]);
}

#[test]
fn an_expected_start_counts_the_grace_period_of_the_pods_that_end_for_it() {
    let mut simulation = Simulation::new(&[4], Queue::fallback());
    let spec = |gpus, run| JobSpec { pause: 0, pods: 1, gpus, run, limit: Some(run) };
    let (at, grace) = (|second: i64| Time(1_000 * second), seconds(120));
    let victim = Workload { grace, ..simulation.next(&spec(4, 1_000)) };
    let lost = victim.id.clone();
    simulation.run.submit(victim, Life { run: Some(seconds(1_000)), completions: None, grace });
    simulation.advance_unjudged(at(100));
    let id = WorkloadId("a/urgent".into());
    let urgent = Workload {
        id: id.clone(),
        name: "urgent".into(),
        priority: 10,
        submitted: at(100),
        ..simulation.next(&spec(4, 50))
    };
    let after = |now: i64| Eta { early: Some(at(now)), likely: Some(at(220)), late: Some(at(220)) };
    let asked = what_if(simulation.run.engine(), urgent.clone(), at(100), Bounds::default());
    assert_eq!((asked.eta, asked.grounds), (after(100), Ok(Basis::EndingPods)));
    assert_eq!(asked.displaced, [lost]);
    assert_eq!(asked.fates[0].back, Some(at(270)));
    simulation.run.submit(urgent, Life { run: Some(seconds(50)), ..Life::default() });
    for now in [100, 110, 219] {
        simulation.advance_unjudged(at(now));
        assert_eq!(start_of(&simulation, &id), (after(now), Ok(Basis::EndingPods)), "at {now} s");
    }
    simulation.advance_unjudged(at(220));
    let state = simulation.run.engine().workload(&id).map(|workload| workload.state.clone());
    assert!(matches!(state, Some(Observed::Admitted(admission)) if admission.at == at(220)));
}

/// A node of 4 GPUs on which `short` Jobs of one GPU have taken 14 s each, and then one of 4 GPUs has begun, with or
/// without a limit. A Job of 4 GPUs waits for it: its expected start, and what that rests on.
fn behind_a_large_run(short: usize, limit: Option<i64>) -> (Simulation, WorkloadId) {
    let mut simulation = Simulation::new(&[4], Queue::fallback());
    let spec = |gpus, run, limit| JobSpec { pause: 0, pods: 1, gpus, run, limit };
    for _ in 0..short {
        simulation.submit(&spec(1, 14, None));
    }
    simulation.advance_unjudged(Time(1_000_000));
    simulation.submit(&spec(4, 5_000, limit));
    let id = simulation.submit(&spec(4, 10, None));
    simulation.advance_unjudged(Time(1_000_000));
    (simulation, id)
}

fn foretold(simulation: &Simulation) -> Forecast {
    forecast(simulation.run.engine(), simulation.run.now(), Bounds::default())
}

fn start_of(simulation: &Simulation, id: &WorkloadId) -> (Eta, Grounds) {
    let forecast = foretold(simulation);
    (forecast.etas[id], forecast.grounds[id].clone())
}

#[test]
fn law_14_short_runs_of_another_size_foretell_no_start() {
    let (simulation, id) = behind_a_large_run(40, None);
    let large = WorkloadId("a/w40".into());
    assert_eq!(start_of(&simulation, &id), (Eta::default(), Err(Unbounded::Run(large))));
    let reservations = simulation.run.engine().reservations();
    assert!(reservations.iter().all(|reservation| reservation.start.is_none()), "{reservations:?}");
    let sentence = foretold(&simulation).grounds[&id].clone().expect_err("no estimate");
    let sentence = sentence.sentence(simulation.run.engine());
    assert!(sentence.contains("a/w40"), "{sentence}");
}

#[test]
fn law_14_an_estimate_rests_on_the_time_limit_of_the_run_in_the_way() {
    let (simulation, id) = behind_a_large_run(40, Some(6_000));
    assert_eq!(start_of(&simulation, &id), (exactly(Some(Time(7_000_000))), Ok(Basis::TimeLimits)));
}

#[test]
fn law_14_an_estimate_rests_on_runs_like_the_one_in_the_way() {
    let mut simulation = Simulation::new(&[4], Queue::fallback());
    let spec = |gpus, run| JobSpec { pause: 0, pods: 1, gpus, run, limit: None };
    for run in [100, 200, 300, 400, 500] {
        simulation.submit(&spec(4, run));
    }
    simulation.advance_unjudged(Time(2_000_000));
    simulation.submit(&spec(4, 5_000));
    let id = simulation.submit(&spec(4, 10));
    simulation.advance_unjudged(Time(2_000_000));
    let (eta, grounds) = start_of(&simulation, &id);
    assert_eq!((eta.likely, eta.late), (Some(Time(2_300_000)), Some(Time(2_500_000))));
    assert_eq!(grounds, Ok(Basis::History { runs: 5, like: Likeness::Size }));
    // It has run longer than all but three of them: these are too few.
    simulation.advance_unjudged(Time(2_250_000));
    let (eta, grounds) = start_of(&simulation, &id);
    assert_eq!(eta, Eta::default());
    assert!(matches!(grounds, Err(Unbounded::Run(_))), "{grounds:?}");
}

#[test]
fn law_14_the_surest_ground_of_one_start_does_not_cover_another() {
    // On one node a run with a limit is in the way, on the other one without; each keeps a workload of its own waiting.
    let mut simulation = Simulation::new(&[2, 4], Queue::fallback());
    let spec = |gpus, run, limit| JobSpec { pause: 0, pods: 1, gpus, run, limit };
    simulation.submit(&spec(4, 100, Some(100)));
    simulation.submit(&spec(2, 1_000, None));
    let next = simulation.submit(&spec(4, 100, None));
    let last = simulation.submit(&spec(4, 100, None));
    simulation.advance_unjudged(Time(0));
    assert_eq!(start_of(&simulation, &next), (exactly(Some(Time(100_000))), Ok(Basis::TimeLimits)));
    // Behind `next` stands one that waits for its end, which is not known.
    assert_eq!(start_of(&simulation, &last).1, Err(Unbounded::Run(next)));
}

#[test]
fn law_14_a_waiting_workload_knows_its_place() {
    let mut simulation = Simulation::new(&[1], Queue::fallback());
    let spec = JobSpec { pause: 0, pods: 1, gpus: 1, run: 100, limit: Some(100) };
    let ids: Vec<WorkloadId> = (0..8).map(|_| simulation.submit(&spec)).collect();
    simulation.advance_unjudged(Time(0));
    let places = simulation.run.engine().places();
    assert!(!places.contains_key(&ids[0]), "it runs");
    let place = &places[&ids[7]];
    assert_eq!((place.position, place.waiting, place.teams_in_front), (7, 7, 0));
    assert_eq!(place.in_front, ids[1..6]);
    assert_eq!((places[&ids[1]].position, places[&ids[1]].in_front.len()), (1, 0));
}
