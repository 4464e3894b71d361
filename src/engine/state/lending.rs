//! Whether other teams lend what a team would borrow: the part of their idle guarantees that they do not lend stays free.

use crate::capacity::devices::Holder;
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::quotas::{Account, Hypothetical};
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::Vector;

/// More usage of a team in a pool, of which other teams would have to lend what is beyond its guarantee.
#[derive(Clone, Copy, Debug)]
pub struct Loan<'a> {
    /// The pool.
    pub pool: PoolId,
    /// The team that borrows.
    pub team: TeamId,
    /// All that it would use more.
    pub total: &'a Vector,
}

/// Whether what is not lent stays free once capacity is `freed` and usage changes by `hypothetical`: what frees capacity may leave a
/// guarantee idle, and more to be kept.
#[must_use]
pub fn allows(state: &ClusterState, loan: Loan<'_>, freed: &Freed, hypothetical: &Hypothetical) -> bool {
    !state.quotas.has_reserves(loan.pool)
        || leaves_reserves(state, loan, (freed, hypothetical), &Vector::default())
}

/// Whether what is not lent stays free once the workloads have ended that have no pods left in `ended`, beside other work that
/// starts too, of an account.
#[must_use]
pub fn will_allow(
    state: &ClusterState,
    loan: Loan<'_>,
    ended: &Freed,
    beside: Option<(Account<'_>, &Vector)>,
) -> bool {
    if !state.quotas.has_reserves(loan.pool) {
        return true;
    }
    let mut hypothetical = Hypothetical::new();
    for (holder, pods) in ended.nodes().flat_map(|node| ended.gone(node)) {
        if let Holder::Workload(id) = holder
            && let Some(info) = state.get(id)
        {
            state.quotas.assume(&mut hypothetical, info.account(), &info.need.times(*pods), -1);
        }
    }
    let mut taken = Vector::default();
    if let Some((account, amount)) = beside {
        state.quotas.assume(&mut hypothetical, account, amount, 1);
        taken.add(amount, 1);
    }
    leaves_reserves(state, loan, (ended, &hypothetical), &taken)
}

/// Whether what is not lent stays free beside a loan, after changes of capacity and usage, and with `taken` less.
fn leaves_reserves(
    state: &ClusterState,
    Loan { pool, team, total }: Loan<'_>,
    (freed, hypothetical): (&Freed, &Hypothetical),
    taken: &Vector,
) -> bool {
    let mut free = Vector::default();
    for (index, info, _) in state.nodes.alive() {
        if info.pool == pool && info.open() {
            free.add(info.settled().amounts(), 1);
            if let Some(more) = freed.get(&index) {
                free.add(more, 1);
            }
        }
    }
    let reserve = state.quotas.reserve_after(pool, team, total, hypothetical);
    reserve.nonzero().all(|(index, reserved)| {
        let left = free.get(index).saturating_sub(total.get(index)).saturating_sub(taken.get(index));
        total.get(index) == 0 || left >= reserved
    })
}

/// A resource that a team can never borrow enough of, with what the nodes of the pool have of it and what is not lent of that while
/// everything is idle; `None` if its guarantee could hold the loan, or enough could be lent.
///
/// Idle is best: what a lender runs frees at most as much of what it keeps as it takes of the nodes.
#[must_use]
pub fn never_lent(state: &ClusterState, loan: Loan<'_>) -> Option<(usize, i64, i64)> {
    let Loan { pool, team, total } = loan;
    if !state.quotas.has_reserves(pool) || state.quotas.could_be_within_guarantee(pool, team, total) {
        return None;
    }
    let mut most = Vector::default();
    for (_, info, _) in state.nodes.alive().filter(|(_, info, _)| info.pool == pool) {
        most.add(info.empty().amounts(), 1);
    }
    let reserve = state.quotas.reserve_when_idle(pool, team, total);
    let mut short = reserve.nonzero().filter(|(index, reserved)| {
        let asked = total.get(*index);
        asked > 0 && most.get(*index).saturating_sub(asked) < *reserved
    });
    short.next().map(|(index, reserved)| (index, most.get(index), reserved))
}
