//! Scheduling gates of pods and of the pod templates of Jobs.

use serde_json::{Value, json};

use super::super::wire::PodSpec;
use crate::engine::types::Name;

/// The scheduling gates of a pod, by name.
pub fn of(spec: &PodSpec) -> Vec<Name> {
    spec.scheduling_gates.iter().flatten().map(|gate| gate.name.as_str().into()).collect()
}

/// Whether the gate is among them.
pub fn has(gates: &[Name], name: &str) -> bool {
    gates.iter().any(|gate| &**gate == name)
}

/// The field `schedulingGates` with all of them.
pub fn written(gates: &[Name]) -> Vec<Value> {
    without(gates, "")
}

/// The field `schedulingGates` without the gate of that name.
pub fn without(gates: &[Name], name: &str) -> Vec<Value> {
    gates.iter().filter(|gate| &***gate != name).map(|gate| json!({"name": &**gate})).collect()
}
