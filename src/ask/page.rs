//! One page of an answer, within its bounds.

use std::hash::{DefaultHasher, Hasher as _};

use serde::Serialize;
use serde_json::{Value, json};

use crate::api::question::{MOST_BYTES, MOST_ROWS, QuestionSpec};

/// A row with the key by which the rows are in order; a cursor is the key of the last row of a page.
#[derive(Clone, Debug)]
pub struct Keyed<T> {
    /// The key, unique among the rows.
    pub key: String,
    /// The row.
    pub row: T,
}

/// The part of the rows that a question asks for, as fields of its answer. `settled` is a row without what changes
/// while nothing happens; the version is a digest of these rows, so equal versions mean equal rows.
///
/// # Errors
/// When a row cannot be written as JSON.
pub fn page<T: Serialize>(
    spec: &QuestionSpec,
    mut rows: Vec<Keyed<T>>,
    settled: impl Fn(&T) -> Option<T>,
) -> serde_json::Result<Value> {
    rows.sort_by(|one, other| one.key.cmp(&other.key));
    let mut digest = DefaultHasher::new();
    for Keyed { key, row } in &rows {
        let settled = settled(row);
        digest.write(key.as_bytes());
        digest.write(&serde_json::to_vec(settled.as_ref().unwrap_or(row))?);
    }
    let version = format!("{:016x}", digest.finish());
    if spec.since.as_ref() == Some(&version) {
        return Ok(json!({"version": version, "unchanged": true}));
    }
    let most = spec.limit.map_or(MOST_ROWS, |limit| usize::try_from(limit).unwrap_or(1).clamp(1, MOST_ROWS));
    let after = |key: &str| spec.cursor.as_deref().is_none_or(|cursor| key > cursor);
    let (mut page, mut bytes, mut last) = (Vec::new(), 0, None);
    let mut more = false;
    for Keyed { key, row } in rows.iter().filter(|row| after(&row.key)) {
        let row = serde_json::to_value(row)?;
        bytes += row.to_string().len() + 1;
        // A page has one row at least, or its cursor would not move on.
        if page.len() == most || (bytes > MOST_BYTES && !page.is_empty()) {
            more = true;
            break;
        }
        page.push(row);
        last = Some(key);
    }
    let mut answer = json!({"version": version, "total": rows.len(), "rows": page});
    if let Some(last) = last.filter(|_| more) {
        answer["cursor"] = last.clone().into();
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, text: &str) -> Vec<Keyed<String>> {
        (0..count).map(|at| Keyed { key: format!("{at:06}"), row: text.to_owned() }).collect()
    }

    fn length(answer: &Value) -> usize {
        answer["rows"].as_array().map_or(0, Vec::len)
    }

    #[test]
    fn pages_are_bounded_in_rows_and_bytes_and_lose_none() {
        let (long, huge) = ("x".repeat(5_000), "x".repeat(MOST_BYTES + 1));
        for (count, text, limit) in [
            (2_500, "short", None),
            (300, long.as_str(), None),
            (7, "short", Some(3)),
            (3, huge.as_str(), None),
        ] {
            let mut spec = QuestionSpec { limit, ..QuestionSpec::default() };
            let mut seen = 0;
            loop {
                let answer = page(&spec, rows(count, text), |_| None).expect("JSON");
                let size = answer["rows"].to_string().len();
                assert!(length(&answer) <= MOST_ROWS, "{count}");
                assert!(size <= MOST_BYTES + 2 || length(&answer) == 1, "{size} bytes");
                seen += length(&answer);
                match answer["cursor"].as_str() {
                    Some(cursor) => spec.cursor = Some(cursor.to_owned()),
                    None => break,
                }
            }
            assert_eq!(seen, count);
        }
    }

    #[test]
    fn an_unchanged_answer_has_no_rows() {
        let mut spec = QuestionSpec::default();
        let first = page(&spec, rows(500, "x"), |_| None).expect("JSON");
        spec.since = first["version"].as_str().map(ToOwned::to_owned);
        let again = page(&spec, rows(500, "x"), |_| None).expect("JSON");
        assert_eq!((&again["unchanged"], again.get("rows")), (&json!(true), None));
        assert!(again.to_string().len() < 1_024);
        let changed = page(&spec, rows(499, "x"), |_| None).expect("JSON");
        assert_eq!(length(&changed), 499);
    }
}
