//! The laws that hold in every scenario, checked on the simulation's decisions and times. The engine's own
//! usage figures are not used.

use std::collections::BTreeMap;

use sluice::engine::types::amount::Amount;
use sluice::scenario::RunningOn;

use crate::cluster::{Cluster, Milli, Request};
use crate::outcome::{Admission, Eviction, Outcome, Seconds, Workload};

/// The end of an unlimited run.
const NEVER: Seconds = Seconds(i64::MAX);

/// This many pods of a workload on a node, from a time until just before another.
#[derive(Clone, Debug)]
struct Hold {
    workload: String,
    team: String,
    node: String,
    pods: u32,
    /// The GPU fraction of each pod in thousandths, if it is smaller than the preferred one.
    less: Option<i64>,
    from: Seconds,
    until: Seconds,
}

impl Hold {
    /// The resources of each pod, and the GPU fraction among them.
    fn pod(&self, cluster: &Cluster) -> (Milli, Option<i64>) {
        let request = &cluster.requests[&self.workload];
        let mut pod = request.pod.clone();
        if let Some(less) = self.less {
            pod.insert("nvidia.com/gpu".to_owned(), less);
        }
        (pod, self.less.or(request.fraction))
    }
}

/// The GPU fraction of each pod in thousandths, if it is smaller than the preferred one.
fn less_than_wanted(admission: &Admission) -> Option<i64> {
    admission.share.as_deref().map(|fraction| Amount::parse(fraction).expect("a fraction").as_milli())
}

/// Every breach of a law, a line each.
pub fn breaches(cluster: &Cluster, got: &Outcome) -> Vec<String> {
    let mut holds: Vec<Hold> = Vec::new();
    let mut lines = Vec::new();
    for workload in got.workloads.iter().filter(|workload| !workload.team.is_empty()) {
        match cluster.requests.get(&workload.key()) {
            Some(request) => holds.extend(held_by(cluster, got, workload, request)),
            None => lines.push(format!("{} is not in the scenario", workload.key())),
        }
    }
    holds.extend(unmanaged(cluster));
    let mut times: Vec<Seconds> = holds.iter().map(|hold| hold.from).collect();
    times.sort_unstable();
    times.dedup();
    for at in &times {
        let now: Vec<&Hold> = holds.iter().filter(|hold| hold.from <= *at && *at < hold.until).collect();
        lines.extend(nodes_hold_it(cluster, &now, *at));
        lines.extend(within_limits(cluster, &now, *at));
    }
    lines.extend(placed_where_allowed(cluster, got));
    lines.extend(paid_evictions(cluster, got, &holds));
    lines.extend(owners_keep(cluster, got, &holds));
    lines
}

/// Every admission, and the eviction that ended it. One eviction ends one run, even if the next begins in the
/// same instant; the list of decisions gives the order within an instant.
fn runs<'a>(got: &Outcome, workload: &'a Workload) -> Vec<(&'a Admission, Option<&'a Eviction>)> {
    let mut evictions = workload.evictions.iter().enumerate().peekable();
    let mut runs = Vec::new();
    for (place, admission) in workload.admissions.iter().enumerate() {
        let ends = |(index, eviction): &(usize, &Eviction)| match workload.admissions.get(place + 1) {
            Some(next) if next.at == eviction.at => {
                let before = |at: Seconds| at == eviction.at;
                let earlier = workload.evictions[..*index].iter().filter(|other| before(other.at)).count();
                let began = workload.admissions[..=place].iter().filter(|other| before(other.at)).count();
                got.admitted_before(&workload.key(), eviction.at, earlier) <= began
            }
            next => next.is_none_or(|next| eviction.at < next.at),
        };
        runs.push((admission, evictions.next_if(ends).map(|(_, eviction)| eviction)));
    }
    runs
}

/// The usage of a workload over time: each pod from its grant until the workload has ended, the pod's grace
/// period after the request to stop is over, or its node is lost.
///
/// The outcome does not list pods that end one by one, so elastic workloads run for ever where it matters.
fn held_by(cluster: &Cluster, got: &Outcome, workload: &Workload, request: &Request) -> Vec<Hold> {
    let mut holds = Vec::new();
    // Times of the granted pods by node; a smaller grant removes the last ones.
    let mut running: BTreeMap<&str, Vec<(Seconds, u32)>> = BTreeMap::new();
    let mut close = |node: &str, less: Option<i64>, since: Seconds, pods: u32, until: Seconds| {
        let lost = cluster.nodes.get(node).and_then(|node| node.lost).unwrap_or(NEVER);
        let until = until.min(lost);
        if pods > 0 && until >= since {
            let (workload, team) = (workload.key(), workload.team.clone());
            holds.push(Hold { workload, team, node: node.to_owned(), pods, less, from: since, until });
        }
    };
    let later = |at: Seconds| Seconds(at.0.saturating_add(request.grace));
    // All pods of a run are alike.
    let mut less = None;
    for (admission, eviction) in runs(got, workload) {
        less = less_than_wanted(admission);
        for (node, batches) in &mut running {
            let wanted = admission.nodes.get(*node).copied().unwrap_or(0);
            let mut excess = batches.iter().map(|(_, pods)| pods).sum::<u32>().saturating_sub(wanted);
            while excess > 0 {
                let Some((since, pods)) = batches.pop() else { break };
                let gone = pods.min(excess);
                excess -= gone;
                close(node, less, since, gone, later(admission.at));
                if pods > gone {
                    batches.push((since, pods - gone));
                }
            }
        }
        for (node, wanted) in &admission.nodes {
            let batches = running.entry(node).or_default();
            let there: u32 = batches.iter().map(|(_, pods)| pods).sum();
            if *wanted > there {
                batches.push((admission.at, wanted - there));
            }
        }
        if let Some(eviction) = eviction {
            for (node, batches) in std::mem::take(&mut running) {
                batches
                    .into_iter()
                    .for_each(|(since, pods)| close(node, less, since, pods, later(eviction.at)));
            }
        }
    }
    // A deleted workload stops within its grace period; an ended one is gone.
    let ended = match (request.deleted, workload.finished) {
        (Some(deleted), finished) if finished.is_none_or(|finished| finished >= deleted) => later(deleted),
        (_, finished) => finished.unwrap_or(NEVER),
    };
    for (node, batches) in running {
        batches.into_iter().for_each(|(since, pods)| close(node, less, since, pods, ended));
    }
    holds
}

/// The usage of unmanaged pods, which run from the beginning.
fn unmanaged(cluster: &Cluster) -> Vec<Hold> {
    let mut holds = Vec::new();
    for (key, request) in &cluster.requests {
        if !request.unmanaged {
            continue;
        }
        let nodes: Vec<(&str, u32)> = match &request.running_on {
            Some(RunningOn::Node(node)) => vec![(node, request.pods)],
            Some(RunningOn::Pods(pods)) => pods.iter().map(|(node, pods)| (node.as_str(), *pods)).collect(),
            None => Vec::new(),
        };
        holds.extend(nodes.into_iter().map(|(node, pods)| Hold {
            workload: key.clone(),
            team: String::new(),
            node: node.to_owned(),
            pods,
            less: None,
            from: Seconds(0),
            until: request.duration.map_or(NEVER, Seconds),
        }));
    }
    holds
}

/// Law 1 on nodes: nodes exist and fit their pods, and fractions use other GPUs than whole requests.
fn nodes_hold_it(cluster: &Cluster, now: &[&Hold], at: Seconds) -> Vec<String> {
    let mut held: BTreeMap<&str, (Milli, i64, Vec<i64>)> = BTreeMap::new();
    for hold in now {
        let (pod, fraction) = hold.pod(cluster);
        let (sum, whole, fractions) = held.entry(&hold.node).or_default();
        add(sum, &pod, i64::from(hold.pods));
        match fraction {
            Some(fraction) => fractions.extend((0..hold.pods).map(|_| fraction)),
            None => *whole += pod.get("nvidia.com/gpu").copied().unwrap_or(0) / 1000 * i64::from(hold.pods),
        }
    }
    let mut lines = Vec::new();
    for (name, (sum, whole, fractions)) in held {
        let Some(node) = cluster.nodes.get(name).filter(|node| node.from <= at) else {
            lines.push(format!("{at}: node {name} does not exist, and {sum:?} is used on it"));
            continue;
        };
        let offer = |resource: &str| node.offers.get(resource).copied().unwrap_or(0);
        for (resource, milli) in sum.iter().filter(|(resource, milli)| **milli > offer(resource)) {
            lines.push(format!(
                "{at}: {milli}m {resource} are used on {name}, which has {}m",
                offer(resource)
            ));
        }
        let devices = offer("nvidia.com/gpu") / 1000 - whole;
        if !fractions.is_empty() && !packs(fractions.clone(), devices) {
            lines.push(format!(
                "{at}: GPU fractions {fractions:?} do not fit the {devices} GPUs left of {name}"
            ));
        }
    }
    lines
}

/// Whether GPU fractions fit on this many devices; tries all packings, largest fraction first.
fn packs(mut fractions: Vec<i64>, devices: i64) -> bool {
    fn lay(fractions: &[i64], open: &mut Vec<i64>, devices: usize) -> bool {
        let Some((first, rest)) = fractions.split_first() else { return true };
        for device in 0..open.len() {
            if open[device] + first <= 1000 {
                open[device] += first;
                if lay(rest, open, devices) {
                    return true;
                }
                open[device] -= first;
            }
        }
        if open.len() == devices {
            return false;
        }
        open.push(*first);
        let fits = lay(rest, open, devices);
        open.pop();
        fits
    }
    fractions.sort_unstable_by(|a, b| b.cmp(a));
    lay(&fractions, &mut Vec::new(), usize::try_from(devices).unwrap_or(0))
}

/// Law 1 on teams and queues: no limit is exceeded, on any level.
fn within_limits(cluster: &Cluster, now: &[&Hold], at: Seconds) -> Vec<String> {
    let mut lines = Vec::new();
    for ((pool, team), sum) in by_team(cluster, now) {
        let limit = cluster.teams.get(team).filter(|_| !cluster.edited.contains(team));
        let limit = limit.and_then(|limits| limits.limit.get(pool)).into_iter().flatten();
        for (resource, most) in
            limit.filter(|(resource, most)| sum.get(*resource).is_some_and(|held| held > most))
        {
            lines.push(format!(
                "{at}: team {team} uses {}m {resource} in {pool}, its limit is {most}m",
                sum[resource]
            ));
        }
    }
    let mut queues: BTreeMap<(&str, &str), Milli> = BTreeMap::new();
    for hold in now {
        let Some(team) = cluster.teams.get(&hold.team) else { continue };
        let request = &cluster.requests[&hold.workload];
        let queue = request.queue.as_deref().unwrap_or(&team.default_queue);
        add(queues.entry((&hold.team, queue)).or_default(), &hold.pod(cluster).0, i64::from(hold.pods));
    }
    for ((team, queue), sum) in queues {
        let limit = cluster.teams[team].queue_limits.get(queue).into_iter().flatten();
        for (resource, most) in
            limit.filter(|(resource, most)| sum.get(*resource).is_some_and(|held| held > most))
        {
            lines.push(format!(
                "{at}: queue {queue} of {team} uses {}m {resource}, its limit is {most}m",
                sum[resource]
            ));
        }
    }
    lines
}

/// Usage of each team, its descendants included, by pool.
fn by_team<'a>(cluster: &'a Cluster, now: &[&Hold]) -> BTreeMap<(&'a str, &'a str), Milli> {
    let mut sums: BTreeMap<(&str, &str), Milli> = BTreeMap::new();
    for hold in now {
        let Some(node) = cluster.nodes.get(&hold.node) else { continue };
        for team in cluster.path(&hold.team) {
            let sum = sums.entry((&node.pool, team)).or_default();
            add(sum, &hold.pod(cluster).0, i64::from(hold.pods));
        }
    }
    sums
}

fn add(to: &mut Milli, amounts: &Milli, times: i64) {
    for (resource, milli) in amounts {
        *to.entry(resource.clone()).or_default() += milli * times;
    }
}

/// No workload starts on a closed node.
fn placed_where_allowed(cluster: &Cluster, got: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    for workload in &got.workloads {
        let mut before: BTreeMap<String, u32> = BTreeMap::new();
        for admission in &workload.admissions {
            for (name, _) in
                admission.nodes.iter().filter(|(name, pods)| before.get(*name).is_none_or(|b| b < *pods))
            {
                let closed =
                    cluster.nodes.get(name).and_then(|node| node.cordoned.into_iter().chain(node.lost).min());
                if closed.is_some_and(|closed| closed <= admission.at) {
                    lines.push(format!(
                        "{} started on {name} at {}, which is closed",
                        workload.key(),
                        admission.at
                    ));
                }
            }
            before.clone_from(&admission.nodes);
        }
    }
    lines
}

/// Law 4: every preemptor starts, has each victim evicted once, and starts only after the victims' capacity
/// is free, unless a workload within guarantee took that capacity over (law 8), or one of its team with a higher priority (law 9). A
/// workload evicted to be moved runs again.
fn paid_evictions(cluster: &Cluster, got: &Outcome, holds: &[Hold]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut seen: BTreeMap<(String, &str, Option<Seconds>), &Eviction> = BTreeMap::new();
    for (victim, eviction) in got.evictions() {
        let preemptor = eviction.preemptor.as_str();
        if !preemptor.is_empty() {
            let started = got.workload(preemptor).and_then(|preemptor| {
                preemptor.admissions.iter().map(|admission| admission.at).find(|at| *at >= eviction.at)
            });
            let deleted = cluster.requests.get(preemptor).is_some_and(|request| request.deleted.is_some());
            // What one of its victims freed may be taken over, and what the others freed is then not enough.
            let is_with_it = |other: &Eviction| (&*other.preemptor, other.at) == (preemptor, eviction.at);
            let plan_taken_over = || {
                let mut victims = got.evictions().filter(|(_, other)| is_with_it(other));
                victims.any(|victim| taken_over(cluster, got, holds, victim, NEVER))
            };
            if started.is_none() && !deleted && !plan_taken_over() {
                lines.push(format!("{} was evicted for {preemptor}, which did not start", victim.key()));
            }
            let before = seen.insert((victim.key(), preemptor, started), eviction);
            let taken_over = |before| taken_over(cluster, got, holds, (victim, before), eviction.at);
            if before.is_some_and(|before| !taken_over(before)) {
                lines.push(format!("{} was evicted twice for one start of {preemptor}", victim.key()));
            }
            if preemptor == victim.key() {
                lines.push(format!("{preemptor} was evicted for itself"));
            }
        }
        let again = victim.admissions.iter().any(|admission| admission.at >= eviction.at);
        if eviction.reason == "Moved" && !again {
            lines.push(format!("{} was evicted to be moved and did not run again", victim.key()));
        }
    }
    lines
}

/// Laws 8 and 9: whether a workload other than the preemptor, with which its team and every ancestor stay within their guarantees, or one
/// of the preemptor's team with a higher priority, started on the victim's nodes after the eviction and before another time.
fn taken_over(
    cluster: &Cluster,
    got: &Outcome,
    holds: &[Hold],
    (victim, eviction): (&Workload, &Eviction),
    until: Seconds,
) -> bool {
    let ran_on = |node: &str| {
        let ended_by = |end: Option<&Eviction>| end.is_some_and(|end| end.at == eviction.at);
        runs(got, victim).iter().any(|(run, end)| ended_by(*end) && run.nodes.contains_key(node))
    };
    let others =
        holds.iter().filter(|hold| hold.workload != eviction.preemptor && hold.workload != victim.key());
    let mut starts =
        others.filter(|hold| eviction.at <= hold.from && hold.from < until && ran_on(&hold.node));
    let preemptor = got.workload(&eviction.preemptor);
    let goes_before = |start: &Hold| {
        preemptor.is_some_and(|preemptor| {
            preemptor.team == start.team
                && cluster.priority(&start.workload, &start.team)
                    > cluster.priority(&eviction.preemptor, &preemptor.team)
        })
    };
    starts.any(|start| {
        if goes_before(start) {
            return true;
        }
        let now: Vec<&Hold> =
            holds.iter().filter(|hold| hold.from <= start.from && start.from < hold.until).collect();
        let sums = by_team(cluster, &now);
        let pool = &cluster.nodes[&start.node].pool;
        let owns = cluster.teams.get(&start.team).is_some_and(|team| team.guaranteed.contains_key(pool));
        owns && cluster.path(&start.team).iter().all(|level| {
            let guaranteed = cluster.teams[*level].guaranteed.get(pool);
            guaranteed.into_iter().flatten().all(|(resource, guarantee)| {
                let held = sums.get(&(pool.as_str(), *level)).and_then(|sum| sum.get(resource));
                held.is_none_or(|held| held <= guarantee)
            })
        })
    })
}

/// Every workload that starts and is evicted in the same instant, a line each: no law forbids it, but no
/// known outcome has it. Runs from the beginning are not starts.
pub fn futile_starts(cluster: &Cluster, got: &Outcome) -> Vec<String> {
    let ran_before = |workload: &Workload| {
        cluster.requests.get(&workload.key()).is_some_and(|request| request.running_on.is_some())
    };
    let futile = got.workloads.iter().filter_map(|workload| {
        let (admission, eviction) =
            runs(got, workload)
                .into_iter()
                .skip(usize::from(ran_before(workload)))
                .find(|(admission, eviction)| eviction.is_some_and(|eviction| eviction.at == admission.at))?;
        let preemptor = eviction.map(|eviction| eviction.preemptor.as_str()).unwrap_or_default();
        Some(format!(
            "{} started and was evicted for {preemptor:?}, both at {}",
            workload.key(),
            admission.at
        ))
    });
    futile.collect()
}

/// The capacity nominated to preemptors until they start.
fn nominated(got: &Outcome) -> Vec<Hold> {
    let mut nominations: BTreeMap<(&str, Seconds), Seconds> = BTreeMap::new();
    for (_, eviction) in got.evictions() {
        let starts =
            got.workload(&eviction.preemptor).into_iter().flat_map(|preemptor| &preemptor.admissions);
        if let Some(start) = starts.map(|admission| admission.at).find(|start| *start >= eviction.at) {
            let since = nominations.entry((&eviction.preemptor, start)).or_insert(eviction.at);
            *since = eviction.at.min(*since);
        }
    }
    let mut holds = Vec::new();
    for ((key, until), from) in nominations {
        if let Some(workload) = got.workload(key) {
            for admission in workload.admissions.iter().filter(|admission| admission.at == until) {
                let less = less_than_wanted(admission);
                holds.extend(admission.nodes.iter().map(|(node, pods)| {
                    let (workload, team, node) = (key.to_owned(), workload.team.clone(), node.clone());
                    Hold { workload, team, node, pods: *pods, less, from, until }
                }));
            }
        }
    }
    holds
}

/// Law 3: preemption for another team takes only usage beyond the guarantee, with capacity nominated to the
/// team's own preemptors counted; of all victims of an instant only the last may bring the team below its
/// guarantee.
fn owners_keep(cluster: &Cluster, got: &Outcome, holds: &[Hold]) -> Vec<String> {
    let mut taken: BTreeMap<(Seconds, &str, &str), Vec<&Workload>> = BTreeMap::new();
    for (victim, eviction) in got.evictions().filter(|(_, eviction)| eviction.reason != "Moved") {
        let preemptor = got.workload(&eviction.preemptor);
        for preemptor in preemptor.into_iter().filter(|preemptor| preemptor.team != victim.team) {
            taken.entry((eviction.at, &victim.team, &preemptor.team)).or_default().push(victim);
        }
    }
    let nominations = nominated(got);
    let mut lines = Vec::new();
    for ((at, team, by), victims) in taken {
        if cluster.path(team).iter().any(|team| cluster.edited.contains(*team)) {
            continue;
        }
        // Starts of the team in this instant count, because they may have come first.
        let at_once = |key: &String| {
            victims.iter().find(|victim| victim.key() == *key).is_none_or(|victim| {
                let ends_now = |end: Option<&Eviction>| end.is_some_and(|end| end.at == at);
                runs(got, victim).iter().any(|(admission, end)| admission.at == at && ends_now(*end))
            })
        };
        let from = |hold: &&Hold| hold.from < at || hold.from == at && at_once(&hold.workload);
        let held = holds.iter().filter(|hold| at <= hold.until);
        let reserved = nominations.iter().filter(|hold| at < hold.until);
        let before: Vec<&Hold> = held.chain(reserved).filter(from).collect();
        let size = |victim: &&Workload| {
            let mut sum = Milli::new();
            for hold in before.iter().filter(|hold| hold.workload == victim.key()) {
                add(&mut sum, &hold.pod(cluster).0, i64::from(hold.pods));
            }
            sum
        };
        let sizes: Vec<Milli> = victims.iter().map(size).collect();
        let sums = by_team(cluster, &before);
        let shared = cluster.path(by);
        let beyond = sums.iter().any(|((pool, level), sum)| {
            let below_common = cluster.path(team).contains(level) && !shared.contains(level);
            let guaranteed = cluster.teams[*level].guaranteed.get(*pool);
            below_common
                && guaranteed.into_iter().flatten().any(|(resource, guarantee)| {
                    let of = |sum: &Milli| sum.get(resource).copied().unwrap_or(0);
                    let all: i64 = sizes.iter().map(of).sum();
                    let last = sizes.iter().map(of).max().unwrap_or(0);
                    of(sum) - all + last > *guarantee
                })
        });
        if !beyond {
            let names: Vec<String> = victims.iter().map(|victim| victim.key()).collect();
            lines.push(format!(
                "{at}: {} of team {team}, within its guarantee, was evicted for team {by}",
                names.join(", ")
            ));
        }
    }
    lines
}
