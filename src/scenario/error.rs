//! Errors in scenario files, one line each with file, document and field.

use std::fmt;
use std::sync::Arc;

/// The place of an object in the scenario files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file name as given.
    pub file: Arc<str>,
    /// The number of the document, from 1; empty documents do not count.
    pub document: usize,
    /// The number of the item in a List, from 1.
    pub item: Option<usize>,
    /// The object, as far as known: `Job team-a/train`.
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
    /// The place within the file: `document 2, item 1`.
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
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A file has no object.
    #[error("{file}: contains no object")]
    Empty {
        /// The file.
        file: String,
    },
    /// A file is not YAML.
    #[error("{origin}: {message}")]
    Syntax {
        /// The document in which reading stopped.
        origin: Origin,
        /// The parser's error with line and column.
        message: String,
    },
    /// An object is invalid in a scenario.
    #[error("{origin}: {field}: {message}")]
    Invalid {
        /// The object.
        origin: Origin,
        /// The wrong field.
        field: String,
        /// The problem.
        message: String,
    },
}
