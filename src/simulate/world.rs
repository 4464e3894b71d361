//! The API server of a simulation: takes objects as they are applied, and says what each means.
//!
//! What is applied goes through the webhook's answers, the reductions and the mirror of the real edge,
//! so that the engine is told what it would be told on a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::core::PartialObjectMeta;
use serde_json::Value;

use super::check;
use super::groups::Groups;
use super::news::News;
use super::read::{self, deadline, decode_value, invalid, life, longest, node_as_kubelet, refuse_running};
use super::snapshot::Snapshot;
use super::strangers::Stranger;
use crate::api::node_pool::NodePool;
use crate::api::record::Record;
use crate::api::team::Team;
use crate::cluster::dra;
use crate::cluster::mirror::{Change, Mirror};
use crate::cluster::reduce;
use crate::cluster::reduce::claims::Claims;
use crate::cluster::table::Seen;
use crate::cluster::target;
use crate::cluster::wire;
use crate::directory::Directory;
use crate::engine::replay::Life;
use crate::engine::types::{Admission, Event, Name, PodShape, Time, Workload, WorkloadId, WorkloadKind};
use crate::scenario::{Kind, Object, ScenarioError};
use crate::webhook::offline::stored;

/// What the mirror does not keep of a workload.
#[derive(Clone, Debug)]
struct Known {
    object: Arc<Object>,
    life: Life,
    shape: PodShape,
    submitted: Time,
}

/// All objects there are.
#[derive(Debug)]
pub struct World {
    mirror: Mirror,
    directory: Directory,
    namespaces: BTreeSet<String>,
    classes: BTreeMap<String, (i32, bool)>,
    known: BTreeMap<WorkloadId, Known>,
    groups: Groups,
    nodes: BTreeMap<String, Value>,
    /// Jobs and Pods that were there before the scenario, by namespace and name.
    there: BTreeSet<(Kind, String, String)>,
    checker: check::Checker,
    /// Of what those who submit would be warned, once for each document.
    warnings: BTreeSet<String>,
}

/// What every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
const CLASSES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

impl World {
    /// A cluster without any of the objects that scenarios have.
    #[must_use]
    pub fn new() -> Self {
        let mut mirror = Mirror::default();
        for begins in [true, false] {
            macro_rules! listed {
                ($($kind:ident),*) => {
                    [$(Change::$kind(if begins { Seen::ListBegins } else { Seen::ListEnds })),*]
                };
            }
            for change in listed!(Namespace, Team, Pool, Node, Class, Job, Pod) {
                mirror.take(change);
            }
        }
        mirror.take(Change::PodGroups(false));
        for news in dra::News::nothing() {
            mirror.take(Change::Devices(news));
        }
        Self {
            mirror,
            directory: Directory::default(),
            namespaces: NAMESPACES.iter().map(|name| (*name).to_owned()).collect(),
            classes: CLASSES.iter().map(|(name, value)| ((*name).to_owned(), (*value, false))).collect(),
            known: BTreeMap::new(),
            groups: Groups::default(),
            nodes: BTreeMap::new(),
            there: BTreeSet::new(),
            checker: check::Checker::default(),
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

    /// Takes over a cluster's objects; what the engine is to be told of them.
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
                self.there.insert((*kind, object.namespace.unwrap_or_default(), object.name));
            }
            events.extend(self.mirror.take(change));
        }
        Ok(events)
    }

    /// Of what those who submit were warned, with where that was written.
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.iter().cloned().collect()
    }

    /// The queue a workload is in.
    #[must_use]
    pub fn queue_of(&self, workload: &Workload) -> Name {
        self.mirror.queue_of(workload)
    }

    /// Applies an object; a workload counts as submitted at `submitted`.
    pub fn apply(&mut self, object: &Arc<Object>, submitted: Time) -> Result<Vec<News>, ScenarioError> {
        match object.kind {
            Kind::Node => {
                self.checker.node(object)?;
                self.nodes.insert(object.name.clone(), node_as_kubelet(&object.manifest));
                self.node(object)
            }
            Kind::Job | Kind::Pod => self.submit(object, submitted),
            _ => {
                let change = self.definition(object, true)?;
                Ok(self.take(change))
            }
        }
    }

    /// Reads what is neither a node nor a workload; `strictly` refuses fields that the kind does not have.
    fn definition(&mut self, object: &Object, strictly: bool) -> Result<Change, ScenarioError> {
        if let Some(news) = read::devices(&self.checker, object, strictly)? {
            return Ok(Change::Devices(news));
        }
        let name: Name = object.name.as_str().into();
        Ok(match object.kind {
            Kind::Team => {
                let team: Team = self.checker.decode(object, strictly)?;
                check::field(object, crate::engine::types::Team::try_from(&team))?;
                let seen = reduce::team::team(&team).map_err(|problem| invalid(object, "spec", problem))?;
                Change::Team(Seen::Object(name, seen))
            }
            Kind::NodePool => {
                let pool: NodePool = self.checker.decode(object, strictly)?;
                check::field(object, crate::engine::types::Pool::try_from(&pool))?;
                let seen = reduce::team::pool(&pool).map_err(|problem| invalid(object, "spec", problem))?;
                Change::Pool(Seen::Object(name, seen))
            }
            Kind::PriorityClass => {
                let class: PriorityClass = self.checker.decode(object, strictly)?;
                let seen = reduce::team::class(&class);
                self.classes.insert(object.name.clone(), (seen.value, seen.global_default));
                Change::Class(Seen::Object(name, seen))
            }
            _ => {
                self.checker.decode::<Namespace>(object, strictly)?;
                self.namespaces.insert(object.name.clone());
                let metadata: PartialObjectMeta<_> = object.decode()?;
                Change::Namespace(Seen::Object(name, reduce::team::namespace(&metadata)))
            }
        })
    }

    /// Deletes an object; one that is not there any more is nothing.
    pub fn delete(&mut self, object: &Object) -> Vec<News> {
        if let Some(news) = read::devices_gone(object) {
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

    /// Closes a node to new pods.
    pub fn cordon(&mut self, object: &Object) -> Result<Vec<News>, ScenarioError> {
        match self.nodes.get_mut(&object.name) {
            Some(node) => {
                node["spec"]["unschedulable"] = true.into();
                self.node(object)
            }
            None => Ok(Vec::new()),
        }
    }

    /// Everything in a namespace goes with it.
    fn delete_namespace(&mut self, name: &Name) -> Vec<News> {
        let inside = |known: &Known| known.object.namespace.as_deref() == Some(name);
        let ids: Vec<WorkloadId> =
            self.known.iter().filter(|(_, known)| inside(known)).map(|(id, _)| id.clone()).collect();
        let mut news: Vec<News> = ids.iter().flat_map(|id| self.delete_workload(id)).collect();
        self.namespaces.remove(&**name);
        news.extend(self.take(Change::Namespace(Seen::Deleted(name.clone()))));
        news
    }

    fn delete_workload(&mut self, id: &WorkloadId) -> Vec<News> {
        let Some(known) = self.known.remove(id) else { return Vec::new() };
        let managed = self.mirror.workload(id).is_some();
        let member = self.groups.forget(id);
        let gone = Seen::Deleted(id.0.clone());
        let news = self.take(if known.object.kind == Kind::Job {
            Change::Job(gone)
        } else {
            Change::Pod(Seen::Deleted(id.0.clone()))
        });
        match member {
            Some((group, number)) => vec![News::MemberGone { group, number }],
            None if managed => news,
            None => vec![News::StrangerGone(id.clone())],
        }
    }

    fn node(&mut self, object: &Object) -> Result<Vec<News>, ScenarioError> {
        let manifest = self.nodes.get(&object.name).cloned().unwrap_or_default();
        let node: wire::Node = decode_value(object, manifest)?;
        let seen = reduce::node::node(&node);
        Ok(self.take(Change::Node(Seen::Object(object.name.as_str().into(), seen))))
    }

    /// Creates or changes a Job or a pod.
    fn submit(&mut self, object: &Arc<Object>, submitted: Time) -> Result<Vec<News>, ScenarioError> {
        self.checker.workload(object)?;
        let namespace = object.namespace.as_deref().unwrap_or_default();
        if !self.namespaces.contains(namespace) {
            return Err(invalid(
                object,
                "metadata.namespace",
                format!("there is no Namespace {namespace:?}"),
            ));
        }
        if let Some(directory) = self.mirror.directory() {
            self.directory = directory;
        }
        let id = Self::id(object);
        let there = (object.kind, namespace.to_owned(), object.name.clone());
        if self.there.contains(&there) {
            return Err(invalid(object, "metadata.name", "is in the snapshot already".to_owned()));
        }
        let bound = object.manifest["spec"]["nodeName"].is_string() && object.kind == Kind::Pod;
        if bound || !self.directory.namespaces.contains_key(namespace) {
            return self.submit_stranger(object, id);
        }
        let mut manifest = self.admitted(object, &id)?;
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
                managed.workload.submitted = submitted;
            }
            if seen.group.is_some() {
                refuse_running(object)?;
                member = Some(manifest);
            }
            let managed = seen.managed.clone();
            (Change::Pod(Seen::Object(id.0.clone(), seen)), managed)
        };
        let shape = managed.map(|managed| managed.workload.shape).unwrap_or_default();
        self.known.insert(id.clone(), Known { object: Arc::clone(object), life, shape, submitted });
        let news = self.take(change);
        let Some(manifest) = member else { return Ok(news) };
        self.groups.note(id.clone(), manifest);
        let Some((managed, _)) = self.mirror.workload(&id) else { return Ok(news) };
        let (pod, queue) = (managed.workload.clone(), self.mirror.queue_of(&managed.workload));
        Ok([News::Member(pod, queue)].into_iter().chain(news).collect())
    }

    /// The pods of a group have started, as they would show on a cluster: what comes after them does so
    /// alone.
    pub fn started(&mut self, id: &WorkloadId, admission: &Admission) {
        let members: Vec<WorkloadId> = self.members(id).collect();
        let record = Record::of_group(&id.0, admission, members.iter().map(|id| &*id.0));
        for seen in self.groups.start(id, members, &record) {
            self.mirror.take(Change::Pod(Seen::Object(seen.uid.clone(), seen)));
        }
    }

    /// The pods of a group have ended: what comes after them is a group of its own.
    pub fn ended(&mut self, id: &WorkloadId) {
        for seen in self.groups.end(id) {
            self.mirror.take(Change::Pod(Seen::Object(seen.uid.clone(), seen)));
        }
    }

    fn members(&self, id: &WorkloadId) -> impl Iterator<Item = WorkloadId> {
        self.mirror.members(id).map(|(managed, _)| managed.workload.id.clone())
    }

    /// The object as the API server would store it once the webhook has answered.
    fn admitted(&mut self, object: &Object, id: &WorkloadId) -> Result<Value, ScenarioError> {
        let mut manifest = object.manifest.clone();
        // The scenario says who submits; on a cluster the API server knows.
        let notes = manifest.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
        let user = notes.and_then(|notes| notes.remove(USER)).unwrap_or_default();
        let user = user.as_str().unwrap_or_default();
        let refused = |problem: String| check::refused(object, &problem);
        let Some(known) = self.known.get(id) else {
            let (object_stored, warnings) = stored(&self.directory, user, None, manifest).map_err(refused)?;
            self.warnings.extend(warnings.iter().map(|warning| {
                let warning = warning.strip_prefix("sluice: ").unwrap_or(warning);
                format!("{}: {warning}", object.origin)
            }));
            return Ok(object_stored);
        };
        let (before, _) =
            stored(&self.directory, user, None, known.object.manifest.clone()).map_err(refused)?;
        let queued = before.pointer("/metadata/annotations/sluice.dev~1held").is_some();
        let held = manifest["spec"]["suspend"] == Value::Bool(true);
        if queued && held {
            return Ok(stored(&self.directory, user, None, manifest).map_err(refused)?.0);
        }
        // What Sluice holds is not released by an apply of the same manifest; what its user holds is
        // released by one that does not hold it.
        manifest["spec"]["suspend"] = (queued || held).into();
        let mut after = before.clone();
        json_patch::merge(&mut after, &manifest);
        Ok(stored(&self.directory, user, Some(&before), after).map_err(refused)?.0)
    }

    /// Looks the priority class up, as the API server does when it makes the pods.
    fn resolve_class(&self, object: &Object, manifest: &mut Value) -> Result<(), ScenarioError> {
        let spec = if object.kind == Kind::Job { "/spec/template/spec" } else { "/spec" };
        let Some(spec) = manifest.pointer_mut(spec) else { return Ok(()) };
        let value = match spec["priorityClassName"].as_str().filter(|class| !class.is_empty()) {
            Some(class) => match self.classes.get(class) {
                Some((value, _)) => *value,
                None => {
                    let prefix = if object.kind == Kind::Job { "spec.template.spec" } else { "spec" };
                    let field = format!("{prefix}.priorityClassName");
                    return Err(invalid(object, &field, format!("there is no PriorityClass {class:?}")));
                }
            },
            None => self.classes.values().find(|(_, default)| *default).map_or(0, |(value, _)| *value),
        };
        if object.kind == Kind::Pod {
            spec["priority"] = value.into();
        }
        Ok(())
    }

    fn submit_stranger(&mut self, object: &Arc<Object>, id: WorkloadId) -> Result<Vec<News>, ScenarioError> {
        let job: wire::Job;
        let pod: wire::Pod;
        let (spec, at, numbers) = if object.kind == Kind::Job {
            job = decode_value(object, object.manifest.clone())?;
            let count = |number: Option<i64>| number.and_then(|number| u32::try_from(number).ok());
            let pods = count(job.spec.parallelism).unwrap_or(1);
            let completions = count(job.spec.completions).unwrap_or(pods);
            (
                &job.spec.template.spec,
                "spec.template.spec",
                (pods, completions, job.spec.suspend == Some(true)),
            )
        } else {
            pod = decode_value(object, object.manifest.clone())?;
            (&pod.spec, "spec", (1, 1, false))
        };
        let mut shape = reduce::shape::shape(spec, spec.affinity.as_ref());
        let namespace = object.namespace.as_deref().unwrap_or_default().into();
        let claims = reduce::claims::claims(spec, None);
        if let Some(claims) = Claims::of_template(&namespace, vec![claims], &shape.requests, &[]) {
            let wrong = |why: Name| invalid(object, &format!("{at}.resourceClaims"), why.to_string());
            shape.requests = self.mirror.requests_with(&claims).map_err(wrong)?;
        }
        let (pods, completions, held) = numbers;
        let bound = spec.node_name.as_deref().filter(|_| object.kind == Kind::Pod).map(Name::from);
        let life = life(object);
        let known = Known { object: Arc::clone(object), life, shape: shape.clone(), submitted: Time(0) };
        self.known.insert(id.clone(), known);
        Ok(vec![News::Stranger(Stranger { id, shape, pods, completions, life, held, bound })])
    }

    /// Shows the mirror a change; what it makes of it.
    fn take(&mut self, change: Change) -> Vec<News> {
        let events = self.mirror.take(change);
        events.into_iter().map(|event| self.news(event)).collect()
    }

    /// Whether pods of a workload claim devices.
    fn claims(&self, id: &WorkloadId) -> bool {
        let parts = self.mirror.workload(id).into_iter().chain(self.mirror.members(id));
        parts.into_iter().any(|(managed, _)| managed.claims.is_some())
    }

    fn news(&self, event: Event) -> News {
        match event {
            Event::WorkloadApplied(workload) => {
                let queue = self.mirror.queue_of(&workload);
                let members: Vec<WorkloadId> = self.members(&workload.id).collect();
                let known = self.known.get(members.first().unwrap_or(&workload.id));
                let all = members.iter().filter_map(|id| Some(self.known.get(id)?.life));
                let life = longest(all).or_else(|| known.map(|known| known.life)).unwrap_or_default();
                let workload = match known {
                    // What pods claim the mirror has counted.
                    Some(known) => Workload {
                        // A group is submitted when it is complete, which the mirror has worked out.
                        submitted: if members.is_empty() { known.submitted } else { workload.submitted },
                        shape: match self.claims(&workload.id) {
                            true => PodShape { requests: workload.shape.requests, ..known.shape.clone() },
                            false => known.shape.clone(),
                        },
                        resizable: workload.kind == WorkloadKind::Job,
                        ..workload
                    },
                    None => workload,
                };
                let deadline = known.and_then(|known| deadline(&known.object));
                News::Submitted { workload, life, deadline, queue, members }
            }
            Event::WorkloadRemoved(id) => News::Deleted(id),
            other => News::Event(other),
        }
    }
}

/// The annotation by which a scenario says who submits; on a cluster the webhook writes it.
const USER: &str = "sluice.dev/user";
