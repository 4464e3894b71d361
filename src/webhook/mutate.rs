//! The answer to `/mutate`: edits the object, then judges the result.

use super::context::Context;
use super::job::Jobs;
use super::review::{Request, Verdict};
use super::rules::{Target, check, edit};
use super::view::View;
use super::{never, pod};

/// Answers `/mutate`.
#[must_use]
pub fn mutate(view: &View<'_>, request: &Request) -> Verdict {
    match request.kind.kind.as_str() {
        "Job" => workload(view, request, &Jobs),
        "Pod" => pod::mutate(view, request),
        kind => match view.kinds().find(&request.kind.group, kind) {
            Some(custom) => workload(view, request, &**custom),
            None => Verdict::pass(),
        },
    }
}

fn workload(view: &View<'_>, request: &Request, target: &dyn Target) -> Verdict {
    let mut context = Context::new(view, request);
    if context.is_exempt() {
        return Verdict::pass();
    }
    let result = edit(&mut context, target).and_then(|()| check(&context, target));
    if result.is_ok() && request.operation == "CREATE" {
        context.warnings.extend(never::warning(&context));
    }
    context.answer(result)
}
