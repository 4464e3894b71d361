//! The schemas of Sluice's own kinds, checked as an API server with their CustomResourceDefinitions does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use cel::{Context, Env, Program, Value as CelValue};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool, ValidationRule,
};
use kube::CustomResourceExt;
use serde::Serialize;
use serde_json::Value;

use crate::api::node_pool::NodePool;
use crate::api::team::Team;
use crate::scenario::{Kind, Object, ScenarioError};

/// The expression for the pattern of a schema.
const MATCHES: &str = "text.matches(pattern)";

/// A field and its problem.
type Fault = (String, String);

/// The schemas by kind, with the rules in them.
pub struct Schemas {
    kinds: BTreeMap<Kind, JSONSchemaProps>,
    rules: BTreeMap<String, Program>,
    /// The language of the rules, which takes longer to make than a rule to evaluate.
    language: Arc<Env>,
}

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schemas").field("rules", &self.rules.keys()).finish_non_exhaustive()
    }
}

impl Default for Schemas {
    fn default() -> Self {
        let kinds = [(Kind::Team, Team::crd()), (Kind::NodePool, NodePool::crd())];
        let kinds = kinds.map(|(kind, definition)| (kind, schema(definition).unwrap_or_default()));
        let mut schemas =
            Self { kinds: kinds.into(), rules: BTreeMap::new(), language: Arc::new(Env::stdlib()) };
        let mut found = BTreeSet::new();
        schemas.kinds.values().for_each(|schema| rules(schema, &mut found));
        found.insert(MATCHES.to_owned());
        let read = |rule: String| Program::compile(&rule).ok().map(|program| (rule, program));
        schemas.rules = found.into_iter().filter_map(read).collect();
        schemas
    }
}

impl Schemas {
    /// Checks an object that was read as `typed`, which has the defaults of the schema.
    ///
    /// # Errors
    /// The first field that the schema does not allow.
    pub fn check(&self, object: &Object, typed: &impl Serialize) -> Result<(), ScenarioError> {
        let Some(schema) = self.kinds.get(&object.kind) else { return Ok(()) };
        let fault = |(field, problem): Fault| object.invalid(&field, problem);
        if let Some(spec) = schema.properties.as_ref().and_then(|fields| fields.get("spec")) {
            self.form(spec, &object.manifest["spec"], "spec").map_err(fault)?;
        }
        let typed = serde_json::to_value(typed).unwrap_or_default();
        self.rules(schema, &typed, "").map_err(fault)
    }

    /// Checks the rules of a value and of what is in it.
    fn rules(&self, schema: &JSONSchemaProps, value: &Value, path: &str) -> Result<(), Fault> {
        for rule in schema.x_kubernetes_validations.iter().flatten() {
            self.rule(rule, value, path)?;
        }
        each(schema, value, path, &mut |schema, value, path| self.rules(schema, value, path))
    }

    /// Checks one rule.
    fn rule(&self, rule: &ValidationRule, value: &Value, path: &str) -> Result<(), Fault> {
        if self.holds(&rule.rule, value).unwrap_or(true) {
            return Ok(());
        }
        let field = format!("{path}{}", rule.field_path.as_deref().unwrap_or_default());
        let field = field.trim_start_matches('.');
        let field = if field.is_empty() { "metadata.name" } else { field };
        Err((field.to_owned(), rule.message.clone().unwrap_or_else(|| rule.rule.clone())))
    }

    /// Whether a rule holds for a value. Rules about quantities and durations need more than the standard language; the conversions check
    /// the same, so such a rule has no answer here.
    fn holds(&self, rule: &str, value: &Value) -> Option<bool> {
        self.answer(self.rules.get(rule)?, &[("self", value)])
    }

    /// Checks the form of a value and of what is in it.
    fn form(&self, schema: &JSONSchemaProps, value: &Value, path: &str) -> Result<(), Fault> {
        let wrong = |problem: String| Err((path.to_owned(), problem));
        if let Some(problem) = schema.type_.as_deref().and_then(|expected| unlike(expected, value)) {
            return wrong(problem);
        }
        if let Some(allowed) = &schema.enum_
            && !allowed.iter().any(|allowed| allowed.0 == *value)
        {
            let names = allowed.iter().map(|allowed| match allowed.0.as_str() {
                Some("") => "\"\"",
                Some(name) => name,
                None => "null",
            });
            return wrong(format!("{value} is none of {}", names.collect::<Vec<_>>().join(", ")));
        }
        let mut required = schema.required.iter().flatten().filter(|_| value.is_object());
        if let Some(field) = required.find(|field| value[*field].is_null()) {
            return Err((format!("{path}.{field}"), "is missing".to_owned()));
        }
        if let Some(number) = value.as_f64() {
            if let Some(least) = schema.minimum.filter(|least| number < *least) {
                return wrong(format!("must be at least {least}"));
            }
            if let Some(most) = schema.maximum.filter(|most| number > *most) {
                return wrong(format!("must be at most {most}"));
            }
        }
        let (length, least, most, unit) = match value {
            Value::String(text) => {
                (text.chars().count(), schema.min_length, schema.max_length, ["character", "characters"])
            }
            Value::Array(list) => (list.len(), schema.min_items, schema.max_items, ["entry", "entries"]),
            Value::Object(map) => {
                (map.len(), schema.min_properties, schema.max_properties, ["entry", "entries"])
            }
            _ => (0, None, None, [""; 2]),
        };
        let many = |number: i64| format!("{number} {}", unit[usize::from(number != 1)]);
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        if let Some(least) = least.filter(|least| length < *least) {
            return wrong(format!("must have at least {}", many(least)));
        }
        if let Some(most) = most.filter(|most| length > *most) {
            return wrong(format!("must have at most {}", many(most)));
        }
        if let (Some(pattern), Some(text)) = (&schema.pattern, value.as_str())
            && !self.matches(pattern, text)
        {
            return wrong(format!("{text:?} must match {pattern}"));
        }
        if schema.x_kubernetes_list_type.as_deref() == Some("set") {
            let mut seen = Vec::new();
            for entry in value.as_array().into_iter().flatten() {
                if seen.contains(&entry) {
                    return wrong(format!("{entry} is listed twice"));
                }
                seen.push(entry);
            }
        }
        each(schema, value, path, &mut |schema, value, path| self.form(schema, value, path))
    }

    /// Whether a text matches a pattern. CEL has the same regular expressions as schemas.
    fn matches(&self, pattern: &str, text: &str) -> bool {
        let [text, pattern] = [text, pattern].map(Value::from);
        let answer = self.rules.get(MATCHES);
        let answer =
            answer.and_then(|program| self.answer(program, &[("text", &text), ("pattern", &pattern)]));
        answer.unwrap_or(true)
    }

    /// What an expression says, if it can be evaluated.
    fn answer(&self, program: &Program, variables: &[(&str, &Value)]) -> Option<bool> {
        let mut context = Context::with_env(Arc::clone(&self.language));
        for (name, value) in variables {
            context.add_variable(*name, *value).ok()?;
        }
        match program.execute(&context) {
            Ok(CelValue::Bool(answer)) => Some(answer),
            _ => None,
        }
    }
}

/// The schema of a kind's only version.
fn schema(definition: CustomResourceDefinition) -> Option<JSONSchemaProps> {
    definition.spec.versions.into_iter().next()?.schema?.open_api_v3_schema
}

/// Adds every rule of a schema.
fn rules(schema: &JSONSchemaProps, found: &mut BTreeSet<String>) {
    found.extend(schema.x_kubernetes_validations.iter().flatten().map(|rule| rule.rule.clone()));
    schema.properties.iter().flatten().for_each(|(_, field)| rules(field, found));
    if let Some(JSONSchemaPropsOrArray::Schema(entry)) = &schema.items {
        rules(entry, found);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(entry)) = &schema.additional_properties {
        rules(entry, found);
    }
}

/// Goes through the values inside of one, with their schemas and paths. What is null counts as missing.
fn each(
    schema: &JSONSchemaProps,
    value: &Value,
    path: &str,
    visit: &mut impl FnMut(&JSONSchemaProps, &Value, &str) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let inside = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    for (name, field) in schema.properties.iter().flatten() {
        if let Some(value) = value.get(name).filter(|value| !value.is_null()) {
            visit(field, value, &inside(name))?;
        }
    }
    if let (Some(JSONSchemaPropsOrArray::Schema(entry)), Value::Array(values)) = (&schema.items, value) {
        for (index, value) in values.iter().enumerate() {
            visit(entry, value, &format!("{path}[{index}]"))?;
        }
    }
    if let (Some(JSONSchemaPropsOrBool::Schema(entry)), Value::Object(values)) =
        (&schema.additional_properties, value)
    {
        for (key, value) in values {
            visit(entry, value, &format!("{path}[{key}]"))?;
        }
    }
    Ok(())
}

/// What a value is instead of the type in a schema.
fn unlike(form: &str, value: &Value) -> Option<String> {
    let (is, expected) = match form {
        "object" => (value.is_object(), "a map"),
        "array" => (value.is_array(), "a list"),
        "string" => (value.is_string(), "a text"),
        "boolean" => (value.is_boolean(), "true or false"),
        "integer" => (value.is_i64() || value.is_u64(), "a whole number"),
        "number" => (value.is_number(), "a number"),
        _ => return None,
    };
    let found = match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        other => other.to_string(),
    };
    (!is).then(|| format!("expected {expected}, not {found}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::scenario::Scenario;

    /// What the schema says of a Team of this spec.
    fn said(spec: &str) -> Option<String> {
        let text =
            format!("apiVersion: sluice.dev/v1alpha1\nkind: Team\nmetadata: {{name: a}}\nspec: {spec}\n");
        let scenario = Scenario::parse([("s.yaml", text.as_str())]).expect("a scenario");
        let object = scenario.objects().next().expect("one object");
        let team: Team = object.decode().expect("it can be read");
        let error = Schemas::default().check(object, &team).err()?.to_string();
        Some(error.strip_prefix("s.yaml: document 1 (Team a): ").unwrap_or(&error).to_owned())
    }

    #[test]
    fn what_the_definition_of_a_team_refuses_is_refused() {
        let hook = "{transitions: [Started], url: 'https://example.com/x'}";
        for (spec, problem) in [
            ("{}", None),
            ("{weight: 1000000}", None),
            (&format!("{{notify: [{hook}]}}"), None),
            ("{queues: [{name: work, maxWait: 1h, onMaxWait: Fail, paused: ''}]}", None),
            ("{quotas: [{guaranteed: {cpu: 1}, limit: {cpu: '2'}}]}", None),
            (
                "{notify: [{transitions: [WaitingTooLong], waitingLongerThan: 1h, secretRef: x, form: Slack}]}",
                None,
            ),
            ("[]", Some("spec: expected a map, not a list")),
            ("{quotas: [[]]}", Some("spec.quotas[0]: expected a map, not a list")),
            ("{weight: 2000000}", Some("spec.weight: must be at most 1000000")),
            ("{weight: -1}", Some("spec.weight: must be at least 0")),
            (
                "{notify: [{transitions: [Started]}]}",
                Some("spec.notify[0]: an endpoint needs url or secretRef"),
            ),
            (
                "{notify: [{transitions: [], secretRef: x}]}",
                Some("spec.notify[0].transitions: must have at least 1 entry"),
            ),
            (
                "{notify: [{transitions: [Started, Started], secretRef: x}]}",
                Some("spec.notify[0].transitions: \"Started\" is listed twice"),
            ),
            (
                "{notify: [{transitions: [WaitingTooLong], secretRef: x}]}",
                Some("spec.notify[0]: WaitingTooLong needs waitingLongerThan, and nothing else does"),
            ),
            (
                "{queues: [{name: work, onMaxWait: Fail}]}",
                Some("spec.queues[0].onMaxWait: onMaxWait needs maxWait, which is not set"),
            ),
            ("{parent: a}", Some("spec.parent: a team cannot be its own parent")),
        ] {
            assert_eq!(said(spec).as_deref(), problem, "{spec}");
        }
        let http = said("{notify: [{transitions: [Started], url: 'http://x'}]}").unwrap_or_default();
        assert!(http.starts_with("spec.notify[0].url: \"http://x\" must match ^https://"), "{http}");
    }

    /// Adds the rules that have no answer for a value and for what is in it; returns how many have one.
    fn unanswered(
        schemas: &Schemas,
        schema: &JSONSchemaProps,
        value: &Value,
        found: &mut Vec<String>,
    ) -> usize {
        let mut answered = 0;
        for rule in schema.x_kubernetes_validations.iter().flatten() {
            match schemas.holds(&rule.rule, value) {
                Some(holds) => {
                    assert!(holds, "{}", rule.rule);
                    answered += 1;
                }
                None => found.push(rule.rule.clone()),
            }
        }
        let all = each(schema, value, "", &mut |schema, value, _| {
            answered += unanswered(schemas, schema, value, found);
            Ok(())
        });
        assert_eq!(all, Ok(()));
        answered
    }

    #[test]
    fn only_rules_about_quantities_and_durations_are_left_to_the_conversions() {
        let schemas = Schemas::default();
        let amounts = json!({"cpu": 1});
        let team = json!({"metadata": {"name": "a"}, "spec": {
            "parent": "b", "budget": {"amount": "1"},
            "quotas": [{"guaranteed": amounts, "limit": amounts, "lendable": amounts}],
            "queues": [{"name": "x", "limit": amounts, "onMaxWait": "Fail", "maxWait": "1h", "readyTimeout": "1m"}],
            "notify": [{"url": "https://x", "form": "CloudEvents", "transitions": ["Started"]}],
        }});
        let pool = json!({"metadata": {"name": "p"}, "spec": {
            "nodeSelector": {"a": "b"}, "topology": ["zone"], "weights": amounts, "shares": {"cpu": "0.5"}, "prices": {"cpu": "1"},
        }});
        for (kind, object) in [(Kind::Team, team), (Kind::NodePool, pool)] {
            let mut left = Vec::new();
            assert!(unanswered(&schemas, &schemas.kinds[&kind], &object, &mut left) >= 6, "{left:?}");
            for rule in left {
                assert!(rule.contains("quantity(") || rule.contains("duration("), "{rule}");
            }
        }
    }
}
