//! Every write on a workload: bounded in number, each only while leading, each until its outcome is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use json_patch::Patch;
use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::carry_out::carry_out;
use super::call::{Caller, Pace};
use super::leader::Leadership;
use super::pod_groups::{Owner, PodGroup};
use super::target::pod::PodSeen;
use super::target::{JobSeen, Operation, Resource};
use crate::engine::types::{Name, WorkloadId};
use crate::kinds::Kind;
use crate::metrics::Metrics;

mod carry_out;

/// The purpose of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Let a workload run.
    Admit,
    /// Let a running Job continue with other pods.
    Resize,
    /// Stop a workload.
    Evict,
    /// End a workload as failed.
    Fail,
    /// Give a stopped Job its user's template back.
    Restore,
    /// Let the controller of a stopped Job end it.
    Complete,
    /// Let pods run that the admission of their group has not reached yet.
    Release,
    /// Give a pod of a Job its node.
    Place,
    /// End a pod on a node that does not answer.
    EndPod,
    /// Shorten the grace period of a pod that was deleted with a longer one than its queue allows.
    Shorten {
        /// The seconds it may have, counted from its deletion.
        seconds: u32,
    },
    /// Have the Job controller replace a pod.
    Remake {
        /// Whether its node is gone, so that no kubelet can end it.
        lost: bool,
    },
}

impl Purpose {
    fn label(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Resize => "resize",
            Self::Evict => "evict",
            Self::Fail => "fail",
            Self::Restore => "restore",
            Self::Complete => "complete",
            Self::Release => "release",
            Self::Place => "place",
            Self::EndPod => "end_pod",
            Self::Shorten { .. } => "shorten",
            Self::Remake { .. } => "remake",
        }
    }
}

/// One write on one workload.
#[derive(Clone, Debug)]
pub struct Write {
    /// The workload.
    pub id: WorkloadId,
    /// The API resource of its object.
    pub resource: Resource,
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The purpose.
    pub purpose: Purpose,
    /// The number of the decision it carries out; the outcome repeats it.
    pub decision: u64,
    /// The write itself.
    pub task: Task,
    /// Smaller patches, each made where the API server refuses the one before.
    pub smaller: Vec<Patch>,
    /// The pods to be marked as disrupted first. A Job that shrinks loses these.
    pub disrupted: Vec<Name>,
    /// The message of that mark.
    pub message: String,
    /// The PodGroup that must exist first.
    pub group: Option<PodGroup>,
}

impl Write {
    /// The Job, as the PodGroup knows it.
    fn owner(&self) -> Owner<'_> {
        Owner { namespace: &self.namespace, name: &self.name, uid: &self.id.0 }
    }
}

/// The objects that a write changes.
#[derive(Clone, Debug)]
pub enum Task {
    /// The object of the workload.
    Single(Operation),
    /// None: the write is known to be refused, for this reason.
    Impossible(String),
    /// Several objects: one after the other until the first write succeeds, then the rest at once.
    Each(Vec<Write>),
}

/// How a write ended.
#[derive(Debug)]
pub struct Outcome {
    /// The workload.
    pub id: WorkloadId,
    /// The purpose of the write.
    pub purpose: Purpose,
    /// The number of the decision it carried out.
    pub decision: u64,
    /// The end of the write.
    pub end: End,
}

/// The certain end of a write.
#[derive(Debug)]
pub enum End {
    /// It was made; the object after it.
    Done(Look),
    /// The object has changed since the decision, perhaps by this very write, the first answer to which was
    /// lost; the object now.
    Moved(Look),
    /// The object is gone.
    Gone,
    /// The API server refused it, and would refuse it again while the object stays as it is.
    Refused(String),
    /// It was refused for a reason that may pass.
    NotNow(String),
    /// This process no longer leads, and the end of the write is not known.
    Abandoned,
}

/// An object as the API server has it.
#[derive(Debug)]
pub enum Look {
    /// A Job.
    Job(JobSeen),
    /// An object of a custom kind, with its entry of the table.
    Other(Arc<Kind>, JobSeen),
    /// A pod.
    Pod(PodSeen),
    /// The existing pods of one workload.
    Pods(Vec<PodSeen>),
}

impl Look {
    fn is_of(&self, id: &WorkloadId) -> bool {
        match self {
            Self::Job(seen) | Self::Other(_, seen) => seen.uid == id.0,
            Self::Pod(seen) => seen.uid == id.0,
            Self::Pods(_) => true,
        }
    }

    fn pods(self) -> Vec<PodSeen> {
        match self {
            Self::Job(_) | Self::Other(..) => Vec::new(),
            Self::Pod(seen) => vec![seen],
            Self::Pods(seen) => seen,
        }
    }
}

/// Makes the writes; dropped, it abandons them.
pub struct Actuator {
    caller: Caller,
    waiting: Arc<AtomicUsize>,
    writes: JoinSet<()>,
    outcomes: mpsc::UnboundedSender<Outcome>,
}

impl Actuator {
    /// An actuator that reports to `outcomes`; `waiting` counts the unfinished writes.
    #[must_use]
    pub fn new(
        client: Client,
        claim: Leadership,
        metrics: Arc<Metrics>,
        waiting: Arc<AtomicUsize>,
        outcomes: mpsc::UnboundedSender<Outcome>,
    ) -> Self {
        let caller = Caller::new(client, claim, metrics, Pace::default());
        Self { caller, waiting, writes: JoinSet::new(), outcomes }
    }

    /// Starts a write; its outcome follows.
    pub fn start(&mut self, write: Write) {
        while self.writes.try_join_next().is_some() {}
        let (caller, outcomes) = (self.caller.clone(), self.outcomes.clone());
        let under_way = UnderWay::new(&self.waiting);
        self.writes.spawn(async move {
            let _under_way = under_way;
            let end = carry_out(&caller, &write).await;
            // The receiver is gone when the session has ended; the next session goes by the objects.
            let Write { id, purpose, decision, .. } = write;
            let _ = outcomes.send(Outcome { id, purpose, decision, end });
        });
    }

    /// Waits for the writes that have been started, `at_most` so long; false when some are abandoned.
    pub async fn finish(mut self, at_most: Duration) -> bool {
        let all = async { while self.writes.join_next().await.is_some() {} };
        timeout(at_most, all).await.is_ok()
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
