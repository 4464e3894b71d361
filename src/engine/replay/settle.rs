//! Lets time pass in a replay: what happens next, and the decisions at one instant until none is left.

use thiserror::Error;

use crate::replay::Run;
use crate::replay::life::Happening;
use crate::types::{BudgetUsed, Event, Time, WorkloadId};

/// How often decisions at one instant may lead to further ones.
const MOST_ROUNDS: u32 = 10_000;

/// Decisions at one instant led to further ones without end, against law 8.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error(
    "the decisions at {at:?} do not come to rest within {MOST_ROUNDS} rounds (no flapping); the last was about \
     {last}"
)]
pub struct NeverSettles {
    /// The time of that decision.
    pub at: Time,
    /// The workload of the last decision.
    pub last: WorkloadId,
}

impl Run {
    /// When something happens next by itself; `None` when nothing does.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        if self.dirty || self.engine.has_more() {
            return Some(self.now);
        }
        // A deadline at or before the last rest has been decided on already.
        let deadline = [self.engine.next_deadline_but_by_age(), self.next_by_age()];
        let deadline = deadline.into_iter().flatten().min();
        let deadline = deadline.filter(|at| self.rested.is_none_or(|rested| *at > rested));
        let whole = |at: Time| {
            let (past, grain) = (at.0.saturating_sub(self.began.0), self.grain);
            let rest = past.rem_euclid(grain);
            if rest == 0 { at } else { Time(at.0.saturating_add(grain - rest)) }
        };
        [self.timers.first(), deadline.map(whole)].into_iter().flatten().min().map(|at| at.max(self.now))
    }

    /// When the engine decides next because of the age of a workload.
    fn next_by_age(&self) -> Option<Time> {
        let at = self.engine.next_deadline_by_age()?;
        let ahead = at.0.saturating_sub(self.began.0);
        if !self.rough_ages || ahead <= 0 {
            return Some(at);
        }
        let step = 1_i64 << (ahead / 16).max(4_096).ilog2();
        Some(Time(self.began.0.saturating_add(ahead.saturating_add(step - 1) / step * step)))
    }

    /// Plays everything before `to`, and the ends at `to`; decisions at `to`
    /// are left for [`Run::settle`].
    ///
    /// # Errors
    /// [`NeverSettles`] when decisions lead to further decisions without end.
    pub fn reach(&mut self, to: Time, on: &mut dyn FnMut(Time, &Happening)) -> Result<(), NeverSettles> {
        while let Some(at) = self.next().filter(|at| *at < to) {
            self.now = at;
            self.settle(on)?;
        }
        self.now = self.now.max(to);
        self.fire();
        self.report(on);
        Ok(())
    }

    /// Decides at the present until nothing is left to decide.
    ///
    /// # Errors
    /// [`NeverSettles`] when decisions lead to further decisions without end.
    pub fn settle(&mut self, on: &mut dyn FnMut(Time, &Happening)) -> Result<(), NeverSettles> {
        self.settle_while(on, &mut || true).map(|_| ())
    }

    /// Decides at the present until nothing is left to decide, or until `go_on`, which is asked before each
    /// plan, says that it takes too long; false then.
    ///
    /// # Errors
    /// [`NeverSettles`] when decisions lead to further decisions without end.
    pub fn settle_while(
        &mut self,
        on: &mut dyn FnMut(Time, &Happening),
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, NeverSettles> {
        if self.next().is_none_or(|at| at > self.now) {
            self.report(on);
            return Ok(true);
        }
        let mut rounds = 1;
        while rounds < MOST_ROUNDS {
            if !go_on() {
                return Ok(false);
            }
            self.fire();
            self.plan();
            // On a cluster the next plan is made before the writes of this one are answered, so it knows no effect of them.
            if self.engine.has_more() {
                continue;
            }
            if self.carry_out_decided(on).is_none() {
                self.dirty = false;
                self.rested = Some(self.now);
                return Ok(true);
            }
            rounds += 1;
        }
        self.plan();
        match self.carry_out_decided(on) {
            Some(last) => Err(NeverSettles { at: self.now, last }),
            None => Ok(true),
        }
    }

    /// Lets everything happen up to `to`, decisions at `to` among it.
    ///
    /// # Errors
    /// [`NeverSettles`] when decisions lead to further decisions without end.
    pub fn advance(&mut self, to: Time, on: &mut dyn FnMut(Time, &Happening)) -> Result<(), NeverSettles> {
        self.reach(to, on)?;
        self.settle(on)
    }

    /// Makes one plan.
    fn plan(&mut self) {
        self.write_budgets();
        self.decided.extend(self.engine.plan(self.now).actions);
    }

    /// Carries out what is decided; returns the workload of the last decision, if any.
    fn carry_out_decided(&mut self, on: &mut dyn FnMut(Time, &Happening)) -> Option<WorkloadId> {
        let actions = std::mem::take(&mut self.decided);
        let last = actions.last().map(|action| action.workload().clone());
        for action in actions {
            self.carry_out(action);
        }
        self.report(on);
        last
    }

    /// Writes what is used of budgets into the statuses, as the leader does: what has ended is counted nowhere else.
    fn write_budgets(&mut self) {
        for view in self.engine.budgets(self.now) {
            if (view.used - view.counted).as_milli().abs() > 1 {
                let since = view.period.map(|(start, _)| start);
                let used = BudgetUsed { team: view.team, used: view.used, since, at: self.now };
                self.engine.apply(Event::BudgetUsed(used), self.now);
            }
        }
    }

    /// Reports the changes that were not reported yet.
    fn report(&mut self, on: &mut dyn FnMut(Time, &Happening)) {
        for (at, happening) in self.unreported.drain(..) {
            on(at, &happening);
        }
    }
}
