//! A chart of one value over time, as inline SVG.

use std::fmt::Write;

use maud::{Markup, html};

use super::super::units::{number, span};
use super::scale::{amounts, times};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 22.0;

/// An event on the time axis.
pub struct Mark {
    /// Its time in seconds.
    pub at: f64,
    /// Its description.
    pub text: String,
}

/// A chart; times in seconds.
pub struct Chart {
    /// Its title.
    pub title: String,
    /// A sentence for screen readers.
    pub description: String,
    /// Steps: the value from each time on.
    pub values: Vec<(f64, f64)>,
    /// A dashed line for comparison; may be empty.
    pub line: Vec<(f64, f64)>,
    /// Its events.
    pub marks: Vec<Mark>,
    /// The least height of the value axis.
    pub most: f64,
    /// End of the time axis.
    pub end: f64,
}

impl Chart {
    /// The chart with its caption.
    pub fn draw(&self) -> Markup {
        let most =
            self.values.iter().chain(&self.line).map(|(_, value)| *value).fold(self.most.max(1.0), f64::max);
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
        html! {
            figure {
                figcaption { (self.title) }
                svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" {
                    title { (self.title) }
                    desc { (self.description) }
                    @for value in amounts(most) {
                        line.rule x1=(LEFT) x2=(WIDTH - RIGHT) y1=(number(y(value))) y2=(number(y(value))) {}
                        text x=(LEFT - 6.0) y=(number(y(value) + 4.0)) text-anchor="end" { (number(value)) }
                    }
                    @for at in times(self.end) {
                        text x=(number(x(at))) y=(HEIGHT - 6.0) text-anchor=(anchor(x(at))) { (span(at)) }
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

/// The anchor of a label, so that it stays within the chart.
fn anchor(x: f64) -> &'static str {
    match x {
        x if x < LEFT + NEAR => "start",
        x if x > WIDTH - RIGHT - NEAR => "end",
        _ => "middle",
    }
}

/// About half the width of a label.
const NEAR: f64 = 16.0;
