//! One workload that waits, with everything a decision about it needs.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use super::amount::Amount;
use super::books::{Books, Place};
use super::entry::Entry;
use super::forest::{Imagined, PoolIx, TeamIx};
use super::model::{Admission, CURRENCY, DEFAULT_POOL, Name, PodShape, Topology, WorkloadId};
use super::nodes::NodeIx;
use super::placement::{self, Freed, Placement, Request, Room};
use super::reclaim::Claimant;
use super::rules;
use super::sizes::Sizing;
use super::users::UserOf;
use super::vector::Vector;

/// A workload that waits, with everything a decision about it needs.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its identity.
    pub id: WorkloadId,
    /// Where its entry is kept.
    pub place: Place,
    /// Its team.
    pub team: TeamIx,
    /// Whose it is, where users take turns.
    pub user: Option<UserOf>,
    /// What each pod demands of a node.
    pub shape: Arc<PodShape>,
    /// Within which domains its pods are to lie.
    pub topology: Topology,
    /// What one pod takes.
    pub need: Vector,
    /// What the pods it must have take.
    pub total: Vector,
    /// How many pods it must have: all, or the minimum of an elastic workload.
    pub pods: u32,
    /// Its priority: the queue's, then its own.
    pub priority: (i32, i32),
    /// Whether it may be evicted, and so may run on surplus.
    pub preemptible: bool,
    /// Which of its sizes that is, where it is not the most wanted one.
    pub share: Option<Amount>,
    /// Where pods of it run that these go to join.
    beside: Option<Placement>,
}

impl Candidate {
    /// The waiting workload of that identity; `None` when it is unknown.
    pub fn of(books: &Books, id: &WorkloadId) -> Option<Self> {
        let entry = books.get(id)?;
        let pods = entry.least_pods();
        Some(Self {
            id: id.clone(),
            place: entry.place,
            team: entry.team,
            user: books.forest.user_of(entry.team, entry.workload.user.as_ref()),
            shape: Arc::clone(&entry.shape),
            topology: entry.workload.topology.clone(),
            need: entry.need.clone(),
            total: entry.least_total(),
            pods,
            priority: rules::priority_of(books, entry),
            preemptible: rules::preemptible(books, entry),
            share: None,
            beside: None,
        })
    }

    /// The same workload with its pods at another of its sizes.
    pub fn at_size(&self, size: &Sizing, share: Amount) -> Self {
        let (shape, need) = (Arc::clone(&size.shape), size.need.clone());
        let total = Vector::default().plus(&need, i64::from(self.pods));
        Self { shape, need, total, share: Some(share), ..self.clone() }
    }

    /// The same workload, asking for so many pods besides those of an admission.
    pub fn and_more(mut self, books: &Books, admission: &Admission, pods: u32) -> Self {
        let place = |(name, pods): (&Name, &u32)| books.nodes.find(name).map(|node| (node, *pods));
        self.beside = Some(admission.nodes.iter().filter_map(place).collect());
        self.with_pods(pods)
    }

    /// The same workload, asking for so many pods.
    pub fn with_pods(mut self, pods: u32) -> Self {
        self.pods = pods;
        self.total = Vector::default().plus(&self.need, i64::from(pods));
        self
    }

    /// The same, with its need counted in the currency of a pool.
    pub fn in_pool<'a>(&'a self, books: &Books, pool: PoolIx) -> Cow<'a, Self> {
        let Some(currency) = books.resources.find(CURRENCY) else { return Cow::Borrowed(self) };
        let worth = books.worth(pool, &self.need);
        if worth == self.need.get(currency) {
            return Cow::Borrowed(self);
        }
        let mut other = self.clone();
        other.need.set(currency, worth);
        other.total = Vector::default().plus(&other.need, i64::from(other.pods));
        Cow::Owned(other)
    }

    /// The placement it asks for in a pool.
    pub fn request(&self, pool: PoolIx) -> Request<'_> {
        Request {
            pool,
            shape: &self.shape,
            topology: &self.topology,
            need: &self.need,
            pods: self.pods,
            beside: self.beside.as_ref(),
        }
    }

    /// It, as somebody for whom others may have to go.
    pub fn claimant<'a>(
        &'a self,
        pool: PoolIx,
        nodes: &'a [NodeIx],
        taken: Option<&'a BTreeSet<WorkloadId>>,
    ) -> Claimant<'a> {
        Claimant {
            id: &self.id,
            team: self.team,
            pool,
            shape: &self.shape,
            topology: &self.topology,
            need: &self.need,
            total: &self.total,
            pods: self.pods,
            priority: self.priority,
            preemptible: self.preemptible,
            nodes,
            taken,
        }
    }

    /// Whether it is owed its room in the pool.
    pub fn owed(&self, books: &Books, pool: PoolIx) -> bool {
        books.forest.owed(pool, self.team, &self.total, &Imagined::new())
    }
}

/// The pool it would like best, if that exists.
pub fn first_pool(books: &Books, entry: &Entry) -> Option<PoolIx> {
    pool_names(entry).first().and_then(|name| find_pool(books, name))
}

/// The pools it may run in, in its order.
pub fn pool_names(entry: &Entry) -> Vec<Name> {
    if entry.workload.pools.is_empty() { vec![DEFAULT_POOL.into()] } else { entry.workload.pools.clone() }
}

/// The pool of that name, if it was ever heard of.
pub fn find_pool(books: &Books, name: &Name) -> Option<PoolIx> {
    books.forest.pool(name)
}

impl Room<'_> {
    /// Places all pods of a candidate in such room, or none.
    pub fn place(
        self,
        engine: &Engine,
        candidate: &Candidate,
        pool: PoolIx,
        nodes: &[NodeIx],
    ) -> Option<Placement> {
        placement::place(&engine.books, nodes, &candidate.request(pool), self)
    }
}

/// Where the workload can start at once by every rule, if anywhere.
pub fn fits_now(
    books: &Books,
    candidate: &Candidate,
    pool: PoolIx,
    nodes: &[NodeIx],
    check_surplus: bool,
) -> Option<Placement> {
    let over =
        books.forest.over_limit(pool, candidate.team, &candidate.total, &Imagined::new(), false).is_some();
    if over || check_surplus && !may_borrow(books, candidate, pool) {
        return None;
    }
    placement::place(books, nodes, &candidate.request(pool), Room::Now)
}

/// Whether the workload may live off the surplus, if it would have to.
#[must_use]
pub fn may_borrow(books: &Books, candidate: &Candidate, pool: PoolIx) -> bool {
    let lent = || rules::lending_allows(books, candidate.team, pool, &candidate.total, &Freed::new());
    candidate.owed(books, pool) || candidate.preemptible && lent()
}
