//! The page of reason codes: the meaning of each, and the advice that goes with it.
//!
//! The texts stand in matches over the engine's own types, so a new code does not compile without its advice.

use super::markdown::{code, head, table};
use crate::engine::types::{EvictReason, FailReason, Reason, ResizeCause};

const INTRODUCTION: &str = "\
Every decision and every state of a workload has a reason code that does not change between versions, and a sentence
with the numbers and the workloads involved. `sluice explain` and `sluice queue` show both, answers to Questions and
`sluice simulate --output json` carry them, and the metrics count decisions by code.";

/// A code's meaning, and the advice to a user or operator.
struct Advice {
    meaning: &'static str,
    action: &'static str,
}

const fn advice(meaning: &'static str, action: &'static str) -> Advice {
    Advice { meaning, action }
}

/// The page of all codes.
pub fn page() -> String {
    let sections = [
        section(
            "Why a workload is in its state",
            "The field `reason` of a workload.",
            Reason::ALL.map(|reason| (reason.code(), of_state(reason))),
        ),
        section(
            "Why a workload is evicted",
            "In the Event `Evicted`, in the annotation `sluice.dev/eviction` and in `sluice_evicted_total`. An evicted \
             Job is queued again in its old place.",
            EvictReason::ALL.map(|reason| (reason.code(), of_eviction(reason))),
        ),
        section(
            "Why a running workload is resized",
            "The reason of the Event, and the label `cause` of `sluice_resized_total`.",
            ResizeCause::ALL.map(|cause| (cause.code(), of_resize(cause))),
        ),
        section(
            "Why a workload is ended as failed",
            "The reason of the Job's condition `FailureTarget` and of the Event, and the label `reason` of \
             `sluice_failed_total`.",
            FailReason::ALL.map(|reason| (reason.code(), of_failure(reason))),
        ),
    ];
    format!("{}{}", head("Reason codes", INTRODUCTION), sections.concat())
}

fn section<const N: usize>(title: &str, place: &str, codes: [(&str, Advice); N]) -> String {
    let rows = codes.map(|(name, advice)| [code(name), advice.meaning.to_owned(), advice.action.to_owned()]);
    format!("\n## {title}\n\n{place}\n\n{}", table(["code", "meaning", "what to do"], rows))
}

fn of_state(reason: Reason) -> Advice {
    match reason {
        Reason::HeldByUser => advice(
            "The workload is suspended by its user, or asks for no pods, and is not queued.",
            "Set `spec.suspend` to false, or its number of pods above 0, to queue it.",
        ),
        Reason::OnHold => advice(
            "The annotation `sluice.dev/hold` holds the workload. It keeps its place in the queue.",
            "Remove the annotation: `kubectl annotate job NAME sluice.dev/hold-`.",
        ),
        Reason::Incomplete => advice(
            "Fewer pods of the group exist than `sluice.dev/group-size` says.",
            "Create the missing pods. A group starts all its pods or none.",
        ),
        Reason::UnlikePods => advice(
            "The pods of the group differ, so they cannot be placed as one workload.",
            "Give all pods the same requests, node selector, affinity, tolerations, queue, pools, topology and priority.",
        ),
        Reason::Uncounted => advice(
            "The number of devices in a ResourceClaim of the workload is not known, its pods would get no GPU for their fraction, or the workload exceeds a cap.",
            "Create the template or DeviceClass that the message names, or claim a fixed number of devices. If it names a GPU fraction, create the workload again with a pool that lists `shares`. If it names a cap, create the workload again with less, or raise the cap.",
        ),
        Reason::NotYetConsidered => advice(
            "No scheduling cycle has considered the workload yet, or it asks for no pods.",
            "Wait a moment. If the code stays, check that `parallelism` is above 0 and that one replica has `sluice_leader` 1.",
        ),
        Reason::Guaranteed => advice(
            "The workload was admitted within the guarantee of its team, or it asks for nothing that a quota lists and cannot be preempted.",
            "Nothing. It can still be preempted by higher priority of its team, or while its team borrows for other work.",
        ),
        Reason::Borrowed => advice(
            "The workload was admitted on borrowed capacity: its team was beyond its guarantee then. Whether the team borrows now, `sluice teams` shows. Or it asks for nothing that a quota lists: then it can be preempted while its team borrows.",
            "Expect that it is preempted. Save checkpoints and set `sluice.dev/checkpoint-interval`.",
        ),
        Reason::NoNodeFits => advice(
            "The nodes of its pools could not hold its pods even if they were empty.",
            "Compare selector, affinity, tolerations, topology and requests with `sluice nodes`. Correct the workload or add nodes.",
        ),
        Reason::NodesClosed => advice(
            "The open nodes of its pools could not hold its pods even if they were empty. Closed ones may, once they are open again.",
            "Wait, or ask the owner of the cluster which nodes are closed: `sluice nodes` shows them, and `kubectl uncordon` opens one that was cordoned.",
        ),
        Reason::NoRoom => advice(
            "Too little capacity is free, and no running workload may be preempted for it.",
            "Wait. To start sooner, ask for less, set `sluice.dev/min-parallelism`, or have the guarantee of the team raised.",
        ),
        Reason::NotPlaced => advice(
            "Its pods could not be started on the only nodes that fit. These nodes are avoided for a pause.",
            "Read the Events of its pods and repair the nodes that the message names.",
        ),
        Reason::NotReady => advice(
            "Not all its pods became ready within the `readyTimeout` of its queue. It is tried again after a pause.",
            "Read the Events and logs of its pods. Raise `readyTimeout` if they only need longer.",
        ),
        Reason::PodLost => advice(
            "Its last runs lost a pod soon after their start, and `onPodLoss: Restart` of its queue restarts it as a whole. It is tried again after a pause, longer each time.",
            "Read the logs and Events of its pods. A change of the workload ends the pause.",
        ),
        Reason::Constrained => advice(
            "Enough capacity is free, but required affinity, anti-affinity or spread between pods keeps the workload from it.",
            "Wait for the pods in the way to end, or relax the constraint that the message names.",
        ),
        Reason::Fragmented => advice(
            "Enough capacity is free in total, but fragmented over too many nodes or topology domains.",
            "Use smaller pods or `sluice.dev/topology-preferred`. An operator can set `--defragment-every`.",
        ),
        Reason::TeamLimit => advice(
            "A team on the path of the workload is at its `limit`, or the workload alone needs more than that.",
            "Wait for other work of that team, or have its `limit` raised. Waiting does not help where the message says that it can never start.",
        ),
        Reason::QueueLimit => advice(
            "The queue is at its `limit`, or the workload alone needs more than that.",
            "Wait for other work of the queue, use another queue, or have the `limit` of the queue raised. Waiting does not help where the message says that it can never start.",
        ),
        Reason::QueuePaused => advice(
            "The queue is paused (`paused` of the queue in its Team). Its workloads keep their places.",
            "Wait until the queue is open again, or use another queue.",
        ),
        Reason::BudgetSpent => advice(
            "What is left of the budget of its team, or of one above it, does not cover the workload: a workload with a time limit \
             needs its GPUs × the limit. Running work goes on.",
            "Wait for the day that the sentence names, set a shorter time limit, or have the budget raised. With `BorrowOnly` it \
             also starts when capacity is idle, if it is preemptible.",
        ),
        Reason::NotPreemptibleOverGuarantee => advice(
            "The workload is not preemptible, so it may not borrow, and the guarantee of its team does not hold it.",
            "Use a preemptible queue, or set `sluice.dev/preemptible: \"true\"` on a pod that no Job owns. Else wait or have the guarantee raised.",
        ),
        Reason::LendingLimit => advice(
            "The idle guarantees of other teams are not lent that far.",
            "Wait, or have `lendable` of the lending teams raised.",
        ),
        Reason::WaitingForEviction => advice(
            "Its capacity is being freed: the victims named in the message are stopping.",
            "Wait for their grace period. If a victim does not stop, look at its pods, their finalizers and their PodDisruptionBudget.",
        ),
        Reason::RoomHeld => advice(
            "Free capacity is nominated to preemptors that start as soon as their victims have ended.",
            "Wait until they have started.",
        ),
        Reason::Reserved => advice(
            "The workload fits, but its start would delay the reservation named in the message.",
            "Set `sluice.dev/time-limit`: a workload that ends before the reserved start may backfill.",
        ),
        Reason::Evicted => advice(
            "The workload was evicted and its last pods still hold their capacity.",
            "Nothing. It is queued again once they are gone. If they stay, look at their grace period and finalizers.",
        ),
        Reason::UnknownTeam => advice(
            "The Team in the label of the namespace does not exist.",
            "Create the Team, or correct the label `sluice.dev/team` of the namespace.",
        ),
        Reason::UnknownQueue => advice(
            "The team has no queue of that name.",
            "Correct the label `sluice.dev/queue` of the workload, or add the queue to the Team.",
        ),
        Reason::WaitedTooLong => advice(
            "The workload has waited longer than the `maxWait` of its queue. The message goes on with the reason why it waits.",
            "Act on the reason in the message.",
        ),
        Reason::Failing => advice(
            "The workload waited or ran longer than its queue allows and is being ended as failed.",
            "Submit it again with less work, or to a queue with a longer `maxWait` or `maxRuntime`.",
        ),
        Reason::WriteRefused => advice(
            "The API server refused to store the decision. It is tried again after a pause.",
            "Read the answer of the API server in the message: usually a policy, a ResourceQuota, or a missing right of Sluice.",
        ),
        Reason::Finished => advice("The workload has ended.", "Nothing."),
    }
}

fn of_eviction(reason: EvictReason) -> Advice {
    match reason {
        EvictReason::Reclaimed => advice(
            "A workload within guarantee takes back capacity that the team of this one borrowed.",
            "Nothing. Save checkpoints. A team that stays within its guarantee loses nothing to reclaiming.",
        ),
        EvictReason::Preempted => advice(
            "A workload of higher priority in the same team starts in its place, or any other of the team if this pod was never admitted.",
            "Nothing. Use a higher priority if the order is wrong.",
        ),
        EvictReason::FairShare => advice(
            "A team with a smaller fair share takes part of the borrowed capacity.",
            "Nothing. A longer `minRuntime` of the queue protects young work, a shorter `fairShareWindow` work that has run for longer; `weight` of the Team sets its part.",
        ),
        EvictReason::Moved => advice(
            "It restarts elsewhere: fragmented capacity was in the way of a workload within guarantee, or is joined by `--defragment-every`.",
            "Nothing. If it happens too often, raise `--defragment-every` or lower `--defragment-loss`.",
        ),
        EvictReason::NodeLost => advice(
            "A node was lost, or has not answered for longer than `--unreachable-after`, with pods that cannot be replaced alone.",
            "Look at the node. `onPodLoss: Replace` of the queue keeps the other pods where possible.",
        ),
        EvictReason::PodLost => advice(
            "A pod of it was deleted, evicted or failed for good, and `onPodLoss: Restart` of its queue restarts it as a whole.",
            "Read the logs and Events of the pod. `onPodLoss: Replace` keeps the other pods.",
        ),
        EvictReason::NotPlaced => advice(
            "Its pods could not be started on their nodes. It returns to the queue, and avoids these nodes until they change or a pause is over.",
            "Read the Events of its pods and repair the nodes that the message names.",
        ),
        EvictReason::OverLimit => advice(
            "The pod was never admitted, and its team or a team above holds more than its `limit`.",
            "Submit the work as a Job, so that it waits for quota. Pods outlive a Job that is deleted with `--cascade=orphan`.",
        ),
        EvictReason::Requeued => advice(
            "The annotation `sluice.dev/requeue` of its user names a time after its admission. It returns to its old place in the queue.",
            "Nothing. The same time has no effect on its next run.",
        ),
        EvictReason::QueueDrained => advice(
            "Its queue is drained (`paused: Drain`), and it may be preempted. It returns to its old place in the queue.",
            "It starts again once the queue is open, or in another queue.",
        ),
        EvictReason::NotReady => advice(
            "Not all its pods became ready within the `readyTimeout` of its queue.",
            "Read the Events and logs of its pods. Raise `readyTimeout` if they only need longer.",
        ),
    }
}

fn of_resize(cause: ResizeCause) -> Advice {
    match cause {
        ResizeCause::Grown => advice("Capacity came free for more of its pods.", "Nothing."),
        ResizeCause::Shrunk => advice(
            "Pods beyond its `sluice.dev/min-parallelism` are evicted for a preemptor.",
            "Nothing. It grows again when capacity comes free.",
        ),
        ResizeCause::Released => advice(
            "Pods that have ended for good, or that its user gave up, are taken off the record: other workloads wait, or pods run that were never admitted.",
            "Nothing.",
        ),
        ResizeCause::Replaced => advice(
            "Pods that were lost with their node, or could not be started there, are replaced.",
            "Look at the node that the message names.",
        ),
        ResizeCause::Moved => advice(
            "Pods are replaced elsewhere because fragmented capacity was in the way of a workload within guarantee.",
            "Nothing.",
        ),
    }
}

fn of_failure(reason: FailReason) -> Advice {
    match reason {
        FailReason::MaxWait => advice(
            "It waited longer than the `maxWait` of its queue, and `onMaxWait` is `Fail`.",
            "Submit it again, to a queue with a longer `maxWait` or with less to ask for.",
        ),
        FailReason::MaxRuntime => advice(
            "It ran longer than the `maxRuntime` of its queue.",
            "Split the work, or use a queue with a longer `maxRuntime`.",
        ),
    }
}
