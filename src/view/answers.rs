//! The documents that commands print with `--output json` or `yaml`: each has a version and a kind, and a schema.

use jiff::Timestamp;
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::accounts::{HistoryRow, ReportRow};
use super::{Count, NodeRow, Teams, TeamsRow, WhatIfRow, WorkloadRow};

/// The version of the documents. Fields may be added within a version; none goes, and none changes its meaning.
pub const API_VERSION: &str = "sluice.dev/cli/v1";

/// A document: rows as `items`, or the fields of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of `sluice queue` and `sluice explain`.
    WorkloadList,
    /// Of `sluice queue --by`.
    GroupList,
    /// Of `sluice teams`.
    Teams,
    /// Of `sluice nodes`.
    NodeList,
    /// Of `sluice what-if`.
    WhatIfList,
    /// Of `sluice history`.
    HistoryList,
    /// Of `sluice report`.
    ReportList,
    /// Of the commands that act.
    ActionList,
    /// Of `sluice version`.
    Version,
}

/// Workloads with something in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupRow {
    /// What they have in common: their user, team, queue or state, or the beginning of their names.
    pub name: String,
    /// Number of workloads that wait.
    pub pending: usize,
    /// Number of workloads that run.
    pub running: usize,
    /// Number of workloads that are on hold.
    pub held: usize,
    /// Number of workloads in other states.
    pub other: usize,
    /// The GPUs of those that wait.
    pub gpus_pending: Count,
    /// The GPUs of those that run.
    pub gpus_running: Count,
    /// The expected start of the first that starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<Timestamp>,
}

/// What a command has done to one workload or queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActionRow {
    /// The command, such as `hold`.
    pub action: String,
    /// Whether it had something to do and has done it.
    pub done: bool,
    /// The kind of the object; `Queue` for a queue of a team.
    pub kind: String,
    /// The namespace of a workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The team of a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// The name of the object.
    pub name: String,
    /// What that means, in words.
    pub message: String,
}

/// The version of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The version of this command.
    pub command: String,
    /// The commit that this command was built from, if it is of a release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::WorkloadList,
        Self::GroupList,
        Self::Teams,
        Self::NodeList,
        Self::WhatIfList,
        Self::HistoryList,
        Self::ReportList,
        Self::ActionList,
        Self::Version,
    ];

    /// Its name in documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WorkloadList => "WorkloadList",
            Self::GroupList => "GroupList",
            Self::Teams => "Teams",
            Self::NodeList => "NodeList",
            Self::WhatIfList => "WhatIfList",
            Self::HistoryList => "HistoryList",
            Self::ReportList => "ReportList",
            Self::ActionList => "ActionList",
            Self::Version => "Version",
        }
    }

    /// The commands that print it.
    #[must_use]
    pub fn commands(self) -> &'static [&'static str] {
        match self {
            Self::WorkloadList => &["sluice queue", "sluice explain"],
            Self::GroupList => &["sluice queue --by"],
            Self::Teams => &["sluice teams"],
            Self::NodeList => &["sluice nodes"],
            Self::WhatIfList => &["sluice what-if"],
            Self::HistoryList => &["sluice history"],
            Self::ReportList => &["sluice report"],
            Self::ActionList => &[
                "sluice hold",
                "sluice release",
                "sluice top",
                "sluice order",
                "sluice requeue",
                "sluice cancel",
                "sluice wait",
                "sluice pause",
                "sluice resume",
            ],
            Self::Version => &["sluice version"],
        }
    }

    /// Whether its document is a list of rows.
    #[must_use]
    pub fn is_list(self) -> bool {
        !matches!(self, Self::Teams | Self::Version)
    }

    /// The document of these rows, or of this object.
    ///
    /// # Errors
    /// When the answer cannot be written as JSON.
    pub fn document(self, answer: &impl Serialize) -> serde_json::Result<Value> {
        let mut document = Map::new();
        document.insert("apiVersion".to_owned(), API_VERSION.into());
        document.insert("kind".to_owned(), self.name().into());
        match serde_json::to_value(answer)? {
            Value::Object(fields) if !self.is_list() => document.extend(fields),
            rows => drop(document.insert("items".to_owned(), rows)),
        }
        Ok(document.into())
    }

    /// The schema of its document.
    #[must_use]
    pub fn schema(self) -> Value {
        let mut generator = generator();
        let mut schema = match self {
            Self::WorkloadList => list::<WorkloadRow>(&mut generator),
            Self::GroupList => list::<GroupRow>(&mut generator),
            Self::NodeList => list::<NodeRow>(&mut generator),
            Self::WhatIfList => list::<WhatIfRow>(&mut generator),
            Self::HistoryList => list::<HistoryRow>(&mut generator),
            Self::ReportList => list::<ReportRow>(&mut generator),
            Self::ActionList => list::<ActionRow>(&mut generator),
            Self::Teams => generator.root_schema_for::<Teams>().to_value(),
            Self::Version => generator.root_schema_for::<Version>().to_value(),
        };
        schema["$schema"] = DRAFT.into();
        schema["title"] = self.name().into();
        schema["properties"]["apiVersion"] = json!({"const": API_VERSION});
        schema["properties"]["kind"] = json!({"const": self.name()});
        if let Some(required) = schema["required"].as_array_mut() {
            required.extend(["apiVersion".into(), "kind".into()]);
        }
        let definitions = generator.take_definitions(true);
        if !definitions.is_empty() {
            schema["$defs"] = definitions.into();
        }
        schema
    }
}

/// The draft that the schemas are written in.
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().for_serialize().into_generator()
}

fn list<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    let rows = generator.subschema_for::<T>();
    json!({"type": "object", "properties": {"items": {"type": "array", "items": rows}}, "required": ["items"]})
}

/// The schemas of all kinds in one document.
#[must_use]
pub fn schemas() -> Value {
    let mut definitions = Map::new();
    for kind in Kind::ALL {
        let mut schema = kind.schema();
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("$schema");
            let inner = fields.remove("$defs");
            let inner = inner.as_ref().and_then(Value::as_object).cloned().unwrap_or_default();
            definitions.extend(inner);
        }
        definitions.insert(kind.name().to_owned(), schema);
    }
    let any: Vec<Value> =
        Kind::ALL.iter().map(|kind| json!({"$ref": format!("#/$defs/{}", kind.name())})).collect();
    json!({"$schema": DRAFT, "title": "Documents of sluice", "oneOf": any, "$defs": definitions})
}

/// The schemas of the rows of answers to Questions, by the field of `spec` that asks for them.
#[must_use]
pub fn of_questions() -> [(&'static str, Value); 6] {
    fn rows<T: JsonSchema>() -> Value {
        generator().into_root_schema_for::<T>().to_value()
    }
    [
        ("queue, explain", rows::<WorkloadRow>()),
        ("teams", rows::<TeamsRow>()),
        ("nodes", rows::<NodeRow>()),
        ("history", rows::<HistoryRow>()),
        ("report", rows::<ReportRow>()),
        ("whatIf", rows::<WhatIfRow>()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_holds_documents_to_their_kind() {
        for kind in Kind::ALL {
            let schema = jsonschema::validator_for(&kind.schema()).expect("a schema");
            let empty = if kind.is_list() { json!([]) } else { json!({}) };
            let mut document = kind.document(&empty).expect("JSON");
            if kind == Kind::Teams {
                document = kind.document(&Teams::default()).expect("JSON");
            }
            if kind == Kind::Version {
                document = kind.document(&Version { command: "1".to_owned(), commit: None }).expect("JSON");
            }
            assert!(schema.is_valid(&document), "{document}");
            document["kind"] = "Other".into();
            assert!(!schema.is_valid(&document), "{document}");
        }
        let wrong = json!([{"name": "x"}]);
        let document = Kind::WorkloadList.document(&wrong).expect("JSON");
        let schema = jsonschema::validator_for(&Kind::WorkloadList.schema()).expect("a schema");
        assert!(!schema.is_valid(&document), "a row without its fields");
    }
}
