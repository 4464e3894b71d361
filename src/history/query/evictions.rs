//! Evictions by rule and team of the preemptor, from an index that has all that is asked for.

use std::collections::BTreeMap;

use super::choice::{Choice, Where, count};
use super::runs::device_time;
use crate::history::record::OF_TEAM;
use crate::history::store::{Store, StoreError};
use crate::view::accounts::{EvictionsRow, ReportRow};

/// What is added up at once, in milliseconds, so that what the database sorts stays small.
const PART: i64 = 24 * 3_600_000;
/// The time of an eviction.
const EVICTED: &str = "COALESCE(t.stopped_at, t.ended_at)";
/// Evictions, as the index has them.
const EVICTIONS: &str = "runs t WHERE t.ending = 'Evicted'";
/// The namespace of the preemptor and a slash: preemptors are many, their namespaces few. Of some only the team is known.
fn preemptor() -> String {
    format!(
        "CASE WHEN t.for_workload LIKE '{OF_TEAM}%' THEN t.for_workload \
         ELSE RTRIM(t.for_workload, REPLACE(t.for_workload, '/', '')) END"
    )
}

/// Evictions in each period by rule and preemptor's team.
///
/// # Errors
/// When the store cannot be read.
pub fn evictions(store: &mut Store, choice: &Choice) -> Result<Vec<ReportRow>, StoreError> {
    let [first, last] = ["MIN", "MAX"].map(|which| format!("(SELECT {which}({EVICTED}) FROM {EVICTIONS})"));
    let bounds = store.query(&format!("SELECT {first}, {last}"), &[])?;
    let bound = |at: usize| bounds.first().and_then(|row| row.get(at)?.int());
    let (Some(first), Some(last)) = (bound(0), bound(1)) else { return Ok(Vec::new()) };
    let mut found = Found { choice, teams: BTreeMap::new(), rows: BTreeMap::new() };
    for (number, (begin, end)) in choice.periods.each().enumerate() {
        let (mut from, end) = (begin.max(first), end.min(last.saturating_add(1)));
        while from < end {
            let to = end.min(from.saturating_add(PART));
            found.add(store, number, (from, to))?;
            from = to;
        }
    }
    Ok(found.rows.into_values().map(ReportRow::Evictions).collect())
}

/// Rows by period, rule and team of the preemptor.
struct Found<'a> {
    choice: &'a Choice,
    /// The teams of namespaces.
    teams: BTreeMap<String, String>,
    rows: BTreeMap<(usize, String, String), EvictionsRow>,
}

impl Found<'_> {
    /// Adds the evictions between two times, which lie in the period of this number.
    fn add(&mut self, store: &mut Store, number: usize, (from, to): (i64, i64)) -> Result<(), StoreError> {
        let mut chosen = Where::default();
        // Another index by these columns would be in the way.
        chosen.is("t.team || ''", self.choice.team.as_deref());
        chosen.is("t.namespace || ''", self.choice.namespace.as_deref());
        let [from, to] = [from, to].map(|time| chosen.time(time));
        chosen.and(format!("{EVICTED} >= {from} AND {EVICTED} < {to}"));
        let sql = format!(
            "SELECT t.reason, {} AS preemptor, CAST(COUNT(*) AS BIGINT), CAST(SUM(t.lost) AS BIGINT) \
             FROM {EVICTIONS} AND {} GROUP BY t.reason, preemptor",
            preemptor(),
            chosen.sql()
        );
        for row in store.query(&sql, chosen.values())? {
            let [rule, preemptor, evictions, lost] = &row[..] else { continue };
            let team = self.team_of(store, preemptor.text().trim_end_matches('/'))?;
            let (from, to) = self.choice.bounds(number);
            let row = self.rows.entry((number, rule.text().to_owned(), team)).or_insert_with_key(|key| {
                let (_, rule, for_team) = key.clone();
                EvictionsRow { from, to, rule, for_team, ..EvictionsRow::default() }
            });
            row.evictions += count(evictions);
            row.lost_gpu_seconds = row.lost_gpu_seconds.plus(device_time(lost.int().unwrap_or_default()));
        }
        Ok(())
    }

    /// The team of a namespace, as its latest run says; the name of no team if there is none.
    fn team_of(&mut self, store: &mut Store, namespace: &str) -> Result<String, StoreError> {
        if let Some(team) = namespace.strip_prefix(OF_TEAM) {
            return Ok(team.to_owned());
        }
        if let Some(team) = self.teams.get(namespace) {
            return Ok(team.clone());
        }
        let mut chosen = Where::default();
        chosen.is("namespace", Some(namespace));
        let sql = format!("SELECT team FROM runs WHERE {} ORDER BY admitted_at DESC LIMIT 1", chosen.sql());
        let rows = store.query(&sql, chosen.values())?;
        let team = rows.first().and_then(|row| row.first()).map(|team| team.text().to_owned());
        let team = team.unwrap_or_default();
        self.teams.insert(namespace.to_owned(), team.clone());
        Ok(team)
    }
}
