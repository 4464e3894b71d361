//! The objects to import, as manifests or as a cluster has them.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::note::{ImportError, Notes};
use crate::yaml;

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
            let (below, problem) = yaml::fault(&track.path().to_string(), &error.to_string());
            let field = if below.is_empty() { field.to_owned() } else { format!("{field}.{below}") };
            ImportError::new(&label, field, problem)
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
        let documents = yaml::documents(text, yaml::Trust::Own).map_err(|problem| {
            let place = problem.place().unwrap_or_else(|| "YAML".to_owned());
            ImportError::new(format!("{file}: document {}", problem.document), place, problem.message)
        })?;
        for (index, document) in documents.into_iter().filter(|document| !document.is_null()).enumerate() {
            let place = format!("{file}: document {}", index + 1);
            let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
            match document["items"].as_array() {
                Some(items) if is_list => {
                    for (number, item) in (1..).zip(items) {
                        found.push(source(item.clone(), &format!("{place}, item {number}"))?);
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
/// When it has no kind or no name, or a namespace that is no text. `place` names it then.
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
    let given = match &value["metadata"]["namespace"] {
        Value::Null => "",
        Value::String(given) => given,
        _ => return Err(ImportError::new(place, "metadata.namespace", "is no text")),
    };
    let namespace = match (NAMESPACED.contains(&kind.as_str()), given) {
        (true, "") => "default".to_owned(),
        (_, given) => given.to_owned(),
    };
    let group = version.split_once('/').map_or("", |(group, _)| group).to_owned();
    Ok(Source { group, kind, namespace, name, value })
}

/// The namespaced kinds among those that are read.
const NAMESPACED: [&str; 5] = ["LocalQueue", "Workload", "Job", "Pod", "ResourceQuota"];

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(metadata: &str) -> String {
        format!("apiVersion: v1\nkind: ResourceQuota\nmetadata: {metadata}\nspec: {{hard: {{cpu: 1}}}}\n")
    }

    fn labels(text: &str) -> Result<Vec<String>, String> {
        let found = read([("q.yaml", text)]).map_err(|error| error.to_string())?;
        Ok(found.iter().map(Source::label).collect())
    }

    #[test]
    fn a_dump_may_have_any_number_of_objects() {
        let items: String = (0..7_000)
            .map(|number| {
                format!(
                    "- {}\n",
                    quota(&format!(
                        "{{name: q{number}, labels: {{a: b, c: d, e: f, g: h, i: j, k: l, m: n, o: p}}}}"
                    ))
                    .trim()
                    .replace('\n', "\n  ")
                )
            })
            .collect();
        let list = format!("apiVersion: v1\nkind: List\nitems:\n{items}");
        assert_eq!(labels(&list).map(|found| found.len()), Ok(7_000));
        let documents: String =
            (0..1_100).map(|number| format!("---\n{}", quota(&format!("{{name: q{number}}}")))).collect();
        assert_eq!(labels(&documents).map(|found| found.len()), Ok(1_100));
    }

    #[test]
    fn a_namespace_is_the_one_that_is_written() {
        let of = |metadata: &str| labels(&quota(metadata));
        assert_eq!(of("{name: n, namespace: on}"), Ok(vec!["ResourceQuota on/n".to_owned()]));
        assert_eq!(of("{name: q}"), Ok(vec!["ResourceQuota default/q".to_owned()]));
        let wrong = "q.yaml: document 1: metadata.namespace: is no text";
        for written in ["5", "true", "[a]"] {
            assert_eq!(of(&format!("{{name: q, namespace: {written}}}")), Err(wrong.to_owned()));
        }
    }

    #[test]
    fn a_mistake_in_a_dump_is_said_with_its_place() {
        let twice = format!("{}---\n{}kind: Job\n", quota("{name: q}"), quota("{name: p}"));
        let said = "q.yaml: document 2: line 10, column 1: the key kind is there twice";
        assert_eq!(labels(&twice), Err(said.to_owned()));
        let list = format!(
            "apiVersion: v1\nkind: List\nitems:\n- {}- {{}}\n",
            quota("{name: q}").replace('\n', "\n  ").trim_end_matches(' ')
        );
        assert_eq!(
            labels(&list),
            Err("q.yaml: document 1, item 2: apiVersion: is missing or is no text".to_owned())
        );
    }
}
