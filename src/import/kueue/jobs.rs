//! Jobs under Kueue: those that run go on, those that wait get what they need to wait in Sluice.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::{JobSpec, JobStatus};

use super::super::note::{ImportError, Notes};
use super::super::plan::Pending;
use super::objects::{QUEUE_NAME, Setup};
use super::quotas::Tree;
use super::team_names::label;
use crate::api::names;

/// The label that names a WorkloadPriorityClass.
const PRIORITY: &str = "kueue.x-k8s.io/priority-class";
/// The annotation with the fewest pods of a Job.
const MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// The label with the longest run time, in seconds.
const MAX_SECONDS: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// How annotations of pod templates begin.
const PODSET: &str = "kueue.x-k8s.io/podset-";
/// The annotations of pod templates about topology, and those of Sluice.
const TOPOLOGY: [(&str, &str); 2] = [
    ("kueue.x-k8s.io/podset-required-topology", names::TOPOLOGY_REQUIRED),
    ("kueue.x-k8s.io/podset-preferred-topology", names::TOPOLOGY_PREFERRED),
];

/// The Jobs that wait, in Kueue's order, and the number of those that run.
pub fn jobs(
    setup: &Setup,
    tree: &Tree,
    namespaces: &BTreeMap<String, BTreeMap<String, String>>,
    notes: &mut Notes,
) -> Result<(Vec<Pending>, usize), ImportError> {
    let mut waiting = Vec::new();
    let mut running = 0;
    for job in &setup.jobs {
        // Fields of Jobs are none of the set-up: what is unknown of them is not noted.
        let mut unread = Notes::default();
        let spec: JobSpec = job.part("spec", &mut unread)?;
        let status: JobStatus = job.part("status", &mut unread)?;
        let ended = status.conditions.unwrap_or_default();
        let ended = ended
            .iter()
            .any(|sign| ["Complete", "Failed"].contains(&sign.type_.as_str()) && sign.status == "True");
        if ended {
            continue;
        }
        let labels = job.labels();
        let suspended = spec.suspend.unwrap_or_default();
        let Some(home) = namespaces.get(&job.namespace) else {
            if suspended && labels.contains_key(QUEUE_NAME) {
                let text =
                    "waits in a namespace that belongs to no team here, and stays suspended without Kueue";
                notes.by_hand(&job.label(), "", text);
            }
            continue;
        };
        if !suspended {
            running += 1;
            continue;
        }
        let annotations = job.value["metadata"]["annotations"].as_object();
        if annotations.is_some_and(|annotations| annotations.contains_key(names::HELD)) {
            continue;
        }
        if let Some(manager) = spec.managed_by.filter(|manager| manager != "kubernetes.io/job-controller") {
            let text = format!("is run by {manager}, not by the Job controller; it stays as it is");
            notes.by_hand(&job.label(), "spec.managedBy", text);
            continue;
        }
        let queue = labels.get(QUEUE_NAME).map(String::as_str).unwrap_or_default();
        let local = setup.locals.iter().find(|local| local.namespace == job.namespace && local.name == queue);
        let node = local.and_then(|local| tree.queues.get(&local.spec.cluster_queue));
        let Some(node) = node.filter(|node| home.get(names::TEAM) == Some(&node.team)) else {
            notes.by_hand(
                &job.label(),
                "",
                format!("waits in LocalQueue {queue}, which the namespace's team has not"),
            );
            continue;
        };
        let class = labels.get(PRIORITY).and_then(|name| setup.classes.get(name));
        let priority = class.map_or(0, |(value, _)| *value);
        let mut pending = Pending {
            namespace: job.namespace.clone(),
            name: job.name.clone(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        };
        let default = home.get(names::QUEUE);
        let queue = label(queue, "LocalQueue", &|_| false)?;
        if default.is_some_and(|default| *default != queue) {
            pending.labels.insert(names::QUEUE.to_owned(), queue);
        }
        if priority != 0 {
            pending.annotations.insert(names::TEAM_ORDER.to_owned(), priority.to_string());
        }
        if node.pools.iter().any(|pool| pool != crate::engine::types::DEFAULT_POOL) {
            pending.annotations.insert(names::POOL.to_owned(), node.pools.join(","));
        }
        let template = job.value["spec"]["template"]["metadata"]["annotations"].as_object();
        let least = annotations.and_then(|annotations| annotations.get(MIN_PARALLELISM)?.as_str());
        if let Some(least) = least.filter(|least| least.parse::<u32>().is_ok()) {
            pending.annotations.insert(names::MIN_PARALLELISM.to_owned(), least.to_owned());
        }
        if let Some(seconds) = labels.get(MAX_SECONDS).filter(|seconds| seconds.parse::<u32>().is_ok()) {
            pending.annotations.insert(names::TIME_LIMIT.to_owned(), format!("{seconds}s"));
        }
        if setup.deactivated.contains(&(job.namespace.clone(), job.name.clone())) {
            let text = "its Workload is deactivated, so it is on hold here until `sluice release`";
            notes.by_hand(&job.label(), "spec.active", text);
            pending.annotations.insert(names::HOLD.to_owned(), "true".to_owned());
        }
        let read = TOPOLOGY.map(|(theirs, _)| theirs);
        let others = template.into_iter().flat_map(|annotations| annotations.keys());
        for key in others.filter(|key| key.starts_with(PODSET) && !read.contains(&key.as_str())) {
            notes.lost(&job.label(), key, "left out");
        }
        for (theirs, ours) in TOPOLOGY {
            if let Some(level) = template.and_then(|annotations| annotations.get(theirs)?.as_str()) {
                pending.annotations.insert(ours.to_owned(), level.to_owned());
            }
        }
        let created = job.value["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
        waiting
            .push(((std::cmp::Reverse(priority), created, job.namespace.clone(), job.name.clone()), pending));
    }
    waiting.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok((waiting.into_iter().map(|(_, pending)| pending).collect(), running))
}
