//! The rows of an answer, and one page of them within its bounds.

use std::hash::{DefaultHasher, Hasher as _};

use jiff::Timestamp;
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

/// All rows of an answer, in order and written as JSON, so that several questions can be answered from them.
#[derive(Debug)]
pub struct Listing {
    rows: Vec<(String, String)>,
    version: String,
    at: Timestamp,
}

impl Listing {
    /// The rows of an answer. `settled` is a row without what changes while nothing happens; the version is a digest of
    /// these rows, so equal versions mean equal rows.
    ///
    /// # Errors
    /// When a row cannot be written as JSON.
    pub fn new<T: Serialize>(
        mut rows: Vec<Keyed<T>>,
        settled: impl Fn(&T) -> Option<T>,
    ) -> serde_json::Result<Self> {
        rows.sort_by(|one, other| one.key.cmp(&other.key));
        let (mut digest, mut written) = (DefaultHasher::new(), Vec::with_capacity(rows.len()));
        for Keyed { key, row } in rows {
            let text = serde_json::to_string(&row)?;
            let settled = settled(&row).map(|row| serde_json::to_string(&row)).transpose()?;
            digest.write(key.as_bytes());
            digest.write(settled.as_ref().unwrap_or(&text).as_bytes());
            written.push((key, text));
        }
        let version = format!("{:016x}", digest.finish());
        Ok(Self { rows: written, version, at: Timestamp::now() })
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|(key, row)| key.len() + row.len()).sum()
    }

    /// The part of the rows that a question asks for, as fields of its answer.
    ///
    /// # Errors
    /// Never for what was written by [`Self::new`].
    pub fn page(&self, spec: &QuestionSpec) -> serde_json::Result<Value> {
        let (version, at) = (&self.version, self.at);
        if spec.since.as_ref() == Some(version) {
            return Ok(json!({"version": version, "at": at, "unchanged": true}));
        }
        let most =
            spec.limit.map_or(MOST_ROWS, |limit| usize::try_from(limit).unwrap_or(1).clamp(1, MOST_ROWS));
        let begin =
            spec.cursor.as_ref().map_or(0, |cursor| self.rows.partition_point(|(key, _)| key <= cursor));
        let (mut page, mut bytes, mut last) = (Vec::new(), 0, None);
        let mut more = false;
        for (key, row) in self.rows.iter().skip(begin) {
            bytes += row.len() + 1;
            // A page has one row at least, or its cursor would not move on.
            if page.len() == most || (bytes > MOST_BYTES && !page.is_empty()) {
                more = true;
                break;
            }
            page.push(serde_json::from_str::<Value>(row)?);
            last = Some(key);
        }
        let mut answer = json!({"version": version, "at": at, "total": self.rows.len(), "rows": page});
        if let Some(last) = last.filter(|_| more) {
            answer["cursor"] = last.clone().into();
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, text: &str) -> Vec<Keyed<String>> {
        (0..count).map(|at| Keyed { key: format!("{at:06}"), row: text.to_owned() }).collect()
    }

    fn page(spec: &QuestionSpec, rows: Vec<Keyed<String>>) -> Value {
        Listing::new(rows, |_| None).and_then(|listing| listing.page(spec)).expect("JSON")
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
                let answer = page(&spec, rows(count, text));
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
        let first = page(&spec, rows(500, "x"));
        spec.since = first["version"].as_str().map(ToOwned::to_owned);
        let again = page(&spec, rows(500, "x"));
        assert_eq!((&again["unchanged"], again.get("rows")), (&json!(true), None));
        assert!(again.to_string().len() < 1_024);
        let changed = page(&spec, rows(499, "x"));
        assert_eq!(length(&changed), 499);
    }
}
