//! A chart of amounts over time.

use std::fmt::Write;

use maud::{Markup, html};

use super::scale::{amounts, times};
use super::units::{number, span};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 22.0;

/// An event on the time axis.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Its time in seconds.
    pub at: f64,
    /// Its description.
    pub text: String,
}

/// One of several amounts, drawn on top of those before it.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its classes, such as that of a team.
    pub class: String,
    /// Its name.
    pub name: String,
    /// Steps: the amount from each time of the chart on.
    pub values: Vec<f64>,
}

/// A chart; times in seconds.
#[derive(Clone, Debug, Default)]
pub struct Area {
    /// Its title.
    pub title: String,
    /// A sentence for screen readers.
    pub description: String,
    /// The times of the steps.
    pub times: Vec<f64>,
    /// Amounts, each on top of those before it.
    pub layers: Vec<Layer>,
    /// A dashed line for comparison; may be empty.
    pub line: Vec<f64>,
    /// The line of the capacity; may be empty.
    pub capacity: Vec<f64>,
    /// Its events.
    pub marks: Vec<Mark>,
    /// The least height of the value axis.
    pub most: f64,
    /// End of the time axis.
    pub end: f64,
}

impl Area {
    /// The chart with its caption.
    #[must_use]
    pub fn draw(&self) -> Markup {
        let mut top = vec![0.0; self.times.len()];
        let stacked: Vec<(&Layer, Vec<f64>, Vec<f64>)> = self
            .layers
            .iter()
            .map(|layer| {
                let bottom = top.clone();
                top.iter_mut().zip(&layer.values).for_each(|(top, value)| *top += value);
                (layer, bottom, top.clone())
            })
            .collect();
        let most = top.iter().chain(&self.line).chain(&self.capacity).copied();
        let most = most.fold(self.most.max(1.0), f64::max);
        let x = |at: f64| LEFT + at / self.end.max(0.001) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / most * (HEIGHT - TOP - BOTTOM);
        let points = |values: &[f64]| -> Vec<(f64, f64)> {
            let all = self.times.iter().zip(values).map(|(at, value)| (x(*at), y(*value)));
            all.chain(values.last().map(|value| (x(self.end), y(*value)))).collect()
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
                    @for (layer, bottom, top) in &stacked {
                        path class=(format!("area {}", layer.class)) d=(between(&points(top), &points(bottom))) {
                            title { (layer.name) }
                        }
                    }
                    @if !self.capacity.is_empty() { path.capacity d=(steps(&points(&self.capacity))) {} }
                    @if !self.line.is_empty() { path.line d=(steps(&points(&self.line))) {} }
                    @for mark in &self.marks {
                        path.mark d=(format!("M{:.1} {TOP}l-4 -8h8z", x(mark.at))) { title { (mark.text) } }
                    }
                }
            }
        }
    }
}

/// A line of steps through these points.
fn steps(points: &[(f64, f64)]) -> String {
    let mut path = String::new();
    let mut height = None;
    for (index, (x, y)) in points.iter().enumerate() {
        // Writing to a String does not fail.
        let _ = match index {
            0 => write!(path, "M{x:.1} {y:.1}"),
            _ if height == Some(*y) && index + 1 < points.len() => Ok(()),
            _ => write!(path, "H{x:.1}V{y:.1}"),
        };
        height = Some(*y);
    }
    path
}

/// The area between two lines of steps.
fn between(top: &[(f64, f64)], bottom: &[(f64, f64)]) -> String {
    let mut path = steps(top);
    let mut from = bottom.last().map(|(_, y)| *y);
    if let Some((x, y)) = bottom.last() {
        let _ = write!(path, "L{x:.1} {y:.1}");
    }
    for (x, y) in bottom.iter().rev().skip(1) {
        // The step at this time: along the height after it, then to the height before it.
        if from != Some(*y) {
            let _ = write!(path, "V{y:.1}");
        }
        let _ = write!(path, "H{x:.1}");
        from = Some(*y);
    }
    path.push('Z');
    path
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_follows_the_steps_of_both_its_sides() {
        let top = [(0.0, 10.0), (5.0, 20.0), (9.0, 20.0)];
        let bottom = [(0.0, 50.0), (5.0, 40.0), (9.0, 40.0)];
        assert_eq!(between(&top, &bottom), "M0.0 10.0H5.0V20.0H9.0V20.0L9.0 40.0H5.0V50.0H0.0Z");
    }
}
