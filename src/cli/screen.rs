//! Where text is shown: its width, the time and its zone, so that tables are the same for the same screen.

use std::io::{IsTerminal as _, stdout};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The terminal, or a pipe.
#[derive(Clone, Debug)]
pub struct Screen {
    /// Its width in characters; `None` where lines may be of any length.
    pub width: Option<u16>,
    /// Whether a person reads it.
    pub terminal: bool,
    /// The time.
    pub now: Timestamp,
    /// The time zone.
    pub zone: TimeZone,
}

impl Screen {
    /// Standard output, now.
    #[must_use]
    pub fn new() -> Self {
        let terminal = stdout().is_terminal();
        let size = terminal_size::terminal_size().filter(|_| terminal);
        let width = size.map(|(terminal_size::Width(width), _)| width);
        Self { width, terminal, now: Timestamp::now(), zone: TimeZone::system() }
    }

    /// The same, now.
    #[must_use]
    pub fn later(&self) -> Self {
        Self { now: Timestamp::now(), ..self.clone() }
    }

    /// A point in time as people read it: the time of day, and the date unless it is today's.
    #[must_use]
    pub fn time(&self, at: Timestamp) -> String {
        let (at, now) = (at.to_zoned(self.zone.clone()), self.now.to_zoned(self.zone.clone()));
        let form = if at.date() == now.date() {
            "%H:%M:%S"
        } else if at.year() == now.year() {
            "%b %d %H:%M"
        } else {
            "%Y-%m-%d %H:%M"
        };
        at.strftime(form).to_string()
    }

    /// Seconds since a point in time.
    #[must_use]
    pub fn since(&self, at: Timestamp) -> i64 {
        self.now.as_second().saturating_sub(at.as_second()).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_date_unless_it_is_today() {
        let now = "2026-11-21T10:00:00Z".parse().expect("a time");
        let screen = Screen { width: None, terminal: false, now, zone: TimeZone::UTC };
        for (at, shown) in [
            ("2026-11-21T08:30:05Z", "08:30:05"),
            ("2026-11-19T08:30:05Z", "Nov 19 08:30"),
            ("2025-11-19T08:30:05Z", "2025-11-19 08:30"),
        ] {
            assert_eq!(screen.time(at.parse().expect("a time")), shown);
        }
        assert_eq!(screen.since("2026-11-21T09:00:00Z".parse().expect("a time")), 3_600);
        assert_eq!(screen.since("2026-11-21T11:00:00Z".parse().expect("a time")), 0);
    }
}
