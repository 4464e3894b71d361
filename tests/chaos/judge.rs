//! The laws that the observer's books must obey, snapshot after snapshot.
//!
//! Lists of several kinds are not of one instant, so a breach counts only if several snapshots in a row show it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sluice::api::record::Eviction;

use crate::books::{Books, NEWS};

/// Snapshots in a row that must show a breach.
const PERSISTS: usize = 4;

/// Snapshots in a row, about half a minute, in which a workload within its guarantee may wait for borrowers to go. A
/// take-over of the lead takes a few seconds, and so does the grace period of a victim.
const STARVES: usize = 75;

/// Snapshots in a row, about half a minute, in which the status of a Team may say less or more than it holds: there may
/// be no leader for a few seconds, and statuses are written a few seconds apart.
const LATE: usize = 75;

/// The most evictions of one workload for others in a soak; each of its runs lasts a few seconds.
const EVICTIONS: usize = 10;

/// Judges snapshot after snapshot.
#[derive(Debug, Default)]
pub struct Judge {
    last: Vec<Books>,
    /// How many snapshots in a row have shown each breach.
    suspects: BTreeMap<String, usize>,
    /// When a team was last seen with another guarantee than before, or a namespace in another team, in milliseconds since 1970.
    edits: BTreeMap<String, i64>,
    /// The evictions that were judged, with the time of their first snapshot.
    seen: BTreeMap<String, (Eviction, i64)>,
    /// What was charged to each team in the last snapshots.
    charges: BTreeMap<String, VecDeque<i64>>,
    /// All breaches so far.
    pub breaches: Vec<String>,
    /// All evictions so far.
    pub evictions: usize,
    /// Evictions of each workload for another.
    times: BTreeMap<String, usize>,
    /// All admissions so far.
    pub admissions: BTreeSet<(String, i64)>,
}

impl Judge {
    /// Judges one more snapshot. Returns the breaches that it makes certain.
    pub fn judge(&mut self, books: Books) -> Vec<String> {
        let mut suspects: Vec<String> = Vec::new();
        let mut details: BTreeMap<String, String> = BTreeMap::new();
        for (name, node) in &books.nodes {
            if node.decided() > node.gpus {
                let suspect = format!("law 1: node {name} was promised beyond its {} GPUs", node.gpus);
                details.insert(suspect.clone(), format!("{suspect}: {}", node.details()));
                suspects.push(suspect);
            }
        }
        for (name, team) in &books.teams {
            let Some(limit) = team.limit else { continue };
            let same = |last: &Books| last.teams.get(name) == Some(team) && last.homes == books.homes;
            let within = |last: &Books| same(last) && last.used(name) <= limit;
            // More than the limit without a decision is none: the limit was lowered, or the namespace came later.
            let used = books.used(name);
            if used > limit
                && (self.last.iter().any(within) || self.suspects.contains_key(&over(name, limit)))
            {
                suspects.push(over(name, limit));
            }
        }
        suspects.extend(books.touched.iter().map(|what| format!("law 13: {what} carries marks of Sluice")));
        suspects.extend(books.starved.iter().map(|what| format!("law 2: {what}, and borrowers run")));
        // What a status says was true within the last half minute; between two leaders it is late.
        for team in books.said.keys() {
            let charges = self.charges.entry(team.clone()).or_default();
            charges.push_back(books.charged(team));
            if charges.len() > LATE {
                charges.pop_front();
            }
        }
        let wrong = |(team, said): &(&String, &i64)| !self.charges[*team].contains(said);
        for (team, said) in books.said.iter().filter(wrong) {
            let suspect = format!("law 16: the status of team {team} is not what its pods and records hold");
            details.insert(suspect.clone(), format!("{suspect}: {said} for {}", books.charged(team)));
            suspects.push(suspect);
        }
        suspects.extend(books.doubled.iter().map(|what| format!("law 11: {what}")));
        self.admissions.extend(books.admissions.iter().map(|(name, at)| (name.clone(), *at)));
        self.note_edits(&books);
        let mut certain = self.judge_evictions(&books);
        let mut now = BTreeMap::new();
        for suspect in suspects {
            let times = self.suspects.get(&suspect).copied().unwrap_or(0) + 1;
            let patience = match suspect.split(':').next() {
                Some("law 2") => STARVES,
                Some("law 16") => LATE,
                _ => PERSISTS,
            };
            if times == patience {
                certain.push(details.get(&suspect).unwrap_or(&suspect).clone());
            }
            now.insert(suspect, times);
        }
        self.suspects = now;
        self.last.push(books);
        if self.last.len() > PERSISTS {
            self.last.remove(0);
        }
        self.breaches.extend(certain.iter().cloned());
        certain
    }

    /// Notes the teams of which the guarantee is another than in the last snapshot, or the namespaces are.
    fn note_edits(&mut self, books: &Books) {
        let Some(last) = self.last.last() else { return };
        let guarantee = |books: &Books, team: &String| books.teams.get(team).map(|team| team.guarantee);
        let moved = |team: &String| {
            let homes = |books: &Books| {
                let own = books.homes.iter().filter(|(_, home)| *home == team);
                own.map(|(namespace, _)| namespace.clone()).collect::<BTreeSet<String>>()
            };
            homes(last) != homes(books)
        };
        let all: BTreeSet<&String> = last.teams.keys().chain(books.teams.keys()).collect();
        for team in
            all.into_iter().filter(|team| guarantee(last, team) != guarantee(books, team) || moved(team))
        {
            self.edits.insert(team.clone(), books.taken);
        }
    }

    /// Laws 3 and 8: an owner at or under its guarantee loses nothing to another team, and no workload is evicted twice
    /// for the same one within a moment.
    fn judge_evictions(&mut self, books: &Books) -> Vec<String> {
        let mut breaches = Vec::new();
        for (name, (team, eviction)) in &books.evictions {
            let before = self.seen.get(name).cloned();
            if before.as_ref().is_some_and(|(before, _)| before.at == eviction.at) {
                continue;
            }
            self.seen.insert(name.clone(), (eviction.clone(), books.taken));
            if self.last.is_empty() {
                continue;
            }
            self.evictions += 1;
            let preemptor = eviction.preemptor.split('/').next().unwrap_or_default();
            let foreign = !preemptor.is_empty() && preemptor != team;
            let reclaims = matches!(eviction.reason.as_str(), "Reclaimed" | "FairShare");
            // Evicted while its team used at most its guarantee, in every snapshot before. A team that was deleted
            // meanwhile had none.
            let known = |last: &Books| last.teams.contains_key(team) && last.homes == books.homes;
            // What its team had started in the moment before, which no snapshot shows beside it: a team may become a borrower and
            // be preempted in one instant.
            let started_since = |before: &Books| -> i64 {
                let own =
                    |other: &str| other != name.as_str() && other.split('/').next() == Some(team.as_str());
                let in_between = |(other, at): &(&String, &i64)| {
                    own(other)
                        && **at <= eviction.at.as_millisecond()
                        && before.admissions.get(*other) != Some(at)
                };
                let names = books.admissions.iter().filter(in_between).map(|(other, _)| other);
                names.filter_map(|other| books.sizes.get(other)).sum()
            };
            let protected = |books: &Books| {
                let size = books.sizes.get(name).copied().unwrap_or(0);
                let guarantee = books.teams.get(team).map_or(0, |team| team.guarantee);
                // In a snapshot before its admission it is not charged yet.
                let unseen = if books.admissions.contains_key(name) { 0 } else { size };
                // No guarantee protects what is larger from work within guarantee (law 2).
                let exempt = eviction.reason == "Reclaimed" && size > guarantee;
                let started = started_since(books);
                !exempt
                    && books.charged(team) + unseen + started + books.nominated(team, eviction) <= guarantee
            };
            let mut all = self.last.iter().chain([books]);
            // Sluice may have decided by an earlier guarantee.
            let settled = self.edits.get(team).is_none_or(|at| at + NEWS <= books.taken);
            // Of one that came and went between two snapshots it is not known what its team used then.
            let shown = self.last.iter().any(|books| books.admissions.contains_key(name));
            if shown && settled && foreign && reclaims && all.all(|books| known(books) && protected(books)) {
                let state = |books: &Books| {
                    let guarantee = books.teams.get(team).map_or(0, |team| team.guarantee);
                    let (after, used) = (books.taken - eviction.at.as_millisecond(), books.charged(team));
                    format!("{used} of {guarantee} at {after} ms")
                };
                let states: Vec<String> = self.last.iter().chain([books]).map(state).collect();
                breaches.push(format!(
                    "law 3: {name} of team {team} within its guarantee went for {} ({}; in use: {})",
                    eviction.preemptor,
                    eviction.reason,
                    states.join(", ")
                ));
            }
            if !preemptor.is_empty() {
                let times = self.times.entry(name.clone()).or_default();
                *times += 1;
                if *times == EVICTIONS {
                    breaches.push(format!("law 8: {name} was evicted {times} times"));
                }
            }
            let again = before.filter(|(before, _)| before.preemptor == eviction.preemptor && foreign);
            if again.is_some_and(|(_, seen)| books.taken - seen < 2_000) {
                breaches.push(format!("law 8: {name} went twice within 2 s for {}", eviction.preemptor));
            }
        }
        breaches
    }
}

fn over(team: &str, limit: i64) -> String {
    format!("law 1: team {team} was admitted more than its limit of {limit} GPUs")
}
