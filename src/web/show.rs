//! How pages show times, amounts and states.

use jiff::Timestamp;
use maud::{Markup, html};

use super::page::{Context, seconds};
use crate::chart::Palette;
use crate::chart::units::{number, whole_span};
use crate::view::{EtaRow, WorkloadRow};

/// The time between two times, in its two largest units: `3d7h`.
pub fn between(from: Timestamp, to: Timestamp) -> String {
    whole_span(to.as_second().saturating_sub(from.as_second()))
}

/// Seconds as a number for charts.
#[expect(clippy::cast_precision_loss, reason = "seconds of a chart")]
pub fn float(whole: i64) -> f64 {
    whole as f64
}

/// How long ago this was, with the time on demand.
pub fn ago(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(seconds(at)) title=(seconds(at)) { (between(at, now)) } }
}

/// GPUs as a number.
pub fn gpus(count: f64) -> String {
    number(count)
}

/// GPUs with their unit.
pub fn gpus_of(count: f64) -> String {
    let unit = if (count - 1.0).abs() < 0.001 { "GPU" } else { "GPUs" };
    format!("{} {unit}", number(count))
}

/// A number with its noun.
pub fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// The state of a workload.
pub fn state(state: &str) -> Markup {
    html! { span class=(format!("state {}", state.to_lowercase())) { (state) } }
}

/// The sign of a team.
pub fn key(palette: &Palette, team: &str) -> Markup {
    html! { i class=(format!("key {}", palette.class(team))) aria-hidden="true" { (palette.letter(team)) } }
}

/// A link to the page of a team.
pub fn team(context: &Context, team: &str) -> Markup {
    html! { a href=(context.path(&format!("team/{team}"))) { (team) } }
}

/// The expected start, with its range on demand.
pub fn eta(eta: &EtaRow, now: Timestamp) -> Markup {
    let left = |at: Timestamp| {
        if at <= now { "at any moment".to_owned() } else { format!("in {}", between(now, at)) }
    };
    html! {
        @match (eta.early, eta.likely, eta.late) {
            (Some(early), Some(likely), Some(late)) => {
                time datetime=(seconds(likely)) title=(format!("earliest {}, latest {}", seconds(early), seconds(late))) {
                    (left(likely))
                    @if early != late { " (" (between(now, early)) "–" (between(now, late)) ")" }
                }
            }
            _ => span.soft title=(eta.message) { "not known" },
        }
    }
}

/// The place of a waiting workload in its queue.
pub fn position(row: &WorkloadRow) -> String {
    let place = row.eta.as_ref().and_then(|eta| eta.place.as_ref());
    place.map(|place| format!("{} of {}", place.position, place.waiting)).unwrap_or_default()
}

/// One of the figures at the top of a page.
pub fn figure(name: &str, value: impl maud::Render, note: impl maud::Render) -> Markup {
    html! { div { dt { (name) } dd { (value) } dd.note { (note) } } }
}

/// A bar of a whole: the part that is `used`, and up to `both` what is bound besides, in per cent.
pub fn bar(class: &str, used: f64, both: f64, text: &str) -> Markup {
    const WIDTH: f64 = 300.0;
    let x = |percent: f64| percent.clamp(0.0, 100.0) / 100.0 * WIDTH;
    html! {
        svg.meter viewBox=(format!("0 0 {WIDTH} 18")) preserveAspectRatio="none" role="img" aria-label=(text) {
            title { (text) }
            rect.track x="0" y="3" width=(WIDTH) height="12" {}
            g class=(class) {
                rect.bar x="0" y="3" width=(number(x(used))) height="12" {}
                rect.area.borrowed x=(number(x(used))) y="3" width=(number(x(both) - x(used))) height="12" {}
            }
        }
    }
}

/// How much of something is used: what is within the guarantee and what is borrowed, against a mark, such as the guarantee, and the
/// limit. The mark has the name that its text says.
pub fn meter(
    class: &str,
    used: f64,
    borrowed: f64,
    (mark, marked): (&str, f64),
    limit: Option<f64>,
    most: f64,
) -> Markup {
    const WIDTH: f64 = 300.0;
    let x = |value: f64| value.clamp(0.0, most) / most.max(0.001) * (WIDTH - 2.0);
    let own = (used - borrowed).max(0.0);
    let limit_text = limit.map(|limit| format!(", limit {}", number(limit))).unwrap_or_default();
    let text = format!(
        "{} used, of it {} borrowed; {mark} {}{limit_text}",
        number(used),
        number(borrowed),
        number(marked)
    );
    html! {
        svg.meter viewBox=(format!("0 0 {WIDTH} 18")) preserveAspectRatio="none" role="img" aria-label=(text) {
            title { (text) }
            rect.track x="0" y="3" width=(WIDTH) height="12" {}
            g class=(class) {
                rect.bar x="0" y="3" width=(number(x(own))) height="12" {}
                rect.area.borrowed x=(number(x(own))) y="3" width=(number(x(used) - x(own))) height="12" {}
            }
            @if marked > 0.0 { path.line d=(format!("M{} 0V18", number(x(marked).max(1.0)))) {} }
            @if let Some(limit) = limit { path.capacity d=(format!("M{} 0V18", number(x(limit).max(1.0)))) {} }
        }
    }
}

/// A command to copy.
pub fn command(text: &str) -> Markup {
    html! { div.command { code { (text) } button type="button" data-copy=(text) aria-label=(format!("Copy {text}")) { "Copy" } } }
}
