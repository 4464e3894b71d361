//! Node affinity as JSON: the nodes of an admission, combined with the user's own affinity.

use serde_json::{Value, json};

/// The JSON pointer to the required terms of an affinity.
pub const REQUIRED_TERMS: &str =
    "/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// The node field with the name.
const NODE_NAME: &str = "metadata.name";

/// The user's affinity, narrowed to `nodes`.
///
/// Terms are ORed, so every term is narrowed; any other term would allow more nodes. A field requirement takes one
/// value, so each term is repeated for each node. A term without requirements matches no node. Narrowed it would match
/// one, so it stays unchanged.
#[must_use]
pub fn pinned(user: Option<&Value>, nodes: &[&str]) -> Value {
    let anything = [json!({})];
    let mut affinity = user.filter(|user| user.is_object()).cloned().unwrap_or_else(|| json!({}));
    let written = affinity.pointer(REQUIRED_TERMS).and_then(Value::as_array).cloned();
    let narrowed: Vec<Value> = match &written {
        None => anything.iter().flat_map(|term| nodes.iter().map(|node| with_node(term, node))).collect(),
        Some(terms) => terms
            .iter()
            .flat_map(|term| match is_empty(term) {
                true => vec![term.clone()],
                false => nodes.iter().map(|node| with_node(term, node)).collect(),
            })
            .collect(),
    };
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    if !affinity["nodeAffinity"].is_object() {
        affinity["nodeAffinity"] = json!({});
    }
    affinity["nodeAffinity"][required] = json!({"nodeSelectorTerms": narrowed});
    affinity
}

/// The only node that an affinity allows: the node that the last field requirement of every term names.
#[must_use]
pub fn aim(affinity: &Value) -> Option<&str> {
    let terms = affinity.pointer(REQUIRED_TERMS)?.as_array()?;
    let mut nodes = terms.iter().filter(|term| !is_empty(term)).map(named);
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

/// The node that the last field requirement of a term names.
fn named(term: &Value) -> Option<&str> {
    let last = term["matchFields"].as_array()?.last()?;
    let values = last["values"].as_array()?;
    let names_node = last["key"] == NODE_NAME && last["operator"] == "In";
    values.first().filter(|_| names_node && values.len() == 1)?.as_str()
}

fn is_empty(term: &Value) -> bool {
    ["matchExpressions", "matchFields"].iter().all(|key| term[key].as_array().is_none_or(Vec::is_empty))
}

fn with_node(term: &Value, node: &str) -> Value {
    let mut term = term.clone();
    let requirement = json!({"key": NODE_NAME, "operator": "In", "values": [node]});
    match term["matchFields"].as_array_mut() {
        Some(fields) => fields.push(requirement),
        None => term["matchFields"] = json!([requirement]),
    }
    term
}

#[cfg(test)]
mod tests {
    use super::*;

    fn required(terms: Value) -> Value {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    }

    #[test]
    fn the_aim_is_the_node_in_every_term() {
        let zone =
            |zone: &str| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
        for user in
            [None, Some(required(json!([zone("a"), {}, zone("b")]))), Some(json!({"podAffinity": {}}))]
        {
            assert_eq!(aim(&pinned(user.as_ref(), &["n1"])), Some("n1"));
            assert_eq!(aim(&pinned(user.as_ref(), &["n1", "n2"])), None);
            assert_eq!(user.as_ref().and_then(aim), None);
            let both = pinned(Some(&pinned(user.as_ref(), &["n1"])), &["n2"]);
            assert_eq!(aim(&both), Some("n2"), "the last requirement counts");
        }
    }
}
