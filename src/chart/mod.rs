//! Charts as inline SVG: amounts over time, and what runs on which node until when. The simulator's report and the web
//! page share them, with their colours.

mod area;
mod gantt;
mod palette;
mod scale;
pub mod units;

pub use area::{Area, Layer, Mark};
pub use gantt::{Bar, Gantt, Look, Row};
pub use palette::Palette;

/// Colours of both themes, and how the parts of a chart look.
pub const STYLE: &str = include_str!("chart.css");
