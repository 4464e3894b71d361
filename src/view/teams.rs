//! Rows about teams, their queues and budgets, and the pods they are charged for without an admission.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::amounts::{Amounts, amounts};
use crate::api::record::timestamp;
use crate::api::team::hours;
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{BudgetView, Paused, QueueView, TeamView, UnadmittedView};

/// A team in one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TeamRow {
    /// The team.
    pub team: String,
    /// The team above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The pool.
    pub pool: String,
    /// Its guarantee.
    pub guaranteed: Amounts,
    /// Its limit.
    pub limit: Amounts,
    /// Its usage, with that of the teams below it.
    pub used: Amounts,
    /// The part of this usage that was never admitted.
    #[serde(default)]
    pub unadmitted: Amounts,
    /// Its usage beyond its guarantee.
    pub borrowed: Amounts,
    /// The part of its idle guarantee that other teams use.
    pub lent: Amounts,
    /// Its fair share of the pool for the current demand. A workload that no node could hold is no demand.
    #[serde(default)]
    pub fair_share: Amounts,
    /// What it borrowed in the past, decayed.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub past: Amounts,
    /// Its share of the surplus among borrowers.
    #[serde(default)]
    pub weight: u32,
    /// The part of a GPU that a unit of each of these resources is in the pool: the `shares` of its NodePool.
    #[serde(default, skip_serializing_if = "Amounts::is_empty")]
    pub shares: Amounts,
}

impl TeamRow {
    /// The row of a team in a pool with these shares.
    #[must_use]
    pub fn new(view: TeamView, shares: Option<&ResourceList>) -> Self {
        Self {
            team: view.team.to_string(),
            parent: view.parent.map(|parent| parent.to_string()),
            pool: view.pool.to_string(),
            guaranteed: amounts(&view.guaranteed),
            limit: amounts(&view.limit),
            used: amounts(&view.used),
            unadmitted: amounts(&view.unadmitted),
            borrowed: amounts(&view.borrowed),
            lent: amounts(&view.lent),
            fair_share: amounts(&view.fair_share),
            past: amounts(&view.past),
            weight: view.weight,
            shares: shares.map(amounts).unwrap_or_default(),
        }
    }
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    /// The team.
    pub team: String,
    /// The queue.
    pub queue: String,
    /// Number of waiting workloads.
    pub pending: usize,
    /// Number of running workloads.
    pub running: usize,
    /// Submission time of the oldest waiting workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
    /// How the queue is paused: `Hold` or `Drain`. Absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
}

impl From<QueueView> for QueueRow {
    fn from(view: QueueView) -> Self {
        Self {
            team: view.team.to_string(),
            queue: view.queue.to_string(),
            pending: view.pending,
            running: view.running,
            oldest: view.oldest.map(timestamp),
            paused: (view.paused != Paused::No).then(|| view.paused.name().to_owned()),
        }
    }
}

/// Teams and their queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Teams {
    /// Each team in each pool.
    pub teams: Vec<TeamRow>,
    /// Each queue.
    pub queues: Vec<QueueRow>,
    /// Guarantees that exceed the capacity behind them, one sentence each.
    pub overcommitments: Vec<String>,
    /// Pods that were never admitted and are charged to their team.
    #[serde(default)]
    pub unadmitted: Vec<UnadmittedRow>,
    /// The budgets of the teams that have one.
    #[serde(default)]
    pub budgets: Vec<BudgetRow>,
}

/// One row of what is known about teams, so that an answer of many teams comes in parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "about")]
pub enum TeamsRow {
    /// A team in one pool.
    Team(TeamRow),
    /// A queue.
    Queue(QueueRow),
    /// Guarantees that exceed the capacity behind them.
    Overcommitment {
        /// One sentence.
        message: String,
    },
    /// Pods that were never admitted and are charged to their team.
    Unadmitted(UnadmittedRow),
    /// A budget.
    Budget(BudgetRow),
}

impl Teams {
    /// The rows, in the order of the fields.
    #[must_use]
    pub fn into_rows(self) -> Vec<TeamsRow> {
        let Self { teams, queues, overcommitments, unadmitted, budgets } = self;
        let over = overcommitments.into_iter().map(|message| TeamsRow::Overcommitment { message });
        let queues = queues.into_iter().map(TeamsRow::Queue);
        let rows = teams.into_iter().map(TeamsRow::Team).chain(queues).chain(over);
        let rows = rows.chain(unadmitted.into_iter().map(TeamsRow::Unadmitted));
        rows.chain(budgets.into_iter().map(TeamsRow::Budget)).collect()
    }
}

impl FromIterator<TeamsRow> for Teams {
    fn from_iter<I: IntoIterator<Item = TeamsRow>>(rows: I) -> Self {
        let mut all = Self::default();
        for row in rows {
            match row {
                TeamsRow::Team(row) => all.teams.push(row),
                TeamsRow::Queue(row) => all.queues.push(row),
                TeamsRow::Overcommitment { message } => all.overcommitments.push(message),
                TeamsRow::Unadmitted(row) => all.unadmitted.push(row),
                TeamsRow::Budget(row) => all.budgets.push(row),
            }
        }
        all
    }
}

/// The budget of a team.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetRow {
    /// The team.
    pub team: String,
    /// GPU-hours in a period.
    pub amount: String,
    /// The period: `Day`, `Week`, `Month`, `Quarter` or `Never`.
    pub period: String,
    /// What follows for work that the rest does not cover: `Notify`, `BorrowOnly` or `Hold`.
    pub on_exhausted: String,
    /// GPU-hours that the team and the teams below it used in the present period.
    pub used: String,
    /// GPU-hours that running work with time limits may still use.
    pub committed: String,
    /// What is used and committed, as parts of the amount in per cent.
    pub used_percent: u32,
    /// The part that is committed.
    pub committed_percent: u32,
    /// The day on which the budget is full again, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refill: Option<String>,
}

impl From<&BudgetView> for BudgetRow {
    fn from(view: &BudgetView) -> Self {
        let amount = view.budget.amount;
        let percent = |part: Amount| {
            let percent = i128::from(part.as_milli()) * 100 / i128::from(amount.as_milli().max(1));
            u32::try_from(percent).unwrap_or(u32::MAX)
        };
        Self {
            team: view.team.to_string(),
            amount: hours(amount),
            period: view.budget.period.name().to_owned(),
            on_exhausted: view.budget.on_exhausted.name().to_owned(),
            used: hours(view.used),
            committed: hours(view.committed),
            used_percent: percent(view.used),
            committed_percent: percent(view.committed),
            refill: view.refill.clone(),
        }
    }
}

/// Pods of one owner that were never admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnadmittedRow {
    /// The team that is charged.
    pub team: String,
    /// The pool of their nodes.
    pub pool: String,
    /// Their namespace.
    pub namespace: String,
    /// The owner as kind and name, or the pod where there is none.
    pub owner: String,
    /// Whether and when they are evicted: `First`, `Adopted` or `Fixed`.
    pub standing: String,
    /// Number of pods.
    pub pods: u32,
    /// What they hold together.
    pub resources: Amounts,
    /// The same as one sentence.
    pub message: String,
}

impl From<&UnadmittedView> for UnadmittedRow {
    fn from(view: &UnadmittedView) -> Self {
        Self {
            team: view.team.to_string(),
            pool: view.pool.to_string(),
            namespace: view.namespace.to_string(),
            owner: view.owner.to_string(),
            standing: view.standing.code().to_owned(),
            pods: view.pods,
            resources: amounts(&view.resources),
            message: view.sentence(),
        }
    }
}
