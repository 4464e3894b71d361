//! The usage of teams, worked out from the world's own state.

use std::collections::{BTreeMap, BTreeSet};

use sluice_engine::types::{Action, Name, Reason, State, WorkloadId};

use super::ops::ids;
use super::world::{Job, Phase, World};

/// GPUs in use by team, each with all teams below it.
#[derive(Clone, Debug, Default)]
pub struct Usage {
    all: BTreeMap<Name, i64>,
    /// Without what a single preemptible job uses that is larger than the team's guarantee (law 2).
    counted: BTreeMap<Name, i64>,
}

impl std::ops::Index<&Name> for Usage {
    type Output = i64;

    fn index(&self, team: &Name) -> &i64 {
        &self.all[team]
    }
}

impl Usage {
    /// No usage of any team.
    pub fn none(world: &World) -> Self {
        let none = || world.teams.keys().map(|team| (team.clone(), 0)).collect();
        Self { all: none(), counted: none() }
    }

    /// The same of some teams.
    pub fn only(&self, keep: impl Fn(&Name) -> bool) -> Self {
        let kept = |usage: &BTreeMap<Name, i64>| {
            let kept = usage.iter().filter(|(team, _)| keep(team));
            kept.map(|(team, used)| (team.clone(), *used)).collect()
        };
        Self { all: kept(&self.all), counted: kept(&self.counted) }
    }

    /// Every team with its usage.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &i64)> {
        self.all.iter()
    }

    /// The usage that counts against the guarantee of a team.
    pub fn counted(&self, team: &Name) -> i64 {
        self.counted[team]
    }
}

/// Law 2: whether a job is larger than the guarantee of a team on its path. Work that is never preempted always counts.
pub fn is_oversize(world: &World, job: &Job, team: &Name) -> bool {
    job.preemptible() && job.total() > world.guaranteed(team)
}

/// Adds GPUs to the usage of the job's team and its ancestors.
pub fn charge(world: &World, usage: &mut Usage, job: &Job, gpus: i64) {
    for team in world.path(&job.workload.team) {
        if !is_oversize(world, job, &team) {
            *usage.counted.entry(team.clone()).or_default() += gpus;
        }
        *usage.all.entry(team).or_default() += gpus;
    }
}

/// Present usage of every team, victims that still run included.
pub fn current_usage(world: &World) -> Usage {
    let mut usage = Usage::none(world);
    for (job, _) in world.admitted() {
        charge(world, &mut usage, job, job.total());
    }
    usage
}

/// Usage of every team once the evictions under way have ended and `nominated` workloads have started.
pub fn settled_usage(world: &World, nominated: &BTreeSet<WorkloadId>) -> Usage {
    let mut usage = Usage::none(world);
    let evicted = evicted_by(&world.in_flight);
    for (job, _) in world.admitted() {
        if !matches!(job.phase, Phase::Stopping(..)) && !evicted.contains(&job.workload.id) {
            charge(world, &mut usage, job, job.total());
        }
    }
    for job in nominated.iter().filter_map(|id| world.items.get(id)) {
        charge(world, &mut usage, job, job.total());
    }
    usage
}

/// The workloads that these actions evict.
pub fn evicted_by(actions: &[Action]) -> BTreeSet<WorkloadId> {
    let evictions = actions.iter().filter(|action| matches!(action, Action::Evict { .. }));
    evictions.map(|action| action.workload().clone()).collect()
}

/// Preemptors that wait for their victims to end.
pub fn nominated(world: &World) -> BTreeSet<WorkloadId> {
    let waits = |id: &WorkloadId| world.reason(id) == (State::Pending, Reason::WaitingForEviction);
    ids(world.queued()).into_iter().filter(waits).collect()
}

/// Whether the guarantees on its path hold the job with `more` GPUs on top of `usage`.
pub fn guarantees_hold(world: &World, usage: &Usage, job: &Job, more: i64) -> bool {
    world.path(&job.workload.team).iter().all(|team| usage.counted(team) + more <= world.guaranteed(team))
}
