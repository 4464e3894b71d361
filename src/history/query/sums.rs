//! What the sums by half hour say of periods that begin with one, exactly as the runs would.

use std::collections::BTreeMap;

use super::choice::{Where, index};
use super::periods::Periods;
use crate::history::store::sums::{BY_QUEUE, BY_USER, QUEUED, Rows, STEP, SUMS, Sums};
use crate::history::store::{Row, Store, StoreError, Value};

/// The sums of a group in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Used, in thousandths of a unit for a millisecond.
    pub used: i128,
    /// The part on borrowed capacity.
    pub borrowed: i128,
    /// Waited for.
    pub waited: i128,
    /// Lost, in device-milliseconds.
    pub lost: i128,
    /// Runs of which a part lies in the period.
    pub runs: i128,
}

/// Sums by period, counted from 0, and by group.
pub type ByPeriod = BTreeMap<(usize, Vec<String>), Sum>;

/// The events of a group before a time, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    /// Amounts: used, borrowed, waiting.
    amounts: [i128; 3],
    /// Amounts times the milliseconds after the beginning of the report.
    times: [i128; 3],
    started: i128,
    ended: i128,
    lost: i128,
}

impl Level {
    /// Adds the values of a row.
    fn add(&mut self, values: &[Value]) {
        let value = |at: usize| i128::from(values.get(at).and_then(Value::int).unwrap_or_default());
        for which in 0..3 {
            let at = which * 3;
            self.amounts[which] += value(at);
            self.times[which] += value(at + 1) * i128::from(STEP) + value(at + 2);
        }
        self.started += value(9);
        self.ended += value(10);
        self.lost += value(11);
    }

    /// The events of both.
    fn and(mut self, other: &Self) -> Self {
        for which in 0..3 {
            self.amounts[which] += other.amounts[which];
            self.times[which] += other.times[which];
        }
        self.started += other.started;
        self.ended += other.ended;
        self.lost += other.lost;
        self
    }

    /// The integral of an amount until so many milliseconds after the beginning of the report.
    fn integral(&self, which: usize, until: i64) -> i128 {
        self.amounts[which] * i128::from(until) - self.times[which]
    }
}

/// The sums of the runs; `None` where only the runs themselves can say.
///
/// # Errors
/// When the store cannot be read.
pub fn by_period(
    store: &mut Store,
    periods: &Periods,
    groups: &[&str],
    team: Option<&str>,
) -> Result<Option<ByPeriod>, StoreError> {
    if periods.each().any(|(begin, _)| begin % STEP != 0) {
        return Ok(None);
    }
    let table = if groups.contains(&"username") { &BY_USER } else { &BY_QUEUE };
    // By group and by number: what happened before the period of that number and after the one before it.
    let mut levels: BTreeMap<Vec<String>, Vec<Level>> = BTreeMap::new();
    for row in events(store, table, periods, groups, team)? {
        let (names, rest) = row.split_at(groups.len().min(row.len()));
        let [number, values @ ..] = rest else { continue };
        let names = names.iter().map(|name| name.text().to_owned()).collect();
        let levels = levels.entry(names).or_insert_with(|| vec![Level::default(); periods.count() + 1]);
        if let Some(level) = levels.get_mut(index(number)) {
            level.add(values);
        }
    }
    let mut sums = ByPeriod::new();
    for (names, levels) in levels {
        let mut before = Level::default();
        for (number, (begin, end)) in periods.each().enumerate() {
            before = before.and(&levels[number]);
            let after = before.and(&levels[number + 1]);
            let [begin, end] = [begin, end].map(|time| time - periods.from());
            let used = |which| after.integral(which, end) - before.integral(which, begin);
            let sum = Sum {
                used: used(0),
                borrowed: used(1),
                waited: used(2),
                lost: after.lost - before.lost,
                runs: after.started - before.ended,
            };
            if sum != Sum::default() {
                sums.insert((number, names.clone()), sum);
            }
        }
    }
    Ok(Some(sums))
}

/// Sums of events by group and number of the period: amounts, amounts times half hours after the beginning, amounts times the
/// rest. It is one statement, so that all of it is of the same moment.
fn events(
    store: &mut Store,
    sums: &Sums,
    periods: &Periods,
    groups: &[&str],
    team: Option<&str>,
) -> Result<Vec<Row>, StoreError> {
    let mut chosen = Where::default();
    chosen.is("t.team", team);
    chosen.and("1 = 1");
    let (of_team, columns) = (chosen.sql(), SUMS.join(", "));
    let (by, until) = (sums.groups.join(", "), periods.to());
    let whole = until - until % STEP;
    let mut from =
        format!("SELECT at, {by}, {columns} FROM {} t WHERE t.at < {whole} AND {of_team}", sums.table);
    if whole < until {
        // Of the half hour in which the end lies, what happened before the end.
        let of = |table: &str, last: &str, first: &str| {
            Some(format!("{table} t WHERE t.{last} >= {whole} AND {first} < {until} AND {of_team}"))
        };
        let rows = Rows {
            with: String::new(),
            segments: of("segments", "to_at", "t.from_at"),
            runs: of("runs", "until_at", QUEUED),
            values: Vec::new(),
        };
        from = format!("{from} UNION ALL {}", sums.select(&rows, 1, Some((whole, until))));
    }
    let sum = |of: String| format!("CAST(SUM({of}) AS BIGINT)");
    let amounts = ["used", "borrowed", "waiting"].into_iter();
    let times = amounts.flat_map(|amount| {
        [sum(amount.to_owned()), sum(format!("{amount} * step")), sum(format!("{amount}_at"))]
    });
    let counts = ["started", "ended", "lost"].into_iter().map(|name| sum(name.to_owned()));
    let (names, added) = (groups.join(", "), times.chain(counts).collect::<Vec<_>>().join(", "));
    let sql = format!(
        "SELECT {names}, number, {added} FROM (SELECT {names}, {} AS number, (at - {}) / {STEP} AS step, {columns} \
         FROM ({from}) e) n GROUP BY {names}, number",
        periods.number_of("at"),
        periods.from()
    );
    store.query(&sql, chosen.values())
}
