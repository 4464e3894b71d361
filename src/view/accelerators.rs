//! Resources that count as GPUs in views, metrics and commands, whatever their vendor calls them.

use std::collections::{BTreeMap, BTreeSet};

use super::TeamRow;
use crate::api::convert::is_fine;
use crate::engine::Engine;
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{CURRENCY, DEFAULT_POOL, Name, Observed, TeamView, Workload};

/// The resources that count as GPUs: the configured list, or else those named `*/gpu` and the device resources in
/// the teams' quotas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accelerators {
    configured: BTreeSet<String>,
    in_quotas: BTreeSet<String>,
    /// The part of a GPU that a unit of each of these resources is.
    parts: ResourceList,
}

impl Accelerators {
    /// Exactly these resources; with an empty list they are found by name and in quotas.
    #[must_use]
    pub fn configured(resources: &[String]) -> Self {
        Self { configured: resources.iter().cloned().collect(), ..Self::default() }
    }

    /// Whether the configured list is empty, so that quotas matter.
    #[must_use]
    pub fn depend_on_quotas(&self) -> bool {
        self.configured.is_empty()
    }

    /// The same with the device resources among these, which the teams' quotas list.
    #[must_use]
    pub fn with_quotas<'a>(&self, resources: impl IntoIterator<Item = &'a str>) -> Self {
        let devices = resources.into_iter().filter(|resource| is_device(resource));
        Self { in_quotas: devices.map(ToOwned::to_owned).collect(), ..self.clone() }
    }

    /// The same with the device resources in these teams' guarantees and limits.
    #[must_use]
    pub fn with_quotas_of(&self, teams: &[TeamView]) -> Self {
        let listed = teams.iter().flat_map(|team| team.guaranteed.keys().chain(team.limit.keys()));
        self.with_quotas(listed.map(|resource| &**resource))
    }

    /// The same with units of these resources as parts of a GPU, where they are found by name: the `shares` of a pool.
    #[must_use]
    pub fn with_parts(&self, parts: &ResourceList) -> Self {
        let parts = if self.configured.is_empty() { parts.clone() } else { ResourceList::new() };
        Self { parts, ..self.clone() }
    }

    /// What counts in a team's row: the currency where its quota is in it, else the devices with the shares of the pool. In the
    /// sum of many workloads some have units of a hundredth or less beside their devices and others have devices alone, so
    /// that the devices count.
    #[must_use]
    pub fn of_row(&self, row: &TeamRow) -> Self {
        let in_currency = row.guaranteed.contains_key(CURRENCY) || row.limit.contains_key(CURRENCY);
        if in_currency && self.configured.is_empty() {
            return Self::configured(&[CURRENCY.to_owned()]);
        }
        let mut parts = parsed(&row.shares);
        parts.retain(|_, part| !is_fine(*part));
        self.with_parts(&parts)
    }

    /// Whether a resource counts as GPUs.
    #[must_use]
    pub fn contains(&self, resource: &str) -> bool {
        if self.configured.is_empty() {
            self.parts.contains_key(resource)
                || is_gpu(resource) && resource != CURRENCY
                || self.in_quotas.contains(resource)
        } else {
            self.configured.contains(resource)
        }
    }

    /// How many GPUs a list has, parts of one as fractions.
    #[must_use]
    pub fn count(&self, list: &ResourceList) -> f64 {
        self.amount(list).as_units_lossy()
    }

    /// The same as an exact amount.
    #[must_use]
    pub fn amount(&self, list: &ResourceList) -> Amount {
        // Units of a hundredth or less stand beside the device that they are parts of, and cores beside memory.
        let fine = self.parts.iter().filter(|(_, part)| is_fine(**part));
        let mut fine = fine.filter_map(|(resource, part)| Some((list.get(resource)?, *part)));
        if let Some((amount, part)) = fine.next() {
            return times(*amount, part);
        }
        let gpus = list.iter().map(|(resource, amount)| match self.parts.get(resource) {
            Some(part) => times(*amount, *part),
            None if self.contains(resource) => *amount,
            None => Amount::ZERO,
        });
        gpus.fold(Amount::ZERO, |sum, amount| sum + amount)
    }

    /// How many GPUs amounts of an answer have, parts of one as fractions.
    #[must_use]
    pub fn count_amounts(&self, amounts: &BTreeMap<String, String>) -> f64 {
        self.count(&parsed(amounts))
    }
}

/// The amounts of an answer that are well formed.
fn parsed(amounts: &BTreeMap<String, String>) -> ResourceList {
    let parsed = |(resource, amount): (&String, &String)| {
        Some((resource.as_str().into(), Amount::parse(amount).ok()?))
    };
    amounts.iter().filter_map(parsed).collect()
}

/// An amount of units that are parts of a GPU each.
fn times(amount: Amount, part: Amount) -> Amount {
    Amount::milli(amount.as_milli().saturating_mul(part.as_milli()) / 1_000)
}

/// What counts as GPUs in each pool: where a pool has `shares`, units of other resources are parts of a GPU.
#[derive(Clone, Debug, Default)]
pub struct PoolAccelerators {
    usual: Accelerators,
    with_shares: BTreeMap<Name, Accelerators>,
}

impl PoolAccelerators {
    /// These resources, and in each of the pools its shares.
    #[must_use]
    pub fn new<'a>(
        usual: Accelerators,
        shares: impl IntoIterator<Item = (&'a Name, &'a ResourceList)>,
    ) -> Self {
        let shares = shares.into_iter().filter(|(_, parts)| !parts.is_empty());
        let with_shares = shares.map(|(pool, parts)| (pool.clone(), usual.with_parts(parts))).collect();
        Self { usual, with_shares }
    }

    /// These resources and the devices in the quotas of an engine, and in each of the pools its shares.
    #[must_use]
    pub fn of<'a>(
        engine: &Engine,
        accelerators: &Accelerators,
        shares: impl IntoIterator<Item = (&'a Name, &'a ResourceList)>,
    ) -> Self {
        let listed = engine.resources_in_quotas();
        Self::new(accelerators.with_quotas(listed.iter().map(|resource| &**resource)), shares)
    }

    /// What counts in a pool.
    #[must_use]
    pub fn in_pool(&self, pool: &str) -> &Accelerators {
        self.with_shares.get(pool).unwrap_or(&self.usual)
    }

    /// What counts of a workload: in its pool, or in the first of those that it may run in and that has shares.
    #[must_use]
    pub fn of_workload(&self, workload: &Workload) -> &Accelerators {
        if let Observed::Admitted(admission) | Observed::Leaving { admission, .. } = &workload.state {
            return self.in_pool(&admission.pool);
        }
        if workload.pools.is_empty() {
            return self.in_pool(DEFAULT_POOL);
        }
        let mut found = workload.pools.iter().filter_map(|pool| self.with_shares.get(pool));
        found.next().unwrap_or(&self.usual)
    }
}

/// Whether a resource is named as most vendors name whole GPUs.
#[must_use]
pub fn is_gpu(resource: &str) -> bool {
    resource.ends_with("/gpu")
}

/// Endings of resources that are a part of a device or of a node, counted in units of their own: GPU memory and cores
/// of HAMi and others, cpu and memory of batch schedulers.
const PARTS: [&str; 8] = ["cpu", "mem", "memory", "-core", "cores", "percentage", "ratio", "pods"];

/// Whether a resource in a quota is whole devices.
fn is_device(resource: &str) -> bool {
    let Some((domain, name)) = resource.split_once('/') else { return false };
    let of_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    !of_kubernetes && resource != CURRENCY && !PARTS.iter().any(|part| name.ends_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_in_quotas_count_as_gpus() {
        let quotas = [
            "cpu",
            "memory",
            "nvidia.com/gpu",
            "google.com/tpu",
            "habana.ai/gaudi",
            "aws.amazon.com/neuron",
            "aws.amazon.com/neuroncore",
            "nvidia.com/mig-1g.5gb",
            "sluice.dev/gpu",
            "attachable.kubernetes.io/volumes",
            "nvidia.com/gpumem",
            "nvidia.com/gpucores",
            "nvidia.com/gpumem-percentage",
            "example.com/gpu-memory",
            "example.com/batch-cpu",
        ];
        let accelerators = Accelerators::default().with_quotas(quotas);
        let counted: Vec<&str> =
            quotas.into_iter().filter(|resource| accelerators.contains(resource)).collect();
        assert_eq!(
            counted,
            [
                "nvidia.com/gpu",
                "google.com/tpu",
                "habana.ai/gaudi",
                "aws.amazon.com/neuron",
                "aws.amazon.com/neuroncore",
                "nvidia.com/mig-1g.5gb",
            ]
        );
        assert!(accelerators.contains("amd.com/gpu"), "in no quota, but named as a GPU");
        assert!(!accelerators.contains("rdma/hca"), "in no quota");
    }

    #[test]
    fn units_of_shares_are_parts_of_a_gpu() {
        let list = |amounts: &[(&str, i64)]| -> ResourceList {
            amounts.iter().map(|(resource, amount)| ((*resource).into(), Amount::milli(*amount))).collect()
        };
        let shares = list(&[("nvidia.com/gpu.shared", 250), ("nvidia.com/mig-1g.10gb", 140)]);
        let quotas = Accelerators::default().with_quotas(["nvidia.com/mig-1g.10gb"]);
        let pool: Name = "sliced".into();
        let pools = PoolAccelerators::new(quotas.clone(), [(&pool, &shares)]);
        let sliced = pools.in_pool("sliced");
        for (amounts, milli) in [
            (&[("nvidia.com/gpu.shared", 2_000)][..], 500),
            (&[("nvidia.com/mig-1g.10gb", 7_000)], 980),
            (&[("nvidia.com/gpu", 3_000), ("nvidia.com/gpu.shared", 4_000), ("cpu", 8_000)], 4_000),
        ] {
            assert_eq!(sliced.amount(&list(amounts)), Amount::milli(milli), "{amounts:?}");
        }
        let slice = list(&[("nvidia.com/mig-1g.10gb", 1_000)]);
        assert_eq!(pools.in_pool("default").amount(&slice), Amount::units(1), "no part is known");
        // HAMi adds a device to what asks for cores and memory in per cent.
        let percent = list(&[("nvidia.com/gpucores", 10), ("nvidia.com/gpumem-percentage", 10)]);
        let asked = list(&[
            ("nvidia.com/gpu", 1_000),
            ("nvidia.com/gpucores", 40_000),
            ("nvidia.com/gpumem-percentage", 40_000),
        ]);
        assert_eq!(quotas.with_parts(&percent).amount(&asked), Amount::milli(400));
        let configured = Accelerators::configured(&["nvidia.com/gpu".to_owned()]);
        assert_eq!(configured.with_parts(&percent).amount(&asked), Amount::units(1));
    }

    #[test]
    fn amounts_of_a_team_count_with_the_shares_of_its_pool() {
        let list = |amounts: &[(&str, &str)]| -> BTreeMap<String, String> {
            amounts.iter().map(|(resource, amount)| ((*resource).to_owned(), (*amount).to_owned())).collect()
        };
        let shares = list(&[("nvidia.com/gpu.shared", "250m"), ("nvidia.com/gpucores", "0.01")]);
        let used =
            list(&[("nvidia.com/gpu", "3"), ("nvidia.com/gpu.shared", "6"), ("nvidia.com/gpucores", "40")]);
        let count = |of: Accelerators| of.count_amounts(&used);
        let row = |shares| TeamRow { shares, ..TeamRow::default() };
        let in_currency = TeamRow { guaranteed: list(&[(CURRENCY, "8")]), ..row(shares.clone()) };
        let both = list(&[(CURRENCY, "4.5"), ("nvidia.com/gpu", "3"), ("nvidia.com/gpu.shared", "6")]);
        assert!((Accelerators::default().of_row(&in_currency).count_amounts(&both) - 4.5).abs() < 1e-9);
        let usual = Accelerators::default();
        assert!((count(usual.of_row(&row(shares.clone()))) - 4.5).abs() < 1e-9);
        assert!((count(usual.of_row(&row(BTreeMap::new()))) - 3.0).abs() < 1e-9);
        let configured = Accelerators::configured(&["nvidia.com/gpu".to_owned()]);
        assert!((count(configured.of_row(&row(shares.clone()))) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_configured_list_is_the_whole_list() {
        let configured = Accelerators::configured(&["google.com/tpu".to_owned()]);
        let accelerators = configured.with_quotas(["rdma/hca"]);
        let list: ResourceList = [("google.com/tpu", 4), ("rdma/hca", 2), ("nvidia.com/gpu", 1)]
            .map(|(resource, count)| (resource.into(), Amount::units(count)))
            .into();
        assert!((accelerators.count(&list) - 4.0).abs() < f64::EPSILON);
    }
}
