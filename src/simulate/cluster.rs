//! The simulated API server: turns applied and deleted objects into effects on the simulation.
//!
//! Objects pass through the production webhook, conversion and mirror, so the engine gets the events it would get on
//! a real cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::applied_again::{Standing, applied_again};
use super::check;
use super::effect::Effect;
use super::groups::Groups;
use super::immutable;
use super::objects::{
    self, deadline, decode_value, life, life_in_snapshot, longest, node_as_kubelet, refuse_running, take_user,
};
use super::schema::Schemas;
use super::snapshot::Snapshot;
use super::unmanaged_object;
use crate::api::caps::Caps;
use crate::api::node_pool::NodePool;
use crate::api::priority::Class;
use crate::api::record::Record;
use crate::api::team::Team;
use crate::cluster::mirror::{Change, Mirror};
use crate::cluster::reduce;
use crate::cluster::table::Seen;
use crate::cluster::target;
use crate::cluster::wire;
use crate::directory::Directory;
use crate::engine::replay::Life;
use crate::engine::types::{Admission, Event, Name, PodShape, Time, Workload, WorkloadId, WorkloadKind};
use crate::scenario::{Kind, Object, Origin, ScenarioError};
use crate::webhook::offline::{stored, warnings_of_namespace};

/// Properties of a workload that the mirror does not keep.
#[derive(Clone, Debug)]
struct Known {
    object: Arc<Object>,
    life: Life,
    shape: Arc<PodShape>,
    submitted: Time,
}

/// All objects of the simulated cluster.
#[derive(Debug)]
pub struct Cluster {
    mirror: Mirror,
    directory: Directory,
    namespaces: BTreeSet<String>,
    classes: BTreeMap<String, (i32, bool)>,
    known: BTreeMap<WorkloadId, Known>,
    groups: Groups,
    nodes: BTreeMap<String, Value>,
    /// Jobs and Pods of the snapshot, by namespace and name.
    in_snapshot: BTreeSet<(Kind, String, String)>,
    checker: check::Checker,
    schemas: Schemas,
    /// The webhook's warnings, once for each document.
    warnings: BTreeSet<String>,
}

/// Namespaces and priority classes of every cluster.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
const CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

impl Cluster {
    /// An empty cluster.
    #[must_use]
    pub fn new(caps: Caps) -> Self {
        // The simulator has no nodes that could lack a GPU for a pod that requests none: the engine's count is all.
        let caps = Caps { assumed_fractions: true, ..caps };
        let mut mirror = Mirror::default().capped(caps);
        for change in objects::empty_lists() {
            mirror.take(change);
        }
        Self {
            mirror,
            directory: Directory::default(),
            namespaces: NAMESPACES.iter().map(|name| (*name).to_owned()).collect(),
            classes: CLASSES.iter().map(|(name, value)| ((*name).to_owned(), (*value, false))).collect(),
            known: BTreeMap::new(),
            groups: Groups::default(),
            nodes: BTreeMap::new(),
            in_snapshot: BTreeSet::new(),
            checker: check::Checker::default(),
            schemas: Schemas::default(),
            warnings: BTreeSet::new(),
        }
    }

    /// The identity of a Job or Pod.
    #[must_use]
    pub fn id(object: &Object) -> WorkloadId {
        let namespace = object.namespace.as_deref().unwrap_or_default();
        let suffix = if object.kind == Kind::Pod { " (Pod)" } else { "" };
        WorkloadId(format!("{namespace}/{}{suffix}", object.name).into())
    }

    /// Restores a snapshot's objects; returns the events for the engine.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<Vec<Event>, ScenarioError> {
        let mut events = Vec::new();
        for (origin, kind, value) in &snapshot.objects {
            let object = Object {
                origin: origin.clone(),
                kind: *kind,
                namespace: value["metadata"]["namespace"].as_str().map(ToOwned::to_owned),
                name: value["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
                manifest: value.clone(),
                duration: None,
                running_on: None,
            };
            let name: Name = object.name.as_str().into();
            let change = match kind {
                Kind::Job => {
                    let seen = target::job::job(&decode_value(&object, value.clone())?, snapshot.taken);
                    Change::Job(Seen::Object(seen.uid.clone(), seen))
                }
                Kind::Pod => {
                    let seen = target::pod::pod(&decode_value(&object, value.clone())?);
                    Change::Pod(Seen::Object(seen.uid.clone(), seen))
                }
                Kind::Node => {
                    self.nodes.insert(object.name.clone(), value.clone());
                    Change::Node(Seen::Object(
                        name,
                        reduce::node::node(&decode_value(&object, value.clone())?),
                    ))
                }
                _ => self.definition(&object, false)?,
            };
            if matches!(kind, Kind::Job | Kind::Pod) {
                self.in_snapshot.insert((*kind, object.namespace.unwrap_or_default(), object.name));
            }
            events.extend(self.mirror.take(change));
        }
        Ok(events)
    }

    /// Adds warnings of the webhook about an object.
    fn warn(&mut self, origin: &Origin, warnings: Vec<String>) {
        self.warnings.extend(warnings.iter().map(|warning| {
            let warning = warning.strip_prefix("sluice: ").unwrap_or(warning);
            format!("{origin}: {warning}")
        }));
    }

    /// The webhook's warnings, with file and document.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.iter().cloned().collect()
    }

    /// The queue of a workload.
    #[must_use]
    pub fn queue_of(&self, workload: &Workload) -> Name {
        self.mirror.queue_of(workload)
    }

    /// The team of a namespace.
    #[must_use]
    pub fn team_of(&self, namespace: &str) -> Option<Name> {
        self.mirror.team_of(&namespace.into())
    }

    /// Applies an object; `submitted` is the submission time of a workload, and `standing` how far it has come.
    pub fn apply(
        &mut self,
        object: &Arc<Object>,
        submitted: Time,
        standing: &Standing,
    ) -> Result<Vec<Effect>, ScenarioError> {
        match object.kind {
            Kind::Node => {
                self.checker.node(object)?;
                self.nodes.insert(object.name.clone(), node_as_kubelet(&object.manifest));
                self.node(object)
            }
            Kind::Job | Kind::Pod => self.submit(object, submitted, standing),
            _ => {
                let change = self.definition(object, true)?;
                let effects = self.take(change);
                Ok(effects.into_iter().map(|effect| self.left(effect)).collect())
            }
        }
    }

    /// A workload that leaves its team while its object stays is not deleted: it is unmanaged from now on.
    fn left(&self, effect: Effect) -> Effect {
        let Effect::Deleted(id) = &effect else { return effect };
        let known = self.known.get(id);
        let workload =
            known.and_then(|known| unmanaged_object::unmanaged(&known.object, id.clone(), &self.mirror).ok());
        workload.map_or(effect, Effect::Left)
    }

    /// Reads an object that is neither a node nor a workload; with `strictly` an unknown field is an error.
    fn definition(&mut self, object: &Object, strictly: bool) -> Result<Change, ScenarioError> {
        if let Some(news) = objects::devices(&self.checker, object, strictly)? {
            return Ok(Change::Devices(news));
        }
        let name: Name = object.name.as_str().into();
        Ok(match object.kind {
            Kind::Team => {
                let team: Team = self.checker.decode(object, strictly)?;
                check::converted(object, crate::engine::types::Team::try_from(&team))?;
                if strictly {
                    self.schemas.check(object, &team)?;
                }
                let seen = reduce::team::team(&team).map_err(|problem| object.invalid("spec", problem))?;
                Change::Team(Seen::Object(name, seen))
            }
            Kind::NodePool => {
                let pool: NodePool = self.checker.decode(object, strictly)?;
                check::converted(object, crate::engine::types::Pool::try_from(&pool))?;
                if strictly {
                    self.schemas.check(object, &pool)?;
                }
                let seen = reduce::team::pool(&pool).map_err(|problem| object.invalid("spec", problem))?;
                Change::Pool(Seen::Object(name, seen))
            }
            Kind::PriorityClass => {
                let class: PriorityClass = self.checker.decode(object, strictly)?;
                let seen = Class::of(&class);
                self.classes.insert(object.name.clone(), (seen.value, seen.global_default));
                Change::Class(Seen::Object(name, seen))
            }
            _ => {
                self.checker.decode::<Namespace>(object, strictly)?;
                self.warn(&object.origin, warnings_of_namespace(&object.manifest));
                self.namespaces.insert(object.name.clone());
                let metadata: PartialObjectMeta<_> = object.decode()?;
                Change::Namespace(Seen::Object(name, reduce::team::namespace(&metadata)))
            }
        })
    }

    /// Deletes an object; without effect if it does not exist.
    pub fn delete(&mut self, object: &Object) -> Vec<Effect> {
        if let Some(news) = objects::devices_deleted(object) {
            return self.take(Change::Devices(news));
        }
        let name: Name = object.name.as_str().into();
        match object.kind {
            Kind::Job | Kind::Pod => self.delete_workload(&Self::id(object)),
            Kind::Team => self.take(Change::Team(Seen::Deleted(name))),
            Kind::NodePool => self.take(Change::Pool(Seen::Deleted(name))),
            Kind::PriorityClass => {
                self.classes.remove(&object.name);
                self.take(Change::Class(Seen::Deleted(name)))
            }
            Kind::Node => {
                self.nodes.remove(&object.name);
                self.take(Change::Node(Seen::Deleted(name)))
            }
            _ => self.delete_namespace(&name),
        }
    }

    /// Cordons a node.
    pub fn cordon(&mut self, object: &Object) -> Result<Vec<Effect>, ScenarioError> {
        match self.nodes.get_mut(&object.name) {
            Some(node) => {
                node["spec"]["unschedulable"] = true.into();
                self.node(object)
            }
            None => Ok(Vec::new()),
        }
    }

    /// Deletes a namespace with its workloads.
    fn delete_namespace(&mut self, name: &Name) -> Vec<Effect> {
        let inside = |known: &Known| known.object.namespace.as_deref() == Some(name);
        let ids: Vec<WorkloadId> =
            self.known.iter().filter(|(_, known)| inside(known)).map(|(id, _)| id.clone()).collect();
        let mut effects: Vec<Effect> = ids.iter().flat_map(|id| self.delete_workload(id)).collect();
        self.namespaces.remove(&**name);
        effects.extend(self.take(Change::Namespace(Seen::Deleted(name.clone()))));
        effects
    }

    fn delete_workload(&mut self, id: &WorkloadId) -> Vec<Effect> {
        let Some(known) = self.known.remove(id) else { return Vec::new() };
        let managed = self.mirror.workload(id).is_some_and(|(managed, _)| !managed.workload.team.is_empty());
        let member = self.groups.remove(id);
        let gone = Seen::Deleted(id.0.clone());
        let effects = self.take(if known.object.kind == Kind::Job {
            Change::Job(gone)
        } else {
            Change::Pod(Seen::Deleted(id.0.clone()))
        });
        match member {
            Some((group, number)) => vec![Effect::MemberDeleted { group, number }],
            None if managed => effects,
            None => vec![Effect::UnmanagedDeleted(id.clone())],
        }
    }

    fn node(&mut self, object: &Object) -> Result<Vec<Effect>, ScenarioError> {
        let manifest = self.nodes.get(&object.name).cloned().unwrap_or_default();
        let node: wire::Node = decode_value(object, manifest)?;
        let seen = reduce::node::node(&node);
        Ok(self.take(Change::Node(Seen::Object(object.name.as_str().into(), seen))))
    }

    /// Creates or changes a Job or a pod.
    fn submit(
        &mut self,
        object: &Arc<Object>,
        submitted: Time,
        standing: &Standing,
    ) -> Result<Vec<Effect>, ScenarioError> {
        self.checker.workload(object)?;
        let namespace = object.namespace.as_deref().unwrap_or_default();
        if !self.namespaces.contains(namespace) {
            return Err(object.invalid("metadata.namespace", format!("there is no Namespace {namespace:?}")));
        }
        if let Some(directory) = self.mirror.directory() {
            // The simulator has no kube-scheduler that could preempt, and nothing makes twins.
            self.directory = Directory { classes: None, ceilings: None, ..directory };
        }
        let id = Self::id(object);
        if self.in_snapshot.contains(&(object.kind, namespace.to_owned(), object.name.clone())) {
            return Err(object.invalid("metadata.name", "already exists in the snapshot".to_owned()));
        }
        if let Some(known) = self.known.get(&id) {
            immutable::check(object, &known.object, standing)?;
        }
        let bound = object.manifest["spec"]["nodeName"].is_string() && object.kind == Kind::Pod;
        if bound || !self.directory.namespaces.contains_key(namespace) {
            return self.submit_unmanaged(object, id);
        }
        let mut manifest = self.admitted(object, &id, standing)?;
        self.resolve_class(object, &mut manifest)?;
        manifest["metadata"]["uid"] = (*id.0).into();
        let life = life(object);
        let submitted = self.known.get(&id).map_or(submitted, |known| known.submitted);
        if self.groups.has_started(&id) {
            return Ok(Vec::new());
        }
        let mut member = None;
        let (change, managed) = if object.kind == Kind::Job {
            let seen = target::job::job(&decode_value(object, manifest)?, submitted);
            let managed = seen.managed.clone();
            (Change::Job(Seen::Object(id.0.clone(), seen)), managed)
        } else {
            let mut seen = target::pod::pod(&decode_value(object, manifest.clone())?);
            if let Some(managed) = seen.managed.as_deref_mut() {
                Arc::make_mut(&mut managed.workload).submitted = submitted;
            }
            if seen.group.is_some() {
                refuse_running(object)?;
                member = Some(manifest);
            }
            let managed = seen.managed.clone();
            (Change::Pod(Seen::Object(id.0.clone(), seen)), managed)
        };
        let shape = managed.map(|managed| Arc::clone(&managed.workload.shape)).unwrap_or_default();
        self.known.insert(id.clone(), Known { object: Arc::clone(object), life, shape, submitted });
        let effects = self.take(change);
        let Some(manifest) = member else { return Ok(effects) };
        self.groups.store(id.clone(), manifest);
        let Some((managed, _)) = self.mirror.workload(&id) else { return Ok(effects) };
        let (pod, queue) = (managed.workload.clone(), self.mirror.queue_of(&managed.workload));
        Ok([Effect::Member(pod, queue)].into_iter().chain(effects).collect())
    }

    /// Starts the pods of a group; pods submitted later start alone.
    pub fn started(&mut self, id: &WorkloadId, admission: &Admission) {
        let members: Vec<WorkloadId> = self.members(id).collect();
        let record = Record::of_group(&id.0, admission, members.iter().map(|id| &*id.0));
        for seen in self.groups.start(id, members, &record) {
            self.mirror.take(Change::Pod(Seen::Object(seen.uid.clone(), seen)));
        }
    }

    /// Ends the pods of a group; pods submitted later form a new group.
    pub fn ended(&mut self, id: &WorkloadId) {
        for seen in self.groups.end(id) {
            self.mirror.take(Change::Pod(Seen::Object(seen.uid.clone(), seen)));
        }
    }

    fn members(&self, id: &WorkloadId) -> impl Iterator<Item = WorkloadId> {
        self.mirror.members(id).map(|(managed, _)| managed.workload.id.clone())
    }

    /// The object as the API server stores it after the webhook's answer.
    fn admitted(
        &mut self,
        object: &Object,
        id: &WorkloadId,
        standing: &Standing,
    ) -> Result<Value, ScenarioError> {
        let mut manifest = object.manifest.clone();
        let user = take_user(&mut manifest);
        let user = user.as_str().unwrap_or_default();
        let refused = |problem: String| check::refused(object, &problem);
        if let Some(known) = self.known.get(id) {
            let last = &known.object.manifest;
            let mut without_user = last.clone();
            take_user(&mut without_user);
            let lasts = (last, &without_user);
            return applied_again(&self.directory, user, lasts, manifest, standing).map_err(refused);
        }
        let (object_stored, warnings) = stored(&self.directory, user, None, manifest).map_err(refused)?;
        self.warn(&object.origin, warnings);
        Ok(object_stored)
    }

    /// Resolves the priority class, as the API server does for each pod.
    fn resolve_class(&self, object: &Object, manifest: &mut Value) -> Result<(), ScenarioError> {
        let spec = if object.kind == Kind::Job { "/spec/template/spec" } else { "/spec" };
        let Some(spec) = manifest.pointer_mut(spec) else { return Ok(()) };
        let value = match spec["priorityClassName"].as_str().filter(|class| !class.is_empty()) {
            Some(class) => match self.classes.get(class) {
                Some((value, _)) => *value,
                None => {
                    let prefix = if object.kind == Kind::Job { "spec.template.spec" } else { "spec" };
                    let field = format!("{prefix}.priorityClassName");
                    return Err(object.invalid(&field, format!("there is no PriorityClass {class:?}")));
                }
            },
            None => self.classes.values().find(|(_, default)| *default).map_or(0, |(value, _)| *value),
        };
        if object.kind == Kind::Pod {
            spec["priority"] = value.into();
        }
        Ok(())
    }

    fn submit_unmanaged(
        &mut self,
        object: &Arc<Object>,
        id: WorkloadId,
    ) -> Result<Vec<Effect>, ScenarioError> {
        let workload = unmanaged_object::unmanaged(object, id.clone(), &self.mirror)?;
        let (life, shape) = (workload.life, workload.shape.clone().into());
        self.known.insert(id, Known { object: Arc::clone(object), life, shape, submitted: Time(0) });
        Ok(vec![Effect::Unmanaged(workload)])
    }

    /// Passes a change to the mirror; returns its effects.
    fn take(&mut self, change: Change) -> Vec<Effect> {
        let events = self.mirror.take(change);
        events.into_iter().map(|event| self.effect(event)).collect()
    }

    /// Whether pods of a workload claim devices.
    fn claims(&self, id: &WorkloadId) -> bool {
        let parts = self.mirror.workload(id).into_iter().chain(self.mirror.members(id));
        parts.into_iter().any(|(managed, _)| managed.claims.is_some())
    }

    fn effect(&self, event: Event) -> Effect {
        match event {
            Event::WorkloadApplied(workload) => {
                let queue = self.mirror.queue_of(&workload);
                let members: Vec<WorkloadId> = self.members(&workload.id).collect();
                let known = self.known.get(members.first().unwrap_or(&workload.id));
                let all = members.iter().filter_map(|id| Some(self.known.get(id)?.life));
                let life = longest(all).or_else(|| known.map(|known| known.life));
                let life = life.unwrap_or_else(|| life_in_snapshot(&workload));
                let workload = match known {
                    // The mirror has counted claimed devices.
                    Some(known) => Workload {
                        // A group counts as submitted when it is complete, which the mirror knows.
                        submitted: if members.is_empty() { known.submitted } else { workload.submitted },
                        shape: match self.claims(&workload.id) {
                            true => {
                                let requests = workload.shape.requests.clone();
                                PodShape { requests, ..PodShape::clone(&known.shape) }.into()
                            }
                            false => Arc::clone(&known.shape),
                        },
                        resizable: workload.kind == WorkloadKind::Job,
                        // Pods of a scenario that state no grace period end at once.
                        grace: life.grace,
                        ..Arc::unwrap_or_clone(workload)
                    }
                    .into(),
                    None => workload,
                };
                let deadline = known.and_then(|known| deadline(&known.object));
                Effect::Submitted { workload, life, deadline, queue, members }
            }
            Event::WorkloadRemoved(id) => Effect::Deleted(id),
            other => Effect::Event(other),
        }
    }
}
