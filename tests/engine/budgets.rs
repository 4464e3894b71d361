//! Budgets: what teams may use over time.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::replay::forecast::{Bounds, forecast};
use sluice_engine::replay::grounds::Basis;
use sluice_engine::types::amount::Amount;
use sluice_engine::types::{
    Action, Budget, BudgetUsed, Event, Name, OnExhausted, Period, Reason, Team, Time, Workload, WorkloadId,
};

use crate::world::{Phase, World, team};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

fn budget(hours: i64, period: Period, on_exhausted: OnExhausted) -> Budget {
    Budget { amount: Amount::units(hours), period, on_exhausted }
}

fn with(team: Team, budget: Budget) -> Team {
    Team { budget: Some(budget), ..team }
}

/// Writes what is used of budgets as the leader does, and lets the engine read it.
fn written(world: &World) -> Vec<BudgetUsed> {
    let views = world.engine.budgets(world.now).into_iter();
    let used = views.map(|view| BudgetUsed {
        team: view.team,
        used: view.used,
        since: view.period.map(|(start, _)| start),
        at: world.now,
    });
    used.collect()
}

fn write(world: &mut World) -> Vec<BudgetUsed> {
    let written = written(world);
    for used in written.clone() {
        world.engine.apply(Event::BudgetUsed(used), world.now);
    }
    written
}

/// Submits a workload with a time limit of so many hours.
fn submit(world: &mut World, team: &str, queue: &str, gpus: i64, hours: Option<u64>) -> WorkloadId {
    let id = world.submit(&team.into(), queue, 0, 1, gpus);
    world.edit(&id, |workload| workload.time_limit = hours.map(|hours| Duration::from_secs(hours * 3_600)));
    id
}

fn runs(world: &World, id: &WorkloadId) -> bool {
    matches!(world.items[id].phase, Phase::Running(_))
}

fn pass(world: &mut World, milliseconds: i64) {
    world.now = Time(world.now.0 + milliseconds);
    world.settle_now();
}

fn message(world: &World, id: &WorkloadId) -> String {
    world.engine.verdict(id).expect("a verdict").message
}

#[test]
fn a_time_limit_is_committed_before_the_start_and_given_back_at_the_end() {
    let mut world =
        World::new(&[8], vec![with(team("a", None, 8, None), budget(10, Period::Month, OnExhausted::Hold))]);
    let first = submit(&mut world, "a", "train", 2, Some(4));
    let second = submit(&mut world, "a", "train", 1, Some(3));
    let small = submit(&mut world, "a", "train", 1, Some(2));
    world.settle_now();
    assert!(runs(&world, &first) && !runs(&world, &second) && runs(&world, &small));
    assert_eq!(world.reason(&second).1, Reason::BudgetSpent);
    assert_eq!(
        message(&world, &second),
        "Team a has used 0 of 10 GPU-hours of this month and has committed 10 to time limits; it may use 3 until its time \
         limit of 3h. The budget is full again on 1970-02-01, 00:00 UTC."
    );
    pass(&mut world, HOUR);
    assert!(!runs(&world, &second), "what runs uses what is committed to it");
    world.end(&first, Phase::Finished);
    write(&mut world);
    world.settle_now();
    assert!(runs(&world, &second), "2 of 8 GPU-hours were used: {}", message(&world, &second));
    let view = world.engine.budgets(world.now).remove(0);
    assert_eq!((view.used, view.counted), (Amount::units(3), Amount::units(3)));
    assert_eq!(view.committed, Amount::units(1 + 3));
}

#[test]
fn work_without_a_time_limit_starts_while_anything_is_left_and_runs_on() {
    let mut world =
        World::new(&[8], vec![with(team("a", None, 8, None), budget(4, Period::Month, OnExhausted::Hold))]);
    let first = submit(&mut world, "a", "train", 2, None);
    world.settle_now();
    pass(&mut world, 2 * HOUR - 1);
    let second = submit(&mut world, "a", "train", 1, None);
    world.settle_now();
    assert!(runs(&world, &second), "a moment is left");
    pass(&mut world, 5 * HOUR);
    let third = submit(&mut world, "a", "train", 1, None);
    let free = world.submit(&"a".into(), "train", 0, 1, 0);
    world.settle_now();
    assert_eq!(world.reason(&third).1, Reason::BudgetSpent);
    assert!(runs(&world, &first) && runs(&world, &second), "nothing is evicted for a budget");
    assert!(runs(&world, &free), "what uses no device costs nothing");
    assert!(world.log.iter().all(|line| line.starts_with("Admit")), "{:#?}", world.log);
    // The first of February.
    assert_eq!(world.engine.next_deadline(), Some(Time(31 * DAY)));
    world.settle();
    assert_eq!(world.now, Time(31 * DAY));
    assert!(runs(&world, &third), "{}", message(&world, &third));
}

#[test]
fn a_budget_of_an_ancestor_counts_what_all_its_teams_use() {
    let root = with(team("root", None, 8, None), budget(6, Period::Week, OnExhausted::Hold));
    let child = with(team("a", Some("root"), 4, None), budget(100, Period::Week, OnExhausted::Hold));
    let mut world = World::new(&[8], vec![root, child, team("b", Some("root"), 4, None)]);
    let a = submit(&mut world, "a", "train", 1, None);
    let b = submit(&mut world, "b", "train", 1, None);
    world.settle_now();
    pass(&mut world, 3 * HOUR);
    let late = submit(&mut world, "a", "train", 1, None);
    world.settle_now();
    assert!(runs(&world, &a) && runs(&world, &b) && !runs(&world, &late));
    assert!(message(&world, &late).starts_with("Team root has used 6 of 6 GPU-hours of this week."));
    let used: Vec<(Name, Amount)> =
        world.engine.budgets(world.now).into_iter().map(|view| (view.team, view.used)).collect();
    assert_eq!(used, [("a".into(), Amount::units(3)), ("root".into(), Amount::units(6))]);
    // 1 January 1970 was a Thursday.
    assert_eq!(world.engine.next_deadline(), Some(Time(4 * DAY)));
}

#[test]
fn a_spent_budget_that_only_says_so_changes_nothing() {
    let told = with(team("a", None, 4, None), budget(1, Period::Month, OnExhausted::Notify));
    let mut world = World::new(&[4], vec![told, team("b", None, 0, None)]);
    let borrower = submit(&mut world, "b", "train", 4, None);
    world.settle_now();
    let owner = submit(&mut world, "a", "train", 2, Some(100));
    world.settle_now();
    assert!(runs(&world, &owner) && !runs(&world, &borrower), "the guarantee counts as ever");
    assert_eq!(world.engine.next_deadline(), None);
}

/// Team a, which has spent its budget with a run of two GPUs, may only borrow; team b has no budget.
fn spent() -> (World, WorkloadId) {
    let a = with(team("a", None, 4, None), budget(2, Period::Month, OnExhausted::BorrowOnly));
    let mut world = World::new(&[8], vec![a, team("b", None, 4, None)]);
    let old = submit(&mut world, "a", "train", 2, None);
    world.settle_now();
    pass(&mut world, HOUR);
    (world, old)
}

#[test]
fn law_2_work_beyond_a_budget_starts_on_idle_capacity_and_gives_way_to_owners() {
    let (mut world, old) = spent();
    let beyond = submit(&mut world, "a", "train", 2, None);
    world.settle_now();
    assert!(runs(&world, &beyond), "idle capacity is never refused");
    let Phase::Running(admission) = &world.items[&beyond].phase else { panic!("it runs") };
    assert!(admission.unfunded && admission.borrowed);
    let fixed = submit(&mut world, "a", "fixed", 1, None);
    world.settle_now();
    assert_eq!(world.reason(&fixed).1, Reason::BudgetSpent, "what is never evicted cannot borrow");
    // Team b borrows what is idle, and then wants its guarantee.
    let other = submit(&mut world, "b", "train", 4, None);
    world.settle_now();
    assert!(runs(&world, &other) && runs(&world, &beyond));
    world.end(&other, Phase::Finished);
    let hog = submit(&mut world, "a", "train", 4, None);
    world.settle_now();
    assert!(runs(&world, &hog));
    let owed = submit(&mut world, "b", "train", 4, None);
    world.settle_now();
    assert!(runs(&world, &owed) && !runs(&world, &hog), "{:#?}", world.log);
    assert!(runs(&world, &old), "what ran before keeps its protection");
}

#[test]
fn law_3_no_guarantee_protects_what_started_beyond_a_budget() {
    let (mut world, old) = spent();
    let beyond = submit(&mut world, "a", "train", 2, None);
    world.settle_now();
    assert!(runs(&world, &beyond));
    // Within the guarantee of four as far as amounts go: without the budget, nothing of a could be a victim.
    world.teams.insert("b".into(), team("b", None, 6, None));
    world.engine.apply(Event::TeamApplied(world.teams[&Name::from("b")].clone()), world.now);
    let owed = submit(&mut world, "b", "train", 6, None);
    world.settle_now();
    assert!(runs(&world, &owed) && runs(&world, &old), "{:#?}", world.log);
    let more = submit(&mut world, "a", "train", 2, None);
    world.settle_now();
    assert_eq!(world.reason(&more).1, Reason::BudgetSpent, "it evicts nothing for itself");
    assert!(
        message(&world, &more).ends_with("it starts only on idle capacity, and nothing is preempted for it."),
        "{}",
        message(&world, &more)
    );
}

#[test]
fn what_no_node_can_hold_says_so_beyond_a_budget_too() {
    let (mut world, _) = spent();
    let large = submit(&mut world, "a", "train", 9, None);
    world.settle_now();
    assert_eq!(world.reason(&large).1, Reason::NoNodeFits);
    assert!(message(&world, &large).starts_with("Can never start: a pod needs 9 GPUs"));
}

#[test]
fn law_9_work_beyond_a_budget_comes_after_every_borrower() {
    let (mut world, _) = spent();
    world.cordon(&"n0".into(), false);
    let beyond = submit(&mut world, "a", "train", 4, None);
    world.now = Time(world.now.0 + 1_000);
    world.teams.insert("c".into(), team("c", None, 0, None));
    world.engine.apply(Event::TeamApplied(world.teams[&Name::from("c")].clone()), world.now);
    let later = submit(&mut world, "c", "train", 4, None);
    world.settle_now();
    world.cordon(&"n0".into(), true);
    world.settle_now();
    assert!(runs(&world, &later) && !runs(&world, &beyond), "{:#?}", world.log);
}

#[test]
fn at_the_start_of_a_period_the_guarantee_counts_again() {
    let (mut world, old) = spent();
    let borrower = submit(&mut world, "b", "train", 6, None);
    let waits = submit(&mut world, "a", "train", 2, None);
    world.settle_now();
    assert!(runs(&world, &borrower) && !runs(&world, &waits));
    world.settle();
    let Phase::Running(admission) = &world.items[&waits].phase else { panic!("{:#?}", world.log) };
    assert_eq!((admission.at, admission.unfunded), (Time(31 * DAY), false));
    assert!(runs(&world, &old) && !runs(&world, &borrower), "{:#?}", world.log);
}

#[test]
fn what_needs_more_than_the_whole_budget_never_starts_and_says_so() {
    let mut world =
        World::new(&[8], vec![with(team("a", None, 8, None), budget(10, Period::Month, OnExhausted::Hold))]);
    let large = submit(&mut world, "a", "train", 4, Some(3));
    world.settle();
    assert_eq!(world.now, Time(0), "no period helps");
    assert!(
        message(&world, &large)
            .ends_with("That is more than the whole budget, so it cannot start as the budget stands."),
        "{}",
        message(&world, &large)
    );
    assert!(world.engine.verdict(&large).is_some_and(|verdict| verdict.never));
    let small = submit(&mut world, "a", "train", 4, Some(2));
    let waits = submit(&mut world, "a", "train", 4, Some(2));
    world.settle_now();
    assert!(runs(&world, &small));
    assert!(
        world.engine.verdict(&waits).is_some_and(|verdict| !verdict.never),
        "it waits for the next period"
    );
    let more = with(team("a", None, 8, None), budget(20, Period::Month, OnExhausted::Hold));
    world.engine.apply(Event::TeamApplied(more), world.now);
    world.settle_now();
    assert!(runs(&world, &large), "a larger budget counts at once");
}

#[test]
fn nothing_grows_beyond_a_budget() {
    let mut world =
        World::new(&[8], vec![with(team("a", None, 8, None), budget(1, Period::Month, OnExhausted::Hold))]);
    let elastic = world.submit(&"a".into(), "train", 0, 4, 1);
    world.edit(&elastic, |workload| workload.min_pods = Some(1));
    let filler = submit(&mut world, "a", "train", 6, None);
    world.engine.apply(Event::NodeApplied(crate::world::node("n0", 7)), world.now);
    world.plan();
    while !world.in_flight.is_empty() {
        world.deliver(0, true);
    }
    let started = world.log.clone();
    assert!(runs(&world, &elastic), "{started:#?}");
    world.now = Time(HOUR);
    world.engine.apply(Event::NodeApplied(crate::world::node("n0", 16)), world.now);
    world.end(&filler, Phase::Finished);
    let actions = world.engine.plan(world.now).actions;
    assert!(!actions.iter().any(|action| matches!(action, Action::Resize { .. })), "{actions:?}");
}

#[test]
fn forecasts_know_the_day_of_the_refill() {
    let mut world =
        World::new(&[8], vec![with(team("a", None, 8, None), budget(2, Period::Quarter, OnExhausted::Hold))]);
    let run = submit(&mut world, "a", "train", 1, Some(2));
    world.settle_now();
    let next = submit(&mut world, "a", "train", 1, Some(2));
    world.settle_now();
    assert!(runs(&world, &run) && !runs(&world, &next));
    let found = forecast(&world.engine, world.now, Bounds::default());
    let eta = found.etas[&next];
    assert_eq!((eta.early, eta.late), (Some(Time(90 * DAY)), Some(Time(90 * DAY))), "the first of April");
    assert_eq!(found.grounds[&next], Ok(Basis::Refill));
}

#[test]
fn a_new_engine_goes_on_from_the_status_and_from_what_runs() {
    let mut world =
        World::new(&[8], vec![with(team("a", None, 8, None), budget(100, Period::Month, OnExhausted::Hold))]);
    let ended = submit(&mut world, "a", "train", 4, None);
    submit(&mut world, "a", "train", 2, None);
    world.settle_now();
    pass(&mut world, HOUR);
    world.end(&ended, Phase::Finished);
    let status = write(&mut world);
    pass(&mut world, HOUR);
    let before = world.engine.budgets(world.now);
    assert_eq!(before[0].used, Amount::units(4 + 2 + 2));
    world.rebuild();
    for used in status {
        world.engine.apply(Event::BudgetUsed(used), world.now);
    }
    world.settle_now();
    assert_eq!(world.engine.budgets(world.now), before);
    // It goes on integrating: what ends after that is not lost for the next write.
    let short = submit(&mut world, "a", "train", 4, None);
    world.settle_now();
    pass(&mut world, HOUR);
    world.end(&short, Phase::Finished);
    let view = world.engine.budgets(world.now).remove(0);
    assert_eq!((view.used, view.counted), (Amount::units(8 + 2 + 4), Amount::units(8 + 2)));
}

#[derive(Clone, Debug)]
enum Step {
    /// Team, GPUs, hours of its limit, and the percentage of these that it runs.
    Submit(usize, i64, u64, i64),
    /// Minutes.
    Pass(i64),
    /// The leader writes the statuses.
    Write,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_usize..3, 1_i64..4, 1_u64..9, 1_i64..101).prop_map(|(t, g, h, p)| Step::Submit(t, g, h, p)),
        4 => (1_i64..900).prop_map(Step::Pass),
        1 => Just(Step::Write),
    ];
    prop::collection::vec(step, 4..40)
}

const TEAMS: [&str; 3] = ["a", "b", "c"];

/// Teams a and b are below root, c is alone; all but b have budgets of a day.
fn cluster(amounts: [i64; 3], on_exhausted: OnExhausted) -> World {
    // One node: which of several is taken may depend on the sizes of pods that were seen.
    let day = |hours| budget(hours, Period::Day, on_exhausted);
    let teams = vec![
        with(team("root", None, 32, None), day(amounts[0])),
        with(team("a", Some("root"), 16, None), day(amounts[1])),
        team("b", Some("root"), 16, None),
        with(team("c", None, 16, None), day(amounts[2])),
    ];
    World::new(&[128], teams)
}

/// A run of the test: the workloads that run, with the time at which they end.
#[derive(Default)]
struct Judge {
    ends: BTreeMap<WorkloadId, i64>,
    runs: BTreeMap<WorkloadId, (Time, i64)>,
    lengths: BTreeMap<WorkloadId, i64>,
    /// What each team with a budget used by day, in GPUs × milliseconds.
    used: BTreeMap<(Name, i64), i64>,
}

impl Judge {
    fn submitted(&mut self, id: &WorkloadId, hours: u64, part: i64) {
        self.lengths.insert(id.clone(), i64::try_from(hours).expect("few") * HOUR * part / 100);
    }

    /// Takes note of what has started.
    fn look(&mut self, world: &World) {
        for job in world.running() {
            let id = &job.workload.id;
            if !self.runs.contains_key(id) {
                self.runs.insert(id.clone(), (world.now, job.total()));
                self.ends.insert(id.clone(), world.now.0 + self.lengths[id]);
            }
        }
    }

    /// Lets time pass, ending runs on their way.
    fn pass(&mut self, world: &mut World, to: Time, after_end: impl Fn(&mut World)) {
        loop {
            let next = self.ends.iter().map(|(id, end)| (*end, id.clone())).min();
            let deadline = world.engine.next_deadline().filter(|at| *at > world.now && *at <= to);
            let end = next.clone().map(|(end, _)| Time(end)).filter(|end| *end <= to);
            let Some(at) = [deadline, end].into_iter().flatten().min() else { break };
            self.count(world, at);
            if let Some((_, id)) = next.filter(|(end, _)| *end == at.0) {
                world.end(&id, Phase::Finished);
                self.ends.remove(&id);
                self.runs.remove(&id);
                after_end(world);
            }
            world.settle_now();
            self.look(world);
        }
        self.count(world, to);
        world.settle_now();
        self.look(world);
    }

    fn count(&mut self, world: &mut World, to: Time) {
        while world.now < to {
            let midnight = Time((world.now.0 / DAY + 1) * DAY);
            let until = midnight.min(to);
            for (id, (_, gpus)) in &self.runs {
                for team in world.path(&world.items[id].workload.team) {
                    *self.used.entry((team, world.now.0 / DAY)).or_default() +=
                        gpus * (until.0 - world.now.0);
                }
            }
            world.now = until;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Nothing is used beyond a budget that holds, if every run has a time limit, whatever the runs and their ends; and no run
    /// is evicted for a budget.
    #[test]
    fn a_budget_that_holds_is_never_exceeded_and_evicts_nothing(
        amounts in [4_i64..60, 4_i64..40, 4_i64..40],
        steps in steps(),
    ) {
        let mut world = cluster(amounts, OnExhausted::Hold);
        let mut judge = Judge::default();
        for step in steps {
            match step {
                Step::Submit(team, gpus, hours, part) => {
                    let id = submit(&mut world, TEAMS[team], "train", gpus, Some(hours));
                    judge.submitted(&id, hours, part);
                    world.settle_now();
                    judge.look(&world);
                }
                Step::Pass(minutes) => {
                    let to = Time(world.now.0 + minutes * 60_000);
                    judge.pass(&mut world, to, |world| _ = write(world));
                }
                Step::Write => _ = write(&mut world),
            }
        }
        prop_assert!(world.log.iter().all(|line| line.starts_with("Admit")), "{:#?}", world.log);
        for ((team, day), used) in &judge.used {
            let Some(budget) = world.teams[team].budget else { continue };
            let most = budget.amount.as_milli() / 1_000 * HOUR;
            // What is written is rounded down to thousandths of an hour.
            prop_assert!(*used <= most + HOUR / 50, "{team} on day {day}: {used} of {most}");
        }
        // What waits at the end has nothing left, or starts once a period has begun.
        for id in world.queued().iter().map(|job| job.workload.id.clone()).collect::<Vec<_>>() {
            prop_assert_eq!(world.reason(&id).1, Reason::BudgetSpent);
        }
    }

    /// Law 11: an engine that starts from the objects at any instant decides as the one that has run all the while, also if
    /// runs have ended since the last write of a status.
    #[test]
    fn law_11_a_new_engine_decides_as_the_old_one(
        amounts in [4_i64..60, 4_i64..40, 4_i64..40],
        hold in prop::bool::ANY,
        before in steps(),
        after in steps(),
    ) {
        let on_exhausted = if hold { OnExhausted::Hold } else { OnExhausted::BorrowOnly };
        let mut world = cluster(amounts, on_exhausted);
        let mut judge = Judge::default();
        let mut status = Vec::new();
        let mut waiting: Vec<(WorkloadId, Workload)> = Vec::new();
        for step in before {
            match step {
                Step::Submit(team, gpus, hours, part) => {
                    let id = submit(&mut world, TEAMS[team], "train", gpus, (part > 20).then_some(hours));
                    judge.submitted(&id, hours, part);
                    world.settle_now();
                    judge.look(&world);
                }
                Step::Pass(minutes) => {
                    let to = Time(world.now.0 + minutes * 60_000);
                    judge.pass(&mut world, to, |_| {});
                }
                Step::Write => status = write(&mut world),
            }
        }
        let mut old = world.engine.clone();
        world.rebuild();
        for used in status {
            world.engine.apply(Event::BudgetUsed(used), world.now);
        }
        for step in after {
            let actions = match step {
                Step::Submit(team, gpus, hours, part) => {
                    let id = submit(&mut world, TEAMS[team], "train", gpus, (part > 20).then_some(hours));
                    let workload = world.items[&id].workload.clone();
                    old.apply(Event::workload(workload.clone()), world.now);
                    waiting.push((id, workload));
                    (world.engine.plan(world.now).actions, old.plan(world.now).actions)
                }
                Step::Pass(minutes) => {
                    world.now = Time(world.now.0 + minutes * 60_000);
                    (world.engine.plan(world.now).actions, old.plan(world.now).actions)
                }
                Step::Write => continue,
            };
            prop_assert_eq!(&actions.0, &actions.1);
            for action in actions.0 {
                // Both see the write.
                if let Action::Admit { workload, admission, .. } = action {
                    let job = &world.items[&workload].workload;
                    let state = sluice_engine::types::Observed::Admitted(admission);
                    let shown = Workload { state, ..job.clone() };
                    world.engine.apply(Event::workload(shown.clone()), world.now);
                    old.apply(Event::workload(shown), world.now);
                }
            }
        }
        let reasons = |engine: &sluice_engine::Engine| -> Vec<_> {
            waiting.iter().map(|(id, _)| engine.verdict(id).map(|verdict| verdict.reason)).collect()
        };
        prop_assert_eq!(reasons(&world.engine), reasons(&old));
    }
}
