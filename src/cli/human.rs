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

/// A Kubernetes quantity in thousandths as a decimal, of at most two digits behind the point: `19.05` for `19047m`.
#[must_use]
pub fn decimal(quantity: &str) -> String {
    let Some(milli) = quantity.strip_suffix('m').and_then(|digits| digits.parse::<u64>().ok()) else {
        return quantity.to_owned();
    };
    let hundredths = milli / 10 + u64::from(milli % 10 >= 5);
    if hundredths == 0 && milli > 0 {
        return "<0.01".to_owned();
    }
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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
    fn thousandths_are_decimals() {
        for (quantity, shown) in [
            ("19047m", "19.05"),
            ("1333m", "1.33"),
            ("61500m", "61.5"),
            ("2999m", "3"),
            ("995m", "1"),
            ("3m", "<0.01"),
            ("0m", "0"),
            ("8", "8"),
            ("64Gi", "64Gi"),
            ("-", "-"),
            ("m", "m"),
        ] {
            assert_eq!(decimal(quantity), shown, "{quantity}");
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
