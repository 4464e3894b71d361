//! A scenario's objects, reduced to the fields from which usage can be added up.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice::engine::types::amount::Amount;
use sluice::scenario::{Change, Kind, Object, RunningOn, Scenario};

use crate::outcome::Seconds;

/// Amounts in thousandths, by resource.
pub type Milli = BTreeMap<String, i64>;

const GPU: &str = "nvidia.com/gpu";

/// A node and its lifetime.
#[derive(Debug, Default)]
pub struct Node {
    /// Allocatable resources.
    pub offers: Milli,
    /// The pool it belongs to.
    pub pool: String,
    /// When it joins.
    pub from: Seconds,
    /// When it is cordoned.
    pub cordoned: Option<Seconds>,
    /// When it is lost.
    pub lost: Option<Seconds>,
}

/// A workload as submitted.
#[derive(Debug)]
pub struct Request {
    /// Resources of one pod, its slot included.
    pub pod: Milli,
    /// The GPU fraction of a pod in thousandths, if it uses no whole GPU.
    pub fraction: Option<i64>,
    /// Milliseconds from the request to stop to the end of its pods.
    pub grace: i64,
    /// When it is deleted.
    pub deleted: Option<Seconds>,
    /// The nodes on which it runs from the beginning.
    pub running_on: Option<RunningOn>,
    /// The queue in its label.
    pub queue: Option<String>,
    /// The name of its PriorityClass.
    pub class: Option<String>,
    /// Whether it is an unmanaged pod.
    pub unmanaged: bool,
    /// Run time of each pod in milliseconds; unlimited without it.
    pub duration: Option<i64>,
    /// Number of requested pods.
    pub pods: u32,
}

/// A team's quotas.
#[derive(Debug, Default)]
pub struct Team {
    /// The parent team.
    pub parent: Option<String>,
    /// The guarantee by pool.
    pub guaranteed: BTreeMap<String, Milli>,
    /// The limit by pool.
    pub limit: BTreeMap<String, Milli>,
    /// The limit of each of its queues.
    pub queue_limits: BTreeMap<String, Milli>,
    /// The priority of each of its queues.
    pub queue_priorities: BTreeMap<String, i64>,
    /// The queue of workloads without a label.
    pub default_queue: String,
}

/// The objects of a scenario.
#[derive(Debug, Default)]
pub struct Cluster {
    /// The nodes.
    pub nodes: BTreeMap<String, Node>,
    /// The workloads by `namespace/name`.
    pub requests: BTreeMap<String, Request>,
    /// The value of each PriorityClass.
    pub classes: BTreeMap<String, i64>,
    /// The teams as first applied.
    pub teams: BTreeMap<String, Team>,
    /// Teams that change while the scenario runs.
    pub edited: BTreeSet<String>,
}

impl Cluster {
    /// Reads the objects of a scenario.
    pub fn of(scenario: &Scenario) -> Self {
        let mut cluster = Self::default();
        let mut pools: Vec<(&str, &Value)> = Vec::new();
        let mut members: BTreeSet<&str> = BTreeSet::new();
        for object in scenario.objects() {
            match object.kind {
                Kind::NodePool => pools.push((&object.name, &object.manifest["spec"])),
                Kind::Namespace if !object.manifest["metadata"]["labels"]["sluice.dev/team"].is_null() => {
                    members.insert(&object.name);
                }
                _ => {}
            }
        }
        pools.sort_by_key(|(name, _)| *name);
        for step in &scenario.steps {
            let at = Seconds(i64::try_from(step.at.as_millis()).expect("a scenario is short"));
            match &step.change {
                Change::Apply(object) => cluster.applied(object, at, &pools, &members),
                Change::Delete(object) => {
                    if let Some(request) = cluster.requests.get_mut(&key(object)) {
                        request.deleted = Some(at);
                    }
                }
                Change::Cordon(object) => {
                    cluster.nodes.entry(object.name.clone()).or_default().cordoned = Some(at);
                }
                Change::Fail(object) => cluster.nodes.entry(object.name.clone()).or_default().lost = Some(at),
            }
        }
        cluster
    }

    fn applied(&mut self, object: &Object, at: Seconds, pools: &[(&str, &Value)], members: &BTreeSet<&str>) {
        let manifest = &object.manifest;
        match object.kind {
            Kind::Node => {
                let labels = &manifest["metadata"]["labels"];
                let selects = |selector: &Value| {
                    selector
                        .as_object()
                        .is_some_and(|wanted| wanted.iter().all(|(key, value)| labels[key] == *value))
                };
                let pool = pools.iter().find(|(_, spec)| selects(&spec["nodeSelector"]));
                let pool = pool.map_or("default", |(name, _)| name).to_owned();
                let offers = amounts(&manifest["status"]["allocatable"]);
                let node = Node { offers, pool, from: at, cordoned: None, lost: None };
                self.nodes.insert(object.name.clone(), node);
            }
            Kind::Team => {
                if self.teams.insert(object.name.clone(), team(manifest)).is_some() {
                    self.edited.insert(object.name.clone());
                }
            }
            Kind::Job | Kind::Pod => {
                let member = object.namespace.as_deref().is_some_and(|namespace| members.contains(namespace));
                let wanted = object.manifest["metadata"]["annotations"]["sluice.dev/pool"].as_str();
                let pool = pools.iter().find(|(name, _)| *name == wanted.unwrap_or("default"));
                let offers = pool.map(|(_, spec)| amounts(&spec["shares"])).unwrap_or_default();
                self.requests.insert(key(object), request(object, member, &offers));
            }
            Kind::PriorityClass => {
                self.classes.insert(object.name.clone(), manifest["value"].as_i64().unwrap_or(0));
            }
            Kind::Namespace
            | Kind::NodePool
            | Kind::DeviceClass
            | Kind::ResourceSlice
            | Kind::ResourceClaimTemplate
            | Kind::ResourceClaim => {}
        }
    }

    /// A team and its ancestors.
    pub fn path(&self, team: &str) -> Vec<&str> {
        let mut path = Vec::new();
        let mut next = self.teams.get_key_value(team);
        while let Some((name, team)) = next.filter(|(name, _)| !path.contains(&name.as_str())) {
            path.push(name.as_str());
            next = team.parent.as_ref().and_then(|parent| self.teams.get_key_value(parent));
        }
        path
    }
}

impl Cluster {
    /// The priority of a workload in its team: that of its queue, then the value of its class.
    pub fn priority(&self, key: &str, team: &str) -> (i64, i64) {
        let (request, team) = (self.requests.get(key), self.teams.get(team));
        let queue =
            request.and_then(|request| request.queue.as_ref()).or(team.map(|team| &team.default_queue));
        let of_queue = team.zip(queue).and_then(|(team, queue)| team.queue_priorities.get(queue));
        let class =
            request.and_then(|request| request.class.as_ref()).and_then(|class| self.classes.get(class));
        (of_queue.copied().unwrap_or(0), class.copied().unwrap_or(0))
    }
}

/// `namespace/name`.
fn key(object: &Object) -> String {
    format!("{}/{}", object.namespace.as_deref().unwrap_or_default(), object.name)
}

fn amounts(list: &Value) -> Milli {
    let milli = |value: &Value| {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Amount::parse(&text).map_or(0, Amount::as_milli)
    };
    list.as_object().into_iter().flatten().map(|(resource, value)| (resource.clone(), milli(value))).collect()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn team(manifest: &Value) -> Team {
    let spec = &manifest["spec"];
    let mut team =
        Team { parent: text(&spec["parent"]), default_queue: "default".to_owned(), ..Team::default() };
    for quota in spec["quotas"].as_array().into_iter().flatten() {
        let pool = quota["pool"].as_str().unwrap_or("default").to_owned();
        team.guaranteed.insert(pool.clone(), amounts(&quota["guaranteed"]));
        team.limit.insert(pool, amounts(&quota["limit"]));
    }
    let queues = spec["queues"].as_array().into_iter().flatten();
    let queues: Vec<(String, &Value)> =
        queues.filter_map(|queue| Some((text(&queue["name"])?, queue))).collect();
    if let Some((first, _)) = queues.first() {
        team.default_queue.clone_from(first);
    }
    let priority = |queue: &Value| queue["priority"].as_i64().unwrap_or(0);
    team.queue_priorities = queues.iter().map(|(name, queue)| (name.clone(), priority(queue))).collect();
    team.queue_limits = queues.into_iter().map(|(name, queue)| (name, amounts(&queue["limit"]))).collect();
    team
}

/// A workload's requests in a pool with nodes that offer these parts of a GPU.
fn request(object: &Object, member: bool, offers: &Milli) -> Request {
    let manifest = &object.manifest;
    let spec =
        if object.kind == Kind::Job { &manifest["spec"]["template"]["spec"] } else { &manifest["spec"] };
    let mut pod = Milli::from([("pods".to_owned(), 1000)]);
    for container in spec["containers"].as_array().into_iter().flatten() {
        let resources = &container["resources"];
        let mut needs = amounts(&resources["limits"]);
        needs.extend(amounts(&resources["requests"]));
        for (resource, milli) in needs {
            *pod.entry(resource).or_default() += milli;
        }
    }
    let annotations = &manifest["metadata"]["annotations"];
    // Of several fractions the first is the most wanted; smaller ones are listed with the admissions.
    let fraction = annotations["sluice.dev/gpu-fraction"].as_str().and_then(|text| text.split(',').next());
    let mut fraction = fraction.and_then(|fraction| Amount::parse(fraction).ok()).map(Amount::as_milli);
    if fraction == Some(1000) {
        pod.insert(GPU.to_owned(), 1000);
        fraction = None;
    }
    let enough = offers.iter().filter(|(_, part)| fraction.is_some_and(|fraction| **part >= fraction));
    if let Some((offer, _)) = enough.min_by_key(|(_, part)| **part) {
        pod.insert(offer.clone(), 1000);
        fraction = None;
    }
    if let Some(fraction) = fraction {
        pod.insert(GPU.to_owned(), fraction);
    }
    let milliseconds =
        object.duration.map(|duration| i64::try_from(duration.as_millis()).expect("a scenario is short"));
    Request {
        pod,
        fraction,
        grace: spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(0) * 1000,
        deleted: None,
        running_on: object.running_on.clone(),
        queue: text(&manifest["metadata"]["labels"]["sluice.dev/queue"]),
        class: text(&spec["priorityClassName"]),
        unmanaged: !member,
        duration: milliseconds,
        pods: manifest["spec"]["parallelism"].as_u64().and_then(|pods| u32::try_from(pods).ok()).unwrap_or(1),
    }
}
