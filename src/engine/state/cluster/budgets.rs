//! What workloads use of the budgets of their teams and of those above.

use std::time::Duration;

use crate::state::cluster::state::ClusterState;
use crate::state::quotas::{Cost, Funding};
use crate::state::rules::time_limit;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::Vector;
use crate::types::{BudgetUsed, Time, WorkloadId};

impl ClusterState {
    /// What an amount counts against budgets, in thousandths: its worth in the currency of the pool; without a currency, its GPUs,
    /// or all its devices if none of them is named so.
    #[must_use]
    pub fn budget_rate(&self, pool: PoolId, amount: &Vector) -> i64 {
        if self.pools.get(self.quotas.pool_name(pool)).is_some_and(|pool| !pool.weights.is_empty()) {
            return self.worth(pool, amount);
        }
        let (mut gpus, mut devices) = (0_i64, 0_i64);
        for (index, milli) in amount.nonzero().filter(|(index, _)| self.resources.is_device(*index)) {
            devices = devices.saturating_add(milli);
            if self.resources.name(index).ends_with("/gpu") {
                gpus = gpus.saturating_add(milli);
            }
        }
        if gpus > 0 { gpus } else { devices }
    }

    /// Whether the budgets on its path cover the start of a workload that asks for `amount` in a pool.
    #[must_use]
    pub fn funding(&self, info: &WorkloadInfo, pool: PoolId, amount: &Vector) -> Funding {
        let budgets = &self.quotas.budgets;
        if budgets.is_empty() {
            return Funding::Funded;
        }
        let (rate, most) = self.budget_need(info, pool, amount);
        budgets.funding(&self.quotas.team(info.team).path, rate, most)
    }

    /// The rate at which `amount` in a pool uses budgets, and the most that a run of the workload uses if it has a time limit.
    #[must_use]
    pub fn budget_need(&self, info: &WorkloadInfo, pool: PoolId, amount: &Vector) -> (i64, Option<i128>) {
        let rate = self.budget_rate(pool, amount);
        let most = time_limit(self, info).map(|limit| i128::from(rate) * milliseconds(limit));
        (rate, most)
    }

    /// Takes note of what the status of a team says was used of its budget.
    pub fn note_budget_used(&mut self, used: BudgetUsed) {
        let team = self.quotas.intern_team(&used.team);
        self.quotas.budgets.note(team, used);
        self.count_budget_again(team);
    }

    /// Lets time pass for budgets; true if a period has ended.
    pub fn pass_budgets(&mut self, now: Time) -> bool {
        let refilled = self.quotas.budgets.pass(now);
        for team in &refilled {
            self.count_budget_again(*team);
        }
        !refilled.is_empty()
    }

    /// Adds what runs to all budgets again, after a change of teams.
    pub(super) fn count_budgets_again(&mut self) {
        for team in self.quotas.budgets.teams().collect::<Vec<_>>() {
            if self.count_budget_again(team) {
                self.quotas.budgets.adopt(team);
            }
        }
    }

    /// Adds what runs below a team to its budget again; true if the budget is new.
    fn count_budget_again(&mut self, team: TeamId) -> bool {
        let new = self.quotas.budgets.clear(team);
        let mut found: Vec<(WorkloadId, Cost)> = Vec::new();
        for (_, pool) in self.quotas.pools() {
            let below = |holder: &TeamId| self.quotas.team(*holder).path.contains(&team);
            for holder in self.holders.teams_in(pool).filter(below) {
                let infos = self.holders.of_team(pool, holder).filter_map(|index| self.at(index));
                let charged = infos.filter(|info| info.usage.pods > 0);
                found.extend(charged.map(|info| (info.workload.id.clone(), self.cost_of(info))));
            }
        }
        for (id, cost) in found {
            self.quotas.budgets.add_to(team, &id, cost);
            if let Some(info) = self.workloads.get_mut(&id) {
                info.cost = Some(cost);
            }
        }
        new
    }

    /// What a workload uses of budgets while it is charged as it is.
    fn cost_of(&self, info: &WorkloadInfo) -> Cost {
        let since = info.phase.admission().map(|admission| admission.at);
        let runs = matches!(info.phase, Phase::Starting(_) | Phase::Running(_) | Phase::Resizing { .. });
        let limit = time_limit(self, info).filter(|_| runs && info.unadmitted.is_none());
        Cost {
            rate: self.budget_rate(info.usage.pool, &info.held()),
            since,
            end: since.zip(limit).map(|(since, limit)| since.after(limit)),
        }
    }

    /// Adds what a charged workload costs to the budgets on its path.
    pub(super) fn charge_budgets(&mut self, id: &WorkloadId) {
        if self.quotas.budgets.is_empty() {
            return;
        }
        let Some(info) = self.workloads.get(id).filter(|info| info.usage.pods > 0) else { return };
        let (cost, team) = (self.cost_of(info), info.team);
        let path = self.quotas.team(team).path.clone();
        self.quotas.budgets.add(&path, id, cost);
        if let Some(info) = self.workloads.get_mut(id) {
            info.cost = Some(cost);
        }
    }

    /// Takes what a workload was charged off the budgets on its path.
    pub(super) fn uncharge_budgets(&mut self, id: &WorkloadId) {
        let Some(info) = self.workloads.get_mut(id) else { return };
        let Some(cost) = info.cost.take() else { return };
        let path = self.quotas.team(info.team).path.clone();
        self.quotas.budgets.remove(&path, id, cost);
    }
}

fn milliseconds(duration: Duration) -> i128 {
    i128::try_from(duration.as_millis()).unwrap_or(i128::MAX >> 64)
}
