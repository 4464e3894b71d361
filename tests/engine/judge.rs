//! What the laws allow and demand, worked out from the world's own books.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice_engine::types::{Action, EvictReason, Reason, State};
use sluice_engine::types::{Name, WorkloadId};

use super::ops::ids;
use super::world::{Item, Stage, World};

/// Law 1 as it stands now: nodes and limits hold what is held.
pub fn never_over_admitted(world: &World) -> Result<(), TestCaseError> {
    for node in world.nodes.keys() {
        prop_assert!(world.free(node) >= 0, "{node} is over-admitted:\n{}", world.log.join("\n"));
    }
    for name in world.teams.keys() {
        if let Some(limit) = world.limit(name) {
            prop_assert!(world.used(name) <= limit, "team {name} holds more than its limit of {limit}");
        }
    }
    Ok(())
}

/// The levels of a victim's team that a preemptor from another team must respect.
pub fn levels(world: &World, victim: &Item, preemptor: &Item) -> Vec<Name> {
    let above = world.path(&preemptor.workload.team);
    world.path(&victim.workload.team).into_iter().filter(|team| !above.contains(team)).collect()
}

/// Whether the guarantees on its path hold `item` once lower priorities of its team yield: then these
/// are the borrowers, and taking it for another team would only make the two take turns.
pub fn covered(world: &World, item: &Item, usage: &BTreeMap<Name, i64>, gone: &BTreeSet<WorkloadId>) -> bool {
    let yielding: i64 = world
        .running()
        .iter()
        .filter(|mate| mate.workload.team == item.workload.team && mate.preemptible())
        .filter(|mate| !gone.contains(&mate.workload.id))
        .filter(|mate| mate.workload.priority < item.workload.priority)
        .map(|mate| mate.total())
        .sum();
    world.path(&item.workload.team).iter().all(|team| usage[team] - yielding <= world.guaranteed(team))
}

/// Takes victims one by one, those that straddle last; the number that straddle, or `None` if some
/// may not be taken at all. `usage` is what every team holds for good.
pub fn take(
    world: &World,
    victims: &[&Item],
    preemptor: &Item,
    usage: &mut BTreeMap<Name, i64>,
    gone: &BTreeSet<WorkloadId>,
) -> Option<usize> {
    let mut left: Vec<&Item> = victims.to_vec();
    left.sort_by_key(|item| item.total());
    let (before, mut straddling) = (usage.clone(), 0);
    while !left.is_empty() {
        let may = |item: &Item, usage: &BTreeMap<Name, i64>, straddle: bool| {
            levels(world, item, preemptor).iter().all(|team| {
                usage[team] > world.guaranteed(team)
                    && (straddle && !covered(world, item, &before, gone)
                        || usage[team] - item.total() >= world.guaranteed(team))
            })
        };
        let next = left.iter().position(|item| may(item, usage, false)).or_else(|| {
            straddling += 1;
            left.iter().position(|item| may(item, usage, true))
        })?;
        let item = left.remove(next);
        for team in world.path(&item.workload.team) {
            *usage.entry(team).or_default() -= item.total();
        }
    }
    Some(straddling)
}

/// What every team holds once evictions under way have ended and preemptors have started.
pub fn settled_usage(world: &World, claims: &BTreeSet<WorkloadId>) -> BTreeMap<Name, i64> {
    let mut usage: BTreeMap<Name, i64> = world.teams.keys().map(|team| (team.clone(), 0)).collect();
    let stops: BTreeSet<_> = world
        .in_flight
        .iter()
        .filter(|action| matches!(action, Action::Evict { .. }))
        .map(|action| action.workload().clone())
        .collect();
    let mut add = |item: &Item| {
        for team in world.path(&item.workload.team) {
            *usage.entry(team).or_default() += item.total();
        }
    };
    for (item, _) in world.holders() {
        if !matches!(item.stage, Stage::Ending(..)) && !stops.contains(&item.workload.id) {
            add(item);
        }
    }
    claims.iter().filter_map(|id| world.items.get(id)).for_each(&mut add);
    usage
}

pub fn claims(world: &World) -> BTreeSet<WorkloadId> {
    let waits = |id: &WorkloadId| world.reason(id) == (State::Pending, Reason::WaitingForEviction);
    ids(world.queued()).into_iter().filter(waits).collect()
}

/// A share of the surplus that compares exactly: surplus ÷ weight, infinite without a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(i64, i64);

impl Ord for Share {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let infinite = |share: &Self| share.1 == 0 && share.0 > 0;
        infinite(self).cmp(&infinite(other)).then_with(|| {
            if infinite(self) {
                self.0.cmp(&other.0)
            } else {
                (self.0 * other.1.max(1)).cmp(&(other.0 * self.1.max(1)))
            }
        })
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// All shares of the surplus at that usage, the largest first.
pub fn shares(world: &World, usage: &BTreeMap<Name, i64>) -> Vec<Share> {
    let of = |(team, used): (&Name, &i64)| {
        Share((used - world.guaranteed(team)).max(0), i64::from(world.teams[team].weight))
    };
    let mut shares: Vec<Share> = usage.iter().map(of).collect();
    shares.sort_unstable_by(|left, right| right.cmp(left));
    shares
}

/// Law 3 for everything one plan decided, action by action in its order.
pub fn owners_keep_theirs(
    world: &World,
    actions: &[Action],
    mut usage: BTreeMap<Name, i64>,
    claimed: &BTreeSet<WorkloadId>,
) -> Result<(), TestCaseError> {
    let decided_before = &world.in_flight[..world.in_flight.len() - actions.len()];
    let mut gone: BTreeSet<WorkloadId> = decided_before
        .iter()
        .filter(|action| matches!(action, Action::Evict { .. }))
        .map(|action| action.workload().clone())
        .collect();
    let mut at = 0;
    while at < actions.len() {
        let preemptor = match &actions[at] {
            Action::Admit { workload, .. } => {
                at += 1;
                workload
            }
            Action::Evict { preemptor: Some(preemptor), .. } => {
                let same =
                    |a: &&Action| matches!(a, Action::Evict { preemptor: Some(c), .. } if c == preemptor);
                let decided: Vec<&Action> = actions[at..].iter().take_while(same).collect();
                at += decided.len();
                let item = &world.items[preemptor];
                // Room that was promised to the preemptor before is in the usage already.
                let more = if claimed.contains(preemptor) { 0 } else { item.total() };
                let moves = |a: &&&Action| matches!(a, Action::Evict { reason: EvictReason::Moved, .. });
                for moved in decided.iter().filter(moves).map(|a| &world.items[a.workload()]) {
                    // Only for one whom its guarantee holds as things are; and its own place is waiting.
                    let outright = world
                        .path(&item.workload.team)
                        .iter()
                        .all(|team| usage[team] + more <= world.guaranteed(team));
                    prop_assert!(
                        outright && moved.preemptible(),
                        "{} moves for {preemptor}",
                        moved.workload.id
                    );
                }
                let group: Vec<&Item> =
                    decided.iter().filter(|a| !moves(a)).map(|a| &world.items[a.workload()]).collect();
                let mut before = usage.clone();
                if claimed.contains(preemptor) {
                    for team in world.path(&item.workload.team) {
                        *before.entry(team).or_default() -= item.total();
                    }
                }
                let (own, others): (Vec<&Item>, Vec<&Item>) =
                    group.iter().partition(|victim| victim.workload.team == item.workload.team);
                for victim in &own {
                    prop_assert!(victim.workload.priority < item.workload.priority, "equal priority yielded");
                    for team in world.path(&victim.workload.team) {
                        *usage.entry(team).or_default() -= victim.total();
                    }
                }
                let straddling = take(world, &others, item, &mut usage, &gone);
                gone.extend(group.iter().map(|victim| victim.workload.id.clone()));
                let names = ids(group.clone());
                prop_assert!(
                    straddling.is_some(),
                    "{names:?} of a team within its guarantee: {usage:?}, {claimed:?}\n{}",
                    world.log.join("\n")
                );
                let path = world.path(&item.workload.team);
                let owed = path.iter().all(|team| usage[team] + more <= world.guaranteed(team));
                // Who is not owed takes from other teams only what leaves owners whole and shares fairer.
                let mut after = usage.clone();
                for team in &path {
                    *after.entry(team.clone()).or_default() += more;
                }
                let fairer = straddling == Some(0) && shares(world, &after) < shares(world, &before);
                prop_assert!(owed || others.is_empty() || fairer, "{preemptor} is not owed what it took");
                prop_assert!(group.iter().all(|victim| victim.preemptible()), "not preemptible");
                preemptor
            }
            other => return Err(TestCaseError::fail(format!("{other:?} has no cause here"))),
        };
        if !claimed.contains(preemptor) {
            for team in world.path(&world.items[preemptor].workload.team) {
                *usage.entry(team).or_default() += world.items[preemptor].total();
            }
        }
    }
    Ok(())
}

/// Whether some set of running workloads that may be taken would let `item` start.
pub fn could_be_made_room(world: &World, item: &Item) -> Option<Vec<Vec<WorkloadId>>> {
    let running: Vec<&Item> = world
        .running()
        .into_iter()
        .filter(|other| {
            let own = other.workload.team == item.workload.team;
            other.preemptible() && (!own || other.workload.priority < item.workload.priority)
        })
        .collect();
    if running.len() > 9 {
        return None;
    }
    let mut sets = Vec::new();
    for mask in 0_u32..1 << running.len() {
        let set: Vec<&Item> =
            (0..running.len()).filter(|i| mask & (1 << i) != 0).map(|i| running[i]).collect();
        let mut usage = settled_usage(world, &BTreeSet::new());
        let (own, others): (Vec<&Item>, Vec<&Item>) =
            set.iter().partition(|victim| victim.workload.team == item.workload.team);
        for victim in own {
            for team in world.path(&victim.workload.team) {
                *usage.entry(team).or_default() -= victim.total();
            }
        }
        if take(world, &others, item, &mut usage, &BTreeSet::new()).is_none() {
            continue;
        }
        let path = world.path(&item.workload.team);
        let owed = path.iter().all(|team| usage[team] + item.total() <= world.guaranteed(team));
        let capped = path.iter().any(|t| world.limit(t).is_some_and(|l| usage[t] + item.total() > l));
        if owed && !capped && world.fits_without(item, &set) {
            sets.push(set.iter().map(|victim| victim.workload.id.clone()).collect());
        }
    }
    Some(sets)
}

/// Whether a set has somebody of the preemptor's own team whom the guarantees hold beside it.
pub fn takes_mates_needlessly(world: &World, item: &Item, set: &[WorkloadId]) -> bool {
    let victims: Vec<&Item> = set.iter().map(|id| &world.items[id]).collect();
    let held = |team: &Name| {
        let gone = victims.iter().filter(|victim| world.path(&victim.workload.team).contains(team));
        world.used(team) - gone.map(|victim| victim.total()).sum::<i64>() + item.total()
    };
    victims.iter().filter(|victim| victim.workload.team == item.workload.team).any(|mate| {
        world.path(&mate.workload.team).iter().all(|team| held(team) + mate.total() <= world.guaranteed(team))
    })
}

/// What teams held before the evictions that are in flight.
pub fn settled_usage_before(world: &World) -> BTreeMap<Name, i64> {
    world.teams.keys().map(|team| (team.clone(), world.used(team))).collect()
}
