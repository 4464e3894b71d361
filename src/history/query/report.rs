//! Sums over runs: GPU time, waits and evictions by period.
//!
//! Reports of usage are made from the sums by half hour that the store keeps, where they can say it; else from the runs. There the
//! database adds up what begins in the same period and ends in the same period; from these few sums the time in each period
//! follows exactly. So a row is read once, however many periods there are.

use std::collections::BTreeMap;

use super::choice::{Choice, Where, count, index};
use super::evictions::evictions;
use super::periods::Charge;
use super::runs::device_time;
use super::sums::by_period;
use super::waits::waits;
use crate::api::accounts::ReportKind;
use crate::history::record::DEVICES;
use crate::history::store::sums::{QUEUED, STOPPED};
use crate::history::store::{Row, Store, StoreError, Value};
use crate::view::accounts::{GpuTime, ReportRow, UsageRow};

/// How long a sample counts, in milliseconds.
const SAMPLE: i64 = 300_000;
/// The part of all that is kept, as a divisor, up to which a time is short.
const SHORT: i64 = 10;
/// A thousandth of a unit for a millisecond, in units for an hour.
const HOURS: f64 = 1e-3 / 3_600_000.0;

/// The rows of a report, period after period.
///
/// # Errors
/// When the store cannot be read.
pub fn report(store: &mut Store, choice: &Choice) -> Result<Vec<ReportRow>, StoreError> {
    match choice.kind {
        ReportKind::Waits => waits(store, choice),
        ReportKind::Evictions => evictions(store, choice),
        _ => usage(store, choice, true),
    }
}

/// The rows of a report about usage, from the runs alone.
///
/// # Errors
/// When the store cannot be read.
pub fn report_of_runs(store: &mut Store, choice: &Choice) -> Result<Vec<ReportRow>, StoreError> {
    usage(store, choice, false)
}

impl Choice {
    /// The columns by which a report about usage groups.
    fn groups(&self) -> &'static [&'static str] {
        match self.kind {
            ReportKind::Users => &["username", "team"],
            ReportKind::Pools => &["pool"],
            ReportKind::Queues => &["team", "queue"],
            _ => &["team"],
        }
    }

    /// The same in SQL.
    fn columns(&self) -> String {
        self.groups().iter().map(|column| format!("t.{column}")).collect::<Vec<_>>().join(", ")
    }

    /// The row of a group in a period.
    fn row(&self, number: usize, group: &[String]) -> UsageRow {
        let (from, to) = self.bounds(number);
        let mut row = UsageRow { from, to, ..UsageRow::default() };
        for (column, name) in self.groups().iter().zip(group) {
            let field = match *column {
                "username" => &mut row.user,
                "pool" => &mut row.pool,
                "queue" => &mut row.queue,
                _ => &mut row.team,
            };
            field.clone_from(name);
        }
        row
    }
}

/// The rows of usage by period and group.
struct Usage<'a> {
    choice: &'a Choice,
    rows: BTreeMap<(usize, Vec<String>), UsageRow>,
}

impl Usage<'_> {
    fn at(&mut self, number: usize, group: &[String]) -> &mut UsageRow {
        let choice = self.choice;
        self.rows.entry((number, group.to_vec())).or_insert_with(|| choice.row(number, group))
    }
}

fn usage(store: &mut Store, choice: &Choice, by_sums: bool) -> Result<Vec<ReportRow>, StoreError> {
    let mut usage = Usage { choice, rows: BTreeMap::new() };
    if !(by_sums && add_sums(store, &mut usage)?) {
        add_used(store, &mut usage)?;
        add_runs(store, &mut usage)?;
    }
    if choice.namespace.is_none() {
        add_samples(store, &mut usage)?;
    }
    for (resource, price) in &choice.prices {
        add_cost(store, &mut usage, resource, price)?;
    }
    Ok(usage.rows.into_values().map(ReportRow::Usage).collect())
}

/// Everything of the runs, from the sums of the store; whether these can say it.
fn add_sums(store: &mut Store, usage: &mut Usage<'_>) -> Result<bool, StoreError> {
    let choice = usage.choice;
    if choice.namespace.is_some() {
        return Ok(false);
    }
    let sums = by_period(store, &choice.periods, choice.groups(), choice.team.as_deref())?;
    let Some(sums) = sums else { return Ok(false) };
    for ((number, group), sum) in sums {
        let row = usage.at(number, &group);
        row.used_gpu_seconds = GpuTime::of_micro(sum.used);
        row.borrowed_gpu_seconds = GpuTime::of_micro(sum.borrowed);
        row.guaranteed_gpu_seconds = GpuTime::of_micro(sum.used - sum.borrowed);
        row.waited_gpu_seconds = GpuTime::of_micro(sum.waited);
        row.lost_gpu_seconds = GpuTime::of_micro(sum.lost * 1_000);
        row.runs = u64::try_from(sum.runs).unwrap_or_default();
    }
    Ok(true)
}

/// The time in a condition on the end of rows of a table. The index by that time finds the rows of a short time; of a long
/// one it would only be in the way, and a sign keeps the database from it.
fn end(store: &mut Store, table: &str, column: &str, from: i64) -> Result<String, StoreError> {
    let sql = format!("SELECT (SELECT MIN({column}) FROM {table}), (SELECT MAX({column}) FROM {table})");
    let rows = store.query(&sql, &[])?;
    let [first, last] = [0, 1].map(|at| rows.first().and_then(|row| row.get(at)?.int()).unwrap_or_default());
    let all = last.saturating_sub(first);
    let short = last.saturating_sub(from) < all / SHORT;
    Ok(format!("{}t.{column}", if short { "" } else { "+" }))
}

/// The segments that lie within the bounds, from their table on.
fn segments(store: &mut Store, choice: &Choice, resource: &str) -> Result<(String, Where), StoreError> {
    let mut chosen = choice.filter();
    let (from, to) = (choice.periods.from(), choice.periods.to());
    chosen.is("t.resource", Some(resource));
    let until = end(store, "segments", "to_at", from)?;
    chosen.and(format!("{until} > {from} AND t.from_at < {to}"));
    let mut table = "segments t".to_owned();
    if let Some(namespace) = &choice.namespace {
        table = "runs r JOIN segments t ON t.uid = r.uid AND t.admitted_at = r.admitted_at".to_owned();
        chosen.is("r.namespace", Some(namespace));
    }
    Ok((format!("{table} WHERE {}", chosen.sql()), chosen))
}

/// What was used, and the part on borrowed capacity.
fn add_used(store: &mut Store, usage: &mut Usage<'_>) -> Result<(), StoreError> {
    let choice = usage.choice;
    let (table, chosen) = segments(store, choice, DEVICES)?;
    let groups = choice.columns();
    let (first, last) = (choice.periods.number_of("t.from_at"), choice.periods.number_of("t.to_at"));
    let sums = sums("t.amount", "t.from_at", "t.to_at", choice.periods.from());
    let sql = format!(
        "SELECT {groups}, t.borrowed, {first} AS n1, {last} AS n2, {sums} FROM {table} GROUP BY {groups}, t.borrowed, n1, n2"
    );
    for row in store.query(&sql, chosen.values())? {
        let (group, rest) = split(&row, choice.groups().len());
        let [borrowed, first, last, sums @ ..] = rest else { continue };
        let borrowed = borrowed.int() == Some(1);
        choice.periods.spread(index(first), index(last), charge(sums), |number, micro| {
            if micro == 0 {
                return;
            }
            let row = usage.at(number, &group);
            let time = GpuTime::of_micro(micro);
            row.used_gpu_seconds = row.used_gpu_seconds.plus(time);
            let part = if borrowed { &mut row.borrowed_gpu_seconds } else { &mut row.guaranteed_gpu_seconds };
            *part = part.plus(time);
        });
    }
    Ok(())
}

/// SQL for the sums of a [`Charge`]. Times count from `from` in seconds and milliseconds apart, so that no sum is too large.
fn sums(amount: &str, since: &str, until: &str, from: i64) -> String {
    let sum = |of: String| format!("CAST(SUM({of}) AS BIGINT)");
    let apart = |time: &str| {
        let whole = sum(format!("{amount} * (({time} - {from}) / 1000)"));
        (whole, sum(format!("{amount} * (({time} - {from}) % 1000)")))
    };
    let (since, until) = (apart(since), apart(until));
    [sum(amount.to_owned()), since.0, since.1, until.0, until.1].join(", ")
}

fn charge(sums: &[Value]) -> Charge {
    let sum = |at: usize| i128::from(sums.get(at).and_then(Value::int).unwrap_or_default());
    Charge { amount: sum(0), since: sum(1) * 1_000 + sum(2), until: sum(3) * 1_000 + sum(4) }
}

/// The names of a group, and the other values of a row.
fn split(row: &Row, groups: usize) -> (Vec<String>, &[Value]) {
    let (group, rest) = row.split_at(groups.min(row.len()));
    (group.iter().map(|name| name.text().to_owned()).collect(), rest)
}

/// Runs, their waits, and what their evictions lost.
fn add_runs(store: &mut Store, usage: &mut Usage<'_>) -> Result<(), StoreError> {
    let choice = usage.choice;
    let periods = &choice.periods;
    let mut chosen = choice.filter();
    chosen.is("t.namespace", choice.namespace.as_deref());
    let until = end(store, "runs", "until_at", periods.from())?;
    chosen.and(format!(
        "t.admitted_at > 0 AND {until} >= {} AND {QUEUED} < {}",
        periods.from(),
        periods.to()
    ));
    let groups = choice.columns();
    let sql = format!(
        "SELECT {groups}, {} AS n1, {} AS n2, {} AS n3, {} AS n4, CAST(COUNT(*) AS BIGINT), CAST(SUM(t.lost) AS BIGINT), {} \
         FROM runs t WHERE {} GROUP BY {groups}, n1, n2, n3, n4",
        periods.number_of("t.admitted_at"),
        periods.number_before("t.until_at"),
        periods.number_of(QUEUED),
        periods.number_of(STOPPED),
        sums("t.devices", QUEUED, "t.admitted_at", periods.from()),
        chosen.sql()
    );
    for row in store.query(&sql, chosen.values())? {
        let (group, rest) = split(&row, choice.groups().len());
        let [admitted, until, queued, stopped, runs, lost, sums @ ..] = rest else { continue };
        let [admitted, until, queued, stopped] = [admitted, until, queued, stopped].map(index);
        // A run that ended in the moment in which it began counts there.
        for number in (admitted..=until.max(admitted)).filter_map(|number| periods.within(number)) {
            usage.at(number, &group).runs += count(runs);
        }
        periods.spread(queued, admitted, charge(sums), |number, micro| {
            if micro > 0 {
                let row = usage.at(number, &group);
                row.waited_gpu_seconds = row.waited_gpu_seconds.plus(GpuTime::of_micro(micro));
            }
        });
        let lost = lost.int().unwrap_or_default();
        if let Some(number) = periods.within(stopped).filter(|_| lost > 0) {
            let row = usage.at(number, &group);
            row.lost_gpu_seconds = row.lost_gpu_seconds.plus(device_time(lost));
        }
    }
    Ok(())
}

/// What teams lent and were guaranteed, and the capacity of pools. A sample counts in the period in which it was taken.
fn add_samples(store: &mut Store, usage: &mut Usage<'_>) -> Result<(), StoreError> {
    let choice = usage.choice;
    let mut chosen = Where::default();
    chosen.and(format!("at >= {} AND at < {}", choice.periods.from(), choice.periods.to()));
    // Of the other resources the sums may be too large, as those of bytes are.
    chosen.is("resource", Some(DEVICES));
    chosen.is("team", choice.team.as_deref().filter(|_| choice.kind == ReportKind::Teams));
    let number = choice.periods.number_of("at");
    let sql = match choice.kind {
        ReportKind::Teams => format!(
            "SELECT team, n, CAST(SUM(lent) AS BIGINT), CAST(SUM(guaranteed) AS BIGINT) FROM \
             (SELECT team, lent, guaranteed, {number} AS n FROM samples WHERE {}) d GROUP BY team, n",
            chosen.sql()
        ),
        // Every team has the same capacity in a sample of a pool.
        ReportKind::Pools if choice.team.is_none() => format!(
            "SELECT pool, n, CAST(SUM(lent) AS BIGINT), CAST(SUM(capacity) AS BIGINT) FROM \
             (SELECT pool, SUM(lent) AS lent, MAX(capacity) AS capacity, {number} AS n FROM samples WHERE {} \
             GROUP BY at, pool) d GROUP BY pool, n",
            chosen.sql()
        ),
        _ => return Ok(()),
    };
    for row in store.query(&sql, chosen.values())? {
        let [name, number, lent, available] = &row[..] else { continue };
        let time = |value: &Value| {
            GpuTime::of_micro(i128::from(value.int().unwrap_or_default()) * i128::from(SAMPLE))
        };
        let (lent, available) = (time(lent), time(available));
        let group = [name.text().to_owned()];
        let Some(number) = choice.periods.within(index(number)) else { continue };
        if lent == GpuTime::ZERO && available == GpuTime::ZERO {
            continue;
        }
        let row = usage.at(number, &group);
        row.lent_gpu_seconds = Some(row.lent_gpu_seconds.unwrap_or_default().plus(lent));
        row.available_gpu_seconds = Some(row.available_gpu_seconds.unwrap_or_default().plus(available));
    }
    Ok(())
}

/// The price of what was used of one resource.
fn add_cost(store: &mut Store, usage: &mut Usage<'_>, resource: &str, price: &str) -> Result<(), StoreError> {
    let choice = usage.choice;
    let price: f64 = price.parse().unwrap_or_default();
    let (table, chosen) = segments(store, choice, resource)?;
    let groups = choice.columns();
    let (first, last) = (choice.periods.number_of("t.from_at"), choice.periods.number_of("t.to_at"));
    let from = choice.periods.from();
    // Of bytes the exact sums would be too large.
    let sum = |of: &str| format!("SUM(CAST(t.amount AS DOUBLE PRECISION) * {of})");
    let sql = format!(
        "SELECT {groups}, {first} AS n1, {last} AS n2, {}, {}, {} FROM {table} GROUP BY {groups}, n1, n2",
        sum("1"),
        sum(&format!("(t.from_at - {from})")),
        sum(&format!("(t.to_at - {from})"))
    );
    for row in store.query(&sql, chosen.values())? {
        let (group, rest) = split(&row, choice.groups().len());
        let [first, last, sums @ ..] = rest else { continue };
        let sum = |at: usize| sums.get(at).and_then(Value::real).unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, reason = "a sum of amounts, far below the range")]
        let whole = |at: usize| sum(at).round() as i128;
        let charge = Charge { amount: whole(0), since: whole(1), until: whole(2) };
        choice.periods.spread(index(first), index(last), charge, |number, used| {
            #[expect(clippy::cast_precision_loss, reason = "money, shown to people")]
            let cost = used as f64 * HOURS * price;
            let row = usage.at(number, &group);
            row.cost = Some(row.cost.unwrap_or_default() + cost);
        });
    }
    for row in usage.rows.values_mut() {
        row.cost.get_or_insert(0.0);
    }
    Ok(())
}
