//! The words for decisions: every verdict carries the rule, the numbers and the parties.

mod told;

use std::time::Duration;

use super::Engine;
use super::amount::{Amount, describe};
use super::books::Books;
use super::claims::Claim;
use super::decision::{FailReason, Reason, State, Verdict};
use super::entry::{Entry, Phase};
use super::forest::{PoolIx, TeamIx};
use super::model::{Name, Observed, OnMaxWait, Queue, Unready, WorkloadId};
use super::nodes::NodeIx;
use super::placement::{self, Freed, Placement, Request, Room};
use super::reserve::{self, Turn};
use super::rules;
use super::start;
use super::timeline::Opening;
use super::vector::Vector;
pub use told::{astray, bereft, evicted, grown, not_ready, replaced, shifted, shrunk, stuck};

fn pending(reason: Reason, message: String) -> Verdict {
    Verdict { state: State::Pending, reason, message }
}

/// A list without the pod slots, which nobody asked for by name.
fn asked(books: &Books, amount: &Vector) -> String {
    let mut list = books.resources.list(amount);
    list.remove(super::vector::PODS);
    describe(&list)
}

fn named(books: &Books, index: usize, milli: i64) -> String {
    format!("{} {}", quantity(books, index, milli), books.resources.name(index))
}

fn quantity(books: &Books, index: usize, milli: i64) -> String {
    Amount::milli(milli).quantity(books.resources.name(index))
}

/// `namespace/name` of a workload.
fn label(books: &Books, id: &WorkloadId) -> String {
    books.get(id).map_or_else(
        || id.to_string(),
        |entry| format!("{}/{}", entry.workload.namespace, entry.workload.name),
    )
}

/// Where a workload stands and why.
pub fn verdict(engine: &Engine, id: &WorkloadId) -> Option<Verdict> {
    let entry = engine.books.get(id)?;
    let at = |state, reason, message: String| Some(Verdict { state, reason, message });
    match &entry.phase {
        Phase::Hold => Some(held(&entry.workload.state)),
        Phase::Finished => at(State::Finished, Reason::Finished, "has ended".to_owned()),
        Phase::Stopping(_) | Phase::Leaving { .. } => at(
            State::Evicting,
            Reason::Evicted,
            format!("was told to stop; {} of its pods still hold their room", entry.charge.pods),
        ),
        Phase::Starting(admission) | Phase::Running(admission) | Phase::Resizing { to: admission, .. } => {
            let nodes: Vec<String> = admission.nodes.iter().map(|(n, pods)| format!("{n}: {pods}")).collect();
            let (reason, how) = if admission.borrowed {
                (Reason::Borrowed, "on borrowed capacity")
            } else {
                (Reason::Guaranteed, "within the guarantee")
            };
            let nodes = nodes.join(", ");
            let less = less(entry, admission.share);
            let ready = match engine.gangs.awaited(entry, admission) {
                Some((there, of)) => format!("; {there} of {of} pods are ready, and all have to be soon"),
                None => String::new(),
            };
            at(
                State::Running,
                reason,
                format!("runs {how} of pool {} (pods by node: {nodes}){less}{ready}", admission.pool),
            )
        }
        Phase::Failing(Some(_)) => at(
            State::Evicting,
            Reason::Failing,
            "has run for longer than its queue allows and is being ended".to_owned(),
        ),
        Phase::Failing(None) => at(
            State::Pending,
            Reason::Failing,
            "has waited for longer than its queue allows and is being ended".to_owned(),
        ),
        Phase::Pending => {
            let verdict = waits(engine, entry).map(|verdict| promised(engine, id, verdict))?;
            Some(remind(engine, entry, recall(entry, verdict)))
        }
    }
}

/// Why a workload is not in the queue.
fn held(state: &Observed) -> Verdict {
    match state {
        Observed::Unready(Unready::Missing { there, of }) => {
            pending(Reason::Incomplete, format!("{there} of {of} pods are there; they start all or none"))
        }
        Observed::Unready(Unready::Unlike) => pending(
            Reason::UnlikePods,
            "its pods differ in what they ask for, and so cannot be placed as one: give all the same \
             requests, node selector, affinity, tolerations, queue, pools, topology and priority"
                .to_owned(),
        ),
        Observed::Unready(Unready::Uncounted(why)) => {
            pending(Reason::Uncounted, format!("what it asks for cannot be counted: {why}"))
        }
        _ => Verdict {
            state: State::Held,
            reason: Reason::HeldByUser,
            message: "suspended by its user".to_owned(),
        },
    }
}

/// Why a workload waits.
fn waits(engine: &Engine, entry: &Entry) -> Option<Verdict> {
    let id = &entry.workload.id;
    engine
        .claims
        .iter()
        .find(|claim| claim.id == *id)
        .map(|claim| pending(Reason::WaitingForEviction, refused(engine, claim)))
        .or_else(|| waiting_in_queue(engine, id))
        .or_else(|| {
            let rest = engine.gangs.rest(id)?;
            let told = format!("{}; tried again after a pause of {} s", rest.message, rest.pause.as_secs());
            Some(pending(Reason::NotReady, told))
        })
        .or_else(|| {
            let failure = engine.failures.get(id)?;
            Some(pending(
                Reason::WriteRefused,
                format!("writing what was decided failed {} times: {}", failure.times, failure.message),
            ))
        })
        .or_else(|| Some(pending(Reason::NotYetConsidered, "asks for no pods".to_owned())))
}

/// What a claim waits for, and which of its evictions the API server has refused.
fn refused(engine: &Engine, claim: &Claim) -> String {
    let told = claim.victims().filter_map(|id| {
        let failure = engine.failures.get(id)?;
        Some(format!("; making {} leave was refused: {}", label(&engine.books, id), failure.message))
    });
    std::iter::once(claim.message.clone()).chain(told).collect()
}

/// Says besides why a workload waits that it has done so for too long, if it has.
fn remind(engine: &Engine, entry: &Entry, verdict: Verdict) -> Verdict {
    let overdue = engine.timers.overdue(&entry.workload.id);
    let queue = engine.books.queue_of(entry).ok().filter(|_| overdue);
    let Some((queue, most)) = queue.and_then(|queue| queue.max_wait.map(|most| (queue, most))) else {
        return verdict;
    };
    let (name, most) = (&queue.name, most.as_secs());
    let said = format!("has waited for longer than the {most} s that queue {name} sets");
    match (queue.on_max_wait, verdict.reason) {
        (_, Reason::WaitingForEviction) => verdict,
        (OnMaxWait::RaisePriority, _) => {
            let message = format!("{}; {said} and so goes first in its team", verdict.message);
            Verdict { message, ..verdict }
        }
        _ => pending(Reason::WaitedTooLong, format!("{said}: {}", verdict.message)),
    }
}

/// It could start, but another has its turn.
pub fn reserved(books: &Books, turn: &Turn, opening: &Opening) -> Verdict {
    let message = format!(
        "could start, but that would delay {}, for which room is reserved on {}",
        label(books, &turn.holder),
        expected(books, turn, opening),
    );
    pending(Reason::Reserved, message)
}

/// Its team's guarantee holds it, but another of that team has its turn, and needs what is left of that.
pub fn crowding(books: &Books, turn: &Turn, opening: &Opening) -> Verdict {
    let message = format!(
        "what its team is guaranteed is left to {}, for which room is reserved on {}",
        label(books, &turn.holder),
        expected(books, turn, opening),
    );
    pending(Reason::Reserved, message)
}

/// The nodes of a reservation, and when its holder is expected to start.
fn expected(books: &Books, turn: &Turn, opening: &Opening) -> String {
    let nodes: Vec<String> =
        opening.placement.keys().map(|node| books.nodes.name(*node).to_string()).collect();
    let nodes = nodes.join(", ");
    match opening.at {
        Some(at) => {
            format!("{nodes} and which is expected to start within {} s", at.since(turn.decided).as_secs())
        }
        None => format!("{nodes} until enough of those there have ended, which cannot be predicted"),
    }
}

/// Says besides why a workload waits where room is reserved for it, if it is.
fn promised(engine: &Engine, id: &WorkloadId, verdict: Verdict) -> Verdict {
    let turn = engine.turns.iter().find(|(_, turn)| turn.holder == *id);
    let Some(((pool, _), turn)) = turn else { return verdict };
    let message = match (&turn.opening, &turn.behind) {
        (Some(opening), _) => {
            let reserved = expected(&engine.books, turn, opening);
            format!("{}; room is reserved for it on {reserved}", verdict.message)
        }
        (None, Some(older)) if reserve::stands_back(engine, *pool, turn) => {
            let older = label(&engine.books, older);
            format!("{}; room is reserved for it once {older} has started", verdict.message)
        }
        _ => return verdict,
    };
    Verdict { message, ..verdict }
}

/// Why a workload is ended as failed.
pub fn failed(queue: &Queue, reason: FailReason, after: Duration) -> String {
    let (verb, most) = match reason {
        FailReason::MaxWait => ("waited", queue.max_wait),
        FailReason::MaxRuntime => ("ran", queue.max_runtime),
    };
    let most = most.unwrap_or_default().as_secs();
    format!("{verb} for {} s; queue {} allows {most} s", after.as_secs(), queue.name)
}

/// Why somebody in the queue waits, by how things are now.
fn waiting_in_queue(engine: &Engine, id: &WorkloadId) -> Option<Verdict> {
    engine.pending.class_of(id)?;
    match engine.pending.refusal(id) {
        Some((verdict, true)) => Some(verdict.clone()),
        Some((_, false)) => start::why_not(engine, id),
        None => Some(pending(Reason::NotYetConsidered, "has not been considered yet".to_owned())),
    }
}

/// The team or queue is not known.
pub fn unknown(entry: &Entry, reason: Reason) -> Verdict {
    let workload = &entry.workload;
    let message = match (&workload.queue, reason) {
        (Some(queue), Reason::UnknownQueue) => format!("team {} has no queue {queue}", workload.team),
        _ => format!("team {} does not exist", workload.team),
    };
    pending(reason, message)
}

/// None of the pools asked for exists.
pub fn no_pool(pools: &[Name]) -> Verdict {
    pending(Reason::NoNodeFits, format!("no node is in pool {}", pools.join(", ")))
}

/// The queue's limit is reached.
pub fn queue_limit(books: &Books, queue: &Queue, index: usize) -> Verdict {
    let cap = queue.limit.get(books.resources.name(index)).copied().unwrap_or_default();
    let name = books.resources.name(index);
    pending(Reason::QueueLimit, format!("queue {} would exceed its limit of {cap} {name}", queue.name))
}

/// A team's limit is reached.
pub fn team_limit(books: &Books, team: TeamIx, pool: PoolIx, index: usize, total: &Vector) -> Verdict {
    let account = books.forest.account(pool, team);
    let cap = account.limit.get(&index).copied().unwrap_or(0);
    pending(
        Reason::TeamLimit,
        format!(
            "team {} holds {} of its limit of {} in pool {} and this asks for {} more",
            books.forest.team(team).name,
            quantity(books, index, account.held.get(index)),
            named(books, index, cap),
            books.forest.pool_name(pool),
            quantity(books, index, total.get(index)),
        ),
    )
}

/// A workload that may not be evicted does not fit the guarantee.
pub fn must_fit_guarantee(books: &Books, team: TeamIx, pool: PoolIx, total: &Vector) -> Verdict {
    pending(
        Reason::NotPreemptibleOverGuarantee,
        format!(
            "may not be evicted, so its {} must fit the guarantee of team {} in pool {}: {}",
            asked(books, total),
            books.forest.team(team).name,
            books.forest.pool_name(pool),
            usage(books, team, pool, total),
        ),
    )
}

/// Other teams do not lend that much.
pub fn lending_refusal(books: &Books, team: TeamIx, pool: PoolIx, total: &Vector) -> Option<Verdict> {
    (!rules::lending_allows(books, team, pool, total, &Freed::new())).then(|| {
        let kept = books.forest.reserve_after(pool, team, total);
        pending(
            Reason::LendingLimit,
            format!(
                "would borrow {}, but {} of pool {} stays free for teams that do not lend it",
                asked(books, total),
                asked(books, &kept),
                books.forest.pool_name(pool),
            ),
        )
    })
}

/// `5 of 20 nvidia.com/gpu in use` for what the team is promised and the workload asks for.
fn usage(books: &Books, team: TeamIx, pool: PoolIx, total: &Vector) -> String {
    let account = books.forest.account(pool, team);
    let parts: Vec<String> = account
        .governed()
        .filter(|(index, _)| total.get(*index) > 0)
        .map(|(index, guaranteed)| {
            let used = quantity(books, index, account.settled(index));
            format!("{used} of {} in use", named(books, index, guaranteed))
        })
        .collect();
    if parts.is_empty() { "none of it is guaranteed".to_owned() } else { parts.join(", ") }
}

/// No node could ever hold the pods.
pub fn no_node(books: &Books, nodes: &[NodeIx], request: &Request<'_>) -> Option<Verdict> {
    let (pool, pods) = (books.forest.pool_name(request.pool), request.pods);
    let most = placement::most(books, nodes, request, Room::Empty);
    if most >= pods {
        return None;
    }
    let message = if nodes.is_empty() {
        format!("no open node of pool {pool} matches its node selector, affinity and tolerations")
    } else if most == 0 && placement::most(books, nodes, &request.anywhere(), Room::Empty) == 0 {
        format!(
            "none of the {} nodes of pool {pool} that match is large enough for {}",
            nodes.len(),
            asked(books, request.need)
        )
    } else if let Some(label) = &request.topology.required {
        format!(
            "the matching nodes of pool {pool} with one value of {label} could hold {most} of its {pods} pods even if they were empty"
        )
    } else {
        format!(
            "the matching nodes of pool {pool} could hold {most} of its {pods} pods even if they were empty"
        )
    };
    Some(pending(Reason::NoNodeFits, message))
}

/// The nodes have no room now.
pub fn no_room(books: &Books, nodes: &[NodeIx], request: &Request<'_>) -> Verdict {
    let (need, pods) = (request.need, request.pods);
    let all = books.nodes.free_in(request.pool).filter(|(_, count)| *count == nodes.len());
    let sum = all.map_or_else(|| free_on(books, nodes), |(free, _)| free.clone());
    let pool = books.forest.pool_name(request.pool);
    let total = Vector::default().plus(need, i64::from(pods));
    if placement::most(books, nodes, request, Room::Unheld) >= pods {
        let message = format!("the room in pool {pool} is held for workloads that others are leaving for");
        return pending(Reason::RoomHeld, message);
    }
    let free: Vector = total.nonzero().fold(Vector::default(), |mut free, (index, _)| {
        free.set(index, sum.get(index));
        free
    });
    if sum.fits(&total) >= 1 {
        let now = placement::most(books, nodes, request, Room::Now);
        let within = match &request.topology.required {
            Some(label) => format!(" within one value of {label}"),
            None => String::new(),
        };
        let message = format!(
            "{} is free in pool {pool}, but scattered: {now} of {pods} pods of {} fit{within}",
            asked(books, &free),
            asked(books, need),
        );
        return pending(Reason::Fragmented, message);
    }
    let message = format!(
        "asks for {} and {} is free in pool {pool}; nothing that runs may be evicted for it",
        asked(books, &total),
        asked(books, &free),
    );
    pending(Reason::NoRoom, message)
}

/// What is free on these nodes.
fn free_on(books: &Books, nodes: &[NodeIx]) -> Vector {
    let mut sum = Vector::default();
    for node in nodes {
        for (index, milli) in books.nodes.get(*node).now().amounts().entries() {
            sum.set(index, sum.get(index) + milli.max(0));
        }
    }
    sum
}

/// Why a workload starts.
pub fn admitted(books: &Books, team: TeamIx, pool: PoolIx, total: &Vector, borrowed: bool) -> String {
    let how = if borrowed { "beyond the guarantee" } else { "within the guarantee" };
    format!(
        "{how} of team {} in pool {}: asks for {}, {} before",
        books.forest.team(team).name,
        books.forest.pool_name(pool),
        asked(books, total),
        usage(books, team, pool, total),
    )
}

/// What a workload makes do with, if that is less than it wants most.
pub fn less(entry: &Entry, share: Option<Amount>) -> String {
    match (share, entry.workload.sizes.first()) {
        (Some(share), Some(full)) => {
            let (share, full) = (share.as_units_lossy(), full.share.as_units_lossy());
            format!(", at {share} of a GPU instead of {full}")
        }
        _ => String::new(),
    }
}

/// Says besides why a workload waits where its pods could not be started before, if it is so.
fn recall(entry: &Entry, verdict: Verdict) -> Verdict {
    let Some(strayed) = entry.strayed.as_deref().filter(|strayed| !strayed.nodes.is_empty()) else {
        return verdict;
    };
    let message = format!("{}; {}, left out for now", verdict.message, stuck(strayed));
    let reason = if verdict.reason == Reason::NoNodeFits { Reason::NotPlaced } else { verdict.reason };
    Verdict { reason, message, ..verdict }
}

/// Whom a claimant waits for.
pub fn waiting(books: &Books, placement: &Placement, victims: &[WorkloadId]) -> String {
    let nodes: Vec<String> = placement.keys().map(|node| books.nodes.name(*node).to_string()).collect();
    let nodes = nodes.join(", ");
    if victims.is_empty() {
        return format!("room is held for it on {nodes} until the pods that are ending there are gone");
    }
    let names: Vec<String> = victims.iter().map(|id| label(books, id)).collect();
    format!("room is held for it on {nodes} while {} stops", names.join(", "))
}
