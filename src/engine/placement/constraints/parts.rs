//! How many pods of a request go to which group of sites, where rules join several sites.
//!
//! Sites with the same domains form a part, and no rule tells the sites of a part apart. Rounds over all parts give each
//! as many pods as every rule allows, until all pods have a part or no part takes one more. A spread allows more in the
//! next round, once the domain with the fewest pods has got some. This is exact where the domains of one rule lie within
//! those of the other, as hosts in racks in zones.

use std::collections::BTreeMap;

use crate::placement::constraints::levels::Levels;
use crate::placement::constraints::rules::{Kind, Rule, Rules, domain};
use crate::placement::domains::{Site, total_fits};
use crate::state::nodes::NodeTable;
use crate::types::Name;

/// Sites with the same domains, and the pods that go to them.
#[derive(Clone, Debug)]
pub struct Part {
    /// The sites.
    pub sites: Vec<Site>,
    /// How many pods go to them.
    pub pods: u32,
}

impl Rules {
    /// The sites by their domain of every affinity without pods so far: all pods go to one of these groups.
    fn groups(&self, nodes: &NodeTable, sites: &[Site]) -> Vec<Vec<Site>> {
        let same = || self.rules.iter().filter(|rule| matches!(rule.kind, Kind::Same));
        let mut groups: BTreeMap<Vec<Option<&Name>>, Vec<Site>> = BTreeMap::new();
        for site in sites {
            groups
                .entry(same().map(|rule| domain(nodes, site, &rule.key)).collect())
                .or_default()
                .push(*site);
        }
        groups.into_values().collect()
    }

    /// The most pods that the rules allow on these sites.
    #[must_use]
    pub fn most(&self, nodes: &NodeTable, sites: &[Site]) -> u32 {
        let most =
            |group: Vec<Site>| self.in_group(nodes, &group, u32::MAX).iter().map(|part| part.pods).sum();
        self.groups(nodes, sites).into_iter().map(most).max().unwrap_or(0)
    }

    /// The parts for that many pods; `None` if the rules do not allow them all. Of several groups it is the one with the
    /// least free capacity, as `free` tells.
    #[must_use]
    pub fn divide(
        &self,
        nodes: &NodeTable,
        sites: &[Site],
        pods: u32,
        free: impl Fn(&Site) -> i64,
    ) -> Option<Vec<Part>> {
        let divided = self.groups(nodes, sites).into_iter().filter_map(|group| {
            let parts = self.in_group(nodes, &group, pods);
            let placed: u32 = parts.iter().map(|part| part.pods).sum();
            let size = group.iter().map(&free).fold(0, i64::saturating_add);
            (placed == pods).then_some(((size, total_fits(&group)), parts))
        });
        divided.min_by_key(|(size, _)| *size).map(|(_, parts)| parts)
    }

    /// At most that many pods on the sites of one group.
    fn in_group(&self, nodes: &NodeTable, sites: &[Site], pods: u32) -> Vec<Part> {
        let rules: Vec<&Rule> = self.rules.iter().filter(|rule| !matches!(rule.kind, Kind::Same)).collect();
        let mut levels: Vec<Levels> = rules.iter().map(|rule| Levels::of(rule)).collect();
        let mut by_domains: BTreeMap<Vec<Option<&Name>>, Vec<Site>> = BTreeMap::new();
        for site in sites {
            by_domains
                .entry(rules.iter().map(|rule| domain(nodes, site, &rule.key)).collect())
                .or_default()
                .push(*site);
        }
        let mut parts: Vec<(Vec<Option<&Name>>, u32, Part)> = by_domains
            .into_iter()
            .map(|(domains, sites)| (domains, total_fits(&sites), Part { sites, pods: 0 }))
            .collect();
        // The largest first, so that few parts take the pods where the rules leave a choice.
        parts.sort_by_key(|(_, fits, _)| std::cmp::Reverse(*fits));
        let mut left = pods;
        loop {
            let before = left;
            for (domains, fits, part) in parts.iter_mut().filter(|(_, fits, part)| part.pods < *fits) {
                let allowed =
                    levels.iter().zip(domains.iter()).map(|(levels, domain)| levels.allowed(*domain)).min();
                let more = allowed.unwrap_or(u32::MAX).min(*fits - part.pods).min(left);
                if more > 0 {
                    levels
                        .iter_mut()
                        .zip(domains.iter())
                        .for_each(|(levels, domain)| levels.add(*domain, more));
                    part.pods += more;
                    left -= more;
                }
            }
            if left == 0 || left == before {
                break;
            }
        }
        parts.into_iter().map(|(_, _, part)| part).filter(|part| part.pods > 0).collect()
    }
}
