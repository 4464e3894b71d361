//! Who waits, in order, grouped so that workloads that are alike are looked at once.
//!
//! Within a team: whoever has waited for longer than a queue that raises it wants, then queue priority,
//! then PriorityClass, then submission time (the place in the queue
//! that an eviction does not take away), then the name in natural order. Workloads that cannot be
//! told apart by any decision form a class; when the first of a class cannot start, none can.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::decision::{Reason, Verdict};
use super::forest::TeamIx;
use super::model::{Name, PodShape, Time, Topology, WorkloadId};

/// A workload's rank inside its team; compares less when it goes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    raised: Reverse<bool>,
    priority: Reverse<(i32, i32)>,
    submitted: Time,
    name: NaturalName,
    id: WorkloadId,
}

impl Rank {
    /// The rank of a workload of that queue priority and PriorityClass value.
    #[must_use]
    pub fn new(priority: (i32, i32), submitted: Time, name: &Name, id: &WorkloadId) -> Self {
        let name = NaturalName(name.clone());
        Self { raised: Reverse(false), priority: Reverse(priority), submitted, name, id: id.clone() }
    }

    /// This rank, before all that are not raised if it is.
    #[must_use]
    pub fn raised(self, raised: bool) -> Self {
        Self { raised: Reverse(raised), ..self }
    }

    /// Whose rank it is.
    #[must_use]
    pub fn id(&self) -> &WorkloadId {
        &self.id
    }

    /// When it was submitted.
    #[must_use]
    pub fn submitted(&self) -> Time {
        self.submitted
    }
}

/// A name of which runs of digits compare as numbers: `job-2` before `job-10`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NaturalName(Name);

impl Ord for NaturalName {
    fn cmp(&self, other: &Self) -> Ordering {
        let (mut left, mut right) = (&*self.0, &*other.0);
        loop {
            let (a, rest_a) = next_run(left);
            let (b, rest_b) = next_run(right);
            let ordering = match (number(a), number(b)) {
                (Some(x), Some(y)) => x.len().cmp(&y.len()).then_with(|| x.cmp(y)),
                _ => a.cmp(b),
            };
            if ordering.is_ne() || a.is_empty() {
                return ordering.then_with(|| self.0.cmp(&other.0));
            }
            (left, right) = (rest_a, rest_b);
        }
    }
}

impl PartialOrd for NaturalName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Splits off the leading run of digits, or of anything else.
fn next_run(text: &str) -> (&str, &str) {
    let digit = |c: char| c.is_ascii_digit();
    let first = text.chars().next().is_some_and(digit);
    text.split_at(text.find(|c| digit(c) != first).unwrap_or(text.len()))
}

/// A run of digits without leading zeros; of two such, the longer is the greater number.
fn number(run: &str) -> Option<&str> {
    run.starts_with(|c: char| c.is_ascii_digit()).then(|| run.trim_start_matches('0'))
}

/// What decides about a workload besides its place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassKey {
    /// Its queue by name.
    pub queue: Option<Name>,
    /// Its PriorityClass value.
    pub priority: i32,
    /// How many pods it wants.
    pub pods: u32,
    /// What each of them needs.
    pub shape: PodShape,
    /// Within which domains they are to lie.
    pub topology: Topology,
    /// The pools it may use.
    pub pools: Vec<Name>,
    /// Whether it can be evicted at all.
    pub resumable: bool,
    /// How long it says it will run at most, which decides whom it may pass.
    pub time_limit: Option<Duration>,
}

/// The waiting workloads of one team that are alike.
#[derive(Clone, Debug, Default)]
struct Class {
    waiting: BTreeSet<Rank>,
    /// The epoch in which the first could not start, and why.
    blocked: Option<(u64, Verdict)>,
}

/// All waiting workloads.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    teams: BTreeMap<TeamIx, BTreeMap<ClassKey, Class>>,
    places: BTreeMap<WorkloadId, (TeamIx, ClassKey, Rank)>,
}

impl Pending {
    /// Puts a workload in its place; it is taken out of any other first.
    pub fn insert(&mut self, team: TeamIx, key: ClassKey, rank: Rank) {
        if self.places.get(rank.id()).is_some_and(|(t, k, r)| (*t, k, r) == (team, &key, &rank)) {
            return;
        }
        self.remove(&rank.id().clone());
        self.places.insert(rank.id().clone(), (team, key.clone(), rank.clone()));
        self.teams.entry(team).or_default().entry(key).or_default().waiting.insert(rank);
    }

    /// Takes a workload out.
    pub fn remove(&mut self, id: &WorkloadId) {
        let Some((team, key, rank)) = self.places.remove(id) else { return };
        let Some(classes) = self.teams.get_mut(&team) else { return };
        if let Some(class) = classes.get_mut(&key) {
            class.waiting.remove(&rank);
            if class.waiting.is_empty() {
                classes.remove(&key);
            }
        }
        if classes.is_empty() {
            self.teams.remove(&team);
        }
    }

    /// The rank of a workload among those of its team that wait.
    #[must_use]
    pub fn rank(&self, id: &WorkloadId) -> Option<&Rank> {
        self.places.get(id).map(|(_, _, rank)| rank)
    }

    /// The teams of which somebody waits.
    pub fn teams(&self) -> impl Iterator<Item = TeamIx> + '_ {
        self.teams.keys().copied()
    }

    /// The first of the team that has not been found unable to start in this epoch.
    #[must_use]
    pub fn head(&self, team: TeamIx, epoch: u64) -> Option<&Rank> {
        let classes = self.teams.get(&team)?.values();
        classes
            .filter(|class| class.blocked.as_ref().is_none_or(|(blocked, _)| *blocked != epoch))
            .filter_map(|class| class.waiting.first())
            .min()
    }

    /// The first of every class, with how many there are in it.
    pub fn firsts(&self) -> impl Iterator<Item = (&WorkloadId, usize)> {
        let classes = self.teams.values().flat_map(BTreeMap::values);
        classes.filter_map(|class| class.waiting.first().map(|rank| (rank.id(), class.waiting.len())))
    }

    /// The first of every class of every team but one, whether it has been found unable to start or not.
    pub fn firsts_of_others(&self, team: TeamIx) -> impl Iterator<Item = &WorkloadId> {
        let others = self.teams.iter().filter(move |(other, _)| **other != team);
        others.flat_map(|(_, classes)| classes.values()).filter_map(|c| c.waiting.first()).map(Rank::id)
    }

    /// Notes that a workload, and so all that are like it, cannot start in this epoch.
    pub fn block(&mut self, id: &WorkloadId, epoch: u64, verdict: Verdict) {
        if let Some(class) = self.class_mut(id) {
            class.blocked = Some((epoch, verdict));
        }
    }

    /// Why a waiting workload could not start when it was last looked at.
    #[must_use]
    pub fn verdict(&self, id: &WorkloadId) -> Option<Verdict> {
        let (team, key, _) = self.places.get(id)?;
        let class = self.teams.get(team)?.get(key)?;
        Some(class.blocked.as_ref().map_or_else(
            || Verdict {
                state: super::decision::State::Pending,
                reason: Reason::NotYetConsidered,
                message: "has not been considered yet".to_owned(),
            },
            |(_, verdict)| verdict.clone(),
        ))
    }

    fn class_mut(&mut self, id: &WorkloadId) -> Option<&mut Class> {
        let (team, key, _) = self.places.get(id)?;
        self.teams.get_mut(team)?.get_mut(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_compare_as_numbers() {
        let ordered = ["a", "job-1", "job-2", "job-10", "job-10b", "job-a", "x1y2", "x1y10", "x10"];
        for pair in ordered.windows(2) {
            assert!(NaturalName(pair[0].into()) < NaturalName(pair[1].into()), "{pair:?}");
        }
        assert_ne!(NaturalName("a01".into()).cmp(&NaturalName("a1".into())), Ordering::Equal);
    }

    #[test]
    fn priority_goes_before_age_and_age_before_names() {
        let id = |name: &str| WorkloadId(name.into());
        let rank = |priority, time, name: &str| Rank::new(priority, Time(time), &name.into(), &id(name));
        assert!(rank((1, 0), 5, "b") < rank((0, 9), 1, "a"));
        assert!(rank((0, 9), 5, "b") < rank((0, 1), 1, "a"));
        assert!(rank((0, 0), 1, "b") < rank((0, 0), 2, "a"));
        assert!(rank((0, 0), 1, "a") < rank((0, 0), 1, "b"));
    }
}
