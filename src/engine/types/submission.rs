//! Submission order, the last tie-breaker between workloads: submission time, then natural name order.
//!
//! Names are used rather than object identities because users see them.

use std::cmp::Ordering;

use crate::types::{Name, Time, Workload};

/// The position of a workload among workloads of its priority. The smaller value comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubmissionOrder {
    submitted: Time,
    name: NaturalName,
    namespace: Name,
}

impl SubmissionOrder {
    /// The submission order of a workload.
    #[must_use]
    pub fn of(workload: &Workload) -> Self {
        Self {
            submitted: workload.submitted,
            name: NaturalName(workload.name.clone()),
            namespace: workload.namespace.clone(),
        }
    }

    /// The submission time.
    #[must_use]
    pub fn submitted(&self) -> Time {
        self.submitted
    }
}

/// A name in which digit runs compare as numbers: `job-2` before `job-10`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NaturalName(Name);

impl Ord for NaturalName {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut left, mut right) = (&*self.0, &*other.0);
        loop {
            let (a, rest_a) = next_run(left);
            let (b, rest_b) = next_run(right);
            let ordering = match (number(a), number(b)) {
                (Some(x), Some(y)) => x.len().cmp(&y.len()).then_with(|| x.cmp(y)),
                _ => a.cmp(b),
            };
            if ordering.is_ne() || a.is_empty() {
                return ordering.then_with(|| self.0.cmp(&other.0));
            }
            (left, right) = (rest_a, rest_b);
        }
    }
}

impl PartialOrd for NaturalName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Splits off the leading run of digits, or of other characters.
fn next_run(text: &str) -> (&str, &str) {
    let digit = |c: char| c.is_ascii_digit();
    let first = text.chars().next().is_some_and(digit);
    text.split_at(text.find(|c| digit(c) != first).unwrap_or(text.len()))
}

/// A run of digits without leading zeros. Of two such runs, the longer is the larger number.
fn number(run: &str) -> Option<&str> {
    run.starts_with(|c: char| c.is_ascii_digit()).then(|| run.trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_compare_as_numbers() {
        let ordered = ["a", "job-1", "job-2", "job-10", "job-10b", "job-a", "x1y2", "x1y10", "x10"];
        for pair in ordered.windows(2) {
            assert!(NaturalName(pair[0].into()) < NaturalName(pair[1].into()), "{pair:?}");
        }
        assert_ne!(NaturalName("a01".into()).cmp(&NaturalName("a1".into())), Ordering::Equal);
    }
}
