//! A number of GPUs, written as plainly as it can be: 16, or 0.5.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::engine::types::amount::Amount;

/// A number of GPUs, parts of one as fractions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count(Amount);

impl Count {
    /// The number.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.0.as_units_lossy()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.0 == Amount::ZERO
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl From<Amount> for Count {
    fn from(amount: Amount) -> Self {
        Self(amount)
    }
}

impl From<u32> for Count {
    fn from(whole: u32) -> Self {
        Self(Amount::units(whole.into()))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.as_f64())
    }
}

impl Serialize for Count {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_milli() {
            milli if milli % 1_000 == 0 => serializer.serialize_i64(milli / 1_000),
            _ => serializer.serialize_f64(self.as_f64()),
        }
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        // A count beyond these bounds, or none at all, is no number of GPUs.
        if !(0.0..=1e9).contains(&number) {
            return Err(serde::de::Error::custom(format!("{number} is no number of GPUs")));
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked above")]
        Ok(Self(Amount::milli((number * 1_000.0).round() as i64)))
    }
}

impl JsonSchema for Count {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number", "minimum": 0})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_a_plain_number() {
        for (written, milli) in [("16", 16_000), ("0.5", 500), ("0", 0)] {
            let count = Count::from(Amount::milli(milli));
            assert_eq!(serde_json::to_string(&count).expect("JSON"), written);
            assert_eq!(serde_json::from_str::<Count>(written).expect("a count"), count);
            assert_eq!(count.to_string(), written);
        }
        for wrong in ["-1", "1e300", "\"1\""] {
            assert!(serde_json::from_str::<Count>(wrong).is_err(), "{wrong}");
        }
    }
}
