//! Guarantees of several Teams that together exceed what covers them.

use super::meant;
use crate::directory::Directory;
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{CURRENCY, Name, Team};

/// Guarantees that their parent, or the nodes, do not cover once a team is as given; one sentence for each pool.
#[must_use]
pub fn excesses(team: &Team, known: &Directory) -> Vec<String> {
    let of = |name: &Name| if *name == team.name { Some(team) } else { known.teams.get(name) };
    let parent = team.parent.as_ref().and_then(of);
    let others = known.teams.values().filter(|other| other.name != team.name);
    let mut found = Vec::new();
    for (pool, quota) in &team.quotas {
        let siblings = |parent: Option<&Name>| -> Vec<&ResourceList> {
            let of_parent = others.clone().filter(|other| match parent {
                Some(parent) => other.parent.as_ref() == Some(parent),
                None => other.parent.as_ref().is_none_or(|parent| !known.teams.contains_key(parent)),
            });
            of_parent.filter_map(|other| other.quotas.get(pool)).map(|quota| &quota.guaranteed).collect()
        };
        match parent.map(|parent| (&parent.name, parent.quotas.get(pool))) {
            Some((name, Some(above))) if !above.guaranteed.is_empty() => {
                let all: Vec<&ResourceList> =
                    siblings(Some(name)).into_iter().chain([&quota.guaranteed]).collect();
                let over = beyond(&all, &above.guaranteed, &quota.guaranteed);
                if !over.is_empty() {
                    found.push(format!(
                        "Pool {pool}: the teams below {name} are guaranteed {}. A guarantee protects only as far as the parent's.",
                        over.join(", ")
                    ));
                }
            }
            Some(_) => {}
            None => {
                let Some(offered) = known.offers.get(pool) else { continue };
                let all: Vec<&ResourceList> = siblings(None).into_iter().chain([&quota.guaranteed]).collect();
                // A misspelt resource is a fault, and said as one.
                let mut concerned = quota.guaranteed.clone();
                concerned.retain(|resource, _| {
                    offered.contains_key(resource) || meant(resource, offered.keys()).is_empty()
                });
                let over = beyond(&all, offered, &concerned);
                if !over.is_empty() {
                    found.push(format!(
                        "Pool {pool}: all teams are guaranteed {} that the nodes offer. Not all can be served at once.",
                        over.join(", ")
                    ));
                }
            }
        }
        let below = siblings(Some(&team.name));
        if !quota.guaranteed.is_empty() {
            let over = beyond(&below, &quota.guaranteed, &quota.guaranteed);
            if !over.is_empty() {
                found.push(format!(
                    "Pool {pool}: the teams below {} are guaranteed {}. A guarantee protects only as far as the parent's.",
                    team.name,
                    over.join(", ")
                ));
            }
        }
    }
    found
}

/// The resources of `concerned` of which the sum is beyond the cover, as `44 of 40 nvidia.com/gpu`, the worst first.
fn beyond(all: &[&ResourceList], cover: &ResourceList, concerned: &ResourceList) -> Vec<String> {
    let mut found: Vec<(Amount, Amount, &Name)> = Vec::new();
    for resource in concerned.keys().filter(|resource| ***resource != *CURRENCY) {
        let amounts = all.iter().filter_map(|list| list.get(resource));
        let sum = amounts.fold(Amount::ZERO, |sum, amount| sum + *amount);
        let covered = cover.get(resource).copied().unwrap_or_default();
        if sum > covered {
            found.push((sum, covered, resource));
        }
    }
    found.sort_by(|a, b| {
        let [left, right] = [(a, b), (b, a)]
            .map(|(one, other)| i128::from(one.0.as_milli()) * i128::from(other.1.as_milli()));
        right.cmp(&left)
    });
    let text = |(sum, covered, resource): (Amount, Amount, &Name)| {
        format!("{} of {} {resource}", sum.quantity(resource), covered.quantity(resource))
    };
    found.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::tests::{GPU, known, team};

    #[test]
    fn guarantees_beyond_their_cover_are_said_of_the_team_that_is_applied() {
        let text = |team: &Team| excesses(team, &known()).join("\n");
        let child = text(&team("new", Some("research"), "default", &[(GPU, 10)]));
        assert!(
            child.starts_with(
                "Pool default: the teams below research are guaranteed 22 of 20 nvidia.com/gpu."
            ),
            "{child}"
        );
        let parent = text(&team("research", None, "default", &[(GPU, 4)]));
        assert!(
            parent.starts_with("Pool default: the teams below research are guaranteed 12 of 4"),
            "{parent}"
        );
        let root = text(&team("new", None, "default", &[("cpu", 70), (GPU, 120)]));
        assert!(
            root.contains("guaranteed 140 of 40 nvidia.com/gpu, 70 of 64 cpu that the nodes offer"),
            "{root}"
        );
    }
}
