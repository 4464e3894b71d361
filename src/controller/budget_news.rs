//! Budgets of which a part has been used that is worth saying: four fifths, and all.
//!
//! What was used when the status was written last tells what an earlier leader has said, so that another one says nothing again.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::notify::Transition;
use crate::api::record::timestamp;
use crate::api::team::hours;
use crate::cluster::mirror::Mirror;
use crate::engine::Engine;
use crate::engine::types::amount::Amount;
use crate::engine::types::{BudgetView, Name, Time};
use crate::notify::{News, Notifier};

/// The shortest time between two passes.
const PASS: Duration = Duration::from_secs(5);
/// The parts that are said, in per cent.
const MARKS: [i64; 2] = [80, 100];

/// The largest mark of each team's budget that was said in its present period, of its present amount.
#[derive(Debug, Default)]
pub struct BudgetNews {
    told: BTreeMap<Name, (Option<Time>, Amount, i64)>,
    last: Option<Time>,
    any: bool,
}

impl BudgetNews {
    /// When the next pass is due, if there are budgets.
    pub fn next(&self) -> Option<Time> {
        self.last.filter(|_| self.any).map(|last| last.after(PASS))
    }

    /// Sends the marks that budgets have reached since the last pass.
    pub fn report(&mut self, engine: &Engine, mirror: &Mirror, notifier: &Notifier, now: Time) {
        if self.last.is_some_and(|last| now < last.after(PASS)) {
            return;
        }
        self.last = Some(now);
        let budgets = engine.budgets(now);
        self.any = !budgets.is_empty();
        self.told.retain(|team, _| budgets.iter().any(|view| view.team == *team));
        for view in budgets {
            if let Some(mark) = self.reached(&view) {
                send(&view, mark, mirror, notifier, now);
            }
        }
    }

    /// The mark that a budget has reached and that was not said yet.
    fn reached(&mut self, view: &BudgetView) -> Option<i64> {
        let period = view.period.map(|(start, _)| start);
        let amount = view.budget.amount;
        let before = self.told.get(&view.team).filter(|(of, whole, _)| (*of, *whole) == (period, amount));
        let before = before.map(|(.., mark)| *mark);
        let before = before.unwrap_or_else(|| mark(view, view.written.unwrap_or_default()));
        let now = mark(view, view.used).max(before);
        self.told.insert(view.team.clone(), (period, amount, now));
        (now > before).then_some(now)
    }
}

/// The largest mark that so much of a budget reaches; 0 if it reaches none.
fn mark(view: &BudgetView, used: Amount) -> i64 {
    let reached = |mark: &&i64| {
        i128::from(used.as_milli()) * 100 >= i128::from(view.budget.amount.as_milli()) * i128::from(**mark)
    };
    MARKS.iter().rev().find(reached).copied().unwrap_or(0)
}

fn send(view: &BudgetView, mark: i64, mirror: &Mirror, notifier: &Notifier, now: Time) {
    let Some(team) = mirror.team(&view.team) else { return };
    let endpoints = team.notify.iter().filter(|endpoint| endpoint.transitions.contains(&Transition::Budget));
    let mut endpoints = endpoints.peekable();
    if endpoints.peek().is_none() {
        return;
    }
    let refill = view.refill.as_ref().map(|date| format!(" It is full again on {date}, 00:00 UTC."));
    let reason = if mark >= 100 { "BudgetSpent" } else { "BudgetLow" };
    let message = format!(
        "Team {} has used {} of its budget of {} GPU-hours, which is {mark} % or more.{}",
        view.team,
        hours(view.used),
        hours(view.budget.amount),
        refill.unwrap_or_default(),
    );
    let start = view.period.map_or(0, |(start, _)| start.0);
    let news = News {
        transition: Transition::Budget,
        at: timestamp(now),
        // Periods begin at whole days, so mark and amount keep their place in the milliseconds of the first.
        occasion: start
            .saturating_add(mark)
            .saturating_add(view.budget.amount.as_milli() / 1000 % 80_000 * 1000),
        reason: reason.to_owned(),
        message,
        team: view.team.clone(),
        queue: "".into(),
        user: None,
        kind: "Team".to_owned(),
        namespace: "".into(),
        name: view.team.clone(),
        uid: team.uid.clone(),
    };
    notifier.send(endpoints, news);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::types::{Budget, OnExhausted, Period};

    fn view(used: i64, written: Option<i64>, start: i64) -> BudgetView {
        let budget =
            Budget { amount: Amount::units(10), period: Period::Month, on_exhausted: OnExhausted::Notify };
        BudgetView {
            team: "a".into(),
            budget,
            used: Amount::units(used),
            counted: Amount::units(used),
            written: written.map(Amount::units),
            committed: Amount::ZERO,
            period: Some((Time(start), Time(start + 1_000))),
            refill: None,
        }
    }

    #[test]
    fn marks_of_another_amount_are_said_again() {
        let mut news = BudgetNews::default();
        assert_eq!(news.reached(&view(10, Some(2), 0)), Some(100));
        let raised = |used| {
            let mut view = view(used, Some(10), 0);
            view.budget.amount = Amount::units(20);
            view
        };
        let said: Vec<_> = [10, 15, 16, 20].map(|used| news.reached(&raised(used))).to_vec();
        assert_eq!(said, [None, None, Some(80), Some(100)]);
    }

    #[test]
    fn each_mark_is_said_once_in_a_period_whoever_leads() {
        let mut news = BudgetNews::default();
        let said: Vec<_> = [2, 7, 8, 9, 10, 12].map(|used| news.reached(&view(used, Some(2), 0))).to_vec();
        assert_eq!(said, [None, None, Some(80), None, Some(100), None]);
        assert_eq!(news.reached(&view(9, None, 1_000)), Some(80), "in the next period again");
        let mut later = BudgetNews::default();
        assert_eq!(later.reached(&view(9, Some(8), 0)), None, "an earlier leader has said it");
        assert_eq!(later.reached(&view(10, Some(8), 0)), Some(100));
        let mut first = BudgetNews::default();
        assert_eq!(first.reached(&view(11, None, 0)), Some(100), "both at once");
    }
}
