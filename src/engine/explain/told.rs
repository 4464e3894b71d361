//! What is told of those to whom something has happened.

use std::time::Duration;

use super::super::Engine;
use super::super::astray::Strayed;
use super::super::books::Books;
use super::super::decision::EvictReason;
use super::super::entry::Entry;
use super::super::model::{Queue, Time, WorkloadId};
use super::super::placement::Placement;
use super::{label, usage};

/// Why a workload must go.
pub fn evicted(
    engine: &Engine,
    victim: &Entry,
    claimant: Option<&WorkloadId>,
    reason: EvictReason,
    now: Time,
) -> String {
    let books = &engine.books;
    let ran = victim.phase.admission().map_or(0, |admission| now.since(admission.at).as_secs());
    let for_whom = claimant.map(|claimant| label(books, claimant)).unwrap_or_default();
    match reason {
        EvictReason::Reclaimed => format!(
            "{for_whom} is owed capacity that team {} borrows ({}); {ran} s of work since its start",
            victim.workload.team,
            usage(books, victim.team, victim.charge.pool, &victim.held()),
        ),
        EvictReason::Preempted => {
            format!("{for_whom} of the same team has a higher priority; {ran} s of work since its start")
        }
        EvictReason::FairShare => format!(
            "{for_whom} takes part of the surplus of which team {} has more ({}); {ran} s of work since its start",
            victim.workload.team,
            usage(books, victim.team, victim.charge.pool, &victim.held()),
        ),
        EvictReason::Moved if claimant.is_none() => {
            format!("moves so that what is free lies in one piece; {ran} s of work since its start")
        }
        EvictReason::Moved => {
            format!("moves so that {for_whom} finds room in one piece; {ran} s of work since its start")
        }
        EvictReason::NodeLost => format!("lost pods with their node; {ran} s of work since its start"),
        EvictReason::NotPlaced => {
            let strayed = victim.strayed.as_deref().map(stuck).unwrap_or_default();
            format!("{strayed}, and there is no other place beside the rest; {ran} s since its start")
        }
        EvictReason::NotReady => {
            engine.gangs.rest(&victim.workload.id).map(|rest| rest.message.clone()).unwrap_or_default()
        }
    }
}

/// Why a gang goes back whose pods have not come up.
pub fn not_ready(queue: &Queue, there: u32, of: u32, after: Duration) -> String {
    let most = queue.ready_timeout.unwrap_or_default().as_secs();
    format!(
        "{there} of {of} pods were ready {} s after its admission; queue {} allows {most} s for all of them",
        after.as_secs(),
        queue.name
    )
}

/// Why a workload must shrink.
pub fn shrunk(books: &Books, victim: &Entry, claimant: &WorkloadId, pods: u32) -> String {
    format!(
        "goes on with {pods} of {} pods ({} at least) to make room for {}",
        victim.workload.pods,
        victim.least_pods(),
        label(books, claimant),
    )
}

/// Why a workload grows.
pub fn grown(entry: &Entry, from: u32, to: u32) -> String {
    format!("room has come free: goes on with {to} pods instead of {from}, {} wanted", entry.workload.pods)
}

/// Why pods of a workload are made anew.
pub fn replaced(pods: u32) -> String {
    format!("{pods} of its pods went with their node and are made anew elsewhere")
}

/// Where pods could not be started.
pub fn stuck(strayed: &Strayed) -> String {
    let nodes: Vec<&str> = strayed.nodes.iter().map(|node| &**node).collect();
    format!("pods could not be started on {} ({})", nodes.join(", "), strayed.message)
}

/// Why a workload goes on with other pods than it was admitted with: some could not be started, or are
/// somewhere else.
pub fn astray(strayed: Option<&Strayed>, from: u32, to: u32, made_anew: u32) -> String {
    match strayed {
        Some(strayed) if to < from => format!("{}; goes on with {to} of {from} pods", stuck(strayed)),
        Some(strayed) => format!("{}; {made_anew} are made anew elsewhere", stuck(strayed)),
        None => "its pods run elsewhere than it was admitted to; the record follows them".to_owned(),
    }
}

/// Why a workload goes on with fewer pods.
pub fn bereft(lost: u32, left: u32) -> String {
    format!("{lost} of its pods went with their node and find no other; goes on with {left}")
}

/// Why pods of a workload move.
pub fn shifted(books: &Books, claimant: &WorkloadId, places: &Placement) -> String {
    let nodes: Vec<String> = places.keys().map(|node| books.nodes.name(*node).to_string()).collect();
    format!(
        "goes on with pods on {} so that {} finds room in one piece",
        nodes.join(", "),
        label(books, claimant)
    )
}
