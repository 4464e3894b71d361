//! Figures of the engine's state, for users, metrics and the status of objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::cluster::ClusterState;
use crate::state::fair_share;
use crate::state::quotas::{BudgetFigures, Funding, Hypothetical};
use crate::state::workload::Phase;
use crate::types::amount::{Amount, ResourceList};
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::vector::Vector;
use crate::types::{
    BudgetView, DEFAULT_POOL, Name, NodeView, Overcommitment, QueueView, SharedDevice, Standing, TeamView,
    Time, UnadmittedView, WorkloadId, date_of,
};

/// Every team in every pool in which it has a guarantee or usage.
pub fn teams(state: &ClusterState) -> Vec<TeamView> {
    let mut views = Vec::new();
    let fair = fair_share::shares(state);
    let unadmitted = unadmitted_usage(state);
    let mut lenders = Lenders::new(state);
    for (team, info) in state.quotas.teams() {
        let Some(definition) = &info.team else { continue };
        for (pool_name, pool) in state.quotas.pools() {
            let quota_usage = state.quotas.quota_usage(pool, team);
            let quota = definition.quotas.get(pool_name);
            let used = [&quota_usage.held, quota_usage.past.amounts()]
                .iter()
                .any(|of| of.nonzero().next().is_some());
            if quota.is_none() && !used {
                continue;
            }
            let mut borrowed = Vector::default();
            let mut lent = Vector::default();
            for (index, held) in quota_usage.held.entries() {
                borrowed.set(index, quota_usage.borrowed(index, held));
            }
            for (index, guaranteed) in quota_usage.governed() {
                let idle = guaranteed.saturating_sub(quota_usage.held.get(index));
                lent.set(index, lenders.lent_out(pool, index, idle));
            }
            views.push(TeamView {
                team: info.name.clone(),
                parent: info.path.get(1).map(|parent| state.quotas.team(*parent).name.clone()),
                pool: pool_name.clone(),
                guaranteed: quota.map(|quota| quota.guaranteed.clone()).unwrap_or_default(),
                limit: quota.map(|quota| quota.limit.clone()).unwrap_or_default(),
                used: list(state, &quota_usage.held),
                unadmitted: unadmitted.get(&(pool, team)).map(|held| list(state, held)).unwrap_or_default(),
                borrowed: list(state, &borrowed),
                lent: list(state, &lent),
                fair_share: fair.get(&(pool, team)).map(|share| list(state, share)).unwrap_or_default(),
                past: state.resources.list(quota_usage.past.amounts()),
                weight: definition.weight,
            });
        }
    }
    views
}

/// What a workload is charged.
pub fn charge_of(state: &ClusterState, id: &WorkloadId) -> ResourceList {
    state.get(id).map(|info| list(state, &info.held())).unwrap_or_default()
}

/// The usage that was never admitted, by pool and team, with that of the teams below: pods of no known workload, pods
/// of workloads without an admission, and pods beyond a record.
fn unadmitted_usage(state: &ClusterState) -> BTreeMap<(PoolId, TeamId), Vector> {
    let mut usage: BTreeMap<(PoolId, TeamId), Vector> = BTreeMap::new();
    for info in state.iter() {
        let pods = match &info.phase {
            _ if info.unadmitted.is_some() => info.usage.pods,
            _ if info.removed => 0,
            Phase::Hold | Phase::Pending | Phase::Failing(None) => info.pods(),
            Phase::Running(admission) => info.pods().saturating_sub(admission.pods),
            _ => 0,
        };
        if pods > 0 {
            for at in &state.quotas.team(info.team).path {
                usage.entry((info.usage.pool, *at)).or_default().add(&info.need, i64::from(pods));
            }
        }
    }
    usage
}

/// What groups unadmitted pods: team, pool, namespace, owner and standing.
type UnadmittedGroup = (TeamId, PoolId, Name, Name, Standing);

/// Pods that were never admitted and are charged to their team, by owner.
pub fn unadmitted(state: &ClusterState) -> Vec<UnadmittedView> {
    let mut groups: BTreeMap<UnadmittedGroup, (u32, Vector)> = BTreeMap::new();
    for (info, facts) in state.unadmitted() {
        let owner = facts.owner.as_ref().map(|owner| owner.label.clone());
        let owner = owner.unwrap_or_else(|| format!("Pod/{}", facts.name).into());
        let standing = info.unadmitted.unwrap_or(Standing::First);
        let key = (info.team, info.usage.pool, facts.namespace.clone(), owner, standing);
        let (pods, held) = groups.entry(key).or_default();
        *pods += 1;
        held.add(&info.need, 1);
    }
    let view =
        |((team, pool, namespace, owner, standing), (pods, held)): (UnadmittedGroup, (u32, Vector))| {
            UnadmittedView {
                team: state.quotas.team(team).name.clone(),
                pool: state.quotas.pool_name(pool).clone(),
                namespace,
                owner,
                standing,
                pods,
                resources: list(state, &held),
            }
        };
    groups.into_iter().map(view).collect()
}

/// A list without the pod slots.
fn list(state: &ClusterState, vector: &Vector) -> ResourceList {
    let mut list = state.resources.list(vector);
    list.remove(crate::types::vector::PODS);
    list
}

/// What is borrowed in each pool, and what of the guarantees is idle there, added up when first asked for.
struct Lenders<'a> {
    state: &'a ClusterState,
    /// Only teams without children, so that no usage counts twice.
    leaves: Vec<TeamId>,
    /// By pool and resource: what is borrowed, and what is idle.
    sums: BTreeMap<(PoolId, usize), (i64, i64)>,
}

impl<'a> Lenders<'a> {
    fn new(state: &'a ClusterState) -> Self {
        let teams = || state.quotas.teams();
        let parents: BTreeSet<TeamId> = teams().filter_map(|(_, info)| info.path.get(1).copied()).collect();
        let leaves = teams().filter(|(team, info)| info.team.is_some() && !parents.contains(team));
        Self { state, leaves: leaves.map(|(team, _)| team).collect(), sums: BTreeMap::new() }
    }

    /// The part of an idle guarantee that other teams use: all borrowed capacity of the pool, divided among the lenders in
    /// proportion to their idle guarantees.
    fn lent_out(&mut self, pool: PoolId, index: usize, idle: i64) -> i64 {
        if idle <= 0 {
            return 0;
        }
        let Self { state, leaves, sums } = self;
        let (borrowed, idle_in_all) = *sums.entry((pool, index)).or_insert_with(|| {
            let usages = || leaves.iter().map(|team| state.quotas.quota_usage(pool, *team));
            let borrowed = usages().map(|usage| usage.borrowed(index, usage.held.get(index)));
            let idle = usages().filter_map(|usage| {
                let (_, guaranteed) = usage.governed().find(|(governed, _)| *governed == index)?;
                Some(guaranteed.saturating_sub(usage.held.get(index)).max(0))
            });
            (borrowed.fold(0, i64::saturating_add), idle.fold(0, i64::saturating_add))
        });
        let part = i128::from(borrowed.min(idle_in_all)) * i128::from(idle) / i128::from(idle_in_all.max(1));
        i64::try_from(part).unwrap_or(i64::MAX).min(idle)
    }
}

/// Every queue of every team.
pub fn queues(state: &ClusterState) -> Vec<QueueView> {
    let mut counts: BTreeMap<(TeamId, Name), (usize, Option<Time>, usize)> = BTreeMap::new();
    for info in state.iter().filter(|info| !info.removed) {
        let Ok(queue) = state.queue_of(info) else { continue };
        let count = counts.entry((info.team, queue.name.clone())).or_default();
        match info.phase {
            Phase::Pending => {
                let submitted = info.workload.submitted;
                count.0 += 1;
                count.1 = Some(count.1.map_or(submitted, |oldest| oldest.min(submitted)));
            }
            Phase::Starting(_) | Phase::Running(_) | Phase::Resizing { .. } => count.2 += 1,
            _ => {}
        }
    }
    let mut views = Vec::new();
    for (team, info) in state.quotas.teams() {
        for queue in info.team.iter().flat_map(|team| &team.queues) {
            let (pending, oldest, running) =
                counts.get(&(team, queue.name.clone())).copied().unwrap_or_default();
            views.push(QueueView {
                team: info.name.clone(),
                queue: queue.name.clone(),
                pending,
                oldest,
                running,
                paused: queue.paused,
            });
        }
    }
    views
}

/// Every team with a budget.
pub fn budgets(state: &ClusterState, now: Time) -> Vec<BudgetView> {
    let budgets = &state.quotas.budgets;
    let view = |team| {
        let BudgetFigures { budget, period, used, counted, written, committed } =
            budgets.figures(team, now)?;
        Some(BudgetView {
            team: state.quotas.team(team).name.clone(),
            budget,
            used,
            counted,
            written,
            committed,
            period,
            refill: period.map(|(_, end)| date_of(budgets.on_calendar(end))),
        })
    };
    budgets.teams().filter_map(view).collect()
}

/// The submission time of the oldest waiting workload within guarantee, by team: it should wait no longer than its
/// victims take to end.
pub fn oldest_within_guarantee(state: &ClusterState) -> BTreeMap<Name, Time> {
    let mut oldest: BTreeMap<Name, Time> = BTreeMap::new();
    for info in state.iter().filter(|info| !info.removed && info.phase == Phase::Pending) {
        let (team, total) = (info.team, info.least_total());
        let Ok(queue) = state.queue_of(info) else { continue };
        let asked = &info.workload.pools;
        let may = |name: &Name| if asked.is_empty() { &**name == DEFAULT_POOL } else { asked.contains(name) };
        let within_guarantee = state.quotas.pools().any(|(name, pool)| {
            may(name)
                && state.quotas.within_guarantee(pool, team, &total, &Hypothetical::new())
                && state.funding(info, pool, &total) == Funding::Funded
        });
        if within_guarantee && state.quotas.over_queue_limit(team, queue, &total, &state.resources).is_none()
        {
            let first = oldest.entry(state.quotas.team(team).name.clone());
            let submitted = info.workload.submitted;
            first.and_modify(|first| *first = submitted.min(*first)).or_insert(submitted);
        }
    }
    oldest
}

/// Every node with its workloads.
pub fn nodes(state: &ClusterState) -> Vec<NodeView> {
    let view =
        |(index, info, node): (NodeId, &crate::state::nodes::NodeInfo, &crate::types::Node)| NodeView {
            name: node.name.clone(),
            pool: state.quotas.pool_name(info.pool).clone(),
            schedulable: node.schedulable,
            not_ready: !node.schedulable && node.is_not_ready(),
            allocatable: node.allocatable.clone(),
            free: state
                .resources
                .list(info.unheld().amounts())
                .into_iter()
                .filter(|(name, amount)| node.allocatable.contains_key(name) && *amount > Amount::ZERO)
                .collect(),
            workloads: state.occupants(index).map(|(info, pods)| (info.workload.id.clone(), pods)).collect(),
            shared: info
                .devices()
                .holders()
                .map(|(resource, shares)| SharedDevice {
                    resource: state.resources.name(resource).clone(),
                    shares: shares
                        .iter()
                        .map(|(who, milli)| (who.name().clone(), Amount::milli(*milli)))
                        .collect(),
                })
                .collect(),
        };
    state.nodes.alive().map(view).collect()
}

/// Guarantees that the nodes, or a parent's guarantee, do not cover.
pub fn overcommitments(state: &ClusterState) -> Vec<Overcommitment> {
    let mut found = Vec::new();
    for (pool_name, pool) in state.quotas.pools() {
        let mut members: BTreeMap<Option<TeamId>, Vec<TeamId>> = BTreeMap::new();
        for (team, info) in state.quotas.teams().filter(|(_, info)| info.team.is_some()) {
            // A team without a guarantee covers nothing and bounds nothing: the one above it does, or the nodes do.
            let is_unknown = |team: &TeamId| state.quotas.team(*team).team.is_none();
            let has_guarantee = |team: &TeamId| state.quotas.quota_usage(pool, *team).has_guarantee();
            let mut above = info.path[1..].iter().copied();
            let cover = above.find(|team| is_unknown(team) || has_guarantee(team));
            if !cover.as_ref().is_some_and(is_unknown) {
                members.entry(cover).or_default().push(team);
            }
        }
        for (parent, members) in members {
            let usage = parent.map(|parent| state.quotas.quota_usage(pool, parent));
            let cover = usage.map_or_else(|| state.quotas.capacity(pool), |usage| &usage.guaranteed);
            found.extend(uncovered(state, (pool_name, pool), (parent, &members), cover));
        }
    }
    found
}

/// The most teams that a sentence about their guarantees names.
const NAMED: usize = 5;

/// What the guarantees of some teams, those below a parent or those without one, are beyond their cover.
fn uncovered(
    state: &ClusterState,
    (pool_name, pool): (&Name, PoolId),
    (parent, members): (Option<TeamId>, &[TeamId]),
    cover: &Vector,
) -> Option<Overcommitment> {
    let name = |team: TeamId| state.quotas.team(team).name.clone();
    let (mut at, mut parts) = (BTreeSet::new(), Vec::new());
    let mut all = Vector::default();
    for member in members {
        all.add(&state.quotas.quota_usage(pool, *member).guaranteed, 1);
    }
    for (index, sum) in all.nonzero().filter(|(index, sum)| *sum > cover.get(*index)) {
        let covered = cover.get(index);
        let largest = largest_guarantees(state, pool, members, index);
        at.extend(beyond_cover(&largest, parent, sum, covered).into_iter().map(name));
        let part = uncovered_part(state, index, &largest, (sum, covered));
        parts.push((i128::from(sum), i128::from(covered), part));
    }
    // By how many times the cover is exceeded.
    parts.sort_by(|a, b| (b.0 * a.1).cmp(&(a.0 * b.1)));
    let parts: Vec<String> = parts.into_iter().map(|(_, _, part)| part).collect();
    let of = parent.map_or_else(
        || "what the nodes offer".to_owned(),
        |parent| format!("that of their parent {}", name(parent)),
    );
    (!parts.is_empty()).then(|| Overcommitment {
        team: parent.map(name),
        pool: pool_name.clone(),
        at: at.into_iter().collect(),
        message: format!("The guarantees in pool {pool_name} are beyond {of}: {}", parts.join("; ")),
    })
}

/// What these teams are guaranteed of a resource, without those that are guaranteed nothing, the largest first.
fn largest_guarantees(
    state: &ClusterState,
    pool: PoolId,
    members: &[TeamId],
    index: usize,
) -> Vec<(i64, TeamId)> {
    let name = |team: TeamId| &state.quotas.team(team).name;
    let of = |team: TeamId| state.quotas.quota_usage(pool, team).guaranteed.get(index);
    let mut largest: Vec<(i64, TeamId)> =
        members.iter().map(|team| (of(*team), *team)).filter(|(amount, _)| *amount > 0).collect();
    largest.sort_by(|(a, left), (b, right)| b.cmp(a).then_with(|| name(*left).cmp(name(*right))));
    largest
}

/// The teams of which it is said that guarantees of a resource, `sum` in all, go beyond what is `covered`: each that does by itself,
/// and for what the others lack their parent, or without a parent the largest of them.
fn beyond_cover(largest: &[(i64, TeamId)], parent: Option<TeamId>, sum: i64, covered: i64) -> Vec<TeamId> {
    let (mut at, mut rest) = (Vec::new(), sum);
    for (amount, team) in largest {
        if *amount <= covered && (rest <= covered || parent.is_some()) {
            break;
        }
        at.push(*team);
        rest = rest.saturating_sub(*amount);
    }
    at.extend(parent.filter(|_| rest > covered));
    at
}

/// By how much guarantees of a resource go beyond what is covered, with the largest of them.
fn uncovered_part(
    state: &ClusterState,
    index: usize,
    largest: &[(i64, TeamId)],
    (sum, covered): (i64, i64),
) -> String {
    let resource = state.resources.name(index);
    let text = |milli: i64| Amount::milli(milli).quantity(resource);
    let named = largest.iter().take(NAMED);
    let mut teams: Vec<String> =
        named.map(|(amount, team)| format!("{} {}", state.quotas.team(*team).name, text(*amount))).collect();
    if largest.len() > NAMED {
        teams.push(format!("{} more teams", largest.len() - NAMED));
    }
    format!("{} of {} {resource} ({})", text(sum), text(covered), teams.join(", "))
}
