//! Scheduling gates of pods and of the pod templates of Jobs.

use serde_json::{Value, json};

use super::super::wire::PodSpec;
use crate::api::names;
use crate::engine::types::Name;

/// The scheduling gates of a pod, by name.
pub fn of(spec: &PodSpec) -> Vec<Name> {
    spec.scheduling_gates.iter().flatten().map(|gate| gate.name.as_str().into()).collect()
}

/// Whether the gate is among them.
pub fn has(gates: &[Name], name: &str) -> bool {
    gates.iter().any(|gate| &**gate == name)
}

/// Whether Sluice holds a pod without a Job by them. A pod that loses its Job before it has a node keeps the gate of its
/// placement, and no Job is left by which that would be removed.
pub fn hold(gates: &[Name]) -> bool {
    gates.iter().any(is_own)
}

/// The field `schedulingGates` without those of Sluice.
pub fn others(gates: &[Name]) -> Vec<Value> {
    gates.iter().filter(|gate| !is_own(gate)).map(|gate| json!({"name": &**gate})).collect()
}

fn is_own(gate: &Name) -> bool {
    [names::GATE_ADMISSION, names::GATE_PLACEMENT].contains(&&**gate)
}

/// The field `schedulingGates` with all of them.
pub fn written(gates: &[Name]) -> Vec<Value> {
    without(gates, "")
}

/// The field `schedulingGates` without the gate of that name.
pub fn without(gates: &[Name], name: &str) -> Vec<Value> {
    gates.iter().filter(|gate| &***gate != name).map(|gate| json!({"name": &**gate})).collect()
}
