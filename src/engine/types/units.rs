//! Amounts with their units, as sentences name them.

use crate::types::amount::{Amount, ResourceList};
use crate::types::node::CURRENCY;

/// An amount of the resource of this name with its unit: `1 GPU`, `0.5 GPU`, `16 GPUs`, `2 CPUs`, `64Gi memory`,
/// `4 google.com/tpu`.
#[must_use]
pub fn with_unit(resource: &str, amount: Amount) -> String {
    format!("{} {}", digits(resource, amount), unit_of(resource, amount))
}

/// The amounts of a list with their units. Kinds of GPU that are named beside each other keep their whole names.
#[must_use]
pub fn together<'a>(listed: impl Iterator<Item = (&'a str, Amount)> + Clone) -> Vec<String> {
    let alike = has_kinds_of_gpu(listed.clone().map(|(resource, _)| resource));
    let one = |(resource, amount): (&str, Amount)| match alike && is_gpu(resource) {
        true => format!("{} {resource}", digits(resource, amount)),
        false => with_unit(resource, amount),
    };
    listed.map(one).collect()
}

/// A list as a text; `nothing` where it is empty.
#[must_use]
pub fn listed(list: &ResourceList) -> String {
    let amounts = list.iter().filter(|(_, amount)| **amount != Amount::ZERO);
    let parts = together(amounts.map(|(resource, amount)| (&**resource, *amount)));
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// Whether several of these resources are GPUs, so that the word alone does not tell which.
#[must_use]
pub fn has_kinds_of_gpu<'a>(resources: impl Iterator<Item = &'a str>) -> bool {
    resources.filter(|resource| is_gpu(resource)).count() > 1
}

/// Whether the unit of a resource is the GPU. The currency keeps the name that quotas give it: it is not a number of GPUs.
#[must_use]
pub fn is_gpu(resource: &str) -> bool {
    resource.ends_with("/gpu") && resource != CURRENCY
}

/// The unit of an amount of a resource.
#[must_use]
pub fn unit_of(resource: &str, amount: Amount) -> String {
    let one = Amount::units(1);
    let (unit, is_one) = match resource {
        "cpu" => ("CPU", amount == one),
        gpu if is_gpu(gpu) => ("GPU", Amount::ZERO < amount && amount <= one),
        other => return other.to_owned(),
    };
    if is_one { unit.to_owned() } else { format!("{unit}s") }
}

/// An amount without its unit: parts of devices as decimals, all else as Kubernetes writes it.
#[must_use]
pub fn digits(resource: &str, amount: Amount) -> String {
    let milli = amount.as_milli();
    if !resource.contains('/') || milli % 1_000 == 0 {
        return amount.quantity(resource);
    }
    let (sign, size) = (if milli < 0 { "-" } else { "" }, milli.unsigned_abs());
    let text = format!("{sign}{}.{:03}", size / 1_000, size % 1_000);
    text.trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_devices_are_decimals_and_the_currency_is_no_number_of_gpus() {
        for (resource, milli, text) in [
            ("nvidia.com/gpu", 0, "0 GPUs"),
            ("nvidia.com/gpu", 100, "0.1 GPU"),
            ("nvidia.com/gpu", 1_000, "1 GPU"),
            ("nvidia.com/gpu", 1_900, "1.9 GPUs"),
            ("nvidia.com/gpu", -50, "-0.05 GPUs"),
            ("google.com/tpu", 2_500, "2.5 google.com/tpu"),
            (CURRENCY, 1_000, "1 sluice.dev/gpu"),
            (CURRENCY, 4_250, "4.25 sluice.dev/gpu"),
            ("cpu", 1_500, "1500m CPUs"),
            ("cpu", 1_000, "1 CPU"),
            ("memory", 65_536_000, "65536 memory"),
        ] {
            assert_eq!(with_unit(resource, Amount::milli(milli)), text);
        }
    }

    #[test]
    fn two_kinds_of_gpu_keep_their_names() {
        let list = |resources: &[&str]| -> ResourceList {
            resources.iter().map(|resource| ((*resource).into(), Amount::units(1))).collect()
        };
        for (resources, text) in [
            (&["amd.com/gpu", "nvidia.com/gpu", "cpu"][..], "1 amd.com/gpu, 1 CPU, 1 nvidia.com/gpu"),
            (&["nvidia.com/gpu", CURRENCY], "1 GPU, 1 sluice.dev/gpu"),
            (&["nvidia.com/gpu"], "1 GPU"),
            (&[], "nothing"),
        ] {
            assert_eq!(listed(&list(resources)), text);
        }
    }
}
