//! What the status of a Team says about its budget, and when that is worth a write.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::api::team::{BudgetStatus, TeamStatus, hours};
use crate::engine::types::BudgetView;
use crate::engine::types::amount::Amount;

/// After this time decayed usage, run lengths and what was used of a budget are written also if they have hardly changed. Decayed
/// usage that is read back is decayed from then on, as if the team had borrowed all the while what it borrows at that moment.
pub const EVERY: Duration = Duration::from_secs(300);

/// What was used of a budget, as the status has it.
#[must_use]
pub fn status(view: &BudgetView, now: &Time) -> BudgetStatus {
    let at = |at: crate::engine::types::Time| Time(Timestamp::from_millisecond(at.0).unwrap_or_default());
    let (used, amount) = (view.used, view.budget.amount);
    let part = i128::from(used.as_milli()) * 100 / i128::from(amount.as_milli().max(1));
    BudgetStatus {
        usage: format!("{}/{} ({part} %)", hours(used), hours(amount)),
        used: Quantity(hours(used)),
        committed: Quantity(hours(view.committed)),
        period_start: view.period.map(|(start, _)| at(start)),
        refill: view.period.map(|(_, end)| at(end)),
        at: Some(now.clone()),
    }
}

/// Whether what was used is worth a write of its own, given what was written last: it has moved by a hundredth of the budget, or
/// at all in a while, or when a leader ends; or another period has begun.
#[must_use]
pub fn is_due(before: &TeamStatus, now: &TeamStatus, view: Option<&BudgetView>, hand_over: bool) -> bool {
    let (Some(was), Some(is)) = (&before.budget, &now.budget) else { return before.budget != now.budget };
    if was.period_start != is.period_start {
        return true;
    }
    let used = |budget: &BudgetStatus| Amount::parse(&budget.used.0).unwrap_or_default().as_milli();
    let moved = used(is).saturating_sub(used(was)).unsigned_abs();
    let time = |budget: &BudgetStatus| budget.at.as_ref().map_or(0, |at| at.0.as_millisecond());
    let age = u128::from(time(is).saturating_sub(time(was)).unsigned_abs());
    let amount = view.map_or(1, |view| view.budget.amount.as_milli()).unsigned_abs();
    let much = moved.saturating_mul(100) >= amount || age >= EVERY.as_millis();
    moved > 0 && (much || hand_over)
}

/// Whether nothing is left of a budget, a reason code and a sentence, which does not change while the budget is used: each change
/// would be a write.
#[must_use]
pub fn exhausted(view: &BudgetView) -> (bool, &'static str, String) {
    let amount = hours(view.budget.amount);
    let refill = view.refill.as_ref().map(|date| format!(" It is full again on {date}, 00:00 UTC."));
    let refill = refill.unwrap_or_default();
    if view.used < view.budget.amount {
        return (false, "BudgetLeft", format!("A part of the budget of {amount} GPU-hours is left.{refill}"));
    }
    (true, "BudgetSpent", format!("The budget of {amount} GPU-hours is used up.{refill}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::types::{self, Budget, OnExhausted, Period};

    /// A budget of 100 GPU-hours of which so much is used.
    fn view(milli: i64) -> BudgetView {
        let budget =
            Budget { amount: Amount::units(100), period: Period::Day, on_exhausted: OnExhausted::Hold };
        let used = Amount::milli(milli);
        BudgetView {
            team: "vision".into(),
            budget,
            used,
            counted: used,
            written: None,
            committed: Amount::milli(milli % 7),
            period: Some((types::Time(0), types::Time(86_400_000))),
            refill: Some("1970-01-02".into()),
        }
    }

    fn at(seconds: i64) -> Time {
        Time(Timestamp::from_second(seconds).expect("a time"))
    }

    fn with(view: &BudgetView, seconds: i64) -> TeamStatus {
        TeamStatus { budget: Some(status(view, &at(seconds))), ..TeamStatus::default() }
    }

    /// The writes of an hour in which so many thousandths of a GPU-hour are used a second.
    fn writes_in_an_hour(milli: i64, hand_over: bool) -> usize {
        let (mut before, mut writes) = (TeamStatus::default(), 0);
        for round in 0..720 {
            let view = view(round * 5 * milli);
            let now = with(&view, round * 5);
            if is_due(&before, &now, Some(&view), hand_over) {
                (before, writes) = (now, writes + 1);
            }
        }
        writes
    }

    #[test]
    fn law_12_a_budget_is_written_when_it_has_moved_by_a_hundredth_or_after_five_minutes() {
        assert_eq!(writes_in_an_hour(0, false), 1, "nothing runs");
        // 3.6 GPU-hours in an hour: they move by one in a thousand seconds.
        assert_eq!(writes_in_an_hour(1, false), 12);
        // 36 GPU-hours in an hour.
        let writes = writes_in_an_hour(10, false);
        assert!((35..=37).contains(&writes), "{writes}");
        assert_eq!(writes_in_an_hour(1, true), 720, "a leader that ends writes what it knows");
    }

    #[test]
    fn a_status_says_what_is_used_and_whether_anything_is_left() {
        let found = status(&view(12_345), &at(60));
        assert_eq!((&*found.usage, &*found.used.0), ("12.345/100 (12 %)", "12.345"));
        assert_eq!((found.period_start, found.refill), (Some(at(0)), Some(at(86_400))));
        assert!(!exhausted(&view(99_999)).0);
        let message = "The budget of 100 GPU-hours is used up. It is full again on 1970-01-02, 00:00 UTC.";
        assert_eq!(exhausted(&view(100_000)), (true, "BudgetSpent", message.to_owned()));
    }
}
