//! What the sums by half hour say of periods that begin with one, exactly as the runs would.

use std::collections::BTreeMap;

use super::choice::Where;
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

/// The sums by period, counted from 0, and by group; `None` where only the runs themselves can say.
///
/// # Errors
/// When the store cannot be read.
pub fn by_period(
    store: &mut Store,
    periods: &Periods,
    groups: &[&str],
    team: Option<&str>,
) -> Result<Option<BTreeMap<(usize, Vec<String>), Sum>>, StoreError> {
    if periods.each().any(|(begin, _)| begin % STEP != 0) {
        return Ok(None);
    }
    let table = if groups.contains(&"username") { &BY_USER } else { &BY_QUEUE };
    // By group and by number: what happened before the period of that number and after the one before it.
    let mut levels: BTreeMap<Vec<String>, Vec<Level>> = BTreeMap::new();
    let mut add = |rows: Vec<Row>| {
        for row in rows {
            let (names, rest) = row.split_at(groups.len().min(row.len()));
            let [number, values @ ..] = rest else { continue };
            let number = number.int().and_then(|number| usize::try_from(number).ok()).unwrap_or_default();
            let names = names.iter().map(|name| name.text().to_owned()).collect();
            let levels = levels.entry(names).or_insert_with(|| vec![Level::default(); periods.count() + 1]);
            if let Some(level) = levels.get_mut(number) {
                level.add(values);
            }
        }
    };
    add(whole(store, table, periods, groups, team)?);
    add(rest(store, table, periods, groups, team)?);
    let mut sums = BTreeMap::new();
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

/// SQL for sums by group and number: amounts, amounts times half hours after the beginning, amounts times the rest.
fn added_up(from: &str, groups: &[&str], periods: &Periods) -> String {
    let sum = |of: String| format!("CAST(SUM({of}) AS BIGINT)");
    let mut sums = Vec::new();
    for amount in ["used", "borrowed", "waiting"] {
        sums.extend([sum(amount.to_owned()), sum(format!("{amount} * step")), sum(format!("{amount}_at"))]);
    }
    sums.extend(["started", "ended", "lost"].map(|name| sum(name.to_owned())));
    let (names, sums) = (groups.join(", "), sums.join(", "));
    format!(
        "SELECT {names}, number, {sums} FROM (SELECT {names}, {} AS number, (at - {}) / {STEP} AS step, {} FROM {from}) n \
         GROUP BY {names}, number",
        periods.number_of("at"),
        periods.from(),
        SUMS.join(", ")
    )
}

fn of_team(team: Option<&str>) -> Where {
    let mut chosen = Where::default();
    chosen.is("t.team", team);
    chosen
}

/// What lies in whole half hours before the end.
fn whole(
    store: &mut Store,
    sums: &Sums,
    periods: &Periods,
    groups: &[&str],
    team: Option<&str>,
) -> Result<Vec<Row>, StoreError> {
    let mut chosen = of_team(team);
    chosen.and(format!("t.at < {}", periods.to() - periods.to() % STEP));
    let from = format!("{} t WHERE {}", sums.table, chosen.sql());
    store.query(&added_up(&from, groups, periods), chosen.values())
}

/// What lies in the half hour in which the end lies, and before the end.
fn rest(
    store: &mut Store,
    sums: &Sums,
    periods: &Periods,
    groups: &[&str],
    team: Option<&str>,
) -> Result<Vec<Row>, StoreError> {
    let until = periods.to();
    let since = until - until % STEP;
    if since == until {
        return Ok(Vec::new());
    }
    let mut chosen = of_team(team);
    chosen.and("1 = 1");
    let of = |table: &str, last: &str, first: &str| {
        Some(format!("{table} t WHERE {} AND t.{last} >= {since} AND {first} < {until}", chosen.sql()))
    };
    let rows = Rows {
        with: String::new(),
        segments: of("segments", "to_at", "t.from_at"),
        runs: of("runs", "until_at", QUEUED),
        values: Vec::new(),
    };
    let columns = format!("at, {}, {}", sums.groups.join(", "), SUMS.join(", "));
    let select = sums.select(&rows, 1, Some((since, until)));
    let sql = format!("WITH rest ({columns}) AS ({select}) {}", added_up("rest", groups, periods));
    store.query(&sql, chosen.values())
}
