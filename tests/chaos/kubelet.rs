//! What the simulated kubelet has lost.
//!
//! kwok acts on a pod when a watch tells of it, and never again. It drops what comes before it knows that the Lease of the
//! node is its own, and a write that fails in the middle while the API server or etcd restarts. A real kubelet looks at
//! all its pods every few seconds; here an annotation makes kwok look at a pod again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use sluice_harness::{PodView, View};

/// How long after its time a pod is lost. On a busy machine kwok is a few seconds late.
const SLACK: Duration = Duration::from_secs(10);

/// The pods that only a kubelet can bring further, and that are overdue: bound to a node that is there, and not started,
/// not ended or not removed. A pod without a node is never one of them: that is the work of Sluice and kube-scheduler.
pub fn lost(view: &View, now: Timestamp) -> Vec<&PodView> {
    let overdue = |pod: &&PodView| {
        let bound = pod.node.as_ref().is_some_and(|node| view.nodes.contains_key(node));
        let due = match (&*pod.phase, pod.deleting) {
            ("Pending" | "Running", true) | ("Running", false) => pod.ends_by,
            ("Pending", false) => pod.bound_at,
            _ => None,
        };
        bound && due.is_some_and(|due| due + SLACK < now)
    };
    view.pods.iter().filter(overdue).collect()
}

/// Shows lost pods to kwok again.
pub struct Kubelet {
    client: Client,
    /// When each pod was shown last, by UID.
    shown: BTreeMap<String, Timestamp>,
    /// All that were lost, with the state they were lost in.
    pub lost: BTreeSet<String>,
}

impl Kubelet {
    pub fn new(client: Client) -> Self {
        Self { client, shown: BTreeMap::new(), lost: BTreeSet::new() }
    }

    /// Shows the lost pods of a snapshot to kwok again, each at most once in a while.
    pub async fn look(&mut self, view: &View, now: Timestamp) {
        for pod in lost(view, now) {
            if self.shown.get(&pod.uid).is_some_and(|shown| *shown + SLACK > now) {
                continue;
            }
            let annotations = json!({"simulate.sluice.dev/shown": now.to_string()});
            let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
            let parameters = PatchParams::default();
            let written = pods.patch(&pod.name, &parameters, &patch);
            // While the API server is away, or if the pod has gone, the next snapshot tells.
            if let Ok(Ok(_)) = tokio::time::timeout(SLACK, written).await {
                let deleting = if pod.deleting { ", deleted" } else { "" };
                let line = format!("{}/{} {}{deleting}", pod.namespace, pod.name, pod.phase);
                println!("LOST by the simulated kubelet: {line}");
                self.shown.insert(pod.uid.clone(), now);
                self.lost.insert(line);
            }
        }
    }
}
