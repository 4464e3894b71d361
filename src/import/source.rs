//! The objects to import, as manifests or as a cluster has them.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::note::{ImportError, Notes};

/// An object to import.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its API group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace; empty for cluster-scoped kinds, and `default` where a manifest names none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The whole object.
    pub value: Value,
}

impl Source {
    /// The object for notes: `ClusterQueue a` or `LocalQueue team/a`.
    #[must_use]
    pub fn label(&self) -> String {
        match self.namespace.as_str() {
            "" => format!("{} {}", self.kind, self.name),
            namespace => format!("{} {namespace}/{}", self.kind, self.name),
        }
    }

    /// The labels.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.value["metadata"]["labels"].as_object().into_iter().flatten();
        labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    /// The part of the object below a field as a type. Fields that the type does not have are noted as lost.
    ///
    /// # Errors
    /// When the part does not have the form of the type.
    pub fn part<T: DeserializeOwned + Default>(
        &self,
        field: &str,
        notes: &mut Notes,
    ) -> Result<T, ImportError> {
        let Some(part) = self.value.get(field).filter(|part| !part.is_null()) else {
            return Ok(T::default());
        };
        let label = self.label();
        let mut unknown = Vec::new();
        let mut track = serde_path_to_error::Track::new();
        let reader = serde_path_to_error::Deserializer::new(part, &mut track);
        let read = serde_ignored::deserialize(reader, |path| unknown.push(path.to_string()));
        let read = read.map_err(|error: serde_json::Error| {
            ImportError::new(&label, format!("{field}.{}", track.path()), error.to_string())
        })?;
        for path in unknown {
            let path = path.replace(".?", "");
            notes.lost(&label, &format!("{field}.{path}"), "not known to this version of Sluice");
        }
        Ok(read)
    }
}

/// The objects of YAML or JSON texts, each with its file name. Lists are taken apart.
///
/// # Errors
/// When a text is not YAML, or a document is no object.
pub fn read<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<Source>, ImportError> {
    let mut found = Vec::new();
    for (file, text) in files {
        let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
            let error = error.to_string();
            ImportError::new(file, "YAML", error.lines().next().unwrap_or_default())
        })?;
        for (index, document) in documents.into_iter().filter(|document| !document.is_null()).enumerate() {
            let place = format!("{file}: document {}", index + 1);
            let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
            match document["items"].as_array() {
                Some(items) if is_list => {
                    for item in items {
                        found.push(source(item.clone(), &place)?);
                    }
                }
                _ => found.push(source(document, &place)?),
            }
        }
    }
    Ok(found)
}

/// One object.
///
/// # Errors
/// When it has no kind or no name. `place` names it then.
pub fn source(value: Value, place: &str) -> Result<Source, ImportError> {
    let text = |value: &Value, field: &str| {
        let found = value.as_str().filter(|text| !text.is_empty()).map(ToOwned::to_owned);
        found.ok_or_else(|| ImportError::new(place, field, "is missing or is no text"))
    };
    let version = text(&value["apiVersion"], "apiVersion")?;
    let kind = text(&value["kind"], "kind")?;
    let name = match &value["metadata"]["name"] {
        Value::Null if value["metadata"]["generateName"].is_string() => {
            text(&value["metadata"]["generateName"], "metadata.generateName")?
        }
        name => text(name, "metadata.name")?,
    };
    let given = value["metadata"]["namespace"].as_str().unwrap_or_default();
    let namespace = match (NAMESPACED.contains(&kind.as_str()), given) {
        (true, "") => "default".to_owned(),
        (_, given) => given.to_owned(),
    };
    let group = version.split_once('/').map_or("", |(group, _)| group).to_owned();
    Ok(Source { group, kind, namespace, name, value })
}

/// The namespaced kinds among those that are read.
const NAMESPACED: [&str; 4] = ["LocalQueue", "Job", "Pod", "ResourceQuota"];
