//! Statuses of Teams and NodePools, written by the leader and only when they change.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

use super::budget;
use super::events::{Notice, Notices};
use super::run_lengths;
use super::usage::lines;
use crate::api::names;
use crate::api::node_pool::{NodePool, NodePoolStatus};
use crate::api::team::{self, PoolUsage, Quantities, Team, TeamStatus};
use crate::engine::types::BudgetView;
use crate::engine::types::RunLengths;
use crate::engine::types::amount::{Amount, ResourceList};
use crate::faults::Fault;
use crate::metrics::{Figures, Metrics};

/// The time limit of one call.
const DEADLINE: Duration = Duration::from_secs(5);

/// The pause between two writes of Team statuses: at most two a second (law 12).
const PAUSE: Duration = Duration::from_millis(500);
/// The most Team statuses of one round; the rest, those written last, is left for the next.
const ROUND: usize = 10;

/// The input of the statuses.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The time that it describes, in milliseconds since the Unix epoch.
    pub at: i64,
    /// Usage of teams, queues and nodes.
    pub figures: Figures,
    /// The generation of each team's spec, and its fault, if it has one.
    pub teams: BTreeMap<String, (Option<i64>, Option<Fault>)>,
    /// How long the runs of each team took, by the team's name.
    pub run_lengths: Vec<Arc<RunLengths>>,
    /// The UID of each team.
    pub uids: BTreeMap<String, String>,
    /// The generation of each pool's spec.
    pub pools: BTreeMap<String, Option<i64>>,
}

impl Report {
    /// How long the runs of a team took.
    fn run_lengths_of(&self, team: &str) -> Option<&RunLengths> {
        let found = self.run_lengths.binary_search_by(|lengths| (*lengths.team).cmp(team)).ok()?;
        self.run_lengths.get(found).map(Arc::as_ref)
    }
}

/// The statuses as last written; an unchanged status is not written again.
#[derive(Debug, Default)]
pub struct Statuses {
    /// With the number of its last write.
    teams: BTreeMap<String, (u64, TeamStatus)>,
    /// The number of writes of Team statuses.
    written: u64,
    /// When the next of them is allowed.
    next: Option<Instant>,
    pools: BTreeMap<String, NodePoolStatus>,
    /// Where Events of Teams are published.
    notices: Option<Notices>,
}

impl Statuses {
    /// Nothing written yet; Events of Teams go to `notices`.
    #[must_use]
    pub fn telling(notices: Notices) -> Self {
        Self { notices: Some(notices), ..Self::default() }
    }

    /// Writes the statuses that differ from `report`, of Teams the ones written longest ago first.
    pub async fn write(&mut self, client: &Client, metrics: &Metrics, report: &Report) {
        self.write_teams(client, metrics, report, Occasion::Round).await;
        self.write_pools(client, metrics, report).await;
    }

    /// Writes the decayed usage and the run lengths of the Teams, for the next leader.
    pub async fn hand_over(&mut self, client: &Client, metrics: &Metrics, report: &Report) {
        self.write_teams(client, metrics, report, Occasion::HandOver).await;
    }

    async fn write_teams(&mut self, client: &Client, metrics: &Metrics, report: &Report, occasion: Occasion) {
        let now = Time(k8s_openapi::jiff::Timestamp::from_millisecond(report.at).unwrap_or_default());
        self.teams.retain(|name, _| report.teams.contains_key(name));
        let mut due: Vec<(u64, &String, TeamStatus, Option<String>)> = Vec::new();
        for (name, (generation, fault)) in &report.teams {
            let (last, before) =
                self.teams.get(name).map_or((0, None), |(last, before)| (*last, Some(before)));
            let mut status = team_status(name, *generation, fault.as_ref(), report, before, &now);
            run_lengths::fill_in(&mut status, report.run_lengths_of(name), &now);
            let status = occasion.spared(status, before, budget_of(name, report));
            if before != Some(&status) {
                let lowered = before.and_then(|before| lowered(before, &status));
                due.push((last, name, status, lowered));
            }
        }
        due.sort_by_key(|(last, ..)| *last);
        for (_, name, status, lowered) in due.into_iter().take(ROUND) {
            if let Some(next) = self.next {
                sleep_until(next).await;
            }
            self.next = Some(Instant::now() + PAUSE);
            if apply::<Team>(client, metrics, name, &status).await {
                self.written += 1;
                if let (Some(note), Some(uid), Some(notices)) =
                    (lowered, report.uids.get(name), &self.notices)
                {
                    notices.publish(borrows_more(name, uid, status.observed_generation, note));
                }
                self.teams.insert(name.clone(), (self.written, status));
            }
        }
    }

    async fn write_pools(&mut self, client: &Client, metrics: &Metrics, report: &Report) {
        self.pools.retain(|name, _| report.pools.contains_key(name));
        let offered = report.figures.pools();
        for (name, generation) in &report.pools {
            let (nodes, allocatable) = offered.get(name.as_str()).cloned().unwrap_or_default();
            let status = NodePoolStatus {
                observed_generation: *generation,
                nodes: i64::try_from(nodes).unwrap_or(i64::MAX),
                allocatable: quantities(&allocatable),
            };
            if self.pools.get(name) != Some(&status)
                && apply::<NodePool>(client, metrics, name, &status).await
            {
                self.pools.insert(name.clone(), status);
            }
        }
    }
}

/// Why the Team statuses are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occasion {
    /// It is time to.
    Round,
    /// This process ends.
    HandOver,
}

impl Occasion {
    /// Whether the decayed usage of a status is to be written, given what was written last.
    fn writes_decayed(self, before: &TeamStatus, now: &TeamStatus) -> bool {
        if self == Self::HandOver {
            return decayed(before) != decayed(now);
        }
        let (Some(then), Some(at)) = (&before.decayed_at, &now.decayed_at) else {
            return before.decayed_at != now.decayed_at;
        };
        let old = is_old(then, at);
        let (mut was, is) = (decayed(before), decayed(now));
        let moved = is.iter().any(|(key, is)| {
            let was = was.remove(key).unwrap_or(0);
            (i128::from(*is) - i128::from(was)).unsigned_abs() * 100 >= was.max(1).unsigned_abs().into()
                && *is != was
        });
        old || moved || !was.is_empty()
    }

    /// The same for the run lengths.
    fn writes_run_lengths(self, before: &TeamStatus, now: &TeamStatus) -> bool {
        let (Some(then), Some(at)) = (&before.run_lengths_at, &now.run_lengths_at) else {
            return before.run_lengths_at != now.run_lengths_at;
        };
        let differs = before.run_lengths != now.run_lengths;
        differs && (self == Self::HandOver || is_old(then, at) || run_lengths::moved(before, now))
    }
}

/// Whether so much time has passed between two that what is written less often is due.
fn is_old(then: &Time, at: &Time) -> bool {
    let passed = at.0.as_millisecond().saturating_sub(then.0.as_millisecond()).unsigned_abs();
    u128::from(passed) >= budget::EVERY.as_millis()
}

impl Occasion {
    /// A status without what is not worth a write yet: past usage, run lengths, and what was used of the budget where nothing else changes.
    fn spared(
        self,
        mut status: TeamStatus,
        before: Option<&TeamStatus>,
        budget: Option<&BudgetView>,
    ) -> TeamStatus {
        let Some(before) = before else { return status };
        if !self.writes_decayed(before, &status) {
            keep_decayed(&mut status, before);
        }
        if !self.writes_run_lengths(before, &status) {
            run_lengths::keep(&mut status, before);
        }
        if !budget::is_due(before, &status, budget, self == Self::HandOver) {
            let without = TeamStatus { budget: before.budget.clone(), ..status.clone() };
            if without == *before {
                return without;
            }
        }
        status
    }
}

/// The budget of a team.
fn budget_of<'a>(name: &str, report: &'a Report) -> Option<&'a BudgetView> {
    report.figures.budgets.iter().find(|view| &*view.team == name)
}

/// The decayed usage in a status, in thousandths by pool and resource.
fn decayed(status: &TeamStatus) -> BTreeMap<(&str, &str), i64> {
    let pools = status.pools.iter();
    pools
        .flat_map(|pool| {
            let amounts = pool.decayed_usage.iter();
            amounts.map(|(resource, amount)| {
                let amount = Amount::parse(&amount.0).unwrap_or(Amount::ZERO);
                ((pool.pool.as_str(), resource.as_str()), amount.as_milli())
            })
        })
        .collect()
}

/// Leaves the decayed usage of a status as it was written last, with its time.
fn keep_decayed(status: &mut TeamStatus, before: &TeamStatus) {
    status.decayed_at = before.decayed_at.clone();
    for pool in &mut status.pools {
        let same = before.pools.iter().find(|same| same.pool == pool.pool);
        pool.decayed_usage = same.map(|same| same.decayed_usage.clone()).unwrap_or_default();
    }
}

fn team_status(
    name: &str,
    generation: Option<i64>,
    fault: Option<&Fault>,
    report: &Report,
    before: Option<&TeamStatus>,
    now: &Time,
) -> TeamStatus {
    let queues = report.figures.queues.iter().filter(|queue| &*queue.team == name);
    let pools = report.figures.teams.iter().filter(|view| &*view.team == name);
    let over: Vec<&str> = report
        .figures
        .overcommitments
        .iter()
        .filter(|over| over.at.iter().any(|team| **team == *name))
        .map(|over| over.message.as_str())
        .collect();
    let overcommitted = if over.is_empty() {
        condition(
            team::CONDITION_OVERCOMMITTED,
            false,
            "WithinCapacity",
            "Every guarantee fits the capacity.",
        )
    } else {
        condition(team::CONDITION_OVERCOMMITTED, true, "MoreGuaranteedThanThereIs", &over.join("; "))
    };
    let ready = match fault {
        None => condition(team::CONDITION_READY, true, "InForce", "The quota is in effect."),
        Some(fault) => condition(team::CONDITION_READY, false, fault.reason, &fault.message),
    };
    let budget = budget_of(name, report);
    let (usage, limit) = lines(&pools.clone().collect::<Vec<_>>());
    TeamStatus {
        observed_generation: generation,
        usage,
        limit,
        pending: queues.map(|queue| i64::try_from(queue.pending).unwrap_or(i64::MAX)).sum(),
        pools: pools
            .clone()
            .map(|view| PoolUsage {
                pool: view.pool.to_string(),
                guaranteed: quantities(&view.guaranteed),
                used: quantities(&view.used),
                unadmitted: quantities(&view.unadmitted),
                borrowed: quantities(&view.borrowed),
                lent: quantities(&view.lent),
                fair_share: quantities(&view.fair_share),
                decayed_usage: quantities(&view.past),
            })
            .collect(),
        decayed_at: pools.clone().any(|view| !view.past.is_empty()).then(|| now.clone()),
        budget: budget.map(|view| budget::status(view, now)),
        run_lengths: Vec::new(),
        run_lengths_at: None,
        conditions: [ready, overcommitted, unadmitted(name, &report.figures)]
            .into_iter()
            .chain(budget.map(|view| {
                let (spent, reason, message) = budget::exhausted(view);
                condition(team::CONDITION_EXHAUSTED, spent, reason, &message)
            }))
            .map(|new| since(new, generation, before, now))
            .collect(),
    }
}

/// What of a team is borrowed now because its guarantee was lowered below its usage.
fn lowered(before: &TeamStatus, now: &TeamStatus) -> Option<String> {
    if before.observed_generation == now.observed_generation {
        return None;
    }
    let of = |list: &Quantities, resource: &str| {
        list.get(resource).and_then(|amount| Amount::parse(&amount.0).ok()).unwrap_or_default()
    };
    let mut parts = Vec::new();
    for pool in &now.pools {
        let Some(was) = before.pools.iter().find(|was| was.pool == pool.pool) else { continue };
        for resource in was.guaranteed.keys() {
            let [old, new] = [&was.guaranteed, &pool.guaranteed].map(|list| of(list, resource));
            let borrowed = of(&pool.borrowed, resource);
            if new < old && borrowed > of(&was.borrowed, resource) {
                let [borrowed, used, new, old] =
                    [borrowed, of(&pool.used, resource), new, old].map(|amount| amount.quantity(resource));
                parts.push(format!(
                    "{borrowed} of {used} {resource} in pool {} are now borrowed and may be preempted: the guarantee is {new} \
                     and was {old}",
                    pool.pool
                ));
            }
        }
    }
    (!parts.is_empty()).then(|| format!("{}.", parts.join("; ")))
}

/// The Event that says so.
fn borrows_more(name: &str, uid: &str, generation: Option<i64>, note: String) -> Notice {
    let about = ObjectReference {
        api_version: Some(Team::api_version(&()).into()),
        kind: Some(Team::kind(&()).into()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    };
    Notice {
        about,
        warning: true,
        reason: "GuaranteeLowered",
        action: "Account",
        occasion: generation.unwrap_or_default().to_string(),
        note,
    }
}

/// The most owners that the condition `Unadmitted` names.
const NAMED: usize = 8;

/// Whether pods that were never admitted are charged to a team, and their owners.
fn unadmitted(name: &str, figures: &Figures) -> Condition {
    let groups: Vec<_> = figures.unadmitted.iter().filter(|view| &*view.team == name).collect();
    if groups.is_empty() {
        let message = "Every pod that is charged to the team was admitted.";
        return condition(team::CONDITION_UNADMITTED, false, "EveryPodAdmitted", message);
    }
    let mut sentences: Vec<String> = groups.iter().take(NAMED).map(|view| view.sentence()).collect();
    if groups.len() > NAMED {
        sentences.push(format!("and pods of {} more owners", groups.len() - NAMED));
    }
    condition(team::CONDITION_UNADMITTED, true, "PodsWithoutAdmission", &sentences.join("; "))
}

fn condition(type_: &str, holds: bool, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.into(),
        status: if holds { "True" } else { "False" }.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: None,
        last_transition_time: Time(k8s_openapi::jiff::Timestamp::default()),
    }
}

/// Completes a condition: its transition time changes only with its status.
fn since(mut new: Condition, generation: Option<i64>, before: Option<&TeamStatus>, now: &Time) -> Condition {
    let old = before.and_then(|status| status.conditions.iter().find(|old| old.type_ == new.type_));
    let same = old.filter(|old| old.status == new.status);
    new.last_transition_time = same.map_or(now, |old| &old.last_transition_time).clone();
    new.observed_generation = generation;
    new
}

fn quantities(list: &ResourceList) -> Quantities {
    list.iter()
        .map(|(resource, amount)| (resource.to_string(), Quantity(amount.quantity(resource))))
        .collect()
}

async fn apply<K>(client: &Client, metrics: &Metrics, name: &str, status: &impl Serialize) -> bool
where
    K: Resource<DynamicType = ()> + Clone + Debug,
{
    // Only the metadata of the answer is read: the spec may be unreadable.
    let api: Api<PartialObjectMeta<K>> = Api::all(client.clone());
    let params = PatchParams::apply(names::FIELD_MANAGER).force();
    let body = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": {"name": name}, "status": status,
    });
    let outcome = match timeout(DEADLINE, api.patch_status(name, &params, &Patch::Apply(&body))).await {
        Ok(Ok(_)) => "done",
        Ok(Err(kube::Error::Api(answer))) if answer.is_not_found() => "gone",
        Ok(Err(error)) => {
            tracing::warn!(kind = %K::kind(&()), name, %error, "cannot write the status");
            "refused"
        }
        Err(_) => "unanswered",
    };
    metrics.api_writes.with_label_values(&["status", outcome]).inc();
    outcome == "done"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::types::{Overcommitment, TeamView};

    fn report(over: Option<Overcommitment>) -> Report {
        let view = TeamView {
            team: "vision".into(),
            pool: "a100".into(),
            guaranteed: [("nvidia.com/gpu".into(), crate::engine::types::amount::Amount::units(4))].into(),
            limit: ResourceList::new(),
            used: ResourceList::new(),
            unadmitted: ResourceList::new(),
            borrowed: ResourceList::new(),
            lent: ResourceList::new(),
            fair_share: ResourceList::new(),
            past: ResourceList::new(),
            weight: 1,
            parent: None,
        };
        Report {
            figures: Figures {
                teams: vec![view],
                overcommitments: over.into_iter().collect(),
                ..Figures::default()
            },
            ..Report::default()
        }
    }

    #[test]
    fn a_condition_changes_its_time_only_with_its_status() {
        let at = |seconds| Time(k8s_openapi::jiff::Timestamp::from_second(seconds).expect("a time"));
        let first = team_status("vision", Some(1), None, &report(None), None, &at(1));
        let again = team_status("vision", Some(1), None, &report(None), Some(&first), &at(2));
        assert_eq!(first, again, "nothing to write");
        let over = over("vision");
        let third = team_status("vision", Some(1), None, &report(Some(over)), Some(&again), &at(3));
        let times: Vec<_> =
            third.conditions.iter().map(|c| (&*c.status, c.last_transition_time.clone())).collect();
        assert_eq!(times, [("True", at(1)), ("True", at(3)), ("False", at(1))]);
        let fault = Fault { reason: "ParentNotFound", message: "its parent is gone".into() };
        let fourth = team_status("vision", Some(2), Some(&fault), &report(None), Some(&third), &at(4));
        let ready = &fourth.conditions[0];
        assert_eq!((&*ready.status, &*ready.reason), ("False", "ParentNotFound"));
        assert_eq!((ready.observed_generation, ready.last_transition_time.clone()), (Some(2), at(4)));
    }

    fn over(team: &str) -> Overcommitment {
        Overcommitment { team: None, pool: "a100".into(), at: vec![team.into()], message: "too much".into() }
    }

    #[test]
    fn an_event_says_what_a_lower_guarantee_makes_borrowed() {
        let pool = |guaranteed: i64, borrowed: i64| PoolUsage {
            pool: "default".into(),
            guaranteed: [("nvidia.com/gpu".into(), Quantity(guaranteed.to_string()))].into(),
            used: [("nvidia.com/gpu".into(), Quantity("18".into()))].into(),
            borrowed: [("nvidia.com/gpu".into(), Quantity(borrowed.to_string()))].into(),
            ..PoolUsage::default()
        };
        let status = |generation, pool| TeamStatus {
            observed_generation: Some(generation),
            pools: vec![pool],
            ..TeamStatus::default()
        };
        let before = status(1, pool(20, 0));
        let note = lowered(&before, &status(2, pool(5, 13))).expect("an Event");
        assert!(note.starts_with("13 of 18 nvidia.com/gpu in pool default are now borrowed"), "{note}");
        assert!(note.ends_with("the guarantee is 5 and was 20."), "{note}");
        assert_eq!(lowered(&before, &status(1, pool(20, 3))), None, "work came, no spec changed");
        assert_eq!(lowered(&before, &status(2, pool(19, 0))), None, "it still covers the usage");
    }

    #[test]
    fn only_the_teams_at_fault_are_overcommitted() {
        let status =
            team_status("vision", None, None, &report(Some(over("other"))), None, &Time(Default::default()));
        assert_eq!(status.conditions[1].status, "False");
    }
}
