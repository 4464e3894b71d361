//! The page of what programs read: the documents of the commands and the answers to Questions, from their schemas.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::markdown::{code, codes, head, sentence, table};
use crate::view::answers::{API_VERSION, Kind, of_questions, schemas};

const INTRODUCTION: &str = "\
What programs read from Sluice. [answers.schema.json](answers.schema.json) is the JSON Schema of the documents, which
`sluice schema` prints too. Fields may be added within a version; none goes, and none changes its meaning. Times are
RFC 3339; amounts of resources are Kubernetes quantities; numbers of GPUs, pods and seconds are numbers.";

const QUESTIONS: &str = "\
A [Question](../operate/questions.md) comes back with the field `answer`:

| field | type | meaning |
|---|---|---|
| `version` | string | the same as long as the rows are the same; `spec.since` of the next question |
| `at` | time | when the answer was given |
| `total` | number | the number of all rows; not of `history` |
| `rows` | list | at most 1,000 rows and 512 KB of them |
| `gzip` | base64 | instead of `rows`, with `spec.encoding: Gzip`: a JSON list of at most 1,000 rows, compressed, at most 512 KB |
| `cursor` | string | present if there are more rows; `spec.cursor` of the next question |
| `cursors` | list | in a first page with `spec.encoding: Gzip` and without `spec.limit`: where the pages after the next one begin, as long as each has 1,000 rows and the rows stay the same, at most 512 of them, besides the 512 KB. So several can be asked for at once; a page follows on another if it was asked for with its `cursor` |
| `caller` | string | of `queue`: the user that asked, as rows name it in `user` |
| `note` | string | present without rows where Sluice does not manage the namespace, or where the team, queue or pool asked about does not exist |
| `unchanged` | boolean | true, and all but `version` and `at` missing, if the rows are still those of `spec.since` |
";

/// The schemas as a file.
///
/// # Errors
/// When they cannot be written as JSON.
pub fn schema() -> serde_json::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(&schemas())?))
}

/// The page.
pub fn page() -> String {
    let mut types = BTreeMap::new();
    let mut page = head("Documents and answers", INTRODUCTION);
    page += &format!(
        "\n## Documents of commands\n\nEvery document has `apiVersion: {API_VERSION}` and a `kind`.\n\n"
    );
    let documents = Kind::ALL.map(|kind| {
        let schema = kind.schema();
        collect(&schema, &mut types);
        let fields = if kind.is_list() {
            format!("`items`: list of {}", link(&schema["properties"]["items"]["items"]))
        } else {
            let fields = schema["properties"].as_object().into_iter().flatten();
            let fields = fields.filter(|(name, _)| !["apiVersion", "kind"].contains(&name.as_str()));
            fields
                .map(|(name, field)| format!("{}: {}", code(name), type_of(field)))
                .collect::<Vec<_>>()
                .join("; ")
        };
        [code(kind.name()), codes(kind.commands().iter().copied()), fields]
    });
    page += &table(["kind", "command", "fields"], documents);
    page += &format!("\n## Answers to Questions\n\n{QUESTIONS}\n");
    let questions = of_questions().map(|(question, schema)| {
        collect(&schema, &mut types);
        let name = schema["title"].as_str().unwrap_or_default().to_owned();
        types.insert(name.clone(), schema);
        [codes(question.split(", ")), format!("[{name}](#{})", name.to_lowercase())]
    });
    page += &table(["question", "rows"], questions);
    for (name, schema) in &types {
        page += &section(name, schema);
    }
    page
}

/// Adds the types that a schema defines.
fn collect(schema: &Value, types: &mut BTreeMap<String, Value>) {
    for (name, definition) in schema["$defs"].as_object().into_iter().flatten() {
        types.insert(name.clone(), definition.clone());
    }
}

fn section(name: &str, schema: &Value) -> String {
    let about = sentence(schema["description"].as_str().unwrap_or_default());
    let mut text = format!("\n### {name}\n\n{about}\n\n");
    let empty = Vec::new();
    let variants = schema["oneOf"].as_array().unwrap_or(&empty);
    if variants.is_empty() {
        return text + &table(["field", "type", "meaning"], fields(schema));
    }
    let rows = variants.iter().map(|variant| {
        let about = variant["properties"]["about"]["const"].as_str().unwrap_or_default();
        let fields = match variant["$ref"].as_str() {
            Some(_) => format!("those of {}", link(variant)),
            None => {
                let fields =
                    variant["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str());
                codes(fields.filter(|name| *name != "about"))
            }
        };
        [code(about), fields, sentence(variant["description"].as_str().unwrap_or_default())]
    });
    text += &table(["`about`", "fields besides", "meaning"], rows);
    text
}

fn fields(schema: &Value) -> Vec<[String; 3]> {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    let required = schema["required"].as_array();
    let row = |(name, field): (&String, &Value)| {
        let optional = !required.is_some_and(|required| required.iter().any(|one| one == name));
        let of = if optional { format!("{}, or absent", type_of(field)) } else { type_of(field) };
        [code(name), of, sentence(field["description"].as_str().unwrap_or_default())]
    };
    properties.iter().map(row).collect()
}

/// The type of a field in words.
fn type_of(field: &Value) -> String {
    if field["$ref"].is_string() {
        return link(field);
    }
    if let Some(parts) = field["anyOf"].as_array() {
        let part = parts.iter().find(|part| part["type"] != "null");
        return part.map(type_of).unwrap_or_default();
    }
    let named = match &field["type"] {
        Value::String(name) => name.as_str(),
        Value::Array(names) => {
            names.iter().filter_map(Value::as_str).find(|name| *name != "null").unwrap_or_default()
        }
        _ => "",
    };
    match named {
        "array" => format!("list of {}", type_of(&field["items"])),
        "object" if field["additionalProperties"].is_object() => {
            format!("map of {}", type_of(&field["additionalProperties"]))
        }
        "string" if field["format"] == "date-time" => "time".to_owned(),
        "integer" => "number".to_owned(),
        named => named.to_owned(),
    }
}

/// A link to the type that a schema refers to.
fn link(schema: &Value) -> String {
    let name = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next());
    name.map(|name| format!("[{name}](#{})", name.to_lowercase())).unwrap_or_else(|| "object".to_owned())
}
