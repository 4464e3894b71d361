//! Budgets: what teams use over time, as running totals.
//!
//! Decisions count what the status of a team says (law 11), and on top of it what runs now, each workload at its present size
//! since its admission or since that status. Both are in the objects, so every replica counts alike, and so does an engine that
//! has just started. What has ended since the status was written is missing there; the leader integrates what it sees, and
//! writes it once it has moved by a hundredth of the budget.
//!
//! What runs is kept as a line: with rate `r` and since `s`, a workload has used `r × (now − s)`, so all of them have used
//! `Σr × now − Σrs`. Time limits are kept alike: until its limit at `e`, a workload may use `r × (e − now)` more.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::amount::Amount;
use crate::types::ids::TeamId;
use crate::types::{Budget, BudgetUsed, OnExhausted, Time, WorkloadId};

/// Thousandths of a device × milliseconds in a thousandth of a GPU-hour.
const UNIT: i128 = 3_600_000;

/// What a workload uses of budgets while it is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Devices, or their worth in the currency of its pool, in thousandths.
    pub rate: i64,
    /// When it was admitted; what is charged without an admission counts once the status says so.
    pub since: Option<Time>,
    /// When its time limit ends.
    pub end: Option<Time>,
}

/// Whether the budgets of a team and of those above it cover the start of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Funding {
    /// They do, or only say that they do not.
    Funded,
    /// That of this team does not, so the workload may only borrow.
    BorrowOnly(TeamId),
    /// That of this team does not, so the workload may not start.
    Held(TeamId),
}

/// The budget of one team.
#[derive(Clone, Debug)]
struct Account {
    budget: Budget,
    /// The present period: start and end.
    period: Option<(Time, Time)>,
    /// The sum of the rates of what runs, and of each rate × the time since which it counts.
    rate: i128,
    moment: i128,
    /// The rates of what runs within its time limit, by the end of the limit; their sum, and the sum of each rate × end.
    timed: BTreeMap<(Time, WorkloadId), i128>,
    timed_rate: i128,
    timed_end: i128,
    /// What is committed to workloads that capacity is nominated to.
    nominated: i128,
    /// What was used in the period by all that was charged, up to a time, and the rate of what is charged since then.
    own: (i128, Time),
    held: i128,
}

impl Account {
    fn new(budget: Budget, period: Option<(Time, Time)>, now: Time) -> Self {
        Self {
            budget,
            period,
            rate: 0,
            moment: 0,
            timed: BTreeMap::new(),
            timed_rate: 0,
            timed_end: 0,
            nominated: 0,
            own: (0, now),
            held: 0,
        }
    }

    fn start(&self) -> Option<Time> {
        self.period.map(|(start, _)| start)
    }

    /// What was written in the status, if that is about the present period, and the time from which on what runs counts.
    fn written(&self, read: Option<&BudgetUsed>) -> (i128, Option<Time>) {
        match read.filter(|read| read.since == self.start()) {
            Some(read) => (i128::from(read.used.as_milli()) * UNIT, Some(read.at)),
            None => (0, self.start()),
        }
    }

    /// What decisions count as used at `now`.
    fn counted(&self, read: Option<&BudgetUsed>, now: Time) -> i128 {
        (self.written(read).0 + self.rate * i128::from(now.0) - self.moment).max(0)
    }

    fn committed(&self, now: Time) -> i128 {
        (self.timed_end - self.timed_rate * i128::from(now.0)).max(0) + self.nominated.max(0)
    }

    /// What was used in the period up to `now` by all that was charged.
    fn own(&self, now: Time) -> i128 {
        self.own.0 + self.held * (i128::from(now.0) - i128::from(self.own.1.0))
    }

    fn amount(&self) -> i128 {
        i128::from(self.budget.amount.as_milli()) * UNIT
    }

    fn add(&mut self, id: &WorkloadId, cost: Cost, floor: Option<Time>, now: Time) {
        let rate = i128::from(cost.rate);
        self.own = (self.own(now), now);
        self.held += rate;
        if let Some(since) = cost.since {
            self.rate += rate;
            self.moment += rate * i128::from(counts_from(since, floor).0);
        }
        if let Some(end) = cost.end.filter(|end| *end > now) {
            self.timed.insert((end, id.clone()), rate);
            self.timed_rate += rate;
            self.timed_end += rate * i128::from(end.0);
        }
    }

    fn remove(&mut self, id: &WorkloadId, cost: Cost, floor: Option<Time>, now: Time) {
        let rate = i128::from(cost.rate);
        self.own = (self.own(now), now);
        self.held -= rate;
        if let Some(since) = cost.since {
            self.rate -= rate;
            self.moment -= rate * i128::from(counts_from(since, floor).0);
        }
        if let Some(end) = cost.end {
            self.end_limit(&(end, id.clone()));
        }
    }

    /// Takes a workload off those within their time limits.
    fn end_limit(&mut self, key: &(Time, WorkloadId)) {
        if let Some(rate) = self.timed.remove(key) {
            self.timed_rate -= rate;
            self.timed_end -= rate * i128::from(key.0.0);
        }
    }

    /// The next time at which a limit or the period ends.
    fn due(&self) -> Option<Time> {
        let limit = self.timed.first_key_value().map(|((end, _), _)| *end);
        [limit, self.period.map(|(_, end)| end)].into_iter().flatten().min()
    }
}

/// The time from which a workload counts that was admitted at `since`.
fn counts_from(since: Time, floor: Option<Time>) -> Time {
    floor.map_or(since, |floor| since.max(floor))
}

/// The budgets of all teams that have one.
#[derive(Clone, Debug, Default)]
pub struct Budgets {
    accounts: BTreeMap<TeamId, Account>,
    /// What the statuses say, of teams without a budget too: the status may be read before the team.
    read: BTreeMap<TeamId, BudgetUsed>,
    /// The latest time that was let pass.
    now: Time,
    /// Nothing is due before.
    due: Option<Time>,
    /// The time of the calendar at time 0.
    calendar: Time,
    /// Whether decisions were made: from then on, what was used is integrated and not taken from the statuses.
    begun: bool,
    /// Teams of which more may be left than before.
    eased: BTreeSet<TeamId>,
}

impl Budgets {
    /// Sets the time of the calendar at time 0.
    pub fn set_calendar(&mut self, calendar: Time) {
        self.calendar = calendar;
    }

    /// Whether no team has a budget.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// The period around a time, on the clock of the engine.
    fn period(&self, budget: &Budget, at: Time) -> Option<(Time, Time)> {
        let shifted = |at: Time, by: i64| Time(at.0.saturating_add(by));
        let (start, end) = budget.period.around(shifted(at, self.calendar.0))?;
        Some((shifted(start, -self.calendar.0), shifted(end, -self.calendar.0)))
    }

    /// Sets or removes the budget of a team. What runs must be added again afterwards: [`Budgets::clear`].
    pub(super) fn define(&mut self, team: TeamId, budget: Option<Budget>) {
        let Some(budget) = budget else {
            self.accounts.remove(&team);
            return;
        };
        let period = self.period(&budget, self.now);
        match self.accounts.get_mut(&team) {
            Some(account) if account.budget.period == budget.period => account.budget = budget,
            _ => _ = self.accounts.insert(team, Account::new(budget, period, self.now)),
        }
        self.eased.insert(team);
        self.due = None;
    }

    /// Forgets what the status of a team said that is gone.
    pub(super) fn forget(&mut self, team: TeamId) {
        self.read.remove(&team);
    }

    /// The teams with budgets.
    pub fn teams(&self) -> impl Iterator<Item = TeamId> + '_ {
        self.accounts.keys().copied()
    }

    /// Takes all that is charged off a budget, before it is added again; true if the budget is new, so that what was used
    /// so far must be taken from the status: [`Budgets::adopt`].
    pub fn clear(&mut self, team: TeamId) -> bool {
        let now = self.now;
        let Some(account) = self.accounts.get_mut(&team) else { return false };
        let new = account.own.1 == now && account.own.0 == 0 && account.held == 0;
        account.own = (account.own(now), now);
        (account.held, account.rate, account.moment) = (0, 0, 0);
        account.timed.clear();
        (account.timed_rate, account.timed_end) = (0, 0);
        new
    }

    /// Goes on from the status and from what runs.
    pub fn adopt(&mut self, team: TeamId) {
        let (now, read) = (self.now, self.read.get(&team));
        if let Some(account) = self.accounts.get_mut(&team) {
            account.own = (account.counted(read, now), now);
        }
    }

    /// Goes on from the statuses and from what runs, for all teams: the first decisions are about to be made.
    pub fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            for team in self.teams().collect::<Vec<_>>() {
                self.adopt(team);
            }
        }
    }

    /// Adds what a workload costs to the budgets on a path.
    pub fn add(&mut self, path: &[TeamId], id: &WorkloadId, cost: Cost) {
        for team in path {
            self.add_to(*team, id, cost);
        }
    }

    /// Adds what a workload costs to one budget.
    pub fn add_to(&mut self, team: TeamId, id: &WorkloadId, cost: Cost) {
        let (now, read) = (self.now, self.read.get(&team));
        if let Some(account) = self.accounts.get_mut(&team) {
            let floor = account.written(read).1;
            account.add(id, cost, floor, now);
            self.due = self.due.zip(account.due()).map(|(due, own)| due.min(own));
        }
    }

    /// Takes what a workload costs off the budgets on a path.
    pub fn remove(&mut self, path: &[TeamId], id: &WorkloadId, cost: Cost) {
        for team in path {
            let (now, read) = (self.now, self.read.get(team));
            if let Some(account) = self.accounts.get_mut(team) {
                let floor = account.written(read).1;
                account.remove(id, cost, floor, now);
            }
        }
    }

    /// Commits what a workload that capacity is nominated to may use, or takes it back.
    pub fn commit(&mut self, path: &[TeamId], amount: i128, times: i64) {
        for team in path {
            if let Some(account) = self.accounts.get_mut(team) {
                account.nominated += amount * i128::from(times);
                if times < 0 {
                    self.eased.insert(*team);
                }
            }
        }
    }

    /// Lets time pass; the teams with a period that has ended, to which what runs must be added again.
    pub fn pass(&mut self, now: Time) -> Vec<TeamId> {
        self.now = self.now.max(now);
        let now = self.now;
        if self.accounts.is_empty() || self.due.is_some_and(|due| now < due) {
            return Vec::new();
        }
        let mut refilled = Vec::new();
        for (team, account) in &mut self.accounts {
            while let Some(key) = account.timed.first_key_value().map(|(key, _)| key.clone()) {
                if key.0 > now {
                    break;
                }
                account.end_limit(&key);
            }
            if account.period.is_some_and(|(_, end)| end <= now) {
                refilled.push(*team);
            }
        }
        for team in &refilled {
            let period = self.accounts.get(team).and_then(|account| self.period(&account.budget, now));
            let Some(account) = self.accounts.get_mut(team) else { continue };
            account.period = period;
            // From the start of the period on, all that is charged.
            account.own = (0, period.map_or(now, |(start, _)| start));
            self.eased.insert(*team);
        }
        self.due = self.accounts.values().filter_map(Account::due).min();
        refilled
    }

    /// Takes note of what a status says.
    pub fn note(&mut self, team: TeamId, used: BudgetUsed) {
        self.read.insert(team, used);
        self.eased.insert(team);
    }

    /// Marks teams of which more may be left.
    pub fn mark_eased(&mut self, mut teams: BTreeSet<TeamId>) {
        self.eased.append(&mut teams);
    }

    /// The teams of which more may be left than at the last call.
    pub fn take_eased(&mut self) -> BTreeSet<TeamId> {
        std::mem::take(&mut self.eased)
    }

    /// What is left of a budget for new work.
    fn left(&self, team: TeamId) -> Option<(i128, &Account)> {
        let account = self.accounts.get(&team)?;
        let used = account.counted(self.read.get(&team), self.now);
        Some((account.amount() - used - account.committed(self.now), account))
    }

    /// Whether the budgets on a path cover the start of a workload that uses `rate`, for at most `most` of budget units if
    /// it has a time limit.
    #[must_use]
    pub fn funding(&self, path: &[TeamId], rate: i64, most: Option<i128>) -> Funding {
        if self.accounts.is_empty() || rate <= 0 {
            return Funding::Funded;
        }
        let lacking = path.iter().filter_map(|team| {
            let (left, account) = self.left(*team)?;
            let covered = left > 0 && most.is_none_or(|most| most <= left);
            (!covered).then_some((account.budget.on_exhausted, *team))
        });
        // The strictest; of equal ones the nearest.
        let strictest = lacking.fold(None, |found: Option<(OnExhausted, TeamId)>, next| match found {
            Some(found) if found.0 >= next.0 => Some(found),
            _ => Some(next),
        });
        match strictest {
            Some((OnExhausted::Hold, team)) => Funding::Held(team),
            Some((OnExhausted::BorrowOnly, team)) => Funding::BorrowOnly(team),
            Some((OnExhausted::Notify, _)) | None => Funding::Funded,
        }
    }

    /// Whether nothing is left of a budget on a path, so that no guarantee there counts for work that starts.
    #[must_use]
    pub fn is_spent(&self, path: &[TeamId]) -> bool {
        !self.accounts.is_empty()
            && path.iter().any(|team| {
                self.left(*team).is_some_and(|(left, account)| {
                    left <= 0 && account.budget.on_exhausted != OnExhausted::Notify
                })
            })
    }

    /// Whether so much is more than the whole budget of a team.
    #[must_use]
    pub fn exceeds(&self, team: TeamId, most: Option<i128>) -> bool {
        let account = self.accounts.get(&team);
        account.is_some_and(|account| most.is_some_and(|most| most > account.amount()))
    }

    /// The end of the present period of a team's budget.
    #[must_use]
    pub fn refill(&self, team: TeamId) -> Option<Time> {
        self.accounts.get(&team)?.period.map(|(_, end)| end)
    }

    /// The time of the calendar.
    #[must_use]
    pub fn on_calendar(&self, at: Time) -> Time {
        Time(at.0.saturating_add(self.calendar.0))
    }

    /// The budget of a team at `now`: the budget itself and the present period, and in GPU-hours what all that was charged
    /// used, what decisions count of it, what the status says, and what is committed. `None` without a budget.
    #[must_use]
    pub fn figures(&self, team: TeamId, now: Time) -> Option<BudgetFigures> {
        let (account, read) = (self.accounts.get(&team)?, self.read.get(&team));
        let now = now.max(self.now);
        let counted = account.counted(read, now);
        let read = read.filter(|read| read.since == account.start());
        Some(BudgetFigures {
            budget: account.budget,
            period: account.period,
            used: hours(if self.begun { account.own(now).max(0) } else { counted }),
            counted: hours(counted),
            written: read.map(|read| read.used),
            committed: hours(account.committed(now)),
        })
    }
}

/// The figures of one budget, in GPU-hours.
#[derive(Clone, Copy, Debug)]
pub struct BudgetFigures {
    /// The budget.
    pub budget: Budget,
    /// The present period.
    pub period: Option<(Time, Time)>,
    /// What all that was charged used.
    pub used: Amount,
    /// What decisions count.
    pub counted: Amount,
    /// What the status says.
    pub written: Option<Amount>,
    /// What may still be used by running work with time limits, and by work that is about to start.
    pub committed: Amount,
}

/// GPU-hours, rounded down to thousandths.
#[must_use]
pub fn hours(used: i128) -> Amount {
    Amount::milli(i64::try_from(used.div_euclid(UNIT)).unwrap_or(i64::MAX))
}
