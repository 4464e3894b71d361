//! How long runs had waited. Quantiles cannot be added up, so every run is looked at, in an index that has all that is asked for.

use std::collections::BTreeMap;

use super::choice::{Choice, Where};
use crate::history::store::{Store, StoreError, Value};
use crate::view::accounts::{ReportRow, WaitsRow};

/// Waits in seconds by period, counted from 0, team and queue.
type Waits = BTreeMap<(usize, String, String), Vec<u64>>;

/// Waits of the runs that started in each period.
///
/// # Errors
/// When the store cannot be read.
pub fn waits(store: &mut Store, choice: &Choice) -> Result<Vec<ReportRow>, StoreError> {
    let mut waits = Waits::new();
    if choice.team.is_some() || choice.namespace.is_some() {
        add(store, choice, choice.filter(), &mut waits)?;
    } else {
        // One team after the other: the index begins with it, so only the runs of the periods are read.
        let mut team = None;
        while let Some(next) = team_after(store, team.as_deref())? {
            let mut chosen = Where::default();
            chosen.is("t.team", Some(&next));
            add(store, choice, chosen, &mut waits)?;
            team = Some(next);
        }
    }
    let row = |((number, team, queue), mut waits): ((usize, String, String), Vec<u64>)| {
        waits.sort_unstable();
        // The shortest wait that is at least as long as so many tenths of them.
        let tenths =
            |part: usize| waits.get((waits.len() * part).div_ceil(10) - 1).copied().unwrap_or_default();
        let (from, to) = choice.bounds(number);
        ReportRow::Waits(WaitsRow {
            from,
            to,
            team,
            queue,
            started: waits.len() as u64,
            median_seconds: tenths(5),
            p90_seconds: tenths(9),
            max_seconds: tenths(10),
        })
    };
    Ok(waits.into_iter().map(row).collect())
}

/// The first team after another in the order of the database.
fn team_after(store: &mut Store, team: Option<&str>) -> Result<Option<String>, StoreError> {
    let mut chosen = Where::default();
    if let Some(team) = team {
        let place = chosen.place(team);
        chosen.and(format!("team > {place}"));
    }
    chosen.and("1 = 1");
    let sql = format!("SELECT MIN(team) FROM runs WHERE {}", chosen.sql());
    let rows = store.query(&sql, chosen.values())?;
    Ok(match rows.first().and_then(|row| row.first()) {
        Some(Value::Text(team)) => Some(team.clone()),
        _ => None,
    })
}

fn add(store: &mut Store, choice: &Choice, mut chosen: Where, waits: &mut Waits) -> Result<(), StoreError> {
    let periods = &choice.periods;
    chosen.is("t.namespace", choice.namespace.as_deref());
    chosen.and(format!(
        "t.admitted_at >= {} AND t.admitted_at < {} AND t.queued_at IS NOT NULL",
        periods.from(),
        periods.to()
    ));
    // Both databases hand out the rows faster than they group them.
    let sql =
        format!("SELECT t.team, t.queue, t.admitted_at, t.queued_at FROM runs t WHERE {}", chosen.sql());
    store.each(&sql, chosen.values(), &mut |row| {
        let Ok([Value::Text(team), Value::Text(queue), Value::Int(admitted), Value::Int(queued)]) =
            <[Value; 4]>::try_from(row)
        else {
            return;
        };
        let Some(number) = periods.at(admitted) else { return };
        let waited = u64::try_from(admitted.saturating_sub(queued) / 1_000).unwrap_or(0);
        waits.entry((number, team, queue)).or_default().push(waited);
    })
}
