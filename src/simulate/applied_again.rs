//! What `kubectl apply` removes when an object is applied again.

use serde_json::{Map, Value};

/// The list of scheduling gates. Sluice adds its own, so the list of a user is not all of it.
const GATES: &str = "schedulingGates";

/// Removes from a stored object what the manifest applied last has and the one applied now has not. What others have written
/// stays, such as marks of Sluice. Lists are removed as a whole.
pub fn remove_left_out(stored: &mut Value, last: &Value, now: &Value) {
    if let (Value::Object(stored), Value::Object(last), Value::Object(now)) = (stored, last, now) {
        remove_from(stored, last, now);
    }
}

fn remove_from(stored: &mut Map<String, Value>, last: &Map<String, Value>, now: &Map<String, Value>) {
    for (key, before) in last {
        let Some(there) = stored.get_mut(key) else { continue };
        let is_left_out = match (there, before, now.get(key)) {
            (Value::Object(there), Value::Object(before), Some(Value::Object(now))) => {
                remove_from(there, before, now);
                false
            }
            (Value::Object(there), Value::Object(before), None) => {
                remove_from(there, before, &Map::new());
                there.is_empty()
            }
            (_, _, now) => now.is_none() && key != GATES,
        };
        if is_left_out {
            stored.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_last_manifest_had_is_removed() {
        let last = json!({
            "metadata": {"labels": {"a": "1"}, "annotations": {"hold": "true", "order": "5"}},
            "spec": {"parallelism": 4, "template": {"spec": {
                "nodeSelector": {"zone": "x"}, "tolerations": [{"key": "gpu"}], "schedulingGates": [{"name": "own"}],
            }}},
        });
        let mut stored = json!({
            "metadata": {"labels": {"a": "1", "team": "t"}, "annotations": {"hold": "true", "order": "5", "held": "true"}},
            "spec": {"parallelism": 4, "suspend": true, "template": {"spec": {
                "nodeSelector": {"zone": "x"}, "tolerations": [{"key": "gpu"}],
                "schedulingGates": [{"name": "own"}, {"name": "sluice"}], "priority": 0,
            }}},
        });
        let now = json!({"metadata": {"annotations": {"order": "6"}}, "spec": {"template": {"spec": {}}}});
        remove_left_out(&mut stored, &last, &now);
        let expected = json!({
            "metadata": {"labels": {"team": "t"}, "annotations": {"order": "5", "held": "true"}},
            "spec": {"suspend": true, "template": {"spec": {
                "schedulingGates": [{"name": "own"}, {"name": "sluice"}], "priority": 0,
            }}},
        });
        assert_eq!(stored, expected);
    }
}
