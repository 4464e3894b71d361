//! Whole tables as CSV and Parquet, for warehouses.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::store::schema::{OPTIONAL, TEXTS, Table};
use super::store::{Row, Store, StoreError, Value};

/// The rows of one page, which is also a row group of Parquet.
const PAGE: usize = 20_000;

/// Why a table is not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The CSV.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// The Parquet file.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    /// The output.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Writes a table as CSV, with a head.
///
/// # Errors
/// When the store or the output fails.
pub fn csv(store: &mut Store, table: &Table, output: impl Write) -> Result<(), ExportError> {
    let mut writer = csv::Writer::from_writer(output);
    writer.write_record(table.columns)?;
    pages(store, table, |rows| {
        for row in rows {
            writer.write_record(row.iter().map(text))?;
        }
        Ok(())
    })?;
    writer.flush()?;
    Ok(())
}

/// Writes a table as one Parquet file: texts as UTF-8, all else as 64-bit integers.
///
/// # Errors
/// When the store or the output fails.
pub fn parquet(store: &mut Store, table: &Table, output: impl Write + Send) -> Result<(), ExportError> {
    let schema = Arc::new(parse_message_type(&message(table))?);
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let mut writer = SerializedFileWriter::new(output, schema, Arc::new(properties))?;
    pages(store, table, |rows| {
        let mut group = writer.next_row_group()?;
        let mut place = 0;
        while let Some(mut column) = group.next_column()? {
            let values: Vec<&Value> = rows.iter().filter_map(|row| row.get(place)).collect();
            let name = table.columns[place];
            if TEXTS.contains(&name) {
                let texts: Vec<ByteArray> =
                    values.iter().map(|value| ByteArray::from(value.text())).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, None, None)?;
            } else {
                let numbers: Vec<i64> = values.iter().filter_map(|value| value.int()).collect();
                let there: Vec<i16> = values.iter().map(|value| i16::from(value.int().is_some())).collect();
                let levels = OPTIONAL.contains(&name).then_some(&*there);
                column.typed::<Int64Type>().write_batch(&numbers, levels, None)?;
            }
            column.close()?;
            place += 1;
        }
        group.close()?;
        Ok(())
    })?;
    writer.close()?;
    Ok(())
}

/// The schema of a table in the language of Parquet.
fn message(table: &Table) -> String {
    let column = |name: &&str| {
        let needed = if OPTIONAL.contains(name) { "optional" } else { "required" };
        if TEXTS.contains(name) {
            format!("  {needed} binary {name} (UTF8);\n")
        } else {
            format!("  {needed} int64 {name};\n")
        }
    };
    format!("message {} {{\n{}}}", table.name, table.columns.iter().map(column).collect::<String>())
}

/// Reads a table page by page, in the order of its key.
fn pages(
    store: &mut Store,
    table: &Table,
    mut take: impl FnMut(&[Row]) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let (name, columns, key) = (table.name, table.columns.join(", "), table.columns[..table.key].join(", "));
    let places: Vec<String> = (1..=table.key).map(|place| format!("?{place}")).collect();
    let after = format!("WHERE ({key}) > ({})", places.join(", "));
    let mut last: Option<Vec<Value>> = None;
    loop {
        let from = if last.is_some() { &*after } else { "" };
        let sql = format!("SELECT {columns} FROM {name} {from} ORDER BY {key} LIMIT {PAGE}");
        let rows = store.query(&sql, last.as_deref().unwrap_or_default())?;
        let Some(end) = rows.last() else { return Ok(()) };
        last = Some(end[..table.key].to_vec());
        take(&rows)?;
        if rows.len() < PAGE {
            return Ok(());
        }
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Int(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;
    use crate::history::generate::{Past, facts};
    use crate::history::store::Location;
    use crate::history::store::schema::{PUBLISHED, RUNS};

    #[test]
    fn csv_and_parquet_have_every_row() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = Store::open(&Location::File(directory.path().join("h.db"))).expect("a store");
        let past: Vec<_> = facts(Past { seed: 5, runs: 300, from: 0, millis: 86_400_000 }).collect();
        store.write(&past).expect("written");
        for table in PUBLISHED {
            let mut lines = Vec::new();
            csv(&mut store, table, &mut lines).expect("CSV");
            let mut reader = csv::Reader::from_reader(&*lines);
            let records = reader.records().map(|record| record.expect("a record").len());
            let widths: Vec<usize> = records.collect();
            let sql = format!("SELECT COUNT(*) FROM {}", table.name);
            let count = store.query(&sql, &[]).expect("rows")[0][0].int().expect("a number");
            assert_eq!(widths.len() as i64, count, "{}", table.name);
            assert!(widths.iter().all(|width| *width == table.columns.len()));
            let path = directory.path().join(table.name);
            parquet(&mut store, table, std::fs::File::create(&path).expect("a file")).expect("Parquet");
            let reader =
                SerializedFileReader::new(std::fs::File::open(&path).expect("a file")).expect("readable");
            assert_eq!(reader.metadata().file_metadata().num_rows(), count, "{}", table.name);
        }
        let path = directory.path().join("runs");
        let reader = SerializedFileReader::new(std::fs::File::open(path).expect("a file")).expect("readable");
        let first = reader.get_row_iter(None).expect("rows").next().expect("a row").expect("readable");
        let place = |name: &str| RUNS.columns.iter().position(|column| *column == name).expect("a column");
        assert_eq!(first.get_string(place("kind")).expect("a text"), "Job");
        assert!(first.get_long(place("used")).expect("a number") > 0);
    }
}
