//! Law 11: what may backfill follows from the run lengths that were last written in the status of the team, before and
//! after a restart. What people are shown rests on finer classes and on what came of earlier forecasts, and decides nothing.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::replay::calibration::Calibration;
use sluice_engine::replay::forecast::{
    Bounds, Case, Eta, Submission, expected_end, forecast, forecast_shown,
};
use sluice_engine::replay::grounds::Unbounded;
use sluice_engine::types::{Event, Likeness, RunLengths, Workload, WorkloadId};

use super::ops::{self, Op};
use super::world::{Phase, World, team};

fn pass(world: &mut World, seconds: u64) {
    world.now = world.now.after(Duration::from_secs(seconds));
    world.plan();
}

fn submit(world: &mut World, gpus: i64) -> WorkloadId {
    let id = world.submit(&"a".into(), "train", 0, 1, gpus);
    world.settle_now();
    id
}

/// A workload of one pod that runs for so many seconds and is deleted then.
fn run(world: &mut World, gpus: i64, seconds: u64) {
    let id = submit(world, gpus);
    pass(world, seconds);
    world.end(&id, Phase::Finished);
    world.settle_now();
    world.delete(&id);
    world.settle_now();
}

fn written(world: &World) -> Vec<Arc<RunLengths>> {
    world.engine.run_lengths().collect()
}

/// Reads the run lengths back from the status.
fn read(world: &mut World, lengths: &[Arc<RunLengths>]) {
    for lengths in lengths {
        world.engine.apply(Event::RunLengths(RunLengths::clone(lengths)), world.now);
    }
}

/// Whether a small workload uses the room that is reserved for a large one, behind a run of three GPUs.
fn backfills(world: &mut World) -> bool {
    let small = submit(world, 1);
    matches!(world.items[&small].phase, Phase::Running(_))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn law_11_what_may_backfill_is_the_same_before_and_after_a_restart(
        small in prop::collection::vec(20..4_000_u64, 1..8),
        large in prop::collection::vec(500..4_000_u64, 0..30),
        later in prop::collection::vec((1..4_i64, 1..4_000_u64), 0..12),
        elapsed in 0..3_000_u64,
    ) {
        let mut world = World::new(&[4], vec![team("a", None, 0, None)]);
        small.iter().for_each(|seconds| run(&mut world, 1, *seconds));
        large.iter().for_each(|seconds| run(&mut world, 3, *seconds));
        let lengths = written(&world);
        read(&mut world, &lengths);
        // These end after the write, and their objects are gone before the restart.
        later.iter().for_each(|(gpus, seconds)| run(&mut world, *gpus, *seconds));
        submit(&mut world, 3);
        let owner = submit(&mut world, 4);
        pass(&mut world, 700 + elapsed);
        world.settle_now();
        let mut old = world.engine.clone();
        world.rebuild();
        read(&mut world, &lengths);
        world.plan();
        prop_assert_eq!(world.engine.reservations(), old.reservations(), "{}", owner);
        let small = world.submit(&"a".into(), "train", 0, 1, 1);
        old.apply(Event::workload(world.items[&small].workload.clone()), world.now);
        let actions = old.plan(world.now).actions;
        prop_assert_eq!(world.engine.plan(world.now).actions, actions);
    }
}

/// An operation; ends are frequent. `None`: the process restarts and reads the run lengths back.
fn op() -> impl Strategy<Value = Option<Op>> {
    prop_oneof![
        1 => Just(None),
        6 => ops::op().prop_map(Some),
        6 => (0..8_usize).prop_map(|which| Some(Op::Finish(which))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_summaries_of_an_engine_that_is_asked_often_equal_those_of_one_asked_once(
        setup in ops::setup(), ops in prop::collection::vec(op(), 20..60), every in 1..4_usize,
    ) {
        let (mut asked, mut unasked) = (ops::build(&setup), ops::build(&setup));
        let mut last = Vec::new();
        for (number, op) in ops.iter().enumerate() {
            for world in [&mut asked, &mut unasked] {
                match op {
                    Some(op) => ops::apply(world, op),
                    None => {
                        world.rebuild();
                        read(world, &last);
                    }
                }
                world.settle_now();
            }
            if number % every == 0 {
                last = written(&asked);
                // This copy is asked for the first time.
                let copy: Vec<_> = unasked.engine.clone().run_lengths().collect();
                prop_assert_eq!(&last, &copy);
            }
        }
    }
}

#[test]
fn only_the_summary_of_a_team_with_a_new_run_is_made_again() {
    let mut world = World::new(&[4], vec![team("a", None, 0, None), team("b", None, 0, None)]);
    let of_b = world.submit(&"b".into(), "train", 0, 1, 1);
    world.settle_now();
    world.end(&of_b, Phase::Finished);
    run(&mut world, 1, 100);
    let before = written(&world);
    run(&mut world, 1, 200);
    let after = written(&world);
    let same = before.iter().zip(&after).map(|(one, other)| Arc::ptr_eq(one, other));
    assert_eq!(same.collect::<Vec<bool>>(), [false, true]);
}

#[test]
fn law_11_runs_count_for_decisions_once_they_are_written() {
    let world = |writes: bool| {
        let mut world = World::new(&[4], vec![team("a", None, 0, None)]);
        [1_000, 2_000, 3_000, 4_000].iter().for_each(|seconds| run(&mut world, 3, *seconds));
        let before = written(&world);
        read(&mut world, &before);
        (0..4).for_each(|_| run(&mut world, 1, 60));
        if writes {
            let now = written(&world);
            read(&mut world, &now);
        }
        submit(&mut world, 3);
        submit(&mut world, 4);
        pass(&mut world, 700);
        world.settle_now();
        backfills(&mut world)
    };
    assert!(world(true));
    assert!(
        !world(false),
        "the status says nothing yet of runs of this size, and those of three GPUs take too long"
    );
}

#[test]
fn law_11_the_summary_is_bounded_and_outlives_a_restart() {
    let mut world = World::new(&[64], vec![team("a", None, 0, None)]);
    for gpus in 1..=60 {
        run(&mut world, gpus, 100);
    }
    let lengths = written(&world);
    assert_eq!(lengths[0].classes.len(), 48);
    assert!(lengths[0].classes.iter().all(|class| class.lengths.len() <= 21 && class.runs <= 64));
    world.rebuild();
    read(&mut world, &lengths);
    world.plan();
    assert_eq!(written(&world), lengths);
}

/// A cluster of one node in which runs of two users and of two names took different times.
fn of_users() -> World {
    let mut world = World::new(&[4], vec![team("a", None, 0, None)]);
    for (user, name, seconds) in [("u", "train", 100), ("u", "eval", 5_000), ("v", "train", 20_000)] {
        for number in 0..6 {
            let id = of_user(&mut world, user, &format!("{name}-{number}"));
            pass(&mut world, seconds);
            world.end(&id, Phase::Finished);
            world.settle_now();
        }
    }
    world
}

fn of_user(world: &mut World, user: &str, name: &str) -> WorkloadId {
    let id = world.submit(&"a".into(), "train", 0, 1, 4);
    world.edit(&id, |workload: &mut Workload| {
        (workload.user, workload.name) = (Some(user.into()), name.into());
    });
    world.settle_now();
    id
}

#[test]
fn people_are_told_by_runs_of_the_same_user_and_name() {
    for (user, name, seconds, like) in [
        ("u", "train-77", 100, Likeness::Name),
        ("u", "eval-77", 5_000, Likeness::Name),
        ("v", "other", 20_000, Likeness::User),
        ("w", "train-1", 5_000, Likeness::Size),
    ] {
        let mut world = of_users();
        let id = of_user(&mut world, user, name);
        let end = expected_end(&world.engine, &id, world.now).expect("runs like it have ended");
        assert_eq!((end.likely.since(world.now).as_secs(), end.like), (seconds, like), "{user} {name}");
        assert!(
            end.sentence.contains(match like {
                Likeness::Name => "runs of user u named",
                Likeness::User => "runs of user v of the same queue and size",
                Likeness::Size => "runs of the same team, queue and size",
            }),
            "{}",
            end.sentence
        );
    }
}

#[test]
fn law_10_what_people_are_told_decides_nothing() {
    let play = |asks: bool| {
        let mut world = of_users();
        let mut calibration = Calibration::default();
        for number in 0..12 {
            let user = if number % 2 == 0 { "u" } else { "v" };
            of_user(&mut world, user, &format!("train-{number}"));
            if asks {
                forecast_shown(&world.engine, world.now, Bounds::default(), &mut calibration, &mut |_| true);
            }
            pass(&mut world, 700);
            if let Some(id) = world.running().first().map(|job| job.workload.id.clone()) {
                world.end(&id, Phase::Finished);
            }
            world.settle_now();
        }
        world.log
    };
    assert_eq!(play(true), play(false));
}

/// A world of two teams: `a` borrows; `b` has submitted one workload of 4 GPUs an hour.
fn with_submissions(nodes: &[i64]) -> World {
    let mut world = World::new(nodes, vec![team("a", None, 0, None), team("b", None, 4, None)]);
    for _ in 0..30 {
        let id = world.submit(&"b".into(), "train", 0, 1, 4);
        world.settle_now();
        pass(&mut world, 3_000);
        world.end(&id, Phase::Finished);
        world.settle_now();
        pass(&mut world, 100);
    }
    world
}

#[test]
fn the_range_that_is_told_knows_the_submissions_of_the_last_day() {
    let mut world = with_submissions(&[4]);
    world.submit(&"b".into(), "train", 0, 1, 4);
    world.settle_now();
    let waiting = submit(&mut world, 4);
    let bounds = Bounds::default();
    let plain = forecast(&world.engine, world.now, bounds).etas[&waiting];
    let shown = forecast_shown(&world.engine, world.now, bounds, &mut Calibration::default(), &mut |_| true);
    let shown = shown.etas[&waiting];
    assert_eq!((shown.early, shown.likely), (plain.early, plain.likely));
    assert!(shown.late > plain.late, "{shown:?} {plain:?}");
}

#[test]
fn law_14_the_run_in_the_way_is_named_though_submissions_come_again_for_ever() {
    let mut world = with_submissions(&[4, 8]);
    let endless = submit(&mut world, 8);
    let waiting = submit(&mut world, 8);
    let job = world.items[&waiting].workload.clone();
    let next = Workload { id: WorkloadId("next".into()), name: "next".into(), ..job };
    let bounds = Bounds { ahead: Duration::from_secs(3 * 24 * 3600), ..Bounds::default() };
    let mut calibration = Calibration::default();
    let shown = forecast_shown(&world.engine, world.now, bounds, &mut calibration, &mut |_| true);
    assert_eq!(shown.etas[&waiting], Eta::default());
    assert_eq!(shown.grounds[&waiting], Err(Unbounded::Run(endless.clone())));

    let mut submission = Submission::new(world.engine.clone(), next, world.now, &mut || true);
    let mut plays = Vec::new();
    let prospect = submission.shown(bounds, &calibration.corrections(world.now), &mut |case| {
        plays.push(case);
        true
    });
    assert_eq!(prospect.grounds, Err(Unbounded::Run(endless)));
    plays.dedup();
    assert_eq!(plays, [Case::Likely], "the others can tell no start");
}
