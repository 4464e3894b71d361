//! The answer to `/validate`: judges the object after all webhooks have changed it.

use kube::Resource;

use super::context::Context;
use super::job::Jobs;
use super::namespace;
use super::review::{Request, Verdict};
use super::rules::{Target, check};
use super::team;
use super::view::View;
use crate::api::team::Team;

/// Answers `/validate`.
#[must_use]
pub fn validate(view: &View<'_>, request: &Request) -> Verdict {
    match request.kind.kind.as_str() {
        "Job" => workload(view, request, &Jobs),
        "Team" if request.kind.group == Team::group(&()) => team::validate(view, request),
        "Namespace" if request.kind.group.is_empty() => namespace::validate(view, request),
        kind => match view.kinds().find(&request.kind.group, kind) {
            Some(custom) => workload(view, request, &**custom),
            None => Verdict::pass(),
        },
    }
}

fn workload(view: &View<'_>, request: &Request, target: &dyn Target) -> Verdict {
    let context = Context::new(view, request);
    if context.is_exempt() {
        return Verdict::pass();
    }
    let result = check(&context, target);
    context.answer(result)
}
