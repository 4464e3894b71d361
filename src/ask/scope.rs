//! What a caller may see, and why a Question is not answered.

use super::redact::Sight;
use crate::api::question::{CLUSTER_KIND, KIND};
use crate::directory::Directory;
use crate::webhook::review::Request;

/// Why a Question is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self { code: 403, reason: "Forbidden", message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self { code: 422, reason: "Invalid", message: message.into() }
    }

    pub(super) fn busy(message: impl Into<String>) -> Self {
        Self { code: 429, reason: "TooManyRequests", message: message.into() }
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self { code: 503, reason: "ServiceUnavailable", message: message.into() }
    }
}

/// What a caller may see.
#[derive(Clone, Debug)]
pub(super) enum Scope {
    /// The work of this namespace by name, the rest as numbers.
    Namespace(String),
    /// All work by name.
    Cluster,
}

impl Scope {
    pub(super) fn of(request: &Request) -> Result<Self, Refusal> {
        match (request.kind.group.as_str(), request.kind.kind.as_str()) {
            ("sluice.dev", KIND) if !request.namespace.is_empty() => {
                Ok(Self::Namespace(request.namespace.clone()))
            }
            ("sluice.dev", CLUSTER_KIND) => Ok(Self::Cluster),
            (_, kind) => Err(Refusal::invalid(format!("{kind:?} is no kind of question"))),
        }
    }

    /// The namespace to ask about, where the question names `asked`.
    pub(super) fn namespace(&self, asked: Option<&str>) -> Result<Option<String>, Refusal> {
        match (self, asked) {
            (Self::Namespace(own), Some(asked)) if own != asked => Err(Refusal::invalid(format!(
                "a Question in namespace {own} cannot ask about namespace {asked}; create it there, or a \
                 ClusterQuestion"
            ))),
            (Self::Namespace(own), _) => Ok(Some(own.clone())),
            (Self::Cluster, asked) => Ok(asked.map(ToOwned::to_owned)),
        }
    }

    pub(super) fn sight<'a>(&'a self, directory: &'a Directory) -> Option<Sight<'a>> {
        match self {
            Self::Namespace(own) => Some(Sight { own, directory }),
            Self::Cluster => None,
        }
    }
}

pub(super) fn stopping() -> Refusal {
    Refusal::unavailable("Sluice is shutting down; ask again")
}
