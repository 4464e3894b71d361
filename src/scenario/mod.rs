//! Scenario files: objects as for `kubectl apply`, with annotations for their schedule.
//!
//! A scenario is read once, checked strictly, and becomes an ordered list of [`Step`]s. The simulator and the replay
//! on a real cluster both take these steps, so that their outcomes can be compared.

mod error;
mod list;
mod schedule;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub use error::{Origin, ScenarioError};
pub use schedule::{PREFIX, RunningOn};

use crate::api::values::{is_dns_label, is_dns_subdomain};
use crate::yaml;

/// The kinds of objects in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A namespace; a label assigns it to a team.
    Namespace,
    /// A team.
    Team,
    /// A node pool.
    NodePool,
    /// A node.
    Node,
    /// A priority class.
    PriorityClass,
    /// A class of claimable devices.
    DeviceClass,
    /// Devices of a driver.
    ResourceSlice,
    /// A template of claims, one for each pod.
    ResourceClaimTemplate,
    /// A claim of devices.
    ResourceClaim,
    /// A Job.
    Job,
    /// A bare pod.
    Pod,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::Namespace,
        Self::Team,
        Self::NodePool,
        Self::Node,
        Self::PriorityClass,
        Self::DeviceClass,
        Self::ResourceSlice,
        Self::ResourceClaimTemplate,
        Self::ResourceClaim,
        Self::Job,
        Self::Pod,
    ];

    /// Its name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::Team => "Team",
            Self::NodePool => "NodePool",
            Self::Node => "Node",
            Self::PriorityClass => "PriorityClass",
            Self::DeviceClass => "DeviceClass",
            Self::ResourceSlice => "ResourceSlice",
            Self::ResourceClaimTemplate => "ResourceClaimTemplate",
            Self::ResourceClaim => "ResourceClaim",
            Self::Job => "Job",
            Self::Pod => "Pod",
        }
    }

    /// Its group and version.
    #[must_use]
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Namespace | Self::Node | Self::Pod => "v1",
            Self::Team | Self::NodePool => "sluice.dev/v1alpha1",
            Self::PriorityClass => "scheduling.k8s.io/v1",
            Self::DeviceClass | Self::ResourceSlice | Self::ResourceClaimTemplate | Self::ResourceClaim => {
                "resource.k8s.io/v1"
            }
            Self::Job => "batch/v1",
        }
    }

    /// Whether its objects are namespaced.
    #[must_use]
    pub fn is_namespaced(self) -> bool {
        self.is_workload() || matches!(self, Self::ResourceClaimTemplate | Self::ResourceClaim)
    }

    /// Whether its objects are workloads.
    #[must_use]
    pub fn is_workload(self) -> bool {
        matches!(self, Self::Job | Self::Pod)
    }

    /// Whether its names are a DNS label rather than a DNS subdomain.
    fn has_short_names(self) -> bool {
        matches!(self, Self::Namespace | Self::Team | Self::NodePool)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An object of a scenario, or one of its copies.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its place in the files.
    pub origin: Origin,
    /// Its kind.
    pub kind: Kind,
    /// Its namespace, `default` if unset; `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The manifest without the scenario's annotations.
    pub manifest: Value,
    /// Run time of each pod; `None` for ever.
    pub duration: Option<Duration>,
    /// Nodes on which it runs when the scenario starts.
    pub running_on: Option<RunningOn>,
}

impl Object {
    /// The manifest as a typed object; the error names the field that does not fit the type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, ScenarioError> {
        serde_path_to_error::deserialize(&self.manifest).map_err(|error| self.misread(&error))
    }

    /// The error of a field that does not fit its type.
    #[must_use]
    pub fn misread(&self, error: &serde_path_to_error::Error<serde_json::Error>) -> ScenarioError {
        let (field, message) = yaml::fault(&error.path().to_string(), &error.inner().to_string());
        self.invalid(if field.is_empty() { DOCUMENT } else { &field }, message)
    }

    /// The error of a wrong field, with the object's origin.
    #[must_use]
    pub fn invalid(&self, field: &str, message: String) -> ScenarioError {
        ScenarioError::Invalid { origin: self.origin.clone(), field: field.to_owned(), message }
    }
}

/// A change of an object.
#[derive(Clone, Debug)]
pub enum Change {
    /// It is created or changed.
    Apply(Arc<Object>),
    /// It is deleted.
    Delete(Arc<Object>),
    /// The node is cordoned.
    Cordon(Arc<Object>),
    /// The node is lost with its pods.
    Fail(Arc<Object>),
}

impl Change {
    /// The object.
    #[must_use]
    pub fn object(&self) -> &Arc<Object> {
        match self {
            Self::Apply(object) | Self::Delete(object) | Self::Cordon(object) | Self::Fail(object) => object,
        }
    }
}

/// A change at a time.
#[derive(Clone, Debug)]
pub struct Step {
    /// The time since the start.
    pub at: Duration,
    /// The change.
    pub change: Change,
}

/// The steps of a scenario, ordered by time, then by document.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The steps.
    pub steps: Vec<Step>,
}

impl Scenario {
    /// Reads a scenario from files; one named `-` is standard input.
    pub fn load<P: AsRef<Path>>(files: &[P]) -> Result<Self, ScenarioError> {
        let named = files.iter().map(|file| Ok((file.as_ref().display().to_string(), read(file.as_ref())?)));
        let texts: Vec<(String, String)> = named.collect::<Result<_, ScenarioError>>()?;
        Self::parse(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())))
    }

    /// Reads a scenario from texts, each with its file name for errors.
    pub fn parse<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, ScenarioError> {
        let mut scenario = Self::default();
        for (file, text) in texts {
            let file: Arc<str> = file.into();
            let mut empty = true;
            for (index, document) in documents(&file, text)?.into_iter().enumerate() {
                let origin =
                    Origin { file: Arc::clone(&file), document: index + 1, item: None, object: None };
                let items = list::unpack(document).map_err(|(field, message)| ScenarioError::Invalid {
                    origin: Origin { object: Some(list::LIST.to_owned()), ..origin.clone() },
                    field,
                    message,
                })?;
                for (item, object) in items {
                    scenario.add(Origin { item, ..origin.clone() }, object)?;
                    empty = false;
                }
            }
            if empty {
                return Err(ScenarioError::Empty { file: file.to_string() });
            }
        }
        scenario.check_nodes()?;
        scenario.check_duplicates()?;
        scenario.steps.sort_by_key(|step| step.at);
        Ok(scenario)
    }

    /// The applied objects, in order.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.steps.iter().filter_map(|step| match &step.change {
            Change::Apply(object) => Some(object),
            Change::Delete(_) | Change::Cordon(_) | Change::Fail(_) => None,
        })
    }

    fn add(&mut self, mut origin: Origin, document: Value) -> Result<(), ScenarioError> {
        let document = Document::read(&mut origin, document)
            .map_err(|(field, message)| ScenarioError::Invalid { origin: origin.clone(), field, message })?;
        let schedule = &document.schedule;
        for object in document.copies(&origin) {
            let object = Arc::new(object);
            let mut step = |at, change: fn(Arc<Object>) -> Change| {
                self.steps.push(Step { at, change: change(Arc::clone(&object)) });
            };
            step(schedule.at.unwrap_or_default(), Change::Apply);
            if let Some(at) = schedule.cordon_at {
                step(at, Change::Cordon);
            }
            if let Some(at) = schedule.fail_at {
                step(at, Change::Fail);
            }
            if let Some(at) = schedule.delete_at {
                step(at, Change::Delete);
            }
        }
        Ok(())
    }

    /// Checks that `running-on` names nodes that exist at the start.
    fn check_nodes(&self) -> Result<(), ScenarioError> {
        let nodes: BTreeSet<&str> = self
            .steps
            .iter()
            .filter_map(|step| match &step.change {
                Change::Apply(object) if object.kind == Kind::Node && step.at.is_zero() => {
                    Some(object.name.as_str())
                }
                _ => None,
            })
            .collect();
        for object in self.objects() {
            let unknown =
                object.running_on.iter().flat_map(RunningOn::nodes).find(|node| !nodes.contains(node));
            if let Some(node) = unknown {
                let message = format!("node {node} does not exist at the start");
                return Err(object.invalid(&annotation("running-on"), message));
            }
        }
        Ok(())
    }

    /// Checks that no object is applied twice at the same time, which is a mistake.
    fn check_duplicates(&self) -> Result<(), ScenarioError> {
        let mut first: BTreeMap<(Kind, &Option<String>, &str, Duration), &Origin> = BTreeMap::new();
        for step in &self.steps {
            let Change::Apply(object) = &step.change else { continue };
            let key = (object.kind, &object.namespace, object.name.as_str(), step.at);
            if let Some(origin) = first.insert(key, &object.origin) {
                let (name, file) = (&object.name, &origin.file);
                let at = format!("{}s", step.at.as_secs_f64());
                let message = format!("{name:?} is already applied at {at} by {} of {file}", origin.place());
                return Err(object.invalid("metadata.name", message));
            }
        }
        Ok(())
    }
}

/// The field of an error about a whole document.
const DOCUMENT: &str = "(document)";

/// A field and its problem.
type Fault = (String, String);

/// A document before its copies are made.
struct Document {
    kind: Kind,
    namespace: Option<String>,
    name: String,
    manifest: Map<String, Value>,
    schedule: schedule::Schedule,
}

impl Document {
    /// Reads a document and adds its name to `origin`.
    fn read(origin: &mut Origin, document: Value) -> Result<Self, Fault> {
        let Value::Object(mut manifest) = document else {
            return Err((DOCUMENT.to_owned(), "is not an object".to_owned()));
        };
        let kind = text(&manifest, "kind")?;
        origin.object = Some(label(kind, &manifest));
        let known = Kind::ALL.into_iter().find(|candidate| candidate.name() == kind);
        let kind = known.ok_or_else(|| {
            let names = Kind::ALL.map(Kind::name).join(", ");
            ("kind".to_owned(), format!("{kind} is not supported in a scenario; supported kinds: {names}"))
        })?;
        let version = text(&manifest, "apiVersion")?;
        if version != kind.api_version() {
            return Err((
                "apiVersion".to_owned(),
                format!("{version} is not {}, the version of {kind}", kind.api_version()),
            ));
        }

        let Some(Value::Object(metadata)) = manifest.get_mut("metadata") else {
            return Err(("metadata".to_owned(), "is missing".to_owned()));
        };
        let name = text(metadata, "name").map_err(|(field, fault)| (format!("metadata.{field}"), fault))?;
        let name = name.to_owned();
        check_name(kind, &name).map_err(|fault| ("metadata.name".to_owned(), fault))?;
        let namespace = match metadata.get("namespace") {
            None => kind.is_namespaced().then(|| "default".to_owned()),
            Some(Value::String(namespace)) if kind.is_namespaced() => Some(namespace.clone()),
            Some(Value::String(_)) => {
                return Err(("metadata.namespace".to_owned(), format!("a {kind} has no namespace")));
            }
            Some(_) => return Err(("metadata.namespace".to_owned(), "is not a string".to_owned())),
        };
        origin.object = Some(match &namespace {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        });
        if let Some(namespace) = &namespace {
            metadata.insert("namespace".to_owned(), Value::String(namespace.clone()));
        }
        let schedule = take_schedule(kind, metadata)?;
        Ok(Self { kind, namespace, name, manifest, schedule })
    }

    /// The document's object, or its copies.
    fn copies(&self, origin: &Origin) -> impl Iterator<Item = Object> {
        let names: Vec<String> = match self.schedule.copies {
            None => vec![self.name.clone()],
            Some(copies) => (0..copies).map(|copy| format!("{}-{copy}", self.name)).collect(),
        };
        names.into_iter().map(|name| {
            let mut manifest = Value::Object(self.manifest.clone());
            manifest["metadata"]["name"] = Value::String(name.clone());
            Object {
                origin: origin.clone(),
                kind: self.kind,
                namespace: self.namespace.clone(),
                name,
                manifest,
                duration: self.schedule.duration,
                running_on: self.schedule.running_on.clone(),
            }
        })
    }
}

/// An object for errors, as far as its metadata are texts that fit a line: `Job a/x`, `Job x` or `Job`.
fn label(kind: &str, manifest: &Map<String, Value>) -> String {
    let fits = |text: &&str| (1..=253).contains(&text.len()) && !text.contains(char::is_control);
    let text = |key: &str| manifest.get("metadata")?.get(key)?.as_str().filter(fits);
    match (text("namespace"), text("name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        (_, None) => kind.to_owned(),
    }
}

/// Reads the scenario's annotations and removes them from the metadata.
fn take_schedule(kind: Kind, metadata: &mut Map<String, Value>) -> Result<schedule::Schedule, Fault> {
    let mut schedule = schedule::Schedule::default();
    let Some(annotations) = metadata.get_mut("annotations") else { return Ok(schedule) };
    let Value::Object(annotations) = annotations else {
        return Err(("metadata.annotations".to_owned(), "is not a map".to_owned()));
    };
    for (key, value) in annotations.iter() {
        let Value::String(value) = value else {
            return Err((
                format!("metadata.annotations[{key}]"),
                format!("{value} is not a string; quote it"),
            ));
        };
        if let Some(key) = key.strip_prefix(PREFIX) {
            schedule.read(kind, key, value).map_err(|fault| (annotation(key), fault))?;
        }
    }
    schedule.check().map_err(|(key, fault)| (annotation(key), fault))?;
    annotations.retain(|key, _| !key.starts_with(PREFIX));
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    Ok(schedule)
}

fn annotation(key: &str) -> String {
    format!("metadata.annotations[{PREFIX}{key}]")
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Result<&'a str, Fault> {
    match map.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(Value::String(_)) => Err((key.to_owned(), "is empty".to_owned())),
        Some(_) => Err((key.to_owned(), "is not a string".to_owned())),
        None => Err((key.to_owned(), "is missing".to_owned())),
    }
}

/// Checks a name as the API server does.
fn check_name(kind: Kind, name: &str) -> Result<(), String> {
    if kind.has_short_names() && !is_dns_label(name) {
        return Err(format!("{name:?} must be 1 to 63 characters of a-z, 0-9 and -"));
    }
    if !is_dns_subdomain(name) {
        return Err(format!("{name:?} must be 1 to 253 characters of a-z, 0-9, - and ."));
    }
    Ok(())
}

/// The text of a file, or of standard input if it is named `-`.
pub(crate) fn read(file: &Path) -> Result<String, ScenarioError> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    text.map_err(|source| ScenarioError::Unreadable { file: file.display().to_string(), source })
}

/// The documents of a file, without empty ones.
pub(crate) fn documents(file: &Arc<str>, text: &str) -> Result<Vec<Value>, ScenarioError> {
    yaml::documents(text, yaml::Trust::Own).map_err(|problem| {
        let message = problem.to_string();
        let mut origin =
            Origin { file: Arc::clone(file), document: problem.document, item: None, object: None };
        if let Some(object) = problem.read {
            // Its own faults do not matter here.
            _ = Document::read(&mut origin, object);
        }
        ScenarioError::Syntax { origin, message }
    })
}
