//! What pods see of each other: labels, and the constraints that name other pods by their labels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::types::name::Name;
use crate::types::node::Requirement;

/// The profile of a pod: what the constraints of other pods look at, and its own constraints on them. All pods of a
/// workload have one profile.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Profile {
    /// The namespace of the pod.
    pub namespace: Name,
    /// The labels of the pod, without those that differ between the pods of one workload.
    pub labels: PodLabels,
    /// Required anti-affinity: no pod that a term selects is in the pod's domain, before or after.
    pub apart: Vec<Arc<PodTerm>>,
    /// Required affinity: a pod that all terms select is in the pod's domain of each term.
    pub together: Vec<PodTerm>,
    /// Required spread over domains.
    pub spread: Vec<SpreadTerm>,
}

impl Profile {
    /// Whether the pod has constraints of its own.
    #[must_use]
    pub fn is_constrained(&self) -> bool {
        !(self.apart.is_empty() && self.together.is_empty() && self.spread.is_empty())
    }

    /// The profile with only those labels that its own constraints and these other terms look at. Pods with the same
    /// rest are the same to every placement.
    #[must_use]
    pub fn reduced<'a>(&'a self, others: impl Iterator<Item = &'a PodTerm>) -> Self {
        let own = self.apart.iter().map(|term| &term.pods).chain(self.together.iter().map(|term| &term.pods));
        let own = own.chain(self.spread.iter().map(|term| &term.pods));
        let selectors = own.chain(others.map(|term| &term.pods));
        let keys: BTreeSet<&Name> =
            selectors.flat_map(|pods| pods.labels.iter().map(|requirement| &requirement.key)).collect();
        Self { labels: self.labels.only(|key, _| keys.contains(key)), ..self.clone() }
    }
}

/// The labels of a pod in the order of their keys. They are few and many pods have some, so they take no more memory than they need.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodLabels(Box<[(Name, Name)]>);

impl PodLabels {
    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &Name) -> Option<&Name> {
        let at = self.0.binary_search_by(|(known, _)| known.cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Every label.
    pub fn iter(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The labels that `chosen` chooses.
    #[must_use]
    pub fn only(&self, chosen: impl Fn(&Name, &Name) -> bool) -> Self {
        self.iter()
            .filter(|(key, value)| chosen(key, value))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    /// The labels with other copies of the same names.
    #[must_use]
    pub fn with_copies(&self, mut copy: impl FnMut(&Name) -> Name) -> Self {
        Self(self.iter().map(|(key, value)| (copy(key), copy(value))).collect())
    }
}

impl FromIterator<(Name, Name)> for PodLabels {
    /// Of two labels with one key the later one counts.
    fn from_iter<I: IntoIterator<Item = (Name, Name)>>(labels: I) -> Self {
        Self(labels.into_iter().collect::<BTreeMap<Name, Name>>().into_iter().collect())
    }
}

/// Which pods a constraint looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodSelector {
    /// Their namespaces; empty means every namespace.
    pub namespaces: BTreeSet<Name>,
    /// What their labels must satisfy.
    pub labels: Vec<Requirement>,
}

/// One term of a required affinity or anti-affinity between pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodTerm {
    /// The node label that names the domains.
    pub topology_key: Name,
    /// The pods that it selects.
    pub pods: PodSelector,
}

/// One required spread: no domain has more than `max_skew` selected pods more than the one with the fewest.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpreadTerm {
    /// The node label that names the domains.
    pub topology_key: Name,
    /// The largest difference, at least 1.
    pub max_skew: u32,
    /// With fewer domains than this, the fewest pods of a domain count as none.
    pub min_domains: u32,
    /// The pods that it counts.
    pub pods: PodSelector,
    /// Whether domains of nodes count that the pod's node selector or affinity rule out.
    pub all_nodes: bool,
    /// Whether the domains of nodes with a taint that the pod does not tolerate are left out, where all nodes count.
    pub untainted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_by_their_keys_whatever_their_order_was() {
        let name = |text: &str| Name::from(text);
        let of = |pairs: &[(&str, &str)]| -> PodLabels {
            pairs.iter().map(|(key, value)| (name(key), name(value))).collect()
        };
        let labels = of(&[("c", "3"), ("a", "1"), ("b", "0"), ("b", "2")]);
        assert_eq!(labels, of(&[("a", "1"), ("b", "2"), ("c", "3")]));
        let values = ["a", "b", "c", "d"].map(|key| labels.get(&name(key)).map(|value| &**value));
        assert_eq!(values, [Some("1"), Some("2"), Some("3"), None]);
        assert_eq!(labels.only(|key, value| **key != *"a" && **value != *"3"), of(&[("b", "2")]));
        assert_eq!(labels.with_copies(|known| name(known)), labels);
    }
}
