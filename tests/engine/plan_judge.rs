//! The judge of law 3 for a whole plan: follows the usage of teams from action to action, and asks before each eviction
//! whether the guarantees of its victims allow it.

use std::collections::BTreeSet;

use proptest::prelude::*;
use sluice_engine::types::{Action, EvictReason, WorkloadId};

use super::judge::{Against, are_exchanged, are_exchanged_in_full, evict_from, fair_shares};
use super::ops::ids;
use super::usage::{Usage, charge, evicted_by, guarantees_hold, nominated};
use super::world::{Job, World};

/// Preemptors that were nominated before the plan and still are, or that the plan started, and those that the plan
/// nominated to capacity that comes free anyway. A nomination that the plan gave up counts for nothing.
pub fn nominations_kept(
    world: &World,
    before: BTreeSet<WorkloadId>,
    actions: &[Action],
) -> BTreeSet<WorkloadId> {
    let now = nominated(world);
    let is_acted_on = |id: &WorkloadId| actions.iter().any(|action| action.workload() == id);
    let preempts = |id: &WorkloadId| {
        let preemptors = actions.iter().filter_map(|action| match action {
            Action::Evict { preemptor, .. } => preemptor.as_ref(),
            _ => None,
        });
        preemptors.into_iter().any(|preemptor| preemptor == id)
    };
    let kept: BTreeSet<WorkloadId> =
        before.iter().filter(|id| now.contains(*id) || is_acted_on(id)).cloned().collect();
    let new = now.into_iter().filter(|id| !before.contains(id) && !preempts(id));
    kept.into_iter().chain(new).collect()
}

/// Law 3 for all that one plan decided, action by action in its order. `usage` is the settled usage before
/// the plan.
pub fn owners_keep_theirs(
    world: &World,
    actions: &[Action],
    mut usage: Usage,
    nominated: &BTreeSet<WorkloadId>,
) -> Result<(), TestCaseError> {
    for job in nominated.iter().filter_map(|id| world.items.get(id)) {
        charge(world, &mut usage, job, job.total());
    }
    let decided_before = &world.in_flight[..world.in_flight.len() - actions.len()];
    let mut judge = PlanJudge { world, usage, nominated, evicted: evicted_by(decided_before) };
    for step in actions.chunk_by(have_one_preemptor) {
        let started = match &step[0] {
            Action::Admit { workload, .. } => workload,
            Action::Evict { preemptor: Some(preemptor), .. } => {
                judge.evictions_are_allowed(preemptor, step)?;
                preemptor
            }
            other => return Err(TestCaseError::fail(format!("{other:?} has no cause here"))),
        };
        let job = &world.items[started];
        let more = judge.not_yet_charged(job);
        charge(world, &mut judge.usage, job, more);
    }
    Ok(())
}

/// Whether both actions are evictions for the same preemptor.
fn have_one_preemptor(left: &Action, right: &Action) -> bool {
    let preemptor = |action: &Action| match action {
        Action::Evict { preemptor, .. } => preemptor.clone(),
        _ => None,
    };
    preemptor(left).is_some() && preemptor(left) == preemptor(right)
}

fn is_move(action: &Action) -> bool {
    matches!(action, Action::Evict { reason: EvictReason::Moved, .. })
}

/// Follows one plan through the usage of teams.
struct PlanJudge<'a> {
    world: &'a World,
    /// Settled usage after the actions judged so far; nominated preemptors are charged from the start.
    usage: Usage,
    nominated: &'a BTreeSet<WorkloadId>,
    evicted: BTreeSet<WorkloadId>,
}

impl PlanJudge<'_> {
    /// GPUs of a starting job that the usage does not include yet.
    fn not_yet_charged(&self, job: &Job) -> i64 {
        if self.nominated.contains(&job.workload.id) { 0 } else { job.total() }
    }

    /// Judges all evictions of a plan for one preemptor and takes the victims off the usage.
    fn evictions_are_allowed(
        &mut self,
        preemptor: &WorkloadId,
        evictions: &[Action],
    ) -> Result<(), TestCaseError> {
        let world = self.world;
        let preemptor = &world.items[preemptor];
        let (moves, evictions): (Vec<&Action>, Vec<&Action>) = evictions.iter().partition(|a| is_move(a));
        self.moves_are_allowed(preemptor, &moves)?;
        let victims: Vec<&Job> = evictions.iter().map(|action| &world.items[action.workload()]).collect();
        prop_assert!(victims.iter().all(|victim| victim.preemptible()), "a victim is not preemptible");
        let (siblings, others): (Vec<&Job>, Vec<&Job>) =
            victims.iter().partition(|victim| victim.workload.team == preemptor.workload.team);

        let more = self.not_yet_charged(preemptor);
        let mut before = self.usage.clone();
        charge(world, &mut before, preemptor, more - preemptor.total());
        let usage = self.usage.clone();
        self.evict_siblings(preemptor, &siblings)?;
        let mut without = self.usage.clone();
        for victim in &others {
            charge(world, &mut without, victim, -victim.total());
        }
        let against = match guarantees_hold(world, &without, preemptor, more) {
            true => Against::Guaranteed,
            false => Against::Borrower,
        };
        let below_guarantee = self.evict_others(preemptor, &others, against)?;
        let usages = [&usage, &self.usage];
        let is_exchange = match below_guarantee {
            0 => are_exchanged(world, preemptor, &victims, usages, more),
            _ => are_exchanged_in_full(world, preemptor, usages, more),
        };
        self.evicted.extend(ids(victims));
        let mut after = self.usage.clone();
        charge(world, &mut after, preemptor, more);

        let within_guarantee = guarantees_hold(world, &self.usage, preemptor, more);
        let is_fairer = below_guarantee == 0 && fair_shares(world, &after) < fair_shares(world, &before);
        prop_assert!(
            within_guarantee || others.is_empty() || is_fairer || is_exchange,
            "{} borrows, and its evictions make shares no fairer: {before:?}, {after:?}\n{}",
            preemptor.workload.id,
            world.log.join("\n")
        );
        Ok(())
    }

    /// Within a team only lower priority is preempted.
    fn evict_siblings(&mut self, preemptor: &Job, siblings: &[&Job]) -> Result<(), TestCaseError> {
        for victim in siblings {
            let is_lower = victim.workload.priority < preemptor.workload.priority;
            prop_assert!(is_lower, "a sibling of equal or higher priority is evicted");
            charge(self.world, &mut self.usage, victim, -victim.total());
        }
        Ok(())
    }

    /// A team within its guarantee loses nothing. Returns how many victims fall below their guarantee.
    fn evict_others(
        &mut self,
        preemptor: &Job,
        others: &[&Job],
        against: Against,
    ) -> Result<usize, TestCaseError> {
        evict_from(self.world, others, preemptor, against, &mut self.usage, &self.evicted).ok_or_else(|| {
            TestCaseError::fail(format!(
                "one of {:?} is of a team within its guarantee: {:?}, {:?}\n{}",
                ids(others.to_vec()),
                self.usage,
                self.nominated,
                self.world.log.join("\n")
            ))
        })
    }

    /// A workload continues elsewhere only for a preemptor that its guarantee holds without any eviction.
    fn moves_are_allowed(&self, preemptor: &Job, moves: &[&Action]) -> Result<(), TestCaseError> {
        let within_guarantee =
            guarantees_hold(self.world, &self.usage, preemptor, self.not_yet_charged(preemptor));
        for moved in moves.iter().map(|action| &self.world.items[action.workload()]) {
            prop_assert!(
                within_guarantee && moved.preemptible(),
                "{} moves for {}",
                moved.workload.id,
                preemptor.workload.id
            );
        }
        Ok(())
    }
}
