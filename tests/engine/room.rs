//! What the oracle knows of a world: usage, limits, guarantees, and the room on nodes.

use std::collections::BTreeMap;

use sluice_engine::types::{Action, Admission, Name, Reason, State, Time, WorkloadId};

use super::world::{GPU, Job, Phase, World};

impl World {
    /// Every workload that holds capacity, with its admission. Admissions that are not yet written are
    /// included.
    pub fn admitted(&self) -> Vec<(&Job, Admission)> {
        let running = self.items.values().filter_map(|job| match &job.phase {
            Phase::Running(admission) | Phase::Stopping(admission, _) => Some((job, admission.clone())),
            _ => None,
        });
        let starting = self.in_flight.iter().filter_map(|action| match action {
            Action::Admit { workload, admission, .. } => {
                self.items.get(workload).map(|job| (job, admission.clone()))
            }
            Action::Evict { .. } | Action::Resize { .. } | Action::EndPod { .. } | Action::Fail { .. } => {
                None
            }
        });
        running.chain(starting).collect()
    }

    /// Free GPUs of a node.
    pub fn free(&self, node: &Name) -> i64 {
        let unmanaged: i64 =
            self.unmanaged.values().filter(|(at, _)| at == node).map(|(_, count)| count).sum();
        let held: i64 = self
            .admitted()
            .iter()
            .map(|(job, admission)| {
                job.gpus_per_pod * i64::from(admission.nodes.get(node).copied().unwrap_or(0))
            })
            .sum();
        self.nodes[node].0 - unmanaged - held
    }

    /// The usage in GPUs of a team with all teams below it.
    pub fn used(&self, team: &Name) -> i64 {
        let under = |job: &Job| self.path(&job.workload.team).contains(team);
        self.admitted().iter().filter(|(job, _)| under(job)).map(|(job, _)| job.total()).sum()
    }

    /// The part of that usage that is never preempted.
    fn used_for_good(&self, team: &Name) -> i64 {
        let fixed = |job: &Job| !job.preemptible() && self.path(&job.workload.team).contains(team);
        self.admitted().iter().filter(|(job, _)| fixed(job)).map(|(job, _)| job.total()).sum()
    }

    /// The part of that usage that counts against the team's guarantee: without preemptible workloads that are larger than it
    /// (law 2).
    fn counted(&self, team: &Name) -> i64 {
        let counts = |job: &Job| {
            self.path(&job.workload.team).contains(team)
                && !(job.preemptible() && job.total() > self.guaranteed(team))
        };
        self.admitted().iter().filter(|(job, _)| counts(job)).map(|(job, _)| job.total()).sum()
    }

    /// A team and its ancestors, the team first.
    pub fn path(&self, team: &Name) -> Vec<Name> {
        let mut path = vec![team.clone()];
        while let Some(parent) = self.teams.get(&path[path.len() - 1]).and_then(|team| team.parent.clone()) {
            path.push(parent);
        }
        path
    }

    pub fn guaranteed(&self, team: &Name) -> i64 {
        let quota = &self.teams[team].quotas["default"];
        quota.guaranteed.get(GPU).map_or(0, |amount| amount.as_milli() / 1000)
    }

    pub fn limit(&self, team: &Name) -> Option<i64> {
        self.teams[team].quotas["default"].limit.get(GPU).map(|amount| amount.as_milli() / 1000)
    }

    /// Whether every team on its path stays within its guarantee with `job` and without the usage in `less`.
    pub fn within_guarantee(&self, job: &Job, less: &BTreeMap<Name, i64>) -> bool {
        self.path(&job.workload.team).iter().all(|team| {
            let used = self.counted(team) - less.get(team).copied().unwrap_or(0);
            used + job.total() <= self.guaranteed(team)
        })
    }

    /// Whether every team on its path stays within its limit with `job` and without the usage in `less`.
    pub fn within_limits(&self, job: &Job, less: &BTreeMap<Name, i64>) -> bool {
        self.path(&job.workload.team).iter().all(|team| {
            let used = self.used(team) - less.get(team).copied().unwrap_or(0);
            self.limit(team).is_none_or(|limit| used + job.total() <= limit)
        })
    }

    /// The order of workloads of one priority: submission time, then number.
    pub fn submission_order(job: &Job) -> (Time, u32) {
        let number = job.workload.name[1..].parse().expect("names are w and a number");
        (job.workload.submitted, number)
    }

    /// The order of a team's workloads: higher priority first, then submission.
    pub fn queue_position(job: &Job) -> (i32, Time, u32) {
        let (submitted, number) = Self::submission_order(job);
        (-job.workload.priority, submitted, number)
    }

    /// As [`World::within_guarantee`] for its own team only, ancestors aside.
    fn within_team_guarantee(&self, job: &Job) -> bool {
        let team = &job.workload.team;
        self.used(team) + job.total() <= self.guaranteed(team)
    }

    /// GPUs by node that are reserved against `job`. A reservation binds workloads behind its owner in the
    /// same team, and workloads of other teams unless `job` is within its team's guarantee and the owner is
    /// not.
    pub fn reserved_against(&self, job: &Job) -> BTreeMap<Name, i64> {
        let mut reserved = BTreeMap::new();
        for reservation in self.engine.reservations() {
            let owner = &self.items[&reservation.owner];
            let is_before_owner = if owner.workload.team == job.workload.team {
                Self::queue_position(job) <= Self::queue_position(owner)
            } else {
                self.within_team_guarantee(job) && !self.within_team_guarantee(owner)
            };
            if !is_before_owner {
                for (node, pods) in &reservation.nodes {
                    *reserved.entry(node.clone()).or_default() += owner.gpus_per_pod * i64::from(*pods);
                }
            }
        }
        reserved
    }

    /// Whether the reservation of a borrowing sibling before `job` keeps it waiting: the nodes hold `job`
    /// without that reservation, but its team would exceed the guarantee with the reserved capacity counted
    /// as usage.
    pub fn is_masked_by_sibling(&self, job: &Job) -> bool {
        let masked = self.reserved_by_borrowing_siblings(job);
        let reserved = self.reserved_against(job);
        let schedulable = self.nodes.iter().filter(|(_, (_, schedulable))| *schedulable);
        let headroom = schedulable.map(|(node, _)| {
            let by_others = reserved.get(node).map_or(0, |all| all - masked.get(node).copied().unwrap_or(0));
            (self.free(node) - by_others).max(0) / job.gpus_per_pod
        });
        let free: i64 = masked.iter().map(|(node, masked)| self.free(node).min(*masked)).sum();
        let team = &job.workload.team;
        headroom.sum::<i64>() >= i64::from(job.workload.pods)
            && self.used(team) + free + job.total() > self.guaranteed(team)
    }

    /// Whether a limit on the path of `job`, or a guarantee if neither is ever preempted, cannot hold it beside a sibling
    /// before it that has a reservation.
    pub fn is_limited_by_sibling(&self, job: &Job) -> bool {
        let before = |owner: &Job| {
            owner.workload.team == job.workload.team
                && Self::queue_position(owner) < Self::queue_position(job)
        };
        let exceeds = |owner: &Job| {
            let both = owner.total() + job.total();
            let path = self.path(&job.workload.team);
            let fixed = !owner.preemptible() && !job.preemptible();
            path.iter().any(|team| {
                self.limit(team).is_some_and(|limit| self.used(team) + both > limit)
                    || fixed && self.used_for_good(team) + both > self.guaranteed(team)
            })
        };
        let reservations = self.engine.reservations();
        let mut owners = reservations.iter().map(|reservation| &self.items[&reservation.owner]);
        owners.any(|owner| before(owner) && exceeds(owner))
    }

    /// GPUs by node that are reserved for siblings before `job` that would borrow.
    fn reserved_by_borrowing_siblings(&self, job: &Job) -> BTreeMap<Name, i64> {
        let mut masked = BTreeMap::new();
        for reservation in self.engine.reservations() {
            let owner = &self.items[&reservation.owner];
            let before = owner.workload.team == job.workload.team
                && Self::queue_position(owner) < Self::queue_position(job);
            if before && !self.within_team_guarantee(owner) {
                for (node, pods) in &reservation.nodes {
                    *masked.entry(node.clone()).or_default() += owner.gpus_per_pod * i64::from(*pods);
                }
            }
        }
        masked
    }

    /// Whether all pods of `job` fit the schedulable nodes without `evicted`, reserved capacity left whole.
    pub fn fits_after(&self, job: &Job, evicted: &[&Job]) -> bool {
        let reserved = self.reserved_against(job);
        let headroom: i64 = self
            .nodes
            .iter()
            .filter(|(_, (_, schedulable))| *schedulable)
            .map(|(node, _)| {
                let freed: i64 = evicted
                    .iter()
                    .filter_map(|victim| match &victim.phase {
                        Phase::Running(admission) => Some(
                            victim.gpus_per_pod * i64::from(admission.nodes.get(node).copied().unwrap_or(0)),
                        ),
                        _ => None,
                    })
                    .sum();
                let reserved = reserved.get(node).copied().unwrap_or(0);
                (self.free(node) + freed - reserved).max(0) / job.gpus_per_pod
            })
            .sum();
        headroom >= i64::from(job.workload.pods)
    }

    pub fn running(&self) -> Vec<&Job> {
        self.items.values().filter(|job| matches!(job.phase, Phase::Running(_))).collect()
    }

    pub fn queued(&self) -> Vec<&Job> {
        self.items.values().filter(|job| job.phase == Phase::Queued).collect()
    }

    /// The state and reason of a workload's verdict.
    pub fn reason(&self, id: &WorkloadId) -> (State, Reason) {
        let verdict = self.engine.verdict(id).expect("every workload has a verdict");
        assert!(!verdict.message.is_empty(), "the verdict of {id} has no message");
        (verdict.state, verdict.reason)
    }
}
