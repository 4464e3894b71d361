//! The order within a team: whoever has waited for longer than a queue that raises it wants, then queue
//! priority, then PriorityClass, then, where users take turns, whose user holds least, then submission time
//! (the place in the queue that an eviction does not take away), then the name in natural order.

use std::cmp::{Ordering, Reverse};

use super::super::books::Place;
use super::super::model::{Name, Time, WorkloadId};
use super::super::users::Part;

/// A workload's rank inside its team; compares less when it goes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    raised: Reverse<bool>,
    priority: Reverse<(i32, i32)>,
    /// What its user holds; nothing inside a class, where all are of one user.
    held: Part,
    submitted: Time,
    name: NaturalName,
    id: WorkloadId,
    /// Where its entry is; ranks differ before this.
    place: Place,
}

impl Rank {
    /// The rank of a workload of that queue priority and PriorityClass value, which is kept in that place.
    #[must_use]
    pub fn new(
        priority: (i32, i32),
        submitted: Time,
        name: &Name,
        (id, place): (&WorkloadId, Place),
    ) -> Self {
        let (name, id) = (NaturalName(name.clone()), id.clone());
        Self { raised: Reverse(false), priority: Reverse(priority), held: 0, submitted, name, id, place }
    }

    /// This rank, before all that are not raised if it is.
    #[must_use]
    pub fn raised(self, raised: bool) -> Self {
        Self { raised: Reverse(raised), ..self }
    }

    /// This rank when its user holds so much.
    #[must_use]
    pub fn holding(self, held: Part) -> Self {
        Self { held, ..self }
    }

    /// Whose rank it is.
    #[must_use]
    pub fn id(&self) -> &WorkloadId {
        &self.id
    }

    /// Where its entry is kept.
    #[must_use]
    pub fn place(&self) -> Place {
        self.place
    }

    /// When it was submitted.
    #[must_use]
    pub fn submitted(&self) -> Time {
        self.submitted
    }
}

/// A name of which runs of digits compare as numbers: `job-2` before `job-10`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NaturalName(pub Name);

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

/// Splits off the leading run of digits, or of anything else.
fn next_run(text: &str) -> (&str, &str) {
    let digit = |c: char| c.is_ascii_digit();
    let first = text.chars().next().is_some_and(digit);
    text.split_at(text.find(|c| digit(c) != first).unwrap_or(text.len()))
}

/// A run of digits without leading zeros; of two such, the longer is the greater number.
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

    #[test]
    fn priority_goes_before_age_and_age_before_names() {
        let id = |name: &str| WorkloadId(name.into());
        let rank = |priority, time, name: &str| Rank::new(priority, Time(time), &name.into(), (&id(name), 0));
        assert!(rank((1, 0), 5, "b") < rank((0, 9), 1, "a"));
        assert!(rank((0, 9), 5, "b") < rank((0, 1), 1, "a"));
        assert!(rank((0, 0), 1, "b") < rank((0, 0), 2, "a"));
        assert!(rank((0, 0), 1, "a") < rank((0, 0), 1, "b"));
    }
}
