//! The kinds besides Job and Pod whose objects are workloads, as a table: where what stands in them.
//!
//! The table is data. What it cannot say of a kind, Sluice does not do for it: such an object is one gang
//! of pods that are alike, held and evicted by its own suspend field.

mod edit;
mod pointer;
pub mod policies;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, GroupVersion, GroupVersionKind};
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

pub use edit::{nodes_of, place, unplace};
pub use pointer::Pointer;

/// The table that is built into the program.
const BUILT_IN: &str = include_str!("../../policies/kinds.yaml");

/// A table that cannot be taken.
#[derive(Debug, Error)]
pub enum TableError {
    /// The file cannot be read.
    #[error("{file}: {error}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is no table.
    #[error("{file}: {problem}")]
    Malformed {
        /// The file.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// An entry is wrong.
    #[error("{file}: {entry}: field {field}: {problem}")]
    Entry {
        /// The file.
        file: String,
        /// The kind it is for, or its number in the table.
        entry: String,
        /// The field.
        field: String,
        /// What is wrong.
        problem: String,
    },
}

/// One kind: where what stands in its objects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kind {
    /// Its group and version.
    pub api_version: String,
    /// Its name.
    pub kind: String,
    /// Its name in the paths of the API.
    pub plural: String,
    /// The field that holds an object back.
    pub suspend: Pointer,
    /// Where its pods are described.
    pub roles: Vec<Role>,
    /// How its pods learn where to go.
    pub placement: Placement,
    /// Any of these says that it makes no more pods for good.
    pub finished: Vec<Sign>,
    /// Any of these says that a suspended one makes no more pods.
    pub stopped: Vec<Sign>,
    /// The longest it may run, in seconds.
    #[serde(default)]
    pub deadline: Option<Pointer>,
    /// Objects between it and its pods, other than Jobs and the kinds of the table.
    #[serde(default)]
    pub children: Vec<Child>,
    /// The accounts that make its children.
    #[serde(default)]
    pub operators: Vec<String>,
}

/// Where pods that are alike are described.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Role {
    /// The one place.
    #[serde(default)]
    pub at: Option<Pointer>,
    /// A list, or a map, each of whose values is one.
    #[serde(default)]
    pub each: Option<Pointer>,
    /// From there, the pod template.
    #[serde(default)]
    pub template: Option<Pointer>,
    /// From there, the requests and limits of a pod's only container, where there is no template.
    #[serde(default)]
    pub resources: Option<Pointer>,
    /// From there, the numbers whose product is the number of pods.
    #[serde(default)]
    pub pods: Vec<Factor>,
}

/// A number that a count of pods is made of.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Factor {
    /// Where it stands.
    pub at: Pointer,
    /// What it is where nothing is written.
    #[serde(default = "one")]
    pub default: u32,
    /// Where a number stands that it does not exceed, if one is written there.
    #[serde(default)]
    pub at_most: Option<Pointer>,
}

fn one() -> u32 {
    1
}

/// How pods learn where to go.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Placement {
    /// By the node affinity of their template.
    Affinity,
    /// By an annotation of their template, which becomes an affinity when they are made.
    Annotation,
    /// By that annotation in an entry of a list.
    Entry(Entry),
}

/// An entry of a list, there as long as an admission.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// The list.
    pub list: Pointer,
    /// The field that tells its entries apart.
    pub key: String,
    /// The entry; `$(nodes)` in a text stands for the nodes.
    pub value: Value,
}

/// Something that an object says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sign {
    /// A condition that is True.
    #[serde(default)]
    pub condition: Option<String>,
    /// A field that has one of the values.
    #[serde(default)]
    pub field: Option<Pointer>,
    /// The values.
    #[serde(default)]
    pub values: Vec<String>,
}

/// A kind of objects between a workload and its pods.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Child {
    /// Its group and version.
    pub api_version: String,
    /// Its name.
    pub kind: String,
    /// Its name in the paths of the API.
    pub plural: String,
}

/// A kind whose objects are watched.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Where its objects are in the API.
    pub resource: ApiResource,
    /// Its entry of the table; `None` for what only stands between.
    pub entry: Option<Arc<Kind>>,
}

impl Watched {
    /// A kind of the table.
    #[must_use]
    pub fn of(kind: &Arc<Kind>) -> Self {
        let resource = resource(&kind.api_version, &kind.kind, &kind.plural);
        Self { resource, entry: Some(Arc::clone(kind)) }
    }
}

/// The table.
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
    /// The table in a file, or the one that is built in.
    ///
    /// # Errors
    /// One line that names the file, the entry and the field.
    pub fn load(file: Option<&Path>) -> Result<Self, TableError> {
        let Some(path) = file else { return Ok(Self::default()) };
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &file),
            Err(error) => Err(TableError::Unreadable { file, error }),
        }
    }

    /// The table in a text of this name.
    ///
    /// # Errors
    /// As [`Kinds::load`].
    pub fn parse(text: &str, file: &str) -> Result<Self, TableError> {
        let malformed = |problem: String| TableError::Malformed { file: file.to_owned(), problem };
        let table: Value =
            serde_saphyr::from_str(text).map_err(|error| malformed(first_line(&error.to_string())))?;
        if let Some(other) = table.as_object().and_then(|map| map.keys().find(|key| *key != "kinds")) {
            return Err(malformed(format!("{other:?} is not known here; there is only `kinds`")));
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
                .map_err(|error| wrong((error.path().to_string(), error.inner().to_string())))?;
            kind.check().map_err(wrong)?;
            if entries.iter().any(|other| other.kind == kind.kind && other.group() == kind.group()) {
                return Err(wrong(("kind".to_owned(), "it stands in the table twice".to_owned())));
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

    /// The kinds whose objects are workloads, as they stand in the table.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.entries.iter()
    }

    /// The kinds to be watched: those of the table, then those in between.
    #[must_use]
    pub fn watched(&self) -> &[Watched] {
        &self.watched
    }

    /// The entry for objects of this group and kind, of whatever version.
    #[must_use]
    pub fn find(&self, group: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.entries.iter().find(|entry| entry.kind == kind && entry.group() == group)
    }

    /// Whether what this object owns is left to it, or to a workload above it.
    #[must_use]
    pub fn is_parent(&self, owner: &OwnerReference) -> bool {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let is = |watched: &&Watched| watched.resource.kind == owner.kind && watched.resource.group == group;
        self.watched.iter().any(|watched| is(&watched))
    }
}

/// What a parser says first; where it is in the text, it draws below.
fn first_line(problem: &str) -> String {
    let line = problem.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

fn resource(api_version: &str, kind: &str, plural: &str) -> ApiResource {
    let version: GroupVersion = api_version.parse().unwrap_or_else(|_| GroupVersion::gv("", api_version));
    let kind = GroupVersionKind::gvk(&version.group, &version.version, kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

type Wrong = (String, String);

impl Kind {
    /// Its group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
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
            return wrong("plural", &format!("{:?} is written in small letters", self.plural));
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
            if role.template.is_some() == role.resources.is_some() {
                return wrong(&field("template"), "exactly one of `template` and `resources` is needed");
            }
            if role.template.is_none() && !matches!(self.placement, Placement::Entry(_)) {
                return wrong(&field("resources"), "without a template the placement must be an `entry`");
            }
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

    /// The fields that its placement goes into, or others around it.
    #[must_use]
    pub fn placed_in(&self) -> Vec<Pointer> {
        if let Placement::Entry(entry) = &self.placement {
            return vec![entry.list.clone()];
        }
        self.described_in()
    }

    /// The fields that say which pods there are.
    #[must_use]
    pub fn described_in(&self) -> Vec<Pointer> {
        let field = |role: &Role| match (&role.at, &role.template) {
            // A place that holds more than the template is no more than its template.
            (Some(at), Some(template)) => Some(at.join(template)),
            _ => role.at.as_ref().or(role.each.as_ref()).cloned(),
        };
        self.roles.iter().filter_map(field).collect()
    }

    /// Whether an object is held back.
    #[must_use]
    pub fn suspended(&self, object: &Value) -> bool {
        self.suspend.read(object) == Some(&Value::Bool(true))
    }

    /// Whether an object makes no more pods for good.
    #[must_use]
    pub fn has_finished(&self, object: &Value) -> bool {
        self.finished.iter().any(|sign| sign.shows(object))
    }

    /// Whether a suspended object makes no more pods.
    #[must_use]
    pub fn has_stopped(&self, object: &Value) -> bool {
        self.stopped.iter().any(|sign| sign.shows(object))
    }
}

impl Sign {
    fn shows(&self, object: &Value) -> bool {
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
