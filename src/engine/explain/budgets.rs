//! Sentences about budgets.

use crate::explain::verdicts::{never, pending};
use crate::placement::waiting::WaitingWorkload;
use crate::state::cluster::ClusterState;
use crate::state::quotas::{BudgetFigures, hours};
use crate::state::rules::time_limit;
use crate::types::amount::Amount;
use crate::types::ids::{PoolId, TeamId};
use crate::types::{Period, Reason, Time, Verdict, date_of, span};

/// What is added to the reason for a start beyond a budget.
pub const UNFUNDED: &str = " A budget is spent, so no guarantee protects it.";

/// The budget of the team `at` does not cover a workload, which `may_borrow` all the same.
pub fn budget_spent(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    pool: PoolId,
    at: TeamId,
    may_borrow: bool,
) -> Verdict {
    let budgets = &state.quotas.budgets;
    let name = &state.quotas.team(at).name;
    let Some(figures) = budgets.figures(at, Time(i64::MIN)) else {
        return pending(Reason::BudgetSpent, format!("The budget of team {name} is spent."));
    };
    let BudgetFigures { budget, counted, committed, .. } = figures;
    let committed = match committed {
        Amount::ZERO => String::new(),
        committed => format!(" and has committed {} to time limits", shown(committed)),
    };
    let used = format!(
        "Team {name} has used {} of {} GPU-hours{}{committed}",
        shown(counted),
        shown(budget.amount),
        period(budget.period),
    );
    let need = state.at(waiting.index).map(|info| state.budget_need(info, pool, &waiting.total));
    let limit = state.at(waiting.index).and_then(|info| time_limit(state, info));
    let asks = match (need, limit) {
        (Some((_, Some(most))), Some(limit)) => {
            format!("; it may use {} until its time limit of {}", shown(hours(most)), span(limit))
        }
        _ => String::new(),
    };
    let refill = budgets.refill(at).map(|end| date_of(budgets.on_calendar(end)));
    let most = need.and_then(|(_, most)| most);
    let exceeds = budgets.exceeds(at, most);
    let until = match refill {
        _ if exceeds => "That is more than the whole budget".to_owned(),
        Some(date) => format!("The budget is full again on {date}, 00:00 UTC"),
        None => "The budget has no period, so it is not full again by itself".to_owned(),
    };
    let beyond = match (may_borrow, waiting.preemptible) {
        (false, _) if exceeds => ", so it cannot start as the budget stands",
        (false, _) => "",
        (true, true) => {
            "; beyond the budget it starts only on idle capacity, and nothing is preempted for it"
        }
        (true, false) => "; beyond the budget it does not start, because it is not preemptible",
    };
    let message = format!("{used}{asks}. {until}{beyond}.");
    let may_start = may_borrow && waiting.preemptible;
    if exceeds && !may_start {
        never(Reason::BudgetSpent, message)
    } else {
        pending(Reason::BudgetSpent, message)
    }
}

/// GPU-hours as people read them: whole from a hundred on, else with at most two decimals, and three below one.
fn shown(hours: Amount) -> String {
    let milli = hours.as_milli();
    let step = match milli.abs() {
        0..1_000 => 1,
        1_000..100_000 => 10,
        _ => 1_000,
    };
    let rounded = milli / step * step;
    let (whole, part) = (rounded / 1_000, (rounded % 1_000).abs());
    let text = format!("{whole}.{part:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The period, as the end of a clause.
fn period(period: Period) -> &'static str {
    match period {
        Period::Day => " of this day",
        Period::Week => " of this week",
        Period::Month => " of this month",
        Period::Quarter => " of this quarter",
        Period::Never => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_are_shown_as_exactly_as_people_need() {
        for (milli, text) in [
            (0, "0"),
            (5, "0.005"),
            (1_234, "1.23"),
            (12_500, "12.5"),
            (99_999, "99.99"),
            (100_400, "100"),
            (10_000_000, "10000"),
        ] {
            assert_eq!(shown(Amount::milli(milli)), text);
        }
    }
}
