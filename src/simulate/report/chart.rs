//! A picture of one value over time, as inline SVG.

use std::fmt::Write;

use maud::{Markup, html};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 22.0;

/// Something that happened at one time.
pub struct Mark {
    /// When, in seconds.
    pub at: f64,
    /// What.
    pub text: String,
}

/// What is to be drawn; times in seconds.
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// The same in a sentence, for those who do not see it.
    pub description: String,
    /// The value from each time on.
    pub values: Vec<(f64, f64)>,
    /// A dashed line to hold it against; may be empty.
    pub line: Vec<(f64, f64)>,
    /// What happened.
    pub marks: Vec<Mark>,
    /// Where time ends.
    pub end: f64,
}

impl Chart {
    /// The picture with its caption.
    pub fn draw(&self) -> Markup {
        let most = self.values.iter().chain(&self.line).map(|(_, value)| *value).fold(1.0, f64::max);
        let x = |at: f64| LEFT + at / self.end.max(0.001) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM);
        let steps = |points: &[(f64, f64)]| {
            let mut path = String::new();
            for (index, (at, value)) in points.iter().enumerate() {
                let height = y(*value);
                // Writing to a String does not fail.
                let _ = match index {
                    0 => write!(path, "M{:.1} {height:.1}", x(*at)),
                    _ => write!(path, "H{:.1}V{height:.1}", x(*at)),
                };
            }
            let _ = write!(path, "H{:.1}", x(self.end));
            path
        };
        let floor = y(0.0);
        let area = match self.values.first() {
            Some((first, _)) => {
                let top = steps(&self.values).replacen('M', "L", 1);
                format!("M{:.1} {floor:.1}{top}V{floor:.1}Z", x(*first))
            }
            None => String::new(),
        };
        let times = (0..=4_u8).map(|part| self.end * f64::from(part) / 4.0);
        html! {
            figure {
                figcaption { (self.title) }
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" {
                    title { (self.title) }
                    desc { (self.description) }
                    @for value in [0.0, most / 2.0, most] {
                        line.rule x1=(LEFT) x2=(WIDTH - RIGHT) y1=(number(y(value))) y2=(number(y(value))) {}
                        text x=(LEFT - 6.0) y=(number(y(value) + 4.0)) text-anchor="end" { (number(value)) }
                    }
                    @for at in times {
                        text x=(number(x(at))) y=(HEIGHT - 6.0) text-anchor=(anchor(at, self.end)) { (number(at)) " s" }
                    }
                    path.area d=(area) {}
                    @if !self.line.is_empty() { path.line d=(steps(&self.line)) {} }
                    @for mark in &self.marks {
                        path.mark d=(format!("M{:.1} {TOP}l-4 -8h8z", x(mark.at))) { title { (mark.text) } }
                    }
                }
            }
        }
    }
}

fn anchor(at: f64, end: f64) -> &'static str {
    if at <= 0.0 {
        "start"
    } else if at >= end {
        "end"
    } else {
        "middle"
    }
}

/// A number with at most one decimal.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(ToOwned::to_owned).unwrap_or(text)
}

/// A count as a number to draw.
#[expect(clippy::cast_precision_loss, reason = "drawn, a few hundred pixels high")]
pub fn count(number: usize) -> f64 {
    number as f64
}
