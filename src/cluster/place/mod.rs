//! How the pods of admitted Jobs reach the nodes of the admission, and obstacles on the way.
//!
//! The template pins a Job with one node, and a Job of which no node could hold more pods than planned, unless it is elastic. The pods of
//! any other Job are made with a gate and get their nodes one by one: pods of an Indexed Job from the webhook, by
//! their indexes, all others here. This module decides nothing: it carries out a record, and reports pods for
//! which that is impossible.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::mirror::Mirror;
use super::target::pod::{PodSeen, Way};
use super::target::{Managed, Pin};
use crate::engine::types::amount::Amount;
use crate::engine::types::{Admission, MisplacedPods, Name, Node, Observed, WorkloadId};

/// How long kube-scheduler may find no way to an open node: a pod that ends frees capacity there a moment later,
/// and a scheduler that has failed pauses for up to 10 s.
const GRACE: Duration = Duration::from_secs(12);
/// How long a node may be closed before its pods go to other nodes.
const GRACE_CLOSED: Duration = Duration::from_secs(2);

/// How the pods of a workload are pinned to the nodes of an admission.
#[must_use]
pub fn pin(mirror: &Mirror, managed: &Managed, admission: &Admission) -> Pin {
    let Some(job) = managed.job() else { return Pin::Template };
    let workload = &managed.workload;
    let indexed = job.done.is_some();
    // The template cannot change while the Job runs, and growth may add any node: after a shrink, and where the user of an elastic Job
    // asks for more pods.
    let may_grow = workload.min_pods.is_some();
    let spread = admission.nodes.len() > 1 && (indexed || !fills(mirror, managed, admission));
    if spread || may_grow { Pin::OneByOne } else { Pin::Template }
}

/// Whether none of the nodes could hold more of the pods than planned, even if it were empty.
fn fills(mirror: &Mirror, managed: &Managed, admission: &Admission) -> bool {
    let requests = managed.workload.requests_at(admission.share);
    admission.nodes.iter().all(|(name, pods)| {
        let Some(node) = mirror.node(name) else { return false };
        requests.iter().any(|(resource, amount)| {
            let offered = node.allocatable.get(resource).copied().unwrap_or(Amount::ZERO);
            let one_more = amount.as_milli().saturating_mul(i64::from(*pods) + 1);
            one_more > offered.as_milli()
        })
    })
}

/// The writes due on the pods of a Job, and its pods without a way to their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duties {
    /// Pods that wait for a node, with their node.
    pub seats: Vec<(Name, Name)>,
    /// Pods on nodes that the admission does not plan for them; the Job controller replaces them.
    pub remakes: Vec<Remake>,
    /// Pods that do not reach their nodes, and how long that may last before it is reported.
    pub trouble: Option<(MisplacedPods, Duration)>,
}

/// A pod to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remake {
    /// The UID.
    pub pod: Name,
    /// Whether its node is gone, so that no kubelet can end it.
    pub lost: bool,
}

/// The pods of a Job, by their progress.
#[derive(Default)]
struct Pods<'a> {
    /// Bound, by node.
    bound: BTreeMap<Name, Vec<&'a Name>>,
    /// Not bound, with one node in their affinity, by node.
    aimed: BTreeMap<Name, Vec<(&'a Name, &'a Way)>>,
    /// Not bound, with several nodes in their affinity.
    unaimed: Vec<&'a Way>,
    /// Gated until they get a node.
    waiting: Vec<(&'a Name, &'a Way)>,
    /// Nodes with pods about to end.
    ending: BTreeSet<Name>,
}

impl<'a> Pods<'a> {
    fn of(mirror: &'a Mirror, id: &WorkloadId, placing: &BTreeMap<Name, Name>) -> Self {
        let mut pods = Self::default();
        let mut seen: Vec<(&Name, &PodSeen)> = mirror.pods_with_uid(id).collect();
        seen.sort_by(|left, right| left.1.name.cmp(&right.1.name));
        for (uid, pod) in seen {
            let (Some(held), Some(way)) = (&pod.holds, pod.way.as_deref()) else { continue };
            match &held.node {
                Some(node) if way.ending => drop(pods.ending.insert(node.clone())),
                _ if way.ending => {}
                Some(node) => pods.bound.entry(node.clone()).or_default().push(uid),
                None => match placing.get(uid).or(way.aim.as_ref()) {
                    Some(node) => pods.aimed.entry(node.clone()).or_default().push((uid, way)),
                    None if way.waits() => pods.waiting.push((uid, way)),
                    None => pods.unaimed.push(way),
                },
            }
        }
        pods
    }

    fn count(&self) -> usize {
        let bound: usize = self.bound.values().map(Vec::len).sum();
        let aimed: usize = self.aimed.values().map(Vec::len).sum();
        bound + aimed + self.unaimed.len() + self.waiting.len()
    }

    /// How many pods are on a node or aimed at it.
    fn on(&self, node: &Name) -> usize {
        self.bound.get(node).map_or(0, Vec::len) + self.aimed.get(node).map_or(0, Vec::len)
    }
}

/// The writes due on the pods of a Job now; nothing for other kinds, with pods that may go to any of their nodes.
/// `placing` has the pods with a node being written; `moves` says that a decision has just moved running pods.
#[must_use]
pub fn duties(mirror: &Mirror, id: &WorkloadId, placing: &BTreeMap<Name, Name>, moves: bool) -> Duties {
    let Some((managed, _)) = mirror.workload(id) else { return Duties::default() };
    let Observed::Admitted(admission) = &managed.workload.state else { return Duties::default() };
    if managed.job().is_none() {
        return Duties::default();
    }
    let review = Review { mirror, managed, admission, placing, pods: Pods::of(mirror, id, placing) };
    let mut stuck = Stuck::default();
    let seats = review.seats(&mut stuck);
    review.report_aimed(&mut stuck);
    review.report_unaimed(&mut stuck);
    // While there are more pods than granted, their controller is about to delete some.
    let settled = review.pods.count() <= admission.pods as usize;
    let remakes = if settled { review.remakes(moves) } else { Vec::new() };
    let misplaced = !stuck.nodes.is_empty() || review.runs_elsewhere() && !moves;
    let trouble = (settled && remakes.is_empty() && misplaced).then(|| review.trouble(id, stuck));
    Duties { seats, remakes, trouble }
}

/// An admitted Job and its pods.
struct Review<'a> {
    mirror: &'a Mirror,
    managed: &'a Managed,
    admission: &'a Admission,
    placing: &'a BTreeMap<Name, Name>,
    pods: Pods<'a>,
}

/// Pods that do not reach their nodes.
#[derive(Default)]
struct Stuck {
    nodes: BTreeMap<Name, u32>,
    /// The first obstacle.
    message: String,
    /// Whether one of the nodes is closed.
    closed: bool,
}

impl Review<'_> {
    /// How many pods the admission plans for a node.
    fn planned(&self, node: &Name) -> usize {
        self.admission.nodes.get(node).copied().unwrap_or(0) as usize
    }

    fn is_open(&self, node: &Name) -> bool {
        self.mirror.node(node).is_some_and(|node| node.schedulable)
    }

    /// Notes a pod that does not reach a node; `said` is the message of kube-scheduler.
    fn blame(&self, stuck: &mut Stuck, node: &Name, said: Option<&str>) {
        *stuck.nodes.entry(node.clone()).or_default() += 1;
        stuck.closed |= !self.is_open(node);
        if stuck.message.is_empty() {
            let state = || obstacle(self.mirror.node(node)).to_owned();
            stuck.message = said.map_or_else(state, ToOwned::to_owned);
        }
    }

    /// The waiting pods with their nodes.
    fn seats(&self, stuck: &mut Stuck) -> Vec<(Name, Name)> {
        let mut seats = Vec::new();
        let mut given: BTreeMap<Name, usize> = BTreeMap::new();
        for (uid, way) in &self.pods.waiting {
            let free =
                |node: &Name| self.pods.on(node) + given.get(node).copied().unwrap_or(0) < self.planned(node);
            let by_index = way.index.and_then(|index| self.managed.seats()?.node_of(index).cloned());
            let places = || self.admission.nodes.keys().filter(|node| free(node));
            // A pod with an index takes no other's node, which the webhook may give away at the same time.
            let place = by_index
                .or_else(|| places().find(|node| self.is_open(node)).cloned())
                .or_else(|| places().next().cloned());
            let Some(node) = place else { continue };
            *given.entry(node.clone()).or_default() += 1;
            if self.is_open(&node) {
                seats.push(((*uid).clone(), node));
            } else {
                self.blame(stuck, &node, None);
            }
        }
        seats
    }

    /// Notes pods with one node that cannot be bound there, unless a pod about to end may free capacity.
    fn report_aimed(&self, stuck: &mut Stuck) {
        for (node, aimed) in &self.pods.aimed {
            let comes_free = self.is_open(node) && self.pods.ending.contains(node);
            for (_, way) in aimed.iter().filter(|(uid, _)| !self.placing.contains_key(*uid) && !comes_free) {
                if way.refused.is_some() || !self.is_open(node) {
                    self.blame(stuck, node, way.refused.as_deref());
                }
            }
        }
    }

    /// Notes pods that can be bound to none of several nodes, on a node that lacks pods, a closed one first.
    fn report_unaimed(&self, stuck: &mut Stuck) {
        for way in self.pods.unaimed.iter().filter(|way| way.refused.is_some()) {
            let short = |node: &&Name| self.pods.on(node) < self.planned(node);
            let lacking = || self.admission.nodes.keys().filter(short);
            if let Some(node) = lacking().find(|node| !self.is_open(node)).or_else(|| lacking().next()) {
                self.blame(stuck, node, way.refused.as_deref());
            }
        }
    }

    /// The pods to be replaced: bound ones beyond the plan where their node is gone or a decision moved them, and
    /// aimed ones beyond the plan.
    fn remakes(&self, moves: bool) -> Vec<Remake> {
        let mut remakes = Vec::new();
        for (node, bound) in &self.pods.bound {
            let lost = self.mirror.node(node).is_none();
            let beyond = bound.len().saturating_sub(self.planned(node));
            if lost || moves {
                let remake = |pod: &&Name| Remake { pod: (*pod).clone(), lost };
                remakes.extend(bound.iter().rev().take(beyond).map(remake));
            }
        }
        for (node, aimed) in &self.pods.aimed {
            let beyond = self.pods.on(node).saturating_sub(self.planned(node));
            let idle = aimed.iter().rev().filter(|(uid, _)| !self.placing.contains_key(*uid));
            let remake = |(pod, _): &(&Name, &Way)| Remake { pod: (*pod).clone(), lost: false };
            remakes.extend(idle.take(beyond).map(remake));
        }
        remakes
    }

    /// The bound pods by node. The engine itself knows of pods on a node that is gone.
    fn bound(&self) -> impl Iterator<Item = (&Name, &Vec<&Name>)> {
        self.pods.bound.iter().filter(|(node, _)| self.mirror.node(node).is_some())
    }

    /// Whether a node has more bound pods than planned.
    fn runs_elsewhere(&self) -> bool {
        self.bound().any(|(node, bound)| bound.len() > self.planned(node))
    }

    /// The report for the engine, and how long the obstacle may last.
    fn trouble(&self, id: &WorkloadId, stuck: Stuck) -> (MisplacedPods, Duration) {
        let grace = if stuck.closed { GRACE_CLOSED } else { GRACE };
        let count = |bound: &Vec<&Name>| u32::try_from(bound.len()).unwrap_or(u32::MAX);
        let there = self.bound().map(|(node, bound)| (node.clone(), count(bound))).collect();
        (MisplacedPods { workload: id.clone(), there, stuck: stuck.nodes, message: stuck.message }, grace)
    }
}

/// Why no pod can be started on a node, where kube-scheduler gives no reason.
fn obstacle(node: Option<&Node>) -> &'static str {
    match node {
        None => "the node is gone",
        Some(node) if !node.schedulable => "the node is cordoned or not ready",
        Some(_) => "kube-scheduler finds no way there",
    }
}

#[cfg(test)]
mod tests;
