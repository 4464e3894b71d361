//! How the pods of admitted Jobs come to the nodes of the admission, and what keeps them from it.
//!
//! A Job whose pods all go to one node is pinned by its template, and so is one of which no node could hold
//! more pods than it is to get. The pods of any other are made with a gate and get their places one by one:
//! those of an Indexed Job from the webhook, by their numbers, the rest here. Nothing is decided here: a
//! record is carried out, and where it cannot be, that is told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::mirror::Mirror;
use super::patch::Pin;
use super::reduce::Managed;
use super::reduce::pod::{PodSeen, Way};
use crate::engine::types::amount::Amount;
use crate::engine::types::{Admission, MisplacedPods, Name, Node, Observed, WorkloadId, WorkloadKind};

/// How long kube-scheduler may find no way to a node that is open: a pod that ends makes room there a
/// moment later, and a scheduler that has failed pauses for up to 10 s.
const GRACE: Duration = Duration::from_secs(12);
/// How long a node may be closed before pods go elsewhere.
const GRACE_CLOSED: Duration = Duration::from_secs(2);

/// How the pods of a Job are to be pinned.
#[must_use]
pub fn pin(mirror: &Mirror, managed: &Managed, admission: &Admission) -> Pin {
    let workload = &managed.workload;
    let indexed = managed.facts.done.is_some();
    let elastic = workload.min_pods.is_some_and(|fewest| fewest < workload.pods);
    // What its template says cannot change while it runs, and growth may lead it anywhere.
    let may_grow = elastic && (indexed || admission.pods < workload.pods);
    let spread = admission.nodes.len() > 1 && (indexed || !fills(mirror, managed, admission));
    if spread || may_grow { Pin::OneByOne } else { Pin::Template }
}

/// Whether none of the nodes could hold more of the pods than it is to get, even if it were empty.
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

/// What is to be done about the pods of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duties {
    /// Pods that wait for a place, with the node where they have it.
    pub seats: Vec<(Name, Name)>,
    /// Pods that are where their Job has no place for them, to be made anew.
    pub remakes: Vec<Remake>,
    /// Pods that do not come to their places, and how long that may last.
    pub trouble: Option<(MisplacedPods, Duration)>,
}

/// A pod to be made anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remake {
    /// Its UID.
    pub pod: Name,
    /// Whether its node is gone, so that nobody is left to end it.
    pub lost: bool,
}

/// The pods of a Job, by how far they have come.
#[derive(Default)]
struct Pods<'a> {
    /// Bound, by node.
    bound: BTreeMap<Name, Vec<&'a Name>>,
    /// On their way to a node that their affinity names, by node.
    aimed: BTreeMap<Name, Vec<(&'a Name, &'a Way)>>,
    /// On their way to any of several nodes.
    roaming: Vec<&'a Way>,
    /// Gated until they get a place.
    waiting: Vec<(&'a Name, &'a PodSeen, &'a Way)>,
    /// Nodes on which some are about to end.
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
                    None if way.waits() => pods.waiting.push((uid, pod, way)),
                    None => pods.roaming.push(way),
                },
            }
        }
        pods
    }

    fn count(&self) -> usize {
        let bound: usize = self.bound.values().map(Vec::len).sum();
        let aimed: usize = self.aimed.values().map(Vec::len).sum();
        bound + aimed + self.roaming.len() + self.waiting.len()
    }

    /// How many have or will have their place on a node.
    fn on(&self, node: &Name) -> usize {
        self.bound.get(node).map_or(0, Vec::len) + self.aimed.get(node).map_or(0, Vec::len)
    }
}

/// What is to be done about the pods of a Job now. `placing` are the pods whose places are being written;
/// `moves` says that it has just been decided that running ones go elsewhere.
#[must_use]
pub fn duties(mirror: &Mirror, id: &WorkloadId, placing: &BTreeMap<Name, Name>, moves: bool) -> Duties {
    let mut duties = Duties::default();
    let Some((managed, _)) = mirror.workload(id) else { return duties };
    let Observed::Admitted(admission) = &managed.workload.state else { return duties };
    // The pods of other kinds may go to any of their nodes, so the record says less of them.
    if managed.workload.kind != WorkloadKind::Job {
        return duties;
    }
    let pods = Pods::of(mirror, id, placing);
    let planned = |node: &Name| admission.nodes.get(node).copied().unwrap_or(0) as usize;
    let open = |node: &Name| mirror.node(node).is_some_and(|node: &Node| node.schedulable);

    let mut stuck: BTreeMap<Name, u32> = BTreeMap::new();
    let mut message = String::new();
    let mut closed = false;
    let mut blame = |node: &Name, said: Option<&str>| {
        *stuck.entry(node.clone()).or_default() += 1;
        closed |= !open(node);
        if message.is_empty() {
            message = said.map_or_else(|| state_of(mirror.node(node)).to_owned(), ToOwned::to_owned);
        }
    };

    let mut given: BTreeMap<Name, usize> = BTreeMap::new();
    for (uid, _, way) in &pods.waiting {
        let free = |node: &Name| pods.on(node) + given.get(node).copied().unwrap_or(0) < planned(node);
        let numbered = way.index.and_then(|index| managed.facts.seats.as_ref()?.node_of(index).cloned());
        let places = || admission.nodes.keys().filter(|node| free(node));
        // A numbered pod takes no other's place, which the webhook may give away at the same time.
        let place = numbered
            .or_else(|| places().find(|node| open(node)).cloned())
            .or_else(|| places().next().cloned());
        let Some(node) = place else { continue };
        *given.entry(node.clone()).or_default() += 1;
        if open(&node) {
            duties.seats.push(((*uid).clone(), node));
        } else {
            blame(&node, None);
        }
    }

    for (node, aimed) in &pods.aimed {
        let comes_free = open(node) && pods.ending.contains(node);
        for (_, way) in aimed.iter().filter(|(uid, _)| !placing.contains_key(*uid) && !comes_free) {
            if way.refused.is_some() || !open(node) {
                blame(node, way.refused.as_deref());
            }
        }
    }
    for way in pods.roaming.iter().filter(|way| way.refused.is_some()) {
        let short = |node: &&Name| pods.on(node) < planned(node);
        let candidates = || admission.nodes.keys().filter(short);
        if let Some(node) = candidates().find(|node| !open(node)).or_else(|| candidates().next()) {
            blame(node, way.refused.as_deref());
        }
    }

    // While there are more pods than granted, some are about to be taken by their controller.
    let settled = pods.count() <= admission.pods as usize;
    if settled {
        for (node, bound) in &pods.bound {
            let lost = mirror.node(node).is_none();
            let beyond = bound.len().saturating_sub(planned(node));
            if lost || moves {
                let remake = |pod: &&Name| Remake { pod: (*pod).clone(), lost };
                duties.remakes.extend(bound.iter().rev().take(beyond).map(remake));
            }
        }
        for (node, aimed) in &pods.aimed {
            let beyond = pods.on(node).saturating_sub(planned(node));
            let still = aimed.iter().rev().filter(|(uid, _)| !placing.contains_key(*uid));
            let remake = |(pod, _): &(&Name, &Way)| Remake { pod: (*pod).clone(), lost: false };
            duties.remakes.extend(still.take(beyond).map(remake));
        }
    }
    // Of those on a node that is gone the engine knows by itself.
    let bound = || pods.bound.iter().filter(|(node, _)| mirror.node(node).is_some());
    let elsewhere = bound().any(|(node, bound)| bound.len() > planned(node));
    if duties.remakes.is_empty() && settled && (!stuck.is_empty() || elsewhere && !moves) {
        let grace = if closed { GRACE_CLOSED } else { GRACE };
        let count = |bound: &Vec<&Name>| u32::try_from(bound.len()).unwrap_or(u32::MAX);
        let there = bound().map(|(node, bound)| (node.clone(), count(bound))).collect();
        duties.trouble = Some((MisplacedPods { workload: id.clone(), there, stuck, message }, grace));
    }
    duties
}

/// Why no pod can be started on a node that is closed.
fn state_of(node: Option<&Node>) -> &'static str {
    match node {
        None => "the node is gone",
        Some(node) if !node.schedulable => "the node is cordoned or not ready",
        Some(_) => "kube-scheduler finds no way there",
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
