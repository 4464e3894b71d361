//! Random clusters and random sequences of operations on them. The golden file depends on every draw.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sluice_engine::types::{Event, Name, Team, Time, WorkloadId};

use super::world::{Job, Phase, World, team};

/// An operation on a cluster. Numbers select among the nodes, teams or workloads that it can apply to.
#[derive(Clone, Debug)]
pub enum Op {
    Submit {
        team: usize,
        queue: &'static str,
        priority: i32,
        pods: u32,
        gpus: i64,
    },
    Wait(i64),
    Plan,
    Deliver {
        which: usize,
        success: bool,
    },
    PodsGone(usize),
    Finish(usize),
    Delete(usize),
    UnmanagedPod {
        node: usize,
        gpus: i64,
    },
    UnmanagedPodGone(usize),
    Cordon {
        node: usize,
        open: bool,
    },
    Quota {
        team: usize,
        guaranteed: i64,
    },
    /// The process restarts. Its decisions in flight are written, or lost.
    Restart {
        written: bool,
    },
}

pub fn submit() -> impl Strategy<Value = Op> {
    let queue = prop_oneof![4 => Just("train"), 1 => Just("fixed"), 1 => Just("slow")];
    (0..3_usize, queue, -1..2_i32, 1..4_u32, 1..5_i64)
        .prop_map(|(team, queue, priority, pods, gpus)| Op::Submit { team, queue, priority, pods, gpus })
}

pub fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => submit(),
        2 => (1..90_000_i64).prop_map(Op::Wait),
        6 => Just(Op::Plan),
        8 => (0..8_usize, prop::bool::weighted(0.85))
            .prop_map(|(which, success)| Op::Deliver { which, success }),
        4 => (0..8_usize).prop_map(Op::PodsGone),
        3 => (0..8_usize).prop_map(Op::Finish),
        1 => (0..8_usize).prop_map(Op::Delete),
        1 => (0..3_usize, 1..4_i64).prop_map(|(node, gpus)| Op::UnmanagedPod { node, gpus }),
        1 => (0..3_usize).prop_map(Op::UnmanagedPodGone),
        1 => (0..3_usize, any::<bool>()).prop_map(|(node, open)| Op::Cordon { node, open }),
        1 => (0..3_usize, 0..9_i64).prop_map(|(team, guaranteed)| Op::Quota { team, guaranteed }),
        1 => any::<bool>().prop_map(|written| Op::Restart { written }),
    ]
}

/// A cluster of three teams.
#[derive(Clone, Debug)]
pub struct Setup {
    pub nodes: Vec<i64>,
    pub guarantees: [i64; 3],
    pub limits: [Option<i64>; 3],
    pub weights: [u32; 3],
    /// The guarantee of the parent of teams 0 and 1, if they have one.
    pub parent: Option<i64>,
}

pub fn setup() -> impl Strategy<Value = Setup> {
    let limit = || prop::option::weighted(0.3, 4..16_i64);
    (
        prop::collection::vec(2..9_i64, 1..4),
        [0..9_i64, 0..9_i64, 0..9_i64],
        [limit(), limit(), limit()],
        prop_oneof![2 => Just([1, 1, 1]), 1 => [0..3_u32, 0..3_u32, 0..3_u32]],
        prop::option::weighted(0.4, 0..13_i64),
    )
        .prop_map(|(nodes, guarantees, limits, weights, parent)| Setup {
            nodes,
            guarantees,
            limits,
            weights,
            parent,
        })
}

pub const TEAMS: [&str; 3] = ["a", "b", "c"];

pub fn build(setup: &Setup) -> World {
    let parent_of = |i: usize| (i < 2 && setup.parent.is_some()).then_some("top");
    let cap = |i: usize| setup.limits[i].map(|limit| limit.max(setup.guarantees[i]));
    let mut teams: Vec<_> = (0..3)
        .map(|i| Team {
            weight: setup.weights[i],
            ..team(TEAMS[i], parent_of(i), setup.guarantees[i], cap(i))
        })
        .collect();
    teams.extend(setup.parent.map(|guaranteed| team("top", None, guaranteed, None)));
    World::new(&setup.nodes, teams)
}

/// The element that a random number selects.
pub fn nth<T: Clone>(list: Vec<T>, n: usize) -> Option<T> {
    if list.is_empty() { None } else { Some(list[n % list.len()].clone()) }
}

pub fn ids(jobs: Vec<&Job>) -> Vec<WorkloadId> {
    jobs.iter().map(|job| job.workload.id.clone()).collect()
}

pub fn stopping(world: &World) -> Vec<WorkloadId> {
    let stops = |job: &&Job| matches!(job.phase, Phase::Stopping(..));
    world.items.values().filter(stops).map(|job| job.workload.id.clone()).collect()
}

/// Applies one operation; one that has nothing to apply to changes nothing.
pub fn apply(world: &mut World, op: &Op) {
    match op.clone() {
        Op::Submit { team, queue, priority, pods, gpus } => {
            world.submit(&TEAMS[team].into(), queue, priority, pods, gpus);
        }
        Op::Wait(milliseconds) => world.now = Time(world.now.0 + milliseconds),
        Op::Plan => {
            world.plan();
        }
        Op::Deliver { which, success } => {
            if !world.in_flight.is_empty() {
                world.deliver(which % world.in_flight.len(), success);
            }
        }
        Op::PodsGone(n) => {
            if let Some(id) = nth(stopping(world), n) {
                world.end(&id, Phase::Queued);
            }
        }
        Op::Finish(n) => {
            let busy: BTreeSet<_> = world.in_flight.iter().map(|a| a.workload().clone()).collect();
            let running = ids(world.running()).into_iter().filter(|id| !busy.contains(id)).collect();
            if let Some(id) = nth(running, n) {
                world.end(&id, Phase::Finished);
            }
        }
        Op::Delete(n) => {
            if let Some(id) = nth(world.items.keys().cloned().collect(), n) {
                world.delete(&id);
            }
        }
        Op::UnmanagedPod { node, gpus } => {
            if let Some(node) = nth(world.nodes.keys().cloned().collect(), node) {
                world.add_unmanaged_pod(&node, gpus);
            }
        }
        Op::UnmanagedPodGone(n) => world.remove_unmanaged_pod(n),
        Op::Cordon { node, open } => {
            if let Some(node) = nth(world.nodes.keys().cloned().collect(), node) {
                world.cordon(&node, open);
            }
        }
        Op::Quota { team, guaranteed } => {
            let name: Name = TEAMS[team].into();
            let mut changed = world.teams[&name].clone();
            if let Some(quota) = changed.quotas.get_mut("default") {
                quota.guaranteed = super::world::gpus(guaranteed);
            }
            world.teams.insert(name, changed.clone());
            world.engine.apply(Event::TeamApplied(changed), world.now);
        }
        Op::Restart { written } => {
            while written && !world.in_flight.is_empty() {
                world.deliver(0, true);
            }
            world.rebuild();
        }
    }
}

pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..60)
}

pub fn submissions(count: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(prop_oneof![6 => submit(), 1 => (1..90_000_i64).prop_map(Op::Wait)], 1..count)
}
