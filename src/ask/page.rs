//! The rows of an answer, and one page of them within its bounds.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::question::{Encoding, MOST_BYTES, MOST_ROWS, QuestionSpec};

/// The most bytes of rows before they are compressed; they usually become a tenth of that or less.
const MOST_PLAIN: usize = 8 * MOST_BYTES;
/// The most further pages that a first page names.
const MOST_CURSORS: usize = 512;

/// A row with the key by which the rows are in order; a cursor is the key of the last row of a page.
#[derive(Clone, Debug)]
pub struct Keyed<T> {
    /// The key, unique among the rows.
    pub key: String,
    /// The row.
    pub row: T,
}

/// What filters choose workloads by; empty for rows of other kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The namespace.
    pub namespace: String,
    /// The team.
    pub team: String,
    /// The queue.
    pub queue: String,
    /// The user that submitted it.
    pub user: Option<String>,
    /// The state.
    pub state: String,
}

/// A row, written as JSON.
#[derive(Clone, Debug)]
struct Written {
    key: Arc<str>,
    text: Arc<str>,
    /// A digest of the row without what changes while nothing happens.
    digest: u64,
    /// When the forecast in it was made, which the digest leaves out.
    foretold: Option<Timestamp>,
    about: Arc<About>,
}

/// Rows of workloads that are written part by part. Equal rows are those that hash alike, so what a row does not hash may change; of
/// that there is only the time of the forecast in it.
///
/// Between two forecasts most rows are those of the last listing. They are taken from it, since to write a row costs more than all else
/// about it.
#[derive(Debug, Default)]
pub struct Parts {
    written: Vec<Written>,
    before: Option<Arc<Listing>>,
}

impl Parts {
    /// No rows yet; `before` is the last listing of the same.
    pub fn new(before: Option<Arc<Listing>>) -> Self {
        Self { written: Vec::new(), before }
    }

    /// These rows too. `foretold` tells when the forecast in a row was made.
    ///
    /// # Errors
    /// When a row cannot be written as JSON.
    pub fn with<T: Serialize + Hash>(
        mut self,
        rows: impl IntoIterator<Item = Keyed<T>>,
        foretold: impl Fn(&T) -> Option<Timestamp>,
        about: impl Fn(&T) -> About,
    ) -> serde_json::Result<Self> {
        for Keyed { key, row } in rows {
            let (digest, foretold) = (digest(|digest| row.hash(digest)), foretold(&row));
            let known = self.before.as_deref().and_then(|before| before.row(&key));
            let same = known.filter(|known| known.digest == digest && known.foretold == foretold).cloned();
            self.written.push(match same {
                Some(same) => same,
                None => {
                    let text = serde_json::to_string(&row)?.into();
                    Written { key: key.into(), text, digest, foretold, about: Arc::new(about(&row)) }
                }
            });
        }
        Ok(self)
    }

    /// All of them.
    pub fn listing(mut self) -> Listing {
        self.written.sort_by(|one, other| one.key.cmp(&other.key));
        Listing::of(self.written, Timestamp::now())
    }
}

/// All rows of an answer, in order and written as JSON, so that several questions can be answered from them.
#[derive(Debug)]
pub struct Listing {
    rows: Vec<Written>,
    version: String,
    at: Timestamp,
    /// The compressed first page, with the most rows that were asked for: many ask for the same.
    compressed: Mutex<Option<(usize, Rows)>>,
}

impl Listing {
    /// The rows of an answer.
    ///
    /// # Errors
    /// When a row cannot be written as JSON.
    pub fn new<T: Serialize>(mut rows: Vec<Keyed<T>>) -> serde_json::Result<Self> {
        let about = Arc::default();
        rows.sort_by(|one, other| one.key.cmp(&other.key));
        let written = rows.into_iter().map(|Keyed { key, row }| {
            let text: Arc<str> = serde_json::to_string(&row)?.into();
            let digest = digest(|digest| digest.write(text.as_bytes()));
            Ok(Written { key: key.into(), digest, text, foretold: None, about: Arc::clone(&about) })
        });
        Ok(Self::of(written.collect::<serde_json::Result<_>>()?, Timestamp::now()))
    }

    /// The row with this key.
    fn row(&self, key: &str) -> Option<&Written> {
        let at = self.rows.binary_search_by(|row| (*row.key).cmp(key)).ok()?;
        self.rows.get(at)
    }

    /// The version is a digest of the rows, so equal versions mean equal rows.
    fn of(rows: Vec<Written>, at: Timestamp) -> Self {
        let mut digest = DefaultHasher::new();
        for row in &rows {
            row.key.hash(&mut digest);
            digest.write_u64(row.digest);
        }
        Self { version: format!("{:016x}", digest.finish()), rows, at, compressed: Mutex::default() }
    }

    /// The rows that a narrower question asks for.
    pub fn narrowed(&self, chosen: impl Fn(&About) -> bool) -> Self {
        Self::of(self.rows.iter().filter(|row| chosen(&row.about)).cloned().collect(), self.at)
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.key.len() + row.text.len()).sum()
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
        let most = most_rows(spec);
        let begin =
            spec.cursor.as_ref().map_or(0, |cursor| self.rows.partition_point(|row| *row.key <= **cursor));
        let rest = self.rows.get(begin..).unwrap_or_default();
        let Rows { count, field, value } = match spec.encoding {
            Some(encoding) if begin == 0 => {
                let mut compressed = self.compressed.lock().unwrap_or_else(PoisonError::into_inner);
                match &*compressed {
                    Some((of, rows)) if *of == most => rows.clone(),
                    _ => {
                        let rows = Rows::new(rest.iter().map(|row| &*row.text), most, Some(encoding))?;
                        compressed.insert((most, rows)).1.clone()
                    }
                }
            }
            encoding => Rows::new(rest.iter().map(|row| &*row.text), most, encoding)?,
        };
        let mut answer = json!({"version": version, "at": at, "total": self.rows.len(), field: value});
        if count < rest.len()
            && let Some(last) = count.checked_sub(1).and_then(|last| rest.get(last))
        {
            answer["cursor"] = (*last.key).into();
            // A program that wants all rows asks for several pages at once.
            if begin == 0 && spec.encoding.is_some() && spec.limit.is_none() {
                let ends =
                    (1..=MOST_CURSORS).map(|page| count + page * most).take_while(|end| *end < rest.len());
                answer["cursors"] = ends.filter_map(|end| Some(&*rest.get(end - 1)?.key)).collect();
            }
        }
        Ok(answer)
    }
}

/// The digest of what `write` writes.
fn digest(write: impl FnOnce(&mut DefaultHasher)) -> u64 {
    let mut digest = DefaultHasher::new();
    write(&mut digest);
    digest.finish()
}

/// The most rows that a question asks for.
pub fn most_rows(spec: &QuestionSpec) -> usize {
    spec.limit.map_or(MOST_ROWS, |limit| usize::try_from(limit).unwrap_or(1).clamp(1, MOST_ROWS))
}

/// The rows of one page as a field of its answer.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The number of rows that fit. It is one at least, or the cursor would not move on.
    pub count: usize,
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: Value,
}

impl Rows {
    /// The first of these rows, each written as JSON, within the bounds of an answer.
    ///
    /// # Errors
    /// When a row is not JSON.
    pub fn new<'a>(
        rows: impl Iterator<Item = &'a str>,
        most: usize,
        encoding: Option<Encoding>,
    ) -> serde_json::Result<Self> {
        let most_bytes = encoding.map_or(MOST_BYTES, |_| MOST_PLAIN);
        let mut bytes = 0;
        let fits = |(at, row): &(usize, &str)| {
            bytes += row.len() + 1;
            bytes <= most_bytes || *at == 0
        };
        let mut rows: Vec<&str> = rows.take(most).enumerate().take_while(fits).map(|(_, row)| row).collect();
        let Some(Encoding::Gzip) = encoding else {
            let values: Vec<Value> =
                rows.iter().map(|row| serde_json::from_str(row)).collect::<Result<_, _>>()?;
            return Ok(Self { count: values.len(), field: "rows", value: values.into() });
        };
        loop {
            let value = serde_json::to_value(ByteString(
                gzip(&rows).map_err(<serde_json::Error as serde::ser::Error>::custom)?,
            ))?;
            let length = value.as_str().map_or(0, str::len);
            if length <= MOST_BYTES || rows.len() <= 1 {
                return Ok(Self { count: rows.len(), field: "gzip", value });
            }
            rows.truncate(rows.len() / 2);
        }
    }
}

/// A JSON list of these values, compressed.
fn gzip(rows: &[&str]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(b"[")?;
    for (at, row) in rows.iter().enumerate() {
        encoder.write_all(if at == 0 { b"" } else { b"," })?;
        encoder.write_all(row.as_bytes())?;
    }
    encoder.write_all(b"]")?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, text: &str) -> Vec<Keyed<String>> {
        (0..count).map(|at| Keyed { key: format!("{at:06}"), row: text.to_owned() }).collect()
    }

    fn page(spec: &QuestionSpec, rows: Vec<Keyed<String>>) -> Value {
        Listing::new(rows).and_then(|listing| listing.page(spec)).expect("JSON")
    }

    fn length(answer: &Value) -> usize {
        answer["rows"].as_array().map_or(0, Vec::len)
    }

    /// The rows of all pages, each checked to keep to the bounds.
    fn pages(mut spec: QuestionSpec, count: usize, text: impl Fn(usize) -> String) -> Vec<Value> {
        let rows = (0..count).map(|at| Keyed { key: format!("{at:06}"), row: text(at) }).collect();
        let listing = Listing::new(rows).expect("JSON");
        let mut seen = Vec::new();
        loop {
            let answer = listing.page(&spec).expect("JSON");
            let (rows, size): (Vec<Value>, usize) = match spec.encoding {
                None => {
                    (answer["rows"].as_array().cloned().unwrap_or_default(), answer["rows"].to_string().len())
                }
                Some(Encoding::Gzip) => {
                    assert_eq!(answer.get("rows"), None);
                    let ByteString(bytes) = serde_json::from_value(answer["gzip"].clone()).expect("base64");
                    let rows =
                        serde_json::from_reader(flate2::read::GzDecoder::new(&bytes[..])).expect("JSON");
                    (rows, answer["gzip"].as_str().map_or(0, str::len))
                }
            };
            assert!(!rows.is_empty() && rows.len() <= MOST_ROWS, "{} rows", rows.len());
            assert!(size <= MOST_BYTES + 2 || rows.len() == 1, "{size} bytes");
            seen.extend(rows);
            match answer["cursor"].as_str() {
                Some(cursor) => spec.cursor = Some(cursor.to_owned()),
                None => return seen,
            }
        }
    }

    #[test]
    fn compressed_pages_have_the_same_rows_within_the_same_bounds() {
        let mut random = fastrand::Rng::with_seed(1);
        // Text that cannot be compressed to half of its length.
        let noise: Vec<String> =
            (0..300).map(|_| (0..5_000).map(|_| random.alphanumeric()).collect()).collect();
        for (limit, count, text) in [
            (None, 1, &(|at: usize| format!("row {at}")) as &dyn Fn(usize) -> String),
            (None, 2_500, &|at| format!("\"quoted\" {at} ü")),
            (Some(7), 50, &|at| format!("row {at}")),
            (None, 300, &|at| noise[at].clone()),
            (Some(7), 20, &|at| noise[at].clone()),
            (None, 2, &|_| "x".repeat(MOST_PLAIN + 1)),
        ] {
            let rows = pages(QuestionSpec { limit, ..QuestionSpec::default() }, count, text);
            let encoding = Some(Encoding::Gzip);
            let compressed = pages(QuestionSpec { limit, encoding, ..QuestionSpec::default() }, count, text);
            assert!(rows == compressed && rows.len() == count, "{count} rows, limit {limit:?}");
        }
    }

    #[test]
    fn a_first_page_names_where_the_others_begin() {
        let rows = (0..MOST_ROWS * 3 + 5).map(|at| Keyed { key: format!("{at:06}"), row: at }).collect();
        let listing = Listing::new(rows).expect("JSON");
        let encoding = Some(Encoding::Gzip);
        let mut spec = QuestionSpec { encoding, ..QuestionSpec::default() };
        let first = listing.page(&spec).expect("JSON");
        let begun: Vec<&Value> =
            [&first["cursor"]].into_iter().chain(first["cursors"].as_array().into_iter().flatten()).collect();
        let mut cursors = Vec::new();
        loop {
            let page = listing.page(&spec).expect("JSON");
            let Some(cursor) = page["cursor"].as_str() else { break };
            cursors.push(json!(cursor));
            spec.cursor = Some(cursor.to_owned());
            assert!(page == first || page.get("cursors").is_none(), "in the first alone");
        }
        assert_eq!(begun, cursors.iter().collect::<Vec<_>>());
        assert_eq!(cursors.len(), 3);
        let narrower =
            [QuestionSpec { limit: Some(40), encoding, ..QuestionSpec::default() }, QuestionSpec::default()];
        for spec in narrower {
            assert_eq!(listing.page(&spec).expect("JSON").get("cursors"), None);
        }
    }

    #[test]
    fn a_narrower_listing_is_the_one_that_a_narrower_question_would_have() {
        let keyed = |at: usize| Keyed { key: format!("{at:06}"), row: (at, format!("row {at}")) };
        let about = |row: &(usize, String)| About {
            team: format!("team-{}", row.0 % 3),
            state: if row.0.is_multiple_of(2) { "Pending" } else { "Running" }.to_owned(),
            ..About::default()
        };
        let chosen = |about: &About| about.team == "team-1" && about.state == "Pending";
        let wide = Parts::default().with((0..100).map(keyed), |_| None, about).expect("JSON").listing();
        let rows = (0..100).map(keyed).filter(|keyed| chosen(&about(&keyed.row)));
        let direct = Parts::default().with(rows, |_| None, about).expect("JSON").listing();
        let (narrow, spec) = (wide.narrowed(chosen), QuestionSpec::default());
        let [narrow, direct] = [narrow, direct].map(|listing| listing.page(&spec).expect("JSON"));
        assert_eq!((&narrow["version"], &narrow["rows"]), (&direct["version"], &direct["rows"]));
        assert_eq!(narrow["total"], 16);
        assert_eq!(narrow["at"], wide.page(&spec).expect("JSON")["at"], "it is as old as its rows");
    }

    #[test]
    fn rows_are_those_of_the_last_listing_where_nothing_in_them_has_changed() {
        /// A key, a text, and the time of a forecast, which is not hashed.
        #[derive(Clone, Copy, Serialize)]
        struct Row(&'static str, &'static str, i64);
        impl Hash for Row {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                (self.0, self.1).hash(state);
            }
        }
        let listing = |rows: &[(&'static str, &'static str, i64)], before: Option<&Arc<Listing>>| {
            let rows = rows.iter().map(|(key, text, at)| Row(key, text, *at));
            let keyed = rows.map(|row| Keyed { key: row.0.to_owned(), row });
            let foretold = |row: &Row| Timestamp::from_second(row.2).ok();
            let parts = Parts::new(before.cloned()).with(keyed, foretold, |_| About::default());
            parts.expect("JSON").listing()
        };
        let before = [("e", "five", 1), ("b", "two", 1), ("d", "four", 1), ("a", "one", 1)];
        let before = Arc::new(listing(&before, None));
        let rows = [("a", "one", 1), ("b", "2", 1), ("c", "three", 1), ("d", "four", 2), ("e", "five", 1)];
        let (after, afresh) = (listing(&rows, Some(&before)), listing(&rows, None));
        let texts =
            |listing: &Listing| listing.rows.iter().map(|row| row.text.to_string()).collect::<Vec<_>>();
        assert_eq!((texts(&after), &after.version), (texts(&afresh), &afresh.version));
        let is_taken = |row: &Written| before.rows.iter().any(|known| Arc::ptr_eq(&known.text, &row.text));
        let taken: Vec<bool> = after.rows.iter().map(is_taken).collect();
        assert_eq!(taken, [true, false, false, false, true]);
    }

    #[test]
    fn another_page_is_not_the_one_that_is_kept() {
        let listing = Listing::new(rows(10, "x")).expect("JSON");
        let page = |limit, cursor: Option<&str>| {
            let encoding = Some(Encoding::Gzip);
            let cursor = cursor.map(ToOwned::to_owned);
            listing.page(&QuestionSpec { limit, cursor, encoding, ..QuestionSpec::default() }).expect("JSON")
        };
        let first = page(Some(3), None);
        assert_eq!(page(Some(3), None), first);
        assert_ne!(page(Some(4), None)["cursor"], first["cursor"]);
        let second = page(Some(3), first["cursor"].as_str());
        assert_eq!((first["cursor"].as_str(), second["cursor"].as_str()), (Some("000002"), Some("000005")));
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
