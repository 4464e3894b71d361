//! Hypothetical changes of usage.

use std::collections::BTreeMap;

use crate::types::ids::TeamId;
use crate::types::vector::Vector;

/// The team that a workload is charged to.
#[derive(Clone, Copy, Debug)]
pub struct Account<'a> {
    /// The team.
    pub team: TeamId,
    /// The levels of its path with guarantees that are smaller than the workload: its usage is not held against these
    /// (law 2).
    pub oversize: &'a [TeamId],
}

/// How guarantees protect the usage of a workload from a preemptor of another team (law 3).
#[derive(Clone, Copy, Debug)]
pub struct Protection<'a> {
    /// The teams whose guarantees the preemptor must respect: the path of the workload up to the first common team.
    pub levels: &'a [TeamId],
    /// The levels that the workload is larger than (law 2).
    pub oversize: &'a [TeamId],
    /// Whether the preemptor borrows. What is larger than a guarantee is not protected by it from a preemptor within
    /// guarantee; from a borrowing one it is, with the whole usage of the team.
    pub from_borrower: bool,
}

impl Protection<'_> {
    /// Whether a guarantee protects no part of the workload.
    pub(super) fn exempts(&self, level: TeamId) -> bool {
        !self.from_borrower && self.oversize.contains(&level)
    }

    /// Whether the whole usage of a level protects the workload, with what is larger than the guarantee.
    pub(super) fn is_whole(&self, level: TeamId) -> bool {
        self.from_borrower && self.oversize.contains(&level)
    }
}

impl From<TeamId> for Account<'_> {
    /// A workload that every guarantee on the path could hold.
    fn from(team: TeamId) -> Self {
        Self { team, oversize: &[] }
    }
}

/// Hypothetical changes of usage, by team.
#[derive(Clone, Debug, Default)]
pub struct Hypothetical {
    usage: BTreeMap<TeamId, Vector>,
    /// The part of these changes that no guarantee of the team counts.
    oversize: BTreeMap<TeamId, Vector>,
}

impl Hypothetical {
    /// No change.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The change of a team's usage, if there is one.
    #[must_use]
    pub fn get(&self, team: &TeamId) -> Option<&Vector> {
        self.usage.get(team)
    }

    /// Whether the usage of a team changes.
    #[must_use]
    pub fn contains_key(&self, team: &TeamId) -> bool {
        self.usage.contains_key(team)
    }

    /// The teams with changed usage.
    pub fn keys(&self) -> impl Iterator<Item = &TeamId> {
        self.usage.keys()
    }

    /// The change of a team's usage of a resource.
    pub(super) fn change(&self, team: TeamId, index: usize) -> i64 {
        self.usage.get(&team).map_or(0, |change| change.get(index))
    }

    /// The change of the part of it that no guarantee of the team counts.
    pub(super) fn oversize(&self, team: TeamId, index: usize) -> i64 {
        self.oversize.get(&team).map_or(0, |change| change.get(index))
    }

    /// Adds `amount` × `times` to the usage of one team, without those above it.
    pub(super) fn add(&mut self, team: TeamId, amount: &Vector, times: i64, oversize: bool) {
        self.usage.entry(team).or_default().add(amount, times);
        if oversize {
            self.oversize.entry(team).or_default().add(amount, times);
        }
    }
}
