//! Values in annotations and manifests: durations, GPU fractions, names.

use std::time::Duration;

use crate::engine::types::amount::Amount;

/// Whether a resource is an extended one, which Kubernetes counts in whole numbers.
#[must_use]
pub fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

/// Parses a Go duration such as `90s` or `1h30m`. Negative durations are errors.
///
/// # Errors
/// One sentence with the text.
pub fn duration(text: &str) -> Result<Duration, String> {
    let malformed = || format!("{text:?} is not a duration such as 90s, 10m or 24h");
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    // The library panics on an inner sign and on numbers that overflow, so such texts are refused before.
    let plain = unsigned.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    let moderate =
        unsigned.len() <= 32 && unsigned.split(|c: char| !c.is_ascii_digit()).all(|run| run.len() <= 10);
    if unsigned.is_empty() || !plain || !moderate {
        return Err(malformed());
    }
    let parsed: kube::core::Duration = unsigned.parse().map_err(|_| malformed())?;
    if negative { Err(format!("{text:?} is negative")) } else { Ok(parsed.into()) }
}

/// Parses a GPU fraction, above 0 and below 1.
///
/// # Errors
/// One sentence with the text.
fn fraction(text: &str) -> Result<Amount, String> {
    Amount::parse(text)
        .ok()
        .filter(|fraction| Amount::ZERO < *fraction && *fraction < Amount::units(1))
        .ok_or_else(|| format!("{text:?} is not a number above 0 and below 1"))
}

/// The most fractions of a workload: each is tried on every node.
const MOST_FRACTIONS: usize = 16;

/// Parses a GPU fraction, or a comma-separated list in order of preference. A list may contain 1, a whole GPU.
///
/// # Errors
/// One sentence with the text.
pub fn fractions(text: &str) -> Result<Vec<Amount>, String> {
    if !text.contains(',') {
        return Ok(vec![fraction(text.trim())?]);
    }
    let many = text.split(',').count();
    if many > MOST_FRACTIONS {
        return Err(format!("names {many} fractions, more than the {MOST_FRACTIONS} that are tried"));
    }
    let whole = Amount::units(1);
    let one = |text: &str| match Amount::parse(text) {
        Ok(amount) if amount == whole => Ok(whole),
        _ => fraction(text),
    };
    let fractions: Vec<Amount> = text.split(',').map(|text| one(text.trim())).collect::<Result<_, _>>()?;
    match fractions.iter().enumerate().find(|(index, fraction)| fractions[..*index].contains(fraction)) {
        Some((_, twice)) => Err(format!("{text:?} names {} twice", twice.as_units_lossy())),
        None => Ok(fractions),
    }
}

/// Whether `text` is a DNS label (RFC 1123), at most 63 characters.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    !text.is_empty()
        && text.len() <= 63
        && text.bytes().all(|b| inner(b) || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether `text` is a DNS subdomain (RFC 1123): parts with dots between them, at most 253 characters in total.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_parsed() {
        for (text, seconds) in
            [("90s", 90.0), ("1h30m", 5400.0), ("1.5h", 5400.0), ("0", 0.0), ("500ms", 0.5)]
        {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "1", "h", "1d", "-1s", "1h-2m", "soon", "1 h", "..s", "99999999999999999999999999h"]
        {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_dns_labels_or_subdomains() {
        for (name, label, subdomain) in [
            ("a-1", true, true),
            ("0", true, true),
            ("n0.example.com", false, true),
            ("X", false, false),
            ("a_b", false, false),
            ("-a", false, false),
            ("a.-b", false, false),
            ("a..b", false, false),
            ("", false, false),
            (&"x".repeat(63), true, true),
            (&"x".repeat(64), false, true),
            (&"x".repeat(254), false, false),
        ] {
            assert_eq!((is_dns_label(name), is_dns_subdomain(name)), (label, subdomain), "{name}");
        }
    }

    #[test]
    fn a_list_of_fractions_is_short() {
        let list = |many: usize| (1..=many).map(|n| format!("0.{n:02}")).collect::<Vec<_>>().join(",");
        assert_eq!(fractions(&list(16)).map(|found| found.len()), Ok(16));
        assert!(fractions(&list(17)).is_err_and(|why| why.contains("more than the 16")));
    }
}
