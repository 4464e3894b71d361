//! JSON pointers to the fields of an object.

use std::fmt;

use json_patch::jsonptr::{PointerBuf, Token};
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// A JSON pointer (RFC 6901) to a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pointer(Vec<String>);

impl Pointer {
    /// The pointer with these tokens (not escaped).
    #[must_use]
    pub fn to<const N: usize>(tokens: [&str; N]) -> Self {
        Self(tokens.map(ToOwned::to_owned).into())
    }

    /// The value at this pointer.
    #[must_use]
    pub fn read<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, token| match value {
            Value::Array(list) => list.get(token.parse::<usize>().ok()?),
            Value::Object(map) => map.get(token),
            _ => None,
        })
    }

    /// This pointer followed by `more`.
    #[must_use]
    pub fn join(&self, more: &Self) -> Self {
        Self(self.0.iter().chain(&more.0).cloned().collect())
    }

    /// The pointer to a child: a field name or a list index.
    #[must_use]
    pub fn under(&self, token: impl Into<String>) -> Self {
        let mut tokens = self.0.clone();
        tokens.push(token.into());
        Self(tokens)
    }

    /// The tokens, not escaped.
    #[must_use]
    pub fn tokens(&self) -> &[String] {
        &self.0
    }

    /// The tokens with dots between them, as messages name fields: `spec.suspend`.
    #[must_use]
    pub fn dotted(&self) -> String {
        self.0.join(".")
    }

    /// The pointer in the form that JSON patches use.
    #[must_use]
    pub fn to_buf(&self) -> PointerBuf {
        PointerBuf::from_tokens(self.0.iter().map(String::as_str))
    }

    /// Checks that a CEL policy can name the field: every token is an identifier, not a list index.
    pub(super) fn check_field(&self) -> Result<(), String> {
        let plain = |token: &String| {
            token.starts_with(|c: char| c.is_ascii_alphabetic())
                && token.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        if self.0.is_empty() || !self.0.iter().all(plain) {
            return Err(format!("{self} does not lead to a field through fields alone"));
        }
        Ok(())
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_buf().as_str())
    }
}

impl<'de> Deserialize<'de> for Pointer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = PointerBuf::parse(text.clone()).map_err(|_| {
            de::Error::custom(format!("{text:?} is not a JSON pointer such as /spec/suspend"))
        })?;
        if parsed.is_root() {
            return Err(de::Error::custom("it points to the object itself, not to a field"));
        }
        Ok(Self(parsed.tokens().map(|token: Token<'_>| token.decoded().into_owned()).collect()))
    }
}
