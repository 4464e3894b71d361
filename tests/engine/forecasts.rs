//! Law 8: forecasts and what-if results decide as the cluster does. They come true if time limits are true
//! and no workload is submitted later, and asking for them changes nothing.

use proptest::prelude::*;
use sluice_engine::replay::forecast::{Bounds, Eta, forecast, what_if};
use sluice_engine::types::Reason;
use sluice_engine::types::{Queue, Time};

use super::reservations::{JobSpec, Simulation};

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
    assert!(!forecast.cut, "the forecast stays within its bounds");
    let what_if = what_if(simulation.run.engine(), simulation.next(&spec), Time(0), Bounds::default());
    assert_eq!(what_if.verdict.map(|verdict| verdict.reason), Some(Reason::NoRoom));
    assert_eq!(what_if.admission, None);
}
