//! The calendar in UTC, by arithmetic alone: the engine has no clock, and every replica must see the same boundaries.
//!
//! Days are counted from 1 March of a year 0 in eras of 400 years, so that the leap day is the last of its year and every
//! month begins at a multiple of 153 ÷ 5 days (the method of Hinnant, "chrono-Compatible Low-Level Date Algorithms").

use crate::types::time::Time;

/// Milliseconds of a day.
const DAY: i64 = 86_400_000;
/// Days of 400 years.
const ERA: i64 = 146_097;
/// Days from 1 March of year 0 to 1 January 1970.
const EPOCH: i64 = 719_468;

/// A day of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    year: i64,
    /// 1 to 12
    month: i64,
    /// 1 to 31
    day: i64,
}

impl Date {
    /// The day with that number; 1 January 1970 has the number 0.
    fn of(day: i64) -> Self {
        let (era, in_era) = ((day + EPOCH).div_euclid(ERA), (day + EPOCH).rem_euclid(ERA));
        let year = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
        let in_year = in_era - days_before(year);
        let from_march = (5 * in_year + 2) / 153;
        let month = (from_march + 2) % 12 + 1;
        Self {
            year: era * 400 + year + i64::from(month <= 2),
            month,
            day: in_year - month_start(from_march) + 1,
        }
    }

    /// Its number.
    fn number(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let (era, in_era) = (year.div_euclid(400), year.rem_euclid(400));
        let in_year = month_start((self.month + 9) % 12) + self.day - 1;
        era * ERA + days_before(in_era) + in_year - EPOCH
    }

    /// The first day of the month so many months later.
    fn first_after(self, months: i64) -> Self {
        let month = self.year * 12 + self.month - 1 + months;
        Self { year: month.div_euclid(12), month: month.rem_euclid(12) + 1, day: 1 }
    }
}

/// The days of an era before a year of it.
fn days_before(year: i64) -> i64 {
    365 * year + year / 4 - year / 100
}

/// The days of a year before a month of it, which is counted from March.
fn month_start(from_march: i64) -> i64 {
    (153 * from_march + 2) / 5
}

/// The period after which a budget is full again. Each begins at midnight in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Period {
    /// A day.
    Day,
    /// A week, from Monday.
    Week,
    /// A calendar month.
    #[default]
    Month,
    /// Three calendar months, from January, April, July and October.
    Quarter,
    /// It is never full again.
    Never,
}

impl Period {
    /// The period at a point in time: its start, and its end, which is the start of the next. `None` if it never ends.
    /// Time 0 is 1 January 1970.
    #[must_use]
    pub fn around(self, at: Time) -> Option<(Time, Time)> {
        let day = at.0.div_euclid(DAY);
        let date = Date::of(day);
        let months = |since: i64, length: i64| {
            let first = date.first_after(-since);
            (first.number(), first.first_after(length).number())
        };
        let (start, end) = match self {
            Self::Day => (day, day + 1),
            Self::Week => {
                // Day 0 was a Thursday.
                let monday = day - (day + 3).rem_euclid(7);
                (monday, monday + 7)
            }
            Self::Month => months(0, 1),
            Self::Quarter => months((date.month - 1) % 3, 3),
            Self::Never => return None,
        };
        Some((Time(start.saturating_mul(DAY)), Time(end.saturating_mul(DAY))))
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Day => "Day",
            Self::Week => "Week",
            Self::Month => "Month",
            Self::Quarter => "Quarter",
            Self::Never => "Never",
        }
    }
}

/// The day of a point in time, as `2026-12-01`.
#[must_use]
pub fn date_of(at: Time) -> String {
    let Date { year, month, day } = Date::of(at.0.div_euclid(DAY));
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_agree_over_a_thousand_years() {
        let mut before = Date::of(-200_001);
        for number in -200_000..200_000 {
            let date = Date::of(number);
            assert_eq!(date.number(), number, "{date:?}");
            let next = (date.year, date.month, date.day) > (before.year, before.month, before.day);
            assert!(next && (date.day == 1 || date.day == before.day + 1), "{before:?} {date:?}");
            before = date;
        }
        for (at, text) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (951_782_400_000, "2000-02-29"),
            (1_764_028_799_999, "2025-11-24"),
            (1_767_225_600_000, "2026-01-01"),
            (4_107_542_400_000, "2100-03-01"),
        ] {
            assert_eq!(date_of(Time(at)), text, "{at}");
        }
    }

    #[test]
    fn periods_begin_on_their_first_day_and_follow_each_other() {
        let at = |day: i64| Time(day * DAY + 12_345);
        // 25 November 2026, a Wednesday.
        let day = 20_782;
        assert_eq!(date_of(at(day)), "2026-11-25");
        for (period, start, end) in [
            (Period::Day, "2026-11-25", "2026-11-26"),
            (Period::Week, "2026-11-23", "2026-11-30"),
            (Period::Month, "2026-11-01", "2026-12-01"),
            (Period::Quarter, "2026-10-01", "2027-01-01"),
        ] {
            let (from, to) = period.around(at(day)).expect("it ends");
            assert_eq!((date_of(from).as_str(), date_of(to).as_str()), (start, end), "{period:?}");
            assert_eq!(from.0 % DAY, 0);
            assert_eq!(period.around(to).map(|(start, _)| start), Some(to), "the next begins at its end");
            assert_eq!(period.around(Time(to.0 - 1)), Some((from, to)));
        }
        assert_eq!(Period::Never.around(at(day)), None);
    }
}
