//! Checks that the Teams and NodePools that a Team names are there at some time of the scenario.
//!
//! A cluster accepts a Team that names others, and its status says that it is not Ready (`ParentNotFound`, `ParentCircle`,
//! `PoolNotFound`): the others may come later. A scenario has every object that ever comes.

use std::collections::{BTreeMap, BTreeSet};

use super::snapshot::Snapshot;
use crate::engine::types::DEFAULT_POOL;
use crate::scenario::{Change, Kind, Scenario, ScenarioError};

/// The field that names the parent of a Team.
const PARENT: &str = "spec.parent";

/// Checks the Teams of a scenario that is played on top of a snapshot, if there is one. What a snapshot itself lacks is no
/// error: it is a cluster as it was.
///
/// # Errors
/// The first parent or pool that is never there, or the first parent below its own child.
pub fn check(snapshot: Option<&Snapshot>, scenario: &Scenario) -> Result<(), ScenarioError> {
    let teams = names(snapshot, scenario, Kind::Team);
    let pools = names(snapshot, scenario, Kind::NodePool);
    for team in scenario.objects().filter(|object| object.kind == Kind::Team) {
        let spec = &team.manifest["spec"];
        if let Some(parent) = spec["parent"].as_str().filter(|parent| !teams.contains(parent)) {
            return Err(team.invalid(PARENT, format!("there is no Team {parent:?}")));
        }
        for (index, quota) in spec["quotas"].as_array().into_iter().flatten().enumerate() {
            let named = quota["pool"].as_str().filter(|pool| *pool != DEFAULT_POOL);
            if let Some(pool) = named.filter(|pool| !pools.contains(pool)) {
                let field = format!("spec.quotas[{index}].pool");
                return Err(team.invalid(&field, format!("there is no NodePool {pool:?}")));
            }
        }
    }
    check_circles(snapshot, scenario)
}

/// The names of all objects of a kind.
fn names<'a>(snapshot: Option<&'a Snapshot>, scenario: &'a Scenario, kind: Kind) -> BTreeSet<&'a str> {
    let dumped = snapshot.into_iter().flat_map(|snapshot| &snapshot.objects);
    let dumped = dumped.filter(|(_, other, _)| *other == kind);
    let dumped = dumped.filter_map(|(_, _, object)| object["metadata"]["name"].as_str());
    let applied = scenario.objects().filter(|object| object.kind == kind);
    dumped.chain(applied.map(|object| object.name.as_str())).collect()
}

/// Checks that no Team is its own ancestor once all objects of an instant are applied.
fn check_circles(snapshot: Option<&Snapshot>, scenario: &Scenario) -> Result<(), ScenarioError> {
    let dumped = snapshot.into_iter().flat_map(|snapshot| &snapshot.objects);
    let dumped = dumped.filter(|(_, kind, _)| *kind == Kind::Team);
    let mut parents: BTreeMap<&str, &str> = dumped
        .filter_map(|(_, _, team)| {
            Some((team["metadata"]["name"].as_str()?, team["spec"]["parent"].as_str()?))
        })
        .collect();
    for steps in scenario.steps.chunk_by(|one, other| one.at == other.at) {
        let mut applied = Vec::new();
        for step in steps.iter().filter(|step| step.change.object().kind == Kind::Team) {
            let team = step.change.object();
            let is_applied = matches!(step.change, Change::Apply(_));
            match team.manifest["spec"]["parent"].as_str().filter(|_| is_applied) {
                Some(parent) => _ = parents.insert(&team.name, parent),
                None => _ = parents.remove(team.name.as_str()),
            }
            applied.push(team);
        }
        for team in applied {
            let name = team.name.as_str();
            // A Team that names itself has an error of its own.
            let Some(parent) = parents.get(name).filter(|parent| **parent != name) else { continue };
            let ancestors = std::iter::successors(Some(*parent), |above| parents.get(above).copied());
            if ancestors.take(parents.len()).any(|ancestor| ancestor == name) {
                let message = format!("{parent:?} is below {name:?}, and no Team is its own ancestor");
                return Err(team.invalid(PARENT, message));
            }
        }
    }
    Ok(())
}
