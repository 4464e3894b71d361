//! The policy that holds new objects of a kind.

use serde_json::{Value, json};

use super::cel::{Effect, bound, not_sluice, of_operator, optional, path, rule};
use crate::api::names;
use crate::kinds::{Kind, Kinds, Pointer};

/// The policy that suspends and marks new objects.
pub fn hold(kinds: &Kinds, kind: &Kind) -> [Value; 2] {
    let suspended = optional("object", &kind.suspend);
    // The first missing parent is written together with the fields below it.
    let tokens = kind.suspend.tokens();
    let mut set = format!("JSONPatch{{op: \"add\", path: \"{}\", value: true}}", kind.suspend);
    for depth in (1..tokens.len()).rev() {
        let parent = tokens[..depth].iter().fold(Pointer::default(), |at, token| at.under(token.as_str()));
        let below = tokens[depth..]
            .iter()
            .rev()
            .fold("true".to_owned(), |value, token| format!("{{\"{token}\": {value}}}"));
        let make = format!("JSONPatch{{op: \"add\", path: \"{parent}\", value: {below}}}");
        set = format!("(has({}) ? {set} : {make})", path("object", &parent));
    }
    let notes = format!("{{\"{}\": \"true\", \"{}\": request.userInfo.username}}", names::HELD, names::USER);
    let note = |key: &str, value: &str| {
        let escaped = key.replace('/', "~1");
        format!("JSONPatch{{op: \"add\", path: \"/metadata/annotations/{escaped}\", value: {value}}}")
    };
    let (held, user) = (note(names::HELD, "\"true\""), note(names::USER, "request.userInfo.username"));
    let expression = format!(
        "[{set}] + (has(object.metadata.annotations) ? [{held}, {user}] : \
         [JSONPatch{{op: \"add\", path: \"/metadata/annotations\", value: {notes}}}])"
    );
    let spec = json!({
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [rule(&kind.api_version, &kind.plural, &["CREATE"])]},
        "matchConditions": [
            not_sluice(),
            {"name": "not-suspended", "expression": format!("!{suspended}.orValue(false)")},
            {"name": "not-of-operator", "expression": format!("!({})", of_operator(kinds, "object"))},
        ],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
    });
    let name = format!("sluice-hold-{}.{}", kind.plural, kind.group());
    bound(Effect::Mutate, &name, &spec)
}
