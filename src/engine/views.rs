//! The engine's state in figures, for people, metrics and objects' status.

use std::collections::BTreeMap;

use super::amount::{Amount, ResourceList};
use super::books::Books;
use super::decision::{NodeView, Overcommitment, QueueView, SharedDevice, TeamView};
use super::entry::Phase;
use super::fair;
use super::forest::{Imagined, PoolIx};
use super::model::{DEFAULT_POOL, Name, Time};
use super::vector::Vector;

/// Every team in every pool in which it is promised or holds something.
pub fn teams(books: &Books) -> Vec<TeamView> {
    let mut views = Vec::new();
    let fair = fair::shares(books);
    for (team, entry) in books.forest.teams() {
        let Some(definition) = &entry.team else { continue };
        for (pool_name, pool) in books.forest.pools() {
            let account = books.forest.account(pool, team);
            let quota = definition.quotas.get(pool_name);
            if quota.is_none() && account.held.nonzero().next().is_none() {
                continue;
            }
            let mut borrowed = Vector::default();
            let mut lent = Vector::default();
            for (index, held) in account.held.entries() {
                borrowed.set(index, account.surplus(index, held));
            }
            for (index, guaranteed) in account.governed() {
                lent.set(index, lent_out(books, pool, index, guaranteed - account.held.get(index)));
            }
            views.push(TeamView {
                team: entry.name.clone(),
                pool: pool_name.clone(),
                guaranteed: quota.map(|quota| quota.guaranteed.clone()).unwrap_or_default(),
                limit: quota.map(|quota| quota.limit.clone()).unwrap_or_default(),
                used: list(books, &account.held),
                borrowed: list(books, &borrowed),
                lent: list(books, &lent),
                fair_share: fair.get(&(pool, team)).map(|share| list(books, share)).unwrap_or_default(),
            });
        }
    }
    views
}

/// A list without the pod slots.
fn list(books: &Books, vector: &Vector) -> ResourceList {
    let mut list = books.resources.list(vector);
    list.remove(super::vector::PODS);
    list
}

/// The part of an idle guarantee that others use: all that is borrowed in the pool, divided among
/// those who lend in proportion to what each leaves idle.
fn lent_out(books: &Books, pool: PoolIx, index: usize, idle: i64) -> i64 {
    if idle <= 0 {
        return 0;
    }
    // Leaves of the forest only, so that nobody's use counts twice.
    let leaves = || {
        books.forest.teams().filter(|(team, entry)| {
            entry.team.is_some() && !books.forest.teams().any(|(_, other)| other.path.get(1) == Some(team))
        })
    };
    let account = |team| books.forest.account(pool, team);
    let borrowed: i64 =
        leaves().map(|(team, _)| account(team).surplus(index, account(team).held.get(index))).sum();
    let idle_in_all: i64 = leaves()
        .filter_map(|(team, _)| {
            let governed = account(team).governed().find(|(governed, _)| *governed == index);
            governed.map(|(_, guaranteed)| (guaranteed - account(team).held.get(index)).max(0))
        })
        .sum();
    let part = i128::from(borrowed.min(idle_in_all)) * i128::from(idle) / i128::from(idle_in_all.max(1));
    i64::try_from(part).unwrap_or(i64::MAX).min(idle)
}

/// Every queue of every team.
pub fn queues(books: &Books) -> Vec<QueueView> {
    let mut counts: BTreeMap<(usize, Name), (usize, Option<Time>, usize)> = BTreeMap::new();
    for entry in books.iter().filter(|entry| !entry.removed) {
        let Ok(queue) = books.queue_of(entry) else { continue };
        let count = counts.entry((entry.team, queue.name.clone())).or_default();
        match entry.phase {
            Phase::Pending => {
                let submitted = entry.workload.submitted;
                count.0 += 1;
                count.1 = Some(count.1.map_or(submitted, |oldest| oldest.min(submitted)));
            }
            Phase::Starting(_) | Phase::Running(_) | Phase::Resizing { .. } => count.2 += 1,
            _ => {}
        }
    }
    let mut views = Vec::new();
    for (team, entry) in books.forest.teams() {
        for queue in entry.team.iter().flat_map(|team| &team.queues) {
            let (pending, oldest, running) =
                counts.get(&(team, queue.name.clone())).copied().unwrap_or_default();
            views.push(QueueView {
                team: entry.name.clone(),
                queue: queue.name.clone(),
                pending,
                oldest,
                running,
            });
        }
    }
    views
}

/// When the oldest waiting workload was submitted that its team's guarantee covers, by team: it
/// should not have to wait longer than those take who must leave for it.
pub fn oldest_owed(books: &Books) -> BTreeMap<Name, Time> {
    let mut oldest: BTreeMap<Name, Time> = BTreeMap::new();
    for entry in books.iter().filter(|entry| !entry.removed && entry.phase == Phase::Pending) {
        let (team, total) = (entry.team, entry.least_total());
        let Ok(queue) = books.queue_of(entry) else { continue };
        let asked = &entry.workload.pools;
        let may = |name: &Name| if asked.is_empty() { &**name == DEFAULT_POOL } else { asked.contains(name) };
        let owed = books
            .forest
            .pools()
            .any(|(name, pool)| may(name) && books.forest.owed(pool, team, &total, &Imagined::new()));
        if owed && books.forest.over_queue_limit(team, queue, &total, &books.resources).is_none() {
            let first = oldest.entry(books.forest.team(team).name.clone());
            let submitted = entry.workload.submitted;
            first.and_modify(|first| *first = submitted.min(*first)).or_insert(submitted);
        }
    }
    oldest
}

/// Every node with who holds room on it.
pub fn nodes(books: &Books) -> Vec<NodeView> {
    let view = |(index, entry, node): (usize, &super::nodes::NodeEntry, &super::model::Node)| NodeView {
        name: node.name.clone(),
        pool: books.forest.pool_name(entry.pool).clone(),
        schedulable: node.schedulable,
        allocatable: node.allocatable.clone(),
        free: books
            .resources
            .list(entry.unheld().amounts())
            .into_iter()
            .filter(|(name, amount)| node.allocatable.contains_key(name) && *amount > Amount::ZERO)
            .collect(),
        workloads: books.occupants(index).map(|(entry, pods)| (entry.workload.id.clone(), pods)).collect(),
        shared: entry
            .devices()
            .tenants()
            .map(|(resource, shares)| SharedDevice {
                resource: books.resources.name(resource).clone(),
                shares: shares
                    .iter()
                    .map(|(who, milli)| (who.name().clone(), Amount::milli(*milli)))
                    .collect(),
            })
            .collect(),
    };
    books.nodes.alive().map(view).collect()
}

/// Promises that the nodes, or a parent's promise, do not cover.
pub fn overcommitments(books: &Books) -> Vec<Overcommitment> {
    let mut found = Vec::new();
    for (pool_name, pool) in books.forest.pools() {
        let children_of = |parent: Option<usize>| {
            let mut promised = Vector::default();
            for (team, entry) in books.forest.teams() {
                if entry.team.is_some() && entry.path.get(1).copied() == parent {
                    promised.add(&books.forest.account(pool, team).guaranteed, 1);
                }
            }
            promised
        };
        let mut compare = |team: Option<usize>, cover: &Vector, whose: &str| {
            for (index, promised) in children_of(team).nonzero() {
                if promised > cover.get(index) {
                    let name = books.resources.name(index);
                    let (promised, cover) = (Amount::milli(promised), Amount::milli(cover.get(index)));
                    found.push(Overcommitment {
                        team: team.map(|team| books.forest.team(team).name.clone()),
                        pool: pool_name.clone(),
                        message: format!(
                            "{promised} {name} are guaranteed in pool {pool_name}, but {whose} {cover}"
                        ),
                    });
                }
            }
        };
        compare(None, books.forest.capacity(pool), "the nodes offer");
        for (team, entry) in books.forest.teams() {
            let account = books.forest.account(pool, team);
            if entry.team.is_some() && account.promises() {
                compare(Some(team), &account.guaranteed, "the parent is promised");
            }
        }
    }
    found
}
