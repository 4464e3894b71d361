//! What an import could not carry over as it was.

use serde::Serialize;
use thiserror::Error;

/// What became of a part of the old set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Verdict {
    /// It has no equivalent and is left out.
    Lost,
    /// The nearest equivalent is taken, which behaves differently.
    Differs,
    /// It needs a step outside of the printed objects.
    ByHand,
}

impl Verdict {
    /// The word of the table.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Differs => "differs",
            Self::ByHand => "by hand",
        }
    }
}

/// A part of the old set-up that is not carried over as it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Note {
    /// What became of it.
    pub verdict: Verdict,
    /// The object, `Kind name` or `Kind namespace/name`; `all` for the whole set-up.
    pub object: String,
    /// The field, if it is about one.
    pub field: String,
    /// What it meant, and what is done instead.
    pub text: String,
}

/// The notes of an import, each once.
#[derive(Clone, Debug, Default)]
pub struct Notes(Vec<Note>);

impl Notes {
    /// Adds a note, unless it is there already.
    pub fn add(&mut self, verdict: Verdict, object: &str, field: &str, text: impl Into<String>) {
        let note = Note { verdict, object: object.to_owned(), field: field.to_owned(), text: text.into() };
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    /// Something without an equivalent.
    pub fn lost(&mut self, object: &str, field: &str, text: impl Into<String>) {
        self.add(Verdict::Lost, object, field, text);
    }

    /// Something that behaves differently.
    pub fn differs(&mut self, object: &str, field: &str, text: impl Into<String>) {
        self.add(Verdict::Differs, object, field, text);
    }

    /// Something to do besides.
    pub fn by_hand(&mut self, object: &str, field: &str, text: impl Into<String>) {
        self.add(Verdict::ByHand, object, field, text);
    }

    /// The notes, the gravest first, otherwise as they were added.
    #[must_use]
    pub fn sorted(mut self) -> Vec<Note> {
        self.0.sort_by_key(|note| note.verdict);
        self.0
    }
}

/// A set-up that cannot be read: the object and the field that are wrong.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{object}: {field}: {problem}")]
pub struct ImportError {
    /// The object, or the file.
    pub object: String,
    /// The field.
    pub field: String,
    /// The problem.
    pub problem: String,
}

impl ImportError {
    /// An error about a field of an object.
    pub fn new(object: impl Into<String>, field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { object: object.into(), field: field.into(), problem: problem.into() }
    }
}
