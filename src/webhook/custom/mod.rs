//! The rules that only custom kinds have. The table of kinds names the fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::context::Context;
use super::object::annotation;
use super::rules::{Target, is_admitted, is_waiting};
use super::{constraints, priority, requests, template};
use crate::api::caps::Counts;
use crate::api::names;
use crate::cluster::reduce::counts::values;
use crate::cluster::target::custom::asked;
use crate::cluster::target::custom::roles::{places, templates};
use crate::kinds::policies::elastic;
use crate::kinds::{Kind, Pointer, unplace};

/// Requests that only Jobs and Pods can have.
const UNSUPPORTED: [&str; 2] = [names::MIN_PARALLELISM, names::GPU_FRACTION];

impl Target for Kind {
    fn kind(&self) -> &str {
        &self.kind
    }

    fn suspend_field(&self) -> Pointer {
        self.suspend.clone()
    }

    fn is_suspended(&self, object: &Value) -> bool {
        self.suspended(object)
    }

    fn counts(&self, object: &Value) -> Counts {
        Counts {
            values: values(&object["spec"]),
            ..asked(self, (object, None), &replaced_affinities(object)).counts
        }
    }

    fn create(&self, context: &mut Context<'_>) -> Result<(), String> {
        context.warnings.extend(requests::without_effect(context.submitted));
        let gang = asked(self, (context.submitted, None), &BTreeMap::new());
        if let Some(warning) = gang.inexact {
            context.warnings.push(format!("sluice: {warning}"));
        }
        if gang.mixed {
            context.warnings.push(constraints::SEVERAL_TEMPLATES.to_owned());
        }
        for template in templates(self, context.submitted) {
            let there = template.read(context.submitted).unwrap_or(&Value::Null);
            let unread = template::without_effect(context.submitted, there, &template.dotted());
            context.warnings.extend(unread);
            context.warnings.extend(constraints::warnings(context.submitted, &template.under("spec")));
            priority::settle_template(context, &template.under("spec"));
        }
        Ok(())
    }

    /// The templates of an admitted object carry the placement. An unchanged manifest resets them to the user's
    /// text, which is no change by the user.
    fn keep_placement(&self, context: &mut Context<'_>) {
        let old = context.old;
        for template in templates(self, context.submitted) {
            let spec = template.under("spec");
            if !priority::keep(context, &spec) && is_waiting(self, old) {
                priority::settle_template(context, &spec);
            }
        }
        if !is_admitted(old) {
            return;
        }
        let replaced = replaced_affinities(old);
        let templates = asked(self, (old, None), &replaced).templates;
        let restore = json_patch::Patch(unplace(self, old, &templates, &replaced));
        let mut restored = old.clone();
        if json_patch::patch(&mut restored, &restore).is_err() {
            return;
        }
        for field in self.placed_in() {
            let (placed, written) = (field.read(old), field.read(context.object()));
            if let Some(placed) = placed
                && written == field.read(&restored)
                && written != Some(placed)
            {
                context.draft.set(&field, placed.clone());
            }
        }
    }

    fn check_create(&self, context: &Context<'_>) -> Result<(), String> {
        check_requests(context, self)
    }

    fn check_update(&self, context: &Context<'_>) -> Result<(), String> {
        let (old, new) = (context.old, context.object());
        // Unchanged requests are not judged again: an old object must stay editable.
        let pods_changed = self.suspended(new) && old["spec"] != new["spec"];
        if requests::changed(old, new) || pods_changed { check_requests(context, self) } else { Ok(()) }
    }
}

fn check_requests(context: &Context<'_>, kind: &Kind) -> Result<(), String> {
    let object = context.object();
    if let Some(key) = UNSUPPORTED.into_iter().find(|key| annotation(object, key).is_some()) {
        return Err(format!(
            "annotation {key} is only for Jobs and Pods; leave it out of this {}",
            kind.kind
        ));
    }
    if let Some(missing) = asked(kind, (object, None), &replaced_affinities(object)).missing {
        return Err(format!("{missing} is needed: without it Sluice cannot count its pods"));
    }
    let is_set = |at: &&Pointer| !matches!(at.read(object), None | Some(Value::Null | Value::Bool(false)));
    if let Some(field) = kind.elastic.iter().find(is_set) {
        return Err(elastic(&kind.kind, &field.dotted()));
    }
    for role in &kind.roles {
        let Some(template) = &role.template else { continue };
        for at in places(role, object).iter().map(|place| place.join(template)) {
            template::check(at.read(object).unwrap_or(&Value::Null), &at.dotted())?;
        }
    }
    requests::check(context.view, object)
}

/// The user's affinities that the placement replaced, by template.
fn replaced_affinities(object: &Value) -> BTreeMap<String, Value> {
    let text = annotation(object, names::USER_AFFINITY);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
