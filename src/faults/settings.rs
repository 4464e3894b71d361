//! Settings of a Team that are allowed, and have less effect than they seem to have.

use std::collections::BTreeSet;

use super::ancestors;
use crate::directory::Directory;
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{CURRENCY, DEFAULT_POOL, Name, Queue, Team, span};

/// What a team does not get of what its spec says, and what of it follows for the teams below; one sentence each.
#[must_use]
pub fn less_than_it_seems(team: &Team, known: &Directory) -> Vec<String> {
    let mut found = capped_below(team, known);
    for (pool, quota) in &team.quotas {
        let lists =
            [("guaranteed", &quota.guaranteed), ("limit", &quota.limit), ("lendable", &quota.lendable)];
        for (field, list) in lists {
            found.extend(not_whole(list, known).map(|part| format!("Pool {pool}: {field} {part}")));
        }
    }
    let is_guaranteed =
        team.quotas.values().any(|quota| quota.guaranteed.values().any(|amount| *amount > Amount::ZERO));
    for queue in &team.queues {
        let name = &queue.name;
        found.extend(not_whole(&queue.limit, known).map(|part| format!("Queue {name}: limit {part}")));
        found.extend(queue.limit.iter().filter_map(|(resource, limit)| {
            let most = most_of(team, resource, known).filter(|most| limit > most)?;
            let [limit, most] = [*limit, most].map(|amount| amount.quantity(resource));
            Some(format!(
                "Queue {name} has a limit of {limit} {resource}, which has no effect: by the limits of Teams the team never holds \
                 more than {most}."
            ))
        }));
        found.extend(times(queue));
        if !queue.preemptible && !is_guaranteed && lists_anything(team, known) {
            found.push(format!(
                "Queue {name} is not preemptible, and the team is guaranteed nothing: no workload of it that asks for what a quota \
                 lists can start."
            ));
        }
    }
    found
}

/// Guarantees of teams below that are above a limit of this team. Each of these Teams has a fault then.
fn capped_below(team: &Team, known: &Directory) -> Vec<String> {
    let is_below = |other: &&Team| ancestors(other, known).iter().any(|above| above.name == team.name);
    let below: Vec<&Team> =
        known.teams.values().filter(|other| other.name != team.name).filter(is_below).collect();
    let mut found = Vec::new();
    for (pool, quota) in &team.quotas {
        for (resource, limit) in &quota.limit {
            let above = below.iter().filter_map(|other| {
                let guaranteed = other.quotas.get(pool)?.guaranteed.get(resource)?;
                (guaranteed > limit).then(|| format!("{} ({})", other.name, guaranteed.quantity(resource)))
            });
            let above: Vec<String> = above.collect();
            if let Some(first) = above.first() {
                let more = match above.len() - 1 {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                found.push(format!(
                    "Pool {pool}: the limit of {} {resource} is below the guarantee of team {first}{more}.",
                    limit.quantity(resource),
                ));
            }
        }
    }
    found
}

/// Amounts of devices that are not whole.
fn not_whole(list: &ResourceList, known: &Directory) -> impl Iterator<Item = String> {
    let is_device = |resource: &Name| resource.contains('/') && **resource != *CURRENCY;
    // There a GPU fraction is counted as a part of the device itself.
    let in_parts = known.caps.assumed_fractions;
    let found = list
        .iter()
        .filter(move |(resource, amount)| !in_parts && is_device(resource) && amount.as_milli() % 1_000 != 0);
    found.map(|(resource, amount)| {
        format!(
            "{} {resource} is not whole, and devices are used whole: it counts as {}.",
            amount.quantity(resource),
            amount.as_milli() / 1_000
        )
    })
}

/// Times of a queue that exclude each other.
fn times(queue: &Queue) -> Vec<String> {
    let Some(most) = queue.max_runtime else { return Vec::new() };
    let (name, longest) = (&queue.name, span(most));
    let mut found = Vec::new();
    if queue.min_runtime > most {
        found.push(format!(
            "Queue {name} has a minRuntime of {} and a maxRuntime of {longest}: its workloads fail before a borrowing workload may \
             preempt them.",
            span(queue.min_runtime)
        ));
    }
    if let Some(limit) = queue.default_time_limit.filter(|limit| *limit > most) {
        found.push(format!(
            "Queue {name} has a defaultTimeLimit of {} and a maxRuntime of {longest}: the time limit of its workloads is {longest}.",
            span(limit)
        ));
    }
    found
}

/// The most of a resource that a team ever holds by its limits and those above it, over all pools. `None` where a pool has it
/// without a limit, or none limits it.
fn most_of(team: &Team, resource: &Name, known: &Directory) -> Option<Amount> {
    let path: Vec<&Team> = [team].into_iter().chain(ancestors(team, known)).collect();
    let default = Name::from(DEFAULT_POOL);
    let pools: BTreeSet<&Name> = known.pools.iter().chain([&default]).collect();
    let mut most = None;
    for pool in pools {
        let limits = path.iter().filter_map(|team| team.quotas.get(pool)?.limit.get(resource));
        let is_offered = || match &**resource {
            CURRENCY => known.weighted.contains(pool),
            _ => known.offers.get(pool).is_some_and(|offered| offered.contains_key(resource)),
        };
        match limits.min() {
            Some(limit) => most = Some(most.unwrap_or(Amount::ZERO) + *limit),
            None if is_offered() => return None,
            None => {}
        }
    }
    most
}

/// Whether any quota lists a resource.
fn lists_anything(team: &Team, known: &Directory) -> bool {
    let quotas = known.teams.values().chain([team]).flat_map(|team| team.quotas.values());
    quotas.into_iter().any(|quota| !quota.guaranteed.is_empty() || !quota.limit.is_empty())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::types::Quota;
    use crate::faults::tests::{GPU, amounts, known, team};

    fn with(queue: Queue) -> Team {
        Team { queues: vec![queue], ..team("new", None, "default", &[(GPU, 4)]) }
    }

    fn said(team: &Team) -> Vec<String> {
        less_than_it_seems(team, &known())
    }

    #[test]
    fn times_of_a_queue_that_exclude_each_other_are_said() {
        let hours = |hours: u64| Duration::from_secs(hours * 3_600);
        let queue = Queue {
            min_runtime: hours(2),
            max_runtime: Some(hours(1)),
            default_time_limit: Some(hours(24)),
            ..Queue::fallback()
        };
        assert_eq!(
            said(&with(queue.clone())),
            [
                "Queue default has a minRuntime of 2h and a maxRuntime of 1h: its workloads fail before a borrowing workload may preempt them.",
                "Queue default has a defaultTimeLimit of 1d and a maxRuntime of 1h: the time limit of its workloads is 1h.",
            ]
        );
        assert!(said(&with(Queue { max_runtime: Some(hours(24)), ..queue.clone() })).is_empty());
        assert!(said(&with(Queue { max_runtime: None, ..queue })).is_empty());
    }

    #[test]
    fn the_limit_of_a_queue_that_the_team_never_reaches_is_said() {
        let mut limited = with(Queue { limit: amounts(&[(GPU, 20)]), ..Queue::fallback() });
        limited.parent = Some("research".into());
        assert!(said(&limited).is_empty(), "no team on the path has a limit");
        let mut known = known();
        let mut research = known.teams["research"].clone();
        research.quotas.entry("default".into()).or_default().limit = amounts(&[(GPU, 20)]);
        known.teams.insert("research".into(), research);
        assert!(less_than_it_seems(&limited, &known).is_empty(), "the queue may use the limit");
        limited.quotas.entry("default".into()).or_default().limit = amounts(&[(GPU, 16)]);
        assert_eq!(
            less_than_it_seems(&limited, &known),
            [
                "Queue default has a limit of 20 nvidia.com/gpu, which has no effect: by the limits of Teams the team never holds more than 16."
            ]
        );
        known.offers.insert("h100".into(), amounts(&[(GPU, 8)]));
        assert!(less_than_it_seems(&limited, &known).is_empty(), "the other pool has no limit");
    }

    #[test]
    fn a_queue_that_is_not_preemptible_in_a_team_without_guarantee_is_said() {
        let fixed = Queue { name: "serving".into(), preemptible: false, ..Queue::fallback() };
        assert!(said(&with(fixed.clone())).is_empty());
        for guaranteed in [&[][..], &[(GPU, 0)]] {
            let poor = Team { queues: vec![fixed.clone()], ..team("new", None, "default", guaranteed) };
            assert_eq!(
                said(&poor),
                [
                    "Queue serving is not preemptible, and the team is guaranteed nothing: no workload of it that asks for what a quota lists can start."
                ]
            );
            assert!(less_than_it_seems(&poor, &Directory::default()).len() == guaranteed.len());
        }
    }

    #[test]
    fn devices_that_are_not_whole_are_said() {
        let half = |milli: i64| ResourceList::from([(GPU.into(), Amount::milli(milli))]);
        let mut uneven = with(Queue { limit: half(500), ..Queue::fallback() });
        let mut fine = half(1_500);
        fine.extend([("cpu".into(), Amount::milli(2_500)), (CURRENCY.into(), Amount::milli(2_500))]);
        uneven.quotas.insert("default".into(), Quota { guaranteed: fine, ..Quota::default() });
        assert_eq!(
            said(&uneven),
            [
                "Pool default: guaranteed 1500m nvidia.com/gpu is not whole, and devices are used whole: it counts as 1.",
                "Queue default: limit 500m nvidia.com/gpu is not whole, and devices are used whole: it counts as 0.",
            ]
        );
        let mut in_parts = known();
        in_parts.caps.assumed_fractions = true;
        assert!(less_than_it_seems(&uneven, &in_parts).is_empty());
    }

    #[test]
    fn a_limit_below_the_guarantee_of_a_team_below_is_said_of_the_team_that_is_applied() {
        let mut research = known().teams["research"].clone();
        research.quotas.insert("default".into(), Quota { limit: amounts(&[(GPU, 10)]), ..Quota::default() });
        assert_eq!(
            said(&research),
            ["Pool default: the limit of 10 nvidia.com/gpu is below the guarantee of team vision (12)."]
        );
    }
}
