//! How long runs had waited. Quantiles cannot be added up, so every run is looked at, in an index that has all that is asked for.

use std::collections::BTreeMap;

use super::choice::{Choice, Where, index};
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
        // One team after the other, so that what the database sorts stays small.
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
    let sql = format!(
        "SELECT team, queue, number, STRING_AGG(CAST(wait AS TEXT), ',') FROM (\
         SELECT t.team AS team, t.queue AS queue, {} AS number, \
         CASE WHEN t.admitted_at > t.queued_at THEN (t.admitted_at - t.queued_at) / 1000 ELSE 0 END AS wait \
         FROM runs t WHERE {}) x GROUP BY team, queue, number",
        periods.number_of("t.admitted_at"),
        chosen.sql()
    );
    for row in store.query(&sql, chosen.values())? {
        let [team, queue, number, seconds] = &row[..] else { continue };
        let Some(number) = periods.within(index(number)) else { continue };
        let key = (number, team.text().to_owned(), queue.text().to_owned());
        waits.entry(key).or_default().extend(seconds.text().split(',').flat_map(str::parse::<u64>));
    }
    Ok(())
}
