//! Values of columns, alike in both databases.

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// None.
    Null,
    /// A number, a time, an amount or a flag.
    Int(i64),
    /// A number with a fraction.
    Real(f64),
    /// A text.
    Text(String),
}

/// A row.
pub type Row = Vec<Value>;

impl Value {
    /// The number; `None` if it is none.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The number, with its fraction; `None` if it is none.
    #[must_use]
    pub fn real(&self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "for texts and reports")]
            Self::Int(number) => Some(*number as f64),
            Self::Real(number) => Some(*number),
            _ => None,
        }
    }

    /// The text; empty if it is none.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => "",
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Int(i64::from(flag))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        // PostgreSQL keeps no such character.
        Self::Text(if text.contains('\0') { text.replace('\0', " ") } else { text.to_owned() })
    }
}

impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        number.map_or(Self::Null, Self::Int)
    }
}
