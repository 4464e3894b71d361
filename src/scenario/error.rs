//! What can be wrong with a scenario file, as one line that says where.

use std::fmt;
use std::sync::Arc;

/// Where in a scenario something was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file, as the caller named it.
    pub file: Arc<str>,
    /// The document in the file, counted from 1; empty documents do not count.
    pub document: usize,
    /// The item in the document, counted from 1, if that is a List.
    pub item: Option<usize>,
    /// The object, as far as it could be told: `Job team-a/train`.
    pub object: Option<String>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.place())?;
        match &self.object {
            Some(object) => write!(f, " ({object})"),
            None => Ok(()),
        }
    }
}

impl Origin {
    /// Where in the file it is.
    #[must_use]
    pub fn place(&self) -> String {
        match self.item {
            Some(item) => format!("document {}, item {item}", self.document),
            None => format!("document {}", self.document),
        }
    }
}

/// Why a scenario cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// A file cannot be read.
    #[error("{file}: {source}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file has nothing in it.
    #[error("{file}: there is no object in it")]
    Empty {
        /// The file.
        file: String,
    },
    /// A file is not YAML.
    #[error("{origin}: {message}")]
    Syntax {
        /// The document in which reading stopped.
        origin: Origin,
        /// What the parser said, with line and column, without the excerpt.
        message: String,
    },
    /// An object is not one that a scenario may have.
    #[error("{origin}: {field}: {message}")]
    Invalid {
        /// The object.
        origin: Origin,
        /// The field that is wrong.
        field: String,
        /// What is wrong with it.
        message: String,
    },
}
