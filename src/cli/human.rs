//! Numbers and amounts as people read them.

use crate::view::accounts::GpuTime;
use crate::view::{Amounts, is_gpu};

pub use crate::chart::units::whole_span as span;
pub use crate::view::counted as pods;

/// GPU time in hours: `12.5`, and `<0.1` where one decimal would show none.
#[must_use]
pub fn hours(time: GpuTime) -> String {
    match time.hours() {
        hours if hours <= 0.0 => "0".to_owned(),
        hours if hours < 0.05 => "<0.1".to_owned(),
        hours => format!("{hours:.1}"),
    }
}

/// Amounts in a row: `4 GPUs, cpu 8`.
#[must_use]
pub fn amounts(amounts: &Amounts) -> String {
    if amounts.is_empty() {
        return "nothing".to_owned();
    }
    let (gpus, others): (Vec<_>, Vec<_>) = amounts.iter().partition(|(resource, _)| is_gpu(resource));
    let gpus = gpus.into_iter().map(|(resource, amount)| match (resource.as_str(), amount.as_str()) {
        ("nvidia.com/gpu", "1") => "1 GPU".to_owned(),
        ("nvidia.com/gpu", amount) => format!("{amount} GPUs"),
        (resource, amount) => format!("{amount} {resource}"),
    });
    let others = others.into_iter().map(|(resource, amount)| format!("{resource} {amount}"));
    gpus.chain(others).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_time_is_in_hours() {
        for (micro, shown) in [(0, "0"), (1, "<0.1"), (3_600_000_000, "1.0"), (4_500_000_000_000, "1250.0")] {
            assert_eq!(hours(GpuTime::of_micro(micro)), shown);
        }
    }

    #[test]
    fn amounts_name_gpus_plainly() {
        let list = |list: &[(&str, &str)]| {
            list.iter().map(|(resource, amount)| ((*resource).to_owned(), (*amount).to_owned())).collect()
        };
        assert_eq!(amounts(&list(&[("cpu", "8"), ("nvidia.com/gpu", "16")])), "16 GPUs, cpu 8");
        assert_eq!(amounts(&list(&[("nvidia.com/gpu", "1")])), "1 GPU");
        assert_eq!(amounts(&list(&[("amd.com/gpu", "2"), ("rdma/hca", "1")])), "2 amd.com/gpu, rdma/hca 1");
        assert_eq!(amounts(&Amounts::new()), "nothing");
    }
}
