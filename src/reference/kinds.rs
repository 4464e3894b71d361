//! The pages of the kinds Team and NodePool, read from their schemas.

use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::Value;

use super::markdown::{code, head, sentence, table};
use crate::api::node_pool::NodePool;
use crate::api::schema;
use crate::api::team::Team;

/// The page of the kind Team.
///
/// # Errors
/// When the schema cannot be read.
pub fn team() -> anyhow::Result<String> {
    page(&Team::crd())
}

/// The page of the kind NodePool.
///
/// # Errors
/// When the schema cannot be read.
pub fn node_pool() -> anyhow::Result<String> {
    page(&NodePool::crd())
}

fn page(definition: &CustomResourceDefinition) -> anyhow::Result<String> {
    let spec = &definition.spec;
    let version = spec.versions.first().context("a version")?;
    let validation = version.schema.as_ref().context("a schema")?;
    let schema = serde_json::to_value(&validation.open_api_v3_schema)?;
    let kind = &spec.names.kind;
    let introduction = format!(
        "{}\n\n`apiVersion: {}/{}`, `kind: {kind}`, cluster-scoped; `kubectl get {}`, short `{}`. `kubectl explain \
         {}` shows the same.",
        text(&schema["description"]),
        spec.group,
        version.name,
        spec.names.plural,
        spec.names.short_names.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", "),
        spec.names.singular.as_deref().unwrap_or_default(),
    );
    let mut page = head(kind, &introduction);
    let mut rules = rules(&schema, "");
    for (part, title) in [("spec", "Spec"), ("status", "Status (written by Sluice)")] {
        let mut fields = Fields::default();
        fields.read(&schema["properties"][part], part);
        let rows = fields.rows.into_iter();
        page += &format!("\n## {title}\n\n{}", table(["field", "type", "default", "description"], rows));
        rules.append(&mut fields.rules);
    }
    page += &format!("\n## Rules that the API server checks\n\n{}", table(["field", "rule"], rules));
    let columns = version.additional_printer_columns.iter().flatten();
    let columns = columns.map(|column| {
        let wide = if column.priority.unwrap_or_default() > 0 { " (`-o wide`)" } else { "" };
        let meaning = column.description.as_deref().map(sentence).unwrap_or_default();
        [format!("{}{wide}", column.name), code(&column.json_path), meaning]
    });
    page += &format!("\n## Columns of `kubectl get`\n\n{}", table(["column", "from", "meaning"], columns));
    Ok(page)
}

/// The rows of a part of the schema.
#[derive(Default)]
struct Fields {
    rows: Vec<[String; 4]>,
    rules: Vec<[String; 2]>,
}

impl Fields {
    /// Adds the fields below a path, each before the fields below it.
    fn read(&mut self, schema: &Value, path: &str) {
        self.rules.append(&mut rules(schema, path));
        let required = &schema["required"];
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let needed = required.as_array().is_some_and(|required| required.iter().any(|r| r == name));
            let path = format!("{path}.{name}");
            let default = match &field["default"] {
                Value::Null if needed => "required".to_owned(),
                Value::Null => String::new(),
                Value::String(text) => code(text),
                other => code(&other.to_string()),
            };
            self.rows.push([code(&path), type_of(field), default, text(&field["description"])]);
            if field["items"]["properties"].is_object() && !is_condition(&field["items"]) {
                self.read(&field["items"], &format!("{path}[]"));
            } else {
                self.read(field, &path);
            }
        }
    }
}

/// The messages of the rules on a part of the schema, with the field that each is about.
fn rules(schema: &Value, path: &str) -> Vec<[String; 2]> {
    let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
    let rules = rules.map(|rule| {
        let about = format!("{path}{}", rule["fieldPath"].as_str().unwrap_or_default());
        let about = if about.is_empty() { String::new() } else { code(about.trim_start_matches('.')) };
        [about, rule["message"].as_str().unwrap_or_default().to_owned()]
    });
    rules.collect()
}

/// Whether a schema is that of the conditions that all kinds of Kubernetes have.
fn is_condition(schema: &Value) -> bool {
    schema["properties"]["lastTransitionTime"].is_object()
}

fn text(value: &Value) -> String {
    sentence(value.as_str().unwrap_or_default())
}

/// The type of a field in words.
fn type_of(field: &Value) -> String {
    let several = |items: &Value| match items["properties"].as_object() {
        _ if is_condition(items) => "list of conditions".to_owned(),
        Some(_) => "list of objects".to_owned(),
        None => format!("list of {}s", type_of(items)),
    };
    let values = field["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let values: Vec<String> = values.map(code).collect();
    match field["type"].as_str() {
        _ if !values.is_empty() => values.join(", "),
        Some("array") => several(&field["items"]),
        Some("object") if field["additionalProperties"]["x-kubernetes-int-or-string"] == true => {
            "map of quantities".to_owned()
        }
        Some("object") if field["additionalProperties"].is_object() => "map of strings".to_owned(),
        Some("integer") => match (field["minimum"].as_f64(), field["maximum"].as_f64()) {
            (Some(least), Some(most)) => format!("integer, {least} to {most}"),
            _ => "integer".to_owned(),
        },
        Some("string") if is_duration(field) => "duration".to_owned(),
        Some(other) => other.to_owned(),
        None => String::new(),
    }
}

/// Whether a field has the schema of a duration.
fn is_duration(field: &Value) -> bool {
    let duration = schema::duration(&mut schemars::SchemaGenerator::default());
    duration.get("pattern").is_some_and(|pattern| *pattern == field["pattern"])
}
