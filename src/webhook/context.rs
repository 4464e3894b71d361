//! One review with everything that its rules read.

use std::cell::OnceCell;
use std::time::Duration;

use serde_json::Value;

use super::assignment::{Assignment, assign};
use super::object::{controller, deleting};
use super::review::{Request, Verdict};
use super::view::View;
use crate::kinds::Draft;

/// One review: the request, the directory, and the answer as far as it is built.
#[derive(Debug)]
pub struct Context<'a> {
    /// The directory.
    pub view: &'a View<'a>,
    /// The request.
    pub request: &'a Request,
    /// The stored object; null on create.
    pub old: &'a Value,
    /// The object as it was sent.
    pub submitted: &'a Value,
    /// The object with Sluice's edits.
    pub draft: Draft<'a>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    assignment: OnceCell<Result<Assignment, String>>,
}

impl<'a> Context<'a> {
    /// Starts a review.
    #[must_use]
    pub fn new(view: &'a View<'a>, request: &'a Request) -> Self {
        Self {
            view,
            request,
            old: &request.old_object,
            submitted: &request.object,
            draft: Draft::new(&request.object),
            warnings: Vec::new(),
            assignment: OnceCell::new(),
        }
    }

    /// The object as it would be stored.
    #[must_use]
    pub fn object(&self) -> &Value {
        self.draft.object()
    }

    /// The user that sent the request.
    #[must_use]
    pub fn user(&self) -> &'a str {
        &self.request.user_info.username
    }

    /// The team and the queue of the object, looked up once.
    ///
    /// # Errors
    /// As [`assign`].
    pub fn assignment(&self) -> Result<&Assignment, String> {
        let found =
            self.assignment.get_or_init(|| assign(self.view, &self.request.namespace, self.submitted));
        found.as_ref().map_err(Clone::clone)
    }

    /// The longest termination grace period of its queue, if that has its own.
    #[must_use]
    pub fn grace(&self) -> Option<Duration> {
        let assignment = self.assignment().ok()?;
        self.view.grace(assignment.team.as_ref()?, assignment.queue.as_ref()?)
    }

    /// Whether no rule applies: Sluice's own request, an object that is being deleted, or a child of a workload.
    #[must_use]
    pub fn is_exempt(&self) -> bool {
        let child = if self.old.is_null() { self.is_new_child() } else { self.has_parent() };
        self.request.by_sluice() || deleting(self.submitted) || child
    }

    /// Whether an operator makes the object for a workload of a custom kind, which is held in its place.
    ///
    /// Any user can write an owner reference, so the account must be the operator's. The policies in the API server also
    /// check that it holds the right to make children.
    #[must_use]
    pub fn is_new_child(&self) -> bool {
        let owner = controller(self.submitted);
        owner.is_some_and(|owner| self.view.kinds().is_operator_of(&owner, self.user()))
    }

    /// Whether the stored object belongs to a workload of a custom kind. The policies judge changes of it.
    fn has_parent(&self) -> bool {
        controller(self.old).is_some_and(|owner| self.view.kinds().is_parent(&owner))
    }

    /// The answer: the edits and warnings, or the refusal with the name of the object.
    #[must_use]
    pub fn answer(self, result: Result<(), String>) -> Verdict {
        match result {
            Ok(()) => Verdict::Allow { patch: self.draft.into_patch(), warnings: self.warnings },
            Err(problem) => Verdict::Deny(format!("{}: {problem}", self.request.object_name())),
        }
    }
}
