//! Answers from the history: runs, and reports over them.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::page::{Keyed, Listing, Rows, most_rows};
use super::rows::noted;
use super::scope::{Refusal, Scope};
use super::state::{AskState, away};
use crate::api::accounts::{HistoryFilter, ReportFilter, ReportKind};
use crate::api::question::{Encoding, QuestionSpec};
use crate::directory::Names;
use crate::history::query::{Choice, Periods, Place, Unread};
use crate::view::accounts::{HistoryRow, ReportRow};

impl From<Unread> for Refusal {
    fn from(unread: Unread) -> Self {
        let message = unread.to_string();
        match unread {
            // No other replica has one.
            Unread::Off => Self { code: 501, reason: "NotImplemented", message },
            Unread::Busy => Self::busy(message),
            Unread::Slow => Self { code: 504, reason: "Timeout", message },
            Unread::Broken(_) => Self::unavailable(message),
        }
    }
}

/// The newest runs.
pub async fn runs(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    (mut filter, caller): (HistoryFilter, &str),
) -> Result<Value, Refusal> {
    filter.namespace = scope.namespace(filter.namespace.as_deref())?;
    if filter.me {
        filter.user = Some(caller.to_owned());
    }
    let after = match &spec.cursor {
        Some(cursor) => {
            let place = Place::read(cursor);
            Some(place.ok_or_else(|| Refusal::invalid("spec.cursor: it is not the cursor of an answer"))?)
        }
        None => None,
    };
    let most = most_rows(spec);
    let (team, first) = (filter.team.clone(), after.is_none());
    // One more row than the page has shows whether it is the last.
    let mut rows = state.history.runs(filter, after, most + 1).await?;
    // A team that has gone may have runs.
    let names = Names { team: team.as_deref().filter(|_| first && rows.is_empty()), ..Names::default() };
    let (directory, scope) = (state.directory.load(), scope.clone());
    let note = directory.unknown(&names);
    let (since, encoding) = (spec.since.clone(), spec.encoding);
    away(move || {
        if let Some(sight) = scope.sight(&directory) {
            rows.iter_mut().for_each(|row| sight.run(row));
        }
        let mut answer = newest(&rows, most, since.as_deref(), encoding)?;
        if let Some(note) = note {
            answer["note"] = note.into();
        }
        Ok(answer)
    })
    .await
}

/// A page of rows in their own order.
fn newest(
    rows: &[HistoryRow],
    most: usize,
    since: Option<&str>,
    encoding: Option<Encoding>,
) -> serde_json::Result<Value> {
    let texts: Vec<String> = rows.iter().map(serde_json::to_string).collect::<Result<_, _>>()?;
    let Rows { count, field, value } = Rows::new(texts.iter().map(String::as_str), most, encoding)?;
    let mut digest = DefaultHasher::new();
    texts.iter().take(count).for_each(|text| digest.write(text.as_bytes()));
    let (version, at) = (format!("{:016x}", digest.finish()), Timestamp::now());
    if since == Some(version.as_str()) {
        return Ok(json!({"version": version, "at": at, "unchanged": true}));
    }
    let mut answer = json!({"version": version, "at": at, field: value});
    if count < rows.len()
        && let Some(last) = count.checked_sub(1).and_then(|last| rows.get(last))
    {
        answer["cursor"] = Place::of(last).cursor().into();
    }
    Ok(answer)
}

/// A report. Other namespaces are in it as numbers, so users are those of the namespace.
pub async fn report(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    filter: ReportFilter,
) -> Result<Value, Refusal> {
    let periods = Periods::of(&filter, Timestamp::now()).map_err(Refusal::invalid)?;
    let namespace = match (scope, filter.kind) {
        (Scope::Namespace(own), ReportKind::Users) => Some(own.clone()),
        _ => None,
    };
    let ReportFilter { kind, team, prices, .. } = filter;
    let of = team.clone();
    let rows = state.history.report(Choice { kind, periods, namespace, team, prices }).await?;
    let spec = spec.clone();
    let answer = away(move || {
        let rows: Vec<ReportRow> = Arc::unwrap_or_clone(rows);
        let keyed = rows.into_iter().enumerate().map(|(at, row)| Keyed { key: format!("{at:08}"), row });
        Listing::new(keyed.collect())?.page(&spec)
    })
    .await?;
    Ok(noted(state, None, &Names { team: of.as_deref(), ..Names::default() }, answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::question::MOST_BYTES;

    fn row(at: i64, name: &str) -> HistoryRow {
        let admitted = Timestamp::from_millisecond(at).unwrap_or_default();
        HistoryRow { uid: format!("uid-{at}"), admitted, name: name.to_owned(), ..HistoryRow::default() }
    }

    #[test]
    fn a_page_of_runs_is_bounded_and_says_where_the_next_begins() {
        let rows = vec![row(3, "c"), row(2, "b"), row(1, "a")];
        let answer = newest(&rows, 2, None, None).expect("JSON");
        assert_eq!(answer["rows"].as_array().map(Vec::len), Some(2));
        assert_eq!((answer["cursor"].as_str(), answer.get("total")), (Some("2/uid-2"), None));
        assert_eq!(Place::read("2/uid-2").map(|place| place.cursor()), Some("2/uid-2".to_owned()));
        assert_eq!(Place::read("x/uid"), None);
        let whole = newest(&rows, 3, None, None).expect("JSON");
        assert_eq!(whole.get("cursor"), None);
        let again = newest(&rows, 3, whole["version"].as_str(), None).expect("JSON");
        assert_eq!(again["unchanged"], true);
        let long = "x".repeat(MOST_BYTES / 2);
        let answer = newest(&[row(3, &long), row(2, &long), row(1, &long)], 3, None, None).expect("JSON");
        assert!(answer["cursor"].is_string() && answer.to_string().len() < MOST_BYTES + 1_024);
    }
}
