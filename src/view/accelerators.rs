//! Resources that count as GPUs in views, metrics and commands, whatever their vendor calls them.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::types::CURRENCY;
use crate::engine::types::TeamView;
use crate::engine::types::amount::{Amount, ResourceList};

/// The resources that count as GPUs: the configured list, or else those named `*/gpu` and the device resources in
/// the teams' quotas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accelerators {
    configured: BTreeSet<String>,
    in_quotas: BTreeSet<String>,
}

impl Accelerators {
    /// Exactly these resources; with an empty list they are found by name and in quotas.
    #[must_use]
    pub fn configured(resources: &[String]) -> Self {
        Self { configured: resources.iter().cloned().collect(), in_quotas: BTreeSet::new() }
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

    /// Whether a resource counts as GPUs.
    #[must_use]
    pub fn contains(&self, resource: &str) -> bool {
        if self.configured.is_empty() {
            is_gpu(resource) && resource != CURRENCY || self.in_quotas.contains(resource)
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
        let gpus = list.iter().filter(|(resource, _)| self.contains(resource));
        gpus.fold(Amount::ZERO, |sum, (_, amount)| sum + *amount)
    }

    /// How many GPUs amounts of an answer have, parts of one as fractions.
    #[must_use]
    pub fn count_amounts(&self, amounts: &BTreeMap<String, String>) -> f64 {
        let gpus = amounts.iter().filter(|(resource, _)| self.contains(resource));
        let each = gpus.filter_map(|(_, amount)| Amount::parse(amount).ok());
        each.fold(Amount::ZERO, |sum, each| sum + each).as_units_lossy()
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
    fn a_configured_list_is_the_whole_list() {
        let configured = Accelerators::configured(&["google.com/tpu".to_owned()]);
        let accelerators = configured.with_quotas(["rdma/hca"]);
        let list: ResourceList = [("google.com/tpu", 4), ("rdma/hca", 2), ("nvidia.com/gpu", 1)]
            .map(|(resource, count)| (resource.into(), Amount::units(count)))
            .into();
        assert!((accelerators.count(&list) - 4.0).abs() < f64::EPSILON);
    }
}
