//! Every write on a workload: bounded in number, each with a deadline, each only while leading.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as FullPod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::leader::Claim;
use super::reduce::job::{JobSeen, job};
use super::reduce::pod::{PodSeen, pod};
use super::watch::now;
use super::{patch, wire};
use crate::api::names;
use crate::engine::model::{Name, WorkloadId, WorkloadKind};
use crate::metrics::Metrics;

/// How many writes are under way at once.
const AT_ONCE: usize = 32;
/// How long one call may take; the client itself would wait for ever.
const DEADLINE: Duration = Duration::from_secs(5);

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Let a workload run.
    Admit,
    /// Tell a workload to stop.
    Evict,
    /// Give a stopped Job its user's template back.
    Restore,
}

impl Purpose {
    fn label(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Evict => "evict",
            Self::Restore => "restore",
        }
    }
}

/// One write on one workload.
#[derive(Clone, Debug)]
pub struct Write {
    /// The workload.
    pub id: WorkloadId,
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// What for.
    pub purpose: Purpose,
    /// The change; `None` deletes a bare pod, which cannot be stopped otherwise.
    pub patch: Option<json_patch::Patch>,
    /// The pods to be marked first as disrupted, and why.
    pub disrupted: Vec<Name>,
    /// The sentence they are marked with.
    pub message: String,
}

/// How a write ended.
#[derive(Debug)]
pub struct Outcome {
    /// The workload.
    pub id: WorkloadId,
    /// What for.
    pub purpose: Purpose,
    /// The object as it is now, or why it was not written.
    pub result: Result<Written, Failure>,
}

/// The object as the API server has it after the write.
#[derive(Debug)]
pub enum Written {
    /// A Job.
    Job(JobSeen),
    /// A pod.
    Pod(PodSeen),
    /// A pod that was told to end; the watch will say when it is gone.
    Deleted,
}

/// Why a write did not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The object has changed since the decision.
    Conflict,
    /// The object is gone; the watch will say so.
    Gone,
    /// The API server refused it.
    Refused(String),
    /// There was no answer in time; it may have happened, and then the watch will say so.
    Unanswered,
    /// This process no longer leads.
    NotLeading,
}

impl Failure {
    fn label(&self) -> &'static str {
        match self {
            Self::Conflict => "conflict",
            Self::Gone => "gone",
            Self::Refused(_) => "refused",
            Self::Unanswered | Self::NotLeading => "unanswered",
        }
    }
}

/// Makes the writes; dropped, it abandons those that have not begun.
pub struct Actuator {
    worker: Worker,
    writes: JoinSet<()>,
    outcomes: mpsc::UnboundedSender<Outcome>,
}

#[derive(Clone)]
struct Worker {
    client: Client,
    claim: Claim,
    metrics: Arc<Metrics>,
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Actuator {
    /// An actuator that reports to `outcomes`; `waiting` counts what it has still to do.
    #[must_use]
    pub fn new(
        client: Client,
        claim: Claim,
        metrics: Arc<Metrics>,
        waiting: Arc<AtomicUsize>,
        outcomes: mpsc::UnboundedSender<Outcome>,
    ) -> Self {
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        let worker = Worker { client, claim, metrics, permits, waiting };
        Self { worker, writes: JoinSet::new(), outcomes }
    }

    /// Starts a write; its outcome follows.
    pub fn start(&mut self, write: Write) {
        while self.writes.try_join_next().is_some() {}
        let (worker, outcomes) = (self.worker.clone(), self.outcomes.clone());
        let under_way = UnderWay::new(&worker.waiting);
        self.writes.spawn(async move {
            let _under_way = under_way;
            let outcome = worker.carry_out(write).await;
            // Nobody listens when the session has ended; the next one reads everything anew.
            let _ = outcomes.send(outcome);
        });
    }

    /// Waits for the writes that have been started, `at_most` so long.
    pub async fn finish(mut self, at_most: Duration) {
        let all = async { while self.writes.join_next().await.is_some() {} };
        let _ = timeout(at_most, all).await;
    }
}

/// Counts a write from its start to its end, also when it is abandoned.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Worker {
    async fn carry_out(&self, write: Write) -> Outcome {
        let Ok(_permit) = self.permits.acquire().await else {
            return Outcome { id: write.id, purpose: write.purpose, result: Err(Failure::NotLeading) };
        };
        let mut result = Ok(());
        for name in &write.disrupted {
            result = self.mark_disrupted(&write, name).await;
            if result.is_err() {
                break;
            }
        }
        let result = match result {
            Ok(()) => self.counted(write.purpose.label(), self.change(&write)).await,
            Err(failure) => Err(failure),
        };
        Outcome { id: write.id, purpose: write.purpose, result }
    }

    async fn change(&self, write: &Write) -> Result<Written, Failure> {
        let params =
            PatchParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PatchParams::default() };
        match (write.kind, &write.patch) {
            (WorkloadKind::Job, Some(patch)) => {
                let api: Api<wire::Job> = Api::namespaced(self.client.clone(), &write.namespace);
                let patch = Patch::Json::<()>(patch.clone());
                let object = self.within(api.patch(&write.name, &params, &patch)).await?;
                Ok(Written::Job(job(&object, now())))
            }
            (WorkloadKind::Pod, Some(patch)) => {
                let api: Api<wire::Pod> = Api::namespaced(self.client.clone(), &write.namespace);
                let patch = Patch::Json::<()>(patch.clone());
                let object = self.within(api.patch(&write.name, &params, &patch)).await?;
                Ok(Written::Pod(pod(&object)))
            }
            (_, None) => {
                let api: Api<wire::Pod> = Api::namespaced(self.client.clone(), &write.namespace);
                let uid = Some(write.id.0.to_string());
                let only_this = Preconditions { uid, ..Preconditions::default() };
                let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
                self.within(api.delete(&write.name, &params)).await.map(|_| Written::Deleted)
            }
        }
    }

    /// Marks one pod; one that is gone needs no mark.
    async fn mark_disrupted(&self, write: &Write, name: &str) -> Result<(), Failure> {
        let api: Api<FullPod> = Api::namespaced(self.client.clone(), &write.namespace);
        let condition = patch::disruption(jiff::Timestamp::now(), &write.message);
        let params =
            PatchParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PatchParams::default() };
        let patch = Patch::Strategic(condition);
        match self.counted("disruption", self.within(api.patch_status(name, &params, &patch))).await {
            Ok(_) | Err(Failure::Gone) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    async fn counted<T>(
        &self,
        label: &str,
        call: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let result = call.await;
        let outcome = result.as_ref().err().map_or("done", Failure::label);
        self.metrics.api_writes.with_label_values(&[label, outcome]).inc();
        result
    }

    /// One call, if this process leads, and no longer than the claim and the deadline allow.
    async fn within<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
        let remaining = self.claim.remaining();
        if remaining.is_zero() {
            return Err(Failure::NotLeading);
        }
        match timeout(remaining.min(DEADLINE), call).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) if patch::has_moved(&status) => Err(Failure::Conflict),
            Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Err(Failure::Gone),
            Ok(Err(kube::Error::Api(status))) => Err(Failure::Refused(status.message.clone())),
            Ok(Err(error)) => {
                tracing::debug!(%error, "a write got no answer");
                Err(Failure::Unanswered)
            }
            Err(_) => Err(Failure::Unanswered),
        }
    }
}
