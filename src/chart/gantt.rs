//! What runs on which node from when until when, one unit of a node's height for each GPU.

use std::fmt::Write;

use maud::{Markup, html};

use super::scale::times;
use super::units::{number, span};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 118.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 20.0;
const GAP: f64 = 5.0;
/// About the width of a character of a label.
const CHARACTER: f64 = 6.0;
/// The most characters of a row's name.
const NAME: usize = 17;
/// The most GPUs of a row that have a height of their own.
const MOST_SLOTS: usize = 16;

/// How sure a bar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It runs, or has run.
    Runs,
    /// It is expected to run.
    Expected,
    /// It is reserved.
    Reserved,
}

/// Pods of one workload on one node.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its begin, in seconds.
    pub from: f64,
    /// Its end; `None` if it is not known.
    pub to: Option<f64>,
    /// Its GPUs.
    pub gpus: f64,
    /// The class of its team.
    pub class: String,
    /// Whether it borrows.
    pub borrowed: bool,
    /// How sure it is.
    pub look: Look,
    /// Its label, shown where it fits.
    pub label: String,
    /// The whole, shown on demand.
    pub text: String,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its GPUs.
    pub gpus: u32,
    /// Its bars, in order of their begin.
    pub bars: Vec<Bar>,
}

/// Bars of several nodes along one axis of time.
#[derive(Clone, Debug, Default)]
pub struct Gantt {
    /// Its title.
    pub title: String,
    /// A sentence for screen readers.
    pub description: String,
    /// Its rows.
    pub rows: Vec<Row>,
    /// End of the time axis, in seconds.
    pub end: f64,
    /// What stands at the begin of the time axis.
    pub begin: String,
    /// What stands before the other times.
    pub sign: &'static str,
}

/// Units of height that a bar fills.
type Slots = Vec<usize>;

impl Row {
    fn slots(&self) -> usize {
        usize::try_from(self.gpus).unwrap_or(1).clamp(1, MOST_SLOTS)
    }

    /// The units of each bar: those free at its begin, or else those that become free first.
    fn places(&self) -> Vec<Slots> {
        let mut free_from = vec![0.0_f64; self.slots()];
        // A fraction of a GPU fills a unit that others may share.
        let (mut shared, scale) = (None::<(usize, f64)>, self.gpus.max(1));
        let place = |bar: &Bar| {
            let until = bar.to.unwrap_or(f64::INFINITY);
            if bar.gpus < 0.95
                && let Some((slot, used)) = shared
                && used + bar.gpus <= 1.01
            {
                shared = Some((slot, used + bar.gpus));
                free_from[slot] = free_from[slot].max(until);
                return vec![slot];
            }
            let wanted = units(bar.gpus, scale, free_from.len());
            let mut order: Slots = (0..free_from.len()).collect();
            order.sort_by(|one, other| {
                let late =
                    |slot: usize| if free_from[slot] <= bar.from + 0.001 { 0.0 } else { free_from[slot] };
                late(*one).total_cmp(&late(*other)).then(one.cmp(other))
            });
            order.truncate(wanted);
            order.sort_unstable();
            for slot in &order {
                free_from[*slot] = free_from[*slot].max(until);
            }
            if bar.gpus < 0.95 {
                shared = order.first().map(|slot| (*slot, bar.gpus));
            }
            order
        };
        self.bars.iter().map(place).collect()
    }
}

/// The units for this many GPUs of a node that has `of`, drawn in `slots`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between one and the slots")]
fn units(gpus: f64, of: u32, slots: usize) -> usize {
    let all = u32::try_from(slots).unwrap_or(1);
    let scaled = gpus * f64::from(all) / f64::from(of.max(all));
    (scaled.round().clamp(1.0, f64::from(all))) as usize
}

/// Consecutive units as first and length.
fn runs(slots: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for slot in slots {
        match runs.last_mut() {
            Some((first, length)) if *first + *length == *slot => *length += 1,
            _ => runs.push((*slot, 1)),
        }
    }
    runs
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

impl Gantt {
    /// The chart with its caption.
    #[must_use]
    pub fn draw(&self) -> Markup {
        let unit = |row: &Row| if row.slots() > 8 { 2.0 } else { 2.75_f64.max(14.0 / float(row.slots())) };
        let mut height = TOP;
        let tops: Vec<f64> = self
            .rows
            .iter()
            .map(|row| {
                let top = height;
                height += unit(row) * float(row.slots()) + GAP;
                top
            })
            .collect();
        let x = |at: f64| LEFT + at.clamp(0.0, self.end) / self.end.max(0.001) * (WIDTH - LEFT - RIGHT);
        html! {
            figure {
                figcaption { (self.title) }
                div.scroll tabindex="0" role="region" aria-label=(self.title) {
                    svg viewBox=(format!("0 0 {WIDTH} {height:.0}")) role="img" {
                        title { (self.title) }
                        desc { (self.description) }
                        defs {
                            pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse"
                                patternTransform="rotate(45)" { path.hatch d="M0 0V6" {} }
                        }
                        @for (index, at) in times(self.end).into_iter().enumerate() {
                            line.rule x1=(number(x(at))) x2=(number(x(at))) y1=(TOP - 4.0) y2=(number(height)) {}
                            text x=(number(x(at))) y="11" text-anchor=(if index == 0 { "start" } else { "middle" }) {
                                @if index == 0 { (self.begin) } @else { (self.sign) (span(at)) }
                            }
                        }
                        @for (row, top) in self.rows.iter().zip(&tops) {
                            (self.row(row, *top, unit(row), &x))
                        }
                    }
                }
            }
        }
    }

    fn row(&self, row: &Row, top: f64, unit: f64, x: &impl Fn(f64) -> f64) -> Markup {
        let height = unit * float(row.slots());
        html! {
            text x=(LEFT - 6.0) y=(number(top + height / 2.0 + 4.0)) text-anchor="end" {
                (clipped(&row.name, NAME)) title { (row.name) }
            }
            rect.track x=(LEFT) y=(number(top)) width=(WIDTH - LEFT - RIGHT) height=(number(height)) {}
            @for (bar, slots) in row.bars.iter().zip(row.places()) { (self.bar(bar, &runs(&slots), top, unit, x)) }
        }
    }

    fn bar(
        &self,
        bar: &Bar,
        runs: &[(usize, usize)],
        top: f64,
        unit: f64,
        x: &impl Fn(f64) -> f64,
    ) -> Markup {
        let (left, right) = (x(bar.from), x(bar.to.unwrap_or(self.end)));
        let width = (right - left).max(1.5);
        let look = match bar.look {
            Look::Runs => "bar",
            Look::Expected => "bar expected",
            Look::Reserved => "bar reserved",
        };
        let on_page = if bar.look == Look::Runs { "in" } else { "in on-page" };
        let fits = fitting(width - 6.0);
        let widest = runs.iter().max_by_key(|(_, length)| *length).copied();
        html! {
            g class=(bar.class) {
                title { (bar.text) }
                @for (first, length) in runs {
                    @let (y, height) = (top + unit * float(*first), unit * float(*length) - 0.5);
                    // A run without a known end points beyond the chart.
                    @let path = outline(left, width, y, height, bar.to.is_none());
                    path class=(look) d=(path) {}
                    @if bar.borrowed { path d=(path) fill="url(#hatch)" {} }
                }
                @if let Some((first, length)) = widest.filter(|(_, length)| unit * float(*length) >= 13.0 && fits >= 3) {
                    text class=(on_page) x=(number(left + 4.0))
                        y=(number(top + unit * (float(first) + float(length) / 2.0) + 3.5)) { (clipped(&bar.label, fits)) }
                }
            }
        }
    }
}

/// The characters that fit a width.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number, never negative")]
fn fitting(width: f64) -> usize {
    (width / CHARACTER).clamp(0.0, 200.0) as usize
}

/// The outline of a bar; an open one ends in a point.
fn outline(left: f64, width: f64, y: f64, height: f64, open: bool) -> String {
    let mut path = String::new();
    // Writing to a String does not fail.
    let _ = if open {
        let point = height.min(8.0).min(width) / 2.0;
        write!(
            path,
            "M{left:.1} {y:.1}H{:.1}l{point:.1} {:.1}l-{point:.1} {:.1}H{left:.1}Z",
            left + width - point,
            height / 2.0,
            height / 2.0
        )
    } else {
        write!(path, "M{left:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}Z")
    };
    path
}

/// The beginning of a text, with a sign that something is missing.
fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let begin: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{begin}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(from: f64, to: Option<f64>, gpus: f64) -> Bar {
        Bar {
            from,
            to,
            gpus,
            class: "t0".to_owned(),
            borrowed: false,
            look: Look::Runs,
            label: "a/x".to_owned(),
            text: "a/x <1>".to_owned(),
        }
    }

    #[test]
    fn no_two_bars_of_a_time_share_a_unit() {
        let bars = vec![
            bar(0.0, Some(10.0), 2.0),
            bar(0.0, None, 1.0),
            bar(10.0, Some(20.0), 1.0),
            bar(10.0, Some(20.0), 2.0),
        ];
        let row = Row { name: "n".to_owned(), gpus: 4, bars };
        assert_eq!(row.places(), [vec![0, 1], vec![2], vec![0], vec![1, 3]]);
        assert_eq!(runs(&[1, 3]), [(1, 1), (3, 1)]);
        let halves =
            Row { name: "n".to_owned(), gpus: 2, bars: vec![bar(0.0, None, 0.5), bar(0.0, None, 0.5)] };
        assert_eq!(halves.places(), [vec![0], vec![0]], "two halves share a GPU");
    }

    #[test]
    fn names_are_escaped_and_an_unknown_end_is_open() {
        let row = Row { name: "n".to_owned(), gpus: 1, bars: vec![bar(0.0, None, 1.0)] };
        let chart =
            Gantt { rows: vec![row], end: 100.0, begin: "now".to_owned(), sign: "+", ..Gantt::default() };
        let text = chart.draw().into_string();
        assert!(text.contains("a/x &lt;1&gt;") && text.contains(">+15s<"), "{text}");
        assert!(text.contains("l4.0 "), "the bar ends in a point: {text}");
        assert_eq!(clipped("abcdef", 3), "ab…");
    }
}
