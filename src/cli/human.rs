//! Numbers and amounts as people read them.

use crate::view::accounts::GpuTime;
use crate::view::{Amounts, is_gpu};

pub use crate::view::counted as pods;

/// Seconds in their two largest units: `3d7h`.
#[must_use]
pub fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => two(minutes, "m", seconds % 60, "s"),
        (0, ..) => two(hours, "h", minutes, "m"),
        _ => two(days, "d", hours, "h"),
    }
}

fn two(large: i64, unit: &str, small: i64, smaller: &str) -> String {
    if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{smaller}") }
}

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
    fn a_span_has_its_two_largest_units() {
        for (seconds, shown) in
            [(0, "0s"), (-5, "0s"), (59, "59s"), (60, "1m"), (90, "1m30s"), (7_200, "2h"), (287_174, "3d7h")]
        {
            assert_eq!(span(seconds), shown);
        }
    }

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
