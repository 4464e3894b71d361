//! What of a Team's spec cannot be right: for the warnings when it is applied, and for its status.
//!
//! A fault is reported of the Team that has it and of no other. What is wrong with the amounts of several Teams together, such as
//! guarantees beyond the capacity, is decided by the engine for statuses; [`excesses`] says it of one Team as it would be. What is
//! allowed and has less effect than it seems to have is no fault, and said only when the Team is applied ([`less_than_it_seems`]).

mod excesses;
mod settings;

use std::collections::BTreeMap;

pub use excesses::excesses;
pub use settings::less_than_it_seems;

use crate::directory::Directory;
use crate::engine::types::{CURRENCY, DEFAULT_POOL, Name, Quota, Team};

/// Why a team's spec is not in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason of the Ready condition, one word in CamelCase.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: String,
}

/// A team with the PriorityClasses that its queues name.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The team.
    pub team: &'a Team,
    /// The queues and their classes.
    pub classes: &'a [(Name, Name)],
}

/// The fault in the status of a team: the first reason, and all messages.
#[must_use]
pub fn fault(name: &str, known: &Directory) -> Option<Fault> {
    let team = known.teams.get(name)?;
    let classes = known.queue_priority_classes.iter().filter(|((team, _), _)| **team == *name);
    let classes: Vec<(Name, Name)> =
        classes.map(|((_, queue), class)| (queue.clone(), class.clone())).collect();
    let all = faults(Subject { team, classes: &classes }, known);
    let reason = all.first()?.reason;
    let messages: Vec<String> = all.into_iter().map(|fault| fault.message).collect();
    Some(Fault { reason, message: messages.join(" ") })
}

/// Every fault of a team.
#[must_use]
pub fn faults(subject: Subject<'_>, known: &Directory) -> Vec<Fault> {
    let Subject { team, classes } = subject;
    let mut found: Vec<Fault> = rootless(team, known).into_iter().collect();
    for (pool, quota) in &team.quotas {
        if **pool != *DEFAULT_POOL && !known.pools.contains(pool) {
            let message = format!(
                "NodePool {pool} does not exist. The quota in it has no effect until it does.{}",
                meant(pool, known.pools.iter())
            );
            found.push(Fault { reason: "PoolNotFound", message });
            continue;
        }
        found.extend(uncounted(pool, quota, known));
        found.extend(misspelt(pool, quota, known));
        found.extend(capped(team, pool, quota, known));
    }
    let listed = |class: &Name| known.classes.as_ref().is_none_or(|classes| classes.contains_key(class));
    for (queue, class) in classes.iter().filter(|(_, class)| !listed(class)) {
        let message = format!(
            "Queue {queue} names PriorityClass {class}, which does not exist.{}",
            meant(class, known.classes.iter().flat_map(BTreeMap::keys))
        );
        found.push(Fault { reason: "PriorityClassNotFound", message });
    }
    found
}

/// A parent that does not exist, or is a descendant of the team.
fn rootless(team: &Team, known: &Directory) -> Option<Fault> {
    let name = &team.name;
    let parent_of = |of: &Name| known.teams.get(of).and_then(|team| team.parent.clone());
    let parent = team.parent.clone()?;
    if !known.teams.contains_key(&parent) && !known.unreadable_teams.contains(&parent) && parent != *name {
        let message = format!(
            "Parent {parent} does not exist. Until it does, the team has no parent.{}",
            meant(&parent, known.teams.keys())
        );
        return Some(Fault { reason: "ParentNotFound", message });
    }
    let mut above: Vec<Name> = vec![parent];
    while let Some(next) = above.last().and_then(parent_of) {
        if next == *name {
            let circle = above.join(" under ");
            let message = format!(
                "The team is its own ancestor: {name} under {circle} under {name}. The link that closes the circle is ignored."
            );
            return Some(Fault { reason: "ParentCircle", message });
        }
        if above.contains(&next) {
            break;
        }
        above.push(next);
    }
    None
}

/// A quota in the currency ([`CURRENCY`]) of a pool without weights.
fn uncounted(pool: &Name, quota: &Quota, known: &Directory) -> Option<Fault> {
    let names_it = [&quota.guaranteed, &quota.limit].iter().any(|list| list.contains_key(CURRENCY));
    (names_it && !known.weighted.contains(pool)).then(|| Fault {
        reason: "NoCurrency",
        message: format!(
            "The quota in pool {pool} names {CURRENCY}, but NodePool {pool} sets no weights. That quota has no effect until it does."
        ),
    })
}

/// Resources that no node of the pool offers while one with almost the same name is offered.
fn misspelt(pool: &Name, quota: &Quota, known: &Directory) -> Option<Fault> {
    let offered = known.offers.get(pool)?;
    let listed = quota.guaranteed.keys().chain(quota.limit.keys());
    let unknown = listed.filter(|resource| ***resource != *CURRENCY && !offered.contains_key(*resource));
    let resource = unknown
        .map(|resource| (resource, meant(resource, offered.keys())))
        .find(|(_, near)| !near.is_empty());
    let (resource, near) = resource?;
    Some(Fault {
        reason: "ResourceNotOffered",
        message: format!("No node of pool {pool} offers {resource}.{near}"),
    })
}

/// A guarantee above the limit of a team above. One above the limit beside it is refused.
fn capped(team: &Team, pool: &Name, quota: &Quota, known: &Directory) -> Option<Fault> {
    quota.guaranteed.iter().find_map(|(resource, guaranteed)| {
        let limits = ancestors(team, known).into_iter().filter_map(|above| {
            let limit = above.quotas.get(pool)?.limit.get(resource)?;
            Some((*limit, &above.name))
        });
        let (limit, above) = limits.min().filter(|(limit, _)| guaranteed > limit)?;
        let [guaranteed, limit] = [guaranteed, &limit].map(|amount| amount.quantity(resource));
        let message = format!(
            "Pool {pool}: the team is guaranteed {guaranteed} {resource}, and team {above} above it has a limit of {limit}. \
             More than that it never gets."
        );
        Some(Fault { reason: "GuaranteeAboveLimit", message })
    })
}

/// The teams above a team, the nearest first.
fn ancestors<'a>(team: &'a Team, known: &'a Directory) -> Vec<&'a Team> {
    let mut above: Vec<&Team> = Vec::new();
    let mut parent = team.parent.as_ref();
    while let Some(next) = parent.and_then(|name| known.teams.get(name)) {
        if next.name == team.name || above.iter().any(|seen| seen.name == next.name) {
            break;
        }
        above.push(next);
        parent = next.parent.as_ref();
    }
    above
}

/// The largest number of edits between a name and the one that is meant.
const NEAR: usize = 2;

/// A sentence with the name that is probably meant; empty if there is none.
#[must_use]
pub fn meant<'a>(name: &str, names: impl Iterator<Item = &'a Name>) -> String {
    let letters = |name: &str| name.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    let near = names.filter(|other| letters(other) != letters(name));
    let near = near.map(|other| (strsim::damerau_levenshtein(name, other), other));
    // Of short names almost any is near, and what differs in numbers only is another size or model.
    let nearest = near.filter(|(edits, other)| *edits <= NEAR && edits * 4 < other.len()).min();
    nearest.map(|(_, other)| format!(" Is {other} meant?")).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::api::priority::Class;
    use crate::engine::types::amount::{Amount, ResourceList};

    pub const GPU: &str = "nvidia.com/gpu";

    pub fn amounts(list: &[(&str, i64)]) -> ResourceList {
        list.iter().map(|(resource, amount)| ((*resource).into(), Amount::units(*amount))).collect()
    }

    pub fn team(name: &str, parent: Option<&str>, pool: &str, guaranteed: &[(&str, i64)]) -> Team {
        let quota = Quota { guaranteed: amounts(guaranteed), ..Quota::default() };
        Team {
            name: name.into(),
            parent: parent.map(Into::into),
            quotas: [(pool.into(), quota)].into(),
            weight: 1,
            queues: Vec::new(),
            fair_users: false,
            budget: None,
        }
    }

    pub fn known() -> Directory {
        let teams = [
            team("research", None, "default", &[(GPU, 20)]),
            team("vision", Some("research"), "default", &[(GPU, 12)]),
            team("a", Some("b"), "default", &[]),
            team("b", Some("c"), "default", &[]),
            team("c", Some("a"), "default", &[]),
        ];
        let class =
            Class { uid: "".into(), value: 1, global_default: false, preempts: false, stands_for: None };
        Directory {
            teams: teams.map(|team| (team.name.clone(), team)).into(),
            pools: ["h100".into()].into(),
            offers: [("default".into(), amounts(&[(GPU, 40), ("cpu", 64)]))].into(),
            classes: Some([("production-high".into(), class)].into()),
            ..Directory::default()
        }
    }

    fn said(team: &Team, classes: &[(Name, Name)]) -> Vec<String> {
        let known = known();
        let faults = faults(Subject { team, classes }, &known);
        faults.into_iter().map(|fault| format!("{}: {}", fault.reason, fault.message)).collect()
    }

    #[test]
    fn a_team_that_is_right_has_no_fault() {
        for name in ["research", "vision"] {
            assert_eq!(fault(name, &known()), None, "{name}");
            assert!(excesses(&known().teams[name], &known()).is_empty(), "{name}");
            assert!(less_than_it_seems(&known().teams[name], &known()).is_empty(), "{name}");
        }
        // A pool without nodes offers nothing yet.
        assert!(said(&team("x", None, "h100", &[("nvidia.com/gpus", 4)]), &[]).is_empty());
        // A kind of device, or another size of one, may come later.
        let mut known = known();
        known.offers.insert("default".into(), amounts(&[("nvidia.com/mig-1g.5gb", 4)]));
        let other = team("x", None, "default", &[("nvidia.com/mig-2g.5gb", 4)]);
        assert!(faults(Subject { team: &other, classes: &[] }, &known).is_empty());
        assert!(said(&team("x", None, "default", &[("amd.com/gpu", 4)]), &[]).is_empty());
    }

    #[test]
    fn what_cannot_be_right_is_said_with_the_name_that_is_meant() {
        for (team, said_of_it) in [
            (
                team("x", Some("reserch"), "default", &[]),
                "ParentNotFound: Parent reserch does not exist. Until it does, the team has no parent. Is research meant?",
            ),
            (
                team("x", Some("ghost"), "default", &[]),
                "ParentNotFound: Parent ghost does not exist. Until it does, the team has no parent.",
            ),
            (
                team("b", Some("c"), "default", &[]),
                "ParentCircle: The team is its own ancestor: b under c under a under b. The link that closes the circle is ignored.",
            ),
            (
                team("x", None, "a100", &[(GPU, 1)]),
                "PoolNotFound: NodePool a100 does not exist. The quota in it has no effect until it does.",
            ),
            (
                team("x", None, "default", &[("nvidia.com/gpus", 4)]),
                "ResourceNotOffered: No node of pool default offers nvidia.com/gpus. Is nvidia.com/gpu meant?",
            ),
            (
                team("x", None, "h100", &[(CURRENCY, 4)]),
                "NoCurrency: The quota in pool h100 names sluice.dev/gpu, but NodePool h100 sets no weights. That quota has no effect until it does.",
            ),
        ] {
            assert_eq!(said(&team, &[]), [said_of_it]);
        }
        let classes = [("work".into(), "production-hihg".into()), ("other".into(), "production-high".into())];
        assert_eq!(
            said(&team("x", None, "default", &[]), &classes),
            [
                "PriorityClassNotFound: Queue work names PriorityClass production-hihg, which does not exist. Is production-high meant?"
            ]
        );
    }

    #[test]
    fn a_guarantee_above_the_limit_of_a_team_above_is_a_fault_of_the_team_that_has_it() {
        let mut known = known();
        let limited = |name: &str, limit: i64| {
            let mut team = team(name, None, "default", &[]);
            team.quotas.entry("default".into()).or_default().limit = amounts(&[(GPU, limit)]);
            team
        };
        let research = Team { parent: Some("all".into()), ..limited("research", 16) };
        for team in [limited("all", 10), research] {
            known.teams.insert(team.name.clone(), team);
        }
        assert_eq!(
            fault("vision", &known).map(|fault| (fault.reason, fault.message)),
            Some((
                "GuaranteeAboveLimit",
                "Pool default: the team is guaranteed 12 nvidia.com/gpu, and team all above it has a limit of 10. More than that it never gets."
                    .to_owned()
            ))
        );
        assert_eq!(fault("research", &known), None);
        known.teams.insert("all".into(), limited("all", 12));
        assert_eq!(fault("vision", &known), None, "a guarantee up to the limit is used in full");
    }
}
