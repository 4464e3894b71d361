//! Owner chains: Jobs and pods below an object of a custom kind belong to that workload.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::reduce::shape::has_device;
use super::table::{Seen, Table};
use super::target::JobSeen;
use super::target::Managed;
use super::target::pod::PodSeen;
use crate::engine::types::{Name, WorkloadId};
use crate::kinds::Kinds;

/// The longest owner chain that is followed; more levels than any kind has.
const MAX_DEPTH: usize = 8;

/// The objects of the custom kinds, and the owner of each object below them.
#[derive(Debug, Default)]
pub struct Ownership {
    kinds: Kinds,
    /// The objects of each custom kind, in the order of the kinds table.
    pub tables: Vec<Table<JobSeen>>,
    /// The owner of each owned object, by UID.
    parents: BTreeMap<Name, Name>,
}

impl Ownership {
    /// An empty cache for these kinds.
    #[must_use]
    pub fn new(kinds: Kinds) -> Self {
        let tables = kinds.watched().iter().map(|_| Table::default()).collect();
        Self { kinds, tables, parents: BTreeMap::new() }
    }

    /// Whether every first list is complete.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.tables.iter().all(Table::complete)
    }

    /// The custom kinds.
    #[must_use]
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// Unmanages an object that is owned by a workload of a custom kind. An object that Sluice itself holds or has
    /// admitted stays a workload of its own, whatever owner is written on it: its parent's controller makes children
    /// without these marks.
    #[must_use]
    pub fn sorted(&self, mut seen: JobSeen) -> JobSeen {
        let marked =
            seen.managed.as_ref().is_some_and(|managed| managed.facts.held || managed.facts.record.is_some());
        seen.controller = seen.controller.filter(|owner| !marked && self.kinds.is_parent(owner));
        if seen.controller.is_some() {
            seen.managed = None;
        }
        seen
    }

    /// Applies [`Self::sorted`] to a watch message.
    #[must_use]
    pub fn sorted_message(&self, seen: Seen<JobSeen>) -> Seen<JobSeen> {
        match seen {
            Seen::Object(key, look) => Seen::Object(key, self.sorted(look)),
            other => other,
        }
    }

    /// Records the owner of an object; true if it has changed.
    pub fn link(&mut self, child: &Name, parent: Option<&Name>) -> bool {
        let Some(parent) = parent else { return false };
        self.parents.insert(child.clone(), parent.clone()).as_ref() != Some(parent)
    }

    /// Drops the links to a deleted owner.
    pub fn unlink(&mut self, gone: &Name) {
        self.parents.retain(|_, parent| parent != gone);
    }

    /// Drops the link of a deleted object to its owner.
    pub fn forget(&mut self, gone: &Name) {
        self.parents.remove(gone);
    }

    /// Whether this owner is of a kind with a controller that makes pods without a gate.
    #[must_use]
    pub fn is_parent(&self, owner: &OwnerReference) -> bool {
        self.kinds.is_parent(owner)
    }

    /// The object of a custom kind with this UID.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&JobSeen> {
        self.tables.iter().find_map(|table| table.get(uid))
    }

    /// The managed objects of all custom kinds, mutable.
    pub fn managed_mut(&mut self) -> impl Iterator<Item = &mut Managed> {
        let seen = self.tables.iter_mut().flat_map(Table::values_mut);
        seen.filter_map(|seen| seen.managed.as_deref_mut())
    }

    /// The workloads of custom kinds.
    pub fn managed(&self) -> impl Iterator<Item = &Managed> {
        let seen = self.tables.iter().flat_map(Table::iter);
        seen.filter_map(|(_, seen)| seen.managed.as_deref())
    }

    /// The top of an object's owner chain.
    fn root<'a>(&'a self, uid: &'a Name) -> &'a Name {
        (0..MAX_DEPTH).try_fold(uid, |uid, _| self.parents.get(uid).ok_or(uid)).unwrap_or_else(|top| top)
    }

    /// Assigns a pod to the workload at the top of its owner chain. A pod without devices in a workload with devices
    /// is charged by itself: the engine counts only the pods with devices.
    pub fn attribute(&self, pod: &mut PodSeen) {
        let Some(owner) = pod.controller.as_deref().filter(|_| pod.managed.is_none()) else { return };
        let uid: Name = owner.uid.as_str().into();
        if !self.kinds.is_parent(owner) && !self.parents.contains_key(&uid) {
            return;
        }
        let Some(holds) = &mut pod.holds else { return };
        let root = WorkloadId(self.root(&uid).clone());
        let managed = self.get(&root.0).and_then(|seen| seen.managed.as_deref());
        let is_helper = managed.is_some_and(|managed| {
            has_device(&managed.workload.shape.requests) && !has_device(&holds.requests)
        });
        holds.workload = (!is_helper).then(|| root.clone());
        pod.rides_along = is_helper;
        if is_helper && holds.node.is_none() {
            pod.holds = None;
        }
        pod.belongs = Some(root);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::target::{custom::custom, job::job, pod::pod};
    use crate::engine::types::Time;

    fn owner(kind: &str, api_version: &str, uid: &str) -> Value {
        json!([{"apiVersion": api_version, "kind": kind, "name": "x", "uid": uid, "controller": true}])
    }

    fn seen(api_version: &str, kind: &str, object: Value) -> (usize, JobSeen) {
        let kinds = Kinds::default();
        let is = |watched: &&crate::kinds::Watched| {
            watched.resource.kind == kind && watched.resource.api_version == api_version
        };
        let place = kinds.watched().iter().position(|watched| is(&watched)).expect("it is in the table");
        let object = serde_json::from_value(object).expect("an object");
        (place, custom(&kinds.watched()[place], &object, Time(0)))
    }

    /// Caches an object and records its owner.
    fn take(ownership: &mut Ownership, place: usize, seen: JobSeen) {
        let seen = ownership.sorted(seen);
        let (uid, parent) = (seen.uid.clone(), seen.controller.as_ref().map(|owner| Name::from(&*owner.uid)));
        ownership.tables[place].take(Seen::Object(uid.clone(), seen));
        ownership.link(&uid, parent.as_ref());
    }

    fn bound(owner: Value, requests: Value) -> PodSeen {
        pod(&serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "pod", "ownerReferences": owner},
            "spec": {"nodeName": "n", "containers": [{"resources": {"limits": requests}}]},
        }))
        .expect("a pod"))
    }

    #[test]
    fn a_pod_belongs_to_the_uppermost_workload_above_it() {
        let mut ownership = Ownership::new(Kinds::default());
        let template = |gpus: u64| json!({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus}}}]}});
        let (place, set) = seen(
            "trainer.kubeflow.org/v1alpha1",
            "TrainJob",
            json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
                "metadata": {"name": "t", "uid": "top", "annotations": {"sluice.dev/held": "true"}},
                "spec": {"suspend": true, "trainer": {"numNodes": 1, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 2}}}}}),
        );
        take(&mut ownership, place, set);
        let (place, below) = seen(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
                "metadata": {"name": "t", "uid": "middle",
                    "ownerReferences": owner("TrainJob", "trainer.kubeflow.org/v1alpha1", "top")},
                "spec": {"suspend": true, "replicatedJobs": [{"template": {"spec": {"template": template(2)}}}]}}),
        );
        take(&mut ownership, place, below);
        assert!(
            ownership.get("middle").is_some_and(|seen| seen.managed.is_none()),
            "its owner is the workload"
        );

        let child = json!({
            "metadata": {"name": "j", "uid": "job", "ownerReferences": owner("JobSet", "jobset.x-k8s.io/v1alpha2", "middle")},
            "spec": {"suspend": true, "template": template(2)},
        });
        let child = ownership.sorted(job(&serde_json::from_value(child).expect("a Job"), Time(0)));
        assert!(child.managed.is_none(), "so is its Job");
        let of_job = || owner("Job", "batch/v1", "job");
        let mut early = bound(of_job(), json!({"nvidia.com/gpu": 2}));
        ownership.attribute(&mut early);
        assert_eq!(early.belongs, Some(WorkloadId("job".into())), "the owner of the Job is not known yet");

        assert!(ownership.link(&"job".into(), Some(&"middle".into())));
        let mut worker = bound(of_job(), json!({"nvidia.com/gpu": 2}));
        ownership.attribute(&mut worker);
        let top = Some(WorkloadId("top".into()));
        assert_eq!(worker.belongs, top);
        assert_eq!(worker.holds.expect("it runs").workload, top);

        let mut launcher = bound(of_job(), json!({"cpu": 1}));
        ownership.attribute(&mut launcher);
        assert_eq!(launcher.belongs, top, "the workload lasts as long as this pod");
        assert_eq!(
            launcher.holds.expect("it runs").workload,
            None,
            "but it is not one of the pods with GPUs"
        );
    }

    #[test]
    fn pods_of_plain_jobs_and_other_controllers_are_left_as_they_are() {
        let ownership = Ownership::new(Kinds::default());
        let mut of_job = bound(owner("Job", "batch/v1", "job"), json!({"cpu": 1}));
        let before = of_job.holds.clone();
        ownership.attribute(&mut of_job);
        assert_eq!(of_job.holds, before);
        let mut of_set = bound(owner("ReplicaSet", "apps/v1", "set"), json!({"cpu": 1}));
        ownership.attribute(&mut of_set);
        assert_eq!(of_set.holds.expect("it is bound").workload, None);
    }
}
