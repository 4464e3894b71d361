//! Rows and columns, as a table for people or as CSV for programs.

use std::cmp::Ordering;

use anyhow::Context as _;
use clap::builder::styling::{AnsiColor, Style};
use jiff::Timestamp;

use super::human;
use super::screen::Screen;
use crate::view::Count;
use crate::view::accounts::GpuTime;

/// The value of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// None.
    None,
    /// A text.
    Text(String),
    /// That something is so: people read these words, programs `yes`.
    Yes(&'static str),
    /// The state of a workload, which has a colour.
    State(String),
    /// A whole number.
    Number(i64),
    /// A number of GPUs.
    Count(Count),
    /// An amount of a resource: people read thousandths as decimals, programs the quantity as Kubernetes writes it.
    Amount(String),
    /// The GPUs of a node that are used and free: people read a block for each, programs their number.
    Blocks(u32, u32),
    /// So many of so many: people read both, programs the first, as the others have a column.
    Of(Count, Count),
    /// A length of time, in seconds.
    Span(i64),
    /// A point in time that is to come: people read how long that takes.
    Until(Timestamp),
    /// A point in time.
    At(Timestamp),
    /// GPU time: people read hours, programs seconds.
    GpuTime(GpuTime),
}

impl Value {
    /// A text, or none if it is empty.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { Self::None } else { Self::Text(text) }
    }

    /// As people read it.
    fn human(&self, screen: &Screen) -> String {
        match self {
            Self::None => String::new(),
            Self::Text(text) | Self::State(text) => text.clone(),
            Self::Yes(words) => (*words).to_owned(),
            Self::Number(number) => number.to_string(),
            Self::Count(count) => count.to_string(),
            Self::Amount(quantity) => human::decimal(quantity),
            Self::Blocks(used, free) => format!("{}{}", blocks(*used, '■'), blocks(*free, '□')),
            Self::Of(part, whole) => format!("{part}/{whole}"),
            Self::Span(seconds) => human::span(*seconds),
            Self::Until(at) => human::span(at.as_second() - screen.now.as_second()),
            Self::At(at) => screen.time(*at),
            Self::GpuTime(time) => human::hours(*time),
        }
    }

    /// As programs read it: seconds, and times with their zone.
    fn plain(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Text(text) | Self::State(text) => text.clone(),
            Self::Yes(_) => "yes".to_owned(),
            Self::Number(number) | Self::Span(number) => number.to_string(),
            Self::Count(count) => count.to_string(),
            Self::Amount(quantity) => quantity.clone(),
            Self::Blocks(used, free) => used.saturating_add(*free).to_string(),
            Self::Of(part, _) => part.to_string(),
            Self::Until(at) | Self::At(at) => at.to_string(),
            Self::GpuTime(time) => time.to_string(),
        }
    }

    /// The order of two values of a column; none comes last.
    pub fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(one) | Self::State(one), Self::Text(other) | Self::State(other)) => one.cmp(other),
            (Self::Number(one) | Self::Span(one), Self::Number(other) | Self::Span(other)) => one.cmp(other),
            (Self::Count(one), Self::Count(other)) => one.cmp(other),
            (Self::Until(one), Self::Until(other)) | (Self::At(one), Self::At(other)) => one.cmp(other),
            (Self::GpuTime(one), Self::GpuTime(other)) => one.cmp(other),
            (one, other) => (*one == Self::None).cmp(&(*other == Self::None)),
        }
    }
}

/// A block for each, as many as a line has.
fn blocks(count: u32, block: char) -> String {
    std::iter::repeat_n(block, count.min(64) as usize).collect()
}

/// A column of a table.
#[derive(Debug)]
pub struct Column<T> {
    /// Its name on the command line and in CSV.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// How its cells are shown.
    pub form: Form,
    /// The value of a row.
    pub value: fn(&T, &Screen) -> Value,
}

/// A column with its name, title, form and value.
pub const fn column<T>(
    name: &'static str,
    title: &'static str,
    form: Form,
    value: fn(&T, &Screen) -> Value,
) -> Column<T> {
    Column { name, title, form, value }
}

/// How the cells of a column are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Whole, on the left.
    Left,
    /// Whole, on the right, as numbers are.
    Right,
    /// On the left, cut to what is left of the width, but not below this many characters.
    Cut(u16),
    /// The same for names, which often differ at their end: they are cut in the middle.
    Name(u16),
}

/// The space between two columns.
const GAP: usize = 2;

/// The rows as a table that is as wide as the screen at most, with one line for each row.
///
/// The values are read twice, for the widths and for the lines: the cells of a hundred thousand rows would take more memory than the rows.
pub fn table<T>(columns: &[&Column<T>], rows: &[T], screen: &Screen, headers: bool) -> String {
    let widths = widths(columns, rows, screen, headers);
    let mut text = String::new();
    if headers {
        let titles = columns.iter().map(|column| (None, column.title.to_owned()));
        line(&mut text, columns, &widths, titles);
    }
    for row in rows {
        if !text.is_empty() {
            text.push('\n');
        }
        let cells = columns.iter().map(|column| {
            let value = (column.value)(row, screen);
            (color(&value), shown(&value, screen))
        });
        line(&mut text, columns, &widths, cells);
    }
    text
}

/// Adds the cells as one line. Whether their colours are shown is decided where the text is printed.
fn line<T>(
    text: &mut String,
    columns: &[&Column<T>],
    widths: &[usize],
    cells: impl Iterator<Item = (Option<AnsiColor>, String)>,
) {
    let mut pending = 0;
    for (((color, cell), column), width) in cells.zip(columns).zip(widths) {
        let cell =
            if matches!(column.form, Form::Name(_)) { shortened(cell, *width) } else { cut(cell, *width) };
        let rest = width.saturating_sub(cell.chars().count());
        let (before, after) = if column.form == Form::Right { (rest, 0) } else { (0, rest) };
        pending += before;
        if !cell.is_empty() {
            text.extend(std::iter::repeat_n(' ', pending));
            pending = 0;
            match color {
                Some(color) => {
                    let style = Style::new().fg_color(Some(color.into()));
                    text.push_str(&format!("{style}{cell}{style:#}"));
                }
                None => text.push_str(&cell),
            }
        }
        pending += after + GAP;
    }
}

/// The text of a value, which is one line.
fn shown(value: &Value, screen: &Screen) -> String {
    let text = value.human(screen);
    if text.contains(char::is_control) { text.replace(char::is_control, " ") } else { text }
}

/// The width of each column: that of its widest cell, and less for those that may be cut, the last of them first.
fn widths<T>(columns: &[&Column<T>], rows: &[T], screen: &Screen, headers: bool) -> Vec<usize> {
    let mut widths: Vec<usize> = columns
        .iter()
        .map(|column| {
            let title = if headers { column.title.chars().count() } else { 0 };
            let cells = rows.iter().map(|row| shown(&(column.value)(row, screen), screen).chars().count());
            cells.fold(title, usize::max)
        })
        .collect();
    let Some(most) = screen.width else { return widths };
    let gaps = GAP * columns.len().saturating_sub(1);
    let mut over = (widths.iter().sum::<usize>() + gaps).saturating_sub(usize::from(most));
    for (column, width) in columns.iter().zip(&mut widths).rev() {
        let (Form::Cut(least) | Form::Name(least)) = column.form else { continue };
        let less = over.min(width.saturating_sub(usize::from(least)));
        *width -= less;
        over -= less;
    }
    widths
}

/// A text of at most so many characters.
fn cut(text: String, width: usize) -> String {
    if text.chars().count() <= width {
        return text;
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// A name of at most so many characters, with its beginning and its end.
fn shortened(name: String, width: usize) -> String {
    let length = name.chars().count();
    if length <= width || width < 3 {
        return cut(name, width);
    }
    let end = (width - 1) / 2;
    let (first, last) = (name.chars().take(width - 1 - end), name.chars().skip(length - end));
    first.chain(['…']).chain(last).collect()
}

/// The colour of a state.
fn color(value: &Value) -> Option<AnsiColor> {
    let Value::State(state) = value else { return None };
    match state.as_str() {
        "Running" | "Completed" => Some(AnsiColor::BrightGreen),
        "Pending" => Some(AnsiColor::BrightYellow),
        "Held" => Some(AnsiColor::BrightCyan),
        "Evicting" | "Evicted" | "Failed" => Some(AnsiColor::BrightRed),
        _ => None,
    }
}

/// The rows as CSV, with a line of names.
///
/// # Errors
/// When the rows cannot be written, which never happens.
pub fn csv<T>(columns: &[&Column<T>], rows: &[T], screen: &Screen, headers: bool) -> anyhow::Result<String> {
    let mut lines = csv::Writer::from_writer(Vec::new());
    if headers {
        lines.write_record(columns.iter().map(|column| column.name))?;
    }
    for row in rows {
        lines.write_record(columns.iter().map(|column| (column.value)(row, screen).plain()))?;
    }
    String::from_utf8(lines.into_inner()?).context("CSV is text")
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    const COLUMNS: [Column<(&str, i64)>; 3] = [
        Column { name: "name", title: "NAME", form: Form::Cut(6), value: |row, _| Value::text(row.0) },
        Column {
            name: "state",
            title: "STATE",
            form: Form::Left,
            value: |_, _| Value::State("Running".into()),
        },
        Column { name: "age", title: "AGE", form: Form::Right, value: |row, _| Value::Span(row.1) },
    ];

    fn screen(width: Option<u16>) -> Screen {
        Screen { width, terminal: width.is_some(), now: Timestamp::UNIX_EPOCH, zone: TimeZone::UTC }
    }

    #[test]
    fn a_table_is_cut_to_the_width_of_the_screen() {
        let columns: Vec<&Column<_>> = COLUMNS.iter().collect();
        let rows = [("short", 5), ("a-rather-long-name", 90)];
        let plain =
            |width| anstream::adapter::strip_str(&table(&columns, &rows, &screen(width), true)).to_string();
        let whole = "\
NAME                STATE      AGE
short               Running     5s
a-rather-long-name  Running  1m30s";
        assert_eq!(plain(None), whole);
        assert_eq!(plain(Some(80)), whole);
        let narrow = "\
NAME        STATE      AGE
short       Running     5s
a-rather-…  Running  1m30s";
        assert_eq!(plain(Some(26)), narrow);
        let none = table(&columns, &rows[..1], &screen(None), false);
        assert_eq!(anstream::adapter::strip_str(&none).to_string(), "short  Running  5s");
        assert!(none.contains("\u{1b}["), "the state has a colour");
    }

    #[test]
    fn names_keep_their_ends() {
        for (name, width, shown) in
            [("train-1", 7, "train-1"), ("train-lr-0001", 9, "trai…0001"), ("train-lr-0001", 2, "t…")]
        {
            assert_eq!(shortened(name.to_owned(), width), shown);
        }
    }

    #[test]
    fn csv_has_names_and_plain_numbers() {
        let columns: Vec<&Column<_>> = COLUMNS.iter().collect();
        let text = csv(&columns, &[("a,\"b\"", 90)], &screen(None), true).expect("CSV");
        assert_eq!(text, "name,state,age\n\"a,\"\"b\"\"\",Running,90\n");
    }

    #[test]
    fn values_are_in_order_and_none_comes_last() {
        assert_eq!(Value::Number(9).order(&Value::Number(10)), Ordering::Less);
        assert_eq!(Value::None.order(&Value::Number(10)), Ordering::Greater);
        assert_eq!(Value::None.order(&Value::None), Ordering::Equal);
        assert_eq!(Value::text("b").order(&Value::text("a")), Ordering::Greater);
    }
}
