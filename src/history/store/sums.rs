//! Sums of runs and segments by half an hour, from which reports are made.
//!
//! A charge is two events: its amount begins, and ends. The sum of amounts and the sum of amounts times their times are enough
//! for the exact time integral up to any half hour, so a run counts in two rows however long it lasts. The sums are those of
//! the rows of `runs` and `segments` at any time: what is taken out of these or put into them is in the same transaction taken
//! from the sums or added to them.

use super::value::Value;
use crate::history::record::DEVICES;

/// The length of the time of a row, in milliseconds. In nearly all time zones days begin with one.
pub const STEP: i64 = 1_800_000;

/// A table of sums.
#[derive(Debug)]
pub struct Sums {
    /// The name.
    pub table: &'static str,
    /// The columns by which it groups.
    pub groups: &'static [&'static str],
}

/// For reports of teams, queues and pools.
pub const BY_QUEUE: Sums = Sums { table: "sums_by_queue", groups: &["team", "queue", "pool"] };
/// For reports of users.
pub const BY_USER: Sums = Sums { table: "sums_by_user", groups: &["team", "username"] };

/// The columns with sums; `…_at` are of amounts times the milliseconds since the beginning of the half hour.
pub const SUMS: [&str; 9] =
    ["used", "used_at", "borrowed", "borrowed_at", "waiting", "waiting_at", "started", "ended", "lost"];

/// Which rows of `runs` and `segments` are meant: what follows `FROM` in SQL, where they have the name `t`.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Common table expressions for both, with a space at the end.
    pub with: String,
    /// Segments.
    pub segments: Option<String>,
    /// Runs.
    pub runs: Option<String>,
    /// Parameters.
    pub values: Vec<Value>,
}

/// Since when a run had waited, not after its admission.
pub const QUEUED: &str = "(CASE WHEN t.queued_at < t.admitted_at THEN t.queued_at ELSE t.admitted_at END)";
/// When a run lost work, not after its end.
pub const STOPPED: &str = "(CASE WHEN t.stopped_at < t.until_at THEN t.stopped_at ELSE t.until_at END)";
/// The last moment of a run.
const LAST: &str = "(CASE WHEN t.until_at > t.admitted_at THEN t.until_at - 1 ELSE t.admitted_at END)";

impl Sums {
    /// SQL for the sums of these rows by half hour and group, where there are bounds of events between them.
    pub fn select(&self, rows: &Rows, sign: i64, when: Option<(i64, i64)>) -> String {
        let groups = self.groups.join(", ");
        let sums = SUMS.map(|sum| format!("CAST({sign} * SUM({sum}) AS BIGINT)")).join(", ");
        let when =
            when.map_or("1 = 1".to_owned(), |(from, to)| format!("moment >= {from} AND moment < {to}"));
        format!(
            "SELECT moment - moment % {STEP}, {groups}, {sums} FROM ({}) e WHERE {when} GROUP BY moment - moment % {STEP}, {groups}",
            self.events(rows)
        )
    }

    /// SQL that adds the sums of these rows, or with a sign of -1 takes them away.
    pub fn count(&self, rows: &Rows, sign: i64) -> String {
        let Self { table, groups } = self;
        let (groups, sums) = (groups.join(", "), SUMS.join(", "));
        let set = SUMS.map(|sum| format!("{sum} = {table}.{sum} + excluded.{sum}")).join(", ");
        format!(
            "{}INSERT INTO {table} (at, {groups}, {sums}) {} ON CONFLICT (at, {groups}) DO UPDATE SET {set}",
            rows.with,
            self.select(rows, sign, None)
        )
    }

    /// SQL that deletes rows without any sum.
    pub fn prune(&self) -> String {
        let nothing = SUMS.map(|sum| format!("{sum} = 0")).join(" AND ");
        format!("DELETE FROM {} WHERE {nothing}", self.table)
    }

    /// The events of rows.
    fn events(&self, rows: &Rows) -> String {
        let mut parts = Vec::new();
        if let Some(from) = &rows.segments {
            let from = format!("{from} AND t.resource = '{DEVICES}'");
            for (time, sign) in [("t.from_at", ""), ("t.to_at", "-")] {
                let used = format!("{sign}t.amount");
                let borrowed = format!("{sign}t.amount * t.borrowed");
                parts.push(self.part(time, &from, &[("used", &used), ("borrowed", &borrowed)]));
            }
        }
        if let Some(from) = &rows.runs {
            let from = format!("{from} AND t.admitted_at > 0");
            parts.push(self.part(QUEUED, &from, &[("waiting", "t.devices")]));
            parts.push(self.part("t.admitted_at", &from, &[("waiting", "-t.devices"), ("started", "1")]));
            parts.push(self.part(LAST, &from, &[("ended", "1")]));
            parts.push(self.part(STOPPED, &format!("{from} AND t.lost > 0"), &[("lost", "t.lost")]));
        }
        parts.join(" UNION ALL ")
    }

    /// Events of one kind.
    fn part(&self, time: &str, from: &str, sums: &[(&str, &str)]) -> String {
        let groups = self.groups.iter().map(|group| format!("t.{group} AS {group}")).collect::<Vec<_>>();
        let value = |name: &str| {
            let of = |name: &str| sums.iter().find(|(sum, _)| *sum == name).map(|(_, value)| *value);
            match name.strip_suffix("_at") {
                Some(amount) => of(amount).map(|value| format!("{value} * ({time} % {STEP})")),
                None => of(name).map(str::to_owned),
            }
        };
        let sums = SUMS.map(|name| format!("{} AS {name}", value(name).unwrap_or_else(|| "0".to_owned())));
        format!("SELECT {time} AS moment, {}, {} FROM {from}", groups.join(", "), sums.join(", "))
    }
}
