//! Faults of a team: why its quota is not in effect as specified.

use super::reduce::team::{PoolSeen, TeamSeen};
use super::table::Table;
use crate::engine::types::{CURRENCY, Name, Quota};

/// Why a team's spec is not in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The reason of the Ready condition, one word in CamelCase.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: String,
}

/// The fault of a team; `None` when its whole spec is in effect.
#[must_use]
pub fn fault(name: &str, teams: &Table<TeamSeen>, pools: &Table<PoolSeen>) -> Option<Fault> {
    unreadable(name, teams).or_else(|| rootless(name, teams)).or_else(|| uncounted(name, teams, pools))
}

fn unreadable(name: &str, teams: &Table<TeamSeen>) -> Option<Fault> {
    let flaw = teams.flaw(name)?;
    let instead = match teams.get(name) {
        Some(_) => "The last readable version stays in effect.",
        None => "The team has no quota.",
    };
    Some(Fault {
        reason: "Unreadable",
        message: format!("Cannot read the spec: {}. {instead}", flaw.problem),
    })
}

/// A quota in the currency ([`CURRENCY`]) of a pool without weights.
fn uncounted(name: &str, teams: &Table<TeamSeen>, pools: &Table<PoolSeen>) -> Option<Fault> {
    let names_it =
        |quota: &Quota| [&quota.guaranteed, &quota.limit].iter().any(|list| list.contains_key(CURRENCY));
    let weighs = |pool: &Name| pools.get(pool).is_some_and(|seen| !seen.pool.weights.is_empty());
    let quotas = &teams.get(name)?.team.quotas;
    let (pool, _) = quotas.iter().find(|(pool, quota)| names_it(quota) && !weighs(pool))?;
    let message = format!(
        "The quota in pool {pool} names {CURRENCY}, but NodePool {pool} sets no weights. That quota has no effect until it does."
    );
    Some(Fault { reason: "NoCurrency", message })
}

/// A parent that does not exist, or is a descendant of the team.
fn rootless(name: &str, teams: &Table<TeamSeen>) -> Option<Fault> {
    let parent_of = |name: &str| teams.get(name).and_then(|seen| seen.team.parent.clone());
    let parent = parent_of(name)?;
    if teams.get(&parent).is_none() && teams.flaw(&parent).is_none() {
        let message = format!("Parent {parent} does not exist. Until it does, the team has no parent.");
        return Some(Fault { reason: "ParentNotFound", message });
    }
    let mut above: Vec<Name> = vec![parent];
    while let Some(next) = above.last().and_then(|last| parent_of(last)) {
        if *next == *name {
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

#[cfg(test)]
mod tests {
    use super::super::table::{Flaw, Seen};
    use super::*;
    use crate::engine::types::{Pool, Queue, Team};

    fn seen(name: &str, parent: Option<&str>) -> Seen<TeamSeen> {
        let team = Team {
            name: name.into(),
            parent: parent.map(Into::into),
            quotas: [].into(),
            weight: 1,
            queues: vec![Queue::fallback()],
            fair_users: false,
        };
        Seen::Object(
            name.into(),
            TeamSeen {
                team,
                classes: Vec::new(),
                graces: Vec::new(),
                notify: Vec::new(),
                generation: Some(1),
                version: 1,
                past: None,
            },
        )
    }

    #[test]
    fn a_spec_that_is_not_in_effect_has_a_fault() {
        let flaw =
            || Flaw { generation: Some(2), version: 0, problem: "spec.weight: must not be negative".into() };
        let mut teams = Table::default();
        for one in [
            seen("research", None),
            seen("vision", Some("research")),
            seen("orphan", Some("ghost")),
            seen("a", Some("b")),
            seen("b", Some("c")),
            seen("c", Some("a")),
            seen("below", Some("a")),
            seen("changed", None),
            Seen::Unreadable("changed".into(), flaw()),
            Seen::Unreadable("broken".into(), flaw()),
            seen("mended", Some("broken")),
            Seen::Unreadable("mended".into(), flaw()),
            seen("mended", Some("broken")),
        ] {
            teams.take(one);
        }
        let pools = Table::default();
        let found = |name: &str| fault(name, &teams, &pools).map(|fault| (fault.reason, fault.message));
        for sound in ["research", "vision", "below", "mended"] {
            assert_eq!(found(sound), None, "{sound}");
        }
        for (name, reason, message) in [
            (
                "orphan",
                "ParentNotFound",
                "Parent ghost does not exist. Until it does, the team has no parent.",
            ),
            (
                "b",
                "ParentCircle",
                "The team is its own ancestor: b under c under a under b. The link that closes the circle is ignored.",
            ),
            (
                "changed",
                "Unreadable",
                "Cannot read the spec: spec.weight: must not be negative. The last readable version stays in effect.",
            ),
            (
                "broken",
                "Unreadable",
                "Cannot read the spec: spec.weight: must not be negative. The team has no quota.",
            ),
        ] {
            assert_eq!(found(name), Some((reason, message.to_owned())), "{name}");
        }
    }

    #[test]
    fn a_currency_needs_weights() {
        let amount = crate::engine::types::amount::Amount::units(8);
        let quota = Quota { guaranteed: [(CURRENCY.into(), amount)].into(), ..Quota::default() };
        let mut teams = Table::default();
        let mut team = match seen("vision", None) {
            Seen::Object(_, seen) => seen,
            other => panic!("not a team: {other:?}"),
        };
        team.team.quotas = [("h100".into(), quota)].into();
        teams.take(Seen::Object("vision".into(), team));
        let mut pools = Table::default();
        let mut pool = |weights: &[&str]| {
            let pool = Pool {
                name: "h100".into(),
                node_selector: [].into(),
                topology: Vec::new(),
                weights: weights.iter().map(|resource| ((*resource).into(), amount)).collect(),
            };
            pools.take(Seen::Object("h100".into(), PoolSeen { pool, shares: [].into(), generation: None }));
            fault("vision", &teams, &pools).map(|fault| fault.reason)
        };
        assert_eq!(pool(&[]), Some("NoCurrency"));
        assert_eq!(pool(&["nvidia.com/gpu"]), None);
    }
}
