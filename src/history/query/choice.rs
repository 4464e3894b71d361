//! What a report is about, and conditions of SQL with their parameters.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::periods::Periods;
use crate::api::accounts::ReportKind;
use crate::history::store::Value;

/// Conditions that all hold.
#[derive(Clone, Debug, Default)]
pub struct Where {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Where {
    /// A condition without a parameter.
    pub fn and(&mut self, condition: impl Into<String>) {
        self.conditions.push(condition.into());
    }

    /// That a column has one of these texts.
    pub fn one_of<'a>(&mut self, column: &str, texts: impl IntoIterator<Item = &'a str>) {
        let places: Vec<String> = texts.into_iter().map(|text| self.place(text)).collect();
        self.conditions.push(format!("{column} IN ({})", places.join(", ")));
    }

    /// That a column has this text, if there is one.
    pub fn is(&mut self, column: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.one_of(column, [text]);
        }
    }

    /// The place of a parameter.
    pub fn place(&mut self, text: &str) -> String {
        self.values.push(text.into());
        format!("CAST(?{} AS TEXT)", self.values.len())
    }

    /// The place of a parameter that is a time. It has no type of its own, so that SQLite finds it in an index of expressions.
    pub fn time(&mut self, time: i64) -> String {
        self.values.push(time.into());
        format!("?{}", self.values.len())
    }

    /// The text of the conditions.
    pub fn sql(&self) -> String {
        self.conditions.join(" AND ")
    }

    /// The parameters.
    pub fn values(&self) -> &[Value] {
        &self.values
    }
}

/// What a report is about.
#[derive(Clone, Debug)]
pub struct Choice {
    /// What it sums up.
    pub kind: ReportKind,
    /// Its periods.
    pub periods: Periods,
    /// Only runs in this namespace.
    pub namespace: Option<String>,
    /// Only runs of this team.
    pub team: Option<String>,
    /// The price of an hour of one unit by resource.
    pub prices: BTreeMap<String, String>,
}

impl Choice {
    /// The condition on the team of rows with the name `t`.
    pub fn filter(&self) -> Where {
        let mut chosen = Where::default();
        chosen.is("t.team", self.team.as_deref());
        chosen
    }

    /// Beginning and end of the period of this number, counted from 0.
    pub fn bounds(&self, number: usize) -> (Timestamp, Timestamp) {
        let (from, to) = self.periods.each().nth(number).unwrap_or_default();
        let time = |millis| Timestamp::from_millisecond(millis).unwrap_or_default();
        (time(from), time(to))
    }
}

/// A number of a period, 0 for none.
pub fn index(value: &Value) -> usize {
    value.int().and_then(|number| usize::try_from(number).ok()).unwrap_or_default()
}

/// A count, 0 for none.
pub fn count(value: &Value) -> u64 {
    value.int().and_then(|number| u64::try_from(number).ok()).unwrap_or_default()
}
