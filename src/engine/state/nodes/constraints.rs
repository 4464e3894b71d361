//! The constraints between the pods on nodes: which running pods repel others, and which pods a constraint looks at.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::capacity::fit::requirement_holds;
use crate::state::nodes::node::NodeInfo;
use crate::types::ids::NodeId;
use crate::types::{Name, Operator, PodSelector, PodTerm, Profile};

/// At most this many counts are kept.
pub(super) const COUNTS: usize = 256;

/// Whether a selector selects a pod of this profile.
#[must_use]
pub fn selects(pods: &PodSelector, profile: &Profile) -> bool {
    (pods.namespaces.is_empty() || pods.namespaces.contains(&profile.namespace))
        && pods
            .labels
            .iter()
            .all(|requirement| requirement_holds(requirement, profile.labels.get(&requirement.key)))
}

/// Terms with the number of holds on nodes that have pods with them.
type Terms = BTreeMap<Arc<PodTerm>, usize>;

/// The constraints that the pods on nodes have on pods that come.
#[derive(Clone, Debug, Default)]
pub struct Constraints {
    /// The anti-affinity terms of pods on nodes, by a label that every pod has which the term selects.
    by_label: BTreeMap<(Name, Name), Terms>,
    /// The terms that no single label leads to.
    others: Terms,
    /// The pods that the affinity or spread of workloads with nominated capacity looks at.
    awaited: BTreeMap<PodSelector, usize>,
    /// Terms that no pod on a node had until now.
    new: BTreeSet<Arc<PodTerm>>,
    /// Whether profiles of pods that come to a node are collected, and those collected.
    watched: bool,
    come: BTreeSet<Arc<Profile>>,
}

impl Constraints {
    /// Notes that pods of one profile take the place of another's on a node; `more` are there than before.
    pub(super) fn replace(
        &mut self,
        before: Option<&Arc<Profile>>,
        after: Option<&Arc<Profile>>,
        more: bool,
    ) {
        if self.watched
            && (more || before != after)
            && let Some(profile) = after
        {
            self.come.insert(Arc::clone(profile));
        }
        if before == after {
            return;
        }
        before.into_iter().flat_map(|profile| &profile.apart).for_each(|term| self.release(term));
        after.into_iter().flat_map(|profile| &profile.apart).for_each(|term| self.retain(term));
    }

    fn retain(&mut self, term: &Arc<PodTerm>) {
        let holds = self.terms_like(term).entry(Arc::clone(term)).or_default();
        *holds += 1;
        if *holds == 1 {
            self.new.insert(Arc::clone(term));
        }
    }

    fn release(&mut self, term: &Arc<PodTerm>) {
        let terms = self.terms_like(term);
        let Some(holds) = terms.get_mut(term) else { return };
        *holds -= 1;
        if *holds == 0 {
            terms.remove(term);
            if let Some(label) = required_label(term)
                && self.by_label.get(&label).is_some_and(BTreeMap::is_empty)
            {
                self.by_label.remove(&label);
            }
        }
    }

    fn terms_like(&mut self, term: &PodTerm) -> &mut Terms {
        match required_label(term) {
            Some(label) => self.by_label.entry(label).or_default(),
            None => &mut self.others,
        }
    }

    /// The anti-affinity terms of pods on nodes that select a pod of this profile. Cheap where there are none.
    pub fn repelling<'a>(&'a self, profile: &'a Profile) -> impl Iterator<Item = &'a Arc<PodTerm>> {
        let labels = profile.labels.iter().filter(|_| !self.by_label.is_empty());
        let labelled = labels.filter_map(|(key, value)| self.by_label.get(&(key.clone(), value.clone())));
        labelled.chain([&self.others]).flat_map(BTreeMap::keys).filter(|term| selects(&term.pods, profile))
    }

    /// Notes that pods of this profile are expected on a node, or not any more.
    pub(super) fn expect(&mut self, profile: &Profile, expected: bool) {
        for term in &profile.apart {
            if expected {
                self.retain(term);
            } else {
                self.release(term);
            }
        }
        let together = profile.together.iter().map(|term| &term.pods);
        for pods in together.chain(profile.spread.iter().map(|term| &term.pods)) {
            let count = self.awaited.entry(pods.clone()).or_default();
            *count = if expected { *count + 1 } else { count.saturating_sub(1) };
        }
        self.awaited.retain(|_, count| *count > 0);
    }

    /// Whether the affinity or spread of a workload with nominated capacity looks at pods of this profile. Such pods wait
    /// until it has started: it could not start on its nodes beside them.
    #[must_use]
    pub fn is_awaited(&self, profile: &Profile) -> bool {
        self.awaited.keys().any(|pods| selects(pods, profile))
    }

    /// The anti-affinity terms that have come since the last call.
    pub fn take_new(&mut self) -> BTreeSet<Arc<PodTerm>> {
        std::mem::take(&mut self.new)
    }

    /// The profiles of pods that have come to a node since the last call. `watched` says whether they are collected.
    pub fn take_come(&mut self, watched: bool) -> BTreeSet<Arc<Profile>> {
        self.watched = watched;
        std::mem::take(&mut self.come)
    }
}

/// A label that every pod has which the term selects.
fn required_label(term: &PodTerm) -> Option<(Name, Name)> {
    term.pods.labels.iter().find_map(|requirement| match (&requirement.operator, &requirement.values[..]) {
        (Operator::In, [value]) => Some((requirement.key.clone(), value.clone())),
        _ => None,
    })
}

/// Pods that a constraint looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wanted {
    /// The pods that all of these select.
    Selected(Vec<PodSelector>),
    /// The pods with this anti-affinity.
    Repelling(Arc<PodTerm>),
}

impl Wanted {
    /// Whether it looks at pods of this profile.
    #[must_use]
    pub fn matches(&self, profile: &Profile) -> bool {
        match self {
            Self::Selected(selectors) => selectors.iter().all(|pods| selects(pods, profile)),
            Self::Repelling(term) => profile.apart.contains(term),
        }
    }

    pub(super) fn count(&self, info: &NodeInfo) -> There {
        let holds = info.holds.values();
        let matching =
            holds.filter(|hold| hold.profile.as_ref().is_some_and(|profile| self.matches(profile)));
        let expected = info.expected.iter().filter(|(profile, _)| self.matches(profile));
        let there = There { expected: expected.map(|(_, pods)| pods).sum(), ..There::default() };
        matching.fold(there, |there, hold| There {
            pods: there.pods.saturating_add(hold.pods),
            terminating: there.terminating.saturating_add(hold.terminating),
            ..there
        })
    }
}

/// The pods on a node that a constraint looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct There {
    /// All of them.
    pub pods: u32,
    /// Those that are about to end.
    pub terminating: u32,
    /// Further ones for which capacity is nominated.
    pub expected: u32,
}

/// The counts of one constraint, as far as they include the changes of nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Count {
    pub(super) asked: u64,
    pub(super) known: Option<u64>,
    pub(super) by_node: BTreeMap<NodeId, There>,
}

/// The counts that were asked for.
#[derive(Clone, Debug, Default)]
pub struct CountCache {
    pub(super) counts: BTreeMap<Wanted, Count>,
    pub(super) asked: u64,
}
