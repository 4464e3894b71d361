//! Tables of few columns, for the simulator.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};

/// The least width of a text column, in characters.
const NARROWEST: u16 = 32;

/// A table that does not wrap its cells.
pub fn table(header: impl IntoIterator<Item = &'static str>) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header.into_iter().collect::<Vec<_>>());
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    table
}

/// A table with text in the last column, wrapped to the width of the terminal.
pub fn with_text<const N: usize>(header: [&'static str; N]) -> Table {
    let mut table = table(header);
    if let Some(column) = table.column_mut(N - 1) {
        column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(NARROWEST)));
    }
    table
}

/// The lines of a table.
pub fn shown(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

/// Aligns columns on the right.
pub fn right(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
