//! The waiting classes that may be within guarantee, and so may preempt, by their demand.
//!
//! Classes of several teams with the same demand share one entry, so a counter-preemption search asks once
//! for all of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::class::Demand;
use crate::queue::conditions::set_member;
use crate::types::ids::{ClassId, TeamId};

/// The potential preemptors by demand.
#[derive(Clone, Debug, Default)]
pub struct PotentialPreemptors {
    classes: BTreeMap<Demand, BTreeSet<(TeamId, ClassId)>>,
}

impl PotentialPreemptors {
    /// Adds a class, or removes it.
    pub fn set(&mut self, demand: Demand, team: TeamId, class: ClassId, member: bool) {
        set_member(&mut self.classes, demand, (team, class), member);
    }

    /// Every demand of a potential preemptor.
    pub fn demands(&self) -> impl Iterator<Item = &Demand> {
        self.classes.keys()
    }

    /// The teams with that demand.
    pub fn teams(&self, demand: &Demand) -> impl Iterator<Item = TeamId> {
        let mut last = None;
        let teams = self.classes.get(demand).into_iter().flatten().map(|(team, _)| *team);
        teams.filter(move |team| last.replace(*team) != Some(*team))
    }

    /// One class with that demand.
    pub fn one(&self, demand: &Demand) -> Option<ClassId> {
        self.classes.get(demand)?.first().map(|(_, class)| *class)
    }

    /// The classes of a team with that demand.
    pub fn of_team(&self, demand: &Demand, team: TeamId) -> impl Iterator<Item = ClassId> {
        let classes = self.classes.get(demand).into_iter();
        let range = (team, ClassId::MIN)..=(team, ClassId::MAX);
        classes.flat_map(move |classes| classes.range(range.clone())).map(|(_, class)| *class)
    }
}
