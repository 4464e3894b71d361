//! The totals that the state maintains equal the totals computed from scratch.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::state::quotas::Hypothetical;
use crate::state::totals::{Contribution, UsageTotals};
use crate::state::workload::Phase;
use crate::types::amount::{Amount, ResourceList};
use crate::types::ids::{PoolId, Priority, TeamId};
use crate::types::vector::{UNOFFERED, Vector};
use crate::types::{
    Admission, DEFAULT_POOL, Event, Name, Node, Observed, Pod, PodId, PodShape, Queue, Quota, Replacement,
    State, Team, Time, Unadmitted, Workload, WorkloadId,
};

const GPU: &str = "example.com/gpu";

#[derive(Clone, Debug)]
enum Step {
    /// A workload is observed: waiting, admitted, stopping or gone.
    Seen { number: u8, team: u8, priority: i32, pods: u32, stage: u8 },
    /// It is raised before the other workloads of its team, or no longer.
    Raised { number: u8, raised: bool },
    /// The engine decides to start it.
    Decided { number: u8, at: i64 },
    /// A team changes its guarantee, or whether the workloads of its queue are preemptible.
    Team { team: u8, guaranteed: i64, preemptible: bool, below: bool },
    /// A node changes its capacity.
    Node { gpus: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_u8, 0..3_u8, 0..3_i32, 1..4_u32, 0..5_u8).prop_map(|(number, team, priority, pods, stage)| {
            Step::Seen { number, team, priority, pods, stage }
        }),
        2 => (0..6_u8, any::<bool>()).prop_map(|(number, raised)| Step::Raised { number, raised }),
        2 => (0..6_u8, 0..50_i64).prop_map(|(number, at)| Step::Decided { number, at }),
        2 => (0..3_u8, 0..6_i64, any::<bool>(), any::<bool>())
            .prop_map(|(team, guaranteed, preemptible, below)| Step::Team { team, guaranteed, preemptible, below }),
        1 => (0..9_i64).prop_map(|gpus| Step::Node { gpus }),
    ]
}

fn gpus(count: i64) -> ResourceList {
    ResourceList::from([(GPU.into(), Amount::units(count))])
}

fn team_name(team: u8) -> Name {
    format!("t{team}").into()
}

fn id(number: u8) -> WorkloadId {
    WorkloadId(format!("w{number}").into())
}

fn admission(pods: u32, at: i64) -> Admission {
    let nodes = BTreeMap::from([("n".into(), pods)]);
    Admission {
        pool: DEFAULT_POOL.into(),
        nodes,
        pods,
        borrowed: false,
        share: None,
        spared: false,
        unfunded: false,
        at: Time(at),
    }
}

fn carry_out(state: &mut ClusterState, step: Step, now: i64) {
    match step {
        Step::Seen { number, team, priority, pods, stage } => {
            let observed = match stage {
                0 => Observed::Queued,
                1 | 2 => Observed::Admitted(admission(pods, now)),
                3 => Observed::Leaving { admission: admission(pods, now), since: Time(now), stopped: false },
                _ => {
                    state.apply(Event::WorkloadRemoved(id(number)));
                    return;
                }
            };
            let shape = PodShape { requests: gpus(i64::from(number % 2) + 1), ..PodShape::default() };
            let name: Name = format!("w{number}").into();
            let job = Workload::job(&team_name(team), &name, pods, shape, Time(0));
            let (min_pods, resizable) = (Some(1), number % 3 == 0);
            let job = Workload { id: id(number), priority, min_pods, resizable, state: observed, ..job };
            state.apply(Event::workload(job));
        }
        Step::Raised { number, raised } => state.raise(&id(number), raised),
        Step::Decided { number, at } => {
            if state.get(&id(number)).is_some_and(|info| info.phase == Phase::Pending) {
                state.set_phase(&id(number), Phase::Starting(admission(1, at)));
            }
        }
        Step::Team { team, guaranteed, preemptible, below } => {
            let quota = Quota { guaranteed: gpus(guaranteed), ..Quota::default() };
            state.apply(Event::TeamApplied(Team {
                name: team_name(team),
                parent: (below && team > 0).then(|| team_name(team - 1)),
                quotas: BTreeMap::from([(DEFAULT_POOL.into(), quota)]),
                weight: u32::from(team),
                queues: vec![Queue { preemptible, ..Queue::fallback() }],
                fair_users: false,
                budget: None,
            }));
        }
        Step::Node { gpus: count } => {
            let node = crate::types::Node {
                name: "n".into(),
                labels: BTreeMap::new(),
                allocatable: gpus(count),
                taints: Vec::new(),
                schedulable: true,
                unreachable: None,
            };
            state.apply(Event::NodeApplied(node));
        }
    }
}

/// Everything that the totals report about a team.
fn reported(
    state: &ClusterState,
    totals: &UsageTotals,
    pool: PoolId,
    team: TeamId,
) -> impl PartialEq + std::fmt::Debug {
    let amounts = |sum: Vector| -> Vec<(usize, i64)> { sum.nonzero().collect() };
    let below = (0..4).map(|priority| {
        let priority = Priority { queue: 0, class: priority };
        let all = amounts(totals.running_below(pool, team, priority));
        (all, amounts(totals.evictable_below(pool, team, priority)))
    });
    let reclaimable: Vec<WorkloadId> = totals.reclaimable(pool, team).map(|(id, _)| id.clone()).collect();
    let parts: Vec<Vec<(usize, i64)>> =
        totals.parts(pool, team).map(|part| part.nonzero().collect()).collect();
    let name = state.quotas.team(team).name.clone();
    (name, totals.lowest(pool, team), totals.count(pool, team), reclaimable, parts, below.collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn totals_equal_totals_computed_from_scratch(steps in prop::collection::vec(step(), 1..40)) {
        let mut state = ClusterState::default();
        for (now, step) in steps.into_iter().enumerate() {
            carry_out(&mut state, step, i64::try_from(now).unwrap_or(0));
            let mut computed = UsageTotals::default();
            for contribution in state.iter().filter_map(|info| Contribution::of(info, state.priority_of(info), state.preemptible(info))) {
                computed.add(&contribution);
            }
            let teams: Vec<TeamId> = state.quotas.teams().map(|(team, _)| team).collect();
            let pools: Vec<PoolId> = state.quotas.pools().map(|(_, pool)| pool).collect();
            for (pool, team) in pools.iter().flat_map(|pool| teams.iter().map(move |team| (*pool, *team))) {
                prop_assert_eq!(reported(&state, &state.totals, pool, team), reported(&state, &computed, pool, team));
                let nothing = Vector::default();
                let share = state.quotas.level_share(pool, team, Some(&nothing));
                prop_assert_eq!(state.quotas.level_share(pool, team, None), share);
                let beyond = state.quotas.quota_usage(pool, team).would_be_beyond_guarantee(&nothing);
                let levels = || std::iter::once(team);
                prop_assert_eq!(state.quotas.each_beyond_guarantee(pool, levels(), &Hypothetical::new()), beyond);
            }
        }
    }
}

#[test]
fn the_last_pods_of_a_finished_workload_hold_what_they_were_granted() {
    let mut state = ClusterState::default();
    let (team, pod): (Name, PodId) = ("a".into(), PodId("p".into()));
    carry_out(&mut state, Step::Node { gpus: 4 }, 0);
    let job = |observed, requests| {
        let shape = PodShape { requests, ..PodShape::default() };
        Workload { state: observed, ..Workload::job(&team, &"x".into(), 1, shape, Time(0)) }
    };
    let admitted = job(Observed::Admitted(admission(1, 0)), gpus(3));
    let holder = admitted.id.clone();
    state.apply(Event::workload(admitted));
    let bound = Pod {
        id: pod.clone(),
        workload: Some(holder.clone()),
        node: Some("n".into()),
        requests: gpus(3),
        profile: None,
        unadmitted: None,
    };
    state.apply(Event::PodApplied(bound));
    let held = |state: &ClusterState| {
        let node = state.nodes.find(&"n".into()).map(|node| state.nodes.get(node)).expect("a node");
        node.holds.values().flat_map(|hold| hold.need.nonzero().collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let before = held(&state);
    assert!(before.iter().any(|(_, milli)| *milli == 3000), "{before:?}");
    // Its object no longer names what it asks for.
    state.apply(Event::workload(job(Observed::Finished, ResourceList::new())));
    assert_eq!(held(&state), before);
    state.apply(Event::PodRemoved(pod));
    assert_eq!(held(&state), []);
}

#[test]
fn a_resource_that_only_requests_name_costs_no_number() {
    let mut state = ClusterState::default();
    let known = state.resources.count();
    let made_up: ResourceList =
        (0..20_000).map(|index| (format!("x.y/r{index}").into(), Amount::units(1))).collect();
    let shape = PodShape { requests: made_up, ..PodShape::default() };
    let team: Name = "a".into();
    for name in ["x", "y"] {
        state.apply(Event::workload(Workload::job(&team, &name.into(), 1, shape.clone(), Time(0))));
        let id = WorkloadId(format!("a/{name}").into());
        assert!(state.get(&id).expect("it is known").need.len() <= UNOFFERED + 1);
    }
    let pod = Pod {
        id: PodId("p".into()),
        workload: None,
        node: Some("n".into()),
        requests: [("x.y/r7".into(), Amount::units(2))].into(),
        profile: None,
        unadmitted: None,
    };
    state.apply(Event::PodApplied(pod));
    assert_eq!(state.resources.count(), known);

    // A node offers one of them: the pod on it counts, and a workload that asks for no other can start.
    let one = PodShape { requests: [("x.y/r7".into(), Amount::units(1))].into(), ..PodShape::default() };
    state.apply(Event::workload(Workload::job(&team, &"z".into(), 1, one, Time(0))));
    let id = WorkloadId("a/z".into());
    assert_eq!(state.get(&id).expect("it is known").need.get(UNOFFERED), 1000);
    state.apply(Event::NodeApplied(Node {
        name: "n".into(),
        labels: BTreeMap::new(),
        allocatable: [("x.y/r7".into(), Amount::units(4))].into(),
        taints: Vec::new(),
        schedulable: true,
        unreachable: None,
    }));
    let index = state.resources.find("x.y/r7").expect("a node offers it");
    let info = state.get(&id).expect("it is known");
    assert_eq!((info.need.get(UNOFFERED), info.need.get(index)), (0, 1000));
    let node = state.nodes.find(&"n".into()).expect("it is known");
    assert_eq!(state.nodes.get(node).now().amounts().get(index), 2000, "two are held by the pod");
    let others = state.get(&WorkloadId("a/x".into())).expect("it is known");
    assert_eq!(others.need.get(UNOFFERED), 1000, "no node offers the rest");
}

/// A node offers, two teams are promised, and their pods hold all that an amount can say.
#[test]
fn sums_of_absurd_amounts_are_the_nearest_amount() {
    let mut engine = crate::Engine::new();
    let all = || ResourceList::from([(GPU.into(), Amount::units(i64::MAX / 1000))]);
    let less = ResourceList::from([(GPU.into(), Amount::units(1))]);
    let node = |n: u32| Node {
        name: format!("n{n}").into(),
        labels: BTreeMap::new(),
        allocatable: all(),
        taints: Vec::new(),
        schedulable: true,
        unreachable: None,
    };
    (0..2).for_each(|n| engine.apply(Event::NodeApplied(node(n)), Time(0)));
    for (name, parent) in [("top", None), ("one", Some("top")), ("two", Some("top"))] {
        let quota = Quota { guaranteed: all(), limit: all(), lendable: less.clone() };
        engine.apply(
            Event::TeamApplied(Team {
                name: name.into(),
                parent: parent.map(Into::into),
                quotas: BTreeMap::from([(DEFAULT_POOL.into(), quota)]),
                weight: 1,
                fair_users: false,
                budget: None,
                queues: vec![Queue { limit: all(), ..Queue::fallback() }],
            }),
            Time(0),
        );
    }
    for (n, team) in ["one", "one", "two"].into_iter().enumerate() {
        let facts = Unadmitted {
            team: team.into(),
            namespace: team.into(),
            name: format!("p{n}").into(),
            created: Time(0),
            owner: None,
            replacement: Replacement::Held,
            adopted: false,
            ending: false,
        };
        engine.apply(
            Event::PodApplied(Pod {
                id: PodId(format!("p{n}").into()),
                workload: None,
                node: Some(format!("n{}", n % 2).into()),
                requests: all(),
                profile: None,
                unadmitted: Some(Box::new(facts)),
            }),
            Time(0),
        );
    }
    let some = PodShape { requests: [(GPU.into(), Amount::units(8))].into(), ..PodShape::default() };
    for team in ["one", "two"] {
        let job = Workload::job(&team.into(), &"j".into(), 2, some.clone(), Time(0));
        engine.apply(Event::workload(job), Time(0));
    }
    let plan = engine.plan(Time(5_000));
    assert!(!plan.actions.is_empty(), "what exceeds the limits is evicted");
    for index in 0..3 {
        assert!(!engine.teams().is_empty() && !engine.nodes().is_empty());
        engine.apply(Event::PodRemoved(PodId(format!("p{index}").into())), Time(6_000));
        engine.plan(Time(6_000 + index));
    }
    let two = engine.verdict(&WorkloadId("two/j".into())).expect("it is known");
    assert_eq!(two.state, State::Running, "{two:?}");
}

/// A parent and its child both ask for all that an amount can say.
#[test]
fn a_workload_that_asks_for_more_than_can_be_counted_waits_and_stops_no_other() {
    let mut engine = crate::Engine::new();
    let team = |name: &str, parent: Option<&str>| {
        let guaranteed = ResourceList::from([(GPU.into(), Amount::units(4))]);
        let quota = Quota { guaranteed, ..Quota::default() };
        let quotas = BTreeMap::from([(DEFAULT_POOL.into(), quota)]);
        Event::TeamApplied(Team {
            name: name.into(),
            parent: parent.map(Into::into),
            quotas,
            weight: 1,
            fair_users: false,
            budget: None,
            queues: vec![Queue::fallback()],
        })
    };
    engine.apply(team("top", None), Time(0));
    engine.apply(team("below", Some("top")), Time(0));
    let absurd = PodShape { requests: [(GPU.into(), Amount::units(1 << 46))].into(), ..PodShape::default() };
    for (name, pods) in [("top", 10_000), ("below", 10_000), ("below", 15)] {
        let name: Name = name.into();
        let job: Name = format!("j{pods}").into();
        engine.apply(Event::workload(Workload::job(&name, &job, pods, absurd.clone(), Time(0))), Time(0));
    }
    assert!(engine.plan(Time(0)).actions.is_empty());
    assert!(!engine.teams().is_empty());
    let reason = |id: &str| engine.verdict(&WorkloadId(id.into())).expect("it is known").reason;
    assert_eq!(reason("top/j10000"), crate::types::Reason::Uncounted);
    assert_ne!(reason("below/j15"), crate::types::Reason::Uncounted);
}
