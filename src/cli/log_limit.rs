//! Bounds what the logs grow by: a fault that lasts is logged at first, and then at growing intervals with the number of
//! lines left out.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Write as _};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The pause after the first line before an equal one is written again; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause. After twice that time without an equal line the pauses start over.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The number of different lines that one place in the code may write at once.
const BURST: u32 = 20;
/// The time in which it may write one more.
const REFILL: Duration = Duration::from_secs(2);
/// The same for decisions, each of which is a line: what a busy cluster decides, and a bound on the rest.
const DECISIONS: &str = "sluice::decisions";
const BURST_OF_DECISIONS: u32 = 2000;
const REFILL_OF_DECISIONS: Duration = Duration::from_millis(10);
/// The number of different lines that are remembered; the oldest is forgotten first.
const REMEMBERED: usize = 512;
/// The most bytes of a line.
const LONGEST_LINE: usize = 4096;
/// The most bytes of one value in a line of JSON that is longer.
const LONGEST_VALUE: usize = 512;

/// A format of log lines, with the limits on top. Lines below level `info` are not limited.
pub struct Limited<F> {
    inner: F,
    json: bool,
    limits: Mutex<Limits>,
}

impl<F> Limited<F> {
    /// Lines of plain text.
    pub fn text(inner: F) -> Self {
        Self { inner, json: false, limits: Mutex::default() }
    }

    /// One JSON object per line.
    pub fn json(inner: F) -> Self {
        Self { inner, json: true, limits: Mutex::default() }
    }
}

impl<S, N, F> FormatEvent<S, N> for Limited<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let mut left_out = LeftOut::default();
        if *metadata.level() <= Level::INFO {
            let mut content = Content::default();
            event.record(&mut content);
            let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            let bound = if metadata.target() == DECISIONS { OF_DECISIONS } else { OF_OTHERS };
            match limits.admit((&metadata.callsite(), bound), content.0.finish(), Instant::now()) {
                Some(before) => left_out = before,
                None => return Ok(()),
            }
        }
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let line = if self.json { json_line(&line, left_out) } else { text_line(&line, left_out) };
        writeln!(writer, "{line}")
    }
}

/// The values of an event, as a hash.
#[derive(Default)]
struct Content(DefaultHasher);

impl fmt::Write for Content {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl Visit for Content {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        field.name().hash(&mut self.0);
        // Hashing cannot fail, and a value that cannot be written is equal to itself all the same.
        let _ = write!(self, "{value:?}");
    }
}

/// The equal lines that were left out before a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeftOut {
    lines: u64,
    within: Duration,
}

/// What was written, and when.
#[derive(Debug, Default)]
struct Limits {
    places: BTreeMap<usize, Place>,
    lines: BTreeMap<Key, Line>,
    /// The keys of `lines`, the oldest first.
    order: VecDeque<Key>,
}

/// How many different lines a place in the code may write at once, and the time in which it may write one more.
type Bound = (u32, Duration);

const OF_OTHERS: Bound = (BURST, REFILL);
const OF_DECISIONS: Bound = (BURST_OF_DECISIONS, REFILL_OF_DECISIONS);

/// A place in the code, and a hash of the values.
type Key = (usize, u64);

#[derive(Debug)]
struct Line {
    written: Instant,
    pause: Duration,
    left_out: u64,
}

/// The budget of one place in the code.
#[derive(Debug)]
struct Place {
    left: u32,
    refilled: Instant,
    left_out: u64,
    written: Instant,
}

impl Limits {
    /// Whether an event is written now, and what was left out before it.
    fn admit(
        &mut self,
        (callsite, bound): (&Identifier, Bound),
        content: u64,
        now: Instant,
    ) -> Option<LeftOut> {
        // A callsite is a static, of which there is a fixed number.
        let mut hasher = DefaultHasher::new();
        callsite.hash(&mut hasher);
        let place = usize::try_from(hasher.finish() & u64::from(u32::MAX)).unwrap_or_default();
        self.admit_at((place, bound), content, now)
    }

    fn admit_at(
        &mut self,
        (place, (burst, refill)): (usize, Bound),
        content: u64,
        now: Instant,
    ) -> Option<LeftOut> {
        let key = (place, content);
        if let Some(line) = self.lines.get_mut(&key) {
            let since = now.saturating_duration_since(line.written);
            if since < line.pause {
                line.left_out += 1;
                return None;
            }
            let quiet = since >= LONGEST_PAUSE * 2;
            line.pause = if quiet { FIRST_PAUSE } else { (line.pause * 2).min(LONGEST_PAUSE) };
            line.written = now;
            return Some(LeftOut { lines: std::mem::take(&mut line.left_out), within: since });
        }
        let budget = self.places.entry(place).or_insert(Place {
            left: burst,
            refilled: now,
            left_out: 0,
            written: now,
        });
        let refills = now.saturating_duration_since(budget.refilled).as_millis() / refill.as_millis();
        if refills > 0 {
            budget.left = budget.left.saturating_add(u32::try_from(refills).unwrap_or(burst)).min(burst);
            budget.refilled = now;
        }
        if budget.left == 0 {
            budget.left_out += 1;
            return None;
        }
        budget.left -= 1;
        let within = now.saturating_duration_since(budget.written);
        let left_out = LeftOut { lines: std::mem::take(&mut budget.left_out), within };
        budget.written = now;
        if self.order.len() >= REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.lines.remove(&oldest);
        }
        self.order.push_back(key);
        self.lines.insert(key, Line { written: now, pause: FIRST_PAUSE, left_out: 0 });
        Some(left_out)
    }
}

/// The start of a text, at most `bytes` long, in whole characters, and whether that is all of it.
fn up_to(text: &str, bytes: usize) -> (&str, bool) {
    if text.len() <= bytes {
        return (text, true);
    }
    let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    (&text[..end], false)
}

fn text_line(line: &str, left_out: LeftOut) -> String {
    let (start, whole) = up_to(line.trim_end(), LONGEST_LINE);
    // A value with line breaks would look like lines of its own.
    let mut text = start.replace(['\n', '\r'], " ");
    if !whole {
        let _ = write!(text, "… ({} bytes in all)", line.trim_end().len());
    }
    if left_out.lines > 0 {
        let _ =
            write!(text, " (… {} times more in the last {} s)", left_out.lines, left_out.within.as_secs());
    }
    text
}

fn json_line(line: &str, left_out: LeftOut) -> String {
    let line = line.trim_end();
    if line.len() <= LONGEST_LINE && left_out.lines == 0 {
        return line.to_owned();
    }
    let Ok(Value::Object(mut fields)) = serde_json::from_str(line) else {
        return Value::String(up_to(line, LONGEST_LINE).0.to_owned()).to_string();
    };
    if line.len() > LONGEST_LINE {
        for value in fields.values_mut() {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            if let (start, false) = up_to(&text, LONGEST_VALUE) {
                *value = format!("{start}… ({} bytes in all)", text.len()).into();
            }
        }
    }
    if left_out.lines > 0 {
        fields.insert("left_out".to_owned(), left_out.lines.into());
        fields.insert("left_out_seconds".to_owned(), left_out.within.as_secs().into());
    }
    Value::Object(fields).to_string()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    /// The times, in milliseconds from the start, at which equal lines of one place are written, of one each 10 ms.
    fn written(millis: u64, bound: Bound, content: impl Fn(u64) -> u64) -> Vec<(u64, u64)> {
        let (start, mut limits) = (Instant::now(), Limits::default());
        let mut at = Vec::new();
        for time in (0..millis).step_by(10) {
            let now = start + Duration::from_millis(time);
            if let Some(left_out) = limits.admit_at((1, bound), content(time), now) {
                at.push((time, left_out.lines));
            }
        }
        at
    }

    #[test]
    fn a_line_that_repeats_is_written_at_growing_intervals_with_the_number_left_out() {
        let lines = written(300_000, OF_OTHERS, |_| 7);
        let seconds: Vec<u64> = lines.iter().map(|(time, _)| time / 1000).collect();
        assert_eq!(seconds, [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]);
        let left_out: Vec<u64> = lines.iter().map(|(_, left_out)| *left_out).collect();
        assert_eq!(
            left_out,
            [0, 99, 199, 399, 799, 1599, 3199, 5999, 5999, 5999],
            "each line is counted once"
        );
    }

    #[test]
    fn different_lines_of_one_place_have_a_budget() {
        let lines = written(60_000, OF_OTHERS, |time| time);
        assert_eq!(lines.len(), 20 + 29, "a burst, and one more each 2 s");
        assert_eq!(lines[20], (2_000, 180));
    }

    #[test]
    fn decisions_are_lines_of_their_own_up_to_a_hundred_a_second() {
        let lines = written(60_000, OF_DECISIONS, |time| time);
        assert_eq!(lines.len(), 6_000);
        let start = Instant::now();
        let mut limits = Limits::default();
        let mut at_once = |count: u64| {
            (0..count).filter(|one| limits.admit_at((1, OF_DECISIONS), *one, start).is_some()).count()
        };
        assert_eq!(at_once(10_000), 2_000);
    }

    #[test]
    fn after_a_quiet_time_everything_is_written_again() {
        let (start, mut limits) = (Instant::now(), Limits::default());
        let mut at = |seconds: u64, place: usize| {
            limits.admit_at((place, OF_OTHERS), 7, start + Duration::from_secs(seconds)).is_some()
        };
        assert!(at(0, 1) && !at(0, 1) && at(0, 2), "another place has limits of its own");
        assert!(at(1, 1) && !at(2, 1) && at(3, 1) && !at(6, 1));
        assert!(at(200, 1) && !at(200, 1) && at(201, 1));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut limits = Limits::default();
        let start = Instant::now();
        for one in 0..100_000 {
            limits.admit_at((1, OF_OTHERS), one, start + REFILL * u32::try_from(one).expect("a number"));
        }
        assert_eq!((limits.lines.len(), limits.order.len()), (REMEMBERED, REMEMBERED));
    }

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that a subscriber writes of what `log` does.
    fn logged(json: bool, log: impl Fn()) -> Vec<String> {
        use tracing_subscriber::fmt::format::JsonFields;
        let sink = Sink::default();
        let target = sink.clone();
        let logs = tracing_subscriber::fmt().with_writer(move || target.clone());
        let format = tracing_subscriber::fmt::format().with_target(false).with_ansi(false);
        if json {
            let format = Limited::json(format.json().flatten_event(true));
            let logs = logs.fmt_fields(JsonFields::new()).event_format(format).finish();
            tracing::subscriber::with_default(logs, log);
        } else {
            let logs = logs.event_format(Limited::text(format)).finish();
            tracing::subscriber::with_default(logs, log);
        }
        let bytes = sink.0.lock().expect("no panic").clone();
        String::from_utf8(bytes).expect("text").lines().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn a_fault_that_repeats_at_once_is_one_line() {
        let fails = || {
            for _ in 0..1000 {
                tracing::warn!(kind = "Job", "watch failed");
            }
            tracing::warn!(kind = "Pod", "watch failed");
        };
        for json in [false, true] {
            let lines = logged(json, fails);
            assert_eq!(lines.len(), 2, "{lines:?}");
            assert!(lines.iter().all(|line| line.contains("watch failed")), "{lines:?}");
        }
    }

    #[test]
    fn a_line_is_bounded_and_stays_one_line() {
        let long = format!("first\nsecond {}", "é".repeat(100_000));
        for json in [false, true] {
            let lines = logged(json, || tracing::warn!(user = %long, "refused"));
            assert_eq!(lines.len(), 1);
            assert!(
                lines[0].len() < LONGEST_LINE + 100 && lines[0].contains("bytes in all"),
                "{}",
                lines[0].len()
            );
            if json {
                let fields: Value = serde_json::from_str(&lines[0]).expect("JSON");
                assert_eq!(fields["message"], "refused");
            }
        }
    }

    #[test]
    fn what_was_left_out_is_said() {
        let left_out = LeftOut { lines: 312, within: Duration::from_secs(60) };
        assert_eq!(
            text_line("WARN watch failed\n", left_out),
            "WARN watch failed (… 312 times more in the last 60 s)"
        );
        let line: Value = serde_json::from_str(&json_line("{\"message\":\"x\"}\n", left_out)).expect("JSON");
        assert_eq!(line, serde_json::json!({"message": "x", "left_out": 312, "left_out_seconds": 60}));
    }
}
