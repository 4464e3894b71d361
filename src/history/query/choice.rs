//! Conditions of SQL with their parameters.

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

    /// The text of the conditions.
    pub fn sql(&self) -> String {
        self.conditions.join(" AND ")
    }

    /// The parameters.
    pub fn values(&self) -> &[Value] {
        &self.values
    }
}
