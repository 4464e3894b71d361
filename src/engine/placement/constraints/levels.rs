//! The pods in the domains of one rule, while the pods of a request are divided.

use std::collections::BTreeMap;

use crate::placement::constraints::rules::{Kind, Rule};
use crate::types::Name;

/// The number of pods in every domain of a rule.
pub(super) struct Levels<'a> {
    rule: &'a Rule,
    counts: BTreeMap<&'a Name, u32>,
    /// How many domains have each number of pods, where the fewest matter.
    sizes: BTreeMap<u32, u32>,
    follows_fewest: bool,
}

impl<'a> Levels<'a> {
    /// The pods that are there before the first pod of the request.
    pub(super) fn of(rule: &'a Rule) -> Self {
        let (counts, follows_fewest) = match &rule.kind {
            Kind::Skew { counts, few_domains, .. } => {
                (counts.iter().map(|(domain, pods)| (domain, *pods)).collect(), !few_domains)
            }
            _ => (BTreeMap::new(), false),
        };
        let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
        for pods in counts.values() {
            *sizes.entry(*pods).or_default() += 1;
        }
        Self { rule, counts, sizes, follows_fewest }
    }

    /// How many more pods a domain may take now. Nodes without the label of an anti-affinity take any number.
    pub(super) fn allowed(&self, domain: Option<&Name>) -> u32 {
        let Some(domain) = domain else { return u32::MAX };
        let fewest =
            self.sizes.first_key_value().filter(|_| self.follows_fewest).map_or(0, |(pods, _)| *pods);
        self.rule.highest(fewest).saturating_sub(self.counts.get(domain).copied().unwrap_or(0))
    }

    /// Adds pods to a domain.
    pub(super) fn add(&mut self, domain: Option<&'a Name>, more: u32) {
        let Some(domain) = domain else { return };
        let counted = self.follows_fewest && self.counts.contains_key(domain);
        let count = self.counts.entry(domain).or_default();
        let before = *count;
        *count = count.saturating_add(more);
        let after = *count;
        if counted {
            if let Some(domains) = self.sizes.get_mut(&before) {
                *domains -= 1;
                if *domains == 0 {
                    self.sizes.remove(&before);
                }
            }
            *self.sizes.entry(after).or_default() += 1;
        }
    }
}
