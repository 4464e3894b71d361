//! The table of custom kinds: kinds besides Job and Pod whose objects are workloads.
//!
//! The table names the fields that Sluice reads and writes, so a new kind needs no code. An object is one gang of pods.
//! Its suspend field holds and evicts it as a whole.

mod draft;
mod placement;
mod pointer;
pub mod policies;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, GroupVersion, GroupVersionKind};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

pub use draft::Draft;
pub use placement::{nodes_of, place, unplace};
pub use pointer::Pointer;

use crate::yaml;

/// The built-in table.
const BUILT_IN: &str = include_str!("../../policies/kinds.yaml");

/// A table that cannot be loaded.
#[derive(Debug, Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The text is not a table.
    #[error("{file}: {problem}")]
    Malformed {
        /// The file.
        file: String,
        /// The problem.
        problem: String,
    },
    /// An entry is wrong.
    #[error("{file}: {entry}: field {field}: {problem}")]
    Entry {
        /// The file.
        file: String,
        /// Its kind, or its index in the table.
        entry: String,
        /// The field.
        field: String,
        /// The problem.
        problem: String,
    },
}

/// One kind, with the fields of its objects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kind {
    /// The group and version, `GROUP/VERSION`.
    pub api_version: String,
    /// The name of the kind.
    pub kind: String,
    /// The name in API paths, in lower case.
    pub plural: String,
    /// The field that suspends an object.
    pub suspend: Pointer,
    /// The descriptions of its pods.
    pub roles: Vec<Role>,
    /// The way in which its pods get their nodes.
    pub placement: Placement,
    /// Signs that an object has finished and makes no more pods. One is enough.
    pub finished: Vec<Sign>,
    /// Signs that a suspended object makes no more pods. One is enough.
    pub stopped: Vec<Sign>,
    /// The field with the longest run time, in seconds.
    #[serde(default)]
    pub deadline: Option<Pointer>,
    /// Fields that let the number of pods grow after the admission. They are refused.
    #[serde(default)]
    pub elastic: Vec<Pointer>,
    /// Kinds between an object and its pods, besides Jobs and the kinds of the table.
    #[serde(default)]
    pub children: Vec<Child>,
    /// The accounts that make its children, `system:serviceaccount:NAMESPACE:NAME`.
    #[serde(default)]
    pub operators: Vec<String>,
}

/// A description of pods of one shape.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Role {
    /// A single description.
    #[serde(default)]
    pub at: Option<Pointer>,
    /// A list or a map of descriptions.
    #[serde(default)]
    pub each: Option<Pointer>,
    /// The pod template, relative to the description.
    #[serde(default)]
    pub template: Option<Pointer>,
    /// The requests and limits of a pod's only container, relative to the description. Used without a template.
    #[serde(default)]
    pub resources: Option<Pointer>,
    /// The numbers whose product is the number of pods, relative to the description.
    #[serde(default)]
    pub pods: Vec<Factor>,
}

/// A factor of the number of pods.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Factor {
    /// The field.
    pub at: Pointer,
    /// The value if the field is missing.
    #[serde(default = "one")]
    pub default: u32,
    /// Whether the field must be set, because the controller has another value for a missing one.
    #[serde(default)]
    pub required: bool,
    /// A field with a lower bound, if it is set.
    #[serde(default)]
    pub at_least: Option<Pointer>,
    /// A field with an upper bound, if it is set.
    #[serde(default)]
    pub at_most: Option<Pointer>,
}

fn one() -> u32 {
    1
}

/// The way in which pods get their nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// The node affinity of the pod template.
    Affinity,
    /// An annotation of the pod template. The webhook turns it into an affinity when it reviews the pods.
    Annotation,
    /// The same annotation, in an entry of a list.
    Entry(Entry),
}

/// A list entry that exists while an object is admitted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// The list.
    pub list: Pointer,
    /// The field that identifies an entry.
    pub key: String,
    /// The entry. `$(nodes)` in a text is replaced by the nodes.
    pub value: Value,
}

/// A sign in the status of an object: a condition, or a field.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sign {
    /// The type of a condition with status True.
    #[serde(default)]
    pub condition: Option<String>,
    /// A field with one of the values.
    #[serde(default)]
    pub field: Option<Pointer>,
    /// The values.
    #[serde(default)]
    pub values: Vec<String>,
}

/// A kind between a workload and its pods.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Child {
    /// The group and version, `GROUP/VERSION`.
    pub api_version: String,
    /// The name of the kind.
    pub kind: String,
    /// The name in API paths, in lower case.
    pub plural: String,
}

/// A watched kind.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The API resource.
    pub resource: ApiResource,
    /// Its entry in the table; `None` for a kind between a workload and its pods.
    pub entry: Option<Arc<Kind>>,
}

impl Watched {
    /// The watch of a kind of the table.
    #[must_use]
    pub fn of(kind: &Arc<Kind>) -> Self {
        let resource = resource(&kind.api_version, &kind.kind, &kind.plural);
        Self { resource, entry: Some(Arc::clone(kind)) }
    }
}

impl Child {
    /// The API group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

/// The table of custom kinds.
#[derive(Clone, Debug)]
pub struct Kinds {
    entries: Arc<[Arc<Kind>]>,
    watched: Arc<[Watched]>,
}

static DEFAULT: LazyLock<Kinds> =
    LazyLock::new(|| Kinds::parse(BUILT_IN, "policies/kinds.yaml").expect("a test reads the same text"));

impl Default for Kinds {
    fn default() -> Self {
        DEFAULT.clone()
    }
}

impl Kinds {
    /// Loads the table from a file, or the built-in table.
    ///
    /// # Errors
    /// One line with the file, the entry and the field.
    pub fn load(file: Option<&Path>) -> Result<Self, TableError> {
        let Some(path) = file else { return Ok(Self::default()) };
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &file),
            Err(error) => Err(TableError::Unreadable { file, error }),
        }
    }

    /// Parses a table. `file` names the text in errors.
    ///
    /// # Errors
    /// As [`Kinds::load`].
    pub fn parse(text: &str, file: &str) -> Result<Self, TableError> {
        let malformed = |problem: String| TableError::Malformed { file: file.to_owned(), problem };
        let documents =
            yaml::documents(text, yaml::Trust::Own).map_err(|problem| malformed(problem.to_string()))?;
        let number = documents.len();
        if number > 1 {
            return Err(malformed(format!("has {number} documents, and a table of kinds is one")));
        }
        let table = documents.into_iter().next().unwrap_or_default();
        if let Some(other) = table.as_object().and_then(|map| map.keys().find(|key| *key != "kinds")) {
            return Err(malformed(format!("unknown field {other:?}; the only field is `kinds`")));
        }
        let listed =
            table["kinds"].as_array().ok_or_else(|| malformed("there is no list `kinds`".to_owned()))?;
        let mut entries: Vec<Arc<Kind>> = Vec::new();
        for (index, value) in listed.iter().enumerate() {
            let entry = value["kind"].as_str().map_or_else(|| format!("kinds[{index}]"), ToOwned::to_owned);
            let wrong = |(field, problem): (String, String)| TableError::Entry {
                file: file.to_owned(),
                entry: entry.clone(),
                field,
                problem,
            };
            let kind: Kind = serde_path_to_error::deserialize(value.clone())
                .map_err(|error| wrong(yaml::fault(&error.path().to_string(), &error.inner().to_string())))?;
            kind.check().map_err(wrong)?;
            if entries.iter().any(|other| other.kind == kind.kind && other.group() == kind.group()) {
                return Err(wrong(("kind".to_owned(), "the table lists it twice".to_owned())));
            }
            entries.push(Arc::new(kind));
        }
        Ok(Self::new(entries))
    }

    fn new(entries: Vec<Arc<Kind>>) -> Self {
        let mut watched: Vec<Watched> = entries.iter().map(Watched::of).collect();
        for child in entries.iter().flat_map(|kind| &kind.children) {
            let resource = resource(&child.api_version, &child.kind, &child.plural);
            if !watched.iter().any(|known| known.resource == resource) {
                watched.push(Watched { resource, entry: None });
            }
        }
        Self { entries: entries.into(), watched: watched.into() }
    }

    /// The kinds of the table, in its order.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.entries.iter()
    }

    /// The watched kinds: those of the table, then those between workloads and pods.
    #[must_use]
    pub fn watched(&self) -> &[Watched] {
        &self.watched
    }

    /// The entry of a kind, in any version.
    #[must_use]
    pub fn find(&self, group: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.entries.iter().find(|entry| entry.kind == kind && entry.group() == group)
    }

    /// Whether the owner is an object of a watched kind, so that its children are part of a workload.
    #[must_use]
    pub fn is_parent(&self, owner: &OwnerReference) -> bool {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let is = |watched: &&Watched| watched.resource.kind == owner.kind && watched.resource.group == group;
        self.watched.iter().any(|watched| is(&watched))
    }

    /// Whether the account makes the children of the owner's kind.
    #[must_use]
    pub fn is_operator_of(&self, owner: &OwnerReference, account: &str) -> bool {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        self.entries.iter().any(|kind| {
            let owns = (kind.kind == owner.kind && kind.group() == group)
                || kind.children.iter().any(|child| child.kind == owner.kind && child.group() == group);
            owns && kind.operators.iter().any(|operator| operator == account)
        })
    }
}

fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let version: GroupVersion = api_version.parse().unwrap_or_else(|_| GroupVersion::gv("", api_version));
    let kind = GroupVersionKind::gvk(&version.group, &version.version, kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

type Wrong = (String, String);

impl Kind {
    /// The API group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// The version in its API group.
    #[must_use]
    pub fn version(&self) -> &str {
        self.api_version.split_once('/').map_or(&*self.api_version, |(_, version)| version)
    }

    fn check(&self) -> Result<(), Wrong> {
        let wrong = |field: &str, problem: &str| Err((field.to_owned(), problem.to_owned()));
        let versions = self.children.iter().map(|child| &child.api_version).chain([&self.api_version]);
        for version in versions {
            if version.split('/').count() != 2 || version.split('/').any(str::is_empty) {
                return wrong("apiVersion", &format!("{version:?} is not GROUP/VERSION"));
            }
        }
        for (field, text) in [("kind", &self.kind), ("plural", &self.plural)] {
            if text.is_empty() || !text.chars().all(|c| c.is_ascii_alphanumeric()) {
                return wrong(field, &format!("{text:?} is not a name"));
            }
        }
        if self.plural.chars().any(|c| c.is_ascii_uppercase()) {
            return wrong("plural", &format!("{:?} must be in lower case", self.plural));
        }
        for (index, account) in self.operators.iter().enumerate() {
            let parts: Vec<&str> = account.split(':').collect();
            if !matches!(parts[..], ["system", "serviceaccount", namespace, name] if !namespace.is_empty() && !name.is_empty())
            {
                let field = format!("operators[{index}]");
                return wrong(&field, &format!("{account:?} is not system:serviceaccount:NAMESPACE:NAME"));
            }
        }
        for (list, empty) in [
            ("roles", self.roles.is_empty()),
            ("finished", self.finished.is_empty()),
            ("stopped", self.stopped.is_empty()),
        ] {
            if empty {
                return wrong(list, "at least one is needed");
            }
        }
        self.suspend.check_field().map_err(|problem| ("suspend".to_owned(), problem))?;
        for (index, role) in self.roles.iter().enumerate() {
            let field = |name: &str| format!("roles[{index}].{name}");
            match (&role.at, &role.each) {
                (Some(root), None) | (None, Some(root)) => {
                    root.check_field().map_err(|problem| (field("at"), problem))?;
                }
                _ => return wrong(&field("at"), "exactly one of `at` and `each` is needed"),
            }
            if let Some(template) = &role.template {
                template.check_field().map_err(|problem| (field("template"), problem))?;
            }
            if role.template.is_some() == role.resources.is_some() {
                return wrong(&field("template"), "exactly one of `template` and `resources` is needed");
            }
            if role.template.is_none() && !matches!(self.placement, Placement::Entry(_)) {
                return wrong(&field("resources"), "without a template the placement must be an `entry`");
            }
        }
        for (index, at) in self.elastic.iter().enumerate() {
            at.check_field().map_err(|problem| (format!("elastic[{index}]"), problem))?;
        }
        for (name, signs) in [("finished", &self.finished), ("stopped", &self.stopped)] {
            for (index, sign) in signs.iter().enumerate() {
                let whole = match (&sign.condition, &sign.field) {
                    (Some(_), None) => sign.values.is_empty(),
                    (None, Some(_)) => !sign.values.is_empty(),
                    _ => false,
                };
                if !whole {
                    let field = format!("{name}[{index}]");
                    return wrong(&field, "either a `condition`, or a `field` with its `values`");
                }
            }
        }
        if let Placement::Entry(entry) = &self.placement
            && !entry.value[&entry.key].is_string()
        {
            return wrong("placement.entry.key", &format!("the value has no text {:?}", entry.key));
        }
        Ok(())
    }

    /// The fields that a placement changes, or fields around them.
    #[must_use]
    pub fn placed_in(&self) -> Vec<Pointer> {
        if let Placement::Entry(entry) = &self.placement {
            return vec![entry.list.clone()];
        }
        self.described_in()
    }

    /// The fields that describe the pods.
    #[must_use]
    pub fn described_in(&self) -> Vec<Pointer> {
        let field = |role: &Role| match (&role.at, &role.template) {
            // Only the template of a single description is about pods.
            (Some(at), Some(template)) => Some(at.join(template)),
            _ => role.at.as_ref().or(role.each.as_ref()).cloned(),
        };
        self.roles.iter().filter_map(field).collect()
    }

    /// Whether an object is suspended.
    #[must_use]
    pub fn suspended(&self, object: &Value) -> bool {
        self.suspend.read(object) == Some(&Value::Bool(true))
    }

    /// Whether an object has finished and makes no more pods.
    #[must_use]
    pub fn has_finished(&self, object: &Value) -> bool {
        self.finished.iter().any(|sign| sign.is_shown_by(object))
    }

    /// Whether a suspended object makes no more pods.
    #[must_use]
    pub fn has_stopped(&self, object: &Value) -> bool {
        self.stopped.iter().any(|sign| sign.is_shown_by(object))
    }
}

impl Sign {
    fn is_shown_by(&self, object: &Value) -> bool {
        if let Some(kind) = &self.condition {
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            return conditions
                .filter(|condition| condition["type"] == **kind)
                .any(|condition| condition["status"] == "True");
        }
        let text = self.field.as_ref().and_then(|field| field.read(object)).and_then(Value::as_str);
        text.is_some_and(|text| self.values.iter().any(|value| value == text))
    }
}

#[cfg(test)]
mod tests;
