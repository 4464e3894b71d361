//! What a forecast says comes true when limits are true and nobody else comes; asking changes nothing.

use proptest::prelude::*;
use sluice_engine::replay::forecast::{Bounds, Eta, forecast, what_if};
use sluice_engine::types::Reason;
use sluice_engine::types::{Queue, Time};

use super::turns::{Course, Wish};

/// Somebody who runs exactly as long as it says.
fn truthful() -> impl Strategy<Value = Wish> {
    (0..20_i64, 1..4_u32, 1..5_i64, 1..60_i64).prop_map(|(pause, pods, gpus, run)| Wish {
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

/// A cluster to which these came one after the other.
fn course(nodes: &[i64], wishes: &[Wish], ask: bool) -> Result<Course, TestCaseError> {
    let mut course = Course::new(nodes, Queue::fallback());
    for wish in wishes {
        let to = Time(course.run.now().0 + wish.pause * 1_000);
        course.advance(to)?;
        if ask {
            let forecast = forecast(course.run.engine(), to, Bounds::default());
            let prospect = what_if(course.run.engine(), course.next(wish), to, Bounds::default());
            prop_assert!(!forecast.cut && !prospect.cut);
        }
        course.submit(wish);
    }
    let now = course.run.now();
    course.advance(now)?;
    Ok(course)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn an_estimate_is_exact_when_limits_are_true_and_nobody_comes(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        wishes in prop::collection::vec(truthful(), 1..20),
    ) {
        let mut course = course(&nodes, &wishes, false)?;
        let forecast = forecast(course.run.engine(), course.run.now(), Bounds::default());
        course.advance(Time(100_000_000))?;
        prop_assert!(!forecast.cut);
        for (id, eta) in &forecast.etas {
            prop_assert_eq!(*eta, exactly(course.started(id)), "{}", id);
        }
    }

    #[test]
    fn what_would_become_of_somebody_becomes_of_it(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        wishes in prop::collection::vec(truthful(), 1..20),
        last in truthful(),
    ) {
        let mut course = course(&nodes, &wishes, false)?;
        let now = course.run.now();
        let prospect = what_if(course.run.engine(), course.next(&last), now, Bounds::default());
        let id = course.submit(&last);
        course.advance(now)?;
        prop_assert_eq!(prospect.verdict, course.run.engine().verdict(&id));
        course.advance(Time(100_000_000))?;
        prop_assert_eq!(prospect.eta, exactly(course.started(&id)));
        prop_assert_eq!(prospect.admission.map(|admission| admission.at), course.started(&id));
    }

    #[test]
    fn asking_changes_nothing(
        nodes in prop::collection::vec(2..9_i64, 1..4),
        wishes in prop::collection::vec(truthful(), 1..15),
    ) {
        let mut courses = [course(&nodes, &wishes, false)?, course(&nodes, &wishes, true)?];
        let said = |course: &Course| -> Vec<_> {
            let engine = course.run.engine();
            engine.workloads().map(|workload| (workload.id.clone(), engine.verdict(&workload.id))).collect()
        };
        prop_assert_eq!(said(&courses[0]), said(&courses[1]));
        for course in &mut courses {
            course.advance(Time(100_000_000))?;
        }
        prop_assert_eq!(said(&courses[0]), said(&courses[1]));
    }
}

#[test]
fn the_range_comes_from_what_was_learned() {
    let mut course = Course::new(&[1], Queue::fallback());
    let wish = |run| Wish { pause: 0, pods: 1, gpus: 1, run, limit: None };
    // Ten runs of 10, 20, ... 100 s, one after the other.
    for run in 1..=10 {
        course.submit(&wish(10 * run));
    }
    course.run.advance(Time(1_000_000), &mut |_, _| {}).expect("decisions come to rest");
    course.submit(&wish(70));
    let id = course.submit(&wish(10));
    course.run.advance(Time(1_000_000), &mut |_, _| {}).expect("decisions come to rest");
    let eta = |course: &Course| forecast(course.run.engine(), course.run.now(), Bounds::default()).etas[&id];
    let after = |seconds: i64| Some(Time(1_000_000 + 1_000 * seconds));
    assert_eq!(eta(&course), Eta { early: after(10), likely: after(50), late: after(90) });
    // It has been running for 45 s: of those that took longer, half took no more than 70 s.
    course.run.advance(Time(1_045_000), &mut |_, _| {}).expect("decisions come to rest");
    assert_eq!(eta(&course), Eta { early: after(50), likely: after(70), late: after(100) });
}

#[test]
fn who_waits_for_an_unknown_end_has_no_estimate() {
    let mut course = Course::new(&[1], Queue::fallback());
    let wish = Wish { pause: 0, pods: 1, gpus: 1, run: 100, limit: None };
    course.submit(&wish);
    let id = course.submit(&wish);
    course.run.advance(Time(0), &mut |_, _| {}).expect("decisions come to rest");
    let forecast = forecast(course.run.engine(), Time(0), Bounds::default());
    assert_eq!(forecast.etas[&id], Eta::default());
    assert!(!forecast.cut, "there is nothing beyond the bounds");
    let prospect = what_if(course.run.engine(), course.next(&wish), Time(0), Bounds::default());
    assert_eq!(prospect.verdict.map(|verdict| verdict.reason), Some(Reason::NoRoom));
    assert_eq!(prospect.admission, None);
}
