//! Times as people write them, in commands and in Questions: `2026-11-01`, `2026-11`, `7d`, `today`.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan as _, Zoned};

/// A time, or a day or month as a whole: as a bound it means its beginning or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When {
    from: Timestamp,
    to: Timestamp,
    /// Whether it was written as an age.
    is_age: bool,
}

/// The forms, for messages.
const FORMS: &str = "expected a day (2026-11-01), a month (2026-11), a time (2026-11-01T10:30), today, yesterday, now, or an age (7d, 2w, 12h)";

impl When {
    /// Reads a text at `now`, which has the time zone.
    ///
    /// # Errors
    /// The forms that there are.
    pub fn read(text: &str, now: &Zoned) -> Result<Self, String> {
        let wrong = || format!("{text:?}: {FORMS}");
        let whole = |first: Date, length: Span| {
            let day = |date: Date| date.to_zoned(now.time_zone().clone()).map(|start| start.timestamp());
            let to = first.checked_add(length).and_then(day);
            Ok(Self { from: day(first).map_err(|_| wrong())?, to: to.map_err(|_| wrong())?, is_age: false })
        };
        match text {
            "now" => return Ok(Self { from: now.timestamp(), to: now.timestamp(), is_age: false }),
            "today" => return whole(now.date(), 1.day()),
            "yesterday" => {
                return whole(now.date().checked_sub(1.day()).map_err(|_| wrong())?, 1.day());
            }
            _ => {}
        }
        if let Some(age) = age(text) {
            let at = now.checked_sub(age).map_err(|_| wrong())?.timestamp();
            return Ok(Self { from: at, to: at, is_age: true });
        }
        if text.len() == 7
            && let Ok(first) = format!("{text}-01").parse::<Date>()
        {
            return whole(first, 1.month());
        }
        if text.len() == 10
            && let Ok(day) = text.parse::<Date>()
        {
            return whole(day, 1.day());
        }
        let at = match text.parse::<Timestamp>() {
            Ok(at) => Ok(at),
            Err(_) => text
                .parse::<jiff::civil::DateTime>()
                .and_then(|local| Ok::<_, jiff::Error>(local.to_zoned(now.time_zone().clone())?.timestamp())),
        };
        let at = at.map_err(|_| wrong())?;
        Ok(Self { from: at, to: at, is_age: false })
    }

    /// As the beginning of a range.
    #[must_use]
    pub fn beginning(&self) -> Timestamp {
        self.from
    }

    /// As the beginning of a report: an age counts from the half hour before, from which on there are sums.
    #[must_use]
    pub fn beginning_of_report(&self) -> Timestamp {
        const HALF_HOUR: i64 = 1_800;
        let second = self.from.as_second();
        match self.is_age {
            true => Timestamp::from_second(second - second.rem_euclid(HALF_HOUR)).unwrap_or(self.from),
            false => self.from,
        }
    }

    /// As the end of a range.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        self.to
    }
}

/// An age such as `7d`.
fn age(text: &str) -> Option<Span> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: i32 = number.parse().ok().filter(|number| (0..=100_000).contains(number))?;
    match unit {
        "h" => Some(number.hours()),
        "d" => Some(number.days()),
        "w" => Some(number.weeks()),
        _ => None,
    }
}

/// Far more days than a report has.
const MOST: i32 = 10_000;

/// The days or months that begin between two times.
#[must_use]
pub fn cuts(from: Timestamp, to: Timestamp, months: bool, zone: &TimeZone) -> Vec<Timestamp> {
    let first = from.to_zoned(zone.clone()).date();
    let first = if months { first.first_of_month() } else { first };
    let length = |count: i32| if months { count.months() } else { count.days() };
    let mut cuts = Vec::new();
    for count in 1..=MOST {
        let Ok(begin) = first.checked_add(length(count)).and_then(|date| date.to_zoned(zone.clone())) else {
            break;
        };
        if begin.timestamp() >= to {
            break;
        }
        if begin.timestamp() > from {
            cuts.push(begin.timestamp());
        }
    }
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a time zone")
    }

    fn now() -> Zoned {
        "2026-11-25T10:30:00Z".parse::<Timestamp>().expect("a time").to_zoned(berlin())
    }

    #[test]
    fn times_are_read_as_people_write_them_in_their_time_zone() {
        for (text, from, to) in [
            ("now", "2026-11-25T10:30:00Z", "2026-11-25T10:30:00Z"),
            ("today", "2026-11-24T23:00:00Z", "2026-11-25T23:00:00Z"),
            ("yesterday", "2026-11-23T23:00:00Z", "2026-11-24T23:00:00Z"),
            ("2026-11-01", "2026-10-31T23:00:00Z", "2026-11-01T23:00:00Z"),
            ("2026-10", "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z"),
            ("2026-11-01T08:00", "2026-11-01T07:00:00Z", "2026-11-01T07:00:00Z"),
            ("2026-11-01T08:00:00Z", "2026-11-01T08:00:00Z", "2026-11-01T08:00:00Z"),
            ("7d", "2026-11-18T10:30:00Z", "2026-11-18T10:30:00Z"),
            ("12h", "2026-11-24T22:30:00Z", "2026-11-24T22:30:00Z"),
        ] {
            let when = When::read(text, &now()).expect(text);
            assert_eq!(
                (when.beginning().to_string(), when.end().to_string()),
                (from.into(), to.into()),
                "{text}"
            );
        }
        for text in ["", "soon", "2026-13", "2026-02-30", "7y", "-1d", "d", "ä"] {
            assert!(When::read(text, &now()).is_err_and(|error| error.contains("expected a day")), "{text}");
        }
    }

    #[test]
    fn a_report_of_an_age_begins_with_a_half_hour() {
        let begins = |text: &str, now: &str| {
            let now = now.parse::<Timestamp>().expect("a time").to_zoned(berlin());
            When::read(text, &now).expect(text).beginning_of_report().to_string()
        };
        assert_eq!(begins("7d", "2026-11-25T10:44:59.7Z"), "2026-11-18T10:30:00Z");
        assert_eq!(begins("12h", "2026-11-25T10:30:00Z"), "2026-11-24T22:30:00Z");
        assert_eq!(begins("2026-11-01T10:44:59Z", "2026-11-25T10:44:59Z"), "2026-11-01T10:44:59Z");
        assert_eq!(begins("2026-11", "2026-11-25T10:44:59Z"), "2026-10-31T23:00:00Z");
    }

    #[test]
    fn days_have_23_hours_where_the_clock_is_put_forward() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let cuts = |from, to, months| {
            let cuts = cuts(at(from), at(to), months, &berlin());
            cuts.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let days = cuts("2026-03-27T23:00:00Z", "2026-03-30T22:00:00Z", false);
        assert_eq!(days, ["2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"]);
        let months = cuts("2026-10-15T00:00:00Z", "2026-12-01T00:00:00Z", true);
        assert_eq!(months, ["2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z"]);
        assert!(cuts("2026-11-25T10:00:00Z", "2026-11-25T11:00:00Z", false).is_empty());
    }
}
