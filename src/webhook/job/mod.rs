//! The rules that only Jobs have: parallelism, pod template, GPU fractions and PodGroups.

use std::collections::BTreeMap;

use serde_json::Value;

use super::context::Context;
use super::object::{annotation, annotation_at, label_at, same_annotation};
use super::rules::{Target, is_admitted, is_reapplied, is_waiting, written_by_sluice};
use super::{caps, constraints, gang, gpu_fraction, priority, requests, template};
use crate::api::caps::Counts;
use crate::api::names;
use crate::api::record::Record;
use crate::engine::types::amount::Amount;
use crate::kinds::Pointer;
use crate::view::counted;

/// The pod template, as messages name it.
const TEMPLATE: &str = "spec.template";

/// Jobs as targets of the shared rules.
#[derive(Clone, Copy, Debug)]
pub struct Jobs;

impl Target for Jobs {
    fn kind(&self) -> &'static str {
        "Job"
    }

    fn suspend_field(&self) -> Pointer {
        Pointer::to(["spec", "suspend"])
    }

    fn is_suspended(&self, job: &Value) -> bool {
        job["spec"]["suspend"] == Value::Bool(true)
    }

    fn knows_server_side_apply(&self) -> bool {
        true
    }

    fn template_label(&self, key: &str) -> Option<Pointer> {
        Some(Pointer::to(["spec", "template", "metadata", "labels", key]))
    }

    /// The template is mutable while the Job is suspended, has no start time and none of its pods run. From 1.36 on its
    /// controller clears the start time when it suspends the Job; before, Sluice does when it restores the template.
    fn is_template_mutable(&self, job: &Value) -> bool {
        let status = &job["status"];
        self.is_suspended(job) && status["startTime"].is_null() && status["active"].as_u64().unwrap_or(0) == 0
    }

    fn counts(&self, object: &Value) -> Counts {
        caps::of_job(object)
    }

    fn create(&self, context: &mut Context<'_>) -> Result<(), String> {
        let job = context.submitted;
        context.warnings = requests::warnings(job);
        context.warnings.extend(constraints::warnings(job, &pod_spec()));
        if annotation(job, names::WANTED_PARALLELISM).is_some() {
            context.warnings.push(format!(
                "sluice: annotation {} has no effect on a Job that does not run; set spec.parallelism",
                names::WANTED_PARALLELISM
            ));
        }
        gang::name_pod_group(context);
        gpu_fraction::request_devices(context, &pod_spec(), true)?;
        let elastic = annotation(job, names::MIN_PARALLELISM).is_some();
        let node_affinity = job.pointer("/spec/template/spec/affinity/nodeAffinity");
        if elastic || node_affinity.is_some_and(Value::is_object) {
            context.draft.set(&label_at(names::OWN_AFFINITY), "true");
        }
        priority::settle_template(context, &pod_spec());
        Ok(())
    }

    fn keep_granted_pods(&self, context: &mut Context<'_>) {
        let (old, submitted) = (context.old, context.submitted);
        let runs = !self.is_suspended(old) && !self.is_suspended(submitted);
        if !runs || !exceeds_grant(old, submitted) {
            // The number that the user wrote last counts.
            if parallelism(old) != parallelism(submitted) {
                context.draft.remove(&annotation_at(names::WANTED_PARALLELISM));
            }
            return;
        }
        let grows = may_grow(old, submitted);
        if !grows && !is_reapplied(context, self, &Pointer::to(["spec", "parallelism"])) {
            return;
        }
        for field in ["parallelism", "completions"] {
            if submitted["spec"][field] != old["spec"][field] {
                context.draft.set(&Pointer::to(["spec", field]), old["spec"][field].clone());
            }
        }
        let (granted, wanted) = (granted_pods(old), parallelism(submitted));
        if !grows {
            context.warnings.push(format!(
                "sluice: the Job keeps the {} it was granted; suspend it first to queue for more",
                counted(granted)
            ));
            return;
        }
        if parallelism(old) < granted {
            // Its user had lowered it, and the record still grants the others: without them a larger number is not seen as a request.
            context.draft.set(&Pointer::to(["spec", "parallelism"]), granted);
        }
        if wanted != wanted_pods(old) {
            context.draft.set(&annotation_at(names::WANTED_PARALLELISM), wanted.to_string());
        }
        context.warnings.push(format!(
            "sluice: the Job keeps the {} it was granted, and grows to {wanted} as capacity allows",
            counted(granted)
        ));
    }

    /// The template of an admitted Job carries the placement, the granted devices, the PodGroup and the gate. An
    /// unchanged manifest resets them to the user's text, which is no change by the user.
    fn keep_placement(&self, context: &mut Context<'_>) {
        let (old, submitted) = (context.old, context.submitted);
        let affinity = pod_spec().under("affinity");
        let user_affinity =
            annotation(old, names::USER_AFFINITY).and_then(|text| serde_json::from_str::<Value>(text).ok());
        let submitted_affinity = affinity.read(submitted).unwrap_or(&Value::Null);
        if is_admitted(old) && user_affinity.as_ref() == Some(submitted_affinity) {
            context.draft.set(&affinity, affinity.read(old).cloned().unwrap_or_default());
        }
        if is_admitted(old) {
            gpu_fraction::keep_granted(context);
        }
        gang::keep_pod_group(context);
        priority::keep(context, &pod_spec());
        let gates = pod_spec().under("schedulingGates");
        let has_gate = |job: &Value| {
            let gates = gates.read(job).and_then(Value::as_array).into_iter().flatten();
            gates.into_iter().any(|gate| gate["name"] == names::GATE_PLACEMENT)
        };
        if is_admitted(old) && has_gate(old) && !has_gate(submitted) {
            context.draft.set(&gates, gates.read(old).cloned().unwrap_or_default());
        }
    }

    fn check_create(&self, context: &Context<'_>) -> Result<(), String> {
        let job = context.object();
        if annotation(job, names::GPU_SIZES).is_some() && !gpu_fraction::has_choice(job) {
            return Err(format!("annotation {} is written by Sluice alone; leave it out", names::GPU_SIZES));
        }
        template::check(&job["spec"]["template"], TEMPLATE)?;
        requests::check(context.view, job)
    }

    fn check_update(&self, context: &Context<'_>) -> Result<(), String> {
        let (old, new) = (context.old, context.object());
        if !self.is_suspended(new) && exceeds_grant(old, new) {
            return Err(format!(
                "spec.parallelism {} is more than the {} it was granted; suspend it first to queue for more",
                parallelism(new),
                counted(granted_pods(old))
            ));
        }
        if let Some(key) = gpu_fraction::changed(old, new) {
            return Err(format!(
                "annotation {key} cannot be changed: the pods already request the devices that their pool offers; \
                 delete the Job and create it again"
            ));
        }
        if !same_annotation(old, new, names::GPU_SIZES) {
            return Err(written_by_sluice("annotation", names::GPU_SIZES));
        }
        let waits = is_waiting(self, old) && is_waiting(self, new);
        if !same_annotation(old, new, names::GPU_FRACTION) && !waits {
            return Err(format!(
                "annotation {} can be changed only while the Job waits",
                names::GPU_FRACTION
            ));
        }
        // From 1.36 on the API server lets the template of a suspended Job change while its pods end. They are charged
        // by it until the last one is gone.
        if is_admitted(old) && resources(old) != resources(new) {
            return Err(
                "the resources of its pods in spec.template can be changed only while the Job waits; its pods have not \
                 all ended, so wait until its annotation sluice.dev/admission is gone"
                    .to_owned(),
            );
        }
        if old["spec"]["template"] != new["spec"]["template"] {
            template::check(&new["spec"]["template"], TEMPLATE)?;
        }
        // Unchanged requests are not judged again: an old object must stay editable.
        if requests::changed(old, new) { requests::check(context.view, new) } else { Ok(()) }
    }
}

/// The pod spec in a Job.
fn pod_spec() -> Pointer {
    Pointer::to(["spec", "template", "spec"])
}

/// Amounts by resource; what is none stays as it is written.
type Amounts<'a> = BTreeMap<&'a str, Result<Amount, &'a Value>>;

/// Limits, requests and claims of a Job's containers and of its pods as a whole. A limit is a request too.
fn resources(job: &Value) -> Vec<(Amounts<'_>, Amounts<'_>, &Value)> {
    let spec = &job["spec"]["template"]["spec"];
    let containers = ["initContainers", "containers"].map(|list| spec[list].as_array().into_iter().flatten());
    let each = containers.into_iter().flatten().chain([spec]).map(|part| &part["resources"]);
    each.map(|resources| {
        let limits = amounts(&resources["limits"]);
        let mut requests = limits.clone();
        requests.extend(amounts(&resources["requests"]));
        (limits, requests, &resources["claims"])
    })
    .collect()
}

fn amounts(list: &Value) -> Amounts<'_> {
    let read = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        Amount::parse(&text)
    };
    let all = list.as_object().into_iter().flatten();
    all.map(|(resource, value)| (resource.as_str(), read(value).map_err(|_| value))).collect()
}

fn parallelism(job: &Value) -> u64 {
    job["spec"]["parallelism"].as_u64().unwrap_or(1)
}

fn record(job: &Value) -> Option<Record> {
    annotation(job, names::ADMISSION).and_then(|text| serde_json::from_str(text).ok())
}

/// The pods that the record grants; without a record the pods that the Job runs.
fn granted_pods(job: &Value) -> u64 {
    record(job).map_or(parallelism(job), |record| u64::from(record.pods))
}

/// The pods that the user of an admitted Job wants.
fn wanted_pods(job: &Value) -> u64 {
    let larger = annotation(job, names::WANTED_PARALLELISM).and_then(|text| text.parse().ok());
    let kept = || record(job).and_then(|record| record.wanted).map(u64::from);
    larger.or_else(kept).unwrap_or_else(|| parallelism(job))
}

/// Whether Sluice can grant more pods to a running Job later. Completions cannot change with them: the API server takes both
/// together only.
fn may_grow(old: &Value, new: &Value) -> bool {
    is_admitted(old)
        && annotation(new, names::MIN_PARALLELISM).is_some()
        && !gang::has_pod_group(old)
        && old["spec"]["completions"] == new["spec"]["completions"]
}

/// Whether the new Job runs more pods than granted, and more than before.
fn exceeds_grant(old: &Value, new: &Value) -> bool {
    parallelism(new) > granted_pods(old).max(parallelism(old))
}

#[cfg(test)]
mod tests;
