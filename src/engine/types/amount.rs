//! Exact resource amounts: parsing and printing Kubernetes quantities, and lists of them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The name of a resource as Kubernetes spells it, e.g. `cpu` or `nvidia.com/gpu`.
pub type ResourceName = Arc<str>;

/// An amount of one resource in thousandths of its base unit (a CPU, a byte, a device).
///
/// Thousandths are the finest step a node offers (`1m` CPU); a finer quantity is rounded up, as
/// Kubernetes itself does. The range of ±9.2 × 10¹⁵ units holds every memory size a node can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount(i64);

/// Why a text is not a quantity.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AmountError {
    /// The text does not follow the grammar `<number><suffix>`.
    #[error("{0:?} is not a quantity (expected a number with an optional suffix such as m, k, Gi)")]
    Malformed(String),
    /// The number does not fit the range of [`Amount`].
    #[error("{0:?} is too large")]
    TooLarge(String),
}

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// `units` whole units.
    #[must_use]
    pub const fn units(units: i64) -> Self {
        Self(units.saturating_mul(1000))
    }

    /// `milli` thousandths of a unit.
    #[must_use]
    pub const fn milli(milli: i64) -> Self {
        Self(milli)
    }

    /// The amount in thousandths of a unit.
    #[must_use]
    pub const fn as_milli(self) -> i64 {
        self.0
    }

    /// The amount as a floating-point number of units, for texts and metrics only.
    #[must_use]
    pub fn as_units_lossy(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "for texts and metrics, never for decisions")]
        let milli = self.0 as f64;
        milli / 1000.0
    }

    /// Parses a Kubernetes quantity: decimal or scientific, with a decimal (`m`, `k`, `M`, …) or
    /// binary (`Ki`, `Mi`, …) suffix.
    ///
    /// # Errors
    /// [`AmountError`] when the text is no quantity or exceeds the range.
    pub fn parse(text: &str) -> Result<Self, AmountError> {
        let malformed = || AmountError::Malformed(text.to_owned());
        let too_large = || AmountError::TooLarge(text.to_owned());
        let trimmed = text.trim();
        let number_end = trimmed
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
            .unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(number_end);
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() && fraction.is_empty() || !all_digits(whole) || !all_digits(fraction) {
            return Err(malformed());
        }
        let scale = Scale::of_suffix(suffix).ok_or_else(malformed)?;
        let mantissa: i128 = match format!("{whole}{fraction}").trim_start_matches('0') {
            "" => 0,
            significant => significant.parse().map_err(|_| too_large())?,
        };
        let exponent = scale.decimal + 3 - i32::try_from(fraction.len()).map_err(|_| too_large())?;
        let scaled = mantissa.checked_mul(scale.binary).ok_or_else(too_large)?;
        let milli = if exponent >= 0 {
            let factor = 10_i128.checked_pow(exponent.unsigned_abs()).ok_or_else(too_large)?;
            scaled.checked_mul(factor).ok_or_else(too_large)?
        } else {
            // Rounded away from zero, so that no request counts for less than it asks.
            10_i128
                .checked_pow(exponent.unsigned_abs())
                .map_or(i128::from(scaled != 0), |divisor| scaled.saturating_add(divisor - 1) / divisor)
        };
        let milli = i64::try_from(milli).map_err(|_| too_large())?;
        Ok(Self(if negative { -milli } else { milli }))
    }
}

/// The factor of a quantity's suffix: `binary × 10^decimal`.
struct Scale {
    binary: i128,
    decimal: i32,
}

impl Scale {
    fn of_suffix(suffix: &str) -> Option<Self> {
        let decimal = |exponent| Some(Self { binary: 1, decimal: exponent });
        let binary = |power: u32| Some(Self { binary: 1 << (10 * power), decimal: 0 });
        match suffix {
            "" => decimal(0),
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(1),
            "Mi" => binary(2),
            "Gi" => binary(3),
            "Ti" => binary(4),
            "Pi" => binary(5),
            "Ei" => binary(6),
            _ => {
                let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
                (-30..=30).contains(&exponent).then_some(Self { binary: 1, decimal: exponent })
            }
        }
    }
}

impl std::ops::Add for Amount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::ops::Sub for Amount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl std::ops::Mul<u32> for Amount {
    type Output = Self;
    fn mul(self, times: u32) -> Self {
        Self(self.0.saturating_mul(i64::from(times)))
    }
}

/// The largest binary suffixes that Kubernetes knows for bytes.
const BINARY: [(i64, &str); 4] = [(1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];

impl Amount {
    /// The shortest exact quantity of this resource. Only bytes get binary suffixes. Devices and cores are plain
    /// numbers.
    #[must_use]
    pub fn quantity(self, resource: &str) -> String {
        let bytes = ["memory", "storage", "hugepages-"].iter().any(|bytes| resource.contains(bytes));
        if bytes && !resource.contains('/') || self.0 % 1000 != 0 {
            return self.to_string();
        }
        (self.0 / 1000).to_string()
    }
}

impl fmt::Display for Amount {
    /// The shortest exact quantity for an unknown resource: `1500m`, `20`, `64Gi`. For a known resource use
    /// [`Amount::quantity`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 % 1000 != 0 {
            return write!(f, "{}m", self.0);
        }
        let units = self.0 / 1000;
        // Only large round sizes are worth a binary suffix; 1024 GPUs stay 1024.
        match BINARY.iter().find(|(size, _)| units.abs() >= 1 << 20 && units % size == 0) {
            Some((size, suffix)) => write!(f, "{}{suffix}", units / size),
            None => write!(f, "{units}"),
        }
    }
}

/// Amounts by resource name, ordered by name; a resource that is not listed counts as zero.
pub type ResourceList = BTreeMap<ResourceName, Amount>;

/// `left + right`, resource by resource.
#[must_use]
pub fn sum(left: &ResourceList, right: &ResourceList) -> ResourceList {
    let mut total = left.clone();
    for (name, amount) in right {
        let info = total.entry(name.clone()).or_default();
        *info = *info + *amount;
    }
    total
}

/// The list for texts: `cpu 4, nvidia.com/gpu 2`, or `nothing` when it is empty.
#[must_use]
pub fn describe(list: &ResourceList) -> String {
    let parts: Vec<String> = list
        .iter()
        .filter(|(_, a)| **a != Amount::ZERO)
        .map(|(n, a)| format!("{n} {}", a.quantity(n)))
        .collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_parse_exactly() {
        for (text, milli) in [
            ("0", 0),
            ("1", 1000),
            ("1.5", 1500),
            (".5", 500),
            ("100m", 100),
            ("1500m", 1500),
            ("1n", 1),
            ("0.0001", 1),
            ("2k", 2_000_000),
            ("1Ki", 1_024_000),
            ("1.5Gi", 1_610_612_736_000),
            ("1e3", 1_000_000),
            ("12E2", 1_200_000),
            ("-1", -1000),
            ("+3", 3000),
            ("1Ti", 1_099_511_627_776_000),
        ] {
            assert_eq!(Amount::parse(text), Ok(Amount::milli(milli)), "{text}");
        }
    }

    #[test]
    fn malformed_quantities_are_refused() {
        for text in ["", "m", "1.2.3", "1 Gi", "1Gib", "abc", "1e", "--1", "1-2", "."] {
            assert!(matches!(Amount::parse(text), Err(AmountError::Malformed(_))), "{text}");
        }
        let most = format!("{}n", i128::MAX);
        for text in ["8Ei", "12E", "1e30", "99999999999999999999999999999999999999999", &most] {
            assert!(matches!(Amount::parse(text), Err(AmountError::TooLarge(_))), "{text}");
        }
    }

    #[test]
    fn amounts_print_as_people_write_them() {
        for (text, shown) in [
            ("20", "20"),
            ("1500m", "1500m"),
            ("64Gi", "64Gi"),
            ("1024", "1024"),
            ("2000m", "2"),
            ("1.5Gi", "1536Mi"),
        ] {
            assert_eq!(Amount::parse(text).map(|a| a.to_string()), Ok(shown.to_owned()));
        }
    }

    #[test]
    fn devices_are_described_in_plain_digits() {
        let list: ResourceList = [
            ("cpu", "1500m"),
            ("hugepages-2Mi", "4Mi"),
            ("example.com/gpu-memory", "1048576"),
            ("memory", "64Gi"),
            ("nvidia.com/gpu", "109951162777600"),
            ("requests.storage", "2Ti"),
        ]
        .map(|(resource, amount)| (resource.into(), Amount::parse(amount).expect("an amount")))
        .into();
        assert_eq!(
            describe(&list),
            "cpu 1500m, example.com/gpu-memory 1048576, hugepages-2Mi 4Mi, memory 64Gi, \
             nvidia.com/gpu 109951162777600, requests.storage 2Ti"
        );
    }
}
