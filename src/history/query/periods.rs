//! The periods of a report, and the SQL that finds the period of a time.

use jiff::Timestamp;

use crate::api::accounts::{MOST_PERIODS, Period, ReportFilter};

/// Periods without gaps: times in milliseconds since the Unix epoch, each the beginning of one, and the last the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Periods(Vec<i64>);

impl Periods {
    /// The periods that a report asks for at `now`.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn of(filter: &ReportFilter, now: Timestamp) -> Result<Self, String> {
        let (from, to) = (filter.from, filter.to.unwrap_or(now));
        if from >= to {
            return Err(format!("spec.report.from: {from} is not before {to}"));
        }
        if filter.by.is_some() && !filter.cuts.is_empty() {
            return Err("spec.report.by: the report has cuts, which say its periods".to_owned());
        }
        let mut cuts = match filter.by {
            None => filter.cuts.clone(),
            Some(by) => crate::dates::cuts(from, to, by == Period::Month, &jiff::tz::TimeZone::UTC),
        };
        cuts.retain(|cut| from < *cut && *cut < to);
        if cuts.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err("spec.report.cuts: each must be after the one before".to_owned());
        }
        if cuts.len() >= MOST_PERIODS {
            return Err(format!("spec.report: more than {MOST_PERIODS} periods"));
        }
        let times = std::iter::once(from).chain(cuts).chain([to]);
        Ok(Self(times.map(Timestamp::as_millisecond).collect()))
    }

    /// The beginning of the first.
    pub fn from(&self) -> i64 {
        self.0.first().copied().unwrap_or_default()
    }

    /// The end of the last.
    pub fn to(&self) -> i64 {
        self.0.last().copied().unwrap_or_default()
    }

    /// Beginning and end of each.
    pub fn each(&self) -> impl Iterator<Item = (i64, i64)> {
        self.0.windows(2).map(|pair| (pair[0], pair[1]))
    }

    /// The number of periods.
    pub fn count(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// SQL for the number of the period in which a time lies: 1 for the first, 0 before it, and one more than there are
    /// behind the last.
    pub fn number_of(&self, time: &str) -> String {
        search(time, "<", &self.0, 0)
    }

    /// The same for the last moment before a time.
    pub fn number_before(&self, time: &str) -> String {
        search(time, "<=", &self.0, 0)
    }

    /// The period of this number, counted from 0; `None` outside of the bounds.
    pub fn within(&self, number: usize) -> Option<usize> {
        number.checked_sub(1).filter(|number| *number < self.count())
    }

    /// The period in which a time lies, counted from 0; `None` outside of the bounds.
    pub fn at(&self, time: i64) -> Option<usize> {
        self.within(self.0.partition_point(|begin| *begin <= time))
    }

    /// Adds up a charge in each of the periods, counted from 0, between those of these numbers.
    pub fn spread(&self, first: usize, last: usize, charge: Charge, mut add: impl FnMut(usize, i128)) {
        for (at, (begin, end)) in self.each().enumerate().take(last).skip(first.saturating_sub(1)) {
            let number = at + 1;
            let whole = |time: i64| charge.amount * i128::from(time - self.from());
            let since = if number == first { charge.since } else { whole(begin) };
            let until = if number == last { charge.until } else { whole(end) };
            add(at, until - since);
        }
    }
}

/// Charges that begin in the same period and end in the same period, added up: amounts, and amounts times their beginnings
/// and ends, in milliseconds after the beginning of the report.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    /// The amounts.
    pub amount: i128,
    /// Amounts times beginnings.
    pub since: i128,
    /// Amounts times ends.
    pub until: i128,
}

/// A search by halves.
fn search(time: &str, before: &str, cuts: &[i64], below: usize) -> String {
    if cuts.is_empty() {
        return below.to_string();
    }
    let half = cuts.len() / 2;
    let less = search(time, before, &cuts[..half], below);
    let more = search(time, before, &cuts[half + 1..], below + half + 1);
    format!("CASE WHEN {time} {before} {} THEN {less} ELSE {more} END", cuts[half])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::accounts::ReportKind;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn filter() -> ReportFilter {
        ReportFilter {
            kind: ReportKind::Teams,
            from: at("2026-11-01T06:00:00Z"),
            to: Some(at("2026-11-03T06:00:00Z")),
            by: Some(Period::Day),
            cuts: Vec::new(),
            team: None,
            prices: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn periods_have_no_gaps() {
        let now = at("2026-11-25T10:00:00Z");
        let periods = Periods::of(&filter(), now).expect("periods");
        let hours: Vec<i64> = periods.each().map(|(from, to)| (to - from) / 3_600_000).collect();
        assert_eq!(hours, [18, 24, 6]);
        let cuts = vec![at("2026-11-02T00:00:00Z"), at("2026-12-02T00:00:00Z")];
        let by_cuts = ReportFilter { by: None, cuts, ..filter() };
        assert_eq!(Periods::of(&by_cuts, now).expect("periods").count(), 2);
        for wrong in [
            ReportFilter { to: Some(at("2026-11-01T06:00:00Z")), ..filter() },
            ReportFilter { cuts: vec![now], ..filter() },
            ReportFilter { by: None, cuts: vec![at("2026-11-02T00:00:00Z"); 2], ..filter() },
            ReportFilter { from: at("2000-01-01T00:00:00Z"), ..filter() },
        ] {
            assert!(
                Periods::of(&wrong, now).is_err_and(|problem| problem.starts_with("spec.report")),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn a_charge_is_spread_over_its_periods() {
        let periods = Periods(vec![100, 200, 300, 400]);
        let spread = |first, last, charge| {
            let mut sums = [0; 3];
            periods.spread(first, last, charge, |at, sum| sums[at] += sum);
            sums
        };
        // One of 2 from 150 to 350, and one of 3 from 160 to 310.
        let both = Charge { amount: 5, since: 2 * 50 + 3 * 60, until: 2 * 250 + 3 * 210 };
        assert_eq!(spread(1, 3, both), [2 * 50 + 3 * 40, 5 * 100, 2 * 50 + 3 * 10]);
        assert_eq!(spread(2, 2, Charge { amount: 1, since: 110, until: 130 }), [0, 20, 0]);
        // From before the first period to behind the last, and wholly outside.
        assert_eq!(spread(0, 4, Charge { amount: 2, since: -500, until: 900 }), [200, 200, 200]);
        assert_eq!(spread(0, 0, Charge { amount: 2, since: -500, until: -400 }), [0; 3]);
        assert_eq!(spread(4, 4, Charge { amount: 2, since: 800, until: 900 }), [0; 3]);
        assert_eq!(spread(0, 1, Charge { amount: 1, since: -50, until: 30 }), [30, 0, 0]);
        assert_eq!([0, 1, 3, 4].map(|number| periods.within(number)), [None, Some(0), Some(2), None]);
    }
}
