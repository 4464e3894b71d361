//! Single runs, the newest first.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::choice::Where;
use crate::api::accounts::{HistoryFilter, RunState};
use crate::engine::types::amount::Amount;
use crate::history::store::{Row, Store, StoreError, Value};
use crate::view::accounts::{GpuTime, HistoryRow};

/// The place of a run in the order of all: its admission and the UID of its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    admitted_at: i64,
    uid: String,
}

impl Place {
    /// The place of a row.
    #[must_use]
    pub fn of(row: &HistoryRow) -> Self {
        Self { admitted_at: row.admitted.as_millisecond(), uid: row.uid.clone() }
    }

    /// Reads a cursor; `None` if it is none.
    #[must_use]
    pub fn read(cursor: &str) -> Option<Self> {
        let (at, uid) = cursor.split_once('/')?;
        Some(Self { admitted_at: at.parse().ok()?, uid: uid.to_owned() })
    }

    /// The cursor for the rows after it.
    #[must_use]
    pub fn cursor(&self) -> String {
        format!("{}/{}", self.admitted_at, self.uid)
    }
}

/// How long before the newest sighting of any run the last one of a run that goes on may be, in milliseconds: four times the
/// time between two.
const UNSEEN: i64 = 20 * 60 * 1_000;

/// At most `most` runs after a place.
pub fn runs(
    store: &mut Store,
    filter: &HistoryFilter,
    after: Option<&Place>,
    most: usize,
) -> Result<Vec<HistoryRow>, StoreError> {
    // Runs of one name are few: a sign keeps the database from searching all of the namespace in their order.
    let admitted_at = if filter.name.is_some() { "+admitted_at" } else { "admitted_at" };
    // A row that never ran has no admission.
    let mut chosen = Where::default();
    chosen.and(format!("{admitted_at} > 0"));
    // No replica saw the end of a run that is written no more while others are.
    let newest = store.query("SELECT COALESCE(MAX(until_at), 0) FROM runs", &[])?;
    let newest = newest.first().and_then(|row| row.first()).and_then(Value::int).unwrap_or_default();
    let unseen = format!("ended_at IS NULL AND until_at < {}", newest.saturating_sub(UNSEEN));
    let ending_of = format!("(CASE WHEN {unseen} THEN '{}' ELSE ending END)", RunState::Ended.code());
    chosen.is("namespace", filter.namespace.as_deref());
    chosen.is("name", filter.name.as_deref());
    chosen.is("team", filter.team.as_deref());
    chosen.is("username", filter.user.as_deref());
    if !filter.states.is_empty() {
        let ending = |state: &RunState| if *state == RunState::Running { "" } else { state.code() };
        chosen.one_of(&ending_of, filter.states.iter().map(ending));
    }
    if let Some(from) = filter.from {
        chosen.and(format!("(until_at > {} OR ended_at IS NULL AND NOT ({unseen}))", from.as_millisecond()));
    }
    if let Some(to) = filter.to {
        chosen.and(format!("{admitted_at} < {}", to.as_millisecond()));
    }
    if let Some(Place { admitted_at: last, uid }) = after {
        let uid = chosen.place(uid);
        chosen.and(format!("(admitted_at < {last} OR admitted_at = {last} AND uid < {uid})"));
    }
    let sql = format!(
        "SELECT uid, admitted_at, kind, namespace, name, team, queue, pool, username, submitted_at, queued_at, \
         CASE WHEN {unseen} THEN until_at ELSE ended_at END, {ending_of}, reason, for_workload, pods, nodes, devices, borrowed, \
         used, lost FROM runs WHERE {} ORDER BY {admitted_at} DESC, uid DESC LIMIT {most}",
        chosen.sql()
    );
    let mut rows: Vec<HistoryRow> = store.query(&sql, chosen.values())?.iter().map(read).collect();
    add_messages(store, &mut rows)?;
    Ok(rows)
}

fn read(row: &Row) -> HistoryRow {
    let text = |at: usize| row.get(at).map(|value| value.text().to_owned()).unwrap_or_default();
    let maybe = |at: usize| row.get(at).and_then(|value| value.int());
    let number = |at: usize| maybe(at).unwrap_or_default();
    let time = |millis: i64| Timestamp::from_millisecond(millis).unwrap_or_default();
    let (admitted, ending) = (number(1), text(12));
    let waited = maybe(10).map(|queued| admitted.saturating_sub(queued).max(0) / 1_000);
    HistoryRow {
        uid: text(0),
        admitted: time(admitted),
        kind: text(2),
        namespace: text(3),
        name: text(4),
        team: text(5),
        queue: text(6),
        pool: text(7),
        user: Some(text(8)).filter(|user| !user.is_empty()),
        submitted: time(number(9)),
        waited_seconds: waited.and_then(|waited| u64::try_from(waited).ok()),
        ended: maybe(11).map(time),
        state: if ending.is_empty() { RunState::Running.code().to_owned() } else { ending },
        reason: text(13),
        evicted_for: text(14),
        message: String::new(),
        pods: u32::try_from(number(15)).unwrap_or(u32::MAX),
        nodes: serde_json::from_str(row.get(16).map_or("", |value| value.text())).unwrap_or_default(),
        gpus: Amount::milli(number(17).max(0)).into(),
        borrowed: number(18) != 0,
        gpu_seconds: device_time(number(19)),
        lost_gpu_seconds: device_time(number(20)),
    }
}

/// GPU time of device-milliseconds.
pub fn device_time(milliseconds: i64) -> GpuTime {
    GpuTime::of_micro(i128::from(milliseconds) * 1_000)
}

/// The sentences of evictions and failures, where they were recorded.
fn add_messages(store: &mut Store, rows: &mut [HistoryRow]) -> Result<(), StoreError> {
    const AT_ONCE: usize = 100;
    let stopped: Vec<String> =
        rows.iter().filter(|row| !row.reason.is_empty()).map(|row| row.uid.clone()).collect();
    let mut found: BTreeMap<(String, i64), String> = BTreeMap::new();
    for uids in stopped.chunks(AT_ONCE) {
        let mut chosen = Where::default();
        chosen.one_of("uid", uids.iter().map(String::as_str));
        let sql = format!(
            "SELECT uid, admitted_at, message FROM transitions WHERE {} AND transition IN ('Evicted', 'Failed') AND message <> ''",
            chosen.sql()
        );
        for row in store.query(&sql, chosen.values())? {
            let [uid, admitted_at, message] = &row[..] else { continue };
            found.insert(
                (uid.text().to_owned(), admitted_at.int().unwrap_or_default()),
                message.text().to_owned(),
            );
        }
    }
    for row in rows {
        let key = (row.uid.clone(), row.admitted.as_millisecond());
        row.message = found.remove(&key).unwrap_or_default();
    }
    Ok(())
}
